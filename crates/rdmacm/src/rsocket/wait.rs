//! Threads that wait for sockets.
//!
//! A thread sleeps in `poll` on what the sockets show the kernel. Whoever looks first takes what was
//! shown away, and others that sleep would miss it. So each sleeping thread has a bell as well, and
//! who has changed a socket rings the bells of those that wait for it.

use core::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::entry::lock;
use crate::errno::Errno;

/// What wakes a thread.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

thread_local! {
    static OWN: Result<Arc<Bell>, Errno> = Bell::new().map(Arc::new);
}

impl Bell {
    pub(super) fn new() -> Result<Self, Errno> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: a descriptor that was just made, and nobody else knows.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// This thread's; a new one where the thread is about to end.
    fn own() -> Result<Arc<Self>, Errno> {
        OWN.try_with(Clone::clone)
            .unwrap_or_else(|_| Self::new().map(Arc::new))
    }

    pub(super) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    pub(super) fn ring(&self) {
        let one = 1u64;
        // It fails only when the counter would overflow: then it is readable anyway.
        // SAFETY: eight bytes are there.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    pub(super) fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are there.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

/// The threads that wait for a socket.
#[derive(Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    bells: Mutex<Vec<Arc<Bell>>>,
}

impl Waiters {
    /// Wakes those that wait, this thread excepted.
    pub(super) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let own = Bell::own().ok();
        for bell in lock(&self.bells).iter() {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own, bell)) {
                bell.ring();
            }
        }
    }

    fn enter(&self, bell: &Arc<Bell>) {
        let mut bells = lock(&self.bells);
        bells.push(Arc::clone(bell));
        self.count.store(bells.len(), Ordering::SeqCst);
    }

    fn leave(&self, bell: &Arc<Bell>) {
        let mut bells = lock(&self.bells);
        if let Some(place) = bells.iter().position(|other| Arc::ptr_eq(other, bell)) {
            bells.swap_remove(place);
        }
        self.count.store(bells.len(), Ordering::SeqCst);
    }
}

/// A thread that is about to sleep: from now on it is woken. What it waits for is looked at once more
/// after this.
pub(super) struct Sleeper<'a> {
    bell: Arc<Bell>,
    waiters: Vec<&'a Waiters>,
}

impl<'a> Sleeper<'a> {
    pub(super) fn new(waiters: Vec<&'a Waiters>) -> Result<Self, Errno> {
        let bell = Bell::own()?;
        for one in &waiters {
            one.enter(&bell);
        }
        Ok(Self { bell, waiters })
    }

    /// Sleeps until one of the descriptors is ready, a bell rings, or the time is over.
    ///
    /// # Errors
    /// `EINTR` when a signal came.
    pub(super) fn sleep(
        &self,
        polls: &mut Vec<libc::pollfd>,
        timeout: Duration,
    ) -> Result<(), Errno> {
        polls.push(libc::pollfd {
            fd: self.bell.fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // Rounded up: to wake before the time is over would be to look in vain.
        let patience = timeout.as_micros().div_ceil(1000);
        let patience = c_int::try_from(patience).unwrap_or(c_int::MAX);
        // SAFETY: so many descriptors.
        let ready =
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, patience) };
        let result = if ready < 0 {
            Err(Errno::last())
        } else {
            Ok(())
        };
        if polls.pop().is_some_and(|bell| bell.revents != 0) {
            self.bell.silence();
        }
        result
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        for one in &self.waiters {
            one.leave(&self.bell);
        }
    }
}

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    /// So long from now on.
    pub(super) fn within(timeout: Option<Duration>) -> Self {
        match timeout {
            None => Self::Endless,
            Some(Duration::ZERO) => Self::None,
            // What cannot be told in time is endless.
            Some(timeout) => Instant::now()
                .checked_add(timeout)
                .map_or(Self::Endless, Self::Until),
        }
    }

    /// As `poll` and `epoll_wait` say it: below 0 it is endless.
    pub(super) fn milliseconds(timeout: c_int) -> Self {
        Self::within(u64::try_from(timeout).ok().map(Duration::from_millis))
    }

    /// What is left of it, at most `most`; nothing when it is over.
    pub(super) fn left(self, most: Duration) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Endless => Some(most),
            Self::Until(end) => {
                let left = end.saturating_duration_since(Instant::now());
                (!left.is_zero()).then(|| left.min(most))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn whoever_waits_is_woken_by_others_and_not_by_itself() {
        let waiters = Waiters::default();
        let mut polls = Vec::new();
        let sleeper = Sleeper::new(vec![&waiters]).unwrap();
        waiters.wake();
        sleeper.sleep(&mut polls, Duration::ZERO).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| waiters.wake());
            // Without the bell this would not come back in time for the deadline of the tests.
            sleeper.sleep(&mut polls, Duration::MAX).unwrap();
        });
        assert!(polls.is_empty());
        drop(sleeper);
        assert_eq!(waiters.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn patience_ends() {
        let most = Duration::from_secs(5);
        assert_eq!(Patience::milliseconds(-1).left(most), Some(most));
        assert_eq!(Patience::milliseconds(0).left(most), None);
        let left = Patience::milliseconds(1_000_000).left(most);
        assert_eq!(left, Some(most));
        assert_eq!(Patience::Until(Instant::now()).left(most), None);
    }
}
