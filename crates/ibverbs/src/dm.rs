//! Memory of the device (`ibv_alloc_dm(3)`): memory of this library, which the program copies to and
//! from, and registers as it does memory of its own.
//!
//! As on cards, copies begin and end at multiples of four bytes, there is a certain amount of it for
//! each open device, and its descriptor can be mapped by other processes.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use hirail::Access;
use hirail::memory::UserRegion;
use hirail_rnic::host::Region;

use crate::abi;
use crate::context::ContextObject;
use crate::entry::{Object, device, number, pointer, status};
use crate::errno::Errno;
use crate::file::{self, Mapping};
use crate::mr::{MrObject, Owner, Place};
use crate::pd::PdObject;
use crate::shared::{Kind, Shared};

/// Bytes of it for each open device.
pub(crate) const MAX_DM_SIZE: u64 = 16 << 20;

/// It begins at a page.
const LOG_ALIGN: u32 = 12;

/// Copies begin and end at multiples of this.
const COPY_ALIGN: u64 = 4;

/// `IBV_DM_MASK_HANDLE`: the structure has a handle.
const HAS_HANDLE: u32 = 1;

/// The memory itself. All who use it hold it.
pub(crate) struct DeviceMemory {
    region: UserRegion,
    mapping: Mapping,
    file: OwnedFd,
    /// Registrations of it.
    regions: AtomicUsize,
    shared: Arc<Shared>,
}

/// Memory of the device, as a program has it.
#[repr(C)]
pub(crate) struct DmObject {
    public: abi::Dm,
    memory: Arc<DeviceMemory>,
}

// SAFETY: it begins with its public part.
unsafe impl Object for DmObject {
    type Public = abi::Dm;
}

impl DeviceMemory {
    fn new(shared: &Arc<Shared>, bytes: usize) -> Result<Self, Errno> {
        let taken = &shared.device_memory;
        let take = |taken: u64| {
            let taken = taken.checked_add(bytes as u64)?;
            (taken <= MAX_DM_SIZE).then_some(taken)
        };
        taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .map_err(|_| Errno::NO_MEMORY)?;
        let made = file::in_memory(c"hirail-dm", bytes as u64).and_then(|file| {
            let mapping = Mapping::new(file.as_fd(), 0, bytes, true)?;
            // SAFETY: the mapping is shared by its nature, so it is accessed by guarded copies only;
            // it goes after the region.
            let region = unsafe { UserRegion::new(mapping.addr(), bytes, true) };
            let region = region.ok_or(Errno::NO_MEMORY)?;
            Ok((region, mapping, file))
        });
        let (region, mapping, file) = made.inspect_err(|_| {
            taken.fetch_sub(bytes as u64, Ordering::AcqRel);
        })?;
        Ok(Self {
            region,
            mapping,
            file,
            regions: AtomicUsize::new(0),
            shared: Arc::clone(shared),
        })
    }

    /// Whether these bytes can be copied.
    fn check(&self, offset: u64, bytes: usize) -> Result<(), Errno> {
        let end = offset.checked_add(bytes as u64).ok_or(Errno::INVALID)?;
        let is_aligned = offset.is_multiple_of(COPY_ALIGN) && end.is_multiple_of(COPY_ALIGN);
        if end > self.region.len() as u64 || !is_aligned {
            return Err(Errno::INVALID);
        }
        Ok(())
    }
}

/// That it is registered, as long as the value is there.
pub(crate) struct Registered(Arc<DeviceMemory>);

