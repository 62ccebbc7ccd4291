//! Completion queues and the channels by which they are waited for.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hirail_rnic::CompletionQueue;
use hirail_rnic::cq::{Arm, CqId, Cqe};

use super::context::Context;
use super::event::FdQueue;
use crate::error::Error;
use crate::runtime::{Notify, Threads};

/// A completion, as the engine reports it.
pub type Wc = Cqe;

/// A completion queue. Clones are handles to the same one.
#[derive(Clone)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) cq: Arc<CompletionQueue<Threads>>,
    pub(crate) context: Context,
    channel: Option<CompletionChannel>,
}

impl Cq {
    pub(crate) fn new(
        context: &Context,
        entries: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Error> {
        crate::fork::check()?;
        let cq = context.rnic().device.create_cq(entries)?;
        let inner = Arc::new(CqInner {
            cq,
            context: context.clone(),
            channel: channel.cloned(),
        });
        if let Some(channel) = channel {
            let queue: Weak<dyn Notify> = Arc::downgrade(&channel.inner) as _;
            context.rnic().subscribe(inner.cq.id, queue);
            channel
                .inner
                .queues()
                .insert(inner.cq.id, Arc::downgrade(&inner));
        }
        Ok(Self { inner })
    }

    /// Takes up to `max` completions, oldest first, and hands them to `each`; how many there were.
    /// Finding none, it drives the device once from this thread and looks again.
    ///
    /// # Errors
    /// In a forked child.
    pub fn poll(&self, max: usize, mut each: impl FnMut(Wc)) -> Result<usize, Error> {
        crate::fork::check()?;
        let count = self.inner.cq.lock().poll(max, &mut each);
        if count > 0 {
            return Ok(count);
        }
        if self.inner.context.rnic().poll() {
            return Ok(self.inner.cq.lock().poll(max, each));
        }
        // Nothing moved: let the peer run, should it share this processor.
        thread::yield_now();
        Ok(0)
    }

    /// Takes the oldest completion, if there is one.
    ///
    /// # Errors
    /// In a forked child.
    pub fn poll_one(&self) -> Result<Option<Wc>, Error> {
        let mut found = None;
        self.poll(1, |wc| found = Some(wc))?;
        Ok(found)
    }

    /// Takes the oldest completion, polling until there is one.
    ///
    /// # Errors
    /// None came within `timeout`.
    pub fn wait_polling(&self, timeout: Duration) -> Result<Wc, Error> {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if let Some(wc) = self.poll_one()? {
                    return Ok(wc);
                }
            }
            if start.elapsed() > timeout {
                return Err(Error::NoCompletion { waited: timeout });
            }
        }
    }

    /// Takes the oldest completion, asleep until there is one. The queue must have been made on a
    /// channel that serves no other queue.
    ///
    /// # Errors
    /// None came within `timeout`, or the queue has no channel.
    pub fn wait(&self, timeout: Duration) -> Result<Wc, Error> {
        let Some(channel) = &self.inner.channel else {
            return Err(Error::NoChannel);
        };
        let start = Instant::now();
        loop {
            if let Some(wc) = self.inner.cq.lock().pop() {
                return Ok(wc);
            }
            if self.arm(Arm::Any)? {
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::NoCompletion { waited: timeout });
            }
            channel.wait(left);
        }
    }

    /// Asks for one event on the channel at the next completion; true: there are completions
    /// already, and they raise none.
    ///
    /// # Errors
    /// In a forked child.
    pub fn arm(&self, arm: Arm) -> Result<bool, Error> {
        crate::fork::check()?;
        Ok(self
            .inner
            .context
            .rnic()
            .device
            .req_notify_cq(&self.inner.cq, arm))
    }

    /// Sets how many completions, or how much time after the first, an event waits for.
    ///
    /// # Errors
    /// In a forked child.
    pub fn moderate(&self, count: u16, period: Duration) -> Result<(), Error> {
        crate::fork::check()?;
        let device = &self.inner.context.rnic().device;
        device.modify_cq(crate::runtime::now(), &self.inner.cq, count, period.into());
        Ok(())
    }

    /// Changes how many completions fit.
    ///
    /// # Errors
    /// Fewer than it holds, or more than the device allows.
    pub fn resize(&self, entries: u32) -> Result<(), Error> {
        crate::fork::check()?;
        Ok(self.inner.cq.lock().resize(entries)?)
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        self.context.rnic().unsubscribe(self.cq.id);
        if let Some(channel) = &self.channel {
            channel.inner.queues().remove(&self.cq.id);
        }
        // QPs hold their queues, so none uses this one any more.
        let _ = self.context.rnic().device.destroy_cq(&self.cq);
    }
}

/// A completion channel: one descriptor for the events of many completion queues.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    events: FdQueue<CqId>,
    queues: Mutex<BTreeMap<CqId, Weak<CqInner>>>,
}

impl ChannelInner {
    fn queues(&self) -> std::sync::MutexGuard<'_, BTreeMap<CqId, Weak<CqInner>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionChannel {
    pub(crate) fn new(_context: &Context) -> Result<Self, Error> {
        crate::fork::check()?;
        let events = FdQueue::new().map_err(Error::Descriptor)?;
        Ok(Self {
            inner: Arc::new(ChannelInner {
                events,
                queues: Mutex::default(),
            }),
        })
    }

    /// The queue of the oldest event, if there is one. Arm it again, then poll it empty.
    pub fn try_event(&self) -> Option<Cq> {
        while let Some(id) = self.inner.events.pop() {
            if let Some(cq) = self.queue(id) {
                return Some(cq);
            }
        }
        None
    }

    /// The queue of the oldest event, waiting for one up to `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Cq> {
        let id = self.inner.events.wait(timeout)?;
        self.queue(id)
    }

    /// A descriptor that is readable while there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.events.fd()
    }

    /// The queue of this number, unless it was destroyed since its event.
    fn queue(&self, id: CqId) -> Option<Cq> {
        let inner = self.inner.queues().get(&id)?.upgrade()?;
        Some(Cq { inner })
    }
}

impl Notify for ChannelInner {
    fn notify(&self, cq: CqId) {
        self.events.push(cq);
    }
}
