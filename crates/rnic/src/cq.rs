//! Completion queues: a bounded ring of CQEs, arming and moderation (IBTA Vol 1, chapter 11;
//! `ibv_modify_cq(3)`).
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
    /// The engine's own detail of an error; 0 if there is none.
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
    /// UD: that GRH is an IPv4 header, which takes its last 20 bytes.
    pub grh_is_ipv4: bool,
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
            grh_is_ipv4: false,
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
    /// Matching completions since the queue was armed; 0 while it is not.
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

    /// Takes out what queue pair `qpn` has completed, unseen.
    pub fn forget(&mut self, qpn: Qpn) {
        self.entries.retain(|cqe| cqe.qpn != qpn);
    }

    /// Asks for one event at the next completion that `arm` names. Those already present raise
    /// none: true means that there are some, so poll again before sleeping.
    ///
    /// Waiting for any completion is not weakened by asking for solicited ones.
    pub fn arm(&mut self, arm: Arm) -> bool {
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

#[cfg(test)]
mod tests {
    #[test]
    fn what_one_queue_pair_completed_is_forgotten_and_leaves_room() {
        let mut cq = Cq::new(4);
        let now = Instant::EPOCH;
        for wr_id in 0..4 {
            let qpn = Qpn::new(0x10 + wr_id as u32 % 2);
            let cqe = Cqe::new(now, wr_id, qpn, WcStatus::WrFlushErr, WcOpcode::Recv);
            assert!(!cq.push(cqe, now).overrun);
        }
        cq.forget(Qpn::new(0x10));
        assert_eq!(cq.pop().map(|cqe| cqe.wr_id), Some(1));
        assert_eq!(cq.pop().map(|cqe| cqe.wr_id), Some(3));
        assert_eq!(cq.pop(), None);
    }

    use proptest::prelude::*;

    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    fn cqe(wr_id: u64) -> Cqe {
        Cqe::new(at(0), wr_id, Qpn::new(7), WcStatus::Success, WcOpcode::Recv)
    }

    fn solicited(wr_id: u64) -> Cqe {
        Cqe {
            solicited: true,
            ..cqe(wr_id)
        }
    }

    fn failed(wr_id: u64) -> Cqe {
        Cqe {
            status: WcStatus::WrFlushErr,
            ..cqe(wr_id)
        }
    }

    const QUIET: Pushed = Pushed {
        notify: false,
        overrun: false,
        died: false,
    };
    const NOTIFY: Pushed = Pushed {
        notify: true,
        ..QUIET
    };

    #[test]
    fn an_idle_queue_costs_little_and_a_cqe_fits_a_cache_line() {
        assert!(size_of::<Cqe>() <= 64);
        assert!(size_of::<Cq>() <= 128);
        assert_eq!(Cq::new(1 << 22).entries.capacity(), 0);
    }

    #[test]
    fn completions_leave_in_order() {
        let mut cq = Cq::new(3);
        for wr_id in 0..3 {
            assert_eq!(cq.push(cqe(wr_id), at(0)), QUIET);
        }
        assert_eq!(cq.pop().map(|cqe| cqe.wr_id), Some(0));
        assert_eq!(cq.push(cqe(3), at(0)), QUIET);
        let mut polled = Vec::new();
        assert_eq!(cq.poll(2, |cqe| polled.push(cqe.wr_id)), 2);
        assert_eq!(cq.poll(2, |cqe| polled.push(cqe.wr_id)), 1);
        assert_eq!(cq.poll(2, |cqe| polled.push(cqe.wr_id)), 0);
        assert_eq!(polled, [1, 2, 3]);
        assert_eq!(cq.pop(), None);
    }

    /// The queue is dead, the completion lost; CQ_ERR is raised once.
    #[test]
    fn an_overrun_kills_the_queue_for_good() {
        let mut cq = Cq::new(1);
        assert!(!cq.arm(Arm::Any));
        assert_eq!(cq.push(cqe(0), at(0)), NOTIFY);
        assert!(cq.arm(Arm::Any));
        let lost = Pushed {
            notify: false,
            overrun: true,
            died: true,
        };
        assert_eq!(cq.push(cqe(1), at(0)), lost);
        assert!(cq.is_dead());
        assert_eq!(
            cq.pop().map(|cqe| cqe.wr_id),
            Some(0),
            "what was there can be polled"
        );
        assert_eq!(
            cq.push(cqe(2), at(0)),
            Pushed {
                died: false,
                ..lost
            }
        );
        assert!(cq.is_empty());
    }

    #[test]
    fn arming_raises_one_event_for_what_comes_later() {
        let mut cq = Cq::new(9);
        assert_eq!(cq.push(cqe(0), at(0)), QUIET, "not armed");
        assert!(
            cq.arm(Arm::Any),
            "the one already there raises nothing: poll again"
        );
        assert_eq!(cq.push(cqe(1), at(0)), NOTIFY);
        assert_eq!(cq.armed(), None);
        assert_eq!(cq.push(cqe(2), at(0)), QUIET, "once");
    }

    #[test]
    fn solicited_and_failed_completions_wake_who_waits_for_solicited() {
        let mut cq = Cq::new(9);
        for wakes in [solicited(2), failed(2)] {
            cq.arm(Arm::Solicited);
            assert_eq!(cq.push(cqe(1), at(0)), QUIET);
            assert_eq!(cq.push(wakes, at(0)), NOTIFY);
        }
    }

    /// As hardware does: waiting for any completion includes waiting for solicited ones.
    #[test]
    fn arming_is_never_weakened() {
        let mut cq = Cq::new(9);
        cq.arm(Arm::Any);
        cq.arm(Arm::Solicited);
        assert_eq!(cq.push(cqe(0), at(0)), NOTIFY);
        cq.arm(Arm::Solicited);
        cq.arm(Arm::Any);
        assert_eq!(cq.push(cqe(1), at(0)), NOTIFY);
    }

    #[test]
    fn moderation_waits_for_the_count_or_the_period() {
        let mut cq = Cq::new(9);
        assert!(!cq.moderate(3, Span::from_us(10), at(0)));
        cq.arm(Arm::Any);
        assert_eq!(cq.moderation_deadline(), None);
        assert_eq!(cq.push(cqe(0), at(1)), QUIET);
        assert_eq!(cq.push(cqe(1), at(5)), QUIET);
        assert_eq!(cq.moderation_deadline(), Some(at(11)));
        assert_eq!(cq.push(cqe(2), at(6)), NOTIFY, "the count");
        assert_eq!(cq.moderation_deadline(), None);

        cq.arm(Arm::Any);
        assert_eq!(cq.push(cqe(3), at(20)), QUIET, "counting starts anew");
        assert!(!cq.handle_timeout(at(29)));
        assert!(cq.handle_timeout(at(30)), "the period");
        assert!(!cq.handle_timeout(at(31)), "once");

        cq.arm(Arm::Any);
        assert_eq!(cq.push(cqe(4), at(40)), QUIET);
        assert_eq!(
            cq.push(cqe(5), at(50)),
            NOTIFY,
            "a late timer does not delay the event"
        );
    }

    #[test]
    fn moderation_counts_only_what_the_queue_is_armed_for() {
        let mut cq = Cq::new(9);
        let _ = cq.moderate(2, Span::ZERO, at(0));
        assert_eq!(cq.push(solicited(0), at(0)), QUIET);
        cq.arm(Arm::Solicited);
        assert_eq!(cq.push(cqe(1), at(0)), QUIET);
        assert_eq!(cq.push(solicited(2), at(0)), QUIET);
        assert_eq!(cq.moderation_deadline(), None, "no period, no timer");
        assert_eq!(cq.push(solicited(3), at(0)), NOTIFY);
    }

    #[test]
    fn relaxing_the_moderation_releases_a_waiting_event() {
        let mut cq = Cq::new(9);
        let _ = cq.moderate(9, Span::from_us(100), at(0));
        cq.arm(Arm::Any);
        assert_eq!(cq.push(cqe(0), at(0)), QUIET);
        assert!(!cq.moderate(9, Span::from_us(50), at(20)));
        assert_eq!(cq.moderation_deadline(), Some(at(50)));
        assert!(cq.moderate(0, Span::ZERO, at(21)), "off");
        assert_eq!(cq.armed(), None);
    }

    #[test]
    fn resizing_keeps_what_is_there() {
        let mut cq = Cq::new(4);
        cq.resize(2).unwrap();
        assert_eq!(cq.entries.capacity(), 0, "still nothing allocated");
        cq.resize(4).unwrap();
        for wr_id in 0..3 {
            let _ = cq.push(cqe(wr_id), at(0));
        }
        let refused = VerbError::TooSmall {
            what: "cqe",
            min: 3,
            got: 2,
        };
        assert_eq!(cq.resize(2), Err(refused));
        cq.resize(3).unwrap();
        assert_eq!(cq.pop().map(|cqe| cqe.wr_id), Some(0));
        assert_eq!(cq.push(cqe(3), at(0)), QUIET);
        assert!(cq.push(cqe(4), at(0)).overrun);
        let mut left = Vec::new();
        cq.poll(9, |cqe| left.push(cqe.wr_id));
        assert_eq!(left, [1, 2, 3]);
        assert_eq!(
            cq.resize(0),
            Err(VerbError::TooSmall {
                what: "cqe",
                min: 1,
                got: 0
            })
        );
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push { kind: u8, after_us: u64 },
        Pop,
        Poll { max: usize },
        Arm(Arm),
        Moderate { count: u16, period_us: u64 },
        Timeout { after_us: u64 },
        Resize { capacity: u32 },
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0..3u8, 0..4u64).prop_map(|(kind, after_us)| Op::Push { kind, after_us }),
            2 => Just(Op::Pop),
            1 => (0..5usize).prop_map(|max| Op::Poll { max }),
            4 => prop_oneof![Just(Arm::Solicited), Just(Arm::Any)].prop_map(Op::Arm),
            1 => (0..4u16, 0..6u64)
                .prop_map(|(count, period_us)| Op::Moderate { count, period_us }),
            2 => (0..6u64).prop_map(|after_us| Op::Timeout { after_us }),
            1 => (0..12u32).prop_map(|capacity| Op::Resize { capacity }),
        ]
    }

    /// The queue as its rules say it: everything kept, the event decided from the history.
    struct Model {
        queue: VecDeque<u64>,
        capacity: usize,
        is_dead: bool,
        armed: Option<Arm>,
        /// When completions that the event waits for came, since arming.
        matches: Vec<Instant>,
        count: u16,
        period: Span,
    }

    impl Model {
        fn event(&mut self, now: Instant) -> bool {
            let Some(&first) = self.matches.first() else {
                return false;
            };
            let is_off = self.count == 0 && self.period == Span::ZERO;
            let is_counted = self.count > 0 && self.matches.len() >= self.count.into();
            let is_late = self.period > Span::ZERO && now.since(first) >= self.period;
            let due = is_off || is_counted || is_late;
            if due {
                self.armed = None;
                self.matches.clear();
            }
            due
        }
    }

    proptest! {
        /// The queue agrees with its model in everything that it returns.
        #[test]
        fn queue_agrees_with_its_model(
            capacity in 1..8u32,
            ops in prop::collection::vec(ops(), 1..100),
        ) {
            let mut cq = Cq::new(capacity);
            let mut model = Model {
                queue: VecDeque::new(),
                capacity: capacity as usize,
                is_dead: false,
                armed: None,
                matches: Vec::new(),
                count: 0,
                period: Span::ZERO,
            };
            let mut now = Instant::EPOCH;
            for (wr_id, op) in (0..).zip(ops) {
                match op {
                    Op::Push { kind, after_us } => {
                        now += Span::from_us(after_us);
                        let cqe = [cqe, solicited, failed][usize::from(kind)](wr_id);
                        let pushed = cq.push(cqe, now);
                        if model.is_dead || model.queue.len() == model.capacity {
                            let died = !model.is_dead;
                            model.is_dead = true;
                            prop_assert_eq!(pushed, Pushed { notify: false, overrun: true, died });
                            continue;
                        }
                        model.queue.push_back(wr_id);
                        let matches = match model.armed {
                            None => false,
                            Some(Arm::Solicited) => kind > 0,
                            Some(Arm::Any) => true,
                        };
                        if matches {
                            model.matches.push(now);
                        }
                        // An unmatched completion moves no event, even if its timer is late.
                        let notify = matches && model.event(now);
                        prop_assert_eq!(pushed, Pushed { notify, ..QUIET });
                    }
                    Op::Pop => {
                        prop_assert_eq!(cq.pop().map(|cqe| cqe.wr_id), model.queue.pop_front());
                    }
                    Op::Poll { max } => {
                        let mut polled = Vec::new();
                        let count = cq.poll(max, |cqe| polled.push(cqe.wr_id));
                        prop_assert_eq!(count, polled.len());
                        let expected = model.queue.len().min(max);
                        prop_assert_eq!(polled, model.queue.drain(..expected).collect::<Vec<_>>());
                    }
                    Op::Arm(arm) => {
                        model.armed = match (model.armed, arm) {
                            (Some(Arm::Any), _) | (_, Arm::Any) => Some(Arm::Any),
                            (_, Arm::Solicited) => Some(Arm::Solicited),
                        };
                        prop_assert_eq!(cq.arm(arm), !model.queue.is_empty());
                    }
                    Op::Moderate { count, period_us } => {
                        (model.count, model.period) = (count, Span::from_us(period_us));
                        prop_assert_eq!(cq.moderate(count, model.period, now), model.event(now));
                    }
                    Op::Timeout { after_us } => {
                        now += Span::from_us(after_us);
                        prop_assert_eq!(cq.handle_timeout(now), model.event(now));
                    }
                    Op::Resize { capacity } => {
                        let fits = capacity as usize >= model.queue.len().max(1);
                        prop_assert_eq!(cq.resize(capacity).is_ok(), fits);
                        if fits {
                            model.capacity = capacity as usize;
                        }
                    }
                }
                prop_assert_eq!(cq.len(), model.queue.len());
                prop_assert_eq!(cq.armed(), model.armed);
                prop_assert_eq!(cq.is_dead(), model.is_dead);
                let first = model.matches.first().filter(|_| model.period > Span::ZERO);
                let deadline = first.map(|&first| first + model.period);
                prop_assert_eq!(cq.moderation_deadline(), deadline);
            }
        }
    }
}
