//! The programs of ibverbs-utils. The ping-pongs compare what they receive.

use super::pair::{self, Listens};
use super::process::{Folder, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "ibverbs-utils";

const PAIRS: &[(&str, &[&str])] = &[
    (
        "ibv_rc_pingpong",
        &[
            "",
            "-e",
            "-N",
            "-t",
            "-s 1 -m 256",
            "-s 1025 -m 1024",
            "-s 1000000 -n 20",
        ],
    ),
    ("ibv_uc_pingpong", &["", "-e"]),
    ("ibv_ud_pingpong", &["-s 2048", "-s 1024 -e"]),
    ("ibv_srq_pingpong", &["", "-e"]),
    // It has no option that compares.
    ("ibv_xsrq_pingpong", &[""]),
];

/// Programs that run alone, with what they must say.
const SINGLE: &[(&str, &str, &str)] = &[
    ("ibv_devices", "", "hirail_lo"),
    (
        "ibv_devinfo",
        "-v -d hirail_lo",
        "::ffff:127.0.0.1, RoCE v2",
    ),
];

#[test]
fn ibverbs_utils() {
    let _alone = alone();
    let folder = Folder::new("utils");
    let mut rows = Vec::new();
    for &(program, options, expected) in SINGLE {
        rows.push(Row::of(
            program,
            options,
            PACKAGE,
            CheckedBy::Output,
            || {
                let said = Program::new(program).line(options).run(&folder, program)?;
                if said.contains(expected) {
                    Ok(())
                } else {
                    Err(format!("it does not say {expected:?}: {said}"))
                }
            },
        ));
    }
    for &(program, all) in PAIRS {
        for options in all {
            rows.push(pingpong(program, options, &folder));
        }
    }
    table::check("ibverbs-utils", &rows);
}

fn pingpong(program: &'static str, options: &str, folder: &Folder) -> Row {
    let compares = program != "ibv_xsrq_pingpong";
    let checked_by = if compares {
        CheckedBy::Program
    } else {
        CheckedBy::Recording
    };
    Row::of(program, options, PACKAGE, checked_by, || {
        let port = ready::free_port();
        let server = Program::new(program)
            .line(&format!("-d hirail_lo -g 0 -p {port}"))
            .line(if compares { "-c" } else { "" })
            .line(options);
        let client = server.clone().line("127.0.0.1");
        if compares {
            pair::run(&server, &client, Listens::Tcp(port), folder)
        } else {
            pair::run_recorded(&server, &client, Listens::Tcp(port), folder)
        }
    })
}
