//! `hirail explain`: the meaning of every term, counter and status code that hirail prints.

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Explain a term, a counter or a status code
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  hirail explain packet_seq_err
  hirail explain IBV_WC_RETRY_EXC_ERR
  hirail explain PSN")]
pub(crate) struct Args {
    /// The word, as hirail or another tool prints it
    word: String,
}

pub(crate) fn run(args: &Args, _out: &mut Output) -> Result<Outcome, Error> {
    Err(Error::new(format!(
        "this build has no explanations, so none of '{}'",
        args.word
    )))
}
