//! The functions of the C library that take a path, as this library has them.
//!
//! `open` and its kin take the permissions of a new file as an argument that may be left out. Here it
//! is always passed on: where it was left out, what is passed is not looked at.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::next::{Next, root};
use crate::place::{Redirected, excess};

/// Another path for a call, if it gets one.
///
/// # Safety
/// `path` is null or text of the caller's.
unsafe fn elsewhere(path: *const c_char) -> Option<Redirected> {
    let root = root();
    if path.is_null() || root.is_empty() {
        return None;
    }
    // SAFETY: as required of the caller.
    Redirected::of(unsafe { CStr::from_ptr(path) }, root)
}

/// Functions that are those of the C library with another path. What comes back from there is what
/// they return.
macro_rules! redirect {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($before:ident: $kind:ty,)* @path $(, $after:ident: $rest:ty)*) -> $result:ty;
    )*) => {
        mod next {
            use super::Next;
            $(
                #[allow(non_upper_case_globals)]
                pub(super) static $name: Next = {
                    const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                    match core::ffi::CStr::from_bytes_with_nul(NAME) {
                        Ok(name) => Next::new(name),
                        Err(_) => panic!("a name without a zero in it"),
                    }
                };
            )*
        }

        /// Looks all of them up.
        pub(crate) fn find_all() {
            $( next::$name.address(); )*
        }

        $(
            $(#[$attribute])*
            /// # Safety
            /// As for the function of the C library.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: $kind,)* path: *const c_char $(, $after: $rest)*
            ) -> $result {
                type Function = unsafe extern "C" fn($($kind,)* *const c_char $(, $rest)*) -> $result;
                let address = next::$name.address();
                // SAFETY: null or the C library's function of this name.
                let Some(function) = (unsafe {
                    core::mem::transmute::<*mut c_void, Option<Function>>(address)
                }) else {
                    // SAFETY: this thread's.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    return Failure::FAILURE;
                };
                // SAFETY: the caller's path.
                let other = unsafe { elsewhere(path) };
                let path = other.as_ref().map_or(path, |other| other.path().as_ptr());
                // SAFETY: the caller's arguments; the other path lives until the call is over.
                unsafe { function($($before,)* path $(, $after)*) }
            }
        )*
    };
}

/// What a call returns that has failed.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for ssize_t {
    const FAILURE: Self = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: Self = ptr::null_mut();
}

type Filter = Option<unsafe extern "C" fn(*const c_void) -> c_int>;
type Order = Option<unsafe extern "C" fn(*mut *const c_void, *mut *const c_void) -> c_int>;

redirect! {
    fn open(@path, flags: c_int, mode: mode_t) -> c_int;
    fn open64(@path, flags: c_int, mode: mode_t) -> c_int;
    fn __open_2(@path, flags: c_int) -> c_int;
    fn __open64_2(@path, flags: c_int) -> c_int;
    fn openat(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int;
    fn __openat_2(folder: c_int, @path, flags: c_int) -> c_int;
    fn __openat64_2(folder: c_int, @path, flags: c_int) -> c_int;
    fn fopen(@path, mode: *const c_char) -> *mut FILE;
    fn fopen64(@path, mode: *const c_char) -> *mut FILE;
    fn opendir(@path) -> *mut DIR;
    fn scandir(@path, list: *mut c_void, filter: Filter, order: Order) -> c_int;
    fn scandir64(@path, list: *mut c_void, filter: Filter, order: Order) -> c_int;
    fn stat(@path, to: *mut c_void) -> c_int;
    fn stat64(@path, to: *mut c_void) -> c_int;
    fn lstat(@path, to: *mut c_void) -> c_int;
    fn lstat64(@path, to: *mut c_void) -> c_int;
    fn fstatat(folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64(folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int;
    fn __xstat(version: c_int, @path, to: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, @path, to: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, @path, to: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, @path, to: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int;
    fn statx(folder: c_int, @path, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    fn access(@path, mode: c_int) -> c_int;
    fn eaccess(@path, mode: c_int) -> c_int;
    fn euidaccess(@path, mode: c_int) -> c_int;
    fn faccessat(folder: c_int, @path, mode: c_int, flags: c_int) -> c_int;
    fn readlink(@path, to: *mut c_char, size: size_t) -> ssize_t;
    fn readlinkat(folder: c_int, @path, to: *mut c_char, size: size_t) -> ssize_t;
    fn __readlink_chk(@path, to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    fn __readlinkat_chk(folder: c_int, @path, to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    fn getxattr(@path, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    fn lgetxattr(@path, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    fn listxattr(@path, to: *mut c_char, size: size_t) -> ssize_t;
    fn llistxattr(@path, to: *mut c_char, size: size_t) -> ssize_t;
    fn chdir(@path) -> c_int;
}

/// Functions that return a path: it must be one that the program would have got.
macro_rules! resolve {
    ($( fn $name:ident(@path $(, $after:ident: $rest:ty)*) -> $next:ident; )*) => { $(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char $(, $after: $rest)*) -> *mut c_char {
            type Function = unsafe extern "C" fn(*const c_char $(, $rest)*) -> *mut c_char;
            let address = $next.address();
            // SAFETY: null or the C library's function of this name.
            let Some(function) = (unsafe {
                core::mem::transmute::<*mut c_void, Option<Function>>(address)
            }) else {
                // SAFETY: this thread's.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                return Failure::FAILURE;
            };
            // SAFETY: the caller's path.
            let other = unsafe { elsewhere(path) };
            let path = other.as_ref().map_or(path, |other| other.path().as_ptr());
            // SAFETY: the caller's arguments; the other path lives until the call is over.
            let resolved = unsafe { function(path $(, $after)*) };
            // SAFETY: text in memory of the caller's.
            unsafe { hide_root(resolved) };
            resolved
        }
    )* };
}

static REALPATH: Next = Next::new(c"realpath");
static REALPATH_CHK: Next = Next::new(c"__realpath_chk");
static CANONICALIZE: Next = Next::new(c"canonicalize_file_name");

resolve! {
    fn realpath(@path, to: *mut c_char) -> REALPATH;
    fn __realpath_chk(@path, to: *mut c_char, room: size_t) -> REALPATH_CHK;
    fn canonicalize_file_name(@path) -> CANONICALIZE;
}

/// Takes the folder of this library away from the front of a path.
///
/// # Safety
/// `path` is null or text that may be written to.
unsafe fn hide_root(path: *mut c_char) {
    if path.is_null() {
        return;
    }
    // SAFETY: as required of the caller.
    let text = unsafe { CStr::from_ptr(path) };
    let (excess, length) = (excess(text, root()), text.count_bytes());
    // SAFETY: within the text and its zero.
    unsafe { ptr::copy(path.add(excess), path, length - excess + 1) };
}
