//! Guarded accesses on x86-64: small assembly routines whose faults the signal handler turns into a
//! return value.
//!
//! Every routine has the same shape, which is all that the handler needs to know: [`LANDING`] bytes
//! of code, then the landing, which reports the fault and returns. The routines use no stack, so
//! returning from the landing leaves them as an ordinary return does. No exception tables, no
//! linker sections.
//!
//! Copies are loops of 16-byte moves. `rep movsb`, which `memcpy` prefers for large copies, was
//! measured at 2 to 3 GB/s instead of 37 on an AMD EPYC (Zen 3 and later) when source and
//! destination have nearly equal page offsets, as page-aligned buffers do.

use core::arch::naked_asm;

use hirail_rnic::host::Fault;
use hirail_wire::icrc::{FOLD, FOLD_FAR, FOLD_NEAR};

use super::handler;

/// Bytes from the start of a routine to its landing.
pub(super) const LANDING: usize = 256;

/// What a routine returns, in `rax` and `rdx`.
#[repr(C)]
struct Outcome {
    /// The word before, of atomics.
    value: u64,
    /// 1 where a page was missing, else 0.
    fault: u64,
}

impl Outcome {
    #[inline]
    fn value(self) -> Result<u64, Fault> {
        if self.fault == 0 {
            Ok(self.value)
        } else {
            Err(Fault)
        }
    }

    #[inline]
    fn done(self) -> Result<(), Fault> {
        self.value().map(|_| ())
    }
}

macro_rules! routine {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*), $($line:expr),+ $(,)?
     $(; $($constant:ident = const $value:expr),+ $(,)?)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Each address is either user memory or valid for the access.
        #[unsafe(naked)]
        unsafe extern "sysv64" fn $name($($arg: $type),*) -> Outcome {
            naked_asm!(
                "2:",
                $($line,)+
                // The assembler refuses code that does not fit.
                ".org 2b + {landing}, 0xcc",
                "mov edx, 1",
                "ret",
                landing = const LANDING,
                $($($constant = const $value,)+)?
            )
        }
    };
}

/// Loads the next 32 bytes of a stream, stores them at the other place, and folds what came before
/// into them. Flags stay as they are.
macro_rules! folding_step {
    ($stream:literal, $at:literal) => {
        concat!(
            "vmovdqu ymm4, [rsi + rdx + ",
            $at,
            "]\n",
            "vpclmulqdq ymm5, ",
            $stream,
            ", ymm8, 0x00\n",
            "vpclmulqdq ymm6, ",
            $stream,
            ", ymm8, 0x11\n",
            "vmovdqu [rdi + rdx + ",
            $at,
            "], ymm4\n",
            "vpxor ",
            $stream,
            ", ymm4, ymm5\n",
            "vpxor ",
            $stream,
            ", ",
            $stream,
            ", ymm6",
        )
    };
}

routine!(
    /// Copies `len` bytes that do not overlap.
    copy(to: *mut u8, from: *const u8, len: usize),
    "cmp rdx, 16",
    "jb 5f",
    // Full blocks of 64, then of 16, then the last 16 bytes, which may overlap the block before.
    "lea r8, [rdx - 16]",
    "xor ecx, ecx",
    "cmp rdx, 80",
    "jb 4f",
    "lea r9, [rdx - 64]",
    "3:",
    "movups xmm0, [rsi + rcx]",
    "movups xmm1, [rsi + rcx + 16]",
    "movups xmm2, [rsi + rcx + 32]",
    "movups xmm3, [rsi + rcx + 48]",
    "movups [rdi + rcx], xmm0",
    "movups [rdi + rcx + 16], xmm1",
    "movups [rdi + rcx + 32], xmm2",
    "movups [rdi + rcx + 48], xmm3",
    "add rcx, 64",
    "cmp rcx, r9",
    "jb 3b",
    "4:",
    "cmp rcx, r8",
    "jae 8f",
    "movups xmm0, [rsi + rcx]",
    "movups [rdi + rcx], xmm0",
    "add rcx, 16",
    "jmp 4b",
    "8:",
    "movups xmm0, [rsi + r8]",
    "movups [rdi + r8], xmm0",
    "xor edx, edx",
    "ret",
    // 8 to 15 bytes: the first and the last 8, overlapping. Likewise 4 to 7 and 2 to 3.
    "5:",
    "test dl, 8",
    "jz 6f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor edx, edx",
    "ret",
    "6:",
    "test dl, 4",
    "jz 7f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor edx, edx",
    "ret",
    "7:",
    "test dl, 2",
    "jz 9f",
    "movzx eax, word ptr [rsi]",
    "movzx ecx, word ptr [rsi + rdx - 2]",
    "mov [rdi], ax",
    "mov [rdi + rdx - 2], cx",
    "xor edx, edx",
    "ret",
    "9:",
    "test dl, dl",
    "jz 10f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "10:",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Copies `len` bytes that do not overlap, a multiple of [`FOLD`] and not 0, and folds them into
    /// `block`. Needs AVX2 and VPCLMULQDQ.
    ///
    /// Eight streams of 16 bytes in four registers: each step multiplies them by x^1024 (modulo the
    /// polynomial) and adds the next block, so that a message becomes one block of the same CRC
    /// (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
    copy_folding(to: *mut u8, from: *const u8, len: usize, block: *mut u8),
    "mov rax, {far}",
    "vmovq xmm8, rax",
    "mov rax, {near}",
    "vpinsrq xmm8, xmm8, rax, 1",
    "vinserti128 ymm8, ymm8, xmm8, 1",
    "vmovdqu ymm0, [rcx]",
    "vmovdqu ymm1, [rcx + 32]",
    "vmovdqu ymm2, [rcx + 64]",
    "vmovdqu ymm3, [rcx + 96]",
    "lea rsi, [rsi + rdx - 32]",
    "lea rdi, [rdi + rdx - 32]",
    "neg rdx",
    "3:",
    folding_step!("ymm0", "32"),
    folding_step!("ymm1", "64"),
    folding_step!("ymm2", "96"),
    "sub rdx, -128",
    folding_step!("ymm3", "0"),
    "jnz 3b",
    "vmovdqu [rcx], ymm0",
    "vmovdqu [rcx + 32], ymm1",
    "vmovdqu [rcx + 64], ymm2",
    "vmovdqu [rcx + 96], ymm3",
    "vzeroupper",
    "xor edx, edx",
    "ret";
    far = const FOLD_FAR, near = const FOLD_NEAR,
);

