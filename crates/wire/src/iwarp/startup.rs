//! MPA startup frames: the one request and the one reply that begin a connection.

use crate::bytes::{Reader, Writer};

use super::Error;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

const MAX_PRIVATE_DATA: u16 = 512;

/// An MPA request or reply frame (RFC 5044; the enhanced form: RFC 6581).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Startup<'a> {
    /// Request or reply.
    pub kind: StartupKind,
    /// The sender of this frame wants markers in what it receives.
    pub markers: bool,
    /// The sender wants CRCs; they are used in both directions if either side wants them.
    pub crc: bool,
    /// The connection is refused; replies only.
    pub rejected: bool,
    /// Revision, with the enhanced set-up where the frame has one.
    pub revision: Revision,
    /// Private data of the application, at most 512 bytes (508 beside an enhanced set-up).
    pub private_data: &'a [u8],
}

/// Which of the two startup frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StartupKind {
    /// From the side that opened the TCP connection.
    Request,
    /// The answer.
    Reply,
}

/// MPA revision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581, with or without its enhanced set-up.
    Two(Option<Enhanced>),
}

impl Revision {
    /// The number in the frame.
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two(_) => 2,
        }
    }
}

/// The enhanced set-up of RFC 6581: read depths, and who may speak first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Enhanced {
    /// Peer-to-peer: the active side begins with a "ready to receive".
    pub peer_to_peer: bool,
    /// A zero-length SEND may be that message.
    pub rtr_send: bool,
    /// A zero-length RDMA WRITE may be that message.
    pub rtr_write: bool,
    /// A zero-length RDMA READ may be that message.
    pub rtr_read: bool,
    /// Reads that the sender can serve at once, 14 bits; 0x3fff: not negotiated.
    pub ird: u16,
    /// Reads that the sender wants to have open at once, 14 bits; 0x3fff: not negotiated.
    pub ord: u16,
}

impl<'a> Startup<'a> {
    /// Reads the frame at the beginning of `stream`; returns it and its length in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] while the frame is not complete, else why this is none.
    pub fn parse(stream: &'a [u8]) -> Result<(Self, usize), Error> {
        let known = |key: &&[u8; 16]| key.starts_with(&stream[..stream.len().min(16)]);
        if ![REQUEST_KEY, REPLY_KEY].iter().any(known) {
            return Err(Error::NotMpa);
        }
        let mut reader = Reader::new(stream);
        let kind = match reader.take::<16>()? {
            REQUEST_KEY => StartupKind::Request,
            _ => StartupKind::Reply,
        };
        let flags = reader.u8()?;
        let number = reader.u8()?;
        let len = reader.u16()?;
        if !matches!(number, 1 | 2) {
            return Err(Error::BadRevision(number));
        }
        let enhanced = number == 2 && flags & ENHANCED != 0;
        if len > MAX_PRIVATE_DATA || enhanced && len < 4 {
            return Err(Error::BadPrivateData(len));
        }
        let mut private_data = reader.take_slice(len.into())?;
        let revision = if enhanced {
            let mut words = Reader::new(private_data);
            let (ird, ord) = (words.u16()?, words.u16()?);
            private_data = words.rest();
            Revision::Two(Some(Enhanced {
                peer_to_peer: ird & 0x8000 != 0,
                rtr_send: ird & 0x4000 != 0,
                rtr_write: ord & 0x8000 != 0,
                rtr_read: ord & 0x4000 != 0,
                ird: ird & 0x3fff,
                ord: ord & 0x3fff,
            }))
        } else if number == 2 {
            Revision::Two(None)
        } else {
            Revision::One
        };
        let startup = Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            rejected: flags & REJECTED != 0,
            revision,
            private_data,
        };
        Ok((startup, 20 + usize::from(len)))
    }

    /// Writes the frame to the beginning of `buffer`; returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is too short (532 bytes always suffice) or the private data too long.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let enhanced = match self.revision {
            Revision::Two(enhanced) => enhanced,
            Revision::One => None,
        };
        let len = self.private_data.len() + if enhanced.is_some() { 4 } else { 0 };
        assert!(
            len <= MAX_PRIVATE_DATA.into(),
            "at most 512 bytes of private data"
        );
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bit16 = |set: bool, bit: u16| if set { bit } else { 0 };
        let mut writer = Writer::new(buffer);
        writer.put(match self.kind {
            StartupKind::Request => *REQUEST_KEY,
            StartupKind::Reply => *REPLY_KEY,
        });
        writer.u8(bit(self.markers, MARKERS)
            | bit(self.crc, CRC)
            | bit(self.rejected, REJECTED)
            | bit(enhanced.is_some(), ENHANCED));
        writer.u8(self.revision.number());
        writer.u16(u16::try_from(len).expect("checked above"));
        if let Some(e) = enhanced {
            writer.u16(bit16(e.peer_to_peer, 0x8000) | bit16(e.rtr_send, 0x4000) | e.ird & 0x3fff);
            writer.u16(bit16(e.rtr_write, 0x8000) | bit16(e.rtr_read, 0x4000) | e.ord & 0x3fff);
        }
        writer.put_slice(self.private_data);
        writer.written()
    }
}
