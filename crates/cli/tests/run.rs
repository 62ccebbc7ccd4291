//! `hirail run` and `hirail env` as people and scripts meet them.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the command; nothing, with the reason printed, where the libraries were not built: they are
/// when the whole workspace is.
fn hirail(args: &[&str]) -> Option<Output> {
    let program = Path::new(env!("CARGO_BIN_EXE_hirail"));
    let folder = program.parent().unwrap();
    for library in [
        "libhirail_ibverbs.so",
        "libhirail_rdmacm.so",
        "libhirail_view.so",
    ] {
        let is_built = |place: &str| folder.join(place).join(library).exists();
        if ![".", "deps"].into_iter().any(is_built) {
            eprintln!("skipped: {library} was not built with this test");
            return None;
        }
    }
    let mut command = Command::new(program);
    command.args(args).env_remove("LD_LIBRARY_PATH");
    Some(command.output().unwrap())
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn the_status_is_the_program_s() {
    for status in [0, 1, 7, 125] {
        let script = format!("exit {status}");
        let Some(output) = hirail(&["run", "--", "sh", "-c", &script]) else {
            return;
        };
        assert_eq!(output.status.code(), Some(status));
    }
}

#[test]
fn the_program_gets_its_arguments_as_they_are() {
    let Some(output) = hirail(&["run", "--", "printf", "%s|", "--json", "-h", "a b"]) else {
        return;
    };
    assert_eq!(text(&output.stdout), "--json|-h|a b|");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(output) = hirail(&["run", "--", "/no/such/program"]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "hirail: there is no program /no/such/program\n"
    );
    let output = hirail(&["run", "--", "/etc"]).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("hirail: cannot run /etc: "));
}

#[test]
fn env_sets_what_run_sets() {
    let Some(lines) = hirail(&["env"]) else {
        return;
    };
    let script = format!(
        "{} && printf %s \"$LD_LIBRARY_PATH\"",
        text(&lines.stdout).trim()
    );
    let by_env = Command::new("sh").args(["-c", &script]).output().unwrap();
    let by_run = hirail(&["run", "--", "sh", "-c", "printf %s \"$LD_LIBRARY_PATH\""]).unwrap();
    assert_eq!(text(&by_env.stdout), text(&by_run.stdout));
    let folder = Path::new(text(&by_run.stdout));
    assert!(folder.join("libibverbs.so.1").exists());
    assert!(folder.join("libibverbs.so").exists());
    let json = hirail(&["env", "--json"]).unwrap();
    assert!(text(&json.stdout).contains(text(&by_run.stdout)));
    assert!(text(&json.stdout).contains("libhirail_view.so"));
}

#[test]
fn a_program_finds_the_devices() {
    let Some(output) = hirail(&["run", "--", "ibv_devices"]) else {
        return;
    };
    if output.status.code() == Some(2) {
        eprintln!("skipped: ibv_devices (Debian package ibverbs-utils) is not installed");
        return;
    }
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("hirail_lo"));
}

/// What the program sees of the options, and that a seed is named when none was given.
#[test]
fn faults_and_recordings_reach_the_program() {
    let show = "printf '%s %s %s' \"$HIRAIL_FAULTS\" \"$HIRAIL_SEED\" \"$HIRAIL_PCAP\"";
    let mut args = vec!["run", "--faults", "drop=1%,rnr=0.1", "--pcap", "x.pcapng"];
    let tail = ["--", "sh", "-c", show];
    let Some(output) = hirail(&[&args[..], &tail].concat()) else {
        return;
    };
    let seed = text(&output.stdout).split(' ').nth(1).unwrap();
    assert!(seed.parse::<u64>().is_ok(), "{seed}");
    assert_eq!(
        text(&output.stderr),
        format!("hirail: faults of --seed {seed}\n")
    );
    args.extend(["--seed", "7"]);
    let output = hirail(&[&args[..], &tail].concat()).unwrap();
    assert_eq!(text(&output.stdout), "drop=1%,rnr=0.1 7 x.pcapng");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn wrong_faults_and_places_are_refused_before_the_program_starts() {
    for (args, message) in [
        (
            &["--faults", "dorp=1%"][..],
            "hirail: --faults: unknown fault 'dorp'; did you mean 'drop'?\n",
        ),
        (
            &["--faults", "drop=2"],
            "hirail: --faults: expected drop to be a share of packets from 0 to 1, such as 0.01 or \
             1%, got '2'\n",
        ),
        (
            &["--pcap", "/no/such/folder/x.pcapng"],
            "hirail: --pcap: expected a file in a folder that exists, got /no/such/folder/x.pcapng\n",
        ),
    ] {
        let Some(output) = hirail(&[&["run"], args, &["--", "echo", "started"]].concat()) else {
            return;
        };
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stderr), message);
        assert_eq!(text(&output.stdout), "");
    }
    let output = hirail(&["run", "--seed", "7", "--", "echo", "started"]).unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// A program that is watched gets what is sent to the command, and its status is the command's.
#[test]
fn a_watched_program_gets_signals() {
    for watch in ["--stat", "--trace"] {
        for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137)] {
            let Some(output) = hirail(&["run", watch, "--", "sh", "-c", script]) else {
                return;
            };
            assert_eq!(output.status.code(), Some(status));
        }
        let script =
            "trap 'exit 9' TERM; kill -TERM $PPID; for i in $(seq 200); do sleep 0.1; done";
        let output = hirail(&["run", watch, "--", "sh", "-c", script]).unwrap();
        assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    }
}
