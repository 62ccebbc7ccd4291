//! Which key a table slot has. Peers must not guess the keys of others from their own, yet a key
//! must lead to its slot in constant time: the 24-bit index of a key is the slot's number, and how
//! often the slot was used, under a secret permutation.
//!
//! RoCE carries keys in clear text, so the permutation stops guessers, not eavesdroppers; it is
//! built to be fast, not to resist cryptanalysis.

const HALF_BITS: u32 = 12;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const INDEX_MASK: u32 = (1 << (2 * HALF_BITS)) - 1;

/// A secret permutation of the 24-bit numbers: a Feistel network of four rounds.
struct Permutation {
    rounds: [Round; 4],
}

impl Permutation {
    fn new(secret: u128) -> Self {
        // SplitMix64, once for each half of the secret: every word depends on all of it.
        let (low, high) = (secret as u64, (secret >> 64) as u64);
        let word = |n: u64| mix(low ^ mix(high.wrapping_add(n)));
        let round = |n: u64| Round {
            offset: word(2 * n),
            factor: word(2 * n + 1) | 1,
        };
        Self {
            rounds: [1, 2, 3, 4].map(round),
        }
    }

    /// The image of `number`.
    fn apply(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF_BITS & HALF_MASK, number & HALF_MASK);
        for round in &self.rounds {
            (left, right) = (right, left ^ round.of(right));
        }
        left << HALF_BITS | right
    }

    /// The number whose image is `index`.
    fn invert(&self, index: u32) -> u32 {
        let (mut left, mut right) = (index >> HALF_BITS & HALF_MASK, index & HALF_MASK);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ round.of(left), left);
        }
        left << HALF_BITS | right
    }
}

/// A secret function of 12 bits: the top of a product with a secret odd factor.
struct Round {
    offset: u64,
    factor: u64,
}

impl Round {
    #[inline]
    fn of(&self, half: u32) -> u32 {
        ((self.offset ^ u64::from(half)).wrapping_mul(self.factor) >> (64 - HALF_BITS)) as u32
    }
}

/// The finaliser of SplitMix64: every input bit changes about half of the output bits.
const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The keys of all slots of one table.
///
/// A slot's use number `generation` picks its key: the low 8 bits are the variant, the bits above
/// pick another index. So a slot has 2^(32 − `slot_bits`) keys before the first one comes back.
pub(super) struct KeySpace {
    permutation: Permutation,
    slot_bits: u32,
    /// Where the variants of an index start is secret too.
    variant_secret: u64,
}

impl KeySpace {
    /// The largest table: every slot has 2^10 keys at least.
    pub(super) const MAX_SLOTS: u32 = 1 << 22;

    pub(super) fn new(secret: u128, slots: u32) -> Self {
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        let variant_secret = mix(secret as u64 ^ mix((secret >> 64) as u64));
        Self {
            permutation: Permutation::new(secret),
            slot_bits,
            variant_secret,
        }
    }

    /// The key of `slot` in its use number `generation`.
    pub(super) fn key(&self, slot: u32, generation: u32) -> u32 {
        let number = (generation >> 8) << self.slot_bits | slot;
        let index = self.permutation.apply(number & INDEX_MASK);
        let first_variant = mix(self.variant_secret ^ u64::from(index)) as u32;
        index << 8 | first_variant.wrapping_add(generation) & 0xff
    }

    /// The slot that a key would belong to. It may lie beyond the end of the table.
    #[inline]
    pub(super) fn slot(&self, key: u32) -> u32 {
        self.permutation.invert(key >> 8) & ((1 << self.slot_bits) - 1)
    }

    /// The last generation that has the index of `generation`: after it, all 256 variants are new.
    pub(super) const fn last_of_index(generation: u32) -> u32 {
        generation | 0xff
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn permutation_is_a_bijection() {
        let permutation = Permutation::new(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
        let mut seen = vec![false; 1 << 24];
        for number in 0..1 << 24 {
            let index = permutation.apply(number);
            assert!(!core::mem::replace(&mut seen[index as usize], true));
            assert_eq!(permutation.invert(index), number);
        }
    }

    /// Neighbouring slots have unrelated indices: their distance is evenly spread, over many
    /// secrets as well as over the slots of one table.
    #[test]
    fn neighbours_are_unrelated() {
        let distance = |permutation: &Permutation, number| {
            permutation
                .apply(number + 1)
                .wrapping_sub(permutation.apply(number))
                & INDEX_MASK
        };
        let spread = |distances: &mut dyn Iterator<Item = u32>| {
            let mut parts = [0u32; 16];
            distances.for_each(|distance| parts[(distance >> 20) as usize] += 1);
            assert!(
                parts.iter().all(|&hits| (850..1150).contains(&hits)),
                "{parts:?}"
            );
        };
        spread(&mut (0..16_000).map(|secret| distance(&Permutation::new(secret), 0)));
        let one = Permutation::new(99);
        spread(&mut (0..16_000).map(|number| distance(&one, number)));
    }

    #[test]
    fn both_halves_of_the_secret_matter() {
        let index = |secret| Permutation::new(secret).apply(0);
        assert_ne!(index(0), index(1));
        assert_ne!(index(0), index(1 << 64));
    }

    #[test]
    fn a_slot_has_all_its_keys_before_one_repeats() {
        let slots = 1 << 20;
        let space = KeySpace::new(7, slots);
        let mut keys = BTreeSet::new();
        for generation in 0..1 << 12 {
            let key = space.key(5, generation);
            assert_eq!(space.slot(key), 5);
            assert!(keys.insert(key), "generation {generation}");
        }
        assert_eq!(space.key(5, 1 << 12), space.key(5, 0));
    }

    #[test]
    fn an_index_ends_after_its_last_generation() {
        let space = KeySpace::new(7, 100);
        for generation in [0, 1, 255, 256, 700] {
            let last = KeySpace::last_of_index(generation);
            assert_eq!(space.key(3, generation) >> 8, space.key(3, last) >> 8);
            assert_ne!(space.key(3, generation) >> 8, space.key(3, last + 1) >> 8);
        }
    }
}
