//! The requests of one end of a connection: messages, what is missing of them, what was sent again,
//! what was answered.

use std::collections::VecDeque;
use std::ops::Range;

use hirail_wire::{Operation, Psn};

use super::copies::Sent;
use super::sequence::{Holes, Seq, Unwrap};

/// Messages that are remembered, so that what is sent again is known by its number.
const REMEMBERED: usize = 1024;

/// A PSN farther off than this belongs to another connection with the same QP numbers.
const FAR: u64 = 1 << 16;

/// All requests that one end has sent.
#[derive(Debug, Default)]
pub(super) struct Requests {
    unwrap: Option<Unwrap>,
    /// The position after the newest request, with the answers that it takes.
    next: Seq,
    /// The newest message is a read, and how many packets answer it is not known.
    read_is_open: bool,
    holes: Holes,
    /// Ascending by position.
    messages: VecDeque<Message>,
    /// Messages so far.
    count: u64,
    /// The newest position that was acknowledged.
    acknowledged: Option<Seq>,
    /// A refusal asked for everything from here on again.
    asked_again: Option<Seq>,
    /// The packet before was one sent again.
    resending: bool,
}

/// What a request is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::decode) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
    Flush,
}

impl Kind {
    pub(in crate::decode) const ALL: [Self; 5] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::Flush,
    ];

    pub(in crate::decode) const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Atomic => "ATOMIC",
            Self::Flush => "FLUSH",
        }
    }

    /// The kind of a request; `None` for what is none.
    pub(super) const fn of(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::ReadRequest => Self::Read,
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite => Self::Atomic,
            Operation::Flush => Self::Flush,
            _ if operation.is_send() => Self::Send,
            _ if operation.is_write() => Self::Write,
            _ => return None,
        })
    }
}

#[derive(Debug)]
struct Message {
    number: u64,
    kind: Kind,
    /// The positions that it takes, as far as known: of its packets, or of a read's answers.
    range: Range<Seq>,
    /// Its first packet has been seen.
    begun: bool,
    /// Its last packet has been seen.
    ended: bool,
    /// All its packets have been seen, and that was told.
    whole: bool,
    /// It has been acknowledged or answered.
    done: bool,
    /// Its data in bytes, each packet counted once.
    bytes: u64,
    /// When its newest packet was sent.
    time: Option<u64>,
    /// The position of the next answer, and the answers missing before it.
    next_answer: Seq,
    missing_answers: Holes,
}

/// A request packet.
pub(super) struct Request {
    pub(super) psn: Psn,
    pub(super) operation: Operation,
    pub(super) kind: Kind,
    /// Bytes of data: the payload, or what a read asks for.
    pub(super) bytes: u64,
    pub(super) time: Option<u64>,
    /// When it was sent, compared with the others.
    pub(super) sent: Sent,
}

/// Where a packet stands among those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    InOrder,
    /// So many packets before it are missing.
    AfterGap(u64),
    /// It was sent before another one that came earlier.
    Late,
    /// It was sent before, or was missing and asked for again.
    Again,
    /// The network made a second one of it.
    Copy,
    /// It is so far from the others that the connection must be another one.
    Restart,
}

/// What became of a request packet.
pub(super) struct Placed {
    pub(super) place: Place,
    pub(super) message: Option<u64>,
    /// It was not seen before.
    pub(super) is_new: bool,
    /// It is the first packet of the message that is seen.
    pub(super) begins: bool,
    /// With this packet the message is whole: its bytes and packets.
    pub(super) whole: Option<(u64, u64)>,
}

/// What an acknowledgement acknowledged for the first time.
pub(super) struct Acknowledged {
    /// Numbers of the first and the last message.
    pub(super) messages: Option<(u64, u64)>,
    /// Time since the last packet of the last one.
    pub(super) latency_ns: Option<u64>,
    /// Nothing new: it was acknowledged before.
    pub(super) again: bool,
}

/// What became of an answer to a read or an atomic.
pub(super) struct Answered {
    pub(super) message: u64,
    pub(super) place: Place,
    /// With this packet the answer is whole: its bytes, and the time since the request.
    pub(super) whole: Option<(u64, Option<u64>)>,
}

impl Requests {
    /// Requests of which the first has this PSN.
    pub(super) fn starting_at(psn: Psn) -> Self {
        let unwrap = Unwrap::new(psn);
        Self {
            next: unwrap.seq(psn),
            unwrap: Some(unwrap),
            ..Self::default()
        }
    }

