//! User memory: bytes that the application, the peer and the kernel change under our hands.
//!
//! Registered memory belongs to the application. It may be written while it is read, its pages may
//! be unmapped or made read-only at any moment, and with one-sided operations nobody asks first. So
//! there is never a `&[u8]` nor a `&mut [u8]` over it: every access is a copy, a word or an atomic
//! in a handful of assembly routines (`guard`), and a page that is not there any more makes that
//! access fail instead of killing the process (`handler`).
//!
//! The order of stores is part of the contract. Applications poll the last byte of a buffer, so the
//! last byte of a payload becomes visible after all others, and in one piece
//! with its aligned neighbours: a message of 8 aligned bytes is one store.

mod backing;
mod guard;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod handler;
mod owned;
#[cfg(all(any(test, not(target_arch = "x86_64")), not(miri)))]
mod portable;
#[cfg(miri)]
mod unguarded;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

pub use backing::Atom;
pub(crate) use backing::Backing;
pub use owned::OwnedRegion;

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use hirail_rnic::host::{Fault, Region};
use hirail_wire::icrc::Icrc;

/// The bytes of one registration: an address range of this process.
///
/// A plain range: it neither owns nor pins the pages. Whoever registers memory decides how long it
/// stays; if pages vanish early, accesses to them return [`Fault`].
pub struct UserRegion {
    /// First byte.
    addr: *mut u8,
    /// Bytes. `addr + len` does not wrap.
    len: usize,
    /// Whether stores are allowed at all; a registration for local reads only has no need for them.
    writable: bool,
}

// SAFETY: the range is only ever touched by the routines of `guard`, which tolerate concurrent
// access from anywhere; the fields themselves never change.
unsafe impl Send for UserRegion {}
// SAFETY: as above.
unsafe impl Sync for UserRegion {}

impl UserRegion {
    /// The `len` bytes from `addr` on, or `None` where the range would wrap around the address
    /// space. Nothing is touched: a range without pages is noticed when it is used.
    ///
    /// # Safety
    ///
    /// While the region exists the process must access these bytes, where they are mapped, only in
    /// ways that tolerate concurrent modification (raw pointers with volatile or atomic accesses, or
    /// after the completion that hands them back), and must not map anything there that a stray copy
    /// could damage.
    pub unsafe fn new(addr: *mut u8, len: usize, writable: bool) -> Option<Self> {
        addr.addr().checked_add(len)?;
        guard::prepare();
        Some(Self {
            addr,
            len,
            writable,
        })
    }

    /// First byte.
    pub fn addr(&self) -> *mut u8 {
        self.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether packets may store here.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Copies `bytes.len()` bytes from `offset` on into `bytes`. On a fault `bytes` holds anything.
    #[inline]
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let from = self.at(offset, bytes.len())?;
        guard::copy_from(from, bytes)
    }

    /// Copies payload into a packet under construction and covers it with the packet's ICRC.
    ///
    /// The user's bytes are read exactly once and the CRC is that of the copy: a buffer that
    /// changes meanwhile gives a packet with other contents, never one with a wrong ICRC.
    #[inline]
    pub fn gather(&self, offset: u64, packet: &mut [u8], icrc: &mut Icrc) -> Result<(), Fault> {
        let from = self.at(offset, packet.len())?;
        guard::copy_from_covering(from, packet, icrc)
    }

    /// Makes pages present before they are accessed.
    pub(crate) fn populate(&self, offset: u64, len: u64, is_write: bool) -> Result<(), Fault> {
        let len = usize::try_from(len).map_err(|_| Fault)?;
        let from = if is_write {
            self.writable_at(offset, len)?
        } else {
            self.at(offset, len)?
        };
        guard::populate(from, len, is_write)
    }

    /// Where `len` bytes at `offset` lie. The engine has checked the range; this costs two compares
    /// and keeps a mistake there from becoming a stray access.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, Fault> {
        let offset = usize::try_from(offset).map_err(|_| Fault)?;
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.addr.wrapping_add(offset)),
            _ => Err(Fault),
        }
    }

    #[inline]
    fn writable_at(&self, offset: u64, len: usize) -> Result<*mut u8, Fault> {
        if !self.writable {
            return Err(Fault);
        }
        self.at(offset, len)
    }
}

impl Region for UserRegion {
    type Payload<'a> = &'a [u8];
    type Held = Vec<u8>;

    fn hold(payload: &[u8], held: &mut Vec<u8>) {
        held.clear();
        held.extend_from_slice(payload);
    }

    fn held(held: &Vec<u8>) -> &[u8] {
        held
    }

    #[inline]
    fn write(&self, offset: u64, payload: &[u8]) -> Result<(), Fault> {
        let to = self.writable_at(offset, payload.len())?;
        let Some(width) = last_store(to.addr(), payload.len()) else {
            return Ok(());
        };
        let (bulk, last) = payload.split_at(payload.len() - width);
        guard::copy_to(to, bulk)?;
        // Nothing may become visible after the last store. x86-64 keeps stores in order by itself,
        // but the compiler does not.
        fence(Ordering::Release);
        guard::store(to.wrapping_add(bulk.len()), last)
    }

    #[inline]
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.write(offset, bytes)
    }

    #[inline]
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.read_into(offset, bytes)
    }

    #[inline]
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        guard::fetch_add(self.writable_at(offset, 8)?, add)
    }

    #[inline]
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        guard::compare_swap(self.writable_at(offset, 8)?, compare, swap)
    }

    #[inline]
    fn store_word(&self, offset: u64, payload: &[u8]) -> Result<(), Fault> {
        let to = self.writable_at(offset, 8)?;
        if payload.len() != 8 || !to.addr().is_multiple_of(8) {
            return Err(Fault);
        }
        fence(Ordering::Release);
        guard::store(to, payload)
    }

    fn flush(&self, offset: u64, len: u64, persistent: bool) -> Result<(), Fault> {
        let from = self.at(offset, usize::try_from(len).map_err(|_| Fault)?)?;
        // Visibility needs nothing else: stores are never held back in a cache of our own.
        fence(Ordering::SeqCst);
        if persistent {
            guard::persist(from, usize::try_from(len).map_err(|_| Fault)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for UserRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.writable { "rw" } else { "r" };
        write!(f, "UserRegion({:p} + {} {access})", self.addr, self.len)
    }
}

/// Width of the store that makes the last byte visible: the widest of 8, 4, 2 and 1 bytes that ends
/// with the message, is aligned and lies within it. `None` for an empty message.
fn last_store(addr: usize, len: usize) -> Option<usize> {
    let end = addr.wrapping_add(len);
    [8, 4, 2, 1]
        .into_iter()
        .find(|width| end.is_multiple_of(*width) && *width <= len)
}

#[cfg(test)]
mod tests;
