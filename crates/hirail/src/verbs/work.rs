//! Work requests as users describe them.

use hirail_rnic::qp::attr::AddressVector;
use hirail_rnic::srq::SrqId;
use hirail_rnic::wr::Sge;
use hirail_rnic::{SendData, SendFlags, SendOp, UdDestination, VerbError};
use hirail_wire::{Feth, Gid, QKey, Qpn, Rkey};

use super::connect::QpEndpoint;
use super::mr::{MrSlice, RemoteMemory};
use crate::error::Error;

/// Entries that fit without allocating: the device's limit.
const MAX_SGE: usize = 31;

/// A send request: what to do, with which memory, under which number.
///
/// ```
/// # use hirail::{RemoteMemory, Rkey, SendWr};
/// # let remote = RemoteMemory { addr: 0x1000, len: 4096, rkey: Rkey::new(7) };
/// // Four bytes into the peer's memory, after all reads before them, and no completion.
/// let wr = SendWr::write(1, &[], remote).with_inline(b"done").fenced().unsignaled();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Signaled, fenced, solicited.
    pub flags: SendFlags,
    /// Registered memory to send from, or to read into.
    pub slices: &'a [MrSlice],
    /// In place of `slices`: bytes that are copied now and need not be registered.
    pub inline: Option<&'a [u8]>,
    /// UD: where to.
    pub destination: Option<Destination>,
    /// UD: which way. Connected QPs have theirs since [`Qp::connect`](super::qp::Qp::connect).
    pub path: Path,
    /// XRC: the shared receive queue at the target.
    pub srq: SrqId,
}

impl<'a> SendWr<'a> {
    /// A signaled request.
    pub fn new(wr_id: u64, op: SendOp, slices: &'a [MrSlice]) -> Self {
        Self {
            wr_id,
            op,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            slices,
            inline: None,
            destination: None,
            path: Path::default(),
            srq: SrqId(0),
        }
    }

    /// SEND: a message into the oldest receive of the peer.
    pub fn send(wr_id: u64, slices: &'a [MrSlice]) -> Self {
        Self::new(wr_id, SendOp::Send, slices)
    }

    /// RDMA WRITE into memory of the peer. Its end is not looked at here: the peer checks.
    pub fn write(wr_id: u64, slices: &'a [MrSlice], to: RemoteMemory) -> Self {
        let RemoteMemory { addr: va, rkey, .. } = to;
        Self::new(wr_id, SendOp::Write { va, rkey }, slices)
    }

    /// RDMA READ from memory of the peer.
    pub fn read(wr_id: u64, slices: &'a [MrSlice], from: RemoteMemory) -> Self {
        let RemoteMemory { addr: va, rkey, .. } = from;
        Self::new(wr_id, SendOp::Read { va, rkey }, slices)
    }

    /// Adds `add` to a 64-bit word of the peer; the word before goes into the 8 bytes of `before`.
    pub fn fetch_add(wr_id: u64, before: &'a [MrSlice], at: RemoteMemory, add: u64) -> Self {
        let RemoteMemory { addr: va, rkey, .. } = at;
        Self::new(wr_id, SendOp::FetchAdd { va, rkey, add }, before)
    }

    /// Stores `swap` in a 64-bit word of the peer if that equals `compare`; the word before goes
    /// into the 8 bytes of `before`.
    pub fn compare_swap(
        wr_id: u64,
        before: &'a [MrSlice],
        at: RemoteMemory,
        compare: u64,
        swap: u64,
    ) -> Self {
        let op = SendOp::CompareSwap {
            va: at.addr,
            rkey: at.rkey,
            compare,
            swap,
        };
        Self::new(wr_id, op, before)
    }

    /// ATOMIC WRITE: 8 bytes become visible as one, after everything before them.
    pub fn atomic_write(wr_id: u64, slices: &'a [MrSlice], to: RemoteMemory) -> Self {
        let RemoteMemory { addr: va, rkey, .. } = to;
        Self::new(wr_id, SendOp::AtomicWrite { va, rkey }, slices)
    }

    /// FLUSH: completes when all of `memory` (or of its whole region, if `what` says so) is visible
    /// to everybody there, or has reached what backs it.
    ///
    /// # Panics
    /// When `memory` has 4 GiB or more.
    pub fn flush(wr_id: u64, memory: RemoteMemory, what: Feth) -> Self {
        let op = SendOp::Flush {
            va: memory.addr,
            rkey: memory.rkey,
            length: u32::try_from(memory.len).expect("a FLUSH covers less than 4 GiB"),
            what,
        };
        Self::new(wr_id, op, &[])
    }

    /// Invalidates a key of this side: that of a memory window of type 2.
    pub fn local_invalidate(wr_id: u64, rkey: Rkey) -> Self {
        Self::new(wr_id, SendOp::LocalInv(rkey), &[])
    }

    /// Sends these bytes in place of the slices. They are copied when the request is posted.
    #[must_use]
    pub fn with_inline(self, bytes: &'a [u8]) -> Self {
        Self {
            inline: Some(bytes),
            ..self
        }
    }

