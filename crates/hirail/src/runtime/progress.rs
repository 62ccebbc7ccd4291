//! The progress thread: drives when nobody else does.
//!
//! While an application polls a completion queue ([`Attention`] finds out), neither packets nor timers
//! wake the thread. Who polls puts off a watchdog from time to time; it wakes the thread when polling
//! stops, so that no packet waits longer than [`GRACE`]. Otherwise the thread sleeps until a packet, a
//! timer or a doorbell wakes it, and then drives until nothing moves.
//!
//! An application that posts now and then and waits by polling memory is served by this thread, which
//! stays awake between its packets: taking turns on a processor is quicker than to be woken. Where
//! something else keeps the processor busy that is the worse choice, and the thread soon notices. One
//! that sleeps until a completion event is woken anyway, so the thread sleeps as well.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::attention::Attention;
use super::link::Link;
use super::wakefulness::Wakefulness;
use super::{Drove, Rnic, now};
use crate::port::{Sweep, sys};
use hirail_rnic::{Instant, Span};

/// The watchdog wakes the thread so long after it was put off for the last time.
pub(super) const GRACE: Duration = Duration::from_micros(900);

// It is the longest stall after polling stops, which is to be 1 ms at most.
const _: () = assert!(GRACE.as_micros() <= 1000, "a stall of more than 1 ms");

/// Time between two times that it is put off: a system call, so not too often.
const PUT_OFF_NS: u64 = 400_000;

/// [`Shared::put_off_at`] while the thread is not waiting for the watchdog.
const NEVER: u64 = u64::MAX;

/// [`Shared::wakeup`] while the thread looks at the timers before it sleeps, or relies on who polls.
const AWAKE: u64 = 0;

/// A longer time between two polls or posts is a pause: the application was at something else, or
/// had to leave the processor.
const PAUSE_NS: u64 = 50_000;

/// Polls that make up for a pause.
const POLLS_PER_PAUSE: u64 = 8;

/// Time between two publications of the counters while there is traffic.
const PUBLISH: Duration = Duration::from_millis(50);

/// After so much silence the counters are published once more.
const QUIET: Duration = Duration::from_millis(60);

/// The thread stays awake while the last packet and the last call of the application are so recent.
pub(super) const RECENT: Span = Span::from_us(300);

/// Who was woken by an event within this time waits by sleeping.
const ASLEEP: Span = Span::from_ms(10);

