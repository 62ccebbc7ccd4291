//! Traces of the responder: what it does with requests, good and bad. Rules:
//! IBTA Vol 1, chapter 9 (Transport Layer).

use expect_test::expect;
use hirail_rnic::mr::Access;
use hirail_rnic::transmit::{Class, OpenClasses};
use hirail_rnic::wr::Sge;
use hirail_rnic::{SendOp, Span};
use hirail_vocab::{Counter, DropReason, QpType};
use hirail_wire::{
    AckTimeout, Ext, Feth, FlushRange, Lkey, Operation as Op, Reth, Rkey, RnrTimer, Service,
};
use testkit::script::{Packet, Script, check, packet, rc};
use testkit::{BASE, Setup};

fn send(psn: u32, len: usize) -> Packet {
    rc(Op::SendOnly, psn).ack().bytes(len)
}

fn write(psn: u32, offset: u64, len: usize) -> Packet {
    rc(Op::WriteOnly, psn)
        .ack()
        .reth(offset, len as u32)
        .bytes(len)
}

fn read(psn: u32, offset: u64, len: u32) -> Packet {
    rc(Op::ReadRequest, psn).ack().reth(offset, len)
}

fn add(psn: u32, offset: u64, add: u64) -> Packet {
    rc(Op::FetchAdd, psn).ack().atomic(offset, add, 0)
}

fn swap(psn: u32, offset: u64, compare: u64, swap: u64) -> Packet {
    rc(Op::CompareSwap, psn).ack().atomic(offset, swap, compare)
}

#[test]
fn requests_in_order_are_executed_and_acknowledged_when_asked() {
    let mut s = Script::rc();
    s.post_recv(1, 5000).post_recv(2, 100);
    s.recv(rc(Op::SendFirst, 500).bytes(1024))
        .recv(rc(Op::SendMiddle, 501).bytes(1024))
        .recv(
            rc(Op::SendLastImm, 502)
                .ack()
                .solicited()
                .imm(*b"imm!")
                .bytes(1),
        )
        .recv(write(503, 8, 10))
        .recv(rc(Op::WriteOnly, 504).reth(0, 0))
        .recv(rc(Op::WriteOnlyImm, 505).ack().reth(100, 4).bytes(4))
        .recv(read(506, 0, 2050))
        .recv(add(509, 64, 5))
        .recv(swap(510, 64, 5, 9));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 5000 bytes
        0.000     post  RECV wr 2, 100 bytes
        0.000     <- SEND First psn 500 : 1024
        0.000     <- SEND Middle psn 501 : 1024
        0.000     <- SEND Last with Immediate psn 502 solicited ack imm 696d6d21 : 1
        0.000     recv  wr 1 SUCCESS RECV 2049 bytes imm 696d6d21 solicited
        0.000     -> ACK psn 502 credits 1 msn 1
        0.000     <- RDMA WRITE Only psn 503 ack va+8 len 10 : 10
        0.000     -> ACK psn 503 credits 1 msn 2
        0.000     <- RDMA WRITE Only psn 504 va+0 len 0
        0.000     <- RDMA WRITE Only with Immediate psn 505 ack va+100 len 4 imm 696d6d21 : 4
        0.000     recv  wr 2 SUCCESS RECV_RDMA_WITH_IMM 4 bytes imm 696d6d21
        0.000     -> ACK psn 505 credits 0 msn 4
        0.000     <- RDMA READ Request psn 506 ack va+0 len 2050
        0.000     -> RDMA READ response First psn 506 credits 0 msn 5 : 1024
        0.000     -> RDMA READ response Middle psn 507 : 1024
        0.000     -> RDMA READ response Last psn 508 credits 0 msn 5 : 2
        0.000     <- FetchAdd psn 509 ack va+64 5 0
        0.000     -> ATOMIC Acknowledge psn 509 credits 0 msn 6 original 0
        0.000     <- CmpSwap psn 510 ack va+64 9 5
        0.000     -> ATOMIC Acknowledge psn 510 credits 0 msn 7 original 5
    "#]],
    );
    assert_eq!(s.end.memory.word(64), 9);
}

/// The PSN of a READ's successor is beyond its responses; an ACK waits for the responses before it.
#[test]
fn an_ack_does_not_overtake_the_responses_before_it() {
    let mut s = Script::rc();
    s.link_takes(0)
        .recv(read(500, 0, 3000))
        .recv(write(503, 0, 10))
        .recv(add(504, 64, 1))
        .recv(write(505, 0, 10));
    s.note("the link opens for two packets, then for all")
        .run_of(2)
        .link_takes(2)
        .link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 3000
        0.000     <- RDMA WRITE Only psn 503 ack va+0 len 10 : 10
        0.000     <- FetchAdd psn 504 ack va+64 1 0
        0.000     <- RDMA WRITE Only psn 505 ack va+0 len 10 : 10
        0.000     -- the link opens for two packets, then for all
        0.000     -> RDMA READ response First psn 500 credits 0 msn 4 : 1024
        0.000     -> RDMA READ response Middle psn 501 : 1024
        0.000     -> RDMA READ response Last psn 502 credits 0 msn 4 : 952
        0.000     -> ATOMIC Acknowledge psn 504 credits 0 msn 4 original 0
        0.000     -> ACK psn 505 credits 0 msn 4
    "#]],
    );
}

/// Not even when the data class is paused and the class of acknowledgements is not.
#[test]
fn an_ack_waits_for_a_paused_read() {
    let mut s = Script::rc();
    s.link_open(OpenClasses::ALL.without(Class::data(0)))
        .recv(write(500, 0, 10))
        .recv(read(501, 0, 10))
        .recv(write(502, 0, 10))
        .note("resumed")
        .link_open(OpenClasses::ALL);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 10 : 10
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     <- RDMA READ Request psn 501 ack va+0 len 10
        0.000     <- RDMA WRITE Only psn 502 ack va+0 len 10 : 10
        0.000     -- resumed
        0.000     -> RDMA READ response Only psn 501 credits 0 msn 3 : 10
        0.000     -> ACK psn 502 credits 0 msn 3
    "#]],
    );
}

/// ACKs that have not left are one ACK.
#[test]
fn acks_coalesce_while_the_link_is_busy() {
    let mut s = Script::rc();
    s.link_takes(0);
    for psn in 500..520 {
        s.recv(write(psn, 0, 10));
    }
    s.trace();
    s.link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     -> ACK psn 519 credits 0 msn 20
    "#]],
    );
}

