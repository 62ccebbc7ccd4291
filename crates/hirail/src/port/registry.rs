//! The group of processes that share the port: who owns which queue pair numbers, and how packets
//! find their owner, whatever happens to any of the processes.
//!
//! # Seats
//!
//! The kernel keeps the sockets of a `SO_REUSEPORT` group in a list, and a BPF program picks one by
//! its position ([`steering`]). When a socket is closed, the last one moves into its
//! place, and packets go astray until somebody notices. So sockets are not closed: **every member
//! holds every socket of the group**, passed over Unix sockets. A process that is killed leaves its
//! seat behind, occupied by nobody, and no other seat moves; the next process that comes takes it
//! over. The program depends on nothing but positions and stays as it is.
//!
//! A seat belongs to whoever has bound the Unix name of its number, which the kernel frees when a
//! process ends, however it ends, and in whatever pid namespace it lived. There is no owner of the
//! group and no table to corrupt. A process that is stopped or sits in a debugger keeps its seat and
//! its queue fills up; nobody waits for it. A forked child has copies of descriptors, which is as if
//! one more member held them.
//!
//! Besides the seats there is a *common* socket that all members wait on: it gets what has no owner
//! with a socket, such as packets for QP 1, and whoever wakes first passes them on. So a stopped
//! process cannot hold these up either.
//!
//! # Those who do not answer
//!
//! A newcomer asks the members for the sockets. If none answers in time (all stopped), it adds sockets
//! of its own behind theirs and goes on; when they wake they find its message and everybody holds
//! everything again. Until then, should the silent ones be killed, positions do shift. A member that
//! knows of sockets which it does not hold looks at the kernel's list now and then, and when some are
//! gone, sends itself probes: a probe names a position, and the socket that it arrives at has it.
//!
//! # Other users
//!
//! The kernel admits one user per group. A process of another user gets a block without a seat; its
//! packets come to the common socket and are passed on ([`forward`](super::forward)). When the group
//! disappears it takes the port over.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use hirail_wire::Qpn;

use super::census;
use super::control::{self, Entry, Message};
use super::forward::Forwarder;
use super::socket::{self, Family};
use super::steering::{self, QpnBlock};
use super::{PortError, PortOptions, Steering, sys};
use crate::fork::Descriptor;

/// How long a newcomer waits for another one to finish joining. Longer than joining takes, and short
/// enough for one that was stopped meanwhile.
const JOIN_PATIENCE: Duration = Duration::from_millis(300);
/// How long a newcomer waits for the first member's answer before it asks the others as well.
const FIRST_PATIENCE: Duration = Duration::from_millis(20);
/// How long it waits in all before it takes everybody for stopped.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
/// How long a probe may take over the loopback interface.
const PROBE_PATIENCE: Duration = Duration::from_millis(30);
/// How often the kernel's list is looked at while it has sockets that we do not hold, and how often
/// a process of another user tries for the port.
const WATCH_PERIOD: Duration = Duration::from_millis(100);
/// In how many of these periods the others are asked for their sockets again.
const ASK_EVERY: u32 = 10;

/// This process's membership.
#[derive(Debug)]
pub(super) struct Membership {
    options: PortOptions,
    /// The blocks of this process; the first one for as long as it lives.
    claims: Vec<Claim>,
    /// Every socket of the group that we hold.
    seats: Vec<Seat>,
    /// The program that we attached last, per family: common position and moved seats.
    attached: [Option<Map>; 2],
    /// Sockets in the group that we do not hold, when we looked last.
    unheld: [Vec<u64>; 2],
    steering: Steering,
    /// Marks probes of ours.
    nonce: u64,
    /// The users whose sockets hold the port while we may not.
    holders: Vec<u32>,
    /// Periods since we joined.
    periods: u32,
    /// Whether no member told us about the group: there is none, or none that answers.
    is_founder: bool,
}

/// What a program is made from: the position of the common socket, and the seats that are not at
/// the position of their number.
type Map = (u16, Vec<(QpnBlock, u16)>);

