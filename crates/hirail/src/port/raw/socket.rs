//! Packet sockets (`AF_PACKET`): whole Ethernet frames in and out, in batches.

use core::ffi::c_int;
use core::mem::zeroed;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use hirail_wire::ethernet::{EtherType, MacAddr, VlanTag};

use crate::fork::Descriptor;
use crate::port::{socket, sys};

// What the libc crate does not name.
const PACKET_ADD_MEMBERSHIP: c_int = 1;
const PACKET_DROP_MEMBERSHIP: c_int = 2;
const PACKET_AUXDATA: c_int = 8;
const PACKET_VNET_HDR: c_int = 15;
const PACKET_QDISC_BYPASS: c_int = 20;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const PACKET_MR_MULTICAST: u16 = 0;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const SO_MEMINFO: c_int = 55;

/// `struct packet_mreq`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Membership {
    interface: c_int,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

/// `struct tpacket_auxdata`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Auxiliary {
    status: u32,
    len: u32,
    kept: u32,
    mac: u16,
    net: u16,
    tci: u16,
    tpid: u16,
}

/// `struct virtio_net_hdr`: what the kernel puts in front of a frame about segmentation.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Offload {
    flags: u8,
    kind: u8,
    header_len: u16,
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    /// A batch of UDP datagrams.
    const UDP: u8 = 5;
    /// May be added to the kind.
    const ECN: u8 = 0x80;
}

/// Which frames a socket receives.
#[derive(Clone)]
pub enum Filter {
    /// All of one EtherType.
    EtherType(EtherType),
    /// Those of any type that the program passes.
    Program(Vec<libc::sock_filter>),
}

/// A frame that arrived.
#[derive(Debug)]
pub struct Frame<'a> {
    /// From the destination address on, without tag and FCS. May be overwritten.
    pub bytes: &'a mut [u8],
    /// The tag, which the kernel has taken off.
    pub tag: Option<VlanTag>,
    /// Payload bytes of each datagram, where the frame is a batch of several.
    pub segment: Option<usize>,
    /// It was longer than there is room.
    pub is_cut: bool,
}

/// How full a receive queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fill {
    /// Bytes waiting, with the kernel's overhead.
    pub queued: usize,
    /// Bytes that fit, counted likewise.
    pub room: usize,
    /// Frames that found no room since the socket was opened; wraps.
    pub dropped: u32,
}

/// What the kernel did with frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The first so many left.
    First(usize),
    /// There is no room now.
    Full,
    /// The first one was refused for good: too long, or the interface is down.
    Refused,
}

