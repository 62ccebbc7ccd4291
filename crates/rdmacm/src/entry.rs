//! The way into the library. A panic never crosses the C boundary: the call answers `EIO`.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;

/// Runs `job`; 0, or −1 and `errno`.
pub(crate) fn number(job: impl FnOnce() -> Result<(), Errno>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(job));
    match done.unwrap_or(Err(Errno::DEAD)) {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Runs `job`; what it gives, or −1 and `errno`. Where it gives something `errno` stays as it was:
/// programs that have met the end of a stream look there for a reason.
pub(crate) fn value<T: From<i8>>(job: impl FnOnce() -> Result<T, Errno>) -> T {
    let before = Errno::last();
    let done = catch_unwind(AssertUnwindSafe(job)).unwrap_or(Err(Errno::DEAD));
    done.inspect(|_| before.set()).unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// Runs `job`; a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(job: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    let done = catch_unwind(AssertUnwindSafe(job));
    done.unwrap_or(Err(Errno::DEAD)).unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// Runs `job`, which cannot fail.
pub(crate) fn nothing(job: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

/// Takes a lock; what a thread that panicked has left behind is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_errno() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let answers = (
            number(|| panic!("on purpose")),
            pointer::<u8>(|| panic!("on purpose")),
        );
        std::panic::set_hook(hook);
        assert_eq!(answers, (-1, ptr::null_mut()));
        assert_eq!(Errno::last(), Errno::DEAD);
        assert_eq!(number(|| Err(Errno::INVALID)), -1);
        assert_eq!(Errno::last(), Errno::INVALID);
        assert_eq!(number(|| Ok(())), 0);
    }
}
