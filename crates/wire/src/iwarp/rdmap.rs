//! DDP segments and the RDMAP messages in them (RFC 5041, RFC 5040).

use core::fmt;

use crate::bytes::{Reader, Writer};

use super::Error;

/// RDMAP message kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInv = 4,
    /// Send with Solicited Event.
    SendSe = 5,
    /// Send with Solicited Event and Invalidate.
    SendSeInv = 6,
    /// Terminate: an error, and the end of the connection.
    Terminate = 7,
    /// Immediate Data (RFC 7306).
    Immediate = 8,
    /// Immediate Data with Solicited Event (RFC 7306).
    ImmediateSe = 9,
    /// Atomic Request (RFC 7306).
    AtomicRequest = 10,
    /// Atomic Response (RFC 7306).
    AtomicResponse = 11,
}

impl Opcode {
    /// All of them, in order of their number.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInv,
        Self::SendSe,
        Self::SendSeInv,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSe,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The untagged queue that its messages travel on; `None` for tagged ones.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(1),
            Self::Terminate => Some(2),
            Self::AtomicResponse => Some(3),
            _ => Some(0),
        }
    }

    /// The name, such as `"Read Request"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "Write",
            Self::ReadRequest => "Read Request",
            Self::ReadResponse => "Read Response",
            Self::Send => "Send",
            Self::SendInv => "Send with Invalidate",
            Self::SendSe => "Send with SE",
            Self::SendSeInv => "Send with SE and Invalidate",
            Self::Terminate => "Terminate",
            Self::Immediate => "Immediate Data",
            Self::ImmediateSe => "Immediate Data with SE",
            Self::AtomicRequest => "Atomic Request",
            Self::AtomicResponse => "Atomic Response",
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The DDP header: where the segment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ddp {
    /// Into memory that the receiver has named.
    Tagged {
        /// Steering tag, what RoCE calls an R_Key.
        stag: u32,
        /// Tagged offset, what RoCE calls a virtual address.
        offset: u64,
    },
    /// Into the next buffer of a queue.
    Untagged {
        /// Steering tag to invalidate, in the Sends that say so; else 0.
        invalidate: u32,
        /// Queue number.
        queue: u32,
        /// Message sequence number, from 1, per queue and direction.
        msn: u32,
        /// Offset of this segment in the message, in bytes.
        offset: u32,
    },
}

/// DDP and RDMAP headers of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    opcode: Opcode,
    last: bool,
    ddp: Ddp,
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;

impl Segment {
    /// The headers, if `opcode` goes with such a DDP header.
    pub fn new(opcode: Opcode, last: bool, ddp: Ddp) -> Option<Self> {
        let queue = match ddp {
            Ddp::Tagged { .. } => None,
            Ddp::Untagged { queue, .. } => Some(queue),
        };
        (opcode.queue() == queue).then_some(Self { opcode, last, ddp })
    }

    /// What the message is.
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Whether the message ends with this segment.
    pub const fn last(&self) -> bool {
        self.last
    }

    /// Where the segment belongs.
    pub const fn ddp(&self) -> Ddp {
        self.ddp
    }

    /// Bytes of the headers: 14 tagged, 18 untagged. The payload follows.
    pub const fn header_len(&self) -> usize {
        match self.ddp {
            Ddp::Tagged { .. } => 14,
            Ddp::Untagged { .. } => 18,
        }
    }

    /// Reads the headers at the beginning of a ULPDU.
    ///
    /// # Errors
    ///
    /// Why they are none.
    pub fn parse(ulpdu: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(ulpdu);
        let (ddp_control, rdmap_control) = (reader.u8()?, reader.u8()?);
        if ddp_control & 3 != 1 {
            return Err(Error::BadDdpVersion(ddp_control & 3));
        }
        if rdmap_control >> 6 != 1 {
            return Err(Error::BadRdmapVersion(rdmap_control >> 6));
        }
        let number = rdmap_control & 0x0f;
        let Some(&opcode) = Opcode::ALL.get(usize::from(number)) else {
            return Err(Error::UnknownOpcode(number));
        };
        let ddp = if ddp_control & TAGGED != 0 {
            Ddp::Tagged {
                stag: reader.u32()?,
                offset: reader.u64()?,
            }
        } else {
            Ddp::Untagged {
                invalidate: reader.u32()?,
                queue: reader.u32()?,
                msn: reader.u32()?,
                offset: reader.u32()?,
            }
        };
        Self::new(opcode, ddp_control & LAST != 0, ddp).ok_or(Error::WrongHeader(opcode))
    }

