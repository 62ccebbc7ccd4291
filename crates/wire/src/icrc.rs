//! The invariant CRC: what it covers, incrementally, and what to do about the IPv4 Identification
//! that a socket never shows (IBTA Vol 1, annex A17, RoCEv2).
//!
//! The CRC is that of Ethernet, over eight bytes of ones for the absent LRH, the network header and
//! UDP header with everything ones that routers may change, the BTH with its congestion byte ones,
//! and all that follows up to the pad. It goes onto the wire least significant byte first, the only
//! little-endian field of the packet.
//!
//! Headers are short: for them tables, eight bytes a step, beat carry-less multiplication. Payload
//! goes to `crc32fast`.
//!
//! # The unknown Identification
//!
//! The kernel writes the IPv4 Identification, and neither sender nor receiver sees it through a
//! socket. The sender predicts it. The receiver computes the CRC with the Identification that it
//! expects; only where that fails [`solve_ipv4_id`] asks which other one would do. A CRC is affine:
//! if the two Identifications differ by `d` (exclusive or), the two CRCs differ by
//! `d · x^(8n) mod P`, `n` bytes before the end. Multiplying the difference by `x^(-8n)` brings `d`
//! back, and it is a solution if it fits 16 bits, which for a random corruption happens once in
//! 2^16: whoever asks must also find the answer plausible.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Gid;
use crate::udp::ROCE_PORT;

/// The CRC-32 polynomial in reflected form: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// State after the masked LRH, eight bytes of ones.
const AFTER_LRH: u32 = 0xdebb_20e3;

/// From this length on, that of the longest headers, `crc32fast` is faster than tables.
const FOLDING_FROM: usize = 40;

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg())
}

const fn over_x(a: u32) -> u32 {
    let carry = a >> 31;
    ((a ^ (POLYNOMIAL & carry.wrapping_neg())) << 1) | carry
}

/// Product modulo the polynomial.
const fn multiply(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= a & (b >> bit & 1).wrapping_neg();
        a = times_x(a);
    }
    product
}

