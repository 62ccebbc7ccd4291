//! The primitives that touch user memory. Each returns [`Fault`] where a page is unmapped or not
//! writable; bytes before that page may have been copied.
//!
//! x86-64 has assembly routines that the signal handler recognises. Other architectures go through
//! the kernel (`portable`), which is slower and leaves a window for atomics. Under Miri, which has
//! neither assembly nor signals, accesses are relaxed atomics and faults do not exist.

#[cfg(all(not(target_arch = "x86_64"), not(miri)))]
use super::portable as backend;
#[cfg(miri)]
use super::unguarded as backend;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86_64 as backend;

use hirail_rnic::host::Fault;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use hirail_wire::icrc::FOLD;
use hirail_wire::icrc::Icrc;

/// From this length on folding saves more than its block costs in the end.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FOLD_FROM: usize = 512;

/// Whatever must be in place before the first access. Cheap when repeated.
pub(super) fn prepare() {
    backend::prepare();
}

/// Copies `bytes` to user memory, in no particular order.
#[inline]
pub(super) fn copy_to(to: *mut u8, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: `bytes` is readable for its length, and `to` is user memory.
    unsafe { backend::copy_to(to, bytes.as_ptr(), bytes.len()) }
}

/// Copies user memory to `bytes`.
#[inline]
pub(super) fn copy_from(from: *const u8, bytes: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `bytes` is writable for its length, and `from` is user memory.
    unsafe { backend::copy_from(bytes.as_mut_ptr(), from, bytes.len()) }
}

/// Copies user memory to `bytes` and covers the copy with `icrc`: in one pass where the processor
/// can, else in two.
#[inline]
pub(super) fn copy_from_covering(
    from: *const u8,
    bytes: &mut [u8],
    icrc: &mut Icrc,
) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() >= FOLD_FROM && backend::folds() {
        let (blocks, rest) = bytes.split_at_mut(bytes.len() / FOLD * FOLD);
        let mut block = icrc.begin_fold();
        // SAFETY: `blocks` is writable for its length, some whole blocks, and `from` is user memory.
        unsafe {
            backend::copy_from_folding(blocks.as_mut_ptr(), from, blocks.len(), &mut block)?;
        }
        icrc.end_fold(&block);
        copy_from(from.wrapping_add(blocks.len()), rest)?;
        icrc.update(rest);
        return Ok(());
    }
    copy_from(from, bytes)?;
    icrc.update(bytes);
    Ok(())
}

/// Stores 1, 2, 4 or 8 bytes as one, in memory order. `to` is aligned to that width.
#[inline]
pub(super) fn store(to: *mut u8, bytes: &[u8]) -> Result<(), Fault> {
    debug_assert!(to.addr().is_multiple_of(bytes.len()));
    // SAFETY: `to` is user memory; the width is that of the array.
    unsafe {
        if let Ok(word) = <[u8; 8]>::try_from(bytes) {
            backend::store_8(to, u64::from_ne_bytes(word))
        } else if let Ok(word) = <[u8; 4]>::try_from(bytes) {
            backend::store_4(to, u32::from_ne_bytes(word))
        } else if let Ok(word) = <[u8; 2]>::try_from(bytes) {
            backend::store_2(to, u16::from_ne_bytes(word))
        } else {
            backend::store_1(to, bytes[0])
        }
    }
}

/// Adds to the word at `at`, wrapping, and returns the word before. Sequentially consistent.
#[inline]
pub(super) fn fetch_add(at: *mut u8, add: u64) -> Result<u64, Fault> {
    // SAFETY: `at` is user memory.
    unsafe { backend::fetch_add(at, add) }
}

/// Stores `swap` where the word at `at` equals `compare`; returns the word before.
#[inline]
pub(super) fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Result<u64, Fault> {
    // SAFETY: `at` is user memory.
    unsafe { backend::compare_swap(at, compare, swap) }
}

/// Returns when `len` bytes from `from` on have reached what backs them: a file or persistent
/// memory. Anonymous memory has nothing to wait for.
pub(super) fn persist(from: *const u8, len: usize) -> Result<(), Fault> {
    if cfg!(miri) || len == 0 {
        return Ok(());
    }
    let first = from.addr() & !(page_size() - 1);
    // SAFETY: msync changes no memory; it fails where pages are missing.
    let result = unsafe {
        libc::msync(
            from.with_addr(first).cast_mut().cast(),
            from.addr() + len - first,
            libc::MS_SYNC,
        )
    };
    if result == 0 { Ok(()) } else { Err(Fault) }
}

/// Makes the pages of `len` bytes from `from` on present, to be written or only read. A kernel that
/// cannot (before 5.14) leaves them for the first access.
pub(super) fn populate(from: *const u8, len: usize, is_write: bool) -> Result<(), Fault> {
    if cfg!(miri) || len == 0 {
        return Ok(());
    }
    let first = from.addr() & !(page_size() - 1);
    let advice = if is_write {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    // SAFETY: populating changes no byte; it fails where pages are missing.
    let advise = |first, len| unsafe { libc::madvise(first, len, advice) };
    let start = from.with_addr(first).cast_mut().cast();
    let is_known = || advise(start, 0) == 0;
    if advise(start, from.addr() + len - first) == 0 || !is_known() {
        Ok(())
    } else {
        Err(Fault)
    }
}

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
