//! The RDMA device of an end: which one, and opened when the first job needs it.

use std::cell::OnceCell;
use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use hirail::devices::{self, NetDevice};
use hirail::{Context, RawOptions, RoceVersions};
use hirail_wire::Gid;
use serde::{Deserialize, Serialize};

use crate::number;
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
    #[arg(long, value_name = "N", value_parser = number::within::<u8>(0..=255), allow_negative_numbers = true)]
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
        Ok(self.find(&all, local)?.interface.clone())
    }

    /// The device that was chosen, or the one with this address.
    fn find<'a>(
        &self,
        all: &'a [NetDevice],
        local: IpAddr,
    ) -> Result<&'a NetDevice, hirail::Error> {
        match &self.device {
            Some(name) => devices::by_name(all, name),
            None => devices::by_address(all, local),
        }
    }

    /// What a run with this address goes over.
    pub(crate) fn over(&self, address: IpAddr) -> Result<Over, Error> {
        let all = devices::list().map_err(hirail::Error::Interfaces)?;
        let device = self.find(&all, address)?;
        Ok(Over {
            device: device.name.clone(),
            interface: device.interface.clone(),
            address,
            link: self.link.unwrap_or_default().name(),
        })
    }

    /// The address of this end: `local`, unless a device or a GID was chosen.
    pub(crate) fn address(&self, local: IpAddr) -> Result<IpAddr, Error> {
        if self.device.is_none() && self.gid_index.is_none() {
            return Ok(local);
        }
        let all = devices::list().map_err(hirail::Error::Interfaces)?;
        let device = self.find(&all, local)?;
        if device.gids.is_empty() {
            return Err(Error::new(format!(
                "the device {} cannot be reached: its interface {} has no address",
                device.name, device.interface
            )));
        }
        let index = self
            .gid_index
            .map(usize::from)
            .or_else(|| device.default_gid_index());
        match index.and_then(|index| device.gids.get(index)) {
            Some(entry) => Ok(entry.gid.to_ip()),
            None => Err(hirail::Error::NoSuchGid {
                index: self.gid_index.unwrap_or(0),
                count: device.gids.len(),
            }
            .into()),
        }
    }
}

/// What a run went over, as this end sees it.
#[derive(Clone, Serialize)]
pub(crate) struct Over {
    device: String,
    interface: String,
    address: IpAddr,
    link: String,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            interface,
            address,
            link,
        } = self;
        write!(
            f,
            "{device} (interface {interface}, {address}, link {link})"
        )
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

    /// What a run with this address goes over.
    pub(crate) fn over(&self, local: IpAddr) -> Result<Over, Error> {
        self.choice.over(local)
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
