//! A guest with the kernel's soft-RoCE (rxe), joined with this host in a network namespace.
//!
//! rxe needs a kernel of its own, so this works only where a folder holds a program `lab` that boots
//! one (`docs/testing.md` says what it must offer).

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the folder.
const VARIABLE: &str = "HIRAIL_TEST_LAB";

/// Where it is looked for otherwise: beside the workspace.
const BESIDE: &str = "../shared/lab/rxe-vm";

/// Names what runs, so that others are not disturbed.
const NAME: &str = "RXE_LAB_NAME";

/// A running guest; stopped when dropped.
pub(crate) struct Lab {
    folder: PathBuf,
    name: &'static str,
    is_up: bool,
}

impl Lab {
    /// Boots a guest. Says why not where there is no lab, or where one that was not asked for does
    /// not start: it may need packages that this machine cannot fetch.
    ///
    /// # Panics
    /// The lab that `HIRAIL_TEST_LAB` names does not start.
    pub(crate) fn up(name: &'static str, options: &[&str]) -> Result<Self, String> {
        let asked_for = env::var_os(VARIABLE).map(PathBuf::from);
        let is_asked_for = asked_for.is_some();
        let folder = asked_for.unwrap_or_else(|| {
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            workspace.join(BESIDE)
        });
        let program = folder.join("lab");
        if !program.is_file() && is_asked_for {
            return Err(format!("there is no {}", program.display()));
        }
        if !program.is_file() {
            return Err(format!("{VARIABLE} is not set"));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let is_missing =
            |tool: &&str| !env::split_paths(&path).any(|folder| folder.join(tool).is_file());
        let tools = ["qemu-system-x86_64", "ip", "tcpdump"];
        if let Some(missing) = tools.iter().find(|tool| is_missing(tool)) {
            return Err(format!("{missing} is not installed"));
        }
        let mut lab = Self {
            folder: folder.canonicalize().unwrap_or(folder),
            name,
            is_up: false,
        };
        let up = lab
            .command()
            .args(["up", "--guests", "1"])
            .args(options)
            .output();
        let up = up.expect("the lab's program runs");
        let said = String::from_utf8_lossy(&up.stderr);
        assert!(up.status.success() || !is_asked_for, "the lab: {said}");
        lab.is_up = up.status.success();
        if lab.is_up {
            Ok(lab)
        } else {
            Err(format!("the lab does not start: {said}"))
        }
    }

    /// The one that another process of this test has started.
    #[allow(dead_code, reason = "not every test starts itself again inside")]
    pub(crate) fn joined(name: &'static str) -> Self {
        let folder = env::var_os(VARIABLE).expect("set by who has started this process");
        Self {
            folder: folder.into(),
            name,
            is_up: false,
        }
    }

    /// The lab's program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.folder.join("lab"));
        command
            .env(NAME, self.name)
            .env(VARIABLE, &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// A command of this machine, in the network of the guest.
    pub(crate) fn host(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command();
        command.args(["host", "--"]).arg(program);
        command
    }

    /// A command in the guest, ended after so many seconds.
    pub(crate) fn guest(&self, seconds: u32) -> Command {
        let mut command = self.command();
        let seconds = seconds.to_string();
        command.args(["exec", "guest1", "--timeout", &seconds, "--"]);
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_up {
            let _ = self.command().arg("down").output();
        }
    }
}

/// Runs a command that must succeed; what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the lab's program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{error}");
    text
}
