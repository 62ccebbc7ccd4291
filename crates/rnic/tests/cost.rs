//! What the engine costs in memory: nothing per packet once everything was used, at most 1 KiB per
//! idle queue pair.

use std::sync::Arc;

use allocation_counter::measure;
use hirail_rnic::transmit::{Budget, OpenClasses, Run, Segment};
use hirail_rnic::{
    DeviceConfig, Event, Instant, PacketMeta, RecoveryKind, SendData, SendFlags, SendOp, SendWr,
    Span, Timer,
};
use hirail_vocab::{QpType, WcStatus};
use hirail_wire::{AckTimeout, Headers, PathMtu};
use testkit::net::gids;
use testkit::{BASE, Endpoint, Link, Net, Setup, SingleHost};

/// Allocations of the engine, summed over calls.
#[derive(Default)]
struct Meter {
    allocations: u64,
}

impl Meter {
    fn of<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let mut result = None;
        let info = measure(|| result = Some(call()));
        self.allocations += info.count_total;
        result.expect("the call was made")
    }
}

/// Two endpoints with nothing but loops between them, so that every allocation is the engine's.
struct Wire {
    ends: [Endpoint; 2],
    now: Instant,
    run: Run<SingleHost>,
    meter: Meter,
    /// Packets under way, by reuse of the same buffers: to whom, headers, payload.
    flying: Vec<(usize, Headers, Vec<u8>)>,
    landed: Vec<(usize, Headers, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    timers: Vec<(Instant, usize, Timer)>,
    /// Every so many packets one is lost; 0 for none.
    loses_every: u64,
    sent: u64,
    wr_id: u64,
}

impl Wire {
    fn new(setup: &Setup, configure: impl Fn(&mut DeviceConfig)) -> Self {
        let mut net = Net::new(1);
        for _ in 0..2 {
            let mut config = DeviceConfig::default();
            configure(&mut config);
            net.add(Link::default(), config);
        }
        let a = Endpoint::new(&net, 0, setup, false);
        let b = Endpoint::new(&net, 1, setup, true);
        a.connect(&net, setup, &b, setup.psn_b, setup.psn_a);
        b.connect(&net, setup, &a, setup.psn_a, setup.psn_b);
        Self {
            ends: [a, b],
            now: Instant::EPOCH,
            run: Run::new(),
            meter: Meter::default(),
            flying: Vec::with_capacity(1024),
            landed: Vec::with_capacity(1024),
            spare: Vec::with_capacity(1024),
            timers: Vec::with_capacity(1024),
            loses_every: 0,
            sent: 0,
            wr_id: 0,
        }
    }

    fn post(&mut self, op: SendOp, data: SendData<'_>, ud: Option<hirail_rnic::UdDestination>) {
        self.wr_id += 1;
        let [a, _] = &self.ends;
        let wr = SendWr {
            wr_id: self.wr_id,
            op,
            flags: SendFlags {
                signaled: true,
                solicited: true,
                ..SendFlags::default()
            },
            data,
            ud,
            xrc_srqn: 0,
        };
        self.meter
            .of(|| a.device.post_send(self.now, &a.qp, &wr))
            .expect("there is room");
    }

    /// Runs until everything posted has completed.
    fn finish(&mut self) {
        let mut done = 0;
        for _ in 0..100_000 {
            self.turn();
            let [a, _] = &self.ends;
            while let Some(cqe) = a.send_cq.lock().pop() {
                assert_eq!(cqe.status, WcStatus::Success);
                done = cqe.wr_id;
            }
            let [_, b] = &self.ends;
            while b.recv_cq.lock().pop().is_some() {}
            if done == self.wr_id && self.flying.is_empty() {
                return;
            }
        }
        panic!("request {done} of {} is done", self.wr_id);
    }

