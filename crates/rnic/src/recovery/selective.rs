//! The sending half of selective repeat: which packets the peer has, which are lost, which to send
//! again.
//!
//! A packet counts as lost when one that was sent some packets after it has arrived: by that rule a
//! lost retransmission is found as fast as a lost first transmission, as long as anything newer
//! flows. For the end of a burst there is a short timer of its own, derived from the measured round
//! trip; it resends the oldest packet and costs no retry. The standard's timer stays behind it.

use hirail_vocab::Counter;
use hirail_wire::{Psn, Sack};

use super::REORDER_PACKETS;
use crate::host::{Host, Lock};
use crate::planted::{self, Bug};
use crate::qp::{Cx, Inner};
use crate::requester;
use crate::time::{Instant, Span};
use crate::transmit::Work;

/// How many packets later ones may pass one before it counts as lost. Networks that spray reorder a
/// little.
const REORDERING: i32 = 3;

/// The short timer is never shorter than this.
const MIN_PROBE: Span = Span::from_us(20);

/// The short timer before a round trip was measured.
const FIRST_PROBE: Span = Span::from_us(500);

/// Doublings of the short timer without progress at most.
const MAX_BACKOFF: u32 = 8;

/// What is known of one PSN in flight.
#[derive(Clone, Copy, Default)]
struct Mark {
    has_arrived: bool,
    /// Newest PSN that had been sent when this one was last sent; its own PSN at first.
    sent_at: Psn,
    /// `sent_at` is that of a retransmission.
    was_resent: bool,
}

/// State of the sending half.
pub(crate) struct Selective {
    /// PSNs that may be in flight.
    window: u32,
    /// By PSN modulo the window's maximum.
    marks: Box<[Mark; REORDER_PACKETS as usize]>,
    /// Newest PSN that the peer has reported.
    newest: Option<Psn>,
    /// PSNs from here on have been looked at for losses in the current pass.
    next_look: Psn,
    /// Resend the oldest packet, lost or not: the short timer has expired.
    probe: bool,
    /// The packet that was offered to the link for that reason.
    probing: Option<Psn>,
    probe_at: Option<Instant>,
    backoff: u32,
    /// A packet whose acknowledgement measures the round trip.
    sample: Option<(Psn, Instant)>,
    round_trip: Option<Span>,
}

impl Selective {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window,
            marks: Box::new([Mark::default(); REORDER_PACKETS as usize]),
            newest: None,
            next_look: Psn::new(0),
            probe: false,
            probing: None,
            probe_at: None,
            backoff: 0,
            sample: None,
            round_trip: None,
        }
    }

    /// Packets that may be in flight: what the peer can keep.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.probe_at
    }

    fn mark(&mut self, psn: Psn) -> &mut Mark {
        &mut self.marks[psn.value() as usize % REORDER_PACKETS as usize]
    }

    fn probe_after(&self) -> Span {
        let base = self.round_trip.map_or(FIRST_PROBE, |rtt| rtt.times(3));
        Span::from_ps(base.as_ps().max(MIN_PROBE.as_ps()) << self.backoff.min(MAX_BACKOFF))
    }

    /// PSNs `from` to before `to` were sent for the first time.
    pub(crate) fn on_sent(&mut self, now: Instant, from: Psn, to: Psn) {
        let mut psn = from;
        while psn != to {
            *self.mark(psn) = Mark {
                has_arrived: false,
                sent_at: psn,
                was_resent: false,
            };
            psn = psn.next();
        }
        if self.sample.is_none() {
            self.sample = Some((to, now));
        }
        if self.probe_at.is_none() {
            self.probe_at = Some(now + self.probe_after());
        }
    }

    /// `psn` was sent again, when `sent_end` was the next new PSN.
    pub(crate) fn on_resent(&mut self, now: Instant, psn: Psn, sent_end: Psn) {
        *self.mark(psn) = Mark {
            has_arrived: false,
            sent_at: sent_end.prev(),
            was_resent: true,
        };
        self.probe = false;
        self.probing = None;
        self.probe_at = Some(now + self.probe_after());
    }

    /// Everything before `una` is acknowledged; `sent_end` is the next new PSN.
    pub(crate) fn on_acknowledged(&mut self, now: Instant, una: Psn, sent_end: Psn) {
        if let Some((psn, sent_at)) = self.sample
            && !una.is_before(psn)
        {
            self.sample = None;
            let measured = now.since(sent_at);
            let smooth = |old: Span| Span::from_ps((old.as_ps() / 8) * 7 + measured.as_ps() / 8);
            self.round_trip = Some(self.round_trip.map_or(measured, smooth));
        }
        self.backoff = 0;
        self.probe = false;
        self.probe_at = (una != sent_end).then(|| now + self.probe_after());
        if self.next_look.is_before(una) {
            self.next_look = una;
        }
    }

    /// Everything from the oldest packet on will be sent again in order.
    pub(crate) fn on_go_back(&mut self) {
        self.newest = None;
        self.sample = None;
        self.probe = false;
        self.probing = None;
    }

    /// The peer's report.
    fn on_sack(&mut self, sack: &Sack, una: Psn, sent_end: Psn) {
        // Requests behind a READ whose responses are still on their way have arrived all the same.
        let mut executed = una;
        while executed.is_before(sack.cumulative) {
            self.mark(executed).has_arrived = true;
            executed = executed.next();
        }
        for word in 0..4u32 {
            let mut bits = sack.bitmap[word as usize];
            while bits != 0 {
                let psn = sack.cumulative.add(1 + 64 * word + bits.trailing_zeros());
                bits &= bits - 1;
                if psn.is_before(una) || !psn.is_before(sent_end) {
                    continue;
                }
                self.mark(psn).has_arrived = true;
                if self.newest.is_none_or(|newest| psn.is_after(newest)) {
                    self.newest = Some(psn);
                }
            }
        }
        self.next_look = una;
    }

    /// The next PSN that counts as lost, from `una` on. Looks at each PSN once per report.
    pub(crate) fn next_lost(&mut self, una: Psn, sent_end: Psn) -> Option<Psn> {
        if self.probe && una != sent_end {
            return Some(una);
        }
        let newest = self.newest?;
        if self.next_look.is_before(una) {
            self.next_look = una;
        }
        while self.next_look.is_before(newest) {
            let psn = self.next_look;
            let mark = *self.mark(psn);
            let passed_by = newest.distance_from(mark.sent_at);
            let needed = if mark.was_resent { 1 } else { REORDERING };
            if !mark.has_arrived && passed_by >= needed {
                return Some(psn);
            }
            self.next_look = psn.next();
        }
        None
    }

    /// `psn` has been dealt with in this pass.
    pub(crate) fn skip(&mut self, psn: Psn) {
        if core::mem::take(&mut self.probe) {
            self.probing = Some(psn);
        }
        if !self.next_look.is_after(psn) {
            self.next_look = psn.next();
        }
    }

    /// Whether `psn`, offered by [`next_lost`](Self::next_lost), is sent again because the short
    /// timer has expired.
    pub(crate) fn is_probe(&self, psn: Psn) -> bool {
        self.probing == Some(psn)
    }

    /// `psn` was not sent after all.
    pub(crate) fn look_again(&mut self, psn: Psn) {
        if psn.is_before(self.next_look) {
            self.next_look = psn;
        }
    }

    /// Takes over packets that were sent before the peer said that it keeps them out of order.
    pub(crate) fn adopt(&mut self, now: Instant, una: Psn, sent_end: Psn) {
        let oldest = sent_end.sub(u32::from(REORDER_PACKETS));
        let from = if una.is_before(oldest) { oldest } else { una };
        self.next_look = from;
        if from != sent_end {
            self.on_sent(now, from, sent_end);
        }
    }

    /// Whether there may be something to resend.
    pub(crate) fn may_have_lost(&self) -> bool {
        self.probe
            || self
                .newest
                .is_some_and(|newest| self.next_look.is_before(newest))
    }
}

