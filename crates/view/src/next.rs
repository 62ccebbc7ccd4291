//! The function of the C library behind one of this library's, and where this library was loaded
//! from.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::place::PATH_MAX;

/// A function by its name, found when it is needed first.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null where the C library does not have it, and then nobody can have asked for it.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// The folder that this library was loaded from; empty where it cannot be told.
pub(crate) fn root() -> &'static CStr {
    if ROOT.state.load(Ordering::Acquire) != KNOWN {
        ROOT.find();
    }
    match ROOT.state.load(Ordering::Acquire) {
        // SAFETY: written before the state was set, and never again; it ends with a zero.
        KNOWN => unsafe { CStr::from_ptr((*ROOT.path.get()).as_ptr().cast()) },
        _ => c"",
    }
}

const UNKNOWN: u8 = 0;
const BUSY: u8 = 1;
const KNOWN: u8 = 2;

struct Root {
    state: AtomicU8,
    path: UnsafeCell<[u8; PATH_MAX]>,
}

// SAFETY: who moves the state from UNKNOWN writes the path, and others read it only when it is KNOWN.
unsafe impl Sync for Root {}

static ROOT: Root = Root {
    state: AtomicU8::new(UNKNOWN),
    path: UnsafeCell::new([0; PATH_MAX]),
};

impl Root {
    fn find(&self) {
        let taken =
            self.state
                .compare_exchange(UNKNOWN, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        // SAFETY: a structure of pointers.
        let mut about: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: an address within this library.
        let known = unsafe { libc::dladdr((&raw const ROOT).cast(), &raw mut about) };
        if known != 0 && !about.dli_fname.is_null() {
            // SAFETY: the loader's text, which ends with a zero.
            let file = unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes();
            let folder = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            // SAFETY: nobody else writes, and nobody reads yet.
            let path = unsafe { &mut *self.path.get() };
            if folder < PATH_MAX {
                path[..folder].copy_from_slice(&file[..folder]);
            }
        }
        self.state.store(KNOWN, Ordering::Release);
    }
}

/// Found before `main`, since signal handlers may not ask the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        root();
        crate::calls::find_all();
    }
    start
};
