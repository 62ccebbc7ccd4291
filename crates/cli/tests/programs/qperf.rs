//! qperf. Its tests measure for a second each; those that verify atomics compare what they get, the
//! others look at no data.

use std::time::Instant;

use super::process::{Folder, PATIENCE, Program, alone, is_installed};
use super::ready;
use super::recording;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "qperf";

/// Tests that connect by rdma_cm. The messages of those that stream are short, for the recording's
/// sake.
const CONNECTED: &[&str] = &[
    "rc_bw -m 4k",
    "rc_bw -m 64k -cp1",
    "rc_bi_bw -m 4k",
    "rc_lat",
    "rc_lat -cp1",
    "rc_rdma_read_bw -m 4k",
    "rc_rdma_read_lat",
    "rc_rdma_write_bw -m 4k",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
];

/// Tests that name their peer by a LID alone, with or without rdma_cm. An address without a GRH is
/// none on RoCE (IBTA Annex A17), and a card refuses it as well.
const WITHOUT_GRH: &[&str] = &["uc_bw", "uc_lat", "uc_rdma_write_bw", "ud_bw", "ud_lat"];

#[test]
fn qperf() {
    let _alone = alone();
    let folder = Folder::new("qperf");
    let port = ready::free_port();
    let both = Program::new(PACKAGE).line(&format!("-lp {port}"));
    // One server serves all, each in a process of its own.
    let mut server = is_installed(PACKAGE).then(|| both.start(&folder, "server"));
    let client = both.line("127.0.0.1 -cm 1 -t 1");
    let listens = |server: &mut Option<_>| match server {
        Some(server) => ready::tcp(port, server, Instant::now() + PATIENCE),
        None => Ok(()),
    };
    let is_listening = listens(&mut server);

    let mut rows = Vec::new();
    for test in CONNECTED {
        let (name, options) = test.split_once(' ').unwrap_or((test, ""));
        // The rows that compare say so.
        let checked_by = if name.starts_with("ver_") {
            CheckedBy::Program
        } else {
            CheckedBy::Recording
        };
        rows.push(Row::of("qperf", test, PACKAGE, checked_by, || {
            is_listening.clone()?;
            let file = folder.join("recording.pcapng");
            let client = client.clone().recorded(&file).line(options).line(name);
            let said = client.run(&folder, "client")?;
            expect_figure(&said)?;
            recording::shows_roce(&file)
        }));
    }
    table::check("qperf", &rows);

    for name in WITHOUT_GRH.iter().filter(|_| is_installed(PACKAGE)) {
        // Its server loses its last words now and then.
        let reasons = (0..5).map(|_| {
            let refused = client.clone().line(name).run(&folder, "client");
            refused.expect_err(name)
        });
        let words = [
            "failed to modify QP to RTR",
            "failed to create address handle",
        ];
        let mut said = Vec::new();
        let is_plain = reasons
            .inspect(|reason| said.push(reason.clone()))
            .any(|reason| words.iter().any(|words| reason.contains(words)));
        assert!(is_plain, "{name}: {said:?}");
    }
}

/// Something was measured: a line such as `latency  =  83.6 us`, and not zero.
fn expect_figure(said: &str) -> Result<(), String> {
    let mut figures = said.lines().filter_map(|line| line.split_once(" =  "));
    match figures.next() {
        Some((_, figure)) if !figure.trim_start().starts_with("0 ") => Ok(()),
        _ => Err(format!("it measured nothing: {said}")),
    }
}
