//! DCQCN's reaction point: the rate of one queue pair under CNPs, and the gaps between its packets
//! (Zhu et al., SIGCOMM 2015, and the form of it that cards have).
//!
//! The algorithm is written down with timers: alpha decays every `dce_tcp_rtt`, the rate is looked at
//! every `rate_reduce_monitor_period` and increased every `rpg_time_reset`. Here no timer exists.
//! The state is that of a moment; whoever touches it later first makes up for the time between, in
//! closed form. How often it is touched changes nothing, to the last bit.

use std::sync::Arc;

use super::params::{Clamp, Dcqcn, Form, Fraction};
use crate::time::Instant;

/// Time made up for at once, ps (53 days). After a longer pause every rate has long recovered.
const LONGEST: u64 = 1 << 62;

/// Octets × this / (bit/s) = picoseconds.
const PS_BIT_PER_OCTET: u128 = 8 * 1_000_000_000_000;

/// The rate of one queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReactionPoint {
    dcqcn: Arc<Dcqcn>,
    /// The moment that everything below describes.
    synced: Instant,
    /// The earliest moment for the next packet.
    next_send: Instant,
    /// What `next_send` was rounded down by, in ps·bit/s; below the rate.
    remainder: u64,
    /// The rate, RC, bit/s.
    rate: u64,
    /// The rate that it recovers to, RT, bit/s. Not below `rate`.
    target: u64,
    /// Alpha after the last update that had a CNP.
    alpha: Fraction,
    /// Time since alpha's last update, ps. Below `alpha_period`.
    alpha_phase: u64,
    /// Time since the last look at whether to cut, ps. Below `look_period`.
    look_phase: u64,
    /// Time since the last cut or increase by time, ps. Below `time_reset`.
    time_phase: u64,
    /// Octets sent since the last cut or increase by amount. Below `byte_reset`.
    bytes: u64,
    /// Updates of alpha without a CNP since `alpha`.
    decays: u32,
    /// Increases by time since the last cut, T.
    time_count: u32,
    /// Increases by amount since the last cut, BC.
    byte_count: u32,
    /// The first CNP came. Before it, none of the above is used.
    started: bool,
    /// A CNP came since alpha's last update.
    cnp_for_alpha: bool,
    /// A CNP came since the last look.
    cnp_for_cut: bool,
}

/// What makes the rate increase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Time,
    Bytes,
}

/// Increase events that raise the target rate alike: by `first`, `first + slope`, ..., up to the
/// event whose count is `until`.
struct Stage {
    first: u64,
    slope: u64,
    until: u64,
}

impl ReactionPoint {
    /// Not limited until the first CNP.
    pub fn new(dcqcn: Arc<Dcqcn>) -> Self {
        Self {
            synced: Instant::EPOCH,
            next_send: Instant::EPOCH,
            remainder: 0,
            rate: dcqcn.max_rate,
            target: dcqcn.max_rate,
            alpha: dcqcn.initial_alpha,
            alpha_phase: 0,
            look_phase: 0,
            time_phase: 0,
            bytes: 0,
            decays: 0,
            time_count: 0,
            byte_count: 0,
            started: false,
            cnp_for_alpha: false,
            cnp_for_cut: false,
            dcqcn,
        }
    }

    /// A CNP arrived.
    pub fn on_cnp(&mut self, now: Instant) {
        self.catch_up(now);
        if !self.started {
            self.started = true;
            self.rate = self.dcqcn.first_rate;
            self.target = self.rate;
            self.cut();
            if self.dcqcn.form == Form::Paper {
                self.raise_alpha();
            }
            return;
        }
        match self.dcqcn.form {
            Form::ConnectX => {
                self.cnp_for_alpha = true;
                self.cnp_for_cut = true;
            }
            Form::Paper => {
                self.cut();
                self.raise_alpha();
                self.alpha_phase = 0;
            }
        }
    }

    /// `bytes` were handed to the link: the next packet has to wait for as long as they take at the
    /// present rate.
    pub fn on_bytes_sent(&mut self, now: Instant, bytes: u64) {
        self.catch_up(now);
        if self.is_limiting() {
            self.pace(now, bytes);
        }
        if self.started && self.dcqcn.byte_reset != 0 {
            self.bytes = self.bytes.saturating_add(bytes);
            if self.bytes >= self.dcqcn.byte_reset {
                let events = self.bytes / self.dcqcn.byte_reset;
                self.bytes %= self.dcqcn.byte_reset;
                self.increase(events, Cause::Bytes);
            }
        }
    }

    /// The rate, RC, bit/s.
    pub fn rate_bps(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.rate
    }

    /// The rate that it recovers to, RT, bit/s.
    pub fn target_bps(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.target
    }

