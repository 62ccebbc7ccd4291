//! What the tests of the built library share: where it is, and the one that it stands on.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library, as it is now.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("hirail-rdmacm"))
}

/// Builds a library: cargo builds what tests can link, which these are not.
pub(crate) fn built(package: &str) -> PathBuf {
    let program = env::current_exe().expect("the test's own path");
    let folder = program.ancestors().nth(2).expect("the target folder");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", package]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(
        build.status().expect("cargo runs").success(),
        "the library builds"
    );
    folder.join(format!("lib{}.so", package.replace('-', "_")))
}