struct Shared {
    /// Becomes readable to wake the thread.
    bell: File,
    /// Expires when the engine wants to be called.
    timer: OwnedFd,
    /// When it expires, in nanoseconds; `u64::MAX` for never, [`AWAKE`] while it need not be set.
    wakeup: AtomicU64,
    /// Polls of completion queues that found them empty.
    polls: AtomicU64,
    /// When the last poll or post ended.
    last_call: AtomicU64,
    /// When an application that sleeps was told of a completion last.
    last_event: AtomicU64,
    /// Expires when applications have stopped polling.
    watchdog: OwnedFd,
    /// When it is to be put off.
    put_off_at: AtomicU64,
    /// Pauses since it was put off last, and `polls` then.
    pauses: AtomicU64,
    polls_then: AtomicU64,
    stop: AtomicBool,
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
    }

    /// Somebody polled from `start` to `end`.
    #[inline]
    pub(crate) fn polled(&self, start: Instant, end: Instant) {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        self.posted(start, end);
    }

    /// Somebody posted, which took from `start` to `end`.
    #[inline]
    pub(crate) fn posted(&self, start: Instant, end: Instant) {
        let (start, end) = (start.as_ns() as u64, end.as_ns() as u64);
        let last = self.shared.last_call.swap(end, Ordering::Relaxed);
        if start.saturating_sub(last) > PAUSE_NS {
            self.shared.pauses.fetch_add(1, Ordering::Relaxed);
        }
        if end >= self.shared.put_off_at.load(Ordering::Relaxed) {
            self.shared.put_off(end);
        }
    }

    /// An application that sleeps was told of a completion.
    pub(crate) fn notified(&self, now: Instant) {
        let now = now.as_ns() as u64;
        self.shared.last_event.store(now, Ordering::Relaxed);
    }

    /// Whoever drove may not come back: the engine wants to be called at `at`, perhaps earlier than
    /// the thread knows. Called with the driver in hand.
    #[inline]
    pub(crate) fn ensure_wakeup(&self, at: impl FnOnce() -> Option<Instant>) {
        let known = self.shared.wakeup.load(Ordering::Relaxed);
        if known == AWAKE {
            return;
        }
        if let Some(at) = at()
            && (at.as_ns() as u64) < known
        {
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
    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Puts the watchdog off, if applications have polled with hardly a pause.
    #[cold]
    fn put_off(&self, now: u64) {
        let due = self.put_off_at.load(Ordering::Relaxed);
        let (relaxed, slot) = (Ordering::Relaxed, &self.put_off_at);
        let is_ours = slot.compare_exchange(due, now + PUT_OFF_NS, relaxed, relaxed);
        if due == NEVER || is_ours.is_err() {
            return;
        }
        let polls = self.polls();
        let polled = polls.saturating_sub(self.polls_then.swap(polls, relaxed));
        if polled >= POLLS_PER_PAUSE * self.pauses.swap(0, relaxed) {
            sys::set_timer(self.watchdog.as_fd(), GRACE);
        }
    }

    /// Begins to rely on those who poll.
    fn rely_on_polling(&self, now: Instant) {
        // Nobody needs to set the other timer: who polls looks at all of them.
        self.wakeup.store(AWAKE, Ordering::Relaxed);
        self.pauses.store(0, Ordering::Relaxed);
        self.polls_then.store(self.polls(), Ordering::Relaxed);
        sys::set_timer(self.watchdog.as_fd(), GRACE);
        let next = now.as_ns() as u64 + PUT_OFF_NS;
        self.put_off_at.store(next, Ordering::Relaxed);
    }

    fn stop_relying(&self) {
        self.put_off_at.store(NEVER, Ordering::Relaxed);
        sys::set_timer(self.watchdog.as_fd(), Duration::ZERO);
    }

    /// Whether an application has posted or polled lately that does not sleep.
    fn is_awake(&self, now: Instant) -> bool {
        let before = |at: &AtomicU64| now.since(Instant::from_ns(at.load(Ordering::Relaxed)));
        before(&self.last_call) < RECENT && before(&self.last_event) >= ASLEEP
    }

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
    let watchdog = sys::timer()?;
    let readable = link.readable()?;
    for (token, fd) in readable.iter().chain([&bell, &timer]).enumerate() {
        sys::epoll_add(waiting.as_fd(), fd.as_fd(), token as u64)?;
    }
    let shared = Arc::new(Shared {
        bell: File::from(bell),
        timer,
        wakeup: AtomicU64::new(u64::MAX),
        polls: AtomicU64::new(0),
        last_call: AtomicU64::new(0),
        last_event: AtomicU64::new(0),
        watchdog,
        put_off_at: AtomicU64::new(NEVER),
        pauses: AtomicU64::new(0),
        polls_then: AtomicU64::new(0),
        stop: AtomicBool::new(false),
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
        thread::Builder::new()
            .name("hirail-progress".into())
            .spawn(move || self.run(&rnic))
            .map(drop)
    }

    fn run(self, device: &Weak<Rnic>) {
        // Signals are the application's: its handlers run on its own threads.
        sys::block_signals();
        let shared = &*self.shared;
        let mut attention = Attention::default();
        let mut wakefulness = Wakefulness::default();
        let mut published_at = Instant::EPOCH;
        while !shared.stop.load(Ordering::Acquire) {
            let start = now();
            if start.since(published_at) > PUBLISH.into() {
                published_at = start;
                let Some(rnic) = device.upgrade() else { return };
                rnic.publish();
            }
            if attention.leaves(start, shared.polls()) {
                shared.rely_on_polling(start);
                let stopped = [shared.watchdog.as_fd(), shared.bell.as_fd()];
                while !sys::wait_readable(&stopped, PUBLISH) {
                    let Some(rnic) = device.upgrade() else { return };
                    rnic.publish();
                }
                shared.stop_relying();
                attention.stopped(now(), shared.polls());
                published_at = Instant::EPOCH;
                let _ = (&shared.bell).read(&mut [0; 8]);
                continue;
            }
            let Some(rnic) = device.upgrade() else { return };
            let stays = shared.is_awake(start) && wakefulness.stays(start);
            wakefulness.prefer_slices(stays);
            let drove = rnic.try_drive(|rnic, driver| {
                let sweep = if stays { Sweep::Hot } else { Sweep::All };
                let moved = driver.step(rnic, start, sweep);
                if stays {
                    shared.wakeup.store(AWAKE, Ordering::Relaxed);
                } else if !moved {
                    // The timer is set with the driver in hand, like everybody does who sets it: a
                    // later wish never hides an earlier one.
                    shared.set_timer(driver.next_wakeup(rnic));
                }
                moved
            });
            drop(rnic);
            match drove {
                Drove::Moved => {
                    wakefulness.moved(start);
                    wakefulness.take_turns();
                    continue;
                }
                Drove::Idle if stays => {
                    wakefulness.take_turns();
                    continue;
                }
                Drove::Idle => {}
                // The timer may be unset, and packets may be left: no sleep before it was seen to.
                Drove::NotAtAll => {
                    wakefulness.take_turns();
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
            let _ = (&shared.bell).read(&mut [0; 8]);
            // The timer is set anew before the next sleep, which also makes it unreadable.
        }
    }
}
