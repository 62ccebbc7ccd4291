//! A bounded ring of receive requests, in posting order. It serves as the receive queue of one
//! queue pair and, inside an [`Srq`](crate::srq::Srq), as that of many.

use core::fmt;

use crate::error::{Queue, VerbError};
use crate::wr::Sge;

/// At most `depth` receive requests of at most `max_sge` scatter entries each.
///
/// All entries lie in one flat array, `max_sge` to a request. It is allocated when the first
/// request is posted; nothing is allocated after that.
pub struct RecvRing {
    queue: Queue,
    depth: u32,
    max_sge: u32,
    /// Slot of the oldest request.
    head: u32,
    len: u32,
    /// `depth` slots; none before the first post.
    slots: Box<[Slot]>,
    /// `depth` times `max_sge` entries; none before the first post.
    sges: Box<[Sge]>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    wr_id: u64,
    num_sge: u32,
}

/// A receive request while it is queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWqe<'a> {
    /// The caller's own number for it.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

impl RecvRing {
    /// An empty ring for requests of `queue`, which errors name.
    pub fn new(queue: Queue, depth: u32, max_sge: u32) -> Self {
        Self {
            queue,
            depth,
            max_sge,
            head: 0,
            len: 0,
            slots: Box::default(),
            sges: Box::default(),
        }
    }

    /// Queues a request behind the others. Fails when the ring is full or `sges` are too many.
    pub fn push(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), VerbError> {
        if sges.len() > self.max_sge as usize {
            return Err(VerbError::TooLarge {
                what: "num_sge",
                max: self.max_sge.into(),
                got: sges.len() as u64,
            });
        }
        if self.len == self.depth {
            return Err(VerbError::QueueFull {
                queue: self.queue,
                depth: self.depth,
            });
        }
        if self.slots.is_empty() {
            self.allocate();
        }
        let slot = self.slot(self.len);
        self.slots[slot] = Slot {
            wr_id,
            num_sge: sges.len() as u32,
        };
        let first = slot * self.max_sge as usize;
        self.sges[first..first + sges.len()].copy_from_slice(sges);
        self.len += 1;
        Ok(())
    }

    /// The oldest request.
    pub fn front(&self) -> Option<RecvWqe<'_>> {
        (self.len > 0).then(|| self.wqe(0))
    }

    /// Removes the oldest request, if there is one, and returns its `wr_id`.
    pub fn pop(&mut self) -> Option<u64> {
        let wr_id = self.front()?.wr_id;
        self.head = self.slot(1) as u32;
        self.len -= 1;
        Some(wr_id)
    }

    /// Forgets all requests, without completions (a transition to RESET).
    pub fn clear(&mut self) {
        self.head = 0;
        self.len = 0;
    }

    /// Changes the depth; the requests stay. Fails if they would not fit.
    pub fn resize(&mut self, depth: u32) -> Result<(), VerbError> {
        if depth < self.len {
            return Err(VerbError::TooSmall {
                what: "max_wr",
                min: self.len.into(),
                got: depth.into(),
            });
        }
        let mut resized = Self::new(self.queue, depth, self.max_sge);
        for index in 0..self.len {
            let RecvWqe { wr_id, sges } = self.wqe(index);
            resized.push(wr_id, sges)?;
        }
        *self = resized;
        Ok(())
    }

    /// Requests queued.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no request is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Requests that can be posted before the ring is full.
    pub fn available(&self) -> u32 {
        self.depth - self.len
    }

    /// Requests that it can hold.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Scatter entries that a request can have.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    #[cold]
    fn allocate(&mut self) {
        let depth = self.depth as usize;
        self.slots = vec![Slot::default(); depth].into();
        self.sges = vec![Sge::default(); depth * self.max_sge as usize].into();
    }

    /// The slot `index` requests after the oldest.
    fn slot(&self, index: u32) -> usize {
        let slot = self.head as usize + index as usize;
        if slot < self.depth as usize {
            slot
        } else {
            slot - self.depth as usize
        }
    }

    /// The request `index` after the oldest, which exists.
    fn wqe(&self, index: u32) -> RecvWqe<'_> {
        let slot = self.slot(index);
        let Slot { wr_id, num_sge } = self.slots[slot];
        let first = slot * self.max_sge as usize;
        RecvWqe {
            wr_id,
            sges: &self.sges[first..first + num_sge as usize],
        }
    }
}

