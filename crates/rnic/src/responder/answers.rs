//! What the responder owes its peer: responses to READs and atomics, kept for replay, and one
//! acknowledgement or NAK after them.
//!
//! Responses leave in the order of their PSNs, and an acknowledgement waits until all responses
//! before it have left: one that overtook a READ response would be an implied NAK of that READ. One
//! that a response has made needless does not leave at all. Rules: IBTA Vol 1, chapter 9 (Transport
//! Layer).

use hirail_wire::{NakCode, PathMtu, Psn, Reth, RnrTimer};

use crate::mr::PdId;
use crate::planted::{self, Bug};

/// One remembered READ or atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(super) kind: Kind,
    first: Psn,
    /// PSNs that it takes.
    packets: u32,
    /// Next response to send, `end` when all are sent.
    pub(super) next: u32,
    /// First response of this round: it is a First or Only.
    pub(super) start: u32,
    /// One past the last response of this round.
    pub(super) end: u32,
    /// This round repeats an earlier one.
    is_replay: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// With the domain whose keys it names.
    Read(Reth, PdId),
    /// The value before the operation.
    Atomic(u64),
    /// ATOMIC WRITE or FLUSH: done, nothing to return.
    Done,
}

impl Answer {
    pub(super) const fn read(first: Psn, reth: Reth, pd: PdId, packets: u32) -> Self {
        Self::new(Kind::Read(reth, pd), first, packets)
    }

    pub(super) const fn atomic(first: Psn, original: u64) -> Self {
        Self::new(Kind::Atomic(original), first, 1)
    }

    pub(super) const fn done(first: Psn) -> Self {
        Self::new(Kind::Done, first, 1)
    }

    const fn new(kind: Kind, first: Psn, packets: u32) -> Self {
        Self {
            kind,
            first,
            packets,
            next: 0,
            start: 0,
            end: packets,
            is_replay: false,
        }
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.next < self.end
    }

    pub(super) const fn psn(&self, response: u32) -> Psn {
        self.first.add(response)
    }

    fn contains(&self, psn: Psn) -> bool {
        let index = psn.distance_from(self.first);
        index >= 0 && index.cast_unsigned() < self.packets
    }
}

/// The acknowledgement that closes what is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Tail {
    #[default]
    Nothing,
    /// ACK of everything executed.
    Ack,
    /// NAK with ePSN as it is when the NAK leaves. The newest PSN that was discarded.
    SequenceNak(Psn),
    /// RNR NAK of ePSN.
    RnrNak(RnrTimer),
    /// The request at ePSN was refused for good.
    FatalNak(NakCode),
}

/// The responder resources of one QP and what is owed from them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Ring of the last `depth` answers, oldest overwritten first.
    ring: Vec<Answer>,
    depth: u8,
    /// Where the next answer goes once the ring is full: the place of the oldest.
    next: u8,
    /// Indices with a round to send, in the order in which they leave: that of their PSNs.
    line: Line,
    tail: Tail,
}

/// A line of ring indices; at most `depth` of them, each at most once.
#[derive(Debug, Default)]
struct Line {
    indices: std::collections::VecDeque<u8>,
}

impl Answers {
    pub(super) fn new(depth: u8) -> Self {
        Self {
            depth,
            ..Self::default()
        }
    }

    /// Whether a new READ or atomic may be accepted: there are resources at all, and one of them
    /// is not waiting to be answered for the first time.
    pub(super) fn has_place(&mut self) -> bool {
        if self.ring.len() < usize::from(self.depth) {
            return true;
        }
        if self.depth == 0 {
            return false;
        }
        let oldest = &self.ring[usize::from(self.next)];
        // A replay may be given up: the peer has moved on, or it would not send new requests.
        !oldest.is_pending() || oldest.is_replay
    }

    /// Remembers and owes `answer`.
    pub(super) fn push(&mut self, answer: Answer) {
        let index = if self.ring.len() < usize::from(self.depth) {
            if self.ring.is_empty() {
                self.ring.reserve_exact(usize::from(self.depth));
                self.line.indices.reserve_exact(usize::from(self.depth));
            }
            self.ring.push(answer);
            self.ring.len() as u8 - 1
        } else {
            let index = self.next;
            self.line.indices.retain(|queued| *queued != index);
            self.ring[usize::from(index)] = answer;
            self.next = (index + 1) % self.depth;
            index
        };
        self.line.indices.push_back(index);
    }

    /// Owes part of a READ again, if it lies within one that is remembered.
    pub(super) fn replay_read(&mut self, psn: Psn, reth: &Reth, mtu: PathMtu) -> bool {
        let Some(index) = self.find(psn) else {
            return false;
        };
        let answer = &mut self.ring[index];
        let Kind::Read(original, _) = answer.kind else {
            return false;
        };
        let skipped = psn.distance_from(answer.first).cast_unsigned();
        let offset = u64::from(skipped) * u64::from(mtu.bytes());
        let end = offset + u64::from(reth.length);
        let lies_within = reth.rkey == original.rkey
            && reth.va == original.va.wrapping_add(offset)
            && end <= u64::from(original.length);
        // Responses are cut as they were the first time.
        let ends_with_a_packet =
            end == u64::from(original.length) || end.is_multiple_of(u64::from(mtu.bytes()));
        if !lies_within || !ends_with_a_packet {
            return false;
        }
        let end = skipped + reth.length.div_ceil(mtu.bytes()).max(1);
        self.replay(index, skipped, end);
        true
    }