/// A block and the names that go with it. Dropping it gives the block back.
#[derive(Debug)]
struct Claim {
    block: QpnBlock,
    /// Other members write here.
    control: Descriptor,
    /// Packets passed on by others come here.
    data: Forwarder,
}

/// A socket of the group.
#[derive(Debug)]
struct Seat {
    entry: Entry,
    socket: Descriptor,
}

/// A socket that this process reads.
pub(super) struct Readable<'a> {
    pub(super) family: Family,
    pub(super) socket: &'a Descriptor,
    /// Whether other members read it too.
    pub(super) is_common: bool,
}

impl Membership {
    /// Joins the group of the options' port, or founds it.
    pub(super) fn join(options: &PortOptions) -> Result<Self, PortError> {
        let port = options.udp_port;
        let _turn = wait_for_turn(port);
        let mut this = Self {
            options: options.clone(),
            claims: Vec::new(),
            seats: Vec::new(),
            attached: [None, None],
            unheld: [Vec::new(), Vec::new()],
            steering: Steering::Off,
            nonce: sys::random(),
            holders: Vec::new(),
            periods: 0,
            is_founder: true,
        };
        let members = members(port);
        for (entry, fd) in ask(port, &members) {
            this.hold(entry, fd);
            this.is_founder = false;
        }
        match this.take_seat() {
            Ok(()) => {}
            Err(PortError::InUse { .. })
                if !members.is_empty() && !census::is_ours(&census::sockets(Family::V4, port)) =>
            {
                // A group of another user, which passes our packets on.
                this.seats.clear();
                this.claim_forwarded()?;
                this.steering = Steering::Forwarded;
                this.note_holders();
            }
            Err(error) => return Err(error),
        }
        this.look_for_unheld();
        if this.is_watching() {
            this.ask_everybody();
        }
        Ok(this)
    }

    /// Takes one more block.
    pub(super) fn claim_block(&mut self) -> Result<QpnBlock, PortError> {
        let _turn = wait_for_turn(self.options.udp_port);
        match self.steering {
            Steering::Verified | Steering::Unverified => self.take_seat()?,
            Steering::Off | Steering::Forwarded => self.claim_forwarded()?,
        }
        Ok(self.claims[self.claims.len() - 1].block)
    }

    /// Deals with what other members wrote. Returns whether sockets to read have been added.
    pub(super) fn handle_control(&mut self) -> bool {
        let before = self.seats.len();
        let mut buffer = [0; control::MAX];
        for index in 0..self.claims.len() {
            while let Some((message, passed)) =
                Message::receive(self.claims[index].control.as_fd(), &mut buffer)
            {
                match message {
                    Message::Ask { reply_to } => self.share(&reply_to, 0),
                    Message::Share { entries, .. } => {
                        for (entry, fd) in entries.into_iter().zip(passed) {
                            self.hold(entry, fd);
                        }
                    }
                    Message::Moved { entries } => {
                        for entry in entries {
                            self.update(entry);
                        }
                    }
                    Message::Found { nonce, entry } if nonce == self.nonce => self.learn(entry),
                    Message::Found { .. } => {}
                }
            }
        }
        self.steer();
        self.look_for_unheld();
        self.seats.len() != before
    }

    /// Looks whether sockets of others have disappeared, and takes the port over where we could not
    /// have it before. Called once per [`watch_period`](Self::watch_period). Returns whether sockets
    /// to read have been added.
    pub(super) fn watch(&mut self) -> bool {
        if self.steering == Steering::Forwarded {
            return self.take_over();
        }
        let before = self.unheld.clone();
        self.look_for_unheld();
        for family in Family::ALL {
            let now = &self.unheld[family.index()];
            if before[family.index()]
                .iter()
                .any(|inode| !now.contains(inode))
            {
                self.probe_positions(family);
            }
        }
        self.periods += 1;
        if self.periods.is_multiple_of(ASK_EVERY) && self.is_watching() {
            self.ask_everybody();
        }
        false
    }

