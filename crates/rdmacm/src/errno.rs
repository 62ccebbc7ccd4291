//! What a refused call tells a C program.

use core::ffi::c_int;

/// A number of `errno.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENODEV);
    pub(crate) const DEAD: Self = Self(libc::EIO);

    /// The number that the last call of this thread left.
    pub(crate) fn last() -> Self {
        let error = std::io::Error::last_os_error();
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Leaves the number for the caller to find.
    pub(crate) fn set(self) {
        // SAFETY: the address of this thread's errno is valid as long as the thread is.
        unsafe { *libc::__errno_location() = self.0 }
    }

    /// What a function said that returns 0 or a number.
    pub(crate) fn check(number: c_int) -> Result<(), Self> {
        match number {
            0 => Ok(()),
            number => Err(Self(number)),
        }
    }

    /// What a function said that returns a pointer, or NULL and `errno`.
    pub(crate) fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Self> {
        if pointer.is_null() {
            return Err(Self::last());
        }
        Ok(pointer)
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
