//! Faults on purpose, decided by a seed: what a bad network, a slow receiver and a failing card do,
//! for programs that must survive them.
//!
//! Faults strike what arrives. A packet's fate hangs on the seed, on its flow (by the order in which
//! flows appear) and on its place in it, never on the time: the same program with the same seed meets
//! the same faults, as far as it does the same itself.

mod link;
mod spec;

use std::time::Duration;

pub(crate) use link::FaultyLink;
pub use spec::FaultsError;

/// Names and meanings of all faults, as [`Faults`] reads them.
pub use spec::FAULTS;

/// What happens to packets and queue pairs. Probabilities are between 0 and 1 and count per packet.
///
/// Reads itself from text such as `drop=1%,delay=50us,flap=100ms/5s`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Seed of all randomness.
    pub seed: u64,
    /// A packet vanishes.
    pub loss: f64,
    /// A packet arrives twice.
    pub duplication: f64,
    /// A packet is held back for 200 µs, so that later ones pass it.
    pub reordering: f64,
    /// A bit of a packet is flipped; the ICRC finds it.
    pub corruption: f64,
    /// A packet that is ECN-capable is marked "congestion experienced".
    pub ce_mark: f64,
    /// A request that needs a receive finds none and is answered by an RNR NAK.
    pub not_ready: f64,
    /// The queue pair that a packet is for fails: `IBV_EVENT_QP_FATAL`.
    pub qp_failure: f64,
    /// Time that every packet takes longer.
    pub delay: Duration,
    /// The port loses its link now and then: `IBV_EVENT_PORT_ERR`, later `IBV_EVENT_PORT_ACTIVE`.
    pub flap: Option<Flap>,
}

/// A port that loses its link regularly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flap {
    /// How long it is down.
    pub down: Duration,
    /// From one time that it goes down to the next, and from the start to the first.
    pub every: Duration,
}

impl Faults {
    /// Whether nothing happens at all.
    pub fn is_perfect(&self) -> bool {
        let harmless = Self {
            seed: self.seed,
            ..Self::default()
        };
        *self == harmless
    }
}
