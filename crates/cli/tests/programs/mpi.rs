//! Open MPI over UCX: four ranks on the loopback device, whose sums, rings and exchanges are compared.
//! All ranks share the processors of the machine, so they yield while they wait.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Folder, Program, alone, hirail, is_installed};
use super::recording;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "openmpi-bin";

/// What the ranks do; it fails where a number is wrong.
const PROGRAM: &str = include_str!("mpi.c");

/// Only UCX, and of that only the verbs on the loopback.
const OPTIONS: &str = "-n 4 --oversubscribe --allow-run-as-root \
    --mca pml ucx --mca osc ucx --mca btl self --mca mpi_yield_when_idle 1 \
    -x UCX_NET_DEVICES=hirail_lo:1 -x UCX_TLS=rc_verbs,ud_verbs:aux,self";

#[test]
fn mpi() {
    let _alone = alone();
    let folder = Folder::new("mpi");
    if !is_installed("mpicc") {
        eprintln!("skipped: mpicc (Debian package libopenmpi-dev) is not installed");
        return;
    }
    let rows = ["hirail run mpirun", "mpirun hirail run"].map(|order| {
        let options = format!("-n 4 --mca pml ucx ({order})");
        Row::of("mpirun", &options, PACKAGE, CheckedBy::Program, || {
            let program = build(&folder)?;
            let file = folder.join(format!("{}.pcapng", order.len()));
            let ranks = ranks(&program, order == "hirail run mpirun", &file);
            let said = ranks.run(&folder, "what-ranks-said")?;
            if said.lines().filter(|line| *line == "all is right").count() != 4 {
                return Err(format!("not all ranks are content: {said}"));
            }
            recording::shows_roce(&file)
        })
    });
    table::check("mpi", &rows);
}

/// The ranks as children of `hirail run`, or each by its own.
fn ranks(program: &Path, together: bool, recording: &Path) -> Program {
    let mpirun = Program::new("mpirun").line(OPTIONS);
    if together {
        return mpirun.args([program]).recorded(recording);
    }
    // What starts them must not show them anything.
    mpirun
        .args([hirail().as_os_str(), "run".as_ref(), "--pcap".as_ref()])
        .args([recording.as_os_str(), "--".as_ref(), program.as_os_str()])
        .run_with(["--view", "none"])
}

fn build(folder: &Folder) -> Result<PathBuf, String> {
    let (source, program) = (folder.join("ranks.c"), folder.join("ranks"));
    std::fs::write(&source, PROGRAM).map_err(|error| error.to_string())?;
    let output = Command::new("mpicc")
        .args(["-Wall", "-O1", "-o"])
        .args([&program, &source])
        .output()
        .map_err(|error| format!("mpicc (Debian package libopenmpi-dev): {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
