//! Completion counters (`ibv_create_comp_cntr(3)`).

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use hirail::{CompletionCounter, Counted, CountedOps};

use crate::abi;
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::qp::QpObject;
use crate::query::write_sized;

/// A completion counter.
#[repr(C)]
pub(crate) struct CounterObject {
    public: abi::CompCntr,
    counter: Arc<CompletionCounter>,
    /// Held by the queue pairs that it is attached to.
    use_of: Arc<Use>,
}

/// That a counter is attached to the queue pair that has this.
pub(crate) struct Use;

// SAFETY: it begins with its public part.
unsafe impl Object for CounterObject {
    type Public = abi::CompCntr;
}

/// `_ibv_query_comp_cntr_caps`. Counters are memory, so there are as many as one likes.
pub(crate) unsafe extern "C" fn query_comp_cntr_caps(
    context: *mut abi::Context,
    caps: *mut abi::CompCntrCaps,
    size: usize,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        let all = abi::CompCntrCaps {
            max_value: u64::MAX,
            max_counters: u32::MAX,
            supported_qp_attach_ops: CountedOps::all().bits(),
        };
        // SAFETY: the caller's, of this size.
        unsafe { write_sized(caps, size, &all) };
        Ok(())
    })
}

/// `enum ibv_comp_cntr_type`.
const REQUESTS: c_uint = 0;
const BYTES: c_uint = 1;

/// `ibv_create_comp_cntr`.
pub(crate) unsafe extern "C" fn create_comp_cntr(
    context: *mut abi::Context,
    attr: *const abi::CompCntrInitAttr,
) -> *mut abi::CompCntr {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { &*attr };
        let counted = match attr.kind {
            REQUESTS => Counted::Requests,
            BYTES => Counted::Bytes,
            _ => return Err(Errno::UNSUPPORTED),
        };
        if attr.comp_mask != 0 || attr.flags != 0 {
            return Err(Errno::INVALID);
        }
        let object = CounterObject {
            public: abi::CompCntr {
                context: context.public(),
                handle: context.shared().handles.next(),
            },
            counter: Arc::new(CompletionCounter::new(counted)),
            use_of: Arc::new(Use),
        };
        Ok(object.into_public())
    })
}

/// `ibv_destroy_comp_cntr`: refused while it is attached to a queue pair.
pub(crate) unsafe extern "C" fn destroy_comp_cntr(counter: *mut abi::CompCntr) -> c_int {
    // SAFETY: a counter of the caller's, and the device that it belongs to.
    let (object, context) = unsafe {
        (
            CounterObject::of(counter),
            device(&raw const (*counter).context),
        )
    };
    status(context, || {
        if Arc::strong_count(&object.use_of) > 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: the caller gives it up, once.
        drop(unsafe { CounterObject::take(counter) });
        Ok(())
    })
}

/// `ibv_qp_attach_comp_cntr`: until the queue pair is destroyed.
pub(crate) unsafe extern "C" fn qp_attach_comp_cntr(
    qp: *mut abi::Qp,
    counter: *mut abi::CompCntr,
    attr: *const abi::QpAttachCompCntrAttr,
) -> c_int {
    // SAFETY: the caller's, both, and the device that they belong to.
    let (qp, object, context) = unsafe {
        (
            QpObject::of(qp),
            CounterObject::of(counter),
            device(&raw const (*counter).context),
        )
    };
    status(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { &*attr };
        if attr.comp_mask != 0 || attr.op_mask == 0 {
            return Err(Errno::INVALID);
        }
        let ops = CountedOps::from_bits(attr.op_mask).ok_or(Errno::UNSUPPORTED)?;
        qp.qp.attach_counter(&object.counter, ops)?;
        let mut counters = qp.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.push(Arc::clone(&object.use_of));
        Ok(())
    })
}

/// Which of the two numbers is meant, and what is done with it.
///
/// # Safety
/// It is a counter of the caller's.
unsafe fn with(
    counter: *mut abi::CompCntr,
    which: fn(&CompletionCounter) -> &AtomicU64,
    job: impl FnOnce(&AtomicU64),
) -> c_int {
    // SAFETY: as required of the caller, and the device that it belongs to.
    let (object, context) = unsafe {
        (
            CounterObject::of(counter),
            device(&raw const (*counter).context),
        )
    };
    status(context, || {
        job(which(&object.counter));
        Ok(())
    })
}

