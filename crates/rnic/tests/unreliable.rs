//! Traces of UC and UD. Rules: IBTA Vol 1, chapter 9 (Transport Layer).

use expect_test::expect;
use hirail_rnic::mr::Access;
use hirail_rnic::qp::attr::AddressVector;
use hirail_rnic::transmit::{Budget, Class, OpenClasses, Run};
use hirail_rnic::{SendFlags, SendOp, SendWr, UdDestination};
use hirail_vocab::{Counter, QpState, QpType};
use hirail_wire::{Deth, Ext, Lkey, Operation as Op, QKey, Qpn, Rkey, Service};
use testkit::script::{PEER, Packet, Script, check, packet, write_to};
use testkit::{Setup, wr};

fn uc(operation: Op, psn: u32) -> Packet {
    packet(Service::Uc, operation, psn)
}

fn script(setup: Setup) -> Script {
    Script::new(
        Setup {
            qp_type: QpType::Uc,
            ..setup
        },
        |_| (),
    )
}

/// Done when sent; nothing asks, nothing is answered.
#[test]
fn uc_completes_when_the_last_packet_is_out() {
    let mut s = script(Setup::default());
    s.post(1, SendOp::Send, 10)
        .link_takes(2)
        .post(2, write_to(0), 3000)
        .note("the last packet is still here")
        .link_takes(1)
        .wait(1e6);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 : 10
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     post  WRITE wr 2, 3000 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 3000 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     the link takes 2 of 3
        0.000     -- the last packet is still here
        0.000     -> RDMA WRITE Last psn 103 : 952
        0.000     send  wr 2 SUCCESS RDMA_WRITE 3000 bytes
    "#]],
    );
}

#[test]
fn uc_takes_messages_in_order() {
    let mut s = script(Setup::default());
    s.post_recv(1, 3000);
    s.recv(uc(Op::SendFirst, 500).bytes(1024))
        .recv(uc(Op::SendMiddle, 501).bytes(1024))
        .recv(uc(Op::SendLast, 502).bytes(10))
        .recv(uc(Op::WriteOnly, 503).reth(0, 4).bytes(4));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 3000 bytes
        0.000     <- SEND First psn 500 : 1024
        0.000     <- SEND Middle psn 501 : 1024
        0.000     <- SEND Last psn 502 : 10
        0.000     recv  wr 1 SUCCESS RECV 2058 bytes
        0.000     <- RDMA WRITE Only psn 503 va+0 len 4 : 4
    "#]],
    );
}