    /// Notes that a probe has arrived by the socket with `inode`.
    pub(super) fn handle_probe(&mut self, probe: &Probe, dest: Qpn, inode: u64) {
        let Some(position) = steering::probed_position(dest) else {
            return;
        };
        let Some(seat) = self.seats.iter().find(|seat| seat.entry.inode == inode) else {
            return;
        };
        let entry = Entry {
            position,
            stamp: sys::now_ns(),
            ..seat.entry
        };
        if probe.nonce == self.nonce {
            self.learn(entry);
        } else {
            let to = names::control(self.options.udp_port, probe.block);
            let found = Message::Found {
                nonce: probe.nonce,
                entry,
            };
            let _ = found.send(self.claims[0].control.as_fd(), &to, &[]);
        }
    }

    /// How often to call [`watch`](Self::watch), if at all.
    pub(super) fn watch_period(&self) -> Option<Duration> {
        self.is_watching().then_some(WATCH_PERIOD)
    }

    pub(super) fn steering(&self) -> Steering {
        self.steering
    }

    /// Whether packets over IPv6 can arrive.
    pub(super) fn has_ipv6(&self) -> bool {
        self.steering == Steering::Forwarded
            || self
                .seats
                .iter()
                .any(|seat| seat.entry.family == Family::V6)
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = QpnBlock> {
        self.claims.iter().map(|claim| claim.block)
    }

    pub(super) fn owns(&self, block: QpnBlock) -> bool {
        self.claims.iter().any(|claim| claim.block == block)
    }

    /// The sockets to read.
    pub(super) fn readable(&self) -> impl Iterator<Item = Readable<'_>> {
        self.seats.iter().filter_map(|seat| {
            let Entry { family, block, .. } = seat.entry;
            let is_common = block == QpnBlock::COMMON;
            (is_common || self.owns(block)).then_some(Readable {
                family,
                socket: &seat.socket,
                is_common,
            })
        })
    }

    /// The sockets of this process alone in a family.
    pub(super) fn own_sockets(&self, family: Family) -> impl Iterator<Item = &Descriptor> {
        self.readable()
            .filter(move |readable| readable.family == family && !readable.is_common)
            .map(|readable| readable.socket)
    }

    /// Where others write to us: their control messages.
    pub(super) fn controls(&self) -> impl Iterator<Item = &Descriptor> {
        self.claims.iter().map(|claim| &claim.control)
    }

    /// Where packets that others pass on come.
    pub(super) fn forwarders(&self) -> impl Iterator<Item = &Forwarder> {
        self.claims.iter().map(|claim| &claim.data)
    }

    /// Whether forwarded packets from `uid` are believed.
    pub(super) fn trusts(&self, uid: u32) -> bool {
        uid == sys::user() || uid == 0 || self.holders.contains(&uid)
    }

    /// Takes a free seat over, or adds one; makes sure that there is a common socket.
    fn take_seat(&mut self) -> Result<(), PortError> {
        let held = self.seats.len();
        self.ensure_common(Family::V4)?;
        // IPv6 may be missing on this host, or be in use for itself; IPv4 goes on alone.
        let has_ipv6 = self.ensure_common(Family::V6).is_ok();
        if !self.options.steering {
            return self.claim_forwarded();
        }
        let block = self.claim_seat()?;
        let families: &[Family] = if has_ipv6 {
            &Family::ALL
        } else {
            &[Family::V4]
        };
        for family in families {
            let seat = self
                .seats
                .iter()
                .find(|seat| seat.entry.family == *family && seat.entry.block == block);
            match seat {
                Some(seat) => {
                    let fd = seat.socket.as_fd();
                    socket::prepare_receive(fd, *family, &self.options)
                        .map_err(PortError::Socket)?;
                }
                None => self.add(*family, block)?,
            }
        }
        let mut verified = true;
        for family in families {
            match self.verify(*family, block) {
                Ok(arrives) => verified &= arrives,
                Err(_) => {
                    // This kernel does not steer: the common socket serves everybody.
                    self.seats.retain(|seat| seat.entry.block != block);
                    self.claims.retain(|claim| claim.block != block);
                    self.options.steering = false;
                    return self.claim_forwarded();
                }
            }
        }
        self.steering = if verified {
            Steering::Verified
        } else {
            Steering::Unverified
        };
        if self.seats.len() > held {
            self.share_with_everybody(held);
        }
        Ok(())
    }

