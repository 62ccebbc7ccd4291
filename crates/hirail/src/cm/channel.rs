//! Events of connections, as a queue behind a descriptor that can be waited on.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::manager::Manager;
use super::{CommId, Event};
use crate::error::Error;
use crate::verbs::event::FdQueue;

/// An event, and the manager whose connection it is about.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The manager; ids mean something to it only.
    pub manager: Manager,
    /// The event.
    pub event: Event,
}

/// A queue of events, of connections and listeners of any device. Clones are handles to the same
/// one. Events of which nobody holds the channel any more are lost, and requests refused.
#[derive(Clone)]
pub struct EventChannel {
    pub(super) queue: Arc<FdQueue<Notice>>,
}

impl EventChannel {
    /// An empty channel.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        crate::fork::check()?;
        let queue = FdQueue::new().map_err(Error::Descriptor)?;
        Ok(Self {
            queue: Arc::new(queue),
        })
    }

    /// The oldest event, if there is one. A request that is taken fills the backlog no longer.
    ///
    /// # Errors
    /// In a forked child.
    pub fn try_event(&self) -> Result<Option<Notice>, Error> {
        crate::fork::check()?;
        Ok(self.queue.pop().inspect(Notice::seen))
    }

    /// The oldest event, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait(&self, timeout: Duration) -> Result<Notice, Error> {
        crate::fork::check()?;
        let notice = self.queue.wait(timeout).inspect(Notice::seen);
        notice.ok_or(Error::NoEvent { waited: timeout })
    }

    /// A descriptor that is readable while there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd()
    }

    /// Takes the events of one connection out, in their order.
    pub(super) fn take(&self, manager: &Manager, id: CommId) -> Vec<Notice> {
        self.queue
            .take(|notice| notice.event.id() == id && notice.manager.is(manager))
    }
}

impl Notice {
    fn seen(&self) {
        if matches!(self.event, Event::Request(_) | Event::Question(_)) {
            self.manager.seen(self.event.id());
        }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}
