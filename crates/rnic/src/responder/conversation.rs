//! Whether an ACK may wait because the peer is in a conversation: it sends a message, waits for the
//! application's answer, and sends the next one. There the next ACK says what this one would have
//! said, and both ends are spared a packet on the way that the application waits for. TCP delays its
//! acknowledgements for the same reason.
//!
//! An ACK waits when the application answers before it has left, and, once that has proved right, as
//! soon as a message arrives. A peer that sent nothing meanwhile may have needed the ACK to go on: then
//! a growing number of messages is acknowledged at once. NAKs, responses and the ACKs of repeated or
//! long messages never wait.
//!
//! How long is a matter of the peer's ACK timer, which nobody tells us about. So nothing waits before
//! the peer was seen to go on after an answer, and then an ACK waits for [`TURNS`] times as long as
//! that took: a timeout that expires sooner would do so in any disturbance of the conversation. It is
//! never longer than [`ack_delay`](crate::DeviceConfig::ack_delay).

use super::reply;
use crate::host::Host;
use crate::qp::{Cx, Inner};
use crate::time::{Instant, Span};
use crate::transmit::Work;
use hirail_wire::Operation;

/// Messages acknowledged at once after the first wait in vain.
const FIRST_REGRET: u16 = 64;
/// How often that number doubles at most.
const MAX_DOUBLINGS: u8 = 6;
/// An ACK waits for so many turns of the conversation at most.
const TURNS: u64 = 4;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The ACK that is owed waits until then.
    held_until: Option<Instant>,
    /// When the turn began that is timed, in nanoseconds: as many bits as there is room for.
    since: u32,
    /// The longest turn of late, in nanoseconds; zero where none was seen.
    turn: u32,
    /// Messages that are still acknowledged at once.
    regret: u16,
    /// Waits in vain since the last good one.
    vain: u8,
    /// A turn is timed: the peer has not gone on since it began.
    is_timed: bool,
    /// The last wait was good.
    is_on: bool,
    /// Messages that the present ACK is for, as far as they fit.
    messages: u8,
}

impl Conversation {
    /// Whether the ACK that is owed waits.
    pub(super) fn is_holding(&self) -> bool {
        self.held_until.is_some()
    }

    /// When the ACK that waits is to leave.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.held_until
    }

    /// A message arrived that wants an ACK; whether it may wait, which is no longer than `most`.
    fn message(&mut self, now: Instant, most: Span) -> bool {
        self.went_on(now);
        if self.held_until.is_some() {
            self.messages = self.messages.saturating_add(1);
        } else if self.regret > 0 {
            self.regret -= 1;
        } else if self.is_on {
            self.hold(now, most);
        }
        self.held_until.is_some()
    }

    /// The application answers while an ACK is owed; whether that waits from now on.
    fn answered(&mut self, now: Instant, most: Span) -> bool {
        if self.held_until.is_some() {
            return false;
        }
        self.begin_turn(now);
        if self.regret == 0 {
            self.hold(now, most);
        }
        self.held_until.is_some()
    }

    fn begin_turn(&mut self, now: Instant) {
        self.since = now.as_ns() as u32;
        self.is_timed = true;
    }

    /// The peer has gone on. A quick turn among slow ones says little.
    fn went_on(&mut self, now: Instant) {
        if core::mem::take(&mut self.is_timed) {
            let took = (now.as_ns() as u32).wrapping_sub(self.since);
            self.turn = took.max(self.turn - self.turn / 8).max(1);
        }
    }

    fn hold(&mut self, now: Instant, most: Span) {
        let turn = Span::from_ns(self.turn.into());
        self.messages = 1;
        if self.turn > 0 && turn <= most {
            self.held_until = Some(now + turn.times(TURNS).min(most));
            self.begin_turn(now);
        }
    }

    /// Ends the wait without a judgement.
    pub(crate) fn release(&mut self) {
        if self.held_until.take().is_some() {
            self.is_timed = false;
        }
    }

    /// Ends the wait when it is over; whether it was.
    fn expire(&mut self, now: Instant) -> bool {
        if self.held_until.is_none_or(|until| now < until) {
            return false;
        }
        self.held_until = None;
        self.is_on = !self.is_timed;
        if self.is_on {
            self.vain = 0;
        } else {
            // What comes next may be the answer to the ACK.
            self.is_timed = false;
            self.regret();
        }
        true
    }

    /// A message came again: if an ACK waits, it was too long for the peer.
    pub(super) fn asked_again(&mut self) {
        if self.held_until.is_some() {
            self.release();
            self.is_on = false;
            self.regret();
        }
    }

    fn regret(&mut self) {
        self.regret = FIRST_REGRET << self.vain;
        self.vain = (self.vain + 1).min(MAX_DOUBLINGS);
    }
}

