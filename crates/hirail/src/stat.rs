//! The counters of all processes of this host that use hirail, read from outside.
//!
//! Each device publishes its counters in a memory file that lives as long as its process: no daemon,
//! nothing left behind, and readable while the process is stopped or stuck. Readers find it among
//! the process's descriptors, so they need the right to look at those (same user, or root).
//!
//! Where `HIRAIL_STAT` names a folder, the file is there instead, and outlives the process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use hirail_vocab::{Counter, CounterSnapshot, Counters, LinkKind};
use serde::{Deserialize, Serialize};

use crate::port::sys;

/// What the kernel puts before the names of memory files.
const MEMORY: &str = "/memfd:";

/// Name of a published file, or what it begins with in a folder.
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
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    command: String,
    device: String,
    #[serde(default)]
    link: String,
    qps: u32,
    counters: Vec<(String, u64)>,
}

/// A device's published counters.
pub(crate) struct Publisher {
    file: File,
    command: String,
    device: String,
    link: LinkKind,
    /// Bytes of the last one, so that a shorter one leaves no tail.
    len: usize,
}

impl Publisher {
    /// Publishes in a memory file, or in one of `folder`.
    pub(crate) fn new(device: &str, link: LinkKind, folder: Option<&Path>) -> io::Result<Self> {
        let file = match folder {
            Some(folder) => new_file(folder)?,
            None => File::from(sys::memory_file(NAME)?),
        };
        Ok(Self {
            file,
            command: command("self"),
            device: device.to_owned(),
            link,
            len: 0,
        })
    }

    /// Publishes the counters as they are now. Readers may meet a half-written state and try again.
    pub(crate) fn publish(&mut self, counters: &Counters, qps: u32) {
        let snapshot = counters.snapshot();
        let published = Published {
            pid: std::process::id(),
            command: self.command.clone(),
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

/// A new file for a device of this process, which may have replaced another program.
fn new_file(folder: &Path) -> io::Result<File> {
    let pid = std::process::id();
    let mut number = 0_u32;
    loop {
        let path = folder.join(format!("{NAME}-{pid}-{number}"));
        match File::options().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened,
        }
    }
}

/// The command of a process; nothing where it is gone.
fn command(process: &str) -> String {
    let command = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    command.trim_end().to_owned()
}

/// What the devices of all processes have counted that published in `folder`, which may have ended.
/// Devices that a process has opened one after the other under the same name count together.
///
/// # Errors
/// The folder cannot be read.
pub fn left_in(folder: &Path) -> io::Result<Vec<ProcessCounters>> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let mut all: Vec<ProcessCounters> = Vec::new();
    for published in names.iter().filter_map(|name| read(&folder.join(name))) {
        let it = published.counters();
        match all
            .iter_mut()
            .find(|other| (other.pid, &other.device) == (it.pid, &it.device))
        {
            Some(other) => {
                other.counters = other.counters.plus(&it.counters);
                other.qps += it.qps;
            }
            None => all.push(it),
        }
    }
    Ok(all)
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
        fs::read_link(path).is_ok_and(|link| {
            let name = link.file_name().unwrap_or_default().to_string_lossy();
            let name = name.strip_prefix(&MEMORY[1..]).unwrap_or(&name);
            name.starts_with(NAME)
        })
    };
    let command = command(&pid.to_string());
    paths
        .iter()
        .filter(|path| is_published(path))
        .filter_map(|path| {
            Some(ProcessCounters {
                pid,
                command: command.clone(),
                ..read(path)?.counters()
            })
        })
        .collect()
}

impl Published {
    fn counters(self) -> ProcessCounters {
        let mut counters = CounterSnapshot::ZERO;
        for (name, value) in &self.counters {
            if let Some(counter) = Counter::from_name(name) {
                counters.set(counter, *value);
            }
        }
        ProcessCounters {
            pid: self.pid,
            command: self.command,
            device: self.device,
            link: LinkKind::from_name(&self.link),
            qps: self.qps,
            counters,
        }
    }
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
        let mut publisher = Publisher::new("hirail_test", LinkKind::Udp, None).unwrap();
        publisher.publish(&counters, 3);
        counters.add(Counter::OutOfSequence, 1);
        publisher.publish(&counters, 4);
        let all = processes().unwrap();
        let ours = all.iter().find(|it| it.device == "hirail_test").unwrap();
        assert_eq!((ours.pid, ours.qps), (std::process::id(), 4));
        assert_eq!(ours.link, Some(LinkKind::Udp));
        assert_eq!(ours.counters.get(Counter::OutOfSequence), 8);
    }

    #[test]
    fn a_folder_keeps_what_was_counted() {
        let folder = std::env::temp_dir().join(format!("hirail-stat-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let counters = Counters::new();
        counters.add(Counter::OutOfSequence, 7);
        for qps in [1, 2] {
            let new = Publisher::new("hirail_folder", LinkKind::Udp, Some(&folder));
            new.unwrap().publish(&counters, qps);
        }
        let mut open = Publisher::new("hirail_open", LinkKind::Udp, Some(&folder)).unwrap();
        open.publish(&counters, 1);
        let left = left_in(&folder).unwrap();
        let found = left.iter().find(|it| it.device == "hirail_folder").unwrap();
        assert_eq!((left.len(), found.pid), (2, std::process::id()));
        assert_eq!(found.counters.get(Counter::OutOfSequence), 14);
        // Whoever lists processes finds it as well.
        let all = processes().unwrap();
        assert!(all.iter().any(|it| it.device == "hirail_open"));
        assert!(all.iter().all(|it| it.device != "hirail_folder"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
