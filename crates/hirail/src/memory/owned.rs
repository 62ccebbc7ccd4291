//! Memory that a registration owns: allocated for it, freed after it, touched by copies only.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

use hirail_rnic::host::Region;

use super::UserRegion;

/// Registrations begin at a page, as a card would need it, and as polling programs like it.
const ALIGN: usize = 4096;

/// A page-aligned allocation, zeroed.
#[derive(Debug)]
pub struct OwnedRegion {
    addr: NonNull<u8>,
    layout: Layout,
    len: usize,
    region: UserRegion,
}

// SAFETY: the bytes are only reached through the guarded routines and atomics, which tolerate
// concurrent access from anywhere; the fields never change.
unsafe impl Send for OwnedRegion {}
// SAFETY: as above.
unsafe impl Sync for OwnedRegion {}

impl OwnedRegion {
    /// `len` zeroed bytes; `None` when there is no memory for them.
    pub fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let addr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: nothing but the guarded routines and atomics below ever touches these bytes.
        let region = unsafe { UserRegion::new(addr.as_ptr(), len, true) }?;
        Some(Self {
            addr,
            layout,
            len,
            region,
        })
    }

    /// First address.
    pub fn addr(&self) -> usize {
        self.addr.as_ptr().addr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A view of the same bytes for the engine. The owner keeps the allocation until the engine has
    /// given that view up.
    pub(crate) fn region(&self) -> UserRegion {
        // SAFETY: as in `new`; the owner of both frees the allocation only when the registration
        // that holds this view is gone.
        unsafe { UserRegion::new(self.addr.as_ptr(), self.len, true) }
            .expect("the same range did not wrap before")
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// When they pass the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.region
            .write(offset as u64, bytes)
            .unwrap_or_else(|_| self.beyond(offset, bytes.len()));
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    /// When they pass the end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let len = bytes.len();
        self.region
            .read_into(offset as u64, bytes)
            .unwrap_or_else(|_| self.beyond(offset, len));
    }

    /// Loads a byte; what was stored before it is visible then.
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.check(offset, 1, 1);
        // SAFETY: within the allocation; bytes are always aligned, and concurrent access to them is
        // atomic or by the guarded routines.
        let byte = unsafe { AtomicU8::from_ptr(self.addr.as_ptr().add(offset)) };
        byte.load(Ordering::Acquire)
    }

    /// Loads an aligned word in host order.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores an aligned word in host order.
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8, 8);
        // SAFETY: within the allocation and aligned, both just checked; concurrent access to the
        // bytes is atomic or by the guarded routines.
        unsafe { AtomicU64::from_ptr(self.addr.as_ptr().add(offset).cast()) }
    }

    fn check(&self, offset: usize, len: usize, align: usize) {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            self.beyond(offset, len);
        }
        assert!(
            offset.is_multiple_of(align),
            "offset {offset} is not a multiple of {align}"
        );
    }

    #[cold]
    fn beyond(&self, offset: usize, len: usize) -> ! {
        panic!("{len} bytes at {offset} of a region of {} bytes", self.len)
    }
}

impl Drop for OwnedRegion {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, freed nowhere else.
        unsafe { dealloc(self.addr.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_round_trip() {
        let memory = OwnedRegion::new(5000).unwrap();
        assert_eq!(memory.addr() % ALIGN, 0);
        memory.write(4990, b"0123456789");
        let mut back = [0; 10];
        memory.read(4990, &mut back);
        assert_eq!(&back, b"0123456789");
        assert_eq!(memory.load_u8(4999), b'9');
        memory.store_u64(16, 7);
        assert_eq!(memory.load_u64(16), 7);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4999 of a region of 5000 bytes")]
    fn the_end_is_checked() {
        OwnedRegion::new(5000).unwrap().write(4999, b"ab");
    }
}
