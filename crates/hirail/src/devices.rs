//! The devices of this host, in the manner of Linux: one per network interface, found by asking the
//! kernel. Nothing is configured, changed or kept.
//!
//! `hirail0` is the interface of the default route, `hirail1` and so on are the others in the
//! kernel's order, `hirail_lo` is the loopback. The names are never those of hardware drivers:
//! programs that treat, say, `mlx5_0` specially must not do so here.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, State,
};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use hirail_wire::{Gid, PathMtu};

use crate::error::Error;
use crate::port::sys;

/// A device: what this host's kernel says about one network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetDevice {
    /// The device's name.
    pub name: String,
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub index: u32,
    /// Its Ethernet address; zero where it has none.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// What kind it is.
    pub kind: Kind,
    /// Whether it passes packets now.
    pub is_up: bool,
    /// Speed of the link in Mb/s, where the driver knows.
    pub speed_mbps: Option<u32>,
    /// Its addresses as GIDs; the place is the GID index.
    pub gids: Vec<NetGid>,
    /// Whether batches of IPv4 packets are split in software here, so that the Identification of
    /// each packet is known. Hardware may number them in its own way.
    pub splits_in_software: bool,
}

/// An entry of a device's GID table. Its type is always RoCE v2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetGid {
    /// The GID.
    pub gid: Gid,
    /// Length of its network prefix.
    pub prefix_len: u8,
    /// Whether it is valid on its link only: packets need the interface's index.
    pub is_link_local: bool,
}

/// What an interface is, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The host itself.
    Loopback,
    /// One end of a virtual cable.
    Veth,
    /// Anything else.
    Other,
}

impl NetDevice {
    /// The largest path MTU that the port offers: the loopback carries any, others what the interface
    /// leaves after headers ([`PathMtu::from_netdev_mtu`]).
    pub fn path_mtu(&self) -> PathMtu {
        match self.kind {
            Kind::Loopback => PathMtu::Mtu4096,
            _ => PathMtu::from_netdev_mtu(self.mtu),
        }
    }

    /// The first IPv4 address.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gids.iter().find_map(|gid| match gid.gid.to_ip() {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
    }

    /// The first IPv6 address that is valid beyond the link, else the link-local one.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        let v6 = |gid: &NetGid| match gid.gid.to_ip() {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(v6),
        };
        let global = self
            .gids
            .iter()
            .filter(|gid| !gid.is_link_local)
            .find_map(v6);
        global.or_else(|| self.gids.iter().find_map(v6))
    }

    /// The GID index to use where nobody chose one: the first IPv4 address, else the first global
    /// IPv6 one, else the first.
    pub fn default_gid_index(&self) -> Option<usize> {
        let first = |wanted: &dyn Fn(&NetGid) -> bool| self.gids.iter().position(wanted);
        first(&|gid| gid.gid.to_ip().is_ipv4())
            .or_else(|| first(&|gid| !gid.is_link_local))
            .or_else(|| first(&|_| true))
    }

    /// Whether the kernel may split batches of packets from this device to `destination`: always over
    /// IPv6, over IPv4 where it is done in software, which it is on the way to an address of this
    /// host (`all` are its devices).
    pub fn may_segment(&self, destination: IpAddr, all: &[Self]) -> bool {
        let gid = Gid::from_ip(destination);
        destination.is_ipv6()
            || self.splits_in_software
            || all
                .iter()
                .flat_map(|device| &device.gids)
                .any(|local| local.gid == gid)
    }
}

/// The devices of the network namespace of this thread, `hirail0` first, `hirail_lo` last.
pub fn list() -> io::Result<Vec<NetDevice>> {
    let socket = sys::netlink(0)?;
    let socket = socket.as_fd();
    let mut links = BTreeMap::new();
    for answer in ask(socket, RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
        if let RouteNetlinkMessage::NewLink(link) = answer {
            links.insert(link.header.index, link);
        }
    }
    let addresses = HostAddresses::ask(socket)?;
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        for answer in ask(socket, RouteNetlinkMessage::GetRoute(question))? {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                routes.push(route);
            }
        }
    }

    let mut devices: Vec<_> = links
        .values()
        .filter_map(|link| device(link, addresses.of(link.header.index)))
        .collect();
    let default = default_interface(&routes);
    devices.sort_by_key(|device| {
        (
            device.kind == Kind::Loopback,
            Some(device.index) != default,
            device.index,
        )
    });
    for (number, device) in devices.iter_mut().enumerate() {
        device.name = match device.kind {
            Kind::Loopback => "hirail_lo".to_owned(),
            _ => format!("hirail{number}"),
        };
    }
    Ok(devices)
}

