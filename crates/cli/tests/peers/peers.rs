//! The two ends: programs on hirail in the network of the guest, and programs in the guest.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::cases::{Case, Family, Kind};
use crate::lab::{self, Lab};
use crate::process::{Folder, hirail};

/// The lab's own name for what runs here.
const NAME: &str = "hirail-peers";

/// No program takes longer. The guest's processor may be an emulated one.
const SECONDS: u32 = 100;

/// A classic BPF program for packets to the guest, as `tc` takes it: draws a number, and drops the
/// packet (TC_ACT_SHOT, 2) where it is not above `limit`. Hosts without a qdisc that loses packets
/// have this.
fn drops_up_to(limit: u32) -> String {
    format!("4,32 0 0 4294963256,37 1 0 {limit},6 0 0 2,6 0 0 0")
}

/// Who runs a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hirail,
    Kernel,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Kernel, Self::Hirail];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Hirail => Self::Kernel,
            Self::Kernel => Self::Hirail,
        }
    }

    pub(crate) const fn device(self) -> &'static str {
        match self {
            Self::Hirail => "hirail0",
            Self::Kernel => "rxe0",
        }
    }

    /// The index of the GID. The kernel has the link-local one first.
    pub(crate) const fn gid(self, family: Family) -> u8 {
        match (self, family) {
            (Self::Hirail, Family::V4) => 0,
            (Self::Hirail, Family::V6) | (Self::Kernel, Family::V4) => 1,
            (Self::Kernel, Family::V6) => 2,
        }
    }

    pub(crate) const fn address(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Hirail, Family::V4) => "10.77.0.1",
            (Self::Hirail, Family::V6) => "fd77::1",
            (Self::Kernel, Family::V4) => "10.77.0.11",
            (Self::Kernel, Family::V6) => "fd77::11",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hirail => "hirail",
            Self::Kernel => "the kernel",
        })
    }
}

/// Both, joined.
pub(crate) struct Peers {
    pub(crate) lab: Lab,
    folder: Folder,
}

impl Peers {
    pub(crate) fn up(options: &[&str]) -> Result<Self, String> {
        // The libraries are built before anything waits for them.
        let lab = Lab::up(NAME, options)?;
        hirail();
        let folder = Folder::new("peers");
        fs::create_dir_all(folder.join("counters")).expect("a folder");
        Ok(Self { lab, folder })
    }

    /// Where devices on hirail leave their counters.
    pub(crate) fn counters(&self) -> PathBuf {
        self.folder.join("counters")
    }

    fn command(&self, side: Side, words: &[String]) -> Command {
        match side {
            Side::Kernel => {
                let mut command = self.lab.guest(SECONDS);
                command.args(words);
                command
            }
            Side::Hirail => {
                let mut command = self.lab.host(hirail());
                let seconds = SECONDS.to_string();
                command
                    .args(["run", "--", "timeout", &seconds])
                    .args(words)
                    .env("HIRAIL_STAT", self.counters())
                    .env_remove("LD_LIBRARY_PATH");
                command
            }
        }
    }

    fn start(&self, side: Side, words: &[String], role: &str) -> Program {
        let output = self.folder.join(role);
        let file = File::create(&output).expect("a file for the output");
        let mut command = self.command(side, words);
        command
            .stderr(file.try_clone().expect("a second descriptor"))
            .stdout(file)
            // Of its own, so that whatever it starts ends with it.
            .process_group(0);
        Program {
            child: command.spawn().expect("the lab's program runs"),
            output,
        }
    }

