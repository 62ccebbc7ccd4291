//! Traces of a queue pair's life: connecting, draining, failing, starting over. Rules: IBTA
//! Vol 1, chapter 10 (Software Transport Interface).

use expect_test::expect;
use hirail_rnic::qp::attr::AttrMask;
use hirail_rnic::transmit::{Budget, Class, OpenClasses, Run};
use hirail_rnic::{
    DeviceConfig, Instant, SendFlags, SendOp, SendWr, Span, VerbError, WindowConfig,
};
use hirail_vocab::{QpState, QpType, WcStatus};
use hirail_wire::{AckTimeout, NakCode, Operation as Op};
use testkit::endpoint::wr;
use testkit::script::{Script, ack, check, nak, rc, read_from, response, rnr, write_to};
use testkit::{Endpoint, Link, Net, Pair, Setup};

fn drain_with_event(s: &mut Script) {
    s.note("modify to SQD, tell when drained");
    s.set(AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY, |attr| {
        attr.qp_state = QpState::Sqd;
        attr.en_sqd_async_notify = true;
    });
}

/// SQD finishes what was started, also by sending it again, starts nothing new and answers requests.
#[test]
fn draining_finishes_what_was_started() {
    let mut s = Script::rc();
    s.link_takes(1)
        .post(1, SendOp::Send, 10)
        .post(2, write_to(0), 2000);
    s.link_takes(1).note("half of wr 2 is out");
    drain_with_event(&mut s);
    s.post(3, SendOp::Send, 10)
        .link_takes(usize::MAX)
        .recv(nak(101, NakCode::PsnSequenceError, 1))
        .recv(rc(Op::ReadRequest, 500).ack().reth(0, 8));
    let refused = s.end.device.modify_qp(
        s.now(),
        &s.end.qp,
        &hirail_rnic::qp::attr::QpAttr {
            qp_state: QpState::Rts,
            ..Default::default()
        },
        AttrMask::STATE,
    );
    assert!(refused.is_err(), "not while draining");
    s.recv(ack(102, 2)).show_state();
    s.modify(QpState::Rts);
    s.recv(ack(103, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  WRITE wr 2, 2000 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 2000 : 1024
        0.000     the link takes 1 of 2
        0.000     -- half of wr 2 is out
        0.000     -- modify to SQD, tell when drained
        0.000     post  SEND wr 3, 10 bytes
        0.000     -> RDMA WRITE Last psn 102 ack : 976
        0.000     <- NAK psn 101 PsnSequenceError msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 2000 : 1024
        0.000     -> RDMA WRITE Last psn 102 ack : 976
        0.000     <- RDMA READ Request psn 500 ack va+0 len 8
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1 : 8
        0.000     <- ACK psn 102 msn 2
        0.000     send  wr 2 SUCCESS RDMA_WRITE 2000 bytes
        0.000     event SQ_DRAINED
        0.000     state SQD
        0.000     modify to RTS
        0.000     -> SEND Only psn 103 ack : 10
        0.000     <- ACK psn 103 msn 3
        0.000     send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// Started means its first packet is out: a message that is acknowledged up to where it stopped is
/// not done.
#[test]
fn half_a_message_is_not_drained() {
    let mut s = Script::rc();
    s.link_takes(1).post(1, write_to(0), 2000).recv(ack(100, 0));
    drain_with_event(&mut s);
    s.note("not drained yet").link_takes(1).recv(ack(101, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 2000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 2000 : 1024
        0.000     the link takes 1 of 2
        0.000     <- ACK psn 100 msn 0
        0.000     -- modify to SQD, tell when drained
        0.000     -- not drained yet
        0.000     -> RDMA WRITE Last psn 101 ack : 976
        0.000     <- ACK psn 101 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 2000 bytes
        0.000     event SQ_DRAINED
    "#]],
    );
}

/// Nothing was started: drained at once. Local operations are not started either.
#[test]
fn an_idle_queue_is_drained_at_once() {
    let mut s = Script::rc();
    drain_with_event(&mut s);
    let window = s
        .end
        .device
        .alloc_mw(s.end.pd, hirail_rnic::mr::MwType::Type2)
        .unwrap();
    let bind = hirail_rnic::mr::BindMw {
        window,
        new_key: window,
        region: s.end.mr.lkey(),
        addr: testkit::BASE,
        length: 8,
        access: hirail_rnic::mr::Access::REMOTE_READ,
    };
    s.post(1, SendOp::BindMw(bind), 0).note("waits for RTS");
    s.modify(QpState::Rts);
    check(
        &mut s,
        &expect![[r#"
        0.000     -- modify to SQD, tell when drained
        0.000     event SQ_DRAINED
        0.000     post  BIND_MW wr 1, 0 bytes
        0.000     -- waits for RTS
        0.000     modify to RTS
        0.000     send  wr 1 SUCCESS BIND_MW 0 bytes
    "#]],
    );
}

#[test]
fn an_unreliable_queue_is_drained_when_its_message_is_out() {
    let mut s = Script::new(Setup::of(QpType::Uc), |_| ());
    s.link_takes(1).post(1, write_to(0), 3000);
    drain_with_event(&mut s);
    s.post(2, write_to(0), 10)
        .link_takes(1)
        .link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 3000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 3000 : 1024
        0.000     the link takes 1 of 3
        0.000     -- modify to SQD, tell when drained
        0.000     post  WRITE wr 2, 10 bytes
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     the link takes 1 of 2
        0.000     -> RDMA WRITE Last psn 102 : 952
        0.000     send  wr 1 SUCCESS RDMA_WRITE 3000 bytes
        0.000     event SQ_DRAINED
    "#]],
    );
}

/// To ERR: everything is flushed, each queue in its order; what is posted later too.
#[test]
fn error_flushes_both_queues_in_order() {
    let mut s = Script::new(
        Setup {
            sq_sig_all: false,
            ..Setup::default()
        },
        |_| (),
    );
    s.post_recv(11, 2000).post_recv(12, 10);
    let quiet = |wr_id| SendWr {
        flags: SendFlags::default(),
        ..wr(wr_id, SendOp::Send, &[])
    };
    s.post_wr(&quiet(1))
        .post_wr(&quiet(2))
        .post(3, read_from(0), 8);
    s.recv(rc(Op::SendFirst, 500).bytes(1024))
        .note("wr 11 is in use");
    s.modify(QpState::Err);
    s.post_recv(13, 10).post(4, SendOp::Send, 10).wait(1000.0);
    s.recv(ack(100, 1)).recv(rc(Op::SendLast, 501).bytes(1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 11, 2000 bytes
        0.000     post  RECV wr 12, 10 bytes
        0.000     post  SEND wr 1, 0 bytes
        0.000     -> SEND Only psn 100 ack
        0.000     post  SEND wr 2, 0 bytes
        0.000     -> SEND Only psn 101 ack
        0.000     post  READ wr 3, 8 bytes
        0.000     -> RDMA READ Request psn 102 ack va+0 len 8
        0.000     <- SEND First psn 500 : 1024
        0.000     -- wr 11 is in use
        0.000     modify to ERR
        0.000     send  wr 1 WR_FLUSH_ERR
        0.000     send  wr 2 WR_FLUSH_ERR
        0.000     send  wr 3 WR_FLUSH_ERR
        0.000     recv  wr 11 WR_FLUSH_ERR
        0.000     recv  wr 12 WR_FLUSH_ERR
        0.000     post  RECV wr 13, 10 bytes
        0.000     recv  wr 13 WR_FLUSH_ERR
        0.000     post  SEND wr 4, 10 bytes
        0.000     send  wr 4 WR_FLUSH_ERR
        1000.000  <- ACK psn 100 msn 1
        1000.000  dropped: wrong_qp_state
        1000.000  <- SEND Last psn 501 : 1
        1000.000  dropped: wrong_qp_state
    "#]],
    );
}

/// A shared queue keeps its requests; only the one in use is flushed, and the end is told once.
#[test]
fn error_with_a_shared_queue_tells_the_last_request() {
    let mut s = Script::new(
        Setup {
            with_srq: true,
            ..Setup::default()
        },
        |_| (),
    );
    s.post_recv(11, 2000).post_recv(12, 10);
    s.recv(rc(Op::SendFirst, 500).bytes(1024));
    s.modify(QpState::Err);
    s.modify(QpState::Err);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 11, 2000 bytes
        0.000     post  RECV wr 12, 10 bytes
        0.000     <- SEND First psn 500 : 1024
        0.000     modify to ERR
        0.000     recv  wr 11 WR_FLUSH_ERR
        0.000     event QP_LAST_WQE_REACHED
        0.000     modify to ERR
    "#]],
    );
    assert_eq!(s.end.srq.as_ref().unwrap().lock().len(), 1);
}

/// To RESET: both queues are emptied without a word, timers and retries are gone, numbering starts
/// anew.
#[test]
fn reset_empties_everything() {
    let mut s = Script::rc();
    s.post_recv(11, 2000);
    s.post(1, SendOp::Send, 10)
        .post(2, read_from(0), 8)
        .recv(rnr(100, 10, 0))
        .recv(rc(Op::SendFirst, 500).bytes(1024));
    s.modify(QpState::Reset);
    s.wait(1000.0).recv(rc(Op::SendLast, 501).bytes(1));
    s.note("connected again");
    s.to_rtr();
    s.to_rts();
    s.post_recv(12, 2000)
        .post(3, SendOp::Send, 10)
        .recv(rc(Op::SendOnly, 500).ack().bytes(3))
        .recv(ack(100, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 11, 2000 bytes
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  READ wr 2, 8 bytes
        0.000     -> RDMA READ Request psn 101 ack va+0 len 8
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     <- SEND First psn 500 : 1024
        0.000     modify to RESET
        1000.000  <- SEND Last psn 501 : 1
        1000.000  dropped: wrong_qp_state
        1000.000  -- connected again
        1000.000  post  RECV wr 12, 2000 bytes
        1000.000  post  SEND wr 3, 10 bytes
        1000.000  -> SEND Only psn 100 ack : 10
        1000.000  <- SEND Only psn 500 ack : 3
        1000.000  recv  wr 12 SUCCESS RECV 3 bytes
        1000.000  -> ACK psn 500 credits 0 msn 1
        1000.000  <- ACK psn 100 msn 1
        1000.000  send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// What each state takes.
#[test]
fn states_take_what_the_table_says() {
    let mut s = Script::in_reset(Setup::default(), |_| ());
    let sges = [s.end.sge(0, 8)];
    let device = s.end.device.clone();
    let qp = s.end.qp.clone();
    let send = |now| device.post_send(now, &qp, &wr(1, SendOp::Send, &sges));
    let recv = |now| device.post_recv(now, &qp, 2, &sges);
    let refused =
        |result: Result<(), VerbError>| matches!(result, Err(VerbError::WrongState { .. }));
    assert!(refused(send(s.now())) && refused(recv(s.now())));
    s.recv(rc(Op::SendOnly, 500).bytes(1));
    s.to_rtr();
    assert!(refused(send(s.now())) && recv(s.now()).is_ok());
    s.recv(ack(100, 1))
        .recv(rc(Op::SendOnly, 500).ack().bytes(1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 : 1
        0.000     dropped: wrong_qp_state
        0.000     <- ACK psn 100 msn 1
        0.000     dropped: wrong_qp_state
        0.000     <- SEND Only psn 500 ack : 1
        0.000     recv  wr 2 SUCCESS RECV 1 bytes
        0.000     event COMM_EST
        0.000     -> ACK psn 500 credits 0 msn 1
    "#]],
    );
}

/// The passive side of a connection whose last handshake message was lost.
#[test]
fn the_first_request_in_rtr_is_told_once() {
    let mut s = Script::in_reset(Setup::default(), |_| ());
    s.to_rtr();
    s.recv(rc(Op::WriteOnly, 500).ack().reth(0, 8).bytes(8))
        .recv(rc(Op::WriteOnly, 501).ack().reth(0, 8).bytes(8));
    s.to_rts();
    s.post(1, SendOp::Send, 1);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 8 : 8
        0.000     event COMM_EST
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 8 : 8
        0.000     -> ACK psn 501 credits 0 msn 2
        0.000     post  SEND wr 1, 1 bytes
        0.000     -> SEND Only psn 100 ack : 1
    "#]],
    );
}

/// A run that was offered and then voided (by RESET, ERR or DESTROY) does nothing when the link
/// reports it.
#[test]
fn a_run_outlives_what_it_was_offered_for() {
    for fate in 0..3 {
        let mut net = Net::new(1);
        let node = net.add(Link::default(), Default::default());
        net.add(Link::default(), Default::default());
        let setup = Setup::default();
        let a = Endpoint::new(&net, node, &setup, false);
        let b = Endpoint::new(&net, 1, &setup, false);
        a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
        let sges = [a.sge(0, 3000)];
        a.device
            .post_send(net.now(), &a.qp, &wr(1, SendOp::Send, &sges))
            .unwrap();
        let mut run = Run::new();
        let budget = Budget {
            packets: 8,
            bytes: 1 << 16,
        };
        assert!(
            a.device
                .poll_transmit(net.now(), OpenClasses::ALL, budget, &mut run)
        );
        match fate {
            0 => a.modify(&net, AttrMask::STATE, |attr| attr.qp_state = QpState::Err),
            1 => a.modify(&net, AttrMask::STATE, |attr| attr.qp_state = QpState::Reset),
            _ => a.device.destroy_qp(net.now(), &a.qp).unwrap(),
        }
        if fate == 1 {
            a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
        }
        a.device.sent(net.now(), &mut run, 3);
        assert_eq!(a.poll_send().len(), usize::from(fate == 0));
        let again = a
            .device
            .poll_transmit(net.now(), OpenClasses::ALL, budget, &mut run);
        assert!(!again, "nothing is left to send");
        assert!(a.device.poll_timer().is_none());
    }
}

/// A QP that waits for the window and is reset meanwhile can send again after it is connected anew,
/// whoever else uses the window.
#[test]
fn a_reset_qp_does_not_wait_for_its_old_window() {
    let setup = Setup::default();
    let mut net = Net::new(1);
    for _ in 0..2 {
        let config = DeviceConfig {
            window: WindowConfig {
                initial: 3000,
                minimum: 3000,
                maximum: 3000,
                ..WindowConfig::default()
            },
            ..Default::default()
        };
        net.add(
            Link {
                delay: Span::from_ms(1),
                ..Link::default()
            },
            config,
        );
    }
    let ends: Vec<_> = [0, 1, 0, 1]
        .into_iter()
        .map(|node| Endpoint::new(&net, node, &setup, false))
        .collect();
    for (a, b) in [(0, 1), (2, 3)] {
        ends[a].connect(&net, &setup, &ends[b], setup.psn_b, setup.psn_a);
        ends[b].connect(&net, &setup, &ends[a], setup.psn_a, setup.psn_b);
    }
    let write = |end: &Endpoint| SendOp::Write {
        va: testkit::BASE,
        rkey: end.rkey(),
    };
    ends[0].post(&mut net, 1, write(&ends[1]), 0, 3000);
    ends[2].post(&mut net, 2, write(&ends[3]), 0, 3000);
    // Both are reset while the second waits; the window goes with the last of them.
    ends[2].to_state(&mut net, QpState::Reset);
    ends[0].to_state(&mut net, QpState::Reset);
    ends[3].to_state(&mut net, QpState::Reset);
    ends[2].connect(&net, &setup, &ends[3], setup.psn_b, setup.psn_a);
    ends[3].connect(&net, &setup, &ends[2], setup.psn_a, setup.psn_b);
    ends[2].post(&mut net, 3, write(&ends[3]), 0, 3000);
    net.run();
    let done: Vec<_> = ends[2].poll_send().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(done, [3]);
}

/// A completion queue that overruns takes its queue pairs with it, and says so.
#[test]
fn an_overrun_completion_queue_is_fatal() {
    let mut pair = Pair::new(Setup {
        cqe: 2,
        ..Setup::default()
    });
    for wr_id in 0..4 {
        let op = SendOp::Write {
            va: testkit::BASE,
            rkey: pair.b.rkey(),
        };
        pair.post(wr_id, op, 0, 8);
    }
    pair.run();
    assert_eq!(pair.a.state(), QpState::Err);
    let events: Vec<_> = core::iter::from_fn(|| pair.net.next_event(0))
        .map(|event| event.kind().name())
        .collect();
    assert_eq!(events, ["IBV_EVENT_CQ_ERR", "IBV_EVENT_QP_FATAL"]);
    let done: Vec<_> = pair.a.poll_send().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(done, [0, 1], "what it holds can still be polled");
}

/// Reattaching to the same number: late packets of the old connection do no harm. QPNs are reused
/// last.
#[test]
fn a_destroyed_number_is_reused_last() {
    let mut pair = Pair::new(Setup::default());
    let old = pair.b.qp.qpn;
    let device = pair.b.device.clone();
    device.destroy_qp(pair.net.now(), &pair.b.qp).unwrap();
    let new = Endpoint::new(&pair.net, 1, &pair.setup, false);
    assert_ne!(new.qp.qpn, old);
    pair.post(1, SendOp::Send, 0, 8);
    pair.run();
    let sent = pair.a.poll_send();
    assert_eq!(sent[0].status, WcStatus::RetryExcErr);
    assert_eq!(sent[0].vendor_err, hirail_rnic::qp::VENDOR_ERR_NEVER_HEARD);
}

/// The retry counters follow a change of attributes in SQD.
#[test]
fn attributes_may_change_while_drained() {
    let mut s = Script::new(
        Setup {
            timeout: AckTimeout::new(4),
            ..Setup::default()
        },
        |_| (),
    );
    s.modify(QpState::Sqd);
    s.set(AttrMask::RETRY_CNT | AttrMask::TIMEOUT, |attr| {
        attr.retry_cnt = 1;
        attr.timeout = AckTimeout::new(3);
    });
    s.modify(QpState::Rts);
    s.post(1, SendOp::Send, 1).wait(1000.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     modify to SQD
        0.000     modify to RTS
        0.000     post  SEND wr 1, 1 bytes
        0.000     -> SEND Only psn 100 ack : 1
        32.768    -> SEND Only psn 100 ack : 1
        65.536    send  wr 1 RETRY_EXC_ERR vendor_err 1
    "#]],
    );
}

/// Pairs of endpoints on two nodes that share a small window, each pair with a service level.
fn sharing(levels: &[u8], link: Link) -> (Net, Vec<[Endpoint; 2]>) {
    let mut net = Net::new(1);
    for _ in 0..2 {
        let window = WindowConfig {
            initial: 16 << 10,
            minimum: 16 << 10,
            maximum: 16 << 10,
            ..WindowConfig::default()
        };
        let config = DeviceConfig {
            window,
            ..DeviceConfig::default()
        };
        net.add(link, config);
    }
    let pairs = levels
        .iter()
        .map(|&sl| {
            let setup = Setup {
                memory: 256 << 10,
                sl,
                ..Setup::default()
            };
            let [a, b] = [0, 1].map(|node| Endpoint::new(&net, node, &setup, false));
            a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
            b.connect(&net, &setup, &a, setup.psn_a, setup.psn_b);
            [a, b]
        })
        .collect();
    (net, pairs)
}

fn write_of(pair: &[Endpoint; 2]) -> SendOp {
    SendOp::Write {
        va: testkit::BASE,
        rkey: pair[1].rkey(),
    }
}

/// Writers that never stop do not keep a READ from its turn, although its 64 KiB pieces are four
/// times what the window holds.
#[test]
fn a_read_gets_its_turn_among_writers() {
    let (mut net, pairs) = sharing(&[0; 6], Link::default());
    let (reader, writers) = pairs.split_first().unwrap();
    for writer in writers {
        for wr_id in 0..8 {
            writer[0].post(&mut net, wr_id, write_of(writer), 0, 3000);
        }
    }
    let read = SendOp::Read {
        va: testkit::BASE,
        rkey: reader[1].rkey(),
    };
    reader[0].post(&mut net, 1, read, 0, 256 << 10);
    let mut written = 0;
    let done = loop {
        net.step().expect("somebody is always sending");
        for writer in writers {
            for cqe in writer[0].poll_send() {
                written += 1;
                writer[0].post(&mut net, cqe.wr_id, write_of(writer), 0, 3000);
            }
        }
        if let [done] = reader[0].poll_send()[..] {
            break done;
        }
        assert!(
            net.now() < Instant::from_ns(5_000_000),
            "the READ waits, {written} WRITEs are done"
        );
    };
    assert_eq!(done.status, WcStatus::Success);
}

/// Each writer gets its share: none does less than half of what another does.
#[test]
fn writers_share_a_window_in_turn() {
    let (mut net, pairs) = sharing(&[0; 8], Link::default());
    let mut written = [0u32; 8];
    for pair in &pairs {
        pair[0].post(&mut net, 0, write_of(pair), 0, 100_000);
    }
    while net.now() < Instant::from_ns(3_000_000) {
        net.step().expect("somebody is always sending");
        for (pair, written) in pairs.iter().zip(&mut written) {
            for cqe in pair[0].poll_send() {
                assert_eq!(cqe.status, WcStatus::Success);
                *written += 1;
                pair[0].post(&mut net, 0, write_of(pair), 0, 100_000);
            }
        }
    }
    let (least, most) = (written.iter().min().unwrap(), written.iter().max().unwrap());
    assert!(*least > 5 && least * 2 >= *most, "{written:?}");
}

/// A paused priority holds up no other, not even to the same destination.
#[test]
fn a_paused_priority_holds_up_no_other() {
    let (mut net, pairs) = sharing(&[3, 0], Link::default());
    let [paused, other] = &pairs[..] else {
        panic!("two pairs")
    };
    paused[0].post(&mut net, 1, write_of(paused), 0, 200_000);
    net.set_open(0, OpenClasses::ALL.without(Class::data(3)));
    other[0].post(&mut net, 2, write_of(other), 0, 200_000);
    net.run_for(Span::from_us(500));
    assert!(paused[0].poll_send().is_empty());
    assert_eq!(other[0].poll_send().len(), 1);
    net.set_open(0, OpenClasses::ALL);
    net.run();
    assert_eq!(paused[0].poll_send().len(), 1);
}

/// The end of READs: a drained queue pair with READs in pieces is drained after the last piece.
#[test]
fn a_read_in_pieces_drains_as_a_whole() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 1,
            ..Setup::default()
        },
        |config| config.read_request_bytes = 1024,
    );
    s.post(1, read_from(0), 2048);
    drain_with_event(&mut s);
    s.recv(response(Op::ReadResponseOnly, 100, 1, 1024))
        .recv(response(Op::ReadResponseOnly, 101, 2, 1024));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 2048 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 1024
        0.000     -- modify to SQD, tell when drained
        0.000     <- RDMA READ response Only psn 100 msn 1 : 1024
        0.000     -> RDMA READ Request psn 101 ack va+1024 len 1024
        0.000     <- RDMA READ response Only psn 101 msn 2 : 1024
        0.000     send  wr 1 SUCCESS RDMA_READ 2048 bytes
        0.000     event SQ_DRAINED
    "#]],
    );
}