    /// Writes the headers to the beginning of `buffer`; returns their length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer);
        let tagged = if matches!(self.ddp, Ddp::Tagged { .. }) {
            TAGGED
        } else {
            0
        };
        writer.u8(tagged | if self.last { LAST } else { 0 } | 1);
        writer.u8(1 << 6 | self.opcode as u8);
        match self.ddp {
            Ddp::Tagged { stag, offset } => {
                writer.u32(stag);
                writer.u64(offset);
            }
            Ddp::Untagged {
                invalidate,
                queue,
                msn,
                offset,
            } => {
                [invalidate, queue, msn, offset]
                    .into_iter()
                    .for_each(|word| writer.u32(word));
            }
        }
        writer.written()
    }
}

/// The 28 bytes of an RDMA Read Request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadRequest {
    /// Where the reader wants the data: steering tag.
    pub sink_stag: u32,
    /// Where the reader wants the data: offset.
    pub sink_offset: u64,
    /// Bytes to read.
    pub length: u32,
    /// What to read: steering tag.
    pub source_stag: u32,
    /// What to read: offset.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the payload of a Read Request.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] when it is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        Ok(Self {
            sink_stag: reader.u32()?,
            sink_offset: reader.u64()?,
            length: reader.u32()?,
            source_stag: reader.u32()?,
            source_offset: reader.u64()?,
        })
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(self.sink_stag);
        writer.u64(self.sink_offset);
        writer.u32(self.length);
        writer.u32(self.source_stag);
        writer.u64(self.source_offset);
        bytes
    }
}

/// What a Terminate message says. Copies of the headers that caused it may follow; they are in
/// `headers` as they came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terminate<'a> {
    /// Who found the error: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Kind of error, per layer.
    pub kind: u8,
    /// The error, per layer and kind.
    pub code: u8,
    /// Length of the DDP segment that caused it, in bytes, where told.
    pub segment_len: Option<u16>,
    /// DDP and RDMAP headers of that segment, where told.
    pub headers: &'a [u8],
}

impl<'a> Terminate<'a> {
    /// Reads the payload of a Terminate.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] when it is too short.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let (layer_and_kind, code, told) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let segment_len = if told & 0x8000 != 0 {
            Some(reader.u16()?)
        } else {
            None
        };
        let headers = if told & 0x6000 != 0 {
            reader.rest()
        } else {
            &[]
        };
        Ok(Self {
            layer: layer_and_kind >> 4,
            kind: layer_and_kind & 15,
            code,
            segment_len,
            headers,
        })
    }

    /// What went wrong, such as `"RDMAP remote protection: base or bounds"`.
    pub const fn meaning(&self) -> &'static str {
        match (self.layer, self.kind, self.code) {
            (0, 0, _) => "RDMAP local catastrophic error",
            (0, 1, 0) => "RDMAP remote protection: invalid STag",
            (0, 1, 1) => "RDMAP remote protection: base or bounds",
            (0, 1, 2) => "RDMAP remote protection: access rights",
            (0, 1, 3) => "RDMAP remote protection: STag of another stream",
            (0, 1, 4) => "RDMAP remote protection: offset wraps",
            (0, 1, 9) => "RDMAP remote protection: STag cannot be invalidated",
            (0, 1, _) => "RDMAP remote protection: unspecified",
            (0, 2, 5) => "RDMAP remote operation: invalid version",
            (0, 2, 6) => "RDMAP remote operation: unexpected opcode",
            (0, 2, 7) => "RDMAP remote operation: catastrophic, this stream",
            (0, 2, 8) => "RDMAP remote operation: catastrophic, the device",
            (0, 2, _) => "RDMAP remote operation: unspecified",
            (1, 0, _) => "DDP local catastrophic error",
            (1, 1, 0) => "DDP tagged buffer: invalid STag",
            (1, 1, 1) => "DDP tagged buffer: base or bounds",
            (1, 1, 2) => "DDP tagged buffer: STag of another stream",
            (1, 1, 3) => "DDP tagged buffer: offset wraps",
            (1, 1, 4) => "DDP tagged buffer: invalid version",
            (1, 2, 1) => "DDP untagged buffer: invalid queue number",
            (1, 2, 2) => "DDP untagged buffer: no buffer available",
            (1, 2, 3) => "DDP untagged buffer: MSN out of range",
            (1, 2, 4) => "DDP untagged buffer: invalid offset",
            (1, 2, 5) => "DDP untagged buffer: message too long",
            (1, 2, 6) => "DDP untagged buffer: invalid version",
            (2, 0, 1) => "MPA: TCP connection lost",
            (2, 0, 2) => "MPA: wrong CRC",
            (2, 0, 3) => "MPA: marker and length disagree",
            (2, 0, 4) => "MPA: invalid startup frame",
            (2, 0, 5) => "MPA: local catastrophic error",
            (2, 0, 6) => "MPA: insufficient IRD",
            (2, 0, 7) => "MPA: no matching ready-to-receive",
            _ => "unknown error",
        }
    }
}
