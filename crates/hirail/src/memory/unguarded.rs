//! Accesses for Miri, which executes neither assembly nor system calls of this kind: relaxed
//! atomics, byte by byte. Memory is always mapped there.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use hirail_rnic::host::Fault;

pub(super) fn prepare() {}

/// # Safety
///
/// `from` is readable for `len` bytes, `to` is writable.
pub(super) unsafe fn copy_to(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    for i in 0..len {
        // SAFETY: as required of the caller.
        unsafe { AtomicU8::from_ptr(to.add(i)).store(from.add(i).read(), Ordering::Relaxed) };
    }
    Ok(())
}

/// # Safety
///
/// `to` is writable for `len` bytes, `from` is readable and writable.
pub(super) unsafe fn copy_from(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    for i in 0..len {
        // SAFETY: as required of the caller.
        let byte = unsafe { AtomicU8::from_ptr(from.add(i).cast_mut()) }.load(Ordering::Relaxed);
        // SAFETY: as required of the caller.
        unsafe { to.add(i).write(byte) };
    }
    Ok(())
}

/// # Safety
///
/// `to` is writable and aligned to 8.
pub(super) unsafe fn store_8(to: *mut u8, word: u64) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is writable and aligned to 4.
pub(super) unsafe fn store_4(to: *mut u8, word: u32) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { AtomicU32::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is writable and aligned to 2.
pub(super) unsafe fn store_2(to: *mut u8, word: u16) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { AtomicU16::from_ptr(to.cast()) }.store(word, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `to` is writable.
pub(super) unsafe fn store_1(to: *mut u8, byte: u8) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// `at` is writable and aligned to 8.
pub(super) unsafe fn fetch_add(at: *mut u8, add: u64) -> Result<u64, Fault> {
    // SAFETY: as required of the caller.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()) }.fetch_add(add, Ordering::SeqCst))
}

/// # Safety
///
/// `at` is writable and aligned to 8.
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Result<u64, Fault> {
    // SAFETY: as required of the caller.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    let (Ok(before) | Err(before)) =
        word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
    Ok(before)
}
