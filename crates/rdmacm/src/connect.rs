//! Connecting, and being connected to.

use core::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use hirail_abi::{Cm, CmAddresses, CmParam, CmRequest, ConnParam, RdmaCmId};

use crate::address;
use crate::bridge::bridge;
use crate::entry::number;
use crate::errno::Errno;
use crate::id::{Id, MOST, Step, complete, qp_type};
use crate::qp;
use crate::registry::registry;

/// Why a program rejects, as the standard numbers it.
mod reason {
    /// Because it wants to.
    pub(super) const CONSUMER: u16 = 28;
    /// Because of the options of ECE.
    pub(super) const VENDOR_OPTION: u16 = 35;
}

/// `IBV_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: c_int = 4;

/// Status of an answer to a datagram service that is refused.
const REFUSED: u8 = 2;

/// Fields of three bits.
const MOST_RETRIES: u8 = 7;

/// What the program says, completed by what the id knows.
///
/// # Safety
/// The id exists; the parameters are NULL, or the caller's with all that they name.
unsafe fn param(id: &Arc<Id>, from: *const ConnParam) -> Result<CmParam, Errno> {
    let public = id.public();
    let state = id.state();
    let mut param = CmParam {
        qpn: 0,
        qkey: state.qkey,
        responder_resources: MOST,
        initiator_depth: MOST,
        flow_control: 0,
        retry_count: MOST_RETRIES,
        rnr_retry_count: MOST_RETRIES,
        srq: 0,
        status: 0,
        ack_timeout: state.options.ack_timeout.unwrap_or(0),
        ece_vendor: state.local_ece.0,
        ece_options: state.local_ece.1,
        private_data: state.connect_data.as_ptr(),
        private_data_len: state.connect_data.len(),
    };
    // SAFETY: as required of the caller.
    unsafe {
        if let Some(from) = from.as_ref() {
            param.qpn = from.qp_num;
            param.srq = from.srq;
            param.responder_resources = from.responder_resources;
            param.initiator_depth = from.initiator_depth;
            param.flow_control = from.flow_control;
            param.retry_count = from.retry_count.min(MOST_RETRIES);
            param.rnr_retry_count = from.rnr_retry_count.min(MOST_RETRIES);
            if from.private_data_len > 0 && !from.private_data.is_null() {
                param.private_data = from.private_data.cast();
                param.private_data_len = from.private_data_len.into();
            }
        }
        if let Some(own) = (*public).qp.as_ref() {
            param.qpn = own.qp_num;
            param.srq = u8::from(!own.srq.is_null());
        } else if from.is_null() && !id.is_datagram() {
            return Err(Errno::INVALID);
        }
    }
    Ok(param)
}

/// `rdma_connect`.
pub(crate) unsafe extern "C" fn connect(id: *mut RdmaCmId, from: *mut ConnParam) -> c_int {
    number(|| {
        // SAFETY: an id and parameters of the caller's.
        let (id, param) = unsafe {
            let id = Id::of(id)?;
            let param = param(&id, from)?;
            (id, param)
        };
        start(&id, param)?;
        complete(&id)
    })
}

fn start(id: &Arc<Id>, param: CmParam) -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: the id exists while somebody calls.
    let (space, qp_type) = unsafe { ((*id.public()).ps, (*id.public()).qp_type) };
    {
        // Its first event may come before this call is over, and must find the id.
        let mut registry = registry();
        let mut state = id.state();
        if state.step != Step::RouteResolved {
            return Err(Errno::INVALID);
        }
        let (Some(device), Some(path), Some(local), Some(remote)) =
            (state.device, state.path, state.local, state.remote)
        else {
            return Err(Errno::INVALID);
        };
        let cm = device.cm()?;
        let request = CmRequest {
            service: (space as u64) << 16 | u64::from(remote.port()),
            path,
            addresses: CmAddresses {
                source: address::gid(local.ip()),
                dest: address::gid(remote.ip()),
                source_port: local.port(),
            },
            qp_type,
            param,
        };
        let begin = match qp_type {
            qp_type::UD => bridge.query,
            _ => bridge.connect,
        };
        let mut comm = 0;
        // SAFETY: a manager of the other library, a channel that exists, and places.
        Errno::check(unsafe { begin(cm, &raw const request, state.channel.cm(), &raw mut comm) })?;
        registry.add(cm, comm, id);
        state.comm = Some(comm);
        state.step = Step::Connecting;
    }
    if qp_type == qp_type::UD {
        return Ok(());
    }
    qp::attach(id)
}

