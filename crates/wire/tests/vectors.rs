//! Frames against `data/vectors/{icrc,cm,dcb}.json`, in both directions.

use hirail_wire::ethernet::EthernetHeader;
use hirail_wire::frame::{Content, RoceView};
use hirail_wire::lldp::{ApplicationPriority, Dcbx, EtsTable, Lldp, LldpWriter, Selection};
use hirail_wire::mac_control::{MacControl, Pfc};
use hirail_wire::mad::Mad;
use hirail_wire::{Ext, FrameView, Framing, Icrc, MacAddr, ParseError, solve_ipv4_id};
use serde_json::Value;

const ICRC: &str = include_str!("data/vectors/icrc.json");
const CM: &str = include_str!("data/vectors/cm.json");
const DCB: &str = include_str!("data/vectors/dcb.json");

fn vectors(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn named(file: &str, name: &str) -> Value {
    let found = vectors(file)
        .into_iter()
        .find(|vector| vector["name"] == name);
    found.expect(name)
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn roce(frame: &[u8]) -> RoceView<'_> {
    match FrameView::parse(frame).unwrap().content {
        Content::Roce(roce) => roce,
        other => panic!("{other:?}"),
    }
}

/// A number, or a string of hexadecimal digits with 0x in front.
fn number(field: &Value) -> u64 {
    match field.as_str() {
        Some(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        None => field.as_u64().unwrap(),
    }
}

#[test]
fn icrc_of_every_frame() {
    let all = [vectors(ICRC), vectors(CM)].concat();
    assert_eq!(all.len(), 22 + 10);
    for vector in all {
        let (name, frame) = (&vector["name"], bytes(&vector["frame"]));
        let roce = roce(&frame);
        let icrc = bytes(&vector["icrc_wire"]);
        assert_eq!(roce.icrc_received()[..], icrc, "{name}");
        assert_eq!(roce.icrc_computed()[..], icrc, "{name}");
        assert!(roce.icrc_is_right(), "{name}");
        let prefix = roce.framing().icrc_prefix();
        let computed = prefix.compute(roce.ib(), roce.framing().ipv4_id());
        assert_eq!(computed[..], icrc, "{name}, by prefix");
        if let Some(covered) = vector["covered"].as_str() {
            let covered = bytes(&covered.into());
            assert_eq!(covered[..8], [0xff; 8]);
            let mut by_hand = Icrc::new();
            by_hand.update(&covered[8..]);
            assert_eq!(by_hand.finish()[..], icrc, "{name}, covered bytes");
        }
    }
}

#[test]
fn identification_is_found_for_every_ipv4_frame() {
    let mut solved = 0;
    for vector in [vectors(ICRC), vectors(CM)].concat() {
        let frame = bytes(&vector["frame"]);
        let roce = roce(&frame);
        let Framing::V2 {
            ip: hirail_wire::ip::IpHeader::V4(ip),
            ..
        } = roce.framing()
        else {
            continue;
        };
        let computed = roce.framing().icrc_prefix().compute(roce.ib(), 0);
        let ib_len = roce.ib().len() + 4;
        let found = solve_ipv4_id(computed, 0, roce.icrc_received(), ib_len);
        assert_eq!(found, Some(ip.id), "{}", vector["name"]);
        solved += 1;
    }
    assert!(solved > 20);
}

/// What was read and written again is the same frame, unless it has reserved bits set.
#[test]
fn frames_are_written_as_they_were_read() {
    for vector in [vectors(ICRC), vectors(CM)].concat() {
        let (name, frame) = (&vector["name"], bytes(&vector["frame"]));
        let roce = roce(&frame);
        let (headers, payload) = roce
            .headers()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let encapsulation = FrameView::parse(&frame).unwrap().encapsulation().unwrap();
        let mut written = vec![0xaa; encapsulation.frame_len(&headers, payload.len())];
        let len = encapsulation.emit_frame(&headers, payload, &mut written);
        assert_eq!(len, frame.len(), "{name}");
        if vector["fields"]["resv6"].is_u64() {
            assert_ne!(written, frame, "{name}: reserved bits are not repeated");
            let congestion = len - roce.ib().len() - 4 + 4;
            written[congestion] = frame[congestion];
        }
        assert_eq!(written, frame, "{name}");
    }
}

#[test]
fn fields_of_the_headers() {
    for vector in vectors(ICRC) {
        let (name, frame, fields) = (&vector["name"], bytes(&vector["frame"]), &vector["fields"]);
        let view = FrameView::parse(&frame).unwrap();
        let roce = roce(&frame);
        let (headers, payload) = roce.headers().unwrap();
        let (bth, ext) = (headers.bth(), headers.ext());
        let reth = || ext.reth().expect("a RETH");
        let aeth = || ext.aeth().expect("an AETH");
        let deth = || ext.deth().expect("a DETH");
        for (field, expected) in fields.as_object().unwrap() {
            let got = match field.as_str() {
                "opcode" => bth.opcode.to_u8().into(),
                "se" => bth.solicited.into(),
                "m" => bth.migrated.into(),
                "padcnt" => bth.pad.into(),
                "tver" => roce.view().tver().unwrap().into(),
                "pkey" => bth.pkey.0.into(),
                "fecn" => bth.fecn.into(),
                "becn" => bth.becn.into(),
                "resv6" => (roce.ib()[4] & 0x3f).into(),
                "destqp" => bth.dest_qp.value().into(),
                "a" => bth.ack_req.into(),
                "psn" => bth.psn.value().into(),
                "tos" | "tclass" => roce.framing().traffic_class().into(),
                "ttl" | "hoplimit" => roce.framing().hop_limit().into(),
                "sport" => match roce.framing() {
                    Framing::V2 { source_port, .. } => (*source_port).into(),
                    Framing::V1(_) => panic!("RoCE v1 has no ports"),
                },
                "flowlabel" => match roce.framing() {
                    Framing::V2 {
                        ip: hirail_wire::ip::IpHeader::V6(ip),
                        ..
                    } => ip.flow_label.into(),
                    other => panic!("{other:?}"),
                },
                "va" => match ext {
                    Ext::Atomic(atomic) => atomic.va,
                    _ => reth().va,
                },
                "rkey" => match ext {
                    Ext::Atomic(atomic) => atomic.rkey.value().into(),
                    _ => reth().rkey.value().into(),
                },
                "dmalen" => reth().length.into(),
                "swap" | "compare" => match ext {
                    Ext::Atomic(atomic) if field == "swap" => atomic.swap_or_add,
                    Ext::Atomic(atomic) => atomic.compare,
                    other => panic!("{other:?}"),
                },
                "original" => match ext {
                    Ext::AtomicAck(_, original) => *original,
                    other => panic!("{other:?}"),
                },
                "syndrome" => aeth().syndrome.to_u8().into(),
                "msn" => aeth().msn.value().into(),
                "qkey" => deth().qkey.0.into(),
                "srcqp" => deth().source_qp.value().into(),
                "imm" => u32::from_be_bytes(ext.imm().unwrap()).into(),
                "ieth_rkey" => match ext {
                    Ext::Ieth(rkey) => rkey.value().into(),
                    other => panic!("{other:?}"),
                },
                "xrcsrq" => headers.xrc_srqn().unwrap().into(),
                "pcp" => view.ethernet.tag.unwrap().priority.into(),
                "vid" => view.ethernet.tag.unwrap().vlan.into(),
                "payload" => {
                    assert_eq!(payload, bytes(expected), "{name}");
                    continue;
                }
                "sgid" | "dgid" => {
                    let framing = roce.framing();
                    let gid = if field == "sgid" {
                        framing.source()
                    } else {
                        framing.dest()
                    };
                    assert_eq!(gid.0[..], bytes(expected), "{name}");
                    continue;
                }
                // The MAD's own, read in `cm.rs`; that it is one is checked below.
                "attribute_id" => Mad::parse(payload).unwrap().header.attribute_id.into(),
                "service_id" | "local_comm_id" | "start_psn" => continue,
                other => panic!("{name} has an unknown field {other}"),
            };
            assert_eq!(got, number(expected), "{name}: {field}");
        }
        let part = |name: &str| vector["layout"][name].as_u64().unwrap_or(0);
        let layout = vector["layout"].as_object().unwrap();
        if layout.contains_key("bth") {
            let fixed = ["eth", "ip", "grh", "udp", "payload", "mad", "pad", "icrc"];
            let headers_len: u64 = layout
                .iter()
                .filter(|(name, _)| !fixed.contains(&name.as_str()))
                .map(|(_, len)| len.as_u64().unwrap())
                .sum();
            assert_eq!(headers.len() as u64, headers_len, "{name}");
            assert_eq!(
                payload.len() as u64,
                part("payload") + part("mad"),
                "{name}"
            );
            assert_eq!(
                roce.framing().len() as u64,
                part("ip") + part("udp") + part("grh")
            );
        }
    }
}

#[test]
fn udp_checksums() {
    let mut present = 0;
    for vector in vectors(ICRC) {
        let frame = bytes(&vector["frame"]);
        if let Some(right) = roce(&frame).udp_checksum_is_right() {
            assert!(right, "{}", vector["name"]);
            present += 1;
        }
    }
    assert!(present >= 1, "public_uc_send_only has one");
}

/// Each bit of a frame is covered by the ICRC, or masked in it, or outside of it; and a frame in
/// which a covered bit changed is refused.
#[test]
fn one_wrong_bit_is_always_found() {
    for vector in vectors(ICRC) {
        let (name, mut frame) = (&vector["name"], bytes(&vector["frame"]));
        let ib_at = frame.len() - roce(&frame).ib().len() - 4;
        let network_at = ib_at - roce(&frame).framing().len();
        let v4 = matches!(frame[network_at] >> 4, 4);
        let udp_at = ib_at - 8;
        let v1 = matches!(roce(&frame).framing(), Framing::V1(_));
        let masked = |at: usize, bit: u32| {
            if at < network_at || at == ib_at + 4 || (!v1 && (udp_at + 6..ib_at).contains(&at)) {
                return true;
            }
            match at - network_at {
                offset if v4 => matches!(offset, 1 | 8 | 10 | 11),
                0 => bit < 4,
                offset => matches!(offset, 1..=3 | 7),
            }
        };
        for at in 0..frame.len() {
            for bit in 0..8 {
                frame[at] ^= 1 << bit;
                let accepted = match FrameView::parse(&frame).map(|view| view.content) {
                    Ok(Content::Roce(roce)) => roce.icrc_is_right(),
                    _ => false,
                };
                if at >= network_at && !masked(at, bit) {
                    assert!(!accepted, "{name}: bit {bit} of byte {at}");
                } else if at >= ib_at {
                    assert!(accepted, "{name}: masked bit {bit} of byte {at}");
                }
                frame[at] ^= 1 << bit;
            }
        }
    }
}

/// A router that lowers the TTL, repairs the checksum and marks congestion leaves the ICRC right;
/// whoever does not repair the checksum is found by it.
#[test]
fn routers_may_change_what_they_must() {
    let mut frame = bytes(&named(ICRC, "v4_rc_send_only_pad3")["frame"]);
    frame[14 + 8] -= 1;
    assert_eq!(FrameView::parse(&frame), Err(ParseError::BadIpChecksum));
    let routed = bytes(&named(ICRC, "v4_rc_send_only_pad3_after_router")["frame"]);
    assert!(roce(&routed).icrc_is_right());
}

#[test]
fn padding_of_short_frames_is_not_part_of_the_packet() {
    for name in ["v4_rc_ack", "v6_rc_read_request", "v1_rc_send_only"] {
        let frame = bytes(&named(ICRC, name)["frame"]);
        let padded = [&frame[..], &[0; 20]].concat();
        assert_eq!(roce(&padded), roce(&frame), "{name}");
    }
}

#[test]
fn every_truncation_is_refused() {
    for vector in [vectors(ICRC), vectors(CM)].concat() {
        let frame = bytes(&vector["frame"]);
        for len in 0..frame.len() {
            let error = FrameView::parse(&frame[..len]).expect_err("a cut frame");
            assert_eq!(
                error.reason(),
                "truncated",
                "{} at {len}: {error}",
                vector["name"]
            );
        }
        let ib = roce(&frame).ib();
        let (headers, _) = roce(&frame).headers().unwrap();
        for len in 0..ib.len() {
            let error = hirail_wire::Headers::parse(&ib[..len]).err();
            match error.map(ParseError::reason) {
                Some("truncated") => assert!(len < headers.len()),
                Some("bad_pad") => assert!(len >= headers.len()),
                None => assert!(len >= headers.len() && len % 4 == 0),
                other => panic!("{}: {other:?}", vector["name"]),
            }
        }
    }
}

#[test]
fn receive_area_holds_the_network_header() {
    for vector in vectors(ICRC) {
        let (name, frame) = (&vector["name"], bytes(&vector["frame"]));
        let roce = roce(&frame);
        let area = roce.framing().receive_area(roce.ib().len() + 4);
        let eth = usize::try_from(vector["layout"]["eth"].as_u64().unwrap()).unwrap();
        match vector["layout"]["ip"].as_u64() {
            Some(20) => assert_eq!(
                (&area[..20], &area[20..]),
                (&[0; 20][..], &frame[eth..eth + 20]),
                "{name}"
            ),
            _ => assert_eq!(area[..], frame[eth..eth + 40], "{name}"),
        }
    }
}

/// One damaged packet for each reason that a frame or its headers are refused for.
#[test]
fn refusals_have_their_reasons() {
    // Offsets of the untagged IPv4 vectors: Ethernet 0, IPv4 14, UDP 34, BTH 42, what follows 54.
    let damage = |name: &str, changes: &[(usize, u8)]| {
        let mut frame = bytes(&named(ICRC, name)["frame"]);
        for &(at, value) in changes {
            frame[at] = value;
        }
        if frame[14] == 0x45 {
            let ip = hirail_wire::ip::Ipv4Header::read(frame[14..34].first_chunk().unwrap());
            let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let fresh = ip.to_bytes(length.wrapping_sub(20));
            // The fragment offset is not part of the typed header: its word enters the sum here.
            let word = u16::from_be_bytes([frame[20], frame[21]]) & 0xbfff;
            let sum = !u16::from_be_bytes([fresh[10], fresh[11]]);
            let (sum, carry) = sum.overflowing_add(word);
            frame[24..26].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
        }
        frame
    };
    let reason = |frame: &[u8]| {
        let roce = match FrameView::parse(frame).map(|view| view.content) {
            Ok(Content::Roce(roce)) => roce,
            Ok(other) => panic!("{other:?}"),
            Err(error) => return error.reason(),
        };
        let checked = roce
            .check_udp_checksum()
            .and_then(|()| roce.headers().map(drop));
        checked.expect_err("a refusal").reason()
    };
    let (send, ack) = ("v4_rc_send_only_pad3", "v4_rc_ack");
    for (expected, frame) in [
        ("truncated", damage(send, &[(17, 61)])),
        ("bad_ip_version", damage(send, &[(14, 0x65)])),
        ("bad_ip_header_length", damage(send, &[(14, 0x46)])),
        ("fragmented", damage(send, &[(20, 0x20)])),
        ("fragmented", damage(send, &[(21, 0x01)])),
        ("bad_length", damage(send, &[(17, 19)])),
        ("bad_length", damage(send, &[(39, 7)])),
        ("bad_length", damage(send, &[(39, 41)])),
        ("truncated", damage(send, &[(39, 23)])),
        (
            "bad_udp_checksum",
            damage("public_uc_send_only", &[(60, 0)]),
        ),
        (
            "bad_grh_next_header",
            damage("v1_rc_send_only", &[(20, 17)]),
        ),
        ("bad_ip_version", damage("v1_rc_send_only", &[(14, 0x40)])),
        ("unknown_opcode", damage(send, &[(42, 0x40)])),
        ("unknown_opcode", damage(send, &[(42, 0xff)])),
        ("bad_tver", damage(send, &[(43, 0xb1)])),
        ("bad_pad", damage(ack, &[(43, 0x10)])),
        (
            "bad_pad",
            damage("v4_rc_read_resp_only_zero", &[(43, 0x10)]),
        ),
        ("unexpected_payload", damage(send, &[(42, 0x11)])),
        (
            "bad_flush",
            damage("v4_rc_cmpswap", &[(42, 0x1c), (57, 0x20)]),
        ),
        ("foreign_vendor", damage("v4_rc_cmpswap", &[(42, 0xc0)])),
    ] {
        assert_eq!(reason(&frame), expected);
    }
    let mut frame = bytes(&named(ICRC, send)["frame"]);
    frame[24] ^= 1;
    assert_eq!(reason(&frame), "bad_ip_checksum");
    let mut mad = bytes(&named(CM, "req")["mad"]);
    mad[0] = 2;
    assert_eq!(Mad::parse(&mad).unwrap_err().reason(), "bad_mad_version");
    let lldp = bytes(&named(DCB, "lldp_dcbx_ieee")["frame"]);
    let (mut short_pfc, at) = (lldp[14..].to_vec(), lldp.len() - 14 - 2 - 19 - 8);
    assert_eq!(short_pfc[at..at + 2], [0xfe, 6]);
    short_pfc[at + 1] = 5;
    assert_eq!(Lldp::parse(&short_pfc).unwrap_err().reason(), "bad_tlv");
}

#[test]
fn mads_are_written_as_they_were_read() {
    for vector in vectors(CM) {
        let (name, mad) = (vector["name"].as_str().unwrap(), bytes(&vector["mad"]));
        let frame = bytes(&vector["frame"]);
        let (_, payload) = roce(&frame).headers().unwrap();
        assert_eq!(payload, mad);
        let parsed = Mad::parse(payload).unwrap();
        assert_eq!(parsed.to_bytes()[..], mad, "{name}");
        let attribute = parsed.cm_attribute().unwrap();
        assert!(
            name.to_uppercase().starts_with(attribute.name()),
            "{name}: {attribute}"
        );
        assert_eq!(parsed.cm().unwrap().name(), attribute.name());
        let header = hirail_wire::mad::MadHeader::cm(attribute, parsed.header.transaction_id);
        assert_eq!(header, parsed.header, "{name}");
        for len in 0..mad.len() {
            assert_eq!(Mad::parse(&mad[..len]).unwrap_err().reason(), "truncated");
        }
        let long = [&mad[..], &[0; 4]].concat();
        assert_eq!(Mad::parse(&long).unwrap_err().reason(), "bad_length");
    }
}

#[test]
fn mac_control_frames() {
    let mut seen = 0;
    for vector in vectors(DCB) {
        let (name, frame) = (&vector["name"], bytes(&vector["frame"]));
        let view = FrameView::parse(&frame).unwrap();
        let Content::MacControl(content) = view.content else {
            continue;
        };
        let control = MacControl::parse(content).unwrap();
        let quanta: Vec<u64> = match (&vector["quanta"], control) {
            (Value::Array(quanta), _) => quanta.iter().map(|time| time.as_u64().unwrap()).collect(),
            (single, _) => vec![single.as_u64().unwrap()],
        };
        let expected = match vector["class_enable"].as_u64() {
            None => MacControl::Pause {
                quanta: quanta[0].try_into().unwrap(),
            },
            Some(enabled) => {
                let mut pfc = Pfc::new();
                for priority in (0..8).filter(|priority| enabled >> priority & 1 != 0) {
                    let quanta = quanta[usize::from(priority)].try_into().unwrap();
                    pfc = pfc.with(priority, quanta);
                }
                assert_eq!(pfc.iter().count(), enabled.count_ones() as usize);
                MacControl::Pfc(pfc)
            }
        };
        assert_eq!(control, expected, "{name}");
        assert_eq!(control.to_frame(view.ethernet.source)[..], frame, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 5);
    assert_eq!(
        MacControl::parse(&[0, 2, 0, 0]),
        Err(ParseError::UnknownMacControl(2))
    );
}

#[test]
fn lldp_frame() {
    let vector = named(DCB, "lldp_dcbx_ieee");
    let frame = bytes(&vector["frame"]);
    let view = FrameView::parse(&frame).unwrap();
    let Content::Lldp(content) = view.content else {
        panic!("{view:?}")
    };
    let lldp = Lldp::parse(content).unwrap();
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    assert_eq!(
        (lldp.chassis_mac(), lldp.port_mac(), lldp.ttl_s),
        (Some(mac), Some(mac), 120)
    );

    let dcbx: Vec<_> = lldp.dcbx().collect();
    let [
        Dcbx::EtsConfiguration(ets),
        Dcbx::EtsRecommendation(recommendation),
        Dcbx::Pfc(pfc),
        Dcbx::ApplicationPriority(table),
    ] = dcbx[..]
    else {
        panic!("{dcbx:?}")
    };
    let (strict, share) = (Selection::Strict, Selection::Ets);
    let expected = EtsTable {
        class_of_priority: [0, 0, 0, 1, 0, 0, 2, 0],
        bandwidth: [50, 50, 0, 0, 0, 0, 0, 0],
        selection: [share, share, strict, strict, strict, strict, strict, strict],
    };
    assert_eq!(
        (
            ets.willing,
            ets.credit_based_shaper,
            ets.max_traffic_classes
        ),
        (true, false, 3)
    );
    assert_eq!((ets.table, recommendation), (expected, expected));
    assert_eq!(
        (pfc.willing, pfc.macsec_bypass, pfc.capacity, pfc.enabled),
        (true, false, 8, 8)
    );
    let applications = [
        ApplicationPriority::roce_v1(3),
        ApplicationPriority::roce_v2(3),
        ApplicationPriority::dscp(3, 26),
        ApplicationPriority::dscp(6, 48),
    ];
    assert!(table.iter().eq(applications));

    let mut written = [0xaa; 200];
    let ethernet = EthernetHeader {
        dest: MacAddr::LLDP,
        ..view.ethernet
    };
    let start = ethernet.emit(&mut written);
    let mut writer = LldpWriter::new(&mut written[start..], mac, mac, 120);
    writer.ets_configuration(&ets);
    writer.ets_recommendation(&recommendation);
    writer.pfc(&pfc);
    writer.application_priorities(&applications);
    let end = start + writer.finish();
    assert_eq!(written[..end], frame);

    for len in 0..content.len() - 2 {
        // A data unit that ends behind a whole TLV lacks only its end, which is tolerated.
        if let Ok(shorter) = Lldp::parse(&content[..len]) {
            assert!(shorter.tlvs().count() < lldp.tlvs().count());
        }
    }
    assert_eq!(
        Lldp::parse(&content[9..]).unwrap_err().reason(),
        "bad_lldp_order"
    );
}
