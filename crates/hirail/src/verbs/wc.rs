//! Completions.

use hirail_rnic::cq::{Cqe, WcPayload};
use hirail_rnic::qp::VENDOR_ERR_NEVER_HEARD;
use hirail_vocab::{WcOpcode, WcStatus};
use hirail_wire::{Qpn, Rkey};

use crate::error::{Error, hint};

/// How a work request ended (`struct ibv_wc`).
///
/// A request that failed is not an error of the call that polls: its `status` says so. Programs for
/// which it is one use [`ok`](Self::ok). With a status other than success only `wr_id`, `status`,
/// `opcode`, `qpn` and `vendor_err` mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wc {
    /// The number that the request was posted with.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What was done.
    pub opcode: WcOpcode,
    /// Bytes placed or transferred; on UD including the 40 in front of the message.
    pub byte_len: u32,
    /// The queue pair whose request it was.
    pub qpn: Qpn,
    /// UD: the queue pair that sent the message.
    pub src_qp: Qpn,
    /// What came with the message beside its data.
    pub payload: WcPayload,
    /// The last packet of the message asked for an event.
    pub solicited: bool,
    /// UD: the first 40 bytes received are the network header.
    pub grh: bool,
    /// UD: that header is one of IPv4, in the last 20 of those bytes.
    pub grh_is_ipv4: bool,
    /// UD: service level of the message.
    pub sl: u8,
    /// UD: index of the partition key of the message.
    pub pkey_index: u16,
    /// The device's own detail of an error; 0 if there is none.
    pub vendor_err: u32,
    /// When the device completed it, in nanoseconds of `CLOCK_MONOTONIC`.
    pub completed_at_ns: u64,
}

impl Wc {
    /// The completion itself, if the request succeeded.
    ///
    /// # Errors
    /// [`Error::Failed`], which names the usual cause where the peer never answered at all.
    pub fn ok(self) -> Result<Self, Error> {
        match self.status {
            WcStatus::Success => Ok(self),
            status => Err(Error::Failed {
                wr_id: self.wr_id,
                status,
                never_heard: self.is_of_silent_peer(),
            }),
        }
    }

    /// The usual cause of the failure, where the device knows more than the status says: that the
    /// peer never answered at all.
    pub fn hint(&self) -> Option<&'static str> {
        hint(self.status, self.is_of_silent_peer())
    }

    fn is_of_silent_peer(&self) -> bool {
        self.vendor_err == VENDOR_ERR_NEVER_HEARD
    }

    /// The immediate data that came with the message, as on the wire.
    pub fn imm(&self) -> Option<[u8; 4]> {
        match self.payload {
            WcPayload::Imm(imm) => Some(imm),
            WcPayload::None | WcPayload::Invalidated(_) => None,
        }
    }

    /// The key of this side that the message invalidated.
    pub fn invalidated(&self) -> Option<Rkey> {
        match self.payload {
            WcPayload::Invalidated(rkey) => Some(rkey),
            WcPayload::None | WcPayload::Imm(_) => None,
        }
    }
}

impl From<Cqe> for Wc {
    fn from(cqe: Cqe) -> Self {
        let Cqe {
            completed_at,
            wr_id,
            byte_len,
            qpn,
            src_qp,
            vendor_err,
            payload,
            pkey_index,
            status,
            opcode,
            sl,
            grh,
            grh_is_ipv4,
            solicited,
        } = cqe;
        Self {
            wr_id,
            status,
            opcode,
            byte_len,
            qpn,
            src_qp,
            payload,
            solicited,
            grh,
            grh_is_ipv4,
            sl,
            pkey_index,
            vendor_err,
            completed_at_ns: completed_at.as_ns() as u64,
        }
    }
}
