//! The calls that move bytes.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};

use crate::function::{next, rsockets};
use crate::table::{self, Inside};

/// Calls that are those of rsockets, where the descriptor means one.
macro_rules! route {
    ($( fn $name:ident(fd $(, $argument:ident: $type:ty)*) -> $result:ty => $other:ident; )*) => { $(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fd: c_int $(, $argument: $type)*) -> $result {
            // SAFETY: the caller's arguments.
            unsafe {
                match table::find(fd) {
                    Some(rsocket) => {
                        let _inside = Inside::new();
                        rsockets::$other(rsocket $(, $argument)*)
                    }
                    None => next::$name(fd $(, $argument)*),
                }
            }
        }
    )* };
}

route! {
    fn read(fd, to: *mut c_void, size: usize) -> isize => rread;
    fn readv(fd, to: *const iovec, count: c_int) -> isize => rreadv;
    fn recv(fd, to: *mut c_void, size: usize, flags: c_int) -> isize => rrecv;
    fn recvfrom(fd, to: *mut c_void, size: usize, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> isize => rrecvfrom;
    fn recvmsg(fd, message: *mut msghdr, flags: c_int) -> isize => rrecvmsg;
    fn write(fd, from: *const c_void, size: usize) -> isize => rwrite;
    fn writev(fd, from: *const iovec, count: c_int) -> isize => rwritev;
    fn send(fd, from: *const c_void, size: usize, flags: c_int) -> isize => rsend;
    fn sendto(fd, from: *const c_void, size: usize, flags: c_int, to: *const sockaddr, length: socklen_t) -> isize => rsendto;
    fn sendmsg(fd, message: *const msghdr, flags: c_int) -> isize => rsendmsg;
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, size: usize, room: usize) -> isize {
    if size > room {
        // SAFETY: it does not come back.
        unsafe { libc::abort() };
    }
    // SAFETY: the caller's arguments.
    unsafe { read(fd, to, size) }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    size: usize,
    room: usize,
    flags: c_int,
) -> isize {
    if size > room {
        // SAFETY: it does not come back.
        unsafe { libc::abort() };
    }
    // SAFETY: the caller's arguments.
    unsafe { recv(fd, to, size, flags) }
}

/// A file is copied by way of the stack.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: usize) -> isize {
    let Some(rsocket) = table::find(to) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::sendfile(to, from, at, count) };
    };
    let mut buffer = [0u8; 16384];
    let mut done = 0;
    while done < count {
        let some = buffer.len().min(count - done);
        // SAFETY: so much room, and the caller's place.
        let sent = unsafe {
            let start = match at.as_ref() {
                Some(at) => *at,
                None => libc::lseek(from, 0, libc::SEEK_CUR),
            };
            let read = libc::pread(from, buffer.as_mut_ptr().cast(), some, start);
            let Ok(read) = usize::try_from(read) else {
                break;
            };
            if read == 0 {
                return done.cast_signed();
            }
            let inside = Inside::new();
            let sent = rsockets::rwrite(rsocket, buffer.as_ptr().cast(), read);
            drop(inside);
            if sent > 0 {
                match at.as_mut() {
                    Some(at) => *at += sent as off_t,
                    None => {
                        libc::lseek(from, start + sent as off_t, libc::SEEK_SET);
                    }
                }
            }
            sent
        };
        match usize::try_from(sent) {
            Ok(sent) => done += sent,
            Err(_) => break,
        }
    }
    if done == 0 && count > 0 {
        -1
    } else {
        done.cast_signed()
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, count: usize) -> isize {
    // SAFETY: the caller's arguments.
    unsafe { sendfile(to, from, at, count) }
}
