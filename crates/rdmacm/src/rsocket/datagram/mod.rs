//! Datagrams: a UD queue pair for each address of this host that is used, and a UDP socket of the
//! kernel beside them, whose port is the socket's. By it peers learn each other's queue pairs: the
//! first datagram to somebody unknown takes that way, and the answer says where the next ones go.

mod header;
mod way;

use core::ffi::c_int;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use self::header::{Introduction, Purpose};
use self::way::{Address, SLOT, Way};
use super::config::Config;
use super::memory::Cursor;
use super::option::{Settings, Sizes};
use super::poll::Edges;
use super::service;
use super::stream::LAST_WORDS;
use super::table::Socket;
use super::wait::{Patience, Sleeper};
use crate::address;
use crate::entry::lock;
use crate::errno::Errno;

/// A socket for datagrams.
pub(super) struct Datagram {
    /// The kernel's.
    udp: OwnedFd,
    state: Mutex<State>,
}

/// A datagram that has come.
struct Letter {
    from: SocketAddr,
    bytes: Vec<u8>,
}

struct State {
    sizes: Sizes,
    /// Peers are heard, and the kernel's socket has a port.
    is_at_work: bool,
    can_read: bool,
    can_write: bool,
    ways: Vec<Way>,
    /// Peers that were sent to or heard of: which way leads there, and where they are, as soon as
    /// they have said it.
    peers: BTreeMap<SocketAddr, (usize, Option<Address>)>,
    connected: Option<SocketAddr>,
    inbox: VecDeque<Letter>,
    edges: Edges,
}

/// Peers that are remembered. More than those are introduced again.
const MOST_PEERS: usize = 4096;

