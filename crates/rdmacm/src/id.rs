//! Ids: what a program has of a connection, a listener or a datagram service.

use core::ffi::{c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hirail_abi::{Cm, CmPath, EventChannel, Gid, QpInitAttr, RdmaCmId, SaPathRec};

use crate::address;
use crate::bridge::bridge;
use crate::channel::{Channel, ChannelObject};
use crate::device::Device;
use crate::entry::{lock, number};
use crate::errno::Errno;
use crate::event::{self, Told};
use crate::lookup::Lookup;
use crate::multicast::Group;
use crate::names::kind;
use crate::port::Port;
use crate::registry::registry;

/// `enum rdma_port_space`.
pub(crate) mod space {
    pub(crate) const IPOIB: i32 = 0x0002;
    pub(crate) const TCP: i32 = 0x0106;
    pub(crate) const UDP: i32 = 0x0111;
    pub(crate) const IB: i32 = 0x013f;
}

/// `enum ibv_qp_type`.
pub(crate) mod qp_type {
    pub(crate) const RC: i32 = 2;
    pub(crate) const UD: i32 = 4;
    pub(crate) const XRC_SEND: i32 = 9;
    pub(crate) const XRC_RECV: i32 = 10;
}

/// As many READs and atomics as both sides can do.
pub(crate) const MOST: u8 = 0xff;

/// How far an id has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Asked, or asked for.
    Connecting,
    Connected,
    /// The program has been told that it is over.
    Disconnected,
}

/// What a program may set before it connects.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) tos: u8,
    /// 0: for ever.
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) shares_address: bool,
}

/// What is known of an id.
pub(crate) struct State {
    pub(crate) channel: Arc<Channel>,
    /// Calls wait for their events, and the channel belongs to the id.
    pub(crate) is_sync: bool,
    pub(crate) step: Step,
    pub(crate) device: Option<&'static Device>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) path: Option<CmPath>,
    /// What the connection manager calls it.
    pub(crate) comm: Option<u32>,
    pub(crate) ports: Vec<Port>,
    pub(crate) backlog: u32,
    pub(crate) options: Options,
    /// READs and atomics that the peer has offered, both ways.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) groups: Vec<Group>,
    /// What queue pairs of an endpoint are made with.
    pub(crate) qp_init: Option<QpInitAttr>,
    /// What an endpoint says when it connects.
    pub(crate) connect_data: Vec<u8>,
    pub(crate) qkey: u32,
    /// ECE: vendor and options.
    pub(crate) local_ece: (u32, u32),
    pub(crate) remote_ece: (u32, u32),
    pub(crate) lookup: Lookup,
}

// SAFETY: the queue pairs' attributes point to objects of the program, which may use them anywhere.
unsafe impl Send for State {}

/// An id. The program's pointer leads to [`IdObject`].
pub(crate) struct Id {
    public: AtomicPtr<RdmaCmId>,
    state: Mutex<State>,
    /// Events taken and not acknowledged.
    owed: Mutex<u32>,
    changed: Condvar,
}

/// An id, and the part of it that programs see and write to.
#[repr(C)]
pub(crate) struct IdObject {
    public: RdmaCmId,
    id: Arc<Id>,
    path_rec: SaPathRec,
}

/// The addresses of all that programs have.
static ALIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

impl Id {
    /// A new id for the program; on `channel`, or without one waiting.
    ///
    /// # Safety
    /// The channel is the program's, or NULL.
    pub(crate) unsafe fn hand_out(
        channel: *mut EventChannel,
        context: *mut c_void,
        port_space: c_int,
        qp_type: c_int,
    ) -> Result<Arc<Self>, Errno> {
        let is_sync = channel.is_null();
        let channel = if is_sync {
            ChannelObject::hand_out()?
        } else {
            channel
        };
        // SAFETY: as required of the caller, or ours.
        let inner = unsafe { Channel::of(channel) };
        let id = Arc::new(Self {
            public: AtomicPtr::default(),
            state: Mutex::new(State {
                channel: inner,
                is_sync,
                step: Step::Idle,
                device: None,
                local: None,
                remote: None,
                path: None,
                comm: None,
                ports: Vec::new(),
                backlog: 0,
                options: Options::default(),
                responder_resources: MOST,
                initiator_depth: MOST,
                groups: Vec::new(),
                qp_init: None,
                connect_data: Vec::new(),
                qkey: UDP_QKEY,
                local_ece: (0, 0),
                remote_ece: (0, 0),
                lookup: Lookup::None,
            }),
            owed: Mutex::new(0),
            changed: Condvar::new(),
        });
        // SAFETY: numbers, NULL and addresses of no family.
        let mut public: RdmaCmId = unsafe { mem::zeroed() };
        public.channel = channel;
        public.context = context;
        public.ps = port_space;
        public.qp_type = qp_type;
        let object = Box::into_raw(Box::new(IdObject {
            public,
            id: Arc::clone(&id),
            path_rec: SaPathRec::default(),
        }));
        id.public.store(object.cast(), Ordering::Release);
        lock(&ALIVE).insert(object.addr());
        Ok(id)
    }

