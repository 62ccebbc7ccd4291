//! Receive: packets come in batches, go to whoever owns their queue pair, and reach the driver one by
//! one without a copy or an allocation.
//!
//! The kernel may join packets of one sender into one message (`UDP_GRO`), whatever queue pairs they
//! are for. Those of other processes are passed on (`forward`).

use core::mem::zeroed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use hirail_wire::Qpn;

use super::forward::{self, Forwarder, Undelivered};
use super::gsi::{self, ANYTHING, Addressee};
use super::held::{Held, To};
use super::registry::{Membership, Probe, names};
use super::socket::Family;
use super::steering::{self, QpnBlock};
use super::{FastPaths, PortError, PortOptions, socket, sys};
use crate::fork::Descriptor;

/// One RoCE packet as a UDP socket sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// From BTH to ICRC inclusive.
    pub bytes: &'a [u8],
    /// Sender's address and source port.
    pub source: SocketAddr,
    /// The address it was sent to, one of ours or a multicast group.
    pub destination: IpAddr,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit that was left.
    pub hop_limit: u8,
    /// Index of the interface it came in by.
    pub interface: u32,
    /// Place in the batch that it arrived in, from 0: usually its IPv4 Identification.
    pub place: u16,
}

impl Datagram<'_> {
    /// The ECN field, 0 to 3; 3 is congestion experienced.
    pub fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// The DSCP, 0 to 63.
    pub fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }
}

/// Which sockets to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// Those where packets have come lately; now and then the rest. For a thread that polls.
    Hot,
    /// All. For a thread that was woken by the receiver's descriptor.
    All,
}

/// What a receiver has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiveStats {
    /// Packets handed to the driver.
    pub packets: u64,
    /// Their bytes, BTH to ICRC.
    pub bytes: u64,
    /// System calls that returned something.
    pub calls: u64,
    /// Messages that they returned: single packets or batches.
    pub messages: u64,
    /// Packets of other processes that were passed on to them.
    pub passed_on: u64,
    /// Packets of other processes whose queue was full: lost.
    pub pass_on_dropped: u64,
    /// Packets that other processes passed on to us.
    pub taken_over: u64,
    /// Messages from processes that may not pass on packets.
    pub distrusted: u64,
    /// Packets too short to have a destination.
    pub runts: u64,
}

/// The receive side of the port: this process's sockets and its place among the other processes.
///
/// As a descriptor ([`AsFd`]) it is readable while there is something to do: wait on it, then call
/// [`recv_batch`](Self::recv_batch) with [`Sweep::All`].
pub struct Receiver {
    membership: Membership,
    router: Router,
    /// The sockets that are read. Their descriptors belong to `membership`, which keeps them.
    sources: Vec<Source>,
    slots: Slots,
    /// Everything to wait on.
    epoll: Descriptor,
    /// Wakes us to look at the group, while there is reason to.
    timer: Descriptor,
    /// For messages from other processes.
    passed: Box<[u8]>,
    /// Calls of `recv_batch`.
    calls: usize,
    /// Those that looked at everything.
    sweeps: usize,
}

/// A UDP socket that is read.
struct Source {
    family: Family,
    fd: RawFd,
    inode: u64,
    is_common: bool,
    /// Polls without a packet since the last one.
    quiet: u32,
    /// Messages to ask for at once.
    depth: usize,
}

impl Source {
    /// Whether a thread that polls reads it each time.
    fn is_hot(&self) -> bool {
        !self.is_common && self.quiet < QUIET
    }
}

/// After so many empty polls a socket is left to the sweeps.
const QUIET: u32 = 2048;
/// A polling thread looks at all sockets once in so many calls.
const SWEEP_EVERY: usize = 16;
/// Most messages per system call.
const MAX_DEPTH: usize = 16;

// What an epoll token names, in its upper half; the lower half is an index.
const SOURCE: u64 = 0;
const CONTROL: u64 = 1 << 32;
const PASSED: u64 = 2 << 32;
const SERVICE: u64 = 3 << 32;
const TIMER: u64 = 4 << 32;
const HELD: u64 = 5 << 32;

