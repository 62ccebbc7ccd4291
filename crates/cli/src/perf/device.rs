//! The RDMA device of an end: opened when the first job needs it, kept for the others.

use std::cell::OnceCell;
use std::net::IpAddr;

use hirail::Context;
use hirail_wire::Gid;

use crate::outcome::Error;

/// An open device and which of its addresses to use.
pub(crate) struct Device {
    /// The device.
    pub(crate) context: Context,
    /// Index of the GID that the other end reaches.
    pub(crate) gid_index: u8,
}

/// The devices of an end; so far there is one at most.
#[derive(Default)]
pub(crate) struct Devices(OnceCell<Device>);

impl Devices {
    /// The device with this address.
    pub(crate) fn at(&self, local: IpAddr) -> Result<&Device, Error> {
        if let Some(device) = self.0.get() {
            return Ok(device);
        }
        let device = open(local)?;
        Ok(self.0.get_or_init(|| device))
    }
}

fn open(local: IpAddr) -> Result<Device, Error> {
    if !local.is_loopback() {
        return Err(Error::new(format!(
            "RDMA is possible over the loopback device only so far, and {local} is not on it"
        )));
    }
    let context = Context::open_loopback()?;
    let gid = Gid::from_ip(local);
    let position = context.gids().iter().position(|entry| entry.gid == gid);
    let gid_index = position
        .and_then(|index| u8::try_from(index).ok())
        .ok_or_else(|| Error::new(format!("no device has the address {local}")))?;
    Ok(Device { context, gid_index })
}
