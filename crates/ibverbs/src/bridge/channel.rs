//! Events of connections.

use core::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;

use hirail::Gid;
use hirail::cm::{Event, EventChannel, IpHeader, Notice, Path};

use super::{name, path_to_c, pointer, status};
use crate::abi::{self, cm_event};
use crate::errno::Errno;

pub(super) unsafe extern "C" fn new() -> *mut abi::CmChannel {
    pointer(|| Ok(Box::into_raw(Box::new(EventChannel::new()?)).cast()))
}

/// The channel behind its name in C.
///
/// # Safety
/// It came out of [`new`] and is not freed while the reference is used.
pub(super) unsafe fn of<'a>(channel: *mut abi::CmChannel) -> &'a EventChannel {
    // SAFETY: as required of the caller.
    unsafe { &*channel.cast() }
}

pub(super) unsafe extern "C" fn fd(channel: *mut abi::CmChannel) -> c_int {
    // SAFETY: a channel of ours.
    unsafe { of(channel) }.fd().as_raw_fd()
}

pub(super) unsafe extern "C" fn free(channel: *mut abi::CmChannel) {
    // SAFETY: a channel of ours, which the caller gives up, once.
    drop(unsafe { Box::from_raw(channel.cast::<EventChannel>()) });
}

pub(super) unsafe extern "C" fn next(
    channel: *mut abi::CmChannel,
    event: *mut abi::CmEvent,
) -> c_int {
    status(|| {
        // SAFETY: a channel of ours.
        let notice = unsafe { of(channel) }.try_event()?;
        let notice = notice.ok_or(Errno(libc::EAGAIN))?;
        // SAFETY: the caller's place.
        unsafe { event.write(translate(&notice)) };
        Ok(())
    })
}

const NO_PARAM: abi::CmParam = abi::CmParam {
    qpn: 0,
    qkey: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    status: 0,
    ack_timeout: 0,
    ece_vendor: 0,
    ece_options: 0,
    private_data: ptr::null(),
    private_data_len: 0,
};

fn translate(notice: &Notice) -> abi::CmEvent {
    let mut to = abi::CmEvent {
        kind: 0,
        id: notice.event.id().0,
        cm: name(&notice.manager),
        listener: 0,
        reason: 0,
        request: abi::CmRequest {
            service: 0,
            path: abi::CmPath::default(),
            addresses: abi::CmAddresses::default(),
            qp_type: 0,
            param: NO_PARAM,
        },
        private_data: [0; 256],
    };
    let nothing: &[u8] = &[];
    let request = &mut to.request;
    let param = &mut request.param;
    let said = match &notice.event {
        Event::Request(asked) => {
            to.kind = cm_event::REQUEST;
            to.listener = asked.listener.map_or(0, |listener| listener.0);
            request.service = asked.service.0;
            request.path = path_to_c(&asked.path);
            request.addresses = addresses(asked.addresses.as_ref(), &asked.path);
            request.qp_type = match asked.transport {
                hirail::cm::Transport::Uc => hirail::QpType::Uc,
                hirail::cm::Transport::Xrc => hirail::QpType::XrcRecv,
                _ => hirail::QpType::Rc,
            }
            .code()
            .into();
            *param = abi::CmParam {
                qpn: asked.qpn.value(),
                responder_resources: asked.responder_resources,
                initiator_depth: asked.initiator_depth,
                flow_control: asked.flow_control.into(),
                retry_count: asked.retry_count,
                rnr_retry_count: asked.rnr_retry_count,
                srq: asked.srq.into(),
                ece_vendor: asked.ece.map_or(0, |ece| ece.vendor),
                ece_options: asked.ece.map_or(0, |ece| ece.options),
                ..NO_PARAM
            };
            &asked.private_data
        }
        Event::Response(answer) => {
            to.kind = cm_event::RESPONSE;
            *param = abi::CmParam {
                qpn: answer.qpn.value(),
                responder_resources: answer.responder_resources,
                initiator_depth: answer.initiator_depth,
                flow_control: answer.flow_control.into(),
                rnr_retry_count: answer.rnr_retry_count,
                srq: answer.srq.into(),
                ece_vendor: answer.ece.map_or(0, |ece| ece.vendor),
                ece_options: answer.ece.map_or(0, |ece| ece.options),
                ..NO_PARAM
            };
            &answer.private_data
        }
        Event::Established { private_data, .. } => {
            to.kind = cm_event::ESTABLISHED;
            private_data
        }
        Event::Rejected {
            reason,
            private_data,
            ..
        } => {
            to.kind = cm_event::REJECTED;
            to.reason = reason.0;
            private_data
        }
        Event::Unreachable { .. } => {
            to.kind = cm_event::UNREACHABLE;
            nothing
        }
        Event::Disconnected { .. } => {
            to.kind = cm_event::DISCONNECTED;
            nothing
        }
        Event::TimewaitExit { .. } => {
            to.kind = cm_event::TIMEWAIT_EXIT;
            nothing
        }
        Event::Question(asked) => {
            to.kind = cm_event::QUESTION;
            to.listener = asked.listener.0;
            request.service = asked.service.0;
            request.path = path_to_c(&asked.path);
            request.addresses = addresses(asked.addresses.as_ref(), &asked.path);
            request.qp_type = hirail::QpType::Ud.code().into();
            &asked.private_data
        }
        Event::Reply(answer) => {
            to.kind = cm_event::REPLY;
            request.path = path_to_c(&answer.path);
            *param = abi::CmParam {
                qpn: answer.qpn.value(),
                qkey: answer.qkey.0,
                status: answer.status.0,
                ece_vendor: answer.ece.map_or(0, |ece| ece.vendor),
                ece_options: answer.ece.map_or(0, |ece| ece.options),
                ..NO_PARAM
            };
            &answer.private_data
        }
    };
    let length = said.len().min(to.private_data.len());
    to.private_data[..length].copy_from_slice(&said[..length]);
    to.request.param.private_data_len = length;
    to
}

/// The addresses that a request names, or those that it came with.
fn addresses(header: Option<&IpHeader>, path: &Path) -> abi::CmAddresses {
    match header {
        Some(header) => abi::CmAddresses {
            source: Gid::from_ip(header.source).0,
            dest: Gid::from_ip(header.dest).0,
            source_port: header.source_port,
        },
        None => abi::CmAddresses {
            source: path.remote.0,
            dest: path.local.0,
            source_port: 0,
        },
    }
}
