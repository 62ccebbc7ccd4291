//! What a seed stands for.

use hirail_rnic::Span;
use hirail_wire::PathMtu;

/// Everything about a run that does not change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: Vec<Node>,
    /// In parts per million.
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    /// Time on the way: at least and at most. Less than the lifetime of a packet.
    pub(crate) delay: [Span; 2],
    /// When the faults stop.
    pub(crate) quiet_at: Span,
    /// Requests that may wait at a listener.
    pub(crate) backlog: u32,
    pub(crate) plans: Vec<Plan>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Never hears or says anything.
    pub(crate) is_dead: bool,
    /// Nobody listens.
    pub(crate) is_deaf: bool,
    pub(crate) mtu: PathMtu,
    /// READs and atomics to serve and to have open.
    pub(crate) limits: [u8; 2],
    pub(crate) response_timeout: u8,
    pub(crate) max_retries: u8,
}

/// What the users of one connection mean to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// The side that asks, and the one that is asked.
    pub(crate) nodes: [usize; 2],
    pub(crate) qpns: [u32; 2],
    pub(crate) start: Span,
    /// Which of the two listeners of a node: that of all addresses, or that of one.
    pub(crate) near: bool,
    pub(crate) mtu: PathMtu,
    /// READs and atomics to serve and to have open, of both sides.
    pub(crate) depths: [[u8; 2]; 2],
    pub(crate) private_data: Vec<u8>,
    /// How long the user of either side thinks.
    pub(crate) think: [Span; 2],
    pub(crate) answer: AnswerPlan,
    /// The side that disconnects, and how long after the connection stands.
    pub(crate) ends: (usize, Span),
    /// The passive side disconnects right after accepting, without waiting for the RTU.
    pub(crate) ends_early: bool,
    /// A user gives its id up so long after the start.
    pub(crate) gives_up: Option<(usize, Span)>,
    /// The active side sends data as soon as it may.
    pub(crate) sends_data: bool,
    /// The active side forgets everything after this and connects again with the same queue pair.
    pub(crate) forgets_after: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Connection,
    /// Both sides connect with the same service.
    Meeting,
    Datagram,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerPlan {
    Accept,
    Reject,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xc0ffee);
        let rng = &mut rng;
        let is_faultless = chance(rng, 35);
        let ppm = |rng: &mut fastrand::Rng, most: u32| {
            if is_faultless || chance(rng, 30) {
                0
            } else {
                rng.u32(1000..most)
            }
        };
        let (loss, duplicate) = (ppm(rng, 500_000), ppm(rng, 300_000));
        let least = Span::from_us(rng.u64(1..1000));
        let most = if chance(rng, 50) {
            Span::from_ps(least.as_ps() + 1_000_000)
        } else {
            Span::from_ms(rng.u64(2..120))
        };
        let nodes: Vec<Node> = (0..rng.usize(2..5)).map(|_| node(rng)).collect();
        // One after the other, one may wait at a time.
        let is_spaced = chance(rng, 30) && is_faultless;
        let count = rng.usize(1..8);
        let mut plans: Vec<Plan> = (0..count)
            .map(|index| {
                let mut plan = plan(rng, index, &nodes);
                if is_spaced {
                    plan.start = Span::from_ms(3000).times(index as u64);
                    plan.think = [Span::from_ms(5); 2];
                }
                plan
            })
            .collect();
        if chance(rng, 6) {
            let plan = &mut plans[0];
            plan.kind = Kind::Connection;
            plan.private_data.truncate(56);
            plan.answer = AnswerPlan::Accept;
            plan.gives_up = None;
            plan.ends_early = false;
            plan.think = [Span::ZERO; 2];
            plan.forgets_after = Some(Span::from_ms(rng.u64(300..3000)));
            plan.ends = (0, Span::from_ms(60_000));
        }
        Self {
            seed,
            nodes,
            loss,
            duplicate,
            delay: [least, most],
            quiet_at: if is_faultless {
                Span::ZERO
            } else {
                Span::from_ms(rng.u64(100..60_000))
            },
            backlog: if is_spaced { 1 } else { count as u32 + 1 },
            plans,
        }
    }

    /// The network is perfect and nobody thinks better of anything: everything goes as planned.
    pub(crate) fn is_faultless(&self) -> bool {
        self.loss + self.duplicate == 0
    }
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn chance(rng: &mut fastrand::Rng, percent: u32) -> bool {
    rng.u32(0..100) < percent
}

fn node(rng: &mut fastrand::Rng) -> Node {
    Node {
        is_dead: chance(rng, 4),
        is_deaf: chance(rng, 8),
        mtu: pick(rng, &[PathMtu::Mtu1024, PathMtu::Mtu4096, PathMtu::Mtu4096]),
        limits: [rng.u8(0..129), rng.u8(0..129)],
        response_timeout: rng.u8(16..21),
        max_retries: pick(rng, &[7, 10, 15]),
    }
}

fn plan(rng: &mut fastrand::Rng, index: usize, nodes: &[Node]) -> Plan {
    let kind = match rng.u32(0..10) {
        0..=6 => Kind::Connection,
        7 => Kind::Meeting,
        _ => Kind::Datagram,
    };
    let from = rng.usize(0..nodes.len());
    // A node may talk to itself; meeting takes two.
    let to = if chance(rng, 10) && kind != Kind::Meeting {
        from
    } else {
        (from + rng.usize(1..nodes.len())) % nodes.len()
    };
    let qpn = index as u32 * 2 + 0x10;
    let think = |rng: &mut fastrand::Rng| match rng.u32(0..10) {
        0..=5 => Span::ZERO,
        6..=8 => Span::from_ms(rng.u64(1..2000)),
        // Longer than any number of repetitions, but not than an MRA grants.
        _ => Span::from_ms(rng.u64(20_000..60_000)),
    };
    let room = if kind == Kind::Datagram { 180 } else { 56 };
    let length = rng.usize(8..=room);
    Plan {
        kind,
        nodes: [from, to],
        qpns: [qpn, qpn + 1],
        start: Span::from_us(rng.u64(0..5_000_000)),
        near: rng.bool(),
        mtu: pick(rng, &[PathMtu::Mtu1024, PathMtu::Mtu1024, PathMtu::Mtu4096]),
        depths: [[rng.u8(..), rng.u8(..)], [rng.u8(..), rng.u8(..)]],
        private_data: (0..length).map(|_| rng.u8(..)).collect(),
        think: [think(rng), think(rng)],
        answer: if chance(rng, 80) {
            AnswerPlan::Accept
        } else {
            AnswerPlan::Reject
        },
        ends: (rng.usize(0..2), Span::from_us(rng.u64(0..3_000_000))),
        ends_early: chance(rng, 8),
        gives_up: chance(rng, 10).then(|| (rng.usize(0..2), Span::from_us(rng.u64(0..3_000_000)))),
        sends_data: chance(rng, 40),
        forgets_after: None,
    }
}
