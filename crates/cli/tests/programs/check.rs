//! `hirail run --check`: small programs with one mistake each are found out, down to the function
//! that makes it, and the same programs without it are not; programs that others wrote are clean, but
//! for what is truly wrong in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::pair::Listens;
use super::process::{self, Folder, PATIENCE, Program, alone, hirail};
use super::ready;

/// A program, what is found, and the function that is guilty of the first of them. Both sides of its
/// connections are in one process, so what the peer of a mistake finds is there too.
const MISTAKES: &[(&str, &[&str], &str)] = &[
    ("payload_changed", &["payload_changed"], "spoil"),
    ("deregistered_in_use", &["deregistered_in_use"], "pull_away"),
    (
        "use_after_deregister",
        &["use_after_deregister", "remote_access_refused"],
        "read_the_dead",
    ),
    ("unknown_key", &["unknown_key"], "send_under_a_wrong_key"),
    (
        "out_of_range",
        &["out_of_range", "remote_access_refused"],
        "write_beyond",
    ),
    ("missing_access", &["missing_access"], "receive_read_only"),
    ("pd_mismatch", &["pd_mismatch"], "send_from_elsewhere"),
    (
        "remote_access_refused",
        &["unknown_key", "remote_access_refused"],
        "write_under_a_wrong_key",
    ),
    (
        "receive_too_small",
        &["receive_too_small"],
        "receive_little",
    ),
    ("ud_too_long", &["ud_too_long"], "send_a_long_datagram"),
    ("post_refused", &["post_refused"], "post_too_many_entries"),
    ("send_queue_stuck", &["send_queue_stuck"], "send_silently"),
    ("receive_queue_starved", &["receive_queue_starved"], "main"),
    ("cq_overrun_risk", &["cq_overrun_risk"], "expect_too_much"),
    (
        "cq_overrun",
        &["cq_overrun", "cq_overrun_risk"],
        "look_away",
    ),
    (
        "unacked_events",
        &["unacked_events"],
        "forget_to_acknowledge",
    ),
    (
        "unacked_events_at_exit",
        &["unacked_events_at_exit", "left_open"],
        "take_an_event",
    ),
    ("leaked_objects", &["leaked_objects"], "forget"),
    ("left_open", &["left_open"], "main"),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/sins")
}

/// Builds a program with debugging information; nothing where there is no compiler, or no header.
fn build(name: &str, is_clean: bool, folder: &Folder) -> Option<PathBuf> {
    let program = folder.join(if is_clean {
        format!("{name}.clean")
    } else {
        name.to_owned()
    });
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O1", "-w", "-o"]).arg(&program);
    if is_clean {
        gcc.arg("-DCLEAN");
    }
    gcc.arg(sources().join(format!("{name}.c")));
    gcc.args(["-libverbs", "-lpthread"]);
    match gcc.status() {
        Ok(status) if status.success() => Some(program),
        Ok(status) if Path::new("/usr/include/infiniband/verbs.h").exists() => {
            panic!("gcc of {name}.c: {status}")
        }
        _ => None,
    }
}

/// What a report says.
struct Report(Value);

impl Report {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("a report");
        Self(serde_json::from_str(&text).expect("JSON"))
    }

    fn findings(&self) -> &[Value] {
        self.0["findings"].as_array().map_or(&[], |all| all)
    }

    fn codes(&self) -> BTreeSet<&str> {
        let codes = self.findings().iter();
        codes.filter_map(|it| it["code"].as_str()).collect()
    }

    /// Functions of the first place of the findings of a kind.
    fn functions(&self, code: &str) -> Vec<&str> {
        let found = self.findings().iter().filter(|it| it["code"] == code);
        let frames = found.filter_map(|it| it["traces"][0]["frames"].as_array());
        frames
            .flatten()
            .filter_map(|frame| frame["function"].as_str())
            .collect()
    }
}

