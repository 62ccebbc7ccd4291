//! Protection domains.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;

use hirail::Pd;

use crate::abi;
use crate::check;
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::ex::domain::TdObject;
use crate::shared::Kind;

/// A protection domain, or another name for one: a parent domain, or an import.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) public: abi::Pd,
    pub(crate) pd: Pd,
    role: Role,
    /// A parent domain's thread domain, if it has one.
    pub(crate) thread: *mut abi::Td,
}

// SAFETY: it begins with its public part.
unsafe impl Object for PdObject {
    type Public = abi::Pd;
}

/// Which of its names it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The first: with it the domain goes.
    Own,
    Parent,
    Imported,
}

impl PdObject {
    /// Hands out a name for `pd`.
    pub(crate) fn hand_out(
        context: &ContextObject,
        pd: Pd,
        role: Role,
        thread: *mut abi::Td,
    ) -> *mut abi::Pd {
        let handles = &context.shared().handles;
        let handle = handles.next();
        let object = Self {
            public: abi::Pd {
                context: context.public(),
                handle,
            },
            pd,
            role,
            thread,
        };
        let public = object.into_public();
        handles.add(Kind::Pd, handle, public.expose_provenance());
        check::made(context, check::Kind::Pd, public, "PD")
    }
}

/// `ibv_alloc_pd`.
pub(crate) unsafe extern "C" fn alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        let pd = context.hirail().alloc_pd()?;
        Ok(PdObject::hand_out(context, pd, Role::Own, ptr::null_mut()))
    })
}

/// `ibv_dealloc_pd`: refused while anything lives in the domain.
pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut abi::Pd) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    status(context, || {
        // Who goes last is the domain itself.
        if object.role == Role::Own && object.pd.users() > 0 {
            return Err(Errno::BUSY);
        }
        if !object.thread.is_null() {
            // SAFETY: a thread domain stays while parent domains name it.
            let thread = unsafe { TdObject::of(object.thread) };
            thread.users.fetch_sub(1, Ordering::AcqRel);
        }
        let handles = &context.shared().handles;
        handles.remove(Kind::Pd, object.public.handle);
        check::going(check::Kind::Pd, pd);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { PdObject::take(pd) });
        Ok(())
    })
}

/// `ibv_import_pd`.
pub(crate) unsafe extern "C" fn import_pd(context: *mut abi::Context, handle: u32) -> *mut abi::Pd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        let handles = &context.shared().handles;
        let pd = handles.find(Kind::Pd, handle, |address| {
            let public: *const abi::Pd = ptr::with_exposed_provenance(address);
            // SAFETY: what is found exists while it is being looked at.
            unsafe { PdObject::of(public) }.pd.clone()
        })?;
        Ok(PdObject::hand_out(
            context,
            pd,
            Role::Imported,
            ptr::null_mut(),
        ))
    })
}

/// `ibv_unimport_pd`: what was made in the domain stays. One that was not imported is left alone.
pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut abi::Pd) {
    // SAFETY: a domain of the caller's.
    if unsafe { PdObject::of(pd) }.role == Role::Imported {
        // SAFETY: the caller gives it up, once.
        unsafe { dealloc_pd(pd) };
    }
}