/// What each value of a byte adds to the CRC when `following` more bytes come after it.
const fn byte_table(following: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bits = 8 * (following + 1);
        while bits > 0 {
            crc = times_x(crc);
            bits -= 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// Entry `k` for a byte that `k` more follow.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut k = 0;
    while k < 8 {
        tables[k] = byte_table(k as u32);
        k += 1;
    }
    tables
};

#[inline]
fn step1(state: u32, byte: u8) -> u32 {
    TABLES[0][usize::from(state.to_le_bytes()[0] ^ byte)] ^ (state >> 8)
}

#[inline]
fn step4(state: u32, word: u32) -> u32 {
    let [a, b, c, d] = (state ^ word).to_le_bytes().map(usize::from);
    TABLES[3][a] ^ TABLES[2][b] ^ TABLES[1][c] ^ TABLES[0][d]
}

#[inline]
fn step8(state: u32, word: u64) -> u32 {
    let [a, b, c, d, e, f, g, h] = (u64::from(state) ^ word).to_le_bytes().map(usize::from);
    let near = TABLES[3][e] ^ TABLES[2][f] ^ TABLES[1][g] ^ TABLES[0][h];
    TABLES[7][a] ^ TABLES[6][b] ^ TABLES[5][c] ^ TABLES[4][d] ^ near
}

const fn x_to(power: u32) -> u32 {
    let mut product = ONE;
    let mut done = 0;
    while done < power {
        product = times_x(product);
        done += 1;
    }
    product
}

/// Bytes of the block that a fold leaves of a message.
pub const FOLD: usize = 128;
/// What the first eight of every sixteen bytes are multiplied by, without carry, to move them by
/// [`FOLD`] bytes towards the end. Sixteen bytes read little-endian are a polynomial of reflected
/// bits, whose products come out one bit lower: so the constants are shifted by one.
pub const FOLD_FAR: u64 = (x_to(8 * FOLD as u32 + 32) as u64) << 1;
/// The same for the other eight.
pub const FOLD_NEAR: u64 = (x_to(8 * FOLD as u32 - 32) as u64) << 1;

/// An ICRC in the making.
#[derive(Clone, Copy, Debug)]
pub struct Icrc {
    state: u32,
    /// Headers that the state does not cover yet, masked: where payload is folded they go along, and
    /// the tables, which payload drives out of the cache, are not needed.
    pending: [u8; PENDING],
    /// How many bytes of it are in use: none, or those of a BTH at least.
    pending_len: usize,
}

/// Most bytes of headers that wait for the payload.
const PENDING: usize = 48;

impl Default for Icrc {
    fn default() -> Self {
        Self::new()
    }
}

impl Icrc {
    /// Nothing covered yet but the absent LRH.
    pub const fn new() -> Self {
        Self::at(AFTER_LRH)
    }

    const fn at(state: u32) -> Self {
        Self {
            state,
            pending: [0; PENDING],
            pending_len: 0,
        }
    }

    /// Covers `bytes` as they are: extension headers, payload, pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.settle();
        self.cover(bytes);
    }

    /// Covers what is pending.
    #[inline]
    fn settle(&mut self) {
        let len = core::mem::take(&mut self.pending_len);
        if len > 0 {
            let pending = self.pending;
            self.cover(&pending[..len]);
        }
    }

    #[inline]
    fn cover(&mut self, bytes: &[u8]) {
        if bytes.len() >= FOLDING_FROM {
            let mut hasher = crc32fast::Hasher::new_with_initial(!self.state);
            hasher.update(bytes);
            self.state = !hasher.finalize();
            return;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        let mut state = self.state;
        for &word in words {
            state = step8(state, u64::from_le_bytes(word));
        }
        let (words, rest) = rest.as_chunks::<4>();
        for &word in words {
            state = step4(state, u32::from_le_bytes(word));
        }
        for &byte in rest {
            state = step1(state, byte);
        }
        self.state = state;
    }

    /// For who copies bytes and covers them on the way: a block as if it had been folded from all that
    /// came before. Each further [`FOLD`] bytes are added to it once it is multiplied by x^(8·FOLD).
    #[inline]
    pub fn begin_fold(&mut self) -> [u8; FOLD] {
        let mut block = [0; FOLD];
        let len = core::mem::take(&mut self.pending_len);
        if len > 0 {
            block[FOLD - len..].copy_from_slice(&self.pending[..len]);
        }
        // What precedes the state is added to what follows it. With nothing pending, to four bytes
        // that lead to it.
        let (at, lead) = match len {
            0 => (FOLD - 4, (0..32).fold(self.state, |state, _| over_x(state))),
            len => (FOLD - len, self.state),
        };
        for (byte, lead) in block[at..at + 4].iter_mut().zip(lead.to_le_bytes()) {
            *byte ^= lead;
        }
        block
    }

    /// Covers what was folded into the block of [`begin_fold`](Self::begin_fold).
    #[inline]
    pub fn end_fold(&mut self, block: &[u8; FOLD]) {
        self.state = 0;
        self.cover(block);
    }

    /// Covers bytes that begin with a BTH, whose congestion byte is masked: only the headers, or
    /// all up to the pad.
    #[inline]
    pub fn update_ib(&mut self, ib: &[u8]) {
        const CONGESTION: u64 = 0xff << (4 * 8);
        self.settle();
        match ib.split_first_chunk::<8>() {
            Some(_) if ib.len() <= PENDING => {
                self.pending[..ib.len()].copy_from_slice(ib);
                self.pending[4] = 0xff;
                self.pending_len = ib.len();
            }
            Some((start, rest)) => {
                self.state = step8(self.state, u64::from_le_bytes(*start) | CONGESTION);
                self.cover(rest);
            }
            // No BTH is that short; whatever the result, it matches nothing.
            None => self.cover(ib),
        }
    }

    /// Covers an IPv4 header without options: type of service, TTL and checksum are masked.
    pub fn update_ipv4(&mut self, header: &[u8; 20]) {
        let mut masked = *header;
        masked[1] = 0xff;
        masked[8] = 0xff;
        masked[10] = 0xff;
        masked[11] = 0xff;
        self.update(&masked);
    }

    /// Covers an IPv6 header or a GRH: traffic class, flow label and hop limit are masked.
    pub fn update_ipv6(&mut self, header: &[u8; 40]) {
        let mut masked = *header;
        masked[0] |= 0x0f;
        masked[1] = 0xff;
        masked[2] = 0xff;
        masked[3] = 0xff;
        masked[7] = 0xff;
        self.update(&masked);
    }

    /// Covers a UDP header: the checksum is masked.
    pub fn update_udp(&mut self, header: &[u8; 8]) {
        let mut masked = *header;
        masked[6] = 0xff;
        masked[7] = 0xff;
        self.update(&masked);
    }

    /// The ICRC in wire order.
    #[inline]
    pub fn finish(mut self) -> [u8; 4] {
        self.settle();
        (!self.state).to_le_bytes()
    }
}

/// What a byte of the length or Identification fields adds to the CRC at the end of the prefix.
///
/// The fields are two bytes; the index tells how many bytes of the prefix follow the first one.
struct FieldTable {
    high: [u32; 256],
    low: [u32; 256],
}

impl FieldTable {
    const fn new(following: u32) -> Self {
        Self {
            high: byte_table(following),
            low: byte_table(following - 1),
        }
    }

    #[inline]
    fn at(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes().map(usize::from);
        self.high[high] ^ self.low[low]
    }
}

/// UDP length, 3 bytes before the end of the UDP header.
static UDP_LENGTH: FieldTable = FieldTable::new(3);
/// IPv4 total length and Identification, in 20 + 8 bytes.
static IPV4_LENGTH: FieldTable = FieldTable::new(25);
static IPV4_ID: FieldTable = FieldTable::new(23);
/// IPv6 payload length, in 40 + 8 bytes.
static IPV6_LENGTH: FieldTable = FieldTable::new(43);
/// GRH payload length, in 40 bytes.
static GRH_LENGTH: FieldTable = FieldTable::new(35);

/// The part of the ICRC that the packets of one path share: addresses and ports. Length and
/// Identification, which change from packet to packet, are added by a few table look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcrcPrefix {
    /// State after the prefix, with length and Identification 0.
    state: u32,
    framing: Framing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    V1,
    V2Ipv4,
    V2Ipv6,
}

