//! The driver: receives, fires timers, transmits. One at a time has it.
//!
//! A step transmits first and receives second: the acknowledgement of what a step received leaves
//! with the next one, after the application had its turn with the completions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hirail_rnic::transmit::{OpenClasses, Run};
use hirail_rnic::{GidEntry, Instant, Span, Timer};
use hirail_vocab::{Counter, DropReason};
use hirail_wire::{Headers, Qpn};

use super::link::{Arrival, Link, Outcome, Sink};
use super::{Rnic, Threads};
use crate::port::Sweep;

/// Runs handed to the link at a time.
const RUNS: usize = 8;

/// Rounds of transmitting in one step before arrivals get a look.
const ROUNDS: usize = 2;

/// How long a link that had no room is left alone.
const LINK_REST: Span = Span::from_us(50);

/// See the module's description.
pub(crate) struct Driver {
    link: Box<dyn Link>,
    runs: Vec<Run<Threads>>,
    outcomes: Vec<Outcome>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// The link had no room: not before this time again.
    resting_until: Option<Instant>,
    /// Classes are closed and nothing was ready in the others: the link says when to go on.
    is_held_back: bool,
    /// The latest time that the engine was given.
    latest: Instant,
}

impl Driver {
    pub(crate) fn new(link: Box<dyn Link>) -> Self {
        Self {
            link,
            runs: (0..RUNS).map(|_| Run::new()).collect(),
            outcomes: Vec::with_capacity(RUNS),
            timers: BinaryHeap::new(),
            resting_until: None,
            is_held_back: false,
            latest: Instant::EPOCH,
        }
    }

    /// Transmits what is ready, receives what has arrived, fires what is due. Whether any of that
    /// was something.
    pub(crate) fn step(&mut self, rnic: &Rnic, now: Instant, sweep: Sweep) -> bool {
        let sent = self.transmit(rnic, now);
        // Sending takes long enough to matter: waits begin when their cause arrives.
        let now = if sent { super::now() } else { now };
        let received = self.receive(rnic, now, sweep);
        let fired = self.fire(rnic, now);
        if rnic.device.has_event() {
            // Who sleeps until a completion is long in waking up. The peer need not wait for that, and
            // some programs rely on a request being acknowledged before it is answered.
            self.transmit(rnic, super::now());
        }
        rnic.dispatch_events();
        sent | received | fired
    }

    /// Sends what is ready.
    pub(crate) fn transmit(&mut self, rnic: &Rnic, now: Instant) -> bool {
        self.transmit_in_order(rnic, now, &[OpenClasses::ALL])
    }

    /// Sends what is ready, requests and responses first. What was posted just now is often the answer
    /// that the peer waits for; the acknowledgement of what it answers follows in the same datagram
    /// batch, and costs neither end a system call.
    pub(crate) fn transmit_data_first(&mut self, rnic: &Rnic, now: Instant) -> bool {
        self.transmit_in_order(rnic, now, &[OpenClasses::DATA, OpenClasses::ALL])
    }

    /// Sends what is ready of the classes, those of the first set first. The last set is all.
    fn transmit_in_order(&mut self, rnic: &Rnic, now: Instant, order: &[OpenClasses]) -> bool {
        let now = self.advance(now);
        if self.resting_until.is_some_and(|until| now < until) {
            return false;
        }
        self.resting_until = None;
        let budget = self.link.budget();
        let open = self.link.open(now);
        self.is_held_back = false;
        let mut moved = false;
        for _ in 0..ROUNDS {
            let mut count = 0;
            for classes in order {
                let open = open.and(*classes);
                while count < RUNS
                    && rnic
                        .device
                        .poll_transmit(now, open, budget, &mut self.runs[count])
                {
                    count += 1;
                }
            }
            if count == 0 {
                self.is_held_back = open != OpenClasses::ALL;
                break;
            }
            moved = true;
            self.outcomes.clear();
            let has_room = self.link.transmit(&self.runs[..count], &mut self.outcomes);
            let now = self.advance(super::now());
            for (run, outcome) in self.runs[..count].iter_mut().zip(&self.outcomes) {
                if outcome.faulted {
                    rnic.device.faulted(now, run, outcome.taken);
                } else {
                    rnic.device.sent(now, run, outcome.taken);
                }
            }
            if !has_room {
                self.resting_until = Some(now + LINK_REST);
                break;
            }
        }
        self.collect_timers(rnic);
        moved
    }

    fn receive(&mut self, rnic: &Rnic, now: Instant, sweep: Sweep) -> bool {
        let now = self.advance(now);
        let mut sink = Receive { rnic, now };
        let count = self.link.receive(sweep, &mut sink);
        if count > 0 {
            self.is_held_back = false;
            self.collect_timers(rnic);
        }
        count > 0
    }

    fn fire(&mut self, rnic: &Rnic, now: Instant) -> bool {
        let now = self.advance(now);
        let mut fired = false;
        while self.timers.peek().is_some_and(|next| next.0.0 <= now) {
            let Some(Reverse((_, timer))) = self.timers.pop() else {
                break;
            };
            rnic.device.handle_timeout(now, timer);
            fired = true;
        }
        if fired {
            self.is_held_back = false;
            self.collect_timers(rnic);
        }
        fired
    }

    fn collect_timers(&mut self, rnic: &Rnic) {
        while let Some((timer, at)) = rnic.device.poll_timer() {
            self.timers.push(Reverse((at, timer)));
        }
    }

    /// When the driver must be called again even if nothing arrives and nobody posts. What is ready
    /// now gets a moment's grace: whoever made it ready is likely to drive on.
    pub(crate) fn next_wakeup(&mut self, rnic: &Rnic) -> Option<Instant> {
        self.collect_timers(rnic);
        let timer = self.timers.peek().map(|next| next.0.0);
        let soon = self.resting_until.unwrap_or(self.latest + LINK_REST);
        let is_ready = !self.is_held_back && rnic.device.has_ready();
        let ready = is_ready.then_some(soon);
        let link = self.link.next_wakeup();
        [timer, ready, link, rnic.device.next_paced()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn link_mut(&mut self) -> &mut dyn Link {
        &mut *self.link
    }

    /// Time that never goes back, whichever thread read the clock.
    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }
}

/// Arrivals, on their way into the engine.
struct Receive<'a> {
    rnic: &'a Rnic,
    now: Instant,
}

impl Sink for Receive<'_> {
    fn packet(&mut self, arrival: Arrival<'_>) {
        match Headers::parse(arrival.ib) {
            Ok((headers, payload)) => {
                // Whatever is refused has been counted.
                let _ = self
                    .rnic
                    .device
                    .handle_packet(self.now, &arrival.meta, &headers, payload);
            }
            Err(error) => self.refused(hirail_rnic::drop_reason(error)),
        }
    }

    fn refused(&mut self, reason: DropReason) {
        self.rnic.device.counters().drop_packet(reason);
    }

    fn count(&mut self, counter: Counter, amount: u64) {
        self.rnic.device.counters().add(counter, amount);
    }

    fn gids(&mut self, table: &[GidEntry]) {
        self.rnic.device.set_gids(table.to_vec());
    }

    fn starve(&mut self, qpn: Qpn) {
        self.rnic.device.starve(qpn);
    }

    fn kill(&mut self, qpn: Qpn) {
        self.rnic.device.kill(self.now, qpn);
    }

    fn port(&mut self, is_up: bool) {
        self.rnic.set_port(is_up);
    }
}
