//! The end of connections.

use hirail_cm::{CmError, Connect, Event, RejReason, State};
use hirail_rnic::Span;
use hirail_wire::Qpn;
use hirail_wire::cm::Message;

use crate::pair::{Node, Pair, code, names, read};

#[test]
fn either_side_ends() {
    for active in [true, false] {
        let mut pair = Pair::listening();
        let (a, b) = pair.established();
        let now = pair.now;
        if active {
            pair.a.cm.disconnect(now, a, b"bye").unwrap();
            assert_eq!(pair.exchange(), ["> DREQ", "< DREP"]);
        } else {
            pair.b.cm.disconnect(now, b, b"bye").unwrap();
            assert_eq!(pair.exchange(), ["< DREQ", "> DREP"]);
        }
        assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
        assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
        assert_eq!(pair.a.cm.state(a), Some(State::TimeWait));
        // The local ACK timeout of both: lifetime 2^16 and an ACK delay of 2^15 give 2^17.
        pair.wait(Span::from_ps(code(17).as_ps() - 1));
        assert!(pair.a.tells().is_empty());
        pair.wait(Span::from_ps(1));
        assert_eq!(pair.a.tells(), [Event::TimewaitExit { id: a }]);
        assert_eq!(pair.b.tells(), [Event::TimewaitExit { id: b }]);
        assert_eq!(pair.a.cm.state(a), None);
        pair.is_forgotten();
    }
}

#[test]
fn both_end_at_once() {
    let mut pair = Pair::listening();
    let (a, b) = pair.established();
    let now = pair.now;
    pair.a.cm.disconnect(now, a, &[]).unwrap();
    pair.b.cm.disconnect(now, b, &[]).unwrap();
    assert_eq!(pair.exchange(), ["> DREQ", "< DREQ", "> DREP", "< DREP"]);
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
    pair.is_forgotten();
}

/// A peer that has vanished does not hold the id for ever.
#[test]
fn nobody_answers_the_end() {
    let mut pair = Pair::listening();
    let (a, _) = pair.established();
    pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    let mut sent = 0;
    while pair.a.tells().is_empty() {
        sent += pair.a.sends().len();
        assert!(pair.wait_for_timer());
    }
    assert_eq!(sent, 1 + 15);
    assert_eq!(pair.a.cm.state(a), Some(State::TimeWait));
}

/// What the passive side ends before the RTU has come.
#[test]
fn the_end_before_the_rtu() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    let rtu = pair.a.sends();
    let now = pair.now;
    pair.b.cm.disconnect(now, request.id, &[]).unwrap();
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: request.id }]);
    pair.give_b(&rtu);
    assert!(pair.b.tells().is_empty());
    assert_eq!(pair.exchange(), ["< REJ"]);
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
    pair.is_forgotten();
}

/// A DREQ that overtakes the RTU.
#[test]
fn dreq_overtakes_rtu() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    let rtu = pair.a.sends();
    pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    assert_eq!(pair.exchange(), ["> DREQ", "< DREP"]);
    pair.give_b(&rtu);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: request.id }]);
    pair.is_forgotten();
}

/// Giving an id up does what its state calls for, and nothing is told any more.
#[test]
fn ids_are_given_up_in_every_state() {
    // Active, REQ sent: withdrawn, and the passive side hears of it.
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.a.cm.destroy(pair.now, a).unwrap();
    assert_eq!(pair.exchange(), ["> REJ"]);
    let told = pair.b.tells();
    assert!(
        matches!(&told[..], [Event::Rejected { id, reason, .. }]
            if *id == request.id && *reason == RejReason::TIMEOUT),
        "{told:?}"
    );
    assert!(pair.a.tells().is_empty());
    assert_eq!(
        pair.a.cm.destroy(pair.now, a),
        Err(CmError::NoSuchId(a)),
        "once"
    );
    pair.is_forgotten();

    // Passive, REQ received: refused.
    let mut pair = Pair::listening();
    let (_, request) = pair.requested();
    pair.b.cm.destroy(pair.now, request.id).unwrap();
    assert_eq!(pair.exchange(), ["< REJ"]);
    assert!(matches!(pair.a.tells()[..], [Event::Rejected { .. }]));
    pair.is_forgotten();

    // Active, REP received: refused.
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.a.cm.destroy(pair.now, a).unwrap();
    assert!(pair.a.tells().is_empty(), "not even what was not fetched");
    assert_eq!(pair.exchange(), ["> REJ"]);
    assert!(matches!(pair.b.tells()[..], [Event::Rejected { .. }]));
    pair.is_forgotten();

    // Passive, REP sent: broken off.
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    pair.a.sends();
    pair.b.cm.destroy(pair.now, request.id).unwrap();
    assert_eq!(pair.exchange(), ["< REJ"]);
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
    pair.is_forgotten();

    // Established: disconnected.
    let mut pair = Pair::listening();
    let (a, b) = pair.established();
    pair.a.cm.destroy(pair.now, a).unwrap();
    assert_eq!(pair.exchange(), ["> DREQ", "< DREP"]);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
    pair.b.cm.destroy(pair.now, b).unwrap();
    assert_eq!(pair.b.cm.state(b), None);
    assert_eq!(pair.b.cm.sizes().entries, 1, "remembered all the same");
    while pair.wait_for_timer() {}
    assert!(pair.a.tells().is_empty() && pair.b.tells().is_empty());
    pair.is_forgotten();
}

