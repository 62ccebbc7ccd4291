//! RDMA ports of this host: a port belongs to one process, whichever of those that share UDP port
//! 4791 that is.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use hirail_cm::{PortSpace, ServiceId};

use super::manager::Manager;
use super::{EventChannel, ListenerId};
use crate::error::Error;
use crate::port::sys;

/// The ports that are given out to those who do not care, as Linux does.
const EPHEMERAL: core::ops::Range<u16> = 32768..61000;

/// A port at an address of a device, or at all of them. It is free again when this is dropped.
#[derive(Debug)]
pub struct BoundPort {
    manager: Manager,
    space: PortSpace,
    address: SocketAddr,
    /// Addresses for which requests come here.
    held: Vec<IpAddr>,
    listener: Option<ListenerId>,
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
        let mut this = Self {
            manager: manager.clone(),
            space,
            address,
            held: Vec::new(),
            listener: None,
        };
        manager.claim(service, address.ip())?;
        let rnic = manager.context().rnic();
        for ip in addresses {
            match rnic.listen(service.0, ip) {
                Ok(()) => this.held.push(ip),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    return Err(Error::AddressInUse { address });
                }
                Err(error) => return Err(Error::Descriptor(error)),
            }
        }
        Ok(this)
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The service that stands for it.
    pub fn service(&self) -> ServiceId {
        ServiceId::of_port(self.space, self.address.port())
    }

    /// Hears requests from now on; their events go to `channel`. Up to `backlog` may wait there.
    ///
    /// # Errors
    /// It does already.
    pub fn listen(&mut self, backlog: u32, channel: &EventChannel) -> Result<ListenerId, Error> {
        let ip = self.address.ip();
        let address = (!ip.is_unspecified()).then_some(ip);
        let listener = self
            .manager
            .listen(self.service(), address, backlog, channel)?;
        self.listener = Some(listener);
        Ok(listener)
    }
}

impl Drop for BoundPort {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        if let Some(listener) = self.listener {
            let _ = self.manager.unlisten(listener);
        }
        let service = self.service();
        for ip in &self.held {
            self.manager.context().rnic().ignore(service.0, *ip);
        }
        self.manager.unclaim(service, self.address.ip());
    }
}
