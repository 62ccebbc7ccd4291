//! From an interface's name and options to a link: sockets, GID table, flow control.

use std::sync::Arc;

use hirail_rnic::{DeviceConfig, GidEntry, RoceVersion};
use hirail_wire::ethernet::EtherType;
use hirail_wire::{Gid, MacAddr};

use super::flow_control::{self, Backpressure, FlowControl, Stopped, Watermarks};
use super::neighbours::{Interface, Neighbours};
use super::{CONTROL_DEPTH, RECEIVE_DEPTH, RawLink, STAGING, Tally};
use crate::config::Config;
use crate::devices::{self, Kind, NetDevice};
use crate::error::Error;
use crate::port::raw::{Filter, FrameReceiver, FrameSender, RawError, filter};
use crate::port::{self, PortError, PortOptions, Recorder};
use crate::runtime::faults::FaultyLink;
use crate::runtime::gids::GidWatch;
use crate::runtime::{Rnic, open};
use crate::verbs::context::Context;

/// The longest frame: a batch of datagrams over IPv6, with its headers.
const LONGEST_FRAME: usize = (64 << 10) + 128;
/// The longest control frame, and kernel memory for those that wait.
const CONTROL_FRAME: usize = 128;
const CONTROL_BUFFER: usize = 256 << 10;
/// Speed taken for pause times where neither the interface nor the user tells one.
const ASSUMED_SPEED_MBPS: u32 = 10_000;

/// Which RoCE versions a port offers: GIDs of which types it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoceVersions {
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Both, version 1 first for each address.
    #[default]
    Both,
}

impl RoceVersions {
    pub(super) const fn has(self, version: RoceVersion) -> bool {
        match self {
            Self::V1 => matches!(version, RoceVersion::V1),
            Self::V2 => matches!(version, RoceVersion::V2),
            Self::Both => true,
        }
    }
}

/// How to use an interface as a raw port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawOptions {
    /// Link-level flow control.
    pub flow_control: FlowControl,
    /// RoCE versions.
    pub versions: RoceVersions,
    /// VLAN of all frames. With 0 their tags carry a priority only. Without, frames have no tag, and
    /// the network sees the priority in the DSCP alone: give queue pairs a traffic class that agrees
    /// with their service level (by default the priority is the DSCP divided by 8).
    pub vlan: Option<u16>,
    /// Priority of acknowledgements: they stop when it is stopped.
    pub ack_priority: u8,
    /// Speed of the link in Mb/s, which the unit of pause times depends on, where the interface does
    /// not tell or tells wrong.
    pub speed_mbps: Option<u32>,
    /// Kernel memory for frames that wait to be read, in bytes. Above the system's limit
    /// (`net.core.rmem_max`, doubled) only with CAP_NET_ADMIN.
    pub receive_buffer: usize,
    /// When to stop the peer, and when to let it go on. A quarter and an eighth of the receive buffer
    /// where not given.
    pub watermarks: Option<Watermarks>,
}

impl Default for RawOptions {
    /// No flow control, both versions, no tags; acknowledgements in the priority of CNPs, where they
    /// do not wait behind data.
    fn default() -> Self {
        Self {
            flow_control: FlowControl::None,
            versions: RoceVersions::Both,
            vlan: None,
            ack_priority: 6,
            speed_mbps: None,
            receive_buffer: 8 << 20,
            watermarks: None,
        }
    }
}

impl RawOptions {
    pub(super) fn check(&self) -> Result<(), RawError> {
        if let Some(vlan @ 4095..) = self.vlan {
            return Err(RawError::NoSuchVlan(vlan));
        }
        if self.ack_priority > 7 {
            return Err(RawError::NoSuchPriority(self.ack_priority));
        }
        Ok(())
    }
}

impl Context {
    /// Opens a network interface, such as `eth0`, as a raw port for RoCE v1 and v2. The process needs
    /// CAP_NET_RAW. What is not about the link is configured by the environment.
    ///
    /// Packets to addresses of this port itself do not come back. On the loopback interface they
    /// do, to raw ports: the kernel keeps them from its sockets, since it did not send them.
    ///
    /// # Errors
    /// There is no such interface, an option is out of range, the process may not, or UDP port 4791
    /// is in use by somebody who does not share it.
    pub fn open_raw(interface: &str, options: RawOptions) -> Result<Self, Error> {
        open_raw(interface, options, &Config::load()?)
    }

    /// The same, configured as given.
    ///
    /// # Errors
    /// As [`open_raw`](Self::open_raw).
    pub fn open_raw_with(
        interface: &str,
        options: RawOptions,
        config: &Config,
    ) -> Result<Self, Error> {
        open_raw(interface, options, config)
    }
}

