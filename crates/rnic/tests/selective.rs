//! Traces of selective repeat's sending half: what it sends again, and when.

use expect_test::expect;
use hirail_rnic::{RecoveryKind, SendOp, WindowConfig};
use hirail_wire::{AckTimeout, Ext, Hello, Operation, Psn, Sack, Service};
use testkit::Setup;
use testkit::script::{Packet, SQ_PSN, Script, ack, check, packet, rnr, write_to};

/// A connection whose peer has said that it repeats selectively, with few retries, an ACK timeout of
/// 16.8 ms and a window towards the destination of so many packets of 1024 bytes.
fn selective(retry_cnt: u8, window: u64, peer_keeps: u16) -> Script {
    let setup = Setup {
        timeout: AckTimeout::new(12),
        retry_cnt,
        ..Setup::default()
    };
    let mut s = Script::new(setup, |config| {
        config.recovery = RecoveryKind::SelectiveRepeat;
        config.window = WindowConfig {
            initial: window * (1024 + 66),
            minimum: window * (1024 + 66),
            maximum: window * (1024 + 66),
            ..WindowConfig::default()
        };
    });
    let answer = Hello {
        version: Hello::VERSION,
        flags: Hello::SELECTIVE_REPEAT | Hello::REPLY,
        window_packets: peer_keeps,
        // The device makes it of the time and its first PSN.
        nonce: SQ_PSN << 8,
    };
    s.recv(packet(Service::Manufacturer, Operation::Hello, 0).ext(Ext::Hello(answer)));
    s.trace();
    s
}

/// Everything before `cumulative` has arrived, and `others` have.
fn sack(cumulative: u32, others: &[u32]) -> Packet {
    let mut sack = Sack::new(Psn::new(cumulative), false);
    for &psn in others {
        sack.insert(Psn::new(psn));
    }
    packet(Service::Manufacturer, Operation::Sack, cumulative).ext(Ext::Sack(sack))
}

/// The short timer's packet asks, whichever packet of a message it is: if it was the answer that got
/// lost, the peer has it and says nothing unless it is asked.
#[test]
fn a_probe_asks_for_an_answer() {
    let mut s = selective(0, 16, 256);
    s.post(1, write_to(0), 2000)
        .wait(500.0)
        .recv(ack(101, 1))
        .wait(20_000.0);
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 2000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 2000 : 1024
        0.000     -> RDMA WRITE Last psn 101 ack : 976
        500.000   -> RDMA WRITE First psn 100 ack va+0 len 2000 : 1024
        500.000   <- ACK psn 101 msn 1
        500.000   send  wr 1 SUCCESS RDMA_WRITE 2000 bytes
    "#]],
    );
}

/// What is lost is in flight already: it is sent again although the queue pair waits for room.
#[test]
fn what_was_lost_does_not_wait_for_room() {
    let mut s = selective(0, 4, 256);
    s.post(1, write_to(0), 6000)
        .recv(sack(100, &[101, 102, 103]))
        .recv(ack(103, 0))
        .recv(ack(105, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 6000 bytes
        0.000     -> RDMA WRITE First psn 100 ack va+0 len 6000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 ack : 1024
        0.000     -> RDMA WRITE Middle psn 102 ack : 1024
        0.000     -> RDMA WRITE Middle psn 103 ack : 1024
        0.000     <- SACK psn 100
        0.000     -> RDMA WRITE First psn 100 ack va+0 len 6000 : 1024
        0.000     <- ACK psn 103 msn 0
        0.000     -> RDMA WRITE Middle psn 104 ack : 1024
        0.000     -> RDMA WRITE Last psn 105 ack : 880
        0.000     <- ACK psn 105 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 6000 bytes
    "#]],
    );
}

/// The last packet that the peer can keep asks: nothing is sent before it is answered.
#[test]
fn the_packet_that_fills_the_peers_pool_asks() {
    let mut s = selective(0, 16, 3);
    s.post(1, write_to(0), 6000)
        .recv(ack(102, 0))
        .recv(ack(105, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 6000 bytes
        0.000     -> RDMA WRITE First psn 100 va+0 len 6000 : 1024
        0.000     -> RDMA WRITE Middle psn 101 : 1024
        0.000     -> RDMA WRITE Middle psn 102 ack : 1024
        0.000     <- ACK psn 102 msn 0
        0.000     -> RDMA WRITE Middle psn 103 : 1024
        0.000     -> RDMA WRITE Middle psn 104 : 1024
        0.000     -> RDMA WRITE Last psn 105 ack : 880
        0.000     <- ACK psn 105 msn 1
        0.000     send  wr 1 SUCCESS RDMA_WRITE 6000 bytes
    "#]],
    );
}

/// The short timer waits for the receiver like everything else.
#[test]
fn a_probe_does_not_shorten_an_rnr_wait() {
    let mut s = selective(0, 16, 256);
    s.post(1, SendOp::Send, 10)
        .post(2, SendOp::Send, 10)
        .recv(rnr(100, 14, 0))
        .recv(sack(100, &[101]))
        .post(3, SendOp::Send, 10)
        .wait(1279.0)
        .note("still waiting")
        .wait(1.0)
        .recv(ack(102, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  SEND wr 1, 10 bytes
        0.000     -> SEND Only psn 100 ack : 10
        0.000     post  SEND wr 2, 10 bytes
        0.000     -> SEND Only psn 101 ack : 10
        0.000     <- RNR NAK psn 100 timer 14 msn 0
        0.000     <- SACK psn 100
        0.000     post  SEND wr 3, 10 bytes
        1279.000  -- still waiting
        1280.000  -> SEND Only psn 100 ack : 10
        1280.000  -> SEND Only psn 101 ack : 10
        1280.000  -> SEND Only psn 102 ack : 10
        1280.000  <- ACK psn 102 msn 3
        1280.000  send  wr 1 SUCCESS SEND 10 bytes
        1280.000  send  wr 2 SUCCESS SEND 10 bytes
        1280.000  send  wr 3 SUCCESS SEND 10 bytes
    "#]],
    );
}
