//! `hirail run --check`: the program is watched, and what it does wrong with the verbs is reported.
//!
//! The libraries find it, in every process of the program, and write it into a folder as it happens
//! ([`record`](hirail_check::record)). Here the folder is read when the program has ended, functions
//! and lines are found for the addresses, and the report is printed.

mod collect;
mod report;
mod symbols;

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub(super) use hirail_check::record::VARIABLE;

use self::report::Report;
use crate::outcome::{Error, Outcome};
use crate::output::Output;

/// Options of `hirail run` that have to do with checking.
#[derive(clap::Args)]
pub(super) struct CheckArgs {
    /// Check how the program uses the verbs, and report mistakes when it has ended (docs/check.md)
    #[arg(long)]
    check: bool,
    /// Write the report of --check as JSON into this file as well
    #[arg(long, value_name = "FILE", requires = "check")]
    report: Option<PathBuf>,
}

impl CheckArgs {
    /// Prepares to check a program, if one is to be checked.
    pub(super) fn start(&self) -> Result<Option<Checking>, Error> {
        if !self.check {
            return Ok(None);
        }
        if let Some(file) = &self.report {
            super::expect_folder("--report", file)?;
        }
        let folder = Folder::new()?;
        let report = self.report.clone();
        Ok(Some(Checking { folder, report }))
    }
}

/// A program that is checked.
pub(super) struct Checking {
    folder: Folder,
    report: Option<PathBuf>,
}

impl Checking {
    /// Where its processes write what they find.
    pub(super) fn path(&self) -> &Path {
        &self.folder.0
    }

    /// Reports what it did wrong. `program` is what the user called it, `outcome` what it came to.
    pub(super) fn finish(
        self,
        program: &Path,
        outcome: Outcome,
        out: &mut Output,
    ) -> Result<Outcome, Error> {
        let checked = collect::read(self.path())?;
        let report = Report::new(program, outcome, checked);
        if let Some(file) = &self.report {
            let mut text = serde_json::to_vec_pretty(&report).unwrap_or_default();
            text.push(b'\n');
            fs::write(file, text)
                .map_err(|error| Error::new(format!("cannot write {}: {error}", file.display())))?;
        }
        if out.is_json() {
            out.json(&report)?;
        } else {
            report.print();
        }
        Ok(report.outcome())
    }
}

/// A folder for the findings, of this user alone; gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("hirail-check-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            let path = path.display();
            Error::new(format!("--check: cannot make the folder {path}: {error}"))
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Processes that go on find no folder, and write nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}
