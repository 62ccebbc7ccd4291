//! hirail's own packets, under manufacturer opcodes that other stacks drop: the hello by which two
//! of its kind find that they can repeat selectively, and the selective acknowledgement.

use crate::bytes::{Reader, Writer};
use crate::{ParseError, Psn};

/// hirail's hello, 16 bytes: tells a peer of the same kind what it may use.
///
/// 0: [`Hello::MARK`]; 8: version; 9: flags; 10: window; 12: nonce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Version of this header and of [`Sack`].
    pub version: u8,
    /// A set of the `Hello::` flags.
    pub flags: u8,
    /// Packets out of order that the sender of the hello can keep.
    pub window_packets: u16,
    /// Chosen by the side that asks, repeated by the side that answers.
    pub nonce: u32,
}

impl Hello {
    /// First bytes of a hello. Manufacturer opcodes are anybody's, so these tell it is ours.
    pub const MARK: [u8; 8] = *b"hirailSR";
    /// The version described here.
    pub const VERSION: u8 = 1;
    /// Flag: this answers a hello.
    pub const REPLY: u8 = 1;
    /// Flag: the sender takes selective acknowledgements and keeps packets out of order.
    pub const SELECTIVE_REPEAT: u8 = 2;

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if *reader.take()? != Self::MARK {
            return Err(ParseError::ForeignVendor);
        }
        Ok(Self {
            version: reader.u8()?,
            flags: reader.u8()?,
            window_packets: reader.u16()?,
            nonce: reader.u32()?,
        })
    }

    pub(crate) fn emit(self, writer: &mut Writer<'_>) {
        writer.put(Self::MARK);
        writer.put([self.version, self.flags]);
        writer.u16(self.window_packets);
        writer.u32(self.nonce);
    }
}

/// hirail's selective acknowledgement, 36 bytes: what has arrived beyond the first gap.
///
/// 0: flags (bit 7: of read responses); 1: cumulative PSN; 4: four 64-bit words, bit 0 of the
/// first one first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sack {
    /// The next PSN that is expected: the first gap.
    pub cumulative: Psn,
    /// Bit `i` of the 256 tells that PSN `cumulative + 1 + i` has arrived.
    pub bitmap: [u64; 4],
    /// The PSNs are those of READ responses, told by a requester, and not of requests.
    pub response: bool,
}

impl Sack {
    /// PSNs beyond the cumulative one that the bitmap covers.
    pub const SPAN: u32 = 256;

    /// A report that nothing from `cumulative` on has arrived.
    pub const fn new(cumulative: Psn, response: bool) -> Self {
        Self {
            cumulative,
            bitmap: [0; 4],
            response,
        }
    }

    /// Notes that `psn` has arrived. Ignored outside the span of the bitmap.
    pub const fn insert(&mut self, psn: Psn) {
        if let Some((word, bit)) = self.position(psn) {
            self.bitmap[word] |= bit;
        }
    }

    /// Whether `psn` is reported as arrived. Everything before the cumulative PSN has.
    pub const fn contains(&self, psn: Psn) -> bool {
        match self.position(psn) {
            Some((word, bit)) => self.bitmap[word] & bit != 0,
            None => psn.is_before(self.cumulative),
        }
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            response: reader.u8()? & 0x80 != 0,
            cumulative: Psn::new(reader.u24()?),
            bitmap: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
        })
    }

    pub(crate) fn emit(self, writer: &mut Writer<'_>) {
        writer.u8(u8::from(self.response) << 7);
        writer.u24(self.cumulative.value());
        for word in self.bitmap {
            writer.u64(word);
        }
    }

    const fn position(&self, psn: Psn) -> Option<(usize, u64)> {
        let index = psn.distance_from(self.cumulative) - 1;
        if index < 0 || index >= Self::SPAN.cast_signed() {
            return None;
        }
        Some((index.cast_unsigned() as usize / 64, 1 << (index % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sack_covers_its_span() {
        let mut sack = Sack::new(Psn::new(0xff_fff0), false);
        let beyond = |n| sack.cumulative.add(n);
        let marked = [1, 2, 64, 65, 128, 256];
        let (inside, outside) = (marked.map(beyond), [0, 257, 3].map(beyond));
        for psn in inside {
            sack.insert(psn);
        }
        sack.insert(outside[0]);
        sack.insert(outside[1]);
        assert!(inside.into_iter().all(|psn| sack.contains(psn)));
        assert!(!outside.into_iter().any(|psn| sack.contains(psn)));
        assert!(sack.contains(sack.cumulative.prev()));
        assert_eq!(sack.bitmap.map(u64::count_ones), [3, 2, 0, 1]);
    }
}
