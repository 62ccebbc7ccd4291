//! Registering what is not simply memory of the program: a part of a file
//! (`ibv_reg_dmabuf_mr(3)`), a buffer of this library (`ibv_alloc_buf(3)`), or either by the call
//! that knows all (`ibv_reg_mr_ex`).
//!
//! A DMA buffer is reached through a mapping, so any file that can be mapped will do; one whose
//! driver does not let processes map it cannot be registered.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use hirail::Access;
use hirail::memory::OwnedRegion;

use crate::abi;
use crate::abi::reg_mr_mask as mask;
use crate::entry::{Object, device, pointer};
use crate::errno::Errno;
use crate::file::Mapping;
use crate::mr::{self, MrObject, Owner, Place};
use crate::pd::PdObject;
use crate::shared;

/// A part of a file.
struct Part {
    fd: c_int,
    offset: u64,
    length: usize,
}

/// Registers a part of a file.
///
/// # Safety
/// `pd` is a domain of the caller's.
unsafe fn register_file(pd: *mut abi::Pd, part: &Part, iova: u64, flags: c_uint) -> *mut abi::Mr {
    // SAFETY: as required of the caller, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    pointer(context, || {
        let access = Access::from_verbs(flags)?;
        let fd = shared::borrowed(part.fd)?;
        let is_writable = access.contains(Access::LOCAL_WRITE);
        let mapping = Mapping::new(fd, part.offset, part.length, is_writable)?;
        let iova = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            iova
        };
        // SAFETY: nobody else has this mapping; it stays until the registration is gone. That others
        // change the file is expected.
        let mr = unsafe {
            domain
                .pd
                .register_raw_at(mapping.addr(), part.length, iova, access)
        }?;
        let place = Place {
            pd,
            // What other libraries put there.
            addr: ptr::without_provenance_mut(part.offset as usize),
            length: part.length,
            iova,
        };
        let owner = Owner::File { _mapping: mapping };
        Ok(MrObject::hand_out(context, place, mr, owner))
    })
}

/// `ibv_reg_dmabuf_mr`.
pub(crate) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut abi::Pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    flags: c_int,
) -> *mut abi::Mr {
    let part = Part { fd, offset, length };
    // SAFETY: a domain of the caller's.
    unsafe { register_file(pd, &part, iova, flags.cast_unsigned()) }
}

/// Memory that this library has allocated. Programs have the pointer only.
pub(crate) struct BufObject {
    pd: *mut abi::Pd,
    memory: OwnedRegion,
}

/// `ibv_alloc_buf`: memory that begins at a page, as good as any other.
pub(crate) unsafe extern "C" fn alloc_buf(
    pd: *mut abi::Pd,
    size: usize,
    buf: *mut *mut BufObject,
) -> *mut c_void {
    // SAFETY: a domain of the caller's.
    let context = unsafe { device(&raw const (*pd).context) };
    pointer(context, || {
        if size == 0 {
            return Err(Errno::INVALID);
        }
        let memory = OwnedRegion::new(size).ok_or(Errno::NO_MEMORY)?;
        let addr = ptr::with_exposed_provenance_mut(memory.addr());
        let object = Box::new(BufObject { pd, memory });
        // SAFETY: the caller's place.
        unsafe { buf.write(Box::into_raw(object)) };
        Ok(addr)
    })
}

/// `ibv_free_buf`.
pub(crate) unsafe extern "C" fn free_buf(buf: *mut BufObject) {
    // SAFETY: a buffer of the caller's, which gives it up, once.
    drop(unsafe { Box::from_raw(buf) });
}

/// `ibv_export_buf_dmabuf_fd`: no DMA buffer is behind it.
pub(crate) unsafe extern "C" fn export_buf_dmabuf_fd(_: *mut BufObject) -> c_int {
    Errno(libc::ENODATA).set();
    -1
}

/// Whether these bytes lie in the buffer, and the domain is the one that it was allocated in.
fn check(buf: &BufObject, pd: *mut abi::Pd, addr: *mut c_void, length: usize) -> bool {
    let offset = addr.addr().checked_sub(buf.memory.addr());
    let end = offset.and_then(|offset| offset.checked_add(length));
    pd == buf.pd && end.is_some_and(|end| end <= buf.memory.len())
}

