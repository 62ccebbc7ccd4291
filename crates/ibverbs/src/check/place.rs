//! Places in the program: return addresses now, files and offsets when a finding needs them.

use core::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use hirail_check::record::Frame;

/// Frames of a place at most, those of this library included.
const DEPTH: usize = 48;

/// A file in memory.
struct Module {
    file: String,
    /// What addresses in memory have more than those in the file.
    bias: usize,
    parts: Vec<(usize, usize)>,
}

impl Module {
    fn has(&self, address: usize) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|&(start, length)| address.wrapping_sub(start) < length)
    }
}

/// Where this library is.
fn own() -> &'static [(usize, usize)] {
    static OWN: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
    OWN.get_or_init(|| {
        let here: fn() -> Vec<usize> = here;
        let modules = modules();
        let own = modules.into_iter().find(|it| it.has(here as usize));
        own.map(|own| own.parts).unwrap_or_default()
    })
}

/// The return addresses of this thread, from the caller of this library on.
pub(super) fn here() -> Vec<usize> {
    let mut frames = [core::ptr::null_mut::<c_void>(); DEPTH];
    // SAFETY: there is room for so many.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
    let own = own();
    let is_own = |address: &usize| {
        own.iter()
            .any(|&(start, length)| address.wrapping_sub(start) < length)
    };
    frames[..usize::try_from(count).unwrap_or(0)]
        .iter()
        .map(|frame| frame.addr())
        .skip_while(is_own)
        .collect()
}

/// The files of return addresses. Frames of the library of rdma_cm are left out: the call of it is
/// the program's.
pub(super) fn frames(addresses: &[usize]) -> Vec<Frame> {
    let modules = modules();
    let frame = |&address: &usize| {
        // The call may be the last instruction of its function.
        let module = modules.iter().find(|it| it.has(address.wrapping_sub(1)));
        module.map_or_else(
            || Frame {
                file: String::new(),
                offset: address as u64,
            },
            |module| Frame {
                file: module.file.clone(),
                offset: address.wrapping_sub(module.bias) as u64,
            },
        )
    };
    let is_rdmacm = |frame: &Frame| {
        let file = Path::new(&frame.file).file_name();
        file.is_some_and(|file| {
            let file = file.to_string_lossy();
            file.starts_with("libhirail_rdmacm.") || file.starts_with("librdmacm.")
        })
    };
    addresses.iter().map(frame).skip_while(is_rdmacm).collect()
}

/// All files in memory.
fn modules() -> Vec<Module> {
    unsafe extern "C" fn add(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        to: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description, and the vector that is handed through.
        let (info, modules) = unsafe { (&*info, &mut *to.cast::<Vec<Module>>()) };
        let name = if info.dlpi_name.is_null() {
            Vec::new()
        } else {
            // SAFETY: the loader's string.
            unsafe { CStr::from_ptr(info.dlpi_name) }
                .to_bytes()
                .to_vec()
        };
        let mut file = String::from_utf8_lossy(&name).into_owned();
        if file.is_empty() && modules.is_empty() {
            // The first one is the program itself.
            file = "/proc/self/exe".to_owned();
        }
        let bias = info.dlpi_addr as usize;
        let parts = (0..usize::from(info.dlpi_phnum)).filter_map(|place| {
            // SAFETY: there are so many.
            let part = unsafe { &*info.dlpi_phdr.add(place) };
            let is_code = part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_X != 0;
            is_code.then(|| {
                (
                    bias.wrapping_add(part.p_vaddr as usize),
                    part.p_memsz as usize,
                )
            })
        });
        let parts = parts.collect();
        modules.push(Module { file, bias, parts });
        0
    }
    let mut modules = Vec::<Module>::new();
    // SAFETY: the vector is there until it returns.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut modules).cast()) };
    for module in &mut modules {
        if let Ok(file) = std::fs::canonicalize(&module.file) {
            module.file = file.to_string_lossy().into_owned();
        }
    }
    modules
}
