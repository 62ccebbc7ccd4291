//! Traces of the requester: what it sends, and what responses make of it. Rules:
//! IBTA Vol 1, chapter 9 (Transport Layer).
//!
//! How to read a trace: `testkit::script`. `UPDATE_EXPECT=1` writes them anew, for review.

use expect_test::expect;
use hirail_rnic::{SendData, SendFlags, SendOp, SendWr, WindowConfig};
use hirail_wire::{AckTimeout, NakCode, Operation as Op, PathMtu};
use testkit::Setup;
use testkit::script::{
    PEER_KEY, Script, ack, ack_credits, add_to, atomic_ack, check, nak, rc, read_from, response,
    rnr, write_to,
};

#[test]
fn messages_become_packets_and_ask_for_acknowledgement_at_their_end() {
    let mut s = Script::rc();
    s.post(1, SendOp::Send, 2500)
        .post(2, write_to(16), 1024)
        .post(3, SendOp::SendImm(*b"imm!"), 0);
    s.recv(ack(102, 1)).recv(ack(104, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 2500 bytes
        0.000     -> SEND First psn 100 : 1024
        0.000     -> SEND Middle psn 101 : 1024
        0.000     -> SEND Last psn 102 ack : 452
        0.000     post  WRITE wr 2, 1024 bytes
        0.000     -> RDMA WRITE Only psn 103 ack va+16 len 1024 : 1024
        0.000     post  SEND with immediate wr 3, 0 bytes
        0.000     -> SEND Only with Immediate psn 104 ack imm 696d6d21
        0.000     <- ACK psn 102 msn 1
        0.000     send  wr 1 SUCCESS SEND 2500 bytes
        0.000     <- ACK psn 104 msn 3
        0.000     send  wr 2 SUCCESS RDMA_WRITE 1024 bytes
        0.000     send  wr 3 SUCCESS SEND 0 bytes
    "#]],
    );
}

/// One ACK covers everything before it; completions come in order.
#[test]
fn one_ack_completes_all_before_it() {
    let mut s = Script::rc();
    s.post(1, SendOp::Send, 10)
        .post(2, write_to(0), 3000)
        .post(3, SendOp::Send, 10)
        .wait(1.0)
        .recv(ack(104, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  WRITE wr 2, 3000 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 3000 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 952
        0.000     post  SEND wr 3, 10 bytes
        0.000     -> SEND Only psn 104 ack : 10
        1.000     <- ACK psn 104 msn 3
        1.000     send  wr 1 SUCCESS SEND 10 bytes
        1.000     send  wr 2 SUCCESS RDMA_WRITE 3000 bytes
        1.000     send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// An ACK in the middle of a message frees the window and completes nothing.
#[test]
fn an_ack_within_a_message_is_progress() {
    let mut s = Script::rc();
    s.post(1, write_to(0), 3000).recv(ack(101, 0));
    s.note("a duplicate of it and one from the future are dropped");
    s.recv(ack(101, 0)).recv(ack(103, 1)).recv(ack(102, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 3000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 3000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Last psn 102 ack : 952
        0.000     <- ACK psn 101 msn 0
        0.000     -- a duplicate of it and one from the future are dropped
        0.000     <- ACK psn 101 msn 0
        0.000     dropped: ghost_ack
        0.000     <- ACK psn 103 msn 1
        0.000     dropped: ack_of_unsent_psn
        0.000     <- ACK psn 102 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 3000 bytes
    "#]],
    );
}

#[test]
fn a_sequence_nak_goes_back_to_its_psn_and_acknowledges_what_is_before() {
    let mut s = Script::rc();
    s.post(1, SendOp::Send, 10)
        .post(2, write_to(0), 4000)
        .wait(1.0)
        .recv(nak(103, NakCode::PsnSequenceError, 1));
    s.recv(ack(104, 2));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  WRITE wr 2, 4000 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Middle psn 103 : 1024
        0.000     -> RDMA WRITE Last psn 104 ack : 928
        1.000     <- NAK psn 103 PsnSequenceError msn 1
        1.000     send  wr 1 SUCCESS SEND 10 bytes
        1.000     -> RDMA WRITE Middle psn 103 : 1024
        1.000     -> RDMA WRITE Last psn 104 ack : 928
        1.000     <- ACK psn 104 msn 2
        1.000     send  wr 2 SUCCESS RDMA_WRITE 4000 bytes
    "#]],
    );
}

/// While the send position is still at the PSN of the NAK, another one says nothing new.
#[test]
fn a_second_nak_for_the_same_loss_costs_no_retry() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, write_to(0), 4000).link_takes(0);
    for _ in 0..5 {
        s.recv(nak(101, NakCode::PsnSequenceError, 0));
    }
    s.link_takes(usize::MAX).recv(ack(103, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 4000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 928
        0.000     <- NAK psn 101 PsnSequenceError msn 0
        0.000     <- NAK psn 101 PsnSequenceError msn 0
        0.000     <- NAK psn 101 PsnSequenceError msn 0
        0.000     <- NAK psn 101 PsnSequenceError msn 0
        0.000     <- NAK psn 101 PsnSequenceError msn 0
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 928
        0.000     <- ACK psn 103 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 4000 bytes
    "#]],
    );
}

#[test]
fn retries_run_out_with_sequence_naks() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, write_to(0), 10).post(2, write_to(0), 10);
    for _ in 0..3 {
        s.wait(1.0).recv(nak(100, NakCode::PsnSequenceError, 0));
    }
    s.show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 10 bytes
        0.000     -> RDMA WRITE Only psn 100 ack va+0 len 10 : 10
        0.000     post  WRITE wr 2, 10 bytes
        0.000     -> RDMA WRITE Only psn 101 ack va+0 len 10 : 10
        1.000     <- NAK psn 100 PsnSequenceError msn 0
        1.000     -> RDMA WRITE Only psn 100 ack va+0 len 10 : 10
        1.000     -> RDMA WRITE Only psn 101 ack va+0 len 10 : 10
        2.000     <- NAK psn 100 PsnSequenceError msn 0
        2.000     -> RDMA WRITE Only psn 100 ack va+0 len 10 : 10
        2.000     -> RDMA WRITE Only psn 101 ack va+0 len 10 : 10
        3.000     <- NAK psn 100 PsnSequenceError msn 0
        3.000     send  wr 1 RETRY_EXC_ERR
        3.000     send  wr 2 WR_FLUSH_ERR
        3.000     state ERR
    "#]],
    );
}

