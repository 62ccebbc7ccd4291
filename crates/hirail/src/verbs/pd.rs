//! Protection domains.

use std::sync::Arc;

use hirail_rnic::mr::{Access, PdId};

use super::context::Context;
use super::cq::Cq;
use super::mr::Mr;
use super::qp::QpBuilder;
use super::srq::Srq;
use crate::error::Error;

/// A protection domain: memory keys and QPs of one domain work with each other only.
#[derive(Clone)]
pub struct Pd {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) context: Context,
    pub(crate) id: PdId,
}

impl Pd {
    pub(crate) fn new(context: &Context) -> Result<Self, Error> {
        crate::fork::check()?;
        let id = context.rnic().device.alloc_pd()?;
        Ok(Self {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
            }),
        })
    }

    /// The device that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Registers `bytes` of new zeroed memory, page aligned, owned by the registration.
    ///
    /// # Errors
    /// Access rights that exclude each other, or the device's limits.
    pub fn register(&self, bytes: usize, access: Access) -> Result<Mr, Error> {
        Mr::new(self, bytes, access)
    }

    /// Starts to describe a QP whose completions go to `send_cq` and `recv_cq`.
    pub fn qp<'a>(&'a self, send_cq: &'a Cq, recv_cq: &'a Cq) -> QpBuilder<'a> {
        QpBuilder::new(self, send_cq, recv_cq)
    }

    /// A shared receive queue for `max_wr` receives of `max_sge` entries each.
    ///
    /// # Errors
    /// More than the device allows.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<Srq, Error> {
        Srq::new(self, max_wr, max_sge)
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            // Everything in it holds it, so nothing can be left.
            let _ = self.context.rnic().device.dealloc_pd(self.id);
        }
    }
}