/// A packet socket that receives nothing yet.
fn open() -> io::Result<Descriptor> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory involved.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(Descriptor::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Binds to an interface; `protocol` 0 receives nothing.
fn bind(fd: BorrowedFd<'_>, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is `len` bytes long.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives the frames of an interface.
pub struct FrameReceiver {
    interface: u32,
    socket: Descriptor,
    slots: Slots,
    /// Times that the interface went down.
    downs: u64,
}

impl FrameReceiver {
    /// Receives from now on, up to `depth` frames at a time of up to `longest` bytes.
    /// `receive_buffer` counts bytes of kernel memory.
    pub fn open(
        interface: u32,
        filter: Filter,
        receive_buffer: usize,
        depth: usize,
        longest: usize,
    ) -> io::Result<Self> {
        let socket = open()?;
        let fd = socket.as_fd();
        sys::set::<c_int>(fd, libc::SOL_PACKET, PACKET_AUXDATA, 1)?;
        sys::set::<c_int>(fd, libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
        // Before Linux 4.20 our own frames come along: programs drop them, and there is no other
        // sender of control frames on this side.
        let _ = sys::set::<c_int>(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
        socket::set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer);
        let protocol = match filter {
            Filter::EtherType(ether_type) => ether_type.0,
            Filter::Program(mut program) => {
                let filter = libc::sock_fprog {
                    len: program.len() as u16,
                    filter: program.as_mut_ptr(),
                };
                // `program` lives until the kernel has copied it.
                sys::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, filter)?;
                libc::ETH_P_ALL as u16
            }
        };
        bind(fd, interface, protocol)?;
        Ok(Self {
            interface,
            socket,
            slots: Slots::new(depth, longest),
            downs: 0,
        })
    }

    /// Hands out one batch of frames; returns how many, 0 where there are none.
    pub fn receive(&mut self, mut f: impl FnMut(Frame<'_>)) -> usize {
        match self.slots.receive(self.socket.as_fd().as_raw_fd()) {
            Ok(received) => {
                for index in 0..received {
                    f(self.slots.frame(index));
                }
                received
            }
            Err(error) => {
                self.downs += u64::from(error.raw_os_error() == Some(libc::ENETDOWN));
                0
            }
        }
    }

    /// How often the interface went down since this was asked last, as far as
    /// [`receive`](Self::receive) has noticed.
    pub fn take_downs(&mut self) -> u64 {
        core::mem::take(&mut self.downs)
    }

    /// How full the queue is. A system call.
    pub fn fill(&self) -> Fill {
        let mut values = [0u32; 9];
        let mut len = size_of_val(&values) as libc::socklen_t;
        let (fd, out) = (self.socket.as_fd().as_raw_fd(), values.as_mut_ptr().cast());
        // SAFETY: the kernel writes at most `len` bytes to `values`.
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_MEMINFO, out, &mut len) };
        Fill {
            queued: values[0] as usize,
            room: values[1] as usize,
            dropped: values[8],
        }
    }

    /// Makes the interface take frames to a group address, or take them no longer.
    pub fn set_group(&self, group: MacAddr, is_member: bool) -> io::Result<()> {
        let [a, b, c, d, e, f] = group.0;
        let membership = Membership {
            interface: self.interface.cast_signed(),
            kind: PACKET_MR_MULTICAST,
            address_len: 6,
            address: [a, b, c, d, e, f, 0, 0],
        };
        let option = if is_member {
            PACKET_ADD_MEMBERSHIP
        } else {
            PACKET_DROP_MEMBERSHIP
        };
        sys::set(self.socket.as_fd(), libc::SOL_PACKET, option, membership)
    }
}

impl AsFd for FrameReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffers and arrays for `recvmmsg`.
struct Slots {
    longest: usize,
    buffers: Box<[u8]>,
    offloads: Vec<Offload>,
    parts: Vec<[libc::iovec; 2]>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    headers: Vec<libc::mmsghdr>,
}

/// Room for the auxiliary data of one frame.
const CONTROL_WORDS: usize = 8;

// SAFETY: the pointers in the arrays are set and used within one call of `receive`.
unsafe impl Send for Slots {}

impl Slots {
    fn new(depth: usize, longest: usize) -> Self {
        // SAFETY: all-zero is valid for all of these.
        unsafe {
            Self {
                longest,
                buffers: vec![0; depth * longest].into(),
                offloads: vec![Offload::default(); depth],
                parts: vec![zeroed(); depth],
                controls: vec![[0; CONTROL_WORDS]; depth],
                headers: vec![zeroed(); depth],
            }
        }
    }

    fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        let buffers = self.buffers.as_mut_ptr();
        let slots = self.parts.iter_mut().zip(&mut self.offloads);
        let slots = slots.zip(&mut self.controls).zip(&mut self.headers);
        for (index, (((parts, offload), control), header)) in slots.enumerate() {
            *parts = [
                libc::iovec {
                    iov_base: (&raw mut *offload).cast(),
                    iov_len: size_of::<Offload>(),
                },
                libc::iovec {
                    iov_base: buffers.wrapping_add(index * self.longest).cast(),
                    iov_len: self.longest,
                },
            ];
            let message = &mut header.msg_hdr;
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = parts.len() as _;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(control) as _;
            message.msg_flags = 0;
        }
        // SAFETY: every pointer in the headers leads into an array of `self` at its own index, which
        // is as long as stated there.
        let received = unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Frame `index` of those received last.
    fn frame(&mut self, index: usize) -> Frame<'_> {
        let header = &self.headers[index];
        let message = &header.msg_hdr;
        let len = (header.msg_len as usize)
            .saturating_sub(size_of::<Offload>())
            .min(self.longest);
        let mut tag = None;
        // SAFETY: the kernel has filled the control buffer up to `msg_controllen`; the macros stay
        // within it, and this kind has the type that the kernel documents.
        unsafe {
            let mut control = libc::CMSG_FIRSTHDR(message);
            while let Some(item) = control.as_ref() {
                if (item.cmsg_level, item.cmsg_type) == (libc::SOL_PACKET, PACKET_AUXDATA) {
                    let data = libc::CMSG_DATA(control).cast::<Auxiliary>();
                    let auxiliary = data.read_unaligned();
                    if auxiliary.status & TP_STATUS_VLAN_VALID != 0 {
                        tag = Some(VlanTag::from_tci(auxiliary.tci));
                    }
                }
                control = libc::CMSG_NXTHDR(message, control);
            }
        }
        let offload = self.offloads[index];
        let is_batch = offload.kind & !Offload::ECN == Offload::UDP && offload.segment > 0;
        Frame {
            is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
            bytes: &mut self.buffers[index * self.longest..][..len],
            tag,
            segment: is_batch.then_some(offload.segment.into()),
        }
    }
}

