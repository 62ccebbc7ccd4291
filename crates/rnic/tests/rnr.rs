//! Traces of a requester whose peer is not ready to receive. How to read a trace: `testkit::script`.

use expect_test::expect;
use hirail_rnic::SendOp;
use hirail_wire::{NakCode, Operation as Op};
use testkit::Setup;
use testkit::script::{Script, ack, check, nak, read_from, response, rnr, write_to};

/// All 32 waits are kept: nothing is sent before, something is sent then.
#[test]
fn an_rnr_nak_is_waited_for() {
    for timer in 0..32u8 {
        let mut s = Script::rc();
        s.post(1, SendOp::Send, 10).recv(rnr(100, timer, 0));
        s.trace();
        let delay = hirail_wire::RnrTimer::new(timer).delay().as_secs_f64() * 1e6;
        s.wait(delay - 0.001);
        assert_eq!(s.trace(), "", "code {timer}");
        s.wait(0.001);
        assert!(s.trace().contains("-> SEND Only psn 100"), "code {timer}");
    }
}

/// The RNR retries are counted apart from the others and end with a status of their own.
#[test]
fn rnr_retries_run_out() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10).post(2, SendOp::Send, 10);
    for _ in 0..3 {
        s.recv(rnr(100, 1, 0)).wait(11.0);
    }
    s.show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        0.000     <- RNR NAK psn 100 timer 1 msn 0
        10.000    -> SEND Only psn 100 ack : 10
        10.000    -> SEND Only psn 101 ack : 10
        11.000    <- RNR NAK psn 100 timer 1 msn 0
        21.000    -> SEND Only psn 100 ack : 10
        21.000    -> SEND Only psn 101 ack : 10
        22.000    <- RNR NAK psn 100 timer 1 msn 0
        22.000    send  wr 1 RNR_RETRY_EXC_ERR
        22.000    send  wr 2 WR_FLUSH_ERR
        33.000    state ERR
    "#]],
    );
}

/// 7 is without end.
#[test]
fn seven_rnr_retries_are_infinite() {
    let mut s = Script::new(
        Setup {
            rnr_retry: 7,
            ..Setup::short()
        },
        |_| (),
    );
    s.post(1, SendOp::Send, 10);
    for _ in 0..1000 {
        s.recv(rnr(100, 1, 0)).wait(11.0);
    }
    s.trace();
    s.recv(ack(100, 1));
    check(
        &mut s,
        &expect![[r#"
         11000.000 <- ACK psn 100 msn 1
         11000.000 send  wr 1 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// rxe sends a sequence NAK for what followed the packet that it had no buffer for; and networks
/// duplicate. Both change nothing while the wait runs.
#[test]
fn nothing_shortens_an_rnr_wait() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .post(2, SendOp::Send, 10)
        .recv(rnr(100, 10, 0))
        .recv(nak(100, NakCode::PsnSequenceError, 0));
    for _ in 0..4 {
        s.recv(rnr(100, 10, 0));
    }
    s.post(3, SendOp::Send, 10).wait(400.0).recv(ack(102, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     <- NAK psn 100 PsnSequenceError msn 0
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        0.000     post  SEND wr 3, 10 bytes
        320.000   -> SEND Only psn 100 ack : 10
        320.000   -> SEND Only psn 101 ack : 10
        320.000   -> SEND Only psn 102 ack : 10
        385.536   -> SEND Only psn 100 ack : 10
        385.536   -> SEND Only psn 101 ack : 10
        385.536   -> SEND Only psn 102 ack : 10
        400.000   <- ACK psn 102 msn 3
        400.000   send  wr 1 SUCCESS SEND 10 bytes
        400.000   send  wr 2 SUCCESS SEND 10 bytes
        400.000   send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}

/// What is due or arrives during the wait does not shorten it: the ACK timer of before, a late ACK
/// of what is before the request that waits, the sequence NAK of rxe, a copy that asks for less, a link
/// that was full, a new request.
#[test]
fn an_rnr_wait_begins_with_its_nak_and_runs_to_its_end() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, read_from(0), 100)
        .post(2, write_to(0), 10)
        .post(3, SendOp::Send, 10)
        .post(4, SendOp::Send, 10)
        .wait(30.0)
        .recv(response(Op::ReadResponseOnly, 100, 1, 100))
        .wait(30.0)
        .note("until 380")
        .recv(rnr(102, 10, 2))
        .link_takes(0)
        .wait(100.0)
        .recv(ack(101, 2))
        .recv(nak(102, NakCode::PsnSequenceError, 2))
        .recv(rnr(102, 1, 2))
        .link_takes(usize::MAX)
        .post(5, SendOp::Send, 10)
        .wait(219.999)
        .note("now")
        .wait(0.001);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 100 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 100
        0.000     post  WRITE wr 2, 10 bytes
        0.000     -> RDMA WRITE Only psn 101 ack va+0 len 10 : 10
        0.000     post  SEND wr 3, 10 bytes
        0.000     -> SEND Only psn 102 ack : 10
        0.000     post  SEND wr 4, 10 bytes
        0.000     -> SEND Only psn 103 ack : 10
        30.000    <- RDMA READ response Only psn 100 msn 1 : 100
        30.000    send  wr 1 SUCCESS RDMA_READ 100 bytes
        60.000    -- until 380
        60.000    <- RNR NAK psn 102 timer 10 msn 2
        60.000    send  wr 2 SUCCESS RDMA_WRITE 10 bytes
        160.000   <- ACK psn 101 msn 2
        160.000   dropped: ghost_ack
        160.000   <- NAK psn 102 PsnSequenceError msn 2
        160.000   <- RNR NAK psn 102 timer 1 msn 2
        160.000   post  SEND wr 5, 10 bytes
        379.999   -- now
        380.000   -> SEND Only psn 102 ack : 10
        380.000   -> SEND Only psn 103 ack : 10
        380.000   -> SEND Only psn 104 ack : 10
    "#]],
    );
}

/// Code 10 waits 320 µs, longer than the ACK timeout: that does not run meanwhile.
#[test]
fn the_ack_timer_stops_during_an_rnr_wait() {
    let mut s = Script::new(Setup::short(), |_| ());
    s.post(1, SendOp::Send, 10)
        .recv(rnr(100, 10, 0))
        .wait(319.0);
    s.note("still waiting").wait(2.0).wait(66.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     <- RNR NAK psn 100 timer 10 msn 0
        319.000   -- still waiting
        320.000   -> SEND Only psn 100 ack : 10
        385.536   -> SEND Only psn 100 ack : 10
    "#]],
    );
}