impl Receiver {
    /// Joins the port's group.
    pub(super) fn open(options: &PortOptions) -> Result<Self, PortError> {
        let membership = Membership::join(options)?;
        let open = || {
            let (epoll, timer) = (
                Descriptor::new(sys::epoll()?),
                Descriptor::new(sys::timer()?),
            );
            let held = Held::new()?;
            sys::epoll_add(epoll.as_fd(), timer.as_fd(), TIMER)?;
            sys::epoll_add(epoll.as_fd(), held.timer(), HELD)?;
            Ok((epoll, timer, held))
        };
        let (epoll, timer, held) = open().map_err(PortError::Socket)?;
        let mut this = Self {
            router: Router {
                port: options.udp_port,
                owned: Vec::new(),
                services: Vec::new(),
                sender: Forwarder::new(None).map_err(PortError::Socket)?,
                held,
                stats: ReceiveStats::default(),
            },
            membership,
            sources: Vec::new(),
            slots: Slots::new(),
            epoll,
            timer,
            passed: vec![0; forward::MAX + 4096].into(),
            calls: 0,
            sweeps: 0,
        };
        this.wait_on_claims(0).map_err(PortError::Socket)?;
        this.wait_on_sources();
        Ok(this)
    }

    /// Receives packets and hands those of this process to `f`, one by one. Stops soon after it has
    /// looked at `budget` packets, whosever they are, or when nothing is left. What is left keeps the
    /// descriptor readable. Returns how many were handed out.
    ///
    /// Never waits. Also does the housekeeping of the group when that is due.
    pub fn recv_batch(
        &mut self,
        budget: usize,
        sweep: Sweep,
        mut f: impl FnMut(Datagram<'_>),
    ) -> usize {
        self.calls = self.calls.wrapping_add(1);
        let before = self.router.stats.packets;
        let mut seen = 0;
        for turn in 0..self.sources.len() {
            let index = (self.calls + turn) % self.sources.len();
            if self.sources[index].is_hot() && seen < budget {
                seen += self.read(index, budget - seen, &mut f);
            }
        }
        if sweep == Sweep::All || self.calls.is_multiple_of(SWEEP_EVERY) {
            self.sweep(seen, budget, &mut f);
        }
        (self.router.stats.packets - before) as usize
    }

    /// The queue pair numbers of this process.
    pub fn blocks(&self) -> Vec<QpnBlock> {
        self.membership.blocks().collect()
    }

    /// Takes one more block of queue pair numbers.
    pub fn claim_block(&mut self) -> Result<QpnBlock, PortError> {
        let known = self.membership.controls().count();
        let block = self.membership.claim_block()?;
        self.wait_on_claims(known).map_err(PortError::Socket)?;
        self.wait_on_sources();
        Ok(block)
    }

    /// Makes `service` at `address` this process's, whether it listens or not, until the descriptor is
    /// closed. Fails with `AddrInUse` where it is another one's.
    pub fn claim(&self, service: u64, address: IpAddr) -> io::Result<OwnedFd> {
        let name = names::bound(self.router.port, service, address);
        let socket = sys::socket(libc::AF_UNIX)?;
        sys::bind(socket.as_fd(), &sys::Address::named(&name))?;
        Ok(socket)
    }

    /// Makes connection requests for `service` at `address` come to this process, from every process
    /// that gets them. Fails with `AddrInUse` where another one listens.
    pub fn listen(&mut self, service: u64, address: IpAddr) -> io::Result<()> {
        let name = names::service(self.router.port, service, address);
        let forwarder = Forwarder::new(Some(&name))?;
        let index = self.router.services.len();
        let slot = self
            .router
            .services
            .iter()
            .position(Option::is_none)
            .unwrap_or(index);
        let token = SERVICE | slot as u64;
        sys::epoll_add(self.epoll.as_fd(), forwarder.descriptor().as_fd(), token)?;
        if slot == index {
            self.router.services.push(None);
        }
        self.router.services[slot] = Some(((service, address), forwarder));
        Ok(())
    }

    /// Undoes [`listen`](Self::listen).
    pub fn ignore(&mut self, service: u64, address: IpAddr) {
        for slot in &mut self.router.services {
            if slot
                .as_ref()
                .is_some_and(|(listened, _)| *listened == (service, address))
            {
                *slot = None;
            }
        }
    }

    /// Makes packets to a multicast group come to this process, by an interface (0: the kernel's
    /// choice). Every process that has joined gets its own copy.
    pub fn join_multicast(&mut self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.multicast(
            group,
            interface,
            libc::IP_ADD_MEMBERSHIP,
            libc::IPV6_ADD_MEMBERSHIP,
        )
    }

    /// Undoes [`join_multicast`](Self::join_multicast).
    pub fn leave_multicast(&mut self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.multicast(
            group,
            interface,
            libc::IP_DROP_MEMBERSHIP,
            libc::IPV6_DROP_MEMBERSHIP,
        )
    }

    /// What has been done so far.
    pub fn stats(&self) -> ReceiveStats {
        self.router.stats
    }

    /// Packets that the kernel dropped because this process was too slow. A system call.
    pub fn queue_drops(&self) -> u64 {
        Family::ALL
            .into_iter()
            .flat_map(|family| self.membership.own_sockets(family))
            .map(|socket| u64::from(sys::receive_drops(socket.as_fd())))
            .sum()
    }

    /// Which fast paths are in use.
    pub fn fast_paths(&self) -> FastPaths {
        let socket = self
            .membership
            .readable()
            .next()
            .map(|readable| readable.socket.as_fd());
        FastPaths {
            steering: self.membership.steering(),
            coalescing: socket.is_some_and(socket::coalesces),
            segmentation: socket::segments(),
            ipv6: self.membership.has_ipv6(),
            receive_buffer: socket.map_or(0, socket::receive_buffer),
        }
    }

    /// Looks at everything that is ready, after `seen` packets of the budget. A flood on the sockets
    /// that were read before leaves the others half a budget, and among these the first is another
    /// one each time.
    fn sweep(&mut self, mut seen: usize, budget: usize, f: &mut impl FnMut(Datagram<'_>)) {
        let limit = budget.max(seen + budget.div_ceil(2));
        let mut tokens = [0; 16];
        let ready = sys::epoll_ready(self.epoll.as_fd(), &mut tokens);
        self.sweeps = self.sweeps.wrapping_add(1);
        tokens[..ready].rotate_left(self.sweeps % ready.max(1));
        let mut regroup = false;
        for token in &tokens[..ready] {
            let (kind, index) = (token & !0xffff_ffff, (token & 0xffff_ffff) as usize);
            match kind {
                SOURCE if index < self.sources.len() => {
                    let was_read = self.sources[index].is_hot();
                    let limit = if was_read { budget } else { limit };
                    if seen < limit {
                        seen += self.read(index, limit - seen, f);
                    }
                }
                PASSED | SERVICE if seen < limit => {
                    seen += self.read_passed(kind, index, limit - seen, f);
                }
                CONTROL => regroup |= self.membership.handle_control(),
                TIMER => {
                    sys::clear_timer(self.timer.as_fd());
                    regroup |= self.membership.watch();
                    self.watch_again();
                }
                HELD => self.router.deliver_held(f),
                _ => {}
            }
            if kind == CONTROL {
                self.watch_again();
            }
        }
        if regroup {
            self.wait_on_sources();
        }
    }

    /// Reads one socket; how many packets it looked at.
    fn read(&mut self, index: usize, budget: usize, f: &mut impl FnMut(Datagram<'_>)) -> usize {
        let Self {
            membership,
            router,
            sources,
            slots,
            ..
        } = self;
        let source = &mut sources[index];
        let mut seen = 0;
        loop {
            let depth = source.depth;
            let received = slots.receive(source.fd, depth);
            if received == 0 {
                source.quiet = source.quiet.saturating_add(1);
                source.depth = 1;
                return seen;
            }
            source.quiet = 0;
            router.stats.calls += 1;
            router.stats.messages += received as u64;
            for message in 0..received {
                let Some((packets, segment)) = slots.message(message, source.family) else {
                    seen += 1;
                    continue;
                };
                seen += packets.bytes.len().div_ceil(segment);
                router.deliver(membership, source.inode, &packets, segment, f);
            }
            // A full harvest promises more; a single message may well have been the only one.
            source.depth = if received == depth {
                (2 * depth).min(MAX_DEPTH)
            } else {
                received
            };
            if received < depth || depth == 1 || seen >= budget {
                return seen;
            }
        }
    }

    /// Reads what other processes pass on; how many packets it looked at. A message counts also where
    /// it is not believed: anybody can send one.
    fn read_passed(
        &mut self,
        kind: u64,
        index: usize,
        budget: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) -> usize {
        let Self {
            membership,
            router,
            passed,
            ..
        } = self;
        let Router {
            services,
            stats,
            owned,
            ..
        } = router;
        let forwarder = if kind == SERVICE {
            services
                .get(index)
                .and_then(Option::as_ref)
                .map(|(_, forwarder)| forwarder)
        } else {
            membership.forwarders().nth(index)
        };
        let Some(forwarder) = forwarder else {
            return 0;
        };
        let mut seen = 0;
        while seen < budget {
            let mut packets = 0;
            let deliver = |datagram: Datagram<'_>| {
                packets += 1;
                // Never passed on twice: packets must not go round in circles.
                let block = steering::dest_qp(datagram.bytes).map(QpnBlock::of);
                let is_gsi = block == Some(QpnBlock::COMMON);
                if is_gsi || block.is_some_and(|block| owned.contains(&block)) {
                    stats.taken_over += 1;
                    stats.packets += 1;
                    stats.bytes += datagram.bytes.len() as u64;
                    f(datagram);
                }
            };
            let trusts = |uid| membership.trusts(uid);
            let Some(believed) = forwarder.receive(passed, trusts, deliver) else {
                break;
            };
            stats.distrusted += u64::from(!believed);
            seen += packets.max(1);
        }
        seen
    }

    /// Waits on the names of claims from the `known`th on.
    fn wait_on_claims(&mut self, known: usize) -> io::Result<()> {
        let epoll = self.epoll.as_fd();
        for (index, control) in self.membership.controls().enumerate().skip(known) {
            sys::epoll_add(epoll, control.as_fd(), CONTROL | index as u64)?;
        }
        for (index, forwarder) in self.membership.forwarders().enumerate().skip(known) {
            sys::epoll_add(epoll, forwarder.descriptor().as_fd(), PASSED | index as u64)?;
        }
        self.router.owned = self.membership.blocks().collect();
        Ok(())
    }

    /// Waits on sockets that have been added to the group.
    fn wait_on_sources(&mut self) {
        for readable in self.membership.readable() {
            let (fd, inode) = (readable.socket.as_fd(), readable.socket.inode());
            if self.sources.iter().any(|source| source.inode == inode) {
                continue;
            }
            let token = SOURCE | self.sources.len() as u64;
            if sys::epoll_add(self.epoll.as_fd(), fd, token).is_ok() {
                self.sources.push(Source {
                    family: readable.family,
                    fd: fd.as_raw_fd(),
                    inode,
                    is_common: readable.is_common,
                    quiet: QUIET,
                    depth: 1,
                });
            }
        }
        self.watch_again();
    }

    /// Sets the timer for the next look at the group.
    fn watch_again(&self) {
        let period = self.membership.watch_period().unwrap_or(Duration::ZERO);
        sys::set_timer(self.timer.as_fd(), period);
    }

    fn multicast(&self, group: IpAddr, interface: u32, v4: i32, v6: i32) -> io::Result<()> {
        let family = Family::of(group);
        let mut sockets = self.membership.own_sockets(family).peekable();
        if sockets.peek().is_none() {
            let reason = "multicast needs a socket of this process's own, which it does not have";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        for socket in sockets.take(1) {
            match group {
                IpAddr::V4(group) => {
                    let request = libc::ip_mreqn {
                        imr_multiaddr: libc::in_addr {
                            s_addr: u32::from_ne_bytes(group.octets()),
                        },
                        imr_address: libc::in_addr { s_addr: 0 },
                        imr_ifindex: interface.cast_signed(),
                    };
                    sys::set(socket.as_fd(), libc::IPPROTO_IP, v4, request)?;
                }
                IpAddr::V6(group) => {
                    let request = libc::ipv6_mreq {
                        ipv6mr_multiaddr: libc::in6_addr {
                            s6_addr: group.octets(),
                        },
                        ipv6mr_interface: interface,
                    };
                    sys::set(socket.as_fd(), libc::IPPROTO_IPV6, v6, request)?;
                }
            }
        }
        Ok(())
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Decides where packets belong.
struct Router {
    port: u16,
    /// Blocks of this process.
    owned: Vec<QpnBlock>,
    /// Services that this process listens for; slots keep their index.
    services: Vec<Option<((u64, IpAddr), Forwarder)>>,
    sender: Forwarder,
    held: Held,
    stats: ReceiveStats,
}

/// Whose a packet is.
enum Owner {
    Us,
    Block(QpnBlock),
    Service(u64),
    /// It tells the socket its position.
    Probe(Probe, Qpn),
    /// Too short.
    Nobody,
}

impl Router {
    /// Hands out the packets of one message that are ours and passes the rest on.
    fn deliver(
        &mut self,
        membership: &mut Membership,
        inode: u64,
        packets: &Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        // Neighbours that belong to the same other process go in one message.
        let mut strangers: Option<(QpnBlock, Range<usize>)> = None;
        let mut start = 0;
        for (place, bytes) in (0..).zip(packets.bytes.chunks(segment)) {
            let range = start..start + bytes.len();
            start = range.end;
            let datagram = Datagram {
                bytes,
                place,
                ..*packets
            };
            match self.owner(&datagram) {
                Owner::Us => self.hand_out(datagram, f),
                Owner::Block(block) => match &mut strangers {
                    Some((same, together)) if *same == block && together.end == range.start => {
                        together.end = range.end;
                    }
                    _ => {
                        if let Some((block, range)) = strangers.replace((block, range)) {
                            let bytes = &packets.bytes[range];
                            self.pass_on(block, Datagram { bytes, ..*packets }, segment, f);
                        }
                    }
                },
                Owner::Service(service) => {
                    self.pass_to_listener(service, datagram, segment, f);
                }
                Owner::Probe(probe, dest) => membership.handle_probe(&probe, dest, inode),
                Owner::Nobody => self.stats.runts += 1,
            }
        }
        if let Some((block, range)) = strangers {
            let bytes = &packets.bytes[range];
            self.pass_on(block, Datagram { bytes, ..*packets }, segment, f);
        }
    }

    fn owner(&self, datagram: &Datagram<'_>) -> Owner {
        let Some(dest) = steering::dest_qp(datagram.bytes) else {
            return Owner::Nobody;
        };
        let block = QpnBlock::of(dest);
        if self.owned.contains(&block) && dest != block.probe() {
            return Owner::Us;
        }
        if dest == block.probe() || steering::probed_position(dest).is_some() {
            return match Probe::parse(datagram.bytes) {
                Some(probe) => Owner::Probe(probe, dest),
                None => Owner::Us,
            };
        }
        if dest == Qpn::GSI {
            return match gsi::addressee(datagram.bytes) {
                Some(Addressee::Block(block)) if !self.owned.contains(&block) => {
                    Owner::Block(block)
                }
                Some(Addressee::Service(service))
                    if !self.listens(service, datagram.destination) =>
                {
                    Owner::Service(service)
                }
                _ => Owner::Us,
            };
        }
        let has_owner = QpnBlock::SEATS.contains(&block.number())
            || QpnBlock::FORWARDED.contains(&block.number());
        // Multicast reaches every process by itself; what nobody can own is ours to refuse.
        if has_owner {
            Owner::Block(block)
        } else {
            Owner::Us
        }
    }

    fn listens(&self, service: u64, address: IpAddr) -> bool {
        self.services
            .iter()
            .flatten()
            .any(|(listened, _)| *listened == (service, address))
    }

    /// Passes a request on to who listens for it. Where nobody does, it waits a moment for somebody.
    fn pass_to_listener(
        &mut self,
        service: u64,
        datagram: Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        let name = names::service(self.port, service, datagram.destination);
        let to = To::Listener { service, name };
        self.pass_to(to, datagram, segment, f);
    }

    fn pass_on(
        &mut self,
        block: QpnBlock,
        packets: Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        let to = To::Owner(names::data(self.port, block));
        self.pass_to(to, packets, segment, f);
    }

    /// Passes packets on, those of QP 1 later if that cannot be done now: the connection manager that
    /// sent them would wait for seconds before it sent them again.
    fn pass_to(
        &mut self,
        to: To,
        packets: Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        let is_gsi = steering::dest_qp(packets.bytes) == Some(Qpn::GSI);
        // One must not overtake those that wait.
        let outcome = if is_gsi && self.held.has(&to) {
            Err(Undelivered::Full)
        } else {
            self.sender.pass(to.name(), &packets, segment)
        };
        let waits = match (&outcome, &to) {
            (Err(Undelivered::Full), _) => is_gsi,
            (Err(Undelivered::NoOwner), To::Listener { .. }) => true,
            _ => false,
        };
        if !(waits && self.held.push(to, &packets, segment)) {
            self.passed(outcome, to, packets, segment, f);
        }
    }

    /// What comes of packets that were passed on, or could not be.
    fn passed(
        &mut self,
        outcome: Result<(), Undelivered>,
        to: To,
        packets: Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        let number = packets.bytes.len().div_ceil(segment) as u64;
        match (outcome, to) {
            (Ok(()), _) => self.stats.passed_on += number,
            (Err(Undelivered::Full), _) => self.stats.pass_on_dropped += number,
            // Whoever manages connections at the address refuses, and says of those of a process that
            // has ended that they are over.
            (Err(Undelivered::NoOwner), To::Owner(_) | To::Listener { .. })
                if steering::dest_qp(packets.bytes) == Some(Qpn::GSI)
                    && !self.listens(ANYTHING, packets.destination) =>
            {
                let name = names::service(self.port, ANYTHING, packets.destination);
                self.pass_to(To::Manager(name), packets, segment, f);
            }
            // Those without an owner are handed out here: the engine refuses them and counts why.
            (Err(Undelivered::NoOwner), _) => self.hand_out_all(packets, segment, f),
        }
    }

    /// Tries again to deliver what waits.
    fn deliver_held(&mut self, f: &mut impl FnMut(Datagram<'_>)) {
        for message in self.held.take() {
            let (packets, segment) = message.packets();
            if let To::Listener { service, .. } = message.to
                && self.listens(service, packets.destination)
            {
                self.hand_out_all(packets, segment, f);
                continue;
            }
            let outcome = match self.held.has(&message.to) {
                true => Err(Undelivered::Full),
                false => self.sender.pass(message.to.name(), &packets, segment),
            };
            match (outcome, message.to) {
                (Err(Undelivered::Full), _) | (Err(Undelivered::NoOwner), To::Listener { .. })
                    if !message.is_due() =>
                {
                    self.held.put_back(message);
                }
                (outcome, to) => self.passed(outcome, to, packets, segment, f),
            }
        }
        self.held.wake();
    }

    fn hand_out_all(
        &mut self,
        packets: Datagram<'_>,
        segment: usize,
        f: &mut impl FnMut(Datagram<'_>),
    ) {
        for (place, bytes) in (packets.place..).zip(packets.bytes.chunks(segment)) {
            let datagram = Datagram {
                bytes,
                place,
                ..packets
            };
            self.hand_out(datagram, f);
        }
    }

    #[inline]
    fn hand_out(&mut self, datagram: Datagram<'_>, f: &mut impl FnMut(Datagram<'_>)) {
        self.stats.packets += 1;
        self.stats.bytes += datagram.bytes.len() as u64;
        f(datagram);
    }
}

/// Buffers and arrays for `recvmmsg`.
struct Slots {
    buffers: Box<[u8]>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

/// Bytes of a buffer: the longest batch.
const SLOT: usize = 65536;
/// Room for address, traffic class, hop limit and packet size of one message.
const CONTROL_WORDS: usize = 24;

// SAFETY: the pointers in the arrays are set and used within one call of `receive`.
unsafe impl Send for Slots {}

impl Slots {
    fn new() -> Self {
        // SAFETY: all-zero is valid for all of these.
        unsafe {
            Self {
                buffers: vec![0; MAX_DEPTH * SLOT].into(),
                names: vec![zeroed(); MAX_DEPTH],
                controls: vec![[0; CONTROL_WORDS]; MAX_DEPTH],
                parts: vec![zeroed(); MAX_DEPTH],
                headers: vec![zeroed(); MAX_DEPTH],
            }
        }
    }

    /// Receives up to `depth` messages; 0 where there are none.
    fn receive(&mut self, fd: RawFd, depth: usize) -> usize {
        let depth = depth.clamp(1, MAX_DEPTH);
        let buffers = self.buffers.as_mut_ptr();
        for index in 0..depth {
            self.parts[index] = libc::iovec {
                iov_base: buffers.wrapping_add(index * SLOT).cast(),
                iov_len: SLOT,
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &mut self.parts[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&self.controls[index]) as _;
            header.msg_flags = 0;
        }
        // SAFETY: every pointer in the headers leads into an array of `self` at its own index, which
        // is as long as stated there.
        let received = unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                depth as libc::c_uint,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        usize::try_from(received).unwrap_or(0)
    }

    /// Message `index` of those received last: what all its packets share, all their bytes, and the
    /// bytes of each packet. `None` where it is empty.
    fn message(&self, index: usize, family: Family) -> Option<(Datagram<'_>, usize)> {
        let header = &self.headers[index];
        let len = (header.msg_len as usize).min(SLOT);
        if len == 0 {
            return None;
        }
        let mut packets = Datagram {
            bytes: &self.buffers[index * SLOT..][..len],
            source: sys::parse_ip(&self.names[index])?,
            destination: match family {
                Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            },
            traffic_class: 0,
            hop_limit: 0,
            interface: 0,
            place: 0,
        };
        let mut segment = len;
        // SAFETY: the kernel has filled the control buffer up to `msg_controllen`; the macros stay
        // within it, and each kind has the type that the kernel documents.
        unsafe {
            let mut control = libc::CMSG_FIRSTHDR(&header.msg_hdr);
            while let Some(item) = control.as_ref() {
                let data = libc::CMSG_DATA(control);
                match (item.cmsg_level, item.cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        packets.destination = IpAddr::V4(info.ipi_addr.s_addr.to_ne_bytes().into());
                        packets.interface = info.ipi_ifindex.cast_unsigned();
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        packets.destination = IpAddr::V6(info.ipi6_addr.s6_addr.into());
                        packets.interface = info.ipi6_ifindex;
                    }
                    (libc::IPPROTO_IP, libc::IP_TOS) => packets.traffic_class = data.read(),
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        let class = data.cast::<i32>().read_unaligned();
                        packets.traffic_class = class.to_le_bytes()[0];
                    }
                    (libc::IPPROTO_IP, libc::IP_TTL)
                    | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                        let limit = data.cast::<i32>().read_unaligned();
                        packets.hop_limit = limit.to_le_bytes()[0];
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let size = data.cast::<i32>().read_unaligned();
                        segment = usize::try_from(size).ok().filter(|s| *s > 0).unwrap_or(len);
                    }
                    _ => {}
                }
                control = libc::CMSG_NXTHDR(&header.msg_hdr, control);
            }
        }
        Some((packets, segment))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::port;

    const BUDGET: usize = 8;

    /// A receiver on a port of its own, and that port.
    fn receiver() -> (Receiver, u16) {
        let free = UdpSocket::bind("0.0.0.0:0").expect("port");
        let udp_port = free.local_addr().expect("bound").port();
        drop(free);
        let options = PortOptions {
            udp_port,
            ..PortOptions::default()
        };
        (port::open(&options).expect("port").0, udp_port)
    }

    /// A BTH and an ICRC for the first queue pair of `block`.
    fn packet(block: QpnBlock) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&(block.qpns().start + 2).to_be_bytes());
        bytes
    }

    /// Packets as another process got them.
    fn passed_on(bytes: &[u8]) -> Datagram<'_> {
        Datagram {
            bytes,
            source: (Ipv4Addr::LOCALHOST, 50000).into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            traffic_class: 0,
            hop_limit: 64,
            interface: 1,
            place: 0,
        }
    }

    fn has_more(receiver: &Receiver) -> bool {
        sys::wait_readable(&[receiver.as_fd()], Duration::ZERO)
    }

    /// What one call has changed.
    fn call(receiver: &mut Receiver) -> (usize, ReceiveStats, ReceiveStats) {
        let before = receiver.stats();
        let count = receiver.recv_batch(BUDGET, Sweep::All, |_| {});
        (count, before, receiver.stats())
    }

    /// Everything that another process passes on is taken over in the end, a part at a time, and the
    /// descriptor stays readable until then. So it is with what is not believed.
    #[test]
    fn what_is_passed_on_has_a_budget() {
        let (mut receiver, port) = receiver();
        let block = receiver.blocks()[0];
        let name = names::data(port, block);
        let forwarder = Forwarder::new(None).expect("socket");
        let bytes = packet(block).repeat(5);
        let packets = passed_on(&bytes);
        const MESSAGES: usize = 8;
        for _ in 0..MESSAGES {
            forwarder.pass(&name, &packets, 16).expect("room");
        }
        let mut total = 0;
        while total < MESSAGES * 5 {
            assert!(has_more(&receiver), "{total} came");
            let (count, ..) = call(&mut receiver);
            assert!((1..BUDGET + 5).contains(&count), "{count} at once");
            total += count;
        }
        assert_eq!(receiver.stats().taken_over, total as u64);

        let to = sys::Address::named(&names::data(port, block));
        let socket = sys::socket(libc::AF_UNIX).expect("socket");
        for _ in 0..BUDGET + 1 {
            let junk = [io::IoSlice::new(b"junk")];
            sys::send_with(socket.as_fd(), &to, &junk, &[]).expect("room");
        }
        let (count, before, after) = call(&mut receiver);
        assert_eq!((count, after.distrusted - before.distrusted), (0, 8));
        assert!(has_more(&receiver));
        let (_, before, after) = call(&mut receiver);
        assert_eq!(after.distrusted - before.distrusted, 1);
    }

    /// Packets that are for others, or for nobody, use the budget as well.
    #[test]
    fn what_is_not_ours_has_a_budget() {
        let (mut receiver, port) = receiver();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        const RUNTS: u64 = 200;
        for _ in 0..RUNTS {
            socket.send_to(&[1], ("127.0.0.1", port)).expect("sent");
        }
        let mut largest = 0;
        while receiver.stats().runts < RUNTS {
            assert!(has_more(&receiver), "{:?}", receiver.stats());
            let (count, before, after) = call(&mut receiver);
            assert_eq!(count, 0);
            largest = largest.max(after.runts - before.runts);
        }
        let limit = (BUDGET + BUDGET / 2 + MAX_DEPTH) as u64;
        assert!(largest < limit, "{largest} at once");
    }

    /// A flood in one place does not keep what is passed on waiting, nor the other way round.
    #[test]
    fn floods_take_turns() {
        const CALLS: u64 = 32;
        let (mut receiver, port) = receiver();
        let block = receiver.blocks()[0];
        let name = names::data(port, block);
        let forwarder = Forwarder::new(None).expect("socket");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        let bytes = packet(block).repeat(2 * BUDGET);
        let packets = passed_on(&bytes);
        for _ in 0..CALLS {
            for _ in 0..2 * BUDGET {
                socket.send_to(&[1], ("127.0.0.1", port)).expect("sent");
            }
            // It may be full: that is what a flood is.
            let _ = forwarder.pass(&name, &packets, 16);
            call(&mut receiver);
        }
        let came = receiver.stats();
        let expected = CALLS / 2 * BUDGET as u64;
        assert!(came.taken_over >= expected, "{came:?}");
        assert!(came.runts >= expected, "{came:?}");
    }
}
