//! Sending and receiving on a stream.

use super::memory::Cursor;
use super::stream::{FIRST_PIECE, MOST_PIECE, Stream, opened, tell_mappings, wait};
use super::table::Socket;
use crate::errno::Errno;

/// Sends the program's bytes; those that were sent are behind the cursor.
pub(super) fn send(
    socket: &Socket,
    stream: &Stream,
    from: &mut Cursor<'_>,
    flags: i32,
) -> Result<(), Errno> {
    let state = opened(socket, stream, flags)?;
    let patience = state.send_patience(socket, flags);
    let mut state = tell_mappings(socket, stream, state, patience)?;
    state.check_writable()?;
    let mut piece = FIRST_PIECE;
    while from.left() > 0 {
        state = wait(socket, stream, state, patience, |state| {
            !state.can_write || state.room() > 0
        })?;
        state.check_writable()?;
        let length = from.left().min(piece).min(state.room());
        piece = (piece * 2).min(MOST_PIECE);
        let link = state.link.as_mut().ok_or(Errno(libc::ENOTCONN))?;
        if let Err(errno) = link.send(length, from) {
            state.end(Some(errno));
            return Err(errno);
        }
    }
    Ok(())
}

/// Receives into the program's memory; what was received is behind the cursor. Nothing is at the end
/// of the stream.
pub(super) fn receive(
    socket: &Socket,
    stream: &Stream,
    to: &mut Cursor<'_>,
    flags: i32,
) -> Result<(), Errno> {
    let is_look = flags & libc::MSG_PEEK != 0;
    let wants_all = flags & libc::MSG_WAITALL != 0 && !is_look;
    let total = to.left();
    let mut state = opened(socket, stream, flags)?;
    let patience = state.receive_patience(socket, flags);
    if to.left() == 0 {
        return Ok(());
    }
    loop {
        state = wait(socket, stream, state, patience, |state| {
            !state.can_read || state.waiting() > 0
        })?;
        if state.waiting() == 0 {
            // Told once, by a call that has nothing else to tell; afterwards the stream has ended.
            let is_mute = to.left() == total;
            return state.error.take_if(|_| is_mute).map_or(Ok(()), Err);
        }
        let link = state.link.as_mut().ok_or(Errno(libc::ENOTCONN))?;
        link.receive(to, is_look);
        // The peer may wait for nothing but this.
        if let Err(errno) = link.settle() {
            state.end(Some(errno));
        }
        if to.left() == 0 || !wants_all {
            return Ok(());
        }
    }
}
