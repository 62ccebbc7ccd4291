//! Checks on the packets themselves, as somebody on the wire would make them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use hirail_rnic::{Instant, Span};
use hirail_wire::{Ext, Headers, NakCode, Operation, PathMtu, Psn, Syndrome};

use super::stream::{Check, Stream, ensure};
use crate::net::Seen;

/// What was seen of one stream.
pub(super) struct Watch {
    mtu: PathMtu,
    is_reliable: bool,
    /// The PSN that the next new request begins with.
    next_new: Psn,
    /// What each request packet looked like, how often it was sent, and how often of that since
    /// the network is perfect.
    sent: HashMap<Psn, (u64, u32, u32)>,
    /// The network is perfect from then on.
    quiet_at: Instant,
    /// The requester waits for a receiver until then, and sends nothing from that PSN on.
    wait: Option<(Instant, Psn)>,
    /// An RNR NAK came of which it cannot be told what it means; until then others cannot either.
    unsure_until: Instant,
    /// The sequence NAK that was sent last, unless what it asked for has arrived since.
    told: Option<Psn>,
}

impl Watch {
    pub(super) fn new(psn: Psn, mtu: PathMtu, is_reliable: bool, quiet_at: Instant) -> Self {
        Self {
            quiet_at,
            mtu,
            is_reliable,
            next_new: psn,
            sent: HashMap::new(),
            wait: None,
            unsure_until: Instant::EPOCH,
            told: None,
        }
    }

    /// The PSN of the next new request.
    pub(super) fn next_new(&self) -> Psn {
        self.next_new
    }

    /// How often the packets of a request were sent at most.
    pub(super) fn most_sent(&self, first: Psn, packets: u32) -> u32 {
        (0..packets)
            .filter_map(|i| self.sent.get(&first.add(i)))
            .map(|(_, times, _)| *times)
            .max()
            .unwrap_or(0)
    }

    /// How often the packets of a request were sent at most since the network is perfect.
    pub(super) fn sent_in_vain(&self, first: Psn, packets: u32) -> u32 {
        (0..packets)
            .filter_map(|i| self.sent.get(&first.add(i)))
            .map(|(_, _, times)| *times)
            .max()
            .unwrap_or(0)
    }

    /// A request left its end, whose send queue is stopped if it `drains`.
    pub(super) fn on_request_sent(&mut self, seen: &Seen, stream: &Stream, drains: bool) -> Check {
        let psn = seen.headers.bth().psn;
        let number = stream.number;
        if let Some((until, from)) = self.wait
            && seen.at < until
        {
            ensure!(
                psn.is_before(from),
                "stream {number}: PSN {psn} was sent at {:?}, the receiver asked to wait until {until:?}",
                seen.at
            );
        }
        let is_read = seen.headers.opcode().operation() == Operation::ReadRequest;
        let count = match seen.headers.ext() {
            Ext::Reth(reth) if is_read => reth.length.div_ceil(self.mtu.bytes()).max(1),
            _ => 1,
        };
        let ahead = psn.distance_from(self.next_new);
        ensure!(
            ahead <= 0,
            "stream {number}: PSN {psn} was sent, {} is next",
            self.next_new
        );
        ensure!(
            ahead == 0 || self.is_reliable,
            "stream {number}: PSN {psn} was sent again on an unreliable service"
        );
        let starts = stream.ops.iter().any(|op| op.first_psn == psn);
        ensure!(
            !(ahead == 0 && starts && drains),
            "stream {number}: PSN {psn} begins a request while the queue is stopped"
        );
        if ahead == 0 {
            self.next_new = self.next_new.add(count);
        }
        let look = look(&seen.headers, seen.digest);
        let (first_look, times, late) = self.sent.entry(psn).or_insert((look, 0, 0));
        ensure!(
            is_read || *first_look == look,
            "stream {number}: PSN {psn} was sent again as something else: {}",
            seen.headers
        );
        *times += 1;
        *late += u32::from(seen.at > self.quiet_at);
        Ok(())
    }

    /// A request arrived at the other end.
    pub(super) fn on_request_arrived(&mut self, seen: &Seen) {
        if self.told == Some(seen.headers.bth().psn) {
            self.told = None;
        }
    }

    /// A response left the other end.
    pub(super) fn on_response_sent(&mut self, seen: &Seen, stream: &Stream) -> Check {
        let psn = seen.headers.bth().psn;
        let number = stream.number;
        if seen.headers.opcode().operation() != Operation::Acknowledge {
            return Ok(());
        }
        let Some(aeth) = seen.headers.ext().aeth() else {
            return Ok(());
        };
        // Everything before this PSN has been executed.
        let end = match aeth.syndrome {
            Syndrome::Ack(_) => psn.next(),
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                ensure!(
                    self.told != Some(psn),
                    "stream {number}: two NAKs for the gap at {psn}"
                );
                self.told = Some(psn);
                psn
            }
            Syndrome::Rnr(_) => psn,
            _ => return Ok(()),
        };
        let executed = stream.messages_before(end);
        ensure!(
            aeth.msn.value() as usize == executed,
            "stream {number}: MSN {} with PSN {psn}, {executed} messages end before",
            aeth.msn.value()
        );
        Ok(())
    }

    /// A response arrived at the requester.
    pub(super) fn on_response_arrived(&mut self, seen: &Seen, stream: &Stream) {
        let Some(aeth) = seen.headers.ext().aeth() else {
            return;
        };
        let Syndrome::Rnr(timer) = aeth.syndrome else {
            return;
        };
        let psn = seen.headers.bth().psn;
        let is_waiting = self.wait.is_some_and(|(until, _)| seen.at < until);
        if seen.dropped.is_some() || is_waiting {
            return;
        }
        // A NAK beyond an unanswered READ is about the READ.
        let is_plain = stream.ops[stream.done..]
            .iter()
            .take_while(|op| op.first_psn.is_before(psn))
            .all(|op| !op.kind.is_read_or_atomic());
        let until = seen.at + Span::from(timer.delay());
        if is_plain && stream.failed.is_none() && seen.at >= self.unsure_until {
            self.wait = Some((until, psn));
        } else {
            self.unsure_until = self.unsure_until.max(until);
        }
    }
}

/// A packet without what may change when it is sent again.
fn look(headers: &Headers, payload: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    headers.with_ack_req(false).hash(&mut hasher);
    payload.hash(&mut hasher);
    hasher.finish()
}
