//! Packets and octets by priority, as a network interface counts them: kept beside the data path and
//! handed to the counters once per batch.

/// Priorities of Ethernet.
const PRIORITIES: usize = 8;

/// What moved in one direction since [`flush`](Self::flush).
#[derive(Default)]
pub(super) struct Traffic {
    /// Packets and octets.
    lanes: [(u64, u64); PRIORITIES],
    /// Bit per priority that has any.
    touched: u8,
}

impl Traffic {
    /// Packets of one priority, with all their octets.
    #[inline]
    pub(super) fn add(&mut self, priority: u8, packets: u64, octets: u64) {
        let priority = priority & 7;
        let lane = &mut self.lanes[usize::from(priority)];
        lane.0 += packets;
        lane.1 += octets;
        self.touched |= 1 << priority;
    }

    /// Hands out priority, packets and octets of what there was, and forgets them.
    pub(super) fn flush(&mut self, mut each: impl FnMut(u8, u64, u64)) {
        while self.touched != 0 {
            let priority = self.touched.trailing_zeros() as u8;
            self.touched &= self.touched - 1;
            let (packets, octets) = core::mem::take(&mut self.lanes[usize::from(priority)]);
            each(priority, packets, octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_priority() {
        let mut traffic = Traffic::default();
        traffic.add(7, 1, 100);
        traffic.add(0, 1, 70);
        traffic.add(7, 2, 300);
        let mut seen = Vec::new();
        traffic.flush(|priority, packets, octets| seen.push((priority, packets, octets)));
        assert_eq!(seen, [(0, 1, 70), (7, 3, 400)]);
        traffic.flush(|_, _, _| panic!("nothing is left"));
    }
}
