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
pub(super) struct Permutation {
    round_keys: [u64; 4],
}

impl Permutation {
    pub(super) fn new(secret: u128) -> Self {
        // Both halves of the secret reach every round key.
        let (low, high) = (secret as u64, (secret >> 64) as u64);
        Self {
            round_keys: [1, 2, 3, 4].map(|round| mix(low ^ mix(high.wrapping_add(round)))),
        }
    }

    /// The image of `number`.
    pub(super) fn apply(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF_BITS & HALF_MASK, number & HALF_MASK);
        for key in self.round_keys {
            (left, right) = (right, left ^ round(key, right));
        }
        left << HALF_BITS | right
    }

    /// The number whose image is `index`.
    pub(super) fn invert(&self, index: u32) -> u32 {
        let (mut left, mut right) = (index >> HALF_BITS & HALF_MASK, index & HALF_MASK);
        for key in self.round_keys.into_iter().rev() {
            (left, right) = (right ^ round(key, left), left);
        }
        left << HALF_BITS | right
    }
}

/// Twelve bits that depend on `half` and the round key.
fn round(key: u64, half: u32) -> u32 {
    (mix(key ^ u64::from(half)) >> (64 - HALF_BITS)) as u32
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
}

impl KeySpace {
    /// The largest table: every slot has 2^10 keys at least.
    pub(super) const MAX_SLOTS: u32 = 1 << 22;

    pub(super) fn new(secret: u128, slots: u32) -> Self {
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        Self {
            permutation: Permutation::new(secret),
            slot_bits,
        }
    }

    /// The key of `slot` in its use number `generation`.
    pub(super) fn key(&self, slot: u32, generation: u32) -> u32 {
        let number = (generation >> 8) << self.slot_bits | slot;
        let index = self.permutation.apply(number & INDEX_MASK);
        // The variant's start differs from index to index: a guesser has 32 bits to guess.
        let start = round(
            self.permutation.round_keys[0],
            index >> HALF_BITS ^ index & HALF_MASK,
        );
        index << 8 | start.wrapping_add(generation) & 0xff
    }

    /// The slot that a key would belong to.
    pub(super) fn slot(&self, key: u32) -> u32 {
        self.permutation.invert(key >> 8) & ((1 << self.slot_bits) - 1)
    }

    /// The first generation after `generation` with another index: there all 256 variants are new.
    pub(super) const fn next_index(generation: u32) -> u32 {
        (generation | 0xff).wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
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

    /// Neighbouring slots have unrelated indices: over many secrets their distance hits each of
    /// 16 equal parts of the range about equally often.
    #[test]
    fn neighbours_are_unrelated() {
        let mut parts = [0u32; 16];
        for secret in 0..16_000u128 {
            let permutation = Permutation::new(secret);
            let distance = permutation.apply(1).wrapping_sub(permutation.apply(0)) & INDEX_MASK;
            parts[(distance >> 20) as usize] += 1;
        }
        assert!(
            parts.iter().all(|&hits| (850..1150).contains(&hits)),
            "{parts:?}"
        );
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
        let mut keys = std::collections::BTreeSet::new();
        for generation in 0..1 << 12 {
            let key = space.key(5, generation);
            assert_eq!(space.slot(key), 5);
            assert!(keys.insert(key), "generation {generation}");
        }
        assert_eq!(space.key(5, 1 << 12), space.key(5, 0));
    }

    #[test]
    fn next_index_changes_the_index() {
        let space = KeySpace::new(7, 100);
        for generation in [0, 1, 255, 256, 700] {
            let next = KeySpace::next_index(generation);
            assert_ne!(space.key(3, generation) >> 8, space.key(3, next) >> 8);
            assert_eq!(next % 256, 0);
        }
    }
}