/// The peer's selective acknowledgement of requests.
pub(crate) fn handle_sack<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, sack: &Sack) {
    if sack.response || q.recovery.selective.is_none() {
        return;
    }
    let sent_end = q.requester.sent_end;
    let is_sane =
        !sack.cumulative.is_before(q.requester.una) && !sack.cumulative.is_after(sent_end);
    if !is_sane {
        return;
    }
    q.requester.heard = true;
    // A READ in the way is not lost for that: its responses travel in another class.
    let _ = crate::completer::advance_to(cx, q, sack.cumulative);
    let una = q.requester.una;
    if let Some(selective) = &mut q.recovery.selective {
        selective.on_sack(sack, una, sent_end);
    }
    send_lost(cx, q);
    q.refresh_timer(cx);
}

/// The short timer may have expired.
pub(crate) fn handle_timeout<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    let idle = q.requester.una == q.requester.sent_end;
    let is_waiting = q.requester.rnr_until.is_some_and(|until| cx.now < until);
    let Some(selective) = &mut q.recovery.selective else {
        return;
    };
    if selective.probe_at.is_none_or(|at| at > cx.now) {
        return;
    }
    selective.probe_at = None;
    if idle {
        return;
    }
    selective.backoff += 1;
    selective.probe = !is_waiting;
    selective.sample = None;
    selective.probe_at = Some(cx.now + selective.probe_after());
    cx.count(Counter::RoceAdpRetransTo);
    send_lost(cx, q);
}

/// Packets may have been lost. They need no room in the window, so they do not wait for it.
fn send_lost<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    q.schedule(cx, Work::Requests);
    if next_lost(q).is_none() || planted::has(Bug::RepeatWaitsForRoom) {
        return;
    }
    let Some(window) = &q.window else { return };
    let is_waiting = window.lock().hurry(cx.qp);
    if is_waiting {
        cx.device.wake_waiting(window);
    }
}

/// Fills a run with packets that count as lost, before anything new is sent.
pub(crate) fn next_lost<H: Host>(q: &mut Inner<H>) -> Option<Psn> {
    let (una, sent_end) = (q.requester.una, q.requester.sent_end);
    // What lies beyond the cursor is going to be sent anyway.
    let end = requester::cursor_psn(q);
    let selective = q.recovery.selective.as_mut()?;
    let psn = selective.next_lost(una, sent_end)?;
    psn.is_before(end).then_some(psn)
}
