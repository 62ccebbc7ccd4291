//! Which QP sends next: a line of ready QPs per class, paced QPs ordered by time, and the timers
//! that the host shall arm. Nothing here scans QPs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::device::{Event, Timer};
use crate::host::Host;
use crate::qp::Qp;
use crate::time::Instant;
use crate::transmit::{Class, OpenClasses, Work};

/// A QP whose pacing holds it back until a time. Equal times leave in the order they came.
struct Paced<H: Host> {
    at: Instant,
    sequence: u64,
    class: Class,
    qp: Arc<Qp<H>>,
}

impl<H: Host> PartialEq for Paced<H> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<H: Host> Eq for Paced<H> {}

impl<H: Host> PartialOrd for Paced<H> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<H: Host> Ord for Paced<H> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Lines of work for the driver.
pub(crate) struct Schedule<H: Host> {
    ready: [VecDeque<(Work, Arc<Qp<H>>)>; Class::COUNT],
    paced: BinaryHeap<Reverse<Paced<H>>>,
    sequence: u64,
    timers: VecDeque<(Timer, Instant)>,
    events: VecDeque<Event<H>>,
    /// QPs that exist; the lines have room for each.
    population: usize,
}

impl<H: Host> Schedule<H> {
    pub(crate) fn new() -> Self {
        Self {
            ready: core::array::from_fn(|_| VecDeque::new()),
            paced: BinaryHeap::new(),
            sequence: 0,
            timers: VecDeque::new(),
            events: VecDeque::new(),
            population: 0,
        }
    }

    /// Makes room for one more QP, so that the data path does not allocate.
    pub(crate) fn grow(&mut self, data: Class, is_paced: bool) {
        self.population += 1;
        let population = self.population;
        for class in [data, Class::ACK, Class::CNP] {
            self.admit(class);
        }
        // Timers are taken away after every input, so hardly any are ever here.
        if self.timers.capacity() < population {
            self.timers
                .reserve_exact(with_slack(population) - self.timers.len());
        }
        if is_paced && self.paced.capacity() < population {
            self.paced
                .reserve_exact(with_slack(population) - self.paced.len());
        }
    }

    pub(crate) fn shrink(&mut self) {
        self.population -= 1;
    }

    /// Makes sure that every QP fits into the line of `class`, with all that it may stand there for.
    pub(crate) fn admit(&mut self, class: Class) {
        // Requests and responses; acknowledgements and those of selective repeat.
        let entries = if class == Class::CNP { 1 } else { 2 };
        let places = entries * self.population;
        let line = &mut self.ready[class.index()];
        if line.capacity() < places {
            line.reserve_exact(with_slack(places) - line.len());
        }
    }

    pub(crate) fn push(&mut self, class: Class, work: Work, qp: Arc<Qp<H>>) {
        self.ready[class.index()].push_back((work, qp));
    }

    /// Takes a QP out of a line; whether it stood there.
    pub(crate) fn withdraw(&mut self, class: Class, work: Work, qp: &Arc<Qp<H>>) -> bool {
        let line = &mut self.ready[class.index()];
        let is_it = |(what, who): &(Work, Arc<Qp<H>>)| *what == work && Arc::ptr_eq(who, qp);
        let place = line.iter().position(is_it);
        place.and_then(|place| line.remove(place)).is_some()
    }

    pub(crate) fn pace(&mut self, at: Instant, class: Class, qp: Arc<Qp<H>>) {
        self.sequence += 1;
        self.paced.push(Reverse(Paced {
            at,
            sequence: self.sequence,
            class,
            qp,
        }));
    }

    /// Moves the paced QPs whose time has come into their lines.
    pub(crate) fn release_paced(&mut self, now: Instant) {
        while self.paced.peek().is_some_and(|paced| paced.0.at <= now) {
            let Some(Reverse(paced)) = self.paced.pop() else {
                break;
            };
            self.push(paced.class, Work::Requests, paced.qp);
        }
    }

    /// When the next paced QP may send.
    pub(crate) fn next_paced(&self) -> Option<Instant> {
        Some(self.paced.peek()?.0.at)
    }

    /// Next ready QP: CNPs first, then acknowledgements, then data from the highest priority down.
    pub(crate) fn pop(&mut self, open: OpenClasses) -> Option<(Class, Work, Arc<Qp<H>>)> {
        let order = [Class::CNP, Class::ACK]
            .into_iter()
            .chain((0..8).rev().map(Class::data));
        for class in order.filter(|class| open.contains(*class)) {
            if let Some((work, qp)) = self.ready[class.index()].pop_front() {
                return Some((class, work, qp));
            }
        }
        None
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.ready.iter().any(|line| !line.is_empty())
    }

    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        self.timers.push_back((timer, at));
    }

    pub(crate) fn pop_timer(&mut self) -> Option<(Timer, Instant)> {
        self.timers.pop_front()
    }

    pub(crate) fn raise(&mut self, event: Event<H>) {
        self.events.push_back(event);
    }

    pub(crate) fn pop_event(&mut self) -> Option<Event<H>> {
        self.events.pop_front()
    }
}

/// Room for some more, so that not every new QP moves the line.
const fn with_slack(places: usize) -> usize {
    places + places / 8
}
