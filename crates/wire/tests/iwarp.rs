//! iWARP framing and headers against `data/vectors/iwarp.json`, whose bytes an independent
//! dissector decodes to the listed fields.

use hirail_wire::iwarp::{
    Ddp, Enhanced, Error, Fpdu, Opcode, ReadRequest, Revision, Segment, Startup, StartupKind,
    TcpHeader, Terminate, emit_fpdu,
};
use serde_json::Value;

fn vectors() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("data/vectors/iwarp.json")).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn vector(name: &str) -> (Vec<u8>, Value) {
    let vector = vectors()
        .into_iter()
        .find(|vector| vector["name"] == name)
        .expect(name);
    (bytes_of(&vector), vector["fields"].clone())
}

fn bytes_of(vector: &Value) -> Vec<u8> {
    let hex = vector["bytes"].as_str().unwrap();
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// A field that is a number or a hexadecimal string.
fn number(field: &Value) -> u64 {
    match field.as_str() {
        Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
        None => field.as_u64().unwrap(),
    }
}

fn ulpdu(fpdu: &Fpdu<'_>) -> Vec<u8> {
    fpdu.ulpdu().flatten().copied().collect()
}

#[test]
fn startup_frames() {
    let enhanced = |rtr_read| Enhanced {
        peer_to_peer: true,
        rtr_send: false,
        rtr_write: true,
        rtr_read,
        ird: 16,
        ord: 16,
    };
    let frame = |kind, rtr_read| Startup {
        kind,
        markers: false,
        crc: true,
        rejected: false,
        revision: Revision::Two(Some(enhanced(rtr_read))),
        private_data: b"",
    };
    for (name, expected) in [
        ("mpa_req", frame(StartupKind::Request, true)),
        ("mpa_rep", frame(StartupKind::Reply, false)),
    ] {
        let (bytes, _) = vector(name);
        assert_eq!(Startup::parse(&bytes), Ok((expected, bytes.len())));
        let mut buffer = [0; 532];
        let len = expected.emit(&mut buffer);
        assert_eq!(buffer[..len], bytes);
        for cut in 0..bytes.len() {
            assert!(
                matches!(Startup::parse(&bytes[..cut]), Err(Error::Truncated { .. })),
                "{cut}"
            );
        }
    }
}

#[test]
fn refused_startup_frames() {
    let (good, _) = vector("mpa_req");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Startup::parse(&bytes)
            .map(|(startup, len)| (startup.revision, len))
            .unwrap_err()
    };
    assert_eq!(with(0, b'X'), Error::NotMpa);
    assert_eq!(with(15, b'X'), Error::NotMpa);
    assert_eq!(with(17, 3), Error::BadRevision(3));
    assert_eq!(with(18, 3), Error::BadPrivateData(0x304));
    assert_eq!(
        with(19, 3),
        Error::BadPrivateData(3),
        "an enhanced set-up takes 4 bytes"
    );
    assert_eq!(Startup::parse(b"GET / HTTP/1.1"), Err(Error::NotMpa));
}