/// One NAK for a gap, then silence until the gap is filled.
#[test]
fn a_gap_is_told_once() {
    let mut s = Script::rc();
    s.recv(write(500, 0, 1))
        .recv(write(502, 0, 1))
        .recv(write(503, 0, 1))
        .recv(write(504, 0, 1))
        .note("a duplicate is served meanwhile")
        .recv(write(500, 0, 1))
        .note("the gap is filled, the next one is told again")
        .recv(write(501, 0, 1))
        .recv(write(503, 0, 1))
        .recv(write(504, 0, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     <- RDMA WRITE Only psn 502 ack va+0 len 1 : 1
        0.000     -> NAK psn 501 PsnSequenceError msn 1
        0.000     <- RDMA WRITE Only psn 503 ack va+0 len 1 : 1
        0.000     dropped: out_of_sequence_silent
        0.000     <- RDMA WRITE Only psn 504 ack va+0 len 1 : 1
        0.000     dropped: out_of_sequence_silent
        0.000     -- a duplicate is served meanwhile
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     -- the gap is filled, the next one is told again
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 1 : 1
        0.000     -> ACK psn 501 credits 0 msn 2
        0.000     <- RDMA WRITE Only psn 503 ack va+0 len 1 : 1
        0.000     -> NAK psn 502 PsnSequenceError msn 2
        0.000     <- RDMA WRITE Only psn 504 ack va+0 len 1 : 1
        0.000     dropped: out_of_sequence_silent
    "#]],
    );
}

/// A NAK that has not left when the gap is filled (packets were merely reordered) is not sent.
#[test]
fn a_gap_that_closes_in_time_is_not_told() {
    let mut s = Script::rc();
    s.link_takes(0)
        .recv(write(501, 0, 1))
        .recv(write(500, 0, 1))
        .note("what came too early was not kept: it is asked for")
        .link_takes(1)
        .recv(write(501, 0, 1))
        .link_takes(1);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 1 : 1
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     -- what came too early was not kept: it is asked for
        0.000     -> NAK psn 501 PsnSequenceError msn 1
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 1 : 1
        0.000     -> ACK psn 501 credits 0 msn 2
    "#]],
    );
}

/// The NAK waits behind a READ response; the gap moves meanwhile, and is told once all the same.
#[test]
fn a_gap_that_moves_before_it_is_told_is_told_once() {
    let mut s = Script::rc();
    s.link_takes(0)
        .recv(read(500, 0, 8))
        .recv(write(503, 0, 1))
        .note("501 was only late")
        .recv(write(501, 0, 1))
        .link_takes(usize::MAX)
        .recv(write(504, 0, 1))
        .recv(write(502, 0, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 8
        0.000     <- RDMA WRITE Only psn 503 ack va+0 len 1 : 1
        0.000     -- 501 was only late
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 1 : 1
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 2 : 8
        0.000     -> NAK psn 502 PsnSequenceError msn 2
        0.000     <- RDMA WRITE Only psn 504 ack va+0 len 1 : 1
        0.000     dropped: out_of_sequence_silent
        0.000     <- RDMA WRITE Only psn 502 ack va+0 len 1 : 1
        0.000     -> ACK psn 502 credits 0 msn 3
    "#]],
    );
}

/// A duplicate is acknowledged with the newest PSN and changes nothing.
#[test]
fn a_duplicate_is_acknowledged_and_not_executed() {
    let mut s = Script::rc();
    s.post_recv(1, 100).post_recv(2, 100);
    s.recv(send(500, 5))
        .recv(rc(Op::WriteFirst, 501).reth(0, 1030).bytes(1024));
    s.recv(rc(Op::WriteLast, 502).ack().bytes(6));
    s.end.memory.fill(0, &[0; 2000]);
    s.trace();
    let stores = s.end.memory.stores();
    s.recv(send(500, 5))
        .recv(rc(Op::WriteFirst, 501).reth(0, 1030).bytes(1024))
        .recv(rc(Op::WriteLast, 502).ack().bytes(6));
    assert_eq!(s.end.memory.stores(), stores);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 5
        0.000     -> ACK psn 502 credits 1 msn 2
        0.000     <- RDMA WRITE First psn 501 va+0 len 1030 : 1024
        0.000     <- RDMA WRITE Last psn 502 ack : 6
        0.000     -> ACK psn 502 credits 1 msn 2
    "#]],
    );
}

