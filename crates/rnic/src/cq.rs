//! Completion queues: a bounded ring of CQEs, arming and moderation (`transport.md` 3.11, 3.25).
//! Whether a completion is due is decided by the queue pairs; waking somebody is the host's job.

use std::collections::VecDeque;

use hirail_vocab::{WcOpcode, WcStatus};
use hirail_wire::{Qpn, Rkey};

use crate::error::VerbError;
use crate::time::{Instant, Span};

/// Number of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

/// One completion, as the engine writes it.
///
/// With a status other than success only `wr_id`, `status`, `qpn` and `vendor_err` mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// When the engine completed the request.
    pub completed_at: Instant,
    /// The caller's own number for the request.
    pub wr_id: u64,
    /// Bytes placed or transferred; on UD including the 40 of the GRH.
    pub byte_len: u32,
    /// The queue pair whose request this is.
    pub qpn: Qpn,
    /// UD: the queue pair that sent the message.
    pub src_qp: Qpn,
    /// Engine's own detail of an error; 0 otherwise.
    pub vendor_err: u32,
    /// What came with the message beside its data.
    pub payload: WcPayload,
    /// UD: index of the P_Key that the message carried.
    pub pkey_index: u16,
    /// How the request ended.
    pub status: WcStatus,
    /// What was done.
    pub opcode: WcOpcode,
    /// UD: service level of the message.
    pub sl: u8,
    /// UD: the first 40 bytes of the buffer hold a GRH.
    pub grh: bool,
    /// The last packet of the message asked for an event.
    pub solicited: bool,
}

impl Cqe {
    /// The completion of request `wr_id` on `qpn`, all other fields zero.
    pub const fn new(
        now: Instant,
        wr_id: u64,
        qpn: Qpn,
        status: WcStatus,
        opcode: WcOpcode,
    ) -> Self {
        Self {
            completed_at: now,
            wr_id,
            byte_len: 0,
            qpn,
            src_qp: Qpn::new(0),
            vendor_err: 0,
            payload: WcPayload::None,
            pkey_index: 0,
            status,
            opcode,
            sl: 0,
            grh: false,
            solicited: false,
        }
    }

    /// Whether it wakes who waits for solicited completions: its message asked for it, or the
    /// request failed.
    pub fn is_solicited(&self) -> bool {
        self.solicited || self.status != WcStatus::Success
    }
}

/// What a message carries beside its data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WcPayload {
    /// Nothing.
    #[default]
    None,
    /// Immediate data, 4 bytes as they were on the wire.
    Imm([u8; 4]),
    /// The key of this side that the message invalidated.
    Invalidated(Rkey),
}

/// Which completions raise an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Arm {
    /// Solicited and failed ones.
    Solicited,
    /// All.
    Any,
}

/// What [`Cq::push`] did.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pushed {
    /// Raise one completion event; the queue is disarmed now.
    pub notify: bool,
    /// The completion is lost: the queue was full or dead. Its queue pair goes to ERR.
    pub overrun: bool,
    /// This very completion killed the queue: raise CQ_ERR.
    pub died: bool,
}

/// A completion queue.
///
/// Storage for the whole capacity is allocated by the first completion; none after that.
#[derive(Debug)]
pub struct Cq {
    capacity: u32,
    entries: VecDeque<Cqe>,
    armed: Option<Arm>,
    /// Events wait for this many matching completions; 0 does not count.
    moderation_count: u16,
    /// Events wait no longer than this after the first matching completion; zero for no timer.
    moderation_period: Span,
    /// Matching completions since the queue was armed.
    matched: u16,
    /// When the first of them came.
    matched_since: Instant,
    dead: bool,
}

impl Cq {
    /// An empty queue for `capacity` completions, not armed, not moderated.
    pub const fn new(capacity: u32) -> Self {
        Self {
            capacity,
            entries: VecDeque::new(),
            armed: None,
            moderation_count: 0,
            moderation_period: Span::ZERO,
            matched: 0,
            matched_since: Instant::EPOCH,
            dead: false,
        }
    }