routine!(
    /// Stores 8 bytes.
    put_8(to: *mut u8, word: u64),
    "mov [rdi], rsi",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Stores 4 bytes.
    put_4(to: *mut u8, word: u32),
    "mov [rdi], esi",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Stores 2 bytes.
    put_2(to: *mut u8, word: u16),
    "mov [rdi], si",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Stores one byte.
    put_1(to: *mut u8, byte: u8),
    "mov [rdi], sil",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Adds to a word and returns the word before.
    add(at: *mut u8, add: u64),
    "mov rax, rsi",
    "lock xadd [rdi], rax",
    "xor edx, edx",
    "ret",
);

routine!(
    /// Compares, swaps if equal, returns the word before.
    swap(at: *mut u8, compare: u64, swap: u64),
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov edx, 0",
    "ret",
);

/// Where a thread that faulted at `instruction` goes on, if that is one of our routines.
///
/// Called in the signal handler: nothing but comparisons.
#[inline]
pub(super) fn landing_of(instruction: usize) -> Option<usize> {
    [
        copy as *const () as usize,
        copy_folding as *const () as usize,
        put_8 as *const () as usize,
        put_4 as *const () as usize,
        put_2 as *const () as usize,
        put_1 as *const () as usize,
        add as *const () as usize,
        swap as *const () as usize,
    ]
    .into_iter()
    .find(|start| instruction.wrapping_sub(*start) < LANDING)
    .map(|start| start + LANDING)
}

pub(super) fn prepare() {
    handler::install();
}

/// # Safety
///
/// `from` is readable for `len` bytes; `to` is user memory.
#[inline]
pub(super) unsafe fn copy_to(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { copy(to, from, len) }.done()
}

/// # Safety
///
/// `to` is writable for `len` bytes; `from` is user memory.
#[inline]
pub(super) unsafe fn copy_from(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { copy(to, from, len) }.done()
}

/// Whether this processor folds while it copies.
#[inline]
pub(super) fn folds() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq")
}

/// # Safety
///
/// `to` is writable for `len` bytes, which are whole blocks of [`FOLD`] and at least one; `from` is
/// user memory; [`folds`].
#[inline]
pub(super) unsafe fn copy_from_folding(
    to: *mut u8,
    from: *const u8,
    len: usize,
    block: &mut [u8; FOLD],
) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { copy_folding(to, from, len, block.as_mut_ptr()) }.done()
}

/// # Safety
///
/// `to` is user memory.
#[inline]
pub(super) unsafe fn store_8(to: *mut u8, word: u64) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { put_8(to, word) }.done()
}

/// # Safety
///
/// `to` is user memory.
#[inline]
pub(super) unsafe fn store_4(to: *mut u8, word: u32) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { put_4(to, word) }.done()
}

/// # Safety
///
/// `to` is user memory.
#[inline]
pub(super) unsafe fn store_2(to: *mut u8, word: u16) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { put_2(to, word) }.done()
}

/// # Safety
///
/// `to` is user memory.
#[inline]
pub(super) unsafe fn store_1(to: *mut u8, byte: u8) -> Result<(), Fault> {
    // SAFETY: as required of the caller.
    unsafe { put_1(to, byte) }.done()
}

/// # Safety
///
/// `at` is user memory.
#[inline]
pub(super) unsafe fn fetch_add(at: *mut u8, value: u64) -> Result<u64, Fault> {
    // SAFETY: as required of the caller.
    unsafe { add(at, value) }.value()
}

/// # Safety
///
/// `at` is user memory.
#[inline]
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, new: u64) -> Result<u64, Fault> {
    // SAFETY: as required of the caller.
    unsafe { swap(at, compare, new) }.value()
}
