//! `rpoll`: sockets and other descriptors together.

use core::ffi::c_int;
use core::slice;
use std::sync::Arc;
use std::time::Instant;

use libc::{nfds_t, pollfd};

use super::config::Config;
use super::datagram;
use super::stream::{Phase, State};
use super::table::{self, Kind, Socket};
use super::wait::{Patience, Sleeper};
use crate::entry;
use crate::errno::Errno;

/// What a socket is ready for, of what was asked for; errors are told in any case.
pub(super) fn ready(socket: &Socket, asked: i16) -> i16 {
    match &socket.kind {
        Kind::Stream(stream) => {
            let mut state = stream.lock();
            state.look(socket);
            of_stream(&state, asked)
        }
        Kind::Datagram(one) => datagram::ready(socket, one) & asked,
    }
}

/// How often something came, and how often a call had to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Edges {
    pub(super) came: u64,
    pub(super) refused: u64,
}

/// See [`Edges`].
pub(super) fn edges(socket: &Socket) -> Edges {
    match &socket.kind {
        Kind::Stream(stream) => stream.lock().edges,
        Kind::Datagram(one) => datagram::edges(one),
    }
}

fn of_stream(state: &State, asked: i16) -> i16 {
    let (reads, writes) = (
        libc::POLLIN | libc::POLLRDNORM,
        libc::POLLOUT | libc::POLLWRNORM,
    );
    let mut found = 0;
    match state.phase {
        Phase::Fresh | Phase::Connecting | Phase::Accepting => {}
        Phase::Listening => {
            if !state.queue.waiting.is_empty() {
                found |= reads & asked;
            }
        }
        Phase::Open | Phase::Over => {
            if state.waiting() > 0 || !state.can_read {
                found |= reads & asked;
            }
            if state.room() > 0 || !state.can_write {
                found |= writes & asked;
            }
            if !state.can_read {
                found |= libc::POLLRDHUP & asked;
            }
            // Programs that see it read no more.
            if state.phase == Phase::Over && state.waiting() == 0 {
                found |= libc::POLLHUP;
            }
            if state.error.is_some() {
                found |= libc::POLLERR;
            }
        }
    }
    found
}

/// The next news of a socket is shown to the kernel.
pub(super) fn arm(socket: &Socket) -> Result<(), Errno> {
    match &socket.kind {
        Kind::Stream(stream) => stream.lock().arm(),
        Kind::Datagram(one) => datagram::arm(one),
    }
}

/// Looks at all of them; how many are ready.
fn look(polls: &mut [pollfd], sockets: &[Option<Arc<Socket>>]) -> Result<usize, Errno> {
    let mut others = Vec::new();
    for (poll, socket) in polls.iter_mut().zip(sockets) {
        poll.revents = match socket {
            Some(socket) => ready(socket, poll.events),
            None => {
                others.push(*poll);
                0
            }
        };
    }
    if !others.is_empty() {
        // SAFETY: so many descriptors.
        let ready = unsafe { libc::poll(others.as_mut_ptr(), others.len() as nfds_t, 0) };
        if ready < 0 {
            return Err(Errno::last());
        }
        let mut others = others.iter();
        for (poll, socket) in polls.iter_mut().zip(sockets) {
            if socket.is_none()
                && let Some(other) = others.next()
            {
                poll.revents = other.revents;
            }
        }
    }
    Ok(polls.iter().filter(|poll| poll.revents != 0).count())
}

/// `rpoll`.
pub(crate) unsafe extern "C" fn rpoll(polls: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    entry::value(|| {
        let polls: &mut [pollfd] = if count == 0 {
            &mut []
        } else if polls.is_null() {
            return Err(Errno(libc::EFAULT));
        } else {
            // SAFETY: so many of the caller's.
            unsafe { slice::from_raw_parts_mut(polls, count as usize) }
        };
        wait(polls, Patience::milliseconds(timeout))
    })
}

/// Waits until one of them is ready; how many are.
pub(super) fn wait(polls: &mut [pollfd], patience: Patience) -> Result<c_int, Errno> {
    let config = Config::get();
    let sockets: Vec<_> = polls.iter().map(|poll| table::find(poll.fd)).collect();
    let mut since = None;
    loop {
        let found = look(polls, &sockets)?;
        if found > 0 || matches!(patience, Patience::None) {
            return Ok(found as c_int);
        }
        let own = sockets.iter().flatten();
        if own.clone().next().is_some()
            && since.get_or_insert_with(Instant::now).elapsed() < config.polling
        {
            core::hint::spin_loop();
            continue;
        }
        let sleeper = Sleeper::new(own.clone().map(|socket| &socket.waiters).collect())?;
        for socket in own.clone() {
            arm(socket)?;
        }
        let found = look(polls, &sockets)?;
        if found > 0 {
            return Ok(found as c_int);
        }
        let Some(time) = patience.left(config.turn) else {
            return Ok(0);
        };
        let mut asleep: Vec<_> = polls
            .iter()
            .zip(&sockets)
            .map(|(poll, socket)| match socket {
                Some(socket) => pollfd {
                    fd: socket.fd(),
                    events: libc::POLLIN,
                    revents: 0,
                },
                None => *poll,
            })
            .collect();
        let slept = sleeper.sleep(&mut asleep, time);
        if asleep.iter().all(|poll| poll.revents == 0) {
            own.for_each(|socket| probe(socket));
        }
        slept?;
    }
}

/// Asks a peer that was not heard of for long.
fn probe(socket: &Socket) {
    if let Kind::Stream(stream) = &socket.kind {
        let mut state = stream.lock();
        if state.asked.elapsed() >= Config::get().turn {
            state.probe();
        }
    }
}
