//! Devices that ids are on. Each is opened once, when the first id needs it, and stays open: programs
//! keep `id->verbs` for longer than the id.

use core::ffi::c_int;
use core::ptr;
use std::net::IpAddr;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use hirail_abi::{Cm, CmPath, Context, ExtendedOps, Pd, PortAttr, Xrcd, XrcdInitAttr};

use crate::address;
use crate::bridge::bridge;
use crate::entry::{lock, pointer};
use crate::errno::Errno;

/// An open device.
pub(crate) struct Device {
    public: *mut hirail_abi::Device,
    /// `id->verbs`.
    pub(crate) context: *mut Context,
    /// `id->pd`, for ids that are given none.
    pub(crate) pd: *mut Pd,
    cm: OnceLock<Manager>,
    /// Of targets and shared queues of XRC that are given none.
    xrcd: OnceLock<Domain>,
}

struct Manager(*mut Cm);

struct Domain(*mut Xrcd);

// SAFETY: the functions of the bridge may be called from any thread, and the objects stay.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Manager {}
// SAFETY: as above.
unsafe impl Sync for Manager {}
// SAFETY: as above.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// `enum ibv_xrcd_init_attr_mask`.
mod xrcd_init {
    pub(super) const FD: u32 = 1;
    pub(super) const FLAGS: u32 = 2;
}

static OPEN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

impl Device {
    /// The connection manager, which begins to work when it is needed first.
    pub(crate) fn cm(&self) -> Result<*mut Cm, Errno> {
        if let Some(Manager(cm)) = self.cm.get() {
            return Ok(*cm);
        }
        // SAFETY: an open device. Asked twice, it is the same one.
        let cm = Errno::check_pointer(unsafe { (bridge()?.cm)(self.context) })?;
        Ok(self.cm.get_or_init(|| Manager(cm)).0)
    }

    /// The domain of XRC that ids of this device share.
    pub(crate) fn xrcd(&self) -> Result<*mut Xrcd, Errno> {
        if let Some(Domain(xrcd)) = self.xrcd.get() {
            return Ok(*xrcd);
        }
        let mut init = XrcdInitAttr {
            comp_mask: xrcd_init::FD | xrcd_init::FLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: in front of an open device are its functions.
        let opened = unsafe {
            let extended = &*self.context.cast::<ExtendedOps>().sub(1);
            Errno::check_pointer((extended.open_xrcd)(self.context, &raw mut init))?
        };
        // Where two open it at once, one stays unused.
        Ok(self.xrcd.get_or_init(|| Domain(opened)).0)
    }

    /// Whether it is at work and has the address.
    fn has(&self, gid: &[u8; 16]) -> bool {
        let mut path = CmPath::default();
        let (Some(Manager(cm)), Ok(bridge)) = (self.cm.get(), bridge()) else {
            return false;
        };
        // SAFETY: a manager of the other library, addresses and a place.
        unsafe { (bridge.path)(*cm, gid, gid, &raw mut path) == 0 }
    }

    /// The MTU of the port, as the verbs number it.
    pub(crate) fn mtu(&self) -> u8 {
        let mut attr = PortAttr::default();
        // SAFETY: in front of an open device are its functions.
        unsafe {
            let extended = &*self.context.cast::<ExtendedOps>().sub(1);
            (extended.query_port)(self.context, 1, &raw mut attr, size_of::<PortAttr>());
        }
        attr.active_mtu as u8
    }
}

fn open(public: *mut hirail_abi::Device) -> Result<&'static Device, Errno> {
    let mut devices = lock(&OPEN);
    if let Some(device) = devices.iter().find(|device| device.public == public) {
        return Ok(device);
    }
    let bridge = bridge()?;
    // SAFETY: a device of the other library, which are never freed.
    let context = Errno::check_pointer(unsafe { (bridge.open_device)(public) })?;
    // SAFETY: an open device.
    let pd = Errno::check_pointer(unsafe { (bridge.alloc_pd)(context) })?;
    let device: &'static _ = Box::leak(Box::new(Device {
        public,
        context,
        pd,
        cm: OnceLock::new(),
        xrcd: OnceLock::new(),
    }));
    devices.push(device);
    Ok(device)
}

/// The device that has an IP address.
///
/// # Errors
/// `ENODEV` when there is none.
pub(crate) fn of(ip: IpAddr) -> Result<&'static Device, Errno> {
    let gid = address::gid(ip);
    // Those that are at work know their addresses; asking the kernel takes long.
    let at_work = lock(&OPEN).clone();
    if let Some(device) = at_work.into_iter().find(|device| device.has(&gid)) {
        return Ok(device);
    }
    // SAFETY: sixteen bytes.
    open(Errno::check_pointer(unsafe {
        (bridge()?.find_device)(&raw const gid)
    })?)
}

/// All devices that can be opened.
pub(crate) fn all() -> Result<Vec<&'static Device>, Errno> {
    /// How long a list of the kernel's devices is good for: asking takes long, and a server that listens
    /// again is in a hurry.
    const FRESH: Duration = Duration::from_secs(30);
    static LISTED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut listed = lock(&LISTED);
    if listed.is_none_or(|time| time.elapsed() > FRESH) {
        open_all()?;
        *listed = Some(Instant::now());
    }
    Ok(lock(&OPEN).clone())
}

fn open_all() -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: the list ends with NULL, and is freed once.
    unsafe {
        let list = Errno::check_pointer((bridge.get_device_list)(ptr::null_mut()))?;
        let names = (0..).map(|place| *list.add(place));
        for public in names.take_while(|public| !public.is_null()) {
            // One that is taken by another program, or down, is not there.
            let _ = open(public);
        }
        (bridge.free_device_list)(list);
    }
    Ok(())
}

/// `rdma_get_devices`: ends with NULL.
pub(crate) unsafe extern "C" fn get_devices(count: *mut c_int) -> *mut *mut Context {
    pointer(|| {
        let devices = all()?;
        // SAFETY: one entry more than there are devices; the place is the caller's.
        unsafe {
            let room = (devices.len() + 1) * size_of::<*mut Context>();
            let list = Errno::check_pointer(libc::malloc(room))?.cast::<*mut Context>();
            for (place, device) in devices.iter().enumerate() {
                list.add(place).write(device.context);
            }
            list.add(devices.len()).write(ptr::null_mut());
            if !count.is_null() {
                count.write(devices.len() as c_int);
            }
            Ok(list)
        }
    })
}

/// `rdma_free_devices`: the devices stay open.
pub(crate) unsafe extern "C" fn free_devices(list: *mut *mut Context) {
    // SAFETY: a list of ours, once.
    unsafe { libc::free(list.cast()) };
}