/// Half the circle away: one step less is a gap, at the half it is a duplicate.
#[test]
fn far_away_sequence_numbers() {
    let mut s = Script::rc();
    s.recv(write((500 + (1 << 23) - 1) & 0xff_ffff, 0, 1))
        .recv(write((500 + (1 << 23)) & 0xff_ffff, 0, 1))
        .recv(write(499, 0, 1))
        .recv(write(500, 0, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 8389107 ack va+0 len 1 : 1
        0.000     -> NAK psn 500 PsnSequenceError msn 0
        0.000     <- RDMA WRITE Only psn 8389108 ack va+0 len 1 : 1
        0.000     -> ACK psn 499 credits 0 msn 0
        0.000     <- RDMA WRITE Only psn 499 ack va+0 len 1 : 1
        0.000     -> ACK psn 499 credits 0 msn 0
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     -> ACK psn 500 credits 0 msn 1
    "#]],
    );
}

/// A repeated READ is answered again, also from its middle, as First or Only; what lies outside the
/// first one is not.
#[test]
fn a_read_is_replayed_from_any_packet() {
    let mut s = Script::rc();
    s.recv(read(500, 64, 4000));
    s.note("all of it").recv(read(500, 64, 4000));
    s.note("the last two")
        .recv(read(502, 64 + 2048, 4000 - 2048));
    s.note("the last").recv(read(503, 64 + 3072, 928));
    s.note("two in the middle").recv(read(501, 64 + 1024, 2048));
    s.note("none of these");
    s.recv(read(501, 64, 2048))
        .recv(read(501, 64 + 1024, 3000))
        .recv(read(501, 64 + 1024, 2000))
        .recv(read(502, 64 + 2048, 1952).key(Rkey::new(5)))
        .recv(read(499, 64, 4000))
        .recv(add(501, 64, 1));
    s.note("nothing of that moved the expected PSN")
        .recv(write(504, 0, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+64 len 4000
        0.000     -> RDMA READ response First psn 500 credits 0 msn 1 : 1024
        0.000     -> RDMA READ response Middle psn 501 : 1024
        0.000     -> RDMA READ response Middle psn 502 : 1024
        0.000     -> RDMA READ response Last psn 503 credits 0 msn 1 : 928
        0.000     -- all of it
        0.000     <- RDMA READ Request psn 500 ack va+64 len 4000
        0.000     -> RDMA READ response First psn 500 credits 0 msn 1 : 1024
        0.000     -> RDMA READ response Middle psn 501 : 1024
        0.000     -> RDMA READ response Middle psn 502 : 1024
        0.000     -> RDMA READ response Last psn 503 credits 0 msn 1 : 928
        0.000     -- the last two
        0.000     <- RDMA READ Request psn 502 ack va+2112 len 1952
        0.000     -> RDMA READ response First psn 502 credits 0 msn 1 : 1024
        0.000     -> RDMA READ response Last psn 503 credits 0 msn 1 : 928
        0.000     -- the last
        0.000     <- RDMA READ Request psn 503 ack va+3136 len 928
        0.000     -> RDMA READ response Only psn 503 credits 0 msn 1 : 928
        0.000     -- two in the middle
        0.000     <- RDMA READ Request psn 501 ack va+1088 len 2048
        0.000     -> RDMA READ response First psn 501 credits 0 msn 1 : 1024
        0.000     -> RDMA READ response Last psn 502 credits 0 msn 1 : 1024
        0.000     -- none of these
        0.000     <- RDMA READ Request psn 501 ack va+64 len 2048
        0.000     dropped: duplicate_unreplayable
        0.000     <- RDMA READ Request psn 501 ack va+1088 len 3000
        0.000     dropped: duplicate_unreplayable
        0.000     <- RDMA READ Request psn 501 ack va+1088 len 2000
        0.000     dropped: duplicate_unreplayable
        0.000     <- RDMA READ Request psn 502 ack va+2112 len 1952 other key
        0.000     dropped: duplicate_unreplayable
        0.000     <- RDMA READ Request psn 499 ack va+64 len 4000
        0.000     dropped: duplicate_unreplayable
        0.000     <- FetchAdd psn 501 ack va+64 1 0
        0.000     dropped: duplicate_unreplayable
        0.000     -- nothing of that moved the expected PSN
        0.000     <- RDMA WRITE Only psn 504 ack va+0 len 1 : 1
        0.000     -> ACK psn 504 credits 0 msn 2
    "#]],
    );
}

/// A repeated READ goes before the READs after it that have not been answered yet: the requester
/// could not use their responses.
#[test]
fn replays_keep_the_order() {
    let mut s = Script::rc();
    s.link_takes(1)
        .run_of(1)
        .recv(read(500, 0, 8))
        .recv(read(501, 0, 8))
        .recv(add(502, 64, 1))
        .recv(read(500, 0, 8))
        .recv(read(501, 0, 8))
        .link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 8
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1 : 8
        0.000     <- RDMA READ Request psn 501 ack va+0 len 8
        0.000     <- FetchAdd psn 502 ack va+64 1 0
        0.000     <- RDMA READ Request psn 500 ack va+0 len 8
        0.000     <- RDMA READ Request psn 501 ack va+0 len 8
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 3 : 8
        0.000     -> RDMA READ response Only psn 501 credits 0 msn 3 : 8
        0.000     -> ATOMIC Acknowledge psn 502 credits 0 msn 3 original 0
    "#]],
    );
}

/// The data of a replay is what is there now; the region is checked again.
#[test]
fn a_replayed_read_needs_its_region() {
    let mut s = Script::rc();
    s.show_payload();
    s.end.memory.fill(0, b"before");
    s.recv(read(500, 0, 6));
    s.end.memory.fill(0, b"after!");
    s.recv(read(500, 0, 6));
    s.end.device.dereg_mr(s.end.mr.lkey()).unwrap();
    s.recv(read(500, 0, 6)).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 6
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1 : 6 before
        0.000     <- RDMA READ Request psn 500 ack va+0 len 6
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1 : 6 after!
        0.000     <- RDMA READ Request psn 500 ack va+0 len 6
        0.000     -> NAK psn 500 RemoteAccessError msn 1
        0.000     event QP_ACCESS_ERR
        0.000     state ERR
    "#]],
    );
}

/// The region goes while its responses are leaving: a NAK takes the place of the next response.
#[test]
fn a_read_whose_region_goes_is_refused_in_its_middle() {
    let mut s = Script::rc();
    s.run_of(1).link_takes(2).recv(read(500, 0, 4000));
    s.end.device.dereg_mr(s.end.mr.lkey()).unwrap();
    s.link_takes(usize::MAX).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 4000
        0.000     -> RDMA READ response First psn 500 credits 0 msn 1 : 1024
        0.000     -> RDMA READ response Middle psn 501 : 1024
        0.000     -> NAK psn 502 RemoteAccessError msn 1
        0.000     event QP_ACCESS_ERR
        0.000     state ERR
    "#]],
    );
}

/// An atomic is executed once; its repetition returns the word that the first one found.
#[test]
fn an_atomic_is_replayed_from_its_result() {
    let mut s = Script::rc();
    s.end.memory.set_word(64, 10);
    s.recv(add(500, 64, 5))
        .recv(swap(501, 64, 15, 100))
        .recv(swap(502, 64, 15, 200))
        .note("again")
        .recv(add(500, 64, 5))
        .recv(swap(501, 64, 15, 100))
        .recv(swap(502, 64, 15, 200));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- FetchAdd psn 500 ack va+64 5 0
        0.000     -> ATOMIC Acknowledge psn 500 credits 0 msn 1 original 10
        0.000     <- CmpSwap psn 501 ack va+64 100 15
        0.000     -> ATOMIC Acknowledge psn 501 credits 0 msn 2 original 15
        0.000     <- CmpSwap psn 502 ack va+64 200 15
        0.000     -> ATOMIC Acknowledge psn 502 credits 0 msn 3 original 100
        0.000     -- again
        0.000     <- FetchAdd psn 500 ack va+64 5 0
        0.000     -> ATOMIC Acknowledge psn 500 credits 0 msn 3 original 10
        0.000     <- CmpSwap psn 501 ack va+64 100 15
        0.000     -> ATOMIC Acknowledge psn 501 credits 0 msn 3 original 15
        0.000     <- CmpSwap psn 502 ack va+64 200 15
        0.000     -> ATOMIC Acknowledge psn 502 credits 0 msn 3 original 100
    "#]],
    );
    assert_eq!(s.end.memory.word(64), 100);
}