/// The one of `all` that is called `name`.
pub fn by_name<'a>(all: &'a [NetDevice], name: &str) -> Result<&'a NetDevice, Error> {
    if let Some(device) = all.iter().find(|device| device.name == name) {
        return Ok(device);
    }
    let of_interface = all.iter().find(|device| device.interface == name);
    Err(match of_interface {
        Some(device) => Error::NameOfInterface {
            interface: name.to_owned(),
            device: device.name.clone(),
        },
        None => Error::NoSuchDevice {
            name: name.to_owned(),
            known: all.iter().map(|device| device.name.clone()).collect(),
        },
    })
}

/// The one of `all` that has `address`; the loopback has all of its network.
pub fn by_address(all: &[NetDevice], address: IpAddr) -> Result<&NetDevice, Error> {
    let has_it = |device: &&NetDevice| {
        let is_loopback = device.kind == Kind::Loopback && address.is_loopback();
        is_loopback || device.gids.iter().any(|gid| gid.gid.to_ip() == address)
    };
    let found = all.iter().find(has_it);
    found.ok_or(Error::NoSuchAddress { address })
}

/// The usable addresses of all interfaces, by index.
#[derive(Default)]
pub(crate) struct HostAddresses(BTreeMap<u32, Vec<Address>>);

impl HostAddresses {
    /// Those of now, in the network namespace of a netlink socket.
    pub(crate) fn ask(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut this = Self::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = AddressMessage::default();
            question.header.family = family;
            for answer in ask(socket, RouteNetlinkMessage::GetAddress(question))? {
                if let RouteNetlinkMessage::NewAddress(message) = answer {
                    let interface = this.0.entry(message.header.index).or_default();
                    interface.extend(Address::read(&message));
                }
            }
        }
        Ok(this)
    }

    /// The GID table of a device that has them.
    pub(crate) fn gids(&self, device: &NetDevice) -> Vec<NetGid> {
        gids(device.mac, self.of(device.index))
    }

    /// All of them.
    pub(crate) fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.0.values().flatten().map(|address| address.ip)
    }

    fn of(&self, interface: u32) -> &[Address] {
        self.0.get(&interface).map_or(&[], Vec::as_slice)
    }

    /// Gives an interface an address.
    #[cfg(test)]
    pub(crate) fn add(&mut self, interface: u32, ip: IpAddr) {
        self.0.entry(interface).or_default().push(Address {
            ip,
            prefix_len: 24,
            is_link_local: false,
        });
    }
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Address {
    ip: IpAddr,
    prefix_len: u8,
    is_link_local: bool,
}

impl Address {
    /// Reads an address that packets can be sent from now.
    fn read(message: &AddressMessage) -> Option<Self> {
        let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
        if message.header.flags.intersects(unusable) {
            return None;
        }
        // With a point-to-point interface, `Address` is the other end.
        let local = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Local(ip) => Some(*ip),
                _ => None,
            });
        let address = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            });
        let ip = local.or(address)?;
        Some(Self {
            ip,
            prefix_len: message.header.prefix_len,
            is_link_local: ip.is_ipv6() && message.header.scope == AddressScope::Link,
        })
    }
}

