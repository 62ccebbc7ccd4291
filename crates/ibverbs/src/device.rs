//! The list of devices, and what can be asked without opening one.
//!
//! A device that was listed once stays at its address as long as the process lives: programs compare
//! the pointers, and keep them longer than the list.

use core::ffi::{CStr, c_char, c_int};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use hirail::devices::{self, NetDevice};
use hirail::{Gid, PathMtu};

use crate::abi;
use crate::entry::without_device;
use crate::errno::Errno;

/// What a device is made of. Provider libraries look for marks of their own behind the public part,
/// so zeros follow it.
#[repr(C)]
pub(crate) struct DeviceObject {
    public: abi::Device,
    others: [u64; 16],
    index: u32,
    /// As the kernel told when the devices were listed last.
    interface: Mutex<NetDevice>,
}

// SAFETY: the public part never changes, the rest is behind a lock.
unsafe impl Send for DeviceObject {}
// SAFETY: as above.
unsafe impl Sync for DeviceObject {}

/// A channel adapter.
const NODE_TYPE: c_int = 1;

/// InfiniBand's transport.
const TRANSPORT_TYPE: c_int = 0;

/// All devices that were ever listed.
static KNOWN: Mutex<Vec<&'static DeviceObject>> = Mutex::new(Vec::new());

impl DeviceObject {
    /// The device behind its public part.
    ///
    /// # Safety
    /// It came out of a list of this library.
    pub(crate) unsafe fn of(public: *mut abi::Device) -> &'static Self {
        // SAFETY: as required of the caller; devices are never freed.
        unsafe { &*public.cast() }
    }

    /// The public part.
    pub(crate) fn public(&self) -> *mut abi::Device {
        (&raw const self.public).cast_mut()
    }

    /// What the kernel says about its interface.
    pub(crate) fn interface(&self) -> NetDevice {
        let interface = self.interface.lock();
        interface.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its number.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its GUID, from the interface's address.
    pub(crate) fn guid(&self) -> [u8; 8] {
        hirail::sysfs::guid(&self.interface())
    }

    fn new(index: u32, interface: NetDevice) -> Self {
        let name = &interface.name;
        let uverbs = format!("uverbs{index}");
        Self {
            public: abi::Device {
                ops: [0; 2],
                node_type: NODE_TYPE,
                transport_type: TRANSPORT_TYPE,
                name: text(name),
                dev_path: text(&format!("/sys/class/infiniband_verbs/{uverbs}")),
                dev_name: text(&uverbs),
                ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
            },
            others: [0; 16],
            index,
            interface: Mutex::new(interface),
        }
    }
}

/// Text as C has it, cut where it is too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, from) in chars[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    chars
}

/// The devices of this host.
fn list() -> std::io::Result<Vec<&'static DeviceObject>> {
    let now = devices::list()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let find = |interface: NetDevice| {
        let same = |object: &&&DeviceObject| object.interface().name == interface.name;
        if let Some(object) = known.iter().find(same) {
            *object
                .interface
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = interface;
            return *object;
        }
        let index = known.len() as u32;
        let object: &'static _ = Box::leak(Box::new(DeviceObject::new(index, interface)));
        known.push(object);
        object
    };
    Ok(now.into_iter().map(find).collect())
}

/// The device that has a GID.
pub(crate) fn find(gid: Gid) -> Result<Option<&'static DeviceObject>, Errno> {
    let error = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
    let has = |object: &&&DeviceObject| {
        let interface = object.interface();
        interface.gids.iter().any(|entry| entry.gid == gid)
    };
    Ok(list().map_err(error)?.iter().find(has).copied())
}

/// `ibv_get_device_list`.
pub(crate) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut abi::Device {
    without_device(ptr::null_mut(), || {
        let devices = match list() {
            Ok(devices) => devices,
            Err(error) => {
                Errno(error.raw_os_error().unwrap_or(libc::EIO)).set();
                return ptr::null_mut();
            }
        };
        // The list is one allocation that ends with NULL, so who frees it finds its length.
        let layout = list_layout(devices.len());
        // SAFETY: the layout has at least one entry.
        let start = unsafe { alloc_zeroed(layout) }.cast::<*mut abi::Device>();
        if start.is_null() {
            handle_alloc_error(layout);
        }
        for (place, device) in devices.iter().enumerate() {
            // SAFETY: within the allocation.
            unsafe { start.add(place).write(device.public()) };
        }
        if !count.is_null() {
            // SAFETY: the caller's, and it is not NULL.
            unsafe { count.write(devices.len() as c_int) };
        }
        start
    })
}

