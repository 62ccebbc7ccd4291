//! The benchmarks of perftest, which look at no data.

use super::pair::{self, Listens};
use super::process::{Folder, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "perftest";

const PAIRS: &[(&str, &[&str])] = &[
    (
        "ib_write_bw",
        &[
            "-n 100",
            "-n 100 -q 8",
            "-n 100 -b",
            "-n 5 -a",
            "-n 100 -c UC -s 4096",
            "-n 100 -c XRC",
            "-n 100 --report_gbits",
            "-R -n 100",
            "-R -n 100 -q 8",
            "-R -n 100 -b",
        ],
    ),
    ("ib_write_lat", &["-n 50", "-n 50 -I 64 -s 64", "-R -n 50"]),
    ("ib_read_bw", &["-n 100", "-n 20 -q 8 -b", "-R -n 100"]),
    ("ib_read_lat", &["-n 50", "-R -n 50"]),
    (
        "ib_send_bw",
        &[
            "-n 100",
            "-n 100 -e",
            "-n 100 -b",
            "-n 5 -a",
            "-n 100 -c UD",
            "-n 100 -c XRC",
            "-n 100 --use-srq -q 2",
            "-R -n 100",
            "-R -n 100 -q 8",
            "-R -n 100 -e",
            "-R -n 100 -c UD",
        ],
    ),
    (
        "ib_send_lat",
        &[
            "-n 50",
            "-n 50 -e",
            "-n 50 -c UC",
            "-n 50 -c UD",
            "-R -n 50",
            "-R -n 50 -c UD",
        ],
    ),
    (
        "ib_atomic_bw",
        &["-n 100", "-n 100 -A CMP_AND_SWAP", "-R -n 100"],
    ),
    ("ib_atomic_lat", &["-n 50", "-R -n 50"]),
];

#[test]
fn perftest() {
    let _alone = alone();
    let folder = Folder::new("perftest");
    let mut rows = Vec::new();
    for &(program, all) in PAIRS {
        for options in all {
            rows.push(benchmark(program, options, &folder));
        }
    }
    table::check("perftest", &rows);
}

fn benchmark(program: &'static str, options: &str, folder: &Folder) -> Row {
    Row::of(program, options, PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let server = Program::new(program)
            .line(&format!("-d hirail_lo -x 0 -F -p {port}"))
            .line(options);
        let client = server.clone().line("127.0.0.1");
        // By rdma_cm the figures go the same way as the data, without any TCP.
        let listens = match options.contains("-R") {
            true => Listens::Service(port),
            false => Listens::Tcp(port),
        };
        pair::run_recorded(&server, &client, listens, folder)
    })
}
