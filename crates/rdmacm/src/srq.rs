//! Shared receive queues of ids.

use core::ffi::c_int;
use core::mem;
use std::ptr;

use hirail_abi::{ExtendedOps, Pd, RdmaCmId, SrqInitAttr, SrqInitAttrEx};

use crate::bridge::bridge;
use crate::entry::{nothing, number};
use crate::errno::Errno;
use crate::id::qp_type;
use crate::qp;

/// `enum ibv_srq_init_attr_mask`.
const HAS_TYPE: u32 = 1;
const HAS_PD: u32 = 2;
const HAS_XRCD: u32 = 4;
const HAS_CQ: u32 = 8;

/// `IBV_SRQT_XRC`.
const XRC: c_int = 1;

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
    number(|| {
        // SAFETY: an id, a domain and attributes of the caller's.
        unsafe {
            if !id.is_null() && (*id).qp_type == qp_type::XRC_RECV {
                let mut whole: SrqInitAttrEx = mem::zeroed();
                (whole.srq_context, whole.attr) = ((*init).srq_context, (*init).attr);
                (whole.comp_mask, whole.srq_type) = (HAS_TYPE | HAS_PD, XRC);
                whole.pd = pd;
                create_ex(id, &mut whole)?;
                (*init).attr = whole.attr;
                return Ok(());
            }
            let pd = domain(id, pd)?;
            (*id).srq = Errno::check_pointer((bridge()?.create_srq)(pd, init))?;
            (*id).pd = pd;
        }
        Ok(())
    })
}

/// `rdma_create_srq_ex`.
pub(crate) unsafe extern "C" fn create_srq_ex(
    id: *mut RdmaCmId,
    init: *mut SrqInitAttrEx,
) -> c_int {
    // SAFETY: an id and attributes of the caller's.
    number(|| unsafe { create_ex(id, &mut *init) })
}

/// See [`create_srq_ex`]. A shared queue of XRC has a domain and a completion queue: the id's, where
/// the program gives none.
///
/// # Safety
/// The id exists, and all that the attributes name.
unsafe fn create_ex(id: *mut RdmaCmId, init: &mut SrqInitAttrEx) -> Result<(), Errno> {
    let has = |init: &SrqInitAttrEx, bit| init.comp_mask & bit != 0;
    // SAFETY: as required of the caller; in front of an open device are its functions.
    unsafe {
        if !has(init, HAS_TYPE) {
            return Err(Errno::INVALID);
        }
        let given = if has(init, HAS_PD) {
            init.pd
        } else {
            ptr::null_mut()
        };
        let pd = domain(id, given)?;
        init.pd = pd;
        init.comp_mask |= HAS_PD;
        if init.srq_type == XRC {
            if !has(init, HAS_XRCD) || init.xrcd.is_null() {
                init.xrcd = qp::device_of(id)?.xrcd()?;
            }
            if !has(init, HAS_CQ) || init.cq.is_null() {
                if (*id).recv_cq.is_null() {
                    qp::create_cqs(id, None, Some(init.attr.max_wr))?;
                }
                init.cq = (*id).recv_cq;
            }
            init.comp_mask |= HAS_XRCD | HAS_CQ;
        }
        let context = (*id).verbs;
        let extended = context.cast::<ExtendedOps>().sub(1);
        (*id).srq = Errno::check_pointer(((*extended).create_srq_ex)(context, init))?;
        (*id).pd = pd;
    }
    Ok(())
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
