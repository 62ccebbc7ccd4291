//! Transmit: packets are put together in a staging buffer, batched, and handed to the kernel.
//!
//! Payload is read once: copied to its place between header and ICRC, and the ICRC is that of the
//! copy. Packets to one queue pair whose sizes are equal go to the kernel as one message that it, or
//! the receiving socket, splits again (`UDP_SEGMENT`); a shorter packet may end such a batch. So a long
//! write costs one system call for some 15 packets of 4 KiB, an acknowledgement travels with the
//! answer of the application, and several messages share one call.
//!
//! The ICRC covers the IPv4 Identification, which the kernel writes: n for the n-th packet of a
//! batch (see [`socket`](super::socket)), so a packet's ICRC depends on its place. IPv6 has no such
//! field.

use core::mem::zeroed;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use hirail_rnic::host::Fault;
use hirail_wire::{Headers, Icrc, IcrcPrefix, Qpn};

use super::pcap::Recorder;
use super::socket::{Family, TransmitPool};
use super::{PortOptions, sys};

/// Where packets go, and what their network headers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Source address, one of this host's.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Index of the interface to leave by; 0 lets the routing table decide. Link-local and multicast
    /// destinations need it.
    pub interface: u32,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 stands for 64.
    pub hop_limit: u8,
    /// The UDP source port that a hardware RNIC would use for this flow, 0xC000 to 0xFFFF. The port
    /// really used is that of the socket which stands for it ([`TransmitPool::source_port`]).
    pub entropy: u16,
    /// Whether the kernel may split batches on this path. Over IPv4 only where it does so in
    /// software, which numbers the packets as expected.
    pub segmentation: bool,
}

/// Why a packet was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushError {
    /// The staging buffer has no room: flush, then begin the run again with this packet.
    Full,
    /// The payload's memory is gone.
    Fault,
}

/// What became of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Packets that were pushed.
    pub offered: u32,
    /// How many of them, from the first on, the kernel took. The rest was not sent.
    pub taken: u32,
}

/// What a transmitter has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TransmitStats {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Their bytes, BTH to ICRC.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Messages handed over in them.
    pub messages: u64,
    /// Times the kernel had no room.
    pub blocked: u64,
    /// Packets lost because the kernel refused them for good: no route, too long for the interface,
    /// a firewall. The transport notices by its timers.
    pub refused: u64,
    /// Batches that had to be sent packet by packet.
    pub split: u64,
}

/// Builds and sends packets. One per thread that transmits.
pub struct Transmitter {
    pool: Arc<TransmitPool>,
    udp_port: u16,
    segmentation: bool,
    /// Packets, back to back.
    staging: Box<[u8]>,
    /// Bytes of it in use.
    used: usize,
    messages: Vec<Message>,
    runs: Vec<Sent>,
    /// The run that each packet is of: a message may carry packets of several.
    owners: Vec<u16>,
    /// Paths of the messages; the last one is that of the present run.
    routes: Vec<Route>,
    /// Destinations that do not take batches.
    unsegmented: HashSet<IpAddr>,
    stats: TransmitStats,
    recorder: Option<Arc<Recorder>>,
    batch: Batch,
}

/// Bytes of the staging buffer: a few batches, little enough to stay in the cache.
const STAGING: usize = 256 << 10;
/// Most messages between two flushes.
const MAX_MESSAGES: usize = 64;
/// Most packets in one message; older kernels take no more.
const MAX_SEGMENTS: u16 = 64;
/// Most bytes in one message: a UDP datagram over IPv4.
const MAX_MESSAGE: usize = 65507;
/// Bytes of the ICRC.
const ICRC: usize = 4;

impl Transmitter {
    /// A transmitter with nothing in it.
    pub fn new(pool: Arc<TransmitPool>, options: &PortOptions) -> Self {
        Self {
            pool,
            udp_port: options.udp_port,
            segmentation: options.segmentation && super::socket::segments(),
            staging: vec![0; STAGING].into(),
            used: 0,
            messages: Vec::with_capacity(MAX_MESSAGES),
            runs: Vec::with_capacity(MAX_MESSAGES),
            owners: Vec::with_capacity(MAX_MESSAGES * usize::from(MAX_SEGMENTS)),
            routes: Vec::with_capacity(MAX_MESSAGES),
            unsegmented: HashSet::new(),
            stats: TransmitStats::default(),
            recorder: None,
            batch: Batch::new(),
        }
    }

