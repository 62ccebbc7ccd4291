//! `fork()`: the child must neither use nor disturb what the parent runs.
//!
//! A forked child has copies of every descriptor and of all memory, but only the thread that called
//! `fork`; locks may be held for ever by threads that do not exist there. So every entry point asks
//! [`check`] first, which takes no lock: a page that the kernel wipes in children
//! (`MADV_WIPEONFORK`) tells the two apart with one load. The first call in the child closes the
//! copies of the port's descriptors; the parent's are not affected. Nothing is hooked into `fork`
//! itself, and a child that only calls `exec` loses the descriptors there.
//!
//! Where the parent had made nothing on its devices, or nothing was left of it, the child starts anew:
//! it opens devices of its own, and only those of its parent refuse it.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::port::sys;

/// This process is a forked child of the one that opened the device. It has no device; it may
/// `exec`. To C callers this is `EIO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forked;

impl fmt::Display for Forked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device was opened before fork() and belongs to the parent process")
    }
}

impl std::error::Error for Forked {}

/// Fails in a forked child. Costs one load.
#[inline]
pub fn check() -> Result<(), Forked> {
    if sys::fork_mark_is_intact() {
        Ok(())
    } else {
        in_child()
    }
}

/// Prepares [`check`]; called when a port is opened. Cheap when repeated.
pub(crate) fn prepare() {
    sys::set_fork_mark();
}

/// The same for a device on which something is made; kept until nothing is left of it.
pub(crate) fn arm() -> Armed {
    ARMED.fetch_add(1, Ordering::Relaxed);
    prepare();
    Armed(())
}

/// A device is in use.
#[derive(Debug)]
pub(crate) struct Armed(());

impl Drop for Armed {
    fn drop(&mut self) {
        ARMED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many devices are in use; in a child, how many the parent used.
static ARMED: AtomicUsize = AtomicUsize::new(0);

/// How many children of children this process is that started anew.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// What tells devices of this process from copies of its parent's.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

#[cold]
fn in_child() -> Result<(), Forked> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return Err(Forked);
    }
    close_inherited();
    if ARMED.load(Ordering::Relaxed) == 0 {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        sys::renew_fork_mark();
        return Ok(());
    }
    DONE.store(true, Ordering::Relaxed);
    Err(Forked)
}

fn close_inherited() {
    for entry in &INHERITED {
        let fd = entry.fd.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // The application may have closed it and opened something else under that number.
            sys::close_if_inode(fd, entry.inode.load(Ordering::Relaxed));
        }
    }
}

/// A descriptor that a forked child closes at its first call.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: OwnedFd,
    inode: u64,
}

impl Descriptor {
    /// Takes charge of `fd`.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let inode = sys::inode(fd.as_fd());
        let number = fd.as_raw_fd();
        // Where the table is full the child keeps its copy, which costs it a descriptor.
        for entry in &INHERITED {
            let free =
                entry
                    .fd
                    .compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed);
            if free.is_ok() {
                entry.inode.store(inode, Ordering::Relaxed);
                break;
            }
        }
        Self { fd, inode }
    }

    /// What identifies the open file among processes.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let number = self.fd.as_raw_fd();
        if let Some(entry) = INHERITED
            .iter()
            .find(|entry| entry.fd.load(Ordering::Relaxed) == number)
        {
            entry.fd.store(NONE, Ordering::Relaxed);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Descriptors that children must close: two for every process that shares the port, and a few.
static INHERITED: [Inherited; 2048] = [const {
    Inherited {
        fd: AtomicI32::new(NONE),
        inode: AtomicU64::new(0),
    }
}; 2048];

const NONE: RawFd = -1;

struct Inherited {
    fd: AtomicI32,
    inode: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The child sees the mark wiped, closes its copies, spares a stranger under the same number;
    /// the parent notices nothing.
    #[test]
    fn child_is_told_and_closes_copies() {
        let armed = arm();
        assert_eq!(check(), Ok(()));
        let kept = Descriptor::new(sys::event().expect("descriptor"));
        let reused = Descriptor::new(sys::socket(libc::AF_UNIX).expect("descriptor"));
        let (kept_fd, reused_fd) = (kept.as_fd().as_raw_fd(), reused.as_fd().as_raw_fd());
        let code = sys::in_forked_child(|| {
            sys::replace(reused_fd, kept_fd);
            if check() != Err(Forked) || check() != Err(Forked) {
                return 1;
            }
            if sys::is_open(kept_fd) {
                return 2;
            }
            if !sys::is_open(reused_fd) { 3 } else { 0 }
        });
        assert_eq!(code, 0);
        assert_eq!(check(), Ok(()));
        assert!(sys::is_open(kept_fd) && sys::is_open(reused_fd));
        drop((kept, reused, armed));
    }
}
