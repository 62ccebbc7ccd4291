//! Memory regions.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use hirail::{Access, Mr};

use crate::abi;
use crate::check;
use crate::context::ContextObject;
use crate::dm::Registered;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::file::Mapping;
use crate::pd::PdObject;
use crate::shared::Kind;

/// A memory region.
#[repr(C)]
pub(crate) struct MrObject {
    public: abi::Mr,
    /// None where it is imported: the registration is somebody else's.
    mr: Option<Mr>,
    /// Goes after the registration.
    owner: Owner,
}

// SAFETY: it begins with its public part.
unsafe impl Object for MrObject {
    type Public = abi::Mr;
}

/// Whose memory it is.
pub(crate) enum Owner {
    /// The program's.
    Program,
    /// That of a file, mapped for the registration.
    File { _mapping: Mapping },
    /// The device's.
    Device { _registered: Registered },
}

/// What a program is told about a region.
pub(crate) struct Place {
    pub(crate) pd: *mut abi::Pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    /// What its first byte is called in requests.
    pub(crate) iova: u64,
}

impl MrObject {
    /// Hands out a region that was just registered.
    pub(crate) fn hand_out(
        context: &ContextObject,
        place: Place,
        mr: Mr,
        owner: Owner,
    ) -> *mut abi::Mr {
        let handles = &context.shared().handles;
        let handle = handles.next();
        let public = abi::Mr {
            context: context.public(),
            pd: place.pd,
            addr: place.addr,
            length: place.length,
            handle,
            lkey: mr.lkey().value(),
            rkey: mr.rkey().value(),
        };
        let object = Self {
            public,
            mr: Some(mr),
            owner,
        };
        let public = object.into_public();
        // SAFETY: it was just made.
        let object = unsafe { Self::of(public) };
        if let Some(mr) = &object.mr {
            check::registered(context, &object.public, mr, place.iova);
        }
        handles.add(Kind::Mr, handle, public.expose_provenance());
        public
    }
}

#[cfg(test)]
impl MrObject {
    /// The region, which is not imported.
    pub(crate) fn registered(&self) -> &Mr {
        self.mr.as_ref().expect("not imported")
    }
}

/// How long a region of all memory is said to be, from NULL on: one "implicit" on demand.
const ALL_MEMORY: usize = usize::MAX;

/// Registers the caller's memory.
///
/// # Safety
/// `pd` is a domain of the caller's.
pub(crate) unsafe fn register(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    flags: c_uint,
) -> *mut abi::Mr {
    // SAFETY: as required of the caller, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    pointer(context, || {
        let access = Access::from_verbs(flags)?;
        let is_implicit = addr.is_null() && access.contains(Access::ON_DEMAND);
        if length == 0 || length == ALL_MEMORY && !is_implicit {
            return Err(Errno::INVALID);
        }
        let iova = match iova {
            _ if access.contains(Access::ZERO_BASED) => 0,
            Some(iova) => iova,
            None => addr.addr() as u64,
        };
        // SAFETY: who registers memory through the verbs answers for it: it is changed by peers from
        // now on, and accessed by the program as the verbs demand, until it is deregistered.
        let mr = unsafe { domain.pd.register_raw_at(addr.cast(), length, iova, access) }?;
        let place = Place {
            pd,
            addr,
            length,
            iova,
        };
        Ok(MrObject::hand_out(context, place, mr, Owner::Program))
    })
}

/// `ibv_reg_mr`.
pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut abi::Mr {
    // SAFETY: a domain of the caller's.
    unsafe { register(pd, addr, length, None, flags.cast_unsigned()) }
}

/// `ibv_reg_mr_iova`.
pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut abi::Mr {
    // SAFETY: a domain of the caller's.
    unsafe { register(pd, addr, length, Some(iova), flags.cast_unsigned()) }
}

/// `ibv_reg_mr_iova2`, which knows optional rights.
pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> *mut abi::Mr {
    // SAFETY: a domain of the caller's.
    unsafe { register(pd, addr, length, Some(iova), flags) }
}

