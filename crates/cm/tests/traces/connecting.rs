//! REQ, REP, RTU as they should be.

use hirail_cm::{
    Accept, CmError, Connect, Ece, Event, Listen, RejReason, ServiceId, State, Transport,
};
use hirail_wire::cm::Message;
use hirail_wire::{PathMtu, Qpn};

use crate::pair::{Node, Pair, SERVICE, anybody, names, read};

#[test]
fn three_messages_make_a_connection() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    assert_eq!(request.service, SERVICE);
    let addresses = request.addresses.expect("of a port");
    assert_eq!(addresses.source_port, 40000);
    assert_eq!(addresses.source, pair.a.gid.to_ip());
    assert_eq!(&request.private_data[..5], b"hello");
    assert_eq!(request.private_data.len(), 56);
    assert_eq!((request.qpn, request.ca_guid), (Qpn::new(0x11), 1));
    assert_eq!(request.path.remote, pair.a.gid);
    assert_eq!(request.path.sgid_index, 5, "as the packet came");
    assert_eq!(request.mtu, PathMtu::Mtu1024);
    assert_eq!((request.retry_count, request.rnr_retry_count), (7, 7));
    assert!(!request.srq && !request.flow_control && request.ece.is_none());

    pair.accept(request.id);
    assert_eq!(pair.exchange(), ["< REP"]);
    let response = pair.responded();
    assert_eq!((response.id, response.qpn), (a, Qpn::new(0x22)));
    assert_eq!(&response.private_data[..7], b"welcome");
    assert_eq!(response.private_data.len(), 196);
    assert!(pair.b.tells().is_empty(), "not before the RTU");

    pair.a.cm.confirm(a, b"go").unwrap();
    assert_eq!(pair.exchange(), ["> RTU"]);
    let told = pair.b.tells();
    let [Event::Established { id, private_data }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(*id, request.id);
    assert_eq!(&private_data[..3], b"go\0");
    assert_eq!(pair.a.cm.state(a), Some(State::Established));
    assert_eq!(pair.b.cm.state(*id), Some(State::Established));
    assert_eq!(pair.a.cm.poll_timer(), None, "nothing to wait for");
    assert_eq!(pair.b.cm.poll_timer(), None);
}

/// One transaction from REQ to RTU, another one for the end.
#[test]
fn answers_repeat_the_transaction() {
    let mut pair = Pair::listening();
    let transaction = |mad: &[u8]| mad[8..16].to_vec();
    let a = pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    let request = pair.heard();
    pair.accept(request.id);
    let rep = pair.b.sends();
    pair.give_a(&rep);
    pair.a.cm.confirm(a, &[]).unwrap();
    let rtu = pair.a.sends();
    pair.give_b(&rtu);
    pair.b.cm.disconnect(pair.now, request.id, &[]).unwrap();
    let dreq = pair.b.sends();
    pair.give_a(&dreq);
    let drep = pair.a.sends();
    let of = |sent: &[hirail_cm::Transmit]| transaction(&sent[0].mad);
    assert_eq!(of(&req), of(&rep));
    assert_eq!(of(&req), of(&rtu));
    assert_ne!(of(&req), of(&dreq));
    assert_eq!(of(&dreq), of(&drep));
}

#[test]
fn nobody_listens() {
    let mut pair = Pair::new();
    let a = pair.connect();
    assert_eq!(pair.exchange(), ["> REQ", "< REJ"]);
    let told = pair.a.tells();
    let [Event::Rejected { id, reason, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((*id, *reason), (a, RejReason::INVALID_SERVICE_ID));
    assert_eq!(pair.a.cm.state(a), None, "over");
    pair.is_forgotten();
}

#[test]
fn the_application_refuses() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    let (now, cm) = (pair.now, &mut pair.b.cm);
    cm.reject(now, request.id, RejReason::CONSUMER, b"busy")
        .unwrap();
    assert_eq!(pair.exchange(), ["< REJ"]);
    let told = pair.a.tells();
    let [
        Event::Rejected {
            id,
            reason,
            private_data,
            ..
        },
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*id, *reason), (a, RejReason::CONSUMER));
    assert_eq!(&private_data[..5], b"busy\0");
    assert_eq!(private_data.len(), 148);
    let accept = Accept::new(Qpn::new(1));
    let late = pair.b.cm.accept(pair.now, request.id, &accept);
    assert_eq!(late, Err(CmError::NoSuchId(request.id)));
    pair.is_forgotten();
}

/// The active side may refuse an acceptance too.
#[test]
fn an_acceptance_is_refused() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    let (now, cm) = (pair.now, &mut pair.a.cm);
    cm.reject(now, a, RejReason::CONSUMER, &[]).unwrap();
    assert_eq!(pair.exchange(), ["> REJ"]);
    let told = pair.b.tells();
    assert!(
        matches!(&told[..], [Event::Rejected { id, reason, .. }]
            if *id == request.id && *reason == RejReason::CONSUMER),
        "{told:?}"
    );
    pair.is_forgotten();
}

