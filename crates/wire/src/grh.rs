//! The global route header: network header of RoCE v1, and what the first 40 bytes of a UD receive
//! hold (IBTA Vol 1, chapter 8, Network Layer).

use crate::ip::Ipv6Header;
use crate::{Gid, ParseError};

/// Global route header, 40 bytes, laid out as an IPv6 header. The length belongs to the packet and
/// is made when it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grh {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hops left.
    pub hop_limit: u8,
    /// Source.
    pub sgid: Gid,
    /// Destination.
    pub dgid: Gid,
}

impl Grh {
    /// Length in bytes.
    pub const LEN: usize = 40;
    /// Next header: the InfiniBand transport.
    pub const NEXT_HEADER: u8 = 0x1b;

    /// Reads and checks the header at the start of a packet, which may be followed by padding of
    /// the link. Returns it and its payload, BTH to ICRC.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (header, payload) = Ipv6Header::parse(packet)?;
        let Ipv6Header {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
            source,
            dest,
        } = header;
        if next_header != Self::NEXT_HEADER {
            return Err(ParseError::BadGrhNextHeader(next_header));
        }
        let (sgid, dgid) = (Gid(source.octets()), Gid(dest.octets()));
        Ok((
            Self {
                traffic_class,
                flow_label,
                hop_limit,
                sgid,
                dgid,
            },
            payload,
        ))
    }

    /// The bytes on the wire in front of `ib_len` bytes from BTH to ICRC, modulo 2^16.
    #[inline]
    pub fn to_bytes(&self, ib_len: usize) -> [u8; Self::LEN] {
        let Self {
            traffic_class,
            flow_label,
            hop_limit,
            sgid,
            dgid,
        } = *self;
        let (source, dest) = (sgid.0.into(), dgid.0.into());
        let next_header = Self::NEXT_HEADER;
        Ipv6Header {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
            source,
            dest,
        }
        .to_bytes(ib_len)
    }
}
