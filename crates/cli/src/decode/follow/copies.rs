//! Telling a packet that the network duplicated or delayed from one that its sender sent again.
//!
//! All of them carry a PSN that was there before. What differs is the IPv4 Identification, which
//! most senders count up and the network keeps.

use std::collections::VecDeque;

use hirail_wire::Psn;

/// Packets of one direction that are compared.
const COMPARED: usize = 64;

/// Without an Identification: two equal packets in a row within this time are copies.
const IN_A_ROW_NS: u64 = 100_000;

/// When a packet was sent, compared with the others of its direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// Together with an earlier one: the network made a second one.
    AsCopy,
    /// Before all of its like, or if it has none before any other, that came earlier: it was overtaken.
    Before,
    /// After one of its like, or after all others.
    After,
    /// Nobody can tell.
    Unknown,
}

/// The latest packets of one direction.
///
/// Some senders repeat Identifications, or have none (IPv6): then only a packet that follows its
/// like at once is taken for a copy.
#[derive(Debug, Default)]
pub(super) struct Copies {
    latest: VecDeque<Seen>,
    /// The last of the Identifications in their order.
    newest_id: Option<u16>,
    /// Different packets had the same Identification.
    ids_repeat: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    psn: Psn,
    opcode: u8,
    id: u16,
    time: Option<u64>,
}

impl Copies {
    /// Takes the next packet. `id` is the IPv4 Identification, 0 where there is none. `wanted`
    /// tells that the receiver asked for the packet again.
    pub(super) fn take(
        &mut self,
        psn: Psn,
        opcode: u8,
        id: u16,
        time: Option<u64>,
        wanted: bool,
    ) -> Sent {
        let like = |seen: &Seen| seen.psn == psn && seen.opcode == opcode;
        let same_id = self.latest.iter().rev().find(|seen| seen.id == id);
        self.ids_repeat |= same_id.is_some_and(|seen| !like(seen));
        let sent = if id != 0 && !self.ids_repeat {
            let newest = *self.newest_id.get_or_insert(id);
            let mut likes = self.latest.iter().filter(|seen| like(seen)).peekable();
            // The first of its kind is compared with all others.
            let is_first = likes.peek().is_none();
            let overtaken = is_first && is_after(newest, id)
                || !is_first && likes.all(|seen| is_after(seen.id, id));
            if is_after(id, newest) {
                self.newest_id = Some(id);
            }
            match same_id {
                Some(_) => Sent::AsCopy,
                None if overtaken => Sent::Before,
                None => Sent::After,
            }
        } else {
            let at_once = self.latest.back().is_some_and(|seen| {
                let apart = time
                    .zip(seen.time)
                    .map(|(now, then)| now.saturating_sub(then));
                like(seen) && seen.id == id && apart.is_some_and(|ns| ns < IN_A_ROW_NS)
            });
            if at_once && !wanted {
                Sent::AsCopy
            } else {
                Sent::Unknown
            }
        };
        if self.latest.len() == COMPARED {
            self.latest.pop_front();
        }
        self.latest.push_back(Seen {
            psn,
            opcode,
            id,
            time,
        });
        sent
    }
}

/// Whether one Identification was counted after another one.
const fn is_after(id: u16, other: u16) -> bool {
    let distance = id.wrapping_sub(other);
    distance != 0 && distance < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes packets of (PSN, Identification, time in ns, wanted again).
    fn taken<const N: usize>(packets: [(u32, u16, u64, bool); N]) -> [Sent; N] {
        let mut copies = Copies::default();
        packets.map(|(psn, id, time, wanted)| copies.take(Psn::new(psn), 4, id, Some(time), wanted))
    }

    #[test]
    fn the_identification_tells() {
        use Sent::{After, AsCopy, Before};
        let packets = [
            (1, 0xfffe, 0, false),
            (1, 0xfffe, 10, false),
            (2, 0xffff, 20, false),
            (4, 2, 30, false),
            (3, 1, 40, false),
            (1, 3, 50, false),
            // Sent again after its like, overtaken by another one.
            (5, 6, 60, false),
            (4, 5, 70, false),
        ];
        let expected = [After, AsCopy, After, After, Before, After, After, After];
        assert_eq!(taken(packets), expected);
    }

    #[test]
    fn repeated_identifications_tell_nothing() {
        use Sent::{After, AsCopy, Unknown};
        let packets = [
            (1, 7, 0, false),
            (2, 7, 10, false),
            (1, 7, 20, false),
            (1, 7, 30, false),
            (1, 7, 1_000_000, false),
        ];
        assert_eq!(taken(packets), [After, Unknown, Unknown, AsCopy, Unknown]);
    }

    #[test]
    fn without_identification() {
        use Sent::{AsCopy, Unknown};
        let packets = [
            (1, 0, 0, false),
            (1, 0, 10, false),
            (1, 0, 20, true),
            (2, 0, 30, false),
            (1, 0, 40, false),
        ];
        assert_eq!(taken(packets), [Unknown, AsCopy, Unknown, Unknown, Unknown]);
    }
}