    /// Adds immediate data to a SEND or WRITE, which the peer finds in its completion
    /// ([`Wc::imm`](crate::Wc)): four bytes as they travel, since a number would have to have an order
    /// of its bytes; `7u32.to_be_bytes()` is one. A WRITE takes a receive of the peer then.
    ///
    /// # Panics
    /// On any other operation.
    #[must_use]
    pub fn with_imm(self, imm: [u8; 4]) -> Self {
        let op = match self.op {
            SendOp::Send | SendOp::SendImm(_) => SendOp::SendImm(imm),
            SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. } => {
                SendOp::WriteImm { va, rkey, imm }
            }
            other => panic!("only SEND and WRITE carry immediate data, not {other:?}"),
        };
        Self { op, ..self }
    }

    /// Makes a SEND invalidate this key of the peer.
    ///
    /// # Panics
    /// On any other operation.
    #[must_use]
    pub fn invalidating(self, rkey: Rkey) -> Self {
        let op = match self.op {
            SendOp::Send | SendOp::SendInv(_) => SendOp::SendInv(rkey),
            other => panic!("only SEND invalidates a key, not {other:?}"),
        };
        Self { op, ..self }
    }

    /// Makes no completion on success. Its place in the queue is free when a later request has
    /// completed.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.flags.signaled = false;
        self
    }

    /// Starts only when all READs and atomics before it have completed.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags.fence = true;
        self
    }

    /// Asks the receiver to raise a solicited event.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.flags.solicited = true;
        self
    }

    /// UD: where to.
    #[must_use]
    pub fn to(self, destination: Destination) -> Self {
        Self {
            destination: Some(destination),
            ..self
        }
    }

    /// UD: which way, where not by the first GID with everything else 0.
    #[must_use]
    pub fn via(self, path: Path) -> Self {
        Self { path, ..self }
    }

    /// XRC: to this shared receive queue of the target's domain.
    #[must_use]
    pub fn to_srq(self, srq: SrqId) -> Self {
        Self { srq, ..self }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// GID of the port, or of a multicast group.
    pub gid: Gid,
    /// QP there.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: QKey,
}

impl Destination {
    /// One QP.
    pub fn unicast(endpoint: &QpEndpoint, qkey: QKey) -> Self {
        Self {
            gid: endpoint.gid,
            qpn: endpoint.qpn,
            qkey,
        }
    }

    /// All QPs that are attached to a group and have this key.
    pub fn multicast(group: Gid, qkey: QKey) -> Self {
        Self {
            gid: group,
            qpn: Qpn::MULTICAST,
            qkey,
        }
    }
}

/// How packets travel, beside where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Index of the local GID.
    pub gid_index: u8,
    /// Traffic class: DSCP in the upper six bits.
    pub traffic_class: u8,
    /// Service level; its low three bits are the priority.
    pub service_level: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Flow label, 20 bits; 0 lets the device choose the UDP source port.
    pub flow_label: u32,
}

impl Default for Path {
    /// From the first GID, 64 hops, everything else 0.
    fn default() -> Self {
        Self {
            gid_index: 0,
            traffic_class: 0,
            service_level: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }
}

impl Path {
    /// The address vector of this path to `gid`.
    pub(crate) fn to(self, gid: Gid) -> AddressVector {
        AddressVector {
            sgid_index: self.gid_index,
            traffic_class: self.traffic_class,
            sl: self.service_level,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            ..AddressVector::to(gid)
        }
    }
}

/// A send request as the engine takes it, with room for what it borrows.
pub(crate) struct Described<'a> {
    list: SgeList,
    inline: Option<[&'a [u8]; 1]>,
}

impl<'a> Described<'a> {
    pub(crate) fn new(wr: &SendWr<'a>) -> Result<Self, Error> {
        Ok(Self {
            list: SgeList::new(wr.slices)?,
            inline: wr.inline.map(|bytes| [bytes]),
        })
    }

    /// The request. Invalid parts of it are found by the engine.
    pub(crate) fn wr(&self, wr: &SendWr<'a>) -> hirail_rnic::SendWr<'_> {
        hirail_rnic::SendWr {
            wr_id: wr.wr_id,
            op: wr.op,
            flags: wr.flags,
            data: match &self.inline {
                Some(pieces) => SendData::Inline(pieces),
                None => SendData::Sges(self.list.as_slice()),
            },
            ud: wr.destination.map(|to| UdDestination {
                av: wr.path.to(to.gid),
                qpn: to.qpn,
                qkey: to.qkey,
            }),
            xrc_srqn: wr.srq.0,
        }
    }
}

/// Scatter/gather entries on the stack.
pub(crate) struct SgeList {
    entries: [Sge; MAX_SGE],
    count: usize,
}

impl SgeList {
    pub(crate) fn new(slices: &[MrSlice]) -> Result<Self, Error> {
        if slices.len() > MAX_SGE {
            return Err(Error::Verb(VerbError::TooLarge {
                what: "num_sge",
                max: MAX_SGE as u64,
                got: slices.len() as u64,
            }));
        }
        let mut entries = [Sge::default(); MAX_SGE];
        for (entry, slice) in entries.iter_mut().zip(slices) {
            *entry = slice.sge;
        }
        Ok(Self {
            entries,
            count: slices.len(),
        })
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.entries[..self.count]
    }
}