#[test]
fn fpdus_and_headers() {
    for vector in vectors() {
        let name = vector["name"].as_str().unwrap();
        let fields = &vector["fields"];
        if name.starts_with("mpa") {
            continue;
        }
        let bytes = bytes_of(&vector);
        let position = fields.get("stream_pos").map(number);
        let fpdu = Fpdu::parse(&bytes, position).expect(name);
        assert_eq!(fpdu.bytes(), bytes, "{name}");
        assert_eq!(
            u64::from(fpdu.ulpdu_len()),
            number(&fields["ulpdu_len"]),
            "{name}"
        );
        assert_eq!(fpdu.computed_crc(), fpdu.crc(), "{name}");
        let crc_wire: String = fpdu
            .crc()
            .to_le_bytes()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(crc_wire, fields["crc_wire"], "{name}");
        let markers: Vec<_> = fpdu
            .markers()
            .map(|(at, back)| serde_json::json!([at, back]))
            .collect();
        assert_eq!(
            markers,
            fields
                .get("markers")
                .map_or(&[][..], |m| m.as_array().unwrap()),
            "{name}"
        );
        assert!(fpdu.markers_ok(), "{name}");

        let ulpdu = ulpdu(&fpdu);
        assert_eq!(ulpdu.len(), usize::from(fpdu.ulpdu_len()), "{name}");
        let segment = Segment::parse(&ulpdu).expect(name);
        assert!(segment.last(), "{name}");
        assert_eq!(segment.opcode() as u64, number(&fields["opcode"]), "{name}");
        match segment.ddp() {
            Ddp::Tagged { stag, offset } => {
                assert_eq!(u64::from(stag), number(&fields["stag"]), "{name}");
                assert_eq!(offset, number(&fields["to"]), "{name}");
            }
            Ddp::Untagged {
                invalidate,
                queue,
                msn,
                offset,
            } => {
                assert_eq!(invalidate, 0, "{name}");
                assert_eq!(u64::from(queue), number(&fields["queue"]), "{name}");
                assert_eq!(u64::from(msn), number(&fields["msn"]), "{name}");
                assert_eq!(u64::from(offset), number(&fields["mo"]), "{name}");
            }
        }
        let payload = &ulpdu[segment.header_len()..];
        if let Some(text) = fields.get("payload_ascii") {
            assert_eq!(payload, text.as_str().unwrap().as_bytes(), "{name}");
        }
        if segment.opcode() == Opcode::ReadRequest {
            let read = ReadRequest::parse(payload).expect(name);
            assert_eq!(u64::from(read.sink_stag), number(&fields["sink_stag"]));
            assert_eq!(read.sink_offset, number(&fields["sink_to"]));
            assert_eq!(u64::from(read.length), number(&fields["size"]));
            assert_eq!(u64::from(read.source_stag), number(&fields["source_stag"]));
            assert_eq!(read.source_offset, number(&fields["source_to"]));
            assert_eq!(read.to_bytes(), payload);
        }

        // And back.
        let mut headers = [0; 18];
        let len = segment.emit(&mut headers);
        assert_eq!(headers[..len], ulpdu[..segment.header_len()], "{name}");
        let mut again = Vec::new();
        emit_fpdu(&ulpdu, position, true, &mut again);
        assert_eq!(again, bytes, "{name}");
    }
}

/// The three vectors with markers follow each other in one stream.
#[test]
fn positions_add_up() {
    let mut position = 0;
    for name in ["marker_f1", "marker_f2", "marker_f3"] {
        let (bytes, fields) = vector(name);
        assert_eq!(position, number(&fields["stream_pos"]), "{name}");
        position += bytes.len() as u64;
    }
}

/// Every segment length at every marker phase comes back as it went out, whatever is cut off is
/// asked for, and each damaged byte shows in the CRC.
#[test]
fn any_length_at_any_position() {
    for len in (0..1100).step_by(7).chain([64_768]) {
        let ulpdu_out: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        for position in (0..512)
            .step_by(4)
            .map(|p| Some(p + 512 * 1000))
            .chain([None])
        {
            let mut stream = Vec::new();
            emit_fpdu(&ulpdu_out, position, true, &mut stream);
            let whole = stream.len();
            stream.extend([0xaa; 8]);
            let fpdu = Fpdu::parse(&stream, position).unwrap();
            assert_eq!(fpdu.bytes().len(), whole);
            assert_eq!(fpdu.bytes().len() % 4, 0);
            assert_eq!(ulpdu(&fpdu), ulpdu_out);
            assert_eq!(fpdu.computed_crc(), fpdu.crc());
            assert!(fpdu.markers_ok());
            let markers = fpdu.markers().count();
            assert_eq!(
                whole,
                2 + usize::from(fpdu.ulpdu_len()) + fpdu.pad() + 4 + 4 * markers
            );
            if let Some(position) = position {
                let end = position + whole as u64;
                assert_eq!(markers as u64, end.div_ceil(512) - position.div_ceil(512));
            }
            for cut in [0, 1, 5, whole / 2, whole - 1] {
                match Fpdu::parse(&stream[..cut.min(whole - 1)], position) {
                    Err(Error::Truncated { needed, .. }) => assert!(needed <= whole),
                    other => panic!("{other:?}"),
                }
            }
            let at = whole / 3;
            stream[at] ^= 0x10;
            if let Ok(fpdu) = Fpdu::parse(&stream, position) {
                assert_ne!(fpdu.computed_crc(), fpdu.crc());
            }
        }
    }
}

