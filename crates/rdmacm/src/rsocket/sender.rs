//! The sending half of a stream: where the next bytes go at the peer, and how many may go now. No
//! bytes and no queues are here.
//!
//! Three things limit it: room in the own buffer and send queue, which completions give back; the
//! targets that the peer has named, each half of its buffer; and the number of messages that the peer
//! can remember.

use std::collections::VecDeque;

use super::protocol::{Message, Sge, TARGETS};
use super::ring::{Pieces, after};

/// Below so much room in the buffer nothing is sent: small pieces would follow one another.
pub(super) const LOW_WATER: usize = 2048;

/// Entries of the send queue for what is said of the connection itself.
pub(super) const CONTROL: usize = 4;

/// The peer breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation;

/// A write of bytes that lie in the own buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Write {
    pub(super) pieces: Pieces,
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) message: Message,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Sender {
    /// Number of the next message, and of the first that may not be sent.
    next: u16,
    limit: u16,
    /// Entries of the send queue that are free for data, of all.
    slots: usize,
    all_slots: usize,
    control: usize,
    /// The buffer: its size, where the next bytes go, how many fit.
    size: usize,
    at: usize,
    free: usize,
    targets: VecDeque<Sge>,
    /// The entry of the table that the peer writes next.
    next_target: u32,
}

impl Sender {
    /// With so many entries in the send queue and such a buffer; the peer has said how many messages
    /// it takes, and where the first bytes go.
    pub(super) fn new(slots: usize, size: usize, credits: u16, first: Sge) -> Self {
        let slots = slots.saturating_sub(CONTROL);
        Self {
            next: 0,
            limit: credits,
            slots,
            all_slots: slots,
            control: CONTROL,
            size,
            at: 0,
            free: size,
            targets: [first].into_iter().filter(|sge| sge.length > 0).collect(),
            next_target: 1,
        }
    }

    /// Whether there is room here, and for a message there.
    fn is_ready(&self) -> bool {
        self.slots > 0 && self.free >= LOW_WATER.min(self.size) && self.next != self.limit
    }

    /// Bytes that may be sent at once; 0 when the peer or a completion must come first.
    pub(super) fn room(&self) -> usize {
        match self.targets.front() {
            Some(target) if self.is_ready() => self.free.min(target.length as usize),
            _ => 0,
        }
    }

    /// Room for what goes to a place of its own, not to the next target.
    pub(super) fn room_beside(&self) -> usize {
        if self.is_ready() { self.free } else { 0 }
    }

    /// Room in the own buffer is taken, and an entry of the queue.
    fn take(&mut self, length: usize) -> Pieces {
        let pieces = Pieces::new(self.at, length, self.size);
        self.at = after(self.at, length, self.size);
        self.free -= length;
        self.slots -= 1;
        pieces
    }

    /// The next `length` bytes are sent, at most [`room`](Self::room).
    pub(super) fn send(&mut self, length: usize) -> Write {
        let target = &mut self.targets[0];
        let (addr, key) = (target.addr, target.key);
        target.addr = addr.wrapping_add(length as u64);
        target.length -= length as u32;
        if target.length == 0 {
            self.targets.pop_front();
        }
        self.next = self.next.wrapping_add(1);
        Write {
            pieces: self.take(length),
            addr,
            key,
            message: Message::Data(length as u32),
        }
    }

    /// `length` bytes go to a place that the peer has mapped, at most
    /// [`room_beside`](Self::room_beside). It does not hear of them.
    pub(super) fn send_direct(&mut self, length: usize, addr: u64, key: u32) -> Write {
        Write {
            pieces: self.take(length),
            addr,
            key,
            message: Message::Direct(length as u32),
        }
    }

    /// An entry of the peer's table of mapped buffers is written.
    pub(super) fn send_mapping(&mut self, length: usize, entry: u16, addr: u64, key: u32) -> Write {
        self.next = self.next.wrapping_add(1);
        Write {
            pieces: self.take(length),
            addr,
            key,
            message: Message::Mapped(entry),
        }
    }

    /// Whether something can be said of the connection.
    pub(super) fn can_control(&self) -> bool {
        self.control > 0
    }

    /// It is said.
    pub(super) fn control(&mut self) {
        self.control -= 1;
    }

    /// What was sent is at the peer, or lost for ever. A mapping took `mapping` bytes of the buffer.
    pub(super) fn completed(&mut self, message: Message, mapping: usize) {
        let length = match message {
            Message::Data(length) | Message::Direct(length) => length as usize,
            Message::Mapped(_) => mapping,
            _ => {
                self.control += 1;
                return;
            }
        };
        self.slots += 1;
        self.free += length;
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.slots == self.all_slots && self.control == CONTROL
    }

