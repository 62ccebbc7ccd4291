//! Peers that do not answer.

use hirail_cm::{Event, RejReason};
use hirail_wire::cm::Message;

use crate::pair::{Pair, names, read};

/// Sixteen tries, then the connection is given up and the peer is told, in case it hears.
#[test]
fn nobody_is_there() {
    let mut pair = Pair::new();
    let a = pair.connect();
    let mut sent = Vec::new();
    let mut told = Vec::new();
    while told.is_empty() {
        sent.extend(pair.a.sends());
        assert!(pair.wait_for_timer());
        told = pair.a.tells();
    }
    sent.extend(pair.a.sends());
    assert_eq!(told, [Event::Unreachable { id: a }]);
    let (last, tries) = sent.split_last().unwrap();
    assert_eq!(names(tries), ["REQ"; 16]);
    let Message::Rej(rej) = read(last) else {
        panic!("{:?}", names(&sent))
    };
    assert_eq!(rej.reason, RejReason::TIMEOUT);
    assert_eq!(rej.ari, 1u64.to_be_bytes(), "its GUID");
    pair.is_forgotten();
}

/// The passive side's REP is never answered.
#[test]
fn the_rtu_never_comes() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    let mut sent = pair.b.sends();
    // The active side has heard one, but nothing of it comes back.
    pair.give_a(&sent);
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        assert!(pair.wait_for_timer());
        pair.a.sends();
        sent.extend(pair.b.sends());
        told = pair.b.tells();
    }
    assert_eq!(told, [Event::Unreachable { id: request.id }]);
    let (last, tries) = sent.split_last().unwrap();
    assert_eq!(names(tries), ["REP"; 16]);
    assert_eq!(names(core::slice::from_ref(last)), ["REJ"]);
    // The active side learns that it believes in nothing.
    pair.give_a(core::slice::from_ref(last));
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
    pair.is_forgotten();
}

/// A request that is withdrawn before the user has answered.
#[test]
fn a_request_is_withdrawn() {
    let mut pair = Pair::listening();
    let (_, request) = pair.requested();
    let mut told = Vec::new();
    while told.is_empty() {
        assert!(pair.wait_for_timer());
        // Only the last word comes through.
        let sent = pair.a.sends();
        let last: Vec<_> = sent
            .into_iter()
            .filter(|it| matches!(read(it), Message::Rej(_)))
            .collect();
        pair.give_b(&last);
        told = pair.b.tells();
    }
    assert!(
        matches!(&told[..], [Event::Rejected { id, reason, .. }]
            if *id == request.id && *reason == RejReason::TIMEOUT),
        "{told:?}"
    );
    pair.a.tells();
    pair.is_forgotten();
}