#[test]
fn refused_segments() {
    let (bytes, _) = vector("send");
    let ulpdu = ulpdu(&Fpdu::parse(&bytes, None).unwrap());
    let with = |at: usize, value: u8| {
        let mut bytes = ulpdu.clone();
        bytes[at] = value;
        Segment::parse(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 0x42), Error::BadDdpVersion(2));
    assert_eq!(with(1, 0x83), Error::BadRdmapVersion(2));
    assert_eq!(with(1, 0x4c), Error::UnknownOpcode(12));
    assert_eq!(with(1, 0x40), Error::WrongHeader(Opcode::Write));
    assert_eq!(with(0, 0xc1), Error::WrongHeader(Opcode::Send));
    assert_eq!(
        with(9, 1),
        Error::WrongHeader(Opcode::Send),
        "queue 1 is for reads"
    );
    for cut in 0..18 {
        assert!(
            matches!(Segment::parse(&ulpdu[..cut]), Err(Error::Truncated { .. })),
            "{cut}"
        );
    }
}

#[test]
fn terminate_messages() {
    // RDMAP, remote protection, bounds; segment length and DDP header told.
    let payload = [
        &[0x01, 0x01, 0xc0, 0x00, 0x00, 0x20][..],
        &[0xc1, 0x40, 1, 2, 3, 4],
    ]
    .concat();
    let terminate = Terminate::parse(&payload).unwrap();
    assert_eq!((terminate.layer, terminate.kind, terminate.code), (0, 1, 1));
    assert_eq!(terminate.segment_len, Some(32));
    assert_eq!(terminate.headers, [0xc1, 0x40, 1, 2, 3, 4]);
    assert_eq!(
        terminate.meaning(),
        "RDMAP remote protection: base or bounds"
    );
    let bare = Terminate::parse(&[0x20, 0x02, 0, 0]).unwrap();
    assert_eq!(
        (bare.segment_len, bare.headers, bare.meaning()),
        (None, &[][..], "MPA: wrong CRC")
    );
    assert!(Terminate::parse(&[0x20, 0x02, 0x80, 0, 1]).is_err());
}

#[test]
fn tcp_headers() {
    let header = TcpHeader {
        source_port: 46292,
        dest_port: 7174,
        sequence: 0xffff_fff0,
        acknowledgement: 7,
        flags: TcpHeader::ACK | TcpHeader::PSH,
        window: 502,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(b"data");
    assert_eq!(TcpHeader::parse(&bytes), Ok((header, &b"data"[..])));
    bytes[12] = 6 << 4;
    assert_eq!(
        TcpHeader::parse(&bytes),
        Ok((header, &b""[..])),
        "four bytes of options"
    );
    for words in [0, 4, 7, 15] {
        bytes[12] = words << 4;
        assert!(TcpHeader::parse(&bytes).is_err(), "{words}");
    }
    for cut in 0..20 {
        assert!(TcpHeader::parse(&bytes[..cut]).is_err(), "{cut}");
    }
    assert!(header.has(TcpHeader::ACK) && !header.has(TcpHeader::ACK | TcpHeader::SYN));
}
