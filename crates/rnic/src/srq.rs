//! Shared receive queues (`ibv_create_srq(3)`): one ring of receive requests for many queue pairs.
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

/// What only the SRQs have that XRC target queue pairs deliver to (IBTA Vol 1, annex A14, XRC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// Only target queue pairs of this domain may deliver.
    pub domain: XrcdId,
    /// Where receive completions go, whichever queue pair took the request.
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

#[cfg(test)]
mod tests {
    use hirail_wire::Lkey;

    use super::*;

    const WQE: Taken = Taken::Wqe {
        limit_reached: false,
    };
    const LAST_ABOVE: Taken = Taken::Wqe {
        limit_reached: true,
    };

    fn sges(count: usize) -> Vec<Sge> {
        vec![
            Sge {
                addr: count as u64,
                length: 1,
                lkey: Lkey::new(5)
            };
            count
        ]
    }

    fn filled(requests: u64) -> (Srq, HeldRecv) {
        let mut srq = Srq::new(PdId(1), 8, 3, None);
        for wr_id in 0..requests {
            srq.post(wr_id, &sges(wr_id as usize % 4)).unwrap();
        }
        (srq, HeldRecv::new())
    }

    #[test]
    fn requests_are_taken_in_order_and_free_their_slot_at_once() {
        let (mut srq, mut held) = filled(8);
        let full = VerbError::QueueFull {
            queue: Queue::Shared,
            depth: 8,
        };
        assert_eq!(srq.post(8, &[]), Err(full));
        for wr_id in 0..8 {
            assert_eq!(srq.take(&mut held), WQE);
            let expected = RecvWqe {
                wr_id,
                sges: &sges(wr_id as usize % 4),
            };
            assert_eq!(held.wqe(), expected);
            srq.post(wr_id + 8, &[]).unwrap();
            assert_eq!(held.wqe(), expected, "what is held does not change");
        }
    }

    #[test]
    fn an_empty_queue_leaves_the_holder_alone() {
        let (mut srq, mut held) = filled(1);
        assert_eq!(srq.take(&mut held), WQE);
        let before = held.clone();
        assert_eq!(
            srq.take(&mut held),
            Taken::Empty {
                limit_reached: false
            }
        );
        assert_eq!(held, before);
    }

    /// One event when fewer than the limit are queued, then disarmed.
    #[test]
    fn the_limit_is_reported_once_when_the_queue_falls_below_it() {
        let (mut srq, mut held) = filled(6);
        srq.arm_limit(4).unwrap();
        assert_eq!(srq.take(&mut held), WQE, "5 left");
        assert_eq!(srq.take(&mut held), WQE, "4 left, which is not below 4");
        assert_eq!(srq.take(&mut held), LAST_ABOVE, "3 left");
        assert_eq!(srq.limit(), 0);
        assert_eq!(srq.take(&mut held), WQE);
        srq.arm_limit(1).unwrap();
        assert_eq!(srq.take(&mut held), WQE, "1 left");
        srq.arm_limit(0).unwrap();
        assert_eq!(srq.take(&mut held), WQE, "disarmed");
    }

    #[test]
    fn a_limit_armed_above_an_empty_queue_is_reported_at_the_next_message() {
        let (mut srq, mut held) = filled(0);
        srq.arm_limit(1).unwrap();
        assert_eq!(
            srq.take(&mut held),
            Taken::Empty {
                limit_reached: true
            }
        );
        assert_eq!(
            srq.take(&mut held),
            Taken::Empty {
                limit_reached: false
            }
        );
    }

    #[test]
    fn limit_and_size_respect_each_other() {
        let (mut srq, _) = filled(5);
        let high = VerbError::TooLarge {
            what: "srq_limit",
            max: 8,
            got: 9,
        };
        assert_eq!(srq.arm_limit(9), Err(high));
        srq.arm_limit(6).unwrap();
        let low = |min, got| {
            Err(VerbError::TooSmall {
                what: "max_wr",
                min,
                got,
            })
        };
        assert_eq!(srq.resize(5), low(6, 5));
        srq.arm_limit(0).unwrap();
        assert_eq!(srq.resize(4), low(5, 4));
        srq.resize(5).unwrap();
        srq.resize(20).unwrap();
        assert_eq!((srq.len(), srq.max_wr()), (5, 20));
    }

    #[test]
    fn a_failed_queue_neither_takes_nor_gives() {
        let (mut srq, mut held) = filled(2);
        assert!(srq.fail());
        assert!(!srq.fail(), "SRQ_ERR is raised once");
        assert_eq!(srq.take(&mut held), Taken::Failed);
        assert_eq!(
            srq.post(9, &[]),
            Err(VerbError::Failed {
                object: Object::Srq
            })
        );
    }
}