/// A hole drops the rest of the message; its receive request serves the next one from its start.
#[test]
fn uc_drops_a_message_with_a_hole() {
    let mut s = script(Setup::default());
    s.post_recv(1, 3000);
    s.recv(uc(Op::SendFirst, 500).bytes(1024))
        .recv(uc(Op::SendLast, 502).bytes(3))
        .recv(uc(Op::SendLast, 503).bytes(3))
        .note("a new message may begin at any sequence number")
        .recv(uc(Op::SendFirst, 700).bytes(1024))
        .note("and be broken by another one")
        .recv(uc(Op::SendOnly, 702).payload(b"whole"));
    check(
        &mut s,
        &expect![[r#"
            0.000     post  RECV wr 1, 3000 bytes
            0.000     <- SEND First psn 500 : 1024
            0.000     <- SEND Last psn 502 : 3
            0.000     dropped: uc_broken_message
            0.000     <- SEND Last psn 503 : 3
            0.000     dropped: uc_broken_message
            0.000     -- a new message may begin at any sequence number
            0.000     <- SEND First psn 700 : 1024
            0.000     -- and be broken by another one
            0.000     <- SEND Only psn 702 : 5
            0.000     recv  wr 1 SUCCESS RECV 5 bytes
        "#]],
    );
    assert_eq!(
        s.end.memory.read(4096, 6),
        b"wholex",
        "from the start of the buffer"
    );
}

/// From a shared queue the receive request cannot be given back: it ends in error.
#[test]
fn uc_with_a_shared_queue_completes_a_broken_message_in_error() {
    let mut s = script(Setup {
        with_srq: true,
        ..Setup::default()
    });
    s.post_recv(1, 3000).post_recv(2, 3000);
    s.recv(uc(Op::SendFirst, 500).bytes(1024))
        .recv(uc(Op::SendMiddle, 502).bytes(1024))
        .recv(uc(Op::SendOnly, 503).bytes(3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 3000 bytes
        0.000     post  RECV wr 2, 3000 bytes
        0.000     <- SEND First psn 500 : 1024
        0.000     <- SEND Middle psn 502 : 1024
        0.000     dropped: uc_broken_message
        0.000     recv  wr 1 LOC_QP_OP_ERR
        0.000     <- SEND Only psn 503 : 3
        0.000     recv  wr 2 SUCCESS RECV 3 bytes
    "#]],
    );
}

/// A WRITE with immediate whose beginning was lost makes no completion.
#[test]
fn uc_write_with_immediate_needs_its_beginning() {
    let mut s = script(Setup::default());
    s.post_recv(1, 10);
    s.recv(uc(Op::WriteLastImm, 501).imm([0; 4]).bytes(10))
        .recv(uc(Op::WriteFirst, 502).reth(0, 1030).bytes(1024))
        .recv(uc(Op::WriteLastImm, 503).imm([7; 4]).bytes(6));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 10 bytes
        0.000     <- RDMA WRITE Last with Immediate psn 501 imm 00000000 : 10
        0.000     dropped: uc_broken_message
        0.000     <- RDMA WRITE First psn 502 va+0 len 1030 : 1024
        0.000     <- RDMA WRITE Last with Immediate psn 503 imm 07070707 : 6
        0.000     recv  wr 1 SUCCESS RECV_RDMA_WITH_IMM 1030 bytes imm 07070707
    "#]],
    );
}

/// What RC would refuse, UC drops and counts; the queue pair goes on.
#[test]
fn uc_drops_what_it_must_refuse() {
    let mut s = script(Setup::default());
    s.recv(uc(Op::SendOnly, 500).bytes(1));
    s.post_recv(1, 10);
    s.recv(uc(Op::SendOnly, 501).bytes(11))
        .recv(uc(Op::WriteOnly, 502).reth(0, 4).bytes(4).key(Rkey::new(9)))
        .recv(uc(Op::WriteOnly, 503).reth(1 << 20, 4).bytes(4))
        .recv(uc(Op::WriteOnly, 504).reth(0, 5).bytes(4))
        .recv(uc(Op::SendFirst, 505).bytes(10))
        .recv(uc(Op::SendOnly, 506).bytes(10))
        .show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 : 1
        0.000     dropped: uc_no_receive_wqe
        0.000     post  RECV wr 1, 10 bytes
        0.000     <- SEND Only psn 501 : 11
        0.000     dropped: uc_refused
        0.000     <- RDMA WRITE Only psn 502 va+0 len 4 other key : 4
        0.000     dropped: uc_refused
        0.000     <- RDMA WRITE Only psn 503 va+1048576 len 4 : 4
        0.000     dropped: uc_refused
        0.000     <- RDMA WRITE Only psn 504 va+0 len 5 : 4
        0.000     dropped: uc_refused
        0.000     <- SEND First psn 505 : 10
        0.000     dropped: uc_refused
        0.000     <- SEND Only psn 506 : 10
        0.000     recv  wr 1 SUCCESS RECV 10 bytes
        0.000     state RTS
    "#]],
    );
    let setup = Setup {
        qp_access: Access::LOCAL_WRITE,
        ..Setup::default()
    };
    let mut s = script(setup);
    s.recv(uc(Op::WriteOnly, 500).reth(0, 4).bytes(4));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 va+0 len 4 : 4
        0.000     dropped: uc_refused
    "#]],
    );
}

