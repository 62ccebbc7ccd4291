//! Communication ids: what two sides call a connection.
//!
//! They must not be guessable, or anybody could disconnect anybody; and an id must not come again
//! while somebody may still use it. A secret permutation of the numbers of the range gives both: each
//! comes once before any comes again, in an order that only the seed tells.

use core::fmt;

use crate::config::IdRange;

/// A communication id of this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommId(pub u32);

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// Rounds of the permutation.
const ROUNDS: u64 = 6;

/// Gives out ids, and other numbers that only the seed tells.
pub(crate) struct Ids {
    range: IdRange,
    key: u128,
    /// Ids given out.
    count: u32,
    /// Other numbers drawn.
    drawn: u64,
}

impl Ids {
    pub(crate) fn new(range: IdRange, seed: u128) -> Self {
        assert!(range.bits <= 32, "communication ids have 32 bits");
        Self {
            range,
            key: seed,
            count: 0,
            drawn: 0,
        }
    }

    /// The next id for which `is_free` holds. None where all are taken, or so many in a row that it
    /// comes to the same.
    pub(crate) fn next(&mut self, is_free: impl Fn(CommId) -> bool) -> Option<CommId> {
        for _ in 0..1 << self.range.bits.min(16) {
            let id = CommId(self.range.first | self.permute(self.count & self.mask()));
            self.count = self.count.wrapping_add(1);
            // 0 stands for no id.
            if id.0 != 0 && is_free(id) {
                return Some(id);
            }
        }
        None
    }

    /// A number that only the seed tells.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.mix(u64::MAX - self.drawn)
    }

    const fn mask(&self) -> u32 {
        match u32::MAX.checked_shr(32 - self.range.bits) {
            Some(mask) => mask,
            None => 0,
        }
    }

    /// A Feistel network over the next even number of bits, walked until it falls into the range.
    fn permute(&self, number: u32) -> u32 {
        let half = self.range.bits.div_ceil(2);
        let low = (1u64 << half) - 1;
        let mut number = u64::from(number);
        loop {
            let (mut left, mut right) = (number >> half, number & low);
            for round in 0..ROUNDS {
                let mixed = self.mix(round << 40 | right) & low;
                (left, right) = (right, left ^ mixed);
            }
            number = left << half | right;
            if number <= u64::from(self.mask()) {
                return number as u32;
            }
        }
    }

    /// Both halves of the key and the number, stirred by the finishing steps of splitmix64.
    const fn mix(&self, number: u64) -> u64 {
        let mut x = number.wrapping_add(self.key as u64);
        let mut half = 0;
        while half < 2 {
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^= x >> 31;
            x = x.wrapping_add((self.key >> 64) as u64);
            half += 1;
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_id_comes_once_before_any_comes_again() {
        for bits in [0, 1, 2, 7, 10, 13] {
            let first = 0xabc0_0000;
            let mut ids = Ids::new(IdRange { first, bits }, 77 << 64 | 5);
            let count = 1 << bits;
            let mut draw = || ids.next(|_| true).expect("free");
            let round: Vec<CommId> = (0..count).map(|_| draw()).collect();
            let set: BTreeSet<CommId> = round.iter().copied().collect();
            assert_eq!(set.len(), count);
            assert!(set.iter().all(|id| id.0 >> bits == first >> bits));
            let again: Vec<CommId> = (0..count).map(|_| draw()).collect();
            assert_eq!(round, again);
        }
    }

    #[test]
    fn taken_ids_are_passed_over() {
        let range = IdRange { first: 0, bits: 3 };
        let mut ids = Ids::new(range, 1);
        assert_eq!(ids.next(|id| id.0 == 5), Some(CommId(5)));
        assert_eq!(ids.next(|id| id.0 == 5), Some(CommId(5)));
        assert_eq!(ids.next(|_| false), None);
        assert!((0..64).all(|_| ids.next(|_| true).expect("free") != CommId(0)));
    }

    #[test]
    fn seeds_differ() {
        let range = IdRange { first: 0, bits: 22 };
        let ids = |seed| {
            let mut ids = Ids::new(range, seed);
            [(); 4].map(|()| ids.next(|_| true).expect("free"))
        };
        assert_ne!(ids(1), ids(2));
        assert_ne!(ids(1), ids(1 << 64 | 1));
        let mut ids = Ids::new(range, 1);
        assert_ne!(ids.draw(), ids.draw());
    }
}
