//! What a seed stands for: how many nodes, which links, faults, connections and attributes.

use hirail_rnic::{DeviceConfig, RecoveryKind, Span, WindowConfig};
use hirail_vocab::QpType;
use hirail_wire::{AckTimeout, PathMtu, Psn, RnrTimer};

use crate::endpoint::Setup;
use crate::{Faults, Link};

/// Everything about a run that does not change while it runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Link and configuration of each node.
    pub nodes: Vec<(Link, Config)>,
    /// Faults until [`quiet_at`](Self::quiet_at).
    pub faults: Faults,
    /// When the faults stop.
    pub quiet_at: Span,
    /// Connections have different priorities.
    pub has_priorities: bool,
    /// The connections.
    pub connections: Vec<Connection>,
}

/// What differs between devices.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Window towards each destination.
    pub window: WindowConfig,
    /// Loss recovery.
    pub recovery: RecoveryKind,
    /// READs are asked for in pieces of this many bytes.
    pub read_request_bytes: u32,
    /// ACKs wait in conversations.
    pub ack_delay: Span,
    /// Long WRITEs are cut into WRITEs of one packet.
    pub equal_writes: bool,
    /// DCQCN's reaction point paces connections.
    pub is_paced: bool,
    /// ACKs carry credits.
    pub send_credits: bool,
}

impl Config {
    /// The device's configuration.
    pub fn device(&self, seed: u64) -> DeviceConfig {
        DeviceConfig {
            seed: u128::from(seed) << 64 | 0x5eed,
            window: self.window,
            recovery: self.recovery,
            read_request_bytes: self.read_request_bytes,
            ack_delay: self.ack_delay,
            equal_writes: self.equal_writes,
            is_paced: self.is_paced,
            send_credits: self.send_credits,
            ..DeviceConfig::default()
        }
    }
}

/// Two queue pairs that talk to each other.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Nodes of both ends; may be the same.
    pub nodes: [usize; 2],
    /// Attributes of both ends.
    pub setup: Setup,
    /// Local ACK timeout of the second end, that of the first one being in `setup`.
    pub other_timeout: AckTimeout,
    /// Longest message.
    pub max_message: u32,
    /// Requests that each end posts.
    pub requests: [u32; 2],
    /// The end that receives from the shared queue of the connection before, if that has one.
    pub shares_srq: bool,
    /// One request of an end is one that must fail.
    pub poison: [Option<u32>; 2],
    /// The user stops and resumes the send queue of the first end.
    pub drains: bool,
    /// Somebody else sends packets that look like those of the connection.
    pub has_strays: bool,
    /// The user puts the second end in error at some time.
    pub dies_at: Option<Span>,
    /// The second end deregisters its memory at some time.
    pub deregisters_at: Option<Span>,
}

impl Connection {
    /// Bytes of one buffer.
    pub fn slot(&self) -> usize {
        self.max_message as usize + 64
    }

    /// Nothing times out. What is lost is found by selective repeat, and neither end fails, which
    /// nothing but a timeout would tell the other.
    fn without_timeout(self) -> Self {
        Self {
            poison: [None; 2],
            dies_at: None,
            deregisters_at: None,
            other_timeout: AckTimeout::new(0),
            setup: Setup {
                timeout: AckTimeout::new(0),
                retry_cnt: 7,
                rnr_retry: 7,
                ..self.setup
            },
            ..self
        }
    }

    /// Attributes of the second end.
    pub fn other_setup(&self) -> Setup {
        Setup {
            timeout: self.other_timeout,
            ..self.setup.clone()
        }
    }

