//! Processor time of this process.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// User and system time of all threads so far. Zero where the kernel does not say.
pub(crate) fn time() -> Duration {
    let of = |time: TimeVal| {
        Duration::from_secs(time.tv_sec().try_into().unwrap_or(0))
            + Duration::from_micros(time.tv_usec().try_into().unwrap_or(0))
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
        of(usage.user_time()) + of(usage.system_time())
    })
}
