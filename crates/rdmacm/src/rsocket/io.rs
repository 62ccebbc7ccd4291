//! The calls that send and receive, in all their forms.

use core::ffi::{c_int, c_void};
use core::slice;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::memory::{Cursor, single};
use super::table::{self, Kind};
use super::{connect, datagram, name, stream, transfer};
use crate::entry;
use crate::errno::Errno;

/// Pieces of the program's memory.
///
/// # Safety
/// There are so many.
unsafe fn pieces<'a>(from: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    /// `UIO_MAXIOV`.
    const MOST: usize = 1024;
    if count > MOST {
        return Err(Errno(libc::EMSGSIZE));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as required of the caller.
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// # Safety
/// The pieces can be read; the address is NULL, or so long.
unsafe fn send(
    fd: c_int,
    from: &[iovec],
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> isize {
    entry::value(|| {
        let socket = table::get(fd)?;
        // SAFETY: as required of the caller.
        let (mut cursor, to) = unsafe { (Cursor::new(from)?, connect::optional(to, to_length)?) };
        match &socket.kind {
            // As the kernel does, a stream takes no notice of an address.
            Kind::Stream(one) => {
                let total = cursor.left();
                let outcome = transfer::send(&socket, one, &mut cursor, flags);
                stream::partly(total - cursor.left(), outcome)
            }
            Kind::Datagram(one) => datagram::send(&socket, one, &mut cursor, flags, to),
        }
    })
}

/// # Safety
/// The pieces can be written; the places for an address are NULL, or so long.
unsafe fn receive(
    fd: c_int,
    into: &[iovec],
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> isize {
    entry::value(|| {
        let socket = table::get(fd)?;
        // SAFETY: as required of the caller.
        let mut cursor = unsafe { Cursor::new(into)? };
        let (done, sender) = match &socket.kind {
            Kind::Stream(one) => {
                let total = cursor.left();
                let outcome = transfer::receive(&socket, one, &mut cursor, flags);
                let done = stream::partly(total - cursor.left(), outcome)?;
                (done, name::peer(&socket))
            }
            Kind::Datagram(one) => {
                let (done, sender) = datagram::receive(&socket, one, &mut cursor, flags)?;
                (done, Some(sender))
            }
        };
        if !from.is_null()
            && !from_length.is_null()
            && let Some(sender) = sender
        {
            // SAFETY: as required of the caller.
            unsafe { name::write(sender, from, from_length) };
        }
        Ok(done)
    })
}

/// `rsend`.
pub(crate) unsafe extern "C" fn rsend(
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: memory of the caller's.
    unsafe { send(fd, &single(from, length), flags, core::ptr::null(), 0) }
}

/// `rsendto`.
pub(crate) unsafe extern "C" fn rsendto(
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> isize {
    // SAFETY: memory and an address of the caller's.
    unsafe { send(fd, &single(from, length), flags, to, to_length) }
}

/// `rsendmsg`. There is nothing to be said beside the data.
pub(crate) unsafe extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    entry::value(|| {
        // SAFETY: a message of the caller's, and what it names.
        unsafe {
            let message = message.as_ref().ok_or(Errno(libc::EFAULT))?;
            if !message.msg_control.is_null() && message.msg_controllen != 0 {
                return Err(Errno(libc::ENOTSUP));
            }
            let from = pieces(message.msg_iov, message.msg_iovlen)?;
            let to = message.msg_name.cast();
            Ok(send(fd, from, flags, to, message.msg_namelen))
        }
    })
}

/// `rwrite`.
pub(crate) unsafe extern "C" fn rwrite(fd: c_int, from: *const c_void, length: usize) -> isize {
    // SAFETY: memory of the caller's.
    unsafe { rsend(fd, from, length, 0) }
}

/// `rwritev`.
pub(crate) unsafe extern "C" fn rwritev(fd: c_int, from: *const iovec, count: c_int) -> isize {
    entry::value(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        // SAFETY: pieces of the caller's.
        unsafe { Ok(send(fd, pieces(from, count)?, 0, core::ptr::null(), 0)) }
    })
}

/// `rrecv`.
pub(crate) unsafe extern "C" fn rrecv(
    fd: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let none = core::ptr::null_mut();
    // SAFETY: memory of the caller's.
    unsafe { rrecvfrom(fd, into, length, flags, none, core::ptr::null_mut()) }
}

/// `rrecvfrom`.
pub(crate) unsafe extern "C" fn rrecvfrom(
    fd: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> isize {
    // SAFETY: memory and places of the caller's.
    unsafe { receive(fd, &single(into, length), flags, from, from_length) }
}

/// `rrecvmsg`.
pub(crate) unsafe extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    entry::value(|| {
        // SAFETY: a message of the caller's, and what it names.
        unsafe {
            let message = message.as_mut().ok_or(Errno(libc::EFAULT))?;
            let into = pieces(message.msg_iov, message.msg_iovlen)?;
            let from = message.msg_name.cast();
            let done = receive(fd, into, flags, from, &raw mut message.msg_namelen);
            message.msg_controllen = 0;
            message.msg_flags = 0;
            Ok(done)
        }
    })
}

/// `rread`.
pub(crate) unsafe extern "C" fn rread(fd: c_int, into: *mut c_void, length: usize) -> isize {
    // SAFETY: memory of the caller's.
    unsafe { rrecv(fd, into, length, 0) }
}

/// `rreadv`.
pub(crate) unsafe extern "C" fn rreadv(fd: c_int, into: *const iovec, count: c_int) -> isize {
    entry::value(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let none = core::ptr::null_mut();
        // SAFETY: pieces of the caller's.
        unsafe {
            let into = pieces(into, count)?;
            Ok(receive(fd, into, 0, none, core::ptr::null_mut()))
        }
    })
}
