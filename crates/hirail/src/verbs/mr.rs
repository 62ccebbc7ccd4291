//! Memory regions.
//!
//! The peer may write into a registration at any moment, so there is no `&[u8]` of one: bytes are
//! copied in and out, words are loaded and stored atomically. Deregistering waits until no packet
//! is being worked on with the memory; after that its owner has it back, or it is freed.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use hirail_rnic::mr::{self, Access, Reregister};
use hirail_rnic::wr::Sge;
use hirail_wire::{Lkey, Rkey};

use super::pd::Pd;
use crate::error::Error;
use crate::memory::Backing;
use crate::runtime::Threads;

/// A memory region. Dropping it deregisters it: its keys are dead then, memory windows bound to it
/// are unbound, and requests that still name it end with a protection error. Share it in an
/// [`Arc`].
pub struct Mr {
    /// Taken when it is deregistered.
    mr: Option<Arc<mr::Mr<Threads>>>,
    /// Dropped after the registration, see `Drop`.
    backing: Backing,
    pd: Pd,
}

/// What a peer needs to know to read or write a memory region or window.
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

impl fmt::Display for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} {} {}", self.addr, self.len, self.rkey)
    }
}

impl FromStr for RemoteMemory {
    type Err = Error;

    /// Reads what `Display` wrote.
    fn from_str(text: &str) -> Result<Self, Error> {
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let parse = || {
            let mut words = text.split_whitespace();
            let memory = Self {
                addr: hex(words.next()?)?,
                len: words.next()?.parse().ok()?,
                rkey: Rkey::new(u32::try_from(hex(words.next()?)?).ok()?),
            };
            words.next().is_none().then_some(memory)
        };
        parse().ok_or_else(|| Error::Exchange {
            expected: "memory: ADDRESS LENGTH RKEY",
            got: text.to_owned(),
        })
    }
}

/// A part of a memory region, to be named in work requests. It is a name only: when the region is
/// gone, requests with it fail.
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

impl From<MrSlice> for Sge {
    fn from(slice: MrSlice) -> Self {
        slice.sge
    }
}

impl Mr {
    /// Registers what `backing` holds, under its own addresses.
    pub(crate) fn new(pd: &Pd, backing: Backing, access: Access) -> Result<Self, Error> {
        let iova = backing.addr() as u64;
        Self::new_at(pd, backing, iova, access)
    }

    /// Registers what `backing` holds, under addresses that begin with `iova`.
    pub(crate) fn new_at(
        pd: &Pd,
        backing: Backing,
        iova: u64,
        access: Access,
    ) -> Result<Self, Error> {
        crate::fork::check()?;
        let length = backing.len() as u64;
        let device = &pd.context().rnic().device;
        let mr = device.reg_mr(pd.inner.id, iova, length, access, backing.region())?;
        Ok(Self {
            mr: Some(mr),
            backing,
            pd: pd.clone(),
        })
    }

    /// Gives the region other access rights; its keys stay. Packets that are being worked on finish
    /// under the old ones.
    ///
    /// # Errors
    /// Rights that exclude each other, or memory windows are bound to it.
    pub fn set_access(&mut self, access: Access) -> Result<(), Error> {
        self.change(Reregister {
            pd: None,
            access: Some(access),
            translation: None,
        })
    }

    /// Moves the region to another protection domain of the same device; its keys stay.
    ///
    /// # Errors
    /// Memory windows are bound to it, or the domain is another device's.
    pub fn set_pd(&mut self, pd: &Pd) -> Result<(), Error> {
        self.pd.context().expect("a PD", pd.context())?;
        self.change(Reregister {
            pd: Some(pd.inner.id),
            access: None,
            translation: None,
        })?;
        self.pd = pd.clone();
        Ok(())
    }

    /// Puts `bytes` of new zeroed memory in place of the old, under new keys: who knew the old
    /// memory cannot reach the new one. The old memory goes as if the region had been dropped.
    ///
    /// # Errors
    /// Memory windows are bound to the region, or there is no memory.
    pub fn replace(&mut self, bytes: usize) -> Result<(), Error> {
        let backing = Backing::zeroed(bytes).ok_or(Error::OutOfMemory { bytes })?;
        let (iova, length) = (backing.addr() as u64, backing.len() as u64);
        self.change(Reregister {
            pd: None,
            access: None,
            translation: Some((iova, length, backing.region())),
        })?;
        self.backing = backing;
        Ok(())
    }

