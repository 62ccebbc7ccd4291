//! What a refused verb tells a C program.

use core::ffi::c_int;

use hirail::cm::CmError;
use hirail::{Error, VerbError};

/// A number of `errno.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NO_ENTRY: Self = Self(libc::ENOENT);
    pub(crate) const DEAD: Self = Self(libc::EIO);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);

    /// The number that the last system call of this thread left.
    pub(crate) fn last() -> Self {
        Self(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }

    /// Leaves the number for the caller to find.
    pub(crate) fn set(self) {
        // SAFETY: the address of this thread's errno is valid as long as the thread is.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<VerbError> for Errno {
    fn from(error: VerbError) -> Self {
        Self(match error {
            VerbError::NotFound { .. } => libc::ENOENT,
            VerbError::Busy { .. } => libc::EBUSY,
            VerbError::Exhausted { .. } | VerbError::QueueFull { .. } => libc::ENOMEM,
            VerbError::TooLarge { .. }
            | VerbError::TooSmall { .. }
            | VerbError::AddressWraps { .. }
            | VerbError::NeedsLocalWrite { .. }
            | VerbError::RebaseNeedsTranslation
            | VerbError::UnknownAccess { .. }
            | VerbError::WrongState { .. }
            | VerbError::Modify(_)
            | VerbError::OperationNotAllowed { .. }
            | VerbError::Missing { .. }
            | VerbError::HasSrq { .. }
            | VerbError::Failed { .. }
            | VerbError::NotMulticast { .. }
            | VerbError::NotAttached { .. } => libc::EINVAL,
        })
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        let of = |error: &std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        Self(match error {
            Error::Verb(error) => return error.into(),
            Error::NoSuchDevice { .. }
            | Error::NameOfInterface { .. }
            | Error::NoSuchAddress { .. } => libc::ENODEV,
            Error::NoSuchGid { .. }
            | Error::EmptyGid { .. }
            | Error::OtherDevice { .. }
            | Error::Config(_)
            | Error::CongestionControl(_)
            | Error::NoChannel => libc::EINVAL,
            Error::Port(_) | Error::Raw(_) | Error::AddressInUse { .. } => libc::EADDRINUSE,
            Error::Cm(CmError::Full { .. }) => libc::ENOMEM,
            Error::Cm(CmError::AddressInUse) => libc::EADDRINUSE,
            Error::Cm(_) => libc::EINVAL,
            Error::Rejected { .. } => libc::ECONNREFUSED,
            Error::NoAnswer { .. } => libc::ETIMEDOUT,
            Error::Disconnected { .. } => libc::ENOTCONN,
            Error::Multicast { error, .. }
            | Error::Interfaces(error)
            | Error::Capture { error, .. }
            | Error::Descriptor(error)
            | Error::Listen { error, .. }
            | Error::Unreachable { error, .. }
            | Error::OutOfBand(error) => of(&error),
            Error::OutOfMemory { .. } => libc::ENOMEM,
            Error::ReadOnly { .. } => libc::EACCES,
            Error::Forked(_)
            | Error::NoCompletion { .. }
            | Error::NoEvent { .. }
            | Error::NoRuntime
            | Error::Failed { .. }
            | Error::Exchange { .. }
            | Error::Silence { .. }
            | Error::HungUp { .. } => libc::EIO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_finds_the_number() {
        Errno::BUSY.set();
        assert_eq!(Errno::last(), Errno::BUSY);
        let error = Error::OutOfMemory { bytes: 1 };
        assert_eq!(Errno::from(error), Errno(libc::ENOMEM));
    }
}
