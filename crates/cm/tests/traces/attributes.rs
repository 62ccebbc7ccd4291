//! What is to be set on the queue pairs.

use hirail_cm::{Accept, CmError, Connect, State, Transport};
use hirail_rnic::mr::Access;
use hirail_rnic::qp::attr::AttrMask;
use hirail_vocab::QpState;
use hirail_wire::cm::Message;
use hirail_wire::mad::Mad;
use hirail_wire::{AckTimeout, PathMtu, Qpn};

use crate::pair::Pair;

#[test]
fn both_ends_fit() {
    let mut pair = Pair::listening();
    let request = Connect {
        responder_resources: 5,
        initiator_depth: 6,
        retry_count: 3,
        rnr_retry_count: 4,
        ..pair.request()
    };
    let a = pair.a.cm.connect(pair.now, &request).unwrap();
    let early = pair.a.cm.attributes(a, QpState::Rtr);
    assert!(
        matches!(
            early,
            Err(CmError::WrongState {
                state: State::ReqSent,
                ..
            })
        ),
        "{early:?}"
    );
    let (init, mask) = pair.a.cm.attributes(a, QpState::Init).unwrap();
    assert_eq!((init.port, init.pkey_index), (1, 0));
    let expected = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    assert_eq!(mask, expected);
    pair.exchange();
    let heard = pair.heard();
    let (rtr, rtr_mask) = pair.b.cm.attributes(heard.id, QpState::Rtr).unwrap();
    let (rts, rts_mask) = pair.b.cm.attributes(heard.id, QpState::Rts).unwrap();
    let accept = Accept {
        rnr_retry_count: 2,
        ..Accept::new(Qpn::new(0x22))
    };
    pair.b.cm.accept(pair.now, heard.id, &accept).unwrap();
    pair.exchange();
    let response = pair.responded();
    let (own_rtr, own_mask) = pair.a.cm.attributes(a, QpState::Rtr).unwrap();
    let (own_rts, _) = pair.a.cm.attributes(a, QpState::Rts).unwrap();

    assert_eq!(own_mask, rtr_mask);
    assert_eq!(
        (rtr.dest_qpn, own_rtr.dest_qpn),
        (Qpn::new(0x11), Qpn::new(0x22))
    );
    // Each starts where the other one expects it.
    assert_eq!(rtr.rq_psn, own_rts.sq_psn);
    assert_eq!(rts.sq_psn, own_rtr.rq_psn);
    assert_eq!((heard.psn, response.psn), (own_rtr.rq_psn, rtr.rq_psn));
    assert_ne!(heard.psn, response.psn);
    assert_eq!(
        (rtr.path_mtu, own_rtr.path_mtu),
        (PathMtu::Mtu1024, PathMtu::Mtu1024)
    );
    assert_eq!((rtr.av.dgid, own_rtr.av.dgid), (pair.a.gid, pair.b.gid));
    assert_eq!((rtr.av.sgid_index, own_rtr.av.sgid_index), (5, 3));
    assert_eq!((rtr.av.hop_limit, own_rtr.av.hop_limit), (64, 64));
    assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), (6, 5));
    assert_eq!((own_rtr.max_dest_rd_atomic, own_rts.max_rd_atomic), (5, 6));
    assert_eq!((rts.retry_cnt, own_rts.retry_cnt), (3, 3));
    // Each uses what the other one said.
    assert_eq!((rts.rnr_retry, own_rts.rnr_retry), (4, 2));
    assert_eq!(
        (rts.timeout, own_rts.timeout),
        (AckTimeout::new(17), AckTimeout::new(17))
    );
    assert_ne!(rtr.min_rnr_timer.code(), 0, "655 ms");
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    assert_eq!((rtr.access, own_rtr.access), (all, all));
    assert!(rts_mask.contains(AttrMask::TIMEOUT | AttrMask::SQ_PSN));
    let (err, mask) = pair.a.cm.attributes(a, QpState::Err).unwrap();
    assert_eq!((err.qp_state, mask), (QpState::Err, AttrMask::STATE));
}

/// UC has no acknowledgements, and who serves no READs allows none.
#[test]
fn less_is_set_where_there_is_less() {
    let mut pair = Pair::listening();
    let request = Connect {
        transport: Transport::Uc,
        initiator_depth: 0,
        ack_timeout: Some(AckTimeout::new(14)),
        ..pair.request()
    };
    pair.a.cm.connect(pair.now, &request).unwrap();
    pair.exchange();
    let heard = pair.heard();
    assert_eq!(
        (heard.transport, heard.ack_timeout),
        (Transport::Uc, AckTimeout::new(14))
    );
    let (rtr, mask) = pair.b.cm.attributes(heard.id, QpState::Rtr).unwrap();
    assert_eq!(rtr.access, Access::REMOTE_WRITE);
    assert!(!mask.intersects(AttrMask::MIN_RNR_TIMER | AttrMask::MAX_DEST_RD_ATOMIC));
    let (_, mask) = pair.b.cm.attributes(heard.id, QpState::Rts).unwrap();
    assert_eq!(mask, AttrMask::STATE | AttrMask::SQ_PSN);
}

/// Of XRC the active side has a requester and the passive one a responder, whose number is where that
/// of an EE context was: so does the kernel.
#[test]
fn each_side_of_xrc_has_its_half() {
    let mut pair = Pair::listening();
    let request = Connect {
        transport: Transport::Xrc,
        ..pair.request()
    };
    let a = pair.a.cm.connect(pair.now, &request).unwrap();
    pair.exchange();
    let heard = pair.heard();
    assert_eq!(heard.transport, Transport::Xrc);
    let responder = AttrMask::MIN_RNR_TIMER | AttrMask::MAX_DEST_RD_ATOMIC;
    let requester = AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    let mask = |node: &hirail_cm::Cm, id, state| node.attributes(id, state).unwrap().1;
    assert!(mask(&pair.b.cm, heard.id, QpState::Rtr).contains(responder));
    assert!(!mask(&pair.b.cm, heard.id, QpState::Rts).intersects(requester));
    let accept = Accept::new(Qpn::new(0x22));
    pair.b.cm.accept(pair.now, heard.id, &accept).unwrap();
    let sent = pair.b.sends();
    let [rep] = &sent[..] else { panic!("{sent:?}") };
    let mad = Mad::parse(&rep.mad).unwrap();
    let Some(Message::Rep(rep)) = mad.cm() else {
        panic!("{mad:?}")
    };
    assert_eq!((rep.qpn, rep.eecn), (Qpn::new(0), Qpn::new(0x22)));
    assert!(rep.srq);
    pair.give_a(&sent);
    assert_eq!(pair.responded().qpn, Qpn::new(0x22));
    assert!(!mask(&pair.a.cm, a, QpState::Rtr).intersects(responder));
    assert!(mask(&pair.a.cm, a, QpState::Rts).contains(requester));
    let (rtr, _) = pair.a.cm.attributes(a, QpState::Rtr).unwrap();
    assert_eq!(rtr.dest_qpn, Qpn::new(0x22));
}
