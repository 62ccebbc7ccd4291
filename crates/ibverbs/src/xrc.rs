//! XRC domains, and target queue pairs that are opened a second time.
//!
//! A domain that is opened with a file is shared by all who open it with that file through one open
//! device. Others get a domain of their own: messages that come through a target queue pair are put
//! into memory by the process that has the queue pair, and memory of a shared receive queue of another
//! process it does not reach. That is enough for programs whose two ends are on one host, with the same
//! file for both; a message for a queue of another process is refused on the wire.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hirail::{Cq, Pd, QpType, Xrcd};

use crate::abi;
use crate::async_event::Subject;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::file::{self, Identity};
use crate::qp::{QpMaking, QpObject};
use crate::shared;

/// A handle to an XRC domain.
#[repr(C)]
pub(crate) struct XrcdObject {
    public: abi::Xrcd,
    pub(crate) domain: Arc<Domain>,
}

// SAFETY: it begins with its public part.
unsafe impl Object for XrcdObject {
    type Public = abi::Xrcd;
}

/// An XRC domain.
pub(crate) struct Domain {
    pub(crate) xrcd: Xrcd,
    /// What its target queue pairs have in place of a domain and a queue of their own. The memory
    /// that peers reach through them is that of the shared receive queue which they name.
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
}

impl Domain {
    fn new(context: &ContextObject) -> Result<Arc<Self>, Errno> {
        let hirail = context.hirail();
        Ok(Arc::new(Self {
            xrcd: hirail.alloc_xrcd()?,
            pd: hirail.alloc_pd()?,
            cq: hirail.create_cq(1)?,
        }))
    }
}

/// The domains of an open device that were opened with a file.
pub(crate) type Named = Mutex<BTreeMap<Identity, Weak<Domain>>>;

