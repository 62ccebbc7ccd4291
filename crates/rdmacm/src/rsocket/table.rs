//! Sockets by their descriptors.
//!
//! A descriptor is a real one: an epoll set of what the socket waits for in the kernel. It keeps the
//! number from being given to anything else, and closes in children that call `exec`. Like those of
//! rdma-core it is no socket of the kernel's: only the calls that begin with `r` know what to do with
//! it. A copy that `dup` makes is not a socket here, and in a forked child none works.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::datagram::Datagram;
use super::stream::Stream;
use super::wait::Waiters;
use crate::errno::Errno;

/// A socket.
pub(super) struct Socket {
    set: OwnedFd,
    /// What `F_GETFL` says.
    flags: AtomicI32,
    pub(super) family: c_int,
    pub(super) waiters: Waiters,
    pub(super) kind: Kind,
}

/// What it is.
pub(super) enum Kind {
    Stream(Box<Stream>),
    Datagram(Datagram),
}

static TABLE: RwLock<BTreeMap<c_int, Arc<Socket>>> = RwLock::new(BTreeMap::new());

impl Socket {
    pub(super) fn new(family: c_int, kind: Kind) -> Result<Arc<Self>, Errno> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(Arc::new(Self {
            // SAFETY: a descriptor that was just made, and nobody else knows.
            set: unsafe { OwnedFd::from_raw_fd(fd) },
            flags: AtomicI32::new(libc::O_RDWR),
            family,
            waiters: Waiters::default(),
            kind,
        }))
    }

    /// What the program calls it, and what becomes readable when there is news that was asked for.
    pub(super) fn fd(&self) -> c_int {
        self.set.as_raw_fd()
    }

    /// Shows the kernel one more thing to wait for. It goes when its descriptor is closed.
    pub(super) fn watch(&self, fd: c_int) -> Result<(), Errno> {
        let mut interest = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: fd.cast_unsigned().into(),
        };
        // SAFETY: open descriptors.
        let added =
            unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_ADD, fd, &raw mut interest) };
        if added != 0 {
            return Err(Errno::last());
        }
        Ok(())
    }

    pub(super) fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed)
    }

    /// Of those, only `O_NONBLOCK` means something.
    pub(super) fn set_flags(&self, flags: c_int) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Whether a call with these flags of its own must not wait.
    pub(super) fn is_hasty(&self, flags: c_int) -> bool {
        self.flags() & libc::O_NONBLOCK != 0 || flags & libc::MSG_DONTWAIT != 0
    }

    /// Gives it to the program; its descriptor.
    pub(super) fn publish(self: Arc<Self>) -> c_int {
        let fd = self.fd();
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(fd, self);
        fd
    }
}

/// The socket that a descriptor means.
///
/// # Errors
/// `EBADF` where it is none.
pub(super) fn get(fd: c_int) -> Result<Arc<Socket>, Errno> {
    find(fd).ok_or(Errno(libc::EBADF))
}

/// See [`get`].
pub(super) fn find(fd: c_int) -> Option<Arc<Socket>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(&fd).cloned()
}

/// The stream that a descriptor means.
///
/// # Errors
/// `EBADF` where it is none, `EOPNOTSUPP` where it takes datagrams.
pub(super) fn with_stream<T>(
    fd: c_int,
    job: impl FnOnce(&Arc<Socket>, &Stream) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let socket = get(fd)?;
    match &socket.kind {
        Kind::Stream(stream) => job(&socket, stream),
        Kind::Datagram(_) => Err(Errno::UNSUPPORTED),
    }
}

/// Takes a socket from the program.
pub(super) fn remove(fd: c_int) -> Result<Arc<Socket>, Errno> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.remove(&fd).ok_or(Errno(libc::EBADF))
}

/// All that there are.
pub(super) fn all() -> Vec<Arc<Socket>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.values().cloned().collect()
}
