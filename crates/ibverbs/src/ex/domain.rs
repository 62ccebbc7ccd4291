//! Thread domains and parent domains. They promise a device that one thread uses certain objects, or
//! bring allocators for its queues; a device in software needs neither, so a parent domain is another
//! name of its protection domain.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi;
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::pd::{PdObject, Role};

/// A thread domain.
#[repr(C)]
pub(crate) struct TdObject {
    public: abi::Td,
    /// Parent domains that name it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: it begins with its public part.
unsafe impl Object for TdObject {
    type Public = abi::Td;
}

/// `alloc_td` of the extended table.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut abi::Context,
    init: *mut abi::TdInitAttr,
) -> *mut abi::Td {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        if unsafe { (*init).comp_mask } != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let public = abi::Td {
            context: context.public(),
        };
        let users = AtomicUsize::new(0);
        Ok(TdObject { public, users }.into_public())
    })
}

/// `dealloc_td` of the extended table: refused while parent domains name it.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut abi::Td) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (TdObject::of(td), device(&raw const (*td).context)) };
    status(context, || {
        if object.users.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: the caller gives it up, once.
        drop(unsafe { TdObject::take(td) });
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_…`: allocators, and what they are called with. Nothing is allocated by
/// them: they are for memory that a device reads.
const KNOWN: u32 = 3;

/// `alloc_parent_domain` of the extended table.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut abi::Context,
    init: *mut abi::ParentDomainInitAttr,
) -> *mut abi::Pd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let init = unsafe { &*init };
        if init.pd.is_null() {
            return Err(Errno::INVALID);
        }
        if init.comp_mask & !KNOWN != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        // SAFETY: the caller's, both.
        let (domain, thread) = unsafe {
            let is_none = init.td.is_null();
            (
                PdObject::of(init.pd),
                (!is_none).then(|| TdObject::of(init.td)),
            )
        };
        if let Some(thread) = thread {
            thread.users.fetch_add(1, Ordering::AcqRel);
        }
        let pd = domain.pd.clone();
        Ok(PdObject::hand_out(context, pd, Role::Parent, init.td))
    })
}