impl IcrcPrefix {
    /// A path of RoCE v2 over IPv4. `dont_fragment` tells the DF bit, which the ICRC covers.
    pub fn v2_ipv4(
        source: Ipv4Addr,
        dest: Ipv4Addr,
        source_port: u16,
        dont_fragment: bool,
    ) -> Self {
        let mut header = [0; 20];
        header[0] = 0x45;
        header[6] = u8::from(dont_fragment) << 6;
        header[9] = 17;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&dest.octets());
        let mut icrc = Icrc::new();
        icrc.update_ipv4(&header);
        icrc.update_udp(&udp_header(source_port));
        Self {
            state: icrc.state,
            framing: Framing::V2Ipv4,
        }
    }

    /// A path of RoCE v2 over IPv6.
    pub fn v2_ipv6(source: Ipv6Addr, dest: Ipv6Addr, source_port: u16) -> Self {
        let mut icrc = Icrc::new();
        icrc.update_ipv6(&ipv6_header(17, &source.octets(), &dest.octets()));
        icrc.update_udp(&udp_header(source_port));
        Self {
            state: icrc.state,
            framing: Framing::V2Ipv6,
        }
    }

    /// A path of RoCE v1.
    pub fn v1(source: Gid, dest: Gid) -> Self {
        let mut icrc = Icrc::new();
        icrc.update_ipv6(&ipv6_header(0x1b, &source.0, &dest.0));
        Self {
            state: icrc.state,
            framing: Framing::V1,
        }
    }

    /// The ICRC of a packet up to its BTH, which comes next ([`Icrc::update_ib`]).
    ///
    /// `ib_len` counts the bytes from BTH to ICRC inclusive. `ipv4_id` is the IPv4 Identification
    /// and has no meaning on other paths.
    #[inline]
    pub fn start(&self, ib_len: usize, ipv4_id: u16) -> Icrc {
        // IP lengths are 16 bits; whoever exceeds them has no packet to protect.
        let [low, high, ..] = ib_len.to_le_bytes();
        let ib_len = u16::from_le_bytes([low, high]);
        let udp_len = ib_len.wrapping_add(8);
        let varying = match self.framing {
            Framing::V2Ipv4 => {
                IPV4_LENGTH.at(ib_len.wrapping_add(28))
                    ^ IPV4_ID.at(ipv4_id)
                    ^ UDP_LENGTH.at(udp_len)
            }
            Framing::V2Ipv6 => IPV6_LENGTH.at(udp_len) ^ UDP_LENGTH.at(udp_len),
            Framing::V1 => GRH_LENGTH.at(ib_len),
        };
        Icrc::at(self.state ^ varying)
    }

    /// The ICRC of a whole packet, in wire order. `ib` reaches from the BTH to the pad.
    pub fn compute(&self, ib: &[u8], ipv4_id: u16) -> [u8; 4] {
        let mut icrc = self.start(ib.len() + 4, ipv4_id);
        icrc.update_ib(ib);
        icrc.finish()
    }
}