    /// Makes sure that a common socket of the family is held.
    fn ensure_common(&mut self, family: Family) -> Result<(), PortError> {
        let is_common =
            |seat: &Seat| seat.entry.family == family && seat.entry.block == QpnBlock::COMMON;
        if !self.seats.iter().any(is_common) {
            self.add(family, QpnBlock::COMMON)?;
        }
        Ok(())
    }

    /// Binds one more socket to the port.
    fn add(&mut self, family: Family, block: QpnBlock) -> Result<(), PortError> {
        let port = self.options.udp_port;
        let socket =
            socket::receive(family, &self.options).map_err(|error| match error.raw_os_error() {
                Some(libc::EADDRINUSE) => PortError::InUse {
                    port,
                    holder: census::holder(family, port),
                },
                _ => PortError::Socket(error),
            })?;
        let inode = socket.inode();
        // The kernel appends to its list, and nobody else does meanwhile. A probe will show it.
        let listed = census::sockets(family, port).len();
        let held = self
            .seats
            .iter()
            .filter(|seat| seat.entry.family == family)
            .count();
        let position = u16::try_from(listed.saturating_sub(1).max(held)).unwrap_or(u16::MAX);
        let entry = Entry {
            family,
            block,
            position,
            stamp: sys::now_ns(),
            inode,
        };
        self.seats.push(Seat { entry, socket });
        Ok(())
    }

    /// Claims a seat that nobody sits in: one that a process has left, else a new one, with the
    /// number of the position that its socket will have, if possible.
    fn claim_seat(&mut self) -> Result<QpnBlock, PortError> {
        let port = self.options.udp_port;
        let left = self.seats.iter().map(|seat| seat.entry.block);
        let next = census::sockets(Family::V4, port).len() as u16;
        let candidates: Vec<QpnBlock> = left
            .filter(|block| *block != QpnBlock::COMMON)
            .chain([QpnBlock::new(next)])
            .chain(QpnBlock::SEATS.map(QpnBlock::new))
            .filter(|block| QpnBlock::SEATS.contains(&block.number()))
            .collect();
        self.claim_first(candidates.into_iter())
    }

    /// Claims a block without a seat.
    fn claim_forwarded(&mut self) -> Result<(), PortError> {
        self.claim_first(QpnBlock::FORWARDED.map(QpnBlock::new))
            .map(drop)
    }

