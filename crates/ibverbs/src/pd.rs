//! Protection domains.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use hirail::Pd;

use crate::abi;
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::ex::domain::TdObject;

/// A protection domain, or a parent domain, which is another name for one.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) public: abi::Pd,
    pub(crate) pd: Pd,
    pub(crate) is_parent: bool,
    /// A parent domain's thread domain, if it has one.
    pub(crate) thread: *mut abi::Td,
}

// SAFETY: it begins with its public part.
unsafe impl Object for PdObject {
    type Public = abi::Pd;
}

impl PdObject {
    /// A domain object over `pd`.
    pub(crate) fn new(context: &ContextObject, pd: Pd, is_parent: bool) -> Self {
        Self {
            public: abi::Pd {
                context: context.public(),
                handle: 0,
            },
            pd,
            is_parent,
            thread: core::ptr::null_mut(),
        }
    }
}

/// `ibv_alloc_pd`.
pub(crate) unsafe extern "C" fn alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        let pd = context.hirail().alloc_pd()?;
        Ok(PdObject::new(context, pd, false).into_public())
    })
}

/// `ibv_dealloc_pd`: refused while anything lives in the domain.
pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut abi::Pd) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    status(context, || {
        // Who goes last is the domain itself: parent domains are handles to it.
        if !object.is_parent && object.pd.users() > 0 {
            return Err(Errno::BUSY);
        }
        if !object.thread.is_null() {
            // SAFETY: a thread domain stays while parent domains name it.
            let thread = unsafe { TdObject::of(object.thread) };
            thread.users.fetch_sub(1, Ordering::AcqRel);
        }
        // SAFETY: the caller gives it up, once.
        drop(unsafe { PdObject::take(pd) });
        Ok(())
    })
}
