//! Faults that are none of the network: receivers that are not ready, queue pairs that fail, ports
//! without link.

use std::time::{Duration, Instant};

use hirail::{AsyncEvent, Counter, Faults, Flap, QpState, QpType, SendWr, WcStatus};

use crate::side::{PATIENCE, pair, pair_with, pattern};

/// Every third message finds no receive, although one is posted; the sender tries again and all come
/// through.
#[test]
fn a_receiver_that_is_not_ready_now_and_then() {
    const ROUNDS: u64 = 60;
    let faults = Faults {
        seed: 1,
        not_ready: 0.3,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    for round in 0..ROUNDS {
        a.mr.write(0, &pattern(64 + round as usize));
        b.qp.post_recv(round, &[b.mr.slice(4096..8192)]).unwrap();
        a.carry_out(&SendWr::send(round, &[a.mr.slice(..64)]));
        assert_eq!(b.done().wr_id, round);
        assert_eq!(b.mr.to_vec(4096, 64), pattern(64));
    }
    let (naks, seen) = (
        b.context.counters().get(Counter::SendRnrErr),
        a.context.counters().get(Counter::RnrNakRetryErr),
    );
    assert!(naks > 0, "no RNR NAK in {ROUNDS} messages");
    assert_eq!(naks, seen, "each NAK arrived and cost no more than a try");
}

/// WRITEs need no receive, so that they do not care.
#[test]
fn writes_do_not_wait_for_receivers() {
    let faults = Faults {
        not_ready: 1.0,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    a.carry_out(&SendWr::write(1, &[a.mr.slice(..64)], b.mr.remote()));
    assert_eq!(b.context.counters().get(Counter::SendRnrErr), 0);
}

/// The victim's application is told, its work is flushed; the peer's requests are not answered.
#[test]
fn a_queue_pair_that_fails() {
    let faults = Faults {
        qp_failure: 1.0,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    b.qp.post_recv(9, &[b.mr.slice(..64)]).unwrap();
    a.qp.post(&SendWr::send(1, &[a.mr.slice(..64)])).unwrap();
    let flushed = b.completion();
    assert_eq!((flushed.wr_id, flushed.status), (9, WcStatus::WrFlushErr));
    let event = b.context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event, AsyncEvent::QpFatal(b.qp.qpn()));
    assert_eq!(b.qp.state(), QpState::Err);
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
}

/// While the port is down nothing comes through; both ends are told, and go on when it is back.
#[test]
fn a_port_that_flaps() {
    let faults = Faults {
        flap: Some(Flap {
            down: Duration::from_millis(30),
            every: Duration::from_millis(120),
        }),
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    let (mut downs, mut ups, mut round) = (0, 0, 0);
    let start = Instant::now();
    while downs < 3 || ups < 3 {
        assert!(start.elapsed() < PATIENCE, "{downs} down, {ups} up");
        a.carry_out(&SendWr::write(round, &[a.mr.slice(..64)], b.mr.remote()));
        round += 1;
        while let Some(event) = a.context.async_event().unwrap() {
            match event {
                AsyncEvent::PortErr => downs += 1,
                AsyncEvent::PortActive => ups += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(a.context.counters().get(Counter::LocalAckTimeoutErr) > 0);
}

#[test]
fn a_port_keeps_its_link_by_itself() {
    let (a, _b) = pair(QpType::Rc);
    assert!(a.context.is_port_up());
    assert_eq!(a.context.async_event().unwrap(), None);
}