/// `ibv_dereg_mr`: refused while memory windows are bound to it. When it returns no packet touches
/// the memory any more.
pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut abi::Mr) -> c_int {
    // SAFETY: a region of the caller's, and the device that it belongs to.
    let context = unsafe { device(&raw const (*mr).context) };
    status(context, || {
        check::deregistering(mr);
        // SAFETY: the caller gives it up and nobody else uses it; if it is refused, it stays.
        let object = unsafe { &mut *mr.cast::<MrObject>() };
        let registered = object.mr.as_mut().ok_or(Errno::INVALID)?;
        registered.deregister()?;
        let handles = &context.shared().handles;
        handles.remove(Kind::Mr, object.public.handle);
        check::deregistered(mr);
        // SAFETY: as said; once.
        drop(unsafe { MrObject::take(mr) });
        Ok(())
    })
}

/// `ibv_import_mr`: the keys of a region, which is at no address here (`ibv_import_mr(3)`).
pub(crate) unsafe extern "C" fn import_mr(pd: *mut abi::Pd, handle: u32) -> *mut abi::Mr {
    // SAFETY: a domain of the caller's.
    let context = unsafe { device(&raw const (*pd).context) };
    pointer(context, || {
        let handles = &context.shared().handles;
        let public = handles.find(Kind::Mr, handle, |address| {
            let public: *const abi::Mr = ptr::with_exposed_provenance(address);
            // SAFETY: what is found exists while it is being looked at.
            let (length, lkey, rkey) =
                unsafe { ((*public).length, (*public).lkey, (*public).rkey) };
            abi::Mr {
                context: context.public(),
                pd,
                addr: ptr::null_mut(),
                length,
                handle,
                lkey,
                rkey,
            }
        })?;
        let object = MrObject {
            public,
            mr: None,
            owner: Owner::Program,
        };
        Ok(object.into_public())
    })
}

/// `ibv_unimport_mr`. One that was not imported is left alone.
pub(crate) unsafe extern "C" fn unimport_mr(mr: *mut abi::Mr) {
    // SAFETY: a region of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (MrObject::of(mr), device(&raw const (*mr).context)) };
    status(context, || {
        if object.mr.is_none() {
            // SAFETY: the caller gives it up, once.
            drop(unsafe { MrObject::take(mr) });
        }
        Ok(())
    });
}

/// `IBV_REREG_MR_CHANGE_…`.
const TRANSLATION: c_int = 1;
const PD: c_int = 2;
const ACCESS: c_int = 4;

/// What `ibv_rereg_mr` answers: the arguments are wrong, and the region is as it was; or the change
/// was refused, and it is as it was, too.
const INPUT_ERROR: c_int = -1;
const REFUSED: c_int = -4;

/// `ibv_rereg_mr`.
pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut abi::Mr,
    what: c_int,
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> c_int {
    let has = |flag| what & flag != 0;
    let is_wrong = what & !(TRANSLATION | PD | ACCESS) != 0
        || what == 0
        || has(TRANSLATION) && (addr.is_null() || length == 0)
        || has(PD) && pd.is_null();
    if is_wrong {
        Errno::INVALID.set();
        return INPUT_ERROR;
    }
    // SAFETY: a region of the caller's, and the device that it belongs to.
    let context = unsafe { device(&raw const (*mr).context) };
    let result = status(context, || {
        let rights = has(ACCESS)
            .then(|| Access::from_verbs(flags.cast_unsigned()))
            .transpose()?;
        // SAFETY: both are the caller's; nobody else uses the region while it is changed. The memory
        // is answered for as when it is registered.
        unsafe {
            let domain = has(PD).then(|| &PdObject::of(pd).pd);
            let memory = has(TRANSLATION).then_some((addr.cast(), length));
            let object = &mut *mr.cast::<MrObject>();
            let registered = object.mr.as_mut().ok_or(Errno::INVALID)?;
            registered.reregister_raw(memory, domain, rights)?;
            if has(PD) {
                object.public.pd = pd;
            }
            if has(TRANSLATION) {
                object.public.addr = addr;
                object.public.length = length;
                object.owner = Owner::Program;
            }
            object.public.lkey = registered.lkey().value();
            object.public.rkey = registered.rkey().value();
            check::deregistered(mr);
            let iova = if registered.access().contains(Access::ZERO_BASED) {
                0
            } else {
                object.public.addr.addr() as u64
            };
            check::registered(context, &object.public, registered, iova);
        }
        Ok(())
    });
    if result == 0 {
        return 0;
    }
    Errno(result).set();
    if result == libc::EINVAL {
        INPUT_ERROR
    } else {
        REFUSED
    }
}
