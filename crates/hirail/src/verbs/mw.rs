//! Memory windows: keys for a part of a region, with rights of their own, given and taken back by
//! work requests.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hirail_rnic::mr::MwType;
use hirail_wire::Rkey;

use super::pd::Pd;
use crate::error::Error;

/// A memory window. Clones are handles to the same one; the last one to go unbinds it.
#[derive(Clone)]
pub struct Mw {
    inner: Arc<MwInner>,
}

struct MwInner {
    pd: Pd,
    kind: MwType,
    /// The key of the bind request posted last, or the first one.
    rkey: Mutex<Rkey>,
}

impl Mw {
    pub(crate) fn new(pd: &Pd, kind: MwType) -> Result<Self, Error> {
        crate::fork::check()?;
        let rkey = pd.context().rnic().device.alloc_mw(pd.inner.id, kind)?;
        Ok(Self {
            inner: Arc::new(MwInner {
                pd: pd.clone(),
                kind,
                rkey: Mutex::new(rkey),
            }),
        })
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// Its kind.
    pub fn kind(&self) -> MwType {
        self.inner.kind
    }

    /// Its key since the bind request that was posted last. Peers can use it when that request has
    /// completed.
    pub fn rkey(&self) -> Rkey {
        *self.key()
    }

    /// The key, locked: whoever holds it may post a request that changes it.
    pub(crate) fn key(&self) -> MutexGuard<'_, Rkey> {
        self.inner
            .rkey
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key that follows: the same index, the next variant (`ibv_inc_rkey`).
pub(crate) fn next(rkey: Rkey) -> Rkey {
    Rkey::from_parts(rkey.index(), rkey.variant().wrapping_add(1))
}

impl Drop for MwInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            let rkey = *self.rkey.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = self.pd.context().rnic().device.dealloc_mw(rkey);
        }
    }
}

impl fmt::Debug for Mw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mw")
            .field("kind", &self.kind())
            .field("rkey", &self.rkey())
            .finish()
    }
}
