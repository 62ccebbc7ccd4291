//! Programs written for rdma_cm run on hirail, as distributions ship them: two processes on the
//! loopback, by `hirail run`.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take; it is ended then.
const PATIENCE: &str = "60";

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(20);

/// Programs spin while they wait: one pair at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the libraries, which cargo does not do for tests.
fn build_libraries() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_hirail")).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "hirail-ibverbs"]);
        build.args(["-p", "hirail-rdmacm"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "the libraries build");
    });
}

/// A command of `hirail run`; nothing, with the reason printed, where the program is not there.
fn hirail_run(program: &str, arguments: &[&str]) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join(program).exists()) {
        eprintln!("skipped: {program} (Debian package rdmacm-utils) is not installed");
        return None;
    }
    build_libraries();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hirail"));
    command
        .args(["run", "--", "timeout", PATIENCE, program])
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(command)
}

/// A process that is ended with the test.
struct Server(Option<Child>);

impl Server {
    fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    fn finish(mut self) -> Output {
        let child = self.0.take().unwrap();
        child.wait_with_output().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // `timeout` passes that on to the program.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a client as soon as the server listens; what it has printed. It must succeed.
fn client_of(server: &mut Server, mut asking: Command) -> String {
    let start = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(500));
        let output = asking.output().unwrap();
        let [out, err] = [text(&output.stdout), text(&output.stderr)];
        if output.status.success() {
            return out;
        }
        // Who comes too early is refused.
        let is_late = server.has_ended() || start.elapsed() > START;
        assert!(!is_late, "client {}:\n{out}{err}", output.status);
    }
}

/// Runs a server and its client; what both have printed. Both must succeed.
fn pair(server: (&str, &[&str]), client: (&str, &[&str])) -> Option<[String; 2]> {
    let mut serving = hirail_run(server.0, server.1)?;
    let asking = hirail_run(client.0, client.1)?;
    let mut server = Server(Some(serving.spawn().unwrap()));
    let out = client_of(&mut server, asking);
    let served = server.finish();
    let [served_out, served_err] = [text(&served.stdout), text(&served.stderr)];
    assert!(
        served.status.success(),
        "server {}:\n{served_out}{served_err}",
        served.status,
    );
    Some([out, served_out])
}

/// A port of this process's own.
fn port(offset: u32) -> String {
    (20_000 + (std::process::id() * 16 + offset) % 10_000).to_string()
}

#[test]
fn rping_reads_and_writes_what_it_expects() {
    let _alone = alone();
    let port = port(0);
    let common = ["-a", "127.0.0.1", "-p", &port, "-C", "10", "-v", "-V"];
    let server = [&["-s"], &common[..]].concat();
    let client = [&["-c"], &common[..]].concat();
    let Some([out, _]) = pair(("rping", &server), ("rping", &client)) else {
        return;
    };
    assert!(out.contains("rdma-ping-9"), "{out}");
}

#[test]
fn ucmatose_connects_many_at_once() {
    let _alone = alone();
    let port = port(1);
    let common = ["-p", &port, "-c", "8", "-C", "20", "-S", "1000"];
    let client = [&["-s", "127.0.0.1"], &common[..]].concat();
    let Some([out, served]) = pair(("ucmatose", &common), ("ucmatose", &client)) else {
        return;
    };
    for printed in [out, served] {
        assert!(printed.contains("return status 0"), "{printed}");
    }
}

#[test]
fn udaddy_finds_its_peer_by_a_question() {
    let _alone = alone();
    let common = ["-c", "4", "-C", "10"];
    let server = [&["-b", "127.0.0.1"], &common[..]].concat();
    let client = [&["-s", "127.0.0.1"], &common[..]].concat();
    let Some([out, served]) = pair(("udaddy", &server), ("udaddy", &client)) else {
        return;
    };
    for printed in [out, served] {
        assert!(printed.contains("return status 0"), "{printed}");
    }
}

#[test]
fn calls_that_wait_connect_and_talk() {
    let _alone = alone();
    let port = port(2);
    let server = ["-p", &port[..]];
    let client = ["-s", "127.0.0.1", "-p", &port];
    let Some([out, served]) = pair(("rdma_server", &server), ("rdma_client", &client)) else {
        return;
    };
    assert!(out.contains("rdma_client: end 0"), "{out}");
    assert!(served.contains("rdma_server: end 0"), "{served}");
}

#[test]
fn cmtime_connects_and_disconnects() {
    let _alone = alone();
    let port = port(3);
    // Its server serves for ever.
    let serving = hirail_run("cmtime", &["-p", &port]);
    let asking = hirail_run("cmtime", &["-s", "127.0.0.1", "-p", &port, "-c", "8"]);
    let (Some(mut serving), Some(asking)) = (serving, asking) else {
        return;
    };
    let mut server = Server(Some(serving.spawn().unwrap()));
    let out = client_of(&mut server, asking);
    for step in ["connect ", "disconnect ", "destroy "] {
        assert!(out.contains(step), "{out}");
    }
}
