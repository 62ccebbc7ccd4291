//! Completion queues, channels, shared receive queues.

use std::time::{Duration, Instant};

use hirail::{Arm, AsyncEvent, Error, Faults, MemoryNetwork, QpState, QpType, SendWr, WcStatus};

use crate::side::{ALL, PATIENCE, Side, address, connect, connect_qps, pair};

/// Short, for what must not happen.
const MOMENT: Duration = Duration::from_millis(30);

#[test]
fn a_sleeping_thread_is_woken() {
    let (a, b) = pair(QpType::Rc);
    let channel = b.context.create_channel().unwrap();
    let cq = b.context.create_cq_on(16, &channel).unwrap();
    let qp = b.pd.qp(&cq, &cq).build().unwrap();
    let other = a.pd.qp(&a.cq, &a.cq).build().unwrap();
    connect_qps((&a.context, &other), (&b.context, &qp)).unwrap();
    for round in 0..20 {
        qp.post_recv(round, &[]).unwrap();
        let sender = std::thread::spawn({
            let other = other.clone();
            move || {
                std::thread::sleep(Duration::from_millis(2));
                other.post(&SendWr::send(0, &[])).unwrap();
            }
        });
        assert_eq!(cq.wait(PATIENCE).unwrap().ok().unwrap().wr_id, round);
        sender.join().unwrap();
        a.done();
    }
    let error = cq.wait(MOMENT).unwrap_err();
    assert_eq!(error.to_string(), "no completion within 30ms");
    assert!(matches!(b.cq.wait(MOMENT), Err(Error::NoChannel)));
}

#[test]
fn each_of_many_sleeping_threads_gets_its_own() {
    const THREADS: u64 = 8;
    let (a, b) = pair(QpType::Rc);
    let channel = b.context.create_channel().unwrap();
    let cq = b.context.create_cq_on(64, &channel).unwrap();
    let qp = b.pd.qp(&cq, &cq).build().unwrap();
    let other = a.pd.qp(&a.cq, &a.cq).build().unwrap();
    connect_qps((&a.context, &other), (&b.context, &qp)).unwrap();
    for round in 0..10 {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                let cq = cq.clone();
                std::thread::spawn(move || cq.wait(PATIENCE).unwrap().ok().unwrap().wr_id)
            })
            .collect();
        for nth in 0..THREADS {
            qp.post_recv(round * THREADS + nth, &[]).unwrap();
        }
        // All at once, so that few events stand for many completions.
        other
            .post_all((0..THREADS).map(|nth| SendWr::send(nth, &[])))
            .unwrap();
        let mut got: Vec<u64> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
        got.sort_unstable();
        let expected: Vec<u64> = (round * THREADS..(round + 1) * THREADS).collect();
        assert_eq!(got, expected);
        for _ in 0..THREADS {
            a.done();
        }
    }
}

#[test]
fn a_channel_tells_its_queues_apart() {
    let (a, b) = pair(QpType::Rc);
    let channel = b.context.create_channel().unwrap();
    let queues = [(); 3].map(|()| b.context.create_cq_on(16, &channel).unwrap());
    let ends = queues.each_ref().map(|cq| {
        let own = b.pd.qp(cq, cq).build().unwrap();
        let other = a.pd.qp(&a.cq, &a.cq).build().unwrap();
        connect_qps((&a.context, &other), (&b.context, &own)).unwrap();
        own.post_recv(1, &[]).unwrap();
        (other, own)
    });
    assert!(channel.try_event().unwrap().is_none());
    for ((other, _), cq) in ends.iter().zip(&queues) {
        assert!(!cq.arm(Arm::Any).unwrap());
        other.post(&SendWr::send(1, &[])).unwrap();
        assert_eq!(channel.wait(PATIENCE).unwrap().id(), cq.id());
        // Completions that are there already raise no event.
        assert!(cq.arm(Arm::Any).unwrap());
        assert!(cq.poll_one().unwrap().is_some());
    }
    assert!(matches!(channel.wait(MOMENT), Err(Error::NoEvent { .. })));
    // Queues of other devices are none of its.
    let error = a.context.create_cq_on(16, &channel).unwrap_err();
    assert!(matches!(error, Error::OtherDevice { .. }), "{error}");
}

