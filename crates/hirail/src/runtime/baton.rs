//! What one at a time has, and nobody waits for: whoever finds it taken rings a bell that its holder
//! answers.
//!
//! **No bell is lost**, on any processor. Two threads meet here, and each of them writes first and
//! then reads what the other one writes:
//!
//! ```text
//! ringer   the bell rings      fence   is it free? no
//! holder   sets it free        fence   did the bell ring? no
//! ```
//!
//! Both answers together would lose the bell, and without the fences both are possible on a processor
//! whose loads may pass older stores, such as ARM. (On x86 taking a lock and letting it go are fences.)
//! Fences that are [`SeqCst`](Ordering::SeqCst) have one order. If the ringer's is first, the holder
//! hears the bell. If the holder's is first, the ringer finds it free, or taken by a holder to come,
//! whose fence is then later than the ringer's. And a holder that heard a bell but then finds it taken
//! has become a ringer: the bell goes on ringing, and its fence, too, is before that of the next.
//!
//! A bell is silenced before the job begins, so what it rang for is seen by that job or a later one:
//! silencing reads the bell, and with it everything that ringers did before. The models in `loom/` try
//! all of that.

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};
use std::sync::TryLockError;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};

/// See the module's description.
pub(super) struct Baton<T> {
    held: Mutex<T>,
    rung: AtomicBool,
}

impl<T> Baton<T> {
    pub(super) fn new(held: T) -> Self {
        Self {
            held: Mutex::new(held),
            rung: AtomicBool::new(false),
        }
    }

    /// There is something to do that was made ready before. Followed by an attempt to do it.
    pub(super) fn ring(&self) {
        // Not a plain store: whoever silences the bell shall see what earlier ringers did as well.
        self.rung.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Does the job unless somebody else has the baton, and again as long as the bell rings meanwhile.
    /// How often.
    pub(super) fn try_with(&self, mut job: impl FnMut(&mut T)) -> usize {
        let mut times = 0;
        while let Some(mut held) = self.try_take() {
            // Who polls finds silence nearly always, and writes nothing then.
            if self.rung.load(Ordering::Relaxed) {
                self.rung.swap(false, Ordering::Acquire);
            }
            job(&mut held);
            drop(held);
            times += 1;
            if !self.was_rung() {
                break;
            }
        }
        times
    }

    /// Does the job, waiting for whoever has the baton. It is no answer to a bell: whether one rings and
    /// is to be answered is the second result.
    pub(super) fn wait_with<R>(&self, job: impl FnOnce(&mut T) -> R) -> (R, bool) {
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        let done = job(&mut held);
        drop(held);
        (done, self.was_rung())
    }

    fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        match self.held.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether the bell rang, asked after the baton was given back.
    fn was_rung(&self) -> bool {
        fence(Ordering::SeqCst);
        self.rung.load(Ordering::Acquire)
    }
}