/// The peer never said a word: the vendor code tells, since a blocked port is the usual reason.
#[test]
fn a_peer_that_never_answers() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10).post(2, SendOp::Send, 10);
    s.wait(1000.0).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        65.536    -> SEND Only psn 100 ack : 10
        65.536    -> SEND Only psn 101 ack : 10
        131.072   -> SEND Only psn 100 ack : 10
        131.072   -> SEND Only psn 101 ack : 10
        196.608   send  wr 1 RETRY_EXC_ERR vendor_err 1
        196.608   send  wr 2 WR_FLUSH_ERR
        1000.000  state ERR
    "#]],
    );
}

/// It has answered before: no hint then. Each answer reloads the retries.
#[test]
fn a_peer_that_stops_answering() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .post(2, SendOp::Send, 10)
        .wait(140.0)
        .recv(ack(100, 1))
        .wait(1000.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        65.536    -> SEND Only psn 100 ack : 10
        65.536    -> SEND Only psn 101 ack : 10
        131.072   -> SEND Only psn 100 ack : 10
        131.072   -> SEND Only psn 101 ack : 10
        140.000   <- ACK psn 100 msn 1
        140.000   send  wr 1 SUCCESS SEND 10 bytes
        205.536   -> SEND Only psn 101 ack : 10
        271.072   -> SEND Only psn 101 ack : 10
        336.608   send  wr 2 RETRY_EXC_ERR
    "#]],
    );
}

/// `retry_cnt` 0 gives up at the first timeout; timeout code 0 never times out.
#[test]
fn no_retries_and_no_timeout() {
    let mut s = Script::new(
        Setup {
            retry_cnt: 0,
            ..Setup::short()
        },
        |_| (),
    );
    s.post(1, SendOp::Send, 10).wait(1000.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        65.536    send  wr 1 RETRY_EXC_ERR vendor_err 1
    "#]],
    );
    let mut s = Script::new(
        Setup {
            timeout: AckTimeout::new(0),
            ..Setup::short()
        },
        |_| (),
    );
    s.post(1, SendOp::Send, 10).wait(1e9);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
    "#]],
    );
}

/// The timer restarts on progress: 4.096 µs · 2^4 = 65.536 µs after the last answer.
#[test]
fn the_timer_counts_from_the_last_progress() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .wait(60.0)
        .post(2, SendOp::Send, 10)
        .recv(ack(100, 1))
        .wait(65.0)
        .note("not yet")
        .wait(1.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        60.000    post  SEND wr 2, 10 bytes
        60.000    -> SEND Only psn 101 ack : 10
        60.000    <- ACK psn 100 msn 1
        60.000    send  wr 1 SUCCESS SEND 10 bytes
        125.000   -- not yet
        125.536   -> SEND Only psn 101 ack : 10
    "#]],
    );
}

#[test]
fn fatal_naks_have_their_status_and_flush_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, "REM_INV_REQ_ERR"),
        (NakCode::RemoteAccessError, "REM_ACCESS_ERR"),
        (NakCode::RemoteOperationalError, "REM_OP_ERR"),
    ] {
        let mut s = Script::rc();
        s.post_recv(9, 100);
        s.post(1, SendOp::Send, 10)
            .post(2, write_to(0), 10)
            .post(3, SendOp::Send, 10);
        s.trace();
        s.recv(nak(101, code, 1)).show_state();
        let expected = [
            format!("<- NAK psn 101 {code:?} msn 1"),
            "send  wr 1 SUCCESS SEND 10 bytes".to_owned(),
            format!("send  wr 2 {status}"),
            "send  wr 3 WR_FLUSH_ERR".to_owned(),
            "recv  wr 9 WR_FLUSH_ERR".to_owned(),
            "state ERR".to_owned(),
        ];
        let trace = s.trace();
        let lines: Vec<_> = trace.lines().map(|line| &line[10..]).collect();
        assert_eq!(lines, expected);
    }
}

