//! Completions on their way to the futures that wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use super::cq::AsyncCq;
use super::qp::Lane;
use crate::error::Error;
use crate::verbs::context::Context;
use crate::verbs::cq::Cq;
use crate::{Qpn, Wc};

/// A completion queue and the task that hands its completions to the [`AsyncQp`](super::AsyncQp)s
/// they belong to. Clones are handles to the same one; the task ends with the last of them and of
/// the QPs.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

/// What the task and the handles share.
#[derive(Debug)]
struct Shared {
    queue: AsyncCq,
    lanes: Mutex<Lanes>,
}

#[derive(Debug, Default)]
struct Lanes {
    by_qpn: BTreeMap<Qpn, Arc<Lane>>,
    /// Entries that the QPs may need together.
    entries: u32,
    /// Those of QPs that are gone, which may have left completions behind.
    retired: u32,
    /// The task is gone.
    ended: bool,
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dispatcher {
    /// A dispatcher without QPs. Its completion queue grows with them.
    ///
    /// # Errors
    /// As [`AsyncCq::new`].
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without its I/O driver.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            queue: AsyncCq::new(context, 1)?,
            lanes: Mutex::default(),
        });
        let task = tokio::spawn(dispatch(Ending(Arc::clone(&shared))));
        Ok(Self {
            shared,
            _task: Arc::new(Task(task.abort_handle())),
        })
    }

    pub(super) fn cq(&self) -> &Cq {
        self.shared.queue.cq()
    }

    /// Makes room for the completions of a QP with this many requests.
    pub(super) fn seat(&self, entries: u32) -> Result<Seat, Error> {
        let retired = std::mem::take(&mut self.shared.lanes().retired);
        self.shared.drain()?;
        let mut lanes = self.shared.lanes();
        lanes.entries -= retired;
        let sum = lanes.entries.saturating_add(entries);
        if sum > self.cq().capacity()? {
            self.cq().resize(sum)?;
        }
        lanes.entries = sum;
        Ok(Seat {
            dispatcher: self.clone(),
            entries,
            qpn: None,
        })
    }
}

/// The place of one QP.
#[derive(Debug)]
pub(super) struct Seat {
    dispatcher: Dispatcher,
    entries: u32,
    qpn: Option<Qpn>,
}

impl Seat {
    /// From now on completions of this QP go to `lane`.
    pub(super) fn take(&mut self, qpn: Qpn, lane: &Arc<Lane>) {
        self.qpn = Some(qpn);
        let mut lanes = self.dispatcher.shared.lanes();
        if lanes.ended {
            lane.end();
        }
        lanes.by_qpn.insert(qpn, Arc::clone(lane));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut lanes = self.dispatcher.shared.lanes();
        if let Some(qpn) = self.qpn {
            lanes.by_qpn.remove(&qpn);
        }
        lanes.retired += self.entries;
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers what is there.
    fn drain(&self) -> Result<(), Error> {
        while let Some(wc) = self.queue.cq().pop()? {
            self.deliver(wc);
        }
        Ok(())
    }

    fn deliver(&self, wc: Wc) {
        let lane = self.lanes().by_qpn.get(&wc.qpn).map(Arc::clone);
        // What a QP left behind when it was dropped interests nobody.
        if let Some(lane) = lane {
            lane.deliver(wc);
        }
    }
}

/// Tells all lanes when the task ends, in whichever way: its runtime may go before them.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut lanes = self.0.lanes();
        lanes.ended = true;
        lanes.by_qpn.values().for_each(|lane| lane.end());
    }
}

async fn dispatch(shared: Ending) {
    while let Ok(wc) = shared.0.queue.next().await {
        shared.0.deliver(wc);
    }
}
