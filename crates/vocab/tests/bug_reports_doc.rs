//! The tests that `docs/bug-reports.md` names exist.

use std::fs;
use std::path::Path;

/// Texts in backticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether the source of a test says that it runs `name`: as a function, or in a list of programs.
fn runs(source: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    source.contains(&function) || source.lines().any(|line| line.trim() == name)
}

#[test]
fn every_test_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let document = read("docs/bug-reports.md");
    let mut count = 0;
    for row in document.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let Ok(number) = cells[0].trim_start_matches("| ").parse::<u32>() else {
            continue;
        };
        count += 1;
        assert_eq!(number, count, "the reports are numbered");
        let mut source = None;
        let mut named = 0;
        for text in code(cells[2]) {
            if let Some(program) = text.strip_suffix(".c") {
                assert!(root.join(text).exists(), "{number}: {text}");
                let (folder, name) = program.rsplit_once('/').expect("a path");
                let main = read(&format!("{folder}/main.rs"));
                assert!(runs(&main, name), "{number}: nothing runs {text}");
                named += 1;
            } else if text.contains('/') {
                source = Some(read(text));
            } else {
                let source = source.as_deref().expect("a file before its tests");
                assert!(runs(source, text), "{number}: no test {text}");
                named += 1;
            }
        }
        assert!(named > 0, "{number} is proved by nothing");
    }
    assert!(count >= 40, "{count} reports");
}
