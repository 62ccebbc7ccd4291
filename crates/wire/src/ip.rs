//! IPv4 and IPv6 headers as RoCE v2 uses them: no options, no extension headers, no fragments
//! (RFC 791, RFC 8200; IBTA Vol 1, annex A17, RoCEv2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ParseError;
use crate::bytes::u24;
use crate::checksum::Sum;

/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Explicit congestion notification, the low two bits of the traffic class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Ecn {
    /// The sender does not react to marks.
    #[default]
    NotEct = 0,
    /// Capable of marks, second code.
    Ect1 = 1,
    /// Capable of marks; what RoCE senders use.
    Ect0 = 2,
    /// A queue on the way was congested.
    Ce = 3,
}

impl Ecn {
    /// The code in the low two bits of a traffic class.
    #[inline]
    pub const fn from_traffic_class(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// IPv4 header of 20 bytes. Length and checksum belong to the packet and are made when it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Identification. Covered by the ICRC.
    pub id: u16,
    /// No router may fragment the packet. Covered by the ICRC.
    pub dont_fragment: bool,
    /// Hops left.
    pub ttl: u8,
    /// What follows.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub dest: Ipv4Addr,
}

impl Ipv4Header {
    /// Length in bytes.
    pub const LEN: usize = 20;

    /// Reads the fields as they are, without any check.
    #[inline]
    pub const fn read(bytes: &[u8; Self::LEN]) -> Self {
        let source = Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
        let dest = Ipv4Addr::new(bytes[16], bytes[17], bytes[18], bytes[19]);
        Self {
            traffic_class: bytes[1],
            id: u16::from_be_bytes([bytes[4], bytes[5]]),
            dont_fragment: bytes[6] & 0x40 != 0,
            ttl: bytes[8],
            protocol: bytes[9],
            source,
            dest,
        }
    }

    /// Reads and checks the header at the start of an IPv4 packet, which may be followed by padding
    /// of the link. Returns it and its payload.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((header, rest)) = packet.split_first_chunk::<{ Self::LEN }>() else {
            return Err(ParseError::truncated(Self::LEN, packet.len()));
        };
        let &[version, _, t0, t1, _, _, fragment0, fragment1, ..] = header;
        if version >> 4 != 4 {
            return Err(ParseError::BadIpVersion(version >> 4));
        }
        if version & 15 != 5 {
            return Err(ParseError::BadIpHeaderLength(version & 15));
        }
        if Sum::default().add(header).fold() != 0xffff {
            return Err(ParseError::BadIpChecksum);
        }
        if u16::from_be_bytes([fragment0, fragment1]) & 0x3fff != 0 {
            return Err(ParseError::Fragmented);
        }
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        let Some(payload_len) = total.checked_sub(Self::LEN) else {
            return Err(ParseError::BadLength {
                field: total,
                room: packet.len(),
            });
        };
        match rest.get(..payload_len) {
            Some(payload) => Ok((Self::read(header), payload)),
            None => Err(ParseError::truncated(total, packet.len())),
        }
    }

    /// The bytes on the wire in front of `payload_len` bytes. The length is taken modulo 2^16.
    #[inline]
    pub fn to_bytes(&self, payload_len: usize) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = 0x45;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&low_u16(Self::LEN.wrapping_add(payload_len)).to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        bytes[6] = u8::from(self.dont_fragment) << 6;
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..20].copy_from_slice(&self.dest.octets());
        let checksum = Sum::default().add(&bytes).checksum();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// IPv6 header of 40 bytes. The length belongs to the packet and is made when it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Header {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// What follows.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub dest: Ipv6Addr,
}

impl Ipv6Header {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Reads the fields as they are, without any check.
    #[inline]
    pub fn read(bytes: &[u8; Self::LEN]) -> Self {
        let &[
            b0,
            b1,
            b2,
            b3,
            _,
            _,
            next_header,
            hop_limit,
            ref addresses @ ..,
        ] = bytes;
        let (&source, dest) = addresses.split_first_chunk::<16>().expect("16 of 32 bytes");
        let dest = *dest.first_chunk::<16>().expect("16 of 16 bytes");
        Self {
            traffic_class: b0 << 4 | b1 >> 4,
            flow_label: u24([b1 & 15, b2, b3]),
            next_header,
            hop_limit,
            source: Ipv6Addr::from_octets(source),
            dest: Ipv6Addr::from_octets(dest),
        }
    }

    /// Reads and checks the header at the start of an IPv6 packet, which may be followed by padding
    /// of the link. Returns it and its payload.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((header, rest)) = packet.split_first_chunk::<{ Self::LEN }>() else {
            return Err(ParseError::truncated(Self::LEN, packet.len()));
        };
        let &[version, _, _, _, l0, l1, ..] = header;
        if version >> 4 != 6 {
            return Err(ParseError::BadIpVersion(version >> 4));
        }
        let payload_len = usize::from(u16::from_be_bytes([l0, l1]));
        match rest.get(..payload_len) {
            Some(payload) => Ok((Self::read(header), payload)),
            None => {
                let needed = Self::LEN + payload_len;
                Err(ParseError::truncated(needed, packet.len()))
            }
        }
    }

    /// The bytes on the wire in front of `payload_len` bytes. The length is taken modulo 2^16.
    #[inline]
    pub fn to_bytes(&self, payload_len: usize) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&low_u16(payload_len).to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.dest.octets());
        bytes
    }
}

/// Either IP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpHeader {
    /// Version 4.
    V4(Ipv4Header),
    /// Version 6.
    V6(Ipv6Header),
}

impl IpHeader {
    /// Source address.
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.source),
            Self::V6(header) => IpAddr::V6(header.source),
        }
    }

    /// Destination address.
    pub const fn dest(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.dest),
            Self::V6(header) => IpAddr::V6(header.dest),
        }
    }

    /// DSCP and ECN.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(header) => header.traffic_class,
            Self::V6(header) => header.traffic_class,
        }
    }

    /// Hops left.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(header) => header.ttl,
            Self::V6(header) => header.hop_limit,
        }
    }

    /// What follows: a protocol number.
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::V4(header) => header.protocol,
            Self::V6(header) => header.next_header,
        }
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::V4(_) => Ipv4Header::LEN,
            Self::V6(_) => Ipv6Header::LEN,
        }
    }

    /// Sum over the pseudo header of UDP or TCP.
    pub(crate) fn pseudo_header(&self, payload_len: usize) -> Sum {
        let sum = match self {
            Self::V4(header) => Sum::default()
                .add(&header.source.octets())
                .add(&header.dest.octets()),
            Self::V6(header) => Sum::default()
                .add(&header.source.octets())
                .add(&header.dest.octets()),
        };
        sum.add_u16(low_u16(payload_len))
            .add_u16(u16::from(self.protocol()))
    }
}

/// The low 16 bits, for length fields.
#[inline]
pub(crate) const fn low_u16(value: usize) -> u16 {
    let [low, high, ..] = value.to_le_bytes();
    u16::from_le_bytes([low, high])
}