    /// Bytes that the peer may read and write.
    pub fn arena(&self) -> usize {
        (self.max_message as usize + 512).next_multiple_of(8)
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcafe);
        let rng = &mut rng;
        let faults = faults(rng);
        let Faults {
            loss,
            duplicate,
            corrupt,
            reorder,
            ..
        } = faults;
        let is_clean = loss + duplicate + corrupt + reorder == 0;
        let count = pick(rng, &[2, 2, 2, 2, 3, 4]);
        let mut nodes: Vec<_> = (0..count).map(|_| (link(rng), config(rng))).collect();
        // Selective repeat takes two.
        if chance(rng, 30) {
            let recovery = nodes[0].1.recovery;
            nodes.iter_mut().for_each(|node| node.1.recovery = recovery);
        }
        let mut connections: Vec<_> = (0..pick(rng, &[1, 1, 1, 2, 2, 3, 5]))
            .map(|_| connection(rng, &nodes, is_clean))
            .collect();
        let is_crowd = count == 2 && chance(rng, 15);
        if is_crowd {
            while connections.len() < 5 {
                connections.push(connection(rng, &nodes, is_clean));
            }
            crowd(rng, &mut nodes, &mut connections);
        }
        if connections.iter().any(|c| c.poison != [None; 2]) {
            // The first packets of a WRITE that ends outside of its region are good ones then.
            nodes
                .iter_mut()
                .for_each(|node| node.1.equal_writes = false);
        }
        // Priorities are strict: with several of them the lower ones may starve.
        let has_priorities = !is_crowd && chance(rng, 20);
        if !has_priorities {
            let sl = connections[0].setup.sl;
            connections
                .iter_mut()
                .for_each(|connection| connection.setup.sl = sl);
        }
        Self {
            seed,
            nodes,
            faults,
            quiet_at: Span::from_us(rng.u64(50..4000)),
            has_priorities,
            connections,
        }
    }

    /// Whether the network is perfect from the start.
    pub fn is_faultless(&self) -> bool {
        let Faults {
            loss,
            duplicate,
            corrupt,
            reorder,
            ..
        } = self.faults;
        loss + duplicate + corrupt + reorder == 0
    }

    /// Whether frames arrive at most once and in order.
    pub fn is_ordered(&self) -> bool {
        self.faults.duplicate + self.faults.reorder == 0
    }
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn chance(rng: &mut fastrand::Rng, percent: u32) -> bool {
    rng.u32(0..100) < percent
}

fn faults(rng: &mut fastrand::Rng) -> Faults {
    let mut faults = Faults::NONE;
    let ppm = |rng: &mut fastrand::Rng, most: u32| rng.u32(1000..most);
    match rng.u32(0..10) {
        0 | 1 => {}
        2 | 3 => faults.loss = ppm(rng, 20_000),
        4 | 5 => faults.loss = ppm(rng, 200_000),
        6 => faults.reorder = ppm(rng, 200_000),
        7 => faults.duplicate = ppm(rng, 200_000),
        8 => faults.corrupt = ppm(rng, 100_000),
        _ => {
            faults.loss = ppm(rng, 100_000);
            faults.reorder = ppm(rng, 100_000);
            faults.duplicate = ppm(rng, 100_000);
            faults.corrupt = ppm(rng, 20_000);
        }
    }
    faults.late_by = Span::from_us(rng.u64(1..200));
    if chance(rng, 30) {
        faults.jitter = Span::from_us(rng.u64(1..50));
    }
    if chance(rng, 30) {
        faults.mark = ppm(rng, 300_000);
    }
    if chance(rng, 40) {
        faults.refuse = ppm(rng, 400_000);
    }
    faults
}

fn link(rng: &mut fastrand::Rng) -> Link {
    Link {
        rate_bps: pick(rng, &[1, 10, 25, 100]) * 1_000_000_000,
        delay: Span::from_ns(rng.u64(100..8000)),
        packets: pick(rng, &[1, 1, 2, 5, 16]),
        bytes: pick(rng, &[5000, 64 << 10]),
        runs: pick(rng, &[1, 1, 4]),
    }
}

fn config(rng: &mut fastrand::Rng) -> Config {
    let minimum = rng.u64(1..40) * 1024;
    let initial = minimum * rng.u64(1..8);
    Config {
        window: WindowConfig {
            initial,
            minimum,
            maximum: initial * rng.u64(1..8),
            loss_interval: Span::from_us(rng.u64(1..1000)),
        },
        recovery: match rng.u32(0..10) {
            0..=5 => RecoveryKind::GoBackN,
            6..=8 => RecoveryKind::SelectiveRepeat,
            _ => RecoveryKind::GoBackZero,
        },
        read_request_bytes: pick(rng, &[1, 1024, 4096, 64 << 10]),
        is_paced: chance(rng, 15),
        ack_delay: Span::from_us(pick(rng, &[0, 20, 100])),
        equal_writes: chance(rng, 50),
        send_credits: chance(rng, 60),
    }
}

