//! The signal handler that turns a fault in a guarded access into its return value.
//!
//! Installed once per process, for SIGSEGV and SIGBUS. A fault anywhere else belongs to whoever
//! handled these signals before: that handler is called with everything the kernel told us, or the
//! default action is restored and taken. A handler that the application installs later sees our
//! faults first; one that does not chain to us, or a thread that blocks these signals, loses the
//! protection (a synchronous fault that is blocked kills the process). Threads of ours leave both
//! signals unblocked.
//!
//! Everything here runs in signal context: atomics, comparisons and `sigaction`, nothing else.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::Once;

use super::x86_64::landing_of;

/// Installs the handler unless it is there.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for previous in &PREVIOUS {
            previous.take_over();
        }
    });
}

static PREVIOUS: [Previous; 2] = [Previous::of(libc::SIGSEGV), Previous::of(libc::SIGBUS)];

/// What was done about a signal before we came.
struct Previous {
    signal: c_int,
    /// Whether `action` is set, and whether it still applies.
    state: AtomicU8,
    /// Written once, before `state` becomes `VALID`.
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

/// `Previous::state`: no action is known; the default applies.
const UNKNOWN: u8 = 0;
/// `Previous::state`: the stored action applies.
const VALID: u8 = 1;
/// `Previous::state`: the action was for one signal only (`SA_RESETHAND`) and is used up.
const SPENT: u8 = 2;

// SAFETY: `action` is written before `state` is released as `VALID` and never after.
unsafe impl Sync for Previous {}

impl Previous {
    const fn of(signal: c_int) -> Self {
        Self {
            signal,
            state: AtomicU8::new(UNKNOWN),
            action: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Remembers the present action, then replaces it.
    fn take_over(&self) {
        // SAFETY: all-zero is a valid `sigaction`.
        let mut present: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: only queries, into a local.
        unsafe { libc::sigaction(self.signal, core::ptr::null(), &mut present) };
        // SAFETY: nobody reads before `state` is `VALID`, and this runs once.
        unsafe { (*self.action.get()).write(present) };
        self.state.store(VALID, Ordering::Release);

        let mut ours = present;
        ours.sa_sigaction = on_fault as *const () as usize;
        // The previous handler must run as it expects to: with its mask and its deferral. We add
        // the alternate stack where a thread has one, for a fault that is a stack overflow.
        ours.sa_flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | (present.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
        if matches!(present.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // SAFETY: `sa_mask` is a valid set to overwrite.
            unsafe { libc::sigemptyset(&mut ours.sa_mask) };
        }
        // SAFETY: `on_fault` is an async-signal-safe handler of the three-argument kind.
        unsafe { libc::sigaction(self.signal, &ours, core::ptr::null_mut()) };
    }

    /// Does what would have been done without us.
    ///
    /// # Safety
    ///
    /// The arguments are those of a signal that is being handled.
    unsafe fn handle(&self, info: *mut libc::siginfo_t, context: *mut c_void) {
        let action = match self.state.load(Ordering::Acquire) {
            // SAFETY: set before `VALID` was.
            VALID => Some(unsafe { (*self.action.get()).assume_init_ref() }),
            _ => None,
        };
        // SAFETY: the kernel filled it.
        let is_sent = unsafe { (*info).si_code } <= 0;
        match action {
            // The kernel never ignores a fault, it takes the default action.
            Some(action) if action.sa_sigaction == libc::SIG_IGN && is_sent => {}
            Some(action) if !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
                if action.sa_flags & libc::SA_RESETHAND != 0 {
                    self.state.store(SPENT, Ordering::Release);
                }
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    // SAFETY: that is the signature of a handler installed with SA_SIGINFO.
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        unsafe { core::mem::transmute(action.sa_sigaction) };
                    handler(self.signal, info, context);
                } else {
                    // SAFETY: that is the signature of a handler installed without.
                    let handler: extern "C" fn(c_int) =
                        unsafe { core::mem::transmute(action.sa_sigaction) };
                    handler(self.signal);
                }
            }
            _ => {
                // SAFETY: all-zero is SIG_DFL with an empty mask.
                let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
                // SAFETY: restores the default action.
                unsafe { libc::sigaction(self.signal, &default, core::ptr::null_mut()) };
                // A fault happens again when we return. A signal that somebody sent does not.
                if is_sent {
                    // SAFETY: blocked until we return, then fatal.
                    unsafe { libc::raise(self.signal) };
                }
            }
        }
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted thread's context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let instruction = &mut registers[libc::REG_RIP as usize];
    // SAFETY: the kernel filled it.
    let is_fault = unsafe { (*info).si_code } > 0;
    if is_fault && let Some(landing) = landing_of(*instruction as usize) {
        *instruction = landing as i64;
        return;
    }
    if let Some(previous) = PREVIOUS.iter().find(|previous| previous.signal == signal) {
        // SAFETY: passed on as they came.
        unsafe { previous.handle(info, context) };
    }
}