impl Datagram {
    pub(super) fn new(family: c_int, settings: Settings) -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no preconditions.
        let fd = unsafe { libc::socket(family, kind, 0) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(Self {
            // SAFETY: a descriptor that was just made, and nobody else knows.
            udp: unsafe { OwnedFd::from_raw_fd(fd) },
            state: Mutex::new(State {
                sizes: settings.sizes,
                is_at_work: false,
                can_read: true,
                can_write: true,
                ways: Vec::new(),
                peers: BTreeMap::new(),
                connected: None,
                inbox: VecDeque::new(),
                edges: Edges::default(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends by the kernel.
    fn post(&self, said: Introduction, body: &[u8], to: SocketAddr) -> Result<(), Errno> {
        let mut bytes = said.encode();
        bytes.extend(body);
        let to = address::write(to);
        let length = match c_int::from(to.ss_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        // SAFETY: so many bytes, and an address of that length.
        let sent = unsafe {
            libc::sendto(
                fd(self),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                (&raw const to).cast(),
                length as libc::socklen_t,
            )
        };
        if sent < 0 {
            return Err(Errno::last());
        }
        Ok(())
    }

    /// Looks at what was completed, and wakes others that wait for it.
    fn look(&self, socket: &Socket, state: &mut State) -> Result<(), Errno> {
        let State {
            ways,
            inbox,
            sizes,
            connected,
            ..
        } = state;
        let mut is_news = false;
        for way in ways {
            is_news |= way.process(|bytes| {
                if let Some((from, body)) = header::decode(bytes) {
                    deliver(inbox, sizes, *connected, from, body);
                }
            })?;
        }
        if is_news {
            state.edges.came += 1;
            socket.waiters.wake();
        }
        Ok(())
    }
}

/// Keeps a datagram for the program, if there is room and it wants it.
fn deliver(
    inbox: &mut VecDeque<Letter>,
    sizes: &Sizes,
    connected: Option<SocketAddr>,
    from: SocketAddr,
    body: &[u8],
) {
    let is_wanted = connected.is_none_or(|peer| peer == from);
    if is_wanted && inbox.len() < usize::from(sizes.recv_queue) {
        inbox.push_back(Letter {
            from,
            bytes: body.to_vec(),
        });
    }
}

/// The kernel's socket.
pub(super) fn fd(one: &Datagram) -> c_int {
    one.udp.as_raw_fd()
}

/// An address of the kernel's socket.
fn name(
    one: &Datagram,
    call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int,
) -> Option<SocketAddr> {
    // SAFETY: a place of that size, which is filled where the answer is 0.
    unsafe {
        let mut storage: libc::sockaddr_storage = core::mem::zeroed();
        let mut length = size_of_val(&storage) as libc::socklen_t;
        let done = call(fd(one), (&raw mut storage).cast(), &raw mut length);
        (done == 0)
            .then(|| address::read((&raw const storage).cast()).ok())
            .flatten()
    }
}

/// The address of the socket.
pub(super) fn local(one: &Datagram) -> Option<SocketAddr> {
    name(one, libc::getsockname)
}

/// The address that it is connected to.
pub(super) fn peer(one: &Datagram) -> Option<SocketAddr> {
    name(one, libc::getpeername)
}

/// Calls the kernel with an address.
fn with_address(
    one: &Datagram,
    to: SocketAddr,
    call: unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int,
) -> Result<(), Errno> {
    let storage = address::write(to);
    let length = match to {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: an address of that length.
    let done = unsafe {
        call(
            fd(one),
            (&raw const storage).cast(),
            length as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}

/// Peers are heard from now on.
fn work(socket: &Arc<Socket>, one: &Datagram, state: &mut State) -> Result<SocketAddr, Errno> {
    let any: IpAddr = match socket.family {
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let mut found = local(one).unwrap_or(SocketAddr::new(any, 0));
    if found.port() == 0 {
        with_address(one, SocketAddr::new(found.ip(), 0), libc::bind)?;
        found = local(one).ok_or(Errno::INVALID)?;
    }
    if !state.is_at_work {
        service::watch(fd(one), socket)?;
        state.is_at_work = true;
    }
    Ok(found)
}

/// The way that leads to a peer, made where there is none.
fn way_to(
    socket: &Arc<Socket>,
    one: &Datagram,
    state: &mut State,
    remote: SocketAddr,
) -> Result<usize, Errno> {
    if let Some((way, _)) = state.peers.get(&remote) {
        return Ok(*way);
    }
    let mut own = work(socket, one, state)?;
    if own.ip().is_unspecified() {
        own.set_ip(address::source_for(remote)?);
    }
    let known = state.ways.iter().position(|way| way.local == own);
    let way = match known {
        Some(way) => way,
        None => {
            let way = Way::new(own, &state.sizes)?;
            socket.watch(way.fd())?;
            // Who looks at the kernel's set already is shown what comes here, too.
            way.arm()?;
            state.ways.push(way);
            state.ways.len() - 1
        }
    };
    if state.peers.len() >= MOST_PEERS {
        state.peers.clear();
    }
    state.peers.insert(remote, (way, None));
    Ok(way)
}

/// `rbind`.
pub(super) fn bind(socket: &Arc<Socket>, one: &Datagram, local: SocketAddr) -> Result<(), Errno> {
    with_address(one, local, libc::bind)?;
    work(socket, one, &mut one.lock()).map(drop)
}

/// `rconnect`.
pub(super) fn connect(
    socket: &Arc<Socket>,
    one: &Datagram,
    remote: SocketAddr,
) -> Result<(), Errno> {
    let mut state = one.lock();
    with_address(one, remote, libc::connect)?;
    way_to(socket, one, &mut state, remote)?;
    state.connected = Some(remote);
    Ok(())
}

/// Something has come by the kernel.
pub(super) fn heard(socket: &Arc<Socket>, one: &Datagram) {
    let mut bytes = [0u8; SLOT + 64];
    loop {
        // SAFETY: places of those sizes, which are filled as the answer says.
        let (length, from) = unsafe {
            let mut storage: libc::sockaddr_storage = core::mem::zeroed();
            let mut size = size_of_val(&storage) as libc::socklen_t;
            let length = libc::recvfrom(
                fd(one),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                (&raw mut storage).cast(),
                &raw mut size,
            );
            (length, address::read((&raw const storage).cast()))
        };
        let Ok(length) = usize::try_from(length) else {
            return;
        };
        if let (Some((said, body)), Ok(from)) = (Introduction::decode(&bytes[..length]), from) {
            // A peer that cannot be answered will try again, or not.
            let _ = introduced(socket, one, said, body, from);
        }
    }
}

/// A peer has told where it is.
fn introduced(
    socket: &Arc<Socket>,
    one: &Datagram,
    said: Introduction,
    body: &[u8],
    from: SocketAddr,
) -> Result<(), Errno> {
    let mut state = one.lock();
    let way = way_to(socket, one, &mut state, from)?;
    if said.purpose == Purpose::Data {
        let answer = own_introduction(&state.ways[way], Purpose::Answer);
        one.post(answer, &[], from)?;
    }
    let known = state.peers.get(&from).and_then(|(_, known)| known.as_ref());
    if known.is_none_or(|known| known.qpn != said.qpn) {
        let address = state.ways[way].address(from, said.qpn)?;
        state.peers.insert(from, (way, Some(address)));
    }
    if said.purpose == Purpose::Data && state.can_read {
        let State {
            inbox,
            sizes,
            connected,
            ..
        } = &mut *state;
        deliver(inbox, sizes, *connected, from, body);
        state.edges.came += 1;
        socket.waiters.wake();
    }
    Ok(())
}

fn own_introduction(way: &Way, purpose: Purpose) -> Introduction {
    Introduction {
        purpose,
        qpn: way.qpn(),
        ip: way.local.ip(),
    }
}

/// Waits until `ready` is.
fn wait<'a>(
    socket: &Socket,
    one: &'a Datagram,
    mut state: MutexGuard<'a, State>,
    patience: Patience,
    ready: impl Fn(&State) -> bool,
) -> Result<MutexGuard<'a, State>, Errno> {
    const AGAIN: Errno = Errno(libc::EAGAIN);
    loop {
        one.look(socket, &mut state)?;
        if ready(&state) {
            return Ok(state);
        }
        if matches!(patience, Patience::None) {
            state.edges.refused += 1;
            return Err(AGAIN);
        }
        let sleeper = Sleeper::new(vec![&socket.waiters])?;
        for way in &state.ways {
            way.arm()?;
        }
        one.look(socket, &mut state)?;
        if ready(&state) {
            return Ok(state);
        }
        let time = patience.left(Config::get().turn).ok_or(AGAIN)?;
        drop(state);
        let mut polls = vec![libc::pollfd {
            fd: socket.fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        sleeper.sleep(&mut polls, time)?;
        state = one.lock();
    }
}

/// How long the kernel's socket would wait.
fn patience(socket: &Socket, one: &Datagram, flags: c_int, name: c_int) -> Patience {
    if socket.is_hasty(flags) {
        return Patience::None;
    }
    // SAFETY: a place of that size.
    let time = unsafe {
        let mut time: libc::timeval = core::mem::zeroed();
        let mut length = size_of_val(&time) as libc::socklen_t;
        let to = (&raw mut time).cast();
        libc::getsockopt(fd(one), libc::SOL_SOCKET, name, to, &raw mut length);
        time
    };
    let time = Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
        + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0));
    Patience::within((!time.is_zero()).then_some(time))
}

/// `rsendto`.
pub(super) fn send(
    socket: &Arc<Socket>,
    one: &Datagram,
    from: &mut Cursor<'_>,
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<isize, Errno> {
    let mut state = one.lock();
    if !state.can_write {
        return Err(Errno(libc::EPIPE));
    }
    let to = to.or(state.connected).ok_or(Errno(libc::EDESTADDRREQ))?;
    let way = way_to(socket, one, &mut state, to)?;
    let length = from.left();
    if length > state.ways[way].most() {
        return Err(Errno(libc::EMSGSIZE));
    }
    let is_known = |state: &State| matches!(state.peers.get(&to), Some((_, Some(_))));
    if !is_known(&state) {
        let said = own_introduction(&state.ways[way], Purpose::Data);
        let mut body = vec![0; length];
        from.read(&mut body);
        one.post(said, &body, to)?;
        return Ok(length.cast_signed());
    }
    let patience = patience(socket, one, flags, libc::SO_SNDTIMEO);
    state = wait(socket, one, state, patience, |state| {
        state.ways[way].can_send()
    })?;
    let State { ways, peers, .. } = &mut *state;
    if let Some((_, Some(address))) = peers.get(&to) {
        ways[way].send(address, from)?;
    }
    Ok(length.cast_signed())
}

/// `rrecvfrom`.
pub(super) fn receive(
    socket: &Socket,
    one: &Datagram,
    to: &mut Cursor<'_>,
    flags: c_int,
) -> Result<(isize, SocketAddr), Errno> {
    let patience = patience(socket, one, flags, libc::SO_RCVTIMEO);
    let state = one.lock();
    let mut state = wait(socket, one, state, patience, |state| {
        !state.can_read || !state.inbox.is_empty()
    })?;
    let Some(letter) = state.inbox.front() else {
        return Err(Errno::INVALID);
    };
    let done = (to.write(&letter.bytes).cast_signed(), letter.from);
    if flags & libc::MSG_PEEK == 0 {
        state.inbox.pop_front();
    }
    Ok(done)
}

/// What it is ready for.
pub(super) fn ready(socket: &Socket, one: &Datagram) -> i16 {
    let mut state = one.lock();
    let mut found = 0;
    if one.look(socket, &mut state).is_err() {
        return libc::POLLERR;
    }
    if !state.inbox.is_empty() || !state.can_read {
        found |= libc::POLLIN | libc::POLLRDNORM;
    }
    if state.ways.iter().all(Way::can_send) {
        found |= libc::POLLOUT | libc::POLLWRNORM;
    }
    found
}

/// The next news is shown to the kernel.
pub(super) fn arm(one: &Datagram) -> Result<(), Errno> {
    one.lock().ways.iter().try_for_each(Way::arm)
}

/// How often something came, and how often a call had to be refused.
pub(super) fn edges(one: &Datagram) -> Edges {
    one.lock().edges
}

pub(super) fn sizes(one: &Datagram) -> Sizes {
    one.lock().sizes
}

/// Changes sizes, which take effect for ways that are made later.
pub(super) fn with_sizes(
    one: &Datagram,
    job: impl FnOnce(&mut Sizes) -> Result<(), Errno>,
) -> Result<(), Errno> {
    job(&mut one.lock().sizes)
}

/// `rshutdown`.
pub(super) fn shut(socket: &Socket, one: &Datagram, how: c_int) -> Result<(), Errno> {
    let mut state = one.lock();
    match how {
        libc::SHUT_RD => state.can_read = false,
        libc::SHUT_WR => state.can_write = false,
        libc::SHUT_RDWR => (state.can_read, state.can_write) = (false, false),
        _ => return Err(Errno::INVALID),
    }
    socket.waiters.wake();
    Ok(())
}

/// `rclose`.
pub(super) fn close(socket: &Socket, one: &Datagram) {
    service::unwatch(fd(one));
    let _ = shut(socket, one, libc::SHUT_RDWR);
    let state = one.lock();
    let patience = Patience::within(Some(LAST_WORDS));
    let idle = |state: &State| state.ways.iter().all(Way::is_idle);
    drop(wait(socket, one, state, patience, idle));
    let mut state = one.lock();
    let peers = std::mem::take(&mut state.peers);
    let ways = std::mem::take(&mut state.ways);
    drop(state);
    drop(peers);
    drop(ways);
}
