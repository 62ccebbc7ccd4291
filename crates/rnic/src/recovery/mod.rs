//! Loss recovery as a strategy: what to send again when something was lost.
//!
//! Go-back-N is the standard's and interoperates with everybody. Go-back-0 starts the message over,
//! as early RoCE cards did; it is here for the lessons. Selective repeat resends what is missing;
//! both ends must speak it, which they find out by a [hello](Hello).
//!
//! The receiving half of selective repeat is a [reorder pool](reorder) in front of the unchanged
//! in-order responder; the sending half is [`selective`].

pub(crate) mod reorder;
pub(crate) mod selective;

use hirail_vocab::DropReason;
use hirail_wire::{Ext, Hello, Psn, Sack};

use crate::host::Host;
use crate::qp::state::Capabilities;
use crate::qp::{Cx, Inner};
use crate::time::{Instant, Span};
use crate::transmit::Work;
use reorder::ReorderPool;
use selective::Selective;

/// The strategies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryKind {
    /// Resend everything from the first lost packet on.
    #[default]
    GoBackN,
    /// Resend the whole message that the first lost packet belongs to, and all after it.
    GoBackZero,
    /// Resend only what is missing, with a peer that can; go-back-N with others.
    SelectiveRepeat,
}

/// Packets out of order that one QP keeps, and so the packets that a peer may have in flight.
pub(crate) const REORDER_PACKETS: u16 = 256;

/// Time from a hello to the next one, if no answer came; four times as long each time.
const HELLO_INTERVAL: Span = Span::from_us(200);

/// Hellos sent before the peer counts as one that does not speak it.
const HELLOS: u8 = 8;

/// State of the strategy of one QP.
pub(crate) struct Recovery<H: Host> {
    kind: RecoveryKind,
    /// Hellos sent so far.
    hellos: u8,
    /// When the next hello is due.
    hello_at: Option<Instant>,
    /// A hello, or the answer to one, is to be sent.
    hello_due: Option<Hello>,
    /// What the peer's answer must repeat.
    nonce: u32,
    /// A selective acknowledgement is to be sent.
    sack_due: bool,
    /// The sending half, once the peer has said that it keeps packets out of order.
    pub(crate) selective: Option<Box<Selective>>,
    /// The receiving half, once the peer has said that it takes selective acknowledgements.
    pub(crate) pool: Option<Box<ReorderPool<H>>>,
}

impl<H: Host> Recovery<H> {
    pub(crate) fn new(kind: RecoveryKind) -> Self {
        Self {
            kind,
            hellos: 0,
            hello_at: None,
            hello_due: None,
            nonce: 0,
            sack_due: false,
            selective: None,
            pool: None,
        }
    }

    /// Where to send from again after the loss of `psn`.
    pub(crate) fn restart_from(&self, q: &Inner<H>, psn: Psn) -> Psn {
        match self.kind {
            RecoveryKind::GoBackN | RecoveryKind::SelectiveRepeat => psn,
            RecoveryKind::GoBackZero => q.message_start(psn),
        }
    }

    /// When the QP needs to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let probe = self
            .selective
            .as_ref()
            .and_then(|selective| selective.deadline());
        [self.hello_at, probe].into_iter().flatten().min()
    }

    /// Whether packets may have been lost that are to be sent again one by one.
    pub(crate) fn has_lost(&self) -> bool {
        self.selective
            .as_ref()
            .is_some_and(|selective| selective.may_have_lost())
    }

    /// Whether a hello or a selective acknowledgement is to be sent.
    pub(crate) fn has_work(&self) -> bool {
        self.hello_due.is_some() || self.sack_due
    }

    pub(crate) fn stop(&mut self) {
        let kind = self.kind;
        *self = Self::new(kind);
    }

    /// The hello to send now, else whether a selective acknowledgement is to be sent.
    pub(crate) fn due(&self) -> (Option<Hello>, bool) {
        (self.hello_due, self.sack_due)
    }

    /// The hello, or else the selective acknowledgement, was sent.
    pub(crate) fn sent(&mut self) {
        if self.hello_due.take().is_none() {
            self.sack_due = false;
        }
    }
}

