//! Properties of all legal headers and frames, and of all bytes.

use core::net::{Ipv4Addr, Ipv6Addr};

use hirail_wire::ethernet::VlanTag;
use hirail_wire::grh::Grh;
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header};
use hirail_wire::*;
use proptest::array::{uniform4, uniform6, uniform16};
use proptest::collection::vec;
use proptest::prelude::*;

mod checks;

fn opcode() -> impl Strategy<Value = Opcode> {
    let all: Vec<Opcode> = (0..=u8::MAX).filter_map(Opcode::from_u8).collect();
    prop::sample::select(all)
}

fn reth() -> impl Strategy<Value = Reth> {
    let parts = any::<(u64, u32, u32)>();
    parts.prop_map(|(va, rkey, length)| Reth {
        va,
        rkey: Rkey::new(rkey),
        length,
    })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let parts = any::<(u8, u32)>();
    parts.prop_map(|(byte, msn)| Aeth {
        syndrome: Syndrome::from_u8(byte),
        msn: Msn::new(msn),
    })
}

fn deth() -> impl Strategy<Value = Deth> {
    let parts = any::<(u32, u32)>();
    parts.prop_map(|(qkey, qp)| Deth {
        qkey: QKey(qkey),
        source_qp: Qpn::new(qp),
    })
}

fn ext(kind: ExtKind) -> BoxedStrategy<Ext> {
    let imm = || uniform4(any::<u8>());
    match kind {
        ExtKind::None => Just(Ext::None).boxed(),
        ExtKind::Imm => imm().prop_map(Ext::Imm).boxed(),
        ExtKind::Ieth => any::<u32>()
            .prop_map(|rkey| Ext::Ieth(Rkey::new(rkey)))
            .boxed(),
        ExtKind::Reth => reth().prop_map(Ext::Reth).boxed(),
        ExtKind::RethImm => (reth(), imm())
            .prop_map(|(reth, imm)| Ext::RethImm(reth, imm))
            .boxed(),
        ExtKind::Atomic => any::<(u64, u32, u64, u64)>()
            .prop_map(|(va, rkey, swap_or_add, compare)| {
                Ext::Atomic(AtomicEth {
                    va,
                    rkey: Rkey::new(rkey),
                    swap_or_add,
                    compare,
                })
            })
            .boxed(),
        ExtKind::Aeth => aeth().prop_map(Ext::Aeth).boxed(),
        ExtKind::AtomicAck => (aeth(), any::<u64>())
            .prop_map(|(aeth, original)| Ext::AtomicAck(aeth, original))
            .boxed(),
        ExtKind::Deth => deth().prop_map(Ext::Deth).boxed(),
        ExtKind::DethImm => (deth(), imm())
            .prop_map(|(deth, imm)| Ext::DethImm(deth, imm))
            .boxed(),
        ExtKind::Flush => (any::<(bool, bool, bool)>(), reth())
            .prop_map(|((whole, global, persistent), reth)| {
                let range = if whole {
                    FlushRange::WholeRegion
                } else {
                    FlushRange::Range
                };
                Ext::Flush(
                    Feth {
                        range,
                        global,
                        persistent,
                    },
                    reth,
                )
            })
            .boxed(),
        ExtKind::Cnp => Just(Ext::Cnp).boxed(),
        ExtKind::Hello => any::<(u8, u8, u16, u32)>()
            .prop_map(|(version, flags, window_packets, nonce)| {
                Ext::Hello(Hello {
                    version,
                    flags,
                    window_packets,
                    nonce,
                })
            })
            .boxed(),
        ExtKind::Sack => (any::<u32>(), uniform4(any::<u64>()), any::<bool>())
            .prop_map(|(psn, bitmap, response)| {
                Ext::Sack(Sack {
                    cumulative: Psn::new(psn),
                    bitmap,
                    response,
                })
            })
            .boxed(),
    }
}

/// Legal headers and a payload that fits them.
fn packet() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    opcode()
        .prop_flat_map(|opcode| {
            let flags = any::<(bool, bool, bool, bool, bool)>();
            let numbers = any::<(u16, u32, u32, u32)>();
            let longest = if opcode.operation().has_payload() {
                300
            } else {
                0
            };
            (
                Just(opcode),
                flags,
                numbers,
                ext(opcode.ext_kind()),
                vec(any::<u8>(), 0..=longest),
            )
        })
        .prop_map(|(opcode, flags, (pkey, qp, psn, srqn), ext, payload)| {
            let (solicited, migrated, fecn, becn, ack_req) = flags;
            let bth = Bth {
                solicited,
                migrated,
                fecn,
                becn,
                ack_req,
                pkey: PKey(pkey),
                ..Bth::new(opcode, Qpn::new(qp), Psn::new(psn))
            };
            let srqn = opcode.has_xrceth().then_some(srqn >> 8);
            let headers = Headers::new(bth, srqn, ext).expect("a legal combination");
            (headers.with_payload_len(payload.len()), payload)
        })
}