    /// Takes the next request packet. `mtu` is the path MTU in bytes, where known.
    pub(super) fn request(&mut self, request: &Request, mtu: Option<u32>) -> Placed {
        let (seq, restart) = self.locate(request.psn);
        if self.read_is_open && seq > self.next {
            // Whatever comes next tells where the read's answers end.
            let read = self
                .messages
                .back_mut()
                .expect("an open read is the newest message");
            read.range.end = seq;
            self.next = seq;
            self.read_is_open = false;
        }
        let place = match seq.checked_sub(self.next) {
            _ if request.sent == Sent::AsCopy => Place::Copy,
            Some(0) if restart => Place::Restart,
            Some(0) if self.read_is_open => Place::Again,
            Some(0) => Place::InOrder,
            Some(missing) => {
                self.holes.open(self.next..seq);
                Place::AfterGap(missing)
            }
            None if self.holes.fill(seq) => {
                let late = match request.sent {
                    Sent::Before => true,
                    Sent::After => false,
                    _ => !self.resending && self.asked_again.is_none_or(|from| seq < from),
                };
                self.resending = !late;
                let place = if late { Place::Late } else { Place::Again };
                return self.take_new(seq, request, mtu, place);
            }
            None if request.sent == Sent::Before => Place::Late,
            None => Place::Again,
        };
        match place {
            Place::Copy | Place::Again | Place::Late => {
                self.resending |= place == Place::Again;
                let message = self.message(request.psn);
                Placed {
                    place,
                    message,
                    is_new: false,
                    begins: false,
                    whole: None,
                }
            }
            Place::InOrder | Place::AfterGap(_) | Place::Restart => {
                // New packets may still be on their way when a refusal comes; only once the sender
                // has gone back do they tell that it has caught up.
                if self.resending {
                    self.asked_again = None;
                }
                self.resending = false;
                self.take_new(seq, request, mtu, place)
            }
        }
    }

    /// Puts a packet that has not been seen before into its message.
    fn take_new(&mut self, seq: Seq, request: &Request, mtu: Option<u32>, place: Place) -> Placed {
        let span = match request.kind {
            Kind::Read => answers(request.bytes, mtu),
            _ => Some(1),
        };
        let end = seq + span.unwrap_or(1);
        let before = self.count;
        let at = self.message_for(seq, request);
        let begins = self.count > before;
        let message = &mut self.messages[at];
        message.range.end = message.range.end.max(end);
        message.ended |= request.operation.ends_message();
        message.bytes += request.bytes;
        message.time = request.time;
        let whole =
            message.begun && message.ended && !message.whole && self.holes.is_whole(&message.range);
        message.whole |= whole;
        let placed = Placed {
            place,
            message: Some(message.number),
            is_new: true,
            begins,
            whole: whole.then(|| (message.bytes, message.range.end - message.range.start)),
        };
        if seq >= self.next {
            // A read of unknown length stays open at its own position until more is known.
            self.read_is_open = span.is_none();
            self.next = if span.is_none() { seq } else { end };
            if let Some(unwrap) = &mut self.unwrap {
                unwrap.advance(seq);
            }
        }
        placed
    }

    /// The path MTU has become known: so has the number of answers of an open read.
    pub(super) fn learn_mtu(&mut self, mtu: u32) {
        if self.read_is_open
            && let Some(read) = self.messages.back_mut()
            && let Some(packets) = answers(read.bytes, Some(mtu))
        {
            read.range.end = read.range.start + packets;
            self.next = read.range.end;
            self.read_is_open = false;
        }
    }

    /// Takes an acknowledgement of everything up to `psn`.
    pub(super) fn acknowledge(&mut self, psn: Psn, time: Option<u64>) -> Acknowledged {
        let mut acknowledged = Acknowledged {
            messages: None,
            latency_ns: None,
            again: false,
        };
        let Some(unwrap) = &self.unwrap else {
            return acknowledged;
        };
        let seq = unwrap.seq(psn);
        for message in self.messages.iter_mut().rev() {
            let by_acknowledgement = matches!(message.kind, Kind::Send | Kind::Write);
            if !by_acknowledgement || !message.ended || message.range.end > seq + 1 {
                continue;
            }
            if message.done {
                break;
            }
            message.done = true;
            if acknowledged.messages.is_none() {
                acknowledged.latency_ns = time
                    .zip(message.time)
                    .map(|(now, then)| now.saturating_sub(then));
            }
            let (_, last) = acknowledged.messages.unwrap_or((0, message.number));
            acknowledged.messages = Some((message.number, last));
        }
        acknowledged.again = self.acknowledged.is_some_and(|newest| seq <= newest);
        self.acknowledged = self.acknowledged.max(Some(seq));
        acknowledged
    }

    /// Takes a refusal: everything from `psn` on is wanted again.
    pub(super) fn refuse(&mut self, psn: Psn) {
        self.asked_again = self.unwrap.as_ref().map(|unwrap| unwrap.seq(psn));
    }