    /// Everything that is due once: packets out, packets in, timers.
    fn turn(&mut self) {
        let budget = Budget {
            packets: 15,
            bytes: 64 << 10,
        };
        for from in 0..2 {
            let end = &self.ends[from];
            loop {
                let (device, run, now) = (&end.device, &mut self.run, self.now);
                let filled = self
                    .meter
                    .of(|| device.poll_transmit(now, OpenClasses::ALL, budget, run));
                if !filled {
                    break;
                }
                for packet in self.run.packets() {
                    self.sent += 1;
                    if self.loses_every > 0 && self.sent.is_multiple_of(self.loses_every) {
                        continue;
                    }
                    let mut payload = self.spare.pop().unwrap_or_default();
                    payload.clear();
                    for segment in self.run.segments(packet) {
                        let at = payload.len();
                        match segment {
                            Segment::Memory(slice) => {
                                payload.resize(at + slice.len() as usize, 0);
                                slice.read_bytes(0, &mut payload[at..]).expect("mapped");
                            }
                            Segment::Inline { start, len } => payload
                                .extend_from_slice(&self.run.inline_bytes()[*start..start + len]),
                        }
                    }
                    self.flying.push((1 - from, packet.headers, payload));
                }
                let taken = self.run.packets().len();
                let (run, now) = (&mut self.run, self.now);
                self.meter.of(|| device.sent(now, run, taken));
            }
        }
        std::mem::swap(&mut self.flying, &mut self.landed);
        for (to, headers, payload) in self.landed.drain(..) {
            let meta = PacketMeta {
                source: gids(1 - to)[0],
                destination: gids(to)[0],
                traffic_class: 0,
                hop_limit: 64,
                priority: 0,
                is_roce_v1: false,
            };
            let (device, now) = (&self.ends[to].device, self.now);
            let _ = self
                .meter
                .of(|| device.handle_packet(now, &meta, &headers, &payload));
            self.spare.push(payload);
        }
        self.now += Span::from_us(5);
        for node in 0..2 {
            let device = &self.ends[node].device;
            while let Some((timer, at)) = self.meter.of(|| device.poll_timer()) {
                self.timers.push((at, node, timer));
            }
            while let Some(event) = self.meter.of(|| device.poll_event()) {
                if let Event::Completion(cq) = event {
                    self.meter.of(|| cq.lock().arm(hirail_rnic::cq::Arm::Any));
                }
            }
        }
        let now = self.now;
        while let Some(due) = self.timers.iter().position(|(at, ..)| *at <= now) {
            let (_, node, timer) = self.timers.swap_remove(due);
            let device = &self.ends[node].device;
            self.meter.of(|| device.handle_timeout(now, timer));
        }
    }

