//! Events behind a descriptor that belongs to the program: it may poll it, add it to an epoll set,
//! make it non-blocking, and block in reading.
//!
//! The descriptor is an eventfd that counts the events, one for each, so blocking, `EAGAIN` and
//! waking one of several readers are the kernel's; the events themselves wait here.

use core::ffi::{c_int, c_void};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::check;
use crate::errno::Errno;

/// A queue of events.
pub(crate) struct Events<T> {
    fd: OwnedFd,
    /// An event that was withdrawn after somebody had read its count leaves a gap.
    queue: Mutex<VecDeque<Option<T>>>,
}

impl<T> Events<T> {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(Self {
            // SAFETY: a descriptor that was just made, and nobody else knows.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            queue: Mutex::default(),
        })
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Option<T>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event.
    pub(crate) fn push(&self, event: T) {
        let mut queue = self.queue();
        queue.push_back(Some(event));
        let one = 1u64;
        // It fails only when the counter would overflow: then it is readable anyway.
        // SAFETY: eight bytes are there.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the oldest event, waiting for one unless the program made the descriptor non-blocking.
    /// `taken` runs before anybody can withdraw events.
    ///
    /// # Errors
    /// `EAGAIN` when there is none, `EINTR` when a signal came.
    pub(crate) fn take(&self, taken: impl Fn(&T)) -> Result<T, Errno> {
        loop {
            let mut one = 0u64;
            // SAFETY: eight bytes are there.
            let read = unsafe { libc::read(self.fd(), (&raw mut one).cast(), 8) };
            if read != 8 {
                return Err(Errno::last());
            }
            let mut queue = self.queue();
            if let Some(event) = queue.pop_front().flatten() {
                taken(&event);
                return Ok(event);
            }
        }
    }

    /// Withdraws events, so that nobody will take them.
    pub(crate) fn withdraw(&self, is_meant: impl Fn(&T) -> bool) {
        let mut queue = self.queue();
        for entry in &mut *queue {
            if entry.as_ref().is_some_and(&is_meant) {
                *entry = None;
            }
        }
        // A gap whose count somebody has read already is his to skip.
        let gaps = queue.iter().filter(|entry| entry.is_none()).count();
        let mut counted = (0..gaps).take_while(|_| self.uncount()).count();
        queue.retain(|entry| {
            let is_removed = entry.is_none() && counted > 0;
            counted -= usize::from(is_removed);
            !is_removed
        });
    }

    /// Takes one off the count, if there is one to take without waiting.
    fn uncount(&self) -> bool {
        let mut one = 0u64;
        let part = libc::iovec {
            iov_base: (&raw mut one).cast::<c_void>(),
            iov_len: 8,
        };
        // SAFETY: one part of eight bytes; −1 stands for no position.
        unsafe { libc::preadv2(self.fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) == 8 }
    }
}

/// How many events of an object were taken and how many acknowledged. Who destroys the object waits
/// until the two are equal.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    owed: Mutex<i64>,
    changed: Condvar,
}

impl Acknowledgements {
    fn change(&self, by: i64) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        *owed += by;
        self.changed.notify_all();
    }

    /// An event was taken.
    pub(crate) fn taken(&self) {
        self.change(1);
    }

    /// So many were acknowledged.
    pub(crate) fn acknowledged(&self, count: u32) {
        self.change(-i64::from(count));
    }

    /// Waits until all are acknowledged. Where calls are checked, `overdue` is told how many are not,
    /// should that take long.
    pub(crate) fn wait(&self, overdue: impl FnOnce(i64)) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        if *owed > 0 && check::on().is_some() {
            let late = self
                .changed
                .wait_timeout_while(owed, check::PATIENCE, |owed| *owed > 0);
            let count = *late.unwrap_or_else(PoisonError::into_inner).0;
            if count > 0 {
                overdue(count);
            }
            owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        }
        while *owed > 0 {
            owed = self
                .changed
                .wait(owed)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(events: &Events<u32>) -> bool {
        let mut poll = libc::pollfd {
            fd: events.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    fn unblock(events: &Events<u32>) {
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(events.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    }

    #[test]
    fn each_event_is_taken_once_and_in_order() {
        let events = Events::new().unwrap();
        assert!(!is_readable(&events));
        events.push(1);
        events.push(2);
        assert_eq!(events.take(|_| {}), Ok(1));
        assert!(is_readable(&events));
        assert_eq!(events.take(|_| {}), Ok(2));
        assert!(!is_readable(&events));
        unblock(&events);
        assert_eq!(events.take(|_| {}), Err(Errno(libc::EAGAIN)));
    }

    #[test]
    fn what_is_withdrawn_is_not_counted() {
        let events = Events::new().unwrap();
        unblock(&events);
        for event in [1, 2, 1, 3] {
            events.push(event);
        }
        events.withdraw(|event| *event == 1);
        assert_eq!(events.take(|_| {}), Ok(2));
        assert_eq!(events.take(|_| {}), Ok(3));
        assert!(!is_readable(&events));
        assert_eq!(events.take(|_| {}), Err(Errno(libc::EAGAIN)));
    }

    #[test]
    fn a_gap_is_skipped_by_who_has_read_its_count() {
        let events = Events::new().unwrap();
        unblock(&events);
        events.push(1);
        // Another reader got so far.
        assert!(events.uncount());
        events.withdraw(|_| true);
        events.push(2);
        assert_eq!(events.queue().len(), 2);
        // Whoever comes first skips the gap, and finds the count used up.
        assert_eq!(events.take(|_| {}), Err(Errno(libc::EAGAIN)));
        assert_eq!(events.queue().len(), 1);
    }

    #[test]
    fn who_destroys_waits_for_acknowledgements() {
        let acknowledgements = Acknowledgements::default();
        acknowledgements.wait(|_| {});
        acknowledgements.taken();
        acknowledgements.taken();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| acknowledgements.wait(|_| {}));
            acknowledgements.acknowledged(1);
            assert!(!waiting.is_finished());
            acknowledgements.acknowledged(1);
            waiting.join().unwrap();
        });
    }
}
