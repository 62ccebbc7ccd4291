//! Both sides connect to each other with the same service: one connection comes of it.

use hirail_cm::{Accept, Connect, Event, IpHeader, Path, RejReason, State};
use hirail_wire::Qpn;

use crate::pair::{Node, Pair};

fn requests(pair: &Pair) -> [Connect<'static>; 2] {
    let there = Connect {
        peer_to_peer: true,
        ..pair.request()
    };
    let back = Connect {
        path: Path::new(pair.b.gid, 0, pair.a.gid),
        addresses: Some(IpHeader {
            source_port: 40001,
            source: pair.b.gid.to_ip(),
            dest: pair.a.gid.to_ip(),
        }),
        qpn: Qpn::new(0x22),
        private_data: b"me too",
        ..there.clone()
    };
    [there, back]
}

/// The larger GUID stays the active side.
#[test]
fn one_of_two_becomes_passive() {
    let mut pair = Pair::new();
    let [there, back] = requests(&pair);
    let a = pair.a.cm.connect(pair.now, &there).unwrap();
    let b = pair.b.cm.connect(pair.now, &back).unwrap();
    assert_eq!(pair.exchange(), ["> REQ", "< REQ"]);
    assert!(pair.b.tells().is_empty());
    let told = pair.a.tells();
    let [Event::Request(request)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((request.id, request.listener), (a, None));
    assert_eq!(&request.private_data[..6], b"me too");
    let accept = Accept::new(Qpn::new(0x11));
    pair.a.cm.accept(pair.now, a, &accept).unwrap();
    assert_eq!(pair.exchange(), ["> REP"]);
    let told = pair.b.tells();
    assert!(matches!(told[..], [Event::Response(_)]), "{told:?}");
    pair.b.cm.confirm(b, &[]).unwrap();
    assert_eq!(pair.exchange(), ["< RTU"]);
    assert!(matches!(pair.a.tells()[..], [Event::Established { id, .. }] if id == a));
    assert_eq!(pair.a.cm.state(a), Some(State::Established));
    assert_eq!(pair.b.cm.state(b), Some(State::Established));
    pair.b.cm.disconnect(pair.now, b, &[]).unwrap();
    pair.exchange();
    pair.is_forgotten();
}

/// A REQ that comes after the answer to the other one is no new request.
#[test]
fn the_answer_overtakes_the_other_request() {
    let mut pair = Pair::new();
    let [there, back] = requests(&pair);
    let a = pair.a.cm.connect(pair.now, &there).unwrap();
    let b = pair.b.cm.connect(pair.now, &back).unwrap();
    let late = pair.a.sends();
    let req = pair.b.sends();
    pair.give_a(&req);
    pair.a.tells();
    let accept = Accept::new(Qpn::new(0x11));
    pair.a.cm.accept(pair.now, a, &accept).unwrap();
    assert_eq!(pair.exchange(), ["> REP"]);
    pair.give_b(&late);
    pair.b.cm.confirm(b, &[]).unwrap();
    pair.give_b(&late);
    assert_eq!(pair.exchange(), ["< RTU"]);
    assert!(matches!(pair.b.tells()[..], [Event::Response(_)]));
    assert_eq!(pair.b.cm.state(b), Some(State::Established));
}

/// With equal GUIDs the larger queue pair number decides.
#[test]
fn queue_pair_numbers_decide() {
    let twin = Node::with(2, |config| hirail_cm::Config {
        ca_guid: 1,
        ..config
    });
    let mut pair = Pair::of(Node::new(1), twin);
    let [there, back] = requests(&pair);
    pair.a.cm.connect(pair.now, &there).unwrap();
    pair.b.cm.connect(pair.now, &back).unwrap();
    pair.exchange();
    assert!(matches!(pair.a.tells()[..], [Event::Request(_)]));
    assert!(pair.b.tells().is_empty());
}

/// Whoever comes first is told that nobody listens, and waits for the other one.
#[test]
fn one_comes_late() {
    let mut pair = Pair::new();
    let [there, back] = requests(&pair);
    let a = pair.a.cm.connect(pair.now, &there).unwrap();
    assert_eq!(pair.exchange(), ["> REQ", "< REJ"]);
    assert!(pair.a.tells().is_empty());
    pair.b.cm.connect(pair.now, &back).unwrap();
    assert_eq!(pair.exchange(), ["< REQ"]);
    assert!(matches!(&pair.a.tells()[..], [Event::Request(request)] if request.id == a));
}

/// And if nobody ever comes, that is what it is told.
#[test]
fn the_other_one_never_comes() {
    let mut pair = Pair::new();
    let [there, _] = requests(&pair);
    let a = pair.a.cm.connect(pair.now, &there).unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        pair.exchange();
        assert!(pair.wait_for_timer());
        told = pair.a.tells();
    }
    assert!(
        matches!(&told[..], [Event::Rejected { id, reason, .. }]
            if *id == a && *reason == RejReason::INVALID_SERVICE_ID),
        "{told:?}"
    );
    pair.is_forgotten();
}
