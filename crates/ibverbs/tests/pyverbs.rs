//! The tests that rdma-core has for devices, as Debian's python3-pyverbs brings them, on the loopback
//! device. None may fail; those that skip need what the device does not have, and say so.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::Folder;

/// Where the package puts them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Test files that are about no particular vendor's cards, and how many of each pass at least.
const FILES: &[(&str, usize)] = &[
    ("addr", 3),
    ("pd", 4),
    ("fork", 1),
    ("cq_events", 2),
    ("cq", 4),
    ("cqex", 5),
    ("atomic", 9),
    ("qp", 21),
    ("qpex", 20),
    ("device", 11),
    ("mr", 12),
    ("parent_domain", 5),
    ("relaxed_ordering", 3),
];

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
    let mut wrong = Vec::new();
    for (file, expected) in FILES {
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
        let passed = said.matches(" ... ok\n").count();
        let skipped = said.matches(" ... skipped ").count();
        eprintln!("{module}: {passed} passed, {skipped} skipped");
        if !output.status.success() || passed < *expected {
            wrong.push(format!("{module}, of which {expected} should pass: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
