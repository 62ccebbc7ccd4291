//! Packets that somebody made up: each is counted under the name of what is wrong with it, and
//! memory stays as it was. Rules: IBTA Vol 1, chapter 9 (Transport Layer).

use hirail_rnic::mr::{Access, BindMw, MwType};
use hirail_rnic::{SendOp, Span};
use hirail_vocab::{Counter, CounterSnapshot, DropReason, QpState, QpType};
use hirail_wire::ip::{IpHeader, Ipv4Header, PROTOCOL_UDP};
use hirail_wire::{
    Bth, Encapsulation, Ext, Framing, Gid, Headers, Opcode, Operation, PathMtu, Psn, Qpn, Reth,
    Rkey, Service,
};
use testkit::endpoint::wr;
use testkit::net::{gids, mac};
use testkit::{BASE, Memory, Pair, Setup};

/// A connection whose second end is attacked; its memory is full of a pattern.
struct Target {
    pair: Pair,
    before: Vec<u8>,
    counted: CounterSnapshot,
}

impl Target {
    fn new() -> Self {
        Self::of(Setup::default())
    }

    fn of(setup: Setup) -> Self {
        let pair = Pair::new(setup);
        let before: Vec<u8> = (0..pair.b.memory.len()).map(|i| (i % 251) as u8).collect();
        pair.b.memory.fill(0, &before);
        let counted = pair.b.device.counters().snapshot();
        Self {
            pair,
            before,
            counted,
        }
    }

    /// Headers of the WRITE that would be accepted next.
    fn good(&self) -> Headers {
        let reth = Reth {
            va: BASE + 64,
            rkey: self.pair.b.rkey(),
            length: 16,
        };
        self.with(Operation::WriteOnly, Ext::Reth(reth))
    }

    fn with(&self, operation: Operation, ext: Ext) -> Headers {
        let opcode = Opcode::new(Service::Rc, operation).expect("RC has it");
        let mut bth = Bth::new(opcode, self.pair.b.qp.qpn, self.pair.setup.psn_a);
        bth.ack_req = true;
        Headers::new(bth, None, ext).expect("they belong together")
    }

    /// BTH to pad of a packet.
    fn ib(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let headers = headers.with_payload_len(payload.len());
        let mut ib = vec![0; headers.ib_len(payload.len()) - 4];
        let at = headers.emit(&mut ib);
        ib[at..at + payload.len()].copy_from_slice(payload);
        ib
    }

    /// A frame from `source` around `ib`, with all lengths and checksums right.
    fn frame(source: Gid, ib: &[u8]) -> Vec<u8> {
        Self::between(source, gids(1)[0], ib)
    }

    /// The same from `source` to `dest`.
    fn between(source: Gid, dest: Gid, ib: &[u8]) -> Vec<u8> {
        let (std::net::IpAddr::V4(source), std::net::IpAddr::V4(dest)) =
            (source.to_ip(), dest.to_ip())
        else {
            panic!("both are IPv4")
        };
        let encapsulation = Encapsulation {
            dest: mac(1),
            source: mac(0),
            tag: None,
            framing: Framing::V2 {
                ip: IpHeader::V4(Ipv4Header {
                    traffic_class: 0,
                    id: 0,
                    dont_fragment: true,
                    ttl: 64,
                    protocol: PROTOCOL_UDP,
                    source,
                    dest,
                }),
                source_port: 0xc123,
                udp_checksum: false,
            },
        };
        let mut frame = vec![0; encapsulation.len()];
        encapsulation.emit(ib.len() + 4, &mut frame);
        frame.extend_from_slice(ib);
        frame.extend(encapsulation.framing.icrc_prefix().compute(ib, 0));
        frame
    }

    /// A good frame from the peer with these headers and payload.
    fn packet(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        Self::frame(gids(0)[0], &Self::ib(headers, payload))
    }

    /// Delivers a frame and returns what was counted.
    fn deliver(&mut self, frame: Vec<u8>) -> CounterSnapshot {
        self.pair.net.inject(0, gids(1)[0], frame);
        self.pair.net.run_for(Span::from_us(10));
        let now = self.pair.b.device.counters().snapshot();
        let counted = now.since(&self.counted);
        self.counted = now;
        counted
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert!(
            self.pair.b.memory.with(|now| now == self.before),
            "memory has changed"
        );
    }

