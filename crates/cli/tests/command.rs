//! The command as people and scripts meet it: exit status, which stream says what, help.

use std::io;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use expect_test::expect_file;

fn hirail(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(args)
        .env("COLUMNS", "100")
        .output()
        .expect("hirail runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("hirail writes UTF-8")
}

/// Bad input gets one sentence that names it and what would be right, and status 2.
#[test]
fn bad_input() {
    for (args, parts) in [
        (
            &["perf", "write-bv"][..],
            &["'write-bv'", "write-bw, write-lat"][..],
        ),
        (&["pref"], &["'pref'", "perf"]),
        (&["perf", "--jsn"], &["'--jsn'", "--json"]),
        (
            &["perf", "write-bw", "--size", "64Q"],
            &["'64Q'", "--size", "64K"],
        ),
        (
            &["perf", "write-bw", "--size", "0"],
            &["--size", "1 to", "not 0"],
        ),
        (
            &["perf", "write-bw", "--qps", "5000"],
            &["--qps", "it must be at most 1024", "5000"],
        ),
        (
            &["perf", "write-bw", "--mtu", "1500"],
            &["--mtu", "1024", "1500"],
        ),
        (&["perf", "write-bw", "--duration", "-1"], &["--duration"]),
        (
            &["perf", "write-bw", "--count", "0"],
            &["'0'", "--count", "it must be at least 1"],
        ),
        (
            &["perf", "write-bw", "--count", "-5"],
            &["'-5'", "--count", "it must be at least 1"],
        ),
        (
            &["perf", "write-bw", "--depth", "x"],
            &["'x'", "--depth", "it must be a whole number"],
        ),
        (
            &["perf", "write-bw", "--gid-index", "256"],
            &["'256'", "--gid-index", "it must be at most 255"],
        ),
        (&["stat", "0"], &["'0'", "[PID]", "it must be at least 1"]),
        (
            &["run", "--faults", "drop=1%", "--seed", "-1", "--", "true"],
            &["'-1'", "--seed", "it must be at least 0"],
        ),
        (
            &["decode", "-c", "0", "file"],
            &["'0'", "--connection", "it must be at least 1"],
        ),
        (
            &["perf", "write-bw", "--count", "5", "--duration", "1"],
            &["--count", "--duration"],
        ),
        (
            &["perf", "write-bw", "--qp-type", "rd"],
            &["'rd'", "rc, uc, ud"],
        ),
        (
            &["perf", "read-bw", "--qp-type", "uc"],
            &["read-bw", "uc", "SEND and RDMA WRITE"],
        ),
        (
            &["perf", "write-lat", "--qp-type", "ud"],
            &["write-lat", "ud", "SEND only"],
        ),
        (
            &["perf", "send-bw", "--qp-type", "ud", "--size", "8192"],
            &["--size", "4096"],
        ),
        (
            &["perf", "send-lat", "--bidirectional"],
            &["--bidirectional", "bandwidth"],
        ),
        (&["perf", "atomic-lat", "--size", "16"], &["8 bytes", "16"]),
        (&["perf", "write-bw", "-n", "4"], &["--ranks", "allreduce"]),
        (
            &["perf", "allreduce", "-n", "1"],
            &["--ranks", "it must be at least 2"],
        ),
        (
            &["perf", "allreduce", "-n", "4", "--size", "6"],
            &["--size", "multiple of 4", "6"],
        ),
        (
            &["perf", "write-bw", "127.0.0.1", "--port", "1"],
            &["127.0.0.1", "port 1", "--server"],
        ),
        (
            &["perf", "write-bw", "127.0.0.1", "--port", "0"],
            &["--port 0", "--server"],
        ),
        (
            &["perf", "write-bw", "--port", "7"],
            &["--port", "--server", "ADDRESS"],
        ),
        (&["devices", "mlx5_0"], &["mlx5_0", "hirail_lo"]),
        (
            &["devices", "lo"],
            &["lo is a network interface; its device is called hirail_lo"],
        ),
        (
            &["perf", "write-bw", "--device", "lo"],
            &["lo is a network interface; its device is called hirail_lo"],
        ),
        (
            &["perf", "write-bw", "--device", "mlx5_0"],
            &["mlx5_0", "hirail_lo"],
        ),
        (&["perf", "write-bw", "--gid-index", "9"], &["GID 9"]),
        (
            &[
                "perf",
                "write-bw",
                "--device",
                "hirail_lo",
                "--gid-index",
                "9",
            ],
            &["GID 9"],
        ),
        (
            &["perf", "write-bw", "no such host"],
            &["'no such host'", "IP address"],
        ),
        (
            &["perf", "write-bw", "127.0.0.1:1"],
            &["'127.0.0.1:1'", "--port takes a port"],
        ),
        (
            &["perf", "write-bw", "[::1]", "--port", "1"],
            &["connect to ::1, TCP port 1"],
        ),
        (
            &["perf", "write-bw", "fe80::1"],
            &["fe80::1 needs its interface", "fe80::1%eth0"],
        ),
        (
            &["perf", "192.0.2.7"],
            &["the address 192.0.2.7 comes after '[TEST]'", "write-bw"],
        ),
        (&["perf", "--server", "write-bw"], &["TEST", "client"]),
        (
            &["perf", "--server", "--duration", "1"],
            &["--duration", "client"],
        ),
        (&["perf", "--server", "--mtu", "256"], &["--mtu", "client"]),
        (
            &["perf", "allreduce", "--mtu", "256"],
            &["--mtu", "allreduce"],
        ),
        (&["--json"], &["a command is missing", "perf, devices"]),
        (
            &["explain", "packet_seq_errr"],
            &["'packet_seq_errr'", "did you mean packet_seq_err?"],
        ),
        (
            &["explain", "HIRAIL_PCAPP"],
            &["'HIRAIL_PCAPP'", "did you mean HIRAIL_PCAP?"],
        ),
        (&["explain"], &["WORD"]),
        (&["prf"], &["'prf'", "did you mean perf?"]),
        (&["completions", "tcsh"], &["'tcsh'", "bash"]),
    ] {
        let output = hirail(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert!(
            said.starts_with("hirail: ") && said.lines().count() == 1,
            "{args:?}: {said}"
        );
        for part in parts {
            assert!(
                said.contains(part),
                "{args:?} should mention {part}: {said}"
            );
        }
    }
}

/// A setting that does not exist is refused by every command, with the one that was meant.
#[test]
fn misspelt_settings() {
    for args in [
        &["perf", "write-bw", "--count", "5"][..],
        &["devices"],
        &["stat"],
        &["decode", "/dev/null"],
        &["explain", "QP"],
        &["completions", "bash"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
            .args(args)
            .env("HIRAIL_PCAPP", "trace.pcapng")
            .output()
            .expect("hirail runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        let expected = "hirail: environment: unknown setting 'HIRAIL_PCAPP'; did you mean \
                        'HIRAIL_PCAP'?\n";
        assert_eq!(said, expected, "{args:?}");
    }
}

/// Faults of the environment are refused as those of the command line, and shown where they apply.
#[test]
fn faults_of_the_environment() {
    let with = |faults: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hirail"));
        command.args(args).env("HIRAIL_FAULTS", faults);
        command.output().expect("hirail runs")
    };
    for (faults, message) in [
        ("dorp=1%", "unknown fault 'dorp'; did you mean 'drop'?"),
        ("drop=1%,drop=2%", "'drop' is given twice"),
        (
            "drop=1%,,",
            "expected faults such as 'drop=1%,delay=50us', got 'drop=1%,,'",
        ),
    ] {
        let output = with(faults, &["devices"]);
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("hirail: environment: HIRAIL_FAULTS: {message}\n");
        assert_eq!(text(&output.stderr), expected);
    }
    let said = with("drop=1%,delay=2ms", &["devices"]);
    let expected = "faults on purpose: drop=0.01,delay=2000000ns of seed 0\n";
    assert!(text(&said.stdout).ends_with(expected), "{said:?}");
    let args = ["perf", "write-lat", "--count", "5", "--no-baselines"];
    let said = with("delay=10us", &args);
    let expected = "hirail perf: faults on purpose: delay=10000ns of seed 0\n";
    assert_eq!(text(&said.stderr), expected);
    // Nothing to compare with, and no column for it.
    assert!(!text(&said.stdout).contains("RDMA is"), "{said:?}");
    let json = with("", &["devices", "--json"]);
    assert_eq!(json.status.code(), Some(2), "{json:?}");
}

/// Some terminals say that they have no columns.
#[test]
fn help_without_columns() {
    let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .arg("--help")
        .env("COLUMNS", "0")
        .output()
        .expect("hirail runs");
    let said = text(&output.stdout);
    assert!(
        said.starts_with("RDMA over Converged Ethernet (RoCE v2) in software\n"),
        "{said}"
    );
}

#[test]
fn help_is_a_result() {
    let help = |args: &[&str]| {
        let output = hirail(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(text(&output.stderr), "", "{args:?}");
        text(&output.stdout)
    };
    expect_file!["data/help.txt"].assert_eq(&help(&["--help"]));
    expect_file!["data/help-perf.txt"].assert_eq(&help(&["perf", "--help"]));
    for command in [
        "run",
        "env",
        "devices",
        "stat",
        "decode",
        "explain",
        "completions",
    ] {
        assert!(
            help(&[command, "--help"]).contains("Usage: hirail"),
            "{command}"
        );
    }
    assert_eq!(
        help(&["--version"]),
        concat!("hirail ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn nothing_asked_for() {
    let output = hirail(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("Usage: hirail"));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(["explain", "--list"])
        .stdout(writer)
        .output()
        .expect("hirail runs");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn explanations() {
    let output = hirail(&["explain", "IBV_WC_RETRY_EXC_ERR"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(
        said.starts_with("IBV_WC_RETRY_EXC_ERR (status code)\n"),
        "{said}"
    );
    assert!(
        !said.contains('\x1b'),
        "no colour outside a terminal: {said}"
    );

    let output = hirail(&["--json", "explain", "status", "12"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["word"], "IBV_WC_RETRY_EXC_ERR");
    assert_eq!(json["facts"]["number"], "12");

    for word in ["HIRAIL_SEGMENTATION", "port.segmentation", "segmentation"] {
        let output = hirail(&["--json", "explain", word]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["word"], "HIRAIL_SEGMENTATION", "{word}");
        assert_eq!(json["kind"], "setting");
        assert_eq!(json["facts"]["in the file"], "port.segmentation");
    }
}

/// Words of the documentation that people look up.
#[test]
fn words_of_the_documentation_are_explained() {
    for word in ["XRC", "steering", "lossless"] {
        let output = hirail(&["explain", word]);
        let said = text(&output.stdout);
        assert!(said.starts_with(&format!("{word} (term)\n")), "{said}");
    }
}

/// Every word of the output of `hirail perf` that is not everyday language is explained.
#[test]
fn words_of_perf_are_explained() {
    for word in [
        "RC",
        "UC",
        "UD",
        "WRITE",
        "READ",
        "SEND",
        "fetch-and-add",
        "QP",
        "half round trip",
        "round trip",
        "algbw",
        "busbw",
        "MTU",
        "depth",
    ] {
        let output = hirail(&["explain", word]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{word}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn devices() {
    let output = hirail(&["devices", "hirail_lo", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [device] = &json["devices"].as_array().expect("an array")[..] else {
        panic!("{json}")
    };
    assert_eq!(
        (&device["name"], &device["interface"]),
        (&"hirail_lo".into(), &"lo".into())
    );
    assert_eq!(device["active_mtu"], 4096);
    assert_eq!(device["gids"][0]["gid"], "::ffff:127.0.0.1");
    assert_eq!(device["limits"]["max_qp_rd_atom"], 16);
    assert_eq!(json["port"]["udp_port"], 4791);
    assert!(
        json["port"]["receive_buffer"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0),
        "{json}"
    );

    let said = text(&hirail(&["devices", "hirail_lo", "--verbose"]).stdout);
    for part in [
        "GID 0",
        "127.0.0.1",
        "max_qp_wr",
        "UDP port 4791",
        "steering",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// What a link has nothing to count for is named, rather than left to look like 0.
#[test]
fn stat_says_what_is_not_counted() {
    let _context = hirail::Context::open_loopback().expect("a device");
    let pid = std::process::id().to_string();
    // The counters are published a moment after the device is opened.
    let end = Instant::now() + Duration::from_secs(60);
    let json = loop {
        let output = hirail(&["--json", "stat", &pid]);
        if output.status.success() {
            break serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
        }
        assert!(Instant::now() < end, "{}", text(&output.stderr));
    };
    assert_eq!(json[0]["link"], "UDP");
    let names = json[0]["not_counted"].as_array().expect("an array");
    let has = |name: &str| names.contains(&name.into());
    assert!(has("roce_slow_restart") && has("rx_prioN_pause"), "{json}");
    assert!(!has("rx_prioN_packets") && !has("port_xmit_data"), "{json}");

    let said = text(&hirail(&["stat", &pid]).stdout);
    assert!(said.contains("hirail_lo on UDP, 0 QPs"), "{said}");
    let line = "not counted on this link: roce_slow_restart ";
    assert!(said.contains(line), "{said}");

    for (counter, links) in [
        ("port_xmit_data", "every link"),
        ("tx_prio3_bytes", "UDP, raw Ethernet"),
        ("rx_prio3_pause", "raw Ethernet"),
        ("roce_slow_restart", "no link of hirail; by other devices"),
    ] {
        let json = hirail(&["--json", "explain", counter]).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert!(json.to_string().contains(&format!("\"{links}\"")), "{json}");
    }
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = hirail(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("no-baselines"), "{shell}");
        // What the help hides is not offered either; a branch for its value does no harm.
        assert!(
            !text(&output.stdout).contains(" --second-process "),
            "{shell}"
        );
        let json = hirail(&["--json", "completions", shell]).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(json["shell"], shell);
        assert_eq!(json["script"], text(&output.stdout), "{shell}");
    }
}

/// `cargo run --release -- perf`, the README's first command, works as long as there is one program.
#[test]
fn there_is_one_program_in_the_workspace() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("targets"));
    let programs: Vec<_> = targets
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(programs, ["hirail"]);
}
