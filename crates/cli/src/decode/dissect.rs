//! One captured packet, taken apart by `wire`'s parsers. Nothing here depends on other packets.
//!
//! What `wire` refuses is still shown as far as it can be read, with the reason of the refusal:
//! that is the packet somebody wants to see.

use std::net::IpAddr;

use hirail_wire::ethernet::{EtherType, EthernetHeader};
use hirail_wire::frame::Content;
use hirail_wire::grh::Grh;
use hirail_wire::ip::{Ecn, IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use hirail_wire::iwarp::TcpHeader;
use hirail_wire::lldp::Lldp;
use hirail_wire::mac_control::MacControl;
use hirail_wire::mad::Mad;
use hirail_wire::pcap::LinkType;
use hirail_wire::udp::{ROCE_PORT, UdpHeader};
use hirail_wire::view::{IbView, field};
use hirail_wire::{FrameView, Framing, Headers, Icrc, Operation, ParseError, Qpn, Service};

/// A packet as it was captured: what it begins with, its bytes, and how many there were.
#[derive(Clone, Copy)]
pub(super) struct Captured<'a> {
    pub(super) link_type: LinkType,
    pub(super) data: &'a [u8],
    pub(super) original_len: u32,
}

/// A packet taken apart.
pub(super) struct Dissection<'a> {
    /// Absent where the capture begins with another header.
    pub(super) ethernet: Option<EthernetHeader>,
    pub(super) content: Body<'a>,
    /// Why the packet would be refused by who receives it.
    pub(super) refused: Option<ParseError>,
}

pub(super) enum Body<'a> {
    Roce(Roce<'a>),
    Tcp(Tcp<'a>),
    MacControl(MacControl),
    Lldp(Lldp<'a>),
    /// Something else under IP: the protocol, and the ports where it is UDP.
    Ip(IpHeader, Option<(u16, u16)>),
    /// Something else on Ethernet.
    Other(EtherType),
    /// Too short or too strange for its first header.
    Undecoded,
}

/// A RoCE packet.
pub(super) struct Roce<'a> {
    pub(super) framing: Framing,
    /// UDP checksum and length fields; version 2 only.
    pub(super) udp: Option<Udp>,
    /// All fields that can be read.
    pub(super) view: IbView<'a>,
    /// Headers, if they are legal.
    pub(super) headers: Option<Headers>,
    /// Bytes of payload on the wire, of which the capture may hold less.
    pub(super) payload_len: usize,
    pub(super) icrc: IcrcCheck,
    /// A management datagram to QP1.
    pub(super) mad: Option<Mad<'a>>,
}

#[derive(Clone, Copy)]
pub(super) struct Udp {
    pub(super) length: u16,
    pub(super) checksum: u16,
}

/// What an ICRC says. The bytes are in wire order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IcrcCheck {
    Ok([u8; 4]),
    Bad {
        received: [u8; 4],
        computed: [u8; 4],
    },
    /// The capture does not hold all that the ICRC covers.
    Unknown,
}

/// A TCP segment.
pub(super) struct Tcp<'a> {
    pub(super) ip: IpHeader,
    /// Bytes behind the IP header.
    pub(super) length: u16,
    pub(super) header: TcpHeader,
    pub(super) payload: &'a [u8],
}

impl<'a> Dissection<'a> {
    /// Takes a packet apart. `scratch` holds an Ethernet header in front of what was captured
    /// without one.
    pub(super) fn new(captured: Captured<'a>, scratch: &'a mut Vec<u8>) -> Self {
        let (frame, has_ethernet) = match captured.link_type {
            LinkType::ETHERNET => (captured.data, true),
            _ => match network_packet(captured.link_type, captured.data) {
                Some((ether_type, packet)) => {
                    scratch.clear();
                    scratch.extend([0; 12]);
                    scratch.extend(ether_type.0.to_be_bytes());
                    scratch.extend(packet);
                    (scratch.as_slice(), false)
                }
                None => {
                    return Self {
                        ethernet: None,
                        content: Body::Undecoded,
                        refused: None,
                    };
                }
            },
        };
        let cut = captured.data.len() < captured.original_len as usize;
        let mut dissection = match FrameView::parse(frame) {
            Ok(view) => Self::from_view(&view, frame),
            // A frame that the capture cut is not refused by anybody.
            Err(error) => Self {
                refused: (!cut).then_some(error),
                ..Self::salvage(frame)
            },
        };
        if !has_ethernet {
            dissection.ethernet = None;
        }
        dissection
    }

