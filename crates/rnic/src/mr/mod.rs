//! Memory regions and windows, and the keys that name them (IBTA Vol 1, chapter 10;
//! `ibv_reg_mr(3)`, `ibv_alloc_mw(3)`).
//!
//! A [`KeyTable`] holds all of them. Its two checks, one for keys in local work requests and one
//! for keys in packets, are the only way to a [`Slice`], and a `Slice` is the only way to memory:
//! no code of the engine can touch a byte that was not checked.
//!
//! Fast registration (the REG_MR work request) exists in kernels only and is not here.

mod access;
mod index;
mod slice;
mod table;
#[cfg(test)]
mod tests;
mod window;

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use hirail_wire::{Lkey, Rkey};

use crate::host::Host;
use crate::planted::{self, Bug};

pub use access::Access;
pub use slice::Slice;
pub use table::{KeyTable, LocalProtection, Refusal, RemoteRefused, Reregister, Reregistered};
pub use window::{BindMw, BindRefused, InvalidateRefused, MwType};

/// Number of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub u32);

/// A memory region.
///
/// The table holds one reference and every [`Slice`] of it one more, so after
/// [`KeyTable::deregister`] the memory is out of everybody's reach once
/// [`try_into_region`](Self::try_into_region) succeeds.
pub struct Mr<H: Host> {
    /// Local and remote key are the same.
    key: u32,
    /// Re-registration changes domain and access in place. They are written with the table held
    /// exclusively and read with it shared, which orders them.
    pd: AtomicU32,
    access: AtomicU32,
    extent: Extent,
    region: H::Region,
}

impl<H: Host> Mr<H> {
    /// The key for local work requests.
    pub fn lkey(&self) -> Lkey {
        Lkey::new(self.key)
    }

    /// The key to give to peers.
    pub fn rkey(&self) -> Rkey {
        Rkey::new(self.key)
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        PdId(self.pd.load(Ordering::Relaxed))
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        Access::from_bits_retain(self.access.load(Ordering::Relaxed))
    }

    /// The address of its first byte in work requests and packets; 0 if zero-based.
    pub fn iova(&self) -> u64 {
        self.extent.base
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.extent.length
    }

    /// The memory itself.
    pub fn region(&self) -> &H::Region {
        &self.region
    }

    /// The memory, if nobody else holds the region any more: then no access is under way and
    /// everything written is visible to the caller. Otherwise the region, to try again.
    pub fn try_into_region(self: Arc<Self>) -> Result<H::Region, Arc<Self>> {
        Arc::try_unwrap(self).map(|mr| mr.region)
    }
}

impl<H: Host> fmt::Debug for Mr<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("lkey", &self.lkey())
            .field("pd", &self.pd())
            .field("access", &self.access())
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}

/// A range of addresses that does not wrap around.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    base: u64,
    length: u64,
}

impl Extent {
    fn new(base: u64, length: u64) -> Option<Self> {
        base.checked_add(length).map(|_| Self { base, length })
    }

    /// The offset of `va` if `len` bytes from there on lie inside.
    fn offset_of(self, va: u64, len: u64) -> Option<u64> {
        // An address below the base becomes an offset of at least 2^64 − base, which exceeds the
        // length because the extent does not wrap.
        let offset = va.wrapping_sub(self.base);
        let length = self.length + 8 * u64::from(planted::has(Bug::RangeTooLong));
        (offset <= length && len <= length - offset).then_some(offset)
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.base, self.length)
    }
}
