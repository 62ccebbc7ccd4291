//! The proof that a piece of memory may be used.

use core::fmt;
use std::sync::Arc;

use super::Mr;
use crate::host::{Fault, Host, Payload, Region};

/// A checked piece of a memory region. Only the checks of a [`KeyTable`](super::KeyTable) make
/// one, so holding it proves that the key, the domain, the right and the range were right.
///
/// It keeps the region alive: deregistration waits for it. Hold one while a packet is worked on,
/// not longer. Asking for bytes beyond it is a bug of the engine and panics.
pub struct Slice<H: Host> {
    mr: Arc<Mr<H>>,
    /// Offset in the region; `offset + len` is within its length.
    offset: u64,
    len: u32,
}

impl<H: Host> Slice<H> {
    /// To be called with a range that was checked.
    pub(super) fn new(mr: Arc<Mr<H>>, offset: u64, len: u32) -> Self {
        Self { mr, offset, len }
    }

    /// Stores a payload `at` bytes into the slice, its last byte visible last.
    pub fn write(&self, at: u32, payload: <H::Region as Region>::Payload<'_>) -> Result<(), Fault> {
        let offset = self.offset_of(at, payload.len() as u64);
        self.mr.region.write(offset, payload)
    }

    /// Stores bytes that the engine made itself.
    pub fn write_bytes(&self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let offset = self.offset_of(at, bytes.len() as u64);
        self.mr.region.write_bytes(offset, bytes)
    }

    /// Reads bytes for the engine itself.
    pub fn read_bytes(&self, at: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let offset = self.offset_of(at, bytes.len() as u64);
        self.mr.region.read_bytes(offset, bytes)
    }

    /// Adds to the 64-bit word `at` bytes into the slice and returns the word before.
    pub fn fetch_add(&self, at: u32, add: u64) -> Result<u64, Fault> {
        self.mr.region.fetch_add(self.offset_of(at, 8), add)
    }

    /// Stores `swap` where the word equals `compare`; returns the word before.
    pub fn compare_swap(&self, at: u32, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.mr
            .region
            .compare_swap(self.offset_of(at, 8), compare, swap)
    }

    /// Stores the 8 bytes of a payload as one.
    pub fn store_word(
        &self,
        at: u32,
        word: <H::Region as Region>::Payload<'_>,
    ) -> Result<(), Fault> {
        self.mr.region.store_word(self.offset_of(at, 8), word)
    }

    /// Makes the whole slice visible to everybody (`persistent`: and durable).
    pub fn flush(&self, persistent: bool) -> Result<(), Fault> {
        self.mr
            .region
            .flush(self.offset, self.len.into(), persistent)
    }

    /// Makes the whole region visible, as a FLUSH for the whole region asks.
    pub fn flush_region(&self, persistent: bool) -> Result<(), Fault> {
        self.mr.region.flush(0, self.mr.length(), persistent)
    }

    /// The `len` bytes from `at` on.
    #[must_use]
    pub fn sub(&self, at: u32, len: u32) -> Self {
        Self {
            offset: self.offset_of(at, len.into()),
            mr: Arc::clone(&self.mr),
            len,
        }
    }

    /// The region that the slice is a piece of.
    pub fn region(&self) -> &H::Region {
        &self.mr.region
    }

    /// Offset of its first byte in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The offset in the region of the byte `at` of the slice, where `len` bytes are to be used.
    fn offset_of(&self, at: u32, len: u64) -> u64 {
        let end = u64::from(at).saturating_add(len);
        assert!(
            end <= u64::from(self.len),
            "{len} bytes at {at} pass the end of {self:?}"
        );
        self.offset + u64::from(at)
    }
}

impl<H: Host> Clone for Slice<H> {
    fn clone(&self) -> Self {
        Self {
            mr: Arc::clone(&self.mr),
            ..*self
        }
    }
}

impl<H: Host> fmt::Debug for Slice<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slice({} bytes at {:#x} of {})",
            self.len,
            self.offset,
            self.mr.lkey()
        )
    }
}
