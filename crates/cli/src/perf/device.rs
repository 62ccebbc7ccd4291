//! The RDMA device of an end: which one, and opened when the first job needs it.

use std::cell::OnceCell;
use std::net::IpAddr;

use clap::ValueEnum;
use hirail::devices::{self, NetDevice};
use hirail::{Context, RawOptions, RoceVersions};
use hirail_wire::Gid;
use serde::{Deserialize, Serialize};

use crate::outcome::Error;

/// What the device runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum Link {
    /// RoCE v2 over UDP sockets, which needs no privilege
    #[default]
    Udp,
    /// RoCE v2 in raw Ethernet frames, which needs CAP_NET_RAW
    Raw,
    /// RoCE v1 in raw Ethernet frames; at both ends
    RawV1,
}

impl Link {
    /// As it is said on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .expect("no link is hidden")
            .get_name()
            .to_owned()
    }

    /// Whether packets of one link come out of the other. What a raw port sends does not come back
    /// to its own host, except to raw ports.
    pub(crate) fn reaches(self, other: Self, is_same_host: bool) -> bool {
        match (self, other) {
            (Self::Udp, Self::Raw) | (Self::Raw, Self::Udp) => !is_same_host,
            _ => self == other,
        }
    }

    /// How to open the raw link.
    fn raw(self) -> Option<RawOptions> {
        let versions = match self {
            Self::Udp => return None,
            Self::Raw => RoceVersions::V2,
            Self::RawV1 => RoceVersions::V1,
        };
        Some(RawOptions {
            versions,
            ..RawOptions::default()
        })
    }
}

/// Which device, as it is said on the command line.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// RDMA device of this end ('hirail devices' lists them) [default: the one with the address]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Index of its GID to use [default: the first IPv4 address]
    #[arg(long, value_name = "N", requires = "device")]
    gid_index: Option<u8>,

    /// What this end's device runs on [default: udp]
    #[arg(long, value_enum, value_name = "LINK")]
    link: Option<Link>,
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
        let link = self
            .link
            .iter()
            .flat_map(|link| ["--link".to_owned(), link.name()]);
        device.chain(index).chain(link).collect()
    }

    /// Opens the device that has this address, on the link that was chosen.
    fn open(&self, local: IpAddr) -> Result<Context, hirail::Error> {
        if let Some(options) = self.link.unwrap_or_default().raw() {
            let interface = self.interface(local)?;
            return Context::open_raw(&interface, options);
        }
        match &self.device {
            Some(name) => Context::open(name),
            None => Context::open_address(local),
        }
    }

    /// The network interface of the device.
    fn interface(&self, local: IpAddr) -> Result<String, hirail::Error> {
        let all = devices::list().map_err(hirail::Error::Interfaces)?;
        let is_it = |device: &&NetDevice| match &self.device {
            Some(name) => device.name == *name,
            None => device.gids.iter().any(|gid| gid.gid.to_ip() == local),
        };
        let found = all.iter().find(is_it);
        let found = found.ok_or(hirail::Error::NoSuchAddress { address: local })?;
        Ok(found.interface.clone())
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
        if device.gids.is_empty() {
            return Err(Error::new(format!(
                "the device {name} cannot be reached: its interface {} has no address",
                device.interface
            )));
        }
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

    /// What it runs on.
    pub(crate) fn link(&self) -> Link {
        self.choice.link.unwrap_or_default()
    }

    /// The device with this address, which is the choice's own where one was made.
    pub(crate) fn at(&self, local: IpAddr) -> Result<&Device, Error> {
        if let Some(device) = self.open.get() {
            return Ok(device);
        }
        let context = self.choice.open(local)?;
        let gid = Gid::from_ip(local);
        let position = context.gids().iter().position(|entry| entry.gid == gid);
        let gid_index = position
            .and_then(|index| u8::try_from(index).ok())
            .ok_or(hirail::Error::NoSuchAddress { address: local })?;
        Ok(self.open.get_or_init(|| Device { context, gid_index }))
    }
}
