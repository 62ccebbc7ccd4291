//! UD: messages to one and to many, and those that are not for us.

use hirail::{
    Counter, Destination, Faults, Gid, MemoryNetwork, Path, QKey, QpEndpoint, QpType, SendWr,
    WcStatus,
};

use crate::side::{KEY, PATIENCE, Side, pair};

/// Bytes in front of each message received.
const GRH: usize = 40;

/// The side with this number on a network with others.
fn member(network: &MemoryNetwork, number: u8) -> Side {
    let side = Side::new(network, number, |qp| qp.qp_type(QpType::Ud));
    side.qp.activate_datagram(KEY).unwrap();
    side
}

fn to(side: &Side) -> Destination {
    Destination::unicast(&side.qp.endpoint(0).unwrap(), KEY)
}

/// Waits until the device has counted so much.
fn wait_for(side: &Side, counter: Counter, value: u64) {
    let start = std::time::Instant::now();
    while side.context.counters().get(counter) < value {
        assert!(start.elapsed() < PATIENCE, "{}", counter.name());
        side.context.poll().unwrap();
    }
}

#[test]
fn a_message_says_where_it_came_from() {
    let (a, b) = pair(QpType::Ud);
    b.qp.post_recv(1, &[b.mr.slice(..GRH + 100)]).unwrap();
    let wr = SendWr::send(2, &[])
        .with_inline(b"hello")
        .with_imm(*b"imm!");
    a.carry_out(&wr.to(to(&b)));
    let wc = b.done();
    assert_eq!((wc.wr_id, wc.byte_len as usize, wc.grh), (1, GRH + 5, true));
    assert_eq!((wc.imm(), wc.src_qp), (Some(*b"imm!"), a.qp.qpn()));
    assert_eq!(b.mr.to_vec(GRH, 5), b"hello");
    // The sender's address is in what precedes the message, so it can be answered.
    let source: [u8; 4] = b.mr.to_vec(GRH - 8, 4).try_into().unwrap();
    assert_eq!(source, [192, 0, 2, 1]);
    let sender = QpEndpoint {
        gid: Gid::from_ip(std::net::IpAddr::from(source)),
        qpn: wc.src_qp,
        psn: hirail::Psn::new(0),
    };
    a.qp.post_recv(3, &[a.mr.slice(..GRH + 100)]).unwrap();
    let answer = SendWr::send(4, &[]).with_inline(b"back");
    b.carry_out(&answer.to(Destination::unicast(&sender, KEY)));
    a.done();
    assert_eq!(a.mr.to_vec(GRH, 4), b"back");
}

#[test]
fn the_path_of_a_message_is_its_own() {
    let (a, b) = pair(QpType::Ud);
    b.qp.post_recv(1, &[b.mr.slice(..GRH + 8)]).unwrap();
    let path = Path {
        traffic_class: 26 << 2,
        hop_limit: 7,
        ..Path::default()
    };
    let wr = SendWr::send(1, &[]).with_inline(b"x").to(to(&b)).via(path);
    a.carry_out(&wr);
    b.done();
    let header = b.mr.to_vec(20, 20);
    assert_eq!((header[1], header[8]), (26 << 2, 7));
    // There is no such source address: the send fails, and the QP stops sending until resumed.
    let path = Path {
        gid_index: 9,
        ..Path::default()
    };
    let refused = a.qp.post(&wr.via(path));
    if refused.is_ok() {
        assert_ne!(a.completion().status, WcStatus::Success);
        a.qp.resume().unwrap();
    }
    b.qp.post_recv(2, &[b.mr.slice(..GRH + 8)]).unwrap();
    a.carry_out(&SendWr::send(3, &[]).with_inline(b"y").to(to(&b)));
    assert_eq!(b.done().wr_id, 2);
}

#[test]
fn what_does_not_fit_is_refused_or_dropped() {
    let (a, b) = pair(QpType::Ud);
    let missing = a.qp.post(&SendWr::send(1, &[])).unwrap_err();
    assert_eq!(missing.to_string(), "address handle is missing");

    // Longer than a packet.
    let long = [a.mr.slice(..4097)];
    match a.qp.post(&SendWr::send(1, &long).to(to(&b))) {
        Err(error) => assert!(error.to_string().contains("4096"), "{error}"),
        Ok(()) => {
            assert_eq!(a.completion().status, WcStatus::LocLenErr);
            a.qp.resume().unwrap();
        }
    }

    // Nobody receives, then with another key, then into too little room.
    let wr = SendWr::send(1, &[]).with_inline(b"hello");
    a.carry_out(&wr.to(to(&b)));
    wait_for(&b, Counter::DropUdNoReceiveWqe, 1);
    b.qp.post_recv(1, &[b.mr.slice(..GRH + 4)]).unwrap();
    a.carry_out(&wr.to(Destination {
        qkey: QKey(0x777),
        ..to(&b)
    }));
    wait_for(&b, Counter::DropBadQkey, 1);
    a.carry_out(&wr.to(to(&b)));
    wait_for(&b, Counter::DropUdTooLong, 1);
    a.carry_out(&SendWr::send(1, &[]).with_inline(b"good").to(to(&b)));
    assert_eq!(b.done().byte_len as usize, GRH + 4);
}

#[test]
fn groups_reach_their_members_only() {
    let network = MemoryNetwork::new(Faults::default());
    let [sender, b, c] = [1, 2, 3].map(|number| member(&network, number));
    let group = Gid::from_ip("239.1.2.3".parse().unwrap());
    let wr = SendWr::send(1, &[]).to(Destination::multicast(group, KEY));
    for side in [&b, &c] {
        side.qp.attach_multicast(group).unwrap();
        for wr_id in 0..4 {
            side.qp
                .post_recv(wr_id, &[side.mr.slice(..GRH + 64)])
                .unwrap();
        }
    }
    sender.carry_out(&wr.with_inline(b"to all"));
    for side in [&b, &c] {
        assert_eq!(side.done().byte_len as usize, GRH + 6);
        assert_eq!(side.mr.to_vec(GRH, 6), b"to all");
    }

    c.qp.detach_multicast(group).unwrap();
    let again = c.qp.detach_multicast(group).unwrap_err();
    assert!(again.to_string().contains("is not attached"), "{again}");
    sender.carry_out(&wr.with_inline(b"to one"));
    b.done();
    // Sent after it, and the only one that comes.
    let private = SendWr::send(2, &[]).with_inline(b"private").to(to(&c));
    sender.carry_out(&private);
    assert_eq!(c.done().byte_len as usize, GRH + 7);

    let error = b.qp.attach_multicast(to(&c).gid).unwrap_err();
    assert!(error.to_string().contains("not a multicast GID"), "{error}");
    // A QP that goes takes its memberships along.
    let (context, counter) = (b.context.clone(), Counter::MulticastRcvPackets);
    let before = context.counters().get(counter);
    drop(b);
    c.qp.attach_multicast(group).unwrap();
    sender.carry_out(&wr.with_inline(b"to c"));
    c.done();
    assert_eq!(context.counters().get(counter), before);
}
