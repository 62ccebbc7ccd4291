//! Completion counters: how many requests of a queue pair have completed, without an entry in a queue
//! for each (`ibv_create_comp_cntr(3)`, `ibv_qp_attach_comp_cntr(3)`).

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bitflags::bitflags;
use hirail_vocab::{WcOpcode, WcStatus};

/// What a counter adds up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Work requests.
    Requests,
    /// Bytes of messages.
    Bytes,
}

bitflags! {
    /// Operations, with the bits of `enum ibv_qp_attach_comp_cntr_op`. Those that peers carry out on
    /// memory of this side are not counted.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub struct CountedOps: u32 {
        /// Sends.
        const SEND = 1;
        /// Receives.
        const RECV = 1 << 1;
        /// RDMA READs of this side.
        const RDMA_READ = 1 << 2;
        /// RDMA WRITEs of this side.
        const RDMA_WRITE = 1 << 4;
    }
}

impl CountedOps {
    /// What the completion of a request of this kind is.
    const fn of(opcode: WcOpcode) -> Self {
        match opcode {
            WcOpcode::Send => Self::SEND,
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => Self::RECV,
            WcOpcode::RdmaRead => Self::RDMA_READ,
            WcOpcode::RdmaWrite => Self::RDMA_WRITE,
            _ => Self::empty(),
        }
    }
}

/// A completion counter: two numbers, which wrap.
#[derive(Debug)]
pub struct CompletionCounter {
    counted: Counted,
    completed: AtomicU64,
    failed: AtomicU64,
}

impl CompletionCounter {
    /// A counter that stands at zero.
    pub const fn new(counted: Counted) -> Self {
        Self {
            counted,
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// What has completed well.
    pub const fn completed(&self) -> &AtomicU64 {
        &self.completed
    }

    /// Requests that ended in an error, flushed ones included; they are never counted in bytes.
    pub const fn failed(&self) -> &AtomicU64 {
        &self.failed
    }

    fn count(&self, status: WcStatus, bytes: u32) {
        // Whoever sees the number sees the data.
        match (status, self.counted) {
            (WcStatus::Success, Counted::Requests) => {
                self.completed.fetch_add(1, Ordering::Release)
            }
            (WcStatus::Success, Counted::Bytes) => {
                self.completed.fetch_add(bytes.into(), Ordering::Release)
            }
            _ => self.failed.fetch_add(1, Ordering::Release),
        };
    }
}

/// The counters of a queue pair: a chain, since most have none and memory counts.
#[derive(Default)]
pub(crate) struct Attached(Option<Box<Link>>);

struct Link {
    ops: CountedOps,
    counter: Arc<CompletionCounter>,
    others: Attached,
}

impl Attached {
    /// The counter of one of these operations.
    fn of(&self, ops: CountedOps) -> Option<&CompletionCounter> {
        let link = self.0.as_ref()?;
        if link.ops.intersects(ops) {
            return Some(&link.counter);
        }
        link.others.of(ops)
    }

    /// Whether one of these operations is counted.
    pub(crate) fn has(&self, ops: CountedOps) -> bool {
        self.of(ops).is_some()
    }

    /// Adds the counter of operations that are not counted yet.
    pub(crate) fn add(&mut self, ops: CountedOps, counter: Arc<CompletionCounter>) {
        let others = Self(self.0.take());
        self.0 = Some(Box::new(Link {
            ops,
            counter,
            others,
        }));
    }

    /// A request has completed, whether or not a completion tells so.
    #[inline]
    pub(crate) fn count(&self, opcode: WcOpcode, status: WcStatus, bytes: u32) {
        if self.0.is_some()
            && let Some(counter) = self.of(CountedOps::of(opcode))
        {
            counter.count(status, bytes);
        }
    }
}