impl fmt::Debug for RecvRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries((0..self.len).map(|index| self.wqe(index)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use hirail_wire::Lkey;
    use proptest::prelude::*;

    use super::*;

    fn sges(count: u32, seed: u32) -> Vec<Sge> {
        let sge = |n: u32| Sge {
            addr: (seed + n).into(),
            length: n,
            lkey: Lkey::new(seed),
        };
        (0..count).map(sge).collect()
    }

    #[test]
    fn nothing_is_allocated_before_the_first_request() {
        let mut ring = RecvRing::new(Queue::Receive, 1 << 15, 32);
        assert!(ring.slots.is_empty() && ring.sges.is_empty());
        assert_eq!(ring.pop(), None);
        assert_eq!(ring.front(), None);
        ring.push(1, &[]).unwrap();
        assert_eq!((ring.slots.len(), ring.sges.len()), (1 << 15, 32 << 15));
    }

    #[test]
    fn requests_may_have_no_entries_at_all() {
        let mut ring = RecvRing::new(Queue::Receive, 2, 0);
        ring.push(7, &[]).unwrap();
        assert_eq!(
            ring.front(),
            Some(RecvWqe {
                wr_id: 7,
                sges: &[]
            })
        );
    }

    #[test]
    fn a_full_ring_and_too_many_entries_are_refused() {
        let mut ring = RecvRing::new(Queue::Receive, 1, 2);
        let many = VerbError::TooLarge {
            what: "num_sge",
            max: 2,
            got: 3,
        };
        assert_eq!(ring.push(1, &sges(3, 0)), Err(many));
        ring.push(1, &sges(2, 0)).unwrap();
        let full = VerbError::QueueFull {
            queue: Queue::Receive,
            depth: 1,
        };
        assert_eq!(ring.push(2, &[]), Err(full));
        assert_eq!(
            RecvRing::new(Queue::Receive, 0, 1)
                .push(1, &[])
                .map_err(|_| ()),
            Err(())
        );
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push { num_sge: u32 },
        Pop,
        Clear,
        Resize { depth: u32 },
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0..5u32).prop_map(|num_sge| Op::Push { num_sge }),
            6 => Just(Op::Pop),
            1 => Just(Op::Clear),
            1 => (0..9u32).prop_map(|depth| Op::Resize { depth }),
        ]
    }

    proptest! {
        #[test]
        fn ring_agrees_with_a_deque(
            depth in 0..7u32,
            max_sge in 0..4u32,
            ops in prop::collection::vec(ops(), 1..100),
        ) {
            let mut ring = RecvRing::new(Queue::Receive, depth, max_sge);
            let mut model = VecDeque::new();
            let mut depth = depth;
            for (n, op) in (0u32..).zip(ops) {
                match op {
                    Op::Push { num_sge } => {
                        let request = (u64::from(n), sges(num_sge, n));
                        let fits = num_sge <= max_sge && model.len() < depth as usize;
                        prop_assert_eq!(ring.push(request.0, &request.1).is_ok(), fits);
                        if fits {
                            model.push_back(request);
                        }
                    }
                    Op::Pop => {
                        let expected = model.pop_front().map(|(wr_id, _)| wr_id);
                        prop_assert_eq!(ring.pop(), expected);
                    }
                    Op::Clear => {
                        ring.clear();
                        model.clear();
                    }
                    Op::Resize { depth: new } => {
                        let fits = new as usize >= model.len();
                        prop_assert_eq!(ring.resize(new).is_ok(), fits);
                        if fits {
                            depth = new;
                        }
                    }
                }
                let front = model.front().map(|(wr_id, sges)| RecvWqe { wr_id: *wr_id, sges });
                prop_assert_eq!(ring.front(), front);
                prop_assert_eq!(ring.len() as usize, model.len());
                prop_assert_eq!(ring.available(), depth - ring.len());
            }
            while let Some((wr_id, sges)) = model.pop_front() {
                prop_assert_eq!(ring.front(), Some(RecvWqe { wr_id, sges: &sges }));
                ring.pop();
            }
            prop_assert!(ring.is_empty());
        }
    }
}
