//! The kernel's own messages (`crates/wire/tests/data/captures`): understood, and ours have their
//! shape.

use std::path::Path as FilePath;

use hirail_cm::{Accept, Event, Listen, Meta, Transport};
use hirail_rnic::Instant;
use hirail_wire::cm::{Message, Req};
use hirail_wire::mad::Mad;
use hirail_wire::pcap::Reader;
use hirail_wire::{FrameView, Framing, Gid, Qpn};

use crate::pair::{Node, SERVICE, deliver, read};

/// The messages of a capture: source, destination, the datagram.
fn messages(name: &str) -> Vec<(Gid, Gid, [u8; Mad::LEN])> {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/captures");
    let file = std::fs::read(folder.join(name)).unwrap();
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut found = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let view = FrameView::parse(packet.data).unwrap();
        let roce = view.roce().expect("RoCE");
        let (headers, payload) = roce.headers().unwrap();
        if headers.bth().dest_qp == Qpn::GSI {
            let Framing::V2 { ip, .. } = roce.framing() else {
                panic!("RoCE v2")
            };
            let gids = (Gid::from_ip(ip.source()), Gid::from_ip(ip.dest()));
            found.push((gids.0, gids.1, payload.try_into().unwrap()));
        }
    }
    found
}

fn meta(source: Gid, destination: Gid) -> Meta {
    Meta {
        source,
        destination,
        sgid_index: 0,
        traffic_class: 0,
    }
}

/// hirail in the place of the passive side: it hears the kernel's REQ, RTU and DREQ.
#[test]
fn as_the_passive_side_of_a_capture() {
    let mut ends = 0;
    for name in [
        "cm-ucmatose.pcap",
        "cm-rping-ipv6.pcap",
        "k612-cm-rping.pcap",
    ] {
        let recorded = messages(name);
        let now = Instant::from_ns(1);
        let (source, destination, req) = recorded[0];
        let mut node = Node::with(2, |config| hirail_cm::Config {
            // The captured RTU and DREQ name the recorded id.
            ids: id_of(&recorded),
            ..config
        });
        let mad = Mad::parse(&req).unwrap();
        let Some(Message::Req(wire)) = mad.cm() else {
            panic!("{name}")
        };
        let listen = Listen {
            service: wire.service,
            address: Some(destination.to_ip()),
            backlog: 1,
        };
        node.cm.listen(listen).unwrap();
        node.cm.handle_mad(now, &meta(source, destination), &req);
        let told = node.tells();
        let [Event::Request(request)] = &told[..] else {
            panic!("{name}: {told:?}")
        };
        assert_eq!(request.transport, Transport::Rc);
        assert_eq!(request.addresses.unwrap().source, source.to_ip());
        assert_eq!(request.path.remote, source);
        let dreq =
            recorded
                .iter()
                .find_map(|(from, _, bytes)| match Mad::parse(bytes).unwrap().cm()? {
                    Message::Dreq { remote_qpn, .. } if *from == source => Some(remote_qpn),
                    _ => None,
                });
        let qpn = dreq.unwrap_or(Qpn::new(0x22));
        node.cm.accept(now, request.id, &Accept::new(qpn)).unwrap();
        let rep = node.sends();
        // Byte for byte the kernel's, but for what each chooses for itself.
        let kernels = recorded
            .iter()
            .find(|(_, _, bytes)| matches!(Mad::parse(bytes).unwrap().cm(), Some(Message::Rep(_))))
            .unwrap();
        let (Message::Rep(ours), Some(Message::Rep(theirs))) =
            (read(&rep[0]), Mad::parse(&kernels.2).unwrap().cm())
        else {
            panic!("{name}")
        };
        let alike = hirail_wire::cm::Rep {
            qpn: theirs.qpn,
            starting_psn: theirs.starting_psn,
            responder_resources: theirs.responder_resources,
            initiator_depth: theirs.initiator_depth,
            ca_guid: theirs.ca_guid,
            private_data: theirs.private_data,
            ..ours
        };
        assert_eq!(alike, theirs, "{name}");
        assert_eq!(rep[0].mad[..24], kernels.2[..24], "{name}: the header");
        for (from, to, bytes) in &recorded[1..] {
            if *from == source {
                node.cm.handle_mad(now, &meta(*from, *to), bytes);
            }
        }
        let told = node.tells();
        assert!(
            matches!(told[0], Event::Established { .. }),
            "{name}: {told:?}"
        );
        // Where the recorded passive side ended it, the active one never did.
        let ended = matches!(told[1..], [Event::Disconnected { .. }]);
        assert_eq!(ended, dreq.is_some(), "{name}: {told:?}");
        ends += u32::from(ended);
    }
    assert!(ends > 0, "in some capture the active side ends it");
}