    fn from_view(view: &FrameView<'a>, frame: &'a [u8]) -> Self {
        let rest = &frame[view.ethernet.len()..];
        let mut refused = None;
        let mut or_refused = |error| {
            refused = Some(error);
            Body::Undecoded
        };
        let content = match view.content {
            Content::Roce(roce) => {
                let headers = roce.headers().map_err(|error| refused = Some(error)).ok();
                let (received, computed) = (roce.icrc_received(), roce.icrc_computed());
                let icrc = if received == computed {
                    IcrcCheck::Ok(received)
                } else {
                    IcrcCheck::Bad { received, computed }
                };
                let framing = *roce.framing();
                Body::Roce(Roce::new(framing, rest, roce.view(), headers, icrc))
            }
            Content::Tcp(ip, segment) => match TcpHeader::parse(segment) {
                Ok((header, payload)) => Body::Tcp(Tcp {
                    ip,
                    length: u16::try_from(segment.len()).unwrap_or(u16::MAX),
                    header,
                    payload,
                }),
                Err(_) => Body::Ip(ip, None),
            },
            Content::MacControl(content) => {
                MacControl::parse(content).map_or_else(&mut or_refused, Body::MacControl)
            }
            Content::Lldp(content) => Lldp::parse(content).map_or_else(or_refused, Body::Lldp),
            Content::Other(packet) => other(view.ethernet.ether_type, packet),
        };
        Self {
            ethernet: Some(view.ethernet),
            content,
            refused,
        }
    }

    /// What can be read of a frame that is refused or cut off.
    fn salvage(frame: &'a [u8]) -> Self {
        let Ok((ethernet, packet)) = EthernetHeader::parse(frame) else {
            return Self {
                ethernet: None,
                content: Body::Undecoded,
                refused: None,
            };
        };
        let roce = match ethernet.ether_type {
            EtherType::ROCE_V1 => salvage_v1(packet),
            EtherType::IPV4 | EtherType::IPV6 => salvage_v2(packet),
            _ => None,
        };
        let content = match roce {
            Some(roce) => Body::Roce(roce),
            None => other(ethernet.ether_type, packet),
        };
        Self {
            ethernet: Some(ethernet),
            content,
            refused: None,
        }
    }

    /// Source and destination, where the packet has any.
    pub(super) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match &self.content {
            Body::Roce(roce) => Some((roce.source(), roce.dest())),
            Body::Tcp(Tcp { ip, .. }) | Body::Ip(ip, _) => Some((ip.source(), ip.dest())),
            _ => None,
        }
    }

    /// What its ICRC says; [`IcrcCheck::Unknown`] where there is none.
    pub(super) fn icrc(&self) -> IcrcCheck {
        match &self.content {
            Body::Roce(roce) => roce.icrc,
            _ => IcrcCheck::Unknown,
        }
    }
}

impl<'a> Roce<'a> {
    /// A packet with headers and payload, if they are legal; else with what can be read.
    fn new(
        framing: Framing,
        packet: &[u8],
        view: IbView<'a>,
        parsed: Option<(Headers, &'a [u8])>,
        icrc: IcrcCheck,
    ) -> Self {
        let udp = match framing {
            Framing::V1(_) => None,
            Framing::V2 { ip, .. } => packet.get(ip.len()..).and_then(|udp| {
                let &[_, _, _, _, l0, l1, c0, c1] = udp.first_chunk()?;
                let (length, checksum) = ([l0, l1], [c0, c1]);
                Some(Udp {
                    length: u16::from_be_bytes(length),
                    checksum: u16::from_be_bytes(checksum),
                })
            }),
        };
        let payload = parsed.map(|(_, payload)| payload).or(view.payload());
        let headers = parsed.map(|(headers, _)| headers);
        let to_gsi = headers.is_some_and(|headers| {
            headers.bth().dest_qp == Qpn::GSI && headers.opcode().service() == Service::Ud
        });
        let mad = payload
            .filter(|_| to_gsi)
            .and_then(|payload| Mad::parse(payload).ok());
        let payload_len = payload.map_or(0, <[u8]>::len);
        Self {
            framing,
            udp,
            view,
            headers,
            payload_len,
            icrc,
            mad,
        }
    }

    /// A packet of which the capture holds only the beginning. `len` are its bytes from BTH to
    /// ICRC.
    fn cut_off(framing: Framing, packet: &[u8], ib: &'a [u8], len: usize) -> Self {
        let view = IbView::new(ib);
        let mut roce = Self::new(framing, packet, view, None, IcrcCheck::Unknown);
        let parsed = view.opcode().zip(view.pad()).and_then(|(opcode, pad)| {
            // The headers alone are legal without the pad, which is behind the payload.
            let mut bytes = [0; Headers::MAX_LEN];
            let bytes = &mut bytes[..opcode.header_len()];
            bytes.copy_from_slice(ib.get(..opcode.header_len())?);
            bytes[field::FLAGS] &= !0x30;
            let (headers, _) = Headers::parse(bytes).ok()?;
            let payload_len = len.checked_sub(opcode.header_len() + usize::from(pad) + 4)?;
            Some((headers.with_pad(pad), payload_len))
        });
        if let Some((headers, payload_len)) = parsed {
            roce.headers = Some(headers);
            roce.payload_len = payload_len;
        }
        roce
    }

    pub(super) fn source(&self) -> IpAddr {
        self.framing.source().to_ip()
    }

    pub(super) fn dest(&self) -> IpAddr {
        self.framing.dest().to_ip()
    }

    pub(super) fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.framing.traffic_class())
    }

    /// The operation, where the opcode is a defined one.
    pub(super) fn operation(&self) -> Option<Operation> {
        self.view.opcode().map(|opcode| opcode.operation())
    }
}

