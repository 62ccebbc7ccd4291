//! Datagram services.

use hirail_cm::{
    Answer, CmError, Ece, Event, IpHeader, Limits, Listen, Path, PortSpace, Query, Question,
    ServiceId, ServiceStatus,
};
use hirail_wire::{QKey, Qpn};

use crate::pair::{Pair, names};

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Udp, 7174);

fn pair() -> Pair {
    let mut pair = Pair::new();
    let listen = Listen {
        service: SERVICE,
        address: None,
        backlog: 1,
    };
    pair.b.cm.listen(listen).unwrap();
    pair
}

fn query(pair: &Pair) -> Query<'static> {
    Query {
        service: SERVICE,
        path: Path::new(pair.a.gid, 0, pair.b.gid),
        addresses: Some(IpHeader {
            source_port: 1,
            source: pair.a.gid.to_ip(),
            dest: pair.b.gid.to_ip(),
        }),
        private_data: b"who?",
    }
}

fn heard(pair: &mut Pair) -> Question {
    match &pair.b.tells()[..] {
        [Event::Question(question)] => (**question).clone(),
        other => panic!("{other:?}"),
    }
}

const ANSWER: Answer<'_> = Answer {
    status: ServiceStatus::OK,
    qpn: Qpn::new(0x55),
    qkey: QKey(0x0123_4567),
    ece: Some(Ece {
        vendor: 5,
        options: 6,
    }),
    private_data: b"me",
};

#[test]
fn a_service_answers() {
    let mut pair = pair();
    let query = query(&pair);
    let id = pair.a.cm.query(pair.now, &query).unwrap();
    assert_eq!(pair.exchange(), ["> SIDR_REQ"]);
    let question = heard(&mut pair);
    assert_eq!(&question.private_data[..5], b"who?\0");
    assert_eq!(question.private_data.len(), Limits::SIDR_REQ_IP);
    assert_eq!(question.addresses, query.addresses);
    pair.b.cm.answer(pair.now, question.id, &ANSWER).unwrap();
    assert_eq!(pair.exchange(), ["< SIDR_REP"]);
    let told = pair.a.tells();
    let [Event::Reply(reply)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((reply.id, reply.status), (id, ServiceStatus::OK));
    assert_eq!((reply.qpn, reply.qkey), (ANSWER.qpn, ANSWER.qkey));
    assert_eq!(reply.ece, ANSWER.ece);
    assert_eq!(&reply.private_data[..3], b"me\0");
    let again = pair.b.cm.answer(pair.now, question.id, &ANSWER);
    assert_eq!(again, Err(CmError::NoSuchId(question.id)));
    pair.is_forgotten();
}

/// The question comes again: told once, answered again.
#[test]
fn questions_come_again() {
    let mut pair = pair();
    let query = query(&pair);
    pair.a.cm.query(pair.now, &query).unwrap();
    let question = pair.a.sends();
    pair.give_b(&question);
    pair.give_b(&question);
    let told = heard(&mut pair);
    assert!(pair.b.sends().is_empty());
    pair.b.cm.answer(pair.now, told.id, &ANSWER).unwrap();
    let lost = pair.b.sends();
    assert!(pair.wait_for_timer());
    assert_eq!(pair.a.sends(), question);
    pair.give_b(&question);
    assert!(pair.b.tells().is_empty());
    let answer = pair.b.sends();
    assert_eq!(answer, lost);
    pair.give_a(&answer);
    pair.give_a(&answer);
    assert_eq!(pair.a.tells().len(), 1);
    pair.is_forgotten();
}

#[test]
fn nobody_serves() {
    let mut pair = Pair::new();
    let query = query(&pair);
    pair.a.cm.query(pair.now, &query).unwrap();
    assert_eq!(pair.exchange(), ["> SIDR_REQ", "< SIDR_REP"]);
    let told = pair.a.tells();
    assert!(
        matches!(&told[..], [Event::Reply(reply)] if reply.status == ServiceStatus::UNSUPPORTED),
        "{told:?}"
    );
    pair.is_forgotten();
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new();
    let query = query(&pair);
    let id = pair.a.cm.query(pair.now, &query).unwrap();
    let mut sent = 0;
    let mut told = Vec::new();
    while told.is_empty() {
        sent += pair.a.sends().len();
        assert!(pair.wait_for_timer());
        told = pair.a.tells();
    }
    assert_eq!((sent, told), (16, vec![Event::Unreachable { id }]));
    pair.is_forgotten();
}

/// As many questions wait as the backlog holds; giving one up refuses it.
#[test]
fn questions_wait_and_are_given_up() {
    let mut pair = pair();
    let query = query(&pair);
    pair.a.cm.query(pair.now, &query).unwrap();
    pair.exchange();
    let first = heard(&mut pair);
    pair.a.cm.query(pair.now, &query).unwrap();
    assert_eq!(pair.exchange(), ["> SIDR_REQ", "< SIDR_REP"]);
    pair.a.tells();
    pair.b.cm.seen(first.id).unwrap();
    let given_up = pair.a.cm.query(pair.now, &query).unwrap();
    assert_eq!(pair.exchange(), ["> SIDR_REQ"]);
    heard(&mut pair);
    pair.b.cm.destroy(pair.now, first.id).unwrap();
    assert_eq!(pair.exchange(), ["< SIDR_REP"]);
    let told = pair.a.tells();
    assert!(
        matches!(&told[..], [Event::Reply(reply)] if reply.status == ServiceStatus::REJECTED),
        "{told:?}"
    );
    pair.a.cm.destroy(pair.now, given_up).unwrap();
    assert!(names(&pair.a.sends()).is_empty());
    let long = Query {
        private_data: &[0; 181],
        ..query
    };
    let message = "SIDR_REQ";
    let (most, got) = (180, 181);
    let refused = CmError::PrivateDataTooLong { message, most, got };
    assert_eq!(pair.a.cm.query(pair.now, &long), Err(refused));
}