    /// Records every packet that the kernel took.
    pub fn record_to(&mut self, recorder: Arc<Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Begins a run: the packets pushed from now on take `path`. Fails where no socket can be opened.
    pub fn begin(&mut self, path: &Path) -> io::Result<()> {
        if self.routes.last().is_none_or(|route| route.path != *path) {
            self.routes
                .push(Route::new(path, &self.pool, self.udp_port)?);
        }
        self.runs.push(Sent {
            offered: 0,
            taken: 0,
        });
        Ok(())
    }

    /// Adds a packet to the run: `headers`, then `payload_len` bytes that `gather` stores and covers
    /// with the ICRC, then pad and ICRC.
    ///
    /// After an error the packet is not there; those before it are.
    pub fn push(
        &mut self,
        headers: &Headers,
        payload_len: usize,
        gather: impl FnOnce(&mut [u8], &mut Icrc) -> Result<(), Fault>,
    ) -> Result<(), PushError> {
        let run = self.runs.len().checked_sub(1).expect("a run was begun");
        let route_index = self.routes.len() - 1;
        let route = &self.routes[route_index];
        let header_len = headers.len();
        let dest_qp = headers.bth().dest_qp;
        let len = (header_len + payload_len).next_multiple_of(4) + ICRC;
        let batching = self.segmentation
            && route.path.segmentation
            && (self.unsegmented.is_empty() || !self.unsegmented.contains(&route.path.destination));
        let end = self.used + len;
        if end > self.staging.len() {
            return Err(PushError::Full);
        }
        let joins = batching
            && self
                .messages
                .last()
                .is_some_and(|last| last.route == route_index && last.takes(dest_qp, len));
        if !joins && self.messages.len() == MAX_MESSAGES {
            return Err(PushError::Full);
        }

        let place = if joins {
            self.messages[self.messages.len() - 1].segments
        } else {
            0
        };
        let packet = &mut self.staging[self.used..end];
        headers.emit(packet);
        let (header, rest) = packet.split_at_mut(header_len);
        let (payload, rest) = rest.split_at_mut(payload_len);
        let (pad, trailer) = rest.split_at_mut(rest.len() - ICRC);
        let mut icrc = route.prefix.start(len, place);
        icrc.update_ib(header);
        gather(payload, &mut icrc).map_err(|Fault| PushError::Fault)?;
        pad.fill(0);
        icrc.update(pad);
        trailer.copy_from_slice(&icrc.finish());

        if joins {
            let last = self.messages.len() - 1;
            self.messages[last].add(len);
        } else {
            let place_in_run = self.runs[run].offered;
            self.messages.push(Message {
                first: self.owners.len(),
                place_in_run,
                route: route_index,
                dest_qp,
                start: self.used,
                len,
                segment: len,
                segments: 1,
            });
        }
        self.used = end;
        self.owners.push(run as u16);
        self.runs[run].offered += 1;
        Ok(())
    }

    /// The UDP source port that packets on `path` leave with.
    pub fn source_port(&self, path: &Path) -> io::Result<u16> {
        self.pool
            .source_port(Family::of(path.destination), path.entropy)
    }

    /// Whether nothing waits for a flush.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// What has been done so far.
    pub fn stats(&self) -> TransmitStats {
        self.stats
    }

    /// Hands everything to the kernel, and tells for each run, in the order of
    /// [`begin`](Self::begin), how much of it was taken. Returns false where the kernel had no room:
    /// try again a little later.
    pub fn flush(&mut self, mut report: impl FnMut(usize, Sent)) -> bool {
        let mut first = 0;
        let mut open = true;
        while first < self.messages.len() {
            let fd = self.route_of(first).fd;
            let run = self.owner(self.messages[first].first);
            if self.runs[run].taken < self.messages[first].place_in_run {
                // A packet before it in its run was not taken: neither is this.
                first += 1;
                continue;
            }
            let mut end = first + 1;
            while end < self.messages.len() && self.route_of(end).fd == fd {
                end += 1;
            }
            self.stats.calls += 1;
            match self
                .batch
                .send(&self.routes, &self.messages[first..end], &mut self.staging)
            {
                Ok(count) => {
                    for message in first..first + count {
                        self.took(message);
                    }
                    first += count;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                        // Packets for other sockets may still go.
                        self.stats.blocked += 1;
                        open = false;
                        first = end;
                    }
                    Some(libc::EINTR) => {}
                    _ => {
                        if self.messages[first].segments > 1 {
                            open &= self.split(first, error.raw_os_error());
                        } else {
                            self.stats.refused += 1;
                            self.runs[run].taken += 1;
                        }
                        first += 1;
                    }
                },
            }
        }
        for (i, run) in self.runs.iter().enumerate() {
            report(i, *run);
        }
        self.clear();
        open
    }

