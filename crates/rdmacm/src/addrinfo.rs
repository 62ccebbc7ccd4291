//! `rdma_getaddrinfo`: names, as the C library resolves them, for rdma_cm.

use core::ffi::{c_char, c_int};
use core::mem;
use std::ptr;

use hirail_abi::RdmaAddrInfo;
use libc::{addrinfo, sockaddr, socklen_t};

use crate::entry::{nothing, number};
use crate::errno::Errno;
use crate::id::{qp_type, space};

/// `RAI_PASSIVE`.
pub(crate) const PASSIVE: c_int = 1;
/// `RAI_NUMERICHOST`.
const NUMERIC_HOST: c_int = 2;
/// `RAI_FAMILY`: the family in the hints is meant.
const FAMILY: c_int = 8;

/// `struct sockaddr_ib` and its family: nothing here has InfiniBand's addresses.
const AF_IB: c_int = 27;

/// What the C library is asked, by what rdma_cm is asked.
fn hints_of(hints: &RdmaAddrInfo) -> addrinfo {
    // SAFETY: numbers and NULL.
    let mut to: addrinfo = unsafe { mem::zeroed() };
    if hints.flags & PASSIVE != 0 {
        to.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.flags & NUMERIC_HOST != 0 {
        to.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.flags & FAMILY != 0 {
        to.ai_family = hints.family;
    }
    to.ai_socktype = if is_datagram(hints) {
        libc::SOCK_DGRAM
    } else {
        libc::SOCK_STREAM
    };
    to
}

fn is_datagram(hints: &RdmaAddrInfo) -> bool {
    match hints.port_space {
        space::UDP | space::IPOIB => true,
        space::TCP | space::IB => false,
        _ => hints.qp_type == qp_type::UD,
    }
}

/// A copy that `rdma_freeaddrinfo` frees.
///
/// # Safety
/// That many bytes are there.
unsafe fn copy(from: *const sockaddr, length: socklen_t) -> Result<*mut sockaddr, Errno> {
    let length = length as usize;
    // SAFETY: as required of the caller.
    unsafe {
        let to = Errno::check_pointer(libc::malloc(length))?;
        ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), length);
        Ok(to.cast())
    }
}

/// A number of `gai_strerror` where a name was not found; else as always.
fn outcome(job: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    let mut said = 0;
    match number(|| job().map(|code| said = code)) {
        0 => said,
        failed => failed,
    }
}

/// `rdma_getaddrinfo`.
pub(crate) unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrInfo,
    to: *mut *mut RdmaAddrInfo,
) -> c_int {
    outcome(|| {
        // SAFETY: text, hints and a place of the caller's; what the C library gives is freed once.
        unsafe {
            let hints = hints.as_ref();
            if node.is_null() && service.is_null() && hints.is_none() {
                return Err(Errno::INVALID);
            }
            if hints.is_some_and(|hints| hints.flags & FAMILY != 0 && hints.family == AF_IB) {
                return Err(Errno::UNSUPPORTED);
            }
            if let Some(hints) = hints.filter(|_| node.is_null() && service.is_null()) {
                to.write(as_given(hints)?);
                return Ok(0);
            }
            let asked = hints.map(hints_of);
            let asked = asked.as_ref().map_or(ptr::null(), ptr::from_ref);
            let mut found = ptr::null_mut();
            let code = libc::getaddrinfo(node, service, asked, &raw mut found);
            if code != 0 {
                return Ok(code);
            }
            let made = convert(&*found, hints);
            libc::freeaddrinfo(found);
            to.write(made?);
            Ok(0)
        }
    })
}

/// The addresses in the hints, where there is no name.
///
/// # Safety
/// What the hints name is there.
unsafe fn as_given(hints: &RdmaAddrInfo) -> Result<*mut RdmaAddrInfo, Errno> {
    // SAFETY: numbers and NULL.
    let made = Box::into_raw(Box::new(unsafe { mem::zeroed::<RdmaAddrInfo>() }));
    // SAFETY: as required of the caller; the structure is ours.
    unsafe {
        let info = &mut *made;
        info.flags = hints.flags;
        info.family = hints.family;
        info.qp_type = hints.qp_type;
        info.port_space = hints.port_space;
        let mut copied = || {
            for (from, length, to, to_length) in [
                (
                    hints.src_addr,
                    hints.src_len,
                    &mut info.src_addr,
                    &mut info.src_len,
                ),
                (
                    hints.dst_addr,
                    hints.dst_len,
                    &mut info.dst_addr,
                    &mut info.dst_len,
                ),
            ] {
                if !from.is_null() && length > 0 {
                    *to = copy(from, length)?;
                    *to_length = length;
                }
            }
            Ok(made)
        };
        copied().inspect_err(|_| freeaddrinfo(made))
    }
}

/// What rdma_cm says of the first address found.
///
/// # Safety
/// What the C library and the hints name is there.
unsafe fn convert(
    found: &addrinfo,
    hints: Option<&RdmaAddrInfo>,
) -> Result<*mut RdmaAddrInfo, Errno> {
    // SAFETY: numbers and NULL.
    let mut made: RdmaAddrInfo = unsafe { mem::zeroed() };
    if let Some(hints) = hints {
        made.flags = hints.flags;
    }
    made.family = found.ai_family;
    let is_datagram = hints.map_or(found.ai_socktype == libc::SOCK_DGRAM, is_datagram);
    let given = |of: fn(&RdmaAddrInfo) -> c_int| hints.map(of).filter(|it| *it != 0);
    let (port_space, kind) = if is_datagram {
        (space::UDP, qp_type::UD)
    } else {
        (space::TCP, qp_type::RC)
    };
    made.port_space = given(|hints| hints.port_space).unwrap_or(port_space);
    made.qp_type = given(|hints| hints.qp_type).unwrap_or(kind);
    let made = Box::into_raw(Box::new(made));
    // SAFETY: as required of the caller; the structure is ours.
    unsafe {
        let filled = fill(&mut *made, found, hints);
        filled.inspect_err(|_| freeaddrinfo(made)).map(|()| made)
    }
}

