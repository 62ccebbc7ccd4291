//! Symbols that programs must find, of operations that this device does not have. They answer as a
//! card without that feature does, and need not look at their arguments.
//!
//! Which symbol gets which answer is the table in [`exports`](crate::exports).

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::errno::Errno;

/// For calls that return 0 or a number of `errno.h`.
pub(crate) unsafe extern "C" fn status() -> c_int {
    libc::EOPNOTSUPP
}

/// For calls that return an object, or NULL and `errno`.
pub(crate) unsafe extern "C" fn pointer() -> *mut c_void {
    Errno::UNSUPPORTED.set();
    ptr::null_mut()
}

/// For calls that return −1 and `errno`.
pub(crate) unsafe extern "C" fn number() -> c_int {
    Errno::UNSUPPORTED.set();
    -1
}

/// For calls that return nothing.
pub(crate) unsafe extern "C" fn nothing() {}

/// `verbs_register_driver`: a provider library offers itself, and is never asked.
pub(crate) unsafe extern "C" fn register_driver(_: *const c_void) {}

/// A variable that provider libraries set, one byte, under a name for each version of the node.
macro_rules! variable {
    ($($version:literal)+) => {
        core::arch::global_asm!(
            ".pushsection .bss.verbs_allow_disassociate_destroy,\"aw\",@nobits",
            $(
                concat!(".globl __hirail.disassociate", $version),
                concat!(".type __hirail.disassociate", $version, ",@object"),
                concat!(".size __hirail.disassociate", $version, ",1"),
                concat!("__hirail.disassociate", $version, ":"),
                concat!(
                    ".symver __hirail.disassociate", $version,
                    ",verbs_allow_disassociate_destroy", $version, ",remove"
                ),
            )+
            ".zero 1",
            ".popsection",
        );
    };
}

variable! {
    "@@IBVERBS_PRIVATE_34" "@IBVERBS_PRIVATE_57" "@IBVERBS_PRIVATE_59" "@IBVERBS_PRIVATE_64"
}
