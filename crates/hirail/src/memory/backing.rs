//! What backs a registration made through the safe API, and how long it stays: memory of its own,
//! memory of the application with an owner, or memory that somebody lends.
//!
//! Here is why registrations can neither dangle nor alias. Whatever the kind, the bytes are only
//! reached through guarded copies and words: no `&[u8]` of them exists while peers may write.

use core::any::Any;
use core::fmt;
use core::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
    fence,
};
use std::sync::Arc;

use hirail_rnic::host::{Fault, Region};

use super::{OwnedRegion, UserRegion};

/// Atomic integers: what memory is made of that others may change.
pub trait Atom: sealed::Sealed + Send + Sync + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! atoms {
    ($($atom:ident),*) => {
        $(impl sealed::Sealed for $atom {}
        impl Atom for $atom {})*
    };
}

atoms!(
    AtomicU8, AtomicI8, AtomicU16, AtomicI16, AtomicU32, AtomicI32, AtomicU64, AtomicI64
);

/// The memory of one registration.
pub(crate) struct Backing {
    view: UserRegion,
    /// Dropped after everything that uses `view`.
    owner: Owner,
}

enum Owner {
    /// Allocated for the registration.
    Own(OwnedRegion),
    /// Kept alive by what the application gave.
    Kept { _owner: Arc<dyn Any + Send + Sync> },
    /// The caller answers for it.
    Lent,
}

impl Backing {
    /// `len` zeroed bytes, page aligned; `None` when there is no memory for them.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let own = OwnedRegion::new(len)?;
        Some(Self {
            view: own.region(),
            owner: Owner::Own(own),
        })
    }

    /// The atomics of `owner`, which stays as long as they are in use.
    pub(crate) fn kept<A: Atom, T: AsRef<[A]> + Send + Sync + 'static>(owner: T) -> Self {
        let owner = Arc::new(owner);
        // Asked once, and after it came to rest: what an `AsRef` answers may differ from call to
        // call, and may lie within the owner itself.
        let atoms: &[A] = (*owner).as_ref();
        let (addr, len) = (atoms.as_ptr(), size_of_val(atoms));
        // SAFETY: whoever else has these bytes has them as atomics. They stay while `owner` is
        // borrowed, which it is until it is dropped: nobody else has this `Arc`, and nothing here
        // takes it apart.
        let view = unsafe { UserRegion::new(addr.cast_mut().cast(), len, true) };
        Self {
            view: view.expect("an allocation does not wrap around"),
            owner: Owner::Kept { _owner: owner },
        }
    }

    /// Bytes that are borrowed exclusively.
    ///
    /// # Safety
    /// The value must be dropped, and nothing may use its view any more, before the borrow ends.
    pub(crate) unsafe fn lent_mut(bytes: &mut [u8]) -> Self {
        // SAFETY: nobody else has access to the bytes during the borrow.
        unsafe { Self::raw(bytes.as_mut_ptr(), bytes.len(), true) }
            .expect("a slice does not wrap around")
    }

    /// Bytes that are borrowed, and so cannot be stored to.
    ///
    /// # Safety
    /// The value must be dropped, and nothing may use its view any more, before the borrow ends.
    pub(crate) unsafe fn lent(bytes: &[u8]) -> Self {
        // SAFETY: the bytes cannot change during the borrow: a region that is not writable refuses
        // every store.
        unsafe { Self::raw(bytes.as_ptr().cast_mut(), bytes.len(), false) }
            .expect("a slice does not wrap around")
    }

    /// Any bytes, or `None` if they would wrap around the address space.
    ///
    /// # Safety
    /// As for [`UserRegion::new`].
    pub(crate) unsafe fn raw(addr: *mut u8, len: usize, writable: bool) -> Option<Self> {
        Some(Self {
            // SAFETY: as required of the caller.
            view: unsafe { UserRegion::new(addr, len, writable) }?,
            owner: Owner::Lent,
        })
    }

    /// A view of the same bytes for the engine, to be given up before this is dropped.
    pub(crate) fn region(&self) -> UserRegion {
        // SAFETY: as when `self.view` was made.
        unsafe { UserRegion::new(self.view.addr(), self.view.len(), self.view.is_writable()) }
            .expect("the same range did not wrap before")
    }

    /// First address.
    pub(crate) fn addr(&self) -> usize {
        self.view.addr().addr()
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.view.len()
    }

    /// Copies `bytes` to `offset`. Panics when they pass the end, and where memory is read-only or
    /// gone.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len(), 1);
        self.view.write(offset as u64, bytes).unwrap_or_else(gone);
    }

    /// Copies bytes from `offset` on. Panics when they pass the end, and where memory is gone.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len(), 1);
        self.view
            .read_into(offset as u64, bytes)
            .unwrap_or_else(gone);
    }

    /// Loads a byte; what was stored before it is visible then.
    pub(crate) fn load_u8(&self, offset: usize) -> u8 {
        if let Owner::Own(own) = &self.owner {
            return own.load_u8(offset);
        }
        let mut byte = [0];
        self.read(offset, &mut byte);
        fence(Ordering::Acquire);
        byte[0]
    }

    /// Loads an aligned word in host order; what was stored before it is visible then.
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        if let Owner::Own(own) = &self.owner {
            return own.load_u64(offset);
        }
        self.check(offset, 8, 8);
        let mut word = [0; 8];
        // An aligned copy of eight bytes is one load.
        self.read(offset, &mut word);
        fence(Ordering::Acquire);
        u64::from_ne_bytes(word)
    }

    /// Stores an aligned word in host order, after everything that was stored before.
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        if let Owner::Own(own) = &self.owner {
            return own.store_u64(offset, value);
        }
        self.check(offset, 8, 8);
        self.view
            .store_word(offset as u64, &value.to_ne_bytes())
            .unwrap_or_else(gone);
    }

    /// Panics unless `len` bytes at `offset` exist and are aligned.
    fn check(&self, offset: usize, len: usize, align: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{len} bytes at {offset} of a region of {} bytes",
            self.len()
        );
        assert!(
            self.addr().wrapping_add(offset).is_multiple_of(align),
            "the address of offset {offset} is not a multiple of {align}"
        );
    }
}

