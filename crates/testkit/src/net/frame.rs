//! Between what the engine offers and whole Ethernet frames: every packet of a test goes through
//! bytes, ICRC included.

use hirail_rnic::transmit::{Flow, Run, Segment, TxPacket};
use hirail_rnic::{Fault, PacketMeta, RoceVersion, drop_reason};
use hirail_vocab::DropReason;
use hirail_wire::ethernet::VlanTag;
use hirail_wire::grh::Grh;
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use hirail_wire::{Encapsulation, FrameView, Framing, Headers, MacAddr};
use std::net::IpAddr;

use crate::SingleHost;

/// Everything in front of the BTH for packets of `flow`.
pub fn encapsulation(flow: &Flow, version: RoceVersion, source: MacAddr) -> Encapsulation {
    let framing = match (version, flow.source.to_ip(), flow.destination.to_ip()) {
        (RoceVersion::V1, ..) => Framing::V1(Grh {
            traffic_class: flow.traffic_class,
            flow_label: flow.flow_label,
            hop_limit: flow.hop_limit,
            sgid: flow.source,
            dgid: flow.destination,
        }),
        (RoceVersion::V2, IpAddr::V4(source), IpAddr::V4(dest)) => v2(
            flow,
            IpHeader::V4(Ipv4Header {
                traffic_class: flow.traffic_class,
                id: 0,
                dont_fragment: true,
                ttl: flow.hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                dest,
            }),
        ),
        (RoceVersion::V2, source, dest) => v2(
            flow,
            IpHeader::V6(Ipv6Header {
                traffic_class: flow.traffic_class,
                flow_label: flow.flow_label,
                next_header: PROTOCOL_UDP,
                hop_limit: flow.hop_limit,
                source: as_v6(source),
                dest: as_v6(dest),
            }),
        ),
    };
    let dest = if flow.destination.is_multicast() {
        MacAddr::of_group(flow.destination)
    } else {
        MacAddr(flow.destination_mac)
    };
    Encapsulation {
        dest,
        source,
        tag: (flow.priority > 0).then_some(VlanTag {
            priority: flow.priority,
            drop_eligible: false,
            vlan: 0,
        }),
        framing,
    }
}

fn v2(flow: &Flow, ip: IpHeader) -> Framing {
    Framing::V2 {
        ip,
        source_port: flow.udp_source_port,
        udp_checksum: false,
    }
}

fn as_v6(ip: IpAddr) -> std::net::Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Writes a packet of a run as a frame into `frame`; `payload` is scratch space.
///
/// # Errors
///
/// The memory that the payload comes from is gone.
pub fn emit(
    run: &Run<SingleHost>,
    packet: &TxPacket,
    encapsulation: &Encapsulation,
    payload: &mut Vec<u8>,
    frame: &mut Vec<u8>,
) -> Result<(), Fault> {
    payload.clear();
    for segment in run.segments(packet) {
        let at = payload.len();
        match segment {
            Segment::Memory(slice) => {
                payload.resize(at + slice.len() as usize, 0);
                slice.read_bytes(0, &mut payload[at..])?;
            }
            Segment::Inline { start, len } => {
                payload.extend_from_slice(&run.inline_bytes()[*start..start + len]);
            }
        }
    }
    assert_eq!(
        payload.len(),
        packet.payload_len as usize,
        "{}",
        packet.headers
    );
    emit_headers(&packet.headers, payload, encapsulation, frame);
    Ok(())
}

/// Writes a packet of these headers and payload as a frame into `frame`.
pub fn emit_headers(
    headers: &Headers,
    payload: &[u8],
    encapsulation: &Encapsulation,
    frame: &mut Vec<u8>,
) {
    frame.clear();
    frame.resize(encapsulation.frame_len(headers, payload.len()), 0);
    encapsulation.emit_frame(headers, payload, frame);
}

/// Reads a frame that arrived: what the network layer says, the headers and the payload.
///
/// # Errors
///
/// Why it is none of the engine's business.
pub fn parse(frame: &[u8]) -> Result<(PacketMeta, Headers, &[u8]), DropReason> {
    let view = FrameView::parse(frame).map_err(drop_reason)?;
    let roce = view.roce().ok_or(DropReason::BadHeader)?;
    if !roce.icrc_is_right() {
        return Err(DropReason::BadIcrc);
    }
    let (headers, payload) = roce.headers().map_err(drop_reason)?;
    let framing = roce.framing();
    let meta = PacketMeta {
        source: framing.source(),
        destination: framing.dest(),
        traffic_class: framing.traffic_class(),
        hop_limit: framing.hop_limit(),
        priority: view.ethernet.tag.map_or(0, |tag| tag.priority),
        is_roce_v1: matches!(framing, Framing::V1(_)),
    };
    Ok((meta, headers, payload))
}

/// Sets the ECN bits of a frame to congestion experienced, as a switch does, if its sender takes
/// part in ECN at all.
pub fn mark(frame: &mut [u8]) {
    const CE: u8 = 3;
    let Ok(view) = FrameView::parse(frame) else {
        return;
    };
    let Some(mut encapsulation) = view.encapsulation() else {
        return;
    };
    let class = match &mut encapsulation.framing {
        Framing::V1(grh) => &mut grh.traffic_class,
        Framing::V2 {
            ip: IpHeader::V4(ip),
            ..
        } => &mut ip.traffic_class,
        Framing::V2 {
            ip: IpHeader::V6(ip),
            ..
        } => &mut ip.traffic_class,
    };
    if *class & 3 == 0 {
        return;
    }
    *class |= CE;
    let ib_len = frame.len() - encapsulation.len();
    encapsulation.emit(ib_len, frame);
}
