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
    let script = without_hidden(String::from_utf8_lossy(&script).into_owned());
    if out.is_json() {
        out.json(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    } else {
        out.bytes(script.as_bytes())?;
    }
    Ok(Outcome::Clean)
}

/// Scripts for some shells offer options that the help hides.
fn without_hidden(mut script: String) -> String {
    let command = crate::Cli::command();
    let hidden = command
        .get_subcommands()
        .flat_map(|command| command.get_arguments())
        .filter(|argument| argument.is_hide_set())
        .filter_map(|argument| argument.get_long());
    for name in hidden {
        script = script.replace(&format!(" --{name} "), " ");
    }
    script
}
