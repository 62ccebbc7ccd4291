//! The way into the library. A panic never crosses the C boundary: the device of the object that was
//! asked reports a fatal event, and everything later answers `EIO`.
//!
//! There is one function for each convention of the interface about how failure is told.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi;
use crate::context::ContextObject;
use crate::errno::Errno;

/// Runs `job` on behalf of a device, unless that has failed.
#[inline]
fn enter<T>(context: &ContextObject, job: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    if context.shared().has_failed() {
        return Err(Errno::DEAD);
    }
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
        context.shared().fail();
        Err(Errno::DEAD)
    })
}

/// Runs `job`; 0 or a number of `errno.h`.
#[inline]
pub(crate) fn status(context: &ContextObject, job: impl FnOnce() -> Result<(), Errno>) -> c_int {
    enter(context, job).map_or_else(|errno| errno.0, |()| 0)
}

/// Runs `job`; a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(
    context: &ContextObject,
    job: impl FnOnce() -> Result<*mut T, Errno>,
) -> *mut T {
    enter(context, job).unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// Runs `job`; its number, or −1 and `errno`.
pub(crate) fn number(context: &ContextObject, job: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    enter(context, job).unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// Runs `job`; its number, or a negative number of `errno.h`.
#[inline]
pub(crate) fn count(context: &ContextObject, job: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    enter(context, job).unwrap_or_else(|errno| -errno.0)
}

/// Runs `job`, which belongs to no device; `failed` if it panics.
pub(crate) fn without_device<T>(failed: T, job: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
        Errno::DEAD.set();
        failed
    })
}

/// An object of this library: a public part that C programs see, and what is kept behind it.
///
/// # Safety
/// The type is `repr(C)` and begins with a `Public`.
pub(crate) unsafe trait Object: Sized {
    /// The part that C programs see.
    type Public;

    /// Hands the object out.
    fn into_public(self) -> *mut Self::Public {
        Box::into_raw(Box::new(self)).cast()
    }

    /// The object behind its public part.
    ///
    /// # Safety
    /// It came from [`into_public`](Self::into_public) and stays until the reference is gone.
    #[inline]
    unsafe fn of<'a>(public: *const Self::Public) -> &'a Self {
        // SAFETY: as required of the caller; the public part is the beginning.
        unsafe { &*public.cast() }
    }

    /// Takes the object back.
    ///
    /// # Safety
    /// It came from [`into_public`](Self::into_public), once, and nobody uses it any more.
    unsafe fn take(public: *mut Self::Public) -> Box<Self> {
        // SAFETY: as required of the caller.
        unsafe { Box::from_raw(public.cast()) }
    }
}

/// The device that an object belongs to.
///
/// # Safety
/// `context` points to the context in an object of this library that exists.
#[inline]
pub(crate) unsafe fn device<'a>(context: *const *mut abi::Context) -> &'a ContextObject {
    // SAFETY: as required of the caller.
    unsafe { ContextObject::of(*context) }
}