    fn claim_first(
        &mut self,
        candidates: impl Iterator<Item = QpnBlock>,
    ) -> Result<QpnBlock, PortError> {
        for block in candidates {
            match Claim::new(self.options.udp_port, block) {
                Ok(claim) => {
                    self.claims.push(claim);
                    return Ok(block);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(PortError::Socket(error)),
            }
        }
        Err(PortError::Crowded)
    }

    /// Takes the port over once the other user's group is gone. Returns whether it was.
    fn take_over(&mut self) -> bool {
        self.note_holders();
        if !self.holders.is_empty() || self.ensure_common(Family::V4).is_err() {
            return false;
        }
        let _ = self.ensure_common(Family::V6);
        self.steering = Steering::Off;
        self.steer();
        self.share_with_everybody(0);
        true
    }

    fn note_holders(&mut self) {
        let listed = census::sockets(Family::V4, self.options.udp_port);
        self.holders = listed.into_iter().map(|socket| socket.uid).collect();
        self.holders.dedup();
    }

    /// Makes sure that packets for `block` come to its own socket. False where that cannot be seen:
    /// the loopback interface is down. Fails where the kernel has no steering.
    fn verify(&mut self, family: Family, block: QpnBlock) -> io::Result<bool> {
        let Some(index) = self
            .seats
            .iter()
            .position(|seat| seat.entry.family == family && seat.entry.block == block)
        else {
            return Ok(true);
        };
        if self.is_founder {
            self.attach(family)?;
        }
        let assumed = steering::position_probe(self.seats[index].entry.position);
        if self.first_to_arrive(index, &[assumed]).is_none() {
            let count = census::sockets(family, self.options.udp_port).len();
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            let all: Vec<Qpn> = (0..count).map(steering::position_probe).collect();
            let found = match self.first_to_arrive(index, &all) {
                Some(found) => Some(found),
                None => {
                    // Perhaps the group has no program, or not ours.
                    self.attach(family)?;
                    self.first_to_arrive(index, &all)
                }
            };
            let Some(position) = found.and_then(steering::probed_position) else {
                return Ok(false);
            };
            let entry = &mut self.seats[index].entry;
            (entry.position, entry.stamp) = (position, sys::now_ns());
        }
        // Usually the program is there already.
        if self.first_to_arrive(index, &[block.probe()]).is_some() {
            self.attached[family.index()] = Some(self.map(family));
            return Ok(true);
        }
        self.attach(family)?;
        Ok(self.first_to_arrive(index, &[block.probe()]).is_some())
    }

    /// Sends probes to `dests` and returns the first that arrives at a seat of ours. What else waits
    /// there is discarded: it is for the process that left the seat.
    fn first_to_arrive(&self, seat: usize, dests: &[Qpn]) -> Option<Qpn> {
        let Seat { entry, socket } = &self.seats[seat];
        for dest in dests {
            self.send_probe(entry.family, *dest).ok()?;
        }
        let deadline = Instant::now() + PROBE_PATIENCE;
        let mut buffer = [0; 256];
        loop {
            while let Ok(received) = sys::receive_with(socket.as_fd(), &mut buffer) {
                let bytes = &buffer[..received.len];
                let is_ours = Probe::parse(bytes).is_some_and(|probe| probe.nonce == self.nonce);
                let dest = steering::dest_qp(bytes).filter(|dest| is_ours && dests.contains(dest));
                if dest.is_some() {
                    return dest;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !sys::wait_readable(&[socket.as_fd()], left) {
                return None;
            }
        }
    }

    /// Sends a probe to every position of the group. The answers come as packets.
    fn probe_positions(&self, family: Family) {
        let count = census::sockets(family, self.options.udp_port).len();
        for position in 0..u16::try_from(count).unwrap_or(0) {
            let _ = self.send_probe(family, steering::position_probe(position));
        }
    }

    fn send_probe(&self, family: Family, dest: Qpn) -> io::Result<()> {
        let block = self.claims[0].block;
        let bytes = Probe {
            block,
            nonce: self.nonce,
        }
        .to_bytes(dest);
        // A socket of its own: a new source port each time, should the kernel hash after all.
        let from = match family {
            Family::V4 => sys::socket(libc::AF_INET)?,
            Family::V6 => sys::socket(libc::AF_INET6)?,
        };
        let to = SocketAddr::new(family.loopback(), self.options.udp_port);
        sys::send_to(from.as_fd(), &bytes, &sys::Address::ip(to))
    }

    /// Adds a socket that another member shares, unless we hold it.
    fn hold(&mut self, entry: Entry, fd: OwnedFd) {
        // The descriptor tells for itself which socket it is.
        if sys::inode(fd.as_fd()) != entry.inode {
            return;
        }
        if self
            .seats
            .iter()
            .any(|seat| seat.entry.inode == entry.inode)
        {
            self.update(entry);
        } else {
            self.seats.push(Seat {
                entry,
                socket: Descriptor::new(fd),
            });
        }
    }

    /// Takes over what another member knows about a socket, if it is news.
    fn update(&mut self, entry: Entry) {
        if let Some(seat) = self
            .seats
            .iter_mut()
            .find(|seat| seat.entry.inode == entry.inode)
            && entry.stamp > seat.entry.stamp
        {
            seat.entry.position = entry.position;
            seat.entry.stamp = entry.stamp;
        }
    }

    /// Takes over what a probe has shown, and tells the others if it is news.
    fn learn(&mut self, entry: Entry) {
        let known = self
            .seats
            .iter()
            .any(|seat| seat.entry.inode == entry.inode && seat.entry.position == entry.position);
        if known {
            return;
        }
        self.update(entry);
        self.steer();
        self.tell_everybody(&Message::Moved {
            entries: vec![entry],
        });
    }

    /// Position of the common socket and seats that are not where their number says.
    fn map(&self, family: Family) -> Map {
        let entries = || {
            self.seats
                .iter()
                .map(|seat| seat.entry)
                .filter(|entry| entry.family == family)
        };
        let common = entries()
            .filter(|entry| entry.block == QpnBlock::COMMON)
            .map(|entry| entry.position)
            .min()
            .unwrap_or(0);
        let mut moved: Vec<_> = entries()
            .filter(|entry| entry.block != QpnBlock::COMMON)
            .filter(|entry| entry.position != entry.block.number())
            .map(|entry| (entry.block, entry.position))
            .collect();
        moved.sort_unstable();
        (common, moved)
    }

    /// Attaches the program, if it has changed.
    fn steer(&mut self) {
        for family in Family::ALL {
            let has_seats = self.seats.iter().any(|seat| seat.entry.family == family);
            if has_seats && self.attached[family.index()] != Some(self.map(family)) {
                // A kernel without steering was noticed when we joined.
                let _ = self.attach(family);
            }
        }
    }

    fn attach(&mut self, family: Family) -> io::Result<()> {
        let (common, moved) = self.map(family);
        let Some(seat) = self.seats.iter().find(|seat| seat.entry.family == family) else {
            return Ok(());
        };
        let mut program = steering::program(common, &moved);
        sys::steer(seat.socket.as_fd(), &mut program)?;
        self.attached[family.index()] = Some((common, moved));
        Ok(())
    }

    /// Whether there is reason to look at the kernel's list.
    fn is_watching(&self) -> bool {
        self.steering == Steering::Forwarded || self.unheld.iter().any(|list| !list.is_empty())
    }

    fn look_for_unheld(&mut self) {
        if self.steering == Steering::Forwarded {
            return;
        }
        for family in Family::ALL {
            self.unheld[family.index()] = census::sockets(family, self.options.udp_port)
                .into_iter()
                .map(|listed| listed.inode)
                .filter(|inode| self.seats.iter().all(|seat| seat.entry.inode != *inode))
                .collect();
        }
    }

    fn ask_everybody(&self) {
        let reply_to = names::control(self.options.udp_port, self.claims[0].block).to_string();
        self.tell_everybody(&Message::Ask { reply_to });
    }

    fn tell_everybody(&self, message: &Message) {
        for name in self.others() {
            let _ = message.send(self.claims[0].control.as_fd(), &name, &[]);
        }
    }

    fn share_with_everybody(&self, first: usize) {
        for name in self.others() {
            self.share(&name, first);
        }
    }

    /// The control names of all other members.
    fn others(&self) -> impl Iterator<Item = names::Name> {
        let port = self.options.udp_port;
        members(port)
            .into_iter()
            .filter(|block| !self.owns(*block))
            .map(move |block| names::control(port, block))
    }

    /// Sends the sockets that we hold, from the `first` on. A member that cannot take them now asks
    /// later.
    fn share(&self, name: &str, first: usize) {
        let mut chunks = self.seats[first..].chunks(sys::MAX_PASSED).peekable();
        while let Some(chunk) = chunks.next() {
            let entries = chunk.iter().map(|seat| seat.entry).collect();
            let fds: Vec<BorrowedFd<'_>> = chunk.iter().map(|seat| seat.socket.as_fd()).collect();
            let message = Message::Share {
                entries,
                last: chunks.peek().is_none(),
            };
            if message
                .send(self.claims[0].control.as_fd(), name, &fds)
                .is_err()
            {
                return;
            }
        }
    }
}

impl Claim {
    /// Binds the names of a block; fails with `AddrInUse` where another process has them.
    fn new(port: u16, block: QpnBlock) -> io::Result<Self> {
        let control = sys::socket(libc::AF_UNIX)?;
        sys::set::<i32>(control.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        sys::bind(
            control.as_fd(),
            &sys::Address::named(&names::control(port, block)),
        )?;
        let data = Forwarder::new(Some(&names::data(port, block)))?;
        Ok(Self {
            block,
            control: Descriptor::new(control),
            data,
        })
    }
}

/// Waits until no other process is joining. The returned name keeps others waiting.
fn wait_for_turn(port: u16) -> Option<OwnedFd> {
    let socket = sys::socket(libc::AF_UNIX).ok()?;
    let name = sys::Address::named(&names::turn(port));
    let deadline = Instant::now() + JOIN_PATIENCE;
    while sys::bind(socket.as_fd(), &name).is_err() {
        if Instant::now() > deadline {
            // Whoever is joining was stopped in the middle of it.
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(socket)
}

/// The first blocks of all processes at the port, of whatever user.
fn members(port: u16) -> Vec<QpnBlock> {
    let Ok(socket) = sys::socket(libc::AF_UNIX) else {
        return Vec::new();
    };
    let is_bound = |block: &QpnBlock| {
        // Connecting a datagram socket sends nothing; it fails where nobody has the name.
        let name = sys::Address::named(&names::control(port, *block));
        sys::connect(socket.as_fd(), &name).is_ok()
    };
    let mut blocks = candidates(port);
    blocks.retain(is_bound);
    blocks
}

/// The blocks whose control name the kernel lists; all blocks, where it does not tell.
fn candidates(port: u16) -> Vec<QpnBlock> {
    let (seats, forwarded) = (QpnBlock::SEATS, QpnBlock::FORWARDED);
    let Some(mut numbers) = census::numbered_names(&names::controls(port)) else {
        return seats.chain(forwarded).map(QpnBlock::new).collect();
    };
    numbers.retain(|number| seats.contains(number) || forwarded.contains(number));
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(QpnBlock::new).collect()
}

/// Asks members for the sockets of the group, until one has answered.
fn ask(port: u16, members: &[QpnBlock]) -> Vec<(Entry, OwnedFd)> {
    let mut held = Vec::new();
    let Ok(socket) = sys::socket(libc::AF_UNIX) else {
        return held;
    };
    let passes = sys::set::<i32>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1);
    let bound = sys::bind(socket.as_fd(), &sys::Address::named(""));
    let (Ok(()), Ok(()), Ok(address)) = (passes, bound, sys::local_address(socket.as_fd())) else {
        return held;
    };
    let question = Message::Ask {
        reply_to: address.to_name(),
    };
    let start = Instant::now();
    let mut asked = members.iter();
    let mut buffer = [0; control::MAX];
    while start.elapsed() < ANSWER_PATIENCE && !members.is_empty() {
        let count = if start.elapsed() < FIRST_PATIENCE {
            1
        } else {
            members.len()
        };
        for block in asked.by_ref().take(count) {
            let _ = question.send(socket.as_fd(), &names::control(port, *block), &[]);
        }
        if !sys::wait_readable(&[socket.as_fd()], FIRST_PATIENCE) {
            continue;
        }
        while let Some((message, passed)) = Message::receive(socket.as_fd(), &mut buffer) {
            if let Message::Share { entries, last } = message {
                held.extend(entries.into_iter().zip(passed));
                if last {
                    return held;
                }
            }
        }
    }
    held
}

/// A packet by which a socket learns its position in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// Who sent it.
    pub(super) block: QpnBlock,
    /// Something that only the sender knows.
    pub(super) nonce: u64,
}

impl Probe {
    /// Looks like a BTH with an opcode that no stack uses.
    const START: [u8; 4] = [0xff, b'h', b'r', b'P'];
    const LEN: usize = 20;

    fn to_bytes(self, dest: Qpn) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&Self::START);
        bytes[4..8].copy_from_slice(&dest.value().to_be_bytes());
        bytes[8..10].copy_from_slice(&self.block.number().to_ne_bytes());
        bytes[12..].copy_from_slice(&self.nonce.to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&bytes[12..]);
        (bytes[..4] == Self::START).then(|| Self {
            block: QpnBlock::new(u16::from_ne_bytes([bytes[8], bytes[9]])),
            nonce: u64::from_ne_bytes(nonce),
        })
    }
}

/// Names in the abstract Unix namespace.
pub(super) mod names {
    use core::fmt::{self, Write};
    use core::ops::Deref;

    use std::net::IpAddr;

    use hirail_wire::Gid;

    use super::QpnBlock;

    /// A name, made without allocating.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Name {
        bytes: [u8; 80],
        len: usize,
    }

    impl Name {
        fn new(args: fmt::Arguments<'_>) -> Self {
            let mut name = Self {
                bytes: [0; 80],
                len: 0,
            };
            name.write_fmt(args).expect("names are short");
            name
        }
    }

    impl Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = self.len + text.len();
            self.bytes
                .get_mut(self.len..end)
                .ok_or(fmt::Error)?
                .copy_from_slice(text.as_bytes());
            self.len = end;
            Ok(())
        }
    }

    impl Deref for Name {
        type Target = str;

        fn deref(&self) -> &str {
            str::from_utf8(&self.bytes[..self.len]).expect("made of strings")
        }
    }

    /// What the names of [`control`] begin with; the block's number follows.
    pub(in super::super) fn controls(port: u16) -> Name {
        Name::new(format_args!("hirail/{port}/seat/"))
    }

    /// Where members write to the owner of a block.
    pub(in super::super) fn control(port: u16, block: QpnBlock) -> Name {
        Name::new(format_args!("{}{}", &*controls(port), block.number()))
    }

    /// Where packets are passed on to the owner of a block.
    pub(in super::super) fn data(port: u16, block: QpnBlock) -> Name {
        Name::new(format_args!("hirail/{port}/data/{}", block.number()))
    }

    /// Held by the process that has a service id at an address, whether it listens or not.
    pub(in super::super) fn bound(port: u16, service: u64, address: IpAddr) -> Name {
        of_service(port, "bound", service, address)
    }

    /// Where packets are passed on to whoever listens for a service id at an address.
    pub(in super::super) fn service(port: u16, service: u64, address: IpAddr) -> Name {
        of_service(port, "service", service, address)
    }

    fn of_service(port: u16, what: &str, service: u64, address: IpAddr) -> Name {
        let gid = u128::from_be_bytes(Gid::from_ip(address).0);
        Name::new(format_args!(
            "hirail/{port}/{what}/{service:016x}/{gid:032x}"
        ))
    }

    /// Held by the process that is joining.
    pub(in super::super) fn turn(port: u16) -> Name {
        Name::new(format_args!("hirail/{port}/turn"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members are found by the names that the kernel lists, not by trying a thousand of them.
    #[test]
    fn only_bound_names_are_tried() {
        // No other test uses this number, and it is only a part of names.
        let port = 1;
        assert_eq!(members(port), []);
        let blocks = [700, 3, 511].map(QpnBlock::new);
        let claims = blocks.map(|block| Claim::new(port, block).expect("free"));
        let expected = [3, 511, 700].map(QpnBlock::new);
        assert_eq!(candidates(port), expected);
        assert_eq!(members(port), expected);
        drop(claims);
        assert_eq!(candidates(port), []);
        // Names that are no member's.
        let _others = ["seat/0", "seat/1022", "seat/7x", "seat/"].map(|text| {
            let other = sys::socket(libc::AF_UNIX).expect("socket");
            let name = sys::Address::named(&format!("hirail/{port}/{text}"));
            sys::bind(other.as_fd(), &name).expect("free");
            other
        });
        assert_eq!(candidates(port), []);
    }
}
