//! Being connected to: `rlisten`, `raccept`, and the requests in between, which are answered before
//! the program asks for them.

use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

use hirail_abi::ConnParam;
use libc::{sockaddr, socklen_t};

use super::endpoint::Handle;
use super::link::Prepared;
use super::protocol::Hello;
use super::stream::{self, Phase, Stream};
use super::table::{self, Kind, Socket};
use super::{name, service};
use crate::connect as cm;
use crate::entry;
use crate::errno::Errno;
use crate::listen;

/// Connections that may wait for the program, at least and at most.
const WAITING: (usize, usize) = (16, 1024);

/// `rlisten`.
pub(crate) unsafe extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    entry::number(|| {
        table::with_stream(fd, |socket, stream| {
            let mut state = stream.lock();
            match state.phase {
                Phase::Listening => return Ok(()),
                Phase::Fresh => {}
                _ => return Err(Errno::INVALID),
            }
            let handle = name::handle(&mut state)?;
            let most = usize::try_from(backlog).unwrap_or(WAITING.1);
            state.queue.most = most.clamp(WAITING.0, WAITING.1);
            service::register(handle.public(), socket)?;
            listen::start(&handle.id(), state.queue.most as c_int)
                .inspect_err(|_| service::forget(handle.public()))?;
            state.phase = Phase::Listening;
            Ok(())
        })
    })
}

/// Somebody asks a listener for a connection.
pub(super) fn asked(listener: &Arc<Socket>, handle: Handle, param: ConnParam, said: &[u8]) {
    let handle = Arc::new(handle);
    if admit(listener, &handle, param, said).is_err() {
        // SAFETY: an id that exists; nothing is said.
        unsafe { cm::reject(handle.public(), ptr::null(), 0) };
    }
}

fn admit(
    listener: &Arc<Socket>,
    handle: &Arc<Handle>,
    mut param: ConnParam,
    said: &[u8],
) -> Result<(), Errno> {
    let Kind::Stream(listening) = &listener.kind else {
        return Err(Errno::INVALID);
    };
    let peer = Hello::decode(said).ok_or(Errno(libc::EPROTONOSUPPORT))?;
    let settings = {
        let state = listening.lock();
        let heard = state.queue.pending.len() + state.queue.waiting.len();
        if state.phase != Phase::Listening || heard >= state.queue.most {
            return Err(Errno(libc::ECONNREFUSED));
        }
        state.settings.inherited()
    };
    let prepared = Prepared::new(handle, settings.sizes)?;
    let answer = prepared.hello().encode();
    let stream = Stream::new(settings);
    {
        let mut state = stream.lock();
        state.phase = Phase::Accepting;
        state.handle = Some(Arc::clone(handle));
        state.listener = Arc::downgrade(listener);
    }
    let socket = Socket::new(listener.family, Kind::Stream(Box::new(stream)))?;
    let Kind::Stream(stream) = &socket.kind else {
        return Err(Errno::INVALID);
    };
    socket.watch(prepared.fd())?;
    stream.lock().link = Some(prepared.connect(peer));
    service::register(handle.public(), &socket)?;
    listening.lock().queue.pending.push(Arc::clone(&socket));
    param.private_data = answer.as_ptr().cast();
    param.private_data_len = answer.len() as u8;
    // SAFETY: an id that exists, and parameters on the stack.
    if unsafe { cm::accept(handle.public(), &raw mut param) } != 0 {
        let errno = Errno::last();
        withdraw(&socket, stream);
        return Err(errno);
    }
    Ok(())
}

/// A connection that a listener has answered is there, and the program may take it.
pub(super) fn confirmed(socket: &Arc<Socket>, stream: &Stream) {
    let listener = {
        let mut state = stream.lock();
        state.open();
        state.listener.upgrade()
    };
    let Some(listener) = listener else { return };
    if let Kind::Stream(listening) = &listener.kind {
        let mut state = listening.lock();
        let mut pending = state.queue.pending.iter();
        if let Some(place) = pending.position(|other| Arc::ptr_eq(other, socket)) {
            let socket = state.queue.pending.swap_remove(place);
            state.queue.waiting.push_back(socket);
            state.edges.came += 1;
        }
    }
    listener.waiters.wake();
}

/// Nothing comes of a connection that a listener has answered.
pub(super) fn withdraw(socket: &Arc<Socket>, stream: &Stream) {
    let listener = stream.lock().listener.upgrade();
    if let Some(listener) = listener
        && let Kind::Stream(listening) = &listener.kind
    {
        let mut state = listening.lock();
        state
            .queue
            .pending
            .retain(|other| !Arc::ptr_eq(other, socket));
    }
}

/// `raccept`.
pub(crate) unsafe extern "C" fn raccept(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::value(|| {
        table::with_stream(fd, |socket, stream| {
            let state = stream.lock();
            let patience = state.receive_patience(socket, 0);
            let mut state = stream::wait(socket, stream, state, patience, |state| {
                state.phase != Phase::Listening || !state.queue.waiting.is_empty()
            })?;
            let taken = state.queue.waiting.pop_front();
            drop(state);
            let taken = taken.ok_or(Errno::INVALID)?;
            if !addr.is_null()
                && !length.is_null()
                && let Some(peer) = name::peer(&taken)
            {
                // SAFETY: places of the caller's.
                unsafe { name::write(peer, addr, length) };
            }
            Ok(taken.publish())
        })
    })
}
