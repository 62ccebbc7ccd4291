//! What `hirail run --check` sees of the calls of a program: facts for the ledger, which decides
//! ([`hirail_check`]).
//!
//! Without it a call costs one load and a branch that is not taken. With it one lock is held while a
//! request is posted, so that the ledger sees requests in the order of their queue. A thread that
//! drives the device may have something to tell while another one, or itself, holds the lock: that
//! waits in `later` until somebody looks.

mod facts;
mod output;
mod place;

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use hirail::memory::UserRegion;
use hirail::{Counter, Denied};
use hirail_check::record::Record;
use hirail_check::{Ledger, Memory, Peer, Site};

use crate::shared::Shared;
use output::Output;

pub(crate) use facts::*;
pub(crate) use hirail_check::Kind;

/// The one of this process; null where nothing is checked.
static CHECKER: AtomicPtr<Checker> = AtomicPtr::new(ptr::null_mut());

/// How long an object may wait for acknowledgements before it is told.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

thread_local! {
    /// A library of ours makes something for itself.
    static IS_INTERNAL: Cell<bool> = const { Cell::new(false) };
}

/// What checks the calls of this process.
pub(crate) struct Checker {
    ledger: Mutex<Ledger>,
    later: Mutex<Vec<Later>>,
    output: Output,
}

/// What threads that drive the device have to tell.
enum Later {
    Denied(Peer),
    Overran(u64),
}

/// The checker, if calls are checked.
#[inline]
pub(crate) fn on() -> Option<&'static Checker> {
    let checker = CHECKER.load(Ordering::Acquire);
    // SAFETY: it is never freed.
    unsafe { checker.as_ref() }
}

/// Checks calls from now on, and writes findings into `folder`.
pub(crate) fn start(folder: &Path) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let checker = Box::new(Checker {
            ledger: Mutex::default(),
            later: Mutex::default(),
            output: Output::new(folder),
        });
        CHECKER.store(Box::into_raw(checker), Ordering::Release);
        // SAFETY: this library stays loaded, so the function does.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    if let Some(checker) = on() {
        checker.with(Ledger::exit);
        if hirail::fork::check().is_ok() {
            checker.output.write(&Record::End);
        }
    }
}

/// Runs `job`; what it makes belongs to a library, not to the program.
pub(crate) fn internally<T>(job: impl FnOnce() -> T) -> T {
    let before = IS_INTERNAL.replace(true);
    let done = job();
    IS_INTERNAL.set(before);
    done
}

fn is_internal() -> bool {
    IS_INTERNAL.get()
}

impl Checker {
    /// Tells the ledger. A mistake in the ledger ends the checking, not the program. In a forked
    /// child nothing is told: what it has is its parent's.
    #[cold]
    fn with<T>(&self, job: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        if hirail::fork::check().is_err() {
            return None;
        }
        let told = catch_unwind(AssertUnwindSafe(|| {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let told = job(&mut ledger);
            self.catch_up(&mut ledger);
            told
        }));
        if told.is_err() {
            CHECKER.store(ptr::null_mut(), Ordering::Release);
        }
        told.ok()
    }

    /// As [`with`](Self::with), from this place.
    fn at<T>(&self, job: impl FnOnce(&mut Ledger, Site) -> T) -> Option<T> {
        let frames = place::here();
        self.with(|ledger| {
            let site = ledger.site(&frames);
            job(ledger, site)
        })
    }

    /// Tells what was put off, and writes what is new.
    fn catch_up(&self, ledger: &mut Ledger) {
        for later in std::mem::take(&mut *self.later()) {
            match later {
                Later::Denied(peer) => ledger.denied(&peer),
                Later::Overran(cq) => ledger.cq_overran(cq),
            }
        }
        if ledger.has_news() {
            self.output.news(ledger);
        }
    }

    fn later(&self) -> MutexGuard<'_, Vec<Later>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the ledger now, or whoever has it does.
    fn put_off(&self, later: Later) {
        self.later().push(later);
        let told = catch_unwind(AssertUnwindSafe(|| match self.ledger.try_lock() {
            Ok(mut ledger) => self.catch_up(&mut ledger),
            Err(TryLockError::Poisoned(ledger)) => self.catch_up(&mut ledger.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }));
        if told.is_err() {
            CHECKER.store(ptr::null_mut(), Ordering::Release);
        }
    }

    fn denied(&self, device: u64, denied: &Denied) {
        if let Some(peer) = peer(device, denied) {
            self.put_off(Later::Denied(peer));
        }
    }
}

/// The memory of this process.
struct Process;

impl Memory for Process {
    fn digest(&self, addr: u64, length: u64) -> Option<u32> {
        let from = ptr::with_exposed_provenance_mut(usize::try_from(addr).ok()?);
        // SAFETY: nothing but the copies touches it, which tolerate that others do, and that nothing
        // is there.
        let region = unsafe { UserRegion::new(from, usize::try_from(length).ok()?, false) }?;
        let mut digest = crc32fast::Hasher::new();
        let mut bytes = [0; 16 << 10];
        for start in (0..length).step_by(bytes.len()) {
            let part = (length - start).min(bytes.len() as u64) as usize;
            region.read_into(start, &mut bytes[..part]).ok()?;
            digest.update(&bytes[..part]);
        }
        Some(digest.finalize())
    }

    fn peer_writes(&self, device: u64) -> u64 {
        let device: *const Shared = ptr::with_exposed_provenance(device as usize);
        // SAFETY: the ledger asks for devices that are open.
        let counters = unsafe { &*device }.hirail.counters();
        counters.get(Counter::RxWriteRequests) + counters.get(Counter::RxAtomicRequests)
    }
}
