//! Which frames the kernel gives to a raw port: a classic BPF program on the packet socket.
//!
//! RoCE of both versions that is addressed to this station, of one VLAN, and for a queue pair that
//! may be this process's: every process on the interface sees every frame, so the program throws
//! away those of others before they cost anything. What is too short to name a queue pair passes, to
//! be refused and counted.

use libc::{SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG, sock_filter};

use hirail_wire::Qpn;
use hirail_wire::ethernet::EtherType;
use hirail_wire::udp::ROCE_PORT;

use crate::port::steering::{BLOCK_BITS, QpnBlock};

const LOAD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_LENGTH: u16 = 0x80;
/// Into the index register: four times the low half of a byte, the length of an IPv4 header.
const LOAD_IPV4_LENGTH: u16 = 0xb1;
const LOAD_HALF_INDEXED: u16 = 0x48;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Bytes that the kernel shall keep of a frame that passes: all.
const WHOLE: u32 = 0xffff_ffff;

/// From here on the kernel's classification is not "to this station": to another one, or outgoing.
const OTHER_STATION: u32 = 3;

// Places in a frame whose tag the kernel has taken off.
const ETHER_TYPE: u32 = 12;
const IP: u32 = 14;

/// The program for queue pairs of `block` and what belongs to everybody (QP 1, multicast, numbers
/// that nobody owns), in `vlan`; untagged frames are those of VLAN 0.
pub(crate) fn program(block: QpnBlock, vlan: u16) -> Vec<sock_filter> {
    let mut program = vec![
        load(LOAD_HALF, ancillary(SKF_AD_VLAN_TAG)),
        load(AND, 0xfff),
        jump(IF_EQUAL, vlan.into(), 1, 0),
        load(RETURN, 0),
        load(LOAD_BYTE, ancillary(SKF_AD_PKTTYPE)),
        jump(IF_AT_LEAST, OTHER_STATION, 0, 1),
        load(RETURN, 0),
    ];
    let v1 = concern(block, IP + 40);
    let v4 = [
        vec![
            load(LOAD_BYTE, IP + 9),
            jump(IF_EQUAL, 17, 1, 0),
            load(RETURN, 0),
            // Fragments but the first have no ports.
            load(LOAD_HALF, IP + 6),
            jump(IF_ANY_BIT, 0x1fff, 0, 1),
            load(RETURN, 0),
            load(LOAD_IPV4_LENGTH, IP),
            load(LOAD_HALF_INDEXED, IP + 2),
            jump(IF_EQUAL, ROCE_PORT.into(), 1, 0),
            load(RETURN, 0),
            // Options are not allowed: to be counted.
            load(LOAD_BYTE, IP),
            jump(IF_EQUAL, 0x45, 1, 0),
            load(RETURN, WHOLE),
        ],
        concern(block, IP + 20 + 8),
    ]
    .concat();
    let v6 = [
        vec![
            load(LOAD_BYTE, IP + 6),
            jump(IF_EQUAL, 17, 1, 0),
            load(RETURN, 0),
            load(LOAD_HALF, IP + 40 + 2),
            jump(IF_EQUAL, ROCE_PORT.into(), 1, 0),
            load(RETURN, 0),
        ],
        concern(block, IP + 40 + 8),
    ]
    .concat();
    let kinds = [
        (EtherType::ROCE_V1, v1),
        (EtherType::IPV4, v4),
        (EtherType::IPV6, v6),
    ];
    program.push(load(LOAD_HALF, ETHER_TYPE));
    for (ether_type, part) in kinds {
        let length = u8::try_from(part.len()).expect("parts are short");
        program.push(jump(IF_EQUAL, ether_type.0.into(), 0, length));
        program.extend(part);
    }
    program.push(load(RETURN, 0));
    program
}