impl Registered {
    fn new(memory: &Arc<DeviceMemory>) -> Self {
        memory.regions.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(memory))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.regions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let bytes = self.region.len() as u64;
        self.shared.device_memory.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl DmObject {
    fn hand_out(context: &ContextObject, memory: Arc<DeviceMemory>, handle: u32) -> *mut abi::Dm {
        let public = abi::Dm {
            context: context.public(),
            memcpy_to_dm,
            memcpy_from_dm,
            comp_mask: HAS_HANDLE,
            handle,
        };
        Self { public, memory }.into_public()
    }
}

/// `alloc_dm` of the extended table.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut abi::Context,
    attr: *mut abi::AllocDmAttr,
) -> *mut abi::Dm {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { &*attr };
        if attr.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if attr.length == 0 || attr.log_align_req > LOG_ALIGN {
            return Err(Errno::INVALID);
        }
        let memory = Arc::new(DeviceMemory::new(context.shared(), attr.length)?);
        let handles = &context.shared().handles;
        let handle = handles.next();
        let public = DmObject::hand_out(context, memory, handle);
        handles.add(Kind::Dm, handle, public.expose_provenance());
        Ok(public)
    })
}

/// `free_dm` of the extended table: refused while it is registered.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut abi::Dm) -> c_int {
    // SAFETY: memory of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (DmObject::of(dm), device(&raw const (*dm).context)) };
    status(context, || {
        if object.memory.regions.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        let handles = &context.shared().handles;
        handles.remove(Kind::Dm, object.public.handle);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { DmObject::take(dm) });
        Ok(())
    })
}

/// `ibv_import_dm`: another name for the same memory.
pub(crate) unsafe extern "C" fn import_dm(context: *mut abi::Context, handle: u32) -> *mut abi::Dm {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        let handles = &context.shared().handles;
        let memory = handles.find(Kind::Dm, handle, |address| {
            let public: *const abi::Dm = core::ptr::with_exposed_provenance(address);
            // SAFETY: what is found exists while it is being looked at.
            Arc::clone(&unsafe { DmObject::of(public) }.memory)
        })?;
        Ok(DmObject::hand_out(context, memory, handle))
    })
}

/// `ibv_unimport_dm`.
pub(crate) unsafe extern "C" fn unimport_dm(dm: *mut abi::Dm) {
    // SAFETY: imported memory of the caller's, which gives it up, once; the device it belongs to.
    unsafe {
        let context = device(&raw const (*dm).context);
        status(context, || {
            drop(DmObject::take(dm));
            Ok(())
        });
    }
}

/// `ibv_dm_export_dmabuf_fd`: a descriptor that can be mapped, and registered here as a DMA buffer
/// is. No driver of the kernel stands behind it, so none can attach it.
pub(crate) unsafe extern "C" fn dm_export_dmabuf_fd(dm: *mut abi::Dm) -> c_int {
    // SAFETY: memory of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (DmObject::of(dm), device(&raw const (*dm).context)) };
    number(context, || {
        let copy = object.memory.file.try_clone().map_err(|_| Errno::last())?;
        Ok(copy.into_raw_fd())
    })
}

/// `ibv_memcpy_to_dm`.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut abi::Dm,
    offset: u64,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: memory of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (DmObject::of(dm), device(&raw const (*dm).context)) };
    status(context, || {
        let memory = &object.memory;
        memory.check(offset, bytes)?;
        copy(from.cast_mut().cast(), bytes, |at, piece, program| {
            program.read_into(at, piece)?;
            memory.region.write(offset + at, piece)
        })
    })
}

/// `ibv_memcpy_from_dm`.
unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut abi::Dm,
    offset: u64,
    bytes: usize,
) -> c_int {
    // SAFETY: memory of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (DmObject::of(dm), device(&raw const (*dm).context)) };
    status(context, || {
        let memory = &object.memory;
        memory.check(offset, bytes)?;
        copy(to.cast(), bytes, |at, piece, program| {
            memory.region.read_into(offset + at, piece)?;
            program.write(at, piece)
        })
    })
}

/// Copies between the device's memory and the program's in pieces that pass through here: peers
/// change the one meanwhile, and the other may not be there.
fn copy(
    program: *mut u8,
    bytes: usize,
    job: impl Fn(u64, &mut [u8], &UserRegion) -> Result<(), hirail_rnic::host::Fault>,
) -> Result<(), Errno> {
    // SAFETY: nothing but guarded copies touches it during the call.
    let region = unsafe { UserRegion::new(program, bytes, true) }.ok_or(Errno::FAULT)?;
    let mut piece = [0; 4096];
    let mut at = 0;
    while at < bytes {
        let piece = &mut piece[..(bytes - at).min(4096)];
        job(at as u64, piece, &region).map_err(|_| Errno::FAULT)?;
        at += piece.len();
    }
    Ok(())
}

