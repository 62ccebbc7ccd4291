//! Streams: how far one has come, and waiting for it to come further.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::config::Config;
use super::endpoint::Handle;
use super::link::{Heard, Link, Prepared};
use super::option::Settings;
use super::poll::Edges;
use super::protocol::Control;
use super::table::Socket;
use super::wait::{Patience, Sleeper};
use crate::entry::lock;
use crate::errno::Errno;

/// The first piece of what is sent at once is short, so that it is under way early; each one is twice
/// as long as the one before,
pub(super) const FIRST_PIECE: usize = 2048;
/// up to this.
pub(super) const MOST_PIECE: usize = 65536;

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It may have an address.
    Fresh,
    Listening,
    /// It has asked.
    Connecting,
    /// It was asked, and has answered.
    Accepting,
    Open,
    /// It was open, or could not be.
    Over,
}

/// Connections that a listener has heard of.
#[derive(Default)]
pub(super) struct Queue {
    /// Answered, and not confirmed.
    pub(super) pending: Vec<Arc<Socket>>,
    /// To be taken by the program.
    pub(super) waiting: VecDeque<Arc<Socket>>,
    pub(super) most: usize,
}

/// What is known of a stream.
pub(super) struct State {
    pub(super) phase: Phase,
    /// More may come from the peer.
    pub(super) can_read: bool,
    /// More may be sent to it.
    pub(super) can_write: bool,
    pub(super) settings: Settings,
    pub(super) prepared: Option<Prepared>,
    pub(super) link: Option<Link>,
    pub(super) handle: Option<Arc<Handle>>,
    pub(super) queue: Queue,
    /// Who has heard of it.
    pub(super) listener: Weak<Socket>,
    /// What went wrong and nobody was told of.
    pub(super) error: Option<Errno>,
    pub(super) edges: Edges,
    /// When the peer was asked last whether it is there.
    pub(super) asked: Instant,
}

/// A stream.
pub(super) struct Stream(Mutex<State>);

impl Stream {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Mutex::new(State {
            phase: Phase::Fresh,
            can_read: false,
            can_write: false,
            settings,
            prepared: None,
            link: None,
            handle: None,
            queue: Queue::default(),
            listener: Weak::new(),
            error: None,
            edges: Edges::default(),
            asked: Instant::now(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// What nobody else is at work with; for the end of the process, when threads are gone.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.0.try_lock().ok()
    }
}

impl State {
    /// Both sides have said what they have.
    pub(super) fn open(&mut self) {
        self.phase = Phase::Open;
        self.can_read = true;
        self.can_write = true;
    }

    /// It is over; what has come can still be read.
    pub(super) fn end(&mut self, why: Option<Errno>) {
        self.phase = Phase::Over;
        self.can_read = false;
        self.can_write = false;
        if why.is_some() {
            self.error = why;
        }
    }

    /// Looks at what was completed; whether there was anything.
    fn process(&mut self) -> bool {
        let (Phase::Open, Some(link)) = (self.phase, &mut self.link) else {
            return false;
        };
        let Heard {
            is_news,
            is_shut,
            is_over,
            failed,
        } = link.process();
        if is_shut {
            self.can_read = false;
        }
        if is_over || (is_shut && !self.can_write) {
            self.end(None);
        } else if failed.is_some() {
            self.end(failed);
        }
        let is_news = is_news || failed.is_some();
        self.edges.came += u64::from(is_news);
        is_news
    }

    /// Looks at what was completed, and wakes others that wait for it.
    pub(super) fn look(&mut self, socket: &Socket) {
        if self.process() {
            socket.waiters.wake();
        }
    }

    /// The next completion is shown to the kernel.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        match (self.phase, &self.link) {
            (Phase::Open, Some(link)) => link.endpoint().arm(),
            _ => Ok(()),
        }
    }

