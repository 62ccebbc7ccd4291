//! Making queue pairs by the extended call.

use core::ptr;

use hirail::QpType;

use crate::abi;
use crate::context::ContextObject;
use crate::entry::pointer;
use crate::errno::Errno;
use crate::ex::wr;
use crate::qp::{self, QpMaking};

/// `IBV_QP_INIT_ATTR_…` that there are.
const HAS_PD: u32 = 1;
const HAS_XRCD: u32 = 2;
const HAS_CREATE_FLAGS: u32 = 4;
const HAS_SEND_OPS: u32 = 1 << 6;

/// `create_qp_ex` of the extended table. What is not there is refused, never ignored.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut abi::Context,
    init: *mut abi::QpInitAttrEx,
) -> *mut abi::Qp {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's; what follows the mask is read where the mask says that it is there.
        let (base, making) = unsafe {
            let base = ptr::read(&raw const (*init).base);
            let has = |bit| base.comp_mask & bit != 0;
            if base.comp_mask & !(HAS_PD | HAS_XRCD | HAS_CREATE_FLAGS | HAS_SEND_OPS) != 0
                || has(HAS_CREATE_FLAGS) && (*init).create_flags != 0
            {
                return Err(Errno::UNSUPPORTED);
            }
            let making = QpMaking {
                base,
                pd: if has(HAS_PD) {
                    (*init).pd
                } else {
                    ptr::null_mut()
                },
                xrcd: if has(HAS_XRCD) {
                    (*init).xrcd
                } else {
                    ptr::null_mut()
                },
                send_ops: if has(HAS_SEND_OPS) {
                    (*init).send_ops_flags
                } else {
                    0
                },
            };
            (base, making)
        };
        let qp_type = qp::transport(base.qp_type)?;
        let is_target = qp_type == QpType::XrcRecv;
        if is_target && making.xrcd.is_null() || !is_target && making.pd.is_null() {
            return Err(Errno::INVALID);
        }
        if making.send_ops & !wr::operations(qp_type) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let mut making = making;
        // SAFETY: the caller's, all of it.
        unsafe {
            let qp = qp::create(context, &mut making)?;
            (*init).base.cap = making.base.cap;
            Ok(qp)
        }
    })
}
