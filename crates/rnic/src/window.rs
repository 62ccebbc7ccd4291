//! The window towards one destination: bytes in flight of all QPs that send there.
//!
//! InfiniBand's transport has no window of its own; a lossless fabric makes do without. A socket
//! buffer does not: a default one keeps 3 of 200 back-to-back sends of 60 KiB, and eight QPs that
//! retransmit into it at once never recover. So bytes in flight per destination are capped, the cap
//! shrinks on loss and grows slowly.

use std::collections::VecDeque;
use std::sync::Arc;

use hirail_wire::Gid;

use crate::host::Host;
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

/// The window towards one destination.
pub(crate) struct Window<H: Host> {
    pub(crate) destination: Gid,
    config: WindowConfig,
    cap: u64,
    in_flight: u64,
    /// Bytes of runs that were offered to the link and not answered yet.
    reserved: u64,
    last_cut: Option<Instant>,
    /// QPs that had something to send and found the window full.
    waiting: VecDeque<(Class, Arc<Qp<H>>)>,
    /// QPs connected through it; the last one to leave takes it down.
    pub(crate) users: usize,
}

impl<H: Host> Window<H> {
    pub(crate) fn new(destination: Gid, config: WindowConfig) -> Self {
        Self {
            destination,
            config,
            cap: config.initial.max(config.minimum),
            in_flight: 0,
            reserved: 0,
            last_cut: None,
            waiting: VecDeque::new(),
            users: 0,
        }
    }

    /// One more QP uses the window: its place in the waiting line exists from now on.
    pub(crate) fn join(&mut self) {
        self.users += 1;
        let missing = self.users.saturating_sub(self.waiting.len());
        self.waiting.reserve(missing);
    }

    /// One QP less uses the window; whether it stood in the waiting line.
    pub(crate) fn leave(&mut self, qp: &Arc<Qp<H>>) -> bool {
        self.users -= 1;
        let before = self.waiting.len();
        self.waiting
            .retain(|(_, waiting)| !Arc::ptr_eq(waiting, qp));
        self.waiting.len() < before
    }

    /// Bytes that may be sent now. One packet may always go when nothing is in flight.
    pub(crate) fn room(&self) -> u64 {
        let taken = self.in_flight + self.reserved;
        if taken == 0 {
            u64::MAX
        } else {
            self.cap.saturating_sub(taken)
        }
    }

    /// Sets bytes aside for a run that is offered.
    pub(crate) fn reserve(&mut self, bytes: u64) {
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

    /// Puts a QP that found the window full in the waiting line; false when the window has emptied
    /// meanwhile and nothing would wake it.
    pub(crate) fn wait(&mut self, class: Class, qp: &Arc<Qp<H>>) -> bool {
        if self.in_flight + self.reserved == 0 {
            return false;
        }
        self.waiting.push_back((class, Arc::clone(qp)));
        true
    }

    /// The next QP to be woken, if there is room.
    pub(crate) fn wake(&mut self) -> Option<(Class, Arc<Qp<H>>)> {
        if self.room() == 0 {
            None
        } else {
            self.waiting.pop_front()
        }
    }
}
