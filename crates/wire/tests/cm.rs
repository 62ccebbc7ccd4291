//! CM messages against `data/vectors/cm.json`.

use hirail_wire::cm::{
    Apr, Ids, IpHeader, Message, Mra, Note, PortSpace, Rej, RejReason, Rep, Req, ServiceId,
    SidrRep, SidrReq, Transport,
};
use hirail_wire::mad::{Mad, MadHeader};
use hirail_wire::{AckTimeout, Gid, PKey, PathMtu, Psn, QKey, Qpn};
use serde_json::Value;

/// The MAD with this name, and the fields that it must have.
fn vector(name: &str) -> (Vec<u8>, Value) {
    let file: Value = serde_json::from_str(include_str!("data/vectors/cm.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let vector = vectors
        .iter()
        .find(|vector| vector["name"] == name)
        .expect(name);
    let hex = vector["mad"].as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (
        (0..hex.len()).step_by(2).map(byte).collect(),
        vector["fields"].clone(),
    )
}

fn with<T>(name: &str, check: impl FnOnce(Message<'_>, &Value) -> T) -> T {
    let (mad, fields) = vector(name);
    let attribute = u16::from_be_bytes([mad[16], mad[17]]);
    check(
        Message::parse(attribute, &mad[24..]).unwrap().expect(name),
        &fields,
    )
}

/// A field that is a number or a hexadecimal string.
fn number(field: &Value) -> u64 {
    match field.as_str() {
        Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
        None => field.as_u64().unwrap(),
    }
}

#[test]
fn req() {
    with("req", |message, fields| {
        let Message::Req(req) = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(req.local_id), number(&fields["local_comm_id"]));
        assert_eq!(u64::from(req.qpn.value()), number(&fields["qpn"]));
        assert_eq!(
            u64::from(req.starting_psn.value()),
            number(&fields["start_psn"])
        );
        assert_eq!(req.service.port(), Some((PortSpace::Tcp, 18515)));
        assert_eq!(req.service.to_string(), "tcp/18515");
        assert_eq!(req.transport, Transport::Rc);
        assert_eq!((req.responder_resources, req.initiator_depth), (16, 16));
        assert_eq!(
            (req.remote_response_timeout, req.local_response_timeout),
            (20, 20)
        );
        assert_eq!(
            (req.retry_count, req.rnr_retry_count, req.max_cm_retries),
            (7, 7, 15)
        );
        assert_eq!(req.pkey, PKey::DEFAULT);
        assert_eq!(req.mtu, Some(PathMtu::Mtu1024));
        assert!(!req.srq && !req.flow_control);
        assert_eq!(req.local_gid.to_string(), "::ffff:192.0.2.1");
        assert_eq!(req.remote_gid.to_string(), "::ffff:192.0.2.2");
        assert_eq!((req.flow_label, req.packet_rate), (0x12345, 16));
        assert_eq!((req.traffic_class, req.hop_limit, req.sl), (0x68, 64, 3));
        assert_eq!(req.ack_timeout, AckTimeout::new(18));
        let header = IpHeader::parse(req.private_data).unwrap();
        assert_eq!(header.source.to_string(), "192.0.2.1");
        assert_eq!(header.dest.to_string(), "192.0.2.2");
        assert_eq!(header.source_port, 0x9c40);
        assert!(req.private_data[IpHeader::LEN..].starts_with(b"user"));
    });
}

#[test]
fn the_answers() {
    with("rep", |message, fields| {
        let Message::Rep(rep) = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(rep.ids.local), number(&fields["local_comm_id"]));
        assert_eq!(u64::from(rep.ids.remote), number(&fields["remote_comm_id"]));
        assert_eq!(u64::from(rep.qpn.value()), number(&fields["qpn"]));
        assert_eq!(
            u64::from(rep.starting_psn.value()),
            number(&fields["start_psn"])
        );
        assert_eq!((rep.responder_resources, rep.initiator_depth), (16, 16));
        assert_eq!(
            (rep.target_ack_delay, rep.rnr_retry_count, rep.srq),
            (15, 7, false)
        );
    });
    for name in ["rej_consumer", "rej_invalid_service"] {
        with(name, |message, fields| {
            let Message::Rej(rej) = message else {
                panic!("{message:?}")
            };
            assert_eq!(u64::from(rej.ids.local), number(&fields["local_comm_id"]));
            assert_eq!(u64::from(rej.ids.remote), number(&fields["remote_comm_id"]));
            assert_eq!(u64::from(rej.rejected), number(&fields["message_rejected"]));
            assert_eq!(u64::from(rej.reason.0), number(&fields["reason"]));
            let meaning = if name == "rej_consumer" {
                "consumer reject"
            } else {
                "invalid service id"
            };
            assert_eq!(rej.reason.to_string(), meaning);
        });
    }
    with("mra", |message, fields| {
        let Message::Mra(mra) = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(mra.received), number(&fields["message_mraed"]));
        assert_eq!(
            u64::from(mra.service_timeout),
            number(&fields["service_timeout"])
        );
    });
    with("dreq", |message, fields| {
        let Message::Dreq {
            ids, remote_qpn, ..
        } = message
        else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(ids.local), number(&fields["local_comm_id"]));
        assert_eq!(u64::from(remote_qpn.value()), number(&fields["remote_qpn"]));
    });
    for name in ["rtu", "drep"] {
        with(name, |message, fields| {
            let (Message::Rtu(note) | Message::Drep(note)) = message else {
                panic!("{message:?}")
            };
            let ids = note.ids;
            assert_eq!(u64::from(ids.local), number(&fields["local_comm_id"]));
            assert_eq!(u64::from(ids.remote), number(&fields["remote_comm_id"]));
            assert_eq!(message.name().to_lowercase(), name);
        });
    }
}

