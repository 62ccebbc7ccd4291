//! Ethernet headers with at most one tag of IEEE 802.1Q.

use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::{Gid, ParseError};

/// Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// Where PAUSE and PFC frames go: the station at the other end of the cable.
    pub const MAC_CONTROL: Self = Self([0x01, 0x80, 0xc2, 0, 0, 0x01]);
    /// Where LLDP frames go: the nearest bridge or station.
    pub const LLDP: Self = Self([0x01, 0x80, 0xc2, 0, 0, 0x0e]);

    /// Whether frames to this address go to a group (or to all).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The group address of a multicast GID: RFC 1112 for IPv4, RFC 2464 for IPv6.
    pub fn of_group(group: Gid) -> Self {
        let [.., a, b, c, d] = group.0;
        match group.to_ip() {
            core::net::IpAddr::V4(_) => Self([0x01, 0, 0x5e, b & 0x7f, c, d]),
            core::net::IpAddr::V6(_) => Self([0x33, 0x33, a, b, c, d]),
        }
    }

    /// The address inside a link-local GID made from it, the inverse of [`Gid::link_local`].
    pub const fn of_link_local(gid: Gid) -> Option<Self> {
        match gid.0 {
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
                Some(Self([a ^ 2, b, c, d, e, f]))
            }
            _ => None,
        }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// RoCE v1: a GRH follows.
    pub const ROCE_V1: Self = Self(0x8915);
    /// PAUSE and PFC.
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// Link layer discovery.
    pub const LLDP: Self = Self(0x88cc);
    /// An 802.1Q tag follows.
    pub const VLAN: Self = Self(0x8100);
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// 802.1Q tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag {
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Drop eligible.
    pub drop_eligible: bool,
    /// VLAN, 0 to 4095; 0 in a tag that carries only a priority.
    pub vlan: u16,
}

impl VlanTag {
    /// Reads the 16 bits that follow the tag's EtherType.
    pub const fn from_tci(tci: u16) -> Self {
        let priority = (tci >> 13).to_le_bytes()[0];
        Self {
            priority,
            drop_eligible: tci & 0x1000 != 0,
            vlan: tci & 0x0fff,
        }
    }

    /// The 16 bits that follow the tag's EtherType.
    pub const fn tci(self) -> u16 {
        let priority = (self.priority & 7) as u16;
        priority << 13 | (self.drop_eligible as u16) << 12 | self.vlan & 0x0fff
    }
}

/// Ethernet header, 14 bytes, or 18 with a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetHeader {
    /// Destination address.
    pub dest: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// The outermost tag of 802.1Q.
    pub tag: Option<VlanTag>,
    /// What follows.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Reads the header of a frame. Returns it and what follows.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(frame);
        let dest = MacAddr(*reader.take()?);
        let source = MacAddr(*reader.take()?);
        let mut ether_type = EtherType(reader.u16()?);
        let mut tag = None;
        if ether_type == EtherType::VLAN {
            tag = Some(VlanTag::from_tci(reader.u16()?));
            ether_type = EtherType(reader.u16()?);
        }
        Ok((
            Self {
                dest,
                source,
                tag,
                ether_type,
            },
            reader.rest(),
        ))
    }

    /// Length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        if self.tag.is_some() { 18 } else { 14 }
    }

    /// Writes the header to the front of `buffer` and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`len`](Self::len).
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer);
        writer.put(self.dest.0);
        writer.put(self.source.0);
        if let Some(tag) = self.tag {
            writer.u16(EtherType::VLAN.0);
            writer.u16(tag.tci());
        }
        writer.u16(self.ether_type.0);
        writer.written()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn group_addresses() {
        let v4 = Gid::from(Ipv4Addr::new(224, 129, 2, 3));
        assert_eq!(MacAddr::of_group(v4), MacAddr([0x01, 0, 0x5e, 1, 2, 3]));
        let v6 = Gid::from(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0xffff, 0xe081, 0x0203));
        assert_eq!(
            MacAddr::of_group(v6),
            MacAddr([0x33, 0x33, 0xe0, 0x81, 2, 3])
        );
    }

    #[test]
    fn link_local_addresses() {
        let mac = MacAddr([0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(MacAddr::of_link_local(Gid::link_local(mac.0)), Some(mac));
        assert_eq!(MacAddr::of_link_local(Gid::from(Ipv4Addr::LOCALHOST)), None);
    }
}
