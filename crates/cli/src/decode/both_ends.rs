//! Packets that two processes of a host recorded in one file, one when it sent them and the other when
//! they arrived. They were one packet on the wire.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use hirail_wire::pcap::{Direction, Packet};

/// Packets that are remembered.
const REMEMBERED: usize = 1 << 16;

/// A packet is recorded as sent once the kernel has taken it: its receiver may be that much quicker.
const EARLY_NS: u64 = 10_000_000;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct BothEnds {
    /// Packets sent that have not arrived yet.
    under_way: Unmatched,
    /// Packets that arrived and were not sent yet.
    early: Unmatched,
}

impl BothEnds {
    /// Whether the packet is in the file already, as its other end recorded it.
    pub(super) fn is_repeated(&mut self, packet: &Packet<'_>) -> bool {
        let Some(direction) = packet.direction else {
            return false;
        };
        let mut hasher = DefaultHasher::new();
        packet.data.hash(&mut hasher);
        let (key, time) = (hasher.finish(), packet.time_ns.unwrap_or(0));
        let (others, own) = match direction {
            Direction::Outbound => (&mut self.early, &mut self.under_way),
            Direction::Inbound => (&mut self.under_way, &mut self.early),
        };
        let since = match direction {
            Direction::Outbound => time.saturating_sub(EARLY_NS),
            Direction::Inbound => 0,
        };
        let is_repeated = others.take(key, since);
        if !is_repeated {
            own.put(key, time);
        }
        is_repeated
    }
}

/// Packets whose other end is to come, by their hash, and when they were recorded.
#[derive(Debug, Default)]
struct Unmatched {
    times: HashMap<u64, VecDeque<u64>>,
    /// In the order in which they came.
    order: VecDeque<u64>,
}

impl Unmatched {
    fn put(&mut self, key: u64, time: u64) {
        self.times.entry(key).or_default().push_back(time);
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.take(oldest, 0);
        }
    }

    /// Takes the oldest one of this hash that was recorded at `since` or later.
    fn take(&mut self, key: u64, since: u64) -> bool {
        let Some(times) = self.times.get_mut(&key) else {
            return false;
        };
        while times.front().is_some_and(|time| *time < since) {
            times.pop_front();
        }
        let found = times.pop_front().is_some();
        if times.is_empty() {
            self.times.remove(&key);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hirail_wire::pcap::{LinkType, Reader, Writer};

    /// What of the packets, by their direction, first byte and milliseconds, is there already.
    fn repeated(packets: &[(Option<Direction>, u8, u64)]) -> Vec<bool> {
        let mut writer = Writer::new(Vec::new()).expect("memory takes it");
        let interface = writer.add_interface("a", LinkType::RAW).expect("memory");
        for (direction, byte, ms) in packets {
            let (data, ns) = ([*byte; 64], ms * 1_000_000);
            let written = match direction {
                Some(way) => writer.write_directed(interface, ns, *way, &[&data]),
                None => writer.write_packet(interface, ns, &[&data], Some("no direction")),
            };
            written.expect("memory takes it");
        }
        let file = writer.into_inner();
        let mut reader = Reader::new(&file[..]).expect("a capture");
        let mut ends = BothEnds::default();
        let mut found = Vec::new();
        while let Some(packet) = reader.next_packet().expect("whole") {
            found.push(ends.is_repeated(&packet));
        }
        found
    }

    #[test]
    fn an_arrival_answers_one_sending() {
        let (sent, came) = (Some(Direction::Outbound), Some(Direction::Inbound));
        let packets = [
            (sent, 1, 10),
            (sent, 1, 20),
            (came, 2, 30),
            (came, 1, 30),
            (None, 1, 30),
            (came, 1, 40),
            (came, 1, 50),
        ];
        let expected = [false, false, false, true, false, true, false];
        assert_eq!(repeated(&packets), expected);
    }

    #[test]
    fn an_arrival_may_be_recorded_first_but_not_long_before() {
        let (sent, came) = (Some(Direction::Outbound), Some(Direction::Inbound));
        let packets = [
            (came, 1, 10),
            (sent, 1, 11),
            (came, 1, 20),
            (sent, 1, 40),
            (came, 1, 41),
        ];
        assert_eq!(repeated(&packets), [false, true, false, false, true]);
    }
}
