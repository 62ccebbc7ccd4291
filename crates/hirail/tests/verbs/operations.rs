//! Every operation of the connected transports, and what each leaves at both ends.

use hirail::{
    Access, Counter, Faults, Feth, FlushRange, MwType, QpState, QpType, RecoveryKind, Rkey, SendOp,
    SendWr, WcOpcode, WcPayload, WcStatus,
};

use crate::side::{PATIENCE, Side, pair, pair_recovering, pair_with, pattern};

const SOME: usize = 20_000;

pub(crate) fn send(a: &Side, b: &Side) {
    a.mr.write(0, &pattern(SOME));
    b.mr.write(0, &vec![0; SOME]);
    b.qp.post_recv(7, &[b.mr.slice(..SOME + 100)]).unwrap();
    let sent = a.carry_out(&SendWr::send(1, &[a.mr.slice(..SOME)]));
    assert_eq!((sent.wr_id, sent.opcode), (1, WcOpcode::Send));
    let received = b.done();
    assert_eq!((received.wr_id, received.opcode), (7, WcOpcode::Recv));
    assert_eq!(received.byte_len as usize, SOME);
    assert_eq!(received.payload, WcPayload::None);
    assert_eq!(b.mr.to_vec(0, SOME), pattern(SOME));
}

pub(crate) fn send_with_immediate(a: &Side, b: &Side) {
    b.qp.post_recv(8, &[b.mr.slice(..64)]).unwrap();
    let inline = SendWr::send(2, &[]).with_inline(b"inline bytes");
    a.carry_out(&inline.with_imm(*b"imm!").solicited());
    let received = b.done();
    assert_eq!((received.wr_id, received.byte_len), (8, 12));
    assert_eq!(received.imm(), Some(*b"imm!"));
    assert!(received.solicited);
    assert_eq!(b.mr.to_vec(0, 12), b"inline bytes");
}

pub(crate) fn write(a: &Side, b: &Side) {
    a.mr.write(0, &pattern(SOME));
    b.mr.write(0, &vec![0; SOME]);
    let wc = a.carry_out(&SendWr::write(3, &[a.mr.slice(..SOME)], b.mr.remote()));
    assert_eq!(wc.opcode, WcOpcode::RdmaWrite);
}

pub(crate) fn write_with_immediate(a: &Side, b: &Side) {
    a.mr.write(0, &pattern(SOME));
    b.qp.post_recv(9, &[]).unwrap();
    let to = b.mr.remote().offset(SOME as u64);
    a.carry_out(&SendWr::write(4, &[a.mr.slice(..SOME)], to).with_imm([1, 2, 3, 4]));
    let received = b.done();
    assert_eq!(
        (received.wr_id, received.opcode, received.byte_len as usize),
        (9, WcOpcode::RecvRdmaWithImm, SOME)
    );
    assert_eq!(received.imm(), Some([1, 2, 3, 4]));
    assert_eq!(b.mr.to_vec(SOME, SOME), pattern(SOME));
}

pub(crate) fn pieces(a: &Side, b: &Side) {
    // Gathered from three places, scattered to two; an empty entry does no harm.
    for (at, bytes) in [(100, b"one " as &[u8]), (5000, b"two "), (9, b"three")] {
        a.mr.write(at, bytes);
    }
    let from = [
        a.mr.slice(100..104),
        a.mr.slice(5000..5004),
        a.mr.slice(0..0),
        a.mr.slice(9..14),
    ];
    b.qp.post_recv(1, &[b.mr.slice(300..306), b.mr.slice(40..47)])
        .unwrap();
    a.carry_out(&SendWr::send(1, &from));
    assert_eq!(b.done().byte_len, 13);
    assert_eq!(b.mr.to_vec(300, 6), b"one tw");
    assert_eq!(b.mr.to_vec(40, 7), b"o three");
}

pub(crate) fn nothing(a: &Side, b: &Side) {
    b.qp.post_recv(1, &[]).unwrap();
    a.carry_out(&SendWr::send(1, &[]));
    assert_eq!(b.done().byte_len, 0);
    // An access of no bytes needs no key.
    let nowhere = SendOp::Write {
        va: 0,
        rkey: Rkey::new(0),
    };
    a.carry_out(&SendWr::new(2, nowhere, &[]));
}

