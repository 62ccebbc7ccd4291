//! Every operation on every transport over a network that loses nothing: data, completions, events.

use hirail_rnic::cq::{Cqe, WcPayload};
use hirail_rnic::event::AsyncEvent;
use hirail_rnic::mr::{Access, BindMw, MwType};
use hirail_rnic::wr::Sge;
use hirail_rnic::{DeviceConfig, GRH_BYTES, SendData, SendFlags, SendOp, SendWr, VerbError};
use hirail_vocab::{Counter, DropReason, QpState, QpType, WcOpcode, WcStatus};
use hirail_wire::{Feth, FlushRange, Gid, QKey, Qpn, Rkey};
use testkit::endpoint::wr;
use testkit::{BASE, Endpoint, Link, Net, Pair, Setup};

const CONNECTED: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::XrcSend];
const RELIABLE: [QpType; 2] = [QpType::Rc, QpType::XrcSend];

/// Bytes that differ at most places and between seeds.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (seed * 89 + i * 31 + i / 251) as u8)
        .collect()
}

/// The one completion of a queue.
fn only(cqes: &[Cqe]) -> Cqe {
    assert_eq!(cqes.len(), 1, "{cqes:?}");
    cqes[0]
}

#[track_caller]
fn assert_ok(cqe: Cqe, wr_id: u64, opcode: WcOpcode, byte_len: u32) {
    assert_eq!(
        (cqe.wr_id, cqe.status, cqe.opcode, cqe.byte_len),
        (wr_id, WcStatus::Success, opcode, byte_len)
    );
}

/// Nothing was sent twice, nothing was dropped, nobody saw an error.
#[track_caller]
fn assert_undisturbed(pair: &Pair) {
    for end in [&pair.a, &pair.b] {
        let counters = end.device.counters();
        for counter in [
            Counter::RetransmittedPackets,
            Counter::PacketSeqErr,
            Counter::LocalAckTimeoutErr,
            Counter::DuplicateRequest,
            Counter::ImpliedNakSeqErr,
            Counter::RespCqeError,
            Counter::ReqCqeError,
        ] {
            assert_eq!(counters.get(counter), 0, "{counter} at {}", end.node);
        }
        for reason in DropReason::ALL {
            assert_eq!(
                counters.get(reason.counter()),
                0,
                "{reason} at {}",
                end.node
            );
        }
    }
}

#[test]
fn sends_of_every_size_on_every_transport_and_address_family() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend, QpType::Ud] {
        for gid_index in 0..3 {
            let mut pair = Pair::new(Setup {
                gid_index,
                ..Setup::of(qp_type)
            });
            let (sizes, grh): (&[usize], usize) = if qp_type == QpType::Ud {
                (&[0, 1, 2, 3, 4, 1000, 4096], GRH_BYTES as usize)
            } else {
                (&[0, 1, 2, 3, 4, 1023, 1024, 1025, 2048, 10_000], 0)
            };
            for &size in sizes {
                let data = pattern(size, size);
                pair.a.memory.fill(0, &data);
                pair.b.memory.fill(20_000, &[0xaa; 12_000]);
                pair.post_recv(9, 20_000, 12_000);
                pair.post(5, SendOp::Send, 0, size as u32);
                pair.run();
                assert_ok(only(&pair.a.poll_send()), 5, WcOpcode::Send, size as u32);
                let received = only(&pair.b.poll_recv());
                assert_ok(received, 9, WcOpcode::Recv, (size + grh) as u32);
                assert_eq!(received.payload, WcPayload::None);
                assert_eq!(received.qpn, pair.b.qp.qpn);
                assert_eq!(pair.b.memory.read(20_000 + grh, size), data);
                let beyond = pair.b.memory.read(20_000 + grh + size, 100);
                assert_eq!(beyond, [0xaa; 100], "{qp_type} {size}");
            }
            assert_undisturbed(&pair);
        }
    }
}

#[test]
fn immediate_data_and_solicited_arrive_with_the_message() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend, QpType::Ud] {
        let mut pair = Pair::new(Setup::of(qp_type));
        for (size, solicited) in [(0, false), (8, true), (800, true)] {
            pair.post_recv(1, 0, 4096);
            let sges = [pair.a.sge(0, size)];
            let wr = SendWr {
                flags: SendFlags {
                    signaled: true,
                    solicited,
                    ..SendFlags::default()
                },
                ..pair.wr(2, SendOp::SendImm([1, 2, 3, 4]), &sges)
            };
            pair.a.post_send(&mut pair.net, &wr).unwrap();
            pair.run();
            assert_ok(only(&pair.a.poll_send()), 2, WcOpcode::Send, size);
            let received = only(&pair.b.poll_recv());
            assert_eq!(received.payload, WcPayload::Imm([1, 2, 3, 4]));
            assert_eq!(received.solicited, solicited);
        }
    }
}

