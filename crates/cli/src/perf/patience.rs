//! How every polling loop here waits: the same way the verbs library's pollers do, so that what is
//! compared is the transport and not the loop around it.

use std::thread;
use std::time::{Duration, Instant};

use crate::outcome::Error;
use crate::perf::control::Lifeline;

/// Longest silence of the other end inside a run.
pub(crate) const STALL: Duration = Duration::from_secs(10);

/// Empty polls between two looks at the clock.
const LOOK: u32 = 1024;

/// Silence after which it is asked whether the other end is still there.
const DOUBT: Duration = Duration::from_millis(200);

/// Counts empty polls, yields the processor after each, and gives up after a time, or sooner where
/// it knows that the other end is gone.
pub(crate) struct Patience {
    empty: u32,
    since: Option<Instant>,
    limit: Duration,
    lifeline: Option<Lifeline>,
}

impl Default for Patience {
    /// Gives up after [`STALL`].
    fn default() -> Self {
        Self::until(STALL)
    }
}

impl Patience {
    /// Gives up after `limit`.
    pub(crate) fn until(limit: Duration) -> Self {
        Self {
            empty: 0,
            since: None,
            limit,
            lifeline: None,
        }
    }

    /// The same, and gives up once the other end is gone.
    pub(crate) fn watching(self, lifeline: &Lifeline) -> Self {
        Self {
            lifeline: Some(lifeline.clone()),
            ..self
        }
    }

    /// Something came.
    pub(crate) fn rewarded(&mut self) {
        self.empty = 0;
        self.since = None;
    }

    /// Nothing came: lets another thread run. Says how long nothing has come, to the precision of
    /// its rare looks at the clock; fails once that exceeds the limit.
    pub(crate) fn wait(&mut self) -> Result<Duration, Error> {
        thread::yield_now();
        self.missed()
    }

    /// The same, where whoever polled has yielded already.
    pub(crate) fn missed(&mut self) -> Result<Duration, Error> {
        self.empty += 1;
        if !self.empty.is_multiple_of(LOOK) {
            return Ok(Duration::ZERO);
        }
        let silence = self.since.get_or_insert_with(Instant::now).elapsed();
        if silence > self.limit {
            return Err(silent(self.limit));
        }
        match &self.lifeline {
            Some(lifeline) if silence > DOUBT => lifeline.check()?,
            _ => {}
        }
        Ok(silence)
    }
}

/// The other end has said nothing for that long.
pub(crate) fn silent(limit: Duration) -> Error {
    Error::new(format!(
        "the other end has fallen silent for {} s in the middle of a run; is it alive, and does \
         the network between let the test's packets through?",
        limit.as_secs()
    ))
}
