//! An open device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use hirail_rnic::event::AsyncEvent;
use hirail_rnic::{DeviceConfig, GidEntry, Limits, RoceVersion};
use hirail_vocab::CounterSnapshot;
use hirail_wire::{Gid, PathMtu, Qpn};

use super::cq::{CompletionChannel, Cq};
use super::pd::Pd;
use crate::error::Error;
use crate::port::{self, PortError, PortOptions, Recorder, Transmitter, sys};
use crate::runtime::Rnic;
use crate::runtime::udp::UdpLink;

/// An open device: the root of all objects made on it. Clones are handles to the same device.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) rnic: Arc<Rnic>,
    pub(crate) name: String,
}

impl Context {
    pub(crate) fn new(name: &str, rnic: Arc<Rnic>) -> Self {
        Self {
            inner: Arc::new(ContextInner {
                rnic,
                name: name.to_owned(),
            }),
        }
    }

    /// Opens a device on the UDP port: joins the processes that share it.
    pub(crate) fn open_udp(
        name: &str,
        gids: Vec<GidEntry>,
        port_mtu: PathMtu,
        interface: u32,
        segments_ipv4: bool,
        options: &PortOptions,
        recorder: Option<Arc<Recorder>>,
    ) -> Result<Self, Error> {
        let (receiver, pool) = port::open(options)?;
        let block = receiver
            .blocks()
            .first()
            .copied()
            .ok_or(PortError::Crowded)?;
        let qpns = block.qpns();
        let config = DeviceConfig {
            first_qpn: Qpn::new(qpns.start),
            qpns: qpns.end - qpns.start,
            seed: u128::from(sys::random()) << 64 | u128::from(sys::random()),
            gids,
            port_mtu,
            ..DeviceConfig::default()
        };
        let transmitter = Transmitter::new(pool, options);
        let link = UdpLink::new(receiver, transmitter, recorder, interface, segments_ipv4);
        let rnic = Rnic::start(config, Box::new(link)).map_err(Error::Descriptor)?;
        Ok(Self::new(name, rnic))
    }

    /// Opens the loopback device.
    ///
    /// # Errors
    /// The UDP port is in use by somebody who does not share it.
    pub fn open_loopback() -> Result<Self, Error> {
        let gid = |ip: IpAddr| GidEntry {
            gid: Gid::from_ip(ip),
            version: RoceVersion::V2,
        };
        let gids = vec![
            gid(Ipv4Addr::LOCALHOST.into()),
            gid(Ipv6Addr::LOCALHOST.into()),
        ];
        let options = PortOptions::default();
        Self::open_udp("hirail_lo", gids, PathMtu::Mtu4096, 1, true, &options, None)
    }

    pub(crate) fn rnic(&self) -> &Arc<Rnic> {
        &self.inner.rnic
    }

    /// The device's name, such as `hirail0`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device can hold.
    pub fn limits(&self) -> Limits {
        self.rnic().device.config().limits
    }

    /// The port's GID table.
    pub fn gids(&self) -> Vec<GidEntry> {
        self.rnic().device.gids()
    }

    /// The GID at `index`.
    ///
    /// # Errors
    /// There are fewer.
    pub fn gid(&self, index: u8) -> Result<Gid, Error> {
        let gids = self.gids();
        let entry = gids.get(usize::from(index));
        entry.map(|entry| entry.gid).ok_or(Error::NoSuchGid {
            index,
            count: gids.len(),
        })
    }

    /// Active MTU of the port: the longest datagram, and the largest path MTU.
    pub fn port_mtu(&self) -> PathMtu {
        self.rnic().device.port_mtu()
    }

    /// All counters of this process's device, now.
    pub fn counters(&self) -> CounterSnapshot {
        self.rnic().device.counters().snapshot()
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// The device's limit is reached, or this is a forked child.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Pd::new(self)
    }

    /// A new completion queue for at least `entries` completions, to be polled.
    ///
    /// # Errors
    /// More entries than the device allows, or none.
    pub fn create_cq(&self, entries: u32) -> Result<Cq, Error> {
        Cq::new(self, entries, None)
    }

    /// A new completion queue that can also be waited for, through `channel`.
    ///
    /// # Errors
    /// As [`create_cq`](Self::create_cq).
    pub fn create_cq_on(&self, entries: u32, channel: &CompletionChannel) -> Result<Cq, Error> {
        Cq::new(self, entries, Some(channel))
    }

    /// A new completion channel: a descriptor that becomes readable when an armed completion queue
    /// has completions.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn create_channel(&self) -> Result<CompletionChannel, Error> {
        CompletionChannel::new(self)
    }

    /// The oldest asynchronous event, if there is one.
    pub fn async_event(&self) -> Option<AsyncEvent> {
        self.rnic().events.pop()
    }

    /// The oldest asynchronous event, waiting for one up to `timeout`.
    pub fn wait_async_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        self.rnic().events.wait(timeout)
    }

    /// A descriptor that is readable while there are asynchronous events.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.rnic().events.fd()
    }

    /// Drives the device once from this thread, as polling an empty completion queue does. For
    /// programs that poll memory and want to help.
    pub fn poll(&self) -> bool {
        self.rnic().poll()
    }
}