/// On a message of several packets the bit is on the last one.
#[test]
fn a_long_message_is_solicited_at_its_end() {
    for qp_type in CONNECTED {
        let mut pair = Pair::new(Setup::of(qp_type));
        pair.post_recv(1, 0, 9000);
        let sges = [pair.a.sge(0, 9000)];
        let wr = SendWr {
            flags: SendFlags {
                signaled: true,
                solicited: true,
                ..SendFlags::default()
            },
            ..pair.wr(2, SendOp::SendImm([9; 4]), &sges)
        };
        pair.a.post_send(&mut pair.net, &wr).unwrap();
        pair.run();
        let received = only(&pair.b.poll_recv());
        assert!(received.solicited);
        assert_eq!(received.payload, WcPayload::Imm([9; 4]));
    }
}

#[test]
fn writes_of_every_size_land_where_they_should_and_nowhere_else() {
    for qp_type in CONNECTED {
        for size in [0usize, 1, 3, 1023, 1024, 1025, 4096, 9999, 30_000] {
            let mut pair = Pair::new(Setup::of(qp_type));
            let data = pattern(size, size);
            pair.a.memory.fill(8, &data);
            let op = SendOp::Write {
                va: BASE + 10_001,
                rkey: pair.b.rkey(),
            };
            pair.post(3, op, 8, size as u32);
            pair.run();
            assert_ok(
                only(&pair.a.poll_send()),
                3,
                WcOpcode::RdmaWrite,
                size as u32,
            );
            let mut expected = vec![0; pair.b.memory.len()];
            expected[10_001..10_001 + size].copy_from_slice(&data);
            assert!(pair.b.memory.with(|bytes| bytes == expected), "{size}");
            assert!(pair.b.poll_recv().is_empty());
            assert_undisturbed(&pair);
        }
    }
}

#[test]
fn a_write_with_immediate_takes_a_receive_request_and_leaves_its_buffer_alone() {
    for qp_type in CONNECTED {
        for size in [0usize, 5, 1024, 5000] {
            let mut pair = Pair::new(Setup::of(qp_type));
            let data = pattern(1, size);
            pair.a.memory.fill(0, &data);
            pair.post_recv(77, 0, 16);
            let op = SendOp::WriteImm {
                va: BASE + 8192,
                rkey: pair.b.rkey(),
                imm: *b"imm!",
            };
            pair.post(3, op, 0, size as u32);
            pair.run();
            assert_ok(
                only(&pair.a.poll_send()),
                3,
                WcOpcode::RdmaWrite,
                size as u32,
            );
            let received = only(&pair.b.poll_recv());
            assert_ok(received, 77, WcOpcode::RecvRdmaWithImm, size as u32);
            assert_eq!(received.payload, WcPayload::Imm(*b"imm!"));
            assert_eq!(pair.b.memory.read(8192, size), data);
            assert_eq!(pair.b.memory.read(0, 16), [0; 16]);
            assert_undisturbed(&pair);
        }
    }
}

#[test]
fn reads_of_every_size_fetch_what_is_there() {
    for qp_type in RELIABLE {
        // Over 64 KiB a READ is asked for in pieces.
        for size in [0usize, 1, 2, 1024, 1025, 8000, 65_536, 65_537, 200_000] {
            let mut pair = Pair::new(Setup {
                memory: 512 << 10,
                ..Setup::of(qp_type)
            });
            let data = pattern(size, size);
            pair.b.memory.fill(1001, &data);
            let op = SendOp::Read {
                va: BASE + 1001,
                rkey: pair.b.rkey(),
            };
            pair.post(3, op, 4001, size as u32);
            pair.run();
            assert_ok(
                only(&pair.a.poll_send()),
                3,
                WcOpcode::RdmaRead,
                size as u32,
            );
            let mut expected = vec![0; pair.a.memory.len()];
            expected[4001..4001 + size].copy_from_slice(&data);
            assert!(pair.a.memory.with(|bytes| bytes == expected), "{size}");
            assert_undisturbed(&pair);
        }
    }
}

