//! Reading pcap and pcapng as one stream of packets.

use std::io::{self, Read};
use std::ops::Range;

use super::{
    BYTE_ORDER_MAGIC, Direction, Error, Interface, LinkType, MAX_PACKET, Packet, block, option,
};

/// Bytes of a pcapng packet block around the packet: fields and options.
const MAX_AROUND_PACKET: usize = 1 << 20;

/// Reads a capture packet by packet, reusing one buffer. It reads in small pieces: wrap a file into
/// a [`BufReader`](std::io::BufReader).
///
/// After an error there are no further packets: [`next_packet`](Self::next_packet) returns
/// `Ok(None)`. So a truncated file gives the packets before the cut, then one error.
///
/// ```
/// use hirail_wire::pcap::{LinkType, Reader, Writer};
///
/// let mut file = Vec::new();
/// let mut writer = Writer::new(&mut file)?;
/// let port = writer.add_interface("hirail0", LinkType::ETHERNET)?;
/// writer.write_packet(port, 1_000_000_001, &[&[0; 60]], Some("the first"))?;
///
/// let mut reader = Reader::new(file.as_slice())?;
/// while let Some(packet) = reader.next_packet()? {
///     assert_eq!(packet.time_ns, Some(1_000_000_001));
///     assert_eq!(packet.comment.as_deref(), Some("the first"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    interfaces: Vec<Interface>,
    buffer: Vec<u8>,
    /// Nothing more will be read: the end of the file or an error was met.
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header of the capture in `source`.
    ///
    /// # Errors
    ///
    /// [`Error::NotACapture`] where the first bytes are no known magic number, else what is wrong
    /// with the header.
    pub fn new(source: R) -> Result<Self, Error> {
        let mut source = Source {
            inner: source,
            offset: 0,
        };
        let mut magic = [0; 4];
        let len = source.fill(&mut magic)?;
        let swap = |be: bool| if be { Order::Big } else { Order::Little };
        let mut reader = Self {
            source,
            format: Format::Pcap {
                order: Order::Big,
                ticks: Ticks::MICROSECONDS,
            },
            interfaces: Vec::new(),
            buffer: Vec::new(),
            done: false,
        };
        match (len, u32::from_be_bytes(magic)) {
            (4, number @ (0xa1b2_c3d4 | 0xd4c3_b2a1)) => {
                reader.pcap_header(swap(number == 0xa1b2_c3d4), Ticks::MICROSECONDS)?;
            }
            (4, number @ (0xa1b2_3c4d | 0x4d3c_b2a1)) => {
                reader.pcap_header(swap(number == 0xa1b2_3c4d), Ticks::NANOSECONDS)?;
            }
            (4, block::SECTION_HEADER) => reader.section_header(0)?,
            _ => return Err(Error::NotACapture { found: magic, len }),
        }
        Ok(reader)
    }

    /// The interfaces met so far, in order. pcapng may introduce more at any place.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The next packet, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file and where; the next call returns `None`.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        if self.done {
            return Ok(None);
        }
        // A borrow that is returned from a loop cannot be taken inside it; so the parts that find
        // the packet return where it lies, and it is borrowed at the end.
        self.done = true;
        let found = match self.format {
            Format::Pcap { order, ticks } => self.pcap_record(order, ticks)?,
            Format::Pcapng { .. } => self.pcapng_packet()?,
        };
        let Some(found) = found else { return Ok(None) };
        self.done = false;
        Ok(Some(Packet {
            interface: &self.interfaces[found.interface],
            interface_index: found.interface,
            time_ns: found.time_ns,
            data: &self.buffer[found.data],
            original_len: found.original_len,
            comment: found
                .comment
                .map(|range| String::from_utf8_lossy(&self.buffer[range])),
            direction: found.direction,
        }))
    }

    fn pcap_header(&mut self, order: Order, ticks: Ticks) -> Result<(), Error> {
        let mut header = [0; 20];
        self.source.exact(&mut header, "pcap file header")?;
        // The upper half says whether and how long frame check sequences are; lengths of what
        // lies in the frame come from the frame.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low 16 bits are the link type"
        )]
        let link_type = LinkType(order.u32(&header, 16) as u16);
        self.interfaces.push(Interface {
            link_type,
            name: None,
        });
        self.format = Format::Pcap { order, ticks };
        Ok(())
    }

    fn pcap_record(&mut self, order: Order, ticks: Ticks) -> Result<Option<Found>, Error> {
        let offset = self.source.offset;
        let mut header = [0; 16];
        if !self
            .source
            .exact_or_end(&mut header, "packet record header")?
        {
            return Ok(None);
        }
        let len = order.u32(&header, 8);
        let data_offset = self.source.offset;
        let data = checked_packet_len(len, offset)?;
        self.source
            .body(&mut self.buffer, data, data_offset, "packet data")?;
        let seconds = u64::from(order.u32(&header, 0));
        Ok(Some(Found {
            interface: 0,
            time_ns: Some(
                seconds * 1_000_000_000 + ticks.to_ns(u64::from(order.u32(&header, 4)), 0),
            ),
            data: 0..data,
            original_len: order.u32(&header, 12),
            comment: None,
            direction: None,
        }))
    }

    fn pcapng_packet(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let offset = self.source.offset;
            let mut kind = [0; 4];
            if !self.source.exact_or_end(&mut kind, "block header")? {
                return Ok(None);
            }
            // The type of a section header reads the same in both byte orders.
            if u32::from_be_bytes(kind) == block::SECTION_HEADER {
                self.section_header(offset)?;
                continue;
            }
            let Format::Pcapng { order, .. } = self.format else {
                unreachable!("only called for pcapng")
            };
            let kind = order.u32(&kind, 0);
            let body = self.block_len(order, offset)?;
            match kind {
                block::INTERFACE => {
                    self.block_body(order, body, offset)?;
                    self.interface(order, offset)?;
                }
                block::ENHANCED_PACKET | block::OBSOLETE_PACKET => {
                    self.block_body(order, body, offset)?;
                    return self.packet_block(order, kind, offset).map(Some);
                }
                block::SIMPLE_PACKET => {
                    self.block_body(order, body, offset)?;
                    return self.simple_packet(order, offset).map(Some);
                }
                _ => {
                    self.source.skip(body as u64, offset)?;
                    self.block_end(order, body, offset)?;
                }
            }
        }
    }

    /// Reads the section header at `offset`, whose type has been read.
    fn section_header(&mut self, offset: u64) -> Result<(), Error> {
        let mut fixed = [0; 8];
        self.source.exact(&mut fixed, "section header")?;
        let order = match (Order::Big.u32(&fixed, 4), Order::Little.u32(&fixed, 4)) {
            (BYTE_ORDER_MAGIC, _) => Order::Big,
            (_, BYTE_ORDER_MAGIC) => Order::Little,
            (found, _) => {
                return Err(Error::Malformed {
                    offset,
                    what: "byte-order magic of a section header",
                    expected: "0x1a2b3c4d in either order",
                    found: found.into(),
                });
            }
        };
        let body = checked_block_len(order.u32(&fixed, 0), offset)?;
        let Some(rest) = body.checked_sub(4).filter(|rest| *rest >= 12) else {
            return Err(Error::Malformed {
                offset,
                what: "length of a section header",
                expected: "at least 28",
                found: order.u32(&fixed, 0).into(),
            });
        };
        let mut version = [0; 4];
        self.source.exact(&mut version, "section header")?;
        let major = order.u16(&version, 0);
        if major != 1 {
            return Err(Error::Malformed {
                offset,
                what: "pcapng version",
                expected: "1",
                found: major.into(),
            });
        }
        self.source.skip(rest as u64 - 4, offset)?;
        self.block_end(order, body, offset)?;
        self.format = Format::Pcapng {
            order,
            first_interface: self.interfaces.len(),
            clocks: Vec::new(),
        };
        Ok(())
    }

    /// Reads the length field of a block; returns how long its body is.
    fn block_len(&mut self, order: Order, offset: u64) -> Result<usize, Error> {
        let mut len = [0; 4];
        self.source.exact(&mut len, "block header")?;
        checked_block_len(order.u32(&len, 0), offset)
    }

    /// Reads the body and the trailing length of a block that is kept.
    fn block_body(&mut self, order: Order, body: usize, offset: u64) -> Result<(), Error> {
        if body > MAX_PACKET + MAX_AROUND_PACKET {
            return Err(Error::Malformed {
                offset,
                what: "block length",
                expected: "at most 1310732",
                found: body as u64 + 12,
            });
        }
        self.source.body(&mut self.buffer, body, offset, "block")?;
        self.block_end(order, body, offset)
    }

    /// Reads the trailing length of a block, which repeats the leading one.
    fn block_end(&mut self, order: Order, body: usize, offset: u64) -> Result<(), Error> {
        let mut len = [0; 4];
        self.source.exact(&mut len, "trailing block length")?;
        let found = u64::from(order.u32(&len, 0));
        if found != body as u64 + 12 {
            return Err(Error::Malformed {
                offset,
                what: "trailing block length",
                expected: "the same as the leading one",
                found,
            });
        }
        Ok(())
    }

    /// Takes the interface description in the buffer.
    fn interface(&mut self, order: Order, offset: u64) -> Result<(), Error> {
        let body = self.buffer.as_slice();
        need(
            body,
            8,
            offset,
            "length of an interface description",
            "at least 20",
        )?;
        let link_type = LinkType(order.u16(body, 0));
        let mut name = None;
        let mut clock = Clock {
            ticks: Ticks::MICROSECONDS,
            offset_s: 0,
        };
        for (code, value) in options(order, body, 8) {
            match (code, &body[value]) {
                (option::INTERFACE_NAME, name_bytes) => {
                    name = Some(String::from_utf8_lossy(name_bytes).into_owned());
                }
                (option::TIME_RESOLUTION, [resolution, ..]) => {
                    clock.ticks = Ticks(*resolution);
                }
                (option::TIME_OFFSET, value) if value.len() >= 8 => {
                    clock.offset_s = order.u64(value, 0).cast_signed();
                }
                _ => {}
            }
        }
        self.interfaces.push(Interface { link_type, name });
        if let Format::Pcapng { clocks, .. } = &mut self.format {
            clocks.push(clock);
        }
        Ok(())
    }

    /// Finds the packet in the enhanced (or obsolete) packet block in the buffer.
    fn packet_block(&self, order: Order, kind: u32, offset: u64) -> Result<Found, Error> {
        let body = self.buffer.as_slice();
        need(body, 20, offset, "length of a packet block", "at least 32")?;
        let interface = match kind {
            block::ENHANCED_PACKET => order.u32(body, 0),
            _ => order.u16(body, 0).into(),
        };
        let (index, clock) = self.clock(interface, offset)?;
        let ticks = u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8));
        let len = checked_packet_len(order.u32(body, 12), offset)?;
        let padded = len.next_multiple_of(4);
        let what = "captured length of a packet block";
        need(
            body,
            20 + padded,
            offset,
            what,
            "at most what the block holds",
        )?;
        let find = |wanted| {
            options(order, body, 20 + padded)
                .find(|(code, _)| *code == wanted)
                .map(|(_, value)| value)
        };
        let comment = find(option::COMMENT);
        let flags = find(option::FLAGS).filter(|flags| flags.len() == 4);
        let direction = match flags.map_or(0, |flags| order.u32(body, flags.start) & 3) {
            1 => Some(Direction::Inbound),
            2 => Some(Direction::Outbound),
            _ => None,
        };
        Ok(Found {
            interface: index,
            time_ns: Some(clock.ticks.to_ns(ticks, clock.offset_s)),
            data: 20..20 + len,
            original_len: order.u32(body, 16),
            comment,
            direction,
        })
    }

    /// Finds the packet in the simple packet block in the buffer.
    fn simple_packet(&self, order: Order, offset: u64) -> Result<Found, Error> {
        let body = self.buffer.as_slice();
        need(
            body,
            4,
            offset,
            "length of a simple packet block",
            "at least 16",
        )?;
        let (interface, _) = self.clock(0, offset)?;
        let original_len = order.u32(body, 0);
        // The capture may have cut the packet; what there is fills the block.
        let len = checked_packet_len(
            original_len.min(u32::try_from(body.len() - 4).unwrap_or(0)),
            offset,
        )?;
        Ok(Found {
            interface,
            time_ns: None,
            data: 4..4 + len,
            original_len,
            comment: None,
            direction: None,
        })
    }

    /// The index into `interfaces` and the clock of interface `number` of this section.
    fn clock(&self, number: u32, offset: u64) -> Result<(usize, Clock), Error> {
        let Format::Pcapng {
            first_interface,
            clocks,
            ..
        } = &self.format
        else {
            unreachable!("only called for pcapng")
        };
        let index = number as usize;
        match clocks.get(index) {
            Some(clock) => Ok((first_interface + index, *clock)),
            None => Err(Error::Malformed {
                offset,
                what: "interface number of a packet",
                expected: "one that the section has described",
                found: number.into(),
            }),
        }
    }
}

