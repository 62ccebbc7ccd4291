//! What other implementations were reported to do wrong, where no other test happens to say it.
//! `docs/bug-reports.md` says which report is whose.

use expect_test::{Expect, expect};
use hirail_rnic::SendOp;
use hirail_vocab::QpState;
use hirail_wire::{Operation as Op, PathMtu, Rkey};
use testkit::script::{Packet, Script, ack, rc, response};
use testkit::{BASE, Setup};

#[track_caller]
fn check(script: &mut Script, expected: &Expect) {
    expected.assert_eq(&script.trace());
}

fn read(psn: u32) -> Packet {
    rc(Op::ReadRequest, psn).ack().reth(0, 10)
}

/// MigReq tells of the peer's state of path migration, of which there is none: cards clear it, the
/// kernel's soft-RoCE sets it, and both are heard (IBTA 17.2.8).
#[test]
fn a_peer_is_heard_whatever_its_migration_state() {
    for migrated in [false, true] {
        let mut s = Script::rc();
        s.post_recv(1, 100).post(2, SendOp::Send, 10);
        s.recv(rc(Op::SendOnly, 500).ack().bytes(8).migrated(migrated))
            .recv(ack(100, 1).migrated(migrated))
            .show_state();
        check(
            &mut s,
            &expect![[r#"
                0.000     post  RECV wr 1, 100 bytes
                0.000     post  SEND wr 2, 10 bytes
                0.000     -> SEND Only psn 100 ack : 10
                0.000     <- SEND Only psn 500 ack : 8
                0.000     recv  wr 1 SUCCESS RECV 8 bytes
                0.000     -> ACK psn 500 credits 0 msn 1
                0.000     <- ACK psn 100 msn 1
                0.000     send  wr 2 SUCCESS SEND 10 bytes
                0.000     state RTS
            "#]],
        );
    }
}

fn with_depth(depth: u8) -> Script {
    let setup = Setup {
        max_rd_atomic: depth,
        max_dest_rd_atomic: depth,
        ..Setup::default()
    };
    Script::new(setup, |_| ())
}

/// As many READs as were agreed go out at once; one more waits for the first response.
#[test]
fn sixteen_reads_are_asked_for_at_once() {
    let mut s = with_depth(16);
    let op = SendOp::Read {
        va: BASE,
        rkey: Rkey::new(1),
    };
    for wr_id in 1..=17 {
        s.post(wr_id, op, 10);
    }
    let requests = |trace: &str| trace.matches("-> RDMA READ Request").count();
    assert_eq!(requests(&s.trace()), 16);
    s.recv(response(Op::ReadResponseOnly, 100, 1, 10));
    let trace = s.trace();
    assert!(trace.contains("send  wr 1 SUCCESS"), "{trace}");
    assert_eq!(requests(&trace), 1, "{trace}");
}

/// As many READs as were agreed are served although none has been answered yet; one more is the
/// peer's mistake.
#[test]
fn sixteen_reads_are_served_at_once() {
    let mut s = with_depth(16);
    s.link_takes(0);
    for psn in 500..516 {
        s.recv(read(psn));
    }
    s.link_takes(usize::MAX).show_state();
    let trace = s.trace();
    assert_eq!(trace.matches("-> RDMA READ response Only").count(), 16);
    assert!(
        trace.contains("state RTS") && !trace.contains("NAK"),
        "{trace}"
    );
    s.link_takes(0);
    for psn in 516..533 {
        s.recv(read(psn));
    }
    s.link_takes(usize::MAX);
    assert!(s.trace().contains("NAK psn 532 InvalidRequest"));
}

/// A queue pair that fails in the middle of a message flushes it, and what is behind it, once each;
/// what the link has still in hand, what the peer says of it and later failures change nothing.
#[test]
fn a_message_that_is_half_sent_is_flushed_once() {
    for takes in 0..6 {
        let setup = Setup {
            mtu: PathMtu::Mtu256,
            ..Setup::default()
        };
        let mut s = Script::new(setup, |_| ());
        s.link_takes(takes)
            .post(1, SendOp::Send, 1200)
            .post(2, SendOp::Send, 10);
        s.modify(QpState::Err);
        s.link_takes(usize::MAX);
        s.recv(ack(100, 0)).recv(ack(104, 1));
        s.modify(QpState::Err);
        s.wait(10_000.0);
        let trace = s.trace();
        let ended = |wr_id: u64| {
            trace
                .matches(&format!("send  wr {wr_id} WR_FLUSH_ERR"))
                .count()
        };
        assert_eq!((ended(1), ended(2)), (1, 1), "{takes}: {trace}");
        assert!(!trace.contains("SUCCESS"), "{takes}: {trace}");
    }
}
