//! The tests that rdma-core has for devices, as Debian's python3-pyverbs brings them, on the loopback
//! device. None may fail. Those that may skip are named with the reason; the tests of rdma_cm are
//! elsewhere.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::Folder;

/// Where the package puts them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Test files that are about no particular vendor's cards.
const FILES: &[&str] = &[
    "addr",
    "atomic",
    "cq",
    "cq_events",
    "cqex",
    "cuda_dmabuf",
    "device",
    "flow",
    "fork",
    "mr",
    "odp",
    "parent_domain",
    "pd",
    "qp",
    "qpex",
    "relaxed_ordering",
    "rss_traffic",
    "shared_pd",
    "tag_matching",
];

/// Tests that may skip, by a part of their names, and why.
const SKIPS: &[(&str, &str)] = &[
    ("test_dmabuf_", "a GPU whose driver gives out DMA buffers"),
    ("test_cuda_", "a GPU, and Python's module for CUDA"),
    ("_huge_", "huge pages that the administrator has set aside"),
    (
        "test_query_gid_ex_bad_flow",
        "an empty entry of the GID table, which has none here",
    ),
    (
        "_raw_",
        "raw packets: the interface's own sockets send them",
    ),
    ("_spec_flow_", "raw packets"),
    ("test_rss_traffic", "raw packets"),
    ("test_tm_", "receive queues that match tags"),
];

/// How many pass at least, everywhere.
const PASS: usize = 125;

/// Copies the tests to `to`, where they can be imported.
fn unpack(to: &Path) {
    for entry in fs::read_dir(TESTS).expect("the tests") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name");
            fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
    let compressed = format!("gunzip -f {}/*.gz", to.display());
    let status = Command::new("sh").args(["-c", &compressed]).status();
    assert!(status.expect("a shell").success());
}

#[test]
fn the_tests_of_rdma_core_pass() {
    // Python of the distribution: others do not have the package.
    let has_pyverbs = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_pyverbs || !Path::new(TESTS).exists() {
        eprintln!("skipped: the Debian package python3-pyverbs is not installed");
        return;
    }
    let folder = Folder::new("pyverbs");
    let tests = folder.path().join("tests");
    fs::create_dir_all(&tests).expect("a folder");
    unpack(&tests);
    let (mut passed, mut wrong) = (0, Vec::new());
    for file in FILES {
        let module = format!("tests.test_{file}");
        let output = Command::new("timeout")
            .args(["90", "/usr/bin/python3", "tests/run_tests.py"])
            .args(["--dev", "hirail_lo", "-v", &module])
            .current_dir(folder.path())
            .env("LD_LIBRARY_PATH", folder.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("HIRAIL_PCAP")
            .output()
            .expect("python runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let skipped = skipped(&said);
        let ran = ran(&said);
        passed += ran - skipped.len();
        eprintln!("{module}: {ran} run, {} of them skip", skipped.len());
        for (test, reason) in skipped {
            match SKIPS.iter().find(|(part, _)| test.contains(part)) {
                Some((_, needs)) => eprintln!("  {test} needs {needs} ({reason})"),
                None => wrong.push(format!("{test} skips: {reason}")),
            }
        }
        if !output.status.success() || ran == 0 {
            wrong.push(format!("{module}: {said}"));
        }
    }
    eprintln!("{passed} pass");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(passed >= PASS, "{passed} pass, {PASS} should");
}

/// How many tests there were, as the last lines say.
fn ran(said: &str) -> usize {
    let line = said.lines().find_map(|line| line.strip_prefix("Ran "));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    number.unwrap_or(0)
}

/// Tests that skipped, and why. The line that says so may be the second of a test, after its name.
fn skipped(said: &str) -> Vec<(String, String)> {
    let mut name = "";
    let mut found = Vec::new();
    for line in said.lines() {
        if line.starts_with("test_") {
            name = line.split(' ').next().unwrap_or(line);
        }
        if let Some((_, reason)) = line.split_once(" ... skipped ") {
            found.push((name.to_owned(), reason.trim_matches('\'').to_owned()));
        }
    }
    found
}

#[test]
fn what_the_tests_say_is_understood() {
    let said = "test_a (tests.a) ... ok\n\
        test_b (tests.b)\nWhat it does ... skipped 'no GPU'\n\
        test_c (tests.c) ... skipped 'no huge pages'\n\nRan 3 tests in 0.1s\n\nOK (skipped=2)\n";
    assert_eq!(ran(said), 3);
    let expected = [("test_b", "no GPU"), ("test_c", "no huge pages")];
    let expected = expected.map(|(test, reason)| (test.to_owned(), reason.to_owned()));
    assert_eq!(skipped(said), expected);
    assert_eq!(ran("Segmentation fault"), 0);
}
