//! `hirail run` and `hirail env`: unmodified programs on hirail.

mod check;
mod child;
mod libraries;
mod stat;
mod trace;
mod view;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hirail::Faults;
use serde_json::json;

use crate::number;
use crate::outcome::{Error, Outcome};
use crate::output::Output;

use self::child::Program;
use self::stat::{Counting, Folder};
use self::trace::{Trace, Tracing};
use self::view::View;
pub(crate) use self::view::{child as hold_view, is_child as is_view_child};

/// Run a program written for the C verbs on hirail
#[derive(clap::Args)]
#[command(after_help = "\
The libraries of hirail are put in front of the system's for this program and its children. Nothing
is installed or replaced. Exit status is the program's own, 2 if it cannot be run; with --trace,
--stat or --check, 128 and the number of the signal that has killed it. --check turns 0 into 1 where
it finds mistakes.

Examples:
  hirail run -- ibv_devinfo -v
  hirail run -- ibv_rc_pingpong -d hirail_lo -g 0
  hirail run --pcap trace.pcapng -- ib_write_bw -d hirail_lo -x 0
  hirail run --trace -- rping -c -a 198.51.100.7 -C 1
  hirail run --trace=packets.txt --stat=1s -- ib_send_bw -d hirail_lo -x 0
  hirail run --faults drop=1%,delay=50us --seed 7 -- ib_send_bw -d hirail_lo -x 0
  hirail run --rsockets -- python3 -m http.server
  hirail run --check -- ./my-program        what it does wrong with the verbs, with backtraces

Faults (they strike what arrives; shares of packets are numbers from 0 to 1 or percentages):
  drop, duplicate, reorder, corrupt   a packet vanishes, comes twice, is overtaken, is damaged
  ce                                  a packet is marked \"congestion experienced\"
  rnr                                 a request that needs a receive finds none
  kill                                the queue pair that a packet is for fails
  delay=50us                          every packet takes longer
  flap=100ms/5s                       the port is down for 100 ms in every 5 s

Ways to show the devices in /sys and /dev/infiniband (docs/view.md):
  auto       namespace where the system allows it, else preload
  namespace  in a mount namespace of the program; without root in a user namespace, too
  preload    by a library that leads calls of the C library to other files
  none       not at all, which is enough for most programs")]
pub(crate) struct RunArgs {
    /// Record every packet in this pcapng file, for 'hirail decode' or Wireshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print a line per packet on standard error, or in FILE, while the program runs: the columns of
    /// 'hirail decode', after 'out' or 'in'
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    trace: Option<Option<PathBuf>>,
    /// Print on standard error what the devices have counted, at the end and after every TIME, such
    /// as 1s
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        value_parser = crate::stat::duration
    )]
    stat: Option<Option<Duration>>,
    /// Let these faults happen, such as drop=1%,delay=50us
    #[arg(long, value_name = "FAULTS")]
    faults: Option<String>,
    /// Seed of the faults: the same one brings the same faults again [default: a new one, which is
    /// printed]
    #[arg(
        long,
        value_name = "N",
        requires = "faults",
        value_parser = number::within::<u64>(0..=u64::MAX),
        allow_negative_numbers = true
    )]
    seed: Option<u64>,
    /// How the devices are shown in /sys and /dev, for programs that look there themselves
    #[arg(long, value_enum, default_value_t = View::Auto, hide_possible_values = true, value_name = "WAY")]
    view: View,
    /// Let TCP and UDP sockets of the program use RDMA, where the peer does the same
    #[arg(long)]
    rsockets: bool,
    #[command(flatten)]
    check: check::CheckArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Print what 'hirail run' sets, as lines for a shell
#[derive(clap::Args)]
#[command(after_help = "\
The devices are shown in /sys and /dev by a preloaded library: lines cannot make a namespace.

Examples:
  eval \"$(hirail env)\"
  hirail env --json")]
pub(crate) struct EnvArgs {}

/// Where the loader looks first.
const VARIABLE: &str = "LD_LIBRARY_PATH";