/// Reserved syndromes and NAK codes mean nothing.
#[test]
fn reserved_codes_are_ignored() {
    let mut s = Script::rc();
    s.post(1, SendOp::Send, 10)
        .recv(nak(100, NakCode::Reserved(9), 0))
        .recv(nak(100, NakCode::InvalidRdRequest, 0));
    let reserved = hirail_wire::Aeth {
        syndrome: hirail_wire::Syndrome::from_u8(0x40),
        msn: hirail_wire::Msn::new(0),
    };
    s.recv(rc(Op::Acknowledge, 100).ext(hirail_wire::Ext::Aeth(reserved)));
    s.recv(ack(100, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     <- NAK psn 100 Reserved(9) msn 0
        0.000     <- NAK psn 100 InvalidRdRequest msn 0
        0.000     <- reserved psn 100 0x40 msn 0
        0.000     dropped: reserved_syndrome
        0.000     <- ACK psn 100 msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
    "#]],
    );
}

#[test]
fn a_read_is_one_request_and_completes_with_its_last_response() {
    let mut s = Script::rc();
    s.post(1, read_from(8), 2500)
        .post(2, SendOp::Send, 10)
        .recv(response(Op::ReadResponseFirst, 100, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 101, 1, 1024))
        .recv(response(Op::ReadResponseLast, 102, 1, 452))
        .recv(ack(103, 2));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 2500 bytes
        0.000     -> RDMA READ Request psn 100 ack va+8 len 2500
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 103 ack : 10
        0.000     <- RDMA READ response First psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 101 : 1024
        0.000     <- RDMA READ response Last psn 102 msn 1 : 452
        0.000     send  wr 1 SUCCESS RDMA_READ 2500 bytes
        0.000     <- ACK psn 103 msn 2
        0.000     send  wr 2 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// A hole in the responses: asked for again once, from the first one missing, whatever else of the
/// old stream still arrives.
#[test]
fn a_read_is_retried_from_its_middle_once() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 6000)
        .recv(response(Op::ReadResponseFirst, 100, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 103, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 104, 1, 1024))
        .recv(response(Op::ReadResponseLast, 105, 1, 880));
    s.note("the answer to the second request")
        .recv(response(Op::ReadResponseFirst, 101, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 103, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 104, 1, 1024))
        .recv(response(Op::ReadResponseLast, 105, 1, 880));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 6000 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 6000
        0.000     <- RDMA READ response First psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     dropped: response_gap
        0.000     -> RDMA READ Request psn 101 ack va+1024 len 4976
        0.000     <- RDMA READ response Middle psn 103 : 1024
        0.000     dropped: response_gap
        0.000     <- RDMA READ response Middle psn 104 : 1024
        0.000     dropped: response_gap
        0.000     <- RDMA READ response Last psn 105 msn 1 : 880
        0.000     dropped: response_gap
        0.000     -- the answer to the second request
        0.000     <- RDMA READ response First psn 101 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     <- RDMA READ response Middle psn 103 : 1024
        0.000     <- RDMA READ response Middle psn 104 : 1024
        0.000     <- RDMA READ response Last psn 105 msn 1 : 880
        0.000     send  wr 1 SUCCESS RDMA_READ 6000 bytes
    "#]],
    );
}

/// A second hole in the same READ is another loss.
#[test]
fn two_holes_in_a_read_are_two_retries() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 4000)
        .recv(response(Op::ReadResponseMiddle, 101, 1, 1024))
        .recv(response(Op::ReadResponseFirst, 100, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .recv(response(Op::ReadResponseFirst, 101, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .recv(response(Op::ReadResponseLast, 103, 1, 928));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 4000 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 4000
        0.000     <- RDMA READ response Middle psn 101 : 1024
        0.000     dropped: response_gap
        0.000     -> RDMA READ Request psn 100 ack va+0 len 4000
        0.000     <- RDMA READ response First psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     dropped: response_gap
        0.000     -> RDMA READ Request psn 101 ack va+1024 len 2976
        0.000     <- RDMA READ response First psn 101 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     <- RDMA READ response Last psn 103 msn 1 : 928
        0.000     send  wr 1 SUCCESS RDMA_READ 4000 bytes
    "#]],
    );
}

/// An ACK beyond an unanswered READ or atomic is an implied NAK of it.
#[test]
fn an_ack_beyond_a_read_is_an_implied_nak() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 10)
        .post(2, SendOp::Send, 10)
        .post(3, SendOp::Send, 10)
        .recv(ack(101, 2))
        .recv(ack(102, 3))
        .recv(response(Op::ReadResponseOnly, 100, 3, 10))
        .recv(ack(102, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        0.000     post  SEND wr 3, 10 bytes
        0.000     -> SEND Only psn 102 ack : 10
        0.000     <- ACK psn 101 msn 2
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     -> SEND Only psn 101 ack : 10
        0.000     -> SEND Only psn 102 ack : 10
        0.000     <- ACK psn 102 msn 3
        0.000     <- RDMA READ response Only psn 100 msn 3 : 10
        0.000     send  wr 1 SUCCESS RDMA_READ 10 bytes
        0.000     <- ACK psn 102 msn 3
        0.000     send  wr 2 SUCCESS SEND 10 bytes
        0.000     send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

#[test]
fn a_later_atomic_acknowledge_is_an_implied_nak_of_an_earlier_one() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, add_to(0), 8)
        .post(2, add_to(8), 8)
        .recv(atomic_ack(101, 2, 7))
        .recv(atomic_ack(100, 2, 6))
        .recv(atomic_ack(101, 2, 7));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  FETCH_ADD wr 1, 8 bytes
        0.000     -> FetchAdd psn 100 ack va+0 1 0
        0.000     post  FETCH_ADD wr 2, 8 bytes
        0.000     -> FetchAdd psn 101 ack va+8 1 0
        0.000     <- ATOMIC Acknowledge psn 101 msn 2 original 7
        0.000     dropped: response_gap
        0.000     -> FetchAdd psn 100 ack va+0 1 0
        0.000     -> FetchAdd psn 101 ack va+8 1 0
        0.000     <- ATOMIC Acknowledge psn 100 msn 2 original 6
        0.000     send  wr 1 SUCCESS FETCH_ADD 8 bytes
        0.000     <- ATOMIC Acknowledge psn 101 msn 2 original 7
        0.000     send  wr 2 SUCCESS FETCH_ADD 8 bytes
    "#]],
    );
    assert_eq!(
        s.end.memory.word(0),
        7,
        "both return to the same place, the second last"
    );
}

