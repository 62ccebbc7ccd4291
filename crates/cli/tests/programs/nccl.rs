//! The transport for InfiniBand inside NCCL, from NVIDIA's wheel on PyPI, without a GPU: `nccl.py`
//! calls it as NCCL does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::fetched;
use super::process::{Folder, Program, alone};
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "nvidia-nccl-cu12 2.21.5 (PyPI)";

const REQUIREMENT: &str = "nvidia-nccl-cu12==2.21.5";

/// Messages of these sizes; the small ones in groups as well.
const SIZES: &str = "1 64 4095 4096 4097 65536 1048577 16777216";

/// How many processes, and what NCCL is told.
const RUNS: &[(&str, &str)] = &[
    ("1", ""),
    ("2", ""),
    ("2", "NCCL_IB_GID_INDEX=0"),
    (
        "2",
        "NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=1",
    ),
    (
        "2",
        "NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=0",
    ),
    // The data as a WRITE, and an empty WRITE with immediate data after it.
    ("2", "NCCL_IB_ADAPTIVE_ROUTING=1 NCCL_IB_AR_THRESHOLD=0"),
];

#[test]
fn nccl() {
    let library = library();
    let _alone = alone();
    let folder = Folder::new("nccl");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/nccl.py");
    let is_there = library.as_ref().map(|_| ()).map_err(Clone::clone);
    let rows = RUNS.iter().map(|&(processes, variables)| {
        let noun = if processes == "1" {
            "process"
        } else {
            "processes"
        };
        let what = format!("{variables} {processes} {noun}");
        let run = || {
            let mut program = Program::new("python3")
                .args([&script, library.as_ref().expect("a library")])
                .line(&format!("{processes} {SIZES}"))
                .env("NCCL_SOCKET_IFNAME", "lo")
                .env("NCCL_IB_HCA", "hirail_lo");
            for variable in variables.split_whitespace() {
                let (name, value) = variable.split_once('=').expect("a variable");
                program = program.env(name, value);
            }
            let said = program.run(&folder, "nccl")?;
            if said.contains("IB on hirail_lo,") {
                Ok(())
            } else {
                Err(format!("it ran on something else: {said}"))
            }
        };
        let checked_by = CheckedBy::Test;
        Row::unless(
            is_there.clone(),
            "NCCL",
            what.trim(),
            PACKAGE,
            checked_by,
            run,
        )
    });
    table::check("NCCL", &rows.collect::<Vec<_>>());
}

/// The library that `HIRAIL_TEST_NCCL` names, else the one that pip fetches.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("HIRAIL_TEST_NCCL") {
        return Ok(path.into());
    }
    let kept = fetched::once("nccl-2.21.5", |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"]);
        pip.args(["--no-input", "--disable-pip-version-check", "--quiet"]);
        pip.args(["--retries", "1", "--timeout", "15", REQUIREMENT, "-d"]);
        fetched::run(pip.arg(folder))?;
        let files = fs::read_dir(folder).map_err(|error| error.to_string())?;
        for wheel in files.flatten().map(|entry| entry.path()) {
            let mut unpack = Command::new("python3");
            unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder);
            fetched::run(&mut unpack)?;
            let _ = fs::remove_file(wheel);
        }
        Ok(())
    })?;
    Ok(kept.join("nvidia/nccl/lib/libnccl.so.2"))
}
