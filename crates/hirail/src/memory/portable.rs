//! Accesses that the kernel makes for us, for architectures without assembly routines of ours.
//!
//! `process_vm_readv` and `process_vm_writev` on the own process report a missing page as `EFAULT`,
//! at the price of a system call per copy. Words and atomics must be single instructions, so they
//! are plain ones after the kernel has confirmed that the page is mapped and writable
//! (`MADV_POPULATE_WRITE`, Linux 5.14): if another thread unmaps it in the nanoseconds between, the
//! process gets the signal.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use hirail_rnic::host::Fault;

use super::guard::page_size;

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prepare() {}

/// # Safety
///
/// `from` is readable for `len` bytes; `to` is user memory.
pub(super) unsafe fn copy_to(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    let local = iovec(from, len);
    let remote = iovec(to, len);
    // SAFETY: the kernel checks every address of both vectors.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(copied, len)
}

/// # Safety
///
/// `to` is writable for `len` bytes; `from` is user memory.
pub(super) unsafe fn copy_from(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    let local = iovec(to, len);
    let remote = iovec(from, len);
    // SAFETY: the kernel checks every address of both vectors, and the caller lends `to`.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(copied, len)
}

/// # Safety
///
/// `to` is user memory, aligned to 8.
pub(super) unsafe fn store_8(to: *mut u8, word: u64) -> Result<(), Fault> {
    confirm_writable(to)?;
    // SAFETY: mapped and writable a moment ago; aligned.
    unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is user memory, aligned to 4.
pub(super) unsafe fn store_4(to: *mut u8, word: u32) -> Result<(), Fault> {
    confirm_writable(to)?;
    // SAFETY: mapped and writable a moment ago; aligned.
    unsafe { AtomicU32::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is user memory, aligned to 2.
pub(super) unsafe fn store_2(to: *mut u8, word: u16) -> Result<(), Fault> {
    confirm_writable(to)?;
    // SAFETY: mapped and writable a moment ago; aligned.
    unsafe { AtomicU16::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is user memory.
pub(super) unsafe fn store_1(to: *mut u8, byte: u8) -> Result<(), Fault> {
    confirm_writable(to)?;
    // SAFETY: mapped and writable a moment ago.
    unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `at` is user memory, aligned to 8.
pub(super) unsafe fn fetch_add(at: *mut u8, add: u64) -> Result<u64, Fault> {
    confirm_writable(at)?;
    // SAFETY: mapped and writable a moment ago; aligned.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()) }.fetch_add(add, Ordering::SeqCst))
}

/// # Safety
///
/// `at` is user memory, aligned to 8.
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Result<u64, Fault> {
    confirm_writable(at)?;
    // SAFETY: mapped and writable a moment ago; aligned.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    let (Ok(before) | Err(before)) =
        word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
    Ok(before)
}

/// Makes sure that the page of `at` is there and writable, by asking for it.
fn confirm_writable(at: *mut u8) -> Result<(), Fault> {
    let page = at.with_addr(at.addr() & !(page_size() - 1));
    // SAFETY: populating a page changes none of its bytes.
    match unsafe { libc::madvise(page.cast(), page_size(), libc::MADV_POPULATE_WRITE) } {
        0 => Ok(()),
        _ => Err(Fault),
    }
}

fn iovec(base: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast_mut().cast(),
        iov_len: len,
    }
}

fn whole(copied: isize, len: usize) -> Result<(), Fault> {
    if usize::try_from(copied) == Ok(len) {
        Ok(())
    } else {
        Err(Fault)
    }
}
