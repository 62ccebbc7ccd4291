//! Identifiers of the transport as types: sequence numbers, queue pair numbers, keys, GIDs, MTUs
//! and the two timer codes. Raw integers exist in the parsers and at the C boundary only.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

const MASK_24: u32 = 0x00ff_ffff;

/// Packet sequence number, 24 bits, wrapping.
///
/// There is deliberately no `Ord`: modular order is not transitive. Two PSNs are comparable only
/// while less than 2^23 apart, which the transport guarantees for live ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The PSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, 0 to 2^24 − 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The following PSN.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The preceding PSN.
    #[must_use]
    pub const fn prev(self) -> Self {
        self.sub(1)
    }

    /// This PSN moved forward by `n`.
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) & MASK_24)
    }

    /// This PSN moved backward by `n`.
    #[must_use]
    pub const fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n) & MASK_24)
    }

    /// How far `self` is after `other`, −2^23 to 2^23 − 1; negative when before.
    pub const fn distance_from(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Whether `self` lies before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether `self` lies after `other`.
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// Message sequence number of the responder, 24 bits, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Msn(u32);

impl Msn {
    /// The MSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, 0 to 2^24 − 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The following MSN.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) & MASK_24)
    }

    /// How far `self` is after `other`, −2^23 to 2^23 − 1.
    pub const fn distance_from(self, other: Self) -> i32 {
        Psn(self.0).distance_from(Psn(other.0))
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// QP0, the subnet management interface; never valid on RoCE.
    pub const SMI: Self = Self(0);
    /// QP1, the general services interface (connection management).
    pub const GSI: Self = Self(1);
    /// The destination of multicast packets.
    pub const MULTICAST: Self = Self(MASK_24);

    /// The QPN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, 0 to 2^24 − 1.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

macro_rules! memory_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The key with this value.
            pub const fn new(value: u32) -> Self {
                Self(value)
            }

            /// The key of table entry `index` (24 bits) in its variant `variant`.
            pub const fn from_parts(index: u32, variant: u8) -> Self {
                Self(index << 8 | variant as u32)
            }

            /// The value as carried in headers and work requests.
            pub const fn value(self) -> u32 {
                self.0
            }

            /// Index of the table entry, the upper 24 bits.
            pub const fn index(self) -> u32 {
                self.0 >> 8
            }

            /// The variant, the low 8 bits, which consumers may choose where verbs allow it.
            pub const fn variant(self) -> u8 {
                self.0.to_le_bytes()[0]
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:08x}", self.0)
            }
        }
    };
}

memory_key!(
    /// Key by which a remote peer names a memory region or window.
    Rkey
);
memory_key!(
    /// Key by which local work requests name a memory region.
    Lkey
);

/// Partition key: 15 bits of partition and the membership bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PKey(pub u16);

impl PKey {
    /// Full member of the default partition, the only key of a RoCE port.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether packets with `other` may reach a QP with `self`: equal non-zero partitions, at
    /// least one full member.
    pub const fn matches(self, other: Self) -> bool {
        let partition = self.0 & 0x7fff;
        partition != 0 && partition == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

/// Queue key of datagram QPs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QKey(pub u32);

impl QKey {
    /// Queue key of QP1.
    pub const GSI: Self = Self(0x8001_0000);

    /// Whether the controlled bit is set: a send with such a key uses the sending QP's own key.
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// Global identifier, 16 bytes: an IPv6 address or an IPv4-mapped one (IBTA Vol 1, annex A17,
/// RoCEv2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IP address.
    pub const fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The IP address that RoCE v2 packets with this GID carry.
    pub const fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from_octets(self.0);
        match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        }
    }

    /// Whether this is a multicast group.
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// The link-local GID of an Ethernet address, by modified EUI-64.
    pub const fn link_local(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ])
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self::from_ip(IpAddr::V4(ip))
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Self::from_ip(IpAddr::V6(ip))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from_octets(self.0).fmt(f)
    }
}

