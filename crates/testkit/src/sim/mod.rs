//! Seeded simulation: small groups of RNICs over a faulty network, and checkers that stand outside
//! the engine.
//!
//! A seed decides everything: nodes, links, faults, connections, what their users post and when. The
//! checkers know what was posted and look at completions, memory and packets: each SEND is consumed
//! once, each atomic applied once, memory is what the model says, completions come in order and never
//! before their data, there is one per request, and everything ends once the faults have stopped.

mod scenario;
mod stream;
mod watch;
mod world;

use core::fmt;

pub use scenario::{Config, Connection, Scenario};
pub use world::Outcome;

use world::World;

/// A seed whose run went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What went wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\nto see it again: cargo run -p testkit --release --example simulate -- --seed {}",
            self.seed, self.what, self.seed
        )
    }
}

impl std::error::Error for Failure {}

/// Runs a seed.
///
/// # Errors
///
/// What the checkers found.
pub fn run(seed: u64) -> Result<Outcome, Failure> {
    World::new(Scenario::of(seed))
        .run()
        .map_err(|what| Failure { seed, what })
}

/// Runs a seed and hands every line about a packet to `print`; records a capture into `capture`.
///
/// # Errors
///
/// What the checkers found.
pub fn run_aloud(
    seed: u64,
    capture: Option<Box<dyn std::io::Write>>,
    mut print: impl FnMut(&str),
) -> Result<Outcome, Failure> {
    let scenario = Scenario::of(seed);
    print(&format!("{scenario:#?}\n"));
    let mut world = World::new(scenario);
    world.log();
    if let Some(capture) = capture {
        world.record(capture);
    }
    let result = world.run();
    print(&world.take_log());
    result.map_err(|what| Failure { seed, what })
}