#[test]
fn atomics_return_the_word_before_and_change_it() {
    for qp_type in RELIABLE {
        let mut pair = Pair::new(Setup::of(qp_type));
        let rkey = pair.b.rkey();
        let va = BASE + 64;
        pair.b.memory.set_word(64, 40);
        pair.post(1, SendOp::FetchAdd { va, rkey, add: 2 }, 0, 8);
        let compare_swap = |compare, swap| SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        };
        pair.post(2, compare_swap(41, 1), 8, 8);
        pair.post(3, compare_swap(42, u64::MAX), 16, 8);
        pair.post(4, SendOp::FetchAdd { va, rkey, add: 2 }, 24, 8);
        pair.run();
        let sent = pair.a.poll_send();
        let opcodes = [
            WcOpcode::FetchAdd,
            WcOpcode::CompSwap,
            WcOpcode::CompSwap,
            WcOpcode::FetchAdd,
        ];
        assert_eq!(sent.len(), 4);
        for ((cqe, wr_id), opcode) in sent.into_iter().zip(1..).zip(opcodes) {
            assert_ok(cqe, wr_id, opcode, 8);
        }
        let before: Vec<_> = (0..4).map(|i| pair.a.memory.word(8 * i)).collect();
        assert_eq!(before, [40, 42, 42, u64::MAX]);
        assert_eq!(pair.b.memory.word(64), 1);
        assert_undisturbed(&pair);
    }
}

#[test]
fn atomic_write_stores_eight_bytes_and_flush_waits_for_them() {
    for qp_type in RELIABLE {
        let mut pair = Pair::new(Setup::of(qp_type));
        let rkey = pair.b.rkey();
        pair.a.memory.fill(0, b"8 bytes!");
        pair.post(
            1,
            SendOp::AtomicWrite {
                va: BASE + 16,
                rkey,
            },
            0,
            8,
        );
        for (wr_id, range, length) in [(2, FlushRange::Range, 8), (3, FlushRange::WholeRegion, 0)] {
            let flush = SendOp::Flush {
                va: BASE + 16,
                rkey,
                length,
                what: Feth {
                    range,
                    global: true,
                    persistent: wr_id == 3,
                },
            };
            let wr = pair.wr(wr_id, flush, &[]);
            pair.a.post_send(&mut pair.net, &wr).unwrap();
        }
        pair.run();
        let sent = pair.a.poll_send();
        assert_eq!(sent.len(), 3);
        assert_ok(sent[0], 1, WcOpcode::AtomicWrite, 8);
        assert_ok(sent[1], 2, WcOpcode::Flush, 0);
        assert_ok(sent[2], 3, WcOpcode::Flush, 0);
        assert_eq!(pair.b.memory.read(16, 8), b"8 bytes!");
        assert_eq!(pair.b.memory.flushes(), 2);
        assert_undisturbed(&pair);
    }
}

#[test]
fn inline_bytes_are_taken_when_posted_and_need_no_key() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend, QpType::Ud] {
        let mut pair = Pair::new(Setup::of(qp_type));
        let grh = if qp_type == QpType::Ud { 40 } else { 0 };
        for size in [0usize, 1, 100, 256] {
            let mut data = pattern(size, size);
            pair.post_recv(1, 0, 1024);
            let (first, second) = data.split_at(size / 3);
            let pieces = [first, &[], second];
            let wr = SendWr {
                data: SendData::Inline(&pieces),
                ..pair.wr(2, SendOp::Send, &[])
            };
            let posted = pair.a.device.post_send(pair.net.now(), &pair.a.qp, &wr);
            posted.unwrap();
            let expected = data.clone();
            data.fill(0xee);
            pair.net.settle(0);
            pair.run();
            assert_ok(only(&pair.a.poll_send()), 2, WcOpcode::Send, size as u32);
            only(&pair.b.poll_recv());
            assert_eq!(pair.b.memory.read(grh, size), expected);
        }
    }
}

#[test]
fn inline_writes_of_several_packets() {
    let mut pair = Pair::new(Setup {
        mtu: hirail_wire::PathMtu::Mtu256,
        max_inline: 1000,
        ..Setup::default()
    });
    let data = pattern(3, 1000);
    let op = SendOp::Write {
        va: BASE,
        rkey: pair.b.rkey(),
    };
    let wr = SendWr {
        data: SendData::Inline(&[&data]),
        ..pair.wr(2, op, &[])
    };
    pair.a.post_send(&mut pair.net, &wr).unwrap();
    pair.run();
    only(&pair.a.poll_send());
    assert_eq!(pair.b.memory.read(0, 1000), data);
}