    /// Forgets everything that was pushed.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.runs.clear();
        self.owners.clear();
        self.used = 0;
        // The next run often takes the same path.
        if self.routes.len() > 1 {
            let last = self.routes.len() - 1;
            self.routes.swap(0, last);
            self.routes.truncate(1);
        }
    }

    fn route_of(&self, message: usize) -> &Route {
        &self.routes[self.messages[message].route]
    }

    /// The run that a packet is of.
    fn owner(&self, packet: usize) -> usize {
        usize::from(self.owners[packet])
    }

    /// Accounts for a message that the kernel took.
    fn took(&mut self, index: usize) {
        let message = &self.messages[index];
        for &run in &self.owners[message.first..][..usize::from(message.segments)] {
            self.runs[usize::from(run)].taken += 1;
        }
        self.stats.messages += 1;
        self.stats.packets += u64::from(message.segments);
        self.stats.bytes += message.len as u64;
        if let Some(recorder) = &self.recorder {
            let bytes = &self.staging[message.start..message.start + message.len];
            let route = &self.routes[message.route];
            for (place, packet) in (0..).zip(bytes.chunks(message.segment)) {
                recorder.sent(&route.path, route.source_port, place, packet);
            }
        }
    }

    /// Sends a batch, which the kernel does not take as one, packet by packet. Returns false where
    /// the kernel had no room for the rest.
    fn split(&mut self, index: usize, error: Option<i32>) -> bool {
        self.stats.split += 1;
        let whole = self.messages[index];
        let destination = self.routes[whole.route].path.destination;
        if matches!(
            error,
            Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::EMSGSIZE)
        ) {
            self.unsegmented.insert(destination);
        }
        for place in 0..usize::from(whole.segments) {
            let start = whole.start + place * whole.segment;
            let len = whole.segment.min(whole.start + whole.len - start);
            let single = Message {
                first: whole.first + place,
                start,
                len,
                segment: len,
                segments: 1,
                ..whole
            };
            let packet = &mut self.staging[start..start + len];
            let (ib, trailer) = packet.split_at_mut(len - ICRC);
            // Alone, it is the first of its message.
            trailer.copy_from_slice(&self.routes[whole.route].prefix.compute(ib, 0));
            self.stats.calls += 1;
            let sent = self.batch.send(&self.routes, &[single], &mut self.staging);
            match sent.map_err(|error| error.raw_os_error()) {
                Ok(_) => {
                    self.messages[index] = single;
                    self.took(index);
                }
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {
                    self.stats.blocked += 1;
                    return false;
                }
                Err(_) => {
                    self.stats.refused += 1;
                    let run = self.owner(single.first);
                    self.runs[run].taken += 1;
                }
            }
        }
        true
    }
}

/// A path made ready: everything about it that all its packets share.
struct Route {
    path: Path,
    /// A socket of the pool, which the transmitter keeps alive.
    fd: RawFd,
    source_port: u16,
    to: sys::Address,
    prefix: IcrcPrefix,
    control: Control,
}

impl Route {
    fn new(path: &Path, pool: &TransmitPool, udp_port: u16) -> io::Result<Self> {
        let socket = pool.socket(Family::of(path.destination), path.entropy)?;
        let (to, prefix) = match (path.source, path.destination) {
            (IpAddr::V4(source), IpAddr::V4(to)) => (
                SocketAddr::new(IpAddr::V4(to), udp_port),
                IcrcPrefix::v2_ipv4(source, to, socket.port, true),
            ),
            (IpAddr::V6(source), IpAddr::V6(to)) => (
                SocketAddr::V6(SocketAddrV6::new(to, udp_port, 0, path.interface)),
                IcrcPrefix::v2_ipv6(source, to, socket.port),
            ),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(Self {
            path: *path,
            fd: socket.fd.as_fd().as_raw_fd(),
            source_port: socket.port,
            to: sys::Address::ip(to),
            prefix,
            control: Control::new(path),
        })
    }
}

/// What one `sendmmsg` entry carries: one packet, or several of equal size.
#[derive(Clone, Copy)]
struct Message {
    /// Its first packet, counted from the last flush.
    first: usize,
    /// Packets of the run of the first one before this message.
    place_in_run: u32,
    /// Index of its path.
    route: usize,
    /// The queue pair that its packets are for.
    dest_qp: Qpn,
    /// Where it lies in the staging buffer.
    start: usize,
    len: usize,
    /// Bytes of each packet but the last, which may be shorter.
    segment: usize,
    segments: u16,
}

impl Message {
    /// Whether a packet of `len` bytes on the same path may follow. One of another run may as well: an
    /// acknowledgement rides with the answer that it follows. But not one for another queue pair, which
    /// may be another process's: the kernel delivers a batch as a whole.
    fn takes(&self, dest_qp: Qpn, len: usize) -> bool {
        dest_qp == self.dest_qp
            && len <= self.segment
            && self.len == self.segment * usize::from(self.segments)
            && self.segments < MAX_SEGMENTS
            && self.len + len <= MAX_MESSAGE
    }

