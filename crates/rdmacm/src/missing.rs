//! What this library does not have. Programs that are bound at start need the symbols all the same.

use core::ffi::c_int;

use crate::errno::Errno;

/// −1 and `EOPNOTSUPP`, where the answer is an `int` or a `ssize_t`. Both are told by the same
/// register.
pub(crate) unsafe extern "C" fn number() -> isize {
    Errno::UNSUPPORTED.set();
    -1
}

/// −1 where the answer is a position in a file.
pub(crate) unsafe extern "C" fn position() -> libc::off_t {
    Errno::UNSUPPORTED.set();
    -1
}

/// −1 where the answer is an `int`.
pub(crate) unsafe extern "C" fn status() -> c_int {
    Errno::UNSUPPORTED.set();
    -1
}