/// `reg_dm_mr` of the extended table: addresses in it begin with zero.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut abi::Pd,
    dm: *mut abi::Dm,
    offset: u64,
    length: usize,
    flags: c_uint,
) -> *mut abi::Mr {
    // SAFETY: the caller's, both, and the device that they belong to.
    let (domain, object, context) = unsafe {
        (
            PdObject::of(pd),
            DmObject::of(dm),
            device(&raw const (*pd).context),
        )
    };
    pointer(context, || {
        let access = Access::from_verbs(flags)?;
        let memory = &object.memory;
        let end = offset.checked_add(length as u64).ok_or(Errno::INVALID)?;
        if !access.contains(Access::ZERO_BASED) || end > memory.region.len() as u64 {
            return Err(Errno::INVALID);
        }
        let start = memory.mapping.addr().wrapping_add(offset as usize);
        // SAFETY: the memory is accessed by guarded copies only, here and, as the verbs demand, by
        // others who map it; it stays until the registration is gone, which holds it.
        let mr = unsafe { domain.pd.register_raw_at(start, length, 0, access) }?;
        let place = Place {
            pd,
            addr: core::ptr::null_mut(),
            length,
            iova: 0,
        };
        let owner = Owner::Device {
            _registered: Registered::new(memory),
        };
        Ok(MrObject::hand_out(context, place, mr, owner))
    })
}

#[cfg(test)]
mod tests {
    use core::ptr;
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;
    use crate::context::{close_device, import_device};
    use crate::mr::{dereg_mr, import_mr, unimport_mr};
    use crate::pd::{dealloc_pd, import_pd, unimport_pd};
    use crate::register::reg_dmabuf_mr;
    use crate::testing::Opened;

    fn attr(length: usize) -> abi::AllocDmAttr {
        abi::AllocDmAttr {
            length,
            log_align_req: 3,
            comp_mask: 0,
        }
    }

    const ZERO_BASED: c_uint = 1 | 1 << 5;

    #[test]
    fn there_is_a_certain_amount_and_it_comes_back() {
        let opened = Opened::new();
        let half = MAX_DM_SIZE as usize / 2;
        // SAFETY: what is allocated is freed once.
        unsafe {
            let alloc = |length| alloc_dm(opened.context, &mut attr(length));
            let (first, second) = (alloc(half), alloc(half));
            assert!(!first.is_null() && !second.is_null());
            assert!(alloc(4).is_null());
            assert_eq!(Errno::last(), Errno(libc::ENOMEM));
            assert_eq!(free_dm(first), 0);
            let third = alloc(4);
            assert!(!third.is_null());
            assert_eq!((free_dm(second), free_dm(third)), (0, 0));
            for wrong in [
                attr(0),
                abi::AllocDmAttr {
                    log_align_req: 13,
                    ..attr(4)
                },
            ] {
                let mut wrong = wrong;
                assert!(alloc_dm(opened.context, &raw mut wrong).is_null());
                assert_eq!(Errno::last(), Errno(libc::EINVAL));
            }
        }
    }