#[test]
fn a_post_that_is_flushed_wakes_too() {
    let (a, _b) = pair(QpType::Rc);
    let channel = a.context.create_channel().unwrap();
    let cq = a.context.create_cq_on(16, &channel).unwrap();
    let qp = a.pd.qp(&cq, &cq).build().unwrap();
    qp.init(ALL).unwrap();
    qp.fail().unwrap();
    for wr_id in 0..2 {
        assert!(!cq.arm(Arm::Any).unwrap());
        if wr_id == 0 {
            qp.post(&SendWr::send(wr_id, &[])).unwrap();
        } else {
            qp.post_recv(wr_id, &[]).unwrap();
        }
        assert_eq!(channel.wait(PATIENCE).unwrap().id(), cq.id());
        let wc = cq.poll_one().unwrap().unwrap();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::WrFlushErr));
    }
}

#[test]
fn solicited_events_only() {
    let (a, b) = pair(QpType::Rc);
    let channel = b.context.create_channel().unwrap();
    let cq = b.context.create_cq_on(16, &channel).unwrap();
    let qp = b.pd.qp(&cq, &cq).build().unwrap();
    let other = a.pd.qp(&a.cq, &a.cq).build().unwrap();
    connect_qps((&a.context, &other), (&b.context, &qp)).unwrap();
    for wr_id in 0..2 {
        qp.post_recv(wr_id, &[]).unwrap();
    }
    cq.arm(Arm::Solicited).unwrap();
    other.post(&SendWr::send(1, &[])).unwrap();
    a.done();
    assert!(channel.wait(MOMENT).is_err());
    other.post(&SendWr::send(2, &[]).solicited()).unwrap();
    assert_eq!(channel.wait(PATIENCE).unwrap().id(), cq.id());
    let mut got = Vec::new();
    cq.poll(16, |wc| got.push((wc.wr_id, wc.solicited)))
        .unwrap();
    assert_eq!(got, [(0, false), (1, true)]);
}

#[test]
fn moderation_by_count_and_by_time() {
    let (a, b) = pair(QpType::Rc);
    let channel = b.context.create_channel().unwrap();
    let cq = b.context.create_cq_on(64, &channel).unwrap();
    let qp = b.pd.qp(&cq, &cq).build().unwrap();
    let other = a.pd.qp(&a.cq, &a.cq).build().unwrap();
    connect_qps((&a.context, &other), (&b.context, &qp)).unwrap();
    for wr_id in 0..16 {
        qp.post_recv(wr_id, &[]).unwrap();
    }
    let send = || {
        other.post(&SendWr::send(1, &[])).unwrap();
        a.done();
    };
    cq.moderate(4, Duration::ZERO).unwrap();
    cq.arm(Arm::Any).unwrap();
    for _ in 0..3 {
        send();
    }
    assert!(channel.wait(MOMENT).is_err());
    send();
    channel.wait(PATIENCE).unwrap();
    cq.poll(64, |_| {}).unwrap();

    let period = Duration::from_millis(50);
    cq.moderate(100, period).unwrap();
    cq.arm(Arm::Any).unwrap();
    let start = Instant::now();
    send();
    channel.wait(PATIENCE).unwrap();
    assert!(start.elapsed() >= period);
    cq.poll(64, |_| {}).unwrap();

    // What was held back is due when the moderation ends.
    cq.moderate(100, Duration::ZERO).unwrap();
    cq.arm(Arm::Any).unwrap();
    send();
    assert!(channel.wait(MOMENT).is_err());
    cq.moderate(0, Duration::ZERO).unwrap();
    channel.wait(PATIENCE).unwrap();
}

#[test]
fn whoever_polls_may_post() {
    // From within the callback, on the same queue.
    let (a, b) = pair(QpType::Rc);
    let wr = SendWr::write(0, &[], b.mr.remote()).with_inline(b"x");
    let mut left = 100;
    a.qp.post(&wr).unwrap();
    let start = Instant::now();
    while left > 0 {
        assert!(start.elapsed() < PATIENCE);
        let polled = a.cq.poll(16, |wc| {
            wc.ok().unwrap();
            left -= 1;
            if left > 0 {
                a.qp.post(&wr).unwrap();
                assert!(a.cq.capacity().unwrap() >= 256);
            }
        });
        polled.unwrap();
    }
}

