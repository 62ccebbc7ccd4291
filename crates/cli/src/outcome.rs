//! What a subcommand comes to, and the one place that makes an exit status of it.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// A subcommand that did its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing to report: status 0.
    Clean,
    /// It found something wrong, or what it tested failed: status 1.
    Findings,
    /// A program was run, whose status becomes this one's.
    Status(u8),
}

/// A subcommand that could not do its job: status 2.
#[derive(Debug)]
pub(crate) enum Error {
    /// One sentence for the person at the terminal: what was wrong and what would be right.
    Said(String),
    /// Standard output took no more. A reader that went away is no error.
    Output(io::Error),
}

impl Error {
    /// One sentence without a full stop at its end, naming what was wrong and what would be right.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self::Said(sentence.into())
    }
}

impl From<hirail::Error> for Error {
    fn from(error: hirail::Error) -> Self {
        Self::Said(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(sentence) => f.write_str(sentence),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
        }
    }
}

/// Reports an error on standard error and decides the exit status.
pub(crate) fn exit(result: Result<Outcome, Error>) -> ExitCode {
    match result {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Ok(Outcome::Status(status)) => ExitCode::from(status),
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // With standard error gone too there is nobody left to tell.
            let _ = writeln!(io::stderr(), "hirail: {error}");
            ExitCode::from(2)
        }
    }
}
