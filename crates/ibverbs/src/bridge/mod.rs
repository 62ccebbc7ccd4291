//! What `librdmacm.so.1` has of this library: connections, ports and events, in the shapes of
//! [`abi::Bridge`]. Nothing is decided here.

mod channel;
mod connection;
mod port;

use core::ffi::c_int;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use hirail::Gid;
use hirail::cm::{Manager, Path};

use crate::context::ContextObject;
use crate::errno::Errno;
use crate::{abi, ah, channel as comp_channel, check, context, cq, device, mr, pd, qp, srq};

/// `hirail_bridge`.
pub(crate) unsafe extern "C" fn bridge() -> *const abi::Bridge {
    &raw const BRIDGE
}

static BRIDGE: abi::Bridge = abi::Bridge {
    get_device_list: device::get_device_list,
    free_device_list: device::free_device_list,
    open_device,
    alloc_pd,
    create_comp_channel: comp_channel::create_comp_channel,
    destroy_comp_channel: comp_channel::destroy_comp_channel,
    create_cq: cq::create_cq,
    destroy_cq: cq::destroy_cq,
    create_qp: qp::create_qp,
    destroy_qp: qp::destroy_qp,
    modify_qp: qp::modify_qp,
    create_srq: srq::create_srq,
    destroy_srq: srq::destroy_srq,
    attach_mcast: qp::attach_mcast,
    detach_mcast: qp::detach_mcast,
    get_cq_event: comp_channel::get_cq_event,
    ack_cq_events: comp_channel::ack_cq_events,
    reg_mr: mr::reg_mr,
    dereg_mr: mr::dereg_mr,
    create_ah: ah::create_ah,
    destroy_ah: ah::destroy_ah,
    find_device,
    cm: manager_of,
    path,
    channel_new: channel::new,
    channel_fd: channel::fd,
    channel_next: channel::next,
    channel_free: channel::free,
    port_bind: port::bind,
    port_number: port::number,
    port_listen: port::listen,
    port_free: port::free,
    connect: connection::connect,
    query: connection::query,
    accept: connection::accept,
    answer: connection::answer,
    confirm: connection::confirm,
    reject: connection::reject,
    disconnect: connection::disconnect,
    destroy: connection::destroy,
    attach: connection::attach,
    attributes: connection::attributes,
    move_to: connection::move_to,
};

/// 0, or what went wrong.
fn status(job: impl FnOnce() -> Result<(), Errno>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(job));
    match done.unwrap_or(Err(Errno::DEAD)) {
        Ok(()) => 0,
        Err(errno) => errno.0,
    }
}

/// A pointer, or NULL and `errno`.
fn pointer<T>(job: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    let done = catch_unwind(AssertUnwindSafe(job));
    done.unwrap_or(Err(Errno::DEAD)).unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// The connection managers that were asked for. They stay as long as the process lives, as the
/// devices do that the other library opens.
static MANAGERS: Mutex<Vec<&'static Manager>> = Mutex::new(Vec::new());

/// The manager behind its name in C.
///
/// # Safety
/// It came out of [`manager_of`].
unsafe fn manager(cm: *mut abi::Cm) -> &'static Manager {
    // SAFETY: as required of the caller; managers are never freed.
    unsafe { &*cm.cast() }
}

/// What a manager is called in C.
fn name(manager: &Manager) -> *mut abi::Cm {
    let known = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|known| known.is(manager));
    found.map_or(ptr::null_mut(), |known| {
        (&raw const **known).cast_mut().cast()
    })
}

/// A device that rdma_cm keeps open, as long as the process lives.
unsafe extern "C" fn open_device(device: *mut abi::Device) -> *mut abi::Context {
    // SAFETY: as required of the caller.
    check::internally(|| unsafe { context::open_device(device) })
}

/// The domain of such a device.
unsafe extern "C" fn alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    // SAFETY: as required of the caller.
    check::internally(|| unsafe { pd::alloc_pd(context) })
}

unsafe extern "C" fn manager_of(context: *mut abi::Context) -> *mut abi::Cm {
    // SAFETY: an open device.
    let context = unsafe { ContextObject::of(context) };
    pointer(|| {
        let manager = Manager::of(context.hirail())?;
        let known = name(&manager);
        if !known.is_null() {
            return Ok(known);
        }
        let manager: &'static _ = Box::leak(Box::new(manager));
        let mut managers = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
        managers.push(manager);
        Ok((&raw const *manager).cast_mut().cast())
    })
}

unsafe extern "C" fn find_device(ip: *const [u8; 16]) -> *mut abi::Device {
    // SAFETY: the caller's.
    let gid = Gid(unsafe { *ip });
    pointer(|| {
        let found = device::find(gid)?;
        Ok(found.ok_or(Errno(libc::ENODEV))?.public())
    })
}

/// An address.
///
/// # Safety
/// It can be read.
unsafe fn address(ip: *const [u8; 16]) -> IpAddr {
    // SAFETY: as required of the caller.
    Gid(unsafe { *ip }).to_ip()
}

unsafe extern "C" fn path(
    cm: *mut abi::Cm,
    local: *const [u8; 16],
    remote: *const [u8; 16],
    to: *mut abi::CmPath,
) -> c_int {
    status(|| {
        // SAFETY: a manager, and the caller's addresses and place.
        unsafe {
            let found = manager(cm).path_from(address(local), address(remote))?;
            to.write(path_to_c(&found));
        }
        Ok(())
    })
}

fn path_to_c(path: &Path) -> abi::CmPath {
    abi::CmPath {
        local: path.local.0,
        remote: path.remote.0,
        flow_label: path.flow_label,
        sgid_index: path.sgid_index,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        sl: path.sl,
    }
}

fn path_of_c(path: &abi::CmPath) -> Path {
    Path {
        local: Gid(path.local),
        sgid_index: path.sgid_index,
        remote: Gid(path.remote),
        flow_label: path.flow_label,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        sl: path.sl,
    }
}
