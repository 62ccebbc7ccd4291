//! When the process exits, what the application has seen is acknowledged first.
//!
//! An acknowledgement leaves after the application had its turn with the message, and may wait for its
//! answer. A program that exits with the last message in hand, its device neither dropped nor polled
//! again, would leave its peer to retry in vain.

use std::thread;

use super::{Drove, Rnic, now};
use crate::exit::Leave;

/// Turns of others to wait for, when they keep the driver.
const TURNS: usize = 1000;

impl Leave for Rnic {
    fn leave(&self) {
        if self.check().is_err() {
            // The parent's.
            return;
        }
        self.device.acknowledge_all(now());
        for _ in 0..TURNS {
            let drove = self.try_drive(|rnic, driver| driver.transmit(rnic, now()));
            match drove {
                Drove::Idle => break,
                Drove::Moved => {}
                Drove::NotAtAll => thread::yield_now(),
            }
        }
        self.publish();
    }
}