/// A response of another kind or length ends the connection.
#[test]
fn responses_that_do_not_fit() {
    for packet in [
        response(Op::ReadResponseOnly, 100, 1, 9),
        response(Op::ReadResponseFirst, 100, 1, 1024),
        response(Op::ReadResponseMiddle, 100, 1, 10),
        atomic_ack(100, 1, 5),
    ] {
        let mut s = Script::rc();
        s.post(1, read_from(0), 10);
        s.trace();
        s.recv(packet);
        assert!(s.trace().contains("send  wr 1 BAD_RESP_ERR"));
    }
    let mut s = Script::rc();
    s.post(1, add_to(0), 8)
        .recv(response(Op::ReadResponseOnly, 100, 1, 8))
        .show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  FETCH_ADD wr 1, 8 bytes
        0.000     -> FetchAdd psn 100 ack va+0 1 0
        0.000     <- RDMA READ response Only psn 100 msn 1 : 8
        0.000     send  wr 1 BAD_RESP_ERR
        0.000     state ERR
    "#]],
    );
}

/// READs and atomics in flight are bounded by `max_rd_atomic`; what is behind them waits with them.
#[test]
fn the_initiator_depth_is_kept() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 2,
            ..Setup::short()
        },
        |_| (),
    );
    s.post(1, read_from(0), 10)
        .post(2, add_to(0), 8)
        .post(3, read_from(0), 10)
        .post(4, SendOp::Send, 10)
        .recv(response(Op::ReadResponseOnly, 100, 1, 10))
        .recv(atomic_ack(101, 2, 0))
        .recv(response(Op::ReadResponseOnly, 102, 3, 10))
        .recv(ack(103, 4));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     post  FETCH_ADD wr 2, 8 bytes
        0.000     -> FetchAdd psn 101 ack va+0 1 0
        0.000     post  READ wr 3, 10 bytes
        0.000     post  SEND wr 4, 10 bytes
        0.000     <- RDMA READ response Only psn 100 msn 1 : 10
        0.000     send  wr 1 SUCCESS RDMA_READ 10 bytes
        0.000     -> RDMA READ Request psn 102 ack va+0 len 10
        0.000     -> SEND Only psn 103 ack : 10
        0.000     <- ATOMIC Acknowledge psn 101 msn 2 original 0
        0.000     send  wr 2 SUCCESS FETCH_ADD 8 bytes
        0.000     <- RDMA READ response Only psn 102 msn 3 : 10
        0.000     send  wr 3 SUCCESS RDMA_READ 10 bytes
        0.000     <- ACK psn 103 msn 4
        0.000     send  wr 4 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// Depth 0 means that there are no READs and atomics in this direction.
#[test]
fn no_depth_no_reads() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 0,
            ..Setup::short()
        },
        |_| (),
    );
    s.post(1, SendOp::Send, 10)
        .post(2, read_from(0), 10)
        .post(3, SendOp::Send, 10)
        .recv(ack(100, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  READ wr 2, 10 bytes
        0.000     post  SEND wr 3, 10 bytes
        0.000     <- ACK psn 100 msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     send  wr 2 LOC_QP_OP_ERR
        0.000     send  wr 3 WR_FLUSH_ERR
    "#]],
    );
}

fn fenced<'a>(wr_id: u64, op: SendOp) -> SendWr<'a> {
    SendWr {
        wr_id,
        op,
        flags: SendFlags {
            signaled: true,
            fence: true,
            solicited: false,
        },
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    }
}

/// A fence waits for READs and atomics, not for SENDs and WRITEs.
#[test]
fn a_fence_waits_for_reads_and_atomics_only() {
    let mut s = Script::rc();
    s.post(1, write_to(0), 10)
        .post_wr(&fenced(2, SendOp::Send))
        .post(3, read_from(0), 10)
        .post(4, SendOp::Send, 10)
        .post_wr(&fenced(5, SendOp::Send))
        .post(6, SendOp::Send, 10)
        .recv(ack(101, 2))
        .recv(response(Op::ReadResponseOnly, 102, 3, 10))
        .recv(ack(105, 6));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 10 bytes
        0.000     -> RDMA WRITE Only psn 100 ack va+0 len 10 : 10
        0.000     post  SEND wr 2, 0 bytes fence
        0.000     -> SEND Only psn 101 ack
        0.000     post  READ wr 3, 10 bytes
        0.000     -> RDMA READ Request psn 102 ack va+0 len 10
        0.000     post  SEND wr 4, 10 bytes
        0.000     -> SEND Only psn 103 ack : 10
        0.000     post  SEND wr 5, 0 bytes fence
        0.000     post  SEND wr 6, 10 bytes
        0.000     <- ACK psn 101 msn 2
        0.000     send  wr 1 SUCCESS RDMA_WRITE 10 bytes
        0.000     send  wr 2 SUCCESS SEND 0 bytes
        0.000     <- RDMA READ response Only psn 102 msn 3 : 10
        0.000     send  wr 3 SUCCESS RDMA_READ 10 bytes
        0.000     -> SEND Only psn 104 ack
        0.000     -> SEND Only psn 105 ack : 10
        0.000     <- ACK psn 105 msn 6
        0.000     send  wr 4 SUCCESS SEND 10 bytes
        0.000     send  wr 5 SUCCESS SEND 0 bytes
        0.000     send  wr 6 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// The fence holds when what it waits for is retried.
#[test]
fn a_fence_survives_a_retry() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 10)
        .post_wr(&fenced(2, SendOp::Send));
    s.wait(66.0)
        .recv(response(Op::ReadResponseOnly, 100, 1, 10))
        .wait(66.0)
        .recv(ack(101, 2));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     post  SEND wr 2, 0 bytes fence
        65.536    -> RDMA READ Request psn 100 ack va+0 len 10
        66.000    <- RDMA READ response Only psn 100 msn 1 : 10
        66.000    send  wr 1 SUCCESS RDMA_READ 10 bytes
        66.000    -> SEND Only psn 101 ack
        131.536   -> SEND Only psn 101 ack
        132.000   <- ACK psn 101 msn 2
        132.000   send  wr 2 SUCCESS SEND 0 bytes
    "#]],
    );
}