#[test]
fn reliable_connected() {
    let (a, b) = pair(QpType::Rc);
    send(&a, &b);
    send_with_immediate(&a, &b);
    write(&a, &b);
    assert_eq!(b.mr.to_vec(0, SOME), pattern(SOME));
    write_with_immediate(&a, &b);
    pieces(&a, &b);
    nothing(&a, &b);
}

#[test]
fn reads_and_atomics() {
    let (a, b) = pair(QpType::Rc);
    b.mr.write(0, &pattern(SOME));
    let wc = a.carry_out(&SendWr::read(1, &[a.mr.slice(..SOME)], b.mr.remote()));
    assert_eq!(wc.opcode, WcOpcode::RdmaRead);
    assert_eq!(a.mr.to_vec(0, SOME), pattern(SOME));

    let (word, before) = (b.mr.remote().offset(64), [a.mr.slice(8..16)]);
    b.mr.store_u64(64, 41);
    let wc = a.carry_out(&SendWr::fetch_add(2, &before, word, 1));
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::FetchAdd, 8));
    assert_eq!((a.mr.load_u64(8), b.mr.load_u64(64)), (41, 42));
    let wc = a.carry_out(&SendWr::compare_swap(3, &before, word, 42, 7));
    assert_eq!(wc.opcode, WcOpcode::CompSwap);
    assert_eq!((a.mr.load_u64(8), b.mr.load_u64(64)), (42, 7));
    a.carry_out(&SendWr::compare_swap(4, &before, word, 42, 9));
    assert_eq!((a.mr.load_u64(8), b.mr.load_u64(64)), (7, 7));

    a.mr.store_u64(24, u64::MAX / 3);
    let wc = a.carry_out(&SendWr::atomic_write(5, &[a.mr.slice(24..32)], word));
    assert_eq!(wc.opcode, WcOpcode::AtomicWrite);
    assert_eq!(b.mr.load_u64(64), u64::MAX / 3);

    for (range, persistent) in [(FlushRange::Range, false), (FlushRange::WholeRegion, true)] {
        let what = Feth {
            range,
            global: true,
            persistent,
        };
        let wc = a.carry_out(&SendWr::flush(6, b.mr.remote(), what));
        assert_eq!(wc.opcode, WcOpcode::Flush);
    }
}

#[test]
fn a_send_invalidates_a_window() {
    let (a, b) = pair(QpType::Rc);
    let window = b.pd.alloc_mw(MwType::Type2).unwrap();
    let remote =
        b.qp.bind(1, &window, &b.mr, 0..100, Access::REMOTE_WRITE)
            .unwrap();
    assert_eq!(b.done().opcode, WcOpcode::BindMw);
    a.carry_out(&SendWr::write(1, &[], remote).with_inline(b"through"));
    assert_eq!(b.mr.to_vec(0, 7), b"through");
    b.qp.post_recv(2, &[]).unwrap();
    a.carry_out(&SendWr::send(2, &[]).invalidating(remote.rkey));
    assert_eq!(b.done().invalidated(), Some(remote.rkey));
    a.qp.post(&SendWr::write(3, &[], remote).with_inline(b"late"))
        .unwrap();
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
}

#[test]
fn unreliable_connected() {
    let (a, b) = pair(QpType::Uc);
    send(&a, &b);
    send_with_immediate(&a, &b);
    write(&a, &b);
    // It is complete when it has left: its arrival shows in the next message's.
    write_with_immediate(&a, &b);
    assert_eq!(b.mr.to_vec(0, SOME), pattern(SOME));
    let error =
        a.qp.post(&SendWr::read(1, &[a.mr.slice(..8)], b.mr.remote()))
            .unwrap_err();
    assert_eq!(error.to_string(), "IBV_QPT_UC has no such operation");
}

#[test]
fn a_mebibyte_each_way() {
    const LEN: usize = 1 << 20;
    let (a, b) = pair(QpType::Rc);
    let [from, to] = [&a, &b].map(|side| side.pd.register(LEN, crate::side::ALL).unwrap());
    from.write(0, &pattern(LEN));
    a.carry_out(&SendWr::write(1, &[from.slice(..)], to.remote()));
    assert_eq!(to.to_vec(0, LEN), pattern(LEN));
    from.write(0, &vec![0; LEN]);
    a.carry_out(&SendWr::read(2, &[from.slice(..)], to.remote()));
    assert_eq!(from.to_vec(0, LEN), pattern(LEN));
}

