//! Findings leave the process, each as soon as it is known: the next call may be its last.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hirail_check::Ledger;
use hirail_check::record::{Found, Place, Record, file_name};

use super::place;

/// Where this process writes.
pub(super) struct Output {
    path: PathBuf,
}

impl Output {
    /// A file in `folder`; says that this process is here.
    pub(super) fn new(folder: &Path) -> Self {
        let pid = std::process::id();
        let output = Self {
            path: folder.join(file_name(pid)),
        };
        let program = std::env::current_exe().unwrap_or_default();
        output.write(&Record::Start {
            pid,
            program: program.to_string_lossy().into_owned(),
        });
        output
    }

    /// Writes a line. The file is not kept open: programs close descriptors that they do not know.
    pub(super) fn write(&self, record: &Record) {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path);
        if let Ok(mut file) = file {
            // Who has gone away takes the folder along.
            let _ = file.write_all(record.to_line().as_bytes());
        }
    }

    /// Writes what is new.
    pub(super) fn news(&self, ledger: &mut Ledger) {
        for finding in ledger.take() {
            if finding.is_known {
                self.write(&Record::Count {
                    id: finding.id,
                    count: finding.count,
                });
                continue;
            }
            let traces = finding.traces.iter().map(|trace| Place {
                role: trace.role.to_owned(),
                frames: place::frames(ledger.frames(trace.site)),
            });
            self.write(&Record::Finding(Found {
                id: finding.id,
                code: finding.code.name().to_owned(),
                object: finding.object.clone(),
                message: finding.message.clone(),
                count: finding.count,
                traces: traces.collect(),
            }));
        }
    }
}
