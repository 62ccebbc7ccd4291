//! The end of the process: what the application has seen is acknowledged first.
//!
//! An acknowledgement leaves after the application had its turn with the message, and may wait for its
//! answer. A program that exits with the last message in hand, its device neither dropped nor polled
//! again, would leave its peer to retry in vain. So `exit` sends what is owed; `_exit`, `abort` and
//! signals that kill do not.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;

use super::{Drove, Rnic, now};
use crate::port::sys;

/// The engines of this process.
static OPEN: Mutex<Vec<Weak<Rnic>>> = Mutex::new(Vec::new());

/// Turns of others to wait for, when they keep the driver.
const TURNS: usize = 1000;

/// Sees to `rnic` when the process exits.
pub(super) fn watch(rnic: &Arc<Rnic>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_exit(leave));
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|rnic| rnic.strong_count() > 0);
    open.push(Arc::downgrade(rnic));
}

extern "C" fn leave() {
    if crate::fork::check().is_err() {
        return;
    }
    let open = match OPEN.try_lock() {
        Ok(open) => open.clone(),
        Err(_) => return,
    };
    for rnic in open {
        let Some(rnic) = rnic.upgrade() else { continue };
        if rnic.check().is_err() {
            // The parent's.
            std::mem::forget(rnic);
            continue;
        }
        rnic.device.acknowledge_all(now());
        for _ in 0..TURNS {
            let drove = rnic.try_drive(|_, driver| driver.transmit(&rnic, now()));
            match drove {
                Drove::Idle => break,
                Drove::Moved => {}
                Drove::NotAtAll => thread::yield_now(),
            }
        }
        rnic.publish();
        // Its end is the process's: to take it down now would serve nobody.
        std::mem::forget(rnic);
    }
}
