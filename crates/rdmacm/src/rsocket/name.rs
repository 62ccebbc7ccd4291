//! Making sockets, and their addresses: `rsocket`, `rbind`, `rgetsockname`, `rgetpeername`.

use core::ffi::c_int;
use core::ptr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use super::config::Config;
use super::datagram::{self, Datagram};
use super::endpoint::Handle;
use super::option::Settings;
use super::stream::{Phase, State, Stream};
use super::table::{self, Kind, Socket};
use crate::address;
use crate::entry;
use crate::errno::Errno;
use crate::id::{qp_type, space};
use crate::resolve;

/// Flags of the kernel in the type of a socket.
const TYPE_FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// `rsocket`.
pub(crate) unsafe extern "C" fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    entry::value(|| {
        const UNSUPPORTED: Errno = Errno(libc::ENOTSUP);
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Err(UNSUPPORTED);
        }
        let settings = Settings::new(Config::get().sizes);
        let made = match (kind & !TYPE_FLAGS, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                Kind::Stream(Box::new(Stream::new(settings)))
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Kind::Datagram(Datagram::new(family, settings)?)
            }
            _ => return Err(UNSUPPORTED),
        };
        let socket = Socket::new(family, made)?;
        if kind & libc::SOCK_NONBLOCK != 0 {
            socket.set_flags(libc::O_RDWR | libc::O_NONBLOCK);
        }
        Ok(socket.publish())
    })
}

/// The id of a stream, which is made when it is needed.
pub(super) fn handle(state: &mut State) -> Result<Arc<Handle>, Errno> {
    if let Some(handle) = &state.handle {
        return Ok(Arc::clone(handle));
    }
    let handle = Arc::new(Handle::new(space::TCP, qp_type::RC)?);
    handle.id().state().options.shares_address = state.settings.reuses_address;
    state.handle = Some(Arc::clone(&handle));
    Ok(handle)
}

/// An address that a program gives.
///
/// # Safety
/// It is NULL, or so long.
pub(super) unsafe fn read(addr: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Errno> {
    let length = length as usize;
    if addr.is_null() || length < size_of::<libc::sa_family_t>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller.
    unsafe {
        let least = match c_int::from((&raw const (*addr).sa_family).read_unaligned()) {
            libc::AF_INET => size_of::<sockaddr_in>(),
            libc::AF_INET6 => size_of::<sockaddr_in6>(),
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        if length < least {
            return Err(Errno::INVALID);
        }
        address::read(addr)
    }
}

/// Writes an address where a program wants it, as much as there is room for.
///
/// # Safety
/// There is so much room, and the length can be written.
pub(super) unsafe fn write(from: SocketAddr, addr: *mut sockaddr, length: *mut socklen_t) {
    let whole = match from {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    };
    let written = address::write(from);
    // SAFETY: as required of the caller.
    unsafe {
        let room = (*length as usize).min(whole);
        ptr::copy_nonoverlapping((&raw const written).cast::<u8>(), addr.cast(), room);
        *length = whole as socklen_t;
    }
}

/// `rbind`.
pub(crate) unsafe extern "C" fn rbind(
    fd: c_int,
    addr: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::number(|| {
        // SAFETY: an address of the caller's.
        let local = unsafe { read(addr, length)? };
        let socket = table::get(fd)?;
        match &socket.kind {
            Kind::Stream(stream) => {
                let mut state = stream.lock();
                if state.phase != Phase::Fresh {
                    return Err(Errno::INVALID);
                }
                resolve::bind(&handle(&mut state)?.id(), local)
            }
            Kind::Datagram(one) => datagram::bind(&socket, one, local),
        }
    })
}

/// Nothing in particular, of the family.
fn any(family: c_int) -> SocketAddr {
    let ip: IpAddr = match family {
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}

/// The address of the peer.
pub(super) fn peer(socket: &Socket) -> Option<SocketAddr> {
    match &socket.kind {
        Kind::Stream(stream) => {
            let state = stream.lock();
            state.handle.as_ref()?.remote()
        }
        Kind::Datagram(one) => datagram::peer(one),
    }
}

/// `rgetsockname`.
pub(crate) unsafe extern "C" fn rgetsockname(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::number(|| {
        let socket = table::get(fd)?;
        let local = match &socket.kind {
            Kind::Stream(stream) => {
                let state = stream.lock();
                state.handle.as_ref().and_then(|handle| handle.local())
            }
            Kind::Datagram(one) => datagram::local(one),
        };
        // SAFETY: places of the caller's.
        unsafe { write(local.unwrap_or(any(socket.family)), addr, length) };
        Ok(())
    })
}

/// `rgetpeername`.
pub(crate) unsafe extern "C" fn rgetpeername(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::number(|| {
        let socket = table::get(fd)?;
        let peer = peer(&socket).ok_or(Errno(libc::ENOTCONN))?;
        // SAFETY: places of the caller's.
        unsafe { write(peer, addr, length) };
        Ok(())
    })
}
