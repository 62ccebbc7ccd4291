//! The program as a child of this process, for options that have something to do while it runs or
//! after it has ended. To the outside it looks as if this process were the program: signals reach it,
//! and its status is this one's.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
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
    child: Child,
    signals: SignalFd,
}

impl Program {
    /// Starts it. Threads of this process are to be started later: signals come to the first.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let mut mask = SigSet::empty();
        mask.extend(PASSED_ON);
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { child, signals })
    }

    /// Waits until it has ended, and passes signals on meanwhile.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
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
                let pid = Pid::from_raw(self.child.id().cast_signed());
                // It cannot be gone: nobody has waited for it yet.
                let _ = kill(pid, signal);
            }
        }
    }
}

/// The program's status as this one's. One that a signal has killed counts as shells count it.
pub(super) fn outcome(status: ExitStatus) -> Outcome {
    let number = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Outcome::Status(u8::try_from(number).unwrap_or(u8::MAX))
}
