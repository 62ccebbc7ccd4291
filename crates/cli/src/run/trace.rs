//! `hirail run --trace`: a line per packet while the program runs.
//!
//! The program and its children record their packets as for `--pcap`, in a file that is read while it
//! grows. What has been read is given back to the system, unless the recording is to be kept.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::decode;
use crate::outcome::Error;
use crate::output::Output;

/// How long to wait for more packets.
const PAUSE: Duration = Duration::from_millis(5);

/// So much that was read is given back at a time.
const PORTION: u64 = 1 << 20;

/// Packets on their way from the program to the reader.
pub(super) struct Trace {
    recording: Growing,
    path: PathBuf,
    /// Where the lines go, if not to standard error.
    lines: Option<File>,
}

impl Trace {
    /// Gets ready to show what is recorded in `pcap`, or nowhere else.
    pub(super) fn new(pcap: Option<&Path>, lines: Option<&Path>) -> Result<Self, Error> {
        let open = || -> io::Result<(File, PathBuf)> {
            if let Some(path) = pcap {
                let file = File::options()
                    .create(true)
                    .read(true)
                    .append(true)
                    .open(path)?;
                return Ok((file, path.to_owned()));
            }
            let file = File::from(memfd_create("hirail-trace", MFdFlags::MFD_CLOEXEC)?);
            let number = std::os::fd::AsRawFd::as_raw_fd(&file);
            let path = format!("/proc/{}/fd/{number}", std::process::id());
            Ok((file, path.into()))
        };
        let ready = open().and_then(|(file, path)| {
            share(&file)?;
            Ok((file, path))
        });
        let (file, path) =
            ready.map_err(|error| Error::new(format!("cannot record packets: {error}")))?;
        let lines = lines.map(|path| {
            File::create(path).map_err(|error| {
                Error::new(format!("--trace: cannot make {}: {error}", path.display()))
            })
        });
        Ok(Self {
            recording: Growing {
                file,
                at: 0,
                forgotten: pcap.is_none().then_some(0),
                ended: Arc::default(),
            },
            path,
            lines: lines.transpose()?,
        })
    }

    /// What the program is to record to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to show packets.
    pub(super) fn start(self, json: bool) -> Tracing {
        let ended = self.recording.ended.clone();
        let thread = thread::spawn(move || {
            let mut out = match self.lines {
                Some(file) => Output::file(file, json),
                None => Output::stderr(json),
            };
            decode::live(self.recording, &mut out)
        });
        Tracing { ended, thread }
    }
}

/// The reader at work.
pub(super) struct Tracing {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Tracing {
    /// Shows the rest, once the program has ended. What it left running is waited for.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.ended.store(true, Ordering::Release);
        let result = self.thread.join();
        result.unwrap_or_else(|_| Err(Error::new("the trace has failed")))
    }
}

/// Makes the file one that is being recorded to, so that whoever records appends.
fn share(file: &File) -> io::Result<()> {
    match file.try_lock() {
        // Nobody else records: what is in the file is from an earlier run.
        Ok(()) => file.set_len(0)?,
        // What another run has recorded so far is shown, too: the file has one beginning.
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    file.lock_shared()
}

/// A file that others append to.
struct Growing {
    file: File,
    at: u64,
    /// Up to where it was given back, if that is to be done.
    forgotten: Option<u64>,
    /// The program has.
    ended: Arc<AtomicBool>,
}

impl Growing {
    /// Whether nobody will append any more.
    fn is_complete(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.file.try_lock().is_ok()
    }

    /// Gives back what was read.
    fn forget(&mut self) {
        let Some(forgotten) = self.forgotten else {
            return;
        };
        let len = (self.at - forgotten) / PORTION * PORTION;
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let [offset, length] = [forgotten, len].map(u64::cast_signed);
        if len > 0 && fallocate(&self.file, flags, offset, length).is_ok() {
            self.forgotten = Some(forgotten + len);
        }
    }
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Asked first: what was appended before the end is read.
            let is_complete = self.is_complete();
            let len = self.file.read_at(buffer, self.at)?;
            if len > 0 || is_complete || buffer.is_empty() {
                self.at += len as u64;
                self.forget();
                return Ok(len);
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_is_appended_is_read_to_the_end() {
        let trace = Trace::new(None, None).unwrap();
        let mut writer = File::options().append(true).open(trace.path()).unwrap();
        writer.lock_shared().unwrap();
        let ended = trace.recording.ended.clone();
        let mut growing = trace.recording;
        let reader = thread::spawn(move || {
            let mut total = 0;
            let mut buffer = vec![0; 100_000];
            loop {
                let len = growing.read(&mut buffer).unwrap();
                if len == 0 {
                    let blocks =
                        std::os::unix::fs::MetadataExt::blocks(&growing.file.metadata().unwrap());
                    return (total, blocks);
                }
                assert!(buffer[..len].iter().all(|byte| *byte == 7));
                total += len;
            }
        });
        writer.write_all(&[7; 3_000_000]).unwrap();
        ended.store(true, Ordering::Release);
        thread::sleep(2 * PAUSE);
        writer.write_all(&[7; 10]).unwrap();
        drop(writer);
        let (total, blocks) = reader.join().unwrap();
        assert_eq!(total, 3_000_010);
        assert!(blocks * 512 <= 2 * PORTION, "{blocks}");
    }
}
