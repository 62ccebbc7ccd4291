//! Traces of what other implementations do where the standard leaves it open, as seen on the wire.
//!
//! How to read a trace: `testkit::script`. `UPDATE_EXPECT=1` writes them anew, for review.

use expect_test::expect;
use hirail_rnic::SendOp;
use hirail_wire::NakCode;
use testkit::Setup;
use testkit::script::{Script, ack, nak, rnr};

/// rxe has no receive for the first packet and answers RNR; the packets behind it have PSNs that it
/// does not expect then, so it adds a sequence NAK, which may come after the wait. Receives may be
/// long in coming: such NAKs must not use up the retries.
#[test]
fn rxe_adds_a_sequence_nak_to_each_rnr_nak() {
    let setup = Setup {
        retry_cnt: 1,
        rnr_retry: 7,
        ..Setup::default()
    };
    let mut s = Script::new(setup, |_| ());
    s.post(1, SendOp::Send, 2000);
    for _ in 0..3 {
        s.recv(rnr(100, 1, 0)).wait(11.0);
        s.recv(nak(100, NakCode::PsnSequenceError, 0));
    }
    s.recv(ack(101, 1));
    let expected = expect![[r#"
        0.000     post  SEND wr 1, 2000 bytes
        0.000     -> SEND First psn 100 : 1024
        0.000     -> SEND Last psn 101 ack : 976
        0.000     <- RNR NAK psn 100 timer 1 msn 0
        10.000    -> SEND First psn 100 : 1024
        10.000    -> SEND Last psn 101 ack : 976
        11.000    <- NAK psn 100 PsnSequenceError msn 0
        11.000    -> SEND First psn 100 : 1024
        11.000    -> SEND Last psn 101 ack : 976
        11.000    <- RNR NAK psn 100 timer 1 msn 0
        21.000    -> SEND First psn 100 : 1024
        21.000    -> SEND Last psn 101 ack : 976
        22.000    <- NAK psn 100 PsnSequenceError msn 0
        22.000    -> SEND First psn 100 : 1024
        22.000    -> SEND Last psn 101 ack : 976
        22.000    <- RNR NAK psn 100 timer 1 msn 0
        32.000    -> SEND First psn 100 : 1024
        32.000    -> SEND Last psn 101 ack : 976
        33.000    <- NAK psn 100 PsnSequenceError msn 0
        33.000    -> SEND First psn 100 : 1024
        33.000    -> SEND Last psn 101 ack : 976
        33.000    <- ACK psn 101 msn 1
        33.000    send  wr 1 SUCCESS SEND 2000 bytes
    "#]];
    expected.assert_eq(&s.trace());
}
