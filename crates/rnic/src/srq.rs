//! Shared receive queues (`transport.md` 3.15): one ring of receive requests for many queue pairs.
//! A request is copied out to the queue pair that takes it and belongs to it until its message
//! ends; the slot is free at once.

use crate::cq::CqId;
use crate::error::{Object, Queue, VerbError};
use crate::mr::PdId;
use crate::recv_queue::{RecvRing, RecvWqe};
use crate::wr::Sge;

/// Number of a shared receive queue, 24 bits: what an XRCETH carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// Number of an XRC domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// What an SRQ has beyond others when XRC target queue pairs deliver to it (`transport.md` 3.23).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// Only target queue pairs of this domain may deliver.
    pub domain: XrcdId,
    /// Where its receive completions go, whichever queue pair took the request.
    pub cq: CqId,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    ring: RecvRing,
    /// Lkeys of its requests must belong to this domain.
    pd: PdId,
    xrc: Option<XrcSrq>,
    /// Raise one event when fewer requests than this are queued; 0 is disarmed.
    limit: u32,
    failed: bool,
}

impl Srq {
    /// An empty queue for `max_wr` requests of `max_sge` entries, its limit disarmed.
    pub fn new(pd: PdId, max_wr: u32, max_sge: u32, xrc: Option<XrcSrq>) -> Self {
        Self {
            ring: RecvRing::new(Queue::Shared, max_wr, max_sge),
            pd,
            xrc,
            limit: 0,
            failed: false,
        }
    }

    /// Queues a receive request.
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), VerbError> {
        if self.failed {
            return Err(VerbError::Failed {
                object: Object::Srq,
            });
        }
        self.ring.push(wr_id, sges)
    }

    /// Moves the oldest request into `held`, which keeps its former content if there is none.
    pub fn take(&mut self, held: &mut HeldRecv) -> Taken {
        if self.failed {
            return Taken::Failed;
        }
        let Some(wqe) = self.ring.front() else {
            return Taken::Empty {
                limit_reached: self.limit_reached(),
            };
        };
        held.hold(wqe, self.ring.max_sge());
        self.ring.pop();
        Taken::Wqe {
            limit_reached: self.limit_reached(),
        }
    }

    /// Arms the limit event: raised once, when fewer than `limit` requests are queued after one was
    /// taken. 0 disarms.
    pub fn arm_limit(&mut self, limit: u32) -> Result<(), VerbError> {
        if limit > self.ring.depth() {
            return Err(VerbError::TooLarge {
                what: "srq_limit",
                max: self.ring.depth().into(),
                got: limit.into(),
            });
        }
        self.limit = limit;
        Ok(())
    }

    /// Changes how many requests fit. Refuses to go below what is queued or below the limit.
    pub fn resize(&mut self, max_wr: u32) -> Result<(), VerbError> {
        if max_wr < self.limit {
            return Err(VerbError::TooSmall {
                what: "max_wr",
                min: self.limit.into(),
                got: max_wr.into(),
            });
        }
        self.ring.resize(max_wr)
    }

    /// Puts the queue in error: nothing can be posted or taken any more. True the first time, when
    /// SRQ_ERR is to be raised.
    pub fn fail(&mut self) -> bool {
        !core::mem::replace(&mut self.failed, true)
    }

    /// Whether it is in error.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Its XRC half, if it has one.
    pub fn xrc(&self) -> Option<XrcSrq> {
        self.xrc
    }

    /// Requests queued.
    pub fn len(&self) -> u32 {
        self.ring.len()
    }

    /// Whether no request is queued.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Requests that it can hold.
    pub fn max_wr(&self) -> u32 {
        self.ring.depth()
    }

    /// Scatter entries that a request can have.
    pub fn max_sge(&self) -> u32 {
        self.ring.max_sge()
    }

    /// The armed limit, 0 when disarmed.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether the limit event is due now; disarms it then.
    fn limit_reached(&mut self) -> bool {
        let reached = self.ring.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

/// What [`Srq::take`] found. `limit_reached` says that SRQ_LIMIT_REACHED is to be raised.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The request is in the holder.
    Wqe {
        /// Raise the limit event.
        limit_reached: bool,
    },
    /// Nothing is queued: RNR NAK on a reliable transport, drop on others.
    Empty {
        /// Raise the limit event: it had been armed above what was queued.
        limit_reached: bool,
    },
    /// The queue is in error.
    Failed,
}

/// A receive request that a queue pair took out of an SRQ and works on.
///
/// It allocates when it holds its first request, for the SRQ's `max_sge`, and not after that.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeldRecv {
    wr_id: u64,
    sges: Vec<Sge>,
}

impl HeldRecv {
    /// A holder that never held anything.
    pub const fn new() -> Self {
        Self {
            wr_id: 0,
            sges: Vec::new(),
        }
    }

    /// The request held last.
    pub fn wqe(&self) -> RecvWqe<'_> {
        RecvWqe {
            wr_id: self.wr_id,
            sges: &self.sges,
        }
    }

    fn hold(&mut self, wqe: RecvWqe<'_>, max_sge: u32) {
        self.wr_id = wqe.wr_id;
        self.sges.clear();
        self.sges.reserve_exact(max_sge as usize);
        self.sges.extend_from_slice(wqe.sges);
    }
}
