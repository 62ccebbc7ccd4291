//! The connection manager of a device: the state machine of `hirail-cm`, its QP1, and a thread that
//! sleeps until a message or a timer comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use hirail_cm::{Cm, Config, IdRange, Sizes};
use hirail_rnic::error::Object;
use hirail_rnic::event::AsyncEvent;
use hirail_rnic::qp::attr::{AttrMask, QpAttr};
use hirail_rnic::{Instant, VerbError};
use hirail_vocab::QpState;
use hirail_wire::{Gid, Qpn};

use super::gsi::Gsi;
use super::port::Place;
use super::{
    Accept, Answer, CommId, Connect, Event, EventChannel, Listen, ListenerId, Notice, Path, Query,
    RejReason, ServiceId, State,
};
use crate::error::Error;
use crate::exit::{self, Leave};
use crate::port::{ANYTHING, ID_BITS, QpnBlock, first_communication_id, sys};
use crate::runtime::{Observe, now};
use crate::verbs::context::Context;
use crate::verbs::event::FdQueue;
use crate::verbs::qp::{Qp, WeakQp};

/// How long a manager that nobody holds any more stays, so that its last words are heard: some
/// repetitions of a lost one.
const LINGER: Duration = Duration::from_secs(10);

/// How often it is tried to have what another process has given up.
const CATCH_PERIOD: Duration = Duration::from_secs(1);

/// How long one that leaves may take.
const LEAVING: Duration = Duration::from_secs(1);

/// How long the thread sleeps at most.
const NAP: Duration = Duration::from_secs(3600);

/// The connection manager of a device. Clones are handles to the same one; there is one per open
/// device, as long as somebody holds it.
///
/// No call waits. Events go to the channel that a connection or listener was given.
#[derive(Clone)]
pub struct Manager {
    inner: Arc<ManagerInner>,
}

pub(crate) struct ManagerInner {
    books: Mutex<Books>,
    /// What the engine has told and the thread has not looked at yet.
    news: Arc<News>,
    catches: Mutex<Catches>,
    /// Ports at all addresses of the device.
    places: Mutex<Vec<Weak<Place>>>,
    gsi: Gsi,
    context: Context,
}

/// Addresses at which messages that nobody waits for come here.
#[derive(Default)]
struct Catches {
    addresses: BTreeSet<IpAddr>,
    /// Whether the device has no others.
    are_all: bool,
    /// When the others were tried for last.
    tried_at: Option<std::time::Instant>,
}

/// What the locks of the engine must not wait for.
struct News {
    gids_changed: AtomicBool,
    established: Mutex<Vec<Qpn>>,
    bell: File,
}

/// The state machine, and who wants to know what.
struct Books {
    cm: Cm,
    listeners: BTreeMap<ListenerId, Weak<FdQueue<Notice>>>,
    connections: BTreeMap<CommId, User>,
    /// Ports at addresses; the unspecified one is all.
    ports: BTreeSet<(ServiceId, IpAddr)>,
    /// The deadline that the thread knows.
    alarm: Option<Instant>,
}

/// Who a connection belongs to.
struct User {
    channel: Weak<FdQueue<Notice>>,
    /// What the user calls it.
    tag: u64,
    /// Goes to ERR when the connection ends.
    qp: Option<WeakQp>,
}

impl Manager {
    /// The connection manager of a device.
    ///
    /// # Errors
    /// The process has no descriptor or thread left.
    pub fn of(context: &Context) -> Result<Self, Error> {
        crate::fork::check()?;
        let slot = context.inner.connections.lock();
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = slot.upgrade() {
            return Ok(Self { inner });
        }
        let end = std::time::Instant::now() + LEAVING;
        loop {
            match Self::start(context) {
                // The one before is just leaving, and has not given QP1 back yet.
                Err(Error::Verb(VerbError::Exhausted {
                    object: Object::Qp,
                    limit: 1,
                })) if std::time::Instant::now() < end => thread::yield_now(),
                Err(error) => return Err(error),
                Ok(manager) => {
                    *slot = Arc::downgrade(&manager.inner);
                    return Ok(manager);
                }
            }
        }
    }