/// Entries of no length anywhere, entries that end inside packets, more entries than packets.
#[test]
fn scatter_and_gather_lists_of_many_entries() {
    let lists: [&[u32]; 5] = [
        &[0, 1000, 0, 1000, 1, 0],
        &[1024, 1024, 1024],
        &[1, 1, 1, 1, 1, 1, 1, 1],
        &[0, 0, 5000, 0],
        &[3000, 7, 1017, 900],
    ];
    for qp_type in CONNECTED {
        for list in lists {
            for scatter in lists {
                let size: u32 = list.iter().sum();
                let room: u32 = scatter.iter().sum();
                if room < size {
                    continue;
                }
                let mut pair = Pair::new(Setup {
                    max_sge: 8,
                    ..Setup::of(qp_type)
                });
                let spread = |end: &Endpoint, list: &[u32]| -> Vec<Sge> {
                    let mut at = 0;
                    list.iter()
                        .map(|&length| {
                            let sge = end.sge(at, length);
                            at += u64::from(length) + 50;
                            sge
                        })
                        .collect()
                };
                let gather = spread(&pair.a, list);
                let data = pattern(7, size as usize);
                let mut at = 0;
                for sge in &gather {
                    let end = at + sge.length as usize;
                    pair.a
                        .memory
                        .fill((sge.addr - BASE) as usize, &data[at..end]);
                    at = end;
                }
                let into = spread(&pair.b, scatter);
                pair.b.try_post_recv(&mut pair.net, 4, &into).unwrap();
                let wr = pair.wr(5, SendOp::Send, &gather);
                pair.a.post_send(&mut pair.net, &wr).unwrap();
                pair.run();
                assert_ok(only(&pair.a.poll_send()), 5, WcOpcode::Send, size);
                assert_ok(only(&pair.b.poll_recv()), 4, WcOpcode::Recv, size);
                let mut received = Vec::new();
                for sge in &into {
                    let at = (sge.addr - BASE) as usize;
                    received.extend(pair.b.memory.read(at, sge.length as usize));
                }
                assert_eq!(received[..size as usize], data, "{list:?} {scatter:?}");
                assert_undisturbed(&pair);
            }
        }
    }
}

#[test]
fn a_read_scatters_its_responses() {
    let mut pair = Pair::new(Setup::default());
    let data = pattern(4, 5000);
    pair.b.memory.fill(0, &data);
    let sges = [
        pair.a.sge(0, 1500),
        pair.a.sge(40_000, 0),
        pair.a.sge(2000, 1),
        pair.a.sge(10_000, 3499),
    ];
    let op = SendOp::Read {
        va: BASE,
        rkey: pair.b.rkey(),
    };
    let wr = pair.wr(1, op, &sges);
    pair.a.post_send(&mut pair.net, &wr).unwrap();
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 1, WcOpcode::RdmaRead, 5000);
    assert_eq!(pair.a.memory.read(0, 1500), data[..1500]);
    assert_eq!(pair.a.memory.read(2000, 1), data[1500..1501]);
    assert_eq!(pair.a.memory.read(10_000, 3499), data[1501..]);
}

#[test]
fn only_signaled_requests_complete_unless_the_queue_says_all() {
    for sq_sig_all in [false, true] {
        let mut pair = Pair::new(Setup {
            sq_sig_all,
            ..Setup::default()
        });
        for wr_id in 0..6 {
            let sges = [pair.a.sge(0, 8)];
            let mut wr = pair.wr(
                wr_id,
                SendOp::Write {
                    va: BASE,
                    rkey: pair.b.rkey(),
                },
                &sges,
            );
            wr.flags.signaled = wr_id % 3 == 2;
            pair.a.post_send(&mut pair.net, &wr).unwrap();
        }
        pair.run();
        let ids: Vec<_> = pair.a.poll_send().iter().map(|cqe| cqe.wr_id).collect();
        let expected: &[u64] = if sq_sig_all {
            &[0, 1, 2, 3, 4, 5]
        } else {
            &[2, 5]
        };
        assert_eq!(ids, expected);
    }
}

