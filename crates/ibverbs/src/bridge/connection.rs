//! Connections and questions, by their communication ids.

use core::ffi::c_int;
use std::slice;

use hirail::cm::{
    Accept, Answer, CommId, Connect, Ece, IpHeader, Query, RejReason, ServiceId, ServiceStatus,
    Transport,
};
use hirail::{AckTimeout, Gid, QKey, QpState, QpType, Qpn};

use super::{channel, manager, path_of_c, status};
use crate::abi;
use crate::entry::Object;
use crate::errno::Errno;
use crate::qp::{self, QpObject};

/// What a user says.
///
/// # Safety
/// That many bytes are there, if any, until the slice is gone.
unsafe fn said<'a>(data: *const u8, length: usize) -> &'a [u8] {
    if data.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: as required of the caller.
    unsafe { slice::from_raw_parts(data, length) }
}

/// The private data of what a user says.
///
/// # Safety
/// As [`said`].
unsafe fn private_data(param: &abi::CmParam) -> &[u8] {
    // SAFETY: as required of the caller.
    unsafe { said(param.private_data, param.private_data_len) }
}

fn ece(param: &abi::CmParam) -> Option<Ece> {
    (param.ece_vendor != 0).then_some(Ece {
        vendor: param.ece_vendor,
        options: param.ece_options,
    })
}

fn header(addresses: &abi::CmAddresses) -> IpHeader {
    IpHeader {
        source_port: addresses.source_port,
        source: Gid(addresses.source).to_ip(),
        dest: Gid(addresses.dest).to_ip(),
    }
}

pub(super) unsafe extern "C" fn connect(
    cm: *mut abi::Cm,
    request: *const abi::CmRequest,
    events: *mut abi::CmChannel,
    id: *mut u32,
) -> c_int {
    status(|| {
        // SAFETY: a manager and a channel of ours, and the caller's request and place.
        unsafe {
            let (manager, request) = (manager(cm), &*request);
            let service = ServiceId(request.service);
            let param = &request.param;
            let (path, mtu) = (path_of_c(&request.path), manager.context().port_mtu());
            let connect = Connect {
                addresses: service.port().map(|_| header(&request.addresses)),
                transport: match QpType::from_code(request.qp_type as u8) {
                    Some(QpType::Rc) => Transport::Rc,
                    Some(QpType::Uc) => Transport::Uc,
                    Some(QpType::XrcSend) => Transport::Xrc,
                    _ => return Err(Errno::UNSUPPORTED),
                },
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                retry_count: param.retry_count,
                rnr_retry_count: param.rnr_retry_count,
                flow_control: param.flow_control != 0,
                srq: param.srq != 0,
                ack_timeout: (param.ack_timeout != 0).then(|| AckTimeout::new(param.ack_timeout)),
                ece: ece(param),
                private_data: private_data(param),
                ..Connect::new(service, path, Qpn::new(param.qpn), mtu)
            };
            id.write(manager.connect(&connect, channel::of(events))?.0);
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn query(
    cm: *mut abi::Cm,
    request: *const abi::CmRequest,
    events: *mut abi::CmChannel,
    id: *mut u32,
) -> c_int {
    status(|| {
        // SAFETY: a manager and a channel of ours, and the caller's request and place.
        unsafe {
            let request = &*request;
            let service = ServiceId(request.service);
            let query = Query {
                service,
                path: path_of_c(&request.path),
                addresses: service.port().map(|_| header(&request.addresses)),
                private_data: private_data(&request.param),
            };
            id.write(manager(cm).query(&query, channel::of(events))?.0);
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn accept(
    cm: *mut abi::Cm,
    id: u32,
    param: *const abi::CmParam,
) -> c_int {
    status(|| {
        // SAFETY: a manager of ours and what the caller says.
        unsafe {
            let param = &*param;
            let accept = Accept {
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                rnr_retry_count: param.rnr_retry_count,
                flow_control: param.flow_control != 0,
                srq: param.srq != 0,
                ece: ece(param),
                private_data: private_data(param),
                ..Accept::new(Qpn::new(param.qpn))
            };
            Ok(manager(cm).accept(CommId(id), &accept)?)
        }
    })
}

pub(super) unsafe extern "C" fn answer(
    cm: *mut abi::Cm,
    id: u32,
    param: *const abi::CmParam,
) -> c_int {
    status(|| {
        // SAFETY: a manager of ours and what the caller says.
        unsafe {
            let param = &*param;
            let answer = Answer {
                status: ServiceStatus(param.status),
                qpn: Qpn::new(param.qpn),
                qkey: QKey(param.qkey),
                ece: ece(param),
                private_data: private_data(param),
            };
            Ok(manager(cm).answer(CommId(id), &answer)?)
        }
    })
}

pub(super) unsafe extern "C" fn confirm(cm: *mut abi::Cm, id: u32) -> c_int {
    // SAFETY: a manager of ours.
    status(|| Ok(unsafe { manager(cm) }.confirm(CommId(id), &[])?))
}

pub(super) unsafe extern "C" fn reject(
    cm: *mut abi::Cm,
    id: u32,
    reason: u16,
    data: *const u8,
    length: usize,
) -> c_int {
    status(|| {
        // SAFETY: a manager of ours and what the caller says.
        let (manager, data) = unsafe { (manager(cm), said(data, length)) };
        Ok(manager.reject(CommId(id), RejReason(reason), data)?)
    })
}

pub(super) unsafe extern "C" fn disconnect(cm: *mut abi::Cm, id: u32) -> c_int {
    // SAFETY: a manager of ours.
    status(|| Ok(unsafe { manager(cm) }.disconnect(CommId(id), &[])?))
}

pub(super) unsafe extern "C" fn destroy(cm: *mut abi::Cm, id: u32) -> c_int {
    // SAFETY: a manager of ours.
    status(|| Ok(unsafe { manager(cm) }.destroy(CommId(id))?))
}

pub(super) unsafe extern "C" fn attach(cm: *mut abi::Cm, id: u32, qp: *mut abi::Qp) -> c_int {
    status(|| {
        // SAFETY: a manager and a queue pair of ours.
        unsafe { manager(cm).attach(CommId(id), &QpObject::of(qp).qp) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn attributes(
    cm: *mut abi::Cm,
    id: u32,
    state: c_int,
    to: *mut abi::QpAttr,
    mask: *mut c_int,
) -> c_int {
    status(|| {
        let state = u8::try_from(state).ok().and_then(QpState::from_code);
        let state = state.ok_or(Errno::INVALID)?;
        // SAFETY: a manager of ours and the caller's places.
        unsafe {
            let (attr, meant) = manager(cm).attributes(CommId(id), state)?;
            to.write(qp::attributes_to_c(&attr));
            mask.write(meant.bits().cast_signed());
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn move_to(
    cm: *mut abi::Cm,
    id: u32,
    events: *mut abi::CmChannel,
) -> c_int {
    status(|| {
        // SAFETY: a manager and a channel of ours.
        unsafe { manager(cm).move_to(CommId(id), channel::of(events)) };
        Ok(())
    })
}
