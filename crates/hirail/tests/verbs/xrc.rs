//! XRC: one connection reaches every shared receive queue of a domain.

use hirail::{
    Cq, Error, Faults, MemoryNetwork, QpType, SendWr, Srq, SrqId, VerbError, WcOpcode, WcStatus,
    Xrcd,
};

use crate::side::{ALL, PATIENCE, Side, connect};

/// What one receiver has: a queue and where its completions go.
struct Receiver {
    cq: Cq,
    srq: Srq,
}

impl Receiver {
    fn new(side: &Side, xrcd: &Xrcd) -> Self {
        let cq = side.context.create_cq(16).unwrap();
        let srq = side.pd.create_xrc_srq(xrcd, &cq, 16, 2).unwrap();
        Self { cq, srq }
    }
}

/// An initiator, and a target with two receivers.
fn world() -> (Side, Side, Xrcd, [Receiver; 2]) {
    let network = MemoryNetwork::new(Faults::default());
    let initiator = Side::new(&network, 1, |qp| qp.qp_type(QpType::XrcSend));
    let context = network.open(crate::side::address(2)).unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(1).unwrap());
    let xrcd = context.alloc_xrcd().unwrap();
    let builder = pd.qp(&cq, &cq).qp_type(QpType::XrcRecv).xrcd(&xrcd);
    let target = Side {
        qp: builder.build().unwrap(),
        mr: pd.register(4096, ALL).unwrap(),
        context,
        pd,
        cq,
    };
    connect(&initiator, &target);
    let receivers = [(); 2].map(|()| Receiver::new(&target, &xrcd));
    (initiator, target, xrcd, receivers)
}

#[test]
fn the_sender_names_the_queue() {
    let (initiator, target, _xrcd, receivers) = world();
    for (number, receiver) in receivers.iter().enumerate() {
        let at = number * 64;
        let into = [target.mr.slice(at..at + 64)];
        receiver.srq.post_recv(number as u64, &into).unwrap();
    }
    for (number, receiver) in receivers.iter().enumerate().rev() {
        let message = [b'a' + number as u8; 5];
        let wr = SendWr::send(1, &[]).with_inline(&message);
        initiator.carry_out(&wr.with_imm([number as u8; 4]).to_srq(receiver.srq.id()));
        let wc = receiver.cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
        assert_eq!((wc.wr_id, wc.byte_len), (number as u64, 5));
        assert_eq!(wc.imm(), Some([number as u8; 4]));
        assert_eq!(target.mr.to_vec(number * 64, 5), message);
    }
    // One-sided operations need no queue.
    let word = target.mr.remote().offset(1024);
    initiator.carry_out(&SendWr::write(2, &[], word).with_inline(&7u64.to_ne_bytes()));
    let before = [initiator.mr.slice(0..8)];
    initiator.carry_out(&SendWr::fetch_add(3, &before, word, 1));
    assert_eq!((initiator.mr.load_u64(0), target.mr.load_u64(1024)), (7, 8));
    // A WRITE with immediate data takes a receive of the named queue.
    receivers[1].srq.post_recv(9, &[]).unwrap();
    let wr = SendWr::write(4, &[], word).with_inline(b"12345678");
    initiator.carry_out(&wr.with_imm(*b"done").to_srq(receivers[1].srq.id()));
    let wc = receivers[1].cq.wait_polling(PATIENCE).unwrap();
    assert_eq!(
        (wc.wr_id, wc.opcode, wc.imm()),
        (9, WcOpcode::RecvRdmaWithImm, Some(*b"done"))
    );
}

#[test]
fn a_queue_of_another_domain_is_out_of_reach() {
    let (initiator, target, _xrcd, _receivers) = world();
    let other = target.context.alloc_xrcd().unwrap();
    let stranger = Receiver::new(&target, &other);
    let into = [target.mr.slice(..64)];
    stranger.srq.post_recv(1, &into).unwrap();
    let wr = SendWr::send(1, &[]).with_inline(b"hello");
    initiator.qp.post(&wr.to_srq(stranger.srq.id())).unwrap();
    assert_ne!(initiator.completion().status, WcStatus::Success);
    assert_eq!(stranger.srq.queued().unwrap(), 1);
    assert_eq!(target.mr.to_vec(0, 5), [0; 5]);
}

#[test]
fn a_queue_that_does_not_exist_is_refused() {
    let (initiator, _target, _xrcd, _receivers) = world();
    let wr = SendWr::send(1, &[]).with_inline(b"hello");
    initiator.qp.post(&wr.to_srq(SrqId(0xff_ffff))).unwrap();
    assert_ne!(initiator.completion().status, WcStatus::Success);
}

#[test]
fn what_xrc_qps_do_not_have_is_refused() {
    let (initiator, target, ..) = world();
    for qp in [&initiator.qp, &target.qp] {
        assert!(qp.post_recv(1, &[]).is_err());
    }
    assert!(target.qp.post(&SendWr::send(1, &[])).is_err());
    let builder = target.pd.qp(&target.cq, &target.cq);
    assert!(matches!(
        builder.qp_type(QpType::XrcRecv).build().unwrap_err(),
        Error::Verb(VerbError::Missing { what: "xrcd" })
    ));
}
