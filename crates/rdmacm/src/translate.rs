//! From events of the connection manager to those of rdma_cm. What the manager leaves to the owner of
//! a queue pair is done here, on the way.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use hirail_abi::{AhAttr, Bridge, CmEvent, CmPath, Gid, RdmaCmEvent, RdmaCmId, UdParam, cm_event};

use crate::address;
use crate::bridge::bridge;
use crate::channel::Channel;
use crate::device;
use crate::errno::Errno;
use crate::event::{self, Told};
use crate::id::{Id, MOST, Step, qp_type};
use crate::names::kind;
use crate::qp;
use crate::registry::registry;

/// What a look into a channel brings.
pub(crate) enum Next {
    Event(*mut RdmaCmEvent),
    /// Something that the program need not know.
    Nothing,
    Empty,
}

/// Takes the oldest event of the connection manager.
pub(crate) fn next(channel: &Channel) -> Result<Next, Errno> {
    let bridge = bridge()?;
    let mut event = MaybeUninit::<CmEvent>::uninit();
    // SAFETY: a channel that exists; the place is filled when the answer is 0.
    let event = unsafe {
        match (bridge.channel_next)(channel.cm(), event.as_mut_ptr()) {
            0 => event.assume_init(),
            libc::EAGAIN => return Ok(Next::Empty),
            errno => return Err(Errno(errno)),
        }
    };
    let is_heard = event.listener != 0;
    let owner = {
        let registry = registry();
        let owner = if is_heard {
            registry.listener(event.cm, event.listener)
        } else {
            registry.connection(event.cm, event.id)
        };
        // Who destroys the id waits from now on.
        owner.inspect(|owner| owner.taken())
    };
    let Some(owner) = owner else {
        if is_heard {
            // Nobody is left to answer.
            // SAFETY: a manager of the other library.
            let _ = unsafe { (bridge.destroy)(event.cm, event.id) };
        }
        return Ok(Next::Nothing);
    };
    let heard = if is_heard {
        request(bridge, &owner, &event)
    } else {
        progress(bridge, &owner, &event).map(|told| Heard {
            id: owner.public(),
            listener: ptr::null_mut(),
            told,
        })
    };
    Ok(match heard {
        Some(heard) => Next::Event(event::make(owner, heard.id, heard.listener, heard.told)),
        None => {
            owner.acknowledged();
            Next::Nothing
        }
    })
}

/// An event, and the ids that it names.
struct Heard {
    id: *mut RdmaCmId,
    listener: *mut RdmaCmId,
    told: Told,
}

/// Somebody asks for a connection or a datagram service: an id is made for it.
fn request(bridge: &Bridge, listener: &Arc<Id>, event: &CmEvent) -> Option<Heard> {
    let Ok(child) = child(bridge, listener, event) else {
        // SAFETY: a manager of the other library.
        let _ = unsafe { (bridge.destroy)(event.cm, event.id) };
        return None;
    };
    let told = Told::new(kind::CONNECT_REQUEST, 0);
    let told = match event.kind {
        cm_event::QUESTION => told.ud(ud_param(event), said(event)),
        _ => told.conn(&event.request.param, said(event)),
    };
    Some(Heard {
        id: child.public(),
        listener: listener.public(),
        told,
    })
}

fn child(bridge: &Bridge, listener: &Arc<Id>, event: &CmEvent) -> Result<Arc<Id>, Errno> {
    let parent = listener.public();
    let request = &event.request;
    let device = device::of(address::ip(request.path.local))?;
    let (is_sync, port) = {
        let state = listener.state();
        (state.is_sync, state.local.map_or(0, |local| local.port()))
    };
    // SAFETY: the listener exists: who destroys it waits for us.
    let id = unsafe {
        let channel = if is_sync {
            ptr::null_mut()
        } else {
            (*parent).channel
        };
        let qp_type = match event.kind {
            cm_event::QUESTION => qp_type::UD,
            _ => request.qp_type,
        };
        Id::hand_out(channel, (*parent).context, (*parent).ps, qp_type)?
    };
    let addresses = &request.addresses;
    let mut state = id.state();
    state.device = Some(device);
    state.step = Step::Connecting;
    state.comm = Some(event.id);
    state.local = Some((address::ip(addresses.dest), port).into());
    let peer = address::ip(addresses.source);
    state.remote = Some(SocketAddr::new(peer, addresses.source_port));
    state.path = Some(request.path);
    state.responder_resources = request.param.responder_resources;
    state.initiator_depth = request.param.initiator_depth;
    state.remote_ece = (request.param.ece_vendor, request.param.ece_options);
    id.show(&state);
    id.show_route(&state);
    if is_sync {
        // SAFETY: a manager of the other library and a channel that exists.
        let _ = unsafe { (bridge.move_to)(event.cm, event.id, state.channel.cm()) };
    }
    drop(state);
    registry().add(event.cm, event.id, &id);
    Ok(id)
}

