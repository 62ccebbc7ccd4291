//! System calls behind safe faces. What the hot paths need, batches of messages, is in
//! [`recv`](super::recv) and [`send`](super::send).

use core::ffi::c_int;
use core::mem::{MaybeUninit, size_of, zeroed};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The result of a system call, or `errno`.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// As [`checked`], for lengths.
fn checked_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Takes over a descriptor that a system call has just made.
fn owned(result: c_int) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A non-blocking datagram socket of an address family.
pub(crate) fn socket(family: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory involved.
    owned(unsafe { libc::socket(family, kind, 0) })
}

/// Sets a socket option.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Reads an integer socket option.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let out = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, out, &mut len) })?;
    Ok(value)
}

/// Datagrams that the kernel has dropped on a socket because its buffer was full.
pub(crate) fn receive_drops(fd: BorrowedFd<'_>) -> u32 {
    const SO_MEMINFO: c_int = 55;
    const DROPS: usize = 8;
    let mut values = [0u32; 9];
    let mut len = size_of_val(&values) as libc::socklen_t;
    let out = values.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes to `values`.
    unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, out, &mut len) };
    values[DROPS]
}

/// Makes `program` choose the socket of the `SO_REUSEPORT` group that `fd` is in.
pub(crate) fn steer(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // `program` lives until the kernel has copied it.
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        program,
    )
}

/// Makes the kernel discard whatever arrives at `fd`.
pub(crate) fn discard_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut nothing = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: nothing.as_mut_ptr(),
    };
    // `nothing` lives until the kernel has copied it.
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// A socket address as the kernel takes it.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Address {
    /// An IP address and UDP port.
    pub(crate) fn ip(address: SocketAddr) -> Self {
        // SAFETY: all-zero is a valid address of no family.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                let out = (&raw mut storage).cast::<libc::sockaddr_in>();
                // SAFETY: the storage is larger and more aligned than any address.
                unsafe {
                    (*out).sin_family = libc::AF_INET as libc::sa_family_t;
                    (*out).sin_port = v4.port().to_be();
                    (*out).sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                }
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let out = (&raw mut storage).cast::<libc::sockaddr_in6>();
                // SAFETY: as above.
                unsafe {
                    (*out).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    (*out).sin6_port = v6.port().to_be();
                    (*out).sin6_flowinfo = v6.flowinfo();
                    (*out).sin6_addr.s6_addr = v6.ip().octets();
                    (*out).sin6_scope_id = v6.scope_id();
                }
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self {
            storage,
            len: len as libc::socklen_t,
        }
    }

    /// A name in the abstract Unix namespace, which belongs to the network namespace. An empty name
    /// asks the kernel to choose one.
    pub(crate) fn named(name: &str) -> Self {
        // SAFETY: all-zero is a valid address of no family.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let out = (&raw mut storage).cast::<libc::sockaddr_un>();
        // SAFETY: the storage is larger and more aligned than any address.
        let out = unsafe { &mut *out };
        out.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let mut len = size_of::<libc::sa_family_t>();
        if !name.is_empty() {
            let name = &name.as_bytes()[..name.len().min(out.sun_path.len() - 1)];
            for (to, from) in out.sun_path[1..].iter_mut().zip(name) {
                *to = from.cast_signed();
            }
            len += 1 + name.len();
        }
        Self {
            storage,
            len: len as libc::socklen_t,
        }
    }

    /// The abstract name, where it is one; else empty.
    pub(crate) fn to_name(self) -> String {
        let start = size_of::<libc::sa_family_t>() + 1;
        let len = (self.len as usize).saturating_sub(start);
        // SAFETY: the storage is larger and more aligned than any address.
        let name = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_un>() };
        let bytes: Vec<u8> = name.sun_path[1..]
            .iter()
            .take(len)
            .map(|c| c.cast_unsigned())
            .collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }
}

/// The IP address and port in `storage`, where it holds one.
pub(super) fn parse_ip(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what it is.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says what it is.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                port,
                0,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// Binds `fd`.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &Address) -> io::Result<()> {
    // SAFETY: the address is `len` bytes long.
    checked(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr(), address.len()) }).map(drop)
}

