//! Shared receive queues of ids.

use core::ffi::c_int;
use std::ptr;

use hirail_abi::{ExtendedOps, Pd, RdmaCmId, SrqInitAttr, SrqInitAttrEx};

use crate::bridge::bridge;
use crate::entry::{nothing, number};
use crate::errno::Errno;

/// `IBV_SRQ_INIT_ATTR_PD`.
const HAS_PD: u32 = 2;

/// The domain for a queue: the given one, or the id's.
///
/// # Safety
/// The id exists, and the domain unless it is NULL.
unsafe fn domain(id: *mut RdmaCmId, pd: *mut Pd) -> Result<*mut Pd, Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        if id.is_null() || !(*id).srq.is_null() || (*id).verbs.is_null() {
            return Err(Errno::INVALID);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if pd.is_null() || (*pd).context != (*id).verbs {
            return Err(Errno::INVALID);
        }
        Ok(pd)
    }
}

/// `rdma_create_srq`.
pub(crate) unsafe extern "C" fn create_srq(
    id: *mut RdmaCmId,
    pd: *mut Pd,
    init: *mut SrqInitAttr,
) -> c_int {
    // SAFETY: an id, a domain and attributes of the caller's.
    number(|| unsafe {
        let pd = domain(id, pd)?;
        (*id).srq = Errno::check_pointer((bridge()?.create_srq)(pd, init))?;
        (*id).pd = pd;
        Ok(())
    })
}

/// `rdma_create_srq_ex`.
pub(crate) unsafe extern "C" fn create_srq_ex(
    id: *mut RdmaCmId,
    init: *mut SrqInitAttrEx,
) -> c_int {
    // SAFETY: an id and attributes of the caller's; in front of an open device are its functions.
    number(|| unsafe {
        let is_given = (*init).comp_mask & HAS_PD != 0;
        let pd = domain(
            id,
            if is_given {
                (*init).pd
            } else {
                ptr::null_mut()
            },
        )?;
        (*init).pd = pd;
        (*init).comp_mask |= HAS_PD;
        let context = (*id).verbs;
        let extended = context.cast::<ExtendedOps>().sub(1);
        (*id).srq = Errno::check_pointer(((*extended).create_srq_ex)(context, init))?;
        (*id).pd = pd;
        Ok(())
    })
}

/// `rdma_destroy_srq`.
pub(crate) unsafe extern "C" fn destroy_srq(id: *mut RdmaCmId) {
    nothing(|| {
        // SAFETY: an id of the caller's. What is still in use stays, and the program cannot be told.
        let _ = unsafe { destroy(id) };
    });
}

/// See [`destroy_srq`].
///
/// # Safety
/// The id exists.
pub(crate) unsafe fn destroy(id: *mut RdmaCmId) -> Result<(), Errno> {
    // SAFETY: as required of the caller; the pointer is forgotten with what it names.
    unsafe {
        if !(*id).srq.is_null() {
            Errno::check((bridge()?.destroy_srq)((*id).srq))?;
            (*id).srq = ptr::null_mut();
        }
    }
    Ok(())
}
