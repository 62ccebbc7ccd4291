//! Messages that come twice, and messages that nobody waits for.

use hirail_cm::{Event, RejReason, State};
use hirail_rnic::Span;
use hirail_wire::Qpn;
use hirail_wire::cm::{Ids, Message, Note};
use hirail_wire::mad::Mad;

use crate::pair::{Pair, deliver, names, read};

/// While the user thinks, a repeated REQ is answered by an MRA, and the active side waits as long as
/// that says.
#[test]
fn req_again_while_the_user_thinks() {
    let mut pair = Pair::listening();
    pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    let request = pair.heard();
    assert!(pair.b.sends().is_empty());
    assert!(pair.wait_for_timer());
    let again = pair.a.sends();
    assert_eq!(again, req, "the same bytes");
    pair.give_b(&again);
    assert!(pair.b.tells().is_empty(), "told once");
    let mra = pair.b.sends();
    assert_eq!(names(&mra), ["MRA"]);
    pair.give_a(&mra);
    // 68.7 s instead of 4.6 s.
    pair.wait(Span::from_ms(60_000));
    assert!(pair.a.sends().is_empty());
    pair.accept(request.id);
    assert_eq!(pair.exchange(), ["< REP"]);
    pair.responded();
}

#[test]
fn req_again_after_the_answer() {
    let mut pair = Pair::listening();
    let a = pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    let request = pair.heard();
    pair.accept(request.id);
    let rep = pair.b.sends();
    pair.give_b(&req);
    assert_eq!(pair.b.sends(), rep, "REP again");
    pair.give_a(&rep);
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    pair.exchange();
    pair.b.tells();
    pair.give_b(&req);
    assert!(pair.b.sends().is_empty(), "established");
    assert!(pair.b.tells().is_empty());
}

#[test]
fn req_again_after_a_refusal() {
    let mut pair = Pair::listening();
    pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    let request = pair.heard();
    let (now, cm) = (pair.now, &mut pair.b.cm);
    cm.reject(now, request.id, RejReason::CONSUMER, b"no")
        .unwrap();
    let rej = pair.b.sends();
    pair.give_b(&req);
    assert_eq!(pair.b.sends(), rej, "REJ again");
    assert!(pair.b.tells().is_empty(), "not told again");
    pair.give_a(&rej);
    pair.give_a(&rej);
    assert_eq!(pair.a.tells().len(), 1, "refused once");
    pair.is_forgotten();
}

#[test]
fn req_again_after_the_end() {
    let mut pair = Pair::listening();
    let a = pair.connect();
    let req = pair.a.sends();
    pair.give_b(&req);
    let request = pair.heard();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    pair.exchange();
    pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    pair.exchange();
    pair.b.tells();
    pair.give_b(&req);
    let rej = pair.b.sends();
    let Message::Rej(read) = read(&rej[0]) else {
        panic!("{:?}", names(&rej))
    };
    assert_eq!(read.reason, RejReason::STALE_CONNECTION);
    assert!(pair.b.tells().is_empty());
}

#[test]
fn rep_again() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    let rep = pair.b.sends();
    pair.give_a(&rep);
    pair.responded();
    pair.give_a(&rep);
    let mra = pair.a.sends();
    assert_eq!(names(&mra), ["MRA"], "the user is slow");
    assert!(pair.a.tells().is_empty());
    pair.give_b(&mra);
    pair.wait(Span::from_ms(60_000));
    assert!(pair.b.sends().is_empty(), "and is given time");
    pair.a.cm.confirm(a, &[]).unwrap();
    let rtu = pair.a.sends();
    pair.give_a(&rep);
    assert_eq!(pair.a.sends(), rtu, "RTU again");
    pair.give_b(&rtu);
    pair.give_b(&rtu);
    assert_eq!(pair.b.tells().len(), 1, "established once");
}

