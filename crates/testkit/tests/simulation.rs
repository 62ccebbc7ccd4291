//! A bounded number of seeds of the simulation, and that a seed decides everything.

use testkit::sim;

/// As many seeds as a test run has time for; `simulate --seeds A..B` runs more.
#[test]
fn seeds_pass() {
    const SEEDS: u64 = 3000;
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (thread..SEEDS).step_by(threads as usize) {
                    if let Err(failure) = sim::run(seed) {
                        panic!("{failure}");
                    }
                }
            });
        }
    });
}

/// The same seed does the same, packet by packet and completion by completion; another one does not.
#[test]
fn a_seed_decides_everything() {
    let mut hashes = Vec::new();
    for seed in 10_000..10_040 {
        let first = sim::run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        let second = sim::run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 40, "different seeds are different runs");
}

/// Talking about a run does not change it, and its capture holds what arrived.
#[test]
fn a_run_that_is_watched_is_the_same_run() {
    use std::cell::RefCell;
    use std::io::{Cursor, Write};
    use std::rc::Rc;

    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let bytes = Rc::new(RefCell::new(Vec::new()));
    let mut text = String::new();
    let sink = Box::new(Shared(Rc::clone(&bytes)));
    let aloud = sim::run_aloud(7, Some(sink), |line| text.push_str(line)).unwrap();
    assert_eq!(aloud, sim::run(7).unwrap());
    assert!(text.contains(" > RC "), "{text}");
    let bytes = bytes.borrow();
    let mut reader = hirail_wire::pcap::Reader::new(Cursor::new(&bytes[..])).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        let view = hirail_wire::FrameView::parse(packet.data).unwrap();
        assert!(view.roce().is_some());
        packets += 1;
    }
    assert!(packets > 10);
}
