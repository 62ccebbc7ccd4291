//! Which process a packet belongs to: blocks of queue pair numbers, and the classic BPF program by
//! which the kernel picks the owner's socket (`SO_ATTACH_REUSEPORT_CBPF`, no privilege needed).
//!
//! The upper ten bits of a QPN are its block. A process owns whole blocks, so ownership is a shift:
//!
//! | block | owner |
//! | --- | --- |
//! | 0 | nobody; QP 0, QP 1 and the rest of the block go to the common socket, which all members read |
//! | 1 to 511 | the member in that seat, through a socket of its own |
//! | 512 to 1021 | a process without a socket of its own: the common socket's readers forward |
//! | 1022 | probes: the low bits name a position in the group, so that a socket can learn its own |
//! | 1023 | nobody; holds the multicast QPN 0xFFFFFF |

use libc::sock_filter;

use hirail_wire::Qpn;

/// Bits of a QPN within its block.
pub(super) const BLOCK_BITS: u32 = 14;

/// A block of 16384 queue pair numbers, owned by one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QpnBlock(u16);

impl QpnBlock {
    /// The block of no owner.
    pub(super) const COMMON: Self = Self(0);
    /// Blocks of processes with a socket of their own.
    pub(super) const SEATS: core::ops::Range<u16> = 1..512;
    /// Blocks of processes that others forward to.
    pub(super) const FORWARDED: core::ops::Range<u16> = 512..1022;
    const PROBES: Self = Self(1022);

    /// The block with this number.
    pub(super) const fn new(number: u16) -> Self {
        Self(number & 0x3ff)
    }

    /// The block of a queue pair number.
    pub const fn of(qpn: Qpn) -> Self {
        Self((qpn.value() >> BLOCK_BITS) as u16)
    }

    /// Its number, 0 to 1023: the upper ten bits of its queue pair numbers.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The numbers that queue pairs may have. The first one of the block stays free for probes.
    pub fn qpns(self) -> core::ops::Range<u32> {
        let first = u32::from(self.0) << BLOCK_BITS;
        first + 1..first + (1 << BLOCK_BITS)
    }

    /// The number to which probes of this block's route go.
    pub(super) const fn probe(self) -> Qpn {
        Qpn::new((self.0 as u32) << BLOCK_BITS)
    }
}

/// The number to which a probe of a position in the group goes.
pub(super) const fn position_probe(position: u16) -> Qpn {
    Qpn::new(((QpnBlock::PROBES.0 as u32) << BLOCK_BITS) | position as u32)
}

/// The position that a probe's destination names, if it is one.
pub(super) fn probed_position(qpn: Qpn) -> Option<u16> {
    (QpnBlock::of(qpn) == QpnBlock::PROBES).then(|| (qpn.value() & ((1 << BLOCK_BITS) - 1)) as u16)
}

/// The destination QP of the packet in `ib`, which begins with its BTH.
#[inline]
pub(super) fn dest_qp(ib: &[u8]) -> Option<Qpn> {
    let [.., a, b, c] = ib.first_chunk::<8>()?;
    Some(Qpn::new(u32::from_be_bytes([0, *a, *b, *c])))
}

/// The program for a group whose common socket is at position `common`. The socket of a seat is at
/// the position of its number, unless `moved` says (block, position).
///
/// The program sees the UDP payload, which begins with the BTH. A position that does not exist makes
/// the kernel choose by hash; whoever gets the packet then forwards it.
pub(super) fn program(common: u16, moved: &[(QpnBlock, u16)]) -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const SHIFT_RIGHT: u16 = 0x74;
    const IF_EQUAL: u16 = 0x15;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN_A: u16 = 0x16;
    const RETURN: u16 = 0x06;
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let go_common = op(RETURN, 0, 0, common.into());

    let mut program = vec![
        op(LOAD, 0, 0, 4),
        op(AND, 0, 0, 0x00ff_ffff),
        op(IF_AT_LEAST, 0, 4, position_probe(0).value()),
        op(
            IF_AT_LEAST,
            2,
            0,
            (u32::from(QpnBlock::PROBES.0) + 1) << BLOCK_BITS,
        ),
        op(AND, 0, 0, (1 << BLOCK_BITS) - 1),
        op(RETURN_A, 0, 0, 0),
        go_common,
        op(SHIFT_RIGHT, 0, 0, BLOCK_BITS),
    ];
    for (block, position) in moved {
        program.push(op(IF_EQUAL, 0, 1, block.0.into()));
        program.push(op(RETURN, 0, 0, (*position).into()));
    }
    program.extend([
        op(IF_EQUAL, 1, 0, 0),
        op(IF_AT_LEAST, 0, 1, QpnBlock::SEATS.end.into()),
        go_common,
        op(RETURN_A, 0, 0, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with such a program.
    fn run(program: &[sock_filter], qpn: u32) -> u32 {
        let packet = [
            &[0x64, 0, 0xff, 0xff][..],
            &(qpn | 0x4000_0000).to_be_bytes(),
        ]
        .concat();
        let (mut a, mut at) = (0u32, 0);
        loop {
            let op = program[at];
            at += 1;
            let jump = |yes: bool| usize::from(if yes { op.jt } else { op.jf });
            match op.code {
                0x20 => {
                    let at = op.k as usize;
                    a = u32::from_be_bytes(packet[at..at + 4].try_into().expect("in the packet"));
                }
                0x54 => a &= op.k,
                0x74 => a >>= op.k,
                0x15 => at += jump(a == op.k),
                0x35 => at += jump(a >= op.k),
                0x16 => return a,
                0x06 => return op.k,
                code => panic!("{code:#x}"),
            }
        }
    }

    #[test]
    fn every_block_has_its_socket() {
        let program = program(7, &[(QpnBlock::new(3), 9), (QpnBlock::new(511), 1)]);
        for block in 0..1024u16 {
            let expected = match block {
                3 => 9,
                511 => 1,
                1..511 => block,
                _ => 7,
            };
            let qpns = QpnBlock::new(block).qpns();
            for qpn in [qpns.start - 1, qpns.start, qpns.end - 1] {
                if block != 1022 {
                    assert_eq!(run(&program, qpn), u32::from(expected), "{qpn:#x}");
                    assert_eq!(probed_position(Qpn::new(qpn)), None);
                }
                assert_eq!(QpnBlock::of(Qpn::new(qpn)).number(), block);
            }
        }
        for position in [0, 1, 5, 1023] {
            assert_eq!(
                run(&program, position_probe(position).value()),
                u32::from(position)
            );
            assert_eq!(probed_position(position_probe(position)), Some(position));
        }
        assert_eq!(run(&program, Qpn::GSI.value()), 7);
        assert_eq!(run(&program, Qpn::MULTICAST.value()), 7);
    }

    #[test]
    fn destination_of_a_packet() {
        assert_eq!(
            dest_qp(&[4, 0, 0xff, 0xff, 0x40, 1, 2, 3, 0]),
            Some(Qpn::new(0x01_0203))
        );
        assert_eq!(dest_qp(&[4; 7]), None);
    }
}
