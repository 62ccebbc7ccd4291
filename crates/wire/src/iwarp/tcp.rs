//! TCP headers, as far as following an iWARP stream in a capture needs them.

use crate::bytes::{Reader, Writer};

use super::Error;

/// TCP header without its options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub dest_port: u16,
    /// Sequence number of the first payload byte; of the SYN where there is one.
    pub sequence: u32,
    /// The next sequence number that the sender expects; meaningful with [`TcpHeader::ACK`].
    pub acknowledgement: u32,
    /// A set of the `TcpHeader::` flags.
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
}

impl TcpHeader {
    /// No more data from this side.
    pub const FIN: u8 = 0x01;
    /// Begins the stream of this side.
    pub const SYN: u8 = 0x02;
    /// Ends the connection at once.
    pub const RST: u8 = 0x04;
    /// The receiver shall not wait for more.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement counts.
    pub const ACK: u8 = 0x10;

    /// Bytes on the wire without options.
    pub const LEN: usize = 20;

    /// Reads the header at the beginning of `packet`; returns it and the payload behind its options.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] when the packet ends before the header does, or the header says so.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Error> {
        let mut reader = Reader::new(packet);
        let (source_port, dest_port) = (reader.u16()?, reader.u16()?);
        let (sequence, acknowledgement) = (reader.u32()?, reader.u32()?);
        let (words, flags) = (reader.u8()? >> 4, reader.u8()?);
        let window = reader.u16()?;
        reader.take::<4>()?;
        let len = usize::from(words) * 4;
        match packet.get(len..) {
            Some(payload) if len >= Self::LEN => {
                let header = Self {
                    source_port,
                    dest_port,
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                };
                Ok((header, payload))
            }
            _ => Err(Error::Truncated {
                needed: len.max(Self::LEN),
                have: packet.len().min(len),
            }),
        }
    }

    /// The bytes on the wire, without options and with a checksum of 0.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u16(self.source_port);
        writer.u16(self.dest_port);
        writer.u32(self.sequence);
        writer.u32(self.acknowledgement);
        writer.u8(5 << 4);
        writer.u8(self.flags);
        writer.u16(self.window);
        bytes
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}