/// A bad entry fails the send, the rest of the send queue is flushed, receiving goes on, and the user
/// brings it back.
#[test]
fn uc_send_errors_stop_the_send_queue_only() {
    let mut s = script(Setup::default());
    let mut bad = s.end.sge(0, 10);
    bad.lkey = Lkey::new(0x999);
    let sges = [bad];
    s.link_takes(0)
        .post(1, SendOp::Send, 10)
        .post_wr(&wr(2, SendOp::Send, &sges))
        .post(3, SendOp::Send, 10)
        .link_takes(usize::MAX)
        .show_state()
        .post(4, SendOp::Send, 10)
        .recv(uc(Op::WriteOnly, 500).reth(0, 4).bytes(4));
    s.modify(QpState::Rts);
    s.post(5, SendOp::Send, 10);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     post  SEND wr 2, 10 bytes
        0.000     post  SEND wr 3, 10 bytes
        0.000     -> SEND Only psn 100 : 10
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     send  wr 2 LOC_PROT_ERR
        0.000     send  wr 3 WR_FLUSH_ERR
        0.000     state SQE
        0.000     post  SEND wr 4, 10 bytes
        0.000     send  wr 4 WR_FLUSH_ERR
        0.000     <- RDMA WRITE Only psn 500 va+0 len 4 : 4
        0.000     modify to RTS
        0.000     post  SEND wr 5, 10 bytes
        0.000     -> SEND Only psn 104 : 10
        0.000     send  wr 5 SUCCESS SEND 10 bytes
    "#]],
    );
}

fn ud() -> Script {
    Script::new(Setup::of(QpType::Ud), |_| ())
}

fn datagram(qkey: u32, len: usize) -> Packet {
    let deth = Deth {
        qkey: QKey(qkey),
        source_qp: PEER,
    };
    packet(Service::Ud, Op::SendOnly, 500)
        .ext(Ext::Deth(deth))
        .bytes(len)
}

/// Each datagram has a destination of its own; a run holds those to one only.
#[test]
fn datagrams_go_where_they_are_sent() {
    let mut s = ud();
    let to = |node: usize, qpn: u32, qkey: u32| {
        let destination = UdDestination {
            av: AddressVector::to(testkit::net::gids(node)[0]),
            qpn: Qpn::new(qpn),
            qkey: QKey(qkey),
        };
        SendWr {
            ud: Some(destination),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            ..wr(u64::from(qpn), SendOp::Send, &[])
        }
    };
    s.link_takes(0)
        .post_wr(&to(1, 1, 5))
        .post_wr(&to(1, 2, 6))
        .post_wr(&to(2, 3, 7))
        .post_wr(&to(1, 4, 0x8000_0000))
        .note("the last one takes the sender's own key")
        .link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 0 bytes
        0.000     post  SEND wr 2, 0 bytes
        0.000     post  SEND wr 3, 0 bytes
        0.000     post  SEND wr 4, 0 bytes
        0.000     -- the last one takes the sender's own key
        0.000     -> SEND Only psn 100 to 0x000001 qkey 5
        0.000     -> SEND Only psn 101 to 0x000002 qkey 6
        0.000     send  wr 1 SUCCESS SEND 0 bytes
        0.000     send  wr 2 SUCCESS SEND 0 bytes
        0.000     -> SEND Only psn 102 to 0x000003 qkey 7
        0.000     send  wr 3 SUCCESS SEND 0 bytes
        0.000     -> SEND Only psn 103 to 0x000004 qkey 11111111
        0.000     send  wr 4 SUCCESS SEND 0 bytes
    "#]],
    );
}

