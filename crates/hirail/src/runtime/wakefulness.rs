//! Whether the progress thread stays awake between packets, and how it shares the processor then.
//!
//! To take turns on a processor (`sched_yield`) is quicker than to be woken, as long as everybody on
//! it does so. A thread that computes keeps the processor for its whole slice; who is late in getting
//! it back sleeps instead, for a time that grows.

use std::thread;
use std::time::Duration;

use hirail_rnic::{Instant, Span};

use super::now;
use super::progress::RECENT;
use crate::port::sys;

/// To yield the processor takes longer than this only where another thread computes.
const LATE: Span = Span::from_ms(1);

/// The shortest slice that the scheduler grants.
const SLICE: Duration = Duration::from_micros(100);

/// How long the thread does without staying awake after it came to be late, the first time and at
/// most.
const REGRET: (Span, Span) = (Span::from_ms(10), Span::from_ms(1000));

/// So many turns in time after each other are a new start.
const TIMELY: u32 = 1000;

/// See the module's description.
#[derive(Default)]
pub(super) struct Wakefulness {
    moved_at: Option<Instant>,
    /// Not before this time again.
    sleepy_until: Option<Instant>,
    regret: Option<Span>,
    /// Turns since then that came in time.
    timely: u32,
    has_short_slices: bool,
}

impl Wakefulness {
    /// Something was sent, received or fired.
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved_at = Some(now);
    }

    /// Whether to stay awake, as far as packets and the processor are concerned.
    pub(super) fn stays(&self, now: Instant) -> bool {
        self.moved_at.is_some_and(|at| now.since(at) < RECENT)
            && self.sleepy_until.is_none_or(|until| now >= until)
    }

    /// Short slices make it run at once when a packet wakes it. To take turns, all need the same: who
    /// yields waits until the others have used up as much as its slice.
    pub(super) fn prefer_slices(&mut self, stays: bool) {
        if self.has_short_slices == stays {
            self.has_short_slices = !stays;
            sys::prefer_slices((!stays).then_some(SLICE));
        }
    }

    /// Lets another thread have the processor, and takes note if it is long in giving it back.
    pub(super) fn take_turns(&mut self) {
        let start = now();
        thread::yield_now();
        self.came_back(start, now());
    }

    /// The processor was given away at `start` and is back at `end`.
    fn came_back(&mut self, start: Instant, end: Instant) {
        if end.since(start) > LATE {
            let regret = self.regret.map_or(REGRET.0, |last| last.times(2));
            let regret = regret.min(REGRET.1);
            self.regret = Some(regret);
            self.sleepy_until = Some(end + regret);
            self.timely = 0;
        } else {
            self.timely = self.timely.saturating_add(1);
            if self.timely > TIMELY {
                self.regret = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_sleeps_longer_each_time() {
        let mut wakefulness = Wakefulness::default();
        let mut now = Instant::EPOCH + Span::from_ms(1);
        for ms in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            wakefulness.moved(now);
            assert!(wakefulness.stays(now));
            let back = now + Span::from_ms(3);
            wakefulness.came_back(now, back);
            now = back + Span::from_ms(ms);
            wakefulness.moved(now);
            let a_bit_before = back + Span::from_ms(ms - 1);
            assert!(!wakefulness.stays(a_bit_before));
        }
        // Many turns in time are a new start.
        for _ in 0..=TIMELY {
            wakefulness.came_back(now, now + Span::from_us(2));
        }
        wakefulness.came_back(now, now + Span::from_ms(3));
        now += Span::from_ms(13);
        wakefulness.moved(now);
        assert!(wakefulness.stays(now));
    }

    #[test]
    fn silence_ends_it() {
        let mut wakefulness = Wakefulness::default();
        assert!(!wakefulness.stays(Instant::EPOCH));
        wakefulness.moved(Instant::EPOCH);
        assert!(wakefulness.stays(Instant::EPOCH + Span::from_us(299)));
        assert!(!wakefulness.stays(Instant::EPOCH + Span::from_us(300)));
    }
}
