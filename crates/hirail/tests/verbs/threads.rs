//! Many threads on one device, one QP, one queue.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use hirail::{
    AsyncEvent, CompletionChannel, Context, Counter, Cq, Faults, Mr, Mw, Pd, Qp, QpType, SendWr,
    Srq, Wc, Xrcd,
};

use crate::side::{ALL, PATIENCE, connect_qps, pair, pair_with};

#[test]
fn handles_go_to_any_thread() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<(
        Context,
        Pd,
        Cq,
        CompletionChannel,
        Qp,
        Mr,
        Mw,
        Srq,
        Xrcd,
        Wc,
        AsyncEvent,
    )>();
}

/// All threads post to one QP and poll one queue: every message arrives once, in the order in which
/// its thread posted it, and every completion is seen once.
#[test]
fn threads_share_a_qp_and_its_queue() {
    const THREADS: usize = 4;
    const EACH: usize = 400;
    let (a, b) = pair(QpType::Rc);
    let seen = Mutex::new(BTreeSet::new());
    let received = Mutex::new(Vec::new());
    let (done, arrived) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let posted = AtomicUsize::new(0);
    // Posts a receive unless enough were, so that all have been taken in the end.
    let receive = |slot: u64| {
        if posted.fetch_add(1, Ordering::SeqCst) < THREADS * EACH {
            let at = slot as usize * 16;
            b.qp.post_recv(slot, &[b.mr.slice(at..at + 16)]).unwrap();
        }
    };
    for slot in 0..64 {
        receive(slot);
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (a, b) = (&a, &b);
            let (seen, received, done, arrived) = (&seen, &received, &done, &arrived);
            let receive = &receive;
            scope.spawn(move || {
                let mut next = 0;
                while done.load(Ordering::SeqCst) < THREADS * EACH {
                    assert!(start.elapsed() < PATIENCE);
                    if next < EACH {
                        let mut message = [0; 16];
                        message[..8].copy_from_slice(&(number as u64).to_ne_bytes());
                        message[8..].copy_from_slice(&(next as u64).to_ne_bytes());
                        let wr_id = (number * EACH + next) as u64;
                        let wr = SendWr::send(wr_id, &[]).with_inline(&message);
                        if a.qp.post(&wr).is_ok() {
                            next += 1;
                        }
                    }
                    let polled = a.cq.poll(8, |wc| {
                        let wc = wc.ok().unwrap();
                        assert!(seen.lock().unwrap().insert(wc.wr_id), "{wc:?}");
                        done.fetch_add(1, Ordering::SeqCst);
                    });
                    polled.unwrap();
                }
            });
            scope.spawn(move || {
                while arrived.load(Ordering::SeqCst) < THREADS * EACH {
                    assert!(start.elapsed() < PATIENCE);
                    let polled = b.cq.poll(8, |wc| {
                        let wc = wc.ok().unwrap();
                        let at = wc.wr_id as usize * 16;
                        let message = (b.mr.load_u64(at), b.mr.load_u64(at + 8));
                        received.lock().unwrap().push(message);
                        arrived.fetch_add(1, Ordering::SeqCst);
                        receive(wc.wr_id);
                    });
                    polled.unwrap();
                }
            });
        }
    });
    let mut received = received.into_inner().unwrap();
    received.sort_unstable();
    let expected = (0..THREADS as u64).flat_map(|t| (0..EACH as u64).map(move |n| (t, n)));
    assert_eq!(received, expected.collect::<Vec<_>>());
}

/// Each thread with QPs and memory of its own, on one device, over a network that loses packets:
/// what it reads is what it wrote.
#[test]
fn threads_with_qps_of_their_own_share_a_device() {
    const THREADS: u64 = 6;
    let faults = Faults {
        seed: 11,
        loss: 0.005,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults, QpType::Rc);
    let counter = b.mr.remote();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                let cq = a.context.create_cq(64).unwrap();
                let mr = a.pd.register(1 << 16, ALL).unwrap();
                let theirs = b.pd.register(1 << 15, ALL).unwrap();
                for round in 0..8u64 {
                    // QPs come and go while others work.
                    let own = a.pd.qp(&cq, &cq).build().unwrap();
                    let other = b.pd.qp(&b.cq, &b.cq).build().unwrap();
                    connect_qps((&a.context, &own), (&b.context, &other)).unwrap();
                    let byte = (number * 8 + round + 1) as u8;
                    mr.write(0, &vec![byte; 1 << 15]);
                    let (from, into) = ([mr.slice(..1 << 15)], [mr.slice(1 << 15..)]);
                    let before = [mr.slice(..8)];
                    own.post_all([
                        SendWr::write(1, &from, theirs.remote()),
                        SendWr::read(2, &into, theirs.remote()),
                        SendWr::fetch_add(3, &before, counter, 1),
                    ])
                    .unwrap();
                    for wr_id in 1..=3 {
                        let wc = cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
                        assert_eq!(wc.wr_id, wr_id);
                    }
                    assert_eq!(mr.to_vec(1 << 15, 1 << 15), vec![byte; 1 << 15]);
                }
            });
        }
    });
    assert_eq!(b.mr.load_u64(0), THREADS * 8);
}