/// Connects a datagram socket.
pub(crate) fn connect(fd: BorrowedFd<'_>, address: &Address) -> io::Result<()> {
    // SAFETY: the address is `len` bytes long.
    checked(unsafe { libc::connect(fd.as_raw_fd(), address.as_ptr(), address.len()) }).map(drop)
}

/// Where `fd` is bound.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    // SAFETY: all-zero is a valid address of no family.
    let mut address = Address {
        storage: unsafe { zeroed() },
        len: 0,
    };
    address.len = size_of_val(&address.storage) as libc::socklen_t;
    let out = (&raw mut address.storage).cast();
    // SAFETY: the kernel writes at most `len` bytes to the storage.
    checked(unsafe { libc::getsockname(fd.as_raw_fd(), out, &mut address.len) })?;
    Ok(address)
}

/// Most descriptors in one message; the kernel takes 253.
pub(crate) const MAX_PASSED: usize = 200;

/// Room for ancillary data: [`MAX_PASSED`] descriptors and credentials.
const CONTROL_WORDS: usize = 128;

/// Sends a datagram made of `parts` to `to`, with descriptors and with the effective user id as
/// credentials.
pub(crate) fn send_with(
    fd: BorrowedFd<'_>,
    to: &Address,
    parts: &[io::IoSlice<'_>],
    passed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    assert!(passed.len() <= MAX_PASSED);
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all-zero is an empty message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.len();
    // An IoSlice has the layout of an iovec.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);

    // SAFETY: these have no preconditions.
    let credentials = unsafe {
        libc::ucred {
            pid: libc::getpid(),
            uid: libc::geteuid(),
            gid: libc::getegid(),
        }
    };
    // SAFETY: the control buffer is zeroed, aligned, and has room for both messages: the space
    // computed below is at most 32 + 16 + 4 * MAX_PASSED bytes of its 1024.
    unsafe {
        let credentials_len = size_of::<libc::ucred>() as u32;
        let mut used = libc::CMSG_SPACE(credentials_len) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_CREDENTIALS;
        (*header).cmsg_len = libc::CMSG_LEN(credentials_len) as usize;
        libc::CMSG_DATA(header)
            .cast::<libc::ucred>()
            .write_unaligned(credentials);
        if !passed.is_empty() {
            let passed_len = size_of_val(passed) as u32;
            used += libc::CMSG_SPACE(passed_len) as usize;
            let header = libc::CMSG_NXTHDR(&message, header);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(passed_len) as usize;
            let out = libc::CMSG_DATA(header).cast::<RawFd>();
            for (i, fd) in passed.iter().enumerate() {
                out.add(i).write_unaligned(fd.as_raw_fd());
            }
        }
        message.msg_controllen = used;
    }
    // SAFETY: name, parts and control data are as long as the message says, and outlive the call.
    checked_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_DONTWAIT) }).map(drop)
}

/// A datagram that came over a Unix socket.
pub(crate) struct Received {
    /// Bytes of it in the buffer; longer ones were cut.
    pub(crate) len: usize,
    /// Who sent it, where the kernel vouches for it.
    pub(crate) uid: Option<u32>,
    /// Descriptors that came along.
    pub(crate) passed: Vec<OwnedFd>,
}

/// Receives one datagram from a Unix socket with `SO_PASSCRED` set.
pub(crate) fn receive_with(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero is an empty message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: buffer and control data are as long as the message says, and outlive the call.
    let len = checked_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, flags) })?;
    let mut received = Received {
        len,
        uid: None,
        passed: Vec::new(),
    };
    // SAFETY: the kernel has filled the control buffer up to `msg_controllen`; the macros stay
    // within it, and the lengths tell how much data each header has.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while let Some(control) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    received.uid = Some(data.cast::<libc::ucred>().read_unaligned().uid);
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let bytes = control.cmsg_len - libc::CMSG_LEN(0) as usize;
                    for i in 0..bytes / size_of::<RawFd>() {
                        let fd = data.cast::<RawFd>().add(i).read_unaligned();
                        received.passed.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok(received)
}