/// Fills the addresses in.
///
/// # Safety
/// What the C library and the hints name is there.
unsafe fn fill(
    made: &mut RdmaAddrInfo,
    found: &addrinfo,
    hints: Option<&RdmaAddrInfo>,
) -> Result<(), Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        let address = copy(found.ai_addr, found.ai_addrlen)?;
        let name = if found.ai_canonname.is_null() {
            ptr::null_mut()
        } else {
            libc::strdup(found.ai_canonname)
        };
        if made.flags & PASSIVE != 0 {
            (made.src_addr, made.src_len) = (address, found.ai_addrlen);
            made.src_canonname = name;
            return Ok(());
        }
        (made.dst_addr, made.dst_len) = (address, found.ai_addrlen);
        made.dst_canonname = name;
        if let Some(hints) = hints.filter(|hints| !hints.src_addr.is_null() && hints.src_len > 0) {
            made.src_addr = copy(hints.src_addr, hints.src_len)?;
            made.src_len = hints.src_len;
        }
    }
    Ok(())
}

/// `rdma_freeaddrinfo`.
pub(crate) unsafe extern "C" fn freeaddrinfo(info: *mut RdmaAddrInfo) {
    nothing(|| {
        let mut next = info;
        while !next.is_null() {
            // SAFETY: a structure of ours, once, and what it names came from `malloc`. The program
            // may have put what it says into it: that came from there as well.
            unsafe {
                let info = Box::from_raw(next);
                next = info.next;
                libc::free(info.src_addr.cast());
                libc::free(info.dst_addr.cast());
                libc::free(info.src_canonname.cast());
                libc::free(info.dst_canonname.cast());
                libc::free(info.route);
                libc::free(info.connect);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::address;

    fn ask(node: &core::ffi::CStr, flags: c_int, port_space: c_int) -> (SocketAddr, c_int, c_int) {
        // SAFETY: text and hints that are there; what was made is freed once.
        unsafe {
            let mut hints: RdmaAddrInfo = mem::zeroed();
            hints.flags = flags | NUMERIC_HOST;
            hints.port_space = port_space;
            let mut made = ptr::null_mut();
            let code = getaddrinfo(
                node.as_ptr(),
                c"7471".as_ptr(),
                &raw const hints,
                &raw mut made,
            );
            assert_eq!(code, 0);
            let info = &*made;
            let (there, other) = if flags & PASSIVE != 0 {
                (info.src_addr, info.dst_addr)
            } else {
                (info.dst_addr, info.src_addr)
            };
            assert!(other.is_null());
            let said = (address::read(there).unwrap(), info.port_space, info.qp_type);
            freeaddrinfo(made);
            said
        }
    }

    #[test]
    fn names_become_addresses_and_spaces_kinds_of_queue_pairs() {
        let here: SocketAddr = "127.0.0.1:7471".parse().unwrap();
        let there: SocketAddr = "[::1]:7471".parse().unwrap();
        assert_eq!(
            ask(c"127.0.0.1", 0, space::TCP),
            (here, space::TCP, qp_type::RC)
        );
        assert_eq!(
            ask(c"::1", PASSIVE, space::UDP),
            (there, space::UDP, qp_type::UD)
        );
        assert_eq!(ask(c"127.0.0.1", 0, 0), (here, space::TCP, qp_type::RC));
    }

    #[test]
    fn addresses_without_a_name_are_taken_as_they_are() {
        let here: SocketAddr = "192.0.2.7:7471".parse().unwrap();
        let mut given = address::write(here);
        // SAFETY: hints that are there; what was made is freed once.
        unsafe {
            let mut hints: RdmaAddrInfo = mem::zeroed();
            hints.flags = PASSIVE;
            hints.src_addr = (&raw mut given).cast();
            hints.src_len = size_of_val(&given) as socklen_t;
            let mut made = ptr::null_mut();
            let code = getaddrinfo(ptr::null(), ptr::null(), &raw const hints, &raw mut made);
            assert_eq!(code, 0);
            assert_eq!(address::read((*made).src_addr).unwrap(), here);
            assert!((*made).dst_addr.is_null());
            assert_eq!((*made).flags, PASSIVE);
            freeaddrinfo(made);
        }
    }

    #[test]
    fn what_is_no_address_is_told_by_the_numbers_of_the_resolver() {
        // SAFETY: text and hints that are there.
        unsafe {
            let mut hints: RdmaAddrInfo = mem::zeroed();
            hints.flags = NUMERIC_HOST;
            let mut made = ptr::null_mut();
            let code = getaddrinfo(
                c"no address".as_ptr(),
                ptr::null(),
                &raw const hints,
                &raw mut made,
            );
            assert_eq!(code, libc::EAI_NONAME);
            let nothing = getaddrinfo(ptr::null(), ptr::null(), ptr::null(), &raw mut made);
            assert_eq!((nothing, Errno::last()), (-1, Errno::INVALID));
        }
    }
}
