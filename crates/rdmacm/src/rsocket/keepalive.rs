//! `SO_KEEPALIVE`: peers are asked now and then whether they are there, by a WRITE of no bytes.

use std::time::Duration;

use super::stream::Phase;
use super::table::{self, Kind};

/// Asks those whose time has come; whether there is anybody to ask later.
pub(super) fn ask() -> bool {
    let mut is_wanted = false;
    for socket in table::all() {
        let Kind::Stream(stream) = &socket.kind else {
            continue;
        };
        let mut state = stream.lock();
        if !state.settings.keeps_alive || state.phase == Phase::Over {
            continue;
        }
        is_wanted = true;
        let idle = Duration::from_secs(state.settings.keepalive_time.into());
        if state.asked.elapsed() >= idle {
            // The answer to the last question is looked at first.
            state.look(&socket);
            state.probe();
        }
    }
    is_wanted
}
