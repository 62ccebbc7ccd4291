//! The `hirail` command: parses the command line, runs one subcommand and turns what came of it
//! into an exit status. Nothing else in the project prints or exits.

#![forbid(unsafe_code)]

mod completions;
mod decode;
mod devices;
mod explain;
mod number;
mod outcome;
mod output;
mod perf;
mod run;
mod stat;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use hirail::config::Config;

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// RDMA over Converged Ethernet (RoCE v2) in software.
#[derive(Parser)]
#[command(
    name = "hirail",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "\
Exit status: 0 done and nothing to report, 1 findings or a test that failed, 2 bad input or could
not do the job.
Results go to standard output, everything else to standard error. NO_COLOR turns colour off.

Examples:
  hirail perf                        the important figures, each beside TCP and plain UDP
  hirail run -- ibv_devinfo -v       a program written for the C verbs, as it is
  hirail decode capture.pcapng       one line per packet
  hirail explain IBV_WC_RETRY_EXC_ERR"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Env(run::EnvArgs),
    Perf(perf::Args),
    Devices(devices::Args),
    Stat(stat::Args),
    Decode(decode::Args),
    Explain(explain::Args),
    Completions(completions::Args),
}

impl Command {
    fn run(&self, out: &mut Output) -> Result<Outcome, Error> {
        // A misspelt setting is refused by every command, also by one that would not use it.
        let config = Config::load().map_err(hirail::Error::Config)?;
        match self {
            Self::Run(args) => run::run(args, out),
            Self::Env(_) => run::env(out),
            Self::Perf(args) => perf::run(args, &config, out),
            Self::Devices(args) => devices::run(args, &config, out),
            Self::Stat(args) => stat::run(args, out),
            Self::Decode(args) => decode::run(args, out),
            Self::Explain(args) => explain::run(args, out),
            Self::Completions(args) => completions::run(args, out),
        }
    }
}

/// The command line. Some terminals say that they have no columns at all.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    if std::env::var_os("COLUMNS").is_some_and(|columns| columns == "0") {
        command = command.term_width(80);
    }
    let matches = command.clone().try_get_matches()?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn main() -> ExitCode {
    if run::is_view_child() {
        run::hold_view();
        return ExitCode::SUCCESS;
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let mut out = Output::new(cli.json);
    let result = cli.command.run(&mut out);
    // What was printed before an error is still a result: a reader sees it, then the error.
    let flushed = out.finish();
    outcome::exit(result.and_then(|outcome| flushed.map(|()| outcome)))
}
