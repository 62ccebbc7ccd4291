//! What a connection manager is made with.

use hirail_rnic::Span;
use hirail_wire::{PathMtu, RnrTimer};

/// Communication ids of one process: those that share the upper bits of `first`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdRange {
    /// The first one.
    pub first: u32,
    /// Bits that may differ from it, the low ones, all 0 in the first one; at most 32.
    pub bits: u32,
}

/// What a connection manager is made with. Time codes are the standard's: 4.096 µs · 2^code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Communication ids and sequence numbers follow from it; it must not be guessable.
    pub seed: u128,
    /// Ids to choose from. An id comes again only when all others have.
    pub ids: IdRange,
    /// GUID of this node.
    pub ca_guid: u64,
    /// Largest path MTU of the port.
    pub port_mtu: PathMtu,
    /// READs and atomics of a peer that a queue pair can serve at once.
    pub max_responder_resources: u8,
    /// READs and atomics that a queue pair can have open at once.
    pub max_initiator_depth: u8,
    /// Time code of how long an acknowledgement takes here.
    pub ack_delay: u8,
    /// Time code of how long a packet is under way at most.
    pub packet_lifetime: u8,
    /// Time code of how long a message may wait for its answer, here and at the peer.
    pub response_timeout: u8,
    /// How often an unanswered message is repeated.
    pub max_cm_retries: u8,
    /// Time code of how much time an MRA asks for.
    pub service_timeout: u8,
    /// Wait that RNR NAKs of this side's queue pairs ask for.
    pub min_rnr_timer: RnrTimer,
    /// Connections, questions and answers that may exist at once, the remembered ones included.
    pub max_entries: usize,
    /// Listeners that may exist at once.
    pub max_listeners: usize,
}

impl Default for Config {
    /// The times of Linux's rdma_cm.
    fn default() -> Self {
        Self {
            seed: 0,
            ids: IdRange { first: 0, bits: 32 },
            ca_guid: 0,
            port_mtu: PathMtu::Mtu1024,
            max_responder_resources: 16,
            max_initiator_depth: 16,
            ack_delay: 15,
            packet_lifetime: 16,
            response_timeout: 20,
            max_cm_retries: 15,
            service_timeout: 24,
            min_rnr_timer: RnrTimer::new(12),
            max_entries: 1 << 16,
            max_listeners: 1 << 12,
        }
    }
}

/// How long a time code lasts.
pub(crate) const fn span(code: u8) -> Span {
    Span::from_ns(4096 << (code & 31))
}

/// Local ACK timeout that fits a packet lifetime and the delay of the other side's acknowledgements
/// as Linux works it out: there and back, and a little more.
pub(crate) const fn ack_timeout(lifetime: u8, delay: u8) -> u8 {
    let both_ways = lifetime + 1;
    let code = if both_ways >= delay {
        both_ways + (delay + 1 >= both_ways) as u8
    } else {
        delay + (both_ways + 1 >= delay) as u8
    };
    if code > 31 { 31 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(span(0), Span::from_ns(4096));
        assert_eq!(span(20), Span::from_ns(4_294_967_296));
        // The values seen from Linux and soft-RoCE.
        assert_eq!(ack_timeout(16, 15), 17);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(18, 15), 19);
        assert_eq!(ack_timeout(3, 20), 20);
        assert_eq!(ack_timeout(19, 21), 22);
        assert_eq!(ack_timeout(31, 31), 31);
    }
}