/// Sends frames by an interface.
pub struct FrameSender {
    socket: Descriptor,
    /// The priority that the kernel sees, for its own queues and for tags of VLAN interfaces.
    priority: u8,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in the arrays are set and used within one call of `send`.
unsafe impl Send for FrameSender {}

impl FrameSender {
    /// Sends from now on. `send_buffer` counts bytes of kernel memory.
    pub fn open(interface: u32, send_buffer: usize) -> io::Result<Self> {
        let socket = open()?;
        let (force, polite) = (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
        socket::set_buffer(socket.as_fd(), force, polite, send_buffer);
        bind(socket.as_fd(), interface, 0)?;
        Ok(Self {
            socket,
            priority: 0,
            parts: Vec::new(),
            headers: Vec::new(),
        })
    }

    /// Frames are not to wait in the kernel's queues, where it can pass them by.
    pub fn skip_queues(&self) {
        let fd = self.socket.as_fd();
        let _ = sys::set::<c_int>(fd, libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1);
    }

    /// Sends the first of `frames`, as many as the kernel takes at a time, with one priority.
    pub fn send<'a>(&mut self, priority: u8, frames: impl Iterator<Item = &'a [u8]>) -> Taken {
        let fd = self.socket.as_fd();
        if priority != self.priority {
            // Without the right to a high one the frames still leave.
            let value = c_int::from(priority);
            let _ = sys::set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, value);
            self.priority = priority;
        }
        self.parts.clear();
        self.headers.clear();
        self.parts.extend(frames.map(|frame| libc::iovec {
            iov_base: frame.as_ptr().cast_mut().cast(),
            iov_len: frame.len(),
        }));
        for part in &mut self.parts {
            // SAFETY: all-zero is an empty message.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
        let len = self.headers.len() as libc::c_uint;
        let (fd, headers) = (fd.as_raw_fd(), self.headers.as_mut_ptr());
        // SAFETY: the headers point to `parts`, those to the frames, which live through `'a`; the
        // kernel only reads.
        let sent = unsafe { libc::sendmmsg(fd, headers, len, libc::MSG_DONTWAIT) };
        match usize::try_from(sent) {
            Ok(sent) => Taken::First(sent),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => Taken::First(0),
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Taken::Full,
                _ => Taken::Refused,
            },
        }
    }
}

/// Moves this thread into a network namespace of its own, which goes with it.
#[cfg(test)]
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: only this thread's view of the network changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