/// Passes what may concern the owner of `block`; the BTH is at `bth`.
fn concern(block: QpnBlock, bth: u32) -> Vec<sock_filter> {
    let multicast = QpnBlock::of(Qpn::MULTICAST);
    vec![
        load(LOAD_LENGTH, 0),
        jump(IF_AT_LEAST, bth + 8, 0, 6),
        load(LOAD, bth + 4),
        load(AND, 0x00ff_ffff),
        load(SHIFT_RIGHT, BLOCK_BITS),
        jump(IF_EQUAL, block.number().into(), 2, 0),
        jump(IF_EQUAL, QpnBlock::COMMON.number().into(), 1, 0),
        jump(IF_EQUAL, multicast.number().into(), 0, 1),
        load(RETURN, WHOLE),
        load(RETURN, 0),
    ]
}

/// Something that the kernel knows about a frame besides its bytes.
const fn ancillary(what: i32) -> u32 {
    (SKF_AD_OFF + what).cast_unsigned()
}

const fn load(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use hirail_wire::ethernet::MacAddr;
    use hirail_wire::grh::Grh;
    use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header};
    use hirail_wire::{
        Bth, Encapsulation, Ext, Framing, Gid, Headers, Opcode, Operation, Psn, Service,
    };

    /// What the kernel does with the program, for a frame with these ancillary values.
    fn passes(program: &[sock_filter], frame: &[u8], packet_type: u32, tag: u32) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0);
        let word = |at: u32, len: usize| -> Option<u32> {
            let at = at as usize;
            let bytes = frame.get(at..at + len)?;
            Some(
                bytes
                    .iter()
                    .fold(0, |word, byte| word << 8 | u32::from(*byte)),
            )
        };
        loop {
            let op = program[at];
            at += 1;
            let go = |yes: bool| usize::from(if yes { op.jt } else { op.jf });
            // Outside of the frame the kernel drops.
            let loaded = match op.code {
                LOAD_HALF if op.k == ancillary(SKF_AD_VLAN_TAG) => Some(tag),
                LOAD_BYTE if op.k == ancillary(SKF_AD_PKTTYPE) => Some(packet_type),
                LOAD_LENGTH => Some(frame.len() as u32),
                LOAD => word(op.k, 4),
                LOAD_HALF => word(op.k, 2),
                LOAD_BYTE => word(op.k, 1),
                LOAD_HALF_INDEXED => word(op.k + x, 2),
                LOAD_IPV4_LENGTH => {
                    let Some(byte) = word(op.k, 1) else {
                        return false;
                    };
                    x = 4 * (byte & 15);
                    continue;
                }
                AND => Some(a & op.k),
                SHIFT_RIGHT => Some(a >> op.k),
                IF_EQUAL => {
                    at += go(a == op.k);
                    continue;
                }
                IF_AT_LEAST => {
                    at += go(a >= op.k);
                    continue;
                }
                IF_ANY_BIT => {
                    at += go(a & op.k != 0);
                    continue;
                }
                RETURN => return op.k != 0,
                code => panic!("{code:#x}"),
            };
            let Some(loaded) = loaded else { return false };
            a = loaded;
        }
    }

    fn framings() -> [Framing; 3] {
        let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::LOCALHOST);
        [
            Framing::V1(Grh {
                traffic_class: 0,
                flow_label: 0,
                hop_limit: 64,
                sgid: Gid::from(v6),
                dgid: Gid::from(v6),
            }),
            Framing::V2 {
                ip: IpHeader::V4(Ipv4Header {
                    traffic_class: 0,
                    id: 0,
                    dont_fragment: true,
                    ttl: 64,
                    protocol: 17,
                    source: v4,
                    dest: v4,
                }),
                source_port: 0xc000,
                udp_checksum: false,
            },
            Framing::V2 {
                ip: IpHeader::V6(Ipv6Header {
                    traffic_class: 0,
                    flow_label: 0,
                    next_header: 17,
                    hop_limit: 64,
                    source: v6,
                    dest: v6,
                }),
                source_port: 0xc000,
                udp_checksum: false,
            },
        ]
    }

    fn frame(framing: Framing, qpn: Qpn) -> Vec<u8> {
        let opcode = Opcode::new(Service::Rc, Operation::SendOnly).expect("exists");
        let mut bth = Bth::new(opcode, qpn, Psn::new(5));
        bth.fecn = true;
        let headers = Headers::new(bth, None, Ext::None).expect("valid");
        let encapsulation = Encapsulation {
            dest: MacAddr([2, 0, 0, 0, 0, 1]),
            source: MacAddr([2, 0, 0, 0, 0, 2]),
            tag: None,
            framing,
        };
        let mut frame = vec![0; 200];
        let len = encapsulation.emit_frame(&headers, &[1, 2, 3], &mut frame);
        frame.truncate(len);
        frame
    }

    #[test]
    fn queue_pairs_of_this_process_and_of_nobody() {
        let block = QpnBlock::new(7);
        let program = program(block, 0);
        for framing in framings() {
            for number in 0..1024u16 {
                let qpn = Qpn::new(u32::from(number) << BLOCK_BITS | 0x123);
                let expected = matches!(number, 0 | 7 | 1023);
                let frame = frame(framing, qpn);
                assert_eq!(
                    passes(&program, &frame, 0, 0),
                    expected,
                    "{framing:?} {qpn:?}"
                );
            }
            for qpn in [Qpn::GSI, Qpn::MULTICAST] {
                assert!(passes(&program, &frame(framing, qpn), 2, 0));
            }
        }
    }

    #[test]
    fn other_stations_and_vlans() {
        let block = QpnBlock::new(7);
        let qpn = Qpn::new(block.qpns().start);
        for framing in framings() {
            let frame = frame(framing, qpn);
            for vlan in [0, 5] {
                let program = program(block, vlan);
                for tag in [0, 5, 0x6000, 0x6005, 0x1006] {
                    let expected = tag & 0xfff == u32::from(vlan);
                    assert_eq!(passes(&program, &frame, 0, tag), expected);
                    assert!(!passes(&program, &frame, 3, tag), "of another station");
                    assert!(!passes(&program, &frame, 4, tag), "outgoing");
                }
            }
        }
    }

    /// Whatever is no RoCE is none of ours; what is broken RoCE is there to be counted.
    #[test]
    fn strangers_and_broken_packets() {
        let block = QpnBlock::new(7);
        let program = program(block, 0);
        let [v1, v4, v6] = framings().map(|framing| frame(framing, Qpn::new(block.qpns().start)));
        for (good, ports_at) in [(&v1, None), (&v4, Some(34)), (&v6, Some(54))] {
            // Cut anywhere behind the ports, it passes.
            for len in 0..good.len() {
                let expected = ports_at.map_or(len >= 14, |at| len >= at + 4);
                assert_eq!(passes(&program, &good[..len], 0, 0), expected, "{len}");
            }
            if let Some(at) = ports_at {
                let mut other = good.clone();
                other[at + 3] ^= 1;
                assert!(!passes(&program, &other, 0, 0), "another port");
                let mut other = good.clone();
                other[if at == 34 { 23 } else { 20 }] = 6;
                assert!(!passes(&program, &other, 0, 0), "another protocol");
            }
            let mut other = good.clone();
            other[13] ^= 1;
            assert!(!passes(&program, &other, 0, 0), "another EtherType");
        }
        let mut options = v4.clone();
        options[14] = 0x46;
        options.splice(34..34, [1, 1, 1, 0]);
        assert!(passes(&program, &options, 0, 0));
        let mut fragment = v4.clone();
        fragment[21] = 8;
        assert!(!passes(&program, &fragment, 0, 0));
        let mut first_fragment = v4;
        first_fragment[20] = 0x20;
        assert!(passes(&program, &first_fragment, 0, 0));
        // The kernel wants jumps that stay inside.
        for (at, op) in program.iter().enumerate() {
            if op.code & 7 == 5 {
                assert!(at + 1 + usize::from(op.jt.max(op.jf)) < program.len());
            }
        }
    }
}
