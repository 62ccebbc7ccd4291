//! Ports that an id holds: one on each device that it listens on.

use std::net::IpAddr;

use hirail_abi::{Cm, CmPort};

use crate::address;
use crate::bridge::bridge;
use crate::channel::Channel;
use crate::device::Device;
use crate::errno::Errno;

/// A port at an address of one device, or at all of its addresses.
pub(crate) struct Port {
    port: *mut CmPort,
    cm: *mut Cm,
}

// SAFETY: the functions of the bridge may be called from any thread.
unsafe impl Send for Port {}

impl Port {
    fn bind(device: &Device, space: u16, ip: IpAddr, number: u16) -> Result<Self, Errno> {
        let cm = device.cm()?;
        let gid = address::gid(ip);
        // SAFETY: a manager of the other library, and sixteen bytes.
        let port = unsafe { (bridge()?.port_bind)(cm, space, &raw const gid, number) };
        let port = Errno::check_pointer(port)?;
        Ok(Self { port, cm })
    }

    /// The number that it has got.
    fn number(&self) -> Result<u16, Errno> {
        // SAFETY: a port that is held.
        Ok(unsafe { (bridge()?.port_number)(self.port) })
    }

    /// Hears requests; the manager, and the listener's name there.
    pub(crate) fn listen(&self, backlog: u32, channel: &Channel) -> Result<(*mut Cm, u32), Errno> {
        let mut listener = 0;
        // SAFETY: a port that is held, a channel that exists.
        Errno::check(unsafe {
            (bridge()?.port_listen)(self.port, backlog, channel.cm(), &raw mut listener)
        })?;
        Ok((self.cm, listener))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Ok(bridge) = bridge() {
            // SAFETY: it is given up, once.
            unsafe { (bridge.port_free)(self.port) };
        }
    }
}

/// How often a number that is free on one device may be taken on another one.
const TRIES: u32 = 32;

/// Takes the same port on all `devices`; 0 takes any.
pub(crate) fn bind(
    devices: &[&'static Device],
    space: u16,
    ip: IpAddr,
    number: u16,
) -> Result<(Vec<Port>, u16), Errno> {
    let (first, rest) = devices.split_first().ok_or(Errno::NO_DEVICE)?;
    let mut tries = TRIES;
    loop {
        let mut ports = vec![Port::bind(first, space, ip, number)?];
        let found = ports[0].number()?;
        let others = rest
            .iter()
            .map(|device| Port::bind(device, space, ip, found));
        match others.collect::<Result<Vec<_>, _>>() {
            Ok(others) => {
                ports.extend(others);
                return Ok((ports, found));
            }
            Err(Errno(libc::EADDRINUSE)) if number == 0 && tries > 0 => tries -= 1,
            Err(errno) => return Err(errno),
        }
    }
}
