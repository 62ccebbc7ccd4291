//! Hearing requests.

use core::ffi::c_int;
use core::mem;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hirail_abi::RdmaCmId;

use crate::channel::Channel;
use crate::device;
use crate::entry::number;
use crate::errno::Errno;
use crate::id::{Id, State, Step};
use crate::port;
use crate::registry::registry;
use crate::resolve;

/// Requests that may wait where the program does not say, and at most.
const MOST_WAITING: u32 = 1024;

/// `rdma_listen`.
pub(crate) unsafe extern "C" fn listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    number(|| {
        // SAFETY: an id of the caller's.
        start(&unsafe { Id::of(id)? }, backlog)
    })
}

/// See [`listen`].
pub(crate) fn start(id: &Arc<Id>, backlog: c_int) -> Result<(), Errno> {
    if id.state().step == Step::Idle {
        resolve::bind(id, (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).into())?;
    }
    let mut state = id.state();
    if state.step != Step::Bound {
        return Err(Errno::INVALID);
    }
    state.backlog = match u32::try_from(backlog) {
        Ok(backlog @ 1..MOST_WAITING) => backlog,
        _ => MOST_WAITING,
    };
    if state.ports.is_empty() {
        take_ports(id, &mut state)?;
    }
    hear(id, &state)?;
    state.step = Step::Listening;
    Ok(())
}

/// Takes the ports of an address that is bound.
fn take_ports(id: &Arc<Id>, state: &mut State) -> Result<(), Errno> {
    let local = state.local.ok_or(Errno::INVALID)?;
    let devices = match state.device {
        Some(device) => vec![device],
        None => device::all()?,
    };
    // SAFETY: the id exists while somebody calls.
    let space = unsafe { (*id.public()).ps } as u16;
    (state.ports, _) = port::bind(&devices, space, local.ip(), local.port())?;
    Ok(())
}

fn hear(id: &Arc<Id>, state: &State) -> Result<(), Errno> {
    let mut registry = registry();
    for port in &state.ports {
        let (cm, listener) = port.listen(state.backlog, &state.channel)?;
        registry.add_listener(cm, listener, id);
    }
    Ok(())
}

/// A listener's requests go to another channel from now on. Those that nobody has taken yet are
/// refused.
pub(crate) fn move_to(id: &Arc<Id>, channel: &Arc<Channel>) -> Result<(), Errno> {
    let mut state = id.state();
    if state.step != Step::Listening {
        return Ok(());
    }
    registry().remove_listeners(id);
    drop(mem::take(&mut state.ports));
    state.channel = Arc::clone(channel);
    take_ports(id, &mut state)?;
    hear(id, &state)
}
