//! `rdma_set_option`, and the options of ECE.

use core::ffi::{c_int, c_void};

use hirail_abi::{Ece, RdmaCmId};

use crate::entry::number;
use crate::errno::Errno;
use crate::id::{Id, Step, qp_type};

/// `RDMA_OPTION_ID`, and what can be set there.
mod of_id {
    pub(super) const LEVEL: i32 = 0;
    pub(super) const TOS: i32 = 0;
    pub(super) const REUSE_ADDRESS: i32 = 1;
    pub(super) const ONLY_OWN_FAMILY: i32 = 2;
    pub(super) const ACK_TIMEOUT: i32 = 3;
}

/// Codes of timers have five bits.
const LAST_TIMER: u8 = 31;

/// An option's value.
///
/// # Safety
/// That many bytes are there.
unsafe fn value<T: Copy>(from: *const c_void, length: usize) -> Result<T, Errno> {
    if from.is_null() || length != size_of::<T>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller, and any bits are a number.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

/// `rdma_set_option`.
pub(crate) unsafe extern "C" fn set_option(
    id: *mut RdmaCmId,
    level: c_int,
    name: c_int,
    from: *mut c_void,
    length: usize,
) -> c_int {
    number(|| {
        // SAFETY: an id and a value of the caller's.
        unsafe {
            let id = Id::of(id)?;
            let type_of_qp = (*id.public()).qp_type;
            let mut state = id.state();
            match (level, name) {
                (of_id::LEVEL, of_id::TOS) => {
                    let tos = value::<u8>(from, length)?;
                    state.options.tos = tos;
                    if let Some(path) = &mut state.path {
                        path.traffic_class = tos;
                    }
                }
                (of_id::LEVEL, of_id::REUSE_ADDRESS) => {
                    let shares = value::<c_int>(from, length)? != 0;
                    if shares && !matches!(state.step, Step::Idle | Step::Bound) {
                        return Err(Errno::INVALID);
                    }
                    state.options.shares_address = shares;
                }
                (of_id::LEVEL, of_id::ONLY_OWN_FAMILY) => {
                    let is_wanted = value::<c_int>(from, length)? != 0;
                    if !matches!(state.step, Step::Idle) {
                        return Err(Errno::INVALID);
                    }
                    // Ids at all IPv6 addresses hear IPv4 as well, and cannot be told not to.
                    if is_wanted {
                        return Err(Errno::UNSUPPORTED);
                    }
                }
                (of_id::LEVEL, of_id::ACK_TIMEOUT) => {
                    let timeout = value::<u8>(from, length)?;
                    if type_of_qp != qp_type::RC || timeout > LAST_TIMER {
                        return Err(Errno::INVALID);
                    }
                    state.options.ack_timeout = Some(timeout);
                }
                // Paths of InfiniBand's subnet manager.
                _ => return Err(Errno(libc::ENOSYS)),
            }
        }
        Ok(())
    })
}

/// `rdma_set_local_ece`.
pub(crate) unsafe extern "C" fn set_local_ece(id: *mut RdmaCmId, ece: *mut Ece) -> c_int {
    number(|| {
        // SAFETY: an id and options of the caller's.
        unsafe {
            let id = Id::of(id)?;
            let ece = ece.as_ref().ok_or(Errno::INVALID)?;
            if ece.comp_mask != 0 {
                return Err(Errno::INVALID);
            }
            id.state().local_ece = (ece.vendor_id, ece.options);
        }
        Ok(())
    })
}

/// `rdma_get_remote_ece`.
pub(crate) unsafe extern "C" fn get_remote_ece(id: *mut RdmaCmId, ece: *mut Ece) -> c_int {
    number(|| {
        // SAFETY: an id and a place of the caller's.
        unsafe {
            let id = Id::of(id)?;
            let ece = ece.as_mut().ok_or(Errno::INVALID)?;
            let (vendor_id, options) = id.state().remote_ece;
            *ece = Ece {
                vendor_id,
                options,
                comp_mask: 0,
            };
        }
        Ok(())
    })
}
