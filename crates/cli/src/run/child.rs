//! The program as a child of this process, for options that have something to do while it runs or
//! after it has ended. To the outside it looks as if this process were the program: signals reach it,
//! and its status is this one's.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::outcome::Outcome;

/// Signals that are meant for the program.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// A program that runs.
pub(super) struct Program {
    pid: Pid,
    signals: SignalFd,
}

impl Program {
    /// Starts it. Threads of this process are to be started later: signals come to the first.
    pub(super) fn start(command: &Command) -> io::Result<Self> {
        let before = SigSet::thread_get_mask()?;
        let mut mask = SigSet::empty();
        mask.extend(PASSED_ON);
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)?;
        let pid = match spawn(command, &before) {
            Ok(pid) => pid,
            Err(error) => {
                before.thread_set_mask()?;
                return Err(error);
            }
        };
        Ok(Self { pid, signals })
    }

    /// Waits until it has ended, and passes signals on meanwhile.
    pub(super) fn wait(&self) -> io::Result<Outcome> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, status) => return Ok(outcome(status)),
                // As shells count it.
                WaitStatus::Signaled(_, signal, _) => return Ok(outcome(128 + signal as i32)),
                _ => {}
            }
            let Some(signal) = self.signals.read_signal()? else {
                continue;
            };
            // What the kernel sends, as for a key of the terminal, it sends to the program too.
            let is_sent_by_somebody = signal.ssi_code <= 0;
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if let Ok(signal) = Signal::try_from(number)
                && is_sent_by_somebody
                && PASSED_ON.contains(&signal)
            {
                // It cannot be gone: nobody has waited for it yet.
                let _ = kill(self.pid, signal);
            }
        }
    }
}

fn outcome(status: i32) -> Outcome {
    Outcome::Status(u8::try_from(status).unwrap_or(u8::MAX))
}

/// Starts the program with a mask of signals that is not this thread's, which
/// [`Command::spawn`](std::process::Command::spawn) cannot. It gets SIGPIPE as any program does.
fn spawn(command: &Command, mask: &SigSet) -> io::Result<Pid> {
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => variables.insert(name.to_owned(), value.to_owned()),
            None => variables.remove(name),
        };
    }
    let variables = variables.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        c_string(&name)
    });
    let variables = variables.collect::<io::Result<Vec<_>>>()?;
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words = words.map(c_string).collect::<io::Result<Vec<_>>>()?;
    let mut attributes = PosixSpawnAttr::init()?;
    let mut pipe = SigSet::empty();
    pipe.add(Signal::SIGPIPE);
    attributes.set_sigdefault(&pipe)?;
    attributes.set_sigmask(mask)?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    let actions = PosixSpawnFileActions::init()?;
    let pid = posix_spawnp(&words[0], &actions, &attributes, &words, &variables)?;
    Ok(pid)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.to_owned().into_vec())?)
}
