//! A view of the InfiniBand part of a packet that reads whatever is there: for logs, dissectors and
//! refused packets. Nothing is checked; a field that lies beyond the bytes is `None`.
//!
//! What passed the checks is a [`Headers`](crate::Headers); both read the same values.

use crate::bytes::u24;
use crate::{
    Aeth, AtomicEth, Deth, ExtKind, Msn, Opcode, PKey, Psn, QKey, Qpn, Reth, Rkey, Syndrome,
};

/// Where the fields are. Ranges of the extension headers count from their own start, which
/// [`IbView::ext_offset`](crate::view::IbView::ext_offset) tells.
pub mod field {
    use core::ops::Range;

    /// BTH: opcode.
    pub const OPCODE: usize = 0;
    /// BTH: solicited event, migration state, pad count, header version.
    pub const FLAGS: usize = 1;
    /// BTH: partition key.
    pub const PKEY: Range<usize> = 2..4;
    /// BTH: FECN, BECN and reserved bits, which the ICRC does not cover.
    pub const CONGESTION: usize = 4;
    /// BTH: destination QP.
    pub const DEST_QP: Range<usize> = 5..8;
    /// BTH: acknowledge request and reserved bits.
    pub const ACK_REQ: usize = 8;
    /// BTH: packet sequence number.
    pub const PSN: Range<usize> = 9..12;
    /// The whole BTH.
    pub const BTH: Range<usize> = 0..12;
    /// XRCETH after the BTH, from the start of the packet: the SRQ number.
    pub const XRC_SRQN: Range<usize> = 13..16;

    /// RETH and AtomicETH: address.
    pub const VA: Range<usize> = 0..8;
    /// RETH and AtomicETH: key.
    pub const RKEY: Range<usize> = 8..12;
    /// RETH: length of the message.
    pub const DMA_LENGTH: Range<usize> = 12..16;
    /// After a RETH: immediate data.
    pub const RETH_IMM: Range<usize> = 16..20;
    /// AtomicETH: value to swap in or to add.
    pub const SWAP_OR_ADD: Range<usize> = 12..20;
    /// AtomicETH: value to compare with.
    pub const COMPARE: Range<usize> = 20..28;
    /// AETH: syndrome.
    pub const SYNDROME: usize = 0;
    /// AETH: message sequence number.
    pub const MSN: Range<usize> = 1..4;
    /// After an AETH: original data of the atomic.
    pub const ORIGINAL: Range<usize> = 4..12;
    /// DETH: queue key.
    pub const QKEY: Range<usize> = 0..4;
    /// DETH: source QP.
    pub const SOURCE_QP: Range<usize> = 5..8;
    /// After a DETH: immediate data.
    pub const DETH_IMM: Range<usize> = 8..12;
    /// Immediate data.
    pub const IMM: Range<usize> = 0..4;
    /// IETH: the key to invalidate.
    pub const INVALIDATE: Range<usize> = 0..4;
    /// FETH, whole; a RETH follows.
    pub const FETH: Range<usize> = 0..4;
}

/// The bytes from the BTH on: to the pad, or less where a packet is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IbView<'a>(&'a [u8]);

impl<'a> IbView<'a> {
    /// A view of these bytes, which begin with a BTH and end before the ICRC.
    pub const fn new(ib: &'a [u8]) -> Self {
        Self(ib)
    }