#[test]
fn requests_complete_in_order_and_some_silently() {
    let (a, b) = pair(QpType::Rc);
    let wrs = (0..64u64).map(|nth| {
        let wr = SendWr::write(nth, &[], b.mr.remote().offset(nth)).with_inline(b"x");
        if nth % 8 == 7 { wr } else { wr.unsignaled() }
    });
    a.qp.post_all(wrs).unwrap();
    for group in 0..8 {
        assert_eq!(a.done().wr_id, group * 8 + 7);
    }
    assert_eq!(a.cq.poll_one().unwrap(), None);
    assert_eq!(b.mr.to_vec(0, 64), [b'x'; 64]);
}

#[test]
fn a_fenced_send_sees_what_was_read() {
    let (a, b) = pair(QpType::Rc);
    for round in 0..50u64 {
        b.mr.store_u64(0, round + 1);
        b.qp.post_recv(round, &[b.mr.slice(64..72)]).unwrap();
        let read = [a.mr.slice(0..8)];
        a.qp.post_all([
            SendWr::read(1, &read, b.mr.remote()),
            SendWr::send(2, &read).fenced(),
        ])
        .unwrap();
        assert_eq!((a.done().wr_id, a.done().wr_id), (1, 2));
        b.done();
        assert_eq!(b.mr.load_u64(64), round + 1);
    }
}

fn lossy(recovery: RecoveryKind, len: usize) -> hirail::CounterSnapshot {
    let faults = Faults {
        seed: 3,
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.02,
        corruption: 0.01,
        ..Faults::default()
    };
    let (a, b) = pair_recovering(faults, recovery, QpType::Rc);
    let [from, to] = [&a, &b].map(|side| side.pd.register(len, crate::side::ALL).unwrap());
    from.write(0, &pattern(len));
    for round in 0..5 {
        let slices = [from.slice(..)];
        a.qp.post(&SendWr::write(round, &slices, to.remote()))
            .unwrap();
    }
    for round in 0..5 {
        assert_eq!(a.done().wr_id, round);
    }
    assert_eq!(to.to_vec(0, len), pattern(len));
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
    assert!(
        counters.get(Counter::SrRetransmittedPackets) > 0,
        "{counters:?}"
    );
    let [all, selective] = [
        Counter::RetransmittedPackets,
        Counter::SrRetransmittedPackets,
    ]
    .map(|counter| counters.get(counter));
    assert!(all >= selective, "the one is a part of the other");
}

/// Nothing comes after a single packet that would tell of its loss: the adaptive timer sends it again.
#[test]
fn the_adaptive_timer_resends_the_last_packet() {
    let faults = Faults {
        seed: 3,
        loss: 0.2,
        ..Faults::default()
    };
    let (a, b) = pair_recovering(faults, RecoveryKind::SelectiveRepeat, QpType::Rc);
    for round in 0..300 {
        let eight = [a.mr.slice(..8)];
        a.carry_out(&SendWr::write(round, &eight, b.mr.remote()));
    }
    let counters = a.context.counters();
    let [resent, expired] =
        [Counter::RoceAdpRetrans, Counter::RoceAdpRetransTo].map(|counter| counters.get(counter));
    assert!(0 < resent && resent <= expired, "{counters:?}");
}

#[test]
fn atomics_are_applied_once_whatever_is_lost() {
    const ROUNDS: u64 = 300;
    let faults = Faults {
        seed: 5,
        loss: 0.05,
        duplication: 0.05,
        reordering: 0.05,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    for round in 0..ROUNDS {
        let before = [a.mr.slice(0..8)];
        a.carry_out(&SendWr::fetch_add(round, &before, b.mr.remote(), 1));
        assert_eq!(a.mr.load_u64(0), round);
    }
    assert_eq!(b.mr.load_u64(0), ROUNDS);
}

#[test]
fn a_bad_key_ends_the_connection() {
    let (a, b) = pair(QpType::Rc);
    let op = SendOp::Write {
        va: b.mr.remote().addr,
        rkey: Rkey::new(0x1234_5678),
    };
    a.qp.post(&SendWr::new(1, op, &[a.mr.slice(0..8)])).unwrap();
    let error = a.completion().ok().unwrap_err().to_string();
    assert_eq!(error, "work request 1 ended with IBV_WC_REM_ACCESS_ERR");
    assert_eq!(a.qp.state(), QpState::Err);
    let event = b.context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event, hirail::AsyncEvent::QpAccessErr(b.qp.qpn()));
}