    #[test]
    fn memory_is_copied_registered_and_seen_by_who_has_the_descriptor() {
        let opened = Opened::new();
        // SAFETY: what is made is given up once, and in order.
        unsafe {
            let dm = alloc_dm(opened.context, &mut attr(100));
            let (to, from) = ((*dm).memcpy_to_dm, (*dm).memcpy_from_dm);
            let mut bytes = [0u8; 104];
            let place: *mut c_void = bytes.as_mut_ptr().cast();
            assert_eq!(to(dm, 96, b"last".as_ptr().cast(), 4), 0);
            assert_eq!(from(place, dm, 96, 4), 0);
            assert_eq!(&bytes[..4], b"last");
            for (offset, length) in [(3, 4), (4, 3), (104, 4), (0, 104), (u64::MAX - 3, 4)] {
                assert_eq!(to(dm, offset, place, length), libc::EINVAL);
                assert_eq!(from(place, dm, offset, length), libc::EINVAL);
            }
            let nowhere = ptr::without_provenance_mut(64);
            assert_eq!(to(dm, 0, nowhere, 4), libc::EFAULT);
            assert_eq!(from(nowhere, dm, 0, 4), libc::EFAULT);

            let fd = dm_export_dmabuf_fd(dm);
            let mr = reg_dmabuf_mr(opened.pd, 96, 4, 0, fd, 1);
            let seen = MrObject::of(mr).registered().to_vec(0, 4);
            assert_eq!(seen, b"last");
            assert_eq!(dereg_mr(mr), 0);
            drop(OwnedFd::from_raw_fd(fd));

            let reg = |offset, length, flags| reg_dm_mr(opened.pd, dm, offset, length, flags);
            for (offset, length, flags) in [(0, 104, ZERO_BASED), (101, 0, ZERO_BASED), (0, 4, 1)] {
                assert!(reg(offset, length, flags).is_null());
                assert_eq!(Errno::last(), Errno(libc::EINVAL));
            }
            let mr = reg(96, 4, ZERO_BASED);
            let seen = MrObject::of(mr).registered().to_vec(0, 4);
            assert_eq!(seen, b"last");
            assert_eq!(free_dm(dm), libc::EBUSY);
            assert_eq!(dereg_mr(mr), 0);
            assert_eq!(free_dm(dm), 0);
        }
    }

    #[test]
    fn objects_are_imported_through_a_duplicate_of_the_descriptor() {
        let opened = Opened::new();
        // SAFETY: what is made is given up once, and in order.
        unsafe {
            let dm = alloc_dm(opened.context, &mut attr(8));
            let mr = reg_dm_mr(opened.pd, dm, 0, 8, ZERO_BASED);
            let context = import_device(libc::dup((*opened.context).cmd_fd));
            assert_ne!(context, opened.context);
            let pd = import_pd(context, (*opened.pd).handle);
            let same = import_mr(pd, (*mr).handle);
            assert_eq!(((*same).lkey, (*same).rkey), ((*mr).lkey, (*mr).rkey));
            assert_eq!(((*same).addr, (*same).length), (ptr::null_mut(), 8));
            let shared = import_dm(context, (*dm).handle);
            assert_eq!(
                ((*dm).memcpy_to_dm)(dm, 0, b"both see".as_ptr().cast(), 8),
                0
            );
            let mut seen = [0; 8];
            let to = seen.as_mut_ptr().cast();
            assert_eq!(((*shared).memcpy_from_dm)(to, shared, 0, 8), 0);
            assert_eq!(&seen, b"both see");
            // The domain is in use, whoever uses it.
            assert_eq!(dealloc_pd(opened.pd), libc::EBUSY);
            assert_eq!(dereg_mr(same), libc::EINVAL);
            unimport_mr(same);
            unimport_dm(shared);
            unimport_pd(pd);
            for (kind, handle) in [("pd", (*mr).handle), ("mr", u32::MAX)] {
                let found = match kind {
                    "pd" => import_pd(context, handle).cast::<c_void>(),
                    _ => import_mr(opened.pd, handle).cast(),
                };
                assert!(found.is_null());
                assert_eq!(Errno::last(), Errno(libc::ENOENT));
            }
            assert_eq!(close_device(context), 0);
            assert_eq!((dereg_mr(mr), free_dm(dm)), (0, 0));
            // Neither is a descriptor of an open device.
            let other = file::in_memory(c"test", 0).unwrap();
            for (fd, errno) in [(-1, libc::EBADF), (other.as_raw_fd(), libc::EOPNOTSUPP)] {
                assert!(import_device(fd).is_null());
                assert_eq!(Errno::last(), Errno(errno));
            }
        }
    }
}
