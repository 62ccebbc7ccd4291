//! An open device.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use hirail_rnic::event::{AsyncEvent, Denied};
use hirail_rnic::{GidEntry, Limits};
use hirail_vocab::CounterSnapshot;
use hirail_wire::{Gid, PathMtu};

use super::cq::{CompletionChannel, Cq};
use super::pd::Pd;
use super::xrc::Xrcd;
use crate::config::Config;
use crate::error::Error;
use crate::port::FastPaths;
use crate::runtime::{Notify, Rnic, open};

/// An open device: the root of all objects made on it. Clones are handles to the same device.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) rnic: Arc<Rnic>,
    pub(crate) name: String,
    fast_paths: Option<FastPaths>,
    /// The manager of its connections, as long as somebody holds it.
    pub(crate) connections: Mutex<Weak<crate::cm::ManagerInner>>,
}

impl Context {
    pub(crate) fn new(name: &str, rnic: Arc<Rnic>, fast_paths: Option<FastPaths>) -> Self {
        let name = name.to_owned();
        Self {
            inner: Arc::new(ContextInner {
                rnic,
                name,
                fast_paths,
                connections: Mutex::new(Weak::new()),
            }),
        }
    }

    /// Opens a device by its name ([`devices::list`](crate::devices::list)), configured by the
    /// environment ([`config`](crate::config)).
    ///
    /// # Errors
    /// There is no such device, the configuration is wrong, or the UDP port is in use by somebody
    /// who does not share it.
    pub fn open(name: &str) -> Result<Self, Error> {
        open::by_name(name, &Config::load()?)
    }

    /// Opens a device by its name, configured as given.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(name: &str, config: &Config) -> Result<Self, Error> {
        open::by_name(name, config)
    }

    /// Opens the device that has this address, configured by the environment.
    ///
    /// # Errors
    /// No device has it; otherwise as [`open`](Self::open).
    pub fn open_address(address: IpAddr) -> Result<Self, Error> {
        open::by_address(address, &Config::load()?)
    }

    /// Opens the loopback device, configured by the environment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_loopback() -> Result<Self, Error> {
        Self::open("hirail_lo")
    }

    /// Which fast paths of the kernel its UDP port uses; nothing where it has none.
    pub fn fast_paths(&self) -> Option<FastPaths> {
        self.inner.fast_paths
    }

    pub(crate) fn rnic(&self) -> &Arc<Rnic> {
        &self.inner.rnic
    }

    /// Refuses `what` of another device: numbers and keys mean something on their own device only.
    pub(crate) fn expect(&self, what: &'static str, other: &Self) -> Result<(), Error> {
        if Arc::ptr_eq(self.rnic(), other.rnic()) {
            return Ok(());
        }
        Err(Error::OtherDevice {
            what,
            expected: self.name().to_owned(),
            got: other.name().to_owned(),
        })
    }

    /// The device's name, such as `hirail0`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device can hold.
    pub fn limits(&self) -> Limits {
        self.rnic().device.config().limits
    }

    /// Whether the port has its link. It always has, but where a fault takes it away
    /// ([`Faults::flap`](crate::Faults::flap)).
    pub fn is_port_up(&self) -> bool {
        self.rnic().check().is_ok() && self.rnic().is_port_up()
    }

    /// The port's GID table. It follows the addresses of the interface: `AsyncEvent::GidChange` is
    /// raised when it has changed. A GID keeps its index as long as the address exists; the place of
    /// one that is gone has a GID of zeros until another address takes it. A forked child has no
    /// port, so none.
    pub fn gids(&self) -> Vec<GidEntry> {
        if self.rnic().check().is_err() {
            return Vec::new();
        }
        self.rnic().device.gids()
    }

    /// The GID at `index`.
    ///
    /// # Errors
    /// There are fewer, or the address that was there is gone.
    pub fn gid(&self, index: u8) -> Result<Gid, Error> {
        self.rnic().check()?;
        let gids = self.gids();
        match gids.get(usize::from(index)).map(|entry| entry.gid) {
            None => Err(Error::NoSuchGid {
                index,
                count: gids.len(),
            }),
            Some(gid) if gid == Gid::default() => Err(Error::EmptyGid { index }),
            Some(gid) => Ok(gid),
        }
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

    /// A new completion queue whose events are told to `handler`, once for each
    /// [`arm`](Cq::arm). It is called from any thread that drives the device, and must not call
    /// into it.
    ///
    /// # Errors
    /// As [`create_cq`](Self::create_cq).
    pub fn create_cq_notifying(&self, entries: u32, handler: Arc<dyn Notify>) -> Result<Cq, Error> {
        Cq::with_handler(self, entries, handler)
    }

    /// Hands asynchronous events to `handler` from now on, in place of the queue behind
    /// [`async_fd`](Self::async_fd). It is called from any thread that drives the device, and must
    /// not call into it. The first handler stays.
    pub fn handle_async_events(&self, handler: impl Fn(AsyncEvent) + Send + Sync + 'static) {
        self.rnic().set_async_handler(Box::new(handler));
    }

    /// Tells `handler` of requests of peers that got nothing here, from now on: what no completion
    /// and no event says in full. It is called from any thread that drives the device, and must not
    /// call into it. The first handler stays.
    pub fn handle_denials(&self, handler: impl Fn(Denied) + Send + Sync + 'static) {
        self.rnic().set_denial_handler(Box::new(handler));
    }

    /// A new completion channel: a descriptor that becomes readable when an armed completion queue
    /// has completions.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn create_channel(&self) -> Result<CompletionChannel, Error> {
        CompletionChannel::new(self)
    }

    /// A new XRC domain.
    ///
    /// # Errors
    /// In a forked child.
    pub fn alloc_xrcd(&self) -> Result<Xrcd, Error> {
        Xrcd::new(self)
    }

    /// The oldest asynchronous event, if there is one.
    ///
    /// # Errors
    /// In a forked child.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>, Error> {
        self.rnic().check()?;
        Ok(self.rnic().events.pop())
    }

    /// The oldest asynchronous event, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait_async_event(&self, timeout: Duration) -> Result<AsyncEvent, Error> {
        self.rnic().check()?;
        let event = self.rnic().events.wait(timeout);
        event.ok_or(Error::NoEvent { waited: timeout })
    }

    /// A descriptor that is readable while there are asynchronous events.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.rnic().events.fd()
    }

    /// Drives the device once from this thread, as polling an empty completion queue does. For
    /// programs that poll memory and want to help. Whether anything moved.
    ///
    /// # Errors
    /// In a forked child.
    pub fn poll(&self) -> Result<bool, Error> {
        self.rnic().check()?;
        Ok(self.rnic().poll())
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if self.rnic.check().is_err() {
            // Sockets, threads and locks are the parent's, and their descriptors are closed here
            // already: what remains is a copy of memory, to be left alone.
            std::mem::forget(Arc::clone(&self.rnic));
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}
