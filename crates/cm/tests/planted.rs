//! The simulation finds every planted bug.

#[path = "simulation/mod.rs"]
mod simulation;

use hirail_cm::planted::{self, Bug};

/// Seeds that may be needed for the rarest of them.
const SEEDS: u64 = 5000;

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL.iter().copied() {
        planted::plant(Some(bug));
        let found = (0..SEEDS).find_map(|seed| simulation::run(seed).err());
        planted::plant(None);
        match found {
            Some(failure) => println!("{bug:?}: seed {}: {}", failure.seed, failure.what),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, []);
}