    fn start(context: &Context) -> Result<Self, Error> {
        let bell = sys::event().map_err(Error::Descriptor)?;
        let awaited = bell.try_clone().map_err(Error::Descriptor)?;
        let gsi = Gsi::new(context)?;
        let arrivals = gsi.fd().try_clone_to_owned().map_err(Error::Descriptor)?;
        let news = Arc::new(News {
            gids_changed: AtomicBool::new(false),
            established: Mutex::default(),
            bell: File::from(bell),
        });
        let inner = Arc::new(ManagerInner {
            books: Mutex::new(Books {
                cm: Cm::new(config(context)),
                listeners: BTreeMap::new(),
                connections: BTreeMap::new(),
                ports: BTreeSet::new(),
                alarm: None,
            }),
            news: Arc::clone(&news),
            catches: Mutex::default(),
            places: Mutex::default(),
            gsi,
            context: context.clone(),
        });
        let weak = Arc::downgrade(&inner);
        thread::Builder::new()
            .name("hirail-cm".into())
            .spawn(move || run(&weak, [awaited, arrivals]))
            .map_err(Error::Descriptor)?;
        let observer: Weak<dyn Observe> = Arc::downgrade(&news) as _;
        context.rnic().show_events_to(observer);
        inner.catch();
        exit::watch(&inner);
        Ok(Self { inner })
    }

    /// Its device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The path to an address: from the device's own GID of it, if it has one, else from the first
    /// one that can reach it.
    ///
    /// # Errors
    /// The device has no address of that family.
    pub fn path_to(&self, remote: IpAddr) -> Result<Path, Error> {
        self.path(None, remote)
    }

    /// The path from one address of the device to another one.
    ///
    /// # Errors
    /// The device does not have the address.
    pub fn path_from(&self, local: IpAddr, remote: IpAddr) -> Result<Path, Error> {
        self.path(Some(local), remote)
    }

    fn path(&self, local: Option<IpAddr>, remote: IpAddr) -> Result<Path, Error> {
        let gids = self.context().gids();
        let find = |wanted: &dyn Fn(IpAddr) -> bool| {
            (0..).zip(&gids).find_map(|(index, entry)| {
                let is_there = entry.gid != Gid::default() && wanted(entry.gid.to_ip());
                is_there.then_some((index, entry.gid))
            })
        };
        let found = match local {
            Some(local) => find(&|ip| ip == local),
            None => find(&|ip| ip == remote).or_else(|| find(&|ip| reaches(ip, remote))),
        };
        let address = local.unwrap_or(remote);
        let (index, gid) = found.ok_or(Error::NoSuchAddress { address })?;
        Ok(Path::new(gid, index, Gid::from_ip(remote)))
    }

    /// The addresses of the device that `ip` stands for: itself, or all where it is unspecified.
    pub(super) fn addresses_of(&self, ip: IpAddr) -> Result<Vec<IpAddr>, Error> {
        let all = self.inner.addresses();
        if ip.is_unspecified() {
            // IPv6 takes requests over IPv4 too.
            let fits = |it: &IpAddr| ip.is_ipv6() || it.is_ipv4();
            return Ok(all.into_iter().filter(fits).collect());
        }
        if all.contains(&ip) {
            return Ok(vec![ip]);
        }
        Err(Error::NoSuchAddress { address: ip })
    }

    /// Notes that a port is taken in this process, where links do not tell.
    pub(super) fn claim(&self, service: ServiceId, ip: IpAddr) -> Result<(), Error> {
        let mut books = self.inner.books();
        let of_service = books
            .ports
            .range((service, IpAddr::V4(0.into()))..)
            .take_while(|(it, _)| *it == service);
        let overlaps = |other: IpAddr| other == ip || other.is_unspecified() || ip.is_unspecified();
        if of_service.into_iter().any(|(_, other)| overlaps(*other)) {
            let port = service.port().map_or(0, |(_, port)| port);
            let address = (ip, port).into();
            return Err(Error::AddressInUse { address });
        }
        books.ports.insert((service, ip));
        Ok(())
    }

    pub(super) fn unclaim(&self, service: ServiceId, ip: IpAddr) {
        self.inner.books().ports.remove(&(service, ip));
    }

    /// Tells `place` of the device's addresses when they change.
    pub(super) fn follow_addresses(&self, place: &Arc<Place>) {
        let mut places = self.inner.places();
        places.retain(|place| place.strong_count() > 0);
        places.push(Arc::downgrade(place));
    }

