//! Unmodified programs of Debian on this library: two processes on the loopback, their exit status,
//! and what they received. Those that check no data themselves are recorded, and the recording must
//! show RoCE with good ICRCs.
//!
//! `docs/programs.md` has the table of what is run here; `UPDATE_EXPECT=1` writes it anew.

mod common;
mod pair;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::Folder;
use pair::{Case, Result, pair, single};

/// The device, and the GID of its IPv4 address.
const PINGPONG: &str = "-d hirail_lo -g 0 -c";
const PERFTEST: &str = "-d hirail_lo -x 0 -F";

/// A pair of `ibv_…_pingpong`, which checks what it receives.
const fn pingpong(program: &'static str, options: &'static str) -> Case {
    Case {
        program,
        options,
        common: PINGPONG,
        package: "ibverbs-utils",
        is_recorded: false,
    }
}

/// A pair of perftest, which does not.
const fn perftest(program: &'static str, options: &'static str) -> Case {
    Case {
        program,
        options,
        common: PERFTEST,
        package: "perftest",
        is_recorded: true,
    }
}

const PAIRS: &[Case] = &[
    pingpong("ibv_rc_pingpong", ""),
    pingpong("ibv_rc_pingpong", "-e"),
    pingpong("ibv_rc_pingpong", "-N"),
    pingpong("ibv_rc_pingpong", "-t"),
    pingpong("ibv_rc_pingpong", "-s 1 -m 256"),
    pingpong("ibv_rc_pingpong", "-s 1025 -m 1024"),
    pingpong("ibv_rc_pingpong", "-s 1000000 -n 20"),
    pingpong("ibv_uc_pingpong", ""),
    pingpong("ibv_uc_pingpong", "-e"),
    pingpong("ibv_ud_pingpong", "-s 2048"),
    pingpong("ibv_ud_pingpong", "-s 1024 -e"),
    pingpong("ibv_srq_pingpong", ""),
    pingpong("ibv_srq_pingpong", "-e"),
    Case {
        common: "-d hirail_lo -g 0",
        ..pingpong("ibv_xsrq_pingpong", "")
    },
    perftest("ib_write_bw", "-n 100"),
    perftest("ib_write_bw", "-n 100 -q 8"),
    perftest("ib_write_bw", "-n 100 -b"),
    perftest("ib_write_bw", "-n 5 -a"),
    perftest("ib_write_bw", "-n 100 -c UC -s 4096"),
    perftest("ib_write_bw", "-n 100 -c XRC"),
    perftest("ib_write_bw", "-n 100 --report_gbits"),
    perftest("ib_write_lat", "-n 50"),
    perftest("ib_write_lat", "-n 50 -I 64 -s 64"),
    perftest("ib_read_bw", "-n 100"),
    perftest("ib_read_bw", "-n 20 -q 8 -b"),
    perftest("ib_read_lat", "-n 50"),
    perftest("ib_send_bw", "-n 100"),
    perftest("ib_send_bw", "-n 100 -e"),
    perftest("ib_send_bw", "-n 100 -b"),
    perftest("ib_send_bw", "-n 5 -a"),
    perftest("ib_send_bw", "-n 100 -c UD"),
    perftest("ib_send_bw", "-n 100 -c XRC"),
    perftest("ib_send_bw", "-n 100 --use-srq -q 2"),
    perftest("ib_send_lat", "-n 50"),
    perftest("ib_send_lat", "-n 50 -e"),
    perftest("ib_send_lat", "-n 50 -c UC"),
    perftest("ib_send_lat", "-n 50 -c UD"),
    perftest("ib_atomic_bw", "-n 100"),
    perftest("ib_atomic_bw", "-n 100 -A CMP_AND_SWAP"),
    perftest("ib_atomic_lat", "-n 50"),
];

/// Programs that run alone, with what they must say.
const SINGLE: &[(Case, &str)] = &[
    (alone("ibv_devices", ""), "hirail_lo"),
    (
        alone("ibv_devinfo", "-v -d hirail_lo"),
        "::ffff:127.0.0.1, RoCE v2",
    ),
];

const fn alone(program: &'static str, options: &'static str) -> Case {
    Case {
        program,
        options,
        common: "",
        package: "ibverbs-utils",
        is_recorded: false,
    }
}

#[test]
fn programs_run_as_they_are() {
    let folder = Folder::new("programs");
    let mut rows = Vec::new();
    for (case, expected) in SINGLE {
        rows.push((case, single(case, &folder, expected)));
    }
    for case in PAIRS {
        rows.push((case, pair(case, &folder)));
    }
    for (case, result) in &rows {
        eprintln!("{} {}: {result}", case.program, case.options);
    }
    let failed = rows.iter().filter(|(_, result)| result.is_failure());
    assert_eq!(failed.count(), 0, "see above");
    check_table(&rows);
}

/// Compares the table in the documentation with what was run. Versions are those of whoever wrote it.
fn check_table(rows: &[(&Case, Result)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md");
    if env::var_os("UPDATE_EXPECT").is_some() {
        let all_ran = rows
            .iter()
            .all(|(_, result)| matches!(result, Result::Passed));
        assert!(all_ran, "a table is made where every program is installed");
        fs::write(&path, table(rows)).expect("the table is written");
    }
    let documented = fs::read_to_string(&path).expect("docs/programs.md");
    for (case, _) in rows {
        let row = row_start(case);
        assert!(
            documented.lines().any(|line| line.starts_with(&row)),
            "docs/programs.md lacks {row:?}: run this with UPDATE_EXPECT=1"
        );
    }
    let count = documented
        .lines()
        .filter(|line| line.starts_with("| `"))
        .count();
    assert_eq!(
        count,
        rows.len(),
        "docs/programs.md has rows that are not run"
    );
}

fn row_start(case: &Case) -> String {
    format!("| `{}` | {} |", case.program, options(case))
}

fn options(case: &Case) -> String {
    if case.options.is_empty() {
        String::new()
    } else {
        format!("`{}`", case.options)
    }
}

fn table(rows: &[(&Case, Result)]) -> String {
    let mut text = String::from(
        "# Programs\n\n\
         Programs written for the C verbs run on hirail as their distribution built them:\n\n\
         \x20   hirail run -- ibv_rc_pingpong -d hirail_lo -g 0\n\n\
         This table is made by the test that runs them (`cargo test -p hirail-ibverbs`): two processes on\n\
         the loopback, each with a status of 0. What arrived is compared by the program where it can do\n\
         that; where it cannot, a recording of the packets shows RoCE with good ICRCs.\n\n\
         | program | options | package | data checked by | result |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for (case, result) in rows {
        let checked = match (case.is_recorded, case.common.is_empty()) {
            (true, _) => "recording",
            (false, true) => "output",
            (false, false) => "program",
        };
        let package = pair::version(case.package).unwrap_or_default();
        let package = format!("{} {package}", case.package);
        writeln!(
            text,
            "{} {} | {checked} | {result} |",
            row_start(case),
            package.trim()
        )
        .unwrap();
    }
    text
}
