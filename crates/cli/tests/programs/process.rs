//! A program that is started by `hirail run`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fmt};

/// No program takes longer, on whatever machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Held while programs run: they spin while they wait, and would starve each other. What they need is
/// built then, so that no deadline counts that.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    hirail();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for what programs write, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("hirail-programs-{test}-{}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a program is where programs are.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
    program.contains('/')
        || folders
            .into_iter()
            .any(|folder| folder.join(program).exists())
}

/// The version of a Debian package that is installed.
pub(crate) fn version(package: &str) -> Option<String> {
    let query = ["-W", "-f=${Version}", package];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// A program, what it is told, and how it is started.
#[derive(Clone)]
pub(crate) struct Program {
    name: OsString,
    arguments: Vec<OsString>,
    of_run: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl Program {
    pub(crate) fn new(name: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            arguments: Vec::new(),
            of_run: Vec::new(),
            variables: Vec::new(),
        }
    }

    /// Arguments as a line: words between blanks.
    pub(crate) fn line(self, line: &str) -> Self {
        self.args(line.split_whitespace())
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item: Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Options of `hirail run` itself.
    pub(crate) fn run_with(mut self, options: impl IntoIterator<Item: Into<OsString>>) -> Self {
        self.of_run.extend(options.into_iter().map(Into::into));
        self
    }

    /// Records its packets.
    pub(crate) fn recorded(self, file: &Path) -> Self {
        self.run_with([OsStr::new("--pcap"), file.as_os_str()])
    }

    #[allow(dead_code, reason = "families that need no variable do not use it")]
    pub(crate) fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Starts it; what it says goes to a file of this name.
    pub(crate) fn start(&self, folder: &Folder, role: &str) -> Process {
        let output = folder.join(role);
        let file = File::create(&output).expect("a file for the output");
        let child = Command::new(hirail())
            .arg("run")
            .args(&self.of_run)
            .arg("--")
            .arg(&self.name)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .stderr(file.try_clone().expect("a second descriptor"))
            .stdout(file)
            // Of its own, so that whatever it starts ends with it.
            .process_group(0)
            .spawn()
            .expect("hirail starts");
        Process { child, output }
    }

    /// Runs it to its end, which must be one of success; what it said.
    pub(crate) fn run(&self, folder: &Folder, role: &str) -> Result<String, String> {
        self.start(folder, role).end(Instant::now() + PATIENCE)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.to_string_lossy())?;
        let mut arguments = self.arguments.iter();
        arguments.try_for_each(|word| write!(f, " {}", word.to_string_lossy()))
    }
}

/// A program that runs. It is ended with the value, and with it what it has started.
pub(crate) struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the end, which must come in time and be one of success; what it said.
    pub(crate) fn end(&mut self, deadline: Instant) -> Result<String, String> {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return if status.success() {
                    Ok(self.said())
                } else {
                    Err(format!("{status}: {}", self.tail()))
                };
            }
            if Instant::now() > deadline {
                return Err(format!("it did not end: {}", self.tail()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        let said = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The end of it.
    pub(crate) fn tail(&self) -> String {
        let said = self.said();
        let start = said.len().saturating_sub(600);
        let start = (start..said.len()).find(|at| said.is_char_boundary(*at));
        said[start.unwrap_or(said.len())..].to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        let _ = self.child.wait();
    }
}

/// The command, with the libraries beside it built: cargo does that for no test.
pub(crate) fn hirail() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_hirail"));
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "hirail-ibverbs"]);
        build.args(["-p", "hirail-rdmacm", "-p", "hirail-view"]);
        build.args(["-p", "hirail-rspreload"]);
        if program.parent().unwrap().ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "the libraries build");
        program.to_owned()
    })
}
