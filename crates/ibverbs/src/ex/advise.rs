//! Advice about memory on demand (`ibv_advise_mr(3)`).

use core::ffi::c_int;

use hirail::{Prefetch, PrefetchError, Refusal};

use crate::abi;
use crate::entry::{Object, device, status};
use crate::errno::Errno;
use crate::pd::PdObject;
use crate::post;

/// `enum ib_uverbs_advise_mr_advice`.
const PREFETCH: c_int = 0;
const PREFETCH_WRITE: c_int = 1;
const PREFETCH_NO_FAULT: c_int = 2;

/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: not to return before it is done. It always is.
const FLUSH: u32 = 1;

/// `advise_mr` of the extended table. Entries before the first that is refused are present then.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut abi::Pd,
    advice: c_int,
    flags: u32,
    list: *const abi::Sge,
    count: u32,
) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    status(context, || {
        let what = match advice {
            PREFETCH => Prefetch::Read,
            PREFETCH_WRITE => Prefetch::Write,
            PREFETCH_NO_FAULT => Prefetch::NoFault,
            _ => return Err(Errno::UNSUPPORTED),
        };
        if flags & !FLUSH != 0 || count == 0 {
            return Err(Errno::INVALID);
        }
        for place in 0..count as usize {
            // SAFETY: the caller has `count` entries.
            let sge = post::sge(unsafe { &*list.add(place) });
            domain.pd.prefetch(sge, what).map_err(errno)?;
        }
        Ok(())
    })
}

/// What the manual page says of each.
fn errno(error: PrefetchError) -> Errno {
    Errno(match error {
        PrefetchError::Forked(_) => libc::EIO,
        PrefetchError::NotOnDemand => libc::EINVAL,
        PrefetchError::Refused(Refusal::UnknownKey) => libc::ENOENT,
        PrefetchError::Refused(Refusal::OutOfRange) | PrefetchError::Fault => libc::EFAULT,
        PrefetchError::Refused(_) => libc::EPERM,
    })
}
