//! Addresses, options and modes. What is set is set for the kernel's socket, too, which may have to
//! take over.

use core::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use crate::function::{next, rsockets};
use crate::socket::copied;
use crate::table::{self, Inside};

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                let _inside = Inside::new();
                rsockets::rgetpeername(rsocket, address, length)
            }
            None => next::getpeername(fd, address, length),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                let _inside = Inside::new();
                rsockets::rgetsockname(rsocket, address, length)
            }
            None => next::getsockname(fd, address, length),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if let Some(rsocket) = table::find(fd) {
            let _inside = Inside::new();
            // What has no meaning there is the kernel's to judge.
            rsockets::rsetsockopt(rsocket, level, name, value, length);
        }
        next::setsockopt(fd, level, name, value, length)
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if let Some(rsocket) = table::find(fd) {
            let _inside = Inside::new();
            if rsockets::rgetsockopt(rsocket, level, name, value, length) == 0 {
                return 0;
            }
        }
        next::getsockopt(fd, level, name, value, length)
    }
}

/// The last argument may be left out; then what is passed on is not looked at.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match (table::find(fd), command) {
            (Some(rsocket), libc::F_SETFL) => {
                let _inside = Inside::new();
                rsockets::rfcntl(rsocket, command, argument);
                next::fcntl(fd, command, argument)
            }
            (Some(_), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                copied(fd, next::fcntl(fd, command, argument))
            }
            _ => next::fcntl(fd, command, argument),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, argument) }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if let Some(rsocket) = table::find(fd)
            && request == libc::FIONBIO
            && !argument.is_null()
        {
            let mode = match argument.cast::<c_int>().read_unaligned() {
                0 => libc::O_RDWR,
                _ => libc::O_RDWR | libc::O_NONBLOCK,
            };
            let _inside = Inside::new();
            rsockets::rfcntl(rsocket, libc::F_SETFL, mode as c_ulong);
        }
        next::ioctl(fd, request, argument)
    }
}