/// Something happened to a connection.
fn progress(bridge: &Bridge, id: &Arc<Id>, event: &CmEvent) -> Option<Told> {
    let is_over = matches!(
        event.kind,
        cm_event::REJECTED | cm_event::UNREACHABLE | cm_event::TIMEWAIT_EXIT | cm_event::REPLY
    );
    if is_over {
        registry().remove(event.cm, event.id);
        let mut state = id.state();
        state.comm = None;
        state.step = Step::Connected;
    }
    let param = &event.request.param;
    Some(match event.kind {
        cm_event::RESPONSE => {
            let mut state = id.state();
            state.responder_resources = param.responder_resources;
            state.initiator_depth = param.initiator_depth;
            state.remote_ece = (param.ece_vendor, param.ece_options);
            drop(state);
            // SAFETY: the id exists: who destroys it waits for us.
            if unsafe { (*id.public()).qp.is_null() } {
                return Some(Told::new(kind::CONNECT_RESPONSE, 0).conn(param, said(event)));
            }
            match finish(bridge, id, event) {
                Ok(()) => Told::new(kind::ESTABLISHED, 0).conn(param, said(event)),
                Err(errno) => {
                    // SAFETY: a manager of the other library.
                    let _ = unsafe { (bridge.disconnect)(event.cm, event.id) };
                    Told::new(kind::CONNECT_ERROR, -errno.0)
                }
            }
        }
        cm_event::ESTABLISHED => {
            id.state().step = Step::Connected;
            Told::new(kind::ESTABLISHED, 0).conn(param, said(event))
        }
        cm_event::REJECTED => {
            qp::fail(id);
            Told::new(kind::REJECTED, c_int::from(event.reason)).conn(param, said(event))
        }
        cm_event::UNREACHABLE => Told::new(kind::UNREACHABLE, -libc::ETIMEDOUT),
        cm_event::DISCONNECTED => {
            id.state().step = Step::Disconnected;
            Told::new(kind::DISCONNECTED, 0)
        }
        cm_event::TIMEWAIT_EXIT => Told::new(kind::TIMEWAIT_EXIT, 0),
        cm_event::REPLY if param.status == 0 => {
            id.state().qkey = param.qkey;
            Told::new(kind::ESTABLISHED, 0).ud(ud_param(event), said(event))
        }
        cm_event::REPLY => Told::new(kind::UNREACHABLE, c_int::from(param.status)),
        _ => return None,
    })
}

/// The peer accepts: the queue pair goes to work.
fn finish(bridge: &Bridge, id: &Arc<Id>, event: &CmEvent) -> Result<(), Errno> {
    qp::ready(id, MOST, MOST)?;
    // SAFETY: a manager of the other library.
    Errno::check(unsafe { (bridge.confirm)(event.cm, event.id) })?;
    id.state().step = Step::Connected;
    Ok(())
}

fn said(event: &CmEvent) -> &[u8] {
    &event.private_data[..event.request.param.private_data_len]
}

fn ud_param(event: &CmEvent) -> UdParam {
    UdParam {
        private_data: ptr::null(),
        private_data_len: 0,
        ah_attr: ah_attr(&event.request.path),
        qp_num: event.request.param.qpn,
        qkey: event.request.param.qkey,
    }
}

/// The way of datagrams.
pub(crate) fn ah_attr(path: &CmPath) -> AhAttr {
    AhAttr {
        dgid: Gid(path.remote),
        flow_label: path.flow_label,
        sgid_index: path.sgid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.sl,
        is_global: 1,
        port_num: 1,
        ..AhAttr::default()
    }
}