/// How long an ACK of this QP may wait at most: not at all where the peer's timers may be so short that
/// it would take the packet for lost. It uses about our own timeout.
fn most<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> Span {
    let delay = cx.device.config().ack_delay;
    let timeout = q.attr.timeout.duration().map(Span::from);
    let is_short = timeout.is_some_and(|timeout| timeout < delay.times(8));
    if is_short { Span::ZERO } else { delay }
}

/// Whether the peer, which learns of receive requests from ACKs, has enough of them left.
fn is_in_credit<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> bool {
    let used = 2 * u32::from(q.responder.conversation.messages);
    reply::promised(cx, q).is_none_or(|left| used < left)
}

/// Puts the ACK that is owed for a message in line, or lets it wait.
pub(super) fn acknowledge<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, operation: Operation) {
    let may_wait = operation.is_only() && (operation.is_write() || is_in_credit(cx, q));
    let most = most(cx, q);
    if may_wait && q.responder.conversation.message(cx.now, most) {
        q.refresh_timer(cx);
    } else {
        q.responder.conversation.release();
        q.schedule(cx, Work::Acknowledgement);
    }
}

/// The application has posted a message: if an ACK is owed that has not left, this may be the answer.
pub(crate) fn answered<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    let most = most(cx, q);
    if q.responder.answers.owes_ack()
        && q.queued & Work::Acknowledgement.bit() != 0
        && is_in_credit(cx, q)
        && q.responder.conversation.answered(cx.now, most)
    {
        q.refresh_timer(cx);
    }
}

/// An ACK that has waited long enough leaves.
pub(crate) fn handle_timeout<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.responder.conversation.expire(cx.now) && q.responder.answers.has_tail() {
        q.schedule(cx, Work::Acknowledgement);
    }
}

/// No ACK waits any longer.
pub(crate) fn release<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.responder.conversation.is_holding() {
        q.responder.conversation.release();
        q.schedule(cx, Work::Acknowledgement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Span = Span::from_us(100);

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    /// A conversation whose peer takes 10 us to go on, at 10 us.
    fn known() -> Conversation {
        let mut conversation = Conversation::default();
        assert!(
            !conversation.message(at(0), MOST),
            "nobody has answered yet"
        );
        assert!(
            !conversation.answered(at(0), MOST),
            "nothing is known of the peer"
        );
        assert!(
            !conversation.message(at(10), MOST),
            "the last wait was none"
        );
        conversation
    }

    #[test]
    fn an_ack_waits_for_some_turns_once_one_was_seen() {
        let mut conversation = known();
        assert!(conversation.answered(at(10), MOST));
        assert_eq!(conversation.deadline(), Some(at(50)), "four turns");
        assert!(conversation.message(at(20), MOST), "the peer went on");
        assert!(!conversation.expire(at(49)));
        assert!(conversation.expire(at(50)));
        assert!(conversation.message(at(60), MOST), "from now on at once");
        assert_eq!(conversation.deadline(), Some(at(100)));
    }

    #[test]
    fn slow_turns_count_and_are_forgotten_slowly() {
        let mut conversation = known();
        for (took, waits) in [(20, 80), (1, 70), (2, 61), (80, 100), (1, 100)] {
            conversation.release();
            assert!(conversation.answered(at(0), MOST));
            conversation.message(at(took), MOST);
            conversation.release();
            conversation.answered(at(1000), MOST);
            let until = conversation.deadline().expect("waits");
            let us = until.since(at(1000)).as_ns() / 1000;
            assert_eq!(us, waits, "after {took}");
        }
        // Who takes longer than an ACK may wait is in no conversation.
        conversation.message(at(1101), MOST);
        conversation.release();
        assert!(!conversation.answered(at(2000), MOST));
    }

    #[test]
    fn waits_in_vain_are_regretted_longer_each_time() {
        let mut conversation = known();
        let mut now = 10;
        for doublings in [0, 1, 2, 3, 4, 5, 6, 6] {
            assert!(!conversation.message(at(now), MOST));
            assert!(conversation.answered(at(now), MOST));
            assert!(conversation.expire(at(now + 40)));
            for _ in 0..64 << doublings {
                now += 10;
                assert!(!conversation.message(at(now), MOST));
                if conversation.regret > 0 {
                    assert!(!conversation.answered(at(now), MOST));
                }
            }
        }
    }

    #[test]
    fn a_peer_that_asks_again_was_kept_waiting() {
        let mut conversation = known();
        assert!(conversation.answered(at(10), MOST));
        conversation.asked_again();
        assert!(!conversation.is_holding());
        assert!(!conversation.message(at(30), MOST));
        assert!(!conversation.answered(at(30), MOST));
    }

    #[test]
    fn without_a_delay_nothing_waits() {
        let mut conversation = known();
        assert!(!conversation.message(at(10), Span::ZERO));
        assert!(!conversation.answered(at(10), Span::ZERO));
        assert!(!conversation.is_holding());
    }
}