fn udp_header(source_port: u16) -> [u8; 8] {
    let [s0, s1] = source_port.to_be_bytes();
    let [d0, d1] = ROCE_PORT.to_be_bytes();
    [s0, s1, d0, d1, 0, 0, 0, 0]
}

fn ipv6_header(next: u8, source: &[u8; 16], dest: &[u8; 16]) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[6] = next;
    header[8..24].copy_from_slice(source);
    header[24..40].copy_from_slice(dest);
    header
}

/// `x^(-8k)` is `INVERSE_LOW[k % 256] · INVERSE_HIGH[k / 256]`.
static INVERSE_LOW: [u32; 256] = inverse_powers(1);
static INVERSE_HIGH: [u32; 256] = inverse_powers(256);

/// `x^(-8·stride·i)` for each `i`.
const fn inverse_powers(stride: u32) -> [u32; 256] {
    let mut base = ONE;
    let mut bits = 8 * stride;
    while bits > 0 {
        base = over_x(base);
        bits -= 1;
    }
    let mut powers = [ONE; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = multiply(powers[i - 1], base);
        i += 1;
    }
    powers
}

/// The IPv4 Identification that makes `received` the right ICRC, where there is one.
///
/// `computed` is the ICRC under the assumption that the Identification is `assumed`; `ib_len` counts
/// the bytes from BTH to ICRC inclusive. Equal ICRCs give `assumed` back. Costs two multiplications
/// of 32-bit polynomials, some 50 ns.
///
/// A corrupted packet gets an answer too with probability 2^-16: judge whether the answer is likely
/// for this peer.
pub fn solve_ipv4_id(
    computed: [u8; 4],
    assumed: u16,
    received: [u8; 4],
    ib_len: usize,
) -> Option<u16> {
    if computed == received {
        return Some(assumed);
    }
    // Two bytes of Identification, 14 more of IPv4, 8 of UDP, and all of IB but the ICRC.
    let [low, high, ..] = (ib_len + 20).to_le_bytes().map(usize::from);
    let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(received);
    let before = multiply(multiply(difference, INVERSE_LOW[low]), INVERSE_HIGH[high]);
    // The first byte, the high one, enters the CRC at the low end of its state.
    let [high, low, 0, 0] = before.to_le_bytes() else {
        return None;
    };
    Some(assumed ^ u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_after_the_masked_lrh() {
        let mut icrc = Icrc::at(u32::MAX);
        icrc.update(&[0xff; 8]);
        assert_eq!(icrc.state, AFTER_LRH);
    }

    /// Tables and folding, and every split of the input, agree with the crate.
    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..600u32)
            .map(|i| (i * 31 + i / 7).to_le_bytes()[0])
            .collect();
        for len in [0, 1, 3, 4, 7, 8, 12, 40, 127, 128, 129, 600] {
            let bytes = &bytes[..len];
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&[0xff; 8]);
            hasher.update(bytes);
            let whole = hasher.finalize().to_le_bytes();
            for split in 0..=len {
                let mut icrc = Icrc::new();
                icrc.update(&bytes[..split]);
                icrc.update(&bytes[split..]);
                assert_eq!(icrc.finish(), whole, "{split} of {len}");
            }
        }
    }

    #[test]
    fn congestion_byte_is_masked() {
        let mut ib = [0x5a; 200];
        let prefix = IcrcPrefix::v1(Gid::default(), Gid::default());
        let before = prefix.compute(&ib, 0);
        ib[4] = 0;
        assert_eq!(prefix.compute(&ib, 0), before);
        ib[8] ^= 1;
        assert_ne!(prefix.compute(&ib, 0), before);
    }

    /// The prefix with its look-ups equals the headers written out.
    #[test]
    fn prefix_equals_headers() {
        let (source, dest) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
        let ib = [0x33; 300];
        let prefix = IcrcPrefix::v2_ipv4(source, dest, 0xc123, true);
        for len in [12, 16, 60, 300] {
            for id in [0u16, 1, 0x1234, 0xffff] {
                let total = u16::try_from(28 + len + 4).expect("short");
                let mut ip = [
                    0x45, 0x68, 0, 0, 0, 0, 0x40, 0, 9, 17, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0,
                ];
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&dest.octets());
                let mut udp = udp_header(0xc123);
                udp[4..6].copy_from_slice(&(total - 20).to_be_bytes());
                let mut icrc = Icrc::new();
                icrc.update_ipv4(&ip);
                icrc.update_udp(&udp);
                icrc.update_ib(&ib[..len]);
                assert_eq!(prefix.compute(&ib[..len], id), icrc.finish(), "{len} {id}");
            }
        }
    }

    #[test]
    fn every_identification_is_found() {
        let prefix = IcrcPrefix::v2_ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0xd000, true);
        let ib: Vec<u8> = (0..4140u32)
            .map(|i| (i ^ i >> 3).to_le_bytes()[0])
            .collect();
        for len in [12, 28, 268, 4124, 4140] {
            let ib = &ib[..len];
            let computed = prefix.compute(ib, 77);
            for id in (0..=u16::MAX).step_by(if len > 1000 { 771 } else { 13 }) {
                let received = prefix.compute(ib, id);
                assert_eq!(
                    solve_ipv4_id(computed, 77, received, len + 4),
                    Some(id),
                    "{len}"
                );
            }
        }
    }

    /// A changed byte looks like another Identification about once in 2^16, not more often.
    #[test]
    fn corruption_rarely_has_a_solution() {
        let prefix = IcrcPrefix::v2_ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0xd000, true);
        let mut ib = [7; 64];
        let computed = prefix.compute(&ib, 0);
        let mut solved = 0;
        for byte in 5..64 {
            for change in 1..=255 {
                ib[byte] ^= change;
                solved +=
                    u32::from(solve_ipv4_id(computed, 0, prefix.compute(&ib, 0), 68).is_some());
                ib[byte] ^= change;
            }
        }
        assert!(solved <= 3, "{solved} of {}", 59 * 255);
    }
}
