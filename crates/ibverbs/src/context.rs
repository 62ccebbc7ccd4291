//! Open devices: opening, closing, and the table of functions in each.

use core::ffi::{c_int, c_void};
use core::mem::{ManuallyDrop, offset_of};
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use crate::async_event::AsyncEvents;
use crate::device::DeviceObject;
use crate::entry::without_device;
use crate::errno::Errno;
use crate::shared::{self, Shared};
use crate::{abi, bind, check, cq, dm, ex, file, poll, post, query, srq, xrc};

/// An open device. C programs have pointers to `public`; inline functions look in front of it.
#[repr(C)]
pub(crate) struct ContextObject {
    extended: abi::ExtendedOps,
    public: abi::Context,
    shared: Arc<Shared>,
    pub(crate) events: Arc<AsyncEvents>,
    /// What `cmd_fd` names: an empty file, by which the device is found when it is imported.
    _command: OwnedFd,
}

impl ContextObject {
    /// The object behind its public part.
    ///
    /// # Safety
    /// It is an open device of this library, and stays one until the reference is gone.
    #[inline]
    pub(crate) unsafe fn of<'a>(public: *mut abi::Context) -> &'a Self {
        // SAFETY: the public part lies within the object.
        unsafe { &*public.byte_sub(offset_of!(Self, public)).cast() }
    }

    /// The public part.
    pub(crate) fn public(&self) -> *mut abi::Context {
        (&raw const self.public).cast_mut()
    }

    /// What it has in common with those that are imported.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The device of the library underneath.
    #[inline]
    pub(crate) fn hirail(&self) -> &hirail::Context {
        &self.shared.hirail
    }

    /// The device that it is open on.
    pub(crate) fn device(&self) -> &'static DeviceObject {
        self.shared.device
    }

    /// Vectors that completion queues can be spread over; they mean nothing here.
    pub(crate) fn num_comp_vectors(&self) -> c_int {
        self.public.num_comp_vectors
    }

    /// Opens `device`.
    fn open(device: &'static DeviceObject) -> Result<*mut abi::Context, Errno> {
        let hirail = hirail::Context::open(&device.interface().name).map_err(said)?;
        let command = file::in_memory(c"hirail-device", 0)?;
        let shared = Shared::new(device, hirail, command.as_fd())?;
        check::opened(&shared);
        Ok(Self::hand_out(shared, command))
    }

    fn hand_out(shared: Arc<Shared>, command: OwnedFd) -> *mut abi::Context {
        let vectors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let events = Arc::clone(&shared.events);
        let object = Box::new(Self {
            extended: EXTENDED,
            public: abi::Context {
                device: shared.device.public(),
                ops: OPS,
                cmd_fd: command.as_raw_fd(),
                async_fd: events.fd(),
                num_comp_vectors: vectors as c_int,
                mutex: [0; 5],
                abi_compat: usize::MAX,
            },
            shared,
            events,
            _command: command,
        });
        let object = Box::into_raw(object);
        // SAFETY: within the object.
        unsafe { &raw mut (*object).public }
    }
}

/// What a program cannot be told by a number is said to the person at the terminal, once.
fn said(error: hirail::Error) -> Errno {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::Relaxed) {
        eprintln!("hirail: {error}");
    }
    error.into()
}

/// `ibv_open_device`.
pub(crate) unsafe extern "C" fn open_device(device: *mut abi::Device) -> *mut abi::Context {
    without_device(ptr::null_mut(), || {
        // SAFETY: a device out of a list of this library.
        let device = unsafe { DeviceObject::of(device) };
        ContextObject::open(device).unwrap_or_else(|errno| {
            errno.set();
            ptr::null_mut()
        })
    })
}

/// `ibv_import_device`: takes charge of the descriptor, a duplicate of an open device's `cmd_fd`.
/// Events of the two come out of one queue.
pub(crate) unsafe extern "C" fn import_device(command: c_int) -> *mut abi::Context {
    without_device(ptr::null_mut(), || {
        let import = || {
            hirail::fork::check().map_err(hirail::Error::from)?;
            let shared = Shared::of(shared::borrowed(command)?)?;
            // SAFETY: it is open, and the caller gives it up.
            let command = unsafe { OwnedFd::from_raw_fd(command) };
            Ok(ContextObject::hand_out(shared, command))
        };
        import().unwrap_or_else(|errno: Errno| {
            errno.set();
            ptr::null_mut()
        })
    })
}

