//! `hirail devices`.

use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Show the devices, their ports, GIDs and which fast paths are in use
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _out: &mut Output) -> Result<Outcome, Error> {
    Err(Error::new(
        "this build has no port runtime, so there is nothing for 'devices' to show",
    ))
}