fn list_layout(devices: usize) -> Layout {
    Layout::array::<*mut abi::Device>(devices + 1).expect("a list of devices is short")
}

/// `ibv_free_device_list`.
pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut abi::Device) {
    if list.is_null() {
        return;
    }
    // SAFETY: a list of ours, which ends with NULL, and is freed with the layout it was made with.
    unsafe {
        let devices = (0..).take_while(|place| !(*list.add(*place)).is_null());
        std::alloc::dealloc(list.cast(), list_layout(devices.count()));
    }
}

/// `ibv_get_device_name`.
pub(crate) unsafe extern "C" fn get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: a device of ours.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid`: in network order.
pub(crate) unsafe extern "C" fn get_device_guid(device: *mut abi::Device) -> u64 {
    // SAFETY: a device of ours.
    without_device(0, || {
        u64::from_ne_bytes(unsafe { DeviceObject::of(device) }.guid())
    })
}

/// `ibv_get_device_index`.
pub(crate) unsafe extern "C" fn get_device_index(device: *mut abi::Device) -> c_int {
    // SAFETY: a device of ours.
    unsafe { DeviceObject::of(device) }.index() as c_int
}

/// `ibv_get_sysfs_path`.
pub(crate) unsafe extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: files of a device are answered from memory, whatever is in the real
/// folder. Returns how many characters there are, or −1.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    without_device(-1, || {
        if folder.is_null() || file.is_null() || buffer.is_null() || size == 0 {
            return -1;
        }
        // SAFETY: text of the caller, ended by a zero.
        let (folder, file) = unsafe { (CStr::from_ptr(folder), CStr::from_ptr(file)) };
        let path = format!("{}/{}", folder.to_string_lossy(), file.to_string_lossy());
        let Some(answer) = sysfs(&path) else {
            Errno::NO_ENTRY.set();
            return -1;
        };
        let length = answer.len().min(size - 1);
        // SAFETY: the buffer has `size` bytes, one more than is copied.
        unsafe {
            ptr::copy_nonoverlapping(answer.as_ptr().cast(), buffer, length);
            buffer.add(length).write(0);
        }
        length as c_int
    })
}

/// What a file of a device would say.
fn sysfs(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/sys/class/infiniband/")?;
    let (name, file) = rest.split_once('/')?;
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = known.iter().find(|known| known.interface().name == name)?;
    let mut files = hirail::sysfs::files(&device.interface()).into_iter();
    let (_, text) = files.find(|(known, _)| known == file)?;
    Some(text)
}

/// The verbs' number of an MTU.
pub(crate) fn mtu(mtu: PathMtu) -> c_int {
    mtu.code().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_address() {
        let mut count = 0;
        // SAFETY: freed once, after its last use.
        unsafe {
            let first = get_device_list(&raw mut count);
            assert!(count >= 1, "the loopback at least");
            assert!((*first.add(count as usize)).is_null());
            let device = *first.add(count as usize - 1);
            free_device_list(first);
            let second = get_device_list(ptr::null_mut());
            assert_eq!(*second.add(count as usize - 1), device);
            free_device_list(second);
            assert_eq!(CStr::from_ptr(get_device_name(device)), c"hirail_lo");
        }
    }

    #[test]
    fn files_are_answered_from_memory() {
        let devices = list().unwrap();
        assert!(!devices.is_empty());
        let read = |path: &str| sysfs(&format!("/sys/class/infiniband/hirail_lo/{path}"));
        assert_eq!(read("node_type").as_deref(), Some("1: CA"));
        assert_eq!(read("ports/1/gid_attrs/ndevs/0").as_deref(), Some("lo"));
        assert_eq!(read("ports/1/gid_attrs/types/200"), None);
        assert_eq!(read("anything"), None);
        assert_eq!(sysfs("/etc/passwd"), None);
    }

    #[test]
    fn long_text_is_cut_before_its_zero() {
        assert_eq!(text::<4>("abcdef"), [97, 98, 99, 0]);
        assert_eq!(text::<4>("a"), [97, 0, 0, 0]);
    }
}
