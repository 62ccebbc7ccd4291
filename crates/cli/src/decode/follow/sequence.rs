//! Sequence numbers that wrap, made into numbers that do not, and what is missing among them.

use std::ops::Range;

use hirail_wire::Psn;

/// Position in a stream of packets, counted on past the wrap of the 24-bit PSN.
pub(super) type Seq = u64;

/// Turns PSNs into positions. PSNs are placed within 2^23 of the latest position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unwrap {
    psn: Psn,
    seq: Seq,
}

impl Unwrap {
    /// Positions begin in the middle of nowhere, so that earlier packets have one too.
    const ORIGIN: Seq = 1 << 32;

    pub(super) fn new(psn: Psn) -> Self {
        Self {
            psn,
            seq: Self::ORIGIN,
        }
    }

    /// The position of `psn`.
    pub(super) fn seq(&self, psn: Psn) -> Seq {
        self.seq
            .saturating_add_signed(psn.distance_from(self.psn).into())
    }

    /// The PSN of a position.
    pub(super) fn psn(&self, seq: Seq) -> Psn {
        #[expect(clippy::cast_possible_truncation, reason = "a PSN keeps 24 bits only")]
        let distance = seq.wrapping_sub(self.seq) as u32;
        self.psn.add(distance)
    }

    /// Moves the reference to `seq`, which lies within 2^23 of it.
    pub(super) fn advance(&mut self, seq: Seq) {
        *self = Self {
            psn: self.psn(seq),
            seq,
        };
    }
}

/// The positions before the newest one that have not been seen.
#[derive(Clone, Default, Debug)]
pub(super) struct Holes {
    /// Disjoint and ascending.
    ranges: Vec<Range<Seq>>,
}

impl Holes {
    /// More holes than this are no loss that a transport recovers from. The oldest are forgotten.
    const MOST: usize = 1024;

    /// Notes that `range`, which lies behind all others, is missing.
    pub(super) fn open(&mut self, range: Range<Seq>) {
        if range.is_empty() {
            return;
        }
        if self.ranges.len() == Self::MOST {
            self.ranges.remove(0);
        }
        self.ranges.push(range);
    }

    /// Notes that `seq` has arrived; whether it was missing.
    pub(super) fn fill(&mut self, seq: Seq) -> bool {
        let Some(at) = self.ranges.iter().position(|range| range.contains(&seq)) else {
            return false;
        };
        let Range { start, end } = self.ranges[at].clone();
        let rest = [start..seq, seq + 1..end]
            .into_iter()
            .filter(|range| !range.is_empty());
        self.ranges.splice(at..=at, rest);
        true
    }

    /// Whether nothing of `range` is missing.
    pub(super) fn is_whole(&self, range: &Range<Seq>) -> bool {
        !self
            .ranges
            .iter()
            .any(|hole| hole.start < range.end && range.start < hole.end)
    }

    /// How many positions are missing.
    pub(super) fn missing(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_do_not_wrap() {
        let mut unwrap = Unwrap::new(Psn::new(0xff_fffe));
        let first = unwrap.seq(Psn::new(0xff_fffe));
        assert_eq!(unwrap.seq(Psn::new(1)), first + 3);
        assert_eq!(unwrap.seq(Psn::new(0xff_fff0)), first - 14);
        unwrap.advance(first + 3);
        assert_eq!(unwrap.seq(Psn::new(1)), first + 3);
        assert_eq!(unwrap.psn(first), Psn::new(0xff_fffe));
        assert_eq!(unwrap.psn(first + 5), Psn::new(3));
    }

    #[test]
    fn holes_split_and_close() {
        let mut holes = Holes::default();
        holes.open(10..15);
        holes.open(20..21);
        assert_eq!(holes.missing(), 6);
        assert!(!holes.fill(9) && !holes.fill(15));
        assert!(holes.fill(12));
        assert!(!holes.fill(12), "only once");
        assert_eq!(holes.missing(), 5);
        assert!(
            holes.is_whole(&(12..13)) && !holes.is_whole(&(12..14)) && holes.is_whole(&(15..20))
        );
        assert!(holes.fill(10) && holes.fill(11) && holes.fill(20));
        assert!(holes.fill(14) && holes.fill(13));
        assert_eq!(holes.missing(), 0);
    }

    #[test]
    fn holes_are_bounded() {
        let mut holes = Holes::default();
        for start in (0..10_000).step_by(2) {
            holes.open(start..start + 1);
        }
        assert_eq!(holes.missing(), 1024);
        assert!(!holes.fill(0) && holes.fill(9_998));
    }
}
