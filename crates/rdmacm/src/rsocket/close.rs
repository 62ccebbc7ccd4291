//! The end: `rshutdown`, `rclose`, and the end of the process.

use core::ffi::c_int;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::protocol::Control;
use super::stream::{LAST_WORDS, Phase, State, Stream, wait};
use super::table::{self, Kind, Socket};
use super::wait::Patience;
use super::{connect, datagram};
use crate::entry;
use crate::errno::Errno;

/// `rshutdown`. It comes back when the peer has what was sent.
pub(crate) unsafe extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    entry::number(|| {
        let socket = table::get(fd)?;
        match &socket.kind {
            Kind::Stream(stream) => {
                let state = stream.lock();
                match state.phase {
                    Phase::Fresh | Phase::Connecting | Phase::Accepting => {
                        Err(Errno(libc::ENOTCONN))
                    }
                    _ => shut(&socket, stream, state, how, Patience::Endless).map(drop),
                }
            }
            Kind::Datagram(one) => datagram::shut(&socket, one, how),
        }
    })
}

/// See [`rshutdown`].
fn shut<'a>(
    socket: &Socket,
    stream: &'a Stream,
    mut state: MutexGuard<'a, State>,
    how: c_int,
    patience: Patience,
) -> Result<MutexGuard<'a, State>, Errno> {
    let (reads, writes) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Err(Errno::INVALID),
    };
    if state.phase == Phase::Listening && reads {
        state.end(None);
        socket.waiters.wake();
    }
    if state.phase != Phase::Open {
        return Ok(state);
    }
    let was_writable = state.can_write;
    state.can_read &= !reads;
    state.can_write &= !writes;
    let word = match (state.can_read, state.can_write) {
        (false, false) => Control::Disconnect,
        (true, false) if was_writable => Control::Shutdown,
        // The peer need not know that nobody reads.
        _ => return Ok(state),
    };
    socket.waiters.wake();
    state = wait(socket, stream, state, patience, |state| {
        let link = state.link.as_ref();
        state.phase != Phase::Open || link.is_none_or(|link| link.sender.can_control())
    })?;
    if let (Phase::Open, Some(link)) = (state.phase, &mut state.link) {
        link.say(word)?;
    }
    state = wait(socket, stream, state, patience, |state| {
        let link = state.link.as_ref();
        state.phase != Phase::Open || link.is_none_or(|link| link.sender.is_idle())
    })?;
    if state.phase == Phase::Over {
        connect::leave(&state);
    }
    Ok(state)
}

/// `rclose`.
pub(crate) unsafe extern "C" fn rclose(fd: c_int) -> c_int {
    entry::number(|| {
        let socket = table::remove(fd)?;
        match &socket.kind {
            Kind::Stream(stream) => close(&socket, stream),
            Kind::Datagram(one) => datagram::close(&socket, one),
        }
        Ok(())
    })
}

/// Gives a stream up.
fn close(socket: &Arc<Socket>, stream: &Stream) {
    let state = stream.lock();
    let patience = Patience::within(Some(state.settings.linger.unwrap_or(LAST_WORDS)));
    // Who has said goodbye need not wait longer; who could not is forgotten.
    drop(shut(socket, stream, state, libc::SHUT_RDWR, patience));
    let mut state = stream.lock();
    if state.phase == Phase::Open {
        connect::leave(&state);
    }
    state.end(None);
    let handle = state.handle.take();
    let rest = (
        state.prepared.take(),
        state.link.take(),
        std::mem::take(&mut state.queue),
    );
    drop(state);
    socket.waiters.wake();
    let (prepared, link, queue) = rest;
    for heard in queue.pending.into_iter().chain(queue.waiting) {
        if let Kind::Stream(stream) = &heard.kind {
            close(&heard, stream);
        }
    }
    // The queue pair goes before the id that it belongs to.
    drop((prepared, link));
    drop(handle);
}

/// Peers are told when the process exits, as the kernel tells those of its sockets.
pub(super) fn at_exit() {
    // SAFETY: the function stays: the library is never unloaded.
    unsafe { libc::atexit(leave) };
}

extern "C" fn leave() {
    /// How long all of them may take.
    const PATIENCE: Duration = Duration::from_secs(1);
    entry::nothing(|| {
        let patience = Patience::Until(Instant::now() + PATIENCE);
        for socket in table::all() {
            if let Kind::Stream(stream) = &socket.kind
                && let Some(state) = stream.try_lock()
            {
                drop(shut(&socket, stream, state, libc::SHUT_RDWR, patience));
            }
        }
    });
}
