//! The end of the process: what is open has a last word. `exit` brings it; `_exit`, `abort` and signals
//! that kill do not.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use crate::port::sys;

/// What has something to say when the process exits.
pub(crate) trait Leave: Send + Sync {
    /// Says it, without waiting for threads: they may not run any more.
    fn leave(&self);
}

/// All of this process, in the order in which they were made.
static OPEN: Mutex<Vec<Weak<dyn Leave>>> = Mutex::new(Vec::new());

/// Lets `object` leave when the process exits, those made later first: they stand on earlier ones.
pub(crate) fn watch<T: Leave + 'static>(object: &Arc<T>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_exit(leave));
    let object: Weak<T> = Arc::downgrade(object);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|object| object.strong_count() > 0);
    open.push(object);
}

extern "C" fn leave() {
    if crate::fork::check().is_err() {
        return;
    }
    let open = match OPEN.try_lock() {
        Ok(open) => open.clone(),
        Err(_) => return,
    };
    for object in open.iter().rev() {
        let Some(object) = object.upgrade() else {
            continue;
        };
        object.leave();
        // Its end is the process's: to take it down now would serve nobody.
        std::mem::forget(object);
    }
}
