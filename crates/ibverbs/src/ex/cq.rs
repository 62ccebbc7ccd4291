//! Completion queues that are polled by the functions inside them: one completion at a time is looked
//! at, and read field by field.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use std::time::{SystemTime, UNIX_EPOCH};

use hirail::Wc;

use crate::abi;
use crate::check;
use crate::context::ContextObject;
use crate::cq::{self, CqInit, CqObject};
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::poll;

/// `IBV_WC_EX_WITH_…` that there are: everything but VLAN tags, flow tags and tag matching.
const READABLE: u64 = 0x7f | 1 << 7 | 1 << 11;

/// `IBV_CQ_INIT_ATTR_MASK_…`: flags and parent domain.
const HAS_FLAGS: u32 = 1;
const HAS_PD: u32 = 2;

/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, a promise that is not made use of. To ignore that a queue
/// overruns is not possible.
const SINGLE_THREADED: u32 = 1;

/// `create_cq_ex` of the extended table.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut abi::Context,
    init: *mut abi::CqInitAttrEx,
) -> *mut abi::CqEx {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let init = unsafe { &*init };
        let has_other_flags = init.comp_mask & HAS_FLAGS != 0 && init.flags & !SINGLE_THREADED != 0;
        if init.comp_mask & !(HAS_FLAGS | HAS_PD) != 0
            || has_other_flags
            || init.wc_flags & !READABLE != 0
        {
            return Err(Errno::UNSUPPORTED);
        }
        let init = CqInit {
            cqe: init.cqe.into(),
            cq_context: init.cq_context,
            channel: init.channel,
            comp_vector: init.comp_vector.into(),
        };
        // SAFETY: the channel is the caller's.
        Ok(unsafe { cq::create(context, &init) }?.cast())
    })
}

/// The extended form of `cq`.
pub(crate) fn public(cq: abi::Cq) -> abi::CqEx {
    abi::CqEx {
        cq,
        comp_mask: 0,
        status: UnsafeCell::new(0),
        wr_id: UnsafeCell::new(0),
        start_poll,
        next_poll,
        end_poll,
        read_opcode,
        read_vendor_err,
        read_byte_len,
        read_imm_data,
        read_qp_num,
        read_src_qp,
        read_wc_flags,
        read_slid,
        read_sl,
        read_dlid_path_bits,
        read_completion_ts,
        read_cvlan,
        read_flow_tag,
        read_tm_info,
        read_completion_wallclock_ns,
    }
}

/// Looks at `wc` from now on.
///
/// # Safety
/// The caller polls the queue: nobody else looks at its completion.
unsafe fn look(context: &ContextObject, object: &CqObject, wc: Wc) {
    let told = core::iter::once(check::completion_of(&wc));
    check::polled(context, &raw const object.public.cq, told);
    // SAFETY: as required of the caller.
    unsafe {
        *object.public.status.get() = wc.status.code().into();
        *object.public.wr_id.get() = wc.wr_id;
        *object.current.get() = Some(wc);
    }
}

unsafe extern "C" fn start_poll(cq: *mut abi::CqEx, attr: *mut c_void) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) =
        unsafe { (CqObject::of(cq.cast()), device(&raw const (*cq).cq.context)) };
    status(context, || {
        // SAFETY: one number, if there is any.
        if !attr.is_null() && unsafe { attr.cast::<u32>().read() } != 0 {
            return Err(Errno::INVALID);
        }
        object.polling.take();
        match object.cq.poll_one() {
            Ok(Some(wc)) => {
                // SAFETY: the lock was taken.
                unsafe { look(context, object, wc) };
                Ok(())
            }
            Ok(None) => {
                object.polling.give();
                Err(Errno::NO_ENTRY)
            }
            Err(error) => {
                object.polling.give();
                Err(error.into())
            }
        }
    })
}

unsafe extern "C" fn next_poll(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) =
        unsafe { (CqObject::of(cq.cast()), device(&raw const (*cq).cq.context)) };
    status(context, || {
        let wc = object.cq.pop()?.ok_or(Errno::NO_ENTRY)?;
        // SAFETY: the caller polls the queue.
        unsafe { look(context, object, wc) };
        Ok(())
    })
}

unsafe extern "C" fn end_poll(cq: *mut abi::CqEx) {
    // SAFETY: a queue of the caller's, which he polls.
    unsafe { CqObject::of(cq.cast()) }.polling.give();
}

/// The completion that is being looked at.
///
/// # Safety
/// The caller polls the queue.
unsafe fn current<'a>(cq: *mut abi::CqEx) -> Option<&'a Wc> {
    // SAFETY: as required of the caller.
    unsafe { (*CqObject::of(cq.cast()).current.get()).as_ref() }
}

/// Functions that read one field of the completion that is being looked at.
macro_rules! readers {
    ($($name:ident -> $type:ty: $read:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut abi::CqEx) -> $type {
            let read: fn(&Wc) -> $type = $read;
            // SAFETY: the caller polls the queue.
            unsafe { current(cq) }.map_or(0, read)
        }
    )* };
}

readers! {
    read_opcode -> c_int: |wc| wc.opcode.code().into();
    read_vendor_err -> u32: |wc| wc.vendor_err;
    read_byte_len -> u32: |wc| wc.byte_len;
    read_imm_data -> u32: poll::imm_or_rkey;
    read_qp_num -> u32: |wc| wc.qpn.value();
    read_src_qp -> u32: |wc| wc.src_qp.value();
    read_wc_flags -> c_uint: poll::flags;
    read_slid -> u32: |_| 0;
    read_sl -> u8: poll::service_level;
    read_dlid_path_bits -> u8: |_| 0;
    read_completion_ts -> u64: |wc| wc.completed_at_ns;
    read_cvlan -> u16: |_| 0;
    read_flow_tag -> u32: |_| 0;
    read_completion_wallclock_ns -> u64: wallclock;
}

unsafe extern "C" fn read_tm_info(_: *mut abi::CqEx, info: *mut abi::TmInfo) {
    // SAFETY: the caller's.
    unsafe { info.write(abi::TmInfo { tag: 0, private: 0 }) };
}

/// When it completed, by the clock on the wall: as long before now as by the other clock.
fn wallclock(wc: &Wc) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    let wall = wall.map_or(0, |wall| wall.as_nanos() as u64);
    wall.saturating_sub(now.saturating_sub(wc.completed_at_ns))
}