/// `rdma_accept`.
pub(crate) unsafe extern "C" fn accept(id: *mut RdmaCmId, from: *mut ConnParam) -> c_int {
    number(|| {
        let bridge = bridge()?;
        // SAFETY: an id and parameters of the caller's.
        unsafe {
            let id = Id::of(id)?;
            let (cm, comm) = id.connection()?;
            let mut param = param(&id, from)?;
            if id.is_datagram() {
                Errno::check((bridge.answer)(cm, comm, &raw const param))?;
                forget(&id, cm, comm);
                return Ok(());
            }
            let (resources, depth) = {
                let state = id.state();
                (state.responder_resources, state.initiator_depth)
            };
            param.responder_resources = qp::agreed(param.responder_resources, resources);
            param.initiator_depth = qp::agreed(param.initiator_depth, depth);
            if !(*id.public()).qp.is_null() {
                qp::ready(&id, param.responder_resources, param.initiator_depth)?;
            }
            Errno::check((bridge.accept)(cm, comm, &raw const param))
                .inspect_err(|_| qp::fail(&id))?;
            complete(&id)
        }
    })
}

/// `rdma_reject`.
pub(crate) unsafe extern "C" fn reject(
    id: *mut RdmaCmId,
    data: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: an id and data of the caller's.
    number(|| unsafe { refuse(id, reason::CONSUMER, data, length) })
}

/// `rdma_reject_ece`.
pub(crate) unsafe extern "C" fn reject_ece(
    id: *mut RdmaCmId,
    data: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: an id and data of the caller's.
    number(|| unsafe { refuse(id, reason::VENDOR_OPTION, data, length) })
}

/// Rejects a connection, or refuses a datagram service.
///
/// # Safety
/// The id exists; that many bytes are there.
unsafe fn refuse(
    id: *mut RdmaCmId,
    reason: u16,
    data: *const c_void,
    length: u8,
) -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: as required of the caller.
    unsafe {
        let id = Id::of(id)?;
        let (cm, comm) = id.connection()?;
        let said: &[u8] = if data.is_null() || length == 0 {
            &[]
        } else {
            slice::from_raw_parts(data.cast(), length.into())
        };
        let (data, length) = (said.as_ptr(), said.len());
        if id.is_datagram() {
            let param = CmParam {
                status: REFUSED,
                private_data: data,
                private_data_len: length,
                ..param(&id, core::ptr::null())?
            };
            Errno::check((bridge.answer)(cm, comm, &raw const param))?;
        } else {
            Errno::check((bridge.reject)(cm, comm, reason, data, length))?;
        }
        forget(&id, cm, comm);
    }
    Ok(())
}

/// Nothing more comes of a connection or question.
fn forget(id: &Arc<Id>, cm: *mut Cm, comm: u32) {
    registry().remove(cm, comm);
    let mut state = id.state();
    state.comm = None;
    state.step = Step::Connected;
}

/// `rdma_disconnect`.
pub(crate) unsafe extern "C" fn disconnect(id: *mut RdmaCmId) -> c_int {
    number(|| {
        // SAFETY: an id of the caller's.
        let id = unsafe { Id::of(id)? };
        let (is_over, is_known) = {
            let state = id.state();
            let is_over = state.comm.is_none() && state.step == Step::Connected;
            (is_over, state.step == Step::Disconnected)
        };
        if is_over {
            return Ok(());
        }
        qp::fail(&id);
        if is_known {
            // Its event has been taken, in place of the one that the last call waited for perhaps:
            // there is none to wait for now.
            return Ok(());
        }
        let (cm, comm) = id.connection()?;
        // SAFETY: a manager of the other library.
        Errno::check(unsafe { (bridge()?.disconnect)(cm, comm) })?;
        complete(&id)
    })
}

/// `rdma_establish`: the program's own queue pair is in RTS.
pub(crate) unsafe extern "C" fn establish(id: *mut RdmaCmId) -> c_int {
    number(|| {
        // SAFETY: an id of the caller's.
        unsafe {
            let id = Id::of(id)?;
            if !(*id.public()).qp.is_null() {
                return Err(Errno::INVALID);
            }
            let (cm, comm) = id.connection()?;
            Errno::check((bridge()?.confirm)(cm, comm))?;
            id.state().step = Step::Connected;
        }
        Ok(())
    })
}

/// `rdma_notify`: that data has come is known here before the program learns of it.
pub(crate) unsafe extern "C" fn notify(id: *mut RdmaCmId, event: c_int) -> c_int {
    number(|| {
        // SAFETY: an id of the caller's.
        let id = unsafe { Id::of(id)? };
        id.connection()?;
        if event != COMMUNICATION_ESTABLISHED {
            return Err(Errno::INVALID);
        }
        if id.state().step == Step::Connected {
            return Err(Errno(libc::EISCONN));
        }
        Ok(())
    })
}
