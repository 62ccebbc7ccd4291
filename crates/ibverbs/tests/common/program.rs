//! Small programs of C, compiled against the headers of the distribution and run on the built
//! libraries.

use std::path::Path;
use std::process::Command;

/// No program takes as long, even on a busy machine.
const SECONDS: &str = "300";

/// Compiles `source` into `folder`, under its name without the extension. False where there is no
/// compiler, or not the header of that package.
pub(crate) fn compile(
    source: &Path,
    folder: &Path,
    (header, package): (&str, &str),
    options: &[&str],
) -> bool {
    if !Path::new("/usr/include").join(header).exists() {
        eprintln!("skipped: the Debian package {package} is not installed");
        return false;
    }
    let program = folder.join(source.file_stem().expect("a name"));
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-pthread"])
        .arg("-o")
        .arg(&program)
        .arg(source)
        .args(options)
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "{} compiles", source.display()),
        Err(error) => eprintln!("skipped: gcc: {error}"),
    }
    program.exists()
}

/// Runs `command`, which finds the libraries under test in a folder, for a bounded time.
pub(crate) fn succeeds(libraries: &Path, command: &[&str]) {
    let output = Command::new("timeout")
        .arg(SECONDS)
        .args(command)
        .env("LD_LIBRARY_PATH", libraries)
        .env_remove("HIRAIL_PCAP")
        .output()
        .expect("timeout of coreutils");
    let (out, err) = (&output.stdout, &output.stderr);
    let said = String::from_utf8_lossy(out) + String::from_utf8_lossy(err);
    eprint!("{said}");
    assert!(output.status.success(), "{}: {said}", output.status);
}
