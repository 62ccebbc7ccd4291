//! Functions by their names: of the C library behind this one, and of rsockets.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Where a function is.
pub(crate) enum Source {
    /// Behind this library.
    Next,
    /// In `librdmacm.so.1`, of hirail or another.
    Rsockets,
}

/// A function by its name, found when it is needed first.
pub(crate) struct Function {
    name: &'static CStr,
    source: Source,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static CStr, source: Source) -> Self {
        Self {
            name,
            source,
            found: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null where there is none.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the names end with zeros; a library that was loaded stays.
        let found = unsafe {
            match self.source {
                Source::Next => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()),
                Source::Rsockets => {
                    let library = libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW);
                    if library.is_null() {
                        ptr::null_mut()
                    } else {
                        libc::dlsym(library, self.name.as_ptr())
                    }
                }
            }
        };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Functions of the C library (`next`) and of rsockets (`rsockets`), to be called like any other.
/// Where one is missing the answer is −1 and `ENOSYS`.
macro_rules! functions {
    ($source:ident { $( fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty; )* }) => { $(
        /// # Safety
        /// As for the function of this name.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            static FOUND: $crate::function::Function = {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                match core::ffi::CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => {
                        $crate::function::Function::new(name, $crate::function::Source::$source)
                    }
                    Err(_) => panic!("a name without a zero in it"),
                }
            };
            type Pointer = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: null or the function of this name.
            let function = unsafe {
                core::mem::transmute::<*mut core::ffi::c_void, Option<Pointer>>(FOUND.address())
            };
            let Some(function) = function else {
                // SAFETY: this thread's.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                return -1;
            };
            // SAFETY: as required of the caller.
            unsafe { function($($argument),*) }
        }
    )* };
}

/// The functions behind this library's.
pub(crate) mod next {
    use core::ffi::{c_int, c_ulong, c_void};

    use libc::{
        epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t,
        timespec, timeval,
    };

    functions! { Next {
        fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
        fn listen(fd: c_int, backlog: c_int) -> c_int;
        fn accept4(fd: c_int, a: *mut sockaddr, l: *mut socklen_t, flags: c_int) -> c_int;
        fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
        fn shutdown(fd: c_int, how: c_int) -> c_int;
        fn close(fd: c_int) -> c_int;
        fn dup(fd: c_int) -> c_int;
        fn dup2(fd: c_int, to: c_int) -> c_int;
        fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
        fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn setsockopt(fd: c_int, l: c_int, n: c_int, v: *const c_void, s: socklen_t) -> c_int;
        fn getsockopt(fd: c_int, l: c_int, n: c_int, v: *mut c_void, s: *mut socklen_t) -> c_int;
        fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
        fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
        fn read(fd: c_int, to: *mut c_void, size: usize) -> isize;
        fn readv(fd: c_int, to: *const iovec, count: c_int) -> isize;
        fn recv(fd: c_int, to: *mut c_void, size: usize, flags: c_int) -> isize;
        fn recvfrom(fd: c_int, to: *mut c_void, size: usize, flags: c_int, a: *mut sockaddr, l: *mut socklen_t) -> isize;
        fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
        fn write(fd: c_int, from: *const c_void, size: usize) -> isize;
        fn writev(fd: c_int, from: *const iovec, count: c_int) -> isize;
        fn send(fd: c_int, from: *const c_void, size: usize, flags: c_int) -> isize;
        fn sendto(fd: c_int, from: *const c_void, size: usize, flags: c_int, a: *const sockaddr, l: socklen_t) -> isize;
        fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
        fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: usize) -> isize;
        fn poll(polls: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        fn ppoll(p: *mut pollfd, n: nfds_t, t: *const timespec, mask: *const sigset_t) -> c_int;
        fn select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, t: *mut timeval) -> c_int;
        fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        fn epoll_wait(set: c_int, to: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
        fn epoll_pwait(set: c_int, to: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    } }
}

/// The functions of rsockets.
pub(crate) mod rsockets {
    use core::ffi::{c_int, c_ulong, c_void};

    use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, sockaddr, socklen_t};

    functions! { Rsockets {
        fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
        fn rlisten(fd: c_int, backlog: c_int) -> c_int;
        fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
        fn rshutdown(fd: c_int, how: c_int) -> c_int;
        fn rclose(fd: c_int) -> c_int;
        fn rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn rsetsockopt(fd: c_int, l: c_int, n: c_int, v: *const c_void, s: socklen_t) -> c_int;
        fn rgetsockopt(fd: c_int, l: c_int, n: c_int, v: *mut c_void, s: *mut socklen_t) -> c_int;
        fn rfcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
        fn rread(fd: c_int, to: *mut c_void, size: usize) -> isize;
        fn rreadv(fd: c_int, to: *const iovec, count: c_int) -> isize;
        fn rrecv(fd: c_int, to: *mut c_void, size: usize, flags: c_int) -> isize;
        fn rrecvfrom(fd: c_int, to: *mut c_void, size: usize, flags: c_int, a: *mut sockaddr, l: *mut socklen_t) -> isize;
        fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
        fn rwrite(fd: c_int, from: *const c_void, size: usize) -> isize;
        fn rwritev(fd: c_int, from: *const iovec, count: c_int) -> isize;
        fn rsend(fd: c_int, from: *const c_void, size: usize, flags: c_int) -> isize;
        fn rsendto(fd: c_int, from: *const c_void, size: usize, flags: c_int, a: *const sockaddr, l: socklen_t) -> isize;
        fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
        fn rpoll(polls: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        fn repoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        fn repoll_wait(set: c_int, to: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    } }
}