#[test]
fn dreq_and_drep_again() {
    let mut pair = Pair::listening();
    let (a, b) = pair.established();
    pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.a.sends();
    pair.give_b(&dreq);
    let drep = pair.b.sends();
    assert_eq!(names(&drep), ["DREP"]);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
    pair.give_b(&dreq);
    assert_eq!(names(&pair.b.sends()), ["DREP"], "again");
    assert!(pair.b.tells().is_empty());
    pair.give_a(&drep);
    pair.give_a(&drep);
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
    pair.a.cm.disconnect(pair.now, a, &[]).unwrap();
    assert!(
        pair.a.sends().is_empty(),
        "ending what has ended does nothing"
    );
    // And after everything is forgotten.
    pair.is_forgotten();
    pair.give_b(&dreq);
    assert_eq!(
        names(&pair.b.sends()),
        ["DREP"],
        "of a connection never known"
    );
    assert!(pair.b.tells().is_empty());
}

/// Lost messages come again by themselves, as often as agreed and after the agreed time.
#[test]
fn lost_messages_come_again() {
    let mut pair = Pair::listening();
    // 2 lifetimes of 2^16 and the response timeout of 2^20, in units of 4.096 µs.
    let patience = Span::from_ns(4096 * ((1 << 17) + (1 << 20)));
    let a = pair.connect();
    let req = pair.a.sends();
    let soon = Span::from_ps(patience.as_ps() - 1);
    pair.wait(soon);
    assert!(pair.a.sends().is_empty());
    pair.wait(Span::from_ps(1));
    assert_eq!(pair.a.sends(), req);
    pair.give_b(&req);
    let request = pair.heard();
    pair.accept(request.id);
    let rep = pair.b.sends();
    assert!(pair.wait_for_timer());
    assert_eq!(pair.b.sends(), rep);
    pair.a.sends();
    pair.give_a(&rep);
    pair.a.cm.confirm(a, &[]).unwrap();
    pair.exchange();
    pair.a.tells();
    pair.b.tells();
    pair.b.cm.disconnect(pair.now, request.id, &[]).unwrap();
    let dreq = pair.b.sends();
    assert!(pair.wait_for_timer());
    assert_eq!(pair.b.sends(), dreq);
    pair.give_a(&dreq);
    assert_eq!(pair.a.tells(), [Event::Disconnected { id: a }]);
}

/// The RTU is lost and the first data comes: the connection stands.
#[test]
fn data_is_an_rtu() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    pair.exchange();
    pair.responded();
    pair.a.cm.confirm(a, &[]).unwrap();
    let rtu = pair.a.sends();
    pair.b.cm.communication_established(Qpn::new(0x99));
    assert!(pair.b.tells().is_empty(), "of another queue pair");
    pair.b.cm.communication_established(Qpn::new(0x22));
    let told = pair.b.tells();
    assert!(matches!(told[..], [Event::Established { .. }]), "{told:?}");
    assert_eq!(pair.b.cm.poll_timer(), None);
    pair.give_b(&rtu);
    pair.b.cm.communication_established(Qpn::new(0x22));
    assert!(pair.b.tells().is_empty(), "told once");
}

/// An acceptance that nobody waits for is refused, so that its sender need not try for a minute.
#[test]
fn rep_for_nobody() {
    let mut pair = Pair::listening();
    let (a, request) = pair.requested();
    pair.accept(request.id);
    let rep = pair.b.sends();
    pair.a.cm.destroy(pair.now, a).unwrap();
    pair.a.sends();
    pair.give_a(&rep);
    let rej = pair.a.sends();
    let Message::Rej(refusal) = read(&rej[0]) else {
        panic!("{:?}", names(&rej))
    };
    assert_eq!(refusal.reason, RejReason::INVALID_COMM_ID);
    pair.give_b(&rej);
    let told = pair.b.tells();
    assert!(matches!(told[..], [Event::Rejected { .. }]), "{told:?}");
    pair.is_forgotten();
}

