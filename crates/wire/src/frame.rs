//! Whole Ethernet frames: what they are, and RoCE frames in both directions (IBTA Vol 1,
//! annexes A16, RoCE, and A17, RoCEv2).
//!
//! [`FrameView::parse`] sorts any frame and checks those that claim to be RoCE, up to the BTH.
//! [`Encapsulation`] is everything in front of the BTH, typed; it writes whole frames.

use crate::ethernet::{EtherType, EthernetHeader, MacAddr, VlanTag};
use crate::grh::Grh;
use crate::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::udp::{ROCE_PORT, UdpHeader};
use crate::view::IbView;
use crate::{Gid, Headers, Icrc, IcrcPrefix, ParseError};

/// The fewest bytes from BTH to ICRC.
const MIN_IB_LEN: usize = 16;

/// A frame, sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameView<'a> {
    /// The Ethernet header.
    pub ethernet: EthernetHeader,
    /// What it carries.
    pub content: Content<'a>,
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// RoCE, either version.
    Roce(RoceView<'a>),
    /// TCP, from its header on.
    Tcp(IpHeader, &'a [u8]),
    /// PAUSE or PFC, from the opcode on ([`MacControl::parse`](crate::mac_control::MacControl)).
    MacControl(&'a [u8]),
    /// Link layer discovery, from the first TLV on ([`Lldp::parse`](crate::lldp::Lldp)).
    Lldp(&'a [u8]),
    /// Anything else, from behind the EtherType on.
    Other(&'a [u8]),
}

impl<'a> FrameView<'a> {
    /// Sorts a frame, given without FCS. Fails on what claims to be RoCE and is not well-formed in
    /// front of the BTH. Ethernet padding is cut off where the content has a length of its own.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        let (ethernet, rest) = EthernetHeader::parse(frame)?;
        let content = Content::parse(ethernet.ether_type, rest)?;
        Ok(Self { ethernet, content })
    }

    /// The RoCE packet, where the frame carries one.
    pub const fn roce(&self) -> Option<&RoceView<'a>> {
        match &self.content {
            Content::Roce(roce) => Some(roce),
            _ => None,
        }
    }

    /// Everything in front of the BTH, where the frame carries RoCE.
    pub fn encapsulation(&self) -> Option<Encapsulation> {
        let EthernetHeader {
            dest, source, tag, ..
        } = self.ethernet;
        self.roce().map(|roce| Encapsulation {
            dest,
            source,
            tag,
            framing: roce.framing,
        })
    }
}

impl<'a> Content<'a> {
    /// Sorts what a link layer carries under `ether_type`: [`FrameView::parse`] without Ethernet.
    #[inline]
    pub fn parse(ether_type: EtherType, bytes: &'a [u8]) -> Result<Self, ParseError> {
        Ok(match ether_type {
            EtherType::IPV4 => match Ipv4Header::parse(bytes) {
                Ok((ip, payload)) => Self::parse_ip(IpHeader::V4(ip), payload, bytes)?,
                // Options are legal where the packet is not RoCE.
                Err(ParseError::BadIpHeaderLength(_)) if bytes.get(9) != Some(&PROTOCOL_UDP) => {
                    Self::Other(bytes)
                }
                Err(error) => return Err(error),
            },
            EtherType::IPV6 => {
                let (ip, payload) = Ipv6Header::parse(bytes)?;
                Self::parse_ip(IpHeader::V6(ip), payload, bytes)?
            }
            EtherType::ROCE_V1 => {
                let (grh, ib) = Grh::parse(bytes)?;
                Self::Roce(RoceView::new(Framing::V1(grh), bytes, ib)?)
            }
            EtherType::MAC_CONTROL => Self::MacControl(bytes),
            EtherType::LLDP => Self::Lldp(bytes),
            _ => Self::Other(bytes),
        })
    }

    #[inline]
    fn parse_ip(ip: IpHeader, payload: &'a [u8], packet: &'a [u8]) -> Result<Self, ParseError> {
        match ip.protocol() {
            PROTOCOL_UDP => {
                let (udp, ib) = UdpHeader::parse(payload)?;
                if udp.dest_port != ROCE_PORT {
                    return Ok(Self::Other(packet));
                }
                let framing = Framing::V2 {
                    ip,
                    source_port: udp.source_port,
                    udp_checksum: udp.checksum != 0,
                };
                Ok(Self::Roce(RoceView::new(framing, packet, ib)?))
            }
            PROTOCOL_TCP => Ok(Self::Tcp(ip, payload)),
            _ => Ok(Self::Other(packet)),
        }
    }
}

/// A RoCE packet whose network headers are right and whose length is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoceView<'a> {
    framing: Framing,
    /// GRH, or IP and UDP header, as they came.
    network: &'a [u8],
    /// BTH to pad.
    ib: &'a [u8],
    icrc: [u8; 4],
}

impl<'a> RoceView<'a> {
    /// `packet` begins with the network header; `ib` is its part from BTH to ICRC.
    #[inline]
    fn new(framing: Framing, packet: &'a [u8], ib: &'a [u8]) -> Result<Self, ParseError> {
        match ib.split_last_chunk::<4>() {
            Some((body, &icrc)) if ib.len() >= MIN_IB_LEN => {
                let network = &packet[..framing.len()];
                Ok(Self {
                    framing,
                    network,
                    ib: body,
                    icrc,
                })
            }
            _ => Err(ParseError::truncated(MIN_IB_LEN, ib.len())),
        }
    }

    /// The network headers.
    pub const fn framing(&self) -> &Framing {
        &self.framing
    }

    /// The bytes from BTH to pad, without the ICRC.
    pub const fn ib(&self) -> &'a [u8] {
        self.ib
    }

    /// The same for reading field by field, whether legal or not.
    pub const fn view(&self) -> IbView<'a> {
        IbView::new(self.ib)
    }

    /// The headers and the payload, if legal.
    #[inline]
    pub fn headers(&self) -> Result<(Headers, &'a [u8]), ParseError> {
        Headers::parse(self.ib)
    }

    /// The ICRC that came, in wire order.
    pub const fn icrc_received(&self) -> [u8; 4] {
        self.icrc
    }

    /// The ICRC that the packet should have, in wire order.
    #[inline]
    pub fn icrc_computed(&self) -> [u8; 4] {
        let mut icrc = Icrc::new();
        let mut udp = self.network;
        if let Some((header, rest)) = self.network.split_first_chunk::<20>()
            && let Framing::V2 {
                ip: IpHeader::V4(_),
                ..
            } = self.framing
        {
            icrc.update_ipv4(header);
            udp = rest;
        } else if let Some((header, rest)) = self.network.split_first_chunk::<40>() {
            icrc.update_ipv6(header);
            udp = rest;
        }
        if let Some(header) = udp.first_chunk::<8>() {
            icrc.update_udp(header);
        }
        icrc.update_ib(self.ib);
        icrc.finish()
    }

    /// Whether the packet is intact.
    #[inline]
    pub fn icrc_is_right(&self) -> bool {
        self.icrc == self.icrc_computed()
    }

    /// Refuses a packet whose UDP checksum is present and wrong. For links that receive what really
    /// was on a wire; the ICRC finds everything that this finds.
    pub fn check_udp_checksum(&self) -> Result<(), ParseError> {
        match self.udp_checksum_is_right() {
            Some(false) => Err(ParseError::BadUdpChecksum),
            _ => Ok(()),
        }
    }

    /// Whether the UDP checksum is right; `None` where there is none. A capture made on the sending
    /// host, or on a virtual link, may show wrong ones that a network card would have completed.
    pub fn udp_checksum_is_right(&self) -> Option<bool> {
        let Framing::V2 { ip, .. } = &self.framing else {
            return None;
        };
        let udp = self.network.last_chunk::<8>()?;
        let sum = ip
            .pseudo_header(8 + self.ib.len() + 4)
            .add(udp)
            .add(self.ib)
            .add(&self.icrc);
        (udp[6..] != [0; 2]).then(|| sum.fold() == 0xffff)
    }
}