/// Sends a UDP datagram from `fd`.
pub(crate) fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], to: &Address) -> io::Result<()> {
    // SAFETY: bytes and address are as long as stated.
    let result = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            to.as_ptr(),
            to.len(),
        )
    };
    checked_len(result).map(drop)
}

/// Waits until one of `fds` is readable; false when `timeout` has passed.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = c_int::try_from(timeout.as_millis().max(1)).unwrap_or(c_int::MAX);
    // SAFETY: the array is as long as stated.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) > 0 }
}

/// A set of descriptors to wait on, itself a descriptor.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Adds `fd` to `set`, level-triggered for reading, under `token`.
pub(crate) fn epoll_add(set: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: token,
    };
    let (set, fd) = (set.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the kernel reads the event.
    checked(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
}

/// The tokens of descriptors in `set` that are readable now; does not wait.
pub(crate) fn epoll_ready(set: BorrowedFd<'_>, tokens: &mut [u64; 16]) -> usize {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: the array is as long as stated.
    let count = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), 16, 0) };
    let count = usize::try_from(count).unwrap_or(0);
    for (token, event) in tokens.iter_mut().zip(&events[..count]) {
        *token = event.u64;
    }
    count
}

/// A descriptor that becomes readable when a timer expires.
pub(crate) fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: no memory involved.
    owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })
}

/// Makes `timer` expire once, after `delay`; never where that is zero.
pub(crate) fn set_timer(timer: BorrowedFd<'_>, delay: Duration) {
    let value = libc::timespec {
        tv_sec: libc::time_t::try_from(delay.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: delay.subsec_nanos().into(),
    };
    let interval = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let spec = libc::itimerspec {
        it_interval: interval,
        it_value: value,
    };
    // SAFETY: the kernel reads the specification.
    unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &spec, core::ptr::null_mut()) };
}

/// Takes note that `timer` has expired: it is not readable any more.
pub(crate) fn clear_timer(timer: BorrowedFd<'_>) {
    let mut expirations = 0u64;
    let out = (&raw mut expirations).cast();
    // SAFETY: the kernel writes 8 bytes.
    unsafe { libc::read(timer.as_raw_fd(), out, 8) };
}

/// The news that addresses have come or gone, of both families (`RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV6_IFADDR`).
pub(crate) const ADDRESS_NEWS: u32 = 0x10 | 0x100;

/// A socket to ask the kernel about interfaces, addresses or routes of this thread's network
/// namespace, or to hear the `news`.
pub(crate) fn netlink(news: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory involved.
    let socket = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: all-zero is an address.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = news;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is as long as stated.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket)
}

/// Throws away what has arrived at `fd`; whether there was anything.
pub(crate) fn drain(fd: BorrowedFd<'_>) -> bool {
    let mut buffer = [0u8; 64];
    let mut any = false;
    // Bounded, should more come without end.
    for _ in 0..1024 {
        let (out, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the buffer is as long as stated; what is longer is cut.
        let received = unsafe { libc::recv(fd.as_raw_fd(), out, len, libc::MSG_DONTWAIT) };
        if received < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
            break;
        }
        // Also an overflow says that there was something.
        any = true;
    }
    any
}

/// Asks the kernel about interfaces, addresses or routes, through a socket made for it. Hands every
/// datagram of the answer to `answer`, which returns whether more is expected.
pub(crate) fn ask_netlink(
    socket: BorrowedFd<'_>,
    question: &[u8],
    mut answer: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    // SAFETY: the question is as long as stated.
    checked_len(unsafe { libc::send(fd, question.as_ptr().cast(), question.len(), 0) })?;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        // SAFETY: the buffer is as long as stated.
        let len =
            checked_len(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) })?;
        if !answer(&buffer[..len]) {
            return Ok(());
        }
    }
}

/// Asks an interface's driver something; the question's first word is the command, and the answer
/// replaces it.
fn ethtool(interface: &str, question: &mut [u32]) -> io::Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        data: *mut u32,
        rest: [u64; 2],
    }
    let socket = socket(libc::AF_INET)?;
    let mut name = [0; libc::IFNAMSIZ];
    let len = interface.len().min(name.len() - 1);
    name[..len].copy_from_slice(&interface.as_bytes()[..len]);
    let mut request = Request {
        name,
        data: question.as_mut_ptr(),
        rest: [0; 2],
    };
    // SAFETY: the request has the layout of `struct ifreq`. The callers below ask questions whose
    // answers, as the kernel documents, fit what they passed.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).map(drop)
}