/// A datagram waits for the priority of its own address handle, whatever was sent before; those
/// behind it in the queue wait with it.
#[test]
fn a_paused_priority_holds_back_its_own_datagrams() {
    let mut s = ud();
    let at = |wr_id: u64, sl: u8| {
        let destination = UdDestination {
            av: AddressVector {
                sl,
                ..AddressVector::to(testkit::net::gids(1)[0])
            },
            qpn: Qpn::new(0x22),
            qkey: QKey(5),
        };
        SendWr {
            ud: Some(destination),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            ..wr(wr_id, SendOp::Send, &[])
        }
    };
    let all_but = |priority| OpenClasses::ALL.without(Class::data(priority));
    s.note("priority 0 is paused, which no datagram has")
        .link_open(all_but(0))
        .post_wr(&at(1, 3))
        .note("priority 3 is paused")
        .link_open(all_but(3))
        .post_wr(&at(2, 5))
        .post_wr(&at(3, 8 + 3))
        .post_wr(&at(4, 5))
        .note("priority 5 is paused")
        .link_open(all_but(5))
        .note("nothing is paused")
        .link_open(OpenClasses::ALL)
        .note("a reset while priority 3 holds it back")
        .link_open(all_but(3))
        .post_wr(&at(5, 3));
    s.modify(QpState::Reset);
    s.to_rtr();
    s.to_rts();
    s.post_wr(&at(6, 5));
    check(
        &mut s,
        &expect![[r#"
        0.000     -- priority 0 is paused, which no datagram has
        0.000     post  SEND wr 1, 0 bytes
        0.000     -> SEND Only psn 100 to 0x000022 qkey 5
        0.000     send  wr 1 SUCCESS SEND 0 bytes
        0.000     -- priority 3 is paused
        0.000     post  SEND wr 2, 0 bytes
        0.000     -> SEND Only psn 101 to 0x000022 qkey 5
        0.000     send  wr 2 SUCCESS SEND 0 bytes
        0.000     post  SEND wr 3, 0 bytes
        0.000     post  SEND wr 4, 0 bytes
        0.000     -- priority 5 is paused
        0.000     -> SEND Only psn 102 to 0x000022 qkey 5
        0.000     send  wr 3 SUCCESS SEND 0 bytes
        0.000     -- nothing is paused
        0.000     -> SEND Only psn 103 to 0x000022 qkey 5
        0.000     send  wr 4 SUCCESS SEND 0 bytes
        0.000     -- a reset while priority 3 holds it back
        0.000     post  SEND wr 5, 0 bytes
        0.000     modify to RESET
        0.000     post  SEND wr 6, 0 bytes
        0.000     -> SEND Only psn 100 to 0x000022 qkey 5
        0.000     send  wr 6 SUCCESS SEND 0 bytes
    "#]],
    );

    // What is posted while packets are with the link waits for its own priority, too.
    let (device, qp, now) = (&s.end.device, &s.end.qp, s.now());
    let mut run = Run::new();
    let budget = Budget {
        packets: 8,
        bytes: 1 << 16,
    };
    device.post_send(now, qp, &at(7, 3)).expect("room");
    assert!(device.poll_transmit(now, OpenClasses::ALL, budget, &mut run));
    device.post_send(now, qp, &at(8, 5)).expect("room");
    device.sent(now, &mut run, 1);
    assert!(device.poll_transmit(now, all_but(3), budget, &mut run));
    assert_eq!((run.class(), run.flow().priority), (Class::data(5), 5));
    device.sent(now, &mut run, 1);
}

/// Silent drops, each counted, and the receive request stays.
#[test]
fn datagrams_are_dropped_silently() {
    let mut s = ud();
    s.recv(datagram(0x1111_1111, 5)).post_recv(1, 44);
    s.recv(datagram(0x1111_1112, 4))
        .recv(datagram(0x1111_1111, 5))
        .recv(datagram(0x1111_1111, 4));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111111 : 5
        0.000     dropped: ud_no_receive_wqe
        0.000     post  RECV wr 1, 44 bytes
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111112 : 4
        0.000     dropped: bad_qkey
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111111 : 5
        0.000     dropped: ud_too_long
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111111 : 4
        0.000     recv  wr 1 SUCCESS RECV 44 bytes
    "#]],
    );
    let counters = s.end.device.counters();
    assert_eq!(counters.get(Counter::QkeyViolCntr), 1);
    assert_eq!(counters.get(Counter::OutOfBuffer), 1);
}

/// The receive request names memory that is not there: it fails, the queue pair goes on.
#[test]
fn a_datagram_into_a_bad_entry() {
    let mut s = ud();
    let mut bad = s.end.sge(0, 100);
    bad.lkey = Lkey::new(0x999);
    s.post_recv_sges(1, &[bad]).post_recv(2, 100);
    s.recv(datagram(0x1111_1111, 5))
        .recv(datagram(0x1111_1111, 5))
        .show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 100 bytes
        0.000     post  RECV wr 2, 100 bytes
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111111 : 5
        0.000     dropped: ud_receive_fault
        0.000     recv  wr 1 LOC_PROT_ERR
        0.000     <- SEND Only psn 500 to 0x000011 qkey 11111111 : 5
        0.000     recv  wr 2 SUCCESS RECV 45 bytes
        0.000     state RTS
    "#]],
    );
}