/// Network headers of a RoCE packet. Lengths and checksums belong to the packet and are made when
/// it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Framing {
    /// Version 1: a GRH directly on Ethernet.
    V1(Grh),
    /// Version 2: UDP port 4791. The protocol number of the IP header is UDP, whatever it says.
    V2 {
        /// IP header.
        ip: IpHeader,
        /// UDP source port, constant for a QP.
        source_port: u16,
        /// Whether the UDP checksum is present; allowed to be absent over IPv6 too.
        udp_checksum: bool,
    },
}

impl Framing {
    /// Length in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::V1(_) => Grh::LEN,
            Self::V2 { ip, .. } => ip.len() + UdpHeader::LEN,
        }
    }

    /// Whether there is nothing, which is never.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Source as a GID.
    pub const fn source(&self) -> Gid {
        match self {
            Self::V1(grh) => grh.sgid,
            Self::V2 { ip, .. } => Gid::from_ip(ip.source()),
        }
    }

    /// Destination as a GID.
    pub const fn dest(&self) -> Gid {
        match self {
            Self::V1(grh) => grh.dgid,
            Self::V2 { ip, .. } => Gid::from_ip(ip.dest()),
        }
    }

    /// DSCP and ECN.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V1(grh) => grh.traffic_class,
            Self::V2 { ip, .. } => ip.traffic_class(),
        }
    }

    /// Hops left.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V1(grh) => grh.hop_limit,
            Self::V2 { ip, .. } => ip.hop_limit(),
        }
    }

    /// IPv4 Identification; 0 elsewhere.
    pub const fn ipv4_id(&self) -> u16 {
        match self {
            Self::V2 {
                ip: IpHeader::V4(ip),
                ..
            } => ip.id,
            _ => 0,
        }
    }

    /// The 40 bytes that the receive buffer of a UD packet begins with: the network header, an IPv4
    /// one in the last 20 bytes. `ib_len` counts from BTH to ICRC inclusive.
    pub fn receive_area(&self, ib_len: usize) -> [u8; 40] {
        match self {
            Self::V1(grh) => grh.to_bytes(ib_len),
            Self::V2 {
                ip: IpHeader::V6(ip),
                ..
            } => ip.to_bytes(UdpHeader::LEN + ib_len),
            Self::V2 {
                ip: IpHeader::V4(ip),
                ..
            } => {
                let mut area = [0; 40];
                area[20..].copy_from_slice(&ip.to_bytes(UdpHeader::LEN + ib_len));
                area
            }
        }
    }

    /// The part of the ICRC that all packets of this path share.
    pub fn icrc_prefix(&self) -> IcrcPrefix {
        match *self {
            Self::V1(grh) => IcrcPrefix::v1(grh.sgid, grh.dgid),
            Self::V2 {
                ip: IpHeader::V4(ip),
                source_port,
                ..
            } => IcrcPrefix::v2_ipv4(ip.source, ip.dest, source_port, ip.dont_fragment),
            Self::V2 {
                ip: IpHeader::V6(ip),
                source_port,
                ..
            } => IcrcPrefix::v2_ipv6(ip.source, ip.dest, source_port),
        }
    }

    /// The EtherType under which it travels.
    const fn ether_type(&self) -> EtherType {
        match self {
            Self::V1(_) => EtherType::ROCE_V1,
            Self::V2 {
                ip: IpHeader::V4(_),
                ..
            } => EtherType::IPV4,
            Self::V2 {
                ip: IpHeader::V6(_),
                ..
            } => EtherType::IPV6,
        }
    }
}

