//! `hirail stat`.

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Show the counters of the hirail processes on this host
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _out: &mut Output) -> Result<Outcome, Error> {
    Err(Error::new(
        "this build has no port runtime, so there is nothing for 'stat' to show",
    ))
}
