//! Traces of requests that are cut into several messages on the wire.

use expect_test::expect;
use hirail_rnic::SendOp;
use hirail_wire::Operation as Op;
use testkit::Setup;
use testkit::script::{Script, ack, ack_credits, check, read_from, response, write_to};

/// The responder counts each piece of a long READ as a message; so does the requester.
#[test]
fn pieces_of_a_read_count_in_credits() {
    let mut s = Script::new(Setup::default(), |config| config.read_request_bytes = 1024);
    s.post(1, read_from(0), 2000)
        .recv(response(Op::ReadResponseOnly, 100, 1, 1024))
        .recv(response(Op::ReadResponseOnly, 101, 2, 976));
    s.post(2, write_to(0), 1).recv(ack_credits(102, 3, 1));
    s.post(3, SendOp::Send, 1)
        .post(4, SendOp::Send, 1)
        .note("wr 3 has a credit, wr 4 has none");
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 2000 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 1024
        0.000     -> RDMA READ Request psn 101 ack va+1024 len 976
        0.000     <- RDMA READ response Only psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Only psn 101 msn 2 : 976
        0.000     send  wr 1 SUCCESS RDMA_READ 2000 bytes
        0.000     post  WRITE wr 2, 1 bytes
        0.000     -> RDMA WRITE Only psn 102 ack va+0 len 1 : 1
        0.000     <- ACK psn 102 credits 1 msn 3
        0.000     send  wr 2 SUCCESS RDMA_WRITE 1 bytes
        0.000     post  SEND wr 3, 1 bytes
        0.000     -> SEND Only psn 103 ack : 1
        0.000     post  SEND wr 4, 1 bytes
        0.000     -- wr 3 has a credit, wr 4 has none
    "#]],
    );
}

/// A READ larger than a request may ask for goes in pieces on a fixed grid, each a READ of its own.
#[test]
fn a_long_read_is_asked_for_in_pieces() {
    let mut s = Script::new(
        Setup {
            max_rd_atomic: 2,
            ..Setup::short()
        },
        |config| config.read_request_bytes = 2500,
    );
    s.post(1, read_from(0), 5000)
        .recv(response(Op::ReadResponseFirst, 100, 1, 1024))
        .recv(response(Op::ReadResponseLast, 101, 1, 1024))
        .note("the second piece loses its first response")
        .recv(response(Op::ReadResponseLast, 103, 2, 1024))
        .recv(response(Op::ReadResponseFirst, 102, 2, 1024))
        .recv(response(Op::ReadResponseLast, 103, 2, 1024))
        .recv(response(Op::ReadResponseOnly, 104, 3, 904));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  READ wr 1, 5000 bytes
        0.000     -> RDMA READ Request psn 100 ack va+0 len 2048
        0.000     -> RDMA READ Request psn 102 ack va+2048 len 2048
        0.000     <- RDMA READ response First psn 100 msn 1 : 1024
        0.000     <- RDMA READ response Last psn 101 msn 1 : 1024
        0.000     -> RDMA READ Request psn 104 ack va+4096 len 904
        0.000     -- the second piece loses its first response
        0.000     <- RDMA READ response Last psn 103 msn 2 : 1024
        0.000     dropped: response_gap
        0.000     -> RDMA READ Request psn 102 ack va+2048 len 2048
        0.000     -> RDMA READ Request psn 104 ack va+4096 len 904
        0.000     <- RDMA READ response First psn 102 msn 2 : 1024
        0.000     <- RDMA READ response Last psn 103 msn 2 : 1024
        0.000     <- RDMA READ response Only psn 104 msn 3 : 904
        0.000     send  wr 1 SUCCESS RDMA_READ 5000 bytes
    "#]],
    );
}

/// All packets have one size, up to the last; what carries an immediate stays one message, since its
/// length is told to the receiver.
#[test]
fn equal_writes_are_writes_of_one_packet() {
    let mut s = Script::new(Setup::default(), |config| config.equal_writes = true);
    let SendOp::Write { va, rkey } = write_to(0) else {
        unreachable!("it is a WRITE")
    };
    let imm = *b"imm!";
    s.post(1, write_to(100), 2500)
        .post(2, SendOp::WriteImm { va, rkey, imm }, 2000)
        .post(3, SendOp::Send, 2000)
        .recv(ack(102, 3));
    check(
        &mut s,
        &expect![[r#"
        0.000     post  WRITE wr 1, 2500 bytes
        0.000     -> RDMA WRITE Only psn 100 va+100 len 1024 : 1024
        0.000     -> RDMA WRITE Only psn 101 va+1124 len 1024 : 1024
        0.000     -> RDMA WRITE Only psn 102 ack va+2148 len 452 : 452
        0.000     post  WRITE with immediate wr 2, 2000 bytes
        0.000     -> RDMA WRITE First psn 103 va+0 len 2000 : 1024
        0.000     -> RDMA WRITE Last with Immediate psn 104 ack imm 696d6d21 : 976
        0.000     post  SEND wr 3, 2000 bytes
        0.000     -> SEND First psn 105 : 1024
        0.000     -> SEND Last psn 106 ack : 976
        0.000     <- ACK psn 102 msn 3
        0.000     send  wr 1 SUCCESS RDMA_WRITE 2500 bytes
    "#]],
    );
}