    /// Alpha, the share of time that the path is thought to be congested, 0 to 1.
    pub fn alpha(&mut self, now: Instant) -> f64 {
        self.catch_up(now);
        self.present_alpha().to_f64()
    }

    /// The earliest moment for the next packet.
    pub fn next_send_at(&self) -> Instant {
        self.next_send
    }

    /// Whether the rate is below the highest, as of the last touch. If not, packets are not spaced:
    /// the link itself is the limit.
    pub fn is_limiting(&self) -> bool {
        self.rate < self.dcqcn.max_rate
    }

    /// Moves the next packet by what `bytes` last at the present rate. A flow that is late may make
    /// good for one burst, not more: idle time is not saved up.
    fn pace(&mut self, now: Instant, bytes: u64) {
        let rate = u128::from(self.rate);
        let mut start = self.next_send;
        if start < now {
            let burst = u128::from(self.dcqcn.burst) * PS_BIT_PER_OCTET / rate;
            start = start.max(Instant::from_ps(now.as_ps().saturating_sub(burst)));
        }
        // After a cut the remainder is too large for the new rate; it is a picosecond's fraction.
        let remainder = u128::from(self.remainder.min(self.rate - 1));
        let numerator = u128::from(bytes) * PS_BIT_PER_OCTET + remainder;
        self.next_send = Instant::from_ps(start.as_ps() + numerator / rate);
        self.remainder = u64::try_from(numerator % rate).expect("below a u64");
    }

    /// Makes up for the time since the last touch. Events of the same moment happen in this order:
    /// update of alpha, increase, look and cut.
    fn catch_up(&mut self, now: Instant) {
        let elapsed = now.since(self.synced).as_ps().min(LONGEST);
        self.synced = self.synced.max(now);
        if !self.started {
            return;
        }
        let until_look = self.dcqcn.look_period - self.look_phase;
        if elapsed < until_look {
            self.look_phase += elapsed;
            self.pass(elapsed);
        } else {
            let after_look = elapsed - until_look;
            self.look_phase = after_look % self.dcqcn.look_period;
            if self.cnp_for_cut {
                self.pass(until_look);
                self.cut();
                self.pass(after_look);
            } else {
                self.pass(elapsed);
            }
        }
    }

    /// Lets time pass in which the rate is not cut.
    fn pass(&mut self, elapsed: u64) {
        self.alpha_phase += elapsed;
        if self.alpha_phase >= self.dcqcn.alpha_period {
            let updates = self.alpha_phase / self.dcqcn.alpha_period;
            self.alpha_phase %= self.dcqcn.alpha_period;
            let mut updates = u32::try_from(updates).unwrap_or(u32::MAX);
            if self.cnp_for_alpha {
                self.cnp_for_alpha = false;
                self.raise_alpha();
                updates -= 1;
            }
            self.decays = self.decays.saturating_add(updates);
        }
        self.time_phase += elapsed;
        if self.time_phase >= self.dcqcn.time_reset {
            let events = self.time_phase / self.dcqcn.time_reset;
            self.time_phase %= self.dcqcn.time_reset;
            self.increase(events, Cause::Time);
        }
    }

    /// Alpha as of the last update.
    fn present_alpha(&self) -> Fraction {
        self.alpha.times(self.dcqcn.gamma.pow(self.decays))
    }

    /// An update of alpha with a CNP.
    fn raise_alpha(&mut self) {
        let gamma = self.dcqcn.gamma;
        self.alpha = self.present_alpha().times(gamma).plus(gamma.complement());
        self.decays = 0;
    }

    /// Cuts the rate and starts recovery anew.
    fn cut(&mut self) {
        let clamp = match self.dcqcn.clamp {
            Clamp::Always => true,
            Clamp::AfterIncrease => self.time_count > 0 || self.byte_count > 0,
            Clamp::AfterTimeIncrease => self.time_count > 0,
        };
        if clamp {
            self.target = self.rate;
        }
        let alpha = self.present_alpha();
        let cut = alpha.of(self.rate) >> self.dcqcn.gd_shift;
        let floor = (self.rate * self.dcqcn.min_dec_fac / 100).max(self.dcqcn.min_rate);
        self.rate = (self.rate - cut).max(floor);
        self.time_count = 0;
        self.byte_count = 0;
        self.time_phase = 0;
        self.bytes = 0;
        self.cnp_for_cut = false;
    }

