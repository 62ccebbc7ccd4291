//! Running a program once, or twice as server and client.

use std::fmt;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hirail_wire::ethernet::EtherType;
use hirail_wire::frame::Content;
use hirail_wire::pcap::Reader;

use crate::common::Folder;

/// No program takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is run.
pub(crate) struct Case {
    pub(crate) program: &'static str,
    /// What this case is about.
    pub(crate) options: &'static str,
    /// What all cases of the program have besides.
    pub(crate) common: &'static str,
    /// Debian's package.
    pub(crate) package: &'static str,
    /// A recording proves the data: the program does not look at it.
    pub(crate) is_recorded: bool,
}

/// What came of it.
pub(crate) enum Result {
    Passed,
    Skipped(&'static str),
    Failed(String),
}

impl Result {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped(package) => {
                write!(f, "skipped: the Debian package {package} is not installed")
            }
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

/// The version of a package that is installed.
pub(crate) fn version(package: &str) -> Option<String> {
    let query = ["-W", "-f=${Version}", package];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

fn is_installed(program: &str) -> bool {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}

/// One side: a process whose output goes to a file.
struct Side {
    child: Child,
    output: PathBuf,
}

impl Side {
    fn start(case: &Case, folder: &Folder, role: &str, more: &[&str]) -> Self {
        let output = folder.path().join(role);
        let file = File::create(&output).expect("a file for the output");
        let words = case.common.split(' ').chain(case.options.split(' '));
        let mut command = Command::new(case.program);
        command
            .args(words.filter(|word| !word.is_empty()))
            .args(more)
            .env("LD_LIBRARY_PATH", folder.path())
            .stdin(Stdio::null())
            .stderr(file.try_clone().expect("a second descriptor"))
            .stdout(file);
        if case.is_recorded && role == "client" {
            command.env("HIRAIL_PCAP", recording(folder));
        }
        Self {
            child: command.spawn().expect("an installed program starts"),
            output,
        }
    }

    /// Waits for the end; whether it came in time with status 0.
    fn end(&mut self, deadline: Instant) -> std::result::Result<(), String> {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return if status.success() {
                    Ok(())
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

    /// The end of what it said.
    fn tail(&self) -> String {
        let said = fs::read(&self.output).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let start = said.len().saturating_sub(600);
        let start = (start..said.len()).find(|at| said.is_char_boundary(*at));
        said[start.unwrap_or(said.len())..].to_owned()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn recording(folder: &Folder) -> PathBuf {
    folder.path().join("recording.pcapng")
}

/// A TCP port that nobody uses.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Waits until somebody listens at the port. To try it would use up what the server waits for.
fn await_listener(port: u16, server: &mut Side, deadline: Instant) -> bool {
    let listens = |file: &str| {
        let sockets = fs::read_to_string(file).unwrap_or_default();
        sockets.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            let is_listening = words.nth(1) == Some("0A");
            is_listening && local.ends_with(&format!(":{port:04X}"))
        })
    };
    while Instant::now() < deadline {
        if listens("/proc/net/tcp") || listens("/proc/net/tcp6") {
            return true;
        }
        if server.child.try_wait().is_ok_and(|status| status.is_some()) {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Runs a program that talks to nobody; it must say `expected`.
pub(crate) fn single(case: &Case, folder: &Folder, expected: &str) -> Result {
    if !is_installed(case.program) {
        return Result::Skipped(case.package);
    }
    let mut side = Side::start(case, folder, "single", &[]);
    if let Err(reason) = side.end(Instant::now() + PATIENCE) {
        return Result::Failed(reason);
    }
    let said = fs::read_to_string(&side.output).unwrap_or_default();
    if !said.contains(expected) {
        return Result::Failed(format!("it does not say {expected:?}: {said}"));
    }
    Result::Passed
}

/// Runs a server and its client.
pub(crate) fn pair(case: &Case, folder: &Folder) -> Result {
    if !is_installed(case.program) {
        return Result::Skipped(case.package);
    }
    let port = free_port().to_string();
    let deadline = Instant::now() + PATIENCE;
    let mut server = Side::start(case, folder, "server", &["-p", &port]);
    let number = port.parse().expect("a port's number");
    if !await_listener(number, &mut server, deadline) {
        return Result::Failed(format!("the server does not listen: {}", server.tail()));
    }
    let mut client = Side::start(case, folder, "client", &["-p", &port, "127.0.0.1"]);
    let of_client = client.end(deadline);
    let of_server = server.end(deadline);
    if let Err(reason) = of_client {
        return Result::Failed(format!("client {reason}"));
    }
    if let Err(reason) = of_server {
        return Result::Failed(format!("server {reason}"));
    }
    if !case.is_recorded {
        return Result::Passed;
    }
    match packets(&recording(folder)) {
        Ok(0) => Result::Failed("nothing was sent as RoCE".to_owned()),
        Ok(_) => Result::Passed,
        Err(reason) => Result::Failed(reason),
    }
}

/// How many RoCE packets a recording has, all with the right ICRC.
fn packets(recording: &Path) -> std::result::Result<usize, String> {
    let file = File::open(recording).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
    let mut count = 0;
    while let Some(packet) = reader.next_packet().map_err(|error| error.to_string())? {
        // A recording of a UDP port begins with IP.
        let is_v6 = packet.data.first().is_some_and(|first| first >> 4 == 6);
        let ether_type = if is_v6 {
            EtherType::IPV6
        } else {
            EtherType::IPV4
        };
        let content = Content::parse(ether_type, packet.data);
        let content = content.map_err(|error| error.to_string())?;
        if let Content::Roce(roce) = content {
            if !roce.icrc_is_right() {
                return Err(format!("packet {count} has a wrong ICRC"));
            }
            count += 1;
        }
    }
    Ok(count)
}