/// `ibv_reg_buf_mr`.
pub(crate) unsafe extern "C" fn reg_buf_mr(
    pd: *mut abi::Pd,
    buf: *mut BufObject,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut abi::Mr {
    // SAFETY: a buffer of the caller's.
    if !check(unsafe { &*buf }, pd, addr, length) {
        Errno::INVALID.set();
        return ptr::null_mut();
    }
    // SAFETY: a domain of the caller's.
    unsafe { mr::register(pd, addr, length, None, flags.cast_unsigned()) }
}

/// `ibv_reg_mr_ex`. What a field means is said by the mask; others are not looked at.
pub(crate) unsafe extern "C" fn reg_mr_ex(
    pd: *mut abi::Pd,
    attr: *const abi::MrInitAttr,
) -> *mut abi::Mr {
    let refuse = |errno: Errno| {
        errno.set();
        ptr::null_mut()
    };
    // SAFETY: the caller's, up to the last field that the mask names.
    unsafe {
        let given = (*attr).comp_mask;
        let has = |bits| given & bits != 0;
        let (length, flags) = ((*attr).length, (*attr).access.cast_unsigned());
        let iova = has(mask::IOVA).then(|| (*attr).iova);
        // There are no DMA handles.
        if has(mask::DMAH) || has(!mask::ALL) {
            return refuse(Errno::UNSUPPORTED);
        }
        let is_file = has(mask::FD);
        if is_file != has(mask::FD_OFFSET) || is_file == has(mask::ADDR) {
            return refuse(Errno::INVALID);
        }
        if has(mask::BUF) && (is_file || !check(&*(*attr).buf.cast(), pd, (*attr).addr, length)) {
            return refuse(Errno::INVALID);
        }
        if !is_file {
            return mr::register(pd, (*attr).addr, length, iova, flags);
        }
        let part = Part {
            fd: (*attr).fd,
            offset: (*attr).fd_offset,
            length,
        };
        register_file(pd, &part, iova.unwrap_or(part.offset), flags)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::file;
    use crate::mr::dereg_mr;
    use crate::testing::Opened;

    const RIGHTS: c_int = 1 | 1 << 1;

    fn attr(given: u64) -> abi::MrInitAttr {
        abi::MrInitAttr {
            length: 4096,
            access: RIGHTS,
            comp_mask: given,
            iova: 0x1_0000,
            addr: ptr::null_mut(),
            fd: -1,
            fd_offset: 0,
            dmah: ptr::null_mut(),
            buf: ptr::null_mut(),
        }
    }

    #[test]
    fn a_part_of_a_file_is_registered_through_a_mapping() {
        let opened = Opened::new();
        let file = file::in_memory(c"test", 3 * 4096).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: regions are given up before their domain.
        unsafe {
            let mr = reg_dmabuf_mr(opened.pd, 5000, 4096, 0x7000, fd, RIGHTS);
            assert_eq!(((*mr).addr.addr(), (*mr).length), (5000, 4096));
            // What a copy into the region leaves is in the file.
            let seen = Mapping::new(file.as_fd(), 5000, 4096, false).unwrap();
            MrObject::of(mr).registered().write(1, b"peer");
            let seen = std::slice::from_raw_parts(seen.addr(), 6);
            assert_eq!(seen, b"\0peer\0");
            assert_eq!(dereg_mr(mr), 0);

            assert!(reg_dmabuf_mr(opened.pd, 0, 4096, 0, -1, RIGHTS).is_null());
            assert_eq!(Errno::last(), Errno(libc::EBADF));
            let (reader, _writer) = std::io::pipe().unwrap();
            assert!(reg_dmabuf_mr(opened.pd, 0, 4096, 0, reader.as_raw_fd(), 0).is_null());
            assert_eq!(Errno::last(), Errno(libc::ENODEV));
        }
    }

    #[test]
    fn the_mask_says_what_is_registered() {
        let opened = Opened::new();
        let file = file::in_memory(c"test", 3 * 4096).unwrap();
        let mut memory = [0u64; 512];
        let addr: *mut c_void = memory.as_mut_ptr().cast();
        let mut buf = ptr::null_mut();
        // SAFETY: regions are given up before their domain and their memory.
        unsafe {
            let inside = alloc_buf(opened.pd, 8192, &raw mut buf);
            assert!(inside.addr().is_multiple_of(4096));
            let reg = |attr: abi::MrInitAttr| {
                let mr = reg_mr_ex(opened.pd, &raw const attr);
                if mr.is_null() {
                    return Err(Errno::last().0);
                }
                let place = (
                    (*mr).addr.addr(),
                    MrObject::of(mr).registered().remote().addr,
                );
                assert_eq!(dereg_mr(mr), 0);
                Ok(place)
            };
            let with_addr = |given| abi::MrInitAttr {
                addr,
                ..attr(given)
            };
            let at = addr.addr();
            assert_eq!(reg(with_addr(mask::ADDR)), Ok((at, at as u64)));
            let given = mask::ADDR | mask::IOVA;
            assert_eq!(reg(with_addr(given)), Ok((at, 0x1_0000)));
            let with_fd = |given| abi::MrInitAttr {
                fd: file.as_raw_fd(),
                fd_offset: 4096,
                ..attr(given)
            };
            let given = mask::FD | mask::FD_OFFSET;
            assert_eq!(reg(with_fd(given)), Ok((4096, 4096)));
            let with_buf = |length| abi::MrInitAttr {
                addr: inside.wrapping_byte_add(4096),
                length,
                buf: buf.cast(),
                ..attr(mask::ADDR | mask::BUF)
            };
            let at = inside.addr() + 4096;
            assert_eq!(reg(with_buf(4096)), Ok((at, at as u64)));
            for refused in [
                with_addr(0),
                with_addr(mask::ADDR | mask::FD_OFFSET),
                with_fd(mask::FD),
                with_fd(mask::FD | mask::FD_OFFSET | mask::ADDR),
                with_buf(4097),
            ] {
                assert_eq!(reg(refused), Err(libc::EINVAL));
            }
            for unknown in [mask::DMAH, mask::ALL + 1] {
                let given = mask::ADDR | unknown;
                assert_eq!(reg(with_addr(given)), Err(libc::EOPNOTSUPP));
            }
            let mr = reg_buf_mr(opened.pd, buf, inside, 8192, RIGHTS);
            assert_eq!((*mr).addr, inside);
            assert_eq!(dereg_mr(mr), 0);
            assert!(reg_buf_mr(opened.pd, buf, inside, 8193, RIGHTS).is_null());
            assert_eq!(export_buf_dmabuf_fd(buf), -1);
            assert_eq!(Errno::last(), Errno(libc::ENODATA));
            free_buf(buf);
        }
    }
}
