//! When the progress thread leaves the device to the application.
//!
//! A thread that polls a completion queue drives the device better than one that must be woken; the
//! two at once take turns at the driver and the processor, which serves nobody. But an application
//! that polls now and then, and memory in between, looks just like it as long as the progress thread
//! serves it so well. Only a trial tells them apart: the progress thread stands back, and if the polls
//! stop, the application relied on it. A trial that failed is not repeated soon, and later each time.

use hirail_rnic::{Instant, Span};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    /// Polls that have been seen.
    polls: u64,
    /// When the device was left to the application.
    since: Instant,
    /// No trial before this time, and for how long that was.
    not_before: Option<Instant>,
    regret: Option<Span>,
}

/// Time without a trial after the first failure and at most.
const REGRET: (Span, Span) = (Span::from_ms(1), Span::from_ms(100));

/// What lasted so long was no failure.
const LASTING: Span = Span::from_ms(2);

impl Attention {
    /// Whether to leave the device to the application, which has polled so many times by `now`.
    pub(crate) fn leaves(&mut self, now: Instant, polls: u64) -> bool {
        let is_polling = polls > self.polls;
        self.polls = polls;
        self.since = now;
        is_polling && self.not_before.is_none_or(|at| now >= at)
    }

    /// The application has stopped polling by `now`.
    pub(crate) fn stopped(&mut self, now: Instant, polls: u64) {
        let failed_before = self.regret.filter(|_| now.since(self.since) < LASTING);
        let regret = failed_before.map_or(REGRET.0, |last| last.times(2).min(REGRET.1));
        self.regret = Some(regret);
        self.not_before = Some(now + regret);
        self.polls = polls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::EPOCH + Span::from_ms(ms)
    }

    #[test]
    fn who_polls_is_trusted_at_once() {
        let mut attention = Attention::default();
        assert!(!attention.leaves(ms(0), 0));
        assert!(attention.leaves(ms(1), 1));
    }

    #[test]
    fn who_stops_at_once_is_trusted_less_each_time() {
        let mut attention = Attention::default();
        let (mut now, mut polls) = (0, 1);
        for wait in [1, 2, 4, 8, 16, 32, 64, 100, 100] {
            assert!(attention.leaves(ms(now), polls));
            attention.stopped(ms(now + 1), polls + 1);
            assert!(!attention.leaves(ms(now + wait), polls + 2));
            (now, polls) = (now + 1 + wait, polls + 3);
        }
        // A long time of polling makes up for it.
        assert!(attention.leaves(ms(now), polls));
        attention.stopped(ms(now + 10), polls + 1);
        assert!(attention.leaves(ms(now + 11), polls + 2));
    }
}