    /// The id behind what the program has.
    ///
    /// # Errors
    /// `EINVAL` for NULL and for one that was destroyed: perftest calls with such an id after it was
    /// refused.
    ///
    /// # Safety
    /// No other thread destroys it meanwhile.
    pub(crate) unsafe fn of(public: *mut RdmaCmId) -> Result<Arc<Self>, Errno> {
        if !lock(&ALIVE).contains(&public.addr()) {
            return Err(Errno::INVALID);
        }
        // SAFETY: it came out of `hand_out` and exists, and stays as required of the caller.
        Ok(Arc::clone(unsafe { &(*public.cast::<IdObject>()).id }))
    }

    /// What the program has. It exists until the program destroys it, which waits for events that
    /// were taken.
    pub(crate) fn public(&self) -> *mut RdmaCmId {
        self.public.load(Ordering::Acquire)
    }

    /// What is known of it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether it is about datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        // SAFETY: it exists while somebody calls.
        unsafe { (*self.public()).qp_type == qp_type::UD }
    }

    /// Tells of something that this library has found out.
    pub(crate) fn tell(self: &Arc<Self>, told: Told) {
        let channel = Arc::clone(&self.state().channel);
        channel.push(Arc::clone(self), told);
    }

    /// An event was taken.
    pub(crate) fn taken(&self) {
        *lock(&self.owed) += 1;
    }

    /// It came to nothing, or the program has given it back.
    pub(crate) fn acknowledged(&self) {
        *lock(&self.owed) -= 1;
        self.changed.notify_all();
    }

    /// Waits until no event is with the program.
    pub(crate) fn wait_acknowledged(&self) {
        let mut owed = lock(&self.owed);
        while *owed > 0 {
            owed = self
                .changed
                .wait(owed)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The connection manager and the id's name there.
    ///
    /// # Errors
    /// `EINVAL` when there is no connection.
    pub(crate) fn connection(&self) -> Result<(*mut Cm, u32), Errno> {
        let state = self.state();
        match (state.device, state.comm) {
            (Some(device), Some(comm)) => Ok((device.cm()?, comm)),
            _ => Err(Errno::INVALID),
        }
    }

    /// Shows the program where the id is.
    pub(crate) fn show(&self, state: &State) {
        let public = self.public();
        // SAFETY: it exists while somebody calls, and these fields are for us to write.
        unsafe {
            if let Some(device) = state.device {
                (*public).verbs = device.context;
                (*public).port_num = 1;
                if (*public).pd.is_null() {
                    (*public).pd = device.pd;
                }
            }
            let addr = &raw mut (*public).route.addr;
            if let Some(local) = state.local {
                (*addr).src = address::write(local);
            }
            if let Some(remote) = state.remote {
                (*addr).dst = address::write(remote);
            }
            if let Some(path) = &state.path {
                (*addr).sgid = Gid(path.local);
                (*addr).dgid = Gid(path.remote);
                (*addr).pkey = u16::MAX;
            } else if let (Some(local), Some(_)) = (state.local, state.device) {
                (*addr).sgid = Gid(address::gid(local.ip()));
                (*addr).pkey = u16::MAX;
            }
        }
    }

    /// Takes back what the program was shown of the device.
    pub(crate) fn hide_device(&self) {
        let public = self.public();
        // SAFETY: it exists while somebody calls, and these fields are for us to write.
        unsafe {
            (*public).verbs = core::ptr::null_mut();
            (*public).pd = core::ptr::null_mut();
            (*public).port_num = 0;
        }
    }

    /// Shows the program the path.
    pub(crate) fn show_route(&self, state: &State) {
        const EXACTLY: u8 = 2;
        let (Some(path), Some(device)) = (&state.path, state.device) else {
            return;
        };
        let record = SaPathRec {
            dgid: Gid(path.remote),
            sgid: Gid(path.local),
            flow_label: path.flow_label.to_be(),
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: u16::MAX,
            sl: path.sl,
            mtu_selector: EXACTLY,
            mtu: device.mtu(),
            rate_selector: EXACTLY,
            packet_life_time_selector: EXACTLY,
            packet_life_time: 16,
            ..SaPathRec::default()
        };
        let object = self.public().cast::<IdObject>();
        // SAFETY: it exists while somebody calls, and these fields are for us to write.
        unsafe {
            (*object).path_rec = record;
            (*object).public.route.path_rec = &raw mut (*object).path_rec;
            (*object).public.route.num_paths = 1;
        }
    }
}

/// The key of datagram services that are not given one.
const UDP_QKEY: u32 = 0x0123_4567;

/// Waits for the event of a call, where the program wants calls to wait.
///
/// # Errors
/// What the event says.
pub(crate) fn complete(id: &Arc<Id>) -> Result<(), Errno> {
    let channel = {
        let state = id.state();
        if !state.is_sync {
            return Ok(());
        }
        Arc::clone(&state.channel)
    };
    let public = id.public();
    // SAFETY: it exists while somebody calls; the event is one of ours.
    unsafe {
        give_back(public);
        let event = channel.next()?;
        (*public).event = event;
        match (*event).status {
            0 => Ok(()),
            _ if (*event).event == kind::REJECTED => Err(Errno(libc::ECONNREFUSED)),
            status => Err(Errno(status.abs())),
        }
    }
}

/// Gives the event of the last call back.
///
/// # Safety
/// The id exists.
pub(crate) unsafe fn give_back(public: *mut RdmaCmId) {
    // SAFETY: as required of the caller; the event is one of ours.
    unsafe {
        let event = mem::replace(&mut (*public).event, core::ptr::null_mut());
        if !event.is_null() {
            event::acknowledge(event);
        }
    }
}

fn type_of(port_space: c_int) -> Result<c_int, Errno> {
    match port_space {
        space::TCP | space::IB => Ok(qp_type::RC),
        space::UDP | space::IPOIB => Ok(qp_type::UD),
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    }
}

/// `rdma_create_id`.
pub(crate) unsafe extern "C" fn create_id(
    channel: *mut EventChannel,
    to: *mut *mut RdmaCmId,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    number(|| {
        let qp_type = type_of(port_space)?;
        // SAFETY: a channel and a place of the caller's.
        unsafe {
            let id = Id::hand_out(channel, context, port_space, qp_type)?;
            to.write(id.public());
        }
        Ok(())
    })
}

/// `rdma_destroy_id`: waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn destroy_id(public: *mut RdmaCmId) -> c_int {
    // SAFETY: an id of the caller's, once.
    number(|| unsafe { destroy(public) })
}

