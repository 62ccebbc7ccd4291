//! Which Ethernet address an IP address has: the kernel's routes and neighbours, asked and used, but
//! never changed.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use hirail_wire::MacAddr;

use crate::port::sys;

/// Where datagrams go that only make the kernel look for a neighbour ("discard").
const DISCARD_PORT: u16 = 9;

/// The station that packets to `destination` go to: itself where it is on the link, else a router.
/// Nothing where they do not leave by this interface.
pub(crate) fn next_hop(destination: IpAddr, interface: u32) -> Option<IpAddr> {
    let mut question = RouteMessage::default();
    question.header.address_family = family(destination);
    question.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
    question.attributes = vec![
        RouteAttribute::Destination(destination.into()),
        RouteAttribute::Oif(interface),
    ];
    let RouteNetlinkMessage::NewRoute(route) = ask(RouteNetlinkMessage::GetRoute(question)).ok()?
    else {
        return None;
    };
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut hop = destination;
    for attribute in route.attributes {
        match attribute {
            RouteAttribute::Oif(index) if index != interface => return None,
            RouteAttribute::Gateway(RouteAddress::Inet(v4))
            | RouteAttribute::Via(RouteVia::Inet(v4)) => hop = v4.into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6))
            | RouteAttribute::Via(RouteVia::Inet6(v6)) => hop = v6.into(),
            _ => {}
        }
    }
    Some(hop)
}

/// What the kernel knows about a station on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Neighbour {
    /// Its address, confirmed lately or for ever.
    Fresh(MacAddr),
    /// Its address some time ago.
    Stale(MacAddr),
    /// It does not answer.
    Silent,
    /// Nothing, or nothing yet.
    Unknown,
}

/// Looks a station up.
pub(crate) fn look_up(station: IpAddr, interface: u32) -> Neighbour {
    let mut question = NeighbourMessage::default();
    question.header.family = family(station);
    question.header.ifindex = interface;
    question.attributes = vec![NeighbourAttribute::Destination(match station {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    })];
    match ask(RouteNetlinkMessage::GetNeighbour(question)) {
        Ok(RouteNetlinkMessage::NewNeighbour(answer)) => judge(&answer),
        _ => Neighbour::Unknown,
    }
}

fn judge(answer: &NeighbourMessage) -> Neighbour {
    let mac = answer
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                Some(MacAddr(bytes.as_slice().try_into().ok()?))
            }
            _ => None,
        });
    match (answer.header.state, mac) {
        (NeighbourState::Failed, _) => Neighbour::Silent,
        (
            NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp,
            Some(mac),
        ) => Neighbour::Fresh(mac),
        (NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe, Some(mac)) => {
            Neighbour::Stale(mac)
        }
        _ => Neighbour::Unknown,
    }
}

/// Makes the kernel look for a station on the link, or confirm what it knows: it gets an empty
/// datagram from `source`. The answer shows in [`look_up`] a little later, if one comes.
pub(crate) fn solicit(station: IpAddr, source: IpAddr, interface: &str, index: u32) {
    let attempt = || -> io::Result<()> {
        let (domain, from, to) = match (source, station) {
            (IpAddr::V4(_), IpAddr::V4(_)) => (
                libc::AF_INET,
                SocketAddr::new(source, 0),
                SocketAddr::new(station, DISCARD_PORT),
            ),
            (IpAddr::V6(source), IpAddr::V6(station)) => (
                libc::AF_INET6,
                SocketAddr::V6(SocketAddrV6::new(source, 0, 0, index)),
                SocketAddr::V6(SocketAddrV6::new(station, DISCARD_PORT, 0, index)),
            ),
            // A router of the other family: asked for without a source of its own.
            (_, IpAddr::V4(_)) => (
                libc::AF_INET,
                SocketAddr::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0),
                SocketAddr::new(station, DISCARD_PORT),
            ),
            (_, IpAddr::V6(station)) => (
                libc::AF_INET6,
                SocketAddr::new(core::net::Ipv6Addr::UNSPECIFIED.into(), 0),
                SocketAddr::V6(SocketAddrV6::new(station, DISCARD_PORT, 0, index)),
            ),
        };
        let socket = sys::socket(domain)?;
        let mut name = [0; libc::IFNAMSIZ];
        let len = interface.len().min(name.len() - 1);
        name[..len].copy_from_slice(&interface.as_bytes()[..len]);
        sys::set(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name,
        )?;
        sys::bind(socket.as_fd(), &sys::Address::ip(from))?;
        sys::send_to(socket.as_fd(), &[], &sys::Address::ip(to))
    };
    // Where that fails, so will every other attempt to reach the station, and that is counted.
    let _ = attempt();
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Asks the kernel for one thing.
fn ask(question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(question));
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut answer = Err(io::ErrorKind::InvalidData.into());
    let socket = sys::netlink(0)?;
    sys::ask_netlink(socket.as_fd(), &bytes, |datagram| {
        if let Ok(message) = NetlinkMessage::deserialize(datagram) {
            answer = match message.payload {
                NetlinkPayload::InnerMessage(inner) => Ok(inner),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            };
        }
        false
    })?;
    answer
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn what_the_kernel_says_is_judged() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let mut answer = NeighbourMessage::default();
        answer.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.0.into())];
        for (state, expected) in [
            (NeighbourState::Reachable, Neighbour::Fresh(mac)),
            (NeighbourState::Permanent, Neighbour::Fresh(mac)),
            (NeighbourState::Noarp, Neighbour::Fresh(mac)),
            (NeighbourState::Stale, Neighbour::Stale(mac)),
            (NeighbourState::Delay, Neighbour::Stale(mac)),
            (NeighbourState::Probe, Neighbour::Stale(mac)),
            (NeighbourState::Incomplete, Neighbour::Unknown),
            (NeighbourState::Failed, Neighbour::Silent),
        ] {
            answer.header.state = state;
            assert_eq!(judge(&answer), expected);
        }
        answer.attributes.clear();
        answer.header.state = NeighbourState::Reachable;
        assert_eq!(judge(&answer), Neighbour::Unknown);
    }

    /// Addresses of this host leave by no interface; nobody has those of the documentation.
    #[test]
    fn the_kernel_answers() {
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(next_hop(own, 1), None);
        let nobody = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
        assert_eq!(look_up(nobody, 1), Neighbour::Unknown);
    }
}
