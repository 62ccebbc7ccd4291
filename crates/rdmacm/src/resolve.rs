//! Where an id is, and the way to its peer.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use hirail_abi::{CmPath, RdmaCmId};
use libc::sockaddr;

use crate::address;
use crate::bridge::bridge;
use crate::device::{self, Device};
use crate::entry::number;
use crate::errno::Errno;
use crate::event::Told;
use crate::id::{Id, State, Step, complete};
use crate::names::kind;
use crate::port;

/// `rdma_bind_addr`.
pub(crate) unsafe extern "C" fn bind_addr(id: *mut RdmaCmId, addr: *mut sockaddr) -> c_int {
    number(|| {
        // SAFETY: an id and an address of the caller's.
        let (id, local) = unsafe { (Id::of(id)?, read(addr)?) };
        bind(&id, local)?;
        // In the kernel the loopback's address names no device. libfabric binds an id to it and takes
        // the device that it then sees for the only one. Programs with a channel get to see it all the
        // same: on the loopback nothing else would do for them.
        if local.ip().is_loopback() && id.state().is_sync {
            id.hide_device();
        }
        Ok(())
    })
}

/// An address that the program gives.
///
/// # Safety
/// It is NULL, or as long as its family says.
pub(crate) unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller.
    unsafe { address::read(addr) }
}

/// Takes an address and a port. Without an address the id is on all devices, and on none yet.
pub(crate) fn bind(id: &Arc<Id>, local: SocketAddr) -> Result<(), Errno> {
    // SAFETY: the id exists while somebody calls.
    let space = unsafe { (*id.public()).ps } as u16;
    let mut state = id.state();
    if state.step != Step::Idle {
        return Err(Errno::INVALID);
    }
    let (device, devices) = if local.ip().is_unspecified() {
        (None, device::all()?)
    } else {
        let device = device::of(local.ip()).map_err(|_| Errno(libc::EADDRNOTAVAIL))?;
        (Some(device), vec![device])
    };
    let mut local = local;
    match port::bind(&devices, space, local.ip(), local.port()) {
        Ok((ports, number)) => {
            state.ports = ports;
            local.set_port(number);
        }
        // Only one of those that share it can listen; that is found out when it does.
        Err(Errno(libc::EADDRINUSE)) if state.options.shares_address => {}
        Err(errno) => return Err(errno),
    }
    state.device = device;
    state.local = Some(local);
    state.step = Step::Bound;
    id.show(&state);
    Ok(())
}

/// `rdma_resolve_addr`.
pub(crate) unsafe extern "C" fn resolve_addr(
    id: *mut RdmaCmId,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    number(|| {
        // SAFETY: an id and addresses of the caller's.
        let (id, source, destination) = unsafe {
            let source = if source.is_null() {
                None
            } else {
                Some(read(source)?)
            };
            (Id::of(id)?, source, read(destination)?)
        };
        resolve(&id, source, destination)
    })
}

/// Finds the device from which `remote` is reached. The event says whether there is one.
pub(crate) fn resolve(
    id: &Arc<Id>,
    source: Option<SocketAddr>,
    remote: SocketAddr,
) -> Result<(), Errno> {
    let found = {
        let mut state = id.state();
        if !matches!(state.step, Step::Idle | Step::Bound) {
            return Err(Errno::INVALID);
        }
        let bound = state.local.or(source);
        let ip = match bound {
            Some(bound) if !bound.ip().is_unspecified() => bound.ip(),
            _ => address::source_for(remote)?,
        };
        let number = match bound.map_or(0, |bound| bound.port()) {
            0 => ephemeral(),
            number => number,
        };
        let mut remote = remote;
        if remote.ip().is_unspecified() {
            remote.set_ip(ip);
        }
        let local = SocketAddr::new(ip, number);
        way(&mut state, local, remote).inspect(|()| id.show(&state))
    };
    id.tell(match found {
        Ok(()) => Told::new(kind::ADDR_RESOLVED, 0),
        Err(errno) => Told::new(kind::ADDR_ERROR, -errno.0),
    });
    complete(id)
}

fn way(state: &mut State, local: SocketAddr, remote: SocketAddr) -> Result<(), Errno> {
    let device = match state.device {
        Some(device) => device,
        None => device::of(local.ip())?,
    };
    let mut path = path(device, local.ip(), remote.ip())?;
    path.traffic_class = state.options.tos;
    // Linux makes the label of the two ports.
    path.flow_label = (u32::from(local.port()) * 31 + u32::from(remote.port())) & 0xf_ffff;
    state.device = Some(device);
    state.local = Some(local);
    state.remote = Some(remote);
    state.path = Some(path);
    state.step = Step::AddressResolved;
    Ok(())
}

/// The path from an address of a device to another one.
pub(crate) fn path(device: &Device, local: IpAddr, remote: IpAddr) -> Result<CmPath, Errno> {
    let (local, remote) = (address::gid(local), address::gid(remote));
    let mut path = CmPath::default();
    // SAFETY: a manager of the other library, addresses and a place.
    Errno::check(unsafe {
        (bridge()?.path)(
            device.cm()?,
            &raw const local,
            &raw const remote,
            &raw mut path,
        )
    })?;
    Ok(path)
}

/// A port to connect from, where the program does not care. Nobody listens there, so it need not be
/// its alone.
fn ephemeral() -> u16 {
    const FIRST: u16 = 32768;
    const COUNT: u16 = 28232;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id() as u16;
    let step = NEXT.fetch_add(1, Ordering::Relaxed);
    FIRST + own.wrapping_mul(257).wrapping_add(step) % COUNT
}

/// `rdma_resolve_route`: there is nothing to ask anybody for.
pub(crate) unsafe extern "C" fn resolve_route(id: *mut RdmaCmId, _timeout_ms: c_int) -> c_int {
    number(|| {
        // SAFETY: an id of the caller's.
        route(&unsafe { Id::of(id)? })
    })
}

/// See [`resolve_route`].
pub(crate) fn route(id: &Arc<Id>) -> Result<(), Errno> {
    {
        let mut state = id.state();
        if state.step != Step::AddressResolved {
            return Err(Errno::INVALID);
        }
        state.step = Step::RouteResolved;
        id.show_route(&state);
    }
    id.tell(Told::new(kind::ROUTE_RESOLVED, 0));
    complete(id)
}

/// `rdma_get_src_port`: in network order.
pub(crate) unsafe extern "C" fn get_src_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: an id of the caller's.
    port_of(unsafe { Id::of(id) }, |state| state.local)
}

/// `rdma_get_dst_port`: in network order.
pub(crate) unsafe extern "C" fn get_dst_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: an id of the caller's.
    port_of(unsafe { Id::of(id) }, |state| state.remote)
}

fn port_of(id: Result<Arc<Id>, Errno>, which: impl FnOnce(&State) -> Option<SocketAddr>) -> u16 {
    let address = id.ok().and_then(|id| which(&id.state()));
    address.map_or(0, |address| address.port().to_be())
}
