//! A completion queue whose completions are awaited.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::unix::AsyncFd;

use super::watch;
use crate::error::Error;
use crate::verbs::context::Context;
use crate::verbs::cq::{CompletionChannel, Cq};
use crate::{Arm, Wc};

/// A completion queue on a channel of its own, for tasks to wait on.
#[derive(Debug)]
pub struct AsyncCq {
    cq: Cq,
    channel: CompletionChannel,
    events: AsyncFd<OwnedFd>,
    /// Tasks in [`next`](Self::next).
    waiting: AtomicU32,
}

impl AsyncCq {
    /// A new completion queue for at least `entries` completions.
    ///
    /// # Errors
    /// As [`Context::create_cq`], or the process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without its I/O driver.
    pub fn new(context: &Context, entries: u32) -> Result<Self, Error> {
        let channel = context.create_channel()?;
        Ok(Self {
            cq: context.create_cq_on(entries, &channel)?,
            events: watch(channel.fd())?,
            channel,
            waiting: AtomicU32::new(0),
        })
    }

    /// The queue itself, to make QPs with.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Takes the oldest completion, waiting until there is one. Any number of tasks may wait, each
    /// gets its own.
    ///
    /// Cancellation safe: a completion is taken only when it is returned.
    ///
    /// ```
    /// # use hirail::{Faults, MemoryNetwork, QKey, SendWr, Destination, QpType};
    /// # use hirail::future::AsyncCq;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), hirail::Error> {
    /// # let context = MemoryNetwork::new(Faults::default()).open("192.0.2.1".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// let cq = AsyncCq::new(&context, 16)?;
    /// let qp = pd.qp(cq.cq(), cq.cq()).qp_type(QpType::Ud).build()?;
    /// # qp.activate_datagram(QKey(1))?;
    /// # let to = Destination::unicast(&qp.endpoint(0)?, QKey(1));
    /// qp.post(&SendWr::send(1, &[]).to(to))?;
    /// assert_eq!(cq.next().await?.ok()?.wr_id, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// In a forked child.
    pub async fn next(&self) -> Result<Wc, Error> {
        let _waiting = Waiting::new(self);
        loop {
            if let Some(wc) = self.cq.pop()? {
                return Ok(wc);
            }
            if self.cq.arm(Arm::Any)? {
                continue;
            }
            let mut ready = self.events.readable().await.map_err(Error::Descriptor)?;
            // Cleared first: an event that comes from now on sets it again.
            ready.clear_ready();
            while self.channel.try_event()?.is_some() {}
        }
    }
}

/// A task that waits, in one way or another not for long.
///
/// An event wakes all tasks, but disarms the queue, and the first task to run clears it away. So
/// whoever goes, with a completion or without, sees to it that those who stay are woken by the next
/// one.
struct Waiting<'a>(&'a AsyncCq);

impl<'a> Waiting<'a> {
    fn new(queue: &'a AsyncCq) -> Self {
        queue.waiting.fetch_add(1, Ordering::SeqCst);
        Self(queue)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let others = self.0.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        if others > 0 {
            // It fails in a forked child only, where nobody waits.
            let _ = self.0.cq.rouse();
        }
    }
}
