//! The way to `libibverbs.so.1`: the one that the program has loaded, else the one beside this
//! library.

use core::ffi::{CStr, c_void};
use core::mem;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use hirail_abi::{BRIDGE_NODE, BRIDGE_SYMBOL, Bridge};

use crate::errno::Errno;

/// The table of functions.
///
/// # Errors
/// The libraries do not belong together.
pub(crate) fn bridge() -> Result<&'static Bridge, Errno> {
    static FOUND: OnceLock<Option<&'static Bridge>> = OnceLock::new();
    FOUND.get_or_init(find).ok_or(Errno::NO_DEVICE)
}

fn find() -> Option<&'static Bridge> {
    // SAFETY: the name ends with a zero; nothing is loaded.
    let loaded = unsafe {
        libc::dlopen(
            c"libibverbs.so.1".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD,
        )
    };
    if let Some(found) = table_of(loaded) {
        return Some(found);
    }
    let folder = own_path()?;
    let folder = folder.parent()?;
    ["libibverbs.so.1", "libhirail_ibverbs.so"]
        .into_iter()
        .find_map(|name| {
            let path = CString::new(folder.join(name).as_os_str().as_bytes()).ok()?;
            // SAFETY: the name ends with a zero; the library's initialisers are those of Rust.
            table_of(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) })
        })
}

/// The table that a loaded library has; nothing where it is another project's.
fn table_of(library: *mut c_void) -> Option<&'static Bridge> {
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is loaded, the names end with zeros.
    let symbol = unsafe { libc::dlvsym(library, BRIDGE_SYMBOL.as_ptr(), BRIDGE_NODE.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: that is what the symbol of this version is, and the table is a constant of a library
    // that is never unloaded.
    unsafe {
        let function: extern "C" fn() -> *const Bridge = mem::transmute(symbol);
        function().as_ref()
    }
}

/// Where this library is.
fn own_path() -> Option<std::path::PathBuf> {
    // SAFETY: the place is filled by the call, and the text it names stays.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        let own = own_path as fn() -> Option<std::path::PathBuf>;
        if libc::dladdr(own as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname);
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        // The name that it was found by: beside it is that of the other one.
        Some(path.to_owned())
    }
}