/// The device of an interface. None for ports of a bridge or bond, whose addresses are on that, and
/// for what is neither Ethernet nor has an address.
fn device(link: &LinkMessage, addresses: &[Address]) -> Option<NetDevice> {
    let mut device = NetDevice {
        name: String::new(),
        interface: String::new(),
        index: link.header.index,
        mac: [0; 6],
        mtu: 0,
        kind: Kind::Other,
        is_up: false,
        speed_mbps: None,
        gids: Vec::new(),
        splits_in_software: false,
    };
    let flags = link.header.flags;
    // Without an operational state the flags have to do.
    let mut passes = flags.contains(LinkFlags::Running);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.interface.clone_from(name),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::Address(mac) => {
                device.mac = mac.as_slice().try_into().unwrap_or_default();
            }
            LinkAttribute::OperState(State::Up) => passes = true,
            LinkAttribute::OperState(State::Unknown) => {}
            LinkAttribute::OperState(_) => passes = false,
            LinkAttribute::Controller(_) => return None,
            LinkAttribute::LinkInfo(infos) if infos.contains(&LinkInfo::Kind(InfoKind::Veth)) => {
                device.kind = Kind::Veth;
            }
            _ => {}
        }
    }
    if flags.contains(LinkFlags::Loopback) {
        device.kind = Kind::Loopback;
    } else if link.header.link_layer_type != LinkLayerType::Ether && addresses.is_empty() {
        return None;
    }
    device.is_up = flags.contains(LinkFlags::Up) && passes;
    device.gids = gids(device.mac, addresses);
    device.speed_mbps = sys::link_speed(&device.interface);
    device.splits_in_software = matches!(device.kind, Kind::Loopback | Kind::Veth)
        || sys::interface_feature(&device.interface, "tx-udp-segmentation") == Some(false);
    Some(device)
}

/// The GID table: the link-local address made from the Ethernet address first, where the interface
/// has it, then IPv4 and IPv6 addresses in the kernel's order, as Linux fills it for its software
/// devices.
fn gids(mac: [u8; 6], addresses: &[Address]) -> Vec<NetGid> {
    let default = Gid::link_local(mac);
    let mut gids: Vec<_> = addresses
        .iter()
        .map(|address| NetGid {
            gid: Gid::from_ip(address.ip),
            prefix_len: address.prefix_len,
            is_link_local: address.is_link_local,
        })
        .collect();
    gids.sort_by_key(|entry| (entry.gid != default, entry.gid.to_ip().is_ipv6()));
    gids
}

/// The interface of the default route with the lowest metric, of IPv4 first.
fn default_interface(routes: &[RouteMessage]) -> Option<u32> {
    let default = |route: &&RouteMessage| {
        route.header.destination_prefix_length == 0
            && route.header.table == RouteHeader::RT_TABLE_MAIN
    };
    let candidates = routes.iter().filter(default).filter_map(|route| {
        let mut metric = 0;
        let mut interface = None;
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Priority(priority) => metric = *priority,
                _ => {}
            }
        }
        let is_v6 = route.header.address_family == AddressFamily::Inet6;
        Some((is_v6, metric, interface?))
    });
    candidates.min().map(|(_, _, interface)| interface)
}

