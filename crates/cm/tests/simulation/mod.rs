//! Seeded simulation: a few nodes with connection managers on a faulty network, users who connect,
//! accept, refuse, disconnect and give up, and checkers that stand outside.
//!
//! A seed decides everything. The checkers know what each user meant to do: every connect ends in
//! exactly one way, both ends agree about it, private data and depths arrive as they were said,
//! nothing is told twice, everything ends in time once the faults have stopped, and then nothing is
//! left in any table.

mod scenario;
mod world;

use core::fmt;

pub(crate) use scenario::Scenario;

/// A seed whose run went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The seed.
    pub(crate) seed: u64,
    /// What went wrong.
    pub(crate) what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\nto see it again: HIRAIL_CM_SEEDS={}..{} cargo test -p hirail-cm --test simulate -- --nocapture",
            self.seed,
            self.what,
            self.seed,
            self.seed + 1
        )
    }
}

/// Runs a seed; how many messages were sent.
pub(crate) fn run(seed: u64) -> Result<u64, Failure> {
    run_with(seed, |_| {})
}

/// Runs a seed and hands every line about it to `print`.
pub(crate) fn run_with(seed: u64, print: impl FnMut(&str)) -> Result<u64, Failure> {
    let world = world::World::new(Scenario::of(seed), print);
    world.run().map_err(|what| Failure { seed, what })
}
