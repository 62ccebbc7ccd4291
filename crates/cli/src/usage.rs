//! Errors of the command line as one sentence that names what was wrong and what would be right.

use std::error::Error as _;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::outcome::{self, Error, Outcome};

/// Prints what the parser has to say: help and version as results, everything else as an error.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => outcome::exit(
            error
                .print()
                .map(|()| Outcome::Clean)
                .map_err(Error::Output),
        ),
        // Nothing was asked for, so nothing was done: the help goes where errors go.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => outcome::exit(Err(Error::new(sentence(error)))),
    }
}

fn sentence(error: &clap::Error) -> String {
    let arg = context(error, ContextKind::InvalidArg);
    let value = context(error, ContextKind::InvalidValue);
    let mut text = match (error.kind(), arg, value) {
        (ErrorKind::InvalidValue, Some(arg), Some(value)) if value.is_empty() => {
            format!("'{arg}' needs a value")
        }
        // 'hirail perf 192.0.2.7'
        (ErrorKind::InvalidValue, Some(arg), Some(value)) if value.parse::<IpAddr>().is_ok() => {
            format!("the address {value} comes after '{arg}'")
        }
        (ErrorKind::InvalidValue, Some(arg), Some(value)) => {
            format!("'{value}' is no value for '{arg}'")
        }
        (ErrorKind::ValueValidation, Some(arg), Some(value)) => {
            let reason = error
                .source()
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            format!("'{value}' is no value for '{arg}'{reason}")
        }
        (ErrorKind::UnknownArgument, Some(arg), _) => format!("there is no argument '{arg}' here"),
        (ErrorKind::InvalidSubcommand, ..) => {
            let name = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("there is no command '{name}'")
        }
        (ErrorKind::MissingSubcommand, ..) => "a command is missing".into(),
        (ErrorKind::MissingRequiredArgument, Some(arg), _) => format!("{arg} is missing"),
        (ErrorKind::ArgumentConflict, Some(arg), _) => {
            match context(error, ContextKind::PriorArg) {
                Some(prior) if prior == arg => format!("'{arg}' is given twice"),
                Some(prior) => format!("'{arg}' and '{prior}' exclude each other"),
                None => format!("'{arg}' does not go with the other arguments"),
            }
        }
        _ => first_line(error),
    };
    let remedy = [
        (ContextKind::ValidValue, "use one of ", ""),
        (ContextKind::SuggestedArg, "did you mean ", "?"),
        (ContextKind::SuggestedSubcommand, "did you mean ", "?"),
        (ContextKind::SuggestedValue, "did you mean ", "?"),
        (ContextKind::ValidSubcommand, "use one of ", ""),
    ]
    .into_iter()
    .find_map(|(kind, lead, end)| {
        context(error, kind)
            .filter(|s| !s.is_empty())
            .map(|s| (lead, s, end))
    });
    let _ = match remedy {
        Some((lead, remedy, end)) => write!(text, "; {lead}{remedy}{end}"),
        None => write!(text, " (--help lists what there is)"),
    };
    text
}

/// What the parser knows about `kind`, as text.
fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        ContextValue::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The parser's own words, for the kinds that have none of ours.
fn first_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let line = rendered.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