/// The domain of a file: the one that there is, or a new one, as the flags of `open(2)` say.
fn named(context: &ContextObject, fd: c_int, flags: c_int) -> Result<Arc<Domain>, Errno> {
    let identity = file::identity(shared::borrowed(fd)?)?;
    let domains = context.shared().xrc_domains.lock();
    let mut domains = domains.unwrap_or_else(PoisonError::into_inner);
    if let Some(domain) = domains.get(&identity).and_then(Weak::upgrade) {
        let is_to_be_new = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
        return if is_to_be_new {
            Err(Errno(libc::EEXIST))
        } else {
            Ok(domain)
        };
    }
    if flags & libc::O_CREAT == 0 {
        return Err(Errno::NO_ENTRY);
    }
    let domain = Domain::new(context)?;
    domains.retain(|_, domain| domain.strong_count() > 0);
    domains.insert(identity, Arc::downgrade(&domain));
    Ok(domain)
}

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`; both are needed.
const HAS_FD: u32 = 1;
const HAS_OFLAGS: u32 = 2;

/// `open_xrcd` of the extended table.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut abi::Context,
    init: *mut abi::XrcdInitAttr,
) -> *mut abi::Xrcd {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let init = unsafe { &*init };
        if init.comp_mask & !(HAS_FD | HAS_OFLAGS) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let is_private = init.fd == -1;
        if init.comp_mask != HAS_FD | HAS_OFLAGS || is_private && init.oflags & libc::O_CREAT == 0 {
            return Err(Errno::INVALID);
        }
        hirail::fork::check().map_err(hirail::Error::from)?;
        let domain = if is_private {
            Domain::new(context)?
        } else {
            named(context, init.fd, init.oflags)?
        };
        let public = abi::Xrcd {
            context: context.public(),
        };
        let object = XrcdObject { public, domain }.into_public();
        Ok(check::made(context, Kind::Xrcd, object, "XRC domain"))
    })
}

/// `close_xrcd` of the extended table. The last handle is refused while anything is in the domain.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut abi::Xrcd) -> c_int {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (XrcdObject::of(xrcd), device(&raw const (*xrcd).context)) };
    status(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        // Nobody opens it meanwhile.
        let domains = context.shared().xrc_domains.lock();
        let _domains = domains.unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&object.domain) == 1 && object.domain.xrcd.users() > 0 {
            return Err(Errno::BUSY);
        }
        check::going(Kind::Xrcd, xrcd);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { XrcdObject::take(xrcd) });
        Ok(())
    })
}

/// `IBV_QP_OPEN_ATTR_…`.
const HAS_NUMBER: u32 = 1;
const HAS_XRCD: u32 = 2;
const HAS_CONTEXT: u32 = 4;
const HAS_TYPE: u32 = 8;

/// `open_qp` of the extended table: another handle to a target queue pair.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut abi::Context,
    attr: *mut abi::QpOpenAttr,
) -> *mut abi::Qp {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { &*attr };
        let has = |bit| attr.comp_mask & bit != 0;
        let needed = HAS_NUMBER | HAS_XRCD | HAS_TYPE;
        if attr.comp_mask & needed != needed
            || attr.comp_mask & !(needed | HAS_CONTEXT) != 0
            || attr.qp_type != c_int::from(QpType::XrcRecv.code())
        {
            return Err(Errno::INVALID);
        }
        let qp = context.events.find(Subject::Qp(attr.qp_num), |address| {
            let public: *const abi::Qp = core::ptr::with_exposed_provenance(address);
            // SAFETY: what is found exists while it is being looked at.
            let object = unsafe { QpObject::of(public) };
            object.qp.clone()
        });
        let qp = qp
            .filter(|qp| qp.qp_type() == QpType::XrcRecv)
            .ok_or(Errno::INVALID)?;
        let making = QpMaking {
            base: abi::QpInitAttr {
                qp_context: if has(HAS_CONTEXT) {
                    attr.qp_context
                } else {
                    core::ptr::null_mut()
                },
                send_cq: core::ptr::null_mut(),
                recv_cq: core::ptr::null_mut(),
                srq: core::ptr::null_mut(),
                cap: abi::QpCap::default(),
                qp_type: attr.qp_type,
                sq_sig_all: 0,
                comp_mask: 0,
            },
            pd: core::ptr::null_mut(),
            xrcd: attr.xrcd,
            send_ops: 0,
        };
        Ok(QpObject::hand_out(context, qp, &making))
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;
    use crate::testing::Opened;

    fn open(opened: &Opened, fd: c_int, oflags: c_int) -> Result<*mut abi::Xrcd, c_int> {
        let mut init = abi::XrcdInitAttr {
            comp_mask: HAS_FD | HAS_OFLAGS,
            fd,
            oflags,
        };
        // SAFETY: the device is open.
        let xrcd = unsafe { open_xrcd(opened.context, &raw mut init) };
        if xrcd.is_null() {
            return Err(Errno::last().0);
        }
        Ok(xrcd)
    }

    fn close(xrcd: *mut abi::Xrcd) {
        // SAFETY: each is closed once.
        assert_eq!(unsafe { close_xrcd(xrcd) }, 0);
    }

    fn domain(xrcd: *mut abi::Xrcd) -> *const Domain {
        // SAFETY: it is open.
        Arc::as_ptr(&unsafe { XrcdObject::of(xrcd) }.domain)
    }

    #[test]
    fn who_opens_the_same_file_through_the_same_device_shares_the_domain() {
        let (opened, other) = (Opened::new(), Opened::new());
        let file: OwnedFd = file::in_memory(c"test", 0).unwrap();
        let copy = file.try_clone().unwrap();
        let (fd, same) = (file.as_raw_fd(), copy.as_raw_fd());
        let create = libc::O_CREAT;
        assert_eq!(open(&opened, fd, 0), Err(libc::ENOENT));
        let first = open(&opened, fd, create).unwrap();
        let second = open(&opened, same, 0).unwrap();
        assert_eq!(domain(first), domain(second));
        let exclusive = create | libc::O_EXCL;
        assert_eq!(open(&opened, same, exclusive), Err(libc::EEXIST));
        let private = open(&opened, -1, create).unwrap();
        assert_ne!(domain(first), domain(private));
        // Another open device has its own, and finds none that it has not made.
        assert_eq!(open(&other, fd, 0), Err(libc::ENOENT));
        let others = open(&other, fd, exclusive).unwrap();
        assert_ne!(domain(first), domain(others));
        close(first);
        let third = open(&opened, fd, 0).unwrap();
        assert_eq!(domain(third), domain(second));
        close(second);
        close(third);
        close(others);
        close(private);
        assert_eq!(open(&opened, -1, 0), Err(libc::EINVAL));
        assert_eq!(open(&opened, 1 << 20, create), Err(libc::EBADF));
    }
}