/// The calls that set, change and read one of the two numbers.
macro_rules! numbers {
    ($($which:path: $set:ident $inc:ident $read:ident;)*) => { $(
        pub(crate) unsafe extern "C" fn $set(counter: *mut abi::CompCntr, value: u64) -> c_int {
            // SAFETY: a counter of the caller's.
            unsafe { with(counter, $which, |number| number.store(value, Ordering::Release)) }
        }

        pub(crate) unsafe extern "C" fn $inc(counter: *mut abi::CompCntr, amount: u64) -> c_int {
            // SAFETY: a counter of the caller's.
            unsafe {
                with(counter, $which, |number| {
                    number.fetch_add(amount, Ordering::AcqRel);
                })
            }
        }

        pub(crate) unsafe extern "C" fn $read(counter: *mut abi::CompCntr, to: *mut u64) -> c_int {
            // SAFETY: a counter and a place of the caller's.
            unsafe { with(counter, $which, |number| to.write(number.load(Ordering::Acquire))) }
        }
    )* };
}

numbers! {
    CompletionCounter::completed: set_comp_cntr inc_comp_cntr read_comp_cntr;
    CompletionCounter::failed: set_err_comp_cntr inc_err_comp_cntr read_err_comp_cntr;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::{create_cq, destroy_cq};
    use crate::qp::{create_qp, destroy_qp};
    use crate::testing::Opened;

    fn qp(opened: &Opened, cq: *mut abi::Cq) -> *mut abi::Qp {
        let mut init = abi::QpInitAttr {
            qp_context: core::ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: core::ptr::null_mut(),
            cap: abi::QpCap {
                max_send_wr: 4,
                max_recv_wr: 4,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: 2,
            sq_sig_all: 0,
            comp_mask: 0,
        };
        // SAFETY: domain and queue are open.
        unsafe { create_qp(opened.pd, &raw mut init) }
    }

    #[test]
    fn numbers_are_set_changed_and_wrap() {
        let opened = Opened::new();
        let init = abi::CompCntrInitAttr::default();
        // SAFETY: the counter is open until its last line.
        unsafe {
            let counter = create_comp_cntr(opened.context, &raw const init);
            let (mut good, mut bad) = (1, 1);
            let mut read = || {
                assert_eq!(read_comp_cntr(counter, &raw mut good), 0);
                assert_eq!(read_err_comp_cntr(counter, &raw mut bad), 0);
                (good, bad)
            };
            assert_eq!(read(), (0, 0));
            assert_eq!(set_comp_cntr(counter, u64::MAX), 0);
            assert_eq!(set_err_comp_cntr(counter, 5), 0);
            assert_eq!(read(), (u64::MAX, 5));
            assert_eq!(inc_comp_cntr(counter, 3), 0);
            assert_eq!(inc_err_comp_cntr(counter, 3), 0);
            assert_eq!(read(), (2, 8));
            assert_eq!(destroy_comp_cntr(counter), 0);
            for (kind, flags, errno) in [(2, 0, libc::EOPNOTSUPP), (0, 1, libc::EINVAL)] {
                let wrong = abi::CompCntrInitAttr {
                    kind,
                    flags,
                    comp_mask: 0,
                };
                assert!(create_comp_cntr(opened.context, &raw const wrong).is_null());
                assert_eq!(Errno::last(), Errno(errno));
            }
        }
    }

    #[test]
    fn a_counter_is_attached_until_its_queue_pair_goes() {
        let opened = Opened::new();
        let init = abi::CompCntrInitAttr::default();
        // SAFETY: everything is given up once, and in order.
        unsafe {
            let null = core::ptr::null_mut();
            let cq = create_cq(opened.context, 16, null, null.cast(), 0);
            let qp = qp(&opened, cq);
            let counter = create_comp_cntr(opened.context, &raw const init);
            let attach = |op_mask, comp_mask| {
                let attr = abi::QpAttachCompCntrAttr { comp_mask, op_mask };
                qp_attach_comp_cntr(qp, counter, &raw const attr)
            };
            assert_eq!(attach(0, 0), libc::EINVAL);
            assert_eq!(attach(1, 1), libc::EINVAL);
            assert_eq!(attach(1 << 3, 0), libc::EOPNOTSUPP);
            assert_eq!(attach(1 | 1 << 4, 0), 0);
            assert_eq!(attach(1, 0), libc::EBUSY);
            assert_eq!(attach(1 << 1, 0), 0);
            assert_eq!(destroy_comp_cntr(counter), libc::EBUSY);
            assert_eq!(destroy_qp(qp), 0);
            assert_eq!(destroy_comp_cntr(counter), 0);
            assert_eq!(destroy_cq(cq), 0);
        }
    }
}
