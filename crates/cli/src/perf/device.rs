//! The RDMA device of an end: which one, and opened when the first job needs it.

use std::cell::OnceCell;
use std::net::IpAddr;

use hirail::{Context, devices};
use hirail_wire::Gid;

use crate::outcome::Error;

/// Which device, as it is said on the command line.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// RDMA device of this end ('hirail devices' lists them) [default: the one with the address]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Index of its GID to use [default: the first IPv4 address]
    #[arg(long, value_name = "N", requires = "device")]
    gid_index: Option<u8>,
}

impl Choice {
    /// The arguments that say the same to another process of this program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let device = self
            .device
            .iter()
            .flat_map(|name| ["--device".to_owned(), name.clone()]);
        let index = self
            .gid_index
            .iter()
            .flat_map(|n| ["--gid-index".to_owned(), n.to_string()]);
        device.chain(index).collect()
    }

    /// The address of the device that was chosen, if one was.
    pub(crate) fn address(&self) -> Result<Option<IpAddr>, Error> {
        let Some(name) = &self.device else {
            return Ok(None);
        };
        let all = devices::list().map_err(hirail::Error::Interfaces)?;
        let Some(device) = all.iter().find(|device| device.name == *name) else {
            let known = all.into_iter().map(|device| device.name).collect();
            return Err(hirail::Error::NoSuchDevice {
                name: name.clone(),
                known,
            }
            .into());
        };
        let index = self
            .gid_index
            .map(usize::from)
            .or_else(|| device.default_gid_index());
        match index.and_then(|index| device.gids.get(index)) {
            Some(entry) => Ok(Some(entry.gid.to_ip())),
            None => Err(hirail::Error::NoSuchGid {
                index: self.gid_index.unwrap_or(0),
                count: device.gids.len(),
            }
            .into()),
        }
    }
}

/// An open device and which of its addresses to use.
pub(crate) struct Device {
    /// The device.
    pub(crate) context: Context,
    /// Index of the GID that the other end reaches.
    pub(crate) gid_index: u8,
}

/// The device of an end, once it is open.
pub(crate) struct Devices {
    choice: Choice,
    open: OnceCell<Device>,
}

impl Devices {
    /// The one of this choice, not open yet.
    pub(crate) fn new(choice: Choice) -> Self {
        Self {
            choice,
            open: OnceCell::new(),
        }
    }

    /// The device with this address, which is the choice's own where one was made.
    pub(crate) fn at(&self, local: IpAddr) -> Result<&Device, Error> {
        if let Some(device) = self.open.get() {
            return Ok(device);
        }
        let context = match &self.choice.device {
            Some(name) => Context::open(name)?,
            None => Context::open_address(local)?,
        };
        let gid = Gid::from_ip(local);
        let position = context.gids().iter().position(|entry| entry.gid == gid);
        let gid_index = position
            .and_then(|index| u8::try_from(index).ok())
            .ok_or(hirail::Error::NoSuchAddress { address: local })?;
        Ok(self.open.get_or_init(|| Device { context, gid_index }))
    }
}