    /// Appends a completion. On overrun it is dropped and the queue is dead: what it holds can
    /// still be polled.
    pub fn push(&mut self, cqe: Cqe, now: Instant) -> Pushed {
        if self.dead || self.entries.len() == self.capacity as usize {
            let died = !core::mem::replace(&mut self.dead, true);
            return Pushed {
                notify: false,
                overrun: true,
                died,
            };
        }
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(self.capacity as usize);
        }
        self.entries.push_back(cqe);
        Pushed {
            notify: self.on_completion(&cqe, now),
            overrun: false,
            died: false,
        }
    }

    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Option<Cqe> {
        self.entries.pop_front()
    }

    /// Hands up to `max` completions to `each`, oldest first, and returns how many.
    pub fn poll(&mut self, max: usize, mut each: impl FnMut(Cqe)) -> usize {
        let count = max.min(self.entries.len());
        self.entries.drain(..count).for_each(&mut each);
        count
    }

    /// Asks for one event at the next completion that `arm` names. Those already present raise
    /// none: true means that there are some, so poll again before sleeping.
    ///
    /// Waiting for any completion is not weakened by asking for solicited ones.
    pub fn arm(&mut self, arm: Arm) -> bool {
        if self.armed.is_none() {
            self.matched = 0;
        }
        self.armed = self.armed.max(Some(arm));
        !self.entries.is_empty()
    }

    /// Sets the moderation: an event waits until `count` matching completions came or `period`
    /// passed since the first, whichever is earlier; 0 and zero take no part, both turn it off.
    /// True: an event that was waiting is due now.
    #[must_use]
    pub fn moderate(&mut self, count: u16, period: Span, now: Instant) -> bool {
        self.moderation_count = count;
        self.moderation_period = period;
        self.fire_if_due(now)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, if an event is waiting.
    pub fn moderation_deadline(&self) -> Option<Instant> {
        let waiting =
            self.armed.is_some() && self.matched > 0 && self.moderation_period > Span::ZERO;
        waiting.then(|| self.matched_since + self.moderation_period)
    }

    /// True: raise the completion event that moderation held back. Early calls do nothing.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        self.fire_if_due(now)
    }

    /// Changes the capacity; completions stay. Refuses to go below what the queue holds.
    pub fn resize(&mut self, capacity: u32) -> Result<(), VerbError> {
        let held = self.entries.len();
        if (capacity as usize) < held.max(1) {
            return Err(VerbError::TooSmall {
                what: "cqe",
                min: held.max(1) as u64,
                got: capacity.into(),
            });
        }
        self.capacity = capacity;
        if self.entries.capacity() > 0 {
            self.entries.shrink_to(capacity as usize);
            self.entries.reserve_exact(capacity as usize - held);
        }
        Ok(())
    }

    /// Completions waiting to be polled.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no completion waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// What the next event waits for; `None` when not armed.
    pub fn armed(&self) -> Option<Arm> {
        self.armed
    }

    /// Whether it overran.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Counts a completion towards the event; true if that is due.
    fn on_completion(&mut self, cqe: &Cqe, now: Instant) -> bool {
        match self.armed {
            None => return false,
            Some(Arm::Solicited) if !cqe.is_solicited() => return false,
            Some(Arm::Solicited | Arm::Any) => {}
        }
        if self.matched == 0 {
            self.matched_since = now;
        }
        self.matched = self.matched.saturating_add(1);
        self.fire_if_due(now)
    }

    /// Disarms and says true if the event that the queue is armed for is due.
    fn fire_if_due(&mut self, now: Instant) -> bool {
        if self.armed.is_none() || self.matched == 0 {
            return false;
        }
        let (count, period) = (self.moderation_count, self.moderation_period);
        let due = match (count > 0, period > Span::ZERO) {
            (false, false) => true,
            (counted, timed) => {
                counted && self.matched >= count || timed && now >= self.matched_since + period
            }
        };
        if due {
            self.armed = None;
            self.matched = 0;
        }
        due
    }
}
