//! DCQCN's notification point: the receiver of a flow, which answers packets that a congested
//! switch marked with CNPs (Zhu et al., SIGCOMM 2015; the packet: IBTA Vol 1, annex A17, RoCEv2).

use super::params::Dcqcn;
use crate::time::Instant;

/// Whether a CNP is due, for one flow. What a flow is, is up to the owner: cards keep this per queue
/// pair, per destination address or per port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NotificationPoint {
    /// No CNP before this.
    next_cnp_at: Instant,
}

impl NotificationPoint {
    /// A packet marked CE arrived at `now`. `true` if a CNP is to be sent now; the next one is due
    /// `min_time_between_cnps` later at the earliest.
    #[must_use]
    pub fn on_marked(&mut self, now: Instant, dcqcn: &Dcqcn) -> bool {
        let due = now >= self.next_cnp_at;
        if due {
            self.next_cnp_at = now + dcqcn.min_time_between_cnps();
        }
        due
    }
}