    fn add(&mut self, len: usize) {
        self.len += len;
        self.segments += 1;
    }
}

/// Ancillary data of a message: source address, traffic class, hop limit, and last the packet size.
#[derive(Clone, Copy)]
struct Control {
    words: [u64; 16],
    /// Bytes without the packet size, which only batches carry.
    len: usize,
}

/// Bytes that the packet size takes.
const SEGMENT_SPACE: usize = 24;

impl Control {
    fn new(path: &Path) -> Self {
        let mut control = Self {
            words: [0; 16],
            len: 0,
        };
        let hop_limit = i32::from(if path.hop_limit == 0 {
            64
        } else {
            path.hop_limit
        });
        let traffic_class = i32::from(path.traffic_class);
        match path.source {
            IpAddr::V4(source) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: path.interface.cast_signed(),
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(source.octets()),
                    },
                    ipi_addr: libc::in_addr {
                        s_addr: Ipv4Addr::UNSPECIFIED.to_bits(),
                    },
                };
                control.add(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                control.add(libc::IPPROTO_IP, libc::IP_TOS, traffic_class);
                control.add(libc::IPPROTO_IP, libc::IP_TTL, hop_limit);
            }
            IpAddr::V6(source) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: source.octets(),
                    },
                    ipi6_ifindex: path.interface,
                };
                control.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                control.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, traffic_class);
                control.add(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, hop_limit);
            }
        }
        control
    }

    /// Appends an item.
    fn add<T: Copy>(&mut self, level: i32, kind: i32, value: T) {
        // SAFETY: these only compute.
        let (space, len) = unsafe {
            let size = size_of::<T>() as u32;
            (
                libc::CMSG_SPACE(size) as usize,
                libc::CMSG_LEN(size) as usize,
            )
        };
        assert!(self.len + space <= size_of_val(&self.words));
        // SAFETY: the item fits, at an offset that CMSG_SPACE keeps aligned.
        unsafe {
            let header = self
                .words
                .as_mut_ptr()
                .byte_add(self.len)
                .cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space;
    }
}

/// The arrays that `sendmmsg` reads.
struct Batch {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
    controls: Vec<Control>,
}

// SAFETY: the pointers in the arrays are set and used within one call of `send`.
unsafe impl Send for Batch {}

impl Batch {
    fn new() -> Self {
        Self {
            headers: Vec::with_capacity(MAX_MESSAGES),
            parts: Vec::with_capacity(MAX_MESSAGES),
            controls: Vec::with_capacity(MAX_MESSAGES),
        }
    }

    /// Sends `messages`, which share a socket; returns how many the kernel took, at least one.
    fn send(
        &mut self,
        routes: &[Route],
        messages: &[Message],
        staging: &mut [u8],
    ) -> io::Result<usize> {
        self.headers.clear();
        self.parts.clear();
        self.controls.clear();
        for message in messages {
            let mut control = routes[message.route].control;
            if message.segments > 1 {
                control.add(libc::SOL_UDP, libc::UDP_SEGMENT, message.segment as u16);
            }
            self.controls.push(control);
            let bytes = &mut staging[message.start..message.start + message.len];
            self.parts.push(libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            });
        }
        for ((message, part), control) in
            messages.iter().zip(&mut self.parts).zip(&mut self.controls)
        {
            // SAFETY: all-zero is an empty message.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            let to = &routes[message.route].to;
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.words.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = control.len as _;
            self.headers.push(header);
        }
        // SAFETY: every pointer in the headers leads into `messages`, `staging`, `parts` or
        // `controls`, which outlive the call and are not touched between.
        let sent = unsafe {
            libc::sendmmsg(
                routes[messages[0].route].fd,
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

const _: () = assert!(
    SEGMENT_SPACE + 40 + 24 + 24 <= 128,
    "all ancillary data fit"
);
