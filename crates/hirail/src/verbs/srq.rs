//! Shared receive queues.

use std::fmt;
use std::sync::Arc;

use hirail_rnic::srq::SrqId;
use hirail_rnic::wr::Sge;
use hirail_rnic::{SharedReceiveQueue, SrqInit, VerbError, XrcHalf};

use super::cq::Cq;
use super::mr::MrSlice;
use super::pd::Pd;
use super::work::SgeList;
use super::xrc::Xrcd;
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
    /// What an XRC queue depends on besides.
    _xrc: Option<(Xrcd, Cq)>,
}

impl Srq {
    pub(crate) fn new(
        pd: &Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(&Xrcd, &Cq)>,
    ) -> Result<Self, Error> {
        crate::fork::check()?;
        if let Some((xrcd, cq)) = xrc {
            pd.context().expect("an XRC domain", xrcd.context())?;
            pd.context().expect("a CQ", cq.context())?;
        }
        let init = SrqInit {
            pd: pd.inner.id,
            max_wr,
            max_sge,
            xrc: xrc.map(|(xrcd, cq)| XrcHalf {
                domain: xrcd.inner.id,
                cq: Arc::clone(&cq.inner.cq),
            }),
        };
        let srq = pd.context().rnic().device.create_srq(init)?;
        Ok(Self {
            inner: Arc::new(SrqInner {
                srq,
                pd: pd.clone(),
                _xrc: xrc.map(|(xrcd, cq)| (xrcd.clone(), cq.clone())),
            }),
        })
    }

    /// Its number: asynchronous events name it, and XRC senders
    /// ([`SendWr::to_srq`](super::work::SendWr::to_srq)).
    pub fn id(&self) -> SrqId {
        self.inner.srq.id
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
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

    /// Queues a receive whose entries are in the engine's form: for layers that translate another
    /// interface.
    ///
    /// # Errors
    /// As [`post_recv`](Self::post_recv).
    pub fn queue_recv(&self, wr_id: u64, sges: &[Sge]) -> Result<(), Error> {
        crate::fork::check()?;
        Ok(self.inner.srq.lock().post(wr_id, sges)?)
    }

    /// How many objects and handles there are that keep this queue, beside this handle.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }

    /// Asks for one event when fewer than `limit` receives are queued, after one was taken; 0 asks
    /// for none.
    ///
    /// # Errors
    /// More than it can hold.
    pub fn arm_limit(&self, limit: u32) -> Result<(), Error> {
        crate::fork::check()?;
        Ok(self.inner.srq.lock().arm_limit(limit)?)
    }

    /// The limit that is armed; 0 if none is.
    ///
    /// # Errors
    /// In a forked child.
    pub fn limit(&self) -> Result<u32, Error> {
        crate::fork::check()?;
        Ok(self.inner.srq.lock().limit())
    }

    /// Receives that are queued.
    ///
    /// # Errors
    /// In a forked child.
    pub fn queued(&self) -> Result<u32, Error> {
        crate::fork::check()?;
        Ok(self.inner.srq.lock().len())
    }

    /// Changes how many receives fit.
    ///
    /// # Errors
    /// Fewer than are queued or than its limit, or more than the device allows.
    pub fn resize(&self, max_wr: u32) -> Result<(), Error> {
        crate::fork::check()?;
        let max = self.inner.pd.context().limits().max_srq_wr;
        if max_wr > max {
            return Err(Error::Verb(VerbError::TooLarge {
                what: "max_wr",
                max: max.into(),
                got: max_wr.into(),
            }));
        }
        Ok(self.inner.srq.lock().resize(max_wr)?)
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

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Srq").field(&self.id().0).finish()
    }
}
