//! Every packet of every capture of Linux's soft RNIC: intact, legal, and written as it was read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hirail_wire::frame::Content;
use hirail_wire::ip::IpHeader;
use hirail_wire::mad::{CmAttribute, Mad};
use hirail_wire::pcap::Reader;
use hirail_wire::{FrameView, Framing, Qpn, solve_ipv4_id};

/// Calls `check` with file name and frame for each packet of each capture.
fn each_frame(mut check: impl FnMut(&str, &[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/captures");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "pcap")
    });
    paths.sort();
    assert!(paths.len() > 70);
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let file = fs::read(&path).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            check(name, packet.data);
        }
    }
}

#[test]
fn every_icrc_is_right_but_those_corrupted_on_purpose() {
    let (mut right, mut wrong) = (0, BTreeMap::<String, u32>::new());
    each_frame(
        |name, frame| match FrameView::parse(frame).unwrap().content {
            Content::Roce(roce) if roce.icrc_is_right() => right += 1,
            Content::Roce(_) => *wrong.entry(name.into()).or_default() += 1,
            Content::Tcp(..) => assert!(name.starts_with("siw-"), "{name}"),
            other => panic!("{name}: {other:?}"),
        },
    );
    assert_eq!(wrong, BTreeMap::from([("rc-wire-corrupt.pcap".into(), 11)]));
    assert_eq!(right, 1916);
}

#[test]
fn intact_packets_are_legal_and_written_as_they_were_read() {
    let mut opcodes = BTreeMap::new();
    each_frame(|name, frame| {
        let view = FrameView::parse(frame).unwrap();
        let Some(roce) = view.roce().filter(|roce| roce.icrc_is_right()) else {
            return;
        };
        let (headers, payload) = roce
            .headers()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        *opcodes.entry(headers.opcode().to_u8()).or_insert(0) += 1;
        let encapsulation = view.encapsulation().unwrap();
        let mut written = vec![0xaa; encapsulation.frame_len(&headers, payload.len())];
        encapsulation.emit_frame(&headers, payload, &mut written);
        // Behind the ICRC there may be padding of the link. UDP checksums are kept right.
        assert_eq!(written, frame[..written.len()], "{name}: {headers}");
        assert_ne!(
            roce.udp_checksum_is_right(),
            Some(false),
            "{name}: {headers}"
        );
    });
    assert!(opcodes.len() > 20, "{opcodes:?}");
}

#[test]
fn identification_of_every_packet_is_found() {
    each_frame(|name, frame| {
        let view = FrameView::parse(frame).unwrap();
        let Some(roce) = view.roce().filter(|roce| roce.icrc_is_right()) else {
            return;
        };
        let Framing::V2 {
            ip: IpHeader::V4(ip),
            ..
        } = roce.framing()
        else {
            return;
        };
        let assumed = ip.id.wrapping_sub(1);
        let computed = roce.framing().icrc_prefix().compute(roce.ib(), assumed);
        let ib_len = roce.ib().len() + 4;
        let found = solve_ipv4_id(computed, assumed, roce.icrc_received(), ib_len);
        assert_eq!(found, Some(ip.id), "{name}");
    });
}

#[test]
fn packets_to_qp1_are_cm_messages() {
    let mut kinds = BTreeMap::new();
    each_frame(|name, frame| {
        let view = FrameView::parse(frame).unwrap();
        let Some(roce) = view.roce().filter(|roce| roce.icrc_is_right()) else {
            return;
        };
        let (headers, payload) = roce.headers().unwrap();
        if headers.bth().dest_qp == Qpn::GSI {
            let mad = Mad::parse(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(mad.to_bytes(), payload, "{name}");
            let message = mad.cm().expect(name);
            assert_eq!(&message.to_bytes(), mad.data, "{name}: {message:?}");
            *kinds
                .entry(mad.cm_attribute().expect(name).name())
                .or_insert(0) += 1;
        }
    });
    for kind in CmAttribute::ALL {
        let unseen = matches!(kind, CmAttribute::Mra | CmAttribute::Lap | CmAttribute::Apr);
        assert_eq!(
            kinds.contains_key(kind.name()),
            !unseen,
            "{kind}: {kinds:?}"
        );
    }
}
