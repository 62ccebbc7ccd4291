//! Whether an ACK may wait because the peer is in a conversation: it sends a message, waits for the
//! application's answer, and sends the next one. There the next ACK says what this one would have
//! said, and both ends are spared a packet on the way that the application waits for. TCP delays its
//! acknowledgements for the same reason.
//!
//! An ACK waits when the application answers before it has left, and, once that has proved right, as
//! soon as a message arrives. It waits [`ack_delay`](crate::DeviceConfig::ack_delay) at most. A peer
//! that sent nothing meanwhile may have needed the ACK to go on: then a growing number of messages is
//! acknowledged at once. NAKs, responses and the ACKs of repeated or long messages never wait.

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

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The ACK that is owed waits until then.
    held_until: Option<Instant>,
    /// Messages that are still acknowledged at once.
    regret: u16,
    /// Waits in vain since the last good one.
    vain: u8,
    /// The peer has gone on while the present ACK waited.
    went_on: bool,
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

    /// A message arrived that wants an ACK; whether it may wait.
    fn message(&mut self, until: Option<Instant>) -> bool {
        if self.held_until.is_some() {
            self.went_on = true;
            self.messages = self.messages.saturating_add(1);
        } else if self.regret > 0 {
            self.regret -= 1;
        } else if self.is_on {
            self.hold(until);
        }
        self.held_until.is_some()
    }

    /// The application answers while an ACK is owed; whether that waits from now on.
    fn answered(&mut self, until: Option<Instant>) -> bool {
        if self.held_until.is_none() && self.regret == 0 {
            self.hold(until);
            return self.held_until.is_some();
        }
        false
    }

    fn hold(&mut self, until: Option<Instant>) {
        self.held_until = until;
        self.went_on = false;
        self.messages = 1;
    }

    /// Ends the wait without a judgement.
    pub(crate) fn release(&mut self) {
        self.held_until = None;
    }

    /// Ends the wait when it is over; whether it was.
    fn expire(&mut self, now: Instant) -> bool {
        if self.held_until.is_none_or(|until| now < until) {
            return false;
        }
        self.held_until = None;
        self.is_on = self.went_on;
        if self.went_on {
            self.vain = 0;
        } else {
            self.regret();
        }
        true
    }

    /// A message came again: if an ACK waits, it was too long for the peer.
    pub(super) fn asked_again(&mut self) {
        if self.held_until.take().is_some() {
            self.is_on = false;
            self.regret();
        }
    }

    fn regret(&mut self) {
        self.regret = FIRST_REGRET << self.vain;
        self.vain = (self.vain + 1).min(MAX_DOUBLINGS);
    }
}

/// How long an ACK of this QP may wait: not at all where the peer's timers may be so short that it
/// would take the packet for lost. It uses about our own timeout.
fn until<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> Option<Instant> {
    let delay = cx.device.config().ack_delay;
    let timeout = q.attr.timeout.duration().map(Span::from);
    let is_short = timeout.is_some_and(|timeout| timeout < delay.times(8));
    (delay > Span::ZERO && !is_short).then(|| cx.now + delay)
}

/// Whether the peer, which learns of receive requests from ACKs, has enough of them left.
fn is_in_credit<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> bool {
    let used = 2 * u32::from(q.responder.conversation.messages);
    reply::promised(cx, q).is_none_or(|left| used < left)
}

/// Puts the ACK that is owed for a message in line, or lets it wait.
pub(super) fn acknowledge<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, operation: Operation) {
    let may_wait = operation.is_only() && (operation.is_write() || is_in_credit(cx, q));
    let until = if may_wait { until(cx, q) } else { None };
    if may_wait && q.responder.conversation.message(until) {
        q.refresh_timer(cx);
    } else {
        q.responder.conversation.release();
        q.schedule(cx, Work::Acknowledgement);
    }
}

/// The application has posted a message: if an ACK is owed that has not left, this may be the answer.
pub(crate) fn answered<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.responder.answers.owes_ack()
        && q.queued & Work::Acknowledgement.bit() != 0
        && is_in_credit(cx, q)
        && q.responder.conversation.answered(until(cx, q))
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

    const UNTIL: Option<Instant> = Some(Instant::from_ns(50));

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn an_ack_waits_once_the_application_answers_in_time() {
        let mut conversation = Conversation::default();
        assert!(!conversation.message(UNTIL), "nobody has answered yet");
        assert!(conversation.answered(UNTIL));
        assert!(conversation.message(UNTIL), "the peer went on");
        assert!(!conversation.expire(at(49)));
        assert!(conversation.expire(at(50)));
        assert!(conversation.message(UNTIL), "from now on at once");
    }

    #[test]
    fn waits_in_vain_are_regretted_longer_each_time() {
        let mut conversation = Conversation::default();
        for doublings in [0, 1, 2, 3, 4, 5, 6, 6] {
            assert!(!conversation.message(UNTIL));
            assert!(conversation.answered(UNTIL));
            assert!(conversation.expire(at(50)));
            for _ in 0..64 << doublings {
                assert!(!conversation.message(UNTIL));
                if conversation.regret > 0 {
                    assert!(!conversation.answered(UNTIL));
                }
            }
        }
    }

    #[test]
    fn a_peer_that_asks_again_was_kept_waiting() {
        let mut conversation = Conversation::default();
        assert!(!conversation.message(UNTIL));
        assert!(conversation.answered(UNTIL));
        conversation.asked_again();
        assert!(!conversation.is_holding());
        assert!(!conversation.message(UNTIL));
        assert!(!conversation.answered(UNTIL));
    }

    #[test]
    fn without_a_delay_nothing_waits() {
        let mut conversation = Conversation::default();
        assert!(!conversation.message(None));
        assert!(!conversation.answered(None));
        assert!(!conversation.is_holding());
    }
}
