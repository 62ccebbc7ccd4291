//! The table of programs in the documentation: what was run, and what came of it.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::{env, fs};

use super::process;

/// Who has looked at the data that arrived.
#[derive(Clone, Copy)]
pub(crate) enum CheckedBy {
    /// The program itself compares it.
    Program,
    /// There is none but what the program prints, and the test looks at that.
    Output,
    /// A recording of the packets shows RoCE with good ICRCs.
    Recording,
    /// The test compares it.
    #[allow(dead_code, reason = "not every family has such a program")]
    Test,
}

impl fmt::Display for CheckedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "program",
            Self::Output => "output",
            Self::Recording => "recording",
            Self::Test => "test",
        })
    }
}

/// What came of it.
pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

impl<T> From<Result<T, String>> for Outcome {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(_) => Self::Passed,
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// A program as it was called.
pub(crate) struct Row {
    pub(crate) program: &'static str,
    /// What this call is about; options that all calls have are left out.
    pub(crate) options: String,
    /// Debian's package, or where else it is from, with its version.
    pub(crate) package: &'static str,
    pub(crate) checked_by: CheckedBy,
    pub(crate) outcome: Outcome,
}

impl Row {
    /// Runs a program of a Debian package, unless it is not installed.
    pub(crate) fn of<T>(
        program: &'static str,
        options: &str,
        package: &'static str,
        checked_by: CheckedBy,
        run: impl FnOnce() -> Result<T, String>,
    ) -> Self {
        let is_there = if process::is_installed(program) {
            Ok(())
        } else {
            Err(format!("the Debian package {package} is not installed"))
        };
        Self::unless(is_there, program, options, package, checked_by, run)
    }

    /// Runs a program, unless there is a reason to skip it.
    pub(crate) fn unless<T>(
        is_there: Result<(), String>,
        program: &'static str,
        options: &str,
        package: &'static str,
        checked_by: CheckedBy,
        run: impl FnOnce() -> Result<T, String>,
    ) -> Self {
        let outcome = match is_there {
            Ok(()) => run().into(),
            Err(reason) => Outcome::Skipped(reason),
        };
        // Seen at once where the test prints: the whole table takes minutes.
        eprintln!("{program} {options}: {outcome}");
        Self {
            program,
            options: options.to_owned(),
            package,
            checked_by,
            outcome,
        }
    }

    /// What the row begins with: all that does not depend on the machine.
    fn start(&self) -> String {
        let options = match self.options.as_str() {
            "" => String::new(),
            options => format!("`{options}`"),
        };
        format!("| `{}` | {options} |", self.program)
    }
}

const HEAD: &str = "| program | options | package | data checked by | result |\n\
                    | --- | --- | --- | --- | --- |\n";

/// Fails where a program has failed, and compares a family's rows with its section of the
/// documentation. Versions are those of whoever wrote it.
pub(crate) fn check(family: &str, rows: &[Row]) {
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Failed(_)))
        .map(|row| format!("{} {}: {}", row.program, row.options, row.outcome))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md");
    let documented = fs::read_to_string(&path).expect("docs/programs.md");
    if env::var_os("UPDATE_EXPECT").is_some() {
        let all_ran = rows
            .iter()
            .all(|row| matches!(row.outcome, Outcome::Passed));
        assert!(all_ran, "a table is made where every program is installed");
        let text = with_section(&documented, family, &table(rows));
        fs::write(&path, text).expect("the table is written");
        return;
    }
    let section = section(&documented, family).unwrap_or_default();
    let mut lines = section.lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let start = row.start();
        let line = lines.next().unwrap_or_default();
        assert!(
            line.starts_with(&start),
            "docs/programs.md, section {family:?}: expected {start:?}, got {line:?}; \
             UPDATE_EXPECT=1 writes it anew"
        );
    }
    let stale = lines.next();
    assert_eq!(stale, None, "docs/programs.md has a row that is not run");
}

fn table(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let version = process::version(row.package).unwrap_or_default();
        let package = format!("{} {version}", row.package);
        writeln!(
            text,
            "{} {} | {} | {} |",
            row.start(),
            package.trim(),
            row.checked_by,
            row.outcome
        )
        .unwrap();
    }
    text
}

fn heading(family: &str) -> String {
    format!("## {family}\n")
}

/// What is between the heading of a family and the next one.
fn section<'a>(text: &'a str, family: &str) -> Option<&'a str> {
    let heading = heading(family);
    let start = text.find(&heading)? + heading.len();
    let rest = &text[start..];
    Some(&rest[..rest.find("\n## ").map_or(rest.len(), |at| at + 1)])
}

/// The text with the table of a family replaced, words in front of the table kept; a section that
/// is new comes last.
fn with_section(text: &str, family: &str, table: &str) -> String {
    let Some(old) = section(text, family) else {
        return format!("{}\n\n{}\n{table}", text.trim_end(), heading(family));
    };
    let words = &old[..old.find("| program").unwrap_or(old.len())];
    let start = old.as_ptr() as usize - text.as_ptr() as usize;
    let (before, after) = (&text[..start], &text[start + old.len()..]);
    let gap = if after.is_empty() { "" } else { "\n" };
    let words = words.trim();
    let words = if words.is_empty() {
        String::new()
    } else {
        format!("{words}\n\n")
    };
    format!("{before}\n{words}{table}{gap}{after}")
}

#[test]
fn a_section_is_written_in_its_place() {
    let text = "# P\n\n## one\n\nwords\n\n| program\n| `a` | x |\n\n## two\n\n| program\n| `b` |\n";
    let new = with_section(text, "one", "| program\n| `c` |\n");
    let expected = "# P\n\n## one\n\nwords\n\n| program\n| `c` |\n\n## two\n\n| program\n| `b` |\n";
    assert_eq!(new, expected);
    assert_eq!(with_section(&new, "one", "| program\n| `c` |\n"), new);
    let more = with_section(&new, "three", "| program\n");
    assert!(
        more.ends_with("| `b` |\n\n## three\n\n| program\n"),
        "{more}"
    );
}