/// A window is bound in the order of the send queue, used by the peer, and taken back by the
/// peer's SEND with invalidate.
#[test]
fn windows_are_bound_used_and_invalidated_from_afar() {
    let mut pair = Pair::new(Setup::default());
    let mut window = pair.b.device.alloc_mw(pair.b.pd, MwType::Type2).unwrap();
    for round in 0..3u8 {
        let bind = BindMw {
            window,
            new_key: Rkey::from_parts(window.index(), window.variant().wrapping_add(1)),
            region: pair.b.mr.lkey(),
            addr: BASE + 4096,
            length: 100,
            access: Access::REMOTE_WRITE,
        };
        window = bind.rkey();
        pair.b
            .post_send(&mut pair.net, &wr(1, SendOp::BindMw(bind), &[]))
            .unwrap();
        pair.run();
        assert_ok(only(&pair.b.poll_send()), 1, WcOpcode::BindMw, 0);

        pair.a.memory.fill(0, &[round + 1; 100]);
        let op = SendOp::Write {
            va: BASE + 4096,
            rkey: window,
        };
        pair.post(2, op, 0, 100);
        pair.post_recv(3, 0, 100);
        pair.post(4, SendOp::SendInv(window), 0, 10);
        pair.run();
        let sent = pair.a.poll_send();
        assert_ok(sent[0], 2, WcOpcode::RdmaWrite, 100);
        assert_ok(sent[1], 4, WcOpcode::Send, 10);
        let received = only(&pair.b.poll_recv());
        assert_ok(received, 3, WcOpcode::Recv, 10);
        assert_eq!(received.payload, WcPayload::Invalidated(window));
        assert_eq!(pair.b.memory.read(4096, 100), vec![round + 1; 100]);
    }
    // The key is dead now.
    let op = SendOp::Write {
        va: BASE + 4096,
        rkey: window,
    };
    pair.post(5, op, 0, 100);
    pair.run();
    assert_eq!(only(&pair.a.poll_send()).status, WcStatus::RemAccessErr);
    assert_eq!(pair.a.state(), QpState::Err);
    assert_eq!(pair.b.state(), QpState::Err);
}

#[test]
fn a_local_invalidate_waits_for_what_was_posted_before_it() {
    let mut pair = Pair::new(Setup::default());
    let window = pair.a.device.alloc_mw(pair.a.pd, MwType::Type2).unwrap();
    let bind = BindMw {
        window,
        new_key: window,
        region: pair.a.mr.lkey(),
        addr: BASE,
        length: 4096,
        access: Access::REMOTE_READ,
    };
    let key = bind.rkey();
    let write = SendOp::Write {
        va: BASE,
        rkey: pair.b.rkey(),
    };
    for (wr_id, op, length) in [
        (1, SendOp::BindMw(bind), 0),
        (2, write, 5000),
        (3, SendOp::LocalInv(key), 0),
        (4, write, 5000),
    ] {
        let sges = [pair.a.sge(0, length)];
        let sges = if length == 0 { &[][..] } else { &sges };
        pair.a
            .post_send(&mut pair.net, &wr(wr_id, op, sges))
            .unwrap();
    }
    let done_at = |pair: &mut Pair| {
        let mut done = Vec::new();
        while pair.net.step().is_some() {
            for cqe in pair.a.poll_send() {
                done.push((cqe.wr_id, cqe.opcode, cqe.status, pair.net.now()));
            }
        }
        done
    };
    let bound = only(&pair.a.poll_send());
    assert_ok(bound, 1, WcOpcode::BindMw, 0);
    let done = done_at(&mut pair);
    let order: Vec<_> = done.iter().map(|done| (done.0, done.1, done.2)).collect();
    assert_eq!(
        order,
        [
            (2, WcOpcode::RdmaWrite, WcStatus::Success),
            (3, WcOpcode::LocalInv, WcStatus::Success),
            (4, WcOpcode::RdmaWrite, WcStatus::Success),
        ]
    );
    assert_eq!(
        done[0].3, done[1].3,
        "it is done when the WRITE before it is"
    );
    assert!(done[2].3 > done[1].3);
    // Invalidated: the peer cannot use it.
    let read = SendOp::Read {
        va: BASE,
        rkey: key,
    };
    pair.b.post(&mut pair.net, 9, read, 0, 8);
    pair.run();
    assert_eq!(only(&pair.b.poll_send()).status, WcStatus::RemAccessErr);
}

/// The third queue pair's messages take requests from the same queue; the limit is reported once.
#[test]
fn a_shared_receive_queue_serves_several_queue_pairs() {
    let setup = Setup {
        with_srq: true,
        ..Setup::default()
    };
    let mut pair = Pair::new(setup);
    let srq = pair.b.srq.clone().unwrap();
    for wr_id in 0..8 {
        pair.post_recv(wr_id, wr_id * 1000, 1000);
    }
    srq.lock().arm_limit(7).unwrap();
    for wr_id in 0..4 {
        pair.a.memory.fill(0, &[wr_id as u8 + 1; 700]);
        pair.post(wr_id, SendOp::Send, 0, 700);
        pair.run();
        assert_ok(only(&pair.a.poll_send()), wr_id, WcOpcode::Send, 700);
        assert_ok(only(&pair.b.poll_recv()), wr_id, WcOpcode::Recv, 700);
        let at = wr_id as usize * 1000;
        assert_eq!(pair.b.memory.read(at, 700), vec![wr_id as u8 + 1; 700]);
    }
    let events: Vec<_> = core::iter::from_fn(|| pair.net.next_event(1)).collect();
    assert_eq!(events, [AsyncEvent::SrqLimitReached(srq.id)]);
    assert_eq!(srq.lock().len(), 4);
    assert_undisturbed(&pair);
}

