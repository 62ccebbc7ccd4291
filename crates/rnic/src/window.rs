//! The window towards one destination: bytes in flight of all QPs that send there in one class.
//!
//! InfiniBand's transport has no window of its own; a lossless fabric makes do without. A socket
//! buffer does not: a default one keeps 3 of 200 back-to-back sends of 60 KiB, and eight QPs that
//! retransmit into it at once never recover. So bytes in flight per destination are capped, the cap
//! shrinks on loss and grows slowly.
//!
//! Who finds no room waits in line, and as long as somebody waits nobody else takes the room: small
//! packets would keep a long READ waiting for good. Only who has packets in flight that nobody asked
//! an answer for may go on, since no answer would make room otherwise. When the cap was cut below what
//! is in flight there is no room even for that: if no answer is due to anybody, one QP may send one
//! packet beyond the cap, which asks. Each class has a window of its own, so that a paused priority
//! does not hold up others.

use std::collections::VecDeque;
use std::sync::Arc;

use hirail_wire::Gid;

use crate::host::Host;
use crate::planted::{self, Bug};
use crate::qp::Qp;
use crate::time::{Instant, Span};
use crate::transmit::Class;

/// Parameters of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Cap at the start, in bytes.
    pub initial: u64,
    /// The cap never falls below this many bytes. Keep it above one bandwidth-delay product.
    pub minimum: u64,
    /// The cap never grows above this many bytes.
    pub maximum: u64,
    /// Losses within this time count as one.
    pub loss_interval: Span,
}

impl Default for WindowConfig {
    /// For loopback and a default socket buffer (212 992 bytes, doubled by the kernel for its own
    /// overhead): the start is what such a buffer keeps for certain.
    fn default() -> Self {
        Self {
            initial: 256 << 10,
            minimum: 32 << 10,
            maximum: 1 << 20,
            loss_interval: Span::from_ms(1),
        }
    }
}

/// Bytes charged for a packet besides its payload: transport, UDP, IP and Ethernet headers.
pub(crate) const PACKET_OVERHEAD: u64 = 66;

/// Whom a window is for: destination and class.
pub(crate) type WindowKey = (Gid, Class);

/// The window towards one destination.
pub(crate) struct Window<H: Host> {
    pub(crate) key: WindowKey,
    config: WindowConfig,
    cap: u64,
    in_flight: u64,
    /// Bytes of runs that were offered to the link and not answered yet.
    reserved: u64,
    /// QPs that have asked for an answer and wait for it.
    awaiting: usize,
    last_cut: Option<Instant>,
    /// QPs that had something to send and found no room, the longest waiting first.
    waiting: VecDeque<Waiting<H>>,
    /// The QP that was woken and has not used its turn yet.
    turn: Option<Arc<Qp<H>>>,
    /// QPs connected through it; the last one to leave takes it down.
    pub(crate) users: usize,
}

/// A QP that waits for room.
struct Waiting<H: Host> {
    qp: Arc<Qp<H>>,
    /// Bytes that it needs.
    need: u64,
    /// It may go before others: it has packets in flight that nobody asked an answer for, or that are
    /// to be sent again.
    may_pass: bool,
}

impl<H: Host> Window<H> {
    pub(crate) fn new(key: WindowKey, config: WindowConfig) -> Self {
        Self {
            key,
            config,
            cap: config.initial.max(config.minimum),
            in_flight: 0,
            reserved: 0,
            awaiting: 0,
            last_cut: None,
            waiting: VecDeque::new(),
            turn: None,
            users: 0,
        }
    }

    /// One more QP uses the window: its place in the waiting line exists from now on.
    pub(crate) fn join(&mut self) {
        self.users += 1;
        let missing = self.users.saturating_sub(self.waiting.len());
        self.waiting.reserve(missing);
    }