/// The network is not trusted: what names a connection but comes from elsewhere, or names another
/// queue pair, or another id, is not about it.
#[test]
fn messages_of_others() {
    let mut pair = Pair::listening();
    let (a, b) = pair.established();
    let ids = Ids {
        local: a.0,
        remote: b.0,
    };
    let dreq = |ids, qpn| {
        let dreq = Message::Dreq {
            ids,
            remote_qpn: Qpn::new(qpn),
            private_data: &[],
        };
        Mad::cm_bytes(&dreq, 1, 0)
    };
    let from = |pair: &Pair, source, mad| hirail_cm::Transmit {
        path: hirail_cm::Path::new(source, 0, pair.b.gid),
        mad,
    };
    let stranger = hirail_wire::Gid([9; 16]);
    let wrong = Ids {
        local: a.0 ^ 1,
        ..ids
    };
    let cases = [
        from(&pair, stranger, dreq(ids, 0x22)),
        from(&pair, pair.a.gid, dreq(ids, 0x23)),
        from(&pair, pair.a.gid, dreq(wrong, 0x22)),
    ];
    for case in cases {
        deliver(&mut pair.b.cm, pair.now, &[case]);
        assert_eq!(pair.b.cm.state(b), Some(State::Established));
    }
    let drep = Message::Drep(Note {
        ids,
        private_data: &[],
    });
    let drep = from(&pair, pair.a.gid, Mad::cm_bytes(&drep, 1, 0));
    deliver(&mut pair.b.cm, pair.now, &[drep]);
    assert_eq!(pair.b.cm.state(b), Some(State::Established), "nobody asked");
    assert!(pair.b.tells().is_empty());
    let right = from(&pair, pair.a.gid, dreq(ids, 0x22));
    deliver(&mut pair.b.cm, pair.now, &[right]);
    assert_eq!(pair.b.tells(), [Event::Disconnected { id: b }]);
}

/// RoCE has no alternate paths: requests for one are refused, and a REQ that names one is served
/// without.
#[test]
fn alternate_paths_are_refused() {
    let mut pair = Pair::listening();
    let (a, b) = pair.established();
    for (remote, expected) in [(b.0, 2), (b.0 ^ 1, 1)] {
        let lap = Message::Lap(Ids { local: a.0, remote });
        let lap = hirail_cm::Transmit {
            path: hirail_cm::Path::new(pair.a.gid, 0, pair.b.gid),
            mad: Mad::cm_bytes(&lap, 1, 0),
        };
        deliver(&mut pair.b.cm, pair.now, &[lap]);
        let sent = pair.b.sends();
        let Message::Apr(apr) = read(&sent[0]) else {
            panic!("{:?}", names(&sent))
        };
        assert_eq!(apr.status, expected);
        assert_eq!((apr.ids.local, apr.ids.remote), (remote, a.0));
        pair.give_a(&sent);
        assert!(pair.a.tells().is_empty());
    }
}

/// Bytes that are no message, and messages of another version, do nothing.
#[test]
fn nonsense_is_ignored() {
    let mut pair = Pair::listening();
    pair.connect();
    let req = pair.a.sends();
    let good = req[0].mad;
    // Base version, class, class version, method, attribute.
    for at in [0, 1, 2, 3, 16] {
        let mut bad = req[0].clone();
        bad.mad[at] ^= 0x40;
        pair.give_b(&[bad]);
        assert!(pair.b.tells().is_empty(), "{at}");
        assert!(pair.b.sends().is_empty(), "{at}");
    }
    let meta = hirail_cm::Meta {
        source: pair.a.gid,
        destination: pair.b.gid,
        sgid_index: 0,
        traffic_class: 0,
    };
    for cut in [0, 10, 24, 255] {
        pair.b.cm.handle_mad(pair.now, &meta, &good[..cut]);
        assert!(pair.b.tells().is_empty(), "{cut}");
    }
}
