//! Positions in a buffer that is used round and round. No bytes are here.

/// A piece of a buffer: where it begins, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) length: usize,
}

/// What lies in one piece, or in two where the buffer's end is between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pieces {
    pub(super) first: Piece,
    /// Empty where one is enough.
    pub(super) second: Piece,
}

impl Pieces {
    /// So many bytes from `at` on, in a buffer of `size`.
    pub(super) fn new(at: usize, length: usize, size: usize) -> Self {
        let head = length.min(size - at);
        Self {
            first: Piece { at, length: head },
            second: Piece {
                at: 0,
                length: length - head,
            },
        }
    }

    /// Those that are not empty.
    pub(super) fn iter(self) -> impl Iterator<Item = Piece> {
        [self.first, self.second]
            .into_iter()
            .filter(|piece| piece.length > 0)
    }
}

/// The position `by` bytes after `at`, in a buffer of `size`.
pub(super) fn after(at: usize, by: usize, size: usize) -> usize {
    let next = at + by;
    if next >= size { next - size } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_between_two_pieces() {
        let all = |at, length| {
            let pieces: Vec<_> = Pieces::new(at, length, 10).iter().collect();
            pieces
                .iter()
                .map(|piece| (piece.at, piece.length))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(0, 10), [(0, 10)]);
        assert_eq!(all(4, 6), [(4, 6)]);
        assert_eq!(all(4, 7), [(4, 6), (0, 1)]);
        assert_eq!(all(9, 0), []);
        assert_eq!(after(4, 6, 10), 0);
        assert_eq!(after(4, 7, 10), 1);
    }
}
