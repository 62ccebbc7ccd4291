//! What an open device has in common with those that are imported from its descriptor
//! (`ibv_import_device(3)`): the device underneath, its events, its end, and the numbers of objects
//! that can be imported.
//!
//! Other processes cannot import. An object is no entry in a kernel here but memory of the process
//! that made it, and a region is a range of that process's addresses: a queue pair elsewhere could
//! use neither, whatever number it is told.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::async_event::{AsyncEvents, Subject};
use crate::check;
use crate::device::DeviceObject;
use crate::errno::Errno;
use crate::file::{self, Identity};
use crate::xrc;

/// What is shared.
pub(crate) struct Shared {
    pub(crate) device: &'static DeviceObject,
    /// Objects and threads may hold it longer than the program holds the device.
    pub(crate) hirail: hirail::Context,
    pub(crate) events: Arc<AsyncEvents>,
    failed: AtomicBool,
    pub(crate) handles: Handles,
    pub(crate) xrc_domains: xrc::Named,
    /// Bytes of device memory that are taken.
    pub(crate) device_memory: AtomicU64,
}

/// Everything that is open, by the file that its descriptor is of.
static OPEN: Mutex<BTreeMap<Identity, Weak<Shared>>> = Mutex::new(BTreeMap::new());

fn open() -> MutexGuard<'static, BTreeMap<Identity, Weak<Shared>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// What belongs to a device that was just opened, whose descriptor is `command`.
    pub(crate) fn new(
        device: &'static DeviceObject,
        hirail: hirail::Context,
        command: BorrowedFd<'_>,
    ) -> Result<Arc<Self>, Errno> {
        let events = Arc::new(AsyncEvents::new()?);
        let raised = Arc::clone(&events);
        hirail.handle_async_events(move |event| {
            if let hirail::AsyncEvent::CqErr(cq) = event {
                raised.find(Subject::Cq(cq.0), check::overran);
            }
            raised.raise(event);
        });
        let shared = Arc::new(Self {
            device,
            hirail,
            events,
            failed: AtomicBool::new(false),
            handles: Handles::default(),
            xrc_domains: xrc::Named::default(),
            device_memory: AtomicU64::new(0),
        });
        let identity = file::identity(command)?;
        let mut open = open();
        open.retain(|_, shared| shared.strong_count() > 0);
        open.insert(identity, Arc::downgrade(&shared));
        Ok(shared)
    }

    /// What belongs to the device that `command` is a descriptor of.
    ///
    /// # Errors
    /// It is no open descriptor, or none of a device that this process has open.
    pub(crate) fn of(command: BorrowedFd<'_>) -> Result<Arc<Self>, Errno> {
        let identity = file::identity(command)?;
        let shared = open().get(&identity).and_then(Weak::upgrade);
        shared.ok_or(Errno::UNSUPPORTED)
    }

    /// Whether a panic has been caught.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Gives the device up, and tells of it once.
    #[cold]
    pub(crate) fn fail(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.events.raise(hirail::AsyncEvent::DeviceFatal);
        }
    }
}

/// A kind of object that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pd,
    Mr,
    Dm,
}

/// The numbers by which objects are imported, and where the objects are.
#[derive(Default)]
pub(crate) struct Handles {
    last: AtomicU32,
    addresses: Mutex<BTreeMap<(Kind, u32), usize>>,
}

impl Handles {
    fn addresses(&self) -> MutexGuard<'_, BTreeMap<(Kind, u32), usize>> {
        let addresses = self.addresses.lock();
        addresses.unwrap_or_else(PoisonError::into_inner)
    }

    /// A new number. Billions of objects later one comes again.
    pub(crate) fn next(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The object at `address` can be imported from now on. Not in a forked child: somebody who is
    /// not there may hold the lock.
    pub(crate) fn add(&self, kind: Kind, handle: u32, address: usize) {
        if hirail::fork::check().is_ok() {
            self.addresses().insert((kind, handle), address);
        }
    }

    /// It cannot any more, and nobody is looking at it.
    pub(crate) fn remove(&self, kind: Kind, handle: u32) {
        if hirail::fork::check().is_ok() {
            self.addresses().remove(&(kind, handle));
        }
    }

    /// What `look` sees at the address of an object, which is there so long.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find<T>(
        &self,
        kind: Kind,
        handle: u32,
        look: impl FnOnce(usize) -> T,
    ) -> Result<T, Errno> {
        let addresses = self.addresses();
        let address = addresses.get(&(kind, handle)).ok_or(Errno::NO_ENTRY)?;
        Ok(look(*address))
    }
}

/// A descriptor that was passed by its number.
///
/// # Errors
/// A number that none has.
pub(crate) fn borrowed<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the caller's, for the time of its call; one that is not open is refused by the kernel.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
