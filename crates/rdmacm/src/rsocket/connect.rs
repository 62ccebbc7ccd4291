//! Connecting, and what happens to connections.

use core::ffi::c_int;
use core::ptr;
use std::net::SocketAddr;
use std::sync::Arc;

use hirail_abi::ConnParam;
use libc::{sockaddr, socklen_t};

use super::link::Prepared;
use super::protocol::Hello;
use super::stream::{self, Phase, State, Stream};
use super::table::{self, Kind, Socket};
use super::{accept, datagram, name, service};
use crate::connect as cm;
use crate::entry;
use crate::errno::Errno;
use crate::id::Step;
use crate::names::kind;
use crate::resolve;

/// As often as possible, and without end where the peer has no receive posted.
const MOST_RETRIES: u8 = 7;

/// `rconnect`.
pub(crate) unsafe extern "C" fn rconnect(
    fd: c_int,
    addr: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::number(|| {
        // SAFETY: an address of the caller's.
        let remote = unsafe { name::read(addr, length)? };
        let socket = table::get(fd)?;
        match &socket.kind {
            Kind::Stream(stream) => start(&socket, stream, remote),
            Kind::Datagram(one) => datagram::connect(&socket, one, remote),
        }
    })
}

fn start(socket: &Arc<Socket>, stream: &Stream, remote: SocketAddr) -> Result<(), Errno> {
    let mut state = stream.lock();
    match state.phase {
        Phase::Fresh => {
            ask(socket, &mut state, remote).inspect_err(|errno| state.end(Some(*errno)))?;
        }
        Phase::Connecting if socket.is_hasty(0) => return Err(Errno(libc::EALREADY)),
        Phase::Connecting => {}
        Phase::Open => return Err(Errno(libc::EISCONN)),
        Phase::Over => return Err(state.error.take().unwrap_or(Errno(libc::ECONNABORTED))),
        Phase::Listening | Phase::Accepting => return Err(Errno::INVALID),
    }
    let patience = state.send_patience(socket, 0);
    let waited = stream::wait(socket, stream, state, patience, |state| {
        state.phase != Phase::Connecting
    });
    let mut state = match waited {
        Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EINPROGRESS)),
        waited => waited?,
    };
    match state.phase {
        Phase::Open => Ok(()),
        _ => Err(state.error.take().unwrap_or(Errno(libc::ECONNABORTED))),
    }
}

/// Asks the peer.
fn ask(socket: &Arc<Socket>, state: &mut State, remote: SocketAddr) -> Result<(), Errno> {
    let handle = name::handle(state)?;
    let id = handle.id();
    resolve::resolve(&id, None, remote)?;
    if id.state().step != Step::AddressResolved {
        return Err(Errno(libc::EHOSTUNREACH));
    }
    resolve::route(&id)?;
    let prepared = Prepared::new(&handle, state.settings.sizes)?;
    socket.watch(prepared.fd())?;
    let hello = prepared.hello().encode();
    state.prepared = Some(prepared);
    state.phase = Phase::Connecting;
    service::register(handle.public(), socket)?;
    let mut param = ConnParam {
        private_data: hello.as_ptr().cast(),
        private_data_len: hello.len() as u8,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 1,
        retry_count: MOST_RETRIES,
        rnr_retry_count: MOST_RETRIES,
        srq: 0,
        qp_num: 0,
    };
    // SAFETY: an id that exists, and parameters on the stack.
    match unsafe { cm::connect(handle.public(), &raw mut param) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Something happened to a connection.
pub(super) fn told(socket: &Arc<Socket>, stream: &Stream, kind: u32, status: c_int, said: &[u8]) {
    let phase = stream.lock().phase;
    let failed = match kind {
        kind::ESTABLISHED if phase == Phase::Accepting => {
            accept::confirmed(socket, stream);
            None
        }
        kind::ESTABLISHED if phase == Phase::Connecting => answered(stream, said).err(),
        kind::REJECTED => Some(Errno(libc::ECONNREFUSED)),
        kind::UNREACHABLE => Some(Errno(libc::ETIMEDOUT)),
        kind::CONNECT_ERROR => Some(Errno(status.abs().max(1))),
        kind::DISCONNECTED => {
            let mut state = stream.lock();
            // The peer's last words are heard first.
            state.look(socket);
            if state.phase == Phase::Open {
                state.end(None);
            }
            None
        }
        _ => return,
    };
    if let Some(errno) = failed {
        stream.lock().end(Some(errno));
    }
    if failed.is_some() && phase == Phase::Accepting {
        accept::withdraw(socket, stream);
    }
    socket.waiters.wake();
}

/// The peer has answered.
fn answered(stream: &Stream, said: &[u8]) -> Result<(), Errno> {
    let mut state = stream.lock();
    let peer = Hello::decode(said).ok_or(Errno(libc::EPROTONOSUPPORT))?;
    let prepared = state.prepared.take().ok_or(Errno::INVALID)?;
    state.link = Some(prepared.connect(peer));
    state.open();
    Ok(())
}

/// Nothing more is to be heard of a connection, and the peer is told.
pub(super) fn leave(state: &State) {
    if let Some(handle) = &state.handle {
        // SAFETY: an id that exists. It may be over by itself.
        unsafe { cm::disconnect(handle.public()) };
    }
}

/// Reads an address that a program may leave out.
///
/// # Safety
/// It is NULL, or so long.
pub(super) unsafe fn optional(
    addr: *const sockaddr,
    length: socklen_t,
) -> Result<Option<SocketAddr>, Errno> {
    if ptr::eq(addr, ptr::null()) {
        return Ok(None);
    }
    // SAFETY: as required of the caller.
    unsafe { name::read(addr, length).map(Some) }
}
