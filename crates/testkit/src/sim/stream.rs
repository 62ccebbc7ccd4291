//! One direction of a connection: the requests of one end and the model of what they do at the
//! other. Completions, results and memory are compared with it.

use hirail_rnic::cq::{Cqe, WcPayload};
use hirail_vocab::{WcOpcode, WcStatus};
use hirail_wire::Psn;

use crate::Memory;

/// A check that failed, in words.
pub(super) type Check = Result<(), String>;

/// Fails a check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    SendImm([u8; 4]),
    Write,
    WriteImm([u8; 4]),
    Read,
    FetchAdd {
        add: u64,
    },
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    AtomicWrite,
    Flush,
    /// Adds one to the counter that all streams to the node share.
    Count,
}

impl Kind {
    pub(super) const fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::WriteImm(_))
    }

    pub(super) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm(_))
    }

    pub(super) const fn is_read_or_atomic(self) -> bool {
        !matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::Write | Self::WriteImm(_)
        )
    }

    const fn opcode(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm(_) => WcOpcode::Send,
            Self::Write | Self::WriteImm(_) => WcOpcode::RdmaWrite,
            Self::Read => WcOpcode::RdmaRead,
            Self::FetchAdd { .. } | Self::Count => WcOpcode::FetchAdd,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::AtomicWrite => WcOpcode::AtomicWrite,
            Self::Flush => WcOpcode::Flush,
        }
    }
}

/// What is wrong with a request that must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Poison {
    /// A key that nothing ever had.
    UnknownKey,
    /// The key of a region that has been deregistered.
    StaleKey,
    /// The last byte is outside the region.
    OutOfRange,
    /// The local entry has a wrong key.
    BadLocalKey,
    /// The message is longer than every receive request.
    TooLong,
    /// The address of an atomic is not a multiple of 8.
    Misaligned,
}

impl Poison {
    /// How the requester may learn of it when nothing else goes wrong.
    pub(super) const fn status(self) -> WcStatus {
        match self {
            Self::UnknownKey | Self::StaleKey | Self::OutOfRange => WcStatus::RemAccessErr,
            Self::BadLocalKey => WcStatus::LocProtErr,
            Self::TooLong | Self::Misaligned => WcStatus::RemInvReqErr,
        }
    }
}

/// One request.
#[derive(Clone)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) len: u32,
    /// Its local buffer: number and offset.
    pub(super) slot: usize,
    pub(super) local: usize,
    /// Offset of the remote range in the peer's arena.
    pub(super) remote: usize,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    pub(super) first_psn: Psn,
    pub(super) packets: u32,
    pub(super) poison: Option<Poison>,
    /// What is sent, or what the remote range holds afterwards.
    pub(super) bytes: Vec<u8>,
}

impl Op {
    /// The bytes of the arena that it changes, and to what.
    fn effect(&self) -> Option<(usize, &[u8])> {
        let changes = matches!(
            self.kind,
            Kind::Write
                | Kind::WriteImm(_)
                | Kind::AtomicWrite
                | Kind::FetchAdd { .. }
                | Kind::CompareSwap { .. }
        );
        // The packets before one that cannot be made are executed.
        let is_executed = matches!(self.poison, None | Some(Poison::BadLocalKey));
        (changes && is_executed).then_some((self.remote, &self.bytes))
    }
}

impl core::fmt::Debug for Op {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{:?} of {} bytes from PSN {}",
            self.kind, self.len, self.first_psn
        )?;
        if let Some(poison) = self.poison {
            write!(f, " with {poison:?}")?;
        }
        Ok(())
    }
}

/// A direction of a connection.
pub(super) struct Stream {
    pub(super) number: usize,
    /// The end that posts and the end that executes.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Whether everything sent arrives, or the stream fails.
    pub(super) is_exact: bool,
    pub(super) signals_all: bool,
    /// All requests posted so far; the number is the position.
    pub(super) ops: Vec<Op>,
    /// Requests known to have succeeded: all before this.
    pub(super) done: usize,
    /// How it failed.
    pub(super) failed: Option<WcStatus>,
    /// The next request to be flushed, once it failed.
    next_flush: usize,
    /// Requests before this have been received, as far as they take receive requests.
    pub(super) received: usize,
    /// Requests still to be posted.
    pub(super) to_post: u32,
    pub(super) poison_at: Option<u32>,
    pub(super) next_psn: Psn,
    /// A READ is asked for in pieces of so many packets, each a message of its own.
    pub(super) read_piece: u32,
    /// The same of WRITEs.
    pub(super) write_piece: u32,
    /// The peer's arena after the requests done.
    arena: Vec<u8>,
    /// The peer's arena after all requests posted.
    pub(super) predicted: Vec<u8>,
    /// Values that the shared counter returned.
    pub(super) counted: Vec<u64>,
}

