//! Endpoints: an id and its queue pair in one call, for programs whose calls wait.

use core::ffi::c_int;
use std::ptr;
use std::slice;

use hirail_abi::{Pd, QpInitAttr, RdmaAddrInfo, RdmaCmId};

use crate::addrinfo::PASSIVE;
use crate::entry::{nothing, number};
use crate::errno::Errno;
use crate::id::{self, Id};
use crate::names::kind;
use crate::qp;
use crate::resolve;
use crate::srq;

/// `rdma_create_ep`.
pub(crate) unsafe extern "C" fn create_ep(
    to: *mut *mut RdmaCmId,
    info: *mut RdmaAddrInfo,
    pd: *mut Pd,
    init: *mut QpInitAttr,
) -> c_int {
    number(|| {
        // SAFETY: addresses, a domain, attributes and a place of the caller's.
        unsafe {
            let info = info.as_ref().ok_or(Errno::INVALID)?;
            let id = Id::hand_out(
                ptr::null_mut(),
                ptr::null_mut(),
                info.port_space,
                info.qp_type,
            )?;
            let public = id.public();
            set_up(public, info, pd, init).inspect_err(|_| {
                let _ = destroy(public);
            })?;
            to.write(public);
        }
        Ok(())
    })
}

/// Leads a new id as far as it comes before it connects or listens.
///
/// # Safety
/// The id exists, and all that is given.
unsafe fn set_up(
    public: *mut RdmaCmId,
    info: &RdmaAddrInfo,
    pd: *mut Pd,
    init: *mut QpInitAttr,
) -> Result<(), Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        let id = Id::of(public)?;
        if info.flags & PASSIVE != 0 {
            resolve::bind(&id, resolve::read(info.src_addr)?)?;
            if let Some(init) = init.as_mut() {
                init.qp_type = info.qp_type;
                id.state().qp_init = Some(*init);
            }
            if !pd.is_null() {
                (*public).pd = pd;
            }
            return Ok(());
        }
        let source = if info.src_addr.is_null() {
            None
        } else {
            Some(resolve::read(info.src_addr)?)
        };
        resolve::resolve(&id, source, resolve::read(info.dst_addr)?)?;
        resolve::route(&id)?;
        if let Some(init) = init.as_mut() {
            init.qp_type = info.qp_type;
            qp::create(public, pd, init)?;
        }
        if !info.connect.is_null() && info.connect_len > 0 {
            let said = slice::from_raw_parts(info.connect.cast::<u8>(), info.connect_len);
            id.state().connect_data = said.to_vec();
        }
    }
    Ok(())
}

/// `rdma_destroy_ep`.
pub(crate) unsafe extern "C" fn destroy_ep(id: *mut RdmaCmId) {
    nothing(|| {
        // SAFETY: an id of the caller's, once. The program cannot be told what is still in use.
        let _ = unsafe { destroy(id) };
    });
}

/// See [`destroy_ep`].
///
/// # Safety
/// The id exists, and nobody uses it any more.
unsafe fn destroy(id: *mut RdmaCmId) -> Result<(), Errno> {
    if id.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller.
    unsafe {
        let given_up = qp::destroy(id).and(srq::destroy(id));
        id::destroy(id)?;
        given_up
    }
}

/// `rdma_get_request`: the next request of a listener whose calls wait, with a queue pair if the
/// endpoint was made with attributes of one.
pub(crate) unsafe extern "C" fn get_request(
    listener: *mut RdmaCmId,
    to: *mut *mut RdmaCmId,
) -> c_int {
    number(|| {
        // SAFETY: an id and a place of the caller's; events and ids of ours.
        unsafe {
            let id = Id::of(listener)?;
            let (channel, init) = {
                let state = id.state();
                if !state.is_sync {
                    return Err(Errno::INVALID);
                }
                (state.channel.clone(), state.qp_init)
            };
            id::give_back(listener);
            let event = channel.next()?;
            if (*event).event != kind::CONNECT_REQUEST {
                let status = (*event).status.abs();
                crate::event::acknowledge(event);
                return Err(if status == 0 {
                    Errno::INVALID
                } else {
                    Errno(status)
                });
            }
            let child = (*event).id;
            if let Some(mut init) = init {
                init.qp_type = (*child).qp_type;
                // A domain of another device is of no use.
                let pd = (*listener).pd;
                let fits = !pd.is_null() && (*pd).context == (*child).verbs;
                let pd = if fits { pd } else { ptr::null_mut() };
                qp::create(child, pd, &raw mut init).inspect_err(|_| {
                    crate::event::acknowledge(event);
                    let _ = id::destroy(child);
                })?;
            }
            (*child).event = event;
            to.write(child);
        }
        Ok(())
    })
}
