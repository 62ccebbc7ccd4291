//! The receiving half of a stream: what has come and was not read, and what the peer is allowed.
//! No bytes are here.
//!
//! The buffer has two halves. The peer fills them in turn and is given one back when as many bytes
//! were read.

use std::collections::VecDeque;

use super::ring::{Pieces, after};
use super::sender::Violation;

/// What the peer is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// It may send messages up to this number.
    pub(super) limit: u16,
    /// The half that begins here is its to fill.
    pub(super) half: Option<usize>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Receiver {
    size: usize,
    /// Messages that can be remembered.
    depth: u16,
    /// Lengths of messages that were not read to their end.
    unread: VecDeque<u32>,
    /// Where the next byte is read.
    at: usize,
    /// Bytes that are to be read.
    waiting: usize,
    /// Bytes that the peer may write before it is given another half.
    open: usize,
    /// Bytes that were read and not given back.
    read: usize,
    /// The half that is given back next.
    next_half: usize,
    /// Messages read, and the number of them at which the peer is told.
    messages: u16,
    tell_at: u16,
}

impl Receiver {
    /// For a buffer of that size and so many messages. The peer knows of the first half.
    pub(super) fn new(size: usize, depth: u16) -> Self {
        let half = size / 2;
        Self {
            size: half * 2,
            depth,
            unread: VecDeque::new(),
            at: 0,
            waiting: 0,
            open: half,
            // The second half is free, and the peer does not know.
            read: half,
            next_half: half,
            messages: 0,
            tell_at: depth / 2,
        }
    }

    /// Bytes of a half.
    pub(super) fn half(&self) -> usize {
        self.size / 2
    }

    /// Data came.
    ///
    /// # Errors
    /// More than the peer was allowed.
    pub(super) fn arrived(&mut self, length: u32) -> Result<(), Violation> {
        let bytes = length as usize;
        if bytes > self.open || self.unread.len() >= self.depth.into() {
            return Err(Violation);
        }
        self.open -= bytes;
        self.waiting += bytes;
        if length == 0 {
            self.messages = self.messages.wrapping_add(1);
        } else {
            self.unread.push_back(length);
        }
        Ok(())
    }

    /// A message came that is not data. It counts like one.
    pub(super) fn arrived_beside(&mut self) {
        self.messages = self.messages.wrapping_add(1);
    }

    /// Bytes that can be read.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Where the next bytes are, at most so many, `skip` bytes further on.
    pub(super) fn peek(&self, skip: usize, most: usize) -> Pieces {
        let length = most.min(self.waiting - skip.min(self.waiting));
        Pieces::new(after(self.at, skip, self.size), length, self.size)
    }

    /// So many bytes were read: not more than [`waiting`](Self::waiting).
    pub(super) fn read(&mut self, length: usize) {
        self.at = after(self.at, length, self.size);
        self.waiting -= length;
        self.read += length;
        let mut left = length;
        while left > 0 {
            let first = &mut self.unread[0];
            let part = left.min(*first as usize);
            *first -= part as u32;
            left -= part;
            if *first == 0 {
                self.unread.pop_front();
                self.messages = self.messages.wrapping_add(1);
            }
        }
    }

    /// Whether the peer should be told: a half was read, or half of the messages.
    pub(super) fn owes(&self) -> bool {
        self.read >= self.half() || self.messages.wrapping_sub(self.tell_at).cast_signed() >= 0
    }

    /// What it is told.
    pub(super) fn grant(&mut self) -> Grant {
        self.tell_at = self.messages.wrapping_add(self.depth / 2);
        let limit = self.messages.wrapping_add(self.depth);
        let half = self.half();
        let half = (self.read >= half).then(|| {
            let at = self.next_half;
            self.read -= half;
            self.open += half;
            self.next_half = after(at, half, self.size);
            at
        });
        Grant { limit, half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_is_told_of_first() {
        let mut receiver = Receiver::new(1 << 17, 384);
        assert!(receiver.owes());
        let grant = receiver.grant();
        assert_eq!(
            grant,
            Grant {
                limit: 384,
                half: Some(1 << 16)
            }
        );
        assert!(!receiver.owes());
    }

    #[test]
    fn a_half_comes_back_when_it_was_read() {
        let mut receiver = Receiver::new(200, 16);
        receiver.grant();
        receiver.arrived(100).unwrap();
        receiver.read(99);
        assert!(!receiver.owes());
        receiver.arrived(50).unwrap();
        receiver.read(1);
        assert!(receiver.owes());
        let grant = receiver.grant();
        assert_eq!((grant.half, grant.limit), (Some(0), 17));
    }

    #[test]
    fn many_small_messages_are_told_of() {
        let mut receiver = Receiver::new(1 << 17, 16);
        receiver.grant();
        for _ in 0..8 {
            assert!(!receiver.owes());
            receiver.arrived(1).unwrap();
            receiver.read(1);
        }
        assert!(receiver.owes());
        let grant = receiver.grant();
        assert_eq!((grant.half, grant.limit), (None, 24));
        receiver.arrived_beside();
        assert!(!receiver.owes());
    }

    #[test]
    fn more_than_was_allowed_is_refused() {
        let mut receiver = Receiver::new(200, 16);
        assert_eq!(receiver.arrived(101), Err(Violation));
        receiver.arrived(100).unwrap();
        assert_eq!(receiver.arrived(1), Err(Violation));
        let mut receiver = Receiver::new(200, 16);
        for _ in 0..16 {
            receiver.arrived(1).unwrap();
        }
        assert_eq!(receiver.arrived(1), Err(Violation));
    }

    #[test]
    fn a_look_ahead_takes_nothing() {
        let mut receiver = Receiver::new(200, 16);
        receiver.grant();
        receiver.arrived(100).unwrap();
        receiver.read(90);
        receiver.arrived(60).unwrap();
        let pieces = receiver.peek(0, 1000);
        assert_eq!((pieces.first.at, pieces.first.length), (90, 70));
        let pieces = receiver.peek(60, 1000);
        assert_eq!((pieces.first.at, pieces.first.length), (150, 10));
        assert_eq!(receiver.peek(70, 5).iter().count(), 0);
        assert_eq!(receiver.waiting(), 70);
    }

    #[test]
    fn an_odd_byte_of_the_buffer_is_not_used() {
        let mut receiver = Receiver::new(201, 16);
        receiver.grant();
        receiver.arrived(100).unwrap();
        receiver.arrived(100).unwrap();
        receiver.read(200);
        assert_eq!(receiver.at, 0);
    }
}
