//! Memory regions.

use core::ffi::{c_int, c_uint, c_void};

use hirail::{Access, Mr};

use crate::abi;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::pd::PdObject;

/// A memory region.
#[repr(C)]
pub(crate) struct MrObject {
    public: abi::Mr,
    mr: Mr,
}

// SAFETY: it begins with its public part.
unsafe impl Object for MrObject {
    type Public = abi::Mr;
}

/// The rights in a flag word. What is kept on demand needs a card that takes page faults.
fn access(flags: c_uint) -> Result<Access, Errno> {
    let access = Access::from_verbs(flags)?;
    if access.contains(Access::ON_DEMAND) {
        return Err(Errno::UNSUPPORTED);
    }
    Ok(access)
}

/// Registers the caller's memory.
///
/// # Safety
/// `pd` is a domain of the caller's.
unsafe fn register(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    flags: c_uint,
) -> *mut abi::Mr {
    // SAFETY: as required of the caller, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    pointer(context, || {
        let access = access(flags)?;
        let iova = match iova {
            _ if access.contains(Access::ZERO_BASED) => 0,
            Some(iova) => iova,
            None => addr.addr() as u64,
        };
        // SAFETY: who registers memory through the verbs answers for it: it is changed by peers from
        // now on, and accessed by the program as the verbs demand, until it is deregistered.
        let mr = unsafe { domain.pd.register_raw_at(addr.cast(), length, iova, access) }?;
        let public = abi::Mr {
            context: context.public(),
            pd,
            addr,
            length,
            handle: mr.lkey().value() >> 8,
            lkey: mr.lkey().value(),
            rkey: mr.rkey().value(),
        };
        Ok(MrObject { public, mr }.into_public())
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
        // SAFETY: the caller gives it up and nobody else uses it; if it is refused, it stays.
        unsafe { (*mr.cast::<MrObject>()).mr.deregister() }?;
        // SAFETY: as said; once.
        drop(unsafe { MrObject::take(mr) });
        Ok(())
    })
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
            .then(|| access(flags.cast_unsigned()))
            .transpose()?;
        // SAFETY: both are the caller's; nobody else uses the region while it is changed. The memory
        // is answered for as when it is registered.
        unsafe {
            let domain = has(PD).then(|| &PdObject::of(pd).pd);
            let memory = has(TRANSLATION).then_some((addr.cast(), length));
            let object = &mut *mr.cast::<MrObject>();
            object.mr.reregister_raw(memory, domain, rights)?;
            if has(PD) {
                object.public.pd = pd;
            }
            if has(TRANSLATION) {
                object.public.addr = addr;
                object.public.length = length;
            }
            object.public.lkey = object.mr.lkey().value();
            object.public.rkey = object.mr.rkey().value();
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
