//! Shared receive queues.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use hirail::Srq;

use crate::abi;
use crate::async_event::Subject;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::events::Acknowledgements;
use crate::pd::PdObject;
use crate::xrc::XrcdObject;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    public: abi::Srq,
    pub(crate) srq: Srq,
    max_wr: AtomicU32,
    max_sge: u32,
    is_xrc: bool,
    pub(crate) events: Acknowledgements,
}

// SAFETY: it begins with its public part.
unsafe impl Object for SrqObject {
    type Public = abi::Srq;
}

/// `enum ibv_srq_type`.
const BASIC: c_int = 0;
const XRC: c_int = 1;

/// Makes a queue.
///
/// # Safety
/// All objects that it names are the caller's.
unsafe fn create(
    context: &ContextObject,
    pd: *mut abi::Pd,
    srq_context: *mut c_void,
    attr: &mut abi::SrqAttr,
    xrc: Option<(*mut abi::Xrcd, *mut abi::Cq)>,
) -> Result<*mut abi::Srq, Errno> {
    // SAFETY: as required of the caller.
    let domain = unsafe { PdObject::of(pd) };
    attr.max_sge = attr.max_sge.max(1);
    let srq = match xrc {
        None => domain.pd.create_srq(attr.max_wr, attr.max_sge)?,
        // SAFETY: as required of the caller.
        Some((xrcd, cq)) => unsafe {
            let (xrcd, cq) = (&XrcdObject::of(xrcd).domain, CqObject::of(cq));
            domain
                .pd
                .create_xrc_srq(&xrcd.xrcd, &cq.cq, attr.max_wr, attr.max_sge)?
        },
    };
    if attr.srq_limit > 0 {
        srq.arm_limit(attr.srq_limit)?;
    }
    let id = srq.id().0;
    let object = SrqObject {
        public: abi::Srq {
            context: context.public(),
            srq_context,
            pd,
            handle: id,
            mutex: [0; 5],
            cond: [0; 6],
            events_completed: AtomicU32::new(0),
        },
        srq,
        max_wr: AtomicU32::new(attr.max_wr),
        max_sge: attr.max_sge,
        is_xrc: xrc.is_some(),
        events: Acknowledgements::default(),
    };
    let public = object.into_public();
    context
        .events
        .add(Subject::Srq(id), public.expose_provenance());
    // SAFETY: it was just made.
    let made = &unsafe { SrqObject::of(public) }.srq;
    check::srq(context, public, made, xrc.map(|(_, cq)| cq));
    Ok(public)
}

/// `ibv_create_srq`.
pub(crate) unsafe extern "C" fn create_srq(
    pd: *mut abi::Pd,
    init: *mut abi::SrqInitAttr,
) -> *mut abi::Srq {
    // SAFETY: a domain of the caller's.
    let context = unsafe { device(&raw const (*pd).context) };
    pointer(context, || {
        // SAFETY: the caller's.
        unsafe { create(context, pd, (*init).srq_context, &mut (*init).attr, None) }
    })
}

/// `IBV_SRQ_INIT_ATTR_…`: what the extended form has.
const HAS_TYPE: u32 = 1;
const HAS_PD: u32 = 2;
const HAS_XRCD: u32 = 4;
const HAS_CQ: u32 = 8;

/// `create_srq_ex` of the extended table.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut abi::Context,
    init: *mut abi::SrqInitAttrEx,
) -> *mut abi::Srq {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let init = unsafe { &mut *init };
        let has = |bit| init.comp_mask & bit != 0;
        if init.comp_mask & !(HAS_TYPE | HAS_PD | HAS_XRCD | HAS_CQ) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let kind = if has(HAS_TYPE) { init.srq_type } else { BASIC };
        if !has(HAS_PD) || init.pd.is_null() {
            return Err(Errno::INVALID);
        }
        let xrc = match kind {
            BASIC => None,
            XRC if has(HAS_XRCD) && has(HAS_CQ) && !init.xrcd.is_null() && !init.cq.is_null() => {
                Some((init.xrcd, init.cq))
            }
            XRC => return Err(Errno::INVALID),
            _ => return Err(Errno::UNSUPPORTED),
        };
        // SAFETY: the caller's, all of them.
        unsafe { create(context, init.pd, init.srq_context, &mut init.attr, xrc) }
    })
}

/// `ibv_destroy_srq`: refused while queue pairs use it; waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut abi::Srq) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (SrqObject::of(srq), device(&raw const (*srq).context)) };
    status(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        if object.srq.users() > 0 {
            return Err(Errno::BUSY);
        }
        let subject = Subject::Srq(object.srq.id().0);
        context.events.remove(subject, srq.expose_provenance());
        object
            .events
            .wait(|owed| check::waits(Kind::Srq, srq, owed));
        check::going(Kind::Srq, srq);
        // SAFETY: the caller gives it up, once; nobody can name it any more.
        drop(unsafe { SrqObject::take(srq) });
        Ok(())
    })
}

/// `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

/// `ibv_modify_srq`.
pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut abi::Srq,
    attr: *mut abi::SrqAttr,
    mask: c_int,
) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (SrqObject::of(srq), device(&raw const (*srq).context)) };
    status(context, || {
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's.
        let attr = unsafe { ptr::read(attr) };
        if mask & MAX_WR != 0 {
            object.srq.resize(attr.max_wr)?;
            object.max_wr.store(attr.max_wr, Ordering::Relaxed);
        }
        if mask & LIMIT != 0 {
            object.srq.arm_limit(attr.srq_limit)?;
        }
        Ok(())
    })
}

/// `ibv_query_srq`.
pub(crate) unsafe extern "C" fn query_srq(srq: *mut abi::Srq, attr: *mut abi::SrqAttr) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (SrqObject::of(srq), device(&raw const (*srq).context)) };
    status(context, || {
        let now = abi::SrqAttr {
            max_wr: object.max_wr.load(Ordering::Relaxed),
            max_sge: object.max_sge,
            srq_limit: object.srq.limit()?,
        };
        // SAFETY: the caller's.
        unsafe { attr.write(now) };
        Ok(())
    })
}

/// `get_srq_num` of the extended table: the number that XRC senders name.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut abi::Srq, number: *mut u32) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (SrqObject::of(srq), device(&raw const (*srq).context)) };
    status(context, || {
        if !object.is_xrc {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's.
        unsafe { number.write(object.srq.id().0) };
        Ok(())
    })
}
