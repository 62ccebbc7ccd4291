//! Registered memory that the registration owns.
//!
//! The peer may write into a registration at any moment, so there is no `&[u8]` of one: bytes are
//! copied in and out, words are loaded and stored atomically. The memory is freed only after the
//! registration's key is dead and no packet is being worked on with it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::thread;

use hirail_rnic::mr::{self, Access};
use hirail_rnic::wr::Sge;
use hirail_wire::{Lkey, Rkey};

use super::pd::Pd;
use crate::error::Error;
use crate::memory::{OwnedRegion, UserRegion};
use crate::runtime::Threads;

/// A memory region. Clones are handles to the same one; the last one deregisters it.
#[derive(Clone)]
pub struct Mr {
    inner: Arc<MrInner>,
}

struct MrInner {
    /// Taken when it is deregistered.
    mr: Option<Arc<mr::Mr<Threads>>>,
    /// Dropped after the registration, see `Drop`.
    memory: OwnedRegion,
    pd: Pd,
}

/// What a peer needs to know to read or write a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Key.
    pub rkey: Rkey,
}

impl RemoteMemory {
    /// The part that begins `offset` bytes further on.
    ///
    /// # Panics
    /// When `offset` is beyond its end.
    #[must_use]
    pub fn offset(self, offset: u64) -> Self {
        assert!(offset <= self.len, "offset {offset} of {} bytes", self.len);
        Self {
            addr: self.addr + offset,
            len: self.len - offset,
            ..self
        }
    }
}

/// A part of a memory region, to be named in work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSlice {
    pub(crate) sge: Sge,
}

impl MrSlice {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }
}

impl Mr {
    pub(crate) fn new(pd: &Pd, bytes: usize, access: Access) -> Result<Self, Error> {
        crate::fork::check()?;
        let memory = OwnedRegion::new(bytes).ok_or(Error::OutOfMemory { bytes })?;
        let region: UserRegion = memory.region();
        let iova = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            memory.addr() as u64
        };
        let device = &pd.context().rnic().device;
        let mr = device.reg_mr(pd.inner.id, iova, bytes as u64, access, region)?;
        Ok(Self {
            inner: Arc::new(MrInner {
                mr: Some(mr),
                memory,
                pd: pd.clone(),
            }),
        })
    }

    fn mr(&self) -> &mr::Mr<Threads> {
        self.inner
            .mr
            .as_ref()
            .expect("a handle exists, so it is registered")
    }

    /// Local key.
    pub fn lkey(&self) -> Lkey {
        self.mr().lkey()
    }

    /// Remote key.
    pub fn rkey(&self) -> Rkey {
        self.mr().rkey()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.inner.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// What to tell a peer that may access it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.mr().iova(),
            len: self.mr().length(),
            rkey: self.rkey(),
        }
    }

    /// A part of it for a work request.
    ///
    /// # Panics
    /// When the range passes the end, or has 4 GiB or more.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> MrSlice {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        assert!(
            start <= end && end <= self.len(),
            "{start}..{end} of {} bytes",
            self.len()
        );
        let length = u32::try_from(end - start).expect("one scatter/gather entry is below 4 GiB");
        MrSlice {
            sge: Sge {
                addr: self.mr().iova() + start as u64,
                length,
                lkey: self.lkey(),
            },
        }
    }

    /// Copies `bytes` into the region.
    ///
    /// # Panics
    /// When they pass the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.inner.memory.write(offset, bytes);
    }

    /// Copies bytes out of the region.
    ///
    /// # Panics
    /// When they pass the end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.inner.memory.read(offset, bytes);
    }

    /// Copies `len` bytes out of the region.
    pub fn to_vec(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Loads one byte; what a peer stored before it is visible when it is.
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.inner.memory.load_u8(offset)
    }

    /// Loads an aligned 64-bit word in host order, as one.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.inner.memory.load_u64(offset)
    }

    /// Stores an aligned 64-bit word in host order, as one.
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.inner.memory.store_u64(offset, value);
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        let Some(mr) = self.mr.take() else { return };
        if crate::fork::check().is_err() {
            // The parent's registration is none of ours; the child's copy of the memory is.
            std::mem::forget(mr);
            return;
        }
        let device = &self.pd.context().rnic().device;
        drop(device.dereg_mr(mr.lkey()));
        // The key is dead. A packet may still be worked on; the memory must outlive that.
        while Arc::strong_count(&mr) > 1 {
            thread::yield_now();
        }
    }
}