/// The speed of an interface's link in Mb/s, where its driver knows.
pub(crate) fn link_speed(interface: &str) -> Option<u32> {
    const GET_LINK_SETTINGS: u32 = 0x4c;
    const WORDS: usize = 12;
    const SPEED: usize = 1;
    const MASK_WORDS: usize = 3;
    // Three masks of at most 127 words follow the settings.
    let mut question = [0; WORDS + 3 * 127];
    question[0] = GET_LINK_SETTINGS;
    // The first answer is how long the masks are, as a negative number.
    ethtool(interface, &mut question).ok()?;
    let words = question[MASK_WORDS].to_ne_bytes()[3]
        .cast_signed()
        .checked_neg()?;
    question = [0; WORDS + 3 * 127];
    question[0] = GET_LINK_SETTINGS;
    question[MASK_WORDS] = u32::from_ne_bytes([0, 0, 0, words.cast_unsigned()]);
    ethtool(interface, &mut question).ok()?;
    Some(question[SPEED]).filter(|speed| !matches!(*speed, 0 | u32::MAX))
}

/// Whether a feature of an interface, by the name that `ethtool -k` prints, is on. `None` where the
/// driver does not tell.
pub(crate) fn interface_feature(interface: &str, feature: &str) -> Option<bool> {
    const GET_SET_INFO: u32 = 0x37;
    const GET_STRINGS: u32 = 0x1b;
    const GET_FEATURES: u32 = 0x3a;
    const FEATURES: u32 = 4;
    const STRING_WORDS: usize = 8;
    let mut info = [GET_SET_INFO, 0, 1 << FEATURES, 0, 0];
    ethtool(interface, &mut info).ok()?;
    let count = usize::try_from(info[4])
        .ok()
        .filter(|count| *count <= 1024)?;
    let mut strings = vec![0; 3 + count * STRING_WORDS];
    strings[..3].copy_from_slice(&[GET_STRINGS, FEATURES, info[4]]);
    ethtool(interface, &mut strings).ok()?;
    let index = strings[3..].chunks(STRING_WORDS).position(|words| {
        let name: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        name.split(|byte| *byte == 0).next() == Some(feature.as_bytes())
    })?;
    // Each 32 features take four words: available, requested, active, fixed.
    let blocks = count.div_ceil(32);
    let mut features = vec![0; 2 + 4 * blocks];
    features[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
    ethtool(interface, &mut features).ok()?;
    Some(features[2 + 4 * (index / 32) + 2] >> (index % 32) & 1 != 0)
}

/// Nanoseconds of a clock that all processes of the host share and that never goes back.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Keeps the application's signals away from the calling thread, which is one of ours. Those that a
/// thread raises itself stay: a fault in user memory must reach its handler, and a synchronous signal
/// that is blocked kills the process.
pub(crate) fn block_signals() {
    // SAFETY: all-zero is a valid set to fill.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigfillset(&mut set);
        for own in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(&mut set, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut());
    }
}

/// Asks for time slices of `length` for the calling thread, 100 µs to 100 ms, or the usual ones
/// (Linux 6.12 and later; before, nothing changes). Woken, a thread need not wait for the end of a
/// longer slice of another.
pub(crate) fn prefer_slices(length: Option<Duration>) {
    /// `struct sched_attr` of `sched_setattr(2)`, which the libc crate does not have.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// Nanoseconds of a slice, for ordinary threads.
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    /// `SCHED_FLAG_KEEP_POLICY`.
    const KEEP_POLICY: u64 = 0x08;
    // SAFETY: no memory involved.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: 0,
        flags: KEEP_POLICY,
        nice,
        priority: 0,
        runtime: length.map_or(0, |length| length.as_nanos() as u64),
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads the structure, which says how long it is.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// The effective user id.
pub(crate) fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Random bytes that others cannot guess, from the kernel.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the kernel writes at most 8 bytes. It never gives fewer of so few.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}

