//! What the peer does wrong, or does not do: the status, and what the error says.

use hirail::{
    AckTimeout, ConnectOptions, Error, Faults, Gid, MemoryNetwork, Psn, QpEndpoint, Qpn, RnrTimer,
    SendWr, WcStatus,
};

use crate::side::{Side, connect};

/// Options of who takes a busy peer for one that is not there.
fn impatient(side: &Side) -> ConnectOptions {
    ConnectOptions {
        timeout: AckTimeout::new(10),
        retry_cnt: 1,
        ..ConnectOptions::new(&side.context, 0)
    }
}

fn sides() -> (Side, Side) {
    let network = MemoryNetwork::new(Faults::default());
    let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp));
    (a, b)
}

#[test]
fn a_peer_that_never_answered_is_told_from_one_that_went_away() {
    let (a, b) = sides();
    let nobody = QpEndpoint {
        gid: Gid::from_ip(crate::side::address(99)),
        qpn: Qpn::new(77),
        psn: Psn::new(0),
    };
    let qp = a.pd.qp(&a.cq, &a.cq).build().unwrap();
    qp.connect(&nobody, &impatient(&a)).unwrap();
    qp.post(&SendWr::send(5, &[])).unwrap();
    let wc = a.completion();
    let hint = "the peer never answered; is UDP port 4791 open on the way to it?";
    assert_eq!(wc.hint(), Some(hint));
    let error = wc.ok().unwrap_err();
    assert!(matches!(
        error,
        Error::Failed {
            wr_id: 5,
            status: WcStatus::RetryExcErr,
            never_heard: true,
        }
    ));
    assert_eq!(
        error.to_string(),
        format!("work request 5 ended with IBV_WC_RETRY_EXC_ERR: {hint}")
    );

    connect(&a, &b);
    a.carry_out(&SendWr::write(1, &[], b.mr.remote()).with_inline(b"x"));
    b.qp.reset().unwrap();
    a.qp.post(&SendWr::write(2, &[], b.mr.remote()).with_inline(b"x"))
        .unwrap();
    let wc = a.completion();
    assert_eq!(wc.hint(), None, "it has answered before");
    let error = wc.ok().unwrap_err();
    assert_eq!(
        error.to_string(),
        "work request 2 ended with IBV_WC_RETRY_EXC_ERR"
    );
}

#[test]
fn a_peer_that_does_not_receive() {
    let (a, b) = sides();
    for (from, to) in [(&a, &b), (&b, &a)] {
        let options = ConnectOptions {
            rnr_retry: 1,
            min_rnr_timer: RnrTimer::new(1),
            ..ConnectOptions::new(&from.context, 0)
        };
        let remote = to.qp.endpoint(0).unwrap();
        from.qp.connect(&remote, &options).unwrap();
    }
    a.qp.post(&SendWr::send(1, &[])).unwrap();
    assert_eq!(a.completion().status, WcStatus::RnrRetryExcErr);
}

#[test]
fn a_peer_that_receives_late_is_waited_for() {
    let (a, b) = sides();
    connect(&a, &b);
    a.qp.post(&SendWr::send(1, &[]).with_inline(b"late"))
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(a.cq.poll_one().unwrap(), None);
    b.qp.post_recv(2, &[b.mr.slice(..4)]).unwrap();
    assert_eq!(b.done().wr_id, 2);
    assert_eq!(a.done().wr_id, 1);
}

#[test]
fn a_message_that_does_not_fit() {
    let (a, b) = sides();
    connect(&a, &b);
    b.qp.post_recv(1, &[b.mr.slice(..4)]).unwrap();
    a.qp.post(&SendWr::send(2, &[a.mr.slice(..5)])).unwrap();
    assert_eq!(b.completion().status, WcStatus::LocLenErr);
    assert_eq!(a.completion().status, WcStatus::RemInvReqErr);
}

#[test]
fn what_the_caller_does_wrong_is_said_at_once() {
    let (a, b) = sides();
    connect(&a, &b);
    let message = |wr: &SendWr<'_>| a.qp.post(wr).unwrap_err().to_string();
    let slices = [a.mr.slice(..1); 5];
    assert_eq!(
        message(&SendWr::send(1, &slices)),
        "num_sge is at most 4, got 5"
    );
    assert_eq!(
        message(&SendWr::send(1, &[a.mr.slice(..1); 40])),
        "num_sge is at most 31, got 40"
    );
    assert_eq!(
        message(&SendWr::send(1, &[]).with_inline(&[0; 65])),
        "inline data is at most 64, got 65"
    );
    let error = a.context.create_cq(0).unwrap_err().to_string();
    assert_eq!(error, "cqe is at least 1, got 0");
    let builder = a.pd.qp(&a.cq, &a.cq).max_send_wr(1 << 20);
    assert_eq!(
        builder.build().unwrap_err().to_string(),
        "max_send_wr is at most 32768, got 1048576"
    );
    let wait = a.cq.wait_polling(std::time::Duration::ZERO).unwrap_err();
    assert!(matches!(wait, Error::NoCompletion { .. }));
    assert!(a.context.async_event().unwrap().is_none());
    let wait = a.context.wait_async_event(std::time::Duration::ZERO);
    assert_eq!(wait.unwrap_err().to_string(), "no event within 0ns");
    let small = a.pd.qp(&a.cq, &a.cq).max_send_wr(2).build().unwrap();
    let other = b.pd.qp(&b.cq, &b.cq).build().unwrap();
    crate::side::connect_qps((&a.context, &small), (&b.context, &other)).unwrap();
    let error = small.post_all([SendWr::send(1, &[]); 5]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the send queue holds 2 work requests and is full"
    );
}

#[test]
#[should_panic(expected = "only SEND and WRITE carry immediate data")]
fn a_read_with_immediate_data_does_not_exist() {
    let (a, _b) = sides();
    let _ = SendWr::read(1, &[], a.mr.remote()).with_imm([0; 4]);
}
