//! UCX over the verbs: its benchmark, by the protocols (UCP) and by one transport alone (UCT). It looks
//! for the device nodes itself, so it sees a device only where the view shows one.

use super::pair::{self, Listens};
use super::process::{Folder, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "ucx-utils";

/// Transports of the protocols: reliable connections, which are made by datagrams.
const CONNECTED: &str = "UCX_TLS=rc_verbs,ud_verbs:aux,self";

/// Datagrams alone, on which UCX builds a reliable transport of its own.
const DATAGRAMS: &str = "UCX_TLS=ud_verbs,self";

/// What is set, and what the benchmark is told.
const BENCHMARKS: &[(&str, &str)] = &[
    (CONNECTED, "-t tag_lat -n 200"),
    (CONNECTED, "-t tag_bw -s 100000 -n 50"),
    (CONNECTED, "-t tag_sync_lat -n 200"),
    (CONNECTED, "-t stream_bw -s 3000 -n 100"),
    (CONNECTED, "-t ucp_am_bw -s 20000 -n 50"),
    (CONNECTED, "-t ucp_put_bw -s 65536 -n 50"),
    (CONNECTED, "-t ucp_get -s 65536 -n 50"),
    (CONNECTED, "-t ucp_fadd -n 50"),
    (CONNECTED, "-t ucp_cswap -n 50"),
    (DATAGRAMS, "-t tag_lat -n 200"),
    (DATAGRAMS, "-t tag_bw -s 20000 -n 50"),
    ("", "-d hirail_lo:1 -x rc_verbs -t am_lat -n 200"),
    (
        "",
        "-d hirail_lo:1 -x rc_verbs -t am_bw -s 4000 -D zcopy -n 100",
    ),
    (
        "",
        "-d hirail_lo:1 -x rc_verbs -t put_bw -s 65536 -D zcopy -n 50",
    ),
    (
        "",
        "-d hirail_lo:1 -x rc_verbs -t get -s 65536 -D zcopy -n 50",
    ),
    ("", "-d hirail_lo:1 -x ud_verbs -t am_lat -n 200"),
    (
        "",
        "-d hirail_lo:1 -x ud_verbs -t am_bw -s 4000 -D zcopy -n 100",
    ),
];

#[test]
fn ucx() {
    let _alone = alone();
    let folder = Folder::new("ucx");
    let mut rows = vec![info("namespace", &folder), info("preload", &folder)];
    for (variable, options) in BENCHMARKS {
        rows.push(benchmark(variable, options, &folder));
    }
    table::check("ucx", &rows);
}

/// A program of UCX, on the loopback device alone.
fn program(name: &str) -> Program {
    Program::new(name).env("UCX_NET_DEVICES", "hirail_lo:1")
}

/// Both transports are there.
fn info(view: &'static str, folder: &Folder) -> Row {
    let options = format!("-d (--view {view})");
    Row::of("ucx_info", &options, PACKAGE, CheckedBy::Output, || {
        let program = program("ucx_info").line("-d").run_with(["--view", view]);
        let said = match program.run(folder, "info") {
            // A container may forbid it; then the other way is what there is.
            Err(reason) if reason.contains("no namespace can be made here") => return Ok(()),
            said => said?,
        };
        for transport in ["rc_verbs", "ud_verbs"] {
            let lines = format!("Transport: {transport}\n#         Device: hirail_lo:1\n");
            if !said.contains(&lines) {
                return Err(format!("{transport} is not listed: {said}"));
            }
        }
        Ok(())
    })
}

fn benchmark(variable: &str, options: &str, folder: &Folder) -> Row {
    let shown = format!("{options} {variable}");
    let shown = shown.trim_end();
    Row::of("ucx_perftest", shown, PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let mut server = program("ucx_perftest").line(&format!("-p {port} {options}"));
        if let Some((name, value)) = variable.split_once('=') {
            server = server.env(name, value);
        }
        let client = server.clone().line("127.0.0.1");
        let [_, said] = pair::run_recorded(&server, &client, Listens::Tcp(port), folder)?;
        match said.contains("Final:") {
            true => Ok(()),
            false => Err(format!("no result: {said}")),
        }
    })
}