/// Resources are reused oldest first; what has been forgotten is not answered.
#[test]
fn forgotten_atomics_are_dropped() {
    let mut s = Script::new(
        Setup {
            max_dest_rd_atomic: 2,
            ..Setup::default()
        },
        |_| (),
    );
    s.recv(add(500, 64, 1))
        .recv(add(501, 64, 1))
        .recv(add(502, 64, 1));
    s.note("again")
        .recv(add(500, 64, 1))
        .recv(add(501, 64, 1))
        .recv(add(502, 64, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- FetchAdd psn 500 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 500 credits 0 msn 1 original 0
        0.000     <- FetchAdd psn 501 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 501 credits 0 msn 2 original 1
        0.000     <- FetchAdd psn 502 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 502 credits 0 msn 3 original 2
        0.000     -- again
        0.000     <- FetchAdd psn 500 ack va+64 1 0
        0.000     dropped: duplicate_unreplayable
        0.000     <- FetchAdd psn 501 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 501 credits 0 msn 3 original 1
        0.000     <- FetchAdd psn 502 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 502 credits 0 msn 3 original 2
    "#]],
    );
    assert_eq!(s.end.memory.word(64), 3);
}

/// More READs at once than there are resources for is the peer's fault: NAK 1.
#[test]
fn more_reads_than_resources() {
    let mut s = Script::new(
        Setup {
            max_dest_rd_atomic: 2,
            ..Setup::default()
        },
        |_| (),
    );
    s.link_takes(0)
        .recv(read(500, 0, 10))
        .recv(read(501, 0, 10))
        .recv(read(502, 0, 10))
        .link_takes(usize::MAX);
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 10
        0.000     <- RDMA READ Request psn 501 ack va+0 len 10
        0.000     <- RDMA READ Request psn 502 ack va+0 len 10
        0.000     event QP_REQ_ERR
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 2 : 10
        0.000     -> RDMA READ response Only psn 501 credits 0 msn 2 : 10
        0.000     -> NAK psn 502 InvalidRequest msn 2
    "#]],
    );
}

#[test]
fn no_resources_no_reads() {
    let mut s = Script::new(
        Setup {
            max_dest_rd_atomic: 0,
            ..Setup::default()
        },
        |_| (),
    );
    s.recv(read(500, 0, 10));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 10
        0.000     event QP_REQ_ERR
        0.000     -> NAK psn 500 InvalidRequest msn 0
    "#]],
    );
}

/// No receive request: an RNR NAK with this side's timer, then silence; the PSN stays.
#[test]
fn no_receive_request_is_told_once() {
    let setup = Setup {
        min_rnr_timer: RnrTimer::new(13),
        ..Setup::default()
    };
    let mut s = Script::new(setup, |_| ());
    s.recv(send(500, 5))
        .recv(send(501, 5))
        .recv(write(502, 0, 5))
        .note("tried again too early")
        .recv(send(500, 5))
        .post_recv(1, 100)
        .recv(send(500, 5))
        .recv(send(501, 5));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 5
        0.000     -> RNR NAK psn 500 timer 13 msn 0
        0.000     <- SEND Only psn 501 ack : 5
        0.000     dropped: after_rnr_nak
        0.000     <- RDMA WRITE Only psn 502 ack va+0 len 5 : 5
        0.000     dropped: after_rnr_nak
        0.000     -- tried again too early
        0.000     <- SEND Only psn 500 ack : 5
        0.000     -> RNR NAK psn 500 timer 13 msn 0
        0.000     post  RECV wr 1, 100 bytes
        0.000     <- SEND Only psn 500 ack : 5
        0.000     recv  wr 1 SUCCESS RECV 5 bytes
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     <- SEND Only psn 501 ack : 5
        0.000     -> RNR NAK psn 501 timer 13 msn 1
    "#]],
    );
}

/// A WRITE with immediate needs its receive request at the end only, and keeps its place.
#[test]
fn a_write_with_immediate_finds_no_receive_request_at_its_end() {
    let mut s = Script::rc();
    s.recv(rc(Op::WriteFirst, 500).reth(0, 1500).bytes(1024))
        .recv(rc(Op::WriteLastImm, 501).ack().imm([0; 4]).bytes(476))
        .post_recv(1, 0)
        .recv(rc(Op::WriteLastImm, 501).ack().imm([0; 4]).bytes(476));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE First psn 500 va+0 len 1500 : 1024
        0.000     <- RDMA WRITE Last with Immediate psn 501 ack imm 00000000 : 476
        0.000     -> RNR NAK psn 501 timer 1 msn 0
        0.000     post  RECV wr 1, 0 bytes
        0.000     <- RDMA WRITE Last with Immediate psn 501 ack imm 00000000 : 476
        0.000     recv  wr 1 SUCCESS RECV_RDMA_WITH_IMM 1500 bytes imm 00000000
        0.000     -> ACK psn 501 credits 0 msn 1
    "#]],
    );
}

/// Credits: receive requests that are free, rounded down to what the code can say.
#[test]
fn acks_carry_credits() {
    let mut s = Script::rc();
    for wr_id in 0..14 {
        s.post_recv(wr_id, 2000);
    }
    s.trace();
    s.recv(send(500, 1))
        .recv(send(501, 1))
        .note("one is in use")
        .recv(rc(Op::SendFirst, 502).ack().bytes(1024));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 1
        0.000     recv  wr 0 SUCCESS RECV 1 bytes
        0.000     -> ACK psn 500 credits 12 msn 1
        0.000     <- SEND Only psn 501 ack : 1
        0.000     recv  wr 1 SUCCESS RECV 1 bytes
        0.000     -> ACK psn 501 credits 12 msn 2
        0.000     -- one is in use
        0.000     <- SEND First psn 502 ack : 1024
        0.000     -> ACK psn 502 credits 8 msn 2
    "#]],
    );
    let shared = Setup {
        with_srq: true,
        ..Setup::default()
    };
    let mut s = Script::new(shared, |_| ());
    s.post_recv(1, 2000)
        .note("shared queues promise nothing")
        .recv(send(500, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 2000 bytes
        0.000     -- shared queues promise nothing
        0.000     <- SEND Only psn 500 ack : 1
        0.000     recv  wr 1 SUCCESS RECV 1 bytes
        0.000     -> ACK psn 500 msn 1
    "#]],
    );
    let mut s = Script::new(Setup::default(), |config| config.send_credits = false);
    s.post_recv(1, 2000).recv(send(500, 1));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 2000 bytes
        0.000     <- SEND Only psn 500 ack : 1
        0.000     recv  wr 1 SUCCESS RECV 1 bytes
        0.000     -> ACK psn 500 msn 1
    "#]],
    );
}

