//! A cursor to read from and one to write to: the only place that counts offsets.

use crate::ParseError;

/// Takes fixed-size pieces off the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            total: bytes.len(),
        }
    }

    /// What has not been taken yet.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], ParseError> {
        let Some((piece, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.short_of(N));
        };
        self.rest = rest;
        Ok(piece)
    }

    #[inline]
    pub(crate) fn take_slice(&mut self, n: usize) -> Result<&'a [u8], ParseError> {
        let Some((piece, rest)) = self.rest.split_at_checked(n) else {
            return Err(self.short_of(n));
        };
        self.rest = rest;
        Ok(piece)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.take().map(|&[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.take().map(|&bytes| u16::from_be_bytes(bytes))
    }

    #[inline]
    pub(crate) fn u24(&mut self) -> Result<u32, ParseError> {
        self.take().map(|&bytes| u24(bytes))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.take().map(|&bytes| u32::from_be_bytes(bytes))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.take().map(|&bytes| u64::from_be_bytes(bytes))
    }

    #[cold]
    const fn short_of(self, n: usize) -> ParseError {
        let taken = self.total - self.rest.len();
        ParseError::Truncated {
            needed: taken.saturating_add(n),
            have: self.total,
        }
    }
}

/// Puts pieces one after the other into a caller's buffer.
///
/// Panics when the buffer is too short: emitters state the length that they need.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
    total: usize,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(buffer: &'a mut [u8]) -> Self {
        let total = buffer.len();
        Self {
            rest: buffer,
            total,
        }
    }

    /// Bytes written so far.
    pub(crate) const fn written(&self) -> usize {
        self.total - self.rest.len()
    }

    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, piece: [u8; N]) {
        let (here, rest) = core::mem::take(&mut self.rest)
            .split_first_chunk_mut::<N>()
            .expect("the buffer holds what is emitted");
        *here = piece;
        self.rest = rest;
    }

    #[inline]
    pub(crate) fn put_slice(&mut self, piece: &[u8]) {
        let (here, rest) = core::mem::take(&mut self.rest)
            .split_at_mut_checked(piece.len())
            .expect("the buffer holds what is emitted");
        here.copy_from_slice(piece);
        self.rest = rest;
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.put([value]);
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.put(value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn u24(&mut self, value: u32) {
        let [_, a, b, c] = value.to_be_bytes();
        self.put([a, b, c]);
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.put(value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) {
        self.put(value.to_be_bytes());
    }
}

/// The number in three bytes.
#[inline]
pub(crate) const fn u24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}
