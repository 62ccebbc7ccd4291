//! XRC domains, and target queue pairs that are opened a second time.
//!
//! A domain belongs to one open device, so naming a file when it is opened shares it with nobody.

use core::ffi::c_int;

use hirail::{Cq, Pd, QpType, Xrcd};

use crate::abi;
use crate::async_event::Subject;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::qp::{QpMaking, QpObject};

/// An XRC domain.
#[repr(C)]
pub(crate) struct XrcdObject {
    public: abi::Xrcd,
    pub(crate) xrcd: Xrcd,
    /// What its target queue pairs have in place of a domain and a queue of their own. The memory
    /// that peers reach through them is that of the shared receive queue which they name.
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
}

// SAFETY: it begins with its public part.
unsafe impl Object for XrcdObject {
    type Public = abi::Xrcd;
}

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`; both are needed.
const HAS_FD: u32 = 1;
const HAS_OFLAGS: u32 = 2;

/// `open_xrcd` of the extended table.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut abi::Context,
    init: *mut abi::XrcdInitAttr,
) -> *mut abi::Xrcd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let init = unsafe { &*init };
        if init.comp_mask & !(HAS_FD | HAS_OFLAGS) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if init.comp_mask != HAS_FD | HAS_OFLAGS {
            return Err(Errno::INVALID);
        }
        if init.oflags & libc::O_CREAT == 0 {
            // There is none that others have made.
            return Err(if init.fd < 0 {
                Errno::INVALID
            } else {
                Errno::NO_ENTRY
            });
        }
        let object = XrcdObject {
            public: abi::Xrcd {
                context: context.public(),
            },
            xrcd: context.hirail().alloc_xrcd()?,
            pd: context.hirail().alloc_pd()?,
            cq: context.hirail().create_cq(1)?,
        };
        let object = object.into_public();
        Ok(check::made(context, Kind::Xrcd, object, "XRC domain"))
    })
}

/// `close_xrcd` of the extended table: refused while anything is in the domain.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut abi::Xrcd) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (XrcdObject::of(xrcd), device(&raw const (*xrcd).context)) };
    status(context, || {
        if object.xrcd.users() > 0 {
            return Err(Errno::BUSY);
        }
        check::going(Kind::Xrcd, xrcd);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { XrcdObject::take(xrcd) });
        Ok(())
    })
}

/// `IBV_QP_OPEN_ATTR_…`.
const HAS_NUMBER: u32 = 1;
const HAS_XRCD: u32 = 2;
const HAS_CONTEXT: u32 = 4;
const HAS_TYPE: u32 = 8;

/// `open_qp` of the extended table: another handle to a target queue pair.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut abi::Context,
    attr: *mut abi::QpOpenAttr,
) -> *mut abi::Qp {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { &*attr };
        let has = |bit| attr.comp_mask & bit != 0;
        let needed = HAS_NUMBER | HAS_XRCD | HAS_TYPE;
        if attr.comp_mask & needed != needed
            || attr.comp_mask & !(needed | HAS_CONTEXT) != 0
            || attr.qp_type != c_int::from(QpType::XrcRecv.code())
        {
            return Err(Errno::INVALID);
        }
        let qp = context.events.find(Subject::Qp(attr.qp_num), |address| {
            let public: *const abi::Qp = core::ptr::with_exposed_provenance(address);
            // SAFETY: what is found exists while it is being looked at.
            let object = unsafe { QpObject::of(public) };
            object.qp.clone()
        });
        let qp = qp
            .filter(|qp| qp.qp_type() == QpType::XrcRecv)
            .ok_or(Errno::INVALID)?;
        let making = QpMaking {
            base: abi::QpInitAttr {
                qp_context: if has(HAS_CONTEXT) {
                    attr.qp_context
                } else {
                    core::ptr::null_mut()
                },
                send_cq: core::ptr::null_mut(),
                recv_cq: core::ptr::null_mut(),
                srq: core::ptr::null_mut(),
                cap: abi::QpCap::default(),
                qp_type: attr.qp_type,
                sq_sig_all: 0,
                comp_mask: 0,
            },
            pd: core::ptr::null_mut(),
            xrcd: attr.xrcd,
            send_ops: 0,
        };
        Ok(QpObject::hand_out(context, qp, &making))
    })
}