    /// Bytes that can be read.
    pub(super) fn waiting(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.receiver.waiting())
    }

    /// Bytes that can be sent now.
    pub(super) fn room(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.sender.room())
    }

    /// Bytes that can be written now to where the peer wants them.
    pub(super) fn room_beside(&self) -> usize {
        self.link
            .as_ref()
            .map_or(0, |link| link.sender.room_beside())
    }

    /// # Errors
    /// Why nothing can be sent.
    pub(super) fn check_writable(&mut self) -> Result<(), Errno> {
        if self.can_write {
            return Ok(());
        }
        Err(match self.phase {
            Phase::Fresh | Phase::Listening => Errno(libc::ENOTCONN),
            // This side has said that nothing will come.
            Phase::Open => Errno(libc::EPIPE),
            _ => self.error.take().unwrap_or(Errno(libc::ECONNRESET)),
        })
    }

    /// Asks the peer whether it is there. One that is gone is found out by that.
    pub(super) fn probe(&mut self) {
        self.asked = Instant::now();
        if let (Phase::Open, Some(link)) = (self.phase, &mut self.link)
            && link.sender.can_control()
            && link.say(Control::KeepAlive).is_err()
        {
            self.end(Some(Errno(libc::ECONNRESET)));
        }
    }

    /// How long a call that sends may wait.
    pub(super) fn send_patience(&self, socket: &Socket, flags: i32) -> Patience {
        match socket.is_hasty(flags) {
            true => Patience::None,
            false => Patience::within(self.settings.send_timeout),
        }
    }

    /// How long a call that receives may wait.
    pub(super) fn receive_patience(&self, socket: &Socket, flags: i32) -> Patience {
        match socket.is_hasty(flags) {
            true => Patience::None,
            false => Patience::within(self.settings.receive_timeout),
        }
    }
}

/// Waits until `ready` is.
///
/// # Errors
/// `EAGAIN` when the patience is over, `EINTR` when a signal came.
pub(super) fn wait<'a>(
    socket: &Socket,
    stream: &'a Stream,
    mut state: MutexGuard<'a, State>,
    patience: Patience,
    ready: impl Fn(&State) -> bool,
) -> Result<MutexGuard<'a, State>, Errno> {
    const AGAIN: Errno = Errno(libc::EAGAIN);
    if ready(&state) {
        return Ok(state);
    }
    let config = Config::get();
    let mut since = None;
    loop {
        state.look(socket);
        if ready(&state) {
            return Ok(state);
        }
        if matches!(patience, Patience::None) {
            state.edges.refused += 1;
            return Err(AGAIN);
        }
        if since.get_or_insert_with(Instant::now).elapsed() < config.polling {
            drop(state);
            core::hint::spin_loop();
            state = stream.lock();
            continue;
        }
        let sleeper = Sleeper::new(vec![&socket.waiters])?;
        state.arm()?;
        state.look(socket);
        if ready(&state) {
            return Ok(state);
        }
        let time = patience.left(config.turn).ok_or(AGAIN)?;
        drop(state);
        let mut polls = vec![libc::pollfd {
            fd: socket.fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let slept = sleeper.sleep(&mut polls, time);
        drop(sleeper);
        state = stream.lock();
        if state.asked.elapsed() >= config.turn && polls[0].revents == 0 {
            state.probe();
        }
        if let Err(errno) = slept {
            state.look(socket);
            return if ready(&state) { Ok(state) } else { Err(errno) };
        }
    }
}

/// The state as soon as it is known whether there is a connection.
///
/// # Errors
/// `EAGAIN` when a call that must not wait comes too early, `ENOTCONN` when none was asked for.
pub(super) fn opened<'a>(
    socket: &Socket,
    stream: &'a Stream,
    flags: i32,
) -> Result<MutexGuard<'a, State>, Errno> {
    let state = stream.lock();
    let patience = state.send_patience(socket, flags);
    let state = wait(socket, stream, state, patience, |state| {
        !matches!(state.phase, Phase::Connecting | Phase::Accepting)
    })?;
    match state.phase {
        Phase::Fresh | Phase::Listening => Err(Errno(libc::ENOTCONN)),
        _ => Ok(state),
    }
}

/// Tells the peer of buffers that it may write to.
pub(super) fn tell_mappings<'a>(
    socket: &Socket,
    stream: &'a Stream,
    mut state: MutexGuard<'a, State>,
    patience: Patience,
) -> Result<MutexGuard<'a, State>, Errno> {
    let lacks = |state: &State| {
        let link = state.link.as_ref();
        link.is_some_and(|link| link.mappings.has_untold())
    };
    while lacks(&state) {
        state = wait(socket, stream, state, patience, |state| {
            !state.can_write || state.room_beside() > 0
        })?;
        state.check_writable()?;
        let Some(link) = &mut state.link else { break };
        if let Some((entry, mapping)) = link.mappings.untold() {
            link.send_mapping(entry, mapping)?;
        }
    }
    Ok(state)
}

/// What a call says that has moved `done` bytes before it ended so.
pub(super) fn partly(done: usize, outcome: Result<(), Errno>) -> Result<isize, Errno> {
    match outcome {
        Err(errno) if done == 0 => Err(errno),
        _ => Ok(done.cast_signed()),
    }
}

/// Until so long nobody waits for a peer that does not answer, where the call cannot be told how
/// long it may take.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(10);
