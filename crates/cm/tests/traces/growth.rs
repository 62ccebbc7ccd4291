//! Nothing grows, however often one connects.

use hirail_cm::{Event, Sizes};
use hirail_rnic::Span;

use crate::pair::{Pair, code};

/// One connection from beginning to end.
fn cycle(pair: &mut Pair, count: u32) {
    let (a, b) = pair.established();
    if count.is_multiple_of(2) {
        pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    } else {
        pair.b.cm.disconnect(pair.now, b, &[]).unwrap();
    }
    pair.exchange();
    pair.wait(code(17));
    let left = [Event::Disconnected { id: a }, Event::TimewaitExit { id: a }];
    assert_eq!(pair.a.tells(), left);
    pair.b.tells();
}

#[test]
fn a_hundred_thousand_connections_leave_nothing() {
    let mut pair = Pair::listening();
    for count in 0..100 {
        cycle(&mut pair, count);
    }
    let memory = allocation_counter::measure(|| {
        for count in 0..100_000 {
            cycle(&mut pair, count);
        }
    });
    assert_eq!(memory.bytes_current, 0, "{memory:?}");
    assert!(memory.bytes_max < 64 << 10, "{memory:?}");
    let listener = Sizes {
        listeners: 1,
        ..Sizes::default()
    };
    assert_eq!(pair.a.cm.sizes(), Sizes::default());
    assert_eq!(pair.b.cm.sizes(), listener);
}

/// Connections that are remembered are as many as fit into the time of remembering.
#[test]
fn remembered_connections_are_forgotten_in_time() {
    let mut pair = Pair::listening();
    let mut most = 0;
    for count in 0..5000 {
        let qpn = hirail_wire::Qpn::new(0x100 + count);
        let request = hirail_cm::Connect {
            qpn,
            ..pair.request()
        };
        let a = pair.a.cm.connect(pair.now, &request).unwrap();
        pair.exchange();
        let heard = pair.heard();
        let accept = hirail_cm::Accept::new(qpn);
        pair.b.cm.accept(pair.now, heard.id, &accept).unwrap();
        pair.exchange();
        pair.responded();
        pair.a.cm.confirm(a, &[]).unwrap();
        pair.exchange();
        pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
        pair.exchange();
        pair.a.tells();
        pair.b.tells();
        pair.wait(Span::from_ms(1));
        pair.a.tells();
        pair.b.tells();
        most = most.max(pair.a.cm.sizes().entries);
    }
    // 2^17 · 4.096 µs.
    assert!((500..=540).contains(&most), "{most}");
    pair.is_forgotten();
}

/// Seven passers-by with requests that nobody answers cannot fill more than the backlog.
#[test]
fn a_flood_of_requests_fills_the_backlog_only() {
    let mut pair = Pair::listening();
    for count in 0..1000 {
        let request = hirail_cm::Connect {
            qpn: hirail_wire::Qpn::new(0x100 + count),
            ..pair.request()
        };
        pair.a.cm.connect(pair.now, &request).unwrap();
        pair.exchange();
        pair.a.tells();
    }
    let sizes = pair.b.cm.sizes();
    assert_eq!((sizes.entries, sizes.events), (16, 16));
}

/// A host that fetches nothing does not make the queue of messages grow without end.
#[test]
fn messages_that_nobody_fetches_are_dropped() {
    let mut pair = Pair::new();
    pair.connect();
    let req = pair.a.sends();
    for _ in 0..5000 {
        pair.give_b(&req);
    }
    assert_eq!(pair.b.cm.sizes().outgoing, 1024);
}