    /// The peer takes messages up to this number.
    pub(super) fn granted(&mut self, limit: u16) {
        self.limit = limit;
    }

    /// The entry of the table that a message speaks of when the peer has written one: they are
    /// written in turn.
    pub(super) fn written_target(&mut self) -> u32 {
        let entry = self.next_target;
        self.next_target = (entry + 1) % TARGETS;
        entry
    }

    /// More room at the peer.
    ///
    /// # Errors
    /// The table has no place for it: the peer has written over one that was not used up.
    pub(super) fn target(&mut self, target: Sge) -> Result<(), Violation> {
        if self.targets.len() >= TARGETS as usize {
            return Err(Violation);
        }
        if target.length > 0 {
            self.targets.push_back(target);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = 65536;

    fn target(addr: u64) -> Sge {
        Sge {
            addr,
            key: 7,
            length: HALF,
        }
    }

    fn sender() -> Sender {
        Sender::new(16, 8192, 10, target(0x1000))
    }

    #[test]
    fn bytes_follow_one_another_at_the_peer() {
        let mut sender = sender();
        assert_eq!(sender.room(), 8192);
        let first = sender.send(100);
        let second = sender.send(50);
        assert_eq!((first.addr, second.addr), (0x1000, 0x1064));
        assert_eq!(first.pieces.first.at, 0);
        assert_eq!(second.pieces.first.at, 100);
        assert_eq!(second.message, Message::Data(50));
    }

    #[test]
    fn a_target_is_used_up_before_the_next_one() {
        let mut sender = Sender::new(64, 1 << 20, 100, target(0x1000));
        sender.target(target(0x9_0000)).unwrap();
        assert_eq!(sender.room(), HALF as usize);
        sender.send(HALF as usize);
        let write = sender.send(10);
        assert_eq!(write.addr, 0x9_0000);
        assert_eq!(sender.room(), HALF as usize - 10);
    }

    #[test]
    fn a_third_target_breaks_the_protocol() {
        let mut sender = sender();
        sender.target(target(1)).unwrap();
        assert_eq!(sender.target(target(2)), Err(Violation));
    }

    #[test]
    fn targets_are_written_in_turn_from_the_second_on() {
        let mut sender = sender();
        let entries: Vec<_> = (0..4).map(|_| sender.written_target()).collect();
        assert_eq!(entries, [1, 0, 1, 0]);
    }

    #[test]
    fn credits_end_and_come_round() {
        let mut sender = Sender::new(64, 1 << 20, 2, target(0));
        for _ in 0..2 {
            sender.send(1);
        }
        assert_eq!((sender.room(), sender.room_beside()), (0, 0));
        sender.granted(3);
        assert!(sender.room() > 0);
        sender.send(1);
        sender.next = u16::MAX;
        sender.granted(1);
        for _ in 0..2 {
            assert!(sender.room() > 0);
            sender.send(1);
        }
        assert_eq!(sender.room(), 0);
    }

    #[test]
    fn the_buffer_is_used_round_and_its_low_water_waits() {
        let mut sender = sender();
        sender.send(8000);
        assert_eq!(sender.room(), 0);
        sender.completed(Message::Data(8000), 0);
        let write = sender.send(300);
        let pieces: Vec<_> = write.pieces.iter().map(|piece| piece.length).collect();
        assert_eq!(pieces, [192, 108]);
    }

    #[test]
    fn the_queue_keeps_entries_for_control() {
        let mut sender = sender();
        for _ in 0..16 - CONTROL {
            sender.granted(sender.next.wrapping_add(1));
            assert!(sender.room() > 0);
            sender.send(1);
        }
        sender.granted(sender.next.wrapping_add(1));
        assert_eq!(sender.room(), 0);
        for _ in 0..CONTROL {
            assert!(sender.can_control());
            sender.control();
        }
        assert!(!sender.can_control() && !sender.is_idle());
        sender.completed(Message::Credits(1), 0);
        assert!(sender.can_control());
    }

    #[test]
    fn what_goes_beside_takes_no_target() {
        let mut sender = Sender::new(16, 8192, 10, Sge::default());
        assert_eq!(sender.room(), 0);
        assert_eq!(sender.room_beside(), 8192);
        let write = sender.send_direct(16, 0x77, 3);
        assert_eq!((write.addr, write.key), (0x77, 3));
        let write = sender.send_mapping(24, 5, 0x88, 4);
        assert_eq!(write.message, Message::Mapped(5));
        sender.completed(Message::Mapped(5), 24);
        sender.completed(Message::Direct(16), 24);
        assert!(sender.is_idle());
        assert_eq!(sender.room_beside(), 8192);
    }
}
