//! `hirail run` and `hirail env`: unmodified programs on hirail.

mod libraries;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::json;

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Run a program written for the C verbs on hirail
#[derive(clap::Args)]
#[command(after_help = "\
The libraries of hirail are put in front of the system's for this program and its children. Nothing
is installed or replaced. Exit status is the program's own, 2 if it cannot be run.

Examples:
  hirail run -- ibv_devinfo -v
  hirail run -- ibv_rc_pingpong -d hirail_lo -g 0
  HIRAIL_PCAP=trace.pcapng hirail run -- ib_write_bw -d hirail_lo -x 0")]
pub(crate) struct RunArgs {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Print what 'hirail run' sets, as lines for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  eval \"$(hirail env)\"
  hirail env --json")]
pub(crate) struct EnvArgs {}

/// Where the loader looks first.
const VARIABLE: &str = "LD_LIBRARY_PATH";

pub(crate) fn run(args: &RunArgs) -> Result<Outcome, Error> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Error::new("expected a program after 'run --'"));
    };
    let path = search_path()?;
    let error = Command::new(program)
        .args(arguments)
        .env(VARIABLE, path)
        .exec();
    let program = program.display();
    Err(Error::new(match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no program {program}"),
        _ => format!("cannot run {program}: {error}"),
    }))
}

pub(crate) fn env(out: &mut Output) -> Result<Outcome, Error> {
    let path = search_path()?;
    if out.is_json() {
        out.json(&json!({ VARIABLE: path.to_string_lossy() }))?;
    } else {
        writeln!(out, "export {VARIABLE}={}", quoted(&path))?;
    }
    Ok(Outcome::Clean)
}

/// The folder with the libraries, and whatever was searched before.
fn search_path() -> Result<OsString, Error> {
    let mut path = libraries::folder()?.into_os_string();
    if let Some(before) = std::env::var_os(VARIABLE).filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    Ok(path)
}

/// A word that a shell takes as it is.
fn quoted(text: &OsStr) -> String {
    format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        let text = OsStr::new("it's $HOME");
        let script = format!("printf %s {}", quoted(text));
        let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(shell.stdout, b"it's $HOME");
    }
}
