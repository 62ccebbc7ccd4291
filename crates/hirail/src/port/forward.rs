//! Datagrams that one process passes to another: those that the kernel gave to the wrong one.
//!
//! Every process has a Unix datagram socket under a name that ends with its block. Passing on never
//! waits: a process that is stopped or slow loses packets, as it would at its own UDP socket. A
//! receiver believes only its own user, root, and whoever holds the port, since a forwarded packet's
//! source address is only told.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::io;
use std::os::fd::AsFd;

use super::recv::Datagram;
use super::sys;
use crate::fork::Descriptor;

/// Bytes in front of the packets.
const HEADER: usize = 64;
/// Begins every message; the last byte is the version.
const MARK: [u8; 4] = *b"hrF\x01";
/// Most bytes of packets in a message.
pub(super) const MAX: usize = 65536;

/// Sends and receives forwarded datagrams.
#[derive(Debug)]
pub(super) struct Forwarder {
    socket: Descriptor,
}

/// Why a datagram was not passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Undelivered {
    /// Nobody has that name.
    NoOwner,
    /// The owner's queue is full.
    Full,
}

impl Forwarder {
    /// A forwarder that receives under `name`, or one that only sends.
    pub(super) fn new(name: Option<&str>) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_UNIX)?;
        sys::set::<i32>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        // Messages in flight are charged to the sender.
        let _ = sys::set::<i32>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 20);
        if let Some(name) = name {
            sys::bind(socket.as_fd(), &sys::Address::named(name))?;
        }
        Ok(Self {
            socket: Descriptor::new(socket),
        })
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.socket
    }

    /// Passes on packets that share everything but their bytes: `segment` bytes each, the last one
    /// maybe shorter.
    pub(super) fn pass(
        &self,
        name: &str,
        packets: &Datagram<'_>,
        segment: usize,
    ) -> Result<(), Undelivered> {
        let header = encode(packets, segment);
        let parts = [io::IoSlice::new(&header), io::IoSlice::new(packets.bytes)];
        let to = sys::Address::named(name);
        match sys::send_with(self.socket.as_fd(), &to, &parts, &[]) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {
                Err(Undelivered::NoOwner)
            }
            Err(_) => Err(Undelivered::Full),
        }
    }

    /// Receives one message into `buffer` and hands out its packets. `None` when there is none;
    /// false where it was not believed.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        trusts: impl Fn(u32) -> bool,
        mut f: impl FnMut(Datagram<'_>),
    ) -> Option<bool> {
        let received = sys::receive_with(self.socket.as_fd(), buffer).ok()?;
        if !received.uid.is_some_and(trusts) {
            return Some(false);
        }
        let Some((packets, segment)) = decode(&buffer[..received.len]) else {
            return Some(false);
        };
        for (place, bytes) in (0..).zip(packets.bytes.chunks(segment)) {
            f(Datagram {
                bytes,
                place,
                ..packets
            });
        }
        Some(true)
    }
}

fn encode(packets: &Datagram<'_>, segment: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let scope = match packets.source {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    header[..4].copy_from_slice(&MARK);
    header[4] = packets.traffic_class;
    header[5] = packets.hop_limit;
    header[6..8].copy_from_slice(&packets.source.port().to_ne_bytes());
    header[8..12].copy_from_slice(&packets.interface.to_ne_bytes());
    header[12..16].copy_from_slice(&(segment as u32).to_ne_bytes());
    header[16..32].copy_from_slice(&octets(packets.source.ip()));
    header[32..48].copy_from_slice(&octets(packets.destination));
    header[48..52].copy_from_slice(&scope.to_ne_bytes());
    header
}

fn decode(message: &[u8]) -> Option<(Datagram<'_>, usize)> {
    let (header, bytes) = message.split_first_chunk::<HEADER>()?;
    if header[..4] != MARK {
        return None;
    }
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let ip = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        let v6 = Ipv6Addr::from_octets(octets);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    };
    let port = u16::from_ne_bytes([header[6], header[7]]);
    let source = match ip(16) {
        IpAddr::V4(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, port, 0, word(48))),
    };
    let segment = usize::try_from(word(12))
        .ok()
        .filter(|segment| *segment > 0)?;
    let packets = Datagram {
        bytes,
        source,
        destination: ip(32),
        traffic_class: header[4],
        hop_limit: header[5],
        interface: word(8),
        place: 0,
    };
    Some((packets, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        let addresses = [
            ("192.0.2.1:49152", "192.0.2.2"),
            ("[2001:db8::1]:50000", "2001:db8::2"),
        ];
        for (source, destination) in addresses {
            let packets = Datagram {
                bytes: &[5; 30],
                source: source.parse().expect("address"),
                destination: destination.parse().expect("address"),
                traffic_class: 0x69,
                hop_limit: 63,
                interface: 7,
                place: 0,
            };
            let message = [&encode(&packets, 20)[..], packets.bytes].concat();
            assert_eq!(decode(&message), Some((packets, 20)));
            for cut in 0..HEADER {
                assert_eq!(decode(&message[..cut]), None);
            }
        }
        assert_eq!(decode(&[0; 80]), None);
    }
}
