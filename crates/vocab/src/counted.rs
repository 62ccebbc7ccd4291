//! Which of hirail's own links count which counter. The table of counters is shared with cards and
//! simulated hosts, which have mechanisms that a link of hirail lacks; a counter that cannot move
//! there must not look like one that happens to be 0.

use core::fmt;

use crate::counter::Counter;

/// A kind of link under a software RNIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkKind {
    /// RoCE v2 over UDP sockets.
    Udp,
    /// Raw Ethernet, RoCE v1 and v2.
    Raw,
    /// A network in memory, for tests.
    Memory,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: &[Self] = &[Self::Udp, Self::Raw, Self::Memory];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Raw => "raw Ethernet",
            Self::Memory => "memory",
        }
    }

    /// The kind called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Counter {
    /// The links of hirail that count it. None: a counter of other devices, or of a part that hirail
    /// does not have yet.
    pub const fn counted_on(self) -> &'static [LinkKind] {
        use LinkKind::{Raw, Udp};
        match self {
            // hirail's senders do not start slowly, and it serves no management datagrams.
            Self::RoceSlowRestart
            | Self::RoceSlowRestartCnps
            | Self::RoceSlowRestartTrans
            | Self::DropBadHeader
            | Self::DropBadMadVersion => &[],
            // Processes share a UDP port, and its sockets hide the IPv4 header.
            Self::FwdXmitPackets
            | Self::FwdRcvPackets
            | Self::DropForwardFailed
            | Self::DropImplausibleIpv4Id => &[Udp],
            // Flow control and broken frames are for who sees Ethernet frames.
            Self::LinkDowned
            | Self::RxGlobalPause
            | Self::TxGlobalPause
            | Self::RxGlobalPauseDuration
            | Self::TxGlobalPauseDuration
            | Self::RxGlobalPauseTransition
            | Self::RxPauseCtrlPhy
            | Self::TxPauseCtrlPhy
            | Self::DropBadIpVersion
            | Self::DropBadIpHeaderLength
            | Self::DropBadIpChecksum
            | Self::DropFragmented
            | Self::DropBadUdpChecksum
            | Self::DropBadGrhNextHeader
            | Self::DropBadLength
            | Self::DropUnknownMacControl => &[Raw],
            Self::PortXmitDiscards | Self::PortXmitWait => &[Udp, Raw],
            _ if self.is_pause_of_priority() => &[Raw],
            _ if self.is_traffic_of_priority() => &[Udp, Raw],
            _ => LinkKind::ALL,
        }
    }

    const fn is_pause_of_priority(self) -> bool {
        let index = self.index();
        Self::rx_prio_pause(0).index() <= index
            && index <= Self::rx_prio_pause_transition(7).index()
    }

    const fn is_traffic_of_priority(self) -> bool {
        let index = self.index();
        Self::rx_prio_packets(0).index() <= index && index <= Self::tx_prio_bytes(7).index()
    }

    /// The counters that a link does not count, eight priorities as one (`rx_prioN_pause`), in the
    /// order of [`Counter::ALL`].
    pub fn not_counted_on(link: LinkKind) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for counter in Self::ALL {
            if counter.counted_on().contains(&link) {
                continue;
            }
            let name = match counter.name().split_once("_prio") {
                Some((side, rest)) => format!("{side}_prioN{}", &rest[1..]),
                None => counter.name().to_owned(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities() {
        for priority in 0..8 {
            for counter in [
                Counter::rx_prio_pause(priority),
                Counter::tx_prio_pause(priority),
                Counter::rx_prio_pause_duration(priority),
                Counter::tx_prio_pause_duration(priority),
                Counter::rx_prio_pause_transition(priority),
            ] {
                assert_eq!(counter.counted_on(), [LinkKind::Raw], "{counter}");
            }
            for counter in [
                Counter::rx_prio_packets(priority),
                Counter::tx_prio_packets(priority),
                Counter::rx_prio_bytes(priority),
                Counter::tx_prio_bytes(priority),
            ] {
                assert_eq!(
                    counter.counted_on(),
                    [LinkKind::Udp, LinkKind::Raw],
                    "{counter}"
                );
            }
        }
        assert_eq!(Counter::PortXmitData.counted_on(), LinkKind::ALL);
    }

    #[test]
    fn what_a_link_lacks() {
        let raw = Counter::not_counted_on(LinkKind::Raw);
        assert_eq!(
            raw[..3],
            [
                "roce_slow_restart",
                "roce_slow_restart_cnps",
                "roce_slow_restart_trans"
            ]
        );
        assert!(!raw.contains(&"rx_prioN_pause".to_owned()));
        let udp = Counter::not_counted_on(LinkKind::Udp);
        let pauses = udp.iter().filter(|name| *name == "rx_prioN_pause").count();
        assert_eq!(pauses, 1, "{udp:?}");
        for kind in LinkKind::ALL {
            assert_eq!(LinkKind::from_name(kind.name()), Some(*kind));
        }
    }
}
