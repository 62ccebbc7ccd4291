//! What this library does not have. Programs that are bound at start need the symbols all the same.

use core::ffi::c_int;

use crate::errno::Errno;

/// −1 where the answer is an `int`.
pub(crate) unsafe extern "C" fn status() -> c_int {
    Errno::UNSUPPORTED.set();
    -1
}