/// Everything in front of the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Encapsulation {
    /// Ethernet destination.
    pub dest: MacAddr,
    /// Ethernet source.
    pub source: MacAddr,
    /// 802.1Q tag.
    pub tag: Option<VlanTag>,
    /// Network headers.
    pub framing: Framing,
}

impl Encapsulation {
    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.ethernet().len() + self.framing.len()
    }

    /// Whether there is nothing, which is never.
    pub const fn is_empty(&self) -> bool {
        false
    }

    const fn ethernet(&self) -> EthernetHeader {
        let Self {
            dest,
            source,
            tag,
            ref framing,
        } = *self;
        EthernetHeader {
            dest,
            source,
            tag,
            ether_type: framing.ether_type(),
        }
    }

    /// Bytes of a whole frame without FCS.
    pub const fn frame_len(&self, headers: &Headers, payload: usize) -> usize {
        self.len() + headers.ib_len(payload)
    }

    /// Writes what is in front of the BTH of a packet with `ib_len` bytes from BTH to ICRC. Returns
    /// its length. Whoever wants a UDP checksum calls [`set_udp_checksum`](Self::set_udp_checksum)
    /// once the rest is there.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`len`](Self::len).
    #[inline]
    pub fn emit(&self, ib_len: usize, buffer: &mut [u8]) -> usize {
        let start = self.ethernet().emit(buffer);
        let network = &mut buffer[start..];
        let end = match self.framing {
            Framing::V1(grh) => put(network, 0, &grh.to_bytes(ib_len)),
            Framing::V2 {
                ip, source_port, ..
            } => {
                let udp_len = UdpHeader::LEN + ib_len;
                let udp_at = match ip {
                    IpHeader::V4(ip) => put(
                        network,
                        0,
                        &Ipv4Header {
                            protocol: PROTOCOL_UDP,
                            ..ip
                        }
                        .to_bytes(udp_len),
                    ),
                    IpHeader::V6(ip) => {
                        let ip = Ipv6Header {
                            next_header: PROTOCOL_UDP,
                            ..ip
                        };
                        put(network, 0, &ip.to_bytes(udp_len))
                    }
                };
                let udp = UdpHeader {
                    source_port,
                    dest_port: ROCE_PORT,
                    checksum: 0,
                };
                put(network, udp_at, &udp.to_bytes(ib_len))
            }
        };
        start + end
    }

    /// Computes the UDP checksum of a finished frame and stores it, if the framing has one.
    ///
    /// # Panics
    ///
    /// If `frame` is not one that this encapsulation began.
    pub fn set_udp_checksum(&self, frame: &mut [u8]) {
        let Framing::V2 {
            ip,
            source_port,
            udp_checksum: true,
        } = self.framing
        else {
            return;
        };
        let ip = match ip {
            IpHeader::V4(ip) => IpHeader::V4(Ipv4Header {
                protocol: PROTOCOL_UDP,
                ..ip
            }),
            IpHeader::V6(ip) => IpHeader::V6(Ipv6Header {
                next_header: PROTOCOL_UDP,
                ..ip
            }),
        };
        let (head, ib) = frame.split_at_mut(self.len());
        let udp = UdpHeader {
            source_port,
            dest_port: ROCE_PORT,
            checksum: 0,
        };
        let checksum = udp.with_checksum(&ip, ib).checksum;
        let field = head.len() - 2;
        head[field..].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Writes a whole frame without FCS: everything up to and including the ICRC. The pad count
    /// follows from the payload. Returns the length, which [`frame_len`](Self::frame_len) tells
    /// before.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than that.
    pub fn emit_frame(&self, headers: &Headers, payload: &[u8], buffer: &mut [u8]) -> usize {
        let headers = headers.with_payload_len(payload.len());
        let ib_len = headers.ib_len(payload.len());
        let frame_len = self.len() + ib_len;
        let frame = &mut buffer[..frame_len];
        let ib_at = self.emit(ib_len, frame);
        let (ib, icrc) = frame[ib_at..].split_at_mut(ib_len - 4);
        let payload_at = headers.emit(ib);
        let pad_at = put(ib, payload_at, payload);
        ib[pad_at..].fill(0);
        let prefix = self.framing.icrc_prefix();
        icrc.copy_from_slice(&prefix.compute(ib, self.framing.ipv4_id()));
        self.set_udp_checksum(frame);
        frame_len
    }
}

/// Copies `piece` to `at` and returns where it ends.
#[inline]
fn put(buffer: &mut [u8], at: usize, piece: &[u8]) -> usize {
    let end = at + piece.len();
    buffer[at..end].copy_from_slice(piece);
    end
}
