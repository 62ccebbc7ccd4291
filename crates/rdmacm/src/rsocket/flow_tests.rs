//! A sender and a receiver with a seeded order of events between them: bytes arrive in order, the
//! buffer is never overrun, and neither side waits for the other for ever.

use std::collections::VecDeque;

use super::protocol::{Message, Sge};
use super::receiver::{Grant, Receiver};
use super::sender::{LOW_WATER, Sender};

/// Numbers that look random, the same ones for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// A message under way to the receiver: where it was written, and the bytes.
struct Flight {
    addr: usize,
    bytes: Vec<u8>,
}

fn run(seed: u64, buffer: usize, depth: u16, slots: usize, room: usize, total: usize) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut receiver = Receiver::new(buffer, depth);
    let half = receiver.half() as u32;
    let sge = |at: usize| Sge {
        addr: at as u64,
        key: 1,
        length: half,
    };
    let mut sender = Sender::new(slots, room, depth, sge(0));
    let mut memory = vec![0u8; buffer];
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let mut unacknowledged: VecDeque<Message> = VecDeque::new();
    let mut grants: VecDeque<Grant> = VecDeque::new();
    let (mut sent, mut read) = (0, 0);
    let mut idle = 0;
    while read < total {
        let mut is_moving = false;
        match dice.below(5) {
            0 => {
                let may = sender.room().min(total - sent);
                if may > 0 {
                    let length = 1 + dice.below(may.min(5000));
                    let write = sender.send(length);
                    let taken: usize = write.pieces.iter().map(|piece| piece.length).sum();
                    assert_eq!(taken, length);
                    let bytes = (sent..sent + length).map(|at| (at % 251) as u8).collect();
                    sent += length;
                    flights.push_back(Flight {
                        addr: write.addr as usize,
                        bytes,
                    });
                    unacknowledged.push_back(write.message);
                    is_moving = true;
                }
            }
            1 => {
                if let Some(flight) = flights.pop_front() {
                    let end = flight.addr + flight.bytes.len();
                    memory[flight.addr..end].copy_from_slice(&flight.bytes);
                    receiver.arrived(flight.bytes.len() as u32).unwrap();
                    is_moving = true;
                }
            }
            2 => {
                if unacknowledged.len() > flights.len() {
                    let message = unacknowledged.pop_front().unwrap();
                    sender.completed(message, 0);
                    is_moving = true;
                }
            }
            3 => {
                let may = receiver.waiting();
                if may > 0 {
                    let pieces = receiver.peek(0, 1 + dice.below(may));
                    let mut length = 0;
                    for piece in pieces.iter() {
                        for byte in &memory[piece.at..piece.at + piece.length] {
                            assert_eq!(*byte, ((read + length) % 251) as u8, "seed {seed}");
                            length += 1;
                        }
                    }
                    receiver.read(length);
                    read += length;
                    is_moving = true;
                }
                if receiver.owes() {
                    grants.push_back(receiver.grant());
                    is_moving = true;
                }
            }
            _ => {
                if let Some(grant) = grants.pop_front() {
                    sender.granted(grant.limit);
                    if let Some(half) = grant.half {
                        sender.target(sge(half)).unwrap();
                    }
                    is_moving = true;
                }
            }
        }
        idle = if is_moving { 0 } else { idle + 1 };
        assert!(
            idle < 1000,
            "seed {seed}: nothing moves at {read} of {total}"
        );
    }
}

#[test]
fn streams_of_all_shapes_arrive() {
    for seed in 0..300 {
        let mut dice = Dice(seed * 2 + 1);
        let buffer = 2 + dice.below(20_000);
        let depth = 2 + dice.below(400) as u16;
        let slots = 5 + dice.below(60);
        let room = LOW_WATER + dice.below(30_000);
        run(
            seed + 1,
            buffer,
            depth,
            slots,
            room,
            200_000.min(buffer * 40),
        );
    }
}

#[test]
fn message_numbers_go_round() {
    run(1, 4096, 3, 16, 4096, 400_000);
}
