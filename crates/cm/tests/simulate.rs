//! The simulation, over a number of seeds: `HIRAIL_CM_SEEDS=0..20000` for others than the usual.

#[path = "simulation/mod.rs"]
mod simulation;

/// Seeds of an ordinary test run.
const SEEDS: core::ops::Range<u64> = 0..3000;

#[test]
fn seeds_end_as_they_should() {
    let seeds = match std::env::var("HIRAIL_CM_SEEDS") {
        Ok(text) => {
            let (first, end) = text.split_once("..").expect("FIRST..END");
            first.parse().expect("a number")..end.parse().expect("a number")
        }
        Err(_) => SEEDS,
    };
    let is_alone = seeds.end - seeds.start == 1;
    let mut sent = 0;
    for seed in seeds.clone() {
        let result = if is_alone {
            simulation::run_with(seed, |line| println!("{line}"))
        } else {
            simulation::run(seed)
        };
        match result {
            Ok(messages) => sent += messages,
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{} seeds, {sent} messages", seeds.end - seeds.start);
    assert!(sent > 0 || is_alone);
}
