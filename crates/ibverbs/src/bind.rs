//! Memory windows.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use hirail::{Access, BindMw, Mw, MwType, Rkey};

use crate::abi;
use crate::abi::opcode;
use crate::check::{self, Kind};
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::pd::PdObject;
use crate::post;

/// A memory window.
#[repr(C)]
pub(crate) struct MwObject {
    public: abi::Mw,
    mw: Mw,
}

// SAFETY: it begins with its public part.
unsafe impl Object for MwObject {
    type Public = abi::Mw;
}

/// `alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut abi::Pd, kind: c_int) -> *mut abi::Mw {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    pointer(context, || {
        let kind_of = match kind {
            1 => MwType::Type1,
            2 => MwType::Type2,
            _ => return Err(Errno::INVALID),
        };
        let mw = domain.pd.alloc_mw(kind_of)?;
        let rkey = mw.rkey().value();
        let public = abi::Mw {
            context: context.public(),
            pd,
            rkey: AtomicU32::new(rkey),
            handle: rkey >> 8,
            kind,
        };
        let object = MwObject { public, mw }.into_public();
        check::window(context, object, rkey);
        Ok(object)
    })
}

/// `dealloc_mw`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut abi::Mw) -> c_int {
    // SAFETY: a window of the caller's, and the device that it belongs to.
    let context = unsafe { device(&raw const (*mw).context) };
    status(context, || {
        check::going(Kind::Mw, mw);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { MwObject::take(mw) });
        Ok(())
    })
}

/// The bind request that `info` describes, for the window to have the variant of `new_key`.
///
/// # Safety
/// Window and region, if there are any, are the caller's.
pub(crate) unsafe fn request(
    mw: *mut abi::Mw,
    new_key: u32,
    info: &abi::MwBindInfo,
) -> Result<BindMw, Errno> {
    if mw.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller; no region is needed to bind to nothing.
    let (window, region) = unsafe {
        let region = info.mr.as_ref().map_or(0, |mr| mr.lkey);
        (MwObject::of(mw), region)
    };
    Ok(BindMw {
        window: window.mw.rkey(),
        new_key: Rkey::new(new_key),
        region: hirail::Lkey::new(region),
        addr: info.addr,
        length: info.length,
        access: Access::from_verbs(info.access)?,
    })
}

/// The window has this key from now on, as far as the program is concerned.
///
/// # Safety
/// It is a window of the caller's.
pub(crate) unsafe fn renamed(mw: *mut abi::Mw, rkey: u32) {
    // SAFETY: as required of the caller.
    unsafe { MwObject::of(mw) }
        .public
        .rkey
        .store(rkey, Ordering::Relaxed);
}

/// `bind_mw`: binds a window of type 1 by a request that is made here.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut abi::Qp,
    mw: *mut abi::Mw,
    bind: *mut abi::MwBind,
) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { device(&raw const (*mw).context) };
    status(context, || {
        // SAFETY: the caller's, all three.
        let (window, bind) = unsafe { (MwObject::of(mw), &*bind) };
        if window.mw.kind() != MwType::Type1 {
            return Err(Errno::INVALID);
        }
        if bind.info.length > 0 && bind.info.mr.is_null() {
            return Err(Errno::INVALID);
        }
        let current = window.public.rkey.load(Ordering::Relaxed);
        let rkey = current & !0xff | current.wrapping_add(1) & 0xff;
        let wr = post::Bind {
            wr: abi::SendWr {
                wr_id: bind.wr_id,
                next: core::ptr::null_mut(),
                sg_list: core::ptr::null_mut(),
                num_sge: 0,
                opcode: opcode::BIND_MW,
                send_flags: bind.send_flags,
                imm_or_rkey: 0,
                op: abi::SendPart {
                    rdma: abi::RdmaPart {
                        remote_addr: 0,
                        rkey: 0,
                    },
                },
                xrc_srqn: 0,
            },
            part: abi::BindPart {
                mw,
                rkey,
                info: bind.info,
            },
        };
        // SAFETY: a QP of the caller's, and a whole request.
        unsafe { post::post_bind(qp, &wr) }
    })
}
