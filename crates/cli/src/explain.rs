//! `hirail explain`: the meaning of every term, counter, status code and setting.

use hirail::config::{self, SETTINGS, Setting};
use hirail_vocab::{Explanation, Kind, explain, nearest_word, words};
use serde::Serialize;

use crate::outcome::{Error, Outcome};
use crate::output::{HEADING, Output};

/// Explain a term, a counter, a status code or a setting
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  hirail explain packet_seq_err
  hirail explain IBV_WC_RETRY_EXC_ERR
  hirail explain status 12
  hirail explain HIRAIL_RECOVERY
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
    let Some(explanation) = explain(&word).or_else(|| setting(&word)) else {
        let near = nearest_word(&word).map(str::to_owned);
        let near = near
            .or_else(|| config::nearest(&word, settings()))
            .map_or_else(
                || "'hirail explain --list' prints all words".to_owned(),
                |near| format!("did you mean {near}?"),
            );
        return Err(Error::new(format!(
            "nothing here is called '{word}'; {near}"
        )));
    };
    print(explanation, out).map(|()| Outcome::Clean)
}

/// A setting by its variable, by its name in the file, or by what that ends with.
fn setting(word: &str) -> Option<Explanation> {
    let is_meant = |setting: &&Setting| {
        let last = setting.key.rsplit('.').next();
        setting.variable.eq_ignore_ascii_case(word) || setting.key == word || last == Some(word)
    };
    let setting = SETTINGS.iter().find(is_meant)?;
    Some(Explanation {
        word: setting.variable,
        kind: Kind::Setting,
        meaning: setting.meaning,
        facts: vec![
            ("in the file", setting.key.to_owned()),
            ("values", setting.values.to_owned()),
        ],
    })
}

/// The names of all settings.
fn settings() -> impl Iterator<Item = &'static str> {
    let names = |setting: &'static Setting| [setting.variable, setting.key];
    SETTINGS.iter().flat_map(names)
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
    let variables = SETTINGS.iter().map(|setting| setting.variable);
    let words: Vec<&str> = words().chain(variables).collect();
    if out.is_json() {
        return out.json(&words);
    }
    words.iter().try_for_each(|word| writeln!(out, "{word}"))
}
