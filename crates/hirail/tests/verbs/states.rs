//! The life of a QP as its user sees it.

use hirail::{
    AsyncEvent, AttrMask, ConnectOptions, Faults, MemoryNetwork, PathMtu, QpAttr, QpState, QpType,
    SendWr, WcStatus,
};

use crate::side::{ALL, PATIENCE, Side, connect, pair};

#[test]
fn a_qp_is_connected_step_by_step() {
    let network = MemoryNetwork::new(Faults::default());
    let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp));
    assert_eq!(a.qp.state(), QpState::Reset);
    let error = a.qp.post_recv(1, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "post_recv is not possible in state Reset"
    );
    a.qp.init(ALL).unwrap();
    a.qp.post_recv(1, &[]).unwrap();
    let error = a.qp.post(&SendWr::send(1, &[])).unwrap_err();
    assert_eq!(error.to_string(), "post_send is not possible in state Init");
    let options = ConnectOptions {
        path_mtu: PathMtu::Mtu1024,
        retry_cnt: 3,
        ..ConnectOptions::new(&a.context, 0)
    };
    a.qp.connect(&b.qp.endpoint(0).unwrap(), &options).unwrap();
    b.qp.connect(&a.qp.endpoint(0).unwrap(), &options).unwrap();
    let attr = a.qp.query().unwrap();
    assert_eq!(
        (attr.qp_state, attr.path_mtu, attr.retry_cnt, attr.dest_qpn),
        (QpState::Rts, PathMtu::Mtu1024, 3, b.qp.qpn())
    );
    b.carry_out(&SendWr::send(2, &[]));
    assert_eq!(a.done().wr_id, 1);
    let again = a.qp.connect(&b.qp.endpoint(0).unwrap(), &options);
    assert!(again.is_err());
}

#[test]
fn bad_options_are_named_and_nothing_is_half_done() {
    let network = MemoryNetwork::new(Faults::default());
    let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp));
    let usual = ConnectOptions::new(&a.context, 0);
    let remote = b.qp.endpoint(0).unwrap();
    let refused = |options: &ConnectOptions| a.qp.connect(&remote, options).unwrap_err();
    let mut options = usual;
    options.path.gid_index = 3;
    let error = refused(&options).to_string();
    assert_eq!(error, "grh.sgid_index is 0 to 0, got 3");
    let options = ConnectOptions {
        max_dest_rd_atomic: 17,
        ..usual
    };
    let error = refused(&options).to_string();
    assert_eq!(error, "max_dest_rd_atomic is 0 to 16, got 17");
    assert_eq!(a.qp.state(), QpState::Init);
    a.qp.connect(&remote, &usual).unwrap();
    let error = a.qp.endpoint(1).unwrap_err().to_string();
    assert_eq!(error, "there is no GID 1: the port has 1");
}

#[test]
fn draining_finishes_what_was_started() {
    let (a, b) = pair(QpType::Rc);
    let wr = SendWr::write(0, &[], b.mr.remote()).with_inline(b"before");
    a.carry_out(&wr);
    a.qp.drain().unwrap();
    let event = a.context.wait_async_event(PATIENCE).unwrap();
    assert_eq!(event, AsyncEvent::SqDrained(a.qp.qpn()));
    assert_eq!(a.qp.state(), QpState::Sqd);
    // Posted now, sent later.
    a.qp.post(&SendWr::write(1, &[], b.mr.remote()).with_inline(b"after!"))
        .unwrap();
    for _ in 0..100 {
        a.context.poll().unwrap();
        b.context.poll().unwrap();
    }
    assert_eq!(b.mr.to_vec(0, 6), b"before");
    a.qp.resume().unwrap();
    assert_eq!(a.done().wr_id, 1);
    assert_eq!(b.mr.to_vec(0, 6), b"after!");
}

#[test]
fn failing_flushes_in_order() {
    let (a, _b) = pair(QpType::Rc);
    for wr_id in 0..3 {
        a.qp.post_recv(100 + wr_id, &[]).unwrap();
    }
    a.qp.fail().unwrap();
    a.qp.post(&SendWr::send(1, &[])).unwrap();
    a.qp.post_recv(103, &[]).unwrap();
    let mut flushed: Vec<u64> = (0..5)
        .map(|_| {
            let wc = a.completion();
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            wc.wr_id
        })
        .collect();
    flushed.sort_unstable();
    assert_eq!(flushed, [1, 100, 101, 102, 103]);
    let error = a.completion_error(&SendWr::send(7, &[]));
    assert_eq!(error, "work request 7 ended with IBV_WC_WR_FLUSH_ERR");
}

impl Side {
    fn completion_error(&self, wr: &SendWr<'_>) -> String {
        self.qp.post(wr).unwrap();
        self.completion().ok().unwrap_err().to_string()
    }
}

#[test]
fn a_qp_that_failed_is_reset_and_connected_anew() {
    let (a, b) = pair(QpType::Rc);
    for round in 0..5 {
        let wr = SendWr::write(round, &[], b.mr.remote()).with_inline(b"x");
        a.carry_out(&wr);
        a.qp.fail().unwrap();
        for side in [&a, &b] {
            side.qp.reset().unwrap();
            assert_eq!(side.qp.state(), QpState::Reset);
        }
        connect(&a, &b);
    }
    a.carry_out(&SendWr::write(9, &[], b.mr.remote()).with_inline(b"y"));
    assert_eq!(b.mr.load_u8(0), b'y');
}

#[test]
fn a_datagram_qp_goes_on_after_a_send_that_failed() {
    let (a, b) = pair(QpType::Ud);
    let to = hirail::Destination::unicast(&b.qp.endpoint(0).unwrap(), crate::side::KEY);
    let foreign = b.mr.slice(..8);
    a.qp.post(&SendWr::send(1, &[foreign]).to(to)).unwrap();
    assert_eq!(a.completion().status, WcStatus::LocProtErr);
    assert_eq!(a.qp.state(), QpState::Sqe);
    a.qp.resume().unwrap();
    a.carry_out(&SendWr::send(2, &[a.mr.slice(..8)]).to(to));
}

#[test]
fn modify_takes_all_or_nothing() {
    let (a, _b) = pair(QpType::Rc);
    let before = a.qp.query().unwrap();
    let attr = QpAttr {
        qp_state: QpState::Rts,
        access: ALL,
        retry_cnt: 1,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS | AttrMask::RETRY_CNT;
    let error = a.qp.modify(&attr, mask).unwrap_err();
    assert!(error.to_string().contains("RETRY_CNT"), "{error}");
    assert_eq!(a.qp.query().unwrap(), before);
}