/// A peer that uses the queue pair of a connection for another one has lost this one: it is told to
/// try again, and the old connection ends.
#[test]
fn a_queue_pair_is_in_one_connection() {
    let mut pair = Pair::listening();
    let (_, b) = pair.established();
    // The peer starts anew and knows nothing.
    let old = core::mem::replace(
        &mut pair.a,
        Node::with(1, |config| hirail_cm::Config { seed: 99, ..config }),
    );
    let a = pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
    let sent = pair.b.sends();
    assert_eq!(names(&sent), ["REJ", "DREQ"]);
    let Message::Rej(rej) = read(&sent[0]) else {
        panic!()
    };
    assert_eq!(rej.reason, RejReason::STALE_CONNECTION);
    pair.give_a(&sent);
    assert!(matches!(pair.a.tells()[..], [Event::Rejected { id, .. }] if id == a));
    drop(old);
    // Also while it is remembered; not any more afterwards.
    let again = |pair: &mut Pair| {
        pair.connect();
        pair.exchange()
    };
    assert_eq!(
        names(&pair.a.sends()),
        ["DREP"],
        "of a connection that it never knew"
    );
    assert_eq!(again(&mut pair), ["> REQ", "< REJ"]);
    pair.wait(code(17));
    pair.b.tells();
    assert_eq!(again(&mut pair), ["> REQ"]);
    pair.heard();
}

#[test]
fn calls_that_do_not_fit() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    let now = pair.now;
    let wrong = |id, state, call| Err(CmError::WrongState { id, state, call });
    assert_eq!(
        pair.a.cm.confirm(a, &[]),
        wrong(a, State::ReqSent, "confirm")
    );
    assert_eq!(
        pair.a.cm.disconnect(now, a, &[]),
        wrong(a, State::ReqSent, "disconnect")
    );
    let accept = hirail_cm::Accept::new(Qpn::new(1));
    assert_eq!(
        pair.a.cm.accept(now, a, &accept),
        wrong(a, State::ReqSent, "accept")
    );
    assert_eq!(
        pair.a.cm.reject(now, a, RejReason::CONSUMER, &[]),
        wrong(a, State::ReqSent, "reject")
    );
    let b = request.id;
    assert_eq!(
        pair.b.cm.confirm(b, &[]),
        wrong(b, State::ReqReceived, "confirm")
    );
    let nobody = hirail_cm::CommId(0xffff_ffff);
    assert_eq!(
        pair.b.cm.disconnect(now, nobody, &[]),
        Err(CmError::NoSuchId(nobody))
    );
    assert_eq!(pair.b.cm.seen(nobody), Err(CmError::NoSuchId(nobody)));
}

/// Two connects that cross, each to the other's listener, are two connections.
#[test]
fn connects_cross() {
    let mut pair = Pair::listening();
    pair.a.cm.listen(crate::pair::anybody()).unwrap();
    let there = pair.connect();
    let back = Connect {
        path: hirail_cm::Path::new(pair.b.gid, 0, pair.a.gid),
        qpn: Qpn::new(0x33),
        ..pair.request()
    };
    let back = pair.b.cm.connect(pair.now, &back).unwrap();
    assert_eq!(pair.exchange(), ["> REQ", "< REQ"]);
    let heard = |told: Vec<Event>| match &told[..] {
        [Event::Request(request)] => request.id,
        other => panic!("{other:?}"),
    };
    let (at_a, at_b) = (heard(pair.a.tells()), heard(pair.b.tells()));
    let accept = |qpn| hirail_cm::Accept::new(Qpn::new(qpn));
    pair.a.cm.accept(pair.now, at_a, &accept(0x44)).unwrap();
    pair.b.cm.accept(pair.now, at_b, &accept(0x55)).unwrap();
    assert_eq!(pair.exchange(), ["> REP", "< REP"]);
    pair.a.cm.confirm(there, &[]).unwrap();
    pair.b.cm.confirm(back, &[]).unwrap();
    assert_eq!(pair.exchange(), ["> RTU", "< RTU"]);
    for (node, ids) in [(&pair.a, [there, at_a]), (&pair.b, [back, at_b])] {
        for id in ids {
            assert_eq!(node.cm.state(id), Some(State::Established));
        }
    }
}
