//! The Internet checksum: one's complement sum of 16-bit words.

/// A sum in the making. Pieces but the last must have an even length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    #[inline]
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        // Words of 32 bits add up the same, since 2^16 is 1 modulo 2^16 − 1.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for &word in words {
            sum += u64::from(u32::from_be_bytes(word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum + u64::from(u32::from_be_bytes(last)))
    }

    #[inline]
    pub(crate) fn add_u16(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The sum as 16 bits: 0xffff over a header whose checksum is right.
    #[inline]
    pub(crate) const fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        let [low, high, ..] = sum.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// The checksum that makes the sum right.
    #[inline]
    pub(crate) const fn checksum(self) -> u16 {
        !self.fold()
    }
}
