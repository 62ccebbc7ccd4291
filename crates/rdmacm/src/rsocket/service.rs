//! The thread that takes what happens while the program is elsewhere: events of connections, so that
//! a peer is answered before `raccept` is called; datagrams that come by the kernel; and questions
//! whether peers are still there.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use hirail_abi::{ConnParam, EventChannel, RdmaCmEvent, RdmaCmId};

use super::endpoint::Handle;
use super::table::{Kind, Socket};
use super::wait::Bell;
use super::{accept, close, connect, datagram, keepalive};
use crate::channel::{Channel, ChannelObject};
use crate::entry::{lock, nothing};
use crate::errno::Errno;
use crate::event;
use crate::names::kind;

/// What the thread works with.
struct Service {
    /// One for all ids.
    public: *mut EventChannel,
    channel: Arc<Channel>,
    /// Rung when there is one more thing to watch.
    bell: Bell,
    /// Whose an id is, by its address.
    ids: Mutex<BTreeMap<usize, Weak<Socket>>>,
    /// Sockets for datagrams, by the kernel's descriptors.
    datagrams: Mutex<BTreeMap<c_int, Weak<Socket>>>,
    has_keepalive: AtomicBool,
}

// SAFETY: the channel may be used from any thread.
unsafe impl Send for Service {}
// SAFETY: as above.
unsafe impl Sync for Service {}

/// How often it is looked whether a peer is to be asked.
const TICK: Duration = Duration::from_millis(500);

fn service() -> Result<&'static Service, Errno> {
    static SERVICE: OnceLock<Result<Service, Errno>> = OnceLock::new();
    static STARTED: OnceLock<Result<(), Errno>> = OnceLock::new();
    let service = SERVICE.get_or_init(Service::new).as_ref();
    let service = service.map_err(|errno| *errno)?;
    let started = STARTED.get_or_init(|| {
        close::at_exit();
        let thread = thread::Builder::new().name("hirail-rsocket".into());
        let run = thread.spawn(|| {
            block_signals();
            loop {
                nothing(|| service.turn());
            }
        });
        run.map(drop).map_err(Errno::from)
    });
    started.map(|()| service)
}

/// Signals are for threads of the program.
fn block_signals() {
    // SAFETY: a set on the stack, of this thread.
    unsafe {
        let mut all = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut());
    }
}

/// The channel of all ids.
pub(super) fn channel() -> Result<*mut EventChannel, Errno> {
    service().map(|service| service.public)
}

/// Events of an id are for `socket` from now on.
pub(super) fn register(id: *mut RdmaCmId, socket: &Arc<Socket>) -> Result<(), Errno> {
    let service = service()?;
    lock(&service.ids).insert(id.addr(), Arc::downgrade(socket));
    Ok(())
}

/// Nothing is told of an id any more.
pub(super) fn forget(id: *mut RdmaCmId) {
    if let Ok(service) = service() {
        lock(&service.ids).remove(&id.addr());
    }
}

/// What comes by the kernel to `fd` is for `socket`.
pub(super) fn watch(fd: c_int, socket: &Arc<Socket>) -> Result<(), Errno> {
    let service = service()?;
    lock(&service.datagrams).insert(fd, Arc::downgrade(socket));
    service.bell.ring();
    Ok(())
}

/// Nothing comes to `fd` any more.
pub(super) fn unwatch(fd: c_int) {
    if let Ok(service) = service() {
        lock(&service.datagrams).remove(&fd);
        service.bell.ring();
    }
}

/// Peers of sockets that want it are asked from now on.
pub(super) fn keep_alive() {
    if let Ok(service) = service() {
        service.has_keepalive.store(true, Ordering::Relaxed);
        service.bell.ring();
    }
}

/// An event, and what is not the program's to give back.
struct Told {
    kind: u32,
    status: c_int,
    id: *mut RdmaCmId,
    listener: *mut RdmaCmId,
    param: ConnParam,
    said: Vec<u8>,
}

impl Told {
    /// # Safety
    /// The event was taken, and is given back by this.
    unsafe fn take(event: *mut RdmaCmEvent) -> Self {
        // SAFETY: as required of the caller. All ids here are those of connections.
        unsafe {
            let param = (*event).param.conn;
            let said = if param.private_data.is_null() {
                Vec::new()
            } else {
                let length = param.private_data_len.into();
                slice::from_raw_parts(param.private_data.cast::<u8>(), length).to_vec()
            };
            let told = Self {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                listener: (*event).listen_id,
                param,
                said,
            };
            event::acknowledge(event);
            told
        }
    }
}

impl Service {
    fn new() -> Result<Self, Errno> {
        let public = ChannelObject::hand_out()?;
        // SAFETY: a channel that was just made and stays.
        let channel = unsafe {
            let fd = (*public).fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            Channel::of(public)
        };
        Ok(Self {
            public,
            channel,
            bell: Bell::new()?,
            ids: Mutex::default(),
            datagrams: Mutex::default(),
            has_keepalive: AtomicBool::new(false),
        })
    }

    fn turn(&self) {
        while let Ok(event) = self.channel.next() {
            // SAFETY: it was just taken.
            self.dispatch(unsafe { Told::take(event) });
        }
        let watched: Vec<_> = {
            let datagrams = lock(&self.datagrams);
            datagrams
                .iter()
                .map(|(fd, socket)| (*fd, Weak::clone(socket)))
                .collect()
        };
        // SAFETY: the channel stays.
        let own = [unsafe { (*self.public).fd }, self.bell.fd()];
        let fds = own.into_iter().chain(watched.iter().map(|(fd, _)| *fd));
        let mut polls: Vec<_> = fds
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let asks = self.has_keepalive.load(Ordering::Relaxed);
        let patience = if asks { TICK.as_millis() as c_int } else { -1 };
        // SAFETY: so many descriptors.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, patience) };
        if polls[1].revents != 0 {
            self.bell.silence();
        }
        for (poll, (_, socket)) in polls[2..].iter().zip(&watched) {
            if poll.revents != 0
                && let Some(socket) = socket.upgrade()
                && let Kind::Datagram(one) = &socket.kind
            {
                datagram::heard(&socket, one);
            }
        }
        if asks {
            self.has_keepalive
                .store(keepalive::ask(), Ordering::Relaxed);
        }
    }

    fn socket_of(&self, id: *mut RdmaCmId) -> Option<Arc<Socket>> {
        lock(&self.ids).get(&id.addr())?.upgrade()
    }

    fn dispatch(&self, told: Told) {
        if told.kind == kind::CONNECT_REQUEST {
            // SAFETY: a new id, which nobody else knows.
            let handle = unsafe { Handle::adopt(told.id) };
            if let Some(listener) = self.socket_of(told.listener) {
                accept::asked(&listener, handle, told.param, &told.said);
            }
            return;
        }
        if let Some(socket) = self.socket_of(told.id)
            && let Kind::Stream(stream) = &socket.kind
        {
            connect::told(&socket, stream, told.kind, told.status, &told.said);
        }
    }
}
