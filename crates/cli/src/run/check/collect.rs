//! What the processes of a program have written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hirail_check::record::{Found, Frame, Record};
use serde::Serialize;

use crate::outcome::Error;

/// A process that used the verbs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) program: String,
    /// It exited by itself; otherwise nothing is known of what it left behind.
    pub(super) exited: bool,
}

/// What all processes have written. What several of them did at the same places is one finding.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) processes: Vec<Process>,
    pub(super) findings: Vec<Merged>,
}

/// A finding, and who made the mistake.
pub(super) struct Merged {
    pub(super) found: Found,
    pub(super) pids: Vec<u32>,
}

/// Reads the folder.
pub(super) fn read(folder: &Path) -> Result<Checked, Error> {
    let unreadable = |error| Error::new(format!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    let mut checked = Checked::default();
    let mut known = BTreeMap::new();
    for file in files {
        let bytes = fs::read(&file).map_err(unreadable)?;
        checked.add(&String::from_utf8_lossy(&bytes), &mut known);
    }
    Ok(checked)
}

/// What makes a finding the same one: its code and its places.
type Key = (String, Vec<(String, Vec<Frame>)>);

impl Checked {
    /// Adds the lines of a process, which may have become another program on its way. A line that is
    /// not whole was the last thing that it did.
    fn add(&mut self, lines: &str, known: &mut BTreeMap<Key, usize>) {
        let mut pid = 0;
        let mut ids = BTreeMap::<u32, (usize, u64)>::new();
        for record in lines.lines().filter_map(Record::from_line) {
            match record {
                Record::Start { pid: of, program } => {
                    pid = of;
                    ids.clear();
                    self.processes.push(Process {
                        pid,
                        program,
                        exited: false,
                    });
                }
                Record::Finding(found) => {
                    let places = found.traces.iter();
                    let places = places.map(|place| (place.role.clone(), place.frames.clone()));
                    let key = (found.code.clone(), places.collect());
                    let (id, count) = (found.id, found.count);
                    let place = *known.entry(key).or_insert_with(|| {
                        let found = Found { count: 0, ..found };
                        self.findings.push(Merged {
                            found,
                            pids: Vec::new(),
                        });
                        self.findings.len() - 1
                    });
                    let merged = &mut self.findings[place];
                    merged.found.count += count;
                    if merged.pids.last() != Some(&pid) {
                        merged.pids.push(pid);
                    }
                    ids.insert(id, (place, count));
                }
                Record::Count { id, count } => {
                    if let Some((place, before)) = ids.get_mut(&id) {
                        self.findings[*place].found.count += count.saturating_sub(*before);
                        *before = count;
                    }
                }
                Record::End => {
                    if let Some(process) = self.processes.last_mut() {
                        process.exited = true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hirail_check::record::Place;

    fn finding(id: u32, offset: u64) -> Record {
        let frame = Frame {
            file: "/bin/true".to_owned(),
            offset,
        };
        Record::Finding(Found {
            id,
            code: "payload_changed".to_owned(),
            object: "QP 0x11".to_owned(),
            message: "it was".to_owned(),
            count: 1,
            traces: vec![Place {
                role: "posted".to_owned(),
                frames: vec![frame],
            }],
        })
    }

    fn start(pid: u32) -> Record {
        Record::Start {
            pid,
            program: "/bin/true".to_owned(),
        }
    }

    fn lines(records: &[Record]) -> String {
        records.iter().map(Record::to_line).collect()
    }

    #[test]
    fn ranks_that_do_the_same_are_one_finding() {
        let (mut checked, mut known) = (Checked::default(), BTreeMap::new());
        let again = Record::Count { id: 0, count: 8 };
        checked.add(
            &lines(&[start(1), finding(0, 4), again, Record::End]),
            &mut known,
        );
        checked.add(
            &lines(&[start(2), finding(0, 8), finding(1, 4)]),
            &mut known,
        );
        let all: Vec<_> = checked
            .findings
            .iter()
            .map(|it| (it.found.count, &it.pids[..]))
            .collect();
        assert_eq!(all, [(9, &[1, 2][..]), (1, &[2][..])]);
        let exited: Vec<_> = checked.processes.iter().map(|it| it.exited).collect();
        assert_eq!(exited, [true, false]);
    }

    #[test]
    fn a_line_that_is_cut_off_is_left_out() {
        let (mut checked, mut known) = (Checked::default(), BTreeMap::new());
        let whole = lines(&[start(1), finding(0, 4), finding(1, 5)]);
        checked.add(&whole[..whole.len() - 9], &mut known);
        assert_eq!(checked.findings.len(), 1);
    }
}
