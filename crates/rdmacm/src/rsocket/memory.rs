//! Memory that the device may read and write, and the program's pieces of memory that are copied to
//! and from it.

use core::ffi::{c_int, c_void};
use core::ptr;

use hirail_abi::{Mr, Pd, Sge};
use libc::iovec;

use super::ring::{Piece, Pieces};
use crate::bridge::bridge;
use crate::errno::Errno;

/// `enum ibv_access_flags`.
pub(super) mod access {
    use super::c_int;

    pub(crate) const LOCAL_WRITE: c_int = 1;
    pub(crate) const REMOTE_WRITE: c_int = 2;
}

/// Registered memory: pages of its own, since registered ones may be withheld from forked children.
pub(super) struct Memory {
    at: *mut u8,
    size: usize,
    mr: *mut Mr,
}

// SAFETY: the memory and its registration may be used from any thread; who touches the bytes answers
// for the order.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros.
    ///
    /// # Safety
    /// The domain exists, as long as the memory does.
    pub(super) unsafe fn new(pd: *mut Pd, size: usize, access: c_int) -> Result<Self, Errno> {
        let bridge = bridge()?;
        // SAFETY: a new mapping; it is registered as long as it exists.
        unsafe {
            let at = libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if at == libc::MAP_FAILED {
                return Err(Errno::last());
            }
            let mr =
                Errno::check_pointer((bridge.reg_mr)(pd, at, size, access)).inspect_err(|_| {
                    libc::munmap(at, size);
                })?;
            Ok(Self {
                at: at.cast(),
                size,
                mr,
            })
        }
    }

    /// What the device calls the byte at `at`.
    pub(super) fn addr(&self, at: usize) -> u64 {
        (self.at.addr() + at) as u64
    }

    /// The key of the peer.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { (*self.mr).rkey }
    }

    /// What a work request says of a piece.
    pub(super) fn sge(&self, piece: Piece) -> Sge {
        Sge {
            addr: self.addr(piece.at),
            length: piece.length as u32,
            // SAFETY: it is registered.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    fn at(&self, piece: Piece) -> *mut u8 {
        let end = piece.at.checked_add(piece.length);
        assert!(end.is_some_and(|end| end <= self.size), "inside");
        // SAFETY: just seen.
        unsafe { self.at.add(piece.at) }
    }

    /// Copies bytes in.
    pub(super) fn put(&self, at: usize, bytes: &[u8]) {
        let piece = Piece {
            at,
            length: bytes.len(),
        };
        // SAFETY: the piece is inside, and the peer does not write there now: that is the protocol.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(piece), bytes.len()) };
    }

    /// Copies bytes out. Peers may have written them, and may be writing: what comes is no more than
    /// bytes.
    pub(super) fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let from = self.at(Piece { at, length: N });
        let mut bytes = [0; N];
        for (place, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the piece is inside.
            *byte = unsafe { from.add(place).read_volatile() };
        }
        bytes
    }

    /// Copies the program's next bytes in.
    pub(super) fn fill(&self, pieces: Pieces, from: &mut Cursor<'_>) {
        for piece in pieces.iter() {
            let to = self.at(piece);
            from.walk(piece.length, |program, done, length| {
                // SAFETY: the piece is inside; the program's memory is its own to answer for.
                unsafe { ptr::copy_nonoverlapping(program, to.add(done), length) };
            });
        }
    }

    /// Copies to the program's next bytes.
    pub(super) fn drain(&self, pieces: Pieces, to: &mut Cursor<'_>) {
        for piece in pieces.iter() {
            let from = self.at(piece);
            to.walk(piece.length, |program, done, length| {
                // SAFETY: the piece is inside; the program's memory is its own to answer for.
                unsafe { ptr::copy_nonoverlapping(from.add(done), program, length) };
            });
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(bridge) = bridge() {
            // SAFETY: nobody uses it any more. Where it cannot be given up the device still has it.
            unsafe {
                if (bridge.dereg_mr)(self.mr) == 0 {
                    libc::munmap(self.at.cast(), self.size);
                }
            }
        }
    }
}

/// A position in pieces of the program's memory.
pub(super) struct Cursor<'a> {
    pieces: &'a [iovec],
    /// Bytes of the first piece that are behind.
    behind: usize,
    left: usize,
}

impl<'a> Cursor<'a> {
    /// At the first byte.
    ///
    /// # Safety
    /// The pieces can be read, and where they are filled be written, as long as it exists.
    pub(super) unsafe fn new(pieces: &'a [iovec]) -> Result<Self, Errno> {
        let mut left = 0usize;
        for piece in pieces {
            left = left.checked_add(piece.iov_len).ok_or(Errno::INVALID)?;
        }
        if isize::try_from(left).is_err() {
            return Err(Errno::INVALID);
        }
        Ok(Self {
            pieces,
            behind: 0,
            left,
        })
    }

    /// Bytes ahead.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Goes over the next `length` bytes: where they are, how many came before, how many they are.
    fn walk(&mut self, length: usize, mut visit: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < length {
            let Some(first) = self.pieces.first() else {
                return;
            };
            let part = (first.iov_len - self.behind).min(length - done);
            visit(
                first.iov_base.cast::<u8>().wrapping_add(self.behind),
                done,
                part,
            );
            done += part;
            self.behind += part;
            self.left -= part;
            if self.behind == first.iov_len {
                self.pieces = &self.pieces[1..];
                self.behind = 0;
            }
        }
    }

    /// Copies bytes to the program's next ones, as many as there is room for; how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.left);
        self.walk(length, |program, done, part| {
            // SAFETY: the program's memory is its own to answer for.
            unsafe { ptr::copy_nonoverlapping(bytes[done..].as_ptr(), program, part) };
        });
        length
    }

    /// Copies the program's bytes that are ahead; how many.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> usize {
        let length = bytes.len().min(self.left);
        self.walk(length, |program, done, part| {
            // SAFETY: the program's memory is its own to answer for.
            unsafe { ptr::copy_nonoverlapping(program, bytes[done..].as_mut_ptr(), part) };
        });
        length
    }
}

/// One piece, as a list of pieces.
pub(super) fn single(at: *const c_void, length: usize) -> [iovec; 1] {
    [iovec {
        iov_base: at.cast_mut(),
        iov_len: length,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_over_pieces_and_skips_empty_ones() {
        let (mut first, mut second) = (*b"abc", *b"defg");
        let piece = |bytes: &mut [u8]| iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let pieces = [piece(&mut first), piece(&mut []), piece(&mut second)];
        // SAFETY: the pieces are there.
        let mut cursor = unsafe { Cursor::new(&pieces).unwrap() };
        let mut bytes = [0; 5];
        assert_eq!(cursor.read(&mut bytes), 5);
        assert_eq!((&bytes, cursor.left()), (b"abcde", 2));
        assert_eq!(cursor.read(&mut bytes), 2);
        assert_eq!(&bytes[..2], b"fg");
        assert_eq!(cursor.read(&mut bytes), 0);
        // SAFETY: as above.
        let mut cursor = unsafe { Cursor::new(&pieces).unwrap() };
        assert_eq!(cursor.write(b"12345678"), 7);
        assert_eq!((&first, &second), (b"123", b"4567"));
    }
}
