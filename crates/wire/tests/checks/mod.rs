//! What must hold for any bytes. The fuzz targets and `fuzz_bounded.rs` call the same functions.

use hirail_wire::ethernet::EtherType;
use hirail_wire::frame::{Content, RoceView};
use hirail_wire::ip::IpHeader;
use hirail_wire::lldp::{Dcbx, Lldp, LldpWriter};
use hirail_wire::mac_control::MacControl;
use hirail_wire::mad::Mad;
use hirail_wire::view::IbView;
use hirail_wire::{Ext, FrameView, Framing, Headers, MacAddr, ParseError, solve_ipv4_id};

/// Any bytes as an Ethernet frame. What is accepted is read the same after it was written again.
pub(crate) fn frame(bytes: &[u8]) {
    let view = match FrameView::parse(bytes) {
        Ok(view) => view,
        Err(error) => return refused(error),
    };
    match view.content {
        Content::Roce(roce) => {
            headers(roce.ib());
            let Ok((headers, payload)) = roce.headers() else {
                return;
            };
            let encapsulation = view.encapsulation().expect("in front of a RoCE packet");
            let mut written = vec![0xaa; encapsulation.frame_len(&headers, payload.len())];
            let len = encapsulation.emit_frame(&headers, payload, &mut written);
            assert_eq!(len, written.len());
            let again = FrameView::parse(&written).expect("our own frame");
            assert_eq!(again.ethernet, view.ethernet);
            let Content::Roce(again) = again.content else {
                panic!("{again:?}")
            };
            assert_eq!(again.framing(), roce.framing());
            assert_eq!(again.headers(), Ok((headers, payload)));
            assert!(again.icrc_is_right());
            assert_ne!(again.udp_checksum_is_right(), Some(false));
            identification(&roce);
        }
        Content::MacControl(content) => mac_control(content),
        Content::Lldp(content) => lldp(content),
        Content::Tcp(..) | Content::Other(_) => {}
    }
    // The same without Ethernet, as other link layers hand it over.
    let content = &bytes[view.ethernet.len()..];
    assert_eq!(
        Content::parse(view.ethernet.ether_type, content),
        Ok(view.content)
    );
}

/// Where an Identification is found, it makes the ICRC right.
fn identification(roce: &RoceView<'_>) {
    let prefix = roce.framing().icrc_prefix();
    let computed = prefix.compute(roce.ib(), 0);
    let received = roce.icrc_received();
    if let Some(id) = solve_ipv4_id(computed, 0, received, roce.ib().len() + 4)
        && let Framing::V2 {
            ip: IpHeader::V4(_),
            ..
        } = roce.framing()
    {
        assert_eq!(prefix.compute(roce.ib(), id), received);
    }
}

/// Any bytes as BTH and what follows. View and headers agree; headers survive being written.
pub(crate) fn headers(ib: &[u8]) {
    let view = IbView::new(ib);
    let (headers, payload) = match Headers::parse(ib) {
        Ok(parsed) => parsed,
        Err(error) => {
            // The view still reads what is there.
            assert_eq!(view.opcode_byte(), ib.first().copied());
            assert_eq!(view.psn().is_some(), ib.len() >= 12);
            if let ParseError::UnknownOpcode(opcode) = error {
                assert_eq!(view.opcode_byte(), Some(opcode));
                assert_eq!(view.opcode(), None);
            }
            return refused(error);
        }
    };
    let (bth, ext) = (headers.bth(), headers.ext());
    assert_eq!(view.opcode(), Some(bth.opcode));
    assert_eq!(view.solicited(), Some(bth.solicited));
    assert_eq!(view.migrated(), Some(bth.migrated));
    assert_eq!(view.pad(), Some(bth.pad));
    assert_eq!(view.tver(), Some(0));
    assert_eq!(view.pkey(), Some(bth.pkey));
    assert_eq!(view.fecn(), Some(bth.fecn));
    assert_eq!(view.becn(), Some(bth.becn));
    assert_eq!(view.dest_qp(), Some(bth.dest_qp));
    assert_eq!(view.ack_req(), Some(bth.ack_req));
    assert_eq!(view.psn(), Some(bth.psn));
    assert_eq!(view.xrc_srqn(), headers.xrc_srqn());
    assert_eq!(view.reth(), ext.reth());
    assert_eq!(view.aeth(), ext.aeth());
    assert_eq!(view.deth(), ext.deth());
    assert_eq!(view.imm(), ext.imm());
    let atomic = if let Ext::Atomic(atomic) = ext {
        Some(*atomic)
    } else {
        None
    };
    assert_eq!(view.atomic_eth(), atomic);
    let original = if let Ext::AtomicAck(_, original) = ext {
        Some(*original)
    } else {
        None
    };
    assert_eq!(view.atomic_original(), original);
    let invalidate = if let Ext::Ieth(rkey) = ext {
        Some(*rkey)
    } else {
        None
    };
    assert_eq!(view.ieth(), invalidate);
    assert_eq!(view.feth().is_some(), matches!(ext, Ext::Flush(..)));
    assert_eq!(view.payload(), Some(payload));

    assert_eq!(Headers::new(*bth, headers.xrc_srqn(), *ext), Some(headers));
    assert_eq!(headers.with_payload_len(payload.len()), headers);
    assert_eq!(
        headers.len() + payload.len() + usize::from(bth.pad),
        ib.len()
    );
    assert!(headers.len() <= Headers::MAX_LEN);
    let mut written = ib.to_vec();
    assert_eq!(headers.emit(&mut written), headers.len());
    assert_eq!(Headers::parse(&written), Ok((headers, payload)));
    assert!(headers.to_string().starts_with(bth.opcode.name()));
}