    /// Messages of every kind, with receives where they are needed.
    fn all_sorts(&mut self, qp_type: QpType, setup: &Setup) {
        let [a, b] = &self.ends;
        let (rkey, va) = (b.rkey(), BASE + 4096);
        let sges = [a.sge(0, 3000), a.sge(5000, 100)];
        let short = [a.sge(0, 100)];
        let word = [a.sge(8, 8)];
        let ud = qp_type.is_datagram().then(|| b.as_destination(setup));
        let buffer = [b.sge(20_000, 4000)];
        // The SENDs below; datagrams are too short for the last of them.
        for wr_id in 0..if qp_type.is_datagram() { 2 } else { 3 } {
            let (b, now) = (&self.ends[1], self.now);
            self.meter
                .of(|| b.device.post_recv(now, &b.qp, wr_id, &buffer))
                .expect("there is room");
        }
        self.post(SendOp::SendImm([1; 4]), SendData::Sges(&short), ud);
        self.post(SendOp::Send, SendData::Inline(&[b"inline"]), ud);
        if !qp_type.is_datagram() {
            self.post(SendOp::Send, SendData::Sges(&sges), None);
            self.post(SendOp::Write { va, rkey }, SendData::Sges(&sges), None);
        }
        if qp_type.is_reliable() {
            self.post(SendOp::Read { va, rkey }, SendData::Sges(&sges), None);
            let add = SendOp::FetchAdd { va, rkey, add: 1 };
            self.post(add, SendData::Sges(&word), None);
            let compare_swap = SendOp::CompareSwap {
                va,
                rkey,
                compare: 1,
                swap: 2,
            };
            self.post(compare_swap, SendData::Sges(&word), None);
            self.post(
                SendOp::AtomicWrite { va, rkey },
                SendData::Sges(&word),
                None,
            );
        }
        self.finish();
    }
}

#[test]
fn nothing_is_allocated_per_packet() {
    for (qp_type, recovery, loses_every) in [
        (QpType::Rc, RecoveryKind::GoBackN, 0),
        (QpType::Uc, RecoveryKind::GoBackN, 0),
        (QpType::Ud, RecoveryKind::GoBackN, 0),
        (QpType::Rc, RecoveryKind::GoBackN, 7),
        (QpType::Rc, RecoveryKind::GoBackZero, 23),
        (QpType::Rc, RecoveryKind::SelectiveRepeat, 0),
        (QpType::Rc, RecoveryKind::SelectiveRepeat, 7),
    ] {
        let setup = Setup {
            timeout: AckTimeout::new(4),
            cqe: 64,
            ..Setup::of(qp_type)
        };
        let mut wire = Wire::new(&setup, |config| config.recovery = recovery);
        wire.loses_every = loses_every;
        for end in &wire.ends {
            end.recv_cq.lock().arm(hirail_rnic::cq::Arm::Any);
        }
        // Selective repeat keeps packets in 256 places, each with a buffer of its own.
        let warm_up = if recovery == RecoveryKind::SelectiveRepeat {
            200
        } else {
            10
        };
        for _ in 0..warm_up {
            wire.all_sorts(qp_type, &setup);
        }
        assert!(wire.meter.allocations > 0, "the meter counts");
        let (before, sent) = (wire.meter.allocations, wire.sent);
        for _ in 0..200 {
            wire.all_sorts(qp_type, &setup);
        }
        let packets = wire.sent - sent;
        assert!(packets >= 400);
        assert_eq!(
            wire.meter.allocations - before,
            0,
            "{qp_type}, {recovery:?}, one packet in {loses_every} lost: allocations of {packets} packets"
        );
    }
}

/// 1 KiB per connected RC queue pair whose queues were not used yet, tables included.
#[test]
fn an_idle_queue_pair_costs_at_most_1_kib() {
    const COUNT: u64 = 2000;
    let mut net = Net::new(1);
    let node = net.add(Link::default(), DeviceConfig::default());
    let setup = Setup {
        mtu: PathMtu::Mtu4096,
        max_send_wr: 128,
        max_recv_wr: 512,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..Setup::default()
    };
    let first = Endpoint::new(&net, node, &setup, false);
    first.connect(&net, &setup, &first, setup.psn_a, setup.psn_b);
    let mut qps = Vec::with_capacity(COUNT as usize);
    let info = measure(|| {
        for _ in 0..COUNT {
            let qp = first
                .device
                .create_qp(&hirail_rnic::QpInit {
                    qp_type: QpType::Rc,
                    pd: first.pd,
                    send_cq: Arc::clone(&first.send_cq),
                    recv_cq: Arc::clone(&first.recv_cq),
                    srq: None,
                    xrcd: None,
                    max_send_wr: setup.max_send_wr,
                    max_recv_wr: setup.max_recv_wr,
                    max_send_sge: setup.max_sge,
                    max_recv_sge: setup.max_sge,
                    max_inline_data: setup.max_inline,
                    sq_sig_all: false,
                })
                .expect("there is room");
            connect(&net, &first, &qp, &setup);
            qps.push(qp);
        }
    });
    let bytes = info.bytes_current as u64 / COUNT;
    println!("an idle RC queue pair takes {bytes} bytes");
    assert!(bytes <= 1024, "{bytes} bytes");
}

fn connect(net: &Net, end: &Endpoint, qp: &Arc<hirail_rnic::Qp<SingleHost>>, setup: &Setup) {
    use hirail_rnic::qp::attr::{AttrMask as M, QpAttr};
    use hirail_vocab::QpState;
    let mut attr = QpAttr {
        qp_state: QpState::Init,
        access: setup.qp_access,
        path_mtu: setup.mtu,
        dest_qpn: end.qp.qpn,
        av: end.address(setup),
        max_rd_atomic: setup.max_rd_atomic,
        max_dest_rd_atomic: setup.max_dest_rd_atomic,
        timeout: setup.timeout,
        ..QpAttr::default()
    };
    for (state, mask) in [
        (QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS),
        (
            QpState::Rtr,
            M::AV
                | M::PATH_MTU
                | M::DEST_QPN
                | M::RQ_PSN
                | M::MAX_DEST_RD_ATOMIC
                | M::MIN_RNR_TIMER,
        ),
        (
            QpState::Rts,
            M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
        ),
    ] {
        attr.qp_state = state;
        end.device
            .modify_qp(net.now(), qp, &attr, mask | M::STATE)
            .expect("the attributes are right");
    }
}
