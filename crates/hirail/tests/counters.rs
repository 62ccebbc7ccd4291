//! Every counter that hirail claims to count is counted somewhere.

use std::fs;
use std::path::Path;

use hirail_vocab::{Counter, DropReason};

/// The source of the crates that count, without their tests.
fn source() -> String {
    let mut text = String::new();
    for folder in ["src", "../rnic/src"] {
        read(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            &mut text,
        );
    }
    text
}

fn read(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(&path, text);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            let file = fs::read_to_string(&path).expect("text");
            let code = file.split("#[cfg(test)]\nmod tests {").next();
            text.push_str(code.unwrap_or_default());
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        rest = &rest[at + word.len()..];
        if !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            return true;
        }
    }
    false
}

#[test]
fn what_is_claimed_has_a_source() {
    let source = source();
    for counter in Counter::ALL {
        let reasons = DropReason::ALL.iter();
        let of_drops = reasons
            .filter(|it| it.counter() == *counter || it.also() == Some(*counter))
            .map(|reason| format!("DropReason::{reason:?}"));
        // "rx_prio3_pause" is made by `rx_prio_pause`.
        let of_priority = counter.name().split_once("_prio").map(|(side, rest)| {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("Counter::{side}_prio{rest}")
        });
        let mut places = of_drops
            .chain(of_priority)
            .chain([format!("Counter::{counter:?}")]);
        let is_counted = places.any(|place| has_word(&source, &place));
        let is_claimed = !counter.counted_on().is_empty();
        // The parser's errors all have a reason, whether anybody parses such packets or not.
        let is_of_parser = matches!(counter, Counter::DropBadHeader | Counter::DropBadMadVersion);
        assert!(
            is_counted == is_claimed || is_of_parser,
            "{counter}: claimed {is_claimed}, counted {is_counted}"
        );
    }
}
