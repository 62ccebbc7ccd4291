//! The report: for a person on standard error, or as JSON.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use hirail_vocab::{FindingCode, Severity};
use serde::Serialize;

use super::collect::{Checked, Process};
use super::symbols::{Named, Symbols};
use crate::outcome::Outcome;
use crate::output::{BAD, FAINT, HEADING};

/// Frames of a place that are printed.
const FRAMES: usize = 8;

/// Where threads begin. What called these functions is the C library.
const BEGINNINGS: &[&str] = &["main", "start_thread", "_start"];

/// What came of a program.
#[derive(Serialize)]
pub(super) struct Report {
    program: String,
    /// What it ended with; 128 and the number of the signal that has killed it.
    status: u8,
    processes: Vec<Process>,
    findings: Vec<Finding>,
}

/// A finding.
#[derive(Serialize)]
struct Finding {
    code: String,
    severity: &'static str,
    object: String,
    message: String,
    count: u64,
    pids: Vec<u32>,
    traces: Vec<Place>,
    meaning: &'static str,
    why: &'static str,
    remedy: &'static str,
    #[serde(skip)]
    rank: Severity,
}

/// A place in the program.
#[derive(Serialize)]
struct Place {
    role: String,
    frames: Vec<Named>,
}

impl Report {
    /// Of what the processes have written. The worst comes first.
    pub(super) fn new(program: &Path, outcome: Outcome, checked: Checked) -> Self {
        let mut symbols = Symbols::default();
        let findings = checked.findings.into_iter().filter_map(|merged| {
            let found = merged.found;
            let code: FindingCode = found.code()?;
            let places = found.traces.iter().map(|place| Place {
                role: place.role.clone(),
                frames: symbols.name(&place.frames),
            });
            Some(Finding {
                severity: code.severity().name(),
                rank: code.severity(),
                traces: places.collect(),
                meaning: code.meaning(),
                why: code.why(),
                remedy: code.remedy(),
                code: found.code,
                object: found.object,
                message: found.message,
                count: found.count,
                pids: merged.pids,
            })
        });
        let mut findings: Vec<_> = findings.collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.rank));
        Self {
            program: program.display().to_string(),
            status: match outcome {
                Outcome::Clean => 0,
                Outcome::Findings => 1,
                Outcome::Status(status) => status,
            },
            processes: checked.processes,
            findings,
        }
    }

    /// The program's own status; one that is content becomes findings where there are any. Notes are
    /// none.
    pub(super) fn outcome(&self) -> Outcome {
        match self.status {
            0 if self.has_findings() => Outcome::Findings,
            status => Outcome::Status(status),
        }
    }

    fn has_findings(&self) -> bool {
        self.findings.iter().any(|it| it.rank > Severity::Note)
    }

    /// Prints it for a person.
    pub(super) fn print(&self) {
        let mut to = anstream::AutoStream::auto(io::stderr());
        // With standard error gone there is nobody left to tell.
        let _ = write!(to, "{self}");
        let _ = to.flush();
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn paint(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return writeln!(
                f,
                "hirail check: {} opened no device: there was nothing to check",
                self.program
            );
        }
        let processes = plural(self.processes.len(), "process", "processes");
        let by_severity = |rank| {
            self.findings
                .iter()
                .filter(move |it| it.rank == rank)
                .count()
        };
        let counts = [
            (Severity::Error, "error", "errors"),
            (Severity::Warning, "warning", "warnings"),
            (Severity::Note, "note", "notes"),
        ];
        let counts = counts.into_iter().filter_map(|(rank, one, many)| {
            let count = by_severity(rank);
            (count > 0).then(|| plural(count, one, many))
        });
        let counts: Vec<_> = counts.collect();
        let summary = if counts.is_empty() {
            "nothing found".to_owned()
        } else {
            counts.join(", ")
        };
        for finding in &self.findings {
            finding.print(f, self.processes.len() > 1)?;
        }
        let headline = paint(HEADING, format!("hirail check: {summary}"));
        writeln!(f, "{headline} in {processes} of {}", self.program)?;
        let killed = self.processes.iter().filter(|it| !it.exited).count();
        if killed > 0 {
            writeln!(
                f,
                "  {} did not exit by itself: what was left behind is not known",
                plural(killed, "process", "processes")
            )?;
        }
        Ok(())
    }
}

impl Finding {
    fn print(&self, f: &mut fmt::Formatter<'_>, with_pids: bool) -> fmt::Result {
        const WARNING: Style = AnsiColor::Yellow.on_default();
        let style = match self.rank {
            Severity::Error => BAD,
            Severity::Warning => WARNING,
            Severity::Note => FAINT,
        };
        let head = paint(style.bold(), format!("{}: {}", self.severity, self.code));
        writeln!(f, "{head} ({})", self.object)?;
        writeln!(f, "  {}", self.message)?;
        for place in &self.traces {
            let shown = place.shown();
            if shown.is_empty() {
                continue;
            }
            writeln!(f, "  {}:", place.role)?;
            for frame in shown.iter().take(FRAMES) {
                writeln!(f, "    {frame}")?;
            }
            if shown.len() > FRAMES {
                writeln!(f, "    and {} more", shown.len() - FRAMES)?;
            }
        }
        if self.count > 1 {
            writeln!(f, "  {} times", self.count)?;
        }
        if with_pids {
            let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
            let label = if pids.len() == 1 {
                "process"
            } else {
                "processes"
            };
            writeln!(f, "  {label} {}", pids.join(", "))?;
        }
        let more = paint(FAINT, format!("hirail explain {}", self.code));
        writeln!(f, "  remedy: {} ({more})\n", self.remedy)
    }
}

impl Place {
    /// The frames that are the program's: up to `main`, or to where its thread begins.
    fn shown(&self) -> &[Named] {
        let is_first = |frame: &Named| {
            let function = frame.function.as_deref();
            function.is_some_and(|function| BEGINNINGS.contains(&function))
        };
        let first = self.frames.iter().position(is_first);
        first.map_or(&self.frames, |first| &self.frames[..=first])
    }
}

/// As in debuggers: the function, and where it is.
impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_deref().unwrap_or("?");
        let module = Path::new(&self.module).file_name();
        let module = module.map_or_else(String::new, |it| it.to_string_lossy().into_owned());
        // Near, files go by shorter names.
        let here = std::env::current_dir().unwrap_or_default();
        let file = self.file.as_ref().map(|file| {
            let near = Path::new(file).strip_prefix(&here);
            near.unwrap_or(Path::new(file)).display()
        });
        match (&file, self.line) {
            (Some(file), Some(line)) => write!(f, "{function} ({file}:{line})"),
            (Some(file), None) => write!(f, "{function} ({file})"),
            _ if module.is_empty() => write!(f, "{function} at {:#x}", self.offset),
            _ => write!(f, "{function} ({module}+{:#x})", self.offset),
        }
    }
}
