//! The end of the process: peers hear that their connections are over, as they do from the kernel.
//! Else they would find out by asking in vain, many times.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use super::manager::ManagerInner;
use crate::port::sys;

/// The managers of this process.
static OPEN: Mutex<Vec<Weak<ManagerInner>>> = Mutex::new(Vec::new());

/// Sees to `manager` when the process exits.
pub(super) fn watch(manager: &Arc<ManagerInner>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_exit(leave));
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|manager| manager.strong_count() > 0);
    open.push(Arc::downgrade(manager));
}

extern "C" fn leave() {
    if crate::fork::check().is_err() {
        return;
    }
    let open = match OPEN.try_lock() {
        Ok(open) => open.clone(),
        Err(_) => return,
    };
    for manager in open {
        let Some(manager) = manager.upgrade() else {
            continue;
        };
        manager.leave();
        // Its end is the process's: to take it down now would serve nobody.
        std::mem::forget(manager);
    }
}
