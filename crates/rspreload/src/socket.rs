//! Making sockets, connecting and closing them.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use crate::function::{next, rsockets};
use crate::table::{self, Inside};

/// The process that makes rsockets: a forked child has none.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Flags of the kernel in the type of a socket.
const TYPE_FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Whether this thread is one of hirail's own: they are told by their names.
fn is_own_thread() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: sixteen bytes are there.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"hirail-")
}

/// Whether a socket of this kind can be an rsocket, in this thread and process.
fn is_wanted(family: c_int, kind: c_int, protocol: c_int) -> bool {
    let fits = matches!(family, libc::AF_INET | libc::AF_INET6)
        && matches!(
            (kind & !TYPE_FLAGS, protocol),
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) | (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP)
        );
    if !fits || table::is_inside() || is_own_thread() {
        return false;
    }
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() };
    let owner = OWNER.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed);
    owner.is_ok() || owner == Err(process)
}

fn errno() -> c_int {
    // SAFETY: this thread's.
    unsafe { *libc::__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number };
}

/// Gives an rsocket a socket of the kernel to stand for it; the program's descriptor.
fn pair(rsocket: c_int, family: c_int, kind: c_int) -> c_int {
    // SAFETY: no preconditions.
    let fd = unsafe { next::socket(family, kind, 0) };
    if fd >= 0 && table::set(fd, rsocket) {
        return fd;
    }
    let number = if fd < 0 { errno() } else { libc::EMFILE };
    // SAFETY: descriptors of ours.
    unsafe {
        let _inside = Inside::new();
        rsockets::rclose(rsocket);
        if fd >= 0 {
            next::close(fd);
        }
    }
    set_errno(number);
    -1
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !is_wanted(family, kind, protocol) {
        // SAFETY: no preconditions.
        return unsafe { next::socket(family, kind, protocol) };
    }
    let rsocket = {
        let _inside = Inside::new();
        // SAFETY: no preconditions.
        unsafe { rsockets::rsocket(family, kind & !libc::SOCK_CLOEXEC, protocol) }
    };
    if rsocket < 0 {
        // SAFETY: no preconditions.
        return unsafe { next::socket(family, kind, protocol) };
    }
    pair(rsocket, family, kind)
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                let _inside = Inside::new();
                rsockets::rbind(rsocket, address, length)
            }
            None => next::bind(fd, address, length),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                let _inside = Inside::new();
                rsockets::rlisten(rsocket, backlog)
            }
            None => next::listen(fd, backlog),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let Some(listener) = table::find(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::accept4(fd, address, length, flags) };
    };
    let mut family: c_int = libc::AF_INET;
    let mut size = size_of::<c_int>() as socklen_t;
    let place: *mut c_int = &raw mut family;
    // SAFETY: the caller's arguments, and places on the stack.
    unsafe {
        let place = place.cast::<c_void>();
        next::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, place, &raw mut size);
        let rsocket = {
            let _inside = Inside::new();
            let rsocket = rsockets::raccept(listener, address, length);
            if rsocket >= 0 && flags & libc::SOCK_NONBLOCK != 0 {
                let mode = libc::O_RDWR | libc::O_NONBLOCK;
                rsockets::rfcntl(rsocket, libc::F_SETFL, mode as libc::c_ulong);
            }
            rsocket
        };
        if rsocket < 0 {
            return -1;
        }
        pair(rsocket, family, libc::SOCK_STREAM | flags & TYPE_FLAGS)
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { accept4(fd, address, length, 0) }
}

/// The kernel's socket takes over where the peer has no rsocket.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let Some(rsocket) = table::find(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::connect(fd, address, length) };
    };
    // SAFETY: the caller's arguments, and places on the stack.
    unsafe {
        let mut local: sockaddr_storage = core::mem::zeroed();
        let mut size = size_of_val(&local) as socklen_t;
        {
            let _inside = Inside::new();
            let bound = rsockets::rgetsockname(rsocket, (&raw mut local).cast(), &raw mut size);
            let done = rsockets::rconnect(rsocket, address, length);
            let stays = [
                libc::EINPROGRESS,
                libc::EALREADY,
                libc::EISCONN,
                libc::EINTR,
            ];
            if done == 0 || stays.contains(&errno()) {
                return done;
            }
            if bound != 0 {
                size = 0;
            }
        }
        if let Some(last) = table::take(fd) {
            let _inside = Inside::new();
            rsockets::rclose(last);
        }
        // Where the program had bound it, so is this.
        if size > 0 {
            next::bind(fd, (&raw const local).cast(), size);
        }
        next::connect(fd, address, length)
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                let _inside = Inside::new();
                rsockets::rshutdown(rsocket, how)
            }
            None => next::shutdown(fd, how),
        }
    }
}

/// A descriptor is about to mean nothing. An rsocket that nobody means any more is closed, by the
/// process that has made it.
fn forget(fd: c_int) {
    if table::is_inside() {
        return;
    }
    table::unmark_set(fd);
    let Some(rsocket) = table::take(fd) else {
        return;
    };
    // SAFETY: no preconditions; an rsocket of ours.
    unsafe {
        if libc::getpid() == OWNER.load(Ordering::Relaxed) {
            let _inside = Inside::new();
            rsockets::rclose(rsocket);
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: the caller's argument.
    unsafe { next::close(fd) }
}

/// `copy` means what `fd` means.
pub(crate) fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0
        && let Some(rsocket) = table::find(fd)
    {
        table::set(copy, rsocket);
    }
    copy
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    copied(fd, unsafe { next::dup(fd) })
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd != to {
        forget(to);
    }
    // SAFETY: the caller's arguments.
    let copy = unsafe { next::dup2(fd, to) };
    if fd == to { copy } else { copied(fd, copy) }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if fd != to {
        forget(to);
    }
    // SAFETY: the caller's arguments.
    copied(fd, unsafe { next::dup3(fd, to, flags) })
}