#[test]
fn datagram_services() {
    with("sidr_req", |message, fields| {
        let Message::SidrReq(req) = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(req.request_id), number(&fields["request_id"]));
        assert_eq!(u64::from(req.pkey.0), number(&fields["pkey"]));
        assert_eq!(req.service.0, number(&fields["service_id"]));
        assert_eq!(req.service.port(), Some((PortSpace::Udp, 7174)));
    });
    with("sidr_rep", |message, fields| {
        let Message::SidrRep(rep) = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(rep.request_id), number(&fields["request_id"]));
        assert_eq!(u64::from(rep.status), number(&fields["status"]));
        assert_eq!(u64::from(rep.qpn.value()), number(&fields["qpn"]));
        assert_eq!(u64::from(rep.qkey.0), number(&fields["qkey"]));
    });
}

#[test]
fn what_is_none() {
    let (mad, _) = vector("req");
    assert_eq!(Message::parse(0x42, &mad[24..]), Ok(None));
    assert!(Message::parse(0x10, &mad[24..255]).is_err());
    assert_eq!(
        ServiceId(0x1234_5678_9abc_def0).to_string(),
        "0x123456789abcdef0"
    );
    assert_eq!(IpHeader::parse(&[0x10; 36]), None, "another version");
    assert_eq!(IpHeader::parse(&[0; 36]), None, "neither IPv4 nor IPv6");
    assert_eq!(IpHeader::parse(&[0, 0x40]), None);
}

/// Every message of every vector is written as it was read.
#[test]
fn written_as_read() {
    let file: Value = serde_json::from_str(include_str!("data/vectors/cm.json")).unwrap();
    let names = file["vectors"].as_array().unwrap().iter();
    for name in names.map(|vector| vector["name"].as_str().unwrap()) {
        let (bytes, _) = vector(name);
        let mad = Mad::parse(&bytes).unwrap();
        let message = mad.cm().expect(name);
        let MadHeader {
            transaction_id,
            attribute_modifier,
            ..
        } = mad.header;
        let written = Mad::cm_bytes(&message, transaction_id, attribute_modifier);
        assert_eq!(written[..], bytes[..], "{name}");
        if let Message::Req(req) = message {
            let header = IpHeader::parse(req.private_data).unwrap();
            assert_eq!(header.to_bytes()[..], req.private_data[..IpHeader::LEN]);
            assert_eq!(ServiceId::of_port(PortSpace::Tcp, 18515), req.service);
        }
    }
}