/// What goes wrong with a request, the responder's side: the NAK, the receive request's status or
/// the event, and the queue pair in error.
#[test]
fn errors_as_the_table_says() {
    struct Case {
        name: &'static str,
        packets: Vec<Packet>,
        expected: &'static [&'static str],
    }
    let no_rights = Setup {
        qp_access: Access::LOCAL_WRITE,
        ..Setup::default()
    };
    let read_only = Setup {
        mr_access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        ..Setup::default()
    };
    let flush = |psn| {
        let reth = Reth {
            va: BASE,
            rkey: Rkey::new(0x1234),
            length: 8,
        };
        let feth = Feth {
            range: FlushRange::Range,
            global: true,
            persistent: false,
        };
        rc(Op::Flush, psn).ack().ext(Ext::Flush(feth, reth))
    };
    let invalid = &[
        "-> NAK psn 500 InvalidRequest msn 0",
        "recv  wr 1 WR_FLUSH_ERR",
        "event QP_REQ_ERR",
    ];
    let access = &[
        "-> NAK psn 500 RemoteAccessError msn 0",
        "recv  wr 1 WR_FLUSH_ERR",
        "event QP_ACCESS_ERR",
    ];
    let case = |name, packet: Packet, expected| Case {
        name,
        packets: vec![packet],
        expected,
    };
    for (setup, cases) in [
        (
            Setup::default(),
            vec![
                case(
                    "message longer than the receive request",
                    send(500, 101),
                    &[
                        "-> NAK psn 500 InvalidRequest msn 0",
                        "recv  wr 1 LOC_LEN_ERR",
                    ],
                ),
                case(
                    "write, unknown key",
                    write(500, 0, 8).key(Rkey::new(0x1234)),
                    access,
                ),
                case("write, out of range", write(500, 64 << 10, 8), access),
                case(
                    "write, below the region",
                    write(500, 0u64.wrapping_sub(8), 9),
                    access,
                ),
                case(
                    "write, range wraps",
                    write(500, 0u64.wrapping_sub(BASE + 8), 16),
                    access,
                ),
                case(
                    "read, unknown key",
                    read(500, 0, 8).key(Rkey::new(0x1234)),
                    access,
                ),
                case("read, out of range", read(500, (64 << 10) - 7, 8), access),
                case(
                    "atomic, unknown key",
                    add(500, 0, 1).key(Rkey::new(0x1234)),
                    access,
                ),
                case("atomic, out of range", add(500, 64 << 10, 1), access),
                case("atomic, misaligned", add(500, 4, 1), invalid),
                case(
                    "atomic, misaligned and unknown key",
                    add(500, 4, 1).key(Rkey::new(0x1234)),
                    invalid,
                ),
                case(
                    "atomic write, misaligned",
                    rc(Op::AtomicWrite, 500).reth(4, 8).bytes(8),
                    invalid,
                ),
                case(
                    "atomic write of 4 bytes",
                    rc(Op::AtomicWrite, 500).reth(8, 4).bytes(4),
                    invalid,
                ),
                case("flush, unknown key", flush(500), access),
                case(
                    "middle without first",
                    rc(Op::SendMiddle, 500).bytes(1024),
                    invalid,
                ),
                case(
                    "last without first",
                    rc(Op::WriteLast, 500).bytes(10),
                    invalid,
                ),
                case(
                    "first shorter than the MTU",
                    rc(Op::SendFirst, 500).bytes(1023),
                    &[
                        "-> NAK psn 500 InvalidRequest msn 0",
                        "recv  wr 1 LOC_QP_OP_ERR",
                        "event QP_REQ_ERR",
                    ],
                ),
                case(
                    "only longer than the MTU",
                    rc(Op::SendOnly, 500).bytes(1025),
                    &[
                        "-> NAK psn 500 InvalidRequest msn 0",
                        "recv  wr 1 LOC_QP_OP_ERR",
                        "event QP_REQ_ERR",
                    ],
                ),
                case("DMALen over 2^31", read(500, 0, (1 << 31) + 1), invalid),
                case(
                    "more payload than DMALen",
                    rc(Op::WriteOnly, 500).reth(0, 9).bytes(10),
                    invalid,
                ),
                case(
                    "less payload than DMALen",
                    rc(Op::WriteOnly, 500).reth(0, 11).bytes(10),
                    invalid,
                ),
                case(
                    "write with immediate, unknown key",
                    rc(Op::WriteOnlyImm, 500)
                        .reth(0, 8)
                        .bytes(8)
                        .key(Rkey::new(0x1234)),
                    &[
                        "-> NAK psn 500 RemoteAccessError msn 0",
                        "recv  wr 1 LOC_ACCESS_ERR",
                    ],
                ),
                case(
                    "send with invalidate, bad key",
                    rc(Op::SendOnlyInv, 500)
                        .ack()
                        .bytes(3)
                        .ext(Ext::Ieth(Rkey::new(7))),
                    &[
                        "-> NAK psn 500 RemoteAccessError msn 0",
                        "recv  wr 1 LOC_ACCESS_ERR",
                    ],
                ),
                Case {
                    name: "send within a write",
                    packets: vec![
                        rc(Op::WriteFirst, 500).reth(0, 2000).bytes(1024),
                        rc(Op::SendLast, 501).bytes(3),
                    ],
                    expected: &[
                        "-> NAK psn 501 InvalidRequest msn 0",
                        "recv  wr 1 WR_FLUSH_ERR",
                        "event QP_REQ_ERR",
                    ],
                },
                Case {
                    name: "first within a send",
                    packets: vec![
                        rc(Op::SendOnly, 500).bytes(3),
                        rc(Op::WriteFirst, 501).reth(0, 5000).bytes(1024),
                        rc(Op::WriteFirst, 502).reth(0, 5000).bytes(1024),
                    ],
                    expected: &[
                        "recv  wr 1 SUCCESS RECV 3 bytes",
                        "-> NAK psn 502 InvalidRequest msn 1",
                        "event QP_REQ_ERR",
                    ],
                },
                Case {
                    name: "the second packet passes the end of the receive request",
                    packets: vec![
                        rc(Op::WriteFirst, 500).reth(0, 1034).bytes(1024),
                        rc(Op::WriteLast, 501).bytes(11),
                    ],
                    expected: &[
                        "-> NAK psn 501 InvalidRequest msn 0",
                        "recv  wr 1 WR_FLUSH_ERR",
                        "event QP_REQ_ERR",
                    ],
                },
            ],
        ),
        (
            no_rights,
            vec![
                case("no remote write on the QP", write(500, 0, 8), invalid),
                case("no remote read on the QP", read(500, 0, 8), invalid),
                case("no remote atomic on the QP", add(500, 0, 8), invalid),
                case("no flush on the QP", flush(500), invalid),
                case(
                    "even with a bad key",
                    write(500, 0, 8).key(Rkey::new(3)),
                    invalid,
                ),
            ],
        ),
        (
            read_only,
            vec![
                case("no remote write on the region", write(500, 0, 8), access),
                case("no remote atomic on the region", add(500, 0, 8), access),
            ],
        ),
    ] {
        for Case {
            name,
            packets,
            expected,
        } in cases
        {
            let mut s = Script::new(setup.clone(), |_| ());
            s.post_recv(1, 100);
            s.trace();
            let stores = s.end.memory.with(<[u8]>::to_vec);
            for packet in &packets {
                s.recv(packet.clone());
            }
            let trace = s.trace();
            let mut lines: Vec<&str> = trace
                .lines()
                .map(|line| &line[10..])
                .filter(|line| !line.starts_with("<-"))
                .collect();
            // Order between completions, events and packets says nothing.
            lines.sort_unstable();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(lines, expected, "{name}");
            s.show_state();
            assert!(s.trace().contains("state ERR"), "{name}");
            if packets.len() == 1 && !name.contains("invalidate") {
                assert!(
                    s.end.memory.with(|now| now == stores),
                    "{name}: memory changed"
                );
            }
        }
    }
}

