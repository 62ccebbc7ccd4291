//! What stands in front of a datagram: on a UD queue pair who sends it, and by the kernel's UDP the
//! queue pair of who sends it.
//!
//! Source: `librdmacm/docs/rsocket` of rdma-core, "Datagram Overview".

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes in front of a datagram on a queue pair, by IPv4 and IPv6.
const SHORT: usize = 8;
const LONG: usize = 24;

/// The same on the way by the kernel.
const KERNEL_SHORT: usize = 16;
const KERNEL_LONG: usize = 28;

/// Marks what comes by the kernel.
const TAG: u32 = 0x5555_5555;

/// The sender of a datagram, in front of it (`struct ds_header`).
pub(super) fn encode(from: SocketAddr) -> Vec<u8> {
    let mut bytes = match from {
        SocketAddr::V4(_) => vec![4, SHORT as u8],
        SocketAddr::V6(_) => vec![6, LONG as u8],
    };
    bytes.extend(from.port().to_be_bytes());
    match from {
        SocketAddr::V4(v4) => bytes.extend(v4.ip().octets()),
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
        }
    }
    bytes
}

/// The sender, and what follows; nothing where that is no such datagram.
pub(super) fn decode(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match (bytes[0], usize::from(bytes[1])) {
        (4, SHORT) => {
            let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(((ip, port).into(), &bytes[SHORT..]))
        }
        (6, LONG) => {
            let flow = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let from = SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, 0);
            Some((from.into(), &bytes[LONG..]))
        }
        _ => None,
    }
}

/// What comes by the kernel is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The program.
    Data,
    /// Only the number of the queue pair is told.
    Answer,
}

/// The number of a queue pair, as it is told by the kernel's UDP (`struct ds_udp_header`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    pub(super) purpose: Purpose,
    pub(super) qpn: u32,
    /// The address of the queue pair.
    pub(super) ip: IpAddr,
}

impl Introduction {
    pub(super) fn encode(self) -> Vec<u8> {
        let (version, length) = match self.ip {
            IpAddr::V4(_) => (4, KERNEL_SHORT),
            IpAddr::V6(_) => (6, KERNEL_LONG),
        };
        let purpose = match self.purpose {
            Purpose::Data => 0,
            Purpose::Answer => 7,
        };
        let mut bytes = TAG.to_be_bytes().to_vec();
        bytes.extend([version, purpose, length as u8, 0]);
        bytes.extend((self.qpn & 0xff_ffff).to_be_bytes());
        match self.ip {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        if bytes.first_chunk() != Some(&TAG.to_be_bytes()) {
            return None;
        }
        let word = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        let purpose = match bytes[5] {
            0 => Purpose::Data,
            7 => Purpose::Answer,
            _ => return None,
        };
        let (ip, length): (IpAddr, _) = match (bytes[4], usize::from(bytes[6])) {
            (4, KERNEL_SHORT) => {
                let ip: [u8; 4] = *bytes.get(12..)?.first_chunk()?;
                (ip.into(), KERNEL_SHORT)
            }
            (6, KERNEL_LONG) => {
                let ip: [u8; 16] = *bytes.get(12..)?.first_chunk()?;
                (ip.into(), KERNEL_LONG)
            }
            _ => return None,
        };
        let qpn = word & 0xff_ffff;
        Some((Self { purpose, qpn, ip }, &bytes[length..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_comes_back() {
        for text in ["192.0.2.7:7174", "[2001:db8::7]:7174"] {
            let from: SocketAddr = text.parse().unwrap();
            let mut bytes = encode(from);
            bytes.extend(b"data");
            assert_eq!(decode(&bytes), Some((from, &b"data"[..])));
            for length in 0..bytes.len() - 4 {
                assert_eq!(decode(&bytes[..length]), None);
            }
            bytes[1] += 1;
            assert_eq!(decode(&bytes), None);
        }
        let bytes = encode("192.0.2.7:7174".parse().unwrap());
        assert_eq!(bytes, [4, 8, 0x1c, 0x06, 192, 0, 2, 7]);
    }

    #[test]
    fn an_introduction_comes_back() {
        for (ip, purpose) in [
            ("192.0.2.7", Purpose::Data),
            ("2001:db8::7", Purpose::Answer),
        ] {
            let said = Introduction {
                purpose,
                qpn: 0x12_3456,
                ip: ip.parse().unwrap(),
            };
            let mut bytes = said.encode();
            bytes.push(9);
            assert_eq!(Introduction::decode(&bytes), Some((said, &[9][..])));
            for length in 0..bytes.len() - 1 {
                assert_eq!(Introduction::decode(&bytes[..length]), None);
            }
            bytes[0] = 0;
            assert_eq!(Introduction::decode(&bytes), None);
        }
    }
}
