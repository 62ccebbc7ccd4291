//! Shared receive queues.

use std::sync::Arc;

use hirail_rnic::{SharedReceiveQueue, SrqInit};

use super::mr::MrSlice;
use super::pd::Pd;
use super::work::SgeList;
use crate::error::Error;
use crate::runtime::Threads;

/// A shared receive queue. Clones are handles to the same one.
#[derive(Clone)]
pub struct Srq {
    pub(crate) inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pub(crate) srq: Arc<SharedReceiveQueue<Threads>>,
    pd: Pd,
}

impl Srq {
    pub(crate) fn new(pd: &Pd, max_wr: u32, max_sge: u32) -> Result<Self, Error> {
        crate::fork::check()?;
        let init = SrqInit {
            pd: pd.inner.id,
            max_wr,
            max_sge,
            xrc: None,
        };
        let srq = pd.context().rnic().device.create_srq(init)?;
        Ok(Self {
            inner: Arc::new(SrqInner {
                srq,
                pd: pd.clone(),
            }),
        })
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// The queue is full or in error, or there are too many entries.
    pub fn post_recv(&self, wr_id: u64, into: &[MrSlice]) -> Result<(), Error> {
        crate::fork::check()?;
        let list = SgeList::new(into)?;
        Ok(self.inner.srq.lock().post(wr_id, list.as_slice())?)
    }

    /// Asks for one event when fewer than `limit` receives are queued.
    ///
    /// # Errors
    /// More than it can hold.
    pub fn arm_limit(&self, limit: u32) -> Result<(), Error> {
        crate::fork::check()?;
        Ok(self.inner.srq.lock().arm_limit(limit)?)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            // QPs hold their queue, so none uses this one any more.
            let _ = self.pd.context().rnic().device.destroy_srq(&self.srq);
        }
    }
}