/// Bad entries of a receive request: NAK 3 and LOC_PROT_ERR, whatever is wrong with them.
#[test]
fn a_bad_receive_request_is_an_operational_error() {
    let bad: [fn(Sge) -> Sge; 4] = [
        |sge| Sge {
            lkey: Lkey::new(0x55),
            ..sge
        },
        |sge| Sge {
            addr: sge.addr + (1 << 20),
            ..sge
        },
        |sge| Sge {
            addr: BASE - 1,
            ..sge
        },
        |sge| Sge {
            addr: u64::MAX - 3,
            ..sge
        },
    ];
    for bad in bad {
        let mut s = Script::rc();
        let sge = bad(s.end.sge(0, 100));
        s.post_recv_sges(1, &[sge]).post_recv(2, 100);
        s.trace();
        s.recv(send(500, 10)).show_state();
        let trace = s.trace();
        let lines: Vec<&str> = trace.lines().map(|line| &line[10..]).collect();
        assert_eq!(
            lines,
            [
                "<- SEND Only psn 500 ack : 10",
                "recv  wr 1 LOC_PROT_ERR",
                "recv  wr 2 WR_FLUSH_ERR",
                "-> NAK psn 500 RemoteOperationalError msn 0",
                "state ERR",
            ]
        );
    }
}

/// Memory that has been unmapped is an access error for WRITEs and atomics, an operational one for
/// receive requests.
#[test]
fn unmapped_memory_is_an_error_not_a_crash() {
    for (packet, nak) in [
        (send(500, 10), "RemoteOperationalError"),
        (write(500, 0, 10), "RemoteAccessError"),
        (add(500, 0, 1), "RemoteAccessError"),
        (
            rc(Op::AtomicWrite, 500).reth(0, 8).bytes(8),
            "RemoteAccessError",
        ),
    ] {
        let mut s = Script::rc();
        s.post_recv(1, 100);
        s.end.memory.unmap();
        s.recv(packet);
        assert!(s.trace().contains(nak));
    }
}

/// A queue pair in error says its NAK, then nothing; the peer's retries are dropped.
#[test]
fn after_a_fatal_nak_nothing_is_answered() {
    let mut s = Script::rc();
    s.link_takes(0)
        .recv(read(500, 0, 10))
        .recv(write(501, 0, 10).key(Rkey::new(1)))
        .recv(write(501, 0, 10))
        .note("the READ before it is answered still, then the NAK leaves")
        .link_takes(usize::MAX)
        .recv(write(501, 0, 10))
        .recv(read(500, 0, 10));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA READ Request psn 500 ack va+0 len 10
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 10 other key : 10
        0.000     event QP_ACCESS_ERR
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 10 : 10
        0.000     dropped: wrong_qp_state
        0.000     -- the READ before it is answered still, then the NAK leaves
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1 : 10
        0.000     -> NAK psn 501 RemoteAccessError msn 1
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 10 : 10
        0.000     dropped: wrong_qp_state
        0.000     <- RDMA READ Request psn 500 ack va+0 len 10
        0.000     dropped: wrong_qp_state
    "#]],
    );
}

/// ATOMIC WRITE and FLUSH are answered by an empty READ response, and again when repeated.
#[test]
fn atomic_write_and_flush_are_answered_and_replayed() {
    let mut s = Script::rc();
    let flush = |psn, range| {
        let reth = Reth {
            va: BASE,
            rkey: Rkey::new(0),
            length: 8,
        };
        let feth = Feth {
            range,
            global: true,
            persistent: true,
        };
        (psn, feth, reth)
    };
    let own = s.end.rkey();
    let packet = move |(psn, feth, reth): (u32, Feth, Reth)| {
        rc(Op::Flush, psn)
            .ack()
            .ext(Ext::Flush(feth, Reth { rkey: own, ..reth }))
    };
    s.recv(
        rc(Op::AtomicWrite, 500)
            .ack()
            .reth(0, 8)
            .payload(b"8 bytes!"),
    )
    .recv(packet(flush(501, FlushRange::Range)))
    .recv(packet(flush(502, FlushRange::WholeRegion)));
    s.end.memory.fill(0, &[0; 8]);
    s.recv(
        rc(Op::AtomicWrite, 500)
            .ack()
            .reth(0, 8)
            .payload(b"8 bytes!"),
    )
    .recv(packet(flush(501, FlushRange::Range)));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- ATOMIC WRITE psn 500 ack va+0 len 8 : 8
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 1
        0.000     <- FLUSH psn 501 ack global persistent va+0 len 8
        0.000     -> RDMA READ response Only psn 501 credits 0 msn 2
        0.000     <- FLUSH psn 502 ack region global persistent va+0 len 8
        0.000     -> RDMA READ response Only psn 502 credits 0 msn 3
        0.000     <- ATOMIC WRITE psn 500 ack va+0 len 8 : 8
        0.000     -> RDMA READ response Only psn 500 credits 0 msn 3
        0.000     <- FLUSH psn 501 ack global persistent va+0 len 8
        0.000     -> RDMA READ response Only psn 501 credits 0 msn 3
    "#]],
    );
    assert_eq!(s.end.memory.read(0, 8), [0; 8], "not executed again");
    assert_eq!(s.end.memory.flushes(), 2);
}