#[test]
fn a_send_waits_for_a_receive_request() {
    for with_srq in [false, true] {
        let mut pair = Pair::new(Setup {
            with_srq,
            ..Setup::default()
        });
        pair.a.memory.fill(0, b"patience");
        pair.post(1, SendOp::Send, 0, 8);
        pair.net.run_for(hirail_rnic::Span::from_us(200));
        assert!(pair.a.poll_send().is_empty());
        assert!(pair.b.device.counters().get(Counter::SendRnrErr) > 3);
        pair.post_recv(2, 0, 8);
        pair.run();
        assert_ok(only(&pair.a.poll_send()), 1, WcOpcode::Send, 8);
        assert_ok(only(&pair.b.poll_recv()), 2, WcOpcode::Recv, 8);
        assert_eq!(pair.b.memory.read(0, 8), b"patience");
    }
}

#[test]
fn the_first_message_in_rtr_is_told() {
    let mut net = Net::new(1);
    for _ in 0..2 {
        net.add(Link::default(), DeviceConfig::default());
    }
    let setup = Setup::default();
    let a = Endpoint::new(&net, 0, &setup, false);
    let b = Endpoint::new(&net, 1, &setup, false);
    a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
    b.to_rtr(&net, &setup, &a, setup.psn_a);
    b.post_recv(&mut net, 1, 0, 8);
    for wr_id in 0..2 {
        a.post(&mut net, wr_id, SendOp::Send, 0, 8);
        net.run_for(hirail_rnic::Span::from_us(100));
    }
    assert_eq!(net.next_event(1), Some(AsyncEvent::CommEst(b.qp.qpn)));
    assert_eq!(net.next_event(1), None);
    assert_ok(only(&a.poll_send()), 0, WcOpcode::Send, 8);
}

#[test]
fn a_datagram_brings_its_network_header_and_sender() {
    for gid_index in 0..3 {
        let mut pair = Pair::new(Setup {
            gid_index,
            sl: 5,
            ..Setup::of(QpType::Ud)
        });
        pair.a.memory.fill(0, b"hello");
        pair.post_recv(1, 0, 100);
        pair.post(2, SendOp::SendImm(*b"imm!"), 0, 5);
        pair.run();
        let received = only(&pair.b.poll_recv());
        assert_ok(received, 1, WcOpcode::Recv, 45);
        assert!(received.grh);
        assert_eq!(received.grh_is_ipv4, gid_index == 0);
        assert_eq!((received.src_qp, received.sl), (pair.a.qp.qpn, 5));
        assert_eq!(received.payload, WcPayload::Imm(*b"imm!"));
        assert_eq!(pair.b.memory.read(40, 5), b"hello");
        let grh = pair.b.memory.read(0, 40);
        let [source, dest] = [0, 1].map(|node| testkit::net::gids(node)[usize::from(gid_index)]);
        if gid_index == 0 {
            assert_eq!(grh[..20], [0; 20]);
            assert_eq!(grh[20], 0x45);
            assert_eq!((grh[28], grh[29]), (64, 17));
            assert_eq!(grh[32..36], source.0[12..]);
            assert_eq!(grh[36..], dest.0[12..]);
            // UDP header, BTH, DETH, immediate, payload and pad, ICRC.
            let len = u16::from_be_bytes([grh[22], grh[23]]);
            assert_eq!(usize::from(len), 20 + 8 + 12 + 8 + 4 + 8 + 4);
        } else {
            assert_eq!(grh[0] >> 4, 6);
            assert_eq!(grh[6], if gid_index == 2 { 0x1b } else { 17 });
            assert_eq!(grh[8..24], source.0);
            assert_eq!(grh[24..], dest.0);
        }
    }
}

