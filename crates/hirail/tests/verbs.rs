//! The verbs API end to end, over the link in memory: every operation, with and without faults.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use hirail::{
    Access, ConnectOptions, Context, Cq, Faults, MemoryNetwork, Mr, Qp, QpState, RecoveryKind, Send,
    SendOp, WcOpcode, WcStatus,
};
use hirail_vocab::Counter;

const ALL: Access = Access::all().difference(Access::ZERO_BASED);
const PATIENCE: Duration = Duration::from_secs(20);

struct Side {
    context: Context,
    cq: Cq,
    qp: Qp,
    mr: Mr,
}

impl Side {
    fn new(network: &MemoryNetwork, host: u8, bytes: usize) -> Self {
        let context = network
            .open(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)))
            .unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let qp = pd.qp(&cq, &cq).max_inline_data(64).build().unwrap();
        let mr = pd.register(bytes, ALL).unwrap();
        Self {
            context,
            cq,
            qp,
            mr,
        }
    }
}

fn pair(faults: Faults, bytes: usize) -> (Side, Side) {
    let network = MemoryNetwork::new(faults);
    let (a, b) = (Side::new(&network, 1, bytes), Side::new(&network, 2, bytes));
    let options = ConnectOptions::new(&a.context, 0);
    a.qp.connect(&b.qp.endpoint(0).unwrap(), &options).unwrap();
    b.qp.connect(&a.qp.endpoint(0).unwrap(), &options).unwrap();
    (a, b)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn write_and_read_a_mebibyte() {
    const LEN: usize = 1 << 20;
    let (a, b) = pair(Faults::default(), LEN);
    a.mr.write(0, &pattern(LEN));
    let remote = b.mr.remote();
    let op = SendOp::Write {
        va: remote.addr,
        rkey: remote.rkey,
    };
    a.qp.post(&Send::new(1, op, &[a.mr.slice(..)])).unwrap();
    let wc = a.cq.wait_polling(PATIENCE).unwrap();
    assert_eq!(
        (wc.status, wc.wr_id, wc.opcode),
        (WcStatus::Success, 1, WcOpcode::RdmaWrite)
    );
    assert_eq!(b.mr.to_vec(0, LEN), pattern(LEN));

    a.mr.write(0, &vec![0; LEN]);
    let op = SendOp::Read {
        va: remote.addr,
        rkey: remote.rkey,
    };
    a.qp.post(&Send::new(2, op, &[a.mr.slice(..)])).unwrap();
    let wc = a.cq.wait_polling(PATIENCE).unwrap();
    assert_eq!(
        (wc.status, wc.wr_id, wc.opcode),
        (WcStatus::Success, 2, WcOpcode::RdmaRead)
    );
    assert_eq!(a.mr.to_vec(0, LEN), pattern(LEN));
}

#[test]
fn send_and_atomics() {
    let (a, b) = pair(Faults::default(), 4096);
    b.qp.post_recv(7, &[b.mr.slice(0..100)]).unwrap();
    a.mr.write(0, b"hello");
    a.qp.post(&Send::new(
        1,
        SendOp::SendImm(*b"imm!"),
        &[a.mr.slice(0..5)],
    ))
    .unwrap();
    let wc = b.cq.wait_polling(PATIENCE).unwrap();
    assert_eq!(
        (wc.status, wc.wr_id, wc.byte_len),
        (WcStatus::Success, 7, 5)
    );
    assert_eq!(wc.payload, hirail::WcPayload::Imm(*b"imm!"));
    assert_eq!(b.mr.to_vec(0, 5), b"hello");
    assert_eq!(
        a.cq.wait_polling(PATIENCE).unwrap().status,
        WcStatus::Success
    );

    b.mr.store_u64(8, 41);
    let remote = b.mr.remote().offset(8);
    let op = SendOp::FetchAdd {
        va: remote.addr,
        rkey: remote.rkey,
        add: 1,
    };
    a.qp.post(&Send::new(2, op, &[a.mr.slice(16..24)])).unwrap();
    assert_eq!(
        a.cq.wait_polling(PATIENCE).unwrap().status,
        WcStatus::Success
    );
    assert_eq!((a.mr.load_u64(16), b.mr.load_u64(8)), (41, 42));
}

fn lossy(recovery: RecoveryKind, len: usize) -> hirail_vocab::CounterSnapshot {
    let faults = Faults {
        recovery,
        seed: 3,
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.02,
        corruption: 0.01,
        ..Faults::default()
    };
    let (a, b) = pair(faults, len);
    a.mr.write(0, &pattern(len));
    let remote = b.mr.remote();
    for round in 0..5 {
        let op = SendOp::Write {
            va: remote.addr,
            rkey: remote.rkey,
        };
        a.qp.post(&Send::new(round, op, &[a.mr.slice(..)])).unwrap();
    }
    for round in 0..5 {
        let wc = a.cq.wait_polling(PATIENCE).unwrap();
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, round));
    }
    assert_eq!(b.mr.to_vec(0, len), pattern(len));
    a.context.counters()
}

#[test]
fn a_lossy_network_changes_nothing_but_time() {
    let counters = lossy(RecoveryKind::GoBackN, 200_000);
    assert!(counters.get(Counter::PacketSeqErr) > 0);
    // A message that starts over with each loss must be short to get through at all.
    let counters = lossy(RecoveryKind::GoBackZero, 20_000);
    assert!(counters.get(Counter::RetransmittedPackets) > 0);
}

#[test]
fn selective_repeat_resends_what_was_lost() {
    let counters = lossy(RecoveryKind::SelectiveRepeat, 200_000);
    assert!(counters.get(Counter::SrRetransmittedPackets) > 0, "{counters:?}");
}

#[test]
fn a_bad_key_ends_the_connection() {
    let (a, b) = pair(Faults::default(), 4096);
    let op = SendOp::Write {
        va: b.mr.remote().addr,
        rkey: hirail_wire::Rkey::new(0x1234_5678),
    };
    a.qp.post(&Send::new(1, op, &[a.mr.slice(0..8)])).unwrap();
    let wc = a.cq.wait_polling(PATIENCE).unwrap();
    assert_eq!(wc.status, WcStatus::RemAccessErr);
    assert_eq!(a.qp.state(), QpState::Err);
    let event = b.context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event.kind(), hirail_vocab::AsyncEventKind::QpAccessErr);
}