/// With credits the requester sends what the responder has receive requests for. One more goes as a
/// probe when nothing else is in flight. WRITEs need none.
#[test]
fn credits_limit_what_takes_receive_requests() {
    let mut s = Script::rc();
    s.post(1, SendOp::Send, 10).recv(ack_credits(100, 1, 1));
    s.post(2, SendOp::Send, 10)
        .post(3, SendOp::Send, 10)
        .post(4, write_to(0), 10)
        .note("wr 2 has a credit, wr 3 has none")
        .recv(ack_credits(101, 2, 0))
        .note("wr 3 goes as a probe, wr 4 needs no credit")
        .recv(rnr(102, 1, 2))
        .wait(11.0)
        .recv(ack_credits(103, 4, 5));
    s.post(5, SendOp::Send, 10)
        .post(6, SendOp::Send, 10)
        .recv(ack(105, 6));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     <- ACK psn 100 credits 1 msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        0.000     post  SEND wr 3, 10 bytes
        0.000     post  WRITE wr 4, 10 bytes
        0.000     -- wr 2 has a credit, wr 3 has none
        0.000     <- ACK psn 101 credits 0 msn 2
        0.000     send  wr 2 SUCCESS SEND 10 bytes
        0.000     -> SEND Only psn 102 ack : 10
        0.000     -> RDMA WRITE Only psn 103 ack va+0 len 10 : 10
        0.000     -- wr 3 goes as a probe, wr 4 needs no credit
        0.000     <- RNR NAK psn 102 timer 1 msn 2
        10.000    -> SEND Only psn 102 ack : 10
        10.000    -> RDMA WRITE Only psn 103 ack va+0 len 10 : 10
        11.000    <- ACK psn 103 credits 4 msn 4
        11.000    send  wr 3 SUCCESS SEND 10 bytes
        11.000    send  wr 4 SUCCESS RDMA_WRITE 10 bytes
        11.000    post  SEND wr 5, 10 bytes
        11.000    -> SEND Only psn 104 ack : 10
        11.000    post  SEND wr 6, 10 bytes
        11.000    -> SEND Only psn 105 ack : 10
        11.000    <- ACK psn 105 msn 6
        11.000    send  wr 5 SUCCESS SEND 10 bytes
        11.000    send  wr 6 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// A retried message starts in its middle, and its packets are the same as the first time.
#[test]
fn a_resent_packet_is_the_same_packet() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.show_payload();
    s.end.memory.fill(0, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    let sges = [s.end.sge(0, 3), s.end.sge(10, 0), s.end.sge(3, 2000)];
    s.end.memory.fill(1000, &[b'm'; 100]);
    s.end.memory.fill(1024, b"second packet");
    let wr = SendWr {
        data: SendData::Sges(&sges),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        ..fenced(1, write_to(0))
    };
    s.post_wr(&wr);
    let first = s.trace();
    s.wait(66.0);
    let second = s.trace();
    let packets = |trace: &str| -> Vec<String> {
        trace
            .lines()
            .filter_map(|line| Some(line.split_once(" -> ")?.1.to_owned()))
            .collect()
    };
    assert_eq!(packets(&first), packets(&second));
    s.recv(nak(101, NakCode::PsnSequenceError, 0));
    let third = s.trace();
    assert_eq!(packets(&first)[1..], packets(&third));
}

/// A link that takes fewer packets than offered: nothing is lost, skipped or sent twice, and each
/// packet has its own bytes.
#[test]
fn a_link_may_take_fewer_packets_than_offered() {
    for takes in 0..6 {
        let mut s = Script::new(
            Setup {
                mtu: PathMtu::Mtu256,
                ..Setup::default()
            },
            |_| (),
        );
        s.show_payload();
        // Three entries, none of which ends with a packet.
        let text: Vec<u8> = (0..1100u32).map(|i| b'a' + (i / 100) as u8).collect();
        s.end.memory.fill(0, &text);
        let sges = [s.end.sge(0, 300), s.end.sge(300, 299), s.end.sge(599, 501)];
        let wr = SendWr {
            data: SendData::Sges(&sges),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            ..fenced(1, write_to(0))
        };
        s.link_takes(takes);
        s.post_wr(&wr);
        s.post(2, SendOp::Send, 5);
        for _ in 0..6 {
            s.link_takes(1);
        }
        let trace = s.trace();
        let payloads: Vec<&str> = trace
            .lines()
            .filter(|line| line.contains(" -> "))
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        let text = String::from_utf8(text).unwrap();
        let expected: Vec<&str> = [0..256, 256..512, 512..768, 768..1024, 1024..1100, 0..5]
            .into_iter()
            .map(|range| &text[range])
            .collect();
        assert_eq!(payloads, expected, "{trace}");
    }
}

/// A READ that the link did not take holds no slot and no window.
#[test]
fn a_request_that_was_not_taken_has_not_happened() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 1,
            ..Setup::short()
        },
        |_| (),
    );
    s.link_takes(0).post(1, read_from(0), 10);
    s.wait(1000.0).note("no timer runs for what was not sent");
    s.link_takes(1)
        .wait(60.0)
        .recv(response(Op::ReadResponseOnly, 100, 1, 10));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        1000.000  -- no timer runs for what was not sent
        1000.000  -> RDMA READ Request psn 100 ack va+0 len 10
        1060.000  <- RDMA READ response Only psn 100 msn 1 : 10
        1060.000  send  wr 1 SUCCESS RDMA_READ 10 bytes
    "#]],
    );
}

