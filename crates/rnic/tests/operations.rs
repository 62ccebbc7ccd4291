//! Every operation on every transport over a network that loses nothing: data, completions, events.

use hirail_rnic::SendOp;
use hirail_vocab::{WcOpcode, WcStatus};
use testkit::{BASE, Pair, Setup};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn a_send_lands_in_the_receive_buffer() {
    let mut pair = Pair::new(Setup::default());
    let data = pattern(100);
    pair.a.memory.fill(0, &data);
    pair.post_recv(7, 4096, 200);
    pair.post(1, SendOp::Send, 0, 100);
    pair.run();
    let [sent] = pair.a.poll_send()[..] else {
        panic!("one completion")
    };
    assert_eq!((sent.wr_id, sent.status), (1, WcStatus::Success));
    let [received] = pair.b.poll_recv()[..] else {
        panic!("one completion")
    };
    assert_eq!((received.wr_id, received.status), (7, WcStatus::Success));
    assert_eq!((received.byte_len, received.opcode), (100, WcOpcode::Recv));
    assert_eq!(pair.b.memory.read(4096, 100), data);
    assert_eq!(pair.b.memory.read(4196, 100), [0; 100]);
}

#[test]
fn a_write_of_several_packets_lands_where_it_should() {
    let mut pair = Pair::new(Setup::default());
    let data = pattern(5000);
    pair.a.memory.fill(0, &data);
    let op = SendOp::Write {
        va: BASE + 10_000,
        rkey: pair.b.rkey(),
    };
    pair.post(1, op, 0, 5000);
    pair.run();
    let [sent] = pair.a.poll_send()[..] else {
        panic!("one completion")
    };
    assert_eq!(sent.status, WcStatus::Success);
    assert_eq!(pair.b.memory.read(10_000, 5000), data);
    assert!(pair.b.memory.read(0, 10_000).iter().all(|byte| *byte == 0));
    assert!(
        pair.b
            .memory
            .read(15_000, 5000)
            .iter()
            .all(|byte| *byte == 0)
    );
}