/// XRC: the receive queue must exist and belong to the target's domain.
#[test]
fn xrc_requests_name_a_queue_of_their_domain() {
    let target = || {
        let mut s = Script::in_reset(Setup::of(QpType::XrcRecv), |_| ());
        s.to_rtr();
        s
    };
    let send = |srq| {
        packet(Service::Xrc, Op::SendOnly, 500)
            .ack()
            .srq(srq)
            .bytes(5)
    };
    let mut s = target();
    let own = s.end.srq.clone().unwrap();
    s.recv(send(own.id.0))
        .post_recv(1, 100)
        .recv(send(own.id.0))
        .show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 5
        0.000     -> RNR NAK psn 500 timer 1 msn 0
        0.000     post  RECV wr 1, 100 bytes
        0.000     <- SEND Only psn 500 ack : 5
        0.000     recv  wr 1 SUCCESS RECV 5 bytes
        0.000     event COMM_EST
        0.000     -> ACK psn 500 msn 1
        0.000     state RTR
    "#]],
    );
    let mut s = target();
    let other_domain = s.end.device.alloc_xrcd();
    let foreign = s
        .end
        .device
        .create_srq(hirail_rnic::SrqInit {
            pd: s.end.pd,
            max_wr: 1,
            max_sge: 1,
            xrc: Some(hirail_rnic::XrcHalf {
                domain: other_domain,
                cq: s.end.recv_cq.clone(),
            }),
        })
        .unwrap();
    foreign.lock().post(2, &[s.end.sge(0, 100)]).unwrap();
    s.recv(send(foreign.id.0)).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 5
        0.000     event QP_REQ_ERR
        0.000     -> NAK psn 500 InvalidRequest msn 0
        0.000     state ERR
    "#]],
    );
    let mut s = target();
    s.recv(send(0xabcdef)).show_state();
    check(
        &mut s,
        &expect![[r#"
        0.000     <- SEND Only psn 500 ack : 5
        0.000     event QP_REQ_ERR
        0.000     -> NAK psn 500 InvalidRequest msn 0
        0.000     state ERR
    "#]],
    );
}

/// Congestion marks are answered by a CNP, at most one per interval, in a class of its own.
#[test]
fn a_mark_is_answered_by_a_cnp() {
    let mut s = Script::rc();
    s.recv(write(500, 0, 1).marked())
        .recv(write(501, 0, 1).marked())
        .wait(100.0)
        .recv(write(502, 0, 1).marked());
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     -> CNP psn 0 becn
        0.000     -> ACK psn 500 credits 0 msn 1
        0.000     <- RDMA WRITE Only psn 501 ack va+0 len 1 : 1
        0.000     -> ACK psn 501 credits 0 msn 2
        100.000   <- RDMA WRITE Only psn 502 ack va+0 len 1 : 1
        100.000   -> CNP psn 0 becn
        100.000   -> ACK psn 502 credits 0 msn 3
    "#]],
    );
    let counters = s.end.device.counters();
    assert_eq!(counters.get(Counter::NpEcnMarkedRocePackets), 3);
    assert_eq!(counters.get(Counter::NpCnpSent), 2);
    s.recv(packet(Service::Cnp, Op::Cnp, 0).ext(Ext::Cnp));
    let counters = s.end.device.counters();
    assert_eq!(
        counters.get(Counter::RpCnpIgnored),
        1,
        "nothing paces this queue pair"
    );
}

/// A response says what an ACK of the requests before it would have said: that one does not leave any
/// more. The PSN at the peer is beyond it by then, which would count it as a ghost.
#[test]
fn a_response_stands_for_the_ack_before_it() {
    let mut s = Script::rc();
    s.post_recv(1, 10).post_recv(2, 10);
    s.link_takes(0)
        .recv(write(500, 0, 10))
        .recv(read(501, 0, 3000));
    s.note("the last response is the one that counts")
        .run_of(2)
        .link_takes(2)
        .link_takes(usize::MAX);
    s.note("atomics as well; credits and MSN are those of now")
        .link_takes(0)
        .recv(send(504, 8))
        .recv(add(505, 64, 1))
        .link_takes(usize::MAX);
    s.note("what comes after the response is acknowledged")
        .link_takes(0)
        .recv(read(506, 0, 10))
        .recv(write(507, 0, 10))
        .link_takes(usize::MAX);
    s.note("responses sent again stand for duplicates before them")
        .recv(read(508, 0, 10))
        .link_takes(0)
        .recv(write(507, 0, 10))
        .recv(read(508, 0, 10))
        .link_takes(usize::MAX);
    s.note("but a duplicate that comes alone wants its ACK: the response was lost")
        .recv(write(507, 0, 10));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  RECV wr 1, 10 bytes
        0.000     post  RECV wr 2, 10 bytes
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 10 : 10
        0.000     <- RDMA READ Request psn 501 ack va+0 len 3000
        0.000     -- the last response is the one that counts
        0.000     -> RDMA READ response First psn 501 credits 2 msn 2 : 1024
        0.000     -> RDMA READ response Middle psn 502 : 1024
        0.000     -> RDMA READ response Last psn 503 credits 2 msn 2 : 952
        0.000     -- atomics as well; credits and MSN are those of now
        0.000     <- SEND Only psn 504 ack : 8
        0.000     recv  wr 1 SUCCESS RECV 8 bytes
        0.000     <- FetchAdd psn 505 ack va+64 1 0
        0.000     -> ATOMIC Acknowledge psn 505 credits 1 msn 4 original 0
        0.000     -- what comes after the response is acknowledged
        0.000     <- RDMA READ Request psn 506 ack va+0 len 10
        0.000     <- RDMA WRITE Only psn 507 ack va+0 len 10 : 10
        0.000     -> RDMA READ response Only psn 506 credits 1 msn 6 : 10
        0.000     -> ACK psn 507 credits 1 msn 6
        0.000     -- responses sent again stand for duplicates before them
        0.000     <- RDMA READ Request psn 508 ack va+0 len 10
        0.000     -> RDMA READ response Only psn 508 credits 1 msn 7 : 10
        0.000     <- RDMA WRITE Only psn 507 ack va+0 len 10 : 10
        0.000     <- RDMA READ Request psn 508 ack va+0 len 10
        0.000     -> RDMA READ response Only psn 508 credits 1 msn 7 : 10
        0.000     -- but a duplicate that comes alone wants its ACK: the response was lost
        0.000     <- RDMA WRITE Only psn 507 ack va+0 len 10 : 10
        0.000     -> ACK psn 508 credits 1 msn 7
    "#]],
    );
}

/// A link that takes fewer responses than offered gets the others later, each once.
#[test]
fn responses_survive_a_busy_link() {
    for takes in 0..8 {
        let mut s = Script::rc();
        s.link_takes(takes)
            .recv(read(500, 0, 3000))
            .recv(add(503, 64, 1))
            .recv(read(504, 0, 10))
            .recv(write(505, 0, 10));
        for _ in 0..7 {
            s.link_takes(1);
        }
        s.link_takes(usize::MAX);
        let trace = s.trace();
        let sent: Vec<&str> = trace
            .lines()
            .filter_map(|line| line.split_once("-> "))
            .map(|(_, packet)| {
                packet
                    .split(" psn ")
                    .nth(1)
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap()
            })
            .collect();
        assert_eq!(sent, ["500", "501", "502", "503", "504", "505"], "{trace}");
    }
}