pub(crate) fn run(args: &RunArgs, out: &mut Output) -> Result<Outcome, Error> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Error::new("expected a program after 'run --'"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env(VARIABLE, search_path()?);
    if let Some(file) = &args.pcap {
        expect_folder("--pcap", file)?;
        command.env("HIRAIL_PCAP", file);
    }
    if let Some(text) = &args.faults {
        text.parse::<Faults>()
            .map_err(|error| Error::new(format!("--faults: {error}")))?;
        let seed = args.seed.unwrap_or_else(new_seed);
        if args.seed.is_none() {
            eprintln!("hirail: faults of --seed {seed}");
        }
        command
            .env("HIRAIL_FAULTS", text)
            .env("HIRAIL_SEED", seed.to_string());
    }
    let mut preloaded = view::prepare(args.view)?;
    if args.rsockets {
        preloaded = Some(with_rsockets(preloaded)?);
    }
    if let Some(preloaded) = preloaded {
        command.env(view::VARIABLE, preloaded);
    }
    let cannot = |error: io::Error| {
        let program = program.display();
        Error::new(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no program {program}"),
            _ => format!("cannot run {program}: {error}"),
        })
    };
    let checking = args.check.start()?;
    if args.trace.is_none() && args.stat.is_none() && checking.is_none() {
        return Err(cannot(command.exec()));
    }
    let trace = match &args.trace {
        Some(lines) => Some(Trace::new(args.pcap.as_deref(), lines.as_deref())?),
        None => None,
    };
    if let Some(trace) = &trace {
        command.env("HIRAIL_PCAP", trace.path());
    }
    let folder = args.stat.map(|every| Folder::new().map(|it| (it, every)));
    let folder = folder.transpose()?;
    if let Some((folder, _)) = &folder {
        command.env("HIRAIL_STAT", folder.path());
    }
    if let Some(checking) = &checking {
        command.env(check::VARIABLE, checking.path());
    }
    let json = out.is_json();
    let running = Program::start(&command).map_err(cannot)?;
    let trace = trace.map(|trace| trace.start(json));
    let counting = folder.map(|(folder, every)| folder.start(every, json));
    let outcome = running.wait().map_err(cannot)?;
    // The program has done its job: what cannot be shown of it does not change its status.
    let shown = [
        trace.map_or(Ok(()), Tracing::finish),
        counting.map_or(Ok(()), Counting::finish),
    ];
    for error in shown.into_iter().filter_map(Result::err) {
        let _ = writeln!(io::stderr(), "hirail: {error}");
    }
    match checking {
        Some(checking) => checking.finish(Path::new(program), outcome, out),
        None => Ok(outcome),
    }
}

/// What is preloaded, with the library in front that makes rsockets of sockets.
fn with_rsockets(others: Option<OsString>) -> Result<OsString, Error> {
    let mut value = libraries::rspreload()?.into_os_string();
    if value.to_string_lossy().contains([' ', ':']) {
        return Err(Error::new(format!(
            "{} cannot name {}: it takes neither spaces nor colons",
            view::VARIABLE,
            value.display()
        )));
    }
    let others = others.or_else(|| std::env::var_os(view::VARIABLE));
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// A program would find out only when it opens a device, and most say no more than that it failed.
fn expect_folder(option: &str, file: &Path) -> Result<(), Error> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() && !file.is_dir() {
        return Ok(());
    }
    let file = file.display();
    Err(Error::new(format!(
        "{option}: expected a file in a folder that exists, got {file}"
    )))
}

/// A seed that is short enough to be typed again.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64 % 1_000_000)
}

pub(crate) fn env(out: &mut Output) -> Result<Outcome, Error> {
    let path = search_path()?;
    // A namespace is for processes, not for lines.
    let preloaded = view::prepare(View::Preload)?.unwrap_or_default();
    if out.is_json() {
        out.json(&json!({
            VARIABLE: path.to_string_lossy(),
            view::VARIABLE: preloaded.to_string_lossy(),
        }))?;
    } else {
        writeln!(out, "export {VARIABLE}={}", quoted(&path))?;
        writeln!(out, "export {}={}", view::VARIABLE, quoted(&preloaded))?;
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