    /// Runs a case with its server on `server`; both must end well.
    pub(crate) fn run(&self, case: &Case, server: Side) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(u64::from(SECONDS) + 20);
        let mut serving = self.start(server, &case.words(server, true), "server");
        self.await_listener(case, server, &mut serving, deadline)?;
        let client = server.other();
        let mut asking = self.start(client, &case.words(client, false), "client");
        let of_client = asking.end(deadline);
        let said = of_client
            .map_err(|reason| format!("client {reason}\nits server: {}", serving.tail()))?;
        let of_server = serving.end(deadline);
        of_server.map_err(|reason| format!("server {reason}\nits client: {said}"))?;
        if said.contains(case.says()) {
            Ok(())
        } else {
            Err(format!("the client does not say {:?}: {said}", case.says()))
        }
    }

    /// Waits until the server of a case can be asked.
    fn await_listener(
        &self,
        case: &Case,
        side: Side,
        server: &mut Program,
        deadline: Instant,
    ) -> Result<(), String> {
        let (port, is_service) = case.port();
        if side == Side::Kernel {
            let wait = if is_service { "waitcm" } else { "waitport" };
            let mut command = self.lab.guest(SECONDS);
            let output = command.args([wait, &port.to_string()]).output();
            if !output.expect("the lab's program runs").status.success() {
                return Err(format!("the server does not listen: {}", server.tail()));
            }
            if is_service {
                // It is listed a moment before it is there.
                thread::sleep(Duration::from_secs(1));
            }
            return Ok(());
        }
        let files = ["/proc/net/tcp", "/proc/net/tcp6", "/proc/net/unix"];
        // A socket of TCP that listens, or one that names the service id, as hirail binds it.
        let (tcp, service) = (format!(":{port:04X} "), format!("{port:04x}/"));
        let is_there = |line: &str| {
            if is_service {
                let name = line.split_once("/service/");
                name.is_some_and(|(_, name)| name.get(12..17) == Some(&service))
            } else {
                line.contains(&tcp) && line.contains(" 0A ")
            }
        };
        loop {
            let sockets = lab::run(self.lab.host("cat").args(files));
            if sockets.lines().any(is_there) {
                return Ok(());
            }
            if server.has_ended() || Instant::now() > deadline {
                return Err(format!("the server does not listen: {}", server.tail()));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Connects from `side` where nobody listens, while somebody else does elsewhere: an end without
    /// any process is no RoCE device.
    pub(crate) fn is_refused(&self, side: Side) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(u64::from(SECONDS));
        let there = Case::new(Kind::Cmatose, "ucmatose", "-c 1");
        let mut other = self.start(side.other(), &there.words(side.other(), true), "server");
        self.await_listener(&there, side.other(), &mut other, deadline)?;
        let address = side.other().address(Family::V4);
        let line = format!("ucmatose -s {address} -p 7999 -c 1");
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let mut asking = self.start(side, &words, "client");
        let said = match asking.end(deadline) {
            Ok(said) => return Err(format!("it was accepted: {said}")),
            Err(said) => said,
        };
        // Invalid service id (IBTA volume 1, section 12.6.7.2).
        if said.contains("RDMA_CM_EVENT_REJECTED, error: 8") {
            Ok(())
        } else {
            Err(said)
        }
    }

    /// From now on one packet of so many is lost, in either direction.
    pub(crate) fn lose_one_of(&self, packets: u32) {
        let percentage = format!("{:.2}%", 100.0 / f64::from(packets));
        let netem = ["qdisc", "add", "dev", "eth0", "root", "netem", "loss"];
        let mut from_guest = self.lab.guest(SECONDS);
        lab::run(from_guest.arg("tc").args(netem).arg(percentage));
        let drops = drops_up_to(u32::MAX / packets);
        lab::run(
            self.lab
                .host("tc")
                .args(["qdisc", "add", "dev", "tap1", "clsact"]),
        );
        let filter = ["filter", "add", "dev", "tap1", "egress", "bpf", "da"];
        lab::run(self.lab.host("tc").args(filter).args(["bytecode", &drops]));
    }

    pub(crate) fn kernel_log(&self) -> String {
        lab::run(self.lab.guest(SECONDS).arg("dmesg"))
    }

    /// Records the frames between the two.
    pub(crate) fn capture(&self) -> Capture<'_> {
        let file = self.folder.join("frames.pcap");
        let mut start = self.lab.command();
        let filter = ["--filter", "udp port 4791"];
        lab::run(start.args(["pcap", "start"]).arg(&file).args(filter));
        Capture { peers: self, file }
    }
}

/// A recording under way.
pub(crate) struct Capture<'a> {
    peers: &'a Peers,
    file: PathBuf,
}

impl Capture<'_> {
    pub(crate) fn stop(self) -> PathBuf {
        lab::run(self.peers.lab.command().args(["pcap", "stop"]));
        self.file
    }
}

/// A program that runs. It is ended with the value, and with it what it has started.
struct Program {
    child: Child,
    output: PathBuf,
}

impl Program {
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the end, which must come in time and be one of success; what it said.
    fn end(&mut self, deadline: Instant) -> Result<String, String> {
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return if status.success() {
                    Ok(said(&self.output))
                } else {
                    Err(format!("{status}: {}", self.tail()))
                };
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("it did not end: {}", self.tail()))
    }

    /// The end of what it has said so far.
    fn tail(&self) -> String {
        let said = said(&self.output);
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(24)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.has_ended() {
            // The lab's program then ends what runs in the guest.
            let group = format!("-{}", self.child.id());
            let kill = |signal| {
                let _ = Command::new("kill").args([signal, "--", &group]).output();
            };
            kill("-TERM");
            let limit = Instant::now() + Duration::from_secs(5);
            while !self.has_ended() && Instant::now() < limit {
                thread::sleep(Duration::from_millis(10));
            }
            kill("-KILL");
        }
        let _ = self.child.wait();
    }
}

fn said(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned()
}
