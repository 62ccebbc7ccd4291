//! Running the engine: who calls it, when, and on which thread.
//!
//! [`Rnic`] joins one engine [`Device`] to one link. Whoever holds the [`Driver`] receives, fires
//! timers and transmits; there is one driver and nobody waits for it. Three parties drive:
//!
//! - a thread that polls a completion queue and finds it empty ([`Rnic::poll`]);
//! - a thread that posts to a QP with nothing in flight ([`Rnic::doorbell`]);
//! - the progress thread ([`progress`]), which sleeps while others poll and takes over when nobody
//!   does, so that one-sided operations complete although the application never calls in.

mod attention;
mod baton;
pub(crate) mod driver;
mod exit;
pub(crate) mod faults;
mod gids;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod progress;
pub(crate) mod raw;
mod traffic;
pub(crate) mod udp;
mod wakefulness;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use hirail_rnic::cq::CqId;
use hirail_rnic::event::{AsyncEvent, Denied};
use hirail_rnic::mcast::GroupChange;
use hirail_rnic::{Device, DeviceConfig, Event, Host, Instant, Qp};

use hirail_wire::Gid;

use crate::error::Error;
use crate::fork::Forked;
use crate::memory::UserRegion;
use crate::port::{Sweep, sys};
use crate::stat::Publisher;
use baton::Baton;
use driver::Driver;
use link::Link;

/// The engine's host in a process: real memory, locks that threads share.
pub(crate) enum Threads {}

impl Host for Threads {
    type Region = UserRegion;
    type Lock<T: 'static> = Mutex<T>;
    type ReadMostly<T: 'static> = RwLock<T>;
}

/// Now, on the clock that the engine is given.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::from_ns(sys::now_ns())
}

/// What came of trying to drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drove {
    /// Somebody else has the driver.
    NotAtAll,
    /// Nothing moved.
    Idle,
    /// Something was sent, received or fired.
    Moved,
}

/// Whom to tell about the events of a completion queue.
pub trait Notify: Send + Sync {
    /// The queue was armed and has completions now.
    fn notify(&self, cq: CqId);
}

/// Who is told of asynchronous events in place of the queue.
type AsyncHandler = Box<dyn Fn(AsyncEvent) + Send + Sync>;

/// Who is told of requests of peers that got nothing.
type DenialHandler = Box<dyn Fn(Denied) + Send + Sync>;

/// Who looks at asynchronous events before the user does. Called with the driver in hand.
pub(crate) trait Observe: Send + Sync {
    fn observe(&self, event: &AsyncEvent);
}

/// One engine on one link.
pub(crate) struct Rnic {
    pub(crate) device: Device<Threads>,
    /// Work that arrives while somebody drives rings; whoever lets go of the driver looks again.
    driver: Baton<Driver>,
    /// Counters for readers outside.
    publisher: Mutex<Publisher>,
    /// The port has a link.
    port_up: AtomicBool,
    /// Who waits for which completion queue.
    channels: RwLock<BTreeMap<CqId, Weak<dyn Notify>>>,
    /// Looks at asynchronous events as well.
    observer: RwLock<Option<Weak<dyn Observe>>>,
    /// Asynchronous events not fetched yet.
    pub(crate) events: crate::verbs::event::EventQueue,
    async_handler: OnceLock<AsyncHandler>,
    denial_handler: OnceLock<DenialHandler>,
    pub(crate) progress: progress::Handle,
    /// The process that it is of.
    born: u32,
    /// Something was made on it. Goes last.
    used: OnceLock<crate::fork::Armed>,
}

