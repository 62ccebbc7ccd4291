//! The counters of all processes of this host that use hirail, read from outside.
//!
//! Each device publishes its counters in a memory file that lives as long as its process: no daemon,
//! nothing left behind, and readable while the process is stopped or stuck. Readers find it among
//! the process's descriptors, so they need the right to look at those (same user, or root).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hirail_vocab::{Counter, CounterSnapshot, Counters, LinkKind};
use serde::{Deserialize, Serialize};

use crate::port::sys;

/// What the names of published files begin with, as the kernel shows them.
const PREFIX: &str = "/memfd:hirail-counters";

/// Name of a published file.
const NAME: &str = "hirail-counters";

/// A device of a process, and its counters.
#[derive(Clone, Debug)]
pub struct ProcessCounters {
    /// The process.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// The device's name.
    pub device: String,
    /// What the device runs on, which decides what it can count ([`Counter::counted_on`]).
    /// Unknown where the process is of another version.
    pub link: Option<LinkKind>,
    /// Queue pairs that exist.
    pub qps: u32,
    /// The counters, as of some milliseconds ago.
    pub counters: CounterSnapshot,
}

/// What a published file holds. Names rather than numbers: the reader may be of another version.
#[derive(Serialize, Deserialize)]
struct Published {
    device: String,
    #[serde(default)]
    link: String,
    qps: u32,
    counters: Vec<(String, u64)>,
}

/// A device's published counters.
pub(crate) struct Publisher {
    file: File,
    device: String,
    link: LinkKind,
    /// Bytes of the last one, so that a shorter one leaves no tail.
    len: usize,
}

impl Publisher {
    pub(crate) fn new(device: &str, link: LinkKind) -> io::Result<Self> {
        let file: OwnedFd = sys::memory_file(NAME)?;
        Ok(Self {
            file: File::from(file),
            device: device.to_owned(),
            link,
            len: 0,
        })
    }

    /// Publishes the counters as they are now. Readers may meet a half-written state and try again.
    pub(crate) fn publish(&mut self, counters: &Counters, qps: u32) {
        let snapshot = counters.snapshot();
        let published = Published {
            device: self.device.clone(),
            link: self.link.name().to_owned(),
            qps,
            counters: snapshot
                .non_zero()
                .map(|(c, value)| (c.name().to_owned(), value))
                .collect(),
        };
        let Ok(mut text) = serde_json::to_string(&published) else {
            return;
        };
        let len = text.len();
        while text.len() < self.len {
            text.push(' ');
        }
        self.len = len;
        // Nobody is served by an error here: the next one comes in a moment.
        let _ = self.file.write_all_at(text.as_bytes(), 0);
    }
}

/// All devices of all processes that this one may look at, by process.
///
/// # Errors
/// The processes of this host cannot be listed.
pub fn processes() -> io::Result<Vec<ProcessCounters>> {
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids.into_iter().flat_map(of_process).collect())
}

/// The devices of one process; none where it is gone or not ours to look at.
fn of_process(pid: u32) -> Vec<ProcessCounters> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = descriptors
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    let is_published = |path: &Path| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(PREFIX))
    };
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    paths
        .iter()
        .filter(|path| is_published(path))
        .filter_map(|path| {
            let published = read(path)?;
            let mut counters = CounterSnapshot::ZERO;
            for (name, value) in &published.counters {
                if let Some(counter) = Counter::from_name(name) {
                    counters.set(counter, *value);
                }
            }
            Some(ProcessCounters {
                pid,
                command: command.trim_end().to_owned(),
                device: published.device,
                link: LinkKind::from_name(&published.link),
                qps: published.qps,
                counters,
            })
        })
        .collect()
}

/// Reads one file; a few times where it is just being written.
fn read(path: &Path) -> Option<Published> {
    (0..5).find_map(|_| {
        let mut text = String::new();
        File::open(path).ok()?.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found() {
        let counters = Counters::new();
        counters.add(Counter::OutOfSequence, 7);
        let mut publisher = Publisher::new("hirail_test", LinkKind::Udp).unwrap();
        publisher.publish(&counters, 3);
        counters.add(Counter::OutOfSequence, 1);
        publisher.publish(&counters, 4);
        let all = processes().unwrap();
        let ours = all.iter().find(|it| it.device == "hirail_test").unwrap();
        assert_eq!((ours.pid, ours.qps), (std::process::id(), 4));
        assert_eq!(ours.link, Some(LinkKind::Udp));
        assert_eq!(ours.counters.get(Counter::OutOfSequence), 8);
    }
}