/// Has `job` called when the process exits in good order.
pub(crate) fn at_exit(job: extern "C" fn()) {
    // SAFETY: a function of this program, which is there as long as it runs. Without memory to note it,
    // it is not called.
    unsafe { libc::atexit(job) };
}

/// The inode number of what `fd` refers to; 0 where unknown. The open file of a socket has the same
/// one in every process.
pub(crate) fn inode(fd: BorrowedFd<'_>) -> u64 {
    status(fd.as_raw_fd()).map_or(0, |status| status.st_ino)
}

fn status(fd: RawFd) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills `status` when it returns 0.
    unsafe { (libc::fstat(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}

/// Closes the descriptor with number `fd` if it still refers to `inode`.
///
/// For a forked child, which owns copies of descriptors that no value of this process speaks for
/// any more: they belong to threads of the parent.
pub(crate) fn close_if_inode(fd: RawFd, inode: u64) {
    if status(fd).is_some_and(|status| status.st_ino == inode) {
        // SAFETY: it is the copy of a descriptor of ours, and nothing in this process uses it:
        // every entry point has returned an error before it would.
        unsafe { libc::close(fd) };
    }
}

/// A page that is wiped in forked children, or null before [`set_fork_mark`].
static FORK_PAGE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Where the kernel cannot wipe pages: the process that set the mark.
static FORK_PROCESS: AtomicI32 = AtomicI32::new(0);

/// Marks this process.
pub(crate) fn set_fork_mark() {
    if !FORK_PAGE.load(Ordering::Acquire).is_null() || FORK_PROCESS.load(Ordering::Relaxed) != 0 {
        return;
    }
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANON,
    );
    // SAFETY: a fresh mapping where the kernel likes, of one page.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), 4096, access, flags, -1, 0) };
    // SAFETY: the page is ours.
    let wiped = page != libc::MAP_FAILED
        && unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } == 0;
    if !wiped {
        // SAFETY: no preconditions.
        FORK_PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        return;
    }
    let page = page.cast::<u8>();
    // SAFETY: the page is writable and ours.
    unsafe { page.write_volatile(1) };
    let null = core::ptr::null_mut();
    if FORK_PAGE
        .compare_exchange(null, page, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: another thread was first; nobody knows this page.
        unsafe { libc::munmap(page.cast(), 4096) };
    }
}

/// Marks the forked child of a process that was marked.
pub(crate) fn renew_fork_mark() {
    let page = FORK_PAGE.load(Ordering::Acquire);
    if page.is_null() {
        // SAFETY: no preconditions.
        FORK_PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    } else {
        // SAFETY: the page is writable, and never unmapped.
        unsafe { page.write_volatile(1) };
    }
}

/// Whether this is still the process that set the mark, or no mark was set.
#[inline]
pub(crate) fn fork_mark_is_intact() -> bool {
    let page = FORK_PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: the page is never unmapped.
        return unsafe { page.read_volatile() } == 1;
    }
    let process = FORK_PROCESS.load(Ordering::Relaxed);
    // SAFETY: no preconditions.
    process == 0 || process == unsafe { libc::getpid() }
}

/// A file in memory that other processes find among our descriptors by its name.
pub(crate) fn memory_file(name: &str) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name).map_err(io::Error::from)?;
    // SAFETY: the name ends with a zero and outlives the call.
    owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })
}

/// A counter that is readable while it is not zero; reading takes it back to zero.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Whether descriptor number `fd` is open.
#[cfg(test)]
pub(crate) fn is_open(fd: RawFd) -> bool {
    status(fd).is_some()
}

/// Makes number `fd` refer to what `other` refers to.
#[cfg(test)]
pub(crate) fn replace(fd: RawFd, other: RawFd) {
    // SAFETY: only called in a child that is about to exit.
    unsafe { libc::dup2(other, fd) };
}

/// Runs `child` in a forked child and returns its exit code. `child` must not allocate.
#[cfg(test)]
pub(crate) fn in_forked_child(child: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the child runs async-signal-safe code only, then exits without running destructors.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(child());
        }
        assert!(pid > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            -status
        }
    }
}