    /// All the bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn be24(self, at: usize) -> Option<u32> {
        self.array(at).map(u24)
    }

    fn be32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    fn be64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_be_bytes)
    }

    /// The opcode as a number, defined or not.
    pub fn opcode_byte(self) -> Option<u8> {
        self.byte(field::OPCODE)
    }

    /// The opcode, where it is a defined one.
    pub fn opcode(self) -> Option<Opcode> {
        Opcode::from_u8(self.opcode_byte()?)
    }

    /// Solicited event.
    pub fn solicited(self) -> Option<bool> {
        Some(self.byte(field::FLAGS)? & 0x80 != 0)
    }

    /// Migration state.
    pub fn migrated(self) -> Option<bool> {
        Some(self.byte(field::FLAGS)? & 0x40 != 0)
    }

    /// Pad count.
    pub fn pad(self) -> Option<u8> {
        Some(self.byte(field::FLAGS)? >> 4 & 3)
    }

    /// Transport header version.
    pub fn tver(self) -> Option<u8> {
        Some(self.byte(field::FLAGS)? & 15)
    }

    /// Partition key.
    pub fn pkey(self) -> Option<PKey> {
        self.array(field::PKEY.start)
            .map(|bytes| PKey(u16::from_be_bytes(bytes)))
    }

    /// Forward congestion notification.
    pub fn fecn(self) -> Option<bool> {
        Some(self.byte(field::CONGESTION)? & 0x80 != 0)
    }

    /// Backward congestion notification.
    pub fn becn(self) -> Option<bool> {
        Some(self.byte(field::CONGESTION)? & 0x40 != 0)
    }

    /// Destination QP.
    pub fn dest_qp(self) -> Option<Qpn> {
        self.be24(field::DEST_QP.start).map(Qpn::new)
    }

    /// Whether an acknowledgement is asked for.
    pub fn ack_req(self) -> Option<bool> {
        Some(self.byte(field::ACK_REQ)? & 0x80 != 0)
    }

    /// Packet sequence number.
    pub fn psn(self) -> Option<Psn> {
        self.be24(field::PSN.start).map(Psn::new)
    }

    /// XRC SRQ number, where the opcode has one.
    pub fn xrc_srqn(self) -> Option<u32> {
        if self.opcode()?.has_xrceth() {
            self.be24(field::XRC_SRQN.start)
        } else {
            None
        }
    }

    /// Where the extension headers after BTH and XRCETH begin.
    pub fn ext_offset(self) -> Option<usize> {
        let opcode = self.opcode()?;
        Some(opcode.header_len() - opcode.ext_kind().len())
    }

    /// Kind and offset of the extension headers.
    fn ext(self) -> Option<(ExtKind, usize)> {
        Some((self.opcode()?.ext_kind(), self.ext_offset()?))
    }

    /// RETH.
    pub fn reth(self) -> Option<Reth> {
        let at = match self.ext()? {
            (ExtKind::Reth | ExtKind::RethImm, at) => at,
            (ExtKind::Flush, at) => at + field::FETH.end,
            _ => return None,
        };
        Some(Reth {
            va: self.be64(at + field::VA.start)?,
            rkey: Rkey::new(self.be32(at + field::RKEY.start)?),
            length: self.be32(at + field::DMA_LENGTH.start)?,
        })
    }

    /// AtomicETH.
    pub fn atomic_eth(self) -> Option<AtomicEth> {
        let (ExtKind::Atomic, at) = self.ext()? else {
            return None;
        };
        Some(AtomicEth {
            va: self.be64(at + field::VA.start)?,
            rkey: Rkey::new(self.be32(at + field::RKEY.start)?),
            swap_or_add: self.be64(at + field::SWAP_OR_ADD.start)?,
            compare: self.be64(at + field::COMPARE.start)?,
        })
    }

    /// AETH.
    pub fn aeth(self) -> Option<Aeth> {
        let (ExtKind::Aeth | ExtKind::AtomicAck, at) = self.ext()? else {
            return None;
        };
        Some(Aeth {
            syndrome: Syndrome::from_u8(self.byte(at + field::SYNDROME)?),
            msn: Msn::new(self.be24(at + field::MSN.start)?),
        })
    }

    /// Original data of an atomic.
    pub fn atomic_original(self) -> Option<u64> {
        let (ExtKind::AtomicAck, at) = self.ext()? else {
            return None;
        };
        self.be64(at + field::ORIGINAL.start)
    }

    /// DETH.
    pub fn deth(self) -> Option<Deth> {
        let (ExtKind::Deth | ExtKind::DethImm, at) = self.ext()? else {
            return None;
        };
        Some(Deth {
            qkey: QKey(self.be32(at + field::QKEY.start)?),
            source_qp: Qpn::new(self.be24(at + field::SOURCE_QP.start)?),
        })
    }

    /// Immediate data.
    pub fn imm(self) -> Option<[u8; 4]> {
        let at = match self.ext()? {
            (ExtKind::Imm, at) => at + field::IMM.start,
            (ExtKind::RethImm, at) => at + field::RETH_IMM.start,
            (ExtKind::DethImm, at) => at + field::DETH_IMM.start,
            _ => return None,
        };
        self.array(at)
    }

    /// The key to invalidate.
    pub fn ieth(self) -> Option<Rkey> {
        let (ExtKind::Ieth, at) = self.ext()? else {
            return None;
        };
        self.be32(at + field::INVALIDATE.start).map(Rkey::new)
    }

    /// FETH as a number: selectivity in bits 5:4, persistence in bit 1, visibility in bit 0.
    pub fn feth(self) -> Option<u32> {
        let (ExtKind::Flush, at) = self.ext()? else {
            return None;
        };
        self.be32(at + field::FETH.start)
    }

    /// Payload with its pad cut off, as far as it is there. `None` where the opcode is unknown.
    pub fn payload(self) -> Option<&'a [u8]> {
        let body = self.0.get(self.opcode()?.header_len()..)?;
        body.get(..body.len().checked_sub(self.pad()?.into())?)
    }
}
