//! A link with faults: any other link, and what happens to the packets that come from it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hirail_rnic::transmit::{Budget, OpenClasses, Run};
use hirail_rnic::{GidEntry, Instant, PacketMeta, Span};
use hirail_vocab::{Counter, DropReason, LinkKind};
use hirail_wire::{Gid, Opcode, Qpn};

use super::{Faults, Flap};
use crate::error::Error;
use crate::port::Sweep;
use crate::runtime::link::{Arrival, Link, Outcome, Sink};
use crate::runtime::{Threads, now};

/// How long a reordered packet is held back beyond its delay.
const HELD_BACK: Duration = Duration::from_micros(200);
/// Packets held back at most; more are lost, as in a switch.
const QUEUE: usize = 4096;
/// Flows told apart; the others share one sequence of fates.
const FLOWS: usize = 1 << 16;

/// See the module's description.
pub(crate) struct FaultyLink {
    inner: Box<dyn Link>,
    fate: Fate,
    late: Late,
    port: Option<Port>,
}

/// A port that flaps.
struct Port {
    flap: Flap,
    is_down: bool,
    /// When it changes.
    next: Instant,
}

/// Decides by seed and count.
struct Fate {
    faults: Faults,
    /// Number of each flow, by the queue pair that it is for, and how many packets it has had.
    flows: HashMap<u32, (u64, u64)>,
}

/// Packets that are not due yet.
#[derive(Default)]
struct Late {
    queue: BinaryHeap<Reverse<Held>>,
    /// Packets so far.
    count: u64,
}

/// A packet on its way: due time, then the order of arrival.
struct Held {
    due: Instant,
    order: u64,
    meta: PacketMeta,
    ib: Vec<u8>,
    is_starved: bool,
}

impl Late {
    fn push(&mut self, due: Instant, arrival: &Arrival<'_>, is_starved: bool) {
        if self.queue.len() < QUEUE {
            self.count += 1;
            self.queue.push(Reverse(Held {
                due,
                order: self.count,
                meta: arrival.meta,
                ib: arrival.ib.to_vec(),
                is_starved,
            }));
        }
    }

    /// Delivers what is due; how many packets that was.
    fn deliver(&mut self, now: Instant, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        while self.queue.peek().is_some_and(|next| next.0.due <= now)
            && let Some(Reverse(held)) = self.queue.pop()
        {
            let arrival = Arrival {
                meta: held.meta,
                ib: &held.ib,
            };
            deliver(sink, arrival, held.is_starved);
            count += 1;
        }
        count
    }
}

fn deliver(sink: &mut dyn Sink, arrival: Arrival<'_>, is_starved: bool) {
    if is_starved && let Some(qpn) = destination(arrival.ib) {
        sink.starve(qpn);
    }
    sink.packet(arrival);
}

/// The queue pair that a packet is for.
fn destination(ib: &[u8]) -> Option<Qpn> {
    let &[_, a, b, c] = ib.get(4..8)? else {
        return None;
    };
    Some(Qpn::new(u32::from_be_bytes([0, a, b, c])))
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl FaultyLink {
    /// `inner` with faults, or as it is where there are none.
    pub(crate) fn around(inner: Box<dyn Link>, faults: &Faults) -> Box<dyn Link> {
        if faults.is_perfect() {
            return inner;
        }
        Box::new(Self {
            inner,
            fate: Fate {
                faults: *faults,
                flows: HashMap::new(),
            },
            late: Late::default(),
            port: faults.flap.map(|flap| Port {
                flap,
                is_down: false,
                next: now() + span(flap.every),
            }),
        })
    }

    fn is_down(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.is_down)
    }
}

fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Port {
    /// Changes what is due.
    fn follow(&mut self, now: Instant, sink: &mut dyn Sink) {
        while self.next <= now {
            self.is_down = !self.is_down;
            sink.port(!self.is_down);
            let Flap { down, every } = self.flap;
            self.next += span(if self.is_down { down } else { every - down });
        }
    }
}

impl Fate {
    /// Randomness for the next packet to `qpn`.
    fn draw(&mut self, qpn: Qpn) -> fastrand::Rng {
        let appeared = self.flows.len() as u64;
        let qpn = qpn.value();
        let is_told_apart = self.flows.len() < FLOWS || self.flows.contains_key(&qpn);
        let key = if is_told_apart { qpn } else { u32::MAX };
        let (flow, count) = self.flows.entry(key).or_insert((appeared, 0));
        *count += 1;
        fastrand::Rng::with_seed(mix(self.faults.seed, mix(*flow, *count)))
    }
}

/// Two numbers as one, every bit of which hangs on every bit of them (SplitMix64's finisher; Steele,
/// Lea, Flood, OOPSLA 2014).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What comes from the link, on its way to the driver.
struct Struck<'a> {
    sink: &'a mut dyn Sink,
    fate: &'a mut Fate,
    late: &'a mut Late,
    now: Instant,
    is_down: bool,
}