/// Drops of what does not concern any request, each with its reason.
#[test]
fn packets_that_are_none_of_ours() {
    let mut s = Script::rc();
    let other = testkit::net::gids(5)[0];
    s.recv_from(other, write(500, 0, 1))
        .recv(write(500, 0, 1).to(hirail_wire::Qpn::new(0x9999)))
        .recv(write(500, 0, 1).to(hirail_wire::Qpn::SMI))
        .recv(packet(Service::Uc, Op::WriteOnly, 500).reth(0, 1).bytes(1));
    check(
        &mut s,
        &expect![[r#"
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     dropped: wrong_source
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     dropped: unknown_qp
        0.000     <- RDMA WRITE Only psn 500 ack va+0 len 1 : 1
        0.000     dropped: qp0
        0.000     <- RDMA WRITE Only psn 500 va+0 len 1 : 1
        0.000     dropped: wrong_qp_type
    "#]],
    );
    assert_eq!(s.end.memory.stores(), 0);
    let counters = s.end.device.counters();
    assert_eq!(counters.get(DropReason::WrongSource.counter()), 1);
}

/// In a conversation, with receive requests enough: the peer takes 20 us to go on after an answer.
fn in_a_conversation() -> Script {
    let setup = Setup {
        timeout: AckTimeout::new(14),
        ..Setup::default()
    };
    let mut s = Script::new(setup, |config| config.ack_delay = Span::from_us(100));
    for wr_id in 1..=16 {
        s.post_recv(wr_id, 100);
    }
    s.note("nothing is known of the peer, so the first ACK does not wait")
        .link_open(OpenClasses::DATA)
        .recv(send(500, 8))
        .post(100, SendOp::Send, 8)
        .link_open(OpenClasses::ALL)
        .wait(20.0);
    check(
        &mut s,
        &expect![[r#"
            0.000     post  RECV wr 1, 100 bytes
            0.000     post  RECV wr 2, 100 bytes
            0.000     post  RECV wr 3, 100 bytes
            0.000     post  RECV wr 4, 100 bytes
            0.000     post  RECV wr 5, 100 bytes
            0.000     post  RECV wr 6, 100 bytes
            0.000     post  RECV wr 7, 100 bytes
            0.000     post  RECV wr 8, 100 bytes
            0.000     post  RECV wr 9, 100 bytes
            0.000     post  RECV wr 10, 100 bytes
            0.000     post  RECV wr 11, 100 bytes
            0.000     post  RECV wr 12, 100 bytes
            0.000     post  RECV wr 13, 100 bytes
            0.000     post  RECV wr 14, 100 bytes
            0.000     post  RECV wr 15, 100 bytes
            0.000     post  RECV wr 16, 100 bytes
            0.000     -- nothing is known of the peer, so the first ACK does not wait
            0.000     <- SEND Only psn 500 ack : 8
            0.000     recv  wr 1 SUCCESS RECV 8 bytes
            0.000     post  SEND wr 100, 8 bytes
            0.000     -> SEND Only psn 100 ack : 8
            0.000     -> ACK psn 500 credits 12 msn 1
        "#]],
    );
    s
}

/// An ACK that waits is spared altogether where a response says it, and nothing is concluded from that.
#[test]
fn in_a_conversation_a_response_takes_the_place_of_the_ack() {
    let mut s = in_a_conversation();
    s.note("the next one may")
        .link_open(OpenClasses::DATA)
        .recv(write(501, 0, 8))
        .post(101, SendOp::Send, 8)
        .link_open(OpenClasses::ALL)
        .recv(read(502, 0, 8))
        .wait(100.0);
    s.note("and so may this one")
        .link_open(OpenClasses::DATA)
        .recv(write(503, 0, 8))
        .post(102, SendOp::Send, 8)
        .link_open(OpenClasses::ALL)
        .wait(100.0);
    check(
        &mut s,
        &expect![[r#"
            20.000    -- the next one may
            20.000    <- RDMA WRITE Only psn 501 ack va+0 len 8 : 8
            20.000    post  SEND wr 101, 8 bytes
            20.000    -> SEND Only psn 101 ack : 8
            20.000    <- RDMA READ Request psn 502 ack va+0 len 8
            20.000    -> RDMA READ response Only psn 502 credits 12 msn 3 : 8
            120.000   -- and so may this one
            120.000   <- RDMA WRITE Only psn 503 ack va+0 len 8 : 8
            120.000   post  SEND wr 102, 8 bytes
            120.000   -> SEND Only psn 102 ack : 8
            200.000   -> ACK psn 503 credits 12 msn 4
        "#]],
    );
}

/// The application answers each message and the peer sends the next one: one ACK says it for some of
/// them. A peer whose timeout is longer than that never notices. A wait in vain ends it; what is no plain
/// new message is answered at once.
#[test]
fn in_a_conversation_an_ack_waits_for_the_next_messages() {
    let mut s = in_a_conversation();
    s.note("answered before the ACK has left: it waits for four turns")
        .link_open(OpenClasses::DATA)
        .recv(send(501, 8))
        .post(101, SendOp::Send, 8)
        .link_open(OpenClasses::ALL)
        .wait(20.0)
        .recv(send(502, 8))
        .wait(70.0);
    s.note("that was right: the next one waits at once")
        .recv(send(503, 8))
        .wait(100.0);
    s.note("in vain").recv(send(504, 8));
    s.note("duplicates and gaps never wait")
        .recv(send(504, 8))
        .recv(send(506, 8));
    check(
        &mut s,
        &expect![[r#"
            20.000    -- answered before the ACK has left: it waits for four turns
            20.000    <- SEND Only psn 501 ack : 8
            20.000    recv  wr 2 SUCCESS RECV 8 bytes
            20.000    post  SEND wr 101, 8 bytes
            20.000    -> SEND Only psn 101 ack : 8
            40.000    <- SEND Only psn 502 ack : 8
            40.000    recv  wr 3 SUCCESS RECV 8 bytes
            100.000   -> ACK psn 502 credits 12 msn 3
            110.000   -- that was right: the next one waits at once
            110.000   <- SEND Only psn 503 ack : 8
            110.000   recv  wr 4 SUCCESS RECV 8 bytes
            190.000   -> ACK psn 503 credits 12 msn 4
            210.000   -- in vain
            210.000   <- SEND Only psn 504 ack : 8
            210.000   recv  wr 5 SUCCESS RECV 8 bytes
            210.000   -> ACK psn 504 credits 8 msn 5
            210.000   -- duplicates and gaps never wait
            210.000   <- SEND Only psn 504 ack : 8
            210.000   -> ACK psn 504 credits 8 msn 5
            210.000   <- SEND Only psn 506 ack : 8
            210.000   -> NAK psn 505 PsnSequenceError msn 5
        "#]],
    );
}
