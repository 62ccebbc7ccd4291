//! Completion queues and the channels by which they are waited for.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hirail_rnic::CompletionQueue;
use hirail_rnic::cq::{Arm, CqId};
use hirail_wire::Qpn;

use super::context::Context;
use super::event::FdQueue;
use super::wc::Wc;
use crate::error::Error;
use crate::runtime::{Notify, Threads};

/// Completions taken under one hold of the lock.
const BATCH: usize = 16;

/// A completion queue. Clones are handles to the same one.
#[derive(Clone)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) cq: Arc<CompletionQueue<Threads>>,
    context: Context,
    channel: Option<CompletionChannel>,
    /// Kept for the device, which tells it of events.
    _handler: Option<Arc<dyn Notify>>,
    /// Threads in [`Cq::wait`].
    waiting: AtomicU32,
}

impl Cq {
    pub(crate) fn new(
        context: &Context,
        entries: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Error> {
        context.rnic().begin()?;
        if let Some(channel) = channel {
            context.expect("a channel", &channel.inner.context)?;
        }
        let inner = Arc::new(CqInner {
            cq: context.rnic().device.create_cq(entries)?,
            context: context.clone(),
            channel: channel.cloned(),
            _handler: None,
            waiting: AtomicU32::new(0),
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

    /// A queue whose events are told to `handler`.
    pub(crate) fn with_handler(
        context: &Context,
        entries: u32,
        handler: Arc<dyn Notify>,
    ) -> Result<Self, Error> {
        context.rnic().begin()?;
        let weak = Arc::downgrade(&handler);
        let inner = Arc::new(CqInner {
            cq: context.rnic().device.create_cq(entries)?,
            context: context.clone(),
            channel: None,
            _handler: Some(handler),
            waiting: AtomicU32::new(0),
        });
        context.rnic().subscribe(inner.cq.id, weak);
        Ok(Self { inner })
    }

    /// Takes out what a queue pair has completed, unseen: for a layer whose callers expect that of a
    /// QP which is reset.
    ///
    /// # Errors
    /// In a forked child.
    pub fn forget(&self, qpn: Qpn) -> Result<(), Error> {
        crate::fork::check()?;
        self.inner.cq.lock().forget(qpn);
        Ok(())
    }

    /// Tells nobody of events any more, and returns when nobody is being told.
    pub fn silence(&self) {
        self.inner.context.rnic().unsubscribe(self.id());
    }

    /// How many objects and handles there are that keep this queue, beside this handle.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }

    /// The device that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Its number, which asynchronous events name.
    pub fn id(&self) -> CqId {
        self.inner.cq.id
    }

    /// Takes up to `max` completions, oldest first, and hands them to `each`; how many there were.
    /// Finding none, it drives the device once from this thread and looks again.
    ///
    /// `each` may call anything, this queue included.
    ///
    /// # Errors
    /// In a forked child.
    pub fn poll(&self, max: usize, mut each: impl FnMut(Wc)) -> Result<usize, Error> {
        crate::fork::check()?;
        let count = self.take(max, &mut each);
        if count > 0 {
            return Ok(count);
        }
        if self.inner.context.rnic().poll() {
            return Ok(self.take(max, &mut each));
        }
        // Nothing moved: let the peer run, should it share this processor.
        thread::yield_now();
        Ok(0)
    }

    /// Takes up to `max` completions. The queue is not locked while `each` runs.
    fn take(&self, max: usize, each: &mut impl FnMut(Wc)) -> usize {
        let mut taken = 0;
        while taken < max {
            let mut batch = [None; BATCH];
            let mut slots = batch.iter_mut();
            let most = BATCH.min(max - taken);
            let count = self.inner.cq.lock().poll(most, |cqe| {
                if let Some(slot) = slots.next() {
                    *slot = Some(cqe);
                }
            });
            taken += count;
            let batch = batch.into_iter().take(count).flatten();
            batch.for_each(|cqe| each(cqe.into()));
            if count < most {
                break;
            }
        }
        taken
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

    /// Takes the oldest completion, asleep until there is one. Several threads may wait, each gets
    /// its own. The queue must have been made on a channel that serves no other queue.
    ///
    /// # Errors
    /// None came within `timeout`, or the queue has no channel.
    pub fn wait(&self, timeout: Duration) -> Result<Wc, Error> {
        crate::fork::check()?;
        let Some(channel) = &self.inner.channel else {
            return Err(Error::NoChannel);
        };
        self.inner.waiting.fetch_add(1, Ordering::SeqCst);
        let found = self.sleep(channel, timeout);
        let others = self.inner.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        // One event wakes one thread and disarms the queue: the next one waits for another.
        if others > 0 {
            self.rouse()?;
        }
        found
    }

    /// Takes the oldest completion, if there is one, without driving the device.
    ///
    /// # Errors
    /// In a forked child.
    pub fn pop(&self) -> Result<Option<Wc>, Error> {
        crate::fork::check()?;
        Ok(self.inner.cq.lock().pop().map(Wc::from))
    }

    /// Sees to it that an event follows, now if there are completions, else with the next one.
    pub(crate) fn rouse(&self) -> Result<(), Error> {
        if self.arm(Arm::Any)?
            && let Some(channel) = &self.inner.channel
        {
            channel.inner.notify(self.id());
        }
        Ok(())
    }

    fn sleep(&self, channel: &CompletionChannel, timeout: Duration) -> Result<Wc, Error> {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.inner.cq.lock().pop() {
                return Ok(cqe.into());
            }
            if self.arm(Arm::Any)? {
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::NoCompletion { waited: timeout });
            }
            channel.inner.events.wait(left);
        }
    }

    /// Asks for one event on the channel at the next completion; true: there are completions
    /// already, and they raise none.
    ///
    /// # Errors
    /// In a forked child.
    pub fn arm(&self, arm: Arm) -> Result<bool, Error> {
        crate::fork::check()?;
        let device = &self.inner.context.rnic().device;
        Ok(device.req_notify_cq(&self.inner.cq, arm))
    }

    /// Sets how many completions, or how much time after the first, an event waits for; 0 and zero
    /// take no part.
    ///
    /// # Errors
    /// In a forked child.
    pub fn moderate(&self, count: u16, period: Duration) -> Result<(), Error> {
        crate::fork::check()?;
        let rnic = self.inner.context.rnic();
        rnic.device
            .modify_cq(crate::runtime::now(), &self.inner.cq, count, period.into());
        // An event may be due now, and a timer have been set.
        rnic.doorbell();
        Ok(())
    }

    /// Changes how many completions fit.
    ///
    /// # Errors
    /// Fewer than it holds, or more than the device allows.
    pub fn resize(&self, entries: u32) -> Result<(), Error> {
        crate::fork::check()?;
        let max = self.inner.context.limits().max_cqe;
        if entries > max {
            return Err(Error::Verb(hirail_rnic::VerbError::TooLarge {
                what: "cqe",
                max: max.into(),
                got: entries.into(),
            }));
        }
        Ok(self.inner.cq.lock().resize(entries)?)
    }

    /// How many completions fit.
    ///
    /// # Errors
    /// In a forked child.
    pub fn capacity(&self) -> Result<u32, Error> {
        crate::fork::check()?;
        Ok(self.inner.cq.lock().capacity())
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

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cq").field(&self.id().0).finish()
    }
}

/// A completion channel: one descriptor for the events of many completion queues. Clones are
/// handles to the same one.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    events: FdQueue<CqId>,
    queues: Mutex<BTreeMap<CqId, Weak<CqInner>>>,
    context: Context,
}

impl ChannelInner {
    fn queues(&self) -> std::sync::MutexGuard<'_, BTreeMap<CqId, Weak<CqInner>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionChannel {
    pub(crate) fn new(context: &Context) -> Result<Self, Error> {
        context.rnic().begin()?;
        let events = FdQueue::new().map_err(Error::Descriptor)?;
        Ok(Self {
            inner: Arc::new(ChannelInner {
                events,
                queues: Mutex::default(),
                context: context.clone(),
            }),
        })
    }

    /// The queue of the oldest event, if there is one. Arm it again, then poll it empty.
    ///
    /// # Errors
    /// In a forked child.
    pub fn try_event(&self) -> Result<Option<Cq>, Error> {
        crate::fork::check()?;
        while let Some(id) = self.inner.events.pop() {
            if let Some(cq) = self.queue(id) {
                return Ok(Some(cq));
            }
        }
        Ok(None)
    }

    /// The queue of the oldest event, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait(&self, timeout: Duration) -> Result<Cq, Error> {
        crate::fork::check()?;
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.inner.events.wait(left);
            let id = event.ok_or(Error::NoEvent { waited: timeout })?;
            // A queue that was destroyed after its event has none.
            if let Some(cq) = self.queue(id) {
                return Ok(cq);
            }
        }
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

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionChannel")
            .field(&self.fd())
            .finish()
    }
}
