//! The checkers of the simulation are only worth something if they find bugs: each bug that can be
//! planted into the engine is found within 10 000 seeds.
//!
//! `cargo test -p testkit --release --features planted-bugs`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hirail_rnic::planted::{Bug, plant};
use testkit::sim;

const SEEDS: u64 = 10_000;

/// The first seed that shows the bug, and how.
fn hunt(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let found =
        (0..SEEDS).find_map(
            |seed| match catch_unwind(AssertUnwindSafe(|| sim::run(seed))) {
                Ok(Ok(_)) => None,
                Ok(Err(failure)) => Some((seed, failure.what)),
                // The engine's own assertions and the test memory's bounds count as well.
                Err(_) => Some((seed, "a panic".to_owned())),
            },
        );
    plant(None);
    found
}

#[test]
fn every_planted_bug_is_found() {
    std::panic::set_hook(Box::new(|_| ()));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(&bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = hunt(bug);
                    results.lock().expect("nobody panics").push((bug, found));
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let mut results = results.into_inner().expect("nobody panics");
    results.sort_by_key(|(bug, _)| Bug::ALL.iter().position(|other| other == bug));
    let mut missed = Vec::new();
    for (bug, found) in results {
        match found {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what:.120}"),
            None => {
                println!("{bug:?}: not found");
                missed.push(bug);
            }
        }
    }
    assert!(
        missed.is_empty(),
        "not found within {SEEDS} seeds: {missed:?}"
    );
    assert!(Bug::ALL.len() >= 20);
}

/// The command that runs seeds fails for a bug and names the one that repeats the run, which fails
/// again, and not without the bug.
#[test]
fn the_command_fails_and_says_how_to_see_it_again() {
    // Examples are built with all the tests, into the folder beside theirs.
    let test = std::env::current_exe().expect("a test has a path");
    let command = test
        .ancestors()
        .nth(2)
        .map(|target| target.join("examples/simulate"));
    let command = command.filter(|path| path.exists()).expect(
        "built by: cargo test -p testkit --features planted-bugs (not with --test planted alone)",
    );
    let simulate = |args: &[&str]| {
        let output = Command::new(&command).args(args).output().expect("it runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, text) = simulate(&["--plant", "DuplicateExecuted", "--seeds", "0..100"]);
    assert_eq!(code, Some(1), "{text}");
    let again = "to see it again: cargo run -p testkit --release --example simulate -- --seed ";
    let seed = text
        .lines()
        .find_map(|line| line.strip_prefix(again))
        .expect("it says how");
    let (code, text) = simulate(&["--plant", "DuplicateExecuted", "--seed", seed]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("seed {seed}: ")), "{text}");
    let (code, text) = simulate(&["--seed", seed]);
    assert_eq!(code, Some(0), "{text}");
}

/// Without a bug the same seeds pass, or finding one would mean nothing.
#[test]
fn nothing_is_found_where_nothing_was_planted() {
    for seed in 0..200 {
        sim::run(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