#[test]
fn a_queue_is_resized_and_overruns() {
    let (a, b) = pair(QpType::Rc);
    let cq = a.context.create_cq(2).unwrap();
    let qp = a.pd.qp(&cq, &cq).max_inline_data(8).build().unwrap();
    let other = b.pd.qp(&b.cq, &b.cq).build().unwrap();
    connect_qps((&a.context, &qp), (&b.context, &other)).unwrap();
    let wr = SendWr::write(0, &[], b.mr.remote()).with_inline(b"x");
    cq.resize(8).unwrap();
    qp.post_all([wr; 8]).unwrap();
    let event = |expected| {
        let event = a.context.wait_async_event(PATIENCE).unwrap();
        assert_eq!(event, expected);
    };
    // Eight fit; one more kills the queue and the QP.
    let start = Instant::now();
    while b.context.counters().get(hirail::Counter::RxWriteRequests) < 8 {
        assert!(start.elapsed() < PATIENCE);
    }
    let error = cq.resize(1 << 30).unwrap_err();
    assert!(error.to_string().starts_with("cqe is at most"), "{error}");
    qp.post(&wr).unwrap();
    event(AsyncEvent::CqErr(cq.id()));
    event(AsyncEvent::QpFatal(qp.qpn()));
    assert_eq!(qp.state(), QpState::Err);
    // What it holds can still be had.
    assert_eq!(cq.poll(64, |wc| assert!(wc.ok().is_ok())).unwrap(), 8);
}

#[test]
fn many_qps_receive_from_one_queue() {
    let network = MemoryNetwork::new(Faults::default());
    let context = network.open(address(9)).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let mr = pd.register(4096, ALL).unwrap();
    let srq = pd.create_srq(16, 1).unwrap();
    let senders: Vec<Side> = (1..=3)
        .map(|number| Side::new(&network, number, |qp| qp))
        .collect();
    let receivers: Vec<_> = senders
        .iter()
        .map(|sender| {
            let qp = pd.qp(&cq, &cq).srq(&srq).build().unwrap();
            connect_qps((&sender.context, &sender.qp), (&context, &qp)).unwrap();
            qp
        })
        .collect();
    let error = receivers[0].post_recv(1, &[]).unwrap_err();
    assert!(error.to_string().ends_with("post there"), "{error}");
    for slot in 0..16 {
        srq.post_recv(slot as u64, &[mr.slice(slot * 8..slot * 8 + 8)])
            .unwrap();
    }
    srq.arm_limit(8).unwrap();
    assert_eq!((srq.limit().unwrap(), srq.queued().unwrap()), (8, 16));
    for nth in 0..9u64 {
        let sender = &senders[nth as usize % 3];
        sender.carry_out(&SendWr::send(nth, &[]).with_inline(&nth.to_ne_bytes()));
        let wc = cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
        assert_eq!(wc.wr_id, nth);
        assert_eq!(wc.qpn, receivers[nth as usize % 3].qpn());
        assert_eq!(mr.load_u64(nth as usize * 8), nth);
    }
    let event = context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event, AsyncEvent::SrqLimitReached(srq.id()));
    assert_eq!((srq.limit().unwrap(), srq.queued().unwrap()), (0, 7));
    srq.resize(7).unwrap();
    assert!(srq.post_recv(1, &[]).is_err());
    assert!(srq.arm_limit(8).is_err());
    // A QP that fails says that it takes no more from the queue.
    receivers[0].fail().unwrap();
    let event = context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event, AsyncEvent::QpLastWqeReached(receivers[0].qpn()));
}

#[test]
fn objects_of_other_devices_are_refused() {
    let network = MemoryNetwork::new(Faults::default());
    let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp));
    connect(&a, &b);
    let srq = b.pd.create_srq(1, 1).unwrap();
    let xrcd = b.context.alloc_xrcd().unwrap();
    let refused = [
        a.pd.qp(&b.cq, &a.cq).build().err(),
        a.pd.qp(&a.cq, &b.cq).build().err(),
        a.pd.qp(&a.cq, &a.cq).srq(&srq).build().err(),
        a.pd.qp(&a.cq, &a.cq).xrcd(&xrcd).build().err(),
        a.pd.create_xrc_srq(&xrcd, &a.cq, 1, 1).err(),
    ];
    for error in refused {
        let error = error.expect("it is refused");
        assert!(matches!(error, Error::OtherDevice { .. }), "{error}");
    }
}
