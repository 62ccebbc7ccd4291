//! UDP headers of RoCE v2, and the source port that spreads QPs over equal paths
//! (IBTA Vol 1, annex A17, RoCEv2).

use crate::ip::{IpHeader, low_u16};
use crate::{ParseError, Qpn};

/// The destination port of every RoCE v2 packet.
pub const ROCE_PORT: u16 = 4791;

/// UDP header, 8 bytes. The length belongs to the packet and is made when it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpHeader {
    /// Source port; entropy for ECMP, 0xc000 to 0xffff by convention.
    pub source_port: u16,
    /// Destination port.
    pub dest_port: u16,
    /// Checksum; 0 where there is none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header at the start of a UDP packet. Returns it and its payload. The checksum is
    /// not looked at ([`checksum_is_right`](Self::checksum_is_right) does).
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((&[s0, s1, d0, d1, l0, l1, c0, c1], rest)) = packet.split_first_chunk::<8>()
        else {
            return Err(ParseError::truncated(Self::LEN, packet.len()));
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let payload = length
            .checked_sub(Self::LEN)
            .and_then(|length| rest.get(..length));
        let Some(payload) = payload else {
            return Err(ParseError::BadLength {
                field: length,
                room: packet.len(),
            });
        };
        let header = Self {
            source_port: u16::from_be_bytes([s0, s1]),
            dest_port: u16::from_be_bytes([d0, d1]),
            checksum: u16::from_be_bytes([c0, c1]),
        };
        Ok((header, payload))
    }

    /// The bytes on the wire in front of `payload_len` bytes. The length is taken modulo 2^16.
    #[inline]
    pub fn to_bytes(self, payload_len: usize) -> [u8; Self::LEN] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.dest_port.to_be_bytes();
        let [l0, l1] = low_u16(Self::LEN.wrapping_add(payload_len)).to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, c0, c1]
    }

    /// The same with the right checksum for `payload` under `ip`.
    #[must_use]
    pub fn with_checksum(self, ip: &IpHeader, payload: &[u8]) -> Self {
        let bare = Self {
            checksum: 0,
            ..self
        };
        let sum = ip
            .pseudo_header(Self::LEN + payload.len())
            .add(&bare.to_bytes(payload.len()))
            .add(payload);
        // 0 means absent; 0xffff is the other zero of one's complement.
        let checksum = if sum.checksum() == 0 {
            0xffff
        } else {
            sum.checksum()
        };
        Self { checksum, ..self }
    }

    /// Whether the checksum is right for `payload` under `ip`; `None` where there is none.
    pub fn checksum_is_right(self, ip: &IpHeader, payload: &[u8]) -> Option<bool> {
        (self.checksum != 0).then(|| self.with_checksum(ip, payload).checksum == self.checksum)
    }
}

/// The source port that Linux takes for a flow label of 20 bits.
pub const fn source_port_of_flow_label(flow_label: u32) -> u16 {
    let mixed = (flow_label & 0x3fff) ^ (flow_label >> 14 & 0x3f);
    let [low, high, ..] = (mixed | 0xc000).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// The flow label that Linux takes for a connection without one. Both ends get the same.
pub const fn flow_label_of_qpns(local: Qpn, remote: Qpn) -> u32 {
    let mut mixed = local.value() as u64 * remote.value() as u64;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    let [a, b, c, ..] = mixed.to_le_bytes();
    u32::from_le_bytes([a, b, c & 0x0f, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Linux's rule (`rdma_get_udp_sport`).
    #[test]
    fn source_ports_of_linux() {
        assert_eq!(source_port_of_flow_label(0x12345), 0xe341);
        for (local, remote, label, port) in [
            (0x12, 0x34, 0x003a8, 0xc3a8),
            (0xab_cdef, 0x12_3456, 0xac3e3, 0xc3c8),
        ] {
            let (local, remote) = (Qpn::new(local), Qpn::new(remote));
            assert_eq!(flow_label_of_qpns(local, remote), label);
            assert_eq!(flow_label_of_qpns(remote, local), label);
            assert_eq!(source_port_of_flow_label(label), port);
        }
    }
}