    /// `events` increases of the same cause, one after the other.
    fn increase(&mut self, events: u64, cause: Cause) {
        let (counted, other) = match cause {
            Cause::Time => (self.time_count, self.byte_count),
            Cause::Bytes => (self.byte_count, self.time_count),
        };
        let after = u64::from(counted).saturating_add(events);
        // The first event sees its cause counted before it or with it.
        let mut count = u64::from(counted) + u64::from(self.dcqcn.form == Form::Paper);
        let end = count.saturating_add(events);
        while count < end {
            let stage = self.stage(count, other.into());
            debug_assert!(stage.until > count, "every stage has an event");
            let alike = stage.until.min(end) - count;
            self.climb(alike, &stage);
            count += alike;
        }
        let after = u32::try_from(after).unwrap_or(u32::MAX);
        match cause {
            Cause::Time => self.time_count = after,
            Cause::Bytes => self.byte_count = after,
        }
    }

    /// What the event with count `count` does while the other cause counts `other`: fast recovery
    /// while both are below the threshold, hyper increase when both are above, additive increase
    /// between. Without a byte counter, time alone decides.
    fn stage(&self, count: u64, other: u64) -> Stage {
        let Dcqcn {
            threshold,
            ai_rate,
            hai_rate,
            ..
        } = *self.dcqcn;
        let other = if self.dcqcn.byte_reset == 0 {
            count
        } else {
            other
        };
        if count.max(other) < threshold {
            Stage {
                first: 0,
                slope: 0,
                until: threshold,
            }
        } else if count.min(other) > threshold {
            let nth = count.min(other) - threshold;
            match self.dcqcn.form {
                Form::ConnectX => Stage {
                    first: hai_rate,
                    slope: 0,
                    until: u64::MAX,
                },
                Form::Paper => {
                    let first = nth.saturating_mul(hai_rate);
                    if self.dcqcn.byte_reset == 0 {
                        Stage {
                            first,
                            slope: hai_rate,
                            until: u64::MAX,
                        }
                    } else if count < other {
                        Stage {
                            first,
                            slope: hai_rate,
                            until: other,
                        }
                    } else {
                        Stage {
                            first,
                            slope: 0,
                            until: u64::MAX,
                        }
                    }
                }
            }
        } else {
            // Additive until the count passes the threshold, if the other already has.
            let until = if other > threshold || self.dcqcn.byte_reset == 0 {
                threshold + 1
            } else {
                u64::MAX
            };
            Stage {
                first: ai_rate,
                slope: 0,
                until,
            }
        }
    }

    /// `events` times: the target rises by the stage's step (not above the highest rate), then the
    /// rate goes half the way to the target.
    ///
    /// With d the distance from rate to target, one event is d ← ⌊(d + step)/2⌋. While the target is
    /// not capped, step k is s(k) = first + slope·k, and p(k) = s(k) − 2·slope fulfils the same
    /// recurrence exactly, so that d − p halves with each event: floors nest, the n-th is a shift
    /// by n. Where the target meets the cap there is one partial step, and then no step at all.
    fn climb(&mut self, events: u64, stage: &Stage) {
        let max = self.dcqcn.max_rate;
        if self.rate == max {
            return;
        }
        let whole = whole_steps(events, stage, max - self.target);
        let (first, slope) = (i128::from(stage.first), i128::from(stage.slope));
        let mut distance = i128::from(self.target - self.rate);
        let solution = |k: u64| first + slope * (i128::from(k) - 2);
        distance = shift(distance - solution(0), whole) + solution(whole);
        let climbed = stage.sum(whole);
        self.target += u64::try_from(climbed).expect("not above the highest rate");
        if whole < events {
            distance = (distance + i128::from(max - self.target)) >> 1;
            distance = shift(distance, events - whole - 1);
            self.target = max;
        }
        self.rate = self.target - u64::try_from(distance).expect("between 0 and the target");
    }
}

impl Stage {
    /// The sum of the first `n` steps.
    fn sum(&self, n: u64) -> u128 {
        let n = u128::from(n);
        u128::from(self.first) * n + u128::from(self.slope) * (n * n.saturating_sub(1) / 2)
    }
}

/// How many of `events` steps fit into `room` whole.
fn whole_steps(events: u64, stage: &Stage, room: u64) -> u64 {
    match (stage.first, stage.slope) {
        (0, 0) => events,
        (first, 0) => events.min(room / first),
        (first, _) => {
            // As many as with equal steps at most; the sum grows with n, so halve the interval.
            let (mut fits, mut too_many) = (0, events.min(room / first) + 1);
            while too_many - fits > 1 {
                let middle = fits + (too_many - fits) / 2;
                if stage.sum(middle) <= u128::from(room) {
                    fits = middle;
                } else {
                    too_many = middle;
                }
            }
            fits
        }
    }
}

/// ⌊value / 2^n⌋.
fn shift(value: i128, n: u64) -> i128 {
    value >> n.min(127)
}
