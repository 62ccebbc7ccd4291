//! Programs on hirail talk to the same programs on the kernel's soft-RoCE, each end in both roles:
//! unmodified, by `hirail run` here and on the kernel's own libraries in a guest.
//!
//! Without a guest this skips and says why. By default it runs what takes a minute or two;
//! `HIRAIL_TEST_PEERS=all` runs everything (`scripts/test-peers`). `docs/testing.md` has more.

mod cases;
mod counters;
#[path = "../../../hirail/tests/lab/mod.rs"]
mod lab;
mod peers;
#[path = "../programs/process.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod process;
mod wire;

use std::env;
use std::time::Instant;

use cases::{CASES, Case, Family, Kind, LOSSY};
use counters::Counters;
use peers::{Peers, Side};

/// Set to `all` where everything is to run.
const ALL: &str = "HIRAIL_TEST_PEERS";
/// Another kernel than the lab's first.
const KERNEL: &str = "HIRAIL_TEST_PEERS_KERNEL";

/// Retransmission in both directions shows in these counters, at either end.
const RECOVERED: [&str; 3] = ["out_of_sequence", "packet_seq_err", "duplicate_request"];

#[test]
fn programs_and_the_kernel() {
    let all = env::var(ALL).is_ok_and(|value| value == "all");
    let kernel = env::var(KERNEL).unwrap_or_else(|_| "6.1".to_owned());
    // Frames of the largest path MTU.
    let peers = match Peers::up(&["--mtu", "4200", "--kernel", &kernel]) {
        Ok(peers) => peers,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let wanted = |case: &&Case| all || case.is_short;
    let capture = peers.capture();
    let mut table = Table::default();
    for case in CASES.iter().filter(wanted) {
        table.run(&peers, case, "");
    }
    for side in Side::BOTH {
        let what = "ucmatose, where nobody listens";
        table.add(what, side, "", || peers.is_refused(side));
    }
    let clean = wire::check(&capture.stop());
    println!("{clean}");

    let before = Counters::of(&peers);
    peers.lose_one_of(if all { 100 } else { 50 });
    for case in LOSSY.iter().filter(wanted) {
        table.run(&peers, case, ", losses");
    }
    let recovered = Counters::of(&peers).since(&before);
    println!("counted under losses:\n{recovered}");
    let log = peers.kernel_log();
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("ICRC")).collect();
    table.print();
    assert_eq!(table.failed, Vec::<String>::new());
    assert!(complaints.is_empty(), "{complaints:?}");
    // Both have heard of losses from the other, and both have told the other.
    for name in RECOVERED {
        assert!(recovered.hirail(name) > 0, "{name}: {recovered}");
    }
    for name in ["out_of_seq_request", "rcvd_seq_err", "duplicate_request"] {
        assert!(recovered.kernel(name) > 0, "{name}: {recovered}");
    }
}

/// What was run, and what came of it.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    failed: Vec<String>,
}

impl Table {
    /// Runs a case with either end as the server.
    fn run(&mut self, peers: &Peers, case: &Case, note: &str) {
        let what = format!("{} {}{note}", case.program, case.options);
        let family = match case.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        for server in Side::BOTH {
            // perftest connects twice, the second time perhaps before a slow server listens again.
            if case.kind == Kind::PerftestCm && server == Side::Kernel {
                continue;
            }
            self.add(&what, server.other(), family, || peers.run(case, server));
        }
    }

    fn add(
        &mut self,
        what: &str,
        client: Side,
        family: &str,
        run: impl FnOnce() -> Result<(), String>,
    ) {
        let start = Instant::now();
        let result = run();
        let seconds = start.elapsed().as_secs_f32();
        let outcome = match &result {
            Ok(()) => "passed",
            Err(_) => "FAILED",
        };
        let row = format!("| `{}` | {client} | {family} | {outcome} |", what.trim());
        println!("{row} {seconds:.1} s");
        self.rows.push(row);
        if let Err(reason) = result {
            println!("{reason}");
            self.failed
                .push(format!("{what}, client {client}: {reason}"));
        }
    }

    fn print(&self) {
        println!("| program | asked by | over | result |\n| --- | --- | --- | --- |");
        for row in &self.rows {
            println!("{row}");
        }
    }
}
