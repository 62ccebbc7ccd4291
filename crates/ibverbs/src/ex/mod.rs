//! The extended interfaces: objects that carry their functions, and calls that exist only in the
//! table in front of a context.

pub(crate) mod cq;
pub(crate) mod domain;
pub(crate) mod qp;
pub(crate) mod wr;

use core::ffi::{c_int, c_void};

use crate::abi;

/// `advise_mr`: memory is not paged in ahead for a device that has no page tables of its own.
pub(crate) unsafe extern "C" fn advise_mr(
    _: *mut abi::Pd,
    _: c_int,
    _: u32,
    _: *mut c_void,
    _: u32,
) -> c_int {
    libc::EOPNOTSUPP
}