/// What the vectors leave 0.
#[test]
fn every_field_comes_back() {
    let ids = Ids {
        local: 0x0102_0304,
        remote: 0x0506_0708,
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(232).collect();
    let messages = [
        Message::Req(Req {
            local_id: 0x0a0b_0c0d,
            ece_vendor: 0x15b3,
            service: ServiceId(0x1122_3344_5566_7788),
            ca_guid: 0x99aa_bbcc_ddee_ff00,
            qkey: QKey(0x1234_5678),
            qpn: Qpn::new(0xfe_dcba),
            responder_resources: 128,
            initiator_depth: 64,
            remote_response_timeout: 31,
            local_response_timeout: 17,
            transport: Transport::Xrc,
            flow_control: true,
            starting_psn: Psn::new(0x12_3456),
            retry_count: 5,
            rnr_retry_count: 3,
            pkey: PKey(0x8001),
            mtu: Some(PathMtu::Mtu4096),
            max_cm_retries: 9,
            srq: true,
            local_gid: Gid([7; 16]),
            remote_gid: Gid([9; 16]),
            flow_label: 0xf_edcb,
            packet_rate: 0x2a,
            traffic_class: 0x69,
            hop_limit: 1,
            sl: 0xd,
            ack_timeout: AckTimeout::new(29),
            has_alternate: false,
            private_data: &bytes[..92],
        }),
        Message::Rep(Rep {
            ids,
            qkey: QKey(0x8765_4321),
            qpn: Qpn::new(0xab_cdef),
            eecn: Qpn::new(0x12_3456),
            ece_vendor: 0xa1_b2c3,
            starting_psn: Psn::new(0x65_4321),
            responder_resources: 200,
            initiator_depth: 100,
            target_ack_delay: 21,
            failover: 2,
            flow_control: true,
            rnr_retry_count: 6,
            srq: true,
            ca_guid: 0x0102_0304_0506_0708,
            private_data: &bytes[..196],
        }),
        Message::Rej(Rej {
            ids,
            rejected: Rej::OF_OTHER,
            reason: RejReason::INVALID_MTU,
            ari: &bytes[..72],
            private_data: &bytes[..148],
        }),
        Message::Mra(Mra {
            ids,
            received: 2,
            service_timeout: 30,
            private_data: &bytes[..222],
        }),
        Message::Rtu(Note {
            ids,
            private_data: &bytes[..224],
        }),
        Message::Dreq {
            ids,
            remote_qpn: Qpn::new(0x77_8899),
            private_data: &bytes[..220],
        },
        Message::Drep(Note {
            ids,
            private_data: &bytes[..224],
        }),
        Message::SidrReq(SidrReq {
            request_id: 7,
            pkey: PKey::DEFAULT,
            service: ServiceId(0xffff_0000_1111_2222),
            private_data: &bytes[..216],
        }),
        Message::SidrRep(SidrRep {
            request_id: 8,
            status: 5,
            ece_vendor: 0x12_3456,
            qpn: Qpn::new(0x55_6677),
            service: ServiceId(3),
            qkey: QKey(0x0123_4567),
            private_data: &bytes[..136],
        }),
        Message::Lap(ids),
        Message::Apr(Apr { ids, status: 2 }),
    ];
    for message in messages {
        let attribute = message.attribute() as u16;
        assert_eq!(
            Message::parse(attribute, &message.to_bytes()),
            Ok(Some(message))
        );
    }
    let (v4, v6) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    for (source, dest) in [(v4, v4), (v6, v6)] {
        let header = IpHeader {
            source_port: 4097,
            source,
            dest,
        };
        assert_eq!(IpHeader::parse(&header.to_bytes()), Some(header));
    }
}