/// Thousands of QPs, a part of them to each thread: what each wrote is where it belongs, and what
/// each reads is what it wrote.
#[test]
fn threads_with_thousands_of_qps() {
    const THREADS: usize = 4;
    const EACH: usize = 600;
    const ROUNDS: u64 = 5;
    let (a, b) = pair(QpType::Rc);
    let theirs = b.pd.register(THREADS * EACH * 8, ALL).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (a, b, theirs) = (&a, &b, &theirs);
            scope.spawn(move || {
                let cq = a.context.create_cq(2 * EACH as u32).unwrap();
                let mr = a.pd.register(EACH * 16, ALL).unwrap();
                let qps: Vec<(Qp, Qp)> = (0..EACH)
                    .map(|_| {
                        let own = a.pd.qp(&cq, &cq).max_send_wr(4).build().unwrap();
                        let other = b.pd.qp(&b.cq, &b.cq).max_send_wr(1).build().unwrap();
                        connect_qps((&a.context, &own), (&b.context, &other)).unwrap();
                        (own, other)
                    })
                    .collect();
                for round in 0..ROUNDS {
                    let value = |nth: usize| ((number * EACH + nth) as u64) << 8 | round;
                    for (nth, (own, _)) in qps.iter().enumerate() {
                        let to = theirs.remote().offset(((number * EACH + nth) * 8) as u64);
                        mr.store_u64(nth * 16, value(nth));
                        let (from, into) = (
                            [mr.slice(nth * 16..nth * 16 + 8)],
                            [mr.slice(nth * 16 + 8..nth * 16 + 16)],
                        );
                        own.post_all([
                            SendWr::write(1, &from, to).unsignaled(),
                            SendWr::read(nth as u64, &into, to),
                        ])
                        .unwrap();
                    }
                    let mut seen = BTreeSet::new();
                    for _ in 0..EACH {
                        let wc = cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
                        assert!(seen.insert(wc.wr_id));
                        let nth = wc.wr_id as usize;
                        assert_eq!(mr.load_u64(nth * 16 + 8), value(nth));
                    }
                }
            });
        }
    });
    for slot in 0..THREADS * EACH {
        let expected = (slot as u64) << 8 | (ROUNDS - 1);
        assert_eq!(theirs.load_u64(slot * 8), expected);
    }
}

/// One thread sleeps on a channel, one polls, one only makes and destroys: none disturbs another.
#[test]
fn sleepers_and_pollers_share_a_device() {
    const ROUNDS: u64 = 300;
    let (a, b) = pair(QpType::Rc);
    let channel = a.context.create_channel().unwrap();
    let cq = a.context.create_cq_on(64, &channel).unwrap();
    let own = a.pd.qp(&cq, &cq).max_inline_data(8).build().unwrap();
    let other = b.pd.qp(&b.cq, &b.cq).build().unwrap();
    connect_qps((&a.context, &own), (&b.context, &other)).unwrap();
    let running = AtomicU64::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let wr = SendWr::write(round, &[], b.mr.remote()).with_inline(b"sleeper!");
                own.post(&wr).unwrap();
                assert_eq!(cq.wait(PATIENCE).unwrap().ok().unwrap().wr_id, round);
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let to = b.mr.remote().offset(8);
                let wr = SendWr::write(round, &[], to).with_inline(b"pollers!");
                assert_eq!(a.carry_out(&wr).wr_id, round);
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while running.load(Ordering::SeqCst) > 0 {
                let cq = a.context.create_cq(4).unwrap();
                let qp = a.pd.qp(&cq, &cq).build().unwrap();
                let mr = a.pd.register(64, ALL).unwrap();
                drop((cq, qp, mr));
            }
        });
    });
    assert_eq!(b.mr.to_vec(0, 16), b"sleeper!pollers!");
    assert_eq!(a.context.counters().get(Counter::ReqCqeError), 0);
}