    /// Delivers a frame that is to be dropped for `reason` alone, and then shows that the connection
    /// is alive.
    #[track_caller]
    fn dropped(&mut self, frame: Vec<u8>, reason: DropReason) {
        let counted = self.deliver(frame);
        assert_eq!(drops(&counted), [(reason, 1)]);
        self.assert_untouched();
    }

    /// The connection still works: a WRITE of nothing is acknowledged.
    #[track_caller]
    fn assert_alive(&mut self) {
        let op = SendOp::Write {
            va: 0,
            rkey: Rkey::new(0),
        };
        self.pair.post(7, op, 0, 0);
        self.pair.run();
        let done = self.pair.a.poll_send();
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].status, hirail_vocab::WcStatus::Success);
    }
}

/// The reasons that were counted.
fn drops(counted: &CounterSnapshot) -> Vec<(DropReason, u64)> {
    DropReason::ALL
        .iter()
        .map(|reason| (*reason, counted.get(reason.counter())))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The packet that all others are made from would be executed.
#[test]
fn the_packet_is_good() {
    let mut target = Target::new();
    let counted = target.deliver(Target::packet(&target.good(), &[0x5a; 16]));
    assert!(drops(&counted).is_empty());
    assert_eq!(counted.get(Counter::RxWriteRequests), 1);
    assert_eq!(target.pair.b.memory.read(64, 16), [0x5a; 16]);
}

/// Keys that open nothing: unknown, of another variant, deregistered, of a window that was never
/// bound or was invalidated, of another domain.
#[test]
fn wrong_keys() {
    let keys: [fn(&mut Target) -> Rkey; 7] = [
        |_| Rkey::new(0),
        |target| Rkey::new(target.pair.b.rkey().value() ^ 1),
        |target| Rkey::new(target.pair.b.rkey().value() ^ 0x100),
        |target| {
            let device = &target.pair.b.device;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let region = device
                .reg_mr(target.pair.b.pd, BASE, 4096, access, Memory::zeroed(4096))
                .unwrap();
            device.dereg_mr(region.lkey()).unwrap();
            region.rkey()
        },
        |target| {
            let device = &target.pair.b.device;
            device.alloc_mw(target.pair.b.pd, MwType::Type2).unwrap()
        },
        |target| {
            let window = target
                .pair
                .b
                .device
                .alloc_mw(target.pair.b.pd, MwType::Type2)
                .unwrap();
            let bind = BindMw {
                window,
                new_key: window,
                region: target.pair.b.mr.lkey(),
                addr: BASE,
                length: 4096,
                access: Access::REMOTE_WRITE,
            };
            let key = bind.rkey();
            let net = &mut target.pair.net;
            for op in [SendOp::BindMw(bind), SendOp::LocalInv(key)] {
                target.pair.b.post_send(net, &wr(1, op, &[])).unwrap();
            }
            target.pair.b.poll_send();
            key
        },
        |target| {
            let device = &target.pair.b.device;
            let other = device.alloc_pd().unwrap();
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let memory = target.pair.b.memory.clone();
            let region = device.reg_mr(other, BASE, 4096, access, memory).unwrap();
            region.rkey()
        },
    ];
    for (index, key) in keys.into_iter().enumerate() {
        let mut target = Target::new();
        let key = key(&mut target);
        let reth = Reth {
            va: BASE + 64,
            rkey: key,
            length: 16,
        };
        let headers = target.with(Operation::WriteOnly, Ext::Reth(reth));
        let counted = target.deliver(Target::packet(&headers, &[0x5a; 16]));
        assert_eq!(
            counted.get(Counter::RespRemoteAccessErrors),
            1,
            "key {index}"
        );
        target.assert_untouched();
        assert_eq!(target.pair.b.state(), QpState::Err);
    }
}

#[test]
fn addresses_out_of_range() {
    let length = Setup::default().memory as u64;
    for (va, len) in [
        (BASE - 1, 16),
        (BASE - 16, 16),
        (BASE + length - 15, 16),
        (BASE + length, 1),
        (u64::MAX - 7, 16),
        (0, 16),
        (BASE, u32::MAX),
        (BASE, 1 << 31),
    ] {
        let mut target = Target::new();
        let reth = Reth {
            va,
            rkey: target.pair.b.rkey(),
            length: len,
        };
        let (operation, payload) = if len > 1024 {
            (Operation::WriteFirst, 1024)
        } else {
            (Operation::WriteOnly, len as usize)
        };
        let headers = target.with(operation, Ext::Reth(reth));
        let counted = target.deliver(Target::packet(&headers, &vec![0x5a; payload]));
        let refused = counted.get(Counter::RespRemoteAccessErrors)
            + counted.get(Counter::RespRemoteInvalidRequest);
        assert_eq!(refused, 1, "{va:#x} + {len}");
        target.assert_untouched();
    }
}

#[test]
fn not_from_the_peer_or_not_to_us() {
    let mut target = Target::new();
    let ib = Target::ib(&target.good(), &[0x5a; 16]);
    for source in [
        gids(1)[0],
        gids(2)[0],
        Gid::from(std::net::Ipv4Addr::LOCALHOST),
    ] {
        target.dropped(Target::frame(source, &ib), DropReason::WrongSource);
    }
    let good = target.good();
    for (qpn, reason) in [
        (Qpn::new(0), DropReason::Qp0),
        (Qpn::GSI, DropReason::UnknownQp),
        (
            Qpn::new(target.pair.b.qp.qpn.value() + 1),
            DropReason::UnknownQp,
        ),
        (Qpn::new(0xab_cdef), DropReason::UnknownQp),
        (Qpn::MULTICAST, DropReason::UnknownQp),
    ] {
        let packet = Target::packet(&good.with_dest_qp(qpn), &[0x5a; 16]);
        target.dropped(packet, reason);
    }
    target.assert_alive();
}

/// Sequence numbers anywhere on the circle but the one expected: after it a gap, before it a
/// duplicate. Neither writes.
#[test]
fn sequence_numbers_outside_the_window() {
    let mut target = Target::new();
    let good = target.good();
    let expected = good.bth().psn;
    let mut first = true;
    for ahead in [1, 2, 255, 256, 257, 1 << 20, (1 << 23) - 1] {
        let packet = Target::packet(&good.with_psn(expected.add(ahead)), &[0x5a; 16]);
        let counted = target.deliver(packet);
        assert_eq!(counted.get(Counter::OutOfSequence), 1, "{ahead}");
        let silent = counted.get(Counter::DropOutOfSequenceSilent);
        assert_eq!(silent, u64::from(!first), "told once");
        first = false;
        target.assert_untouched();
    }
    for behind in [1, 2, 1000, 1 << 22, 1 << 23] {
        let packet = Target::packet(&good.with_psn(expected.sub(behind)), &[0x5a; 16]);
        let counted = target.deliver(packet);
        assert_eq!(counted.get(Counter::DuplicateRequest), 1, "{behind}");
        assert!(drops(&counted).is_empty());
        target.assert_untouched();
    }
    target.assert_alive();
}

/// Acknowledgements and responses that nobody waits for.
#[test]
fn responses_out_of_nowhere() {
    use hirail_wire::{Aeth, Credits, Msn, NakCode, Syndrome};
    for syndrome in [
        Syndrome::Ack(Credits::NONE),
        Syndrome::Nak(NakCode::RemoteAccessError),
        Syndrome::Nak(NakCode::PsnSequenceError),
        Syndrome::Rnr(hirail_wire::RnrTimer::new(0)),
    ] {
        let mut target = Target::new();
        let aeth = Aeth {
            syndrome,
            msn: Msn::new(0),
        };
        let idle = target.pair.setup.psn_b;
        for (psn, reason) in [
            (idle, DropReason::AckOfUnsentPsn),
            (idle.add(1000), DropReason::AckOfUnsentPsn),
            (idle.prev(), DropReason::GhostAck),
            (idle.sub(1 << 22), DropReason::GhostAck),
        ] {
            for (operation, ext, payload) in [
                (Operation::Acknowledge, Ext::Aeth(aeth), &[][..]),
                (Operation::AtomicAcknowledge, Ext::AtomicAck(aeth, 5), &[]),
                (Operation::ReadResponseOnly, Ext::Aeth(aeth), b"8 bytes!"),
                (Operation::ReadResponseMiddle, Ext::None, &[0x5a; 1024]),
            ] {
                let headers = target
                    .with(operation, ext)
                    .with_psn(psn)
                    .with_ack_req(false);
                let packet = Target::packet(&headers, payload);
                target.dropped(packet, reason);
            }
        }
        target.assert_alive();
    }
}

/// A frame cut off anywhere, its lengths as they were.
#[test]
fn frames_cut_off_anywhere() {
    let mut target = Target::new();
    let frame = Target::packet(&target.good(), &[0x5a; 16]);
    for len in 0..frame.len() {
        let counted = target.deliver(frame[..len].to_vec());
        let [(reason, 1)] = drops(&counted)[..] else {
            panic!("{len}: {counted:?}")
        };
        assert_eq!(reason, DropReason::Truncated, "{len} octets");
        target.assert_untouched();
    }
    target.assert_alive();
}

/// A packet cut off anywhere and then framed anew, with lengths, checksum and ICRC that are right:
/// the transport's own checks.
#[test]
fn packets_cut_off_anywhere() {
    let ib = {
        let target = Target::new();
        Target::ib(&target.good(), &[0x5a; 16])
    };
    let headers = ib.len() - 16;
    for len in 0..ib.len() {
        let mut target = Target::new();
        let counted = target.deliver(Target::frame(gids(0)[0], &ib[..len]));
        if len < headers {
            assert_eq!(drops(&counted), [(DropReason::Truncated, 1)], "{len}");
        } else if !(len - headers).is_multiple_of(4) {
            assert_eq!(drops(&counted), [(DropReason::BadPad, 1)], "{len}");
        } else {
            // Less payload than the WRITE announces: an invalid request.
            let refused = counted.get(Counter::RespRemoteInvalidRequest);
            assert_eq!(refused, 1, "{len}: {counted:?}");
        }
        target.assert_untouched();
    }
}

/// Every single bit of the transport packet: it is caught by the ICRC, or it is one of the few that
/// switches may change.
#[test]
fn every_bit_flipped() {
    let mut target = Target::new();
    let frame = Target::packet(&target.good(), &[0x5a; 16]);
    let network = 14 + 20 + 8;
    for bit in network * 8..frame.len() * 8 {
        // The congestion byte of the BTH is not covered.
        if bit / 8 == network + 4 {
            continue;
        }
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        target.dropped(damaged, DropReason::BadIcrc);
    }
    let counted = target
        .pair
        .b
        .device
        .counters()
        .get(Counter::RxIcrcEncapsulated);
    assert_eq!(counted, ((frame.len() - network - 1) * 8) as u64);
    target.assert_alive();
}

#[test]
fn more_than_a_port_takes() {
    let mut target = Target::new();
    let good = target.good();
    for payload in [4097, 5000, 9000, 60_000] {
        let packet = Target::packet(&good, &vec![0x5a; payload]);
        target.dropped(packet, DropReason::Oversized);
    }
    target.assert_alive();
    // Within the port's MTU but beyond the path's it is the peer's mistake.
    let counted = {
        let psn = target.good().bth().psn.next();
        let packet = Target::packet(&target.good().with_psn(psn), &vec![0x5a; 1025]);
        target.deliver(packet)
    };
    assert_eq!(counted.get(Counter::RespRemoteInvalidRequest), 1);
    target.assert_untouched();
}

/// Each of the 256 opcodes with the headers of a WRITE behind it.
#[test]
fn all_opcodes() {
    for op in 0..=255u8 {
        let mut target = Target::new();
        let mut ib = Target::ib(&target.good(), &[0x5a; 16]);
        ib[0] = op;
        let counted = target.deliver(Target::frame(gids(0)[0], &ib));
        let reasons = drops(&counted);
        match Opcode::from_u8(op) {
            None if op >= 0xc0 => {
                assert_eq!(reasons, [(DropReason::ManufacturerOpcode, 1)], "{op:#x}");
            }
            None => assert_eq!(reasons, [(DropReason::UnknownOpcode, 1)], "{op:#x}"),
            Some(opcode) if opcode.service() == Service::Manufacturer => {
                // Long enough for a hello only, which has another mark.
                let allowed = [DropReason::ForeignVendor, DropReason::Truncated];
                assert!(
                    matches!(reasons[..], [(reason, 1)] if allowed.contains(&reason)),
                    "{op:#x}: {reasons:?}"
                );
            }
            // It is what it was.
            Some(opcode)
                if (opcode.service(), opcode.operation())
                    == (Service::Rc, Operation::WriteOnly) =>
            {
                assert_eq!(counted.get(Counter::RxWriteRequests), 1);
                continue;
            }
            Some(opcode) => {
                // Dropped for one reason, or refused by a NAK, or one that needs no more than what
                // it got (an RNR NAK, a READ).
                let naks = counted.get(Counter::RespRemoteInvalidRequest)
                    + counted.get(Counter::RespRemoteAccessErrors)
                    + counted.get(Counter::SendRnrErr);
                let dropped: u64 = reasons.iter().map(|(_, count)| count).sum();
                let harmless = counted.get(Counter::RxReadRequests)
                    + counted.get(Counter::RxFlushRequests)
                    + counted.get(Counter::RpCnpIgnored);
                assert!(
                    naks + dropped + harmless >= 1 && dropped <= 1,
                    "{}: {counted:?}",
                    opcode.name()
                );
            }
        }
        target.assert_untouched();
    }
}

/// Headers below the transport that contradict themselves.
#[test]
fn bad_network_headers() {
    let mut target = Target::new();
    let frame = Target::packet(&target.good(), &[0x5a; 16]);
    let ip = 14;
    let change = |at: usize, xor: u8, fixes_checksum: bool| {
        let mut frame = frame.clone();
        frame[at] ^= xor;
        if fixes_checksum {
            frame[ip + 10..ip + 12].fill(0);
            let sum = frame[ip..ip + 20]
                .chunks(2)
                .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
                .sum::<u32>();
            let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
            frame[ip + 10..ip + 12].copy_from_slice(&folded.to_be_bytes());
        }
        frame
    };
    for (frame, reason) in [
        (change(ip, 0x20, true), DropReason::BadIpVersion),
        (change(ip, 0x03, true), DropReason::BadIpHeaderLength),
        (change(ip + 6, 0x20, true), DropReason::Fragmented),
        (change(ip + 10, 0x01, false), DropReason::BadIpChecksum),
        // The identification is covered by the ICRC, the header checksum put right.
        (change(ip + 5, 0x01, true), DropReason::BadIcrc),
        (change(ip + 20 + 5, 0x40, false), DropReason::BadLength),
    ] {
        target.dropped(frame, reason);
    }
    // A version of the transport header that does not exist.
    let mut ib = Target::ib(&target.good(), &[0x5a; 16]);
    ib[1] |= 1;
    target.dropped(Target::frame(gids(0)[0], &ib), DropReason::BadTver);
    // Another partition.
    let mut ib = Target::ib(&target.good(), &[0x5a; 16]);
    ib[2..4].copy_from_slice(&0x8001u16.to_be_bytes());
    target.dropped(Target::frame(gids(0)[0], &ib), DropReason::BadPkey);
    // A pad that is longer than what there is.
    let headers = target.with(
        Operation::WriteOnly,
        Ext::Reth(Reth {
            va: 0,
            rkey: Rkey::new(0),
            length: 0,
        }),
    );
    let mut ib = Target::ib(&headers, &[]);
    ib[1] |= 0x30;
    target.dropped(Target::frame(gids(0)[0], &ib), DropReason::BadPad);
    target.assert_alive();
}

/// With selective repeat, what is too far ahead is not kept.
#[test]
fn selective_repeat_keeps_only_what_it_has_room_for() {
    let mut target = Target::new();
    target.pair = Pair::on(
        testkit::Net::new(1),
        testkit::Link::default(),
        |config| config.recovery = hirail_rnic::RecoveryKind::SelectiveRepeat,
        Setup {
            mtu: PathMtu::Mtu1024,
            ..Setup::default()
        },
    );
    target.pair.b.memory.fill(0, &target.before);
    // Both find out that the other one repeats selectively.
    for node in [0, 1] {
        target.pair.net.settle(node);
    }
    target.pair.net.run_for(Span::from_us(100));
    target.counted = target.pair.b.device.counters().snapshot();
    let good = target.good();
    let expected: Psn = good.bth().psn;
    for ahead in [256, 257, 1 << 20, (1 << 23) - 1] {
        let packet = Target::packet(&good.with_psn(expected.add(ahead)), &[0x5a; 16]);
        target.dropped(packet, DropReason::ReorderPoolFull);
    }
    let packet = || Target::packet(&good.with_psn(expected.add(255)), &[0x5a; 16]);
    let counted = target.deliver(packet());
    assert!(drops(&counted).is_empty());
    assert_eq!(counted.get(Counter::SrHeldPackets), 1);
    target.dropped(packet(), DropReason::DuplicateHeld);
    target.assert_alive();
}

/// Datagrams with another queue key, and to queue pairs of another kind.
#[test]
fn of_another_service() {
    let mut target = Target::of(Setup::of(QpType::Uc));
    let packet = Target::packet(&target.good(), &[0x5a; 16]);
    target.dropped(packet, DropReason::WrongQpType);
    let mut target = Target::of(Setup::of(QpType::Ud));
    let packet = Target::packet(&target.good(), &[0x5a; 16]);
    target.dropped(packet, DropReason::WrongQpType);
}

/// Packets of every kind with arbitrary fields, right ICRC and plausible numbers, mixed with verbs, at
/// queue pairs of every type: nothing panics, nothing hangs, no request completes twice, and memory
/// that was never registered for the peer stays as it was.
#[test]
fn anything_at_all() {
    use hirail_wire::{
        Aeth, AtomicEth, Credits, Deth, Feth, FlushRange, Msn, NakCode, QKey, RnrTimer, Syndrome,
    };
    for seed in 0..300u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let qp_type = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend][seed as usize % 4];
        let setup = Setup {
            max_send_wr: 8,
            max_recv_wr: 8,
            with_srq: qp_type != QpType::XrcSend && rng.bool(),
            rnr_retry: 3,
            ..Setup::of(qp_type)
        };
        let recovery = [
            hirail_rnic::RecoveryKind::GoBackN,
            hirail_rnic::RecoveryKind::SelectiveRepeat,
        ][rng.usize(0..2)];
        let mut pair = Pair::on(
            testkit::Net::new(seed),
            testkit::Link::default(),
            |config| config.recovery = recovery,
            setup.clone(),
        );
        let secret = Memory::from(vec![0xa5; 4096]);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let device = pair.b.device.clone();
        let region = device
            .reg_mr(pair.b.pd, 0x50_0000, 4096, access, secret.clone())
            .unwrap();
        let mut completed = [0u64; 2];
        for step in 0..200 {
            match rng.u32(0..10) {
                0 => {
                    let sges = [pair.a.sge(0, rng.u32(0..3000))];
                    let wr = pair.wr(step, SendOp::Send, &sges);
                    let _ = pair.a.post_send(&mut pair.net, &wr);
                }
                1 if qp_type == QpType::Rc => {
                    let op = SendOp::Read {
                        va: BASE,
                        rkey: pair.b.rkey(),
                    };
                    let sges = [pair.a.sge(0, rng.u32(0..5000))];
                    let wr = pair.wr(step, op, &sges);
                    let _ = pair.a.post_send(&mut pair.net, &wr);
                }
                2 => {
                    let sges = [pair.b.sge(8192, rng.u32(0..4096))];
                    let _ = pair.b.try_post_recv(&mut pair.net, step, &sges);
                }
                3 => pair.net.run_for(Span::from_us(rng.u64(0..100))),
                _ => {
                    let node = rng.usize(0..2);
                    let [from, to] = [1 - node, node];
                    let target = [&pair.a, &pair.b][node];
                    let opcode = loop {
                        if let Some(opcode) = Opcode::from_u8(rng.u8(..)) {
                            break opcode;
                        }
                    };
                    let near = [pair.setup.psn_a, pair.setup.psn_b][rng.usize(0..2)];
                    let mut bth = Bth::new(opcode, target.qp.qpn, near.add(rng.u32(0..20)).sub(4));
                    bth.ack_req = rng.bool();
                    bth.solicited = rng.bool();
                    let key =
                        [target.rkey(), region.rkey(), Rkey::new(rng.u32(..))][rng.usize(0..3)];
                    let va = [BASE, 0x50_0000, rng.u64(..)][rng.usize(0..3)];
                    let reth = Reth {
                        va: va.wrapping_add(rng.u64(0..9)),
                        rkey: key,
                        length: [rng.u32(0..3000), rng.u32(..)][rng.usize(0..2)],
                    };
                    let syndrome = [
                        Syndrome::Ack(Credits::from_code(rng.u8(0..32))),
                        Syndrome::Nak(NakCode::from_code(rng.u8(0..5))),
                        Syndrome::Rnr(RnrTimer::new(rng.u8(1..10))),
                    ][rng.usize(0..3)];
                    let aeth = Aeth {
                        syndrome,
                        msn: Msn::new(rng.u32(0..20)),
                    };
                    let deth = Deth {
                        qkey: [pair.setup.qkey, QKey(rng.u32(..))][rng.usize(0..2)],
                        source_qp: Qpn::new(rng.u32(0..100)),
                    };
                    let feth = Feth {
                        range: [FlushRange::Range, FlushRange::WholeRegion][rng.usize(0..2)],
                        global: rng.bool(),
                        persistent: rng.bool(),
                    };
                    let all = [
                        Ext::None,
                        Ext::Imm([7; 4]),
                        Ext::Ieth(key),
                        Ext::Reth(reth),
                        Ext::RethImm(reth, [8; 4]),
                        Ext::Atomic(AtomicEth {
                            va: reth.va,
                            rkey: key,
                            swap_or_add: rng.u64(..),
                            compare: 0,
                        }),
                        Ext::Aeth(aeth),
                        Ext::AtomicAck(aeth, rng.u64(..)),
                        Ext::Deth(deth),
                        Ext::DethImm(deth, [9; 4]),
                        Ext::Flush(feth, reth),
                        Ext::Cnp,
                        Ext::Hello(hirail_wire::Hello {
                            version: rng.u8(0..3),
                            flags: rng.u8(0..4),
                            window_packets: rng.u16(..),
                            nonce: rng.u32(..),
                        }),
                        Ext::Sack(hirail_wire::Sack {
                            cumulative: near.add(rng.u32(0..20)).sub(4),
                            bitmap: [rng.u64(..), rng.u64(..), 0, 1],
                            response: rng.bool(),
                        }),
                    ];
                    let srq = opcode.has_xrceth().then(|| rng.u32(0..16));
                    let headers = all.into_iter().find_map(|ext| Headers::new(bth, srq, ext));
                    let headers = headers.expect("each opcode has its headers");
                    let len = if opcode.operation().has_payload() {
                        [0, 1, 8, 1024, rng.usize(0..1100)][rng.usize(0..5)]
                    } else {
                        0
                    };
                    let mut ib = Target::ib(&headers, &vec![rng.u8(..); len]);
                    ib[4] = rng.u8(..);
                    let frame = Target::between(gids(from)[0], gids(to)[0], &ib);
                    pair.net.inject(from, gids(to)[0], frame);
                }
            }
            for (end, last) in [&pair.a, &pair.b].into_iter().zip(&mut completed) {
                for cqe in end.poll_send() {
                    assert!(cqe.wr_id + 1 > *last, "seed {seed}: {} again", cqe.wr_id);
                    *last = cqe.wr_id + 1;
                }
                end.poll_recv();
            }
        }
        pair.run();
        assert!(
            secret.with(|bytes| bytes.iter().all(|byte| *byte == 0xa5)),
            "seed {seed}"
        );
    }
}
