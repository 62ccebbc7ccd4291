//! What the engine asks of whoever runs it: memory behind a trait, and a choice of locks.
//!
//! The engine checks key, address, length and access; a [`Region`] only moves what was checked.
//! A multi-threaded host uses mutexes, a simulator plain cells; the engine is one.

use core::cell::{Ref, RefCell, RefMut};
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Payload of a packet that arrived: a cheap, copyable view of its bytes (or of a stand-in for
/// them, in a simulator).
pub trait Payload: Copy {
    /// Its length in bytes, without pad.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `start` on, `len` of them. The engine asks only for what exists.
    #[must_use]
    fn slice(&self, start: usize, len: usize) -> Self;
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn slice(&self, start: usize, len: usize) -> Self {
        &self[start..start + len]
    }
}

/// The memory under a registration is gone: the page was unmapped or is not writable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// The bytes of one memory registration. Offsets count from its first byte; the engine stays
/// within the length it was registered with. The region may change under everybody's hands.
pub trait Region: 'static {
    /// What packets bring.
    type Payload<'a>: Payload;

    /// A payload kept beyond the packet that brought it, reusable for the next one.
    type Held: Default + 'static;

    /// Keeps a copy of `payload` in `held`, in place of what that held before.
    fn hold(payload: Self::Payload<'_>, held: &mut Self::Held);

    /// The payload that `held` keeps.
    fn held(held: &Self::Held) -> Self::Payload<'_>;

    /// Stores `payload` at `offset`, its last byte visible last. Everything stored before becomes
    /// visible no later than that byte.
    fn write(&self, offset: u64, payload: Self::Payload<'_>) -> Result<(), Fault>;

    /// Stores a header or an immediate that the engine made itself (the 40-byte GRH of UD).
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Reads bytes for the engine itself (inline data at post time).
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Adds `add` to the host-order 64-bit word at `offset` (a multiple of 8 bytes in memory),
    /// wrapping, and returns the word before.
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault>;

    /// Stores `swap` where the word equals `compare`; returns the word before.
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault>;

    /// Stores a payload of 8 bytes as one (ATOMIC WRITE), at a multiple of 8 bytes in memory.
    fn store_word(&self, offset: u64, payload: Self::Payload<'_>) -> Result<(), Fault>;

    /// Makes `len` bytes visible to everybody (`persistent`: and durable) before it returns.
    fn flush(&self, offset: u64, len: u64, persistent: bool) -> Result<(), Fault>;
}

/// A lock around `T`.
pub trait Lock<T> {
    /// Access while held.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// The lock, free.
    fn new(value: T) -> Self;
    /// Takes the lock.
    fn lock(&self) -> Self::Guard<'_>;
}

/// A lock around `T` that readers share.
pub trait ReadMostly<T> {
    /// Shared access.
    type Reader<'a>: Deref<Target = T>
    where
        Self: 'a;
    /// Exclusive access.
    type Writer<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// The lock, free.
    fn new(value: T) -> Self;
    /// Shares the lock.
    fn read(&self) -> Self::Reader<'_>;
    /// Takes the lock.
    fn write(&self) -> Self::Writer<'_>;
}

/// Everything the engine is generic over.
pub trait Host: Sized + 'static {
    /// Registered memory.
    type Region: Region;
    /// Exclusive lock. Order: QP, then SRQ, then CQ, then path window, then scheduler.
    type Lock<T: 'static>: Lock<T>;
    /// Lock for tables that change rarely.
    type ReadMostly<T: 'static>: ReadMostly<T>;
}

impl<T> Lock<T> for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn lock(&self) -> Self::Guard<'_> {
        // A panic under the lock has already been reported by whoever caught it.
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> ReadMostly<T> for RwLock<T> {
    type Reader<'a>
        = RwLockReadGuard<'a, T>
    where
        T: 'a;
    type Writer<'a>
        = RwLockWriteGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn read(&self) -> Self::Reader<'_> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> Self::Writer<'_> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Lock<T> for RefCell<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.borrow_mut()
    }
}

impl<T> ReadMostly<T> for RefCell<T> {
    type Reader<'a>
        = Ref<'a, T>
    where
        T: 'a;
    type Writer<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn read(&self) -> Self::Reader<'_> {
        self.borrow()
    }

    fn write(&self) -> Self::Writer<'_> {
        self.borrow_mut()
    }
}