#[derive(Debug)]
enum Format {
    Pcap {
        order: Order,
        ticks: Ticks,
    },
    Pcapng {
        order: Order,
        /// Interfaces are numbered per section; this is where the section's begin.
        first_interface: usize,
        clocks: Vec<Clock>,
    },
}

/// Where a packet lies in the buffer.
struct Found {
    interface: usize,
    time_ns: Option<u64>,
    data: Range<usize>,
    original_len: u32,
    comment: Option<Range<usize>>,
    direction: Option<Direction>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (self.u32(bytes, at).into(), self.u32(bytes, at + 4).into());
        let (high, low): (u64, u64) = match self {
            Self::Big => (first, second),
            Self::Little => (second, first),
        };
        high << 32 | low
    }
}

/// How the time stamps of an interface are to be read.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks: Ticks,
    offset_s: i64,
}

/// A time unit as pcapng codes it: 10^−n seconds, or 2^−n with the top bit set.
#[derive(Clone, Copy, Debug)]
struct Ticks(u8);

impl Ticks {
    const MICROSECONDS: Self = Self(6);
    const NANOSECONDS: Self = Self(9);

    /// `ticks` of this unit after `offset_s` seconds, in nanoseconds; times outside of what the
    /// type can hold are clamped.
    fn to_ns(self, ticks: u64, offset_s: i64) -> u64 {
        let ticks = u128::from(ticks);
        let exponent = u32::from(self.0 & 0x7f);
        let ns = if self.0 & 0x80 != 0 {
            (ticks * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            ticks * 10u128.pow(9 - exponent)
        } else {
            10u128
                .checked_pow(exponent - 9)
                .map_or(0, |divisor| ticks / divisor)
        };
        // Less than 2^94 each: no overflow.
        let ns = ns.cast_signed() + i128::from(offset_s) * 1_000_000_000;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// The options from `start` on in a block's body, each with where its value lies; up to the end
/// mark or the first that does not fit.
fn options(order: Order, body: &[u8], start: usize) -> impl Iterator<Item = (u16, Range<usize>)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let header = body.get(at..at + 4)?;
        let (code, len) = (order.u16(header, 0), usize::from(order.u16(header, 2)));
        let value = at + 4..at + 4 + len;
        if code == option::END || value.end > body.len() {
            return None;
        }
        at += 4 + len.next_multiple_of(4);
        Some((code, value))
    })
}