    /// The QP neither waits nor has the turn any more; whether it waited.
    pub(crate) fn forget(&mut self, qp: &Arc<Qp<H>>) -> bool {
        self.pass(qp);
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !Arc::ptr_eq(&waiting.qp, qp));
        self.waiting.len() < before
    }

    /// Bytes that the QP, whose packets are charged `packet` bytes at most, may send now: none while it
    /// is another's turn, unless it must ask. One packet may always go when nothing is in flight, or
    /// when it must ask and no answer is due to anybody.
    pub(crate) fn room(&self, qp: &Arc<Qp<H>>, must_ask: bool, packet: u64) -> u64 {
        let is_free = self.turn.is_none() && self.waiting.is_empty();
        if must_ask && self.is_silent() {
            self.free().max(packet)
        } else if is_free || must_ask || self.has_turn(qp) {
            self.free()
        } else {
            0
        }
    }

    /// Whether no answer will make room: none is due, and no run is out that may ask for one.
    fn is_silent(&self) -> bool {
        self.awaiting == 0 && self.reserved == 0 && !planted::has(Bug::HalvesHoldWindow)
    }

    /// One more QP waits for an answer.
    pub(crate) fn expect_answer(&mut self) {
        self.awaiting += 1;
    }

    /// A QP has its answer, or has given up waiting for it.
    pub(crate) fn expect_no_answer(&mut self) {
        debug_assert!(self.awaiting > 0, "an answer that nobody waited for");
        self.awaiting = self.awaiting.saturating_sub(1);
    }

    fn free(&self) -> u64 {
        let taken = self.in_flight + self.reserved;
        if taken == 0 {
            u64::MAX
        } else {
            self.cap.saturating_sub(taken)
        }
    }

    fn has_turn(&self, qp: &Arc<Qp<H>>) -> bool {
        self.turn.as_ref().is_some_and(|turn| Arc::ptr_eq(turn, qp))
    }

    /// The QP does not use its turn, if it has it.
    pub(crate) fn pass(&mut self, qp: &Arc<Qp<H>>) {
        if self.has_turn(qp) {
            self.turn = None;
        }
    }

    /// Sets bytes aside for a run that the QP offers, which was its turn.
    pub(crate) fn reserve(&mut self, qp: &Arc<Qp<H>>, bytes: u64) {
        self.pass(qp);
        self.reserved += bytes;
    }

    /// The run was answered, or is void.
    pub(crate) fn unreserve(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.reserved,
            "unreserved {bytes} of {}",
            self.reserved
        );
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    pub(crate) fn cap(&self) -> u64 {
        self.cap
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.in_flight += bytes;
    }

    /// `bytes` left the network, whether acknowledged or given up.
    pub(crate) fn release(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.in_flight,
            "released {bytes} of {}",
            self.in_flight
        );
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// `bytes` were acknowledged: release them and grow by one segment per window's worth.
    pub(crate) fn acknowledged(&mut self, bytes: u64) {
        self.release(bytes);
        self.cap = (self.cap + (bytes * 4096).div_ceil(self.cap)).min(self.config.maximum);
    }

    /// Something was lost: halve the cap, once per loss interval.
    pub(crate) fn lost(&mut self, now: Instant) {
        if self
            .last_cut
            .is_some_and(|cut| now.since(cut) < self.config.loss_interval)
        {
            return;
        }
        self.last_cut = Some(now);
        self.cap = (self.cap / 2).max(self.config.minimum);
    }

    /// Puts a QP that found less than the `need` bytes of room in the waiting line; in front, if it
    /// had the turn. It `may_pass` others if it must ask, and needs no more than a packet.
    pub(crate) fn wait(&mut self, qp: &Arc<Qp<H>>, need: u64, may_pass: bool) {
        let waiting = Waiting {
            qp: Arc::clone(qp),
            need,
            may_pass,
        };
        if self.has_turn(qp) {
            self.turn = None;
            self.waiting.push_front(waiting);
        } else {
            self.waiting.push_back(waiting);
        }
    }

    /// The QP has packets to send again, which are in flight already and need no room: whether it
    /// stands in the waiting line. There it passes others from now on.
    pub(crate) fn hurry(&mut self, qp: &Arc<Qp<H>>) -> bool {
        let is_it = |waiting: &&mut Waiting<H>| Arc::ptr_eq(&waiting.qp, qp);
        let waiting = self.waiting.iter_mut().find(is_it);
        let is_waiting = waiting.is_some();
        if let Some(waiting) = waiting {
            waiting.need = 0;
            waiting.may_pass = true;
        }
        is_waiting
    }

    /// Gives the turn to the QP that has waited longest, if there is room for it, else to the first
    /// that may pass others and fits. Nobody, if somebody has it.
    pub(crate) fn wake(&mut self) -> Option<Arc<Qp<H>>> {
        if self.turn.is_some() {
            return None;
        }
        let (free, is_silent) = (self.free(), self.is_silent());
        let fits = |waiting: &Waiting<H>| waiting.need <= free || waiting.may_pass && is_silent;
        let place = if fits(self.waiting.front()?) {
            0
        } else {
            let may_pass = |waiting: &Waiting<H>| waiting.may_pass && fits(waiting);
            self.waiting.iter().position(may_pass)?
        };
        let woken = self.waiting.remove(place)?.qp;
        self.turn = Some(Arc::clone(&woken));
        Some(woken)
    }
}
