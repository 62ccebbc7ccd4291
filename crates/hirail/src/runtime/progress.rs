//! The progress thread: drives when nobody else does.
//!
//! While an application polls a completion queue without a pause, packets do not wake the thread; it
//! only looks every half millisecond whether the polling goes on. Otherwise it sleeps until a packet,
//! a timer or a doorbell wakes it, and then drives until nothing moves. So the longest that a packet
//! waits after polling stops is two looks; and an application that polls memory, with a completion
//! queue looked at now and then, is served by this thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use super::link::Link;
use super::{Drove, Rnic, now};
use crate::port::sys;
use hirail_rnic::{Instant, Span};

/// Time between two looks while others drive.
const LOOK: Duration = Duration::from_micros(500);

/// A shorter pause between two polls still counts as polling: the application looks at what it got.
const PAUSE_NS: u64 = 3_000;

/// Time between two publications of the counters while there is traffic.
const PUBLISH: Span = Span::from_ms(50);

/// After so much silence the counters are published once more.
const QUIET: Duration = Duration::from_millis(60);

/// Steps without a pause while driving.
const STEPS: usize = 64;

struct Shared {
    /// Becomes readable to wake the thread.
    bell: File,
    /// Expires when the engine wants to be called.
    timer: OwnedFd,
    /// When it expires, in nanoseconds; `u64::MAX` for never.
    wakeup: AtomicU64,
    /// Nanoseconds that applications have spent polling, short pauses included.
    polling: AtomicU64,
    /// When the last poll ended.
    last_poll: AtomicU64,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

/// How others reach the progress thread.
pub(crate) struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Makes the thread look now.
    pub(crate) fn wake(&self) {
        // It fails only when the counter would overflow: then it is readable anyway.
        let _ = (&self.shared.bell).write(&1u64.to_ne_bytes());
        if let Some(thread) = self.shared.thread.get() {
            thread.unpark();
        }
    }

    /// Somebody polled from `start` to `end`.
    #[inline]
    pub(crate) fn polled(&self, start: Instant, end: Instant) {
        let (start, end) = (start.as_ns() as u64, end.as_ns() as u64);
        let last = self.shared.last_poll.swap(end, Ordering::Relaxed);
        let pause = start.saturating_sub(last);
        let spent = end - start + if pause < PAUSE_NS { pause } else { 0 };
        self.shared.polling.fetch_add(spent, Ordering::Relaxed);
    }

    /// The engine wants to be called at `at`, perhaps earlier than the thread knows.
    pub(crate) fn ensure_wakeup(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        let at_ns = at.as_ns() as u64;
        if at_ns < self.shared.wakeup.load(Ordering::Relaxed) {
            self.shared.set_timer(Some(at));
        }
    }

    /// Ends the thread; does not wait for it.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }
}

impl Shared {
    fn set_timer(&self, at: Option<Instant>) {
        let (wakeup, delay) = match at {
            // Zero would mean never to the timer.
            Some(at) => (
                at.as_ns() as u64,
                Duration::from_nanos(at.since(now()).as_ns().max(1)),
            ),
            None => (u64::MAX, Duration::ZERO),
        };
        self.wakeup.store(wakeup, Ordering::Relaxed);
        sys::set_timer(self.timer.as_fd(), delay);
    }
}

/// A progress thread that has not started.
pub(crate) struct Unstarted {
    shared: Arc<Shared>,
    /// Readable when a packet arrived, the bell rang or the timer expired.
    waiting: OwnedFd,
    /// Kept open as long as the thread waits on them.
    _readable: Vec<OwnedFd>,
}

/// Prepares the progress thread of a link.
pub(crate) fn prepare(link: &dyn Link) -> io::Result<(Handle, Unstarted)> {
    let waiting = sys::epoll()?;
    let bell = sys::event()?;
    let timer = sys::timer()?;
    let readable = link.readable()?;
    for (token, fd) in readable.iter().chain([&bell, &timer]).enumerate() {
        sys::epoll_add(waiting.as_fd(), fd.as_fd(), token as u64)?;
    }
    let shared = Arc::new(Shared {
        bell: File::from(bell),
        timer,
        wakeup: AtomicU64::new(u64::MAX),
        polling: AtomicU64::new(0),
        last_poll: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        thread: OnceLock::new(),
    });
    let handle = Handle {
        shared: Arc::clone(&shared),
    };
    Ok((
        handle,
        Unstarted {
            shared,
            waiting,
            _readable: readable,
        },
    ))
}

impl Unstarted {
    /// Starts it. It ends when the RNIC is gone.
    pub(crate) fn spawn(self, rnic: Weak<Rnic>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new()
            .name("hirail-progress".into())
            .spawn(move || self.run(&rnic))?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(())
    }

    fn run(self, device: &Weak<Rnic>) {
        // Signals are the application's: its handlers run on its own threads.
        sys::block_signals();
        let shared = &*self.shared;
        let mut looked_at = now();
        let mut published_at = Instant::EPOCH;
        let mut polling_seen = 0;
        while !shared.stop.load(Ordering::Acquire) {
            if now().since(published_at) > PUBLISH {
                published_at = now();
                let Some(rnic) = device.upgrade() else { return };
                rnic.publish();
            }
            let polling = shared.polling.load(Ordering::Relaxed);
            let elapsed = now().since(looked_at).as_ns();
            let is_polled = polling - polling_seen > elapsed / 2;
            looked_at = now();
            polling_seen = polling;
            if is_polled {
                // Nobody needs to set the timer: the next look comes sooner.
                shared.wakeup.store(0, Ordering::Relaxed);
                thread::park_timeout(LOOK);
                continue;
            }
            let Some(rnic) = device.upgrade() else { return };
            // The timer is set with the driver in hand, like everybody does who sets it: a later wish
            // never hides an earlier one.
            let drove = rnic.try_drive(|rnic, driver| {
                let moved = driver.exhaust(rnic, STEPS);
                if !moved {
                    shared.set_timer(driver.next_wakeup(rnic));
                }
                moved
            });
            drop(rnic);
            match drove {
                Drove::Idle => {}
                Drove::Moved => {
                    thread::yield_now();
                    continue;
                }
                Drove::NotAtAll => {
                    // The timer may be unset: no long sleep before it was seen to.
                    thread::park_timeout(LOOK);
                    continue;
                }
            }
            if !sys::wait_readable(&[self.waiting.as_fd()], QUIET) {
                // Nothing for a while: what is shown becomes exact, then there is nothing to do.
                let Some(rnic) = device.upgrade() else { return };
                rnic.publish();
                published_at = now();
                drop(rnic);
                sys::wait_readable(&[self.waiting.as_fd()], Duration::from_secs(3600));
            }
            let mut drained = [0; 8];
            let _ = (&shared.bell).read(&mut drained);
            // The timer is set anew before the next sleep, which also makes it unreadable.
        }
    }
}
