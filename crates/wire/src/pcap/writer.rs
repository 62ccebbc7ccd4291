//! Writing pcapng: one section, nanosecond time stamps.

use std::io::{self, Write};

use super::{BYTE_ORDER_MAGIC, Direction, LinkType, MAX_PACKET, block, option};

/// The most bytes of a comment or a name that are written, a multiple of 4 below the 65 535 that
/// an option's length can say.
const MAX_OPTION: usize = 65_532;

/// Writes a pcapng capture. Each packet is handed to the sink as one piece, so that a sink shared
/// between processes or cut off at any time holds whole blocks.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    interfaces: u32,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a capture in `sink`.
    ///
    /// # Errors
    ///
    /// What the sink reports.
    pub fn new(sink: W) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            interfaces: 0,
            buffer: Vec::new(),
        };
        writer.begin(block::SECTION_HEADER);
        writer.u32(BYTE_ORDER_MAGIC);
        writer.u16(1); // version 1.0
        writer.u16(0);
        writer.buffer.extend(u64::MAX.to_le_bytes()); // the section's length is not known yet
        writer.finish()?;
        Ok(writer)
    }

    /// Goes on with a capture in `sink` that begins with a section of this writer's and one interface,
    /// which is number 0.
    pub const fn resume(sink: W) -> Self {
        Self {
            sink,
            interfaces: 1,
            buffer: Vec::new(),
        }
    }

    /// Describes an interface; its number goes with the packets.
    ///
    /// # Errors
    ///
    /// What the sink reports.
    pub fn add_interface(&mut self, name: &str, link_type: LinkType) -> io::Result<u32> {
        self.begin(block::INTERFACE);
        self.u16(link_type.0);
        self.u16(0);
        self.u32(0); // packets are not cut
        self.option(option::INTERFACE_NAME, name.as_bytes());
        self.option(option::TIME_RESOLUTION, &[9]);
        self.option(option::END, &[]);
        self.finish()?;
        let number = self.interfaces;
        self.interfaces += 1;
        Ok(number)
    }

    /// Writes the packet that `parts` make up, seen on `interface` (a number that
    /// [`add_interface`](Self::add_interface) returned) at `time_ns` nanoseconds since the Unix
    /// epoch. A comment beyond 65 532 bytes is cut.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an interface that was not added or a packet longer than
    /// [`MAX_PACKET`], else what the sink reports.
    pub fn write_packet(
        &mut self,
        interface: u32,
        time_ns: u64,
        parts: &[&[u8]],
        comment: Option<&str>,
    ) -> io::Result<()> {
        self.write(interface, time_ns, parts, comment, None)
    }

    /// The same for a packet of which it is known which way it went.
    ///
    /// # Errors
    ///
    /// As [`write_packet`](Self::write_packet).
    pub fn write_directed(
        &mut self,
        interface: u32,
        time_ns: u64,
        direction: Direction,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        self.write(interface, time_ns, parts, None, Some(direction))
    }

    fn write(
        &mut self,
        interface: u32,
        time_ns: u64,
        parts: &[&[u8]],
        comment: Option<&str>,
        direction: Option<Direction>,
    ) -> io::Result<()> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let wire_len = match u32::try_from(len) {
            Ok(wire_len) if len <= MAX_PACKET => wire_len,
            _ => {
                let text = format!("expected a packet of at most {MAX_PACKET} bytes, got {len}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        if interface >= self.interfaces {
            let text = format!(
                "expected an interface below {}, got {interface}",
                self.interfaces
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.begin(block::ENHANCED_PACKET);
        self.u32(interface);
        let [high, low] = [time_ns >> 32, time_ns & 0xffff_ffff];
        #[expect(clippy::cast_possible_truncation, reason = "both are below 2^32")]
        for half in [high as u32, low as u32] {
            self.u32(half);
        }
        self.u32(wire_len);
        self.u32(wire_len);
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        self.pad();
        if let Some(comment) = comment {
            let comment = &comment[..comment.floor_char_boundary(MAX_OPTION)];
            self.option(option::COMMENT, comment.as_bytes());
        }
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.option(option::FLAGS, &flags.to_le_bytes());
        }
        if comment.is_some() || direction.is_some() {
            self.option(option::END, &[]);
        }
        self.finish()
    }

    /// Passes on to the sink what it still buffers.
    ///
    /// # Errors
    ///
    /// What the sink reports.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// The sink.
    pub fn into_inner(self) -> W {
        self.sink
    }

    fn begin(&mut self, kind: u32) {
        self.buffer.clear();
        self.u32(kind);
        self.u32(0); // the length, once known
    }

    /// Fills in the length at both ends of the block and hands it to the sink.
    fn finish(&mut self) -> io::Result<()> {
        let len = u32::try_from(self.buffer.len() + 4).expect("packets and options are bounded");
        self.buffer[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.sink.write_all(&self.buffer)
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(MAX_OPTION)];
        self.u16(code);
        self.u16(u16::try_from(value.len()).expect("cut above"));
        self.buffer.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }

    fn u16(&mut self, value: u16) {
        self.buffer.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.buffer.extend(value.to_le_bytes());
    }
}