/// Path MTU: the payload bytes of a full packet. Only these five sizes exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PathMtu {
    /// 256 bytes, code 1.
    Mtu256 = 1,
    /// 512 bytes, code 2.
    Mtu512,
    /// 1024 bytes, code 3.
    Mtu1024,
    /// 2048 bytes, code 4.
    Mtu2048,
    /// 4096 bytes, code 5.
    Mtu4096,
}

impl PathMtu {
    /// All sizes, smallest first.
    pub const ALL: [Self; 5] = [
        Self::Mtu256,
        Self::Mtu512,
        Self::Mtu1024,
        Self::Mtu2048,
        Self::Mtu4096,
    ];

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The IBTA code, 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU of an IBTA code.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// The MTU of exactly `bytes` payload bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest path MTU that a network interface of `netdev_mtu` bytes carries: 96 bytes are
    /// kept for headers, as Linux's core does (40 GRH, 8 UDP, 12 BTH, 4 XRCETH, 28 AtomicETH,
    /// 4 ICRC). 256 where even that is short.
    pub fn from_netdev_mtu(netdev_mtu: u32) -> Self {
        let room = netdev_mtu.saturating_sub(96);
        Self::ALL
            .into_iter()
            .rev()
            .find(|mtu| mtu.bytes() <= room)
            .unwrap_or(Self::Mtu256)
    }
}

/// RNR NAK timer code, 5 bits (IBTA Vol 1, chapter 9, Transport Layer).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The timer with the low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long the requester waits at least.
    pub const fn delay(self) -> Duration {
        // In units of 10 µs. Codes from 4 on alternate between 2^n and 3·2^(n-1); 0 is the longest.
        let tens_us = match self.0 {
            0 => 65536,
            1 => 1,
            2 => 2,
            3 => 3,
            code if code % 2 == 0 => 1u64 << (code / 2),
            code => 3u64 << (code / 2 - 1),
        };
        Duration::from_micros(tens_us * 10)
    }
}

/// Local ACK timeout code, 5 bits; 0 means no timer, t otherwise 4.096 µs × 2^t
/// (IBTA Vol 1, chapter 9, Transport Layer).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// The timeout with the low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// 4.096 µs · 2^code, or `None` for code 0.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            code => Some(Duration::from_nanos(4096u64 << code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_order_wraps() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert!(last.is_before(Psn::new(0)));
        assert_eq!(Psn::new(3).distance_from(last), 4);
        assert_eq!(Psn::new(0).distance_from(Psn::new(0x80_0000)), -(1 << 23));
    }

    /// The standard's list of the 32 values, in units of 10 µs.
    #[test]
    fn rnr_timer_values() {
        let tens_us = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        for (code, tens) in (0u8..).zip(tens_us) {
            assert_eq!(
                RnrTimer::new(code).delay(),
                Duration::from_micros(tens * 10),
                "{code}"
            );
        }
    }

    #[test]
    fn ack_timeout_values() {
        assert_eq!(AckTimeout::new(0).duration(), None);
        assert_eq!(
            AckTimeout::new(14).duration(),
            Some(Duration::from_nanos(67_108_864))
        );
    }

    #[test]
    fn path_mtu_follows_the_interface() {
        for (netdev, mtu) in [
            (1500, 1024),
            (2143, 1024),
            (2144, 2048),
            (4200, 4096),
            (9000, 4096),
        ] {
            assert_eq!(PathMtu::from_netdev_mtu(netdev).bytes(), mtu, "{netdev}");
        }
    }

    #[test]
    fn pkey_needs_one_full_member() {
        assert!(PKey(0xffff).matches(PKey(0x7fff)));
        assert!(!PKey(0x7fff).matches(PKey(0x7fff)));
        assert!(!PKey(0x8000).matches(PKey(0x8000)));
    }
}
