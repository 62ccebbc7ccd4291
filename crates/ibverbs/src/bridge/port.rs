//! Ports, and who listens there.

use core::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use hirail::cm::{BoundPort, ServiceId};

use super::{address, channel, manager, pointer, status};
use crate::abi;
use crate::errno::Errno;

type Port = Mutex<BoundPort>;

/// The port behind its name in C.
///
/// # Safety
/// It came out of [`bind`] and is not freed while the reference is used.
unsafe fn of<'a>(port: *mut abi::CmPort) -> &'a Port {
    // SAFETY: as required of the caller.
    unsafe { &*port.cast() }
}

pub(super) unsafe extern "C" fn bind(
    cm: *mut abi::Cm,
    space: u16,
    ip: *const [u8; 16],
    port: u16,
) -> *mut abi::CmPort {
    pointer(|| {
        let (space, _) = ServiceId(u64::from(space) << 16)
            .port()
            .ok_or(Errno(libc::EPROTONOSUPPORT))?;
        // SAFETY: a manager and the caller's address.
        let (manager, ip) = unsafe { (manager(cm), address(ip)) };
        let bound = BoundPort::bind(manager, space, (ip, port).into())?;
        Ok(Box::into_raw(Box::new(Port::new(bound))).cast())
    })
}

pub(super) unsafe extern "C" fn number(port: *mut abi::CmPort) -> u16 {
    // SAFETY: a port of ours.
    let port = unsafe { of(port) };
    let port = port.lock().unwrap_or_else(PoisonError::into_inner);
    port.address().port()
}

pub(super) unsafe extern "C" fn listen(
    port: *mut abi::CmPort,
    backlog: u32,
    events: *mut abi::CmChannel,
    listener: *mut u32,
) -> c_int {
    status(|| {
        // SAFETY: a port and a channel of ours, and the caller's place.
        unsafe {
            let mut port = of(port).lock().unwrap_or_else(PoisonError::into_inner);
            listener.write(port.listen(backlog, channel::of(events))?.0);
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn free(port: *mut abi::CmPort) {
    let _ = status(|| {
        // SAFETY: a port of ours, which the caller gives up, once.
        drop(unsafe { Box::from_raw(port.cast::<Port>()) });
        Ok(())
    });
}
