//! Calls of rdma_cm that no program of the distribution makes: small programs compiled against its
//! headers and run on the built libraries.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use testkit::cdylib;

/// No program takes as long, even on a busy machine.
const SECONDS: &str = "120";

/// A folder where programs find the libraries, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("hirail-calls-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let link = |library: &Path, name| symlink(library, folder.join(name)).expect("a link");
        link(&cdylib::build("hirail-rdmacm"), "librdmacm.so.1");
        link(&cdylib::build("hirail-ibverbs"), "libibverbs.so.1");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles a program, where a compiler and the headers are, and runs it.
fn run(name: &str) {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        eprintln!("skipped: the Debian package librdmacm-dev is not installed");
        return;
    }
    let folder = Folder::new(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls");
    let program = folder.0.join(name);
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"])
        .arg(sources.join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .args(["-lrdmacm", "-libverbs"])
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "{name}.c compiles"),
        Err(error) => return eprintln!("skipped: gcc: {error}"),
    }
    let output = Command::new("timeout")
        .arg(SECONDS)
        .arg(&program)
        .env("LD_LIBRARY_PATH", &folder.0)
        .output()
        .expect("timeout of coreutils");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}: {said}", output.status);
}

/// One test for each program.
macro_rules! programs {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            run(stringify!($name));
        }
    )* };
}

programs! {
    datagrams
    establish
    lookup
    migrate
    multicast
    options
    queues
    reject
}
