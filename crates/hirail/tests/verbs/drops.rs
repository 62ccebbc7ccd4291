//! Handles go in any order; what depends on others keeps them.

use hirail::{ConnectOptions, Faults, MemoryNetwork, MwType, QpType, SendWr, WcStatus};

use crate::side::{ALL, PATIENCE, Side, address, connect, pair, pattern};

#[test]
fn a_qp_works_when_all_else_was_dropped() {
    let (a, b) = pair(QpType::Rc);
    let Side {
        context,
        pd,
        cq,
        qp,
        mr,
    } = a;
    drop(context);
    drop(pd);
    let second = cq.clone();
    drop(cq);
    let from = [mr.slice(..8)];
    let wr = SendWr::write(1, &from, b.mr.remote());
    qp.post(&wr).unwrap();
    second.wait_polling(PATIENCE).unwrap().ok().unwrap();
    drop(mr);
    qp.post(&wr).unwrap();
    let wc = second.wait_polling(PATIENCE).unwrap();
    assert_eq!(wc.status, WcStatus::LocProtErr);
    drop(qp);
    assert_eq!(second.poll_one().unwrap(), None);
}

/// Every order in which five handles can go, with traffic before.
#[test]
fn every_order() {
    let network = MemoryNetwork::new(Faults::default());
    let peer = Side::new(&network, 1, |qp| qp);
    let mut orders = vec![vec![]];
    for item in 0..5 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, item);
                    order
                })
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    let context = network.open(address(2)).unwrap();
    for order in orders {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16).unwrap();
        let srq = pd.create_srq(4, 1).unwrap();
        let mr = pd.register(64, ALL).unwrap();
        let window = pd.alloc_mw(MwType::Type1).unwrap();
        let qp = pd.qp(&cq, &cq).srq(&srq).build().unwrap();
        let options = ConnectOptions::new(&context, 0);
        qp.connect(&peer.qp.endpoint(0).unwrap(), &options).unwrap();
        peer.qp.connect(&qp.endpoint(0).unwrap(), &options).unwrap();
        qp.bind(1, &window, &mr, .., hirail::Access::REMOTE_WRITE)
            .unwrap();
        cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
        srq.post_recv(1, &[mr.slice(..)]).unwrap();
        peer.carry_out(&SendWr::send(1, &[]).with_inline(b"x"));
        let mut handles: Vec<Option<Box<dyn std::any::Any>>> = vec![
            Some(Box::new(pd)),
            Some(Box::new((cq, window))),
            Some(Box::new(srq)),
            Some(Box::new(mr)),
            Some(Box::new(qp)),
        ];
        for handle in order {
            handles[handle] = None;
        }
        peer.qp.reset().unwrap();
    }
    // Nothing was left behind: the device still has room for as much as at the start.
    assert_eq!(context.async_event().unwrap(), None);
}

#[test]
fn objects_that_go_make_room() {
    let network = MemoryNetwork::new(Faults::default());
    let context = network.open(address(1)).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(1).unwrap();
    let most = context.limits().max_qp;
    let make = || pd.qp(&cq, &cq).max_send_wr(1).max_recv_wr(1).build();
    let mut qps: Vec<_> = (0..most).map(|_| make().unwrap()).collect();
    let error = make().unwrap_err().to_string();
    assert_eq!(error, format!("the device holds {most} of QP and no more"));
    qps.pop();
    make().unwrap();
}

#[test]
fn what_the_application_saw_is_acknowledged_before_a_qp_goes() {
    // The receiver looks at the message and ends: the sender must hear that it arrived.
    let network = MemoryNetwork::new(Faults::default());
    let sender = Side::new(&network, 1, |qp| qp);
    let ends: [fn(Side); 3] = [
        drop,
        |side| side.qp.fail().unwrap(),
        |side| side.qp.reset().unwrap(),
    ];
    for round in 0..60 {
        let receiver = Side::new(&network, 2 + round, |qp| qp);
        connect(&sender, &receiver);
        let into = [receiver.mr.slice(..100)];
        receiver.qp.post_recv(1, &into).unwrap();
        sender.mr.write(0, &pattern(100));
        let from = [sender.mr.slice(..100)];
        sender.qp.post(&SendWr::send(1, &from)).unwrap();
        receiver.done();
        ends[usize::from(round) % 3](receiver);
        assert_eq!(sender.completion().status, WcStatus::Success);
        sender.qp.reset().unwrap();
    }
}

#[test]
fn a_device_goes_with_its_last_handle() {
    let network = MemoryNetwork::new(Faults::default());
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..20 {
        let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp));
        connect(&a, &b);
        a.carry_out(&SendWr::write(1, &[], b.mr.remote()).with_inline(b"x"));
    }
    // Other tests of this process start and end threads too: look for many, and wait for them.
    let start = std::time::Instant::now();
    while threads() > before + 30 {
        assert!(start.elapsed() < PATIENCE, "{} threads", threads());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
