//! XRC domains.

use std::fmt;
use std::sync::Arc;

use hirail_rnic::srq::XrcdId;

use super::context::Context;
use crate::error::Error;

/// An XRC domain: a message that comes through one of its target QPs goes to whichever of its shared
/// receive queues the sender named. Clones are handles to the same one.
#[derive(Clone)]
pub struct Xrcd {
    pub(crate) inner: Arc<XrcdInner>,
}

pub(crate) struct XrcdInner {
    context: Context,
    pub(crate) id: XrcdId,
}

impl Xrcd {
    pub(crate) fn new(context: &Context) -> Result<Self, Error> {
        context.rnic().begin()?;
        let id = context.rnic().device.alloc_xrcd();
        Ok(Self {
            inner: Arc::new(XrcdInner {
                context: context.clone(),
                id,
            }),
        })
    }

    /// The device that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// How many objects and handles there are that keep this domain, beside this handle.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            // QPs and SRQs hold their domain, so none is in it any more.
            let _ = self.context.rnic().device.dealloc_xrcd(self.id);
        }
    }
}

impl fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Xrcd").field(&self.inner.id.0).finish()
    }
}
