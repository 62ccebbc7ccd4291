//! Memory behind descriptors: files of memory, what identifies an open file, and mappings.

use core::ffi::CStr;
use core::ptr::{self, NonNull};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::errno::Errno;

/// Device and inode: the same for all duplicates of a descriptor, also those in other processes.
pub(crate) type Identity = (u64, u64);

/// What file a descriptor is of.
///
/// # Errors
/// `EBADF`: it is not open.
pub(crate) fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    // SAFETY: plain numbers, which the call fills in.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: one structure.
    if unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(Errno::last());
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// A new file that is nowhere but in memory (`memfd_create(2)`).
///
/// # Errors
/// The process has no descriptor left, or there is no memory.
pub(crate) fn in_memory(name: &CStr, bytes: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: text that ends with a zero.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: a descriptor that was just made, and nobody else knows.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let file = File::from(fd);
    file.set_len(bytes).map_err(|_| Errno::last())?;
    Ok(file.into())
}

/// Bytes of a page.
fn page_size() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned()
}

/// A part of a file, mapped into this process and shared with all others that map it.
pub(crate) struct Mapping {
    /// Where the page begins that the part begins in.
    start: NonNull<u8>,
    whole: usize,
    /// How far in that page it begins.
    offset: usize,
}

// SAFETY: it is an address; what is there is accessed by guarded copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// What `mmap(2)` says: it cannot be mapped, or not be written.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        is_writable: bool,
    ) -> Result<Self, Errno> {
        let within = offset % page_size();
        let whole = length.checked_add(within as usize).ok_or(Errno::INVALID)?;
        let from = libc::off_t::try_from(offset - within).map_err(|_| Errno::INVALID)?;
        let access = if is_writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: a fresh mapping where the kernel likes.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole,
                access,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                from,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("the kernel maps nothing at NULL by itself"),
            whole,
            offset: within as usize,
        })
    }

    /// Where the part begins.
    pub(crate) fn addr(&self) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and who has an address in it is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole) };
    }
}