/// The one id that the recorded passive side chose.
fn id_of(recorded: &[(Gid, Gid, [u8; Mad::LEN])]) -> hirail_cm::IdRange {
    let id = recorded
        .iter()
        .find_map(|(_, _, bytes)| match Mad::parse(bytes).unwrap().cm()? {
            Message::Rep(rep) => Some(rep.ids.local),
            _ => None,
        });
    let id = id.expect("a REP");
    hirail_cm::IdRange { first: id, bits: 0 }
}

/// Our REQ is the kernel's, but for what each chooses for itself.
#[test]
fn our_req_has_the_kernels_shape() {
    let recorded = messages("k612-cm-rping.pcap");
    let (source, destination, bytes) = recorded[0];
    let mad = Mad::parse(&bytes).unwrap();
    let Some(Message::Req(theirs)) = mad.cm() else {
        panic!()
    };
    let mut node = Node::new(1);
    let mut path = hirail_cm::Path::new(source, 0, destination);
    path.flow_label = theirs.flow_label;
    let addresses = hirail_cm::IpHeader::parse(theirs.private_data);
    let connect = hirail_cm::Connect {
        addresses,
        responder_resources: theirs.responder_resources,
        initiator_depth: theirs.initiator_depth,
        rnr_retry_count: theirs.rnr_retry_count,
        retry_count: theirs.retry_count,
        private_data: &theirs.private_data[hirail_cm::IpHeader::LEN..],
        ..hirail_cm::Connect::new(theirs.service, path, theirs.qpn, theirs.mtu.unwrap())
    };
    node.cm.connect(Instant::from_ns(1), &connect).unwrap();
    let sent = node.sends();
    let Message::Req(ours) = read(&sent[0]) else {
        panic!()
    };
    let alike = Req {
        local_id: theirs.local_id,
        ca_guid: theirs.ca_guid,
        starting_psn: theirs.starting_psn,
        // The kernel's device says more of its delay.
        ack_timeout: theirs.ack_timeout,
        ..ours
    };
    assert_eq!(alike, theirs);
    assert_eq!(sent[0].path.remote, destination);
}

/// The kernel's refusal is understood by who asked.
#[test]
fn as_the_active_side_of_a_refusal() {
    let recorded = messages("cm-reject.pcap");
    let rej = recorded
        .iter()
        .find_map(|(_, _, bytes)| match Mad::parse(bytes).unwrap().cm()? {
            Message::Rej(rej) => Some((rej, *bytes)),
            _ => None,
        });
    let (rej, bytes) = rej.expect("a REJ");
    let mut node = Node::with(1, |config| hirail_cm::Config {
        ids: hirail_cm::IdRange {
            first: rej.ids.remote,
            bits: 0,
        },
        ..config
    });
    let (source, destination, _) = recorded[0];
    let path = hirail_cm::Path::new(source, 0, destination);
    let connect =
        hirail_cm::Connect::new(SERVICE, path, Qpn::new(0x11), hirail_wire::PathMtu::Mtu1024);
    node.cm.connect(Instant::from_ns(1), &connect).unwrap();
    let recorded_rej = hirail_cm::Transmit {
        path: hirail_cm::Path::new(destination, 0, source),
        mad: bytes,
    };
    deliver(&mut node.cm, Instant::from_ns(2), &[recorded_rej]);
    let told = node.tells();
    let [Event::Rejected { id, reason, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(*reason, rej.reason);
    assert_eq!(id.0, rej.ids.remote);
}
