//! rdma-core's own tests of rdma_cm, as python3-pyverbs brings them. They look for the network
//! interface in sysfs, and skip where they find none; here none may. Its tests of devices are run by
//! the crate hirail-ibverbs.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::process::{Folder, Program, alone};
use super::table::{self, CheckedBy, Outcome, Row};

const PACKAGE: &str = "python3-pyverbs";

/// Where the package puts the tests, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Python of the distribution: others do not have the package.
const PYTHON: &str = "/usr/bin/python3";

/// How many there are.
const COUNT: usize = 10;

#[test]
fn pyverbs() {
    let _alone = alone();
    let folder = Folder::new("pyverbs");
    let options = "tests.test_rdmacm";
    let has_pyverbs = Command::new(PYTHON)
        .args(["-c", "import pyverbs"])
        .output()
        .is_ok_and(|output| output.status.success());
    let outcome = if has_pyverbs && Path::new(TESTS).exists() {
        run(&folder, options).into()
    } else {
        Outcome::Skipped(format!("the Debian package {PACKAGE} is not installed"))
    };
    eprintln!("run_tests.py {options}: {outcome}");
    let row = Row {
        program: "run_tests.py",
        options: options.to_owned(),
        package: PACKAGE,
        checked_by: CheckedBy::Program,
        outcome,
    };
    table::check("pyverbs", &[row]);
}

fn run(folder: &Folder, module: &str) -> Result<(), String> {
    let tests = folder.join("tests");
    fs::create_dir_all(&tests).map_err(|error| error.to_string())?;
    let copy = format!(
        "cp {TESTS}/* {to}/ && gunzip -qf {to}/*.gz",
        to = tests.display()
    );
    let copied = Command::new("sh").args(["-c", &copy]).output();
    let copied = copied.map_err(|error| error.to_string())?;
    if !copied.status.success() {
        return Err(String::from_utf8_lossy(&copied.stderr).into_owned());
    }
    let script = tests.join("run_tests.py");
    let program = Program::new(PYTHON)
        .args([script.as_os_str()])
        .line("--dev hirail_lo -v")
        .args([module])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", folder.join(""));
    let said = program.run(folder, "tests-of-rdma-core")?;
    let passed = said.matches(" ... ok\n").count();
    match passed {
        COUNT => Ok(()),
        _ => Err(format!("{passed} of {COUNT} have passed: {said}")),
    }
}