/// Runs a program that has a mistake, or has not; the status of `hirail`, and the report.
fn checked(program: &Path, folder: &Folder) -> (Option<i32>, Report, String) {
    let file = folder.join("report.json");
    let output = Command::new("timeout")
        .arg("60")
        .arg(hirail())
        .args(["run", "--view", "none", "--check", "--report"])
        .arg(&file)
        .arg("--")
        .arg(program)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("hirail runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(file.exists(), "{}: no report: {said}", program.display());
    let report = Report::read(&file);
    fs::remove_file(&file).expect("a report");
    (output.status.code(), report, said)
}

#[test]
fn each_mistake_is_found_where_it_is_made() {
    let _alone = alone();
    let folder = Folder::new("mistakes");
    for (name, codes, guilty) in MISTAKES {
        let (Some(sinful), Some(clean)) = (build(name, false, &folder), build(name, true, &folder))
        else {
            println!(
                "skipped: mistakes that --check finds, because gcc or libibverbs-dev is missing"
            );
            return;
        };
        let (status, report, said) = checked(&sinful, &folder);
        assert_eq!(
            report.codes(),
            codes.iter().copied().collect(),
            "{name}: {said}"
        );
        let is_note = codes == &["left_open"];
        assert_eq!(status, Some(i32::from(!is_note)), "{name}: {said}");
        let functions: Vec<_> = codes
            .iter()
            .flat_map(|code| report.functions(code))
            .collect();
        assert!(functions.contains(guilty), "{name}: {functions:?}: {said}");
        assert!(
            said.contains(&format!("{name}.c:")),
            "{name}: no line: {said}"
        );
        for code in *codes {
            assert!(said.contains(&format!("hirail explain {code}")), "{said}");
        }
        let (status, report, said) = checked(&clean, &folder);
        assert_eq!(report.codes(), BTreeSet::new(), "{name}, clean: {said}");
        assert_eq!(status, Some(0), "{name}, clean: {said}");
        assert!(said.contains("nothing found"), "{said}");
    }
}

/// Servers and clients that others wrote, and what is truly wrong in them: first in the server, then
/// in the client.
const PAIRS: &[(&str, &str, &[&str], &[&str])] = &[
    ("ibv_rc_pingpong", "-d hirail_lo -g 0", &[], &[]),
    ("ibv_rc_pingpong", "-d hirail_lo -g 0 -e -c", &[], &[]),
    ("ibv_rc_pingpong", "-d hirail_lo -g 0 -N", &[], &[]),
    ("ibv_uc_pingpong", "-d hirail_lo -g 0", &[], &[]),
    ("ibv_ud_pingpong", "-d hirail_lo -g 0", &[], &[]),
    ("ibv_srq_pingpong", "-d hirail_lo -g 0", &[], &[]),
    ("ibv_xsrq_pingpong", "-d hirail_lo -g 0", &[], &[]),
    ("ib_write_bw", "-d hirail_lo -x 0 -F -n 100", &[], &[]),
    ("ib_write_bw", "-d hirail_lo -x 0 -F -n 100 -q 8", &[], &[]),
    // Its client makes a CQ for receives, destroys it only where it receives, and closes the device.
    (
        "ib_send_bw",
        "-d hirail_lo -x 0 -F -n 100",
        &[],
        &["leaked_objects"],
    ),
    ("ib_send_bw", "-d hirail_lo -x 0 -F -n 100 -e", &[], &[]),
    ("ib_read_lat", "-d hirail_lo -x 0 -F -n 50", &[], &[]),
    ("ib_atomic_bw", "-d hirail_lo -x 0 -F -n 50", &[], &[]),
];

#[test]
fn programs_of_others_are_clean() {
    let _alone = alone();
    let folder = Folder::new("clean");
    for &(name, options, of_server, of_client) in PAIRS {
        if !process::is_installed(name) {
            println!("skipped: {name} {options} with --check, because it is not installed");
            continue;
        }
        let port = ready::free_port();
        let program = Program::new(name).line(options).line(&format!("-p {port}"));
        let client = program.clone().line("127.0.0.1");
        pair(
            &program,
            &client,
            Listens::Tcp(port),
            &folder,
            [of_server, of_client],
        );
    }
    if process::is_installed("rping") {
        let port = ready::free_port();
        let server = Program::new("rping").line(&format!("-s -a 127.0.0.1 -p {port} -C 5"));
        let client = Program::new("rping").line(&format!("-c -a 127.0.0.1 -p {port} -C 5"));
        pair(
            &server,
            &client,
            Listens::Service(port),
            &folder,
            [&[], &[]],
        );
    } else {
        println!("skipped: rping with --check, because it is not installed");
    }
}

fn pair(
    server: &Program,
    client: &Program,
    listens: Listens,
    folder: &Folder,
    expected: [&[&str]; 2],
) {
    let deadline = Instant::now() + PATIENCE;
    let file = |role: &str| folder.join(format!("{role}.json"));
    let with_check = |program: &Program, role: &str| {
        program.clone().run_with([
            "--view".into(),
            "none".into(),
            "--check".into(),
            "--report".into(),
            file(role).into_os_string(),
        ])
    };
    let mut serving = with_check(server, "server").start(folder, "server");
    let is_ready = match listens {
        Listens::Tcp(port) => ready::tcp(port, &mut serving, deadline),
        Listens::Service(port) => ready::service(port, &mut serving, deadline),
    };
    is_ready.unwrap_or_else(|reason| panic!("{server}: {reason}"));
    let of_client = with_check(client, "client")
        .start(folder, "client")
        .end(deadline);
    let of_server = serving.end(deadline);
    for (role, ended, codes) in [
        ("server", of_server, expected[0]),
        ("client", of_client, expected[1]),
    ] {
        // Findings are a status of 1, which is no success.
        let said = match ended {
            Ok(said) | Err(said) => said,
        };
        assert!(file(role).exists(), "{server}, {role}: {said}");
        let report = Report::read(&file(role));
        assert_eq!(
            report.codes(),
            codes.iter().copied().collect(),
            "{server}, {role}: {said}"
        );
        assert_eq!(report.0["status"], 0, "{server}, {role}: {said}");
        fs::remove_file(file(role)).expect("a report");
    }
}

/// Signals are passed on, a status is too, and what a process has found before it is killed is told.
#[test]
fn a_checked_program_is_as_good_as_the_program() {
    let run = |script: &str| {
        let output = Command::new("timeout")
            .arg("60")
            .arg(hirail())
            .args(["run", "--view", "none", "--check", "--", "sh", "-c", script])
            .output()
            .expect("hirail runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, said, told) = run("echo here; exit 7");
    assert_eq!((status, said.as_str()), (Some(7), "here\n"));
    assert!(told.contains("there was nothing to check"), "{told}");
    // To the one that started it, which hands it back.
    let (status, said, _) =
        run("trap 'echo caught; exit 5' TERM; kill -TERM $PPID; sleep 10 & wait");
    assert_eq!((status, said.as_str()), (Some(5), "caught\n"));
    let (status, _, _) = run("kill -KILL $$");
    assert_eq!(status, Some(137));
}
