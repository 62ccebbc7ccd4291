//! What other implementations were reported to do wrong, seen through the library of connections:
//! small programs, compiled against the headers of the distribution and run on both built libraries.
//! `docs/bug-reports.md` says which report is whose.

#[path = "../../../ibverbs/tests/common/program.rs"]
mod program;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::{env, fs};

use testkit::cdylib;

/// Compiles and runs a program.
fn run(name: &str) {
    let folder = env::temp_dir().join(format!("hirail-rdmacm-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let link = |library: &Path, name: &str| {
        let _ = symlink(library, folder.join(name));
    };
    link(&cdylib::build("hirail-rdmacm"), "librdmacm.so.1");
    link(&cdylib::build("hirail-ibverbs"), "libibverbs.so.1");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ibverbs/tests/reports");
    let include = format!("-I{}", shared.display());
    let source = tests.join(name).with_extension("c");
    let needed = ("rdma/rdma_cma.h", "librdmacm-dev");
    if program::compile(
        &source,
        &folder,
        needed,
        &[&include, "-lrdmacm", "-libverbs"],
    ) {
        let program = folder.join(name);
        program::succeeds(&folder, &[program.to_str().expect("text")]);
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn agreement() {
    run("agreement");
}

#[test]
fn cycles() {
    run("cycles");
}