/// Any bytes as a management datagram.
pub(crate) fn mad(bytes: &[u8]) {
    match Mad::parse(bytes) {
        Ok(mad) => {
            let written = mad.to_bytes();
            assert_eq!(Mad::parse(&written), Ok(mad));
            assert_eq!(written[24..], bytes[24..]);
            assert_eq!(mad.cm().is_some(), mad.cm_attribute().is_some());
        }
        Err(error) => refused(error),
    }
}

/// Any bytes as a MAC control frame's content.
pub(crate) fn mac_control(content: &[u8]) {
    match MacControl::parse(content) {
        Ok(control) => {
            let frame = control.to_frame(MacAddr::default());
            let view = FrameView::parse(&frame).expect("our own frame");
            assert_eq!(view.ethernet.ether_type, EtherType::MAC_CONTROL);
            let Content::MacControl(content) = view.content else {
                panic!("{view:?}")
            };
            assert_eq!(MacControl::parse(content), Ok(control));
        }
        Err(error) => refused(error),
    }
}

/// Any bytes as an LLDP data unit. What is accepted is read the same after it was written again.
pub(crate) fn lldp(content: &[u8]) {
    let lldp = match Lldp::parse(content) {
        Ok(lldp) => lldp,
        Err(error) => return refused(error),
    };
    assert!(lldp.tlvs().map(|tlv| tlv.value.len() + 2).sum::<usize>() <= content.len());
    let chassis = lldp.chassis_mac().unwrap_or_default();
    let port = lldp.port_mac().unwrap_or_default();
    let mut written = vec![0xaa; 30 + content.len()];
    let mut writer = LldpWriter::new(&mut written, chassis, port, lldp.ttl_s);
    for tlv in lldp.tlvs() {
        match tlv.dcbx().expect("checked when the data unit was") {
            None => writer.tlv(tlv.kind, &[tlv.value]),
            Some(Dcbx::EtsConfiguration(ets)) => writer.ets_configuration(&ets),
            Some(Dcbx::EtsRecommendation(table)) => writer.ets_recommendation(&table),
            Some(Dcbx::Pfc(pfc)) => writer.pfc(&pfc),
            Some(Dcbx::ApplicationPriority(table)) => {
                writer.application_priorities(&table.iter().collect::<Vec<_>>());
            }
        }
    }
    let len = writer.finish();
    let again = Lldp::parse(&written[..len]).expect("our own data unit");
    assert_eq!(
        (again.chassis_mac(), again.port_mac()),
        (Some(chassis), Some(port))
    );
    assert_eq!(again.ttl_s, lldp.ttl_s);
    assert_eq!(again.tlvs().count(), lldp.tlvs().count());
    let (mut ours, mut theirs) = (again.dcbx(), lldp.dcbx());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => break,
            (Some(Dcbx::ApplicationPriority(a)), Some(Dcbx::ApplicationPriority(b))) => {
                assert!(a.iter().eq(b.iter()));
            }
            (a, b) => assert_eq!(a, b),
        }
    }
}

/// A refusal has a name that a counter can carry and a sentence for people.
fn refused(error: ParseError) {
    assert!(
        error
            .reason()
            .bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    );
    assert!(!error.to_string().is_empty());
}
