//! `hirail run --stat`: what the devices of the program and its children have counted.
//!
//! Each device leaves its counters in a folder, where they outlive the process.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hirail::stat::{ProcessCounters, left_in};
use serde_json::json;

use crate::outcome::Error;
use crate::output::Output;
use crate::stat::{print_in_full, since, to_json};

/// A folder for counters; removed when dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("hirail-stat-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            let path = path.display();
            Error::new(format!("--stat: cannot make the folder {path}: {error}"))
        })?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Begins to show every so often what was added, if asked to.
    pub(super) fn start(self, every: Option<Duration>, json: bool) -> Counting {
        let (ended, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut out = Output::stderr(json);
            let start = Instant::now();
            let (mut before, mut shown) = (Vec::new(), start);
            while let Some(every) = every
                && end.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
            {
                let now = read(&self.0)?;
                let added: Vec<_> = now.iter().map(|it| since(it, &before)).collect();
                show(&added, start.elapsed(), shown.elapsed(), &mut out)?;
                (before, shown) = (now, Instant::now());
            }
            if every.is_none() {
                let _ = end.recv();
            }
            show(&read(&self.0)?, start.elapsed(), start.elapsed(), &mut out)
        });
        Counting { ended, thread }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The reader of counters at work.
pub(super) struct Counting {
    ended: Sender<()>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Counting {
    /// Shows the sums, once the program has ended.
    pub(super) fn finish(self) -> Result<(), Error> {
        drop(self.ended);
        let result = self.thread.join();
        result.unwrap_or_else(|_| Err(Error::new("reading the counters has failed")))
    }
}

fn read(folder: &Path) -> Result<Vec<ProcessCounters>, Error> {
    left_in(folder).map_err(|error| Error::new(format!("cannot read the counters: {error}")))
}

/// Shows the counters that moved, `after` so much of the run, and how fast `within` a time.
fn show(
    all: &[ProcessCounters],
    after: Duration,
    within: Duration,
    out: &mut Output,
) -> Result<(), Error> {
    if out.is_json() {
        let devices: Vec<_> = all.iter().map(to_json).collect();
        let [after, within] = [after, within].map(|time| time.as_secs_f64());
        out.json(&json!({ "after_s": after, "within_s": within, "devices": devices }))?;
        return out.flush();
    }
    let moved = |it: &&ProcessCounters| it.counters.non_zero().next().is_some();
    let moved: Vec<_> = all.iter().filter(moved).collect();
    writeln!(
        out,
        "hirail: counters after {:.3} s{}",
        after.as_secs_f64(),
        match moved.len() {
            0 => ": none has moved",
            _ => "",
        }
    )?;
    for it in moved {
        print_in_full(it, Some(within), out)?;
    }
    out.flush()
}