    /// Hears requests for a service at `address`, or at all of the device's; their events go to
    /// `channel`. Services that stand for a port are bound first, by a
    /// [`BoundPort`](super::BoundPort): only then do requests come to this process.
    ///
    /// # Errors
    /// Somebody in this process does already.
    pub fn listen(
        &self,
        service: ServiceId,
        address: Option<IpAddr>,
        backlog: u32,
        channel: &EventChannel,
    ) -> Result<ListenerId, Error> {
        crate::fork::check()?;
        let mut books = self.inner.books();
        let id = books.cm.listen(Listen {
            service,
            address,
            backlog,
        })?;
        let queue = Arc::downgrade(&channel.queue);
        books.listeners.insert(id, queue);
        Ok(id)
    }

    /// Hears no more requests. Those that have come may still be answered.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn unlisten(&self, id: ListenerId) -> Result<(), Error> {
        crate::fork::check()?;
        let mut books = self.inner.books();
        books.listeners.remove(&id);
        Ok(books.cm.unlisten(id)?)
    }

    /// Asks for a connection. See [`Cm::connect`].
    ///
    /// # Errors
    /// Too much private data, or too many connections.
    pub fn connect(&self, request: &Connect<'_>, channel: &EventChannel) -> Result<CommId, Error> {
        self.begin(channel, |cm, now| cm.connect(now, request))
    }

    /// Asks for a datagram service. See [`Cm::query`].
    ///
    /// # Errors
    /// Too much private data, or too many questions.
    pub fn query(&self, query: &Query<'_>, channel: &EventChannel) -> Result<CommId, Error> {
        self.begin(channel, |cm, now| cm.query(now, query))
    }

    fn begin(
        &self,
        channel: &EventChannel,
        call: impl FnOnce(&mut Cm, Instant) -> Result<CommId, hirail_cm::CmError>,
    ) -> Result<CommId, Error> {
        crate::fork::check()?;
        self.inner.act(|books, now| {
            let id = call(&mut books.cm, now)?;
            let user = User {
                channel: Arc::downgrade(&channel.queue),
                tag: 0,
                qp: None,
            };
            books.connections.insert(id, user);
            Ok(id)
        })
    }

    /// Accepts a request; the queue pair is in RTS. See [`Cm::accept`].
    ///
    /// # Errors
    /// There is nothing to accept, or too much private data.
    pub fn accept(&self, id: CommId, accept: &Accept<'_>) -> Result<(), Error> {
        self.call(|cm, now| cm.accept(now, id, accept))
    }

    /// The queue pair of the active side is in RTS. See [`Cm::confirm`].
    ///
    /// # Errors
    /// The peer has not accepted, or has thought better of it.
    pub fn confirm(&self, id: CommId, private_data: &[u8]) -> Result<(), Error> {
        self.call(|cm, _| cm.confirm(id, private_data))
    }

    /// Refuses. See [`Cm::reject`]. The id is over.
    ///
    /// # Errors
    /// There is nothing to refuse, or too much private data.
    pub fn reject(&self, id: CommId, reason: RejReason, private_data: &[u8]) -> Result<(), Error> {
        self.call(|cm, now| cm.reject(now, id, reason, private_data))?;
        self.inner.books().connections.remove(&id);
        Ok(())
    }

    /// Answers a question. See [`Cm::answer`]. The id is over.
    ///
    /// # Errors
    /// There is no such question, or too much private data.
    pub fn answer(&self, id: CommId, answer: &Answer<'_>) -> Result<(), Error> {
        self.call(|cm, now| cm.answer(now, id, answer))?;
        self.inner.books().connections.remove(&id);
        Ok(())
    }

    /// Ends a connection: its queue pair goes to ERR at once, if the manager knows it. See
    /// [`Cm::disconnect`].
    ///
    /// # Errors
    /// There is no connection yet, or too much private data.
    pub fn disconnect(&self, id: CommId, private_data: &[u8]) -> Result<(), Error> {
        crate::fork::check()?;
        self.call(|cm, now| cm.disconnect(now, id, private_data))?;
        fail(self.inner.books().take_qp(id));
        Ok(())
    }

    /// Gives an id up, whatever its state. See [`Cm::destroy`].
    ///
    /// # Errors
    /// There is no such id.
    pub fn destroy(&self, id: CommId) -> Result<(), Error> {
        crate::fork::check()?;
        let (qp, user) = {
            let mut books = self.inner.books();
            (books.take_qp(id), books.connections.remove(&id))
        };
        // What it was told already is of no use any more.
        if let Some(queue) = user.and_then(|user| user.channel.upgrade()) {
            EventChannel { queue }.take(self, id);
        }
        let destroyed = self.call(|cm, now| cm.destroy(now, id));
        fail(qp);
        destroyed
    }

    fn call(
        &self,
        call: impl FnOnce(&mut Cm, Instant) -> Result<(), hirail_cm::CmError>,
    ) -> Result<(), Error> {
        crate::fork::check()?;
        self.inner.act(|books, now| Ok(call(&mut books.cm, now)?))
    }

    /// The user has taken a request from its channel.
    pub(super) fn seen(&self, id: CommId) {
        // It may be over by now.
        let _ = self.inner.books().cm.seen(id);
    }

    /// The state of a connection; nothing where it is over.
    pub fn state(&self, id: CommId) -> Option<State> {
        self.inner.books().cm.state(id)
    }

    /// The attributes that take the queue pair of a connection to a state. See [`Cm::attributes`].
    ///
    /// # Errors
    /// There is no such connection, or the peer is not known yet.
    pub fn attributes(&self, id: CommId, state: QpState) -> Result<(QpAttr, AttrMask), Error> {
        crate::fork::check()?;
        Ok(self.inner.books().cm.attributes(id, state)?)
    }

    /// The attributes that take a queue pair to INIT before there is a connection.
    pub fn initial_attributes() -> (QpAttr, AttrMask) {
        Cm::initial_attributes()
    }

    /// Lets the queue pair of a connection go to ERR when the connection ends, so that what is
    /// posted there is flushed without anybody having to ask.
    pub fn attach(&self, id: CommId, qp: &Qp) {
        if let Some(user) = self.inner.books().connections.get_mut(&id) {
            user.qp = Some(qp.downgrade());
        }
    }

    /// Whatever the user wants to know a connection by; 0 until it is set.
    pub fn set_tag(&self, id: CommId, tag: u64) {
        if let Some(user) = self.inner.books().connections.get_mut(&id) {
            user.tag = tag;
        }
    }

    /// What [`set_tag`](Self::set_tag) has set.
    pub fn tag(&self, id: CommId) -> Option<u64> {
        Some(self.inner.books().connections.get(&id)?.tag)
    }

    /// Events of a connection go to another channel from now on, those that were not taken yet too.
    pub fn move_to(&self, id: CommId, channel: &EventChannel) {
        let mut books = self.inner.books();
        let Some(user) = books.connections.get_mut(&id) else {
            return;
        };
        let old = core::mem::replace(&mut user.channel, Arc::downgrade(&channel.queue));
        let Some(queue) = old.upgrade() else { return };
        for notice in (EventChannel { queue }).take(self, id) {
            channel.queue.push(notice);
        }
    }

    /// How full the tables are.
    pub fn sizes(&self) -> Sizes {
        self.inner.books().cm.sizes()
    }

    /// Connections whose owner is known.
    #[doc(hidden)]
    pub fn users(&self) -> usize {
        self.inner.books().connections.len()
    }
}

