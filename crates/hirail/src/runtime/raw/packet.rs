//! Packets and frames: one built from the other in both directions.

use std::net::IpAddr;

use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Flow, Run, TxPacket};
use hirail_rnic::{PacketMeta, RoceVersion};
use hirail_vocab::{Counter, DropReason};
use hirail_wire::ethernet::VlanTag;
use hirail_wire::grh::Grh;
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use hirail_wire::{Encapsulation, FrameView, Framing, IcrcPrefix};

use super::open::RoceVersions;
use crate::port::raw::{Frame, segments};
use crate::runtime::link::{Arrival, Sink};
use crate::runtime::{Threads, udp};

/// Hops where the user gave none.
const HOP_LIMIT: u8 = 64;

/// Everything that the frames of a run share.
pub(super) struct Route {
    pub(super) encapsulation: Encapsulation,
    pub(super) prefix: IcrcPrefix,
    pub(super) priority: u8,
    /// Whom to ask for, where the Ethernet destination is not known.
    pub(super) pending: Option<(IpAddr, IpAddr)>,
}

/// Network headers of a flow; nothing where its addresses are of two kinds.
pub(super) fn framing(flow: &Flow, version: RoceVersion) -> Option<Framing> {
    let hop_limit = if flow.hop_limit == 0 {
        HOP_LIMIT
    } else {
        flow.hop_limit
    };
    if version == RoceVersion::V1 {
        return Some(Framing::V1(Grh {
            traffic_class: flow.traffic_class,
            flow_label: flow.flow_label,
            hop_limit,
            sgid: flow.source,
            dgid: flow.destination,
        }));
    }
    let (ip, udp_checksum) = match (flow.source.to_ip(), flow.destination.to_ip()) {
        // An atomic datagram needs no Identification (RFC 6864), and 0 is what a socket would send.
        // The ICRC protects it better than a UDP checksum, which IPv4 does not ask for.
        (IpAddr::V4(source), IpAddr::V4(dest)) => (
            IpHeader::V4(Ipv4Header {
                traffic_class: flow.traffic_class,
                id: 0,
                dont_fragment: true,
                ttl: hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                dest,
            }),
            false,
        ),
        // Sockets refuse datagrams without one over IPv6.
        (IpAddr::V6(source), IpAddr::V6(dest)) => (
            IpHeader::V6(Ipv6Header {
                traffic_class: flow.traffic_class,
                flow_label: flow.flow_label,
                next_header: PROTOCOL_UDP,
                hop_limit,
                source,
                dest,
            }),
            true,
        ),
        _ => return None,
    };
    Some(Framing::V2 {
        ip,
        source_port: flow.udp_source_port,
        udp_checksum,
    })
}

/// Puts a packet together in a buffer of its length.
pub(super) fn build(
    route: &Route,
    run: &Run<Threads>,
    packet: &TxPacket,
    frame: &mut [u8],
) -> Result<(), Fault> {
    let ib_len = packet.wire_len() + 4;
    let ib_at = route.encapsulation.emit(ib_len, frame);
    let ib = &mut frame[ib_at..];
    packet.headers.emit(ib);
    let (header, rest) = ib.split_at_mut(packet.headers.len());
    let (payload, rest) = rest.split_at_mut(packet.payload_len as usize);
    let (pad, trailer) = rest.split_at_mut(rest.len() - 4);
    let mut icrc = route.prefix.start(ib_len, 0);
    icrc.update_ib(header);
    udp::gather(run, packet, payload, &mut icrc)?;
    pad.fill(0);
    icrc.update(pad);
    trailer.copy_from_slice(&icrc.finish());
    route.encapsulation.set_udp_checksum(frame);
    Ok(())
}

/// Hands the packets in what arrived to `f`.
pub(super) fn for_each_packet(
    frame: Frame<'_>,
    sink: &mut dyn Sink,
    mut f: impl FnMut(&[u8], &mut dyn Sink),
) {
    if frame.is_cut {
        sink.refused(DropReason::Oversized);
        return;
    }
    match frame.segment {
        None => f(frame.bytes, sink),
        Some(segment) => segments::split(frame.bytes, segment, |bytes| f(bytes, sink)),
    }
}

/// Checks a packet and hands it on.
pub(super) fn deliver(
    bytes: &[u8],
    tag: Option<VlanTag>,
    versions: RoceVersions,
    sink: &mut dyn Sink,
) {
    let view = match FrameView::parse(bytes) {
        Ok(view) => view,
        Err(error) => {
            sink.refused(hirail_rnic::drop_reason(error));
            return;
        }
    };
    let Some(roce) = view.roce() else { return };
    let framing = roce.framing();
    // Without a tag the DSCP tells the priority, as switches see it.
    let priority = tag.map_or(framing.traffic_class() >> 5, |tag| tag.priority);
    let octets = bytes.len() + if tag.is_some() { 4 } else { 0 };
    sink.count(Counter::rx_prio_packets(priority), 1);
    sink.count(Counter::rx_prio_bytes(priority), octets as u64);
    let is_roce_v1 = matches!(framing, Framing::V1(_));
    let version = if is_roce_v1 {
        RoceVersion::V1
    } else {
        RoceVersion::V2
    };
    if !versions.has(version) {
        sink.refused(DropReason::NotOurAddress);
        return;
    }
    if !roce.icrc_is_right() {
        sink.refused(DropReason::BadIcrc);
        return;
    }
    let meta = PacketMeta {
        source: framing.source(),
        destination: framing.dest(),
        traffic_class: framing.traffic_class(),
        hop_limit: framing.hop_limit(),
        priority: tag.map_or(0, |tag| tag.priority),
        is_roce_v1,
    };
    sink.packet(Arrival {
        meta,
        ib: roce.ib(),
    });
}