/// A retry counts when it is sent: a link that takes nothing for long uses none up.
#[test]
fn retries_are_not_used_up_by_a_link_that_takes_nothing() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .link_takes(0)
        .wait(10_000.0)
        .link_takes(usize::MAX)
        .wait(66.0)
        .recv(ack(100, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        10000.000 -> SEND Only psn 100 ack : 10
        10065.536 -> SEND Only psn 100 ack : 10
        10066.000 <- ACK psn 100 msn 1
        10066.000 send  wr 1 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// The timer waits for an answer that was asked for: half a message asks for none.
#[test]
fn nobody_owes_an_answer_to_half_a_message() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.link_takes(1)
        .post(1, SendOp::Send, 2000)
        .wait(1000.0)
        .link_takes(1)
        .wait(66.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 2000 bytes
        0.000     -> SEND First psn 100 : 1024
        0.000     the link takes 1 of 2
        1000.000  -> SEND Last psn 101 ack : 976
    "#]],
    );
}

/// Nor when something before it is answered: the timer stops until the rest has asked.
#[test]
fn half_a_message_behind_an_answered_one_has_no_timer() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .link_takes(1)
        .post(2, SendOp::Send, 2000)
        .recv(ack(100, 1))
        .wait(1000.0)
        .link_takes(1)
        .wait(66.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 2000 bytes
        0.000     -> SEND First psn 101 : 1024
        0.000     the link takes 1 of 2
        0.000     <- ACK psn 100 msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        1000.000  -> SEND Last psn 102 ack : 976
    "#]],
    );
}

/// Go-back-0 starts a message over. What it repeats of what is acknowledged is not charged to the
/// window, since no answer would release it.
#[test]
fn go_back_0_starts_the_message_over_and_gets_through() {
    let mut s = Script::new(Setup::short(), |config| {
        config.recovery = hirail_rnic::RecoveryKind::GoBackZero;
        config.window = WindowConfig {
            initial: 2200,
            minimum: 2200,
            maximum: 2200,
            ..WindowConfig::default()
        };
    });
    s.post(1, write_to(0), 4000)
        .recv(ack(100, 0))
        .recv(nak(102, NakCode::PsnSequenceError, 0))
        .recv(ack(101, 0))
        .recv(ack(103, 1));
    s.post(2, read_from(0), 2000);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 4000 bytes
        0.000     -> RDMA WRITE First psn 100 ack va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 ack : 1024
        0.000     <- ACK psn 100 msn 0
        0.000     -> RDMA WRITE Middle psn 102 ack : 1024
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     -> RDMA WRITE First psn 100 va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 ack : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 928
        0.000     <- ACK psn 101 msn 0
        0.000     dropped: ghost_ack
        0.000     <- ACK psn 103 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 4000 bytes
        0.000     post  READ wr 2, 2000 bytes
        0.000     -> RDMA READ Request psn 104 ack va+0 len 2000
    "#]],
    );
}

/// Go-back-0, too, pays once for a loss that it is told of again before it has sent anything.
#[test]
fn go_back_0_pays_once_for_a_loss() {
    let mut s = Script::new(Setup::short(), |config| {
        config.recovery = hirail_rnic::RecoveryKind::GoBackZero;
    });
    s.post(1, write_to(0), 4000).link_takes(0);
    for _ in 0..5 {
        s.recv(nak(102, NakCode::PsnSequenceError, 0));
    }
    s.link_takes(usize::MAX).wait(66.0).recv(ack(103, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 4000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 928
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     <- NAK psn 102 PsnSequenceError msn 0
        0.000     -> RDMA WRITE First psn 100 va+0 len 4000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 : 1024
        0.000     -> RDMA WRITE Last psn 103 ack : 928
        65.536    -> RDMA WRITE First psn 100 va+0 len 4000 : 1024
        65.536    -> RDMA WRITE Middle psn 101 : 1024
        65.536    -> RDMA WRITE Middle psn 102 : 1024
        65.536    -> RDMA WRITE Last psn 103 ack : 928
        66.000    <- ACK psn 103 msn 1
        66.000    send  wr 1 SUCCESS RDMA_WRITE 4000 bytes
    "#]],
    );
}

/// At most this many bytes are in flight; the packet that fills the window asks for an ACK.
#[test]
fn the_window_bounds_what_is_in_flight() {
    let mut s = Script::new(Setup::default(), |config| {
        config.window = WindowConfig {
            initial: 4 * 1090,
            minimum: 2 * 1090,
            maximum: 8 * 1090,
            ..WindowConfig::default()
        };
    });
    s.post(1, write_to(0), 10 * 1024)
        .recv(ack(101, 0))
        .recv(ack(103, 0))
        .note("halved by a loss")
        .recv(nak(104, NakCode::PsnSequenceError, 0))
        .recv(ack(106, 0))
        .recv(ack(108, 0))
        .recv(ack(109, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 10240 bytes
        0.000     -> RDMA WRITE First psn 100 ack va+0 len 10240 : 1024
        0.000     -> RDMA WRITE Middle psn 101 ack : 1024
        0.000     -> RDMA WRITE Middle psn 102 ack : 1024
        0.000     -> RDMA WRITE Middle psn 103 ack : 1024
        0.000     <- ACK psn 101 msn 0
        0.000     -> RDMA WRITE Middle psn 104 : 1024
        0.000     -> RDMA WRITE Middle psn 105 ack : 1024
        0.000     -> RDMA WRITE Middle psn 106 ack : 1024
        0.000     <- ACK psn 103 msn 0
        0.000     -> RDMA WRITE Middle psn 107 : 1024
        0.000     -> RDMA WRITE Middle psn 108 ack : 1024
        0.000     -> RDMA WRITE Last psn 109 ack : 1024
        0.000     -- halved by a loss
        0.000     <- NAK psn 104 PsnSequenceError msn 0
        0.000     -> RDMA WRITE Middle psn 104 ack : 1024
        0.000     -> RDMA WRITE Middle psn 105 ack : 1024
        0.000     -> RDMA WRITE Middle psn 106 ack : 1024
        0.000     <- ACK psn 106 msn 0
        0.000     -> RDMA WRITE Middle psn 107 : 1024
        0.000     -> RDMA WRITE Middle psn 108 ack : 1024
        0.000     -> RDMA WRITE Last psn 109 ack : 1024
        0.000     <- ACK psn 108 msn 0
        0.000     <- ACK psn 109 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 10240 bytes
    "#]],
    );
}

/// A request that cannot be made completes in its turn: what is before it is finished first.
#[test]
fn a_bad_local_entry_fails_in_order() {
    let mut s = Script::rc();
    let mut bad = s.end.sge(0, 1000);
    bad.lkey = hirail_wire::Lkey::new(0x1234);
    let sges = [s.end.sge(0, 1500), bad];
    s.post(1, SendOp::Send, 10);
    s.post_wr(&SendWr {
        data: SendData::Sges(&sges),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        ..fenced(2, write_to(0))
    });
    s.post(3, SendOp::Send, 10).recv(ack(100, 1)).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  WRITE wr 2, 2500 bytes
        0.000     -> RDMA WRITE First psn 101 va+0 len 2500 : 1024
        0.000     post  SEND wr 3, 10 bytes
        0.000     <- ACK psn 100 msn 1
        0.000     send  wr 1 SUCCESS SEND 10 bytes
        0.000     send  wr 2 LOC_PROT_ERR
        0.000     send  wr 3 WR_FLUSH_ERR
        0.000     state ERR
    "#]],
    );
}

/// The sink of a READ is checked when its data arrives.
#[test]
fn a_read_into_a_bad_entry_fails_when_the_response_comes() {
    let mut s = Script::rc();
    let mut bad = s.end.sge(0, 10);
    bad.addr += 1 << 20;
    let sges = [bad];
    s.post_wr(&SendWr {
        data: SendData::Sges(&sges),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        ..fenced(1, read_from(0))
    });
    s.recv(response(Op::ReadResponseOnly, 100, 1, 10))
        .show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     <- RDMA READ response Only psn 100 msn 1 : 10
        0.000     send  wr 1 LOC_PROT_ERR
        0.000     state ERR
    "#]],
    );
}