#[test]
fn datagrams_with_a_wrong_key_or_no_buffer_vanish_and_succeed() {
    let mut pair = Pair::new(Setup::of(QpType::Ud));
    let counters = |pair: &Pair, reason: DropReason| pair.b.device.counters().get(reason.counter());
    pair.post(1, SendOp::Send, 0, 10);
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 1, WcOpcode::Send, 10);
    assert_eq!(counters(&pair, DropReason::UdNoReceiveWqe), 1);

    pair.post_recv(1, 0, 49);
    pair.post(2, SendOp::Send, 0, 10);
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 2, WcOpcode::Send, 10);
    assert_eq!(counters(&pair, DropReason::UdTooLong), 1);
    assert!(pair.b.poll_recv().is_empty());

    let sges = [pair.a.sge(0, 9)];
    let mut wr = pair.wr(3, SendOp::Send, &sges);
    let mut destination = wr.ud.unwrap();
    destination.qkey = QKey(0x7777);
    wr.ud = Some(destination);
    pair.a.post_send(&mut pair.net, &wr).unwrap();
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 3, WcOpcode::Send, 9);
    assert_eq!(counters(&pair, DropReason::BadQkey), 1);

    // The buffer that was too small is still there; a controlled key stands for one's own.
    destination.qkey = QKey(0x8000_0000);
    wr.ud = Some(destination);
    pair.a.post_send(&mut pair.net, &wr).unwrap();
    pair.run();
    assert_ok(only(&pair.b.poll_recv()), 1, WcOpcode::Recv, 49);
}

#[test]
fn a_datagram_beyond_the_port_mtu_stops_the_send_queue_only() {
    let mut pair = Pair::new(Setup::of(QpType::Ud));
    pair.post_recv(1, 0, 5000);
    pair.post(1, SendOp::Send, 0, 4097);
    pair.post(2, SendOp::Send, 0, 10);
    pair.run();
    let sent = pair.a.poll_send();
    assert_eq!(
        sent.iter()
            .map(|cqe| (cqe.wr_id, cqe.status))
            .collect::<Vec<_>>(),
        [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(pair.a.state(), QpState::Sqe);
    // It still receives, and goes on sending after RTS.
    pair.a.post_recv(&mut pair.net, 4, 0, 100);
    let to_a = SendWr {
        ud: Some(pair.a.as_destination(&pair.setup)),
        ..wr(5, SendOp::Send, &[])
    };
    pair.b.post_send(&mut pair.net, &to_a).unwrap();
    pair.run();
    assert_ok(only(&pair.a.poll_recv()), 4, WcOpcode::Recv, 40);
    pair.a.to_state(&mut pair.net, QpState::Rts);
    pair.post(6, SendOp::Send, 0, 10);
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 6, WcOpcode::Send, 10);
    assert_ok(only(&pair.b.poll_recv()), 1, WcOpcode::Recv, 50);
}

#[test]
fn a_multicast_datagram_reaches_every_member_with_the_right_key() {
    let setup = Setup::of(QpType::Ud);
    let mut net = Net::new(1);
    let ends: Vec<_> = (0..4)
        .map(|_| {
            let node = net.add(Link::default(), DeviceConfig::default());
            let end = Endpoint::new(&net, node, &setup, false);
            end.connect(&net, &setup, &end, setup.psn_b, setup.psn_a);
            end
        })
        .collect();
    // A second member on node 2, without a buffer.
    let second = Endpoint::new(&net, 2, &setup, false);
    second.connect(&net, &setup, &second, setup.psn_b, setup.psn_a);
    let group = Gid::from(core::net::Ipv4Addr::new(239, 1, 2, 3));
    for end in [&ends[1], &ends[2], &second] {
        let _is_first = end.device.attach_mcast(&end.qp, group).unwrap();
    }
    for end in &ends {
        end.post_recv(&mut net, 1, 0, 100);
    }
    let mut destination = ends[1].as_destination(&setup);
    destination.av.dgid = group;
    destination.qpn = Qpn::MULTICAST;
    ends[0].memory.fill(0, b"to all");
    let sges = [ends[0].sge(0, 6)];
    let send = SendWr {
        ud: Some(destination),
        ..wr(2, SendOp::Send, &sges)
    };
    ends[0].post_send(&mut net, &send).unwrap();
    net.run();
    for end in &ends[1..3] {
        assert_ok(only(&end.poll_recv()), 1, WcOpcode::Recv, 46);
        assert_eq!(end.memory.read(40, 6), b"to all");
    }
    assert!(ends[0].poll_recv().is_empty() && ends[3].poll_recv().is_empty());
    let dropped =
        |node: usize, reason: DropReason| ends[node].device.counters().get(reason.counter());
    assert_eq!(dropped(2, DropReason::UdNoReceiveWqe), 1);
    assert_eq!(dropped(3, DropReason::MulticastNoMember), 1);
    // An attached QP cannot be destroyed.
    let busy = ends[1].device.destroy_qp(net.now(), &ends[1].qp);
    assert!(matches!(busy, Err(VerbError::Busy { .. })));
}

#[test]
fn qp1_is_a_datagram_queue_pair_of_fixed_number() {
    let setup = Setup {
        qkey: QKey::GSI,
        ..Setup::of(QpType::Gsi)
    };
    let mut net = Net::new(1);
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let node = net.add(Link::default(), DeviceConfig::default());
            let end = Endpoint::new(&net, node, &setup, false);
            assert_eq!(end.qp.qpn, Qpn::GSI);
            end.modify(
                &net,
                hirail_rnic::qp::attr::AttrMask::STATE
                    | hirail_rnic::qp::attr::AttrMask::PKEY_INDEX
                    | hirail_rnic::qp::attr::AttrMask::QKEY,
                |attr| {
                    attr.qp_state = QpState::Init;
                    attr.qkey = QKey::GSI;
                },
            );
            end.to_state(&mut net, QpState::Rtr);
            end.to_rts(&net, &setup, setup.psn_a);
            end
        })
        .collect();
    ends[1].post_recv(&mut net, 1, 0, 300);
    let sges = [ends[0].sge(0, 256)];
    let send = SendWr {
        ud: Some(ends[1].as_destination(&setup)),
        ..wr(2, SendOp::Send, &sges)
    };
    ends[0].post_send(&mut net, &send).unwrap();
    net.run();
    let received = only(&ends[1].poll_recv());
    assert_ok(received, 1, WcOpcode::Recv, 296);
    assert_eq!(received.src_qp, Qpn::GSI);
}

