//! The GID table follows the addresses of its interface while the device is open.
//!
//! The kernel tells when an address comes or goes; then the addresses are read anew. Indices are what
//! queue pairs and programs know GIDs by, so an entry keeps its place as long as its address exists,
//! the place of one that is gone stays empty until another address needs it, and nothing moves up.
//!
//! Other interfaces matter as well: packets to an address of this host do not leave it.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hirail_rnic::GidEntry;
use hirail_wire::Gid;

use crate::devices::{HostAddresses, NetDevice};
use crate::fork::Descriptor;
use crate::port::sys;

/// Entries at most: an index is one byte.
const MOST: usize = 256;

/// How a link makes entries from the addresses of its interface.
type Entries = Box<dyn Fn(&NetDevice) -> Vec<GidEntry> + Send>;

/// See the module's description.
pub(super) struct GidWatch {
    /// Readable when addresses have changed.
    news: Descriptor,
    /// The kernel is asked here: who drives may be in another network namespace by now.
    questions: OwnedFd,
    device: NetDevice,
    entries: Entries,
    table: Vec<GidEntry>,
    /// Addresses of this host.
    local: HashSet<IpAddr>,
}

impl GidWatch {
    /// Watches the addresses of `device`.
    pub(super) fn new(
        device: &NetDevice,
        entries: impl Fn(&NetDevice) -> Vec<GidEntry> + Send + 'static,
    ) -> io::Result<Self> {
        let news = sys::netlink(sys::ADDRESS_NEWS)?;
        let mut this = Self {
            news: Descriptor::new(news),
            questions: sys::netlink(0)?,
            device: device.clone(),
            table: Vec::new(),
            local: HashSet::new(),
            entries: Box::new(entries),
        };
        this.table = (this.entries)(device);
        this.table.truncate(MOST);
        let addresses = HostAddresses::ask(this.questions.as_fd())?;
        this.local = addresses.ips().collect();
        Ok(this)
    }

    /// The table as it is known.
    pub(super) fn table(&self) -> &[GidEntry] {
        &self.table
    }

    /// The table, if it has changed.
    pub(super) fn changed(&mut self) -> Option<&[GidEntry]> {
        if !sys::drain(self.news.as_fd()) {
            return None;
        }
        // Where the kernel does not answer everything stays as it is, until the next change.
        let addresses = HostAddresses::ask(self.questions.as_fd()).ok()?;
        self.learn(&addresses)
    }

    /// Whether packets to `ip` stay in this host, as far as is known.
    pub(super) fn is_local(&self, ip: &IpAddr) -> bool {
        self.local.contains(ip)
    }

    /// The host has these addresses now; the table, if that changes it.
    fn learn(&mut self, addresses: &HostAddresses) -> Option<&[GidEntry]> {
        self.local = addresses.ips().collect();
        self.device.gids = addresses.gids(&self.device);
        let table = follow(&self.table, (self.entries)(&self.device));
        if table == self.table {
            return None;
        }
        self.table = table;
        Some(&self.table)
    }
}

impl AsFd for GidWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

/// The table after the entries have become `now`.
fn follow(table: &[GidEntry], now: Vec<GidEntry>) -> Vec<GidEntry> {
    let empty = |entry: &GidEntry| entry.gid == Gid::default();
    let mut table = table.to_vec();
    for entry in &mut table {
        if !now.contains(entry) {
            entry.gid = Gid::default();
        }
    }
    for entry in now {
        if table.contains(&entry) {
            continue;
        }
        match table.iter().position(empty) {
            Some(place) => table[place] = entry,
            None if table.len() < MOST => table.push(entry),
            None => {}
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use hirail_rnic::RoceVersion::{self, V1, V2};

    use crate::devices::Kind;

    use super::*;

    fn entry(host: u8, version: RoceVersion) -> GidEntry {
        let gid = match host {
            0 => Gid::default(),
            _ => Ipv4Addr::new(192, 0, 2, host).into(),
        };
        GidEntry { gid, version }
    }

    #[test]
    fn nothing_moves() {
        let table = [entry(1, V2), entry(2, V2), entry(3, V2)];
        let gone = follow(&table, vec![entry(3, V2), entry(1, V2)]);
        assert_eq!(gone, [entry(1, V2), entry(0, V2), entry(3, V2)]);
        let more = follow(
            &gone,
            vec![entry(4, V1), entry(1, V2), entry(5, V2), entry(3, V2)],
        );
        assert_eq!(
            more,
            [entry(1, V2), entry(4, V1), entry(3, V2), entry(5, V2)]
        );
        // The version is a part of an entry.
        let other = follow(&more, vec![entry(4, V2)]);
        assert_eq!(other[0], entry(4, V2));
        assert!(other[1..].iter().all(|entry| entry.gid == Gid::default()));
    }

    /// An address that another interface got, or lost, changes where packets go, but not the table.
    #[test]
    fn addresses_of_other_interfaces_are_known() {
        let device = NetDevice {
            name: "hirail0".to_owned(),
            interface: "eth0".to_owned(),
            index: 7,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            kind: Kind::Other,
            is_up: true,
            speed_mbps: None,
            gids: Vec::new(),
            splits_in_software: false,
        };
        let entries = |device: &NetDevice| {
            let entry = |gid: &crate::devices::NetGid| GidEntry {
                gid: gid.gid,
                version: V2,
            };
            device.gids.iter().map(entry).collect()
        };
        let mut watch = GidWatch::new(&device, entries).expect("netlink");
        let ip = |host| IpAddr::from([192, 0, 2, host]);
        assert!(watch.is_local(&Ipv4Addr::LOCALHOST.into()));
        assert!(!watch.is_local(&ip(1)));

        let mut addresses = HostAddresses::default();
        addresses.add(7, ip(1));
        let table = watch.learn(&addresses).expect("a new entry");
        assert_eq!(table, [entry(1, V2)]);
        addresses.add(8, ip(2));
        assert_eq!(watch.learn(&addresses), None);
        assert!(watch.is_local(&ip(1)) && watch.is_local(&ip(2)));

        let mut addresses = HostAddresses::default();
        addresses.add(7, ip(1));
        assert_eq!(watch.learn(&addresses), None);
        assert!(watch.is_local(&ip(1)) && !watch.is_local(&ip(2)));
    }

    #[test]
    fn an_index_is_one_byte() {
        let all: Vec<_> = (1..=255).map(|host| entry(host, V1)).collect();
        let table = follow(
            &all,
            [all.clone(), vec![entry(1, V2), entry(2, V2)]].concat(),
        );
        assert_eq!(table.len(), MOST);
    }
}