/// `ibv_close_device`.
pub(crate) unsafe extern "C" fn close_device(context: *mut abi::Context) -> c_int {
    without_device(libc::EIO, || {
        // SAFETY: an open device, which the caller closes once; the box began at the object.
        let object = unsafe {
            let start = context.byte_sub(offset_of!(ContextObject, public));
            Box::from_raw(start.cast::<ContextObject>())
        };
        check::closing(&object.shared);
        if object.shared.has_failed() {
            // Threads may be anywhere: what they use stays.
            let _ = ManuallyDrop::new(object);
        }
        0
    })
}

/// An operation that was never filled in by anybody.
const ABSENT: abi::Absent = 0;

/// What inline functions call.
const OPS: abi::ContextOps = abi::ContextOps {
    query_device: query::query_device,
    query_port: query::query_port_old,
    history_2: [0; 5],
    alloc_mw: bind::alloc_mw,
    bind_mw: bind::bind_mw,
    dealloc_mw: bind::dealloc_mw,
    history_10: [0; 1],
    poll_cq: poll::poll_cq,
    req_notify_cq: poll::req_notify_cq,
    history_13: [0; 7],
    post_srq_recv: post::post_srq_recv,
    history_21: [0; 4],
    post_send: post::post_send,
    post_recv: post::post_recv,
    history_27: [0; 5],
};

/// What lies in front.
const EXTENDED: abi::ExtendedOps = abi::ExtendedOps {
    query_port: query::query_port,
    advise_mr: ex::advise::advise_mr,
    alloc_null_mr: ABSENT,
    read_counters: ABSENT,
    attach_counters_point_flow: ABSENT,
    create_counters: ABSENT,
    destroy_counters: ABSENT,
    reg_dm_mr: dm::reg_dm_mr,
    alloc_dm: dm::alloc_dm,
    free_dm: dm::free_dm,
    modify_flow_action_esp: ABSENT,
    destroy_flow_action: ABSENT,
    create_flow_action_esp: ABSENT,
    modify_qp_rate_limit: ABSENT,
    alloc_parent_domain: ex::domain::alloc_parent_domain,
    dealloc_td: ex::domain::dealloc_td,
    alloc_td: ex::domain::alloc_td,
    modify_cq: cq::modify_cq,
    post_srq_ops: ABSENT,
    destroy_rwq_ind_table: ABSENT,
    create_rwq_ind_table: ABSENT,
    destroy_wq: ABSENT,
    modify_wq: ABSENT,
    create_wq: ABSENT,
    query_rt_values: query::query_rt_values,
    create_cq_ex: ex::cq::create_cq_ex,
    private: 0,
    query_device_ex: query::query_device_ex,
    destroy_flow: ABSENT,
    destroy_flow_placeholder: ABSENT,
    create_flow: ABSENT,
    create_flow_placeholder: ABSENT,
    open_qp: xrc::open_qp,
    create_qp_ex: ex::qp::create_qp_ex,
    get_srq_num: srq::get_srq_num,
    create_srq_ex: srq::create_srq_ex,
    open_xrcd: xrc::open_xrcd,
    close_xrcd: xrc::close_xrcd,
    placeholder: 0,
    size: abi::ExtendedOps::SIZE,
};

/// `ibv_fork_init`: what is the parent's answers `EIO` in a child of `fork`, and the parent is not
/// disturbed.
pub(crate) unsafe extern "C" fn fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: not needed.
pub(crate) unsafe extern "C" fn is_fork_initialized() -> c_int {
    2
}

/// `ibv_dontfork_range` and `ibv_dofork_range`: memory is copied on write as always.
pub(crate) unsafe extern "C" fn fork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry;

    /// A panic reaches nobody but the device: it tells of it once, and answers EIO from then on.
    #[test]
    fn a_panic_is_a_fatal_event() {
        let mut count = 0;
        // SAFETY: the device is open until the last line.
        unsafe {
            let list = crate::device::get_device_list(&raw mut count);
            let context = open_device(*list.add(count as usize - 1));
            assert!(!context.is_null());
            let object = ContextObject::of(context);
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            assert_eq!(entry::status(object, || panic!("on purpose")), libc::EIO);
            std::panic::set_hook(hook);
            assert_eq!(entry::status(object, || Ok(())), libc::EIO);
            let mut event = core::mem::zeroed();
            assert_eq!(
                crate::async_event::get_async_event(context, &raw mut event),
                0
            );
            let kind = hirail::AsyncEventKind::DeviceFatal.code();
            assert_eq!(event.event_type, u32::from(kind));
            assert_eq!(close_device(context), 0);
            crate::device::free_device_list(list);
        }
    }
}