fn need(
    body: &[u8],
    len: usize,
    offset: u64,
    what: &'static str,
    expected: &'static str,
) -> Result<(), Error> {
    if body.len() < len {
        return Err(Error::Malformed {
            offset,
            what,
            expected,
            found: body.len() as u64 + 12,
        });
    }
    Ok(())
}

fn checked_packet_len(len: u32, offset: u64) -> Result<usize, Error> {
    match usize::try_from(len) {
        Ok(len) if len <= MAX_PACKET => Ok(len),
        _ => Err(Error::Malformed {
            offset,
            what: "captured length of a packet",
            expected: "at most 262144",
            found: len.into(),
        }),
    }
}

/// The body length of a block whose length field holds `total`.
fn checked_block_len(total: u32, offset: u64) -> Result<usize, Error> {
    match usize::try_from(total)
        .ok()
        .and_then(|total| total.checked_sub(12))
    {
        Some(body) if body % 4 == 0 => Ok(body),
        _ => Err(Error::Malformed {
            offset,
            what: "block length",
            expected: "a multiple of 4, at least 12",
            found: total.into(),
        }),
    }
}

/// The file and the place in it.
#[derive(Debug)]
struct Source<R> {
    inner: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    /// Reads until `target` is full or the file ends; returns how much was read.
    fn fill(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        let mut len = 0;
        while len < target.len() {
            match self.inner.read(&mut target[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Io(error)),
            }
        }
        self.offset += len as u64;
        Ok(len)
    }