/// What `wire` sorts under "others".
fn other<'a>(ether_type: EtherType, packet: &'a [u8]) -> Body<'a> {
    let Some((ip, payload)) = read_ip(ether_type, packet) else {
        return Body::Other(ether_type);
    };
    let ports = match (ip.protocol(), payload) {
        (PROTOCOL_UDP | PROTOCOL_TCP, &[s0, s1, d0, d1, ..]) => {
            Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
        }
        _ => None,
    };
    Body::Ip(ip, ports)
}

/// The IP header of a packet as it is, and what follows it, which may be cut off.
fn read_ip(ether_type: EtherType, packet: &[u8]) -> Option<(IpHeader, &[u8])> {
    match ether_type {
        EtherType::IPV4 => {
            let (header, _) = packet.split_first_chunk()?;
            let words = usize::from(header[0] & 15);
            Some((
                IpHeader::V4(Ipv4Header::read(header)),
                packet.get(words.max(5) * 4..)?,
            ))
        }
        EtherType::IPV6 => {
            let (header, rest) = packet.split_first_chunk()?;
            Some((IpHeader::V6(Ipv6Header::read(header)), rest))
        }
        _ => None,
    }
}

/// RoCE v2 in a frame that is refused: a header may be wrong, or the end missing.
fn salvage_v2(packet: &[u8]) -> Option<Roce<'_>> {
    let ether_type = match packet.first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    let (ip, segment) = read_ip(ether_type, packet)?;
    let (&udp @ [s0, s1, d0, d1, l0, l1, c0, c1], ib) = segment.split_first_chunk::<8>()?;
    if ip.protocol() != PROTOCOL_UDP || u16::from_be_bytes([d0, d1]) != ROCE_PORT {
        return None;
    }
    let framing = Framing::V2 {
        ip,
        source_port: u16::from_be_bytes([s0, s1]),
        udp_checksum: [c0, c1] != [0, 0],
    };
    let len = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(UdpHeader::LEN)?;
    Some(salvage_ib(framing, packet, ib, len, |icrc| {
        match packet.first_chunk() {
            Some(header) if matches!(ip, IpHeader::V4(_)) => icrc.update_ipv4(header),
            _ => icrc.update_ipv6(packet.first_chunk()?),
        }
        icrc.update_udp(&udp);
        Some(())
    }))
}

/// RoCE v1 in a frame that is refused.
fn salvage_v1(packet: &[u8]) -> Option<Roce<'_>> {
    let (header, ib) = packet.split_first_chunk::<{ Grh::LEN }>()?;
    let Ipv6Header {
        traffic_class,
        flow_label,
        hop_limit,
        source,
        dest,
        ..
    } = Ipv6Header::read(header);
    let (sgid, dgid) = (source.into(), dest.into());
    let framing = Framing::V1(Grh {
        traffic_class,
        flow_label,
        hop_limit,
        sgid,
        dgid,
    });
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some(salvage_ib(framing, packet, ib, len, |icrc| {
        icrc.update_ipv6(header);
        Some(())
    }))
}

/// The IB part of a refused packet: `len` bytes from BTH to ICRC if `ib` has them all.
fn salvage_ib<'a>(
    framing: Framing,
    packet: &[u8],
    ib: &'a [u8],
    len: usize,
    cover_network: impl FnOnce(&mut Icrc) -> Option<()>,
) -> Roce<'a> {
    let Some((body, &received)) = ib.get(..len).and_then(<[u8]>::split_last_chunk::<4>) else {
        return Roce::cut_off(framing, packet, ib, len);
    };
    let mut icrc = Icrc::new();
    let check = cover_network(&mut icrc).map_or(IcrcCheck::Unknown, |()| {
        icrc.update_ib(body);
        match icrc.finish() {
            computed if computed == received => IcrcCheck::Ok(received),
            computed => IcrcCheck::Bad { received, computed },
        }
    });
    Roce::new(
        framing,
        packet,
        IbView::new(body),
        Headers::parse(body).ok(),
        check,
    )
}

/// The network packet in what was captured under another header than Ethernet's.
fn network_packet(link_type: LinkType, data: &[u8]) -> Option<(EtherType, &[u8])> {
    let by_version = |packet: &'_ [u8]| match packet.first()? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    };
    let behind = |header: usize, ether_type: usize| {
        let &[high, low] = data.get(ether_type..)?.first_chunk()?;
        Some((
            EtherType(u16::from_be_bytes([high, low])),
            data.get(header..)?,
        ))
    };
    match link_type {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Some((by_version(data)?, data)),
        LinkType::NULL => {
            let packet = data.get(4..)?;
            Some((by_version(packet)?, packet))
        }
        LinkType::LINUX_SLL => behind(16, 14),
        LinkType::LINUX_SLL2 => behind(20, 0),
        _ => None,
    }
}
