//! The port's sockets and their options.
//!
//! Receive sockets are bound to the wildcard address of their family: all processes then share one
//! `SO_REUSEPORT` group per family and network namespace, whatever addresses come and go. Transmit
//! sockets are *unconnected* and probe the path MTU (`IP_PMTUDISC_PROBE`): only then is the IPv4
//! Identification, which the ICRC covers, known before the kernel writes it (0, and n for the n-th
//! segment of a batch), and no ICMP message can make the kernel refuse packets.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{PortOptions, sys};
use crate::fork::Descriptor;

/// IP version of a socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6 only; IPv4-mapped addresses use the other.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn domain(self) -> c_int {
        match self {
            Self::V4 => libc::AF_INET,
            Self::V6 => libc::AF_INET6,
        }
    }

    const fn wildcard(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// The loopback address.
    pub(super) const fn loopback(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }
}

// Options that the libc crate does not name.
const IP_MULTICAST_ALL: c_int = 49;
const IPV6_MULTICAST_ALL: c_int = 29;

/// A socket bound to the port, at the end of the group's list.
pub(super) fn receive(family: Family, options: &PortOptions) -> io::Result<Descriptor> {
    let socket = sys::socket(family.domain())?;
    let fd = socket.as_fd();
    sys::set::<c_int>(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    if family == Family::V6 {
        sys::set::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    prepare_receive(fd, family, options)?;
    let address = SocketAddr::new(family.wildcard(), options.udp_port);
    sys::bind(fd, &sys::Address::ip(address))?;
    Ok(Descriptor::new(socket))
}

/// Sets everything but the binding: also for a socket that another process left.
pub(super) fn prepare_receive(
    fd: BorrowedFd<'_>,
    family: Family,
    options: &PortOptions,
) -> io::Result<()> {
    match family {
        Family::V4 => {
            for name in [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL] {
                sys::set::<c_int>(fd, libc::IPPROTO_IP, name, 1)?;
            }
            // Groups of others are none of our business.
            let _ = sys::set::<c_int>(fd, libc::IPPROTO_IP, IP_MULTICAST_ALL, 0);
        }
        Family::V6 => {
            for name in [
                libc::IPV6_RECVPKTINFO,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_RECVHOPLIMIT,
            ] {
                sys::set::<c_int>(fd, libc::IPPROTO_IPV6, name, 1)?;
            }
            let _ = sys::set::<c_int>(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
            // Cards and rxe leave the UDP checksum 0, for the ICRC; over IPv6 the kernel would drop
            // their packets.
            sys::set::<c_int>(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        }
    }
    let coalesce = c_int::from(options.coalescing);
    let coalesces = sys::set(fd, libc::SOL_UDP, libc::UDP_GRO, coalesce);
    if coalesces.is_err() && options.coalescing {
        // Linux before 5.0: one packet per receive.
    }
    set_buffer(
        fd,
        libc::SO_RCVBUFFORCE,
        libc::SO_RCVBUF,
        options.receive_buffer,
    );
    Ok(())
}

/// Whether packets arrive in batches here.
pub(super) fn coalesces(fd: BorrowedFd<'_>) -> bool {
    sys::get_int(fd, libc::SOL_UDP, libc::UDP_GRO).is_ok_and(|value| value != 0)
}

/// Bytes that the kernel buffers; it counts its own overhead too.
pub(super) fn receive_buffer(fd: BorrowedFd<'_>) -> usize {
    let bytes = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(0)
}

/// As much of `bytes` as the system allows: with privilege all, else up to its maximum.
pub(super) fn set_buffer(fd: BorrowedFd<'_>, force: c_int, polite: c_int, bytes: usize) {
    // The kernel doubles the number for its overhead.
    let bytes = c_int::try_from(bytes / 2).unwrap_or(c_int::MAX);
    if sys::set(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        let _ = sys::set(fd, libc::SOL_SOCKET, polite, bytes);
    }
}

/// First UDP source port of RoCE v2 by convention; the last is 0xFFFF.
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// Sockets per family: so many different paths may the packets of a process take through a fabric.
const POOL: usize = 64;
/// Source ports that a socket of the pool stands for.
const PORTS_PER_SOCKET: u16 = (0x4000 / POOL) as u16;

/// The sockets that packets leave from, each with a source port of its own, opened when needed.
/// Shared by all transmitters of a process.
#[derive(Debug)]
pub struct TransmitPool {
    send_buffer: usize,
    slots: [[OnceLock<TransmitSocket>; POOL]; 2],
    /// Serialises opening, so that no slot is opened twice.
    opening: Mutex<()>,
}

/// A socket of the pool.
#[derive(Debug)]
pub(super) struct TransmitSocket {
    pub(super) fd: Descriptor,
    pub(super) port: u16,
}

impl TransmitPool {
    pub(super) fn new(options: &PortOptions) -> Self {
        Self {
            send_buffer: options.send_buffer,
            slots: [const { [const { OnceLock::new() }; POOL] }; 2],
            opening: Mutex::new(()),
        }
    }

    /// The socket for packets whose flow hashes to `entropy`, the source port that a hardware RNIC
    /// would use. One flow always gets the same one: order within a flow depends on it.
    pub(super) fn socket(&self, family: Family, entropy: u16) -> io::Result<&TransmitSocket> {
        let index = usize::from(entropy.saturating_sub(FIRST_SOURCE_PORT)) % POOL;
        let slot = &self.slots[family.index()][index];
        if let Some(socket) = slot.get() {
            return Ok(socket);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = slot.get() {
            return Ok(socket);
        }
        let socket = open_transmit(family, index, self.send_buffer)?;
        Ok(slot.get_or_init(|| socket))
    }

    /// The UDP source port that packets of a flow leave with.
    pub fn source_port(&self, family: Family, entropy: u16) -> io::Result<u16> {
        self.socket(family, entropy).map(|socket| socket.port)
    }
}

fn open_transmit(family: Family, index: usize, send_buffer: usize) -> io::Result<TransmitSocket> {
    let socket = sys::socket(family.domain())?;
    let fd = socket.as_fd();
    match family {
        Family::V4 => {
            let probe: c_int = libc::IP_PMTUDISC_PROBE;
            sys::set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
        }
        Family::V6 => {
            sys::set::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            let probe: c_int = libc::IPV6_PMTUDISC_PROBE;
            sys::set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
        }
    }
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_buffer);
    // Replies come to the port, not here; whatever does come must not fill memory.
    sys::discard_all(fd)?;
    // Other programs may hold some of the ports: the range overlaps the ephemeral one.
    let first = FIRST_SOURCE_PORT + index as u16;
    let start = (sys::random() % u64::from(PORTS_PER_SOCKET)) as u16;
    let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..PORTS_PER_SOCKET {
        let port = first + (start + attempt) % PORTS_PER_SOCKET * POOL as u16;
        let address = SocketAddr::new(family.wildcard(), port);
        match sys::bind(fd, &sys::Address::ip(address)) {
            Ok(()) => {
                return Ok(TransmitSocket {
                    fd: Descriptor::new(socket),
                    port,
                });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Whether the kernel splits batches of packets (`UDP_SEGMENT`, Linux 4.18).
pub(super) fn segments() -> bool {
    sys::socket(libc::AF_INET).is_ok_and(|socket| {
        sys::set::<c_int>(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    /// What RNICs send, over both families.
    #[test]
    fn packets_without_udp_checksum_are_received() {
        for family in Family::ALL {
            let Ok(sender) = UdpSocket::bind((family.loopback(), 0)) else {
                println!("skipped: no {family:?} here");
                continue;
            };
            let (level, name) = match family {
                Family::V4 => (libc::SOL_SOCKET, libc::SO_NO_CHECK),
                Family::V6 => (libc::SOL_UDP, libc::UDP_NO_CHECK6_TX),
            };
            sys::set::<c_int>(sender.as_fd(), level, name, 1).expect("option");

            let options = PortOptions {
                udp_port: 0,
                ..PortOptions::default()
            };
            let receiver = receive(family, &options).expect("port");
            let receiver = receiver.as_fd().try_clone_to_owned().expect("descriptor");
            let receiver = UdpSocket::from(receiver);
            receiver.set_nonblocking(false).expect("option");
            let patience = Some(Duration::from_secs(5));
            receiver.set_read_timeout(patience).expect("option");
            let port = receiver.local_addr().expect("bound").port();

            sender
                .send_to(b"RoCE", (family.loopback(), port))
                .expect("sent");
            let mut bytes = [0; 8];
            assert_eq!(
                receiver.recv(&mut bytes).expect("received"),
                4,
                "{family:?}"
            );
        }
    }
}
