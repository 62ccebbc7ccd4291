//! Completion counters: what they count, and when they can be attached.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hirail::{
    CompletionCounter, Counted, CountedOps, Error, Faults, MemoryNetwork, QpState, SendWr,
    VerbError,
};

use crate::side::{Side, connect};

fn sides() -> [Side; 2] {
    let network = MemoryNetwork::new(Faults::default());
    [1, 2].map(|number| Side::new(&network, number, |qp| qp))
}

fn counter(counted: Counted) -> Arc<CompletionCounter> {
    Arc::new(CompletionCounter::new(counted))
}

/// Completed, and failed.
fn read(counter: &CompletionCounter) -> (u64, u64) {
    let read = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Acquire);
    (read(counter.completed()), read(counter.failed()))
}

#[test]
fn requests_and_bytes_are_counted_by_operation() {
    let [a, b] = sides();
    let (sends, one_sided) = (counter(Counted::Requests), counter(Counted::Bytes));
    let receives = counter(Counted::Requests);
    a.qp.attach_counter(&sends, CountedOps::SEND).unwrap();
    let ops = CountedOps::RDMA_READ | CountedOps::RDMA_WRITE;
    a.qp.attach_counter(&one_sided, ops).unwrap();
    b.qp.attach_counter(&receives, CountedOps::RECV).unwrap();
    connect(&a, &b);
    for id in 0..3 {
        b.qp.post_recv(id, &[b.mr.slice(..64)]).unwrap();
    }
    let local = [a.mr.slice(..10)];
    // The first two have no completions of their own.
    a.qp.post(&SendWr::send(1, &local).unsignaled()).unwrap();
    a.qp.post(&SendWr::write(2, &local, b.mr.remote()).unsignaled())
        .unwrap();
    a.carry_out(&SendWr::send(3, &local));
    assert_eq!(read(&sends), (2, 0));
    assert_eq!(read(&one_sided), (10, 0));
    a.carry_out(&SendWr::read(4, &local, b.mr.remote()));
    assert_eq!(read(&one_sided), (20, 0));
    assert_eq!((b.done().wr_id, b.done().wr_id), (0, 1));
    assert_eq!(read(&receives), (2, 0));
    // What is flushed has failed.
    b.qp.fail().unwrap();
    assert_eq!(read(&receives), (2, 1));
    assert_eq!(read(&sends), (2, 0));
}

#[test]
fn one_counter_sums_up_and_an_operation_has_one_counter() {
    let [a, b] = sides();
    let both = counter(Counted::Bytes);
    for side in [&a, &b] {
        let ops = CountedOps::SEND | CountedOps::RECV;
        side.qp.attach_counter(&both, ops).unwrap();
    }
    let other = counter(Counted::Requests);
    let busy = a.qp.attach_counter(&other, CountedOps::RECV);
    let busy = busy.unwrap_err();
    assert!(
        matches!(busy, Error::Verb(VerbError::Busy { .. })),
        "{busy}"
    );
    connect(&a, &b);
    let late = b.qp.attach_counter(&other, CountedOps::RDMA_READ);
    let got = QpState::Rts;
    let late = late.unwrap_err();
    assert!(
        matches!(late, Error::Verb(VerbError::WrongState { got: state, .. }) if state == got),
        "{late}"
    );
    b.qp.post_recv(0, &[b.mr.slice(..64)]).unwrap();
    a.carry_out(&SendWr::send(0, &[a.mr.slice(..7)]));
    b.done();
    assert_eq!(read(&both), (14, 0));
}