impl Leave for ManagerInner {
    /// Peers hear that their connections are over, as they do from the kernel; else they would find out
    /// by asking in vain, many times. What waits is refused.
    fn leave(&self) {
        // Peers hear first that their messages have arrived.
        self.context.rnic().device.acknowledge_all(now());
        self.context.rnic().step();
        // A thread that holds it does not run any more, perhaps.
        let Ok(mut books) = self.books.try_lock() else {
            return;
        };
        let ids: Vec<_> = books.connections.keys().copied().collect();
        for id in ids {
            let _ = books.cm.destroy(now(), id);
        }
        while let Some(transmit) = books.cm.poll_transmit() {
            self.gsi.send(&transmit);
        }
        self.context.rnic().step();
    }
}

impl ManagerInner {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, Vec<Weak<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The unicast addresses of the device.
    fn addresses(&self) -> Vec<IpAddr> {
        let gids = self.context.gids();
        let there = gids.iter().filter(|entry| entry.gid != Gid::default());
        there.map(|entry| entry.gid.to_ip()).collect()
    }

    /// Does something with the books, and then what comes of it.
    fn act<T>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Books, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut books = self.books();
        let result = job(&mut books, now());
        self.settle(&mut books);
        let next = books.cm.poll_timer();
        // The thread sleeps longer than that.
        if next.is_some_and(|at| books.alarm.is_none_or(|alarm| at < alarm)) {
            self.news.ring();
        }
        result
    }

    /// Sends what is to be sent, and tells what is to be told. The queue pair of a connection that has
    /// ended is in ERR before anybody hears of it, and the user's to use again then.
    fn settle(self: &Arc<Self>, books: &mut Books) {
        loop {
            while let Some(transmit) = books.cm.poll_transmit() {
                self.gsi.send(&transmit);
            }
            let Some(event) = books.cm.poll_event() else {
                return;
            };
            let id = event.id();
            if matches!(
                event,
                Event::Disconnected { .. } | Event::Rejected { .. } | Event::Unreachable { .. }
            ) {
                fail(books.take_qp(id));
            }
            let channel = match &event {
                Event::Request(request) if request.listener.is_some() => {
                    books.hear(id, request.listener)
                }
                Event::Question(question) => books.hear(id, Some(question.listener)),
                _ => books
                    .connections
                    .get(&id)
                    .map(|it| Weak::clone(&it.channel)),
            };
            let is_over = matches!(
                event,
                Event::Rejected { .. }
                    | Event::Unreachable { .. }
                    | Event::TimewaitExit { .. }
                    | Event::Reply(_)
            );
            if is_over {
                books.connections.remove(&id);
            }
            let Some(channel) = channel.and_then(|channel| channel.upgrade()) else {
                // Nobody can answer.
                let _ = books.cm.destroy(now(), id);
                books.connections.remove(&id);
                continue;
            };
            let manager = Manager {
                inner: Arc::clone(self),
            };
            channel.push(Notice { manager, event });
        }
    }

    /// What the thread does when it wakes; how long it may sleep then.
    fn work(self: &Arc<Self>) -> Duration {
        let established = self.news.take();
        // What came before a message is seen to before it: a DREQ puts an end to its queue pair.
        self.context.rnic().step();
        let mut books = self.books();
        let now = now();
        for qpn in established {
            books.cm.communication_established(qpn);
        }
        self.gsi.receive(&self.context, |meta, mad| {
            books.cm.handle_mad(now, meta, mad);
        });
        books.cm.handle_timeout(now);
        self.settle(&mut books);
        books.alarm = books.cm.poll_timer();
        let sleep = match books.alarm {
            Some(at) => Duration::from_nanos(at.since(now).as_ns()) + Duration::from_micros(1),
            None => NAP,
        };
        drop(books);
        match self.catch() {
            true => sleep.min(NAP),
            false => sleep.min(CATCH_PERIOD),
        }
    }

    /// Makes messages that nobody waits for come here, at all addresses of the device where no
    /// other process has come first. False where one has: it may end.
    fn catch(&self) -> bool {
        let mut catches = self.catches.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = catches
            .tried_at
            .is_none_or(|at| at.elapsed() > CATCH_PERIOD);
        let has_changed = self.news.gids_changed.swap(false, Ordering::AcqRel);
        if !has_changed && !is_due {
            return catches.are_all;
        }
        catches.tried_at = Some(std::time::Instant::now());
        let now: BTreeSet<IpAddr> = self.addresses().into_iter().collect();
        let rnic = self.context.rnic();
        catches.addresses.retain(|ip| {
            let stays = now.contains(ip);
            if !stays {
                rnic.ignore(ANYTHING, *ip);
            }
            stays
        });
        for ip in &now {
            if !catches.addresses.contains(ip) && rnic.listen(ANYTHING, *ip).is_ok() {
                catches.addresses.insert(*ip);
            }
        }
        let are_all = catches.addresses.len() == now.len();
        catches.are_all = are_all;
        drop(catches);
        if has_changed {
            let places: Vec<_> = self.places().iter().filter_map(Weak::upgrade).collect();
            for place in places {
                place.follow(&now);
            }
        }
        are_all
    }
}

