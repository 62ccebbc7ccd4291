//! `hirail explain`: the meaning of every term, counter and status code that hirail prints.

use hirail_vocab::{Explanation, explain, nearest_word, words};
use serde::Serialize;

use crate::outcome::{Error, Outcome};
use crate::output::{HEADING, Output};

/// Explain a term, a counter or a status code
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  hirail explain packet_seq_err
  hirail explain IBV_WC_RETRY_EXC_ERR
  hirail explain status 12
  hirail explain --list")]
pub(crate) struct Args {
    /// The word, as hirail or another tool prints it
    #[arg(required_unless_present = "list")]
    word: Vec<String>,

    /// List all words instead
    #[arg(long, conflicts_with = "word")]
    list: bool,
}

/// An explanation as JSON.
#[derive(Serialize)]
struct Json {
    word: &'static str,
    kind: &'static str,
    meaning: &'static str,
    facts: serde_json::Map<String, serde_json::Value>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<Outcome, Error> {
    if args.list {
        return list(out).map(|()| Outcome::Clean);
    }
    let word = args.word.join(" ");
    let Some(explanation) = explain(&word) else {
        let near = nearest_word(&word).map_or_else(
            || "'hirail explain --list' prints all words".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        return Err(Error::new(format!(
            "nothing here is called '{word}'; {near}"
        )));
    };
    print(explanation, out).map(|()| Outcome::Clean)
}

fn print(explanation: Explanation, out: &mut Output) -> Result<(), Error> {
    let Explanation {
        word,
        kind,
        meaning,
        facts,
    } = explanation;
    if out.is_json() {
        let facts = facts
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value.into()));
        return out.json(&Json {
            word,
            kind: kind.name(),
            meaning,
            facts: facts.collect(),
        });
    }
    writeln!(out, "{} ({kind})\n{meaning}", out.paint(HEADING, word))?;
    let width = facts
        .iter()
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0);
    facts
        .iter()
        .try_for_each(|(label, value)| writeln!(out, "  {label:width$}  {value}"))
}

fn list(out: &mut Output) -> Result<(), Error> {
    let words: Vec<&str> = words().collect();
    if out.is_json() {
        return out.json(&words);
    }
    words.iter().try_for_each(|word| writeln!(out, "{word}"))
}