const fn hello(flags: u8, nonce: u32) -> Hello {
    Hello {
        version: Hello::VERSION,
        flags: Hello::SELECTIVE_REPEAT | flags,
        window_packets: REORDER_PACKETS,
        nonce,
    }
}

/// The QP has reached RTS: asks the peer whether it repeats selectively too.
pub(crate) fn start<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.recovery.kind != RecoveryKind::SelectiveRepeat || !cx.qp.qp_type.is_reliable() {
        return;
    }
    // Answers of an earlier connection of this number must not count.
    q.recovery.nonce = (cx.now.as_ns() as u32) ^ q.attr.sq_psn.value() << 8;
    ask(cx, q);
}

fn ask<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    let interval = HELLO_INTERVAL.times(1 << (2 * q.recovery.hellos));
    q.recovery.hellos += 1;
    q.recovery.hello_due = Some(hello(0, q.recovery.nonce));
    q.recovery.hello_at = (q.recovery.hellos < HELLOS).then(|| cx.now + interval);
    q.schedule(cx, Work::Recovery);
    q.refresh_timer(cx);
}

/// Handles a packet with one of hirail's own opcodes.
pub(crate) fn handle_packet<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    ext: &Ext,
) -> Result<(), DropReason> {
    if q.recovery.kind != RecoveryKind::SelectiveRepeat {
        return Err(DropReason::ManufacturerOpcode);
    }
    if !Capabilities::of(q.state).accepts_requests {
        return Err(DropReason::WrongQpState);
    }
    match ext {
        Ext::Hello(theirs) => handle_hello(cx, q, theirs),
        Ext::Sack(sack) => selective::handle_sack(cx, q, sack),
        _ => return Err(DropReason::ManufacturerOpcode),
    }
    Ok(())
}

/// The peer's hello, or its answer to ours.
fn handle_hello<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, theirs: &Hello) {
    let speaks = theirs.version == Hello::VERSION && theirs.flags & Hello::SELECTIVE_REPEAT != 0;
    if !speaks {
        return;
    }
    let is_reply = theirs.flags & Hello::REPLY != 0;
    if is_reply && theirs.nonce != q.recovery.nonce {
        return;
    }
    // Whoever says hello takes selective acknowledgements; whoever answers keeps packets as well.
    q.recovery.pool.get_or_insert_with(Box::default);
    if is_reply {
        q.recovery.hello_at = None;
        let window = u32::from(theirs.window_packets.min(REORDER_PACKETS));
        if q.recovery.selective.is_none() {
            let mut selective = Box::new(Selective::new(window));
            selective.adopt(cx.now, q.requester.una, q.requester.sent_end);
            q.recovery.selective = Some(selective);
            q.refresh_timer(cx);
        }
    } else {
        q.recovery.hello_due = Some(hello(Hello::REPLY, theirs.nonce));
        q.schedule(cx, Work::Recovery);
    }
}

/// A selective acknowledgement is owed: something arrived out of order.
pub(crate) fn owe_sack<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    q.recovery.sack_due = true;
    q.schedule(cx, Work::Recovery);
}

/// What has arrived beyond the next expected PSN.
pub(crate) fn sack<H: Host>(q: &Inner<H>) -> Sack {
    let mut sack = Sack::new(q.responder.epsn, false);
    if let Some(pool) = &q.recovery.pool {
        pool.report(&mut sack);
    }
    sack
}

/// A timer of the QP has come due.
pub(crate) fn handle_timeout<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.recovery.hello_at.is_some_and(|at| at <= cx.now) {
        q.recovery.hello_at = None;
        ask(cx, q);
    }
    selective::handle_timeout(cx, q);
}