impl Sink for Struck<'_> {
    fn packet(&mut self, mut arrival: Arrival<'_>) {
        if self.is_down {
            return;
        }
        let Some(qpn) = destination(arrival.ib) else {
            return self.sink.packet(arrival);
        };
        let mut rng = self.fate.draw(qpn);
        let faults = &self.fate.faults;
        // Each fault has its draw, so that one more does not change the fate by the others.
        let draws: [f64; 7] = std::array::from_fn(|_| rng.f64());
        let [lost, twice, late, broken, marked, starved, killed] = draws;
        if lost < faults.loss {
            return;
        }
        if broken < faults.corruption {
            return self.sink.refused(DropReason::BadIcrc);
        }
        if arrival.meta.traffic_class & 3 != 0 && marked < faults.ce_mark {
            arrival.meta.traffic_class |= 3;
        }
        if killed < faults.qp_failure {
            self.sink.kill(qpn);
        }
        let takes_receive = Opcode::from_u8(arrival.ib[0])
            .is_some_and(|opcode| opcode.operation().claims_receive());
        let mut is_starved = takes_receive && starved < faults.not_ready;
        let mut delay = faults.delay;
        if late < faults.reordering {
            delay += HELD_BACK;
        }
        let copies = 1 + usize::from(twice < faults.duplication);
        for _ in 0..copies {
            let is_starved = core::mem::take(&mut is_starved);
            if delay.is_zero() {
                let Arrival { meta, ib } = arrival;
                deliver(self.sink, Arrival { meta, ib }, is_starved);
            } else {
                self.late.push(self.now + span(delay), &arrival, is_starved);
            }
        }
    }

    fn refused(&mut self, reason: DropReason) {
        self.sink.refused(reason);
    }

    fn count(&mut self, counter: Counter, amount: u64) {
        self.sink.count(counter, amount);
    }

    fn gids(&mut self, table: &[GidEntry]) {
        self.sink.gids(table);
    }

    fn starve(&mut self, qpn: Qpn) {
        self.sink.starve(qpn);
    }

    fn kill(&mut self, qpn: Qpn) {
        self.sink.kill(qpn);
    }

    fn port(&mut self, is_up: bool) {
        self.sink.port(is_up);
    }
}

impl Link for FaultyLink {
    fn kind(&self) -> LinkKind {
        self.inner.kind()
    }

    fn readable(&self) -> std::io::Result<Vec<OwnedFd>> {
        self.inner.readable()
    }

    fn receive(&mut self, sweep: Sweep, sink: &mut dyn Sink) -> usize {
        let now = now();
        if let Some(port) = &mut self.port {
            port.follow(now, sink);
        }
        let count = self.late.deliver(now, sink);
        let is_down = self.is_down();
        let mut struck = Struck {
            sink,
            fate: &mut self.fate,
            late: &mut self.late,
            now,
            is_down,
        };
        count + self.inner.receive(sweep, &mut struck)
    }

    fn transmit(&mut self, runs: &[Run<Threads>], outcomes: &mut Vec<Outcome>) -> bool {
        if !self.is_down() {
            return self.inner.transmit(runs, outcomes);
        }
        // A card hands packets to a port without link, and they are gone.
        outcomes.extend(runs.iter().map(|run| Outcome {
            taken: run.packets().len(),
            faulted: false,
        }));
        true
    }

    fn budget(&self) -> Budget {
        self.inner.budget()
    }

    fn join(&mut self, group: Gid) -> Result<(), Error> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: Gid) {
        self.inner.leave(group);
    }

    fn claim(&mut self, service: u64, address: IpAddr) -> std::io::Result<Option<OwnedFd>> {
        self.inner.claim(service, address)
    }

    fn listen(&mut self, service: u64, address: IpAddr) -> std::io::Result<()> {
        self.inner.listen(service, address)
    }

    fn ignore(&mut self, service: u64, address: IpAddr) {
        self.inner.ignore(service, address);
    }

    fn open(&mut self, now: Instant) -> OpenClasses {
        self.inner.open(now)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let held = self.late.queue.peek().map(|next| next.0.due);
        let port = self.port.as_ref().map(|port| port.next);
        [self.inner.next_wakeup(), held, port]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to a packet hangs on seed, flow and place, not on what other flows do between.
    #[test]
    fn fates_are_drawn_flow_by_flow() {
        let fates = |seed, order: &[u32]| {
            let mut fate = Fate {
                faults: Faults {
                    seed,
                    ..Faults::default()
                },
                flows: HashMap::new(),
            };
            let mut of_flow = HashMap::<u32, Vec<u64>>::new();
            for &qpn in order {
                let drawn = fate.draw(Qpn::new(qpn)).u64(..);
                of_flow.entry(qpn).or_default().push(drawn);
            }
            of_flow
        };
        let one = fates(7, &[17, 18, 17, 17, 18]);
        let other = fates(7, &[17, 18, 18, 17, 17]);
        assert_eq!(one, other);
        assert_ne!(one, fates(8, &[17, 18, 17, 17, 18]));
        let mut all: Vec<u64> = one.into_values().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5, "no two packets share a fate");
        // Other numbers, the same order of appearance: a new run of the same program.
        let again = fates(7, &[1, 2, 1, 1, 2]);
        assert_eq!(again[&1], other[&17]);
    }
}