/// Only one of many packets asks, at least every 64, and every quarter of the window.
#[test]
fn long_messages_ask_now_and_then() {
    let mut s = Script::new(
        Setup {
            mtu: PathMtu::Mtu256,
            ..Setup::default()
        },
        |_| (),
    );
    s.post(1, write_to(0), 200 * 256);
    let trace = s.trace();
    let asking: Vec<u32> = trace
        .lines()
        .filter(|line| line.contains(" ack"))
        .filter_map(|line| line.split("psn ").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(asking, [163, 227, 291, 299]);
}

/// An unsignaled request makes no completion; its failure does.
#[test]
fn errors_are_told_signaled_or_not() {
    let mut s = Script::new(
        Setup {
            sq_sig_all: false,
            ..Setup::short()
        },
        |_| (),
    );
    let quiet = |wr_id, op| SendWr {
        flags: SendFlags::default(),
        ..fenced(wr_id, op)
    };
    s.post_wr(&quiet(1, SendOp::Send))
        .post_wr(&quiet(2, SendOp::Send))
        .post_wr(&quiet(3, SendOp::Send))
        .recv(nak(101, NakCode::RemoteAccessError, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 0 bytes
        0.000     -> SEND Only psn 100 ack
        0.000     post  SEND wr 2, 0 bytes
        0.000     -> SEND Only psn 101 ack
        0.000     post  SEND wr 3, 0 bytes
        0.000     -> SEND Only psn 102 ack
        0.000     <- NAK psn 101 RemoteAccessError msn 1
        0.000     send  wr 2 REM_ACCESS_ERR
        0.000     send  wr 3 WR_FLUSH_ERR
    "#]],
    );
}

/// A compare-and-swap, an ATOMIC WRITE and a FLUSH on the wire.
#[test]
fn the_other_requests_on_the_wire() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 8,
            ..Setup::short()
        },
        |_| (),
    );
    let va = testkit::BASE + 8;
    let rkey = PEER_KEY;
    s.post(
        1,
        SendOp::CompareSwap {
            va,
            rkey,
            compare: 1,
            swap: 2,
        },
        8,
    )
    .post(2, SendOp::AtomicWrite { va, rkey }, 8);
    let what = hirail_wire::Feth {
        range: hirail_wire::FlushRange::Range,
        global: true,
        persistent: false,
    };
    s.post(
        3,
        SendOp::Flush {
            va,
            rkey,
            length: 8,
            what,
        },
        0,
    )
    .post(4, SendOp::SendInv(PEER_KEY), 5)
    .recv(atomic_ack(100, 1, 3))
    .recv(response(Op::ReadResponseOnly, 101, 2, 0))
    .recv(response(Op::ReadResponseOnly, 102, 3, 0))
    .recv(ack(103, 4));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  CMP_SWP wr 1, 8 bytes
        0.000     -> CmpSwap psn 100 ack va+8 2 1
        0.000     post  ATOMIC WRITE wr 2, 8 bytes
        0.000     -> ATOMIC WRITE psn 101 ack va+8 len 8 : 8
        0.000     post  FLUSH wr 3, 0 bytes
        0.000     -> FLUSH psn 102 ack global va+8 len 8
        0.000     post  SEND with invalidate wr 4, 5 bytes
        0.000     -> SEND Only with Invalidate psn 103 ack invalidate : 5
        0.000     <- ATOMIC Acknowledge psn 100 msn 1 original 3
        0.000     send  wr 1 SUCCESS COMP_SWAP 8 bytes
        0.000     <- RDMA READ response Only psn 101 msn 2
        0.000     send  wr 2 SUCCESS ATOMIC_WRITE 8 bytes
        0.000     <- RDMA READ response Only psn 102 msn 3
        0.000     send  wr 3 SUCCESS FLUSH 0 bytes
        0.000     <- ACK psn 103 msn 4
        0.000     send  wr 4 SUCCESS SEND 5 bytes
    "#]],
    );
}