/// One connection reaches every SRQ of the domain.
#[test]
fn an_xrc_request_names_its_receive_queue() {
    let mut pair = Pair::new(Setup::of(QpType::XrcSend));
    let second_cq = pair.b.device.create_cq(16).unwrap();
    let domain = pair.b.srq.as_ref().unwrap().xrc.as_ref().unwrap().domain;
    let second = pair
        .b
        .device
        .create_srq(hirail_rnic::SrqInit {
            pd: pair.b.pd,
            max_wr: 4,
            max_sge: 1,
            xrc: Some(hirail_rnic::XrcHalf {
                domain,
                cq: second_cq.clone(),
            }),
        })
        .unwrap();
    pair.post_recv(1, 0, 10);
    second.lock().post(2, &[pair.b.sge(100, 10)]).unwrap();
    let sges = [pair.a.sge(0, 10)];
    pair.a.memory.fill(0, b"to the 2nd");
    let wr = SendWr {
        xrc_srqn: second.id.0,
        ..pair.wr(3, SendOp::Send, &sges)
    };
    pair.a.post_send(&mut pair.net, &wr).unwrap();
    pair.run();
    assert_ok(only(&pair.a.poll_send()), 3, WcOpcode::Send, 10);
    assert!(pair.b.poll_recv().is_empty());
    let received = second_cq.lock().pop().unwrap();
    assert_ok(received, 2, WcOpcode::Recv, 10);
    assert_eq!(pair.b.memory.read(100, 10), b"to the 2nd");
    // The other one is still there for a request that names it.
    pair.post(4, SendOp::Send, 0, 10);
    pair.run();
    assert_ok(only(&pair.b.poll_recv()), 1, WcOpcode::Recv, 10);
    assert_undisturbed(&pair);
}

/// Many messages back to back: the window, acknowledgements and queues keep the data flowing.
#[test]
fn a_stream_of_messages_keeps_its_order() {
    for qp_type in CONNECTED {
        let mut pair = Pair::new(Setup {
            memory: 1 << 20,
            ..Setup::of(qp_type)
        });
        for round in 0..10u64 {
            for i in 0..64u64 {
                let at = i * 4000;
                pair.a
                    .memory
                    .fill(at as usize, &pattern((round * 64 + i) as usize, 4000));
                pair.post_recv(i, at, 4000);
            }
            for i in 0..64u64 {
                pair.post(i, SendOp::Send, i * 4000, 4000);
            }
            pair.run();
            let sent: Vec<_> = pair.a.poll_send().iter().map(|cqe| cqe.wr_id).collect();
            assert!(sent.into_iter().eq(0..64));
            for (cqe, i) in pair.b.poll_recv().into_iter().zip(0..64) {
                assert_ok(cqe, i, WcOpcode::Recv, 4000);
            }
            assert!(pair.a.memory.with(|sent| {
                pair.b
                    .memory
                    .with(|received| sent[..64 * 4000] == received[..64 * 4000])
            }));
        }
        assert_undisturbed(&pair);
    }
}