impl Rnic {
    /// Starts an engine on a link, and its progress thread. Its counters are published in the folder
    /// `stat`, if given.
    pub(crate) fn start(
        name: &str,
        config: DeviceConfig,
        link: Box<dyn Link>,
        stat: Option<&Path>,
    ) -> std::io::Result<Arc<Self>> {
        crate::fork::prepare();
        let kind = link.kind();
        let (progress, thread) = progress::prepare(&*link)?;
        let rnic = Arc::new(Self {
            device: Device::new(config),
            driver: Baton::new(Driver::new(link)),
            publisher: Mutex::new(Publisher::new(name, kind, stat)?),
            port_up: AtomicBool::new(true),
            channels: RwLock::new(BTreeMap::new()),
            observer: RwLock::new(None),
            events: crate::verbs::event::EventQueue::new()?,
            async_handler: OnceLock::new(),
            denial_handler: OnceLock::new(),
            progress,
            born: crate::fork::generation(),
            used: OnceLock::new(),
        });
        thread.spawn(Arc::downgrade(&rnic))?;
        crate::exit::watch(&rnic);
        Ok(rnic)
    }

    /// Fails in a forked child of the process that opened it.
    pub(crate) fn check(&self) -> Result<(), Forked> {
        crate::fork::check()?;
        if self.born == crate::fork::generation() {
            Ok(())
        } else {
            Err(Forked)
        }
    }

    /// The same, where something is to be made: from then on a forked child has no device.
    pub(crate) fn begin(&self) -> Result<(), Forked> {
        self.check()?;
        self.used.get_or_init(crate::fork::arm);
        Ok(())
    }

    /// Called by who polls a completion queue and finds it empty: drives once, if nobody does.
    /// Returns whether anything moved.
    pub(crate) fn poll(&self) -> bool {
        let start = now();
        let drove = self.try_drive(|rnic, driver| {
            let moved = driver.step(rnic, start, Sweep::Hot);
            // What arrived may have found the thread asleep, and is not acknowledged yet.
            self.progress.ensure_wakeup(|| driver.next_wakeup(rnic));
            moved
        });
        self.progress.polled(start, now());
        drove == Drove::Moved
    }

    /// Called after work was posted: sends what can be sent now.
    pub(crate) fn doorbell(&self) {
        let start = now();
        self.driver.ring();
        self.try_drive(|rnic, driver| {
            let moved = driver.transmit_data_first(rnic, start);
            self.progress.ensure_wakeup(|| driver.next_wakeup(rnic));
            rnic.dispatch_events();
            moved
        });
        self.progress.posted(start, now());
    }

    /// Sends what is ready, waiting for whoever drives. Before a QP goes: what the application has
    /// seen of the peer must be acknowledged.
    pub(crate) fn settle(&self, qp: &Arc<Qp<Threads>>) {
        self.device.acknowledge(now(), qp);
        self.wait_and_drive(|driver| {
            // Bounded, should others post without end.
            for _ in 0..64 {
                if !driver.transmit(self, now()) {
                    break;
                }
            }
            self.dispatch_events();
        });
    }

    /// Runs `job` with the driver, waiting for whoever has it.
    fn wait_and_drive<T>(&self, job: impl FnOnce(&mut Driver) -> T) -> T {
        let (done, rung) = self.driver.wait_with(|driver| {
            let done = job(driver);
            self.progress.ensure_wakeup(|| driver.next_wakeup(self));
            done
        });
        if rung {
            self.doorbell();
        }
        done
    }

    /// Runs `job` with the driver unless somebody else has it.
    fn try_drive(&self, mut job: impl FnMut(&Self, &mut Driver) -> bool) -> Drove {
        let mut moved = false;
        let times = self.driver.try_with(|driver| moved |= job(self, driver));
        match (times, moved) {
            (0, _) => Drove::NotAtAll,
            (_, false) => Drove::Idle,
            (_, true) => Drove::Moved,
        }
    }

    pub(crate) fn subscribe(&self, cq: CqId, channel: Weak<dyn Notify>) {
        self.channels
            .write()
            .unwrap_or_else(|e| e.into_inner())
            .insert(cq, channel);
    }

    pub(crate) fn unsubscribe(&self, cq: CqId) {
        self.channels
            .write()
            .unwrap_or_else(|e| e.into_inner())
            .remove(&cq);
    }

