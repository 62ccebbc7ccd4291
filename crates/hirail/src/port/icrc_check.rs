//! The ICRC of packets that came through a UDP socket.
//!
//! Over IPv6 the socket shows every field that the ICRC covers, and the check is exact. Over IPv4 the
//! Identification stays hidden. It is solved for ([`solve_ipv4_id`]) and must be plausible: 0 to 127,
//! which is what senders like ourselves use (the place in a batch), or close to the value that the
//! same peer used last, for stacks that count (Linux's rxe). The first packet of a flow is believed
//! whatever it has: it may be the NAK with which such a stack ends a connection, and it says that
//! once. A corrupted packet passes with a probability of some 2^-25, the first one of a flow with
//! 2^-16; UDP checksums, where used, come on top.

use core::net::IpAddr;

use hirail_vocab::DropReason;
use hirail_wire::{IcrcPrefix, solve_ipv4_id};

use super::recv::Datagram;

/// Checks ICRCs and remembers what peers use. No allocation after creation.
#[derive(Debug)]
pub struct IcrcChecker {
    /// Direct-mapped by address and port; flows that collide are first ones again and again.
    peers: Box<[Option<Peer>; PEERS]>,
}

/// What is known of the sender of one flow.
#[derive(Clone, Copy, Debug)]
struct Peer {
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    /// The part of the ICRC that its packets share.
    prefix: IcrcPrefix,
    /// Whether `prefix` has the IPv4 DF bit set, which the ICRC covers as well.
    dont_fragment: bool,
    /// The Identification of its last packet.
    last_id: Option<u16>,
}

/// Why a packet is taken for damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadIcrc {
    /// The ICRC is wrong.
    Wrong,
    /// It is right only for an Identification that this peer would not use.
    ImplausibleId,
}

impl BadIcrc {
    /// The reason under which it is counted.
    pub const fn reason(self) -> DropReason {
        match self {
            Self::Wrong => DropReason::BadIcrc,
            Self::ImplausibleId => DropReason::ImplausibleIpv4Id,
        }
    }
}

/// Flows remembered.
const PEERS: usize = 256;
/// Largest Identification of senders that do not count: the longest batch has 128 packets.
const MAX_PLACE: u16 = 127;
/// How far a counting peer may have gone since its last packet that we saw. The kernel's counter is
/// shared with other destinations and jumps with idle time.
const MAX_JUMP: u16 = 4096;
/// How far behind its last packet another one may be.
const MAX_REORDERING: u16 = 256;
/// Bytes of the shortest packet: BTH and ICRC.
const MIN_LEN: usize = 16;

impl Default for IcrcChecker {
    fn default() -> Self {
        Self::new()
    }
}

impl IcrcChecker {
    /// A checker that knows no peers.
    pub fn new() -> Self {
        Self {
            peers: Box::new([None; PEERS]),
        }
    }

    /// Checks a packet. Returns its IPv4 Identification; 0 over IPv6, which has none.
    pub fn check(&mut self, datagram: &Datagram<'_>) -> Result<u16, BadIcrc> {
        let ib = datagram.bytes;
        if ib.len() < MIN_LEN {
            return Err(BadIcrc::Wrong);
        }
        let (covered, received) = ib.split_last_chunk::<4>().ok_or(BadIcrc::Wrong)?;
        let peer = self.peer(datagram)?;
        // The n-th packet of a batch has n.
        let expected = if datagram.source.is_ipv4() {
            datagram.place
        } else {
            0
        };
        let computed = peer.prefix.compute(covered, expected);
        if computed == *received {
            peer.last_id = Some(expected);
            return Ok(expected);
        }
        if datagram.source.is_ipv6() {
            return Err(BadIcrc::Wrong);
        }
        let id = match solve_ipv4_id(computed, expected, *received, ib.len()) {
            Some(id) => id,
            None => peer
                .try_other_fragment_bit(covered, *received)
                .ok_or(BadIcrc::Wrong)?,
        };
        let is_first = peer.last_id.is_none();
        let jump = peer.last_id.map(|last| id.wrapping_sub(last));
        let is_late = jump.is_some_and(|jump| jump.wrapping_neg() <= MAX_REORDERING);
        let is_near = is_late || jump.is_some_and(|jump| jump <= MAX_JUMP);
        if !is_late {
            // Also where it is refused: a peer whose count jumped loses one packet.
            peer.last_id = Some(id);
        }
        if id <= MAX_PLACE || is_near || is_first {
            Ok(id)
        } else {
            Err(BadIcrc::ImplausibleId)
        }
    }

    fn peer(&mut self, datagram: &Datagram<'_>) -> Result<&mut Peer, BadIcrc> {
        let (source, destination) = (datagram.source.ip(), datagram.destination);
        let port = datagram.source.port();
        let slot = &mut self.peers[slot_of(source, port)];
        let known = slot.is_some_and(|peer| {
            peer.source == source && peer.destination == destination && peer.port == port
        });
        if !known {
            let prefix = prefix(source, destination, port, true).ok_or(BadIcrc::Wrong)?;
            *slot = Some(Peer {
                source,
                destination,
                port,
                prefix,
                dont_fragment: true,
                last_id: None,
            });
        }
        slot.as_mut().ok_or(BadIcrc::Wrong)
    }
}