    /// Owes the result of an atomic, ATOMIC WRITE or FLUSH again.
    pub(super) fn replay_one(&mut self, psn: Psn) -> bool {
        let Some(index) = self.find(psn) else {
            return false;
        };
        if matches!(self.ring[index].kind, Kind::Read(..)) {
            return false;
        }
        self.replay(index, 0, 1);
        true
    }

    fn replay(&mut self, index: usize, start: u32, end: u32) {
        let answer = &mut self.ring[index];
        let was_pending = answer.is_pending();
        // A round that was never finished stays a first one.
        answer.is_replay |= !was_pending;
        let late = u32::from(planted::has(Bug::ReplayOffByOne) && end > start + 1);
        answer.start = start + late;
        answer.next = start + late;
        answer.end = end;
        if !was_pending {
            let first = answer.first;
            let is_later = |queued: &u8| self.ring[usize::from(*queued)].first.is_after(first);
            let indices = &mut self.line.indices;
            let place = indices.iter().position(is_later);
            indices.insert(place.unwrap_or(indices.len()), index as u8);
        }
    }

    /// The answer that holds `psn`, newest first: PSNs come around.
    fn find(&self, psn: Psn) -> Option<usize> {
        let len = self.ring.len();
        let by_age = |age| (usize::from(self.next) + len - 1 - age) % len;
        (0..len)
            .map(by_age)
            .find(|&index| self.ring[index].contains(psn))
    }

    /// Whether responses are owed.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.line.indices.is_empty()
    }

    /// Whether an acknowledgement or NAK is owed.
    pub(crate) fn has_tail(&self) -> bool {
        self.tail != Tail::Nothing
    }

    /// Whether what is owed at the end is an ACK.
    pub(super) fn owes_ack(&self) -> bool {
        self.tail == Tail::Ack
    }

    /// The round that is next to leave.
    pub(super) fn front(&self) -> Option<&Answer> {
        self.nth(0)
    }

    /// The round that leaves after `n` others.
    pub(super) fn nth(&self, n: usize) -> Option<&Answer> {
        Some(&self.ring[usize::from(*self.line.indices.get(n)?)])
    }

    /// At most `count` responses of the front round have left: how many those were, and the PSN after
    /// them. `None` where nothing is owed.
    pub(super) fn advance(&mut self, count: u32) -> Option<(u32, Psn)> {
        let &index = self.line.indices.front()?;
        let answer = &mut self.ring[usize::from(index)];
        let count = count.min(answer.end - answer.next);
        answer.next += count;
        let next = answer.psn(answer.next);
        if !answer.is_pending() {
            self.line.indices.pop_front();
        }
        Some((count, next))
    }

    /// Owes an ACK. A NAK that is owed already says more.
    pub(super) fn acknowledge(&mut self) {
        if self.tail == Tail::Nothing {
            self.tail = Tail::Ack;
        }
    }

    /// Owes a sequence NAK, since `discarded` came after a gap.
    pub(super) fn sequence_nak(&mut self, discarded: Psn) {
        if !matches!(self.tail, Tail::FatalNak(_)) {
            self.tail = Tail::SequenceNak(discarded);
        }
    }

    /// One more packet after the gap was discarded; the NAK may not have left yet.
    pub(super) fn discarded(&mut self, psn: Psn) {
        if let Tail::SequenceNak(newest) = &mut self.tail
            && psn.is_after(*newest)
        {
            *newest = psn;
        }
    }

    /// A request was executed and `epsn` is expected next: a NAK that has not left and would ask
    /// for nothing any more becomes an ACK. Whether a sequence NAK is still to leave.
    pub(super) fn caught_up(&mut self, epsn: Psn) -> bool {
        match self.tail {
            Tail::SequenceNak(newest) if !epsn.is_after(newest) => true,
            Tail::SequenceNak(_) | Tail::RnrNak(_) => {
                self.tail = Tail::Ack;
                false
            }
            Tail::Nothing | Tail::Ack | Tail::FatalNak(_) => false,
        }
    }

    pub(super) fn rnr_nak(&mut self, timer: RnrTimer) {
        if !matches!(self.tail, Tail::FatalNak(_)) {
            self.tail = Tail::RnrNak(timer);
        }
    }

    pub(super) fn fatal_nak(&mut self, code: NakCode) {
        self.tail = Tail::FatalNak(code);
    }

    pub(super) fn tail(&self) -> Tail {
        self.tail
    }

    /// The tail has left.
    pub(super) fn tail_sent(&mut self) {
        self.tail = Tail::Nothing;
    }

    /// Whether a QP in error still has this to say.
    pub(crate) fn owes_fatal_nak(&self) -> bool {
        matches!(self.tail, Tail::FatalNak(_))
    }

    /// A round cannot be answered (its memory is gone): everything owed gives way to the NAK.
    pub(super) fn abandon(&mut self) -> Option<Psn> {
        let psn = self.front().map(|answer| answer.psn(answer.next));
        self.line.indices.clear();
        psn
    }
}
