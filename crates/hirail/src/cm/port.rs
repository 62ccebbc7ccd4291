//! RDMA ports of this host: a port belongs to one process, whichever of those that share UDP port
//! 4791 that is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hirail_cm::{PortSpace, ServiceId};

use super::manager::Manager;
use super::{EventChannel, ListenerId};
use crate::error::Error;
use crate::fork::Descriptor;
use crate::port::sys;

/// The ports that are given out to those who do not care, as Linux does.
const EPHEMERAL: core::ops::Range<u16> = 32768..61000;

/// A port at an address of a device, or at all of them, those included that the device gets later. It
/// is free again when this is dropped.
#[derive(Debug)]
pub struct BoundPort {
    place: Arc<Place>,
    listener: Option<ListenerId>,
}

/// What a port is at.
#[derive(Debug)]
pub(super) struct Place {
    manager: Manager,
    space: PortSpace,
    address: SocketAddr,
    held: Mutex<Held>,
}

/// What a process has of a port.
#[derive(Debug, Default)]
struct Held {
    /// The addresses, and what keeps other processes from having them.
    addresses: BTreeMap<IpAddr, Option<Descriptor>>,
    /// Whether requests for them come here.
    is_heard: bool,
}

impl BoundPort {
    /// Takes a port. An unspecified address is all addresses of the device; port 0 takes any that is
    /// free.
    ///
    /// # Errors
    /// The device does not have the address, or somebody has the port.
    pub fn bind(manager: &Manager, space: PortSpace, address: SocketAddr) -> Result<Self, Error> {
        crate::fork::check()?;
        if address.port() != 0 {
            return Self::take(manager, space, address);
        }
        let count = EPHEMERAL.end - EPHEMERAL.start;
        let start = (sys::random() % u64::from(count)) as u16;
        for step in 0..count {
            let port = EPHEMERAL.start + (start + step) % count;
            let address = SocketAddr::new(address.ip(), port);
            match Self::take(manager, space, address) {
                Err(Error::AddressInUse { .. }) => {}
                other => return other,
            }
        }
        Err(Error::AddressInUse { address })
    }

    fn take(manager: &Manager, space: PortSpace, address: SocketAddr) -> Result<Self, Error> {
        let addresses = manager.addresses_of(address.ip())?;
        let service = ServiceId::of_port(space, address.port());
        manager.claim(service, address.ip())?;
        // From here on it is given back when this is dropped.
        let place = Arc::new(Place {
            manager: manager.clone(),
            space,
            address,
            held: Mutex::default(),
        });
        for ip in addresses {
            match place.take(&mut place.held(), ip) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    return Err(Error::AddressInUse { address });
                }
                Err(error) => return Err(Error::Descriptor(error)),
            }
        }
        if address.ip().is_unspecified() {
            manager.follow_addresses(&place);
        }
        Ok(Self {
            place,
            listener: None,
        })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.place.address
    }

    /// The service that stands for it.
    pub fn service(&self) -> ServiceId {
        self.place.service()
    }

    /// Hears requests from now on; their events go to `channel`. Up to `backlog` may wait there.
    ///
    /// # Errors
    /// It does already.
    pub fn listen(&mut self, backlog: u32, channel: &EventChannel) -> Result<ListenerId, Error> {
        let Place {
            manager, address, ..
        } = &*self.place;
        let ip = address.ip();
        let only = (!ip.is_unspecified()).then_some(ip);
        let listener = manager.listen(self.service(), only, backlog, channel)?;
        self.listener = Some(listener);
        // Only now: what comes is heard.
        self.place.hear().map_err(Error::Descriptor)?;
        Ok(listener)
    }
}

impl Place {
    fn service(&self) -> ServiceId {
        ServiceId::of_port(self.space, self.address.port())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other processes from having one of the addresses.
    fn take(&self, held: &mut Held, ip: IpAddr) -> io::Result<()> {
        let rnic = self.manager.context().rnic();
        let service = self.service().0;
        let claimed = rnic.claim(service, ip)?;
        if held.is_heard {
            rnic.listen(service, ip)?;
        }
        held.addresses.insert(ip, claimed);
        Ok(())
    }

    /// Requests for all addresses come here.
    fn hear(&self) -> io::Result<()> {
        let mut held = self.held();
        let rnic = self.manager.context().rnic();
        held.is_heard = true;
        for ip in held.addresses.keys() {
            rnic.listen(self.service().0, *ip)?;
        }
        Ok(())
    }

    /// The device has these addresses now. One where another process has the port is left to it.
    pub(super) fn follow(&self, now: &BTreeSet<IpAddr>) {
        let is_wanted = |ip: &IpAddr| self.address.is_ipv6() || ip.is_ipv4();
        let mut held = self.held();
        let rnic = self.manager.context().rnic();
        held.addresses.retain(|ip, _| {
            let stays = now.contains(ip);
            if !stays {
                rnic.ignore(self.service().0, *ip);
            }
            stays
        });
        for ip in now.iter().filter(|ip| is_wanted(ip)) {
            if !held.addresses.contains_key(ip) {
                let _ = self.take(&mut held, *ip);
            }
        }
    }
}

impl Drop for BoundPort {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        if let Some(listener) = self.listener {
            let _ = self.place.manager.unlisten(listener);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        let service = self.service();
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ip in held.addresses.keys() {
            self.manager.context().rnic().ignore(service.0, *ip);
        }
        self.manager.unclaim(service, self.address.ip());
    }
}