/// What cannot be served is refused with the reason, and a value that would do where there is one.
#[test]
fn requests_that_cannot_be() {
    type Change = fn(&mut Connect<'_>);
    let cases: [(Change, RejReason, &[u8]); 3] = [
        (
            |it| it.mtu = PathMtu::Mtu4096,
            RejReason::INVALID_MTU,
            &[PathMtu::Mtu2048.code()],
        ),
        (
            |it| it.transport = Transport::Other(2, 0),
            RejReason::INVALID_TRANSPORT_TYPE,
            &[],
        ),
        (
            // The private data of this port does not begin with addresses.
            |it| it.addresses = None,
            RejReason::UNSUPPORTED_REQUEST,
            &[],
        ),
    ];
    for (change, expected, value) in cases {
        let small = Node::with(2, |config| hirail_cm::Config {
            port_mtu: PathMtu::Mtu2048,
            ..config
        });
        let mut pair = Pair::of(Node::new(1), small);
        pair.b.cm.listen(anybody()).unwrap();
        let mut request = pair.request();
        change(&mut request);
        pair.a.cm.connect(pair.now, &request).unwrap();
        assert_eq!(pair.exchange(), ["> REQ", "< REJ"], "{expected}");
        let told = pair.a.tells();
        let [Event::Rejected { reason, ari, .. }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((*reason, &ari[..]), (expected, value));
        assert!(pair.b.tells().is_empty());
        pair.is_forgotten();
    }
}

/// 128 asked for, 64 possible: 64 it is, in both directions, and nobody times out.
#[test]
fn depths_are_negotiated() {
    let limits = |responder: u8, initiator: u8| {
        move |config| hirail_cm::Config {
            max_responder_resources: responder,
            max_initiator_depth: initiator,
            ..config
        }
    };
    let mut pair = Pair::of(
        Node::with(1, limits(128, 128)),
        Node::with(2, limits(64, 48)),
    );
    pair.b.cm.listen(anybody()).unwrap();
    let (a, request) = pair.requested();
    // As far as this side can.
    assert_eq!(request.responder_resources, 64);
    assert_eq!(request.initiator_depth, 48);
    let accept = Accept {
        responder_resources: 200,
        initiator_depth: 200,
        ..Accept::new(Qpn::new(0x22))
    };
    pair.b.cm.accept(pair.now, request.id, &accept).unwrap();
    pair.exchange();
    let response = pair.responded();
    assert_eq!(response.id, a);
    assert_eq!(response.responder_resources, 48, "what the peer can open");
    assert_eq!(response.initiator_depth, 64, "what the peer serves");
}

/// Who accepts may give less; who asked sees it. 0 works.
#[test]
fn who_accepts_may_give_less() {
    let mut pair = Pair::listening();
    let request = Connect {
        responder_resources: 7,
        initiator_depth: 9,
        ..pair.request()
    };
    pair.a.cm.connect(pair.now, &request).unwrap();
    pair.exchange();
    let heard = pair.heard();
    assert_eq!((heard.responder_resources, heard.initiator_depth), (9, 7));
    let accept = Accept {
        responder_resources: 3,
        initiator_depth: 0,
        ..Accept::new(Qpn::new(0x22))
    };
    pair.b.cm.accept(pair.now, heard.id, &accept).unwrap();
    pair.exchange();
    let response = pair.responded();
    assert_eq!(response.initiator_depth, 3);
    assert_eq!(response.responder_resources, 0);
}

#[test]
fn options_of_a_vendor_come_through() {
    let mut pair = Pair::listening();
    let ece = Ece {
        vendor: 0xa1_b2c3,
        options: 0x1000_0007,
    };
    let request = Connect {
        ece: Some(ece),
        ..pair.request()
    };
    pair.a.cm.connect(pair.now, &request).unwrap();
    pair.exchange();
    let heard = pair.heard();
    assert_eq!(heard.ece, Some(ece));
    let answer = Ece { options: 7, ..ece };
    let accept = Accept {
        ece: Some(answer),
        ..Accept::new(Qpn::new(0x22))
    };
    pair.b.cm.accept(pair.now, heard.id, &accept).unwrap();
    pair.exchange();
    assert_eq!(pair.responded().ece, Some(answer));
}

/// Who listens at one address hears before who listens at all of them.
#[test]
fn the_nearer_listener_hears() {
    let mut pair = Pair::new();
    let all = pair.b.cm.listen(anybody()).unwrap();
    let here = Listen {
        address: Some(pair.b.gid.to_ip()),
        ..anybody()
    };
    let near = pair.b.cm.listen(here).unwrap();
    assert_eq!(pair.b.cm.listen(here), Err(CmError::AddressInUse));
    let (_, request) = pair.requested();
    assert_eq!(request.listener, Some(near));
    pair.b.cm.unlisten(near).unwrap();
    let (_, request) = {
        let request = Connect {
            qpn: Qpn::new(0x12),
            ..pair.request()
        };
        let id = pair.a.cm.connect(pair.now, &request).unwrap();
        pair.exchange();
        (id, pair.heard())
    };
    assert_eq!(request.listener, Some(all));
}

/// As many requests wait as the backlog holds; those that the application has seen make room.
#[test]
fn the_backlog_is_a_limit() {
    let mut pair = Pair::new();
    let listen = Listen {
        backlog: 1,
        ..anybody()
    };
    pair.b.cm.listen(listen).unwrap();
    let connect = |pair: &mut Pair, qpn| {
        let request = Connect {
            qpn: Qpn::new(qpn),
            ..pair.request()
        };
        pair.a.cm.connect(pair.now, &request).unwrap();
        pair.exchange()
    };
    assert_eq!(connect(&mut pair, 0x11), ["> REQ"]);
    assert_eq!(connect(&mut pair, 0x12), ["> REQ", "< REJ"]);
    let told = pair.a.tells();
    assert!(
        matches!(&told[..], [Event::Rejected { reason, .. }]
            if *reason == RejReason::NO_RESOURCES),
        "{told:?}"
    );
    let first = pair.heard();
    pair.b.cm.seen(first.id).unwrap();
    assert_eq!(connect(&mut pair, 0x13), ["> REQ"]);
    let third = pair.heard();
    pair.accept(third.id);
    assert_eq!(connect(&mut pair, 0x14), ["> REQ", "< REP"]);
    pair.heard();
}

#[test]
fn too_much_private_data_is_refused_at_once() {
    let mut pair = Pair::listening();
    let long = [7; 225];
    let refused = |message, most, got| Err(CmError::PrivateDataTooLong { message, most, got });
    let (now, plain) = (pair.now, pair.request());
    let with = |length: usize| Connect {
        private_data: &long[..length],
        ..plain.clone()
    };
    let cm = &mut pair.a.cm;
    assert_eq!(cm.connect(now, &with(57)), refused("REQ", 56, 57));
    let other = Connect {
        service: ServiceId(99),
        addresses: None,
        ..with(93)
    };
    assert_eq!(cm.connect(now, &other), refused("REQ", 92, 93));
    assert!(cm.connect(now, &with(56)).is_ok());
    pair.exchange();
    let heard = pair.heard();
    assert_eq!(heard.private_data, [7; 56]);
    let cm = &mut pair.b.cm;
    let accept = Accept {
        private_data: &long[..197],
        ..Accept::new(Qpn::new(2))
    };
    let refused = |message, most, got| Err(CmError::PrivateDataTooLong { message, most, got });
    assert_eq!(cm.accept(now, heard.id, &accept), refused("REP", 196, 197));
    let reject = cm.reject(now, heard.id, RejReason::CONSUMER, &long[..149]);
    assert_eq!(reject, refused("REJ", 148, 149));
    assert_eq!(
        cm.disconnect(now, heard.id, &long[..221]),
        refused("DREQ", 220, 221)
    );
    assert_eq!(cm.confirm(heard.id, &long), refused("RTU", 224, 225));
    assert_eq!(
        cm.state(heard.id),
        Some(State::ReqReceived),
        "nothing has changed"
    );
}

/// The traffic class of the active side is that of all messages, without the network's bits.
#[test]
fn traffic_class_is_kept() {
    let mut pair = Pair::listening();
    let mut request = pair.request();
    request.path.traffic_class = 0x68;
    let a = pair.a.cm.connect(pair.now, &request).unwrap();
    let req = pair.a.sends();
    assert_eq!(req[0].path.traffic_class, 0x68);
    let Message::Req(read) = read(&req[0]) else {
        panic!()
    };
    assert_eq!(read.traffic_class, 0x68);
    pair.give_b(&req);
    let heard = pair.heard();
    assert_eq!(heard.path.traffic_class, 0x68);
    pair.accept(heard.id);
    let rep = pair.b.sends();
    assert_eq!(names(&rep), ["REP"]);
    assert_eq!(rep[0].path.traffic_class, 0x68);
    pair.give_a(&rep);
    pair.a.cm.confirm(a, &[]).unwrap();
}

/// A full table refuses on both sides.
#[test]
fn full_tables_refuse() {
    let one = |config| hirail_cm::Config {
        max_entries: 1,
        max_listeners: 1,
        ..config
    };
    let mut pair = Pair::of(Node::new(1), Node::with(2, one));
    pair.b.cm.listen(anybody()).unwrap();
    let other = Listen {
        service: ServiceId(4),
        ..anybody()
    };
    let full = |what| CmError::Full { what, limit: 1 };
    assert_eq!(pair.b.cm.listen(other), Err(full("listeners")));
    pair.requested();
    let request = Connect {
        qpn: Qpn::new(0x12),
        ..pair.request()
    };
    pair.a.cm.connect(pair.now, &request).unwrap();
    assert_eq!(pair.exchange(), ["> REQ", "< REJ"]);
    let own = pair.b.cm.connect(pair.now, &request);
    assert_eq!(own, Err(full("connections")));
}
