//! `hirail completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  hirail completions bash > ~/.local/share/bash-completion/completions/hirail
  hirail completions fish > ~/.config/fish/completions/hirail.fish
  hirail completions zsh > ~/.zfunc/_hirail")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<Outcome, Error> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "hirail",
        &mut script,
    );
    if out.is_json() {
        let script = String::from_utf8_lossy(&script);
        out.json(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    } else {
        out.bytes(&script)?;
    }
    Ok(Outcome::Clean)
}