/// A local operation that has not had its turn yet is not skipped when the send position jumps over
/// it: the SEND before it is resent and then acknowledged after all.
#[test]
fn a_bind_behind_a_retried_send_takes_place() {
    let mut s = Script::new(Setup::short(), |_| ());
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
        length: 64,
        access: hirail_rnic::mr::Access::REMOTE_READ,
    };
    s.link_takes(1)
        .post(1, SendOp::Send, 10)
        .post(2, SendOp::BindMw(bind), 0)
        .post(3, SendOp::Send, 10)
        .wait(66.0)
        .recv(ack(100, 1))
        .link_takes(usize::MAX)
        .recv(ack(101, 2));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  BIND_MW wr 2, 0 bytes
        0.000     post  SEND wr 3, 10 bytes
        66.000    <- ACK psn 100 msn 1
        66.000    send  wr 1 SUCCESS SEND 10 bytes
        66.000    -> SEND Only psn 101 ack : 10
        66.000    send  wr 2 SUCCESS BIND_MW 0 bytes
        66.000    <- ACK psn 101 msn 2
        66.000    send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// A bind with a fence waits like everything else: its region can still go before the READ is done.
#[test]
fn a_fenced_bind_waits_for_the_read_before_it() {
    let mut s = Script::rc();
    let window = s
        .end
        .device
        .alloc_mw(s.end.pd, hirail_rnic::mr::MwType::Type2)
        .unwrap();
    let access = hirail_rnic::mr::Access::MW_BIND;
    let memory = testkit::Memory::zeroed(64);
    let region = s
        .end
        .device
        .reg_mr(s.end.pd, 0, 64, access, memory)
        .unwrap();
    let bind = hirail_rnic::mr::BindMw {
        window,
        new_key: window,
        region: region.lkey(),
        addr: 0,
        length: 64,
        access: hirail_rnic::mr::Access::REMOTE_READ,
    };
    s.post(1, read_from(0), 10)
        .post_wr(&fenced(2, SendOp::BindMw(bind)));
    s.end.device.dereg_mr(region.lkey()).unwrap();
    s.recv(response(Op::ReadResponseOnly, 100, 1, 10));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 10 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 10
        0.000     post  BIND_MW wr 2, 0 bytes fence
        0.000     <- RDMA READ response Only psn 100 msn 1 : 10
        0.000     send  wr 1 SUCCESS RDMA_READ 10 bytes
        0.000     send  wr 2 MW_BIND_ERR
    "#]],
    );
}

/// Old responses that were late, not lost, are taken in the middle of a repeated READ.
#[test]
fn late_responses_mix_with_those_of_the_second_request() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 4000)
        .recv(response(Op::ReadResponseFirst, 100, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .note("the first stream's second response was only late")
        .recv(response(Op::ReadResponseMiddle, 101, 1, 1024))
        .recv(response(Op::ReadResponseFirst, 101, 1, 1024))
        .recv(response(Op::ReadResponseMiddle, 102, 1, 1024))
        .recv(response(Op::ReadResponseLast, 103, 1, 928));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 4000 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 4000
        0.000     <- RDMA READ response First psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     dropped: response_gap
        0.000     -> RDMA READ Request psn 101 ack va+1024 len 2976
        0.000     -- the first stream's second response was only late
        0.000     <- RDMA READ response Middle psn 101 : 1024
        0.000     <- RDMA READ response First psn 101 msn 1 : 1024
        0.000     dropped: ghost_ack
        0.000     <- RDMA READ response Middle psn 102 : 1024
        0.000     <- RDMA READ response Last psn 103 msn 1 : 928
        0.000     send  wr 1 SUCCESS RDMA_READ 4000 bytes
    "#]],
    );
}

/// The sequence number wraps within a message.
#[test]
fn sequence_numbers_wrap() {
    let mut s = Script::in_reset(Setup::default(), |_| ());
    s.to_rtr();
    s.set(
        hirail_rnic::qp::attr::AttrMask::STATE
            | hirail_rnic::qp::attr::AttrMask::SQ_PSN
            | hirail_rnic::qp::attr::AttrMask::TIMEOUT
            | hirail_rnic::qp::attr::AttrMask::RETRY_CNT
            | hirail_rnic::qp::attr::AttrMask::RNR_RETRY
            | hirail_rnic::qp::attr::AttrMask::MAX_QP_RD_ATOMIC,
        |attr| {
            attr.qp_state = hirail_vocab::QpState::Rts;
            attr.sq_psn = hirail_wire::Psn::new(0xff_ffff);
            attr.retry_cnt = 7;
        },
    );
    s.post(1, write_to(0), 3000)
        .recv(nak(0, NakCode::PsnSequenceError, 0))
        .recv(ack(1, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 3000 bytes
        0.000     -> RDMA WRITE First psn 16777215 va+0 len 3000 : 1024
        0.000     -> RDMA WRITE Middle psn 0 : 1024
        0.000     -> RDMA WRITE Last psn 1 ack : 952
        0.000     <- NAK psn 0 PsnSequenceError msn 0
        0.000     -> RDMA WRITE Middle psn 0 : 1024
        0.000     -> RDMA WRITE Last psn 1 ack : 952
        0.000     <- ACK psn 1 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 3000 bytes
    "#]],
    );
}