    /// Takes a packet that answers a read or an atomic; `None` where no such request is known.
    pub(super) fn answer(&mut self, psn: Psn, time: Option<u64>, sent: Sent) -> Option<Answered> {
        let seq = self.unwrap.as_ref()?.seq(psn);
        let at = self.message_at(seq)?;
        let message = &mut self.messages[at];
        if matches!(message.kind, Kind::Send | Kind::Write) {
            return None;
        }
        let place = match seq.checked_sub(message.next_answer) {
            _ if sent == Sent::AsCopy => Place::Copy,
            Some(0) => Place::InOrder,
            Some(missing) => {
                message.missing_answers.open(message.next_answer..seq);
                Place::AfterGap(missing)
            }
            None if message.missing_answers.fill(seq) => {
                if sent == Sent::After {
                    Place::Again
                } else {
                    Place::Late
                }
            }
            None => Place::Again,
        };
        message.next_answer = message.next_answer.max(seq + 1);
        let ends = message.next_answer == message.range.end
            && message.missing_answers.missing() == 0
            && !message.done;
        message.done |= ends;
        let latency = time
            .zip(message.time)
            .map(|(now, then)| now.saturating_sub(then));
        Some(Answered {
            message: message.number,
            place,
            whole: ends.then_some((message.bytes, latency)),
        })
    }

    /// The number of the message that `psn` belongs to.
    pub(super) fn message(&self, psn: Psn) -> Option<u64> {
        let seq = self.unwrap.as_ref()?.seq(psn);
        self.message_at(seq).map(|at| self.messages[at].number)
    }

    /// Whether a request with `psn` has been sent, and no later one than `within` packets ago.
    pub(super) fn has_sent(&self, psn: Psn, within: u64) -> bool {
        self.unwrap.as_ref().is_some_and(|unwrap| {
            let seq = unwrap.seq(psn);
            // The position of an open read counts as sent.
            let end = self.next + u64::from(self.read_is_open);
            seq < end && seq + within >= end
        })
    }

    /// Whether a refusal asked for `psn` again and it has not been passed since.
    pub(super) fn is_wanted(&self, psn: Psn) -> bool {
        let seq = self.unwrap.as_ref().map(|unwrap| unwrap.seq(psn));
        self.asked_again.is_some() && self.asked_again <= seq
    }

    /// Packets that are missing still.
    pub(super) fn missing(&self) -> u64 {
        self.holes.missing()
    }

    /// The position of `psn`, and whether all that was known had to be forgotten for it.
    fn locate(&mut self, psn: Psn) -> (Seq, bool) {
        let Some(unwrap) = &self.unwrap else {
            let unwrap = Unwrap::new(psn);
            self.next = unwrap.seq(psn);
            self.unwrap = Some(unwrap);
            return (self.next, false);
        };
        let seq = unwrap.seq(psn);
        if seq.abs_diff(self.next) <= FAR {
            return (seq, false);
        }
        *self = Self {
            count: self.count,
            ..Self::starting_at(psn)
        };
        (self.next, true)
    }

    /// The remembered message whose positions include `seq`.
    fn message_at(&self, seq: Seq) -> Option<usize> {
        let at = self.find(seq)?;
        self.messages[at].range.contains(&seq).then_some(at)
    }

    /// The last remembered message that begins at or before `seq`.
    fn find(&self, seq: Seq) -> Option<usize> {
        self.messages
            .iter()
            .rposition(|message| message.range.start <= seq)
    }

    /// The message that a new packet continues or begins.
    fn message_for(&mut self, seq: Seq, request: &Request) -> usize {
        let before = self.find(seq);
        let after = before.map_or(0, |at| at + 1);
        if !request.operation.starts_message()
            && let Some(at) = before
            && let message = &self.messages[at]
            && message.kind == request.kind
            && (!message.ended || message.range.contains(&seq))
        {
            return at;
        }
        // Later packets of the message may have been seen already.
        if !request.operation.ends_message()
            && let Some(message) = self.messages.get_mut(after)
            && !message.begun
            && message.kind == request.kind
        {
            message.begun = request.operation.starts_message();
            message.range.start = seq;
            return after;
        }
        self.count += 1;
        let message = Message {
            number: self.count,
            kind: request.kind,
            range: seq..seq,
            begun: request.operation.starts_message(),
            ended: false,
            whole: false,
            done: false,
            bytes: 0,
            time: None,
            next_answer: seq,
            missing_answers: Holes::default(),
        };
        self.messages.insert(after, message);
        if self.messages.len() <= REMEMBERED {
            return after;
        }
        self.messages.pop_front();
        after.saturating_sub(1)
    }
}

/// How many packets answer a read of `bytes`; `None` where that depends on an unknown MTU.
fn answers(bytes: u64, mtu: Option<u32>) -> Option<u64> {
    match (bytes, mtu) {
        // No path MTU is smaller.
        (0..=256, _) => Some(1),
        (bytes, Some(mtu)) => Some(bytes.div_ceil(mtu.max(1).into())),
        (_, None) => None,
    }
}