/// See [`destroy_id`].
///
/// # Safety
/// The id exists, and nobody but holders of its events uses it any more.
pub(crate) unsafe fn destroy(public: *mut RdmaCmId) -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: as required of the caller.
    unsafe {
        let id = Id::of(public)?;
        give_back(public);
        let (channel, is_sync, ports, connection) = {
            let mut state = id.state();
            let cm = state.device.and_then(|device| device.cm().ok());
            (
                Arc::clone(&state.channel),
                state.is_sync,
                mem::take(&mut state.ports),
                cm.zip(state.comm.take()),
            )
        };
        {
            let mut registry = registry();
            registry.remove_listeners(&id);
            if let Some((cm, comm)) = connection {
                registry.remove(cm, comm);
            }
        }
        drop(ports);
        if let Some((cm, comm)) = connection {
            // It may be over by itself.
            let _ = (bridge.destroy)(cm, comm);
        }
        channel.withdraw(&id);
        id.wait_acknowledged();
        lock(&ALIVE).remove(&public.addr());
        let object = Box::from_raw(public.cast::<IdObject>());
        if is_sync {
            ChannelObject::free(object.public.channel);
        }
    }
    Ok(())
}

/// `rdma_migrate_id`: events go to another channel from now on, or calls wait for them.
pub(crate) unsafe extern "C" fn migrate_id(
    public: *mut RdmaCmId,
    channel: *mut EventChannel,
) -> c_int {
    // SAFETY: an id and a channel of the caller's.
    number(|| unsafe { migrate(&Id::of(public)?, channel) })
}

/// See [`migrate_id`].
///
/// # Safety
/// The channel is the program's, or NULL.
pub(crate) unsafe fn migrate(id: &Arc<Id>, channel: *mut EventChannel) -> Result<(), Errno> {
    let is_sync = channel.is_null();
    let public = id.public();
    // SAFETY: as required of the caller; the id exists while somebody calls.
    unsafe {
        let channel = if is_sync {
            ChannelObject::hand_out()?
        } else {
            channel
        };
        let new = Channel::of(channel);
        give_back(public);
        let (old, was_sync) = {
            let mut state = id.state();
            let old = mem::replace(&mut state.channel, Arc::clone(&new));
            (old, mem::replace(&mut state.is_sync, is_sync))
        };
        let old_public = mem::replace(&mut (*public).channel, channel);
        if let Ok((cm, comm)) = id.connection() {
            Errno::check((bridge()?.move_to)(cm, comm, new.cm()))?;
        }
        crate::listen::move_to(id, &new)?;
        for told in old.withdraw(id) {
            new.push(Arc::clone(id), told);
        }
        // Threads that took events from the old one have given them back then.
        id.wait_acknowledged();
        if was_sync {
            ChannelObject::free(old_public);
        }
    }
    Ok(())
}
