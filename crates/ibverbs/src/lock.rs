//! A lock that is taken in one call of the program and given back in another: no guard can stand for
//! it.

use core::hint;
use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// See the module's description.
pub(crate) struct Lock {
    is_taken: AtomicBool,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
        }
    }

    /// Takes it, waiting for whoever has it.
    #[inline]
    pub(crate) fn take(&self) {
        let mut tries = 0u32;
        while self.is_taken.swap(true, Ordering::Acquire) {
            tries += 1;
            if tries.is_multiple_of(64) {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    }

    /// Gives it back.
    #[inline]
    pub(crate) fn give(&self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    struct Counter(Lock, Cell<u32>);

    // SAFETY: the test touches the cell only with the lock held.
    unsafe impl Sync for Counter {}

    #[test]
    fn one_at_a_time() {
        let counter = Counter(Lock::new(), Cell::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let Counter(lock, count) = &counter;
                    for _ in 0..10_000 {
                        lock.take();
                        count.set(count.get() + 1);
                        lock.give();
                    }
                });
            }
        });
        assert_eq!(counter.1.get(), 40_000);
    }
}