    fn exact(&mut self, target: &mut [u8], what: &'static str) -> Result<(), Error> {
        let offset = self.offset;
        if self.exact_or_end(target, what)? {
            return Ok(());
        }
        Err(Error::Truncated {
            offset,
            what,
            expected: target.len() as u64,
            found: 0,
        })
    }

    /// Fills `target`; `false` if the file ends before its first byte.
    fn exact_or_end(&mut self, target: &mut [u8], what: &'static str) -> Result<bool, Error> {
        let offset = self.offset;
        match self.fill(target)? {
            0 => Ok(false),
            len if len == target.len() => Ok(true),
            len => Err(Error::Truncated {
                offset,
                what,
                expected: target.len() as u64,
                found: len as u64,
            }),
        }
    }

    /// Reads `len` bytes into `buffer`, which grows only as far as the file reaches.
    fn body(
        &mut self,
        buffer: &mut Vec<u8>,
        len: usize,
        offset: u64,
        what: &'static str,
    ) -> Result<(), Error> {
        buffer.clear();
        let read = self
            .inner
            .by_ref()
            .take(len as u64)
            .read_to_end(buffer)
            .map_err(Error::Io)?;
        self.offset += read as u64;
        if read < len {
            return Err(Error::Truncated {
                offset,
                what,
                expected: len as u64,
                found: read as u64,
            });
        }
        Ok(())
    }

    /// Reads past `len` bytes of the block at `offset`.
    fn skip(&mut self, len: u64, offset: u64) -> Result<(), Error> {
        let skipped =
            io::copy(&mut self.inner.by_ref().take(len), &mut io::sink()).map_err(Error::Io)?;
        self.offset += skipped;
        if skipped < len {
            return Err(Error::Truncated {
                offset,
                what: "block",
                expected: len,
                found: skipped,
            });
        }
        Ok(())
    }
}