fn open_raw(interface: &str, options: RawOptions, config: &Config) -> Result<Context, Error> {
    let all = devices::list().map_err(Error::Interfaces)?;
    let Some(device) = all.iter().find(|device| device.interface == interface) else {
        let known = all.into_iter().map(|device| device.interface).collect();
        return Err(Error::Raw(RawError::NoSuchInterface {
            name: interface.to_owned(),
            known,
        }));
    };
    let (link, engine) = RawLink::open(device, options, config)?;
    let link = FaultyLink::around(Box::new(link), &config.faults);
    let rnic = Rnic::start(&device.name, engine, link, config.stat.as_deref())
        .map_err(Error::Descriptor)?;
    Ok(Context::new(&device.name, rnic, None))
}

/// The GID table: for each address an entry of version 1, then one of version 2. Version 1 does not
/// need an IP address: the GID made from the Ethernet address is always there.
pub(super) fn gids(device: &NetDevice, versions: RoceVersions) -> Vec<GidEntry> {
    let default = Gid::link_local(device.mac);
    let has_default = device.gids.iter().any(|entry| entry.gid == default);
    let lone = GidEntry {
        gid: default,
        version: RoceVersion::V1,
    };
    let needs_default = !has_default && device.mac != [0; 6];
    let lone = needs_default.then_some(lone);
    let pairs = device.gids.iter().flat_map(|entry| {
        [RoceVersion::V1, RoceVersion::V2].map(|version| GidEntry {
            gid: entry.gid,
            version,
        })
    });
    lone.into_iter()
        .chain(pairs)
        .filter(|entry| versions.has(entry.version))
        .collect()
}

impl RawLink {
    /// Opens the sockets. Returns how the engine on this link is to be made as well.
    pub(super) fn open(
        device: &NetDevice,
        options: RawOptions,
        config: &Config,
    ) -> Result<(Self, DeviceConfig), Error> {
        options.check()?;
        let failed = |error| Error::Raw(RawError::socket(&device.interface, error));
        let recorder = match &config.pcap {
            None => None,
            Some(path) => Some(Arc::new(
                Recorder::open_ethernet(path, &device.interface).map_err(|error| {
                    Error::Capture {
                        path: path.clone(),
                        error,
                    }
                })?,
            )),
        };
        // Before anything else, since it is what is most likely refused.
        let sender = FrameSender::open(device.index, config.port.send_buffer).map_err(failed)?;
        let control_sender = FrameSender::open(device.index, CONTROL_BUFFER).map_err(failed)?;
        control_sender.skip_queues();
        let (port, _) = port::open(&PortOptions {
            // Next to nothing is kept of the copies that come there.
            receive_buffer: 0,
            coalescing: false,
            steering: config.port.steering,
            ..PortOptions::default()
        })?;
        let block = port.blocks().first().copied().ok_or(PortError::Crowded)?;
        let receiver = FrameReceiver::open(
            device.index,
            Filter::Program(filter::program(block, options.vlan.unwrap_or(0))),
            options.receive_buffer,
            RECEIVE_DEPTH,
            LONGEST_FRAME,
        )
        .map_err(failed)?;
        let control = FrameReceiver::open(
            device.index,
            Filter::EtherType(EtherType::MAC_CONTROL),
            CONTROL_BUFFER,
            CONTROL_DEPTH,
            CONTROL_FRAME,
        )
        .map_err(failed)?;
        // An interface that cannot filter passes the frames anyway.
        let _ = control.set_group(MacAddr::MAC_CONTROL, true);

        let room = receiver.fill().room;
        let watermarks = options.watermarks.unwrap_or(Watermarks::of(room));
        let Watermarks { xoff, xon } = watermarks;
        if xon >= xoff || xoff >= room {
            return Err(Error::Raw(RawError::Watermarks { xon, xoff, room }));
        }
        let versions = options.versions;
        let gids = GidWatch::new(device, move |device| gids(device, versions));
        let gids = gids.map_err(Error::Interfaces)?;
        let engine = open::engine(device, gids.table().to_vec(), block, room, config)?;
        let speed_mbps = options
            .speed_mbps
            .or(device.speed_mbps)
            .unwrap_or(ASSUMED_SPEED_MBPS);
        let quantum = flow_control::quantum(speed_mbps);
        let mode = options.flow_control;
        let cnp_priority = engine.dcqcn.cnp_priority();
        let link = Self {
            interface: device.index,
            interface_name: device.interface.clone(),
            mac: MacAddr(device.mac),
            is_loopback: device.kind == Kind::Loopback,
            gids,
            neighbours: Neighbours::new(Interface {
                name: device.interface.clone(),
                index: device.index,
            }),
            stopped: Stopped::new(mode, quantum, options.ack_priority, cnp_priority),
            backpressure: Backpressure::new(mode, watermarks, quantum),
            options,
            port,
            receiver,
            control,
            sender,
            control_sender,
            staging: vec![0; STAGING].into(),
            staged: Vec::with_capacity(STAGING / 64),
            held: Vec::new(),
            tally: Tally::new(),
            recorder,
            calls: 0,
        };
        Ok((link, engine))
    }
}