    /// Hands events of the engine to who waits for them.
    pub(crate) fn dispatch_events(&self) {
        while let Some(event) = self.device.poll_event() {
            match event {
                Event::Completion(cq) => {
                    let channels = self.channels.read().unwrap_or_else(|e| e.into_inner());
                    if let Some(channel) = channels.get(&cq.id).and_then(Weak::upgrade) {
                        channel.notify(cq.id);
                        self.progress.notified(now());
                    }
                }
                Event::Async(event) => self.raise(event),
                Event::Denied(denied) => {
                    if let Some(handler) = self.denial_handler.get() {
                        handler(denied);
                    }
                }
            }
        }
    }

    /// Attaches a QP to a group, which the link joins with the first member. Members come and go
    /// with the driver in hand, so that who comes second finds the group joined or not there.
    pub(crate) fn attach(&self, qp: &Qp<Threads>, group: Gid) -> Result<(), Error> {
        self.wait_and_drive(|driver| {
            if self.device.attach_mcast(qp, group)? == GroupChange::Opened
                && let Err(error) = driver.link_mut().join(group)
            {
                let _ = self.device.detach_mcast(qp, group);
                return Err(error);
            }
            Ok(())
        })
    }

    /// Detaches a QP from a group, which the link leaves with the last member.
    pub(crate) fn detach(&self, qp: &Qp<Threads>, group: Gid) -> Result<(), Error> {
        self.wait_and_drive(|driver| {
            if self.device.detach_mcast(qp, group)? == GroupChange::Closed {
                driver.link_mut().leave(group);
            }
            Ok(())
        })
    }

    /// Whether the port has a link.
    pub(crate) fn is_port_up(&self) -> bool {
        self.port_up.load(Ordering::Relaxed)
    }

    /// The port got its link or lost it.
    pub(crate) fn set_port(&self, is_up: bool) {
        self.port_up.store(is_up, Ordering::Relaxed);
        self.raise(if is_up {
            AsyncEvent::PortActive
        } else {
            AsyncEvent::PortErr
        });
    }

    /// Shows the counters to readers outside.
    fn publish(&self) {
        let mut publisher = self.publisher.lock().unwrap_or_else(|e| e.into_inner());
        publisher.publish(self.device.counters(), self.device.qp_count());
    }

    /// Tells the user of an asynchronous event.
    pub(crate) fn raise(&self, event: AsyncEvent) {
        let observer = self.observer.read().unwrap_or_else(|e| e.into_inner());
        if let Some(observer) = observer.as_ref().and_then(Weak::upgrade) {
            observer.observe(&event);
        }
        drop(observer);
        match self.async_handler.get() {
            Some(handler) => handler(event),
            None => self.events.push(event),
        }
    }

    /// Tells `handler` of asynchronous events from now on. The first one stays.
    pub(crate) fn set_async_handler(&self, handler: AsyncHandler) {
        let _ = self.async_handler.set(handler);
    }

    /// Tells `handler` of requests of peers that got nothing from now on. The first one stays.
    pub(crate) fn set_denial_handler(&self, handler: DenialHandler) {
        if self.denial_handler.set(handler).is_ok() {
            self.device.report_denials();
        }
    }

    /// Shows asynchronous events to `observer` as well, in place of the one before.
    pub(crate) fn show_events_to(&self, observer: Weak<dyn Observe>) {
        *self.observer.write().unwrap_or_else(|e| e.into_inner()) = Some(observer);
    }

    /// Makes connection requests for a service at an address arrive here.
    pub(crate) fn listen(&self, service: u64, address: IpAddr) -> std::io::Result<()> {
        self.wait_and_drive(|driver| driver.link_mut().listen(service, address))
    }

    /// Undoes [`listen`](Self::listen).
    pub(crate) fn ignore(&self, service: u64, address: IpAddr) {
        self.wait_and_drive(|driver| driver.link_mut().ignore(service, address));
    }
}

impl Drop for Rnic {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            self.publish();
        }
        self.progress.stop();
    }
}
