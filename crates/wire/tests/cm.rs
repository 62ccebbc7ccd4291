//! CM messages against `data/vectors/cm.json`.

use hirail_wire::cm::{IpHeader, Message, PortSpace, ServiceId, Transport};
use hirail_wire::{AckTimeout, PKey, PathMtu};
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
        let Message::Dreq { ids, remote_qpn } = message else {
            panic!("{message:?}")
        };
        assert_eq!(u64::from(ids.local), number(&fields["local_comm_id"]));
        assert_eq!(u64::from(remote_qpn.value()), number(&fields["remote_qpn"]));
    });
    for name in ["rtu", "drep"] {
        with(name, |message, fields| {
            let (Message::Rtu(ids) | Message::Drep(ids)) = message else {
                panic!("{message:?}")
            };
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