impl Peer {
    /// Solves once more under the other assumption about the DF bit, and keeps that if it is right.
    fn try_other_fragment_bit(&mut self, covered: &[u8], received: [u8; 4]) -> Option<u16> {
        let other = prefix(
            self.source,
            self.destination,
            self.port,
            !self.dont_fragment,
        )?;
        let computed = other.compute(covered, 0);
        let id = solve_ipv4_id(computed, 0, received, covered.len() + 4)?;
        self.prefix = other;
        self.dont_fragment = !self.dont_fragment;
        Some(id)
    }
}

fn prefix(source: IpAddr, dest: IpAddr, port: u16, dont_fragment: bool) -> Option<IcrcPrefix> {
    Some(match (source, dest) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            IcrcPrefix::v2_ipv4(source, to, port, dont_fragment)
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => IcrcPrefix::v2_ipv6(source, to, port),
        _ => return None,
    })
}

fn slot_of(source: IpAddr, port: u16) -> usize {
    let address = match source {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            u32::from_be_bytes([octets[12], octets[13], octets[14], octets[15]])
        }
    };
    let hash = (address ^ u32::from(port) << 3).wrapping_mul(0x9e37_79b1);
    (hash >> 24) as usize % PEERS
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: (&str, &str) = ("192.0.2.1:50000", "198.51.100.2");
    const V6: (&str, &str) = ("[2001:db8::1]:50000", "2001:db8::2");

    /// A packet with the ICRC for an Identification.
    fn packet((source, destination): (&str, &str), id: u16, dont_fragment: bool) -> Vec<u8> {
        let source: core::net::SocketAddr = source.parse().expect("address");
        let dest = destination.parse().expect("address");
        let prefix = prefix(source.ip(), dest, source.port(), dont_fragment).expect("one family");
        let mut ib: Vec<u8> = (0..60).collect();
        ib.extend(prefix.compute(&ib, id));
        ib
    }

    fn datagram<'a>((source, destination): (&str, &str), bytes: &'a [u8]) -> Datagram<'a> {
        Datagram {
            bytes,
            source: source.parse().expect("address"),
            destination: destination.parse().expect("address"),
            traffic_class: 0,
            hop_limit: 64,
            interface: 1,
            place: 0,
        }
    }

    fn check(checker: &mut IcrcChecker, addresses: (&str, &str), id: u16) -> Result<u16, BadIcrc> {
        checker.check(&datagram(addresses, &packet(addresses, id, true)))
    }

    #[test]
    fn places_in_batches_are_plausible() {
        let mut checker = IcrcChecker::new();
        for id in [0, 1, 2, 127, 5, 0] {
            assert_eq!(check(&mut checker, V4, id), Ok(id));
        }
        let bytes = packet(V4, 9, true);
        let placed = Datagram {
            place: 9,
            ..datagram(V4, &bytes)
        };
        assert_eq!(checker.check(&placed), Ok(9));
    }

    /// A stack that counts may begin anywhere and pass the wrap, but not jump.
    #[test]
    fn counting_peers() {
        let mut checker = IcrcChecker::new();
        for id in [0xfff0, 0xfff1, 0xffff, 3, 0xfffe, 0x0fff] {
            assert_eq!(check(&mut checker, V4, id), Ok(id));
        }
        assert_eq!(check(&mut checker, V4, 0x5000), Err(BadIcrc::ImplausibleId));
        assert_eq!(check(&mut checker, V4, 0x5001), Ok(0x5001));
    }

    #[test]
    fn peers_without_the_df_bit() {
        let mut checker = IcrcChecker::new();
        for id in [4, 5] {
            let bytes = packet(V4, id, false);
            assert_eq!(checker.check(&datagram(V4, &bytes)), Ok(id));
        }
    }

    #[test]
    fn ipv6_is_exact() {
        let mut checker = IcrcChecker::new();
        assert_eq!(check(&mut checker, V6, 0), Ok(0));
        let mut bytes = packet(V6, 0, true);
        bytes[20] ^= 1;
        assert_eq!(checker.check(&datagram(V6, &bytes)), Err(BadIcrc::Wrong));
    }

    #[test]
    fn short_packets_are_refused() {
        let mut checker = IcrcChecker::new();
        for len in 0..16 {
            assert_eq!(
                checker.check(&datagram(V4, &[0; 16][..len])),
                Err(BadIcrc::Wrong)
            );
        }
    }

    /// Every single-byte corruption of a packet, but for a few that look like another place.
    #[test]
    fn corruption_is_noticed() {
        let mut checker = IcrcChecker::new();
        let mut bytes = packet(V4, 0, true);
        let mut passed = 0;
        for at in (0..bytes.len()).filter(|at| *at != 4) {
            for change in 1..=255 {
                bytes[at] ^= change;
                passed += u32::from(checker.check(&datagram(V4, &bytes)).is_ok());
                bytes[at] ^= change;
            }
        }
        assert!(passed <= 2, "{passed}");
        // The congestion byte is not covered.
        bytes[4] ^= 0xff;
        assert_eq!(checker.check(&datagram(V4, &bytes)), Ok(0));
    }
}