    /// Changes all that is given at once, keys included where the memory changes: what
    /// `ibv_rereg_mr` does.
    ///
    /// # Safety
    /// As for [`Pd::register_raw`](super::pd::Pd::register_raw), where there is `memory`.
    ///
    /// # Errors
    /// Rights that exclude each other, windows are bound to the region, or the domain is another
    /// device's. Nothing has changed then.
    pub unsafe fn reregister_raw(
        &mut self,
        memory: Option<(*mut u8, usize)>,
        pd: Option<&Pd>,
        access: Option<Access>,
    ) -> Result<(), Error> {
        if let Some(pd) = pd {
            self.pd.context().expect("a PD", pd.context())?;
        }
        let backing = match memory {
            None => None,
            // SAFETY: as required of the caller.
            Some((addr, len)) => Some(unsafe { super::pd::raw(addr, len) }?),
        };
        self.change(Reregister {
            pd: pd.map(|pd| pd.inner.id),
            access,
            translation: backing.as_ref().map(|backing| {
                let (iova, length) = (backing.addr() as u64, backing.len() as u64);
                (iova, length, backing.region())
            }),
        })?;
        if let Some(backing) = backing {
            self.backing = backing;
        }
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }

    /// Deregisters the region, which dropping it does as well, but only if no memory window is
    /// bound to it.
    ///
    /// # Errors
    /// Windows are bound to it; it stays as it is.
    pub fn deregister(&mut self) -> Result<(), Error> {
        crate::fork::check()?;
        let Some(mr) = &self.mr else { return Ok(()) };
        let device = &self.pd.context().rnic().device;
        drop(device.dereg_mr(mr.lkey())?);
        if let Some(mr) = self.mr.take() {
            wait_for_last_user(mr);
        }
        Ok(())
    }

    fn change(&mut self, change: Reregister<Threads>) -> Result<(), Error> {
        crate::fork::check()?;
        let device = &self.pd.context().rnic().device;
        let changed = device.rereg_mr(self.lkey(), change)?;
        self.mr = Some(changed.mr);
        if let Some(replaced) = changed.replaced {
            wait_for_last_user(replaced);
        }
        Ok(())
    }

    fn mr(&self) -> &mr::Mr<Threads> {
        self.mr
            .as_ref()
            .expect("a region is registered while it exists")
    }

    /// Local key.
    pub fn lkey(&self) -> Lkey {
        self.mr().lkey()
    }

    /// Remote key.
    pub fn rkey(&self) -> Rkey {
        self.mr().rkey()
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.mr().access()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.backing.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &Pd {
        &self.pd
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
        let (start, len) = self.part(range);
        MrSlice {
            sge: Sge {
                addr: self.mr().iova() + start as u64,
                length: u32::try_from(len).expect("one scatter/gather entry is below 4 GiB"),
                lkey: self.lkey(),
            },
        }
    }

    /// Start and length of a range of it.
    pub(crate) fn part(&self, range: impl RangeBounds<usize>) -> (usize, usize) {
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
        (start, end - start)
    }

    /// Copies `bytes` into the region.
    ///
    /// # Panics
    /// When they pass the end, or the memory is read-only or gone.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.backing.write(offset, bytes);
    }

    /// Copies bytes out of the region.
    ///
    /// # Panics
    /// When they pass the end, or the memory is gone.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.backing.read(offset, bytes);
    }

    /// Copies `len` bytes out of the region.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn to_vec(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Loads one byte; what a peer stored before it is visible when it is.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.backing.load_u8(offset)
    }

    /// Loads an aligned 64-bit word in host order, as one.
    ///
    /// # Panics
    /// As [`read`](Self::read), or when it is not aligned.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.backing.load_u64(offset)
    }

    /// Stores an aligned 64-bit word in host order, as one.
    ///
    /// # Panics
    /// As [`write`](Self::write), or when it is not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.backing.store_u64(offset, value);
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let Some(mr) = self.mr.take() else { return };
        if crate::fork::check().is_err() {
            // The parent's registration is none of ours; the child's copy of the memory is.
            std::mem::forget(mr);
            return;
        }
        let device = &self.pd.context().rnic().device;
        drop(device.revoke_mr(mr.lkey()));
        wait_for_last_user(mr);
    }
}

/// The key is dead. A packet may still be worked on; the memory must outlive that.
fn wait_for_last_user(mut mr: Arc<mr::Mr<Threads>>) {
    while let Err(used) = mr.try_into_region() {
        mr = used;
        thread::yield_now();
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("backing", &self.backing)
            .field("access", &self.access())
            .field("lkey", &self.lkey())
            .finish()
    }
}
