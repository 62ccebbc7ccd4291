//! Event channels: one descriptor for the events of many ids.
//!
//! Events come from two sides. What this library finds out itself waits in a queue here; what
//! connections tell waits in a channel of the other library. The program's descriptor is an epoll set
//! over both, so it can be polled, put into another set, and made non-blocking.

use core::ffi::c_int;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use hirail_abi::{CmChannel, EventChannel, RdmaCmEvent};

use crate::bridge::bridge;
use crate::entry::{lock, nothing, number, pointer};
use crate::errno::Errno;
use crate::event::{self, Told};
use crate::id::Id;
use crate::translate;

/// A channel.
pub(crate) struct Channel {
    /// What the program sees.
    set: OwnedFd,
    /// Readable while `queue` is not empty.
    bell: OwnedFd,
    queue: Mutex<VecDeque<(Arc<Id>, Told)>>,
    cm: *mut CmChannel,
}

// SAFETY: the functions of the bridge may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// A channel, and the part of it that programs see.
#[repr(C)]
pub(crate) struct ChannelObject {
    public: EventChannel,
    channel: Arc<Channel>,
}

fn descriptor(fd: c_int) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: a descriptor that was just made, and nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Channel {
    fn new() -> Result<Self, Errno> {
        // SAFETY: no preconditions.
        let (set, bell) = unsafe {
            (
                descriptor(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                descriptor(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        let bridge = bridge()?;
        // SAFETY: no preconditions.
        let cm = Errno::check_pointer(unsafe { (bridge.channel_new)() })?;
        let this = Self {
            set,
            bell,
            queue: Mutex::default(),
            cm,
        };
        // SAFETY: a channel that was just made.
        let told = unsafe { (bridge.channel_fd)(this.cm) };
        for fd in [this.bell.as_raw_fd(), told] {
            let mut interest = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 0,
            };
            // SAFETY: open descriptors.
            let added = unsafe {
                libc::epoll_ctl(
                    this.set.as_raw_fd(),
                    libc::EPOLL_CTL_ADD,
                    fd,
                    &raw mut interest,
                )
            };
            if added != 0 {
                return Err(Errno::last());
            }
        }
        Ok(this)
    }

    /// The channel behind what the program has.
    ///
    /// # Safety
    /// It came out of [`ChannelObject::hand_out`] and exists.
    pub(crate) unsafe fn of(public: *mut EventChannel) -> Arc<Self> {
        // SAFETY: as required of the caller.
        Arc::clone(unsafe { &(*public.cast::<ChannelObject>()).channel })
    }

    /// Where the other library puts events.
    pub(crate) fn cm(&self) -> *mut CmChannel {
        self.cm
    }

    /// Tells of something.
    pub(crate) fn push(&self, id: Arc<Id>, told: Told) {
        let mut queue = lock(&self.queue);
        queue.push_back((id, told));
        let one = 1u64;
        // It fails only when the counter would overflow: then it is readable anyway.
        // SAFETY: eight bytes are there.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the events of an id out, in their order.
    pub(crate) fn withdraw(&self, id: &Arc<Id>) -> Vec<Told> {
        let mut queue = lock(&self.queue);
        let (taken, rest): (Vec<_>, Vec<_>) = queue
            .drain(..)
            .partition(|(owner, _)| Arc::ptr_eq(owner, id));
        queue.extend(rest);
        self.calm(&queue);
        taken.into_iter().map(|(_, told)| told).collect()
    }

    /// The bell is silent when the queue is empty.
    fn calm(&self, queue: &VecDeque<(Arc<Id>, Told)>) {
        if queue.is_empty() {
            let mut count = 0u64;
            // SAFETY: eight bytes are there.
            unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }

    /// The oldest event of those that this library has found out.
    fn pop(&self) -> Option<*mut RdmaCmEvent> {
        let mut queue = lock(&self.queue);
        let (owner, told) = queue.pop_front()?;
        self.calm(&queue);
        // Before anybody can withdraw it: who destroys the id waits from now on.
        owner.taken();
        drop(queue);
        let public = owner.public();
        Some(event::make(owner, public, std::ptr::null_mut(), told))
    }

    /// The next event, waiting for one unless the program has made the descriptor non-blocking.
    ///
    /// # Errors
    /// `EAGAIN` when there is none.
    pub(crate) fn next(&self) -> Result<*mut RdmaCmEvent, Errno> {
        loop {
            if let Some(event) = self.pop() {
                return Ok(event);
            }
            match translate::next(self)? {
                translate::Next::Event(event) => return Ok(event),
                translate::Next::Nothing => {}
                translate::Next::Empty => self.wait()?,
            }
        }
    }

    /// Waits until there may be an event. A signal does not end it, as it would not end a read that
    /// is restarted.
    fn wait(&self) -> Result<(), Errno> {
        let mut poll = libc::pollfd {
            fd: self.set.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        loop {
            // SAFETY: one descriptor.
            let ready = unsafe {
                let flags = libc::fcntl(poll.fd, libc::F_GETFL);
                let patience = if flags & libc::O_NONBLOCK == 0 { -1 } else { 0 };
                libc::poll(&raw mut poll, 1, patience)
            };
            match ready {
                0 => return Err(Errno(libc::EAGAIN)),
                1 => return Ok(()),
                _ if Errno::last() == Errno(libc::EINTR) => {}
                _ => return Err(Errno::last()),
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Ok(bridge) = bridge() {
            // SAFETY: nobody has it any more.
            unsafe { (bridge.channel_free)(self.cm) };
        }
    }
}

impl ChannelObject {
    /// A new channel for the program.
    pub(crate) fn hand_out() -> Result<*mut EventChannel, Errno> {
        let channel = Arc::new(Channel::new()?);
        let object = Self {
            public: EventChannel {
                fd: channel.set.as_raw_fd(),
            },
            channel,
        };
        Ok(Box::into_raw(Box::new(object)).cast())
    }

    /// Takes it back.
    ///
    /// # Safety
    /// It came out of [`hand_out`](Self::hand_out), and nobody uses it any more.
    pub(crate) unsafe fn free(public: *mut EventChannel) {
        // SAFETY: as required of the caller.
        drop(unsafe { Box::from_raw(public.cast::<Self>()) });
    }
}

/// `rdma_create_event_channel`.
pub(crate) unsafe extern "C" fn create_event_channel() -> *mut EventChannel {
    pointer(ChannelObject::hand_out)
}

/// `rdma_destroy_event_channel`.
pub(crate) unsafe extern "C" fn destroy_event_channel(channel: *mut EventChannel) {
    nothing(|| {
        if !channel.is_null() {
            // SAFETY: a channel of the caller's, once. Ids that are left hold what they need.
            unsafe { ChannelObject::free(channel) };
        }
    });
}

/// `rdma_get_cm_event`.
pub(crate) unsafe extern "C" fn get_cm_event(
    channel: *mut EventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    number(|| {
        if channel.is_null() || event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: a channel and a place of the caller's.
        unsafe { event.write(Channel::of(channel).next()?) };
        Ok(())
    })
}