/// Asks the kernel for a list.
fn ask(
    socket: BorrowedFd<'_>,
    question: RouteNetlinkMessage,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(question));
    message.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut answers = Vec::new();
    let mut failure = None;
    sys::ask_netlink(socket, &bytes, |mut datagram| {
        while datagram.len() >= 16 {
            // The length of each message is its first word.
            let len = u32::from_ne_bytes([datagram[0], datagram[1], datagram[2], datagram[3]]);
            let len = usize::try_from(len).unwrap_or(0).clamp(16, datagram.len());
            match NetlinkMessage::deserialize(&datagram[..len]).map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
                Ok(NetlinkPayload::Done(_)) => return false,
                Ok(NetlinkPayload::Error(error)) => {
                    failure = Some(error.to_io());
                    return false;
                }
                // A message that the library cannot read is about something newer than it.
                Ok(_) | Err(_) => {}
            }
            datagram = &datagram[len.next_multiple_of(4).min(datagram.len())..];
        }
        true
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0xfc, 0, 0, 0, 1];

    fn address(ip: &str) -> Address {
        let ip: IpAddr = ip.parse().expect("address");
        let is_link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Address {
            ip,
            prefix_len: 24,
            is_link_local,
        }
    }

    fn bare(interface: &str) -> NetDevice {
        NetDevice {
            name: String::new(),
            interface: interface.to_owned(),
            index: 2,
            mac: MAC,
            mtu: 1500,
            kind: Kind::Other,
            is_up: true,
            speed_mbps: None,
            gids: Vec::new(),
            splits_in_software: false,
        }
    }

    #[test]
    fn gid_order() {
        let addresses: Vec<_> = [
            "192.0.2.2",
            "198.51.100.1",
            "fd00::2",
            "fe80::5",
            "fe80::fc:ff:fe00:1",
        ]
        .map(address)
        .into();
        let table = gids(MAC, &addresses);
        let order: Vec<IpAddr> = table.iter().map(|entry| entry.gid.to_ip()).collect();
        let expected = [
            "fe80::fc:ff:fe00:1",
            "192.0.2.2",
            "198.51.100.1",
            "fd00::2",
            "fe80::5",
        ];
        assert_eq!(
            order,
            expected.map(|ip| ip.parse::<IpAddr>().expect("address"))
        );
        let device = NetDevice {
            gids: table,
            ..bare("eth0")
        };
        assert_eq!(device.default_gid_index(), Some(1));
        assert_eq!(device.ipv4(), Some(Ipv4Addr::new(192, 0, 2, 2)));
        assert_eq!(device.ipv6(), "fd00::2".parse().ok());
        let device = NetDevice {
            gids: gids(MAC, &[address("fe80::5")]),
            ..bare("eth0")
        };
        assert_eq!((device.default_gid_index(), device.ipv4()), (Some(0), None));
        assert_eq!(device.ipv6(), "fe80::5".parse().ok());
    }

    #[test]
    fn batches_over_ipv4_only_where_split_in_software() {
        let away = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));
        let card = NetDevice {
            gids: gids(MAC, &[address("192.0.2.2")]),
            ..bare("eth0")
        };
        let all = [card.clone()];
        assert!(!card.may_segment(away, &all));
        assert!(card.may_segment("2001:db8::1".parse().expect("address"), &all));
        assert!(card.may_segment(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), &all));
        let soft = NetDevice {
            splits_in_software: true,
            ..card
        };
        assert!(soft.may_segment(away, &all));
    }

    #[test]
    fn devices_are_found_by_name_and_address() {
        let lo = NetDevice {
            name: "hirail_lo".into(),
            kind: Kind::Loopback,
            gids: gids([0; 6], &[address("127.0.0.1")]),
            ..bare("lo")
        };
        let eth0 = NetDevice {
            name: "hirail0".into(),
            gids: gids(MAC, &[address("192.0.2.2")]),
            ..bare("eth0")
        };
        let all = [eth0, lo];
        let by_name = |name| {
            let found = by_name(&all, name);
            found.map_or_else(|error| error.to_string(), |device| device.interface.clone())
        };
        assert_eq!(by_name("hirail0"), "eth0");
        assert_eq!(
            by_name("eth0"),
            "eth0 is a network interface; its device is called hirail0"
        );
        assert_eq!(
            by_name("mlx5_0"),
            "there is no device mlx5_0; there are: hirail0, hirail_lo"
        );
        let by_address = |ip: &str| {
            let found = by_address(&all, ip.parse().expect("address"));
            found.map_or_else(|error| error.to_string(), |device| device.name.clone())
        };
        assert_eq!(by_address("192.0.2.2"), "hirail0");
        assert_eq!(by_address("127.0.0.9"), "hirail_lo");
        assert_eq!(
            by_address("192.0.2.3"),
            "no device has the address 192.0.2.3"
        );
    }

    /// This host as the kernel tells it: a loopback with its addresses, unique names, and the same
    /// interfaces that the standard tools see.
    #[test]
    fn devices_of_this_host() {
        let devices = list().expect("netlink");
        let lo = devices.last().expect("a loopback");
        assert_eq!(
            (lo.name.as_str(), lo.interface.as_str()),
            ("hirail_lo", "lo")
        );
        assert_eq!((lo.kind, lo.path_mtu()), (Kind::Loopback, PathMtu::Mtu4096));
        assert!(lo.splits_in_software);
        if lo.is_up {
            assert_eq!(lo.ipv4(), Some(Ipv4Addr::LOCALHOST));
        }
        for (number, device) in devices[..devices.len() - 1].iter().enumerate() {
            assert_eq!(device.name, format!("hirail{number}"));
            let folder = std::path::Path::new("/sys/class/net").join(&device.interface);
            let read = |file| std::fs::read_to_string(folder.join(file)).expect("sysfs");
            assert_eq!(read("ifindex").trim(), device.index.to_string());
            assert_eq!(read("mtu").trim(), device.mtu.to_string());
            let mac = device.mac.map(|byte| format!("{byte:02x}")).join(":");
            assert_eq!(read("address").trim(), mac);
        }
    }
}