fn encapsulation() -> impl Strategy<Value = Encapsulation> {
    let ipv4 = (
        any::<(u8, u16, bool, u8)>(),
        uniform4(any::<u8>()),
        uniform4(any::<u8>()),
    );
    let ipv4 = ipv4.prop_map(|((traffic_class, id, dont_fragment, ttl), source, dest)| {
        IpHeader::V4(Ipv4Header {
            traffic_class,
            id,
            dont_fragment,
            ttl,
            protocol: 17,
            source: Ipv4Addr::from_octets(source),
            dest: Ipv4Addr::from_octets(dest),
        })
    });
    let long = || {
        (
            any::<(u8, u32, u8)>(),
            uniform16(any::<u8>()),
            uniform16(any::<u8>()),
        )
    };
    let ipv6 = long().prop_map(|((traffic_class, flow_label, hop_limit), source, dest)| {
        IpHeader::V6(Ipv6Header {
            traffic_class,
            flow_label: flow_label >> 12,
            next_header: 17,
            hop_limit,
            source: Ipv6Addr::from_octets(source),
            dest: Ipv6Addr::from_octets(dest),
        })
    });
    let v1 = long().prop_map(|((traffic_class, flow_label, hop_limit), sgid, dgid)| {
        let flow_label = flow_label >> 12;
        let (sgid, dgid) = (Gid(sgid), Gid(dgid));
        Framing::V1(Grh {
            traffic_class,
            flow_label,
            hop_limit,
            sgid,
            dgid,
        })
    });
    let v2 = (prop_oneof![ipv4, ipv6], any::<(u16, bool)>());
    let v2 = v2.prop_map(|(ip, (source_port, udp_checksum))| Framing::V2 {
        ip,
        source_port,
        udp_checksum,
    });
    let tag = prop::option::of(any::<(u8, bool, u16)>()).prop_map(|tag| {
        tag.map(|(priority, drop_eligible, vlan)| VlanTag {
            priority: priority >> 5,
            drop_eligible,
            vlan: vlan >> 4,
        })
    });
    (
        uniform6(any::<u8>()),
        uniform6(any::<u8>()),
        tag,
        prop_oneof![v1, v2],
    )
        .prop_map(|(dest, source, tag, framing)| Encapsulation {
            dest: MacAddr(dest),
            source: MacAddr(source),
            tag,
            framing,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers_are_read_as_written((headers, payload) in packet()) {
        let pad = usize::from(headers.bth().pad);
        let mut ib = vec![0xaa; headers.len()];
        prop_assert_eq!(headers.emit(&mut ib), headers.len());
        ib.extend_from_slice(&payload);
        ib.resize(ib.len() + pad, 0);
        prop_assert_eq!(ib.len() + 4, headers.ib_len(payload.len()));
        prop_assert_eq!(Headers::parse(&ib), Ok((headers, &payload[..])));
        checks::headers(&ib);
        for len in 0..ib.len() {
            if let Ok((shorter, rest)) = Headers::parse(&ib[..len]) {
                // Only payload can go missing unseen, whole words of it.
                prop_assert_eq!(shorter, headers);
                prop_assert!(rest.len() < payload.len() + pad);
            }
        }
    }

    #[test]
    fn frames_are_read_as_written(
        encapsulation in encapsulation(),
        (headers, payload) in packet(),
    ) {
        let mut frame = vec![0xaa; encapsulation.frame_len(&headers, payload.len())];
        let len = encapsulation.emit_frame(&headers, &payload, &mut frame);
        prop_assert_eq!(len, frame.len());
        let view = FrameView::parse(&frame).expect("our own frame");
        prop_assert_eq!(view.encapsulation(), Some(encapsulation));
        let roce = view.roce().expect("RoCE");
        prop_assert_eq!(roce.headers(), Ok((headers, &payload[..])));
        prop_assert!(roce.icrc_is_right());
        let checksum = matches!(encapsulation.framing, Framing::V2 { udp_checksum: true, .. });
        prop_assert_eq!(roce.udp_checksum_is_right(), checksum.then_some(true));
        for len in 0..frame.len() {
            prop_assert!(FrameView::parse(&frame[..len]).is_err());
        }
        checks::frame(&frame);
    }

    /// Burst errors up to 32 bits long and odd numbers of bit errors within the IB part.
    #[test]
    fn corruption_is_found(
        encapsulation in encapsulation(),
        (headers, payload) in packet(),
        at in any::<prop::sample::Index>(),
        burst in uniform4(any::<u8>()).prop_filter("some change", |burst| *burst != [0; 4]),
    ) {
        let mut frame = vec![0; encapsulation.frame_len(&headers, payload.len())];
        encapsulation.emit_frame(&headers, &payload, &mut frame);
        // Behind the congestion byte, which is not covered.
        let from = encapsulation.len() + 5;
        let at = from + at.index(frame.len() - from - 3);
        for (byte, change) in frame[at..].iter_mut().zip(burst) {
            *byte ^= change;
        }
        let view = FrameView::parse(&frame).expect("the network header is whole");
        prop_assert!(!view.roce().expect("RoCE").icrc_is_right());
    }

    #[test]
    fn any_bytes_are_sorted_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        checks::frame(&bytes);
        checks::headers(&bytes);
        checks::mad(&bytes);
        checks::mac_control(&bytes);
        checks::lldp(&bytes);
    }
}