/// Long messages share one window per direction, which losses cut to a fraction.
fn crowd(rng: &mut fastrand::Rng, nodes: &mut [(Link, Config)], connections: &mut [Connection]) {
    let mtu = pick(rng, &[PathMtu::Mtu256, PathMtu::Mtu1024]);
    let packet = u64::from(mtu.bytes()) + 66;
    for (_, config) in nodes {
        let initial = packet * rng.u64(8..40);
        config.window = WindowConfig {
            initial,
            minimum: packet * rng.u64(1..4),
            maximum: initial * rng.u64(1..4),
            loss_interval: Span::from_us(rng.u64(1..50)),
        };
    }
    let gid_index = connections[0].setup.gid_index;
    for connection in connections {
        connection.setup.gid_index = gid_index;
        if connection.setup.qp_type.is_reliable() {
            connection.setup.mtu = mtu;
            connection.max_message = 12 * mtu.bytes();
        }
    }
}

fn connection(rng: &mut fastrand::Rng, nodes: &[(Link, Config)], is_clean: bool) -> Connection {
    let qp_type = match rng.u32(0..100) {
        0..=69 => QpType::Rc,
        70..=79 => QpType::XrcSend,
        80..=89 => QpType::Uc,
        _ => QpType::Ud,
    };
    let mtu = pick(
        rng,
        &[
            PathMtu::Mtu256,
            PathMtu::Mtu256,
            PathMtu::Mtu1024,
            PathMtu::Mtu4096,
        ],
    );
    let max_message = (mtu.bytes() * pick(rng, &[1, 3, 12])).min(12 << 10);
    let max_message = if qp_type == QpType::Ud {
        max_message.min(2048)
    } else {
        max_message
    };
    let depth = rng.u8(1..=16);
    let psn = |rng: &mut fastrand::Rng| {
        // Near the wrap as often as not.
        let near = pick(rng, &[5, 30, 200]);
        let near = 0xff_ffff - rng.u32(0..near);
        Psn::new(if rng.bool() { near } else { rng.u32(..) })
    };
    let first = rng.usize(0..nodes.len());
    let second = if chance(rng, 5) {
        first
    } else {
        (first + rng.usize(1..nodes.len())) % nodes.len()
    };
    let is_selective = [first, second]
        .map(|node| nodes[node].1.recovery)
        .iter()
        .all(|recovery| *recovery == RecoveryKind::SelectiveRepeat);
    let setup = Setup {
        qp_type,
        mtu,
        max_send_wr: rng.u32(1..=8),
        max_recv_wr: rng.u32(1..=8),
        max_sge: 4,
        max_inline: pick(rng, &[0, 64, 300]),
        cqe: 64,
        sq_sig_all: chance(rng, 30),
        with_srq: qp_type != QpType::XrcSend && chance(rng, 25),
        psn_a: psn(rng),
        psn_b: psn(rng),
        max_rd_atomic: rng.u8(1..=depth),
        max_dest_rd_atomic: depth,
        // In a perfect network nothing may time out, however slow it is.
        timeout: AckTimeout::new(if is_clean { 13 } else { rng.u8(4..=9) }),
        retry_cnt: if chance(rng, 80) { 7 } else { rng.u8(0..7) },
        rnr_retry: if chance(rng, 80) { 7 } else { rng.u8(1..7) },
        min_rnr_timer: RnrTimer::new(rng.u8(1..14)),
        gid_index: rng.u8(0..3),
        sl: rng.u8(0..8),
        ..Setup::default()
    };
    let is_reliable = qp_type.is_reliable();
    let requests = [
        rng.u32(1..40),
        if qp_type == QpType::XrcSend || chance(rng, 30) {
            0
        } else {
            rng.u32(1..40)
        },
    ];
    let poison = |rng: &mut fastrand::Rng, requests: u32| {
        (is_reliable && requests > 0 && chance(rng, 12)).then(|| rng.u32(0..requests))
    };
    let connection = Connection {
        nodes: [first, second],
        max_message,
        requests,
        shares_srq: setup.with_srq && rng.bool(),
        poison: [poison(rng, requests[0]), poison(rng, requests[1])],
        has_strays: chance(rng, 10),
        drains: is_reliable && chance(rng, 15),
        dies_at: (!is_clean && chance(rng, 4)).then(|| Span::from_us(rng.u64(1..1000))),
        deregisters_at: (is_reliable && chance(rng, 3)).then(|| Span::from_us(rng.u64(1..500))),
        // How long an ACK may wait is judged by the own timeout; the peer's may be another.
        other_timeout: if is_clean || chance(rng, 70) {
            setup.timeout
        } else {
            AckTimeout::new(rng.u8(4..=14))
        },
        setup,
    };
    if is_selective && is_reliable && !connection.setup.with_srq && chance(rng, 30) {
        connection.without_timeout()
    } else {
        connection
    }
}