impl Stream {
    pub(super) fn new(number: usize, from: usize, to: usize, arena: usize, psn: Psn) -> Self {
        Self {
            number,
            from,
            to,
            is_exact: true,
            signals_all: false,
            ops: Vec::new(),
            done: 0,
            failed: None,
            next_flush: 0,
            received: 0,
            to_post: 0,
            poison_at: None,
            next_psn: psn,
            read_piece: u32::MAX,
            write_piece: u32::MAX,
            arena: vec![0; arena],
            predicted: vec![0; arena],
            counted: Vec::new(),
        }
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_finished(&self) -> bool {
        self.failed.is_some() || (self.to_post == 0 && self.done == self.ops.len())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.ops.len() - self.done
    }

    /// Messages that end before `end`.
    pub(super) fn messages_before(&self, end: Psn) -> usize {
        let of = |op: &Op| {
            let executed = end
                .distance_from(op.first_psn)
                .clamp(0, op.packets.cast_signed());
            let piece = match op.kind {
                Kind::Read => self.read_piece,
                Kind::Write => self.write_piece,
                _ => u32::MAX,
            };
            if executed.cast_unsigned() < op.packets {
                executed.cast_unsigned() / piece
            } else {
                op.packets.div_ceil(piece)
            }
        };
        self.ops.iter().map(of).sum::<u32>() as usize
    }

    /// Whether an unfinished READ overlaps a range.
    pub(super) fn reads_overlap(&self, at: usize, len: usize) -> bool {
        self.ops[self.done..].iter().any(|op| {
            op.kind == Kind::Read && at < op.remote + op.len as usize && op.remote < at + len
        })
    }

    /// Adds a request that was posted.
    pub(super) fn posted(&mut self, op: Op) {
        self.next_psn = self.next_psn.add(op.packets);
        if let Some((at, bytes)) = op.effect() {
            self.predicted[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.ops.push(op);
    }

    /// A send completion. `memory` is that of the end that posts, `arena` that of the end that
    /// executes. Returns how many more requests are known to have succeeded.
    pub(super) fn on_completion(&mut self, cqe: &Cqe, memory: &Memory, arena: &Memory) -> Check {
        let index = (cqe.wr_id & 0xffff_ffff) as usize;
        ensure!(
            cqe.wr_id >> 32 == self.number as u64 && index < self.ops.len(),
            "completion {:#x} belongs to no request of stream {}",
            cqe.wr_id,
            self.number
        );
        if self.failed.is_some() {
            ensure!(
                cqe.status == WcStatus::WrFlushErr && index == self.next_flush,
                "stream {} has failed: request {} is to be flushed next, got {index} with {}",
                self.number,
                self.next_flush,
                cqe.status
            );
            self.next_flush += 1;
            return Ok(());
        }
        ensure!(
            index >= self.done,
            "stream {}: request {index} completes again or late, {} were done",
            self.number,
            self.done
        );
        let skipped = (self.done..index).find(|&i| self.signals_all || self.ops[i].signaled);
        ensure!(
            skipped.is_none(),
            "stream {}: request {index} completes, {skipped:?} did not",
            self.number
        );
        if cqe.status != WcStatus::Success {
            self.succeed(index, memory, arena)?;
            self.failed = Some(cqe.status);
            self.next_flush = index + 1;
            return Ok(());
        }
        let op = &self.ops[index];
        ensure!(
            op.signaled || self.signals_all,
            "stream {}: request {index} was not signaled",
            self.number
        );
        ensure!(
            cqe.opcode == op.kind.opcode() && cqe.byte_len == op.len,
            "stream {}: request {index} {:?} of {} bytes completes as {} of {}",
            self.number,
            op.kind,
            op.len,
            cqe.opcode,
            cqe.byte_len
        );
        self.succeed(index + 1, memory, arena)
    }

    /// All requests before `end` have succeeded: their results and effects must be there.
    fn succeed(&mut self, end: usize, memory: &Memory, arena: &Memory) -> Check {
        let start = self.done;
        for index in start..end {
            self.apply(index, memory)?;
            self.done += 1;
        }
        if !self.is_exact {
            return Ok(());
        }
        for index in start..end {
            if let Some((at, bytes)) = self.ops[index].effect() {
                let found = arena.read(at, bytes.len());
                self.explain(at, &found, end, false)
                    .map_err(|text| format!("after request {index} completed, memory {text}"))?;
            }
        }
        Ok(())
    }

    /// Checks the result of a request against the arena as it is before it, and changes that.
    fn apply(&mut self, index: usize, memory: &Memory) -> Check {
        let op = &self.ops[index];
        ensure!(
            op.poison.is_none(),
            "stream {}: request {index} succeeded, which has {:?}",
            self.number,
            op.poison
        );
        let word = || {
            let bytes = self.arena[op.remote..]
                .first_chunk()
                .expect("atomics lie inside");
            u64::from_ne_bytes(*bytes)
        };
        match op.kind {
            Kind::Read => {
                let found = memory.read(op.local, op.len as usize);
                self.explain(op.remote, &found, index + 1, true)
                    .map_err(|text| format!("READ {index} {text}"))?;
            }
            Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => {
                let returned = memory.word(op.local);
                ensure!(
                    returned == word(),
                    "stream {}: atomic {index} returned {returned:#x}, expected {:#x}",
                    self.number,
                    word()
                );
            }
            Kind::Count => {
                let returned = memory.word(op.local);
                ensure!(
                    self.counted.last().is_none_or(|last| *last < returned),
                    "stream {}: the counter went back to {returned}",
                    self.number
                );
                self.counted.push(returned);
            }
            _ => {}
        }
        let op = &self.ops[index];
        if let Some((at, bytes)) = op.effect() {
            self.arena[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Whether bytes found at `at` are those of the arena or of requests from `later` on, which may
    /// have been executed already; up to one with a fence, if `fenced`.
    fn explain(&self, at: usize, found: &[u8], later: usize, fenced: bool) -> Check {
        if self.arena[at..at + found.len()] == *found {
            return Ok(());
        }
        for (offset, &byte) in (at..).zip(found) {
            if self.arena[offset] == byte {
                continue;
            }
            let is_explained = self.ops[later.min(self.ops.len())..]
                .iter()
                .take_while(|op| !(fenced && op.fence))
                .filter_map(Op::effect)
                .any(|(start, bytes)| {
                    offset
                        .checked_sub(start)
                        .and_then(|i| bytes.get(i))
                        .is_some_and(|&new| new == byte)
                });
            ensure!(
                is_explained,
                "of stream {} is {byte:#04x} at {offset}, expected {:#04x}",
                self.number,
                self.arena[offset]
            );
        }
        Ok(())
    }

    /// A message was received with success. `buffer` is what the receive request holds now.
    pub(super) fn on_receive(&mut self, cqe: &Cqe, buffer: &[u8], arena: &Memory) -> Check {
        let takes = |op: &Op| op.kind.takes_receive();
        let next = (self.received..self.ops.len()).find(|&i| takes(&self.ops[i]));
        let fits = |index: usize| self.fits(index, cqe, buffer);
        let index = if self.is_exact {
            let Some(index) = next else {
                return Err(format!(
                    "stream {}: received what was not sent",
                    self.number
                ));
            };
            fits(index)?;
            self.received = index + 1;
            index
        } else {
            // Messages may be missing, and in a network that duplicates or reorders come twice.
            let index = (0..self.ops.len())
                .rev()
                .find(|&i| takes(&self.ops[i]) && fits(i).is_ok());
            let Some(index) = index else {
                return Err(format!(
                    "stream {}: received what was never sent",
                    self.number
                ));
            };
            index
        };
        let op = &self.ops[index];
        if self.is_exact && op.kind.is_write() {
            // Its bytes are there before the completion; later requests may have changed them.
            let found = arena.read(op.remote, op.bytes.len());
            for (i, (&byte, &sent)) in found.iter().zip(&op.bytes).enumerate() {
                let offset = op.remote + i;
                let changed =
                    self.ops[index + 1..]
                        .iter()
                        .filter_map(Op::effect)
                        .any(|(start, bytes)| {
                            offset
                                .checked_sub(start)
                                .and_then(|i| bytes.get(i))
                                .is_some_and(|&new| new == byte)
                        });
                ensure!(
                    byte == sent || changed,
                    "stream {}: WRITE {index} was told to the receiver before its data",
                    self.number
                );
            }
        }
        Ok(())
    }

    /// Whether a receive completion is that of request `index`.
    fn fits(&self, index: usize, cqe: &Cqe, buffer: &[u8]) -> Check {
        let op = &self.ops[index];
        let number = self.number;
        let (opcode, payload) = match op.kind {
            Kind::SendImm(imm) => (WcOpcode::Recv, WcPayload::Imm(imm)),
            Kind::WriteImm(imm) => (WcOpcode::RecvRdmaWithImm, WcPayload::Imm(imm)),
            _ => (WcOpcode::Recv, WcPayload::None),
        };
        let grh = if cqe.grh { 40 } else { 0 };
        ensure!(
            op.poison.is_none()
                && cqe.opcode == opcode
                && cqe.payload == payload
                && cqe.byte_len == op.len + grh as u32
                && cqe.solicited == op.solicited,
            "stream {number}: request {index} was {op:?}, received {cqe:?}"
        );
        if !op.kind.is_write() {
            ensure!(
                buffer.len() >= grh + op.bytes.len()
                    && buffer[grh..grh + op.bytes.len()] == op.bytes[..],
                "stream {number}: message {index} was received with other data"
            );
        }
        Ok(())
    }

    /// Nothing happens any more: everything must be accounted for.
    pub(super) fn finish(&self, arena: &Memory) -> Check {
        let number = self.number;
        if let Some(status) = self.failed {
            ensure!(
                self.next_flush == self.ops.len(),
                "stream {number} failed with {status}: {} of {} requests were completed",
                self.next_flush,
                self.ops.len()
            );
            return if self.is_exact {
                self.finish_failed(arena)
            } else {
                Ok(())
            };
        }
        ensure!(
            self.to_post == 0 && self.done == self.ops.len(),
            "stream {number} is stuck: {} of {} requests done, {} to be posted",
            self.done,
            self.ops.len(),
            self.to_post
        );
        if !self.is_exact {
            return self.finish_inexact(arena);
        }
        let missing = (self.received..self.ops.len()).find(|&i| self.ops[i].kind.takes_receive());
        ensure!(
            missing.is_none(),
            "stream {number}: message {missing:?} was never received"
        );
        arena.with(|found| {
            let found = &found[..self.arena.len()];
            let wrong = found.iter().zip(&self.arena).position(|(a, b)| a != b);
            ensure!(
                wrong.is_none(),
                "stream {number}: memory differs from the model at {wrong:?}"
            );
            Ok(())
        })
    }

    /// A failed stream has executed all its requests up to some one, and maybe a part of that.
    fn finish_failed(&self, arena: &Memory) -> Check {
        let mut state = self.arena.clone();
        let found = arena.read(0, state.len());
        for op in &self.ops[self.done..] {
            if state == found {
                return Ok(());
            }
            let Some((at, bytes)) = op.effect() else {
                continue;
            };
            // All packets but the last are full, and the average is more than half full.
            let step = bytes
                .len()
                .div_ceil(op.packets as usize)
                .next_power_of_two();
            let mut end = 0;
            while end < bytes.len() {
                end = (end + step).min(bytes.len());
                state[at..at + end].copy_from_slice(&bytes[..end]);
                if state == found {
                    return Ok(());
                }
            }
        }
        ensure!(
            state == found,
            "stream {} failed, and no number of executed requests explains its memory",
            self.number
        );
        Ok(())
    }

    /// On an unreliable stream every byte is one that was written there, or was never written.
    fn finish_inexact(&self, arena: &Memory) -> Check {
        let found = arena.read(0, self.arena.len());
        for (offset, &byte) in found.iter().enumerate() {
            let was_sent = self
                .ops
                .iter()
                .filter_map(Op::effect)
                .any(|(start, bytes)| {
                    offset
                        .checked_sub(start)
                        .and_then(|i| bytes.get(i))
                        .is_some_and(|&new| new == byte)
                });
            ensure!(
                byte == 0 || was_sent,
                "stream {}: nobody wrote {byte:#04x} to {offset}",
                self.number
            );
        }
        Ok(())
    }
}
