//! `rdma_resolve_addrinfo`: `rdma_getaddrinfo` whose end is an event.

use core::ffi::{c_char, c_int};
use core::mem;
use std::ptr;

use hirail_abi::{RdmaAddrInfo, RdmaCmId};

use crate::addrinfo::{freeaddrinfo, getaddrinfo};
use crate::entry::number;
use crate::errno::Errno;
use crate::event::Told;
use crate::id::{Id, complete};
use crate::names::kind;

/// `RAI_SA`: by the subnet administrator, which Ethernet has none of.
const BY_SUBNET: c_int = 0x10;

/// How far the lookup of an id has come.
#[derive(Default)]
pub(crate) enum Lookup {
    #[default]
    None,
    Begun,
    /// Found, and not asked for yet.
    Done(Found),
}

/// What was found; it is freed with this.
pub(crate) struct Found(*mut RdmaAddrInfo);

// SAFETY: it is freed or given away once, by whomever.
unsafe impl Send for Found {}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: what `getaddrinfo` made, unless it was given away.
        unsafe { freeaddrinfo(self.0) };
    }
}

/// `rdma_resolve_addrinfo`.
pub(crate) unsafe extern "C" fn resolve_addrinfo(
    id: *mut RdmaCmId,
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrInfo,
) -> c_int {
    number(|| {
        // SAFETY: an id, text and hints of the caller's.
        unsafe {
            let id = Id::of(id)?;
            if hints
                .as_ref()
                .is_some_and(|hints| hints.flags & BY_SUBNET != 0)
            {
                return Err(Errno::UNSUPPORTED);
            }
            match &mut id.state().lookup {
                lookup @ Lookup::None => *lookup = Lookup::Begun,
                Lookup::Begun | Lookup::Done(_) => return Err(Errno(libc::EBUSY)),
            }
            let mut found = ptr::null_mut();
            let code = getaddrinfo(node, service, hints, &raw mut found);
            if found.is_null() {
                id.state().lookup = Lookup::None;
                return Err(match code {
                    -1 => Errno::last(),
                    // The resolver's numbers are no errno.
                    _ => Errno(libc::EADDRNOTAVAIL),
                });
            }
            id.state().lookup = Lookup::Done(Found(found));
            id.tell(Told::new(kind::ADDRINFO_RESOLVED, 0));
            complete(&id)
        }
    })
}

/// `rdma_query_addrinfo`: what was found, which is the program's to free.
pub(crate) unsafe extern "C" fn query_addrinfo(
    id: *mut RdmaCmId,
    to: *mut *mut RdmaAddrInfo,
) -> c_int {
    number(|| {
        if to.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an id and a place of the caller's.
        unsafe {
            let id = Id::of(id)?;
            let mut state = id.state();
            match mem::take(&mut state.lookup) {
                Lookup::Done(mut found) => {
                    to.write(mem::replace(&mut found.0, ptr::null_mut()));
                    Ok(())
                }
                other => {
                    state.lookup = other;
                    Err(Errno(libc::ENOENT))
                }
            }
        }
    })
}