impl Drop for ManagerInner {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        let catches = self.catches.get_mut();
        let catches = catches.unwrap_or_else(PoisonError::into_inner);
        for ip in &catches.addresses {
            self.context.rnic().ignore(ANYTHING, *ip);
        }
        // The thread sees that there is nothing left to do.
        self.news.ring();
    }
}

impl Books {
    /// A request belongs to whom its listener belongs to.
    fn hear(&mut self, id: CommId, listener: Option<ListenerId>) -> Option<Weak<FdQueue<Notice>>> {
        let channel = Weak::clone(self.listeners.get(&listener?)?);
        let user = User {
            channel: Weak::clone(&channel),
            tag: 0,
            qp: None,
        };
        self.connections.insert(id, user);
        Some(channel)
    }

    fn take_qp(&mut self, id: CommId) -> Option<Qp> {
        self.connections.get_mut(&id)?.qp.take()?.upgrade()
    }
}

impl News {
    fn ring(&self) {
        // It fails only when the counter would overflow: then it is readable anyway.
        let _ = (&self.bell).write(&1u64.to_ne_bytes());
    }

    /// What has been told since the last time.
    fn take(&self) -> Vec<Qpn> {
        let _ = (&self.bell).read(&mut [0; 8]);
        let established = self.established.lock();
        core::mem::take(&mut *established.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observe for News {
    fn observe(&self, event: &AsyncEvent) {
        match event {
            AsyncEvent::CommEst(qpn) => {
                let established = self.established.lock();
                let mut established = established.unwrap_or_else(PoisonError::into_inner);
                established.push(*qpn);
            }
            AsyncEvent::GidChange => self.gids_changed.store(true, Ordering::Release),
            _ => return,
        }
        self.ring();
    }
}

/// To ERR: what is posted there is flushed.
fn fail(qp: Option<Qp>) {
    if let Some(qp) = qp {
        // It fails where the user has reset it.
        let _ = qp.fail();
    }
}

/// Whether packets from one address get to another one.
fn reaches(from: IpAddr, to: IpAddr) -> bool {
    let is_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    from.is_ipv4() == to.is_ipv4()
        && is_local(from) == is_local(to)
        && from.is_loopback() == to.is_loopback()
}

/// How the manager of a device is made.
fn config(context: &Context) -> Config {
    let limits = context.limits();
    let ids = match context.fast_paths() {
        // Processes share the port, and each has ids of its own.
        Some(_) => IdRange {
            first: first_communication_id(QpnBlock::of(context.rnic().device.config().first_qpn)),
            bits: ID_BITS,
        },
        None => IdRange { first: 0, bits: 32 },
    };
    Config {
        seed: u128::from(sys::random()) << 64 | u128::from(sys::random()),
        ids,
        ca_guid: guid(context),
        port_mtu: context.port_mtu(),
        max_responder_resources: limits.max_qp_rd_atom,
        max_initiator_depth: limits.max_qp_init_rd_atom,
        ..Config::default()
    }
}

/// The node's GUID: that of its link-local GID, which is made from the MAC. Devices without one have
/// their first address in its place.
fn guid(context: &Context) -> u64 {
    let low = |gid: Gid| {
        let [.., a, b, c, d, e, f, g, h] = gid.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    };
    let gids = context.gids();
    let link_local = gids.iter().find(
        |entry| matches!(entry.gid.to_ip(), IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip)),
    );
    link_local
        .or(gids.first())
        .map_or(0, |entry| low(entry.gid))
}

/// The thread: wakes for messages, timers and the bell, until the manager is gone. It holds the
/// manager itself, a while longer than anybody else, as long as connections are remembered.
fn run(manager: &Weak<ManagerInner>, fds: [OwnedFd; 2]) {
    sys::block_signals();
    let mut alone_since = None;
    while let Some(inner) = manager.upgrade() {
        let sleep = inner.work();
        if Arc::strong_count(&inner) > 1 {
            alone_since = None;
        }
        let has_lingered =
            alone_since.is_some_and(|since: std::time::Instant| since.elapsed() > LINGER);
        let (held, sleep) = if inner.books().cm.sizes().entries > 0 && !has_lingered {
            alone_since.get_or_insert_with(std::time::Instant::now);
            (Some(inner), sleep.min(LINGER))
        } else {
            drop(inner);
            (None, sleep)
        };
        sys::wait_readable(&[fds[0].as_fd(), fds[1].as_fd()], sleep);
        drop(held);
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("device", &self.context().name())
            .field("sizes", &self.sizes())
            .finish()
    }
}
