//! The engine on one thread: plain cells for locks, [`Memory`] for memory.

use std::cell::RefCell;

use hirail_rnic::{Device, Host, Qp};

use crate::Memory;

/// A host with one thread. Locks that are taken twice panic, so lock order mistakes show.
pub enum SingleHost {}

impl Host for SingleHost {
    type Region = Memory;
    type Lock<T: 'static> = RefCell<T>;
    type ReadMostly<T: 'static> = RefCell<T>;
}

/// A device of this host.
pub type TestDevice = Device<SingleHost>;
/// A queue pair of this host.
pub type TestQp = Qp<SingleHost>;
