//! Time as the engine sees it: an integer of picoseconds handed in with every call.
//!
//! Picoseconds because one bit at 800 Gb/s lasts 1.25 ps; pacing that rounded to nanoseconds would
//! drift. An [`Instant`] has 128 bits so that no process lives long enough to wrap it; a [`Span`]
//! has 64 (213 days), more than any timer of the standard.

use core::fmt;
use core::num::NonZeroU128;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: picoseconds since an epoch that the host chose. Never goes backwards.
///
/// Kept as one more than that, so that an `Option` of it takes no more room: every queue pair has
/// several deadlines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU128);

impl Instant {
    /// The host's epoch.
    pub const EPOCH: Self = Self::from_ps(0);

    /// The instant `ps` picoseconds after the epoch. The last one that there is stands for
    /// `u128::MAX` too.
    pub const fn from_ps(ps: u128) -> Self {
        Self(NonZeroU128::MIN.saturating_add(ps))
    }

    /// The instant `ns` nanoseconds after the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Self::from_ps(ns as u128 * 1000)
    }

    /// Picoseconds since the epoch.
    pub const fn as_ps(self) -> u128 {
        self.0.get() - 1
    }

    /// Nanoseconds since the epoch, rounded down.
    pub const fn as_ns(self) -> u128 {
        self.as_ps() / 1000
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Span {
        Span(u64::try_from(self.as_ps().saturating_sub(earlier.as_ps())).unwrap_or(u64::MAX))
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::EPOCH
    }
}

impl Add<Span> for Instant {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self::from_ps(self.as_ps() + u128::from(span.0))
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06}us",
            self.as_ps() / 1_000_000,
            self.as_ps() % 1_000_000
        )
    }
}

/// A length of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest span, 213 days.
    pub const MAX: Self = Self(u64::MAX);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1000))
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000_000))
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1000
    }

    /// This span `n` times.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}us", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instant_takes_no_room() {
        assert_eq!(size_of::<Option<Instant>>(), size_of::<Instant>());
    }

    #[test]
    fn instants_and_spans_add_up() {
        let at = Instant::from_ns(3) + Span::from_ps(5);
        assert_eq!((at.as_ps(), at.as_ns()), (3005, 3));
        assert_eq!(at - Instant::EPOCH, Span::from_ps(3005));
        assert_eq!(Instant::EPOCH.since(at), Span::ZERO);
        assert_eq!(Instant::from_ps(u128::MAX).since(at), Span::MAX);
        assert_eq!(Instant::default(), Instant::EPOCH);
        assert_eq!(format!("{at:?}"), "0.003005us");
    }
}