#[cold]
fn gone<T>(_: Fault) -> T {
    panic!("the memory is read-only or no longer there")
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_written_alike() {
        let (mut lent, mut words) = ([0u8; 64], [0u64; 8]);
        let atoms: Arc<[AtomicU8]> = (0..64).map(AtomicU8::new).collect();
        // SAFETY: each is dropped at the end of its turn, before the borrow ends.
        let (lent, raw) = unsafe {
            let words = words.as_mut_ptr().cast();
            (
                Backing::lent_mut(&mut lent),
                Backing::raw(words, 64, true).unwrap(),
            )
        };
        let own = Backing::zeroed(64).unwrap();
        let kept = Backing::kept(Arc::clone(&atoms));
        assert_eq!(kept.load_u8(63), 63);
        for backing in [&own, &kept, &lent, &raw] {
            let at = backing.addr().next_multiple_of(8) - backing.addr();
            backing.write(at, b"01234567");
            assert_eq!(backing.load_u8(at + 7), b'7');
            assert_eq!(backing.load_u64(at), u64::from_ne_bytes(*b"01234567"));
            backing.store_u64(at, 7);
            let mut bytes = [0; 8];
            backing.read(at, &mut bytes);
            assert_eq!(u64::from_ne_bytes(bytes), 7);
            assert_eq!(backing.len(), 64);
        }
    }

    #[test]
    fn an_owner_may_be_of_any_kind() {
        static FIXED: [AtomicU64; 4] = [const { AtomicU64::new(5) }; 4];
        assert_eq!(Backing::kept(&FIXED).load_u64(24), 5);
        let boxed: Box<[AtomicU8]> = Box::new([const { AtomicU8::new(1) }; 16]);
        let kept = [
            Backing::kept(boxed),
            Backing::kept(Vec::<AtomicU8>::new()),
            // The bytes lie within the owner itself, which moves before it is asked.
            Backing::kept([const { AtomicU8::new(3) }; 16]),
        ];
        assert_eq!(kept[0].load_u8(15), 1);
        assert_eq!(kept[1].len(), 0);
        assert_eq!(kept[2].load_u8(15), 3);
    }

    #[test]
    fn the_owner_is_kept_and_let_go() {
        let atoms: Arc<[AtomicU8]> = Arc::new([const { AtomicU8::new(0) }; 8]);
        let kept = Backing::kept(Arc::clone(&atoms));
        assert_eq!(Arc::strong_count(&atoms), 2);
        kept.write(0, b"x");
        assert_eq!(atoms[0].load(Ordering::Relaxed), b'x');
        drop(kept);
        assert_eq!(Arc::strong_count(&atoms), 1);
    }

    #[test]
    #[should_panic(expected = "read-only")]
    fn what_is_lent_without_mut_is_not_written() {
        // SAFETY: dropped before the borrow ends.
        unsafe { Backing::lent(b"fixed") }.write(0, b"x");
    }

    #[test]
    #[should_panic(expected = "8 bytes at 60 of a region of 64 bytes")]
    fn the_end_is_checked() {
        Backing::kept([const { AtomicU64::new(0) }; 8]).store_u64(60, 1);
    }
}
