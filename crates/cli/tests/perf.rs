//! `hirail perf` run for real, with counts so small that only the shape of the results and their
//! sanity can be judged, never their size.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn hirail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hirail"));
    command.stdin(Stdio::null());
    command
}

/// Runs it and returns its JSON.
fn perf(args: &[&str]) -> Value {
    let output = hirail()
        .arg("perf")
        .args(args)
        .arg("--json")
        .output()
        .expect("hirail runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// The figures of one transport in a row.
fn of<'a>(row: &'a Value, transport: &str) -> &'a Value {
    let transports = row["transports"].as_array().expect("an array");
    let found = transports
        .iter()
        .find(|figures| figures["transport"] == transport);
    found.unwrap_or_else(|| panic!("{transport} is missing: {row}"))
}

fn positive(value: &Value) -> bool {
    value
        .as_f64()
        .is_some_and(|value| value > 0.0 && value.is_finite())
}

#[test]
fn every_test_beside_its_baselines() {
    for (test, unit) in [
        ("write-bw", "Gb/s"),
        ("write-lat", "us"),
        ("send-bw", "Gb/s"),
        ("send-lat", "us"),
        ("read-bw", "Gb/s"),
        ("read-lat", "us"),
        ("atomic-lat", "us"),
    ] {
        let json = perf(&[test, "--count", "40"]);
        let [row] = &json.as_array().expect("an array")[..] else {
            panic!("{test}: {json}")
        };
        assert_eq!(
            (&row["test"], &row["unit"]),
            (&test.into(), &unit.into()),
            "{test}"
        );
        assert_eq!(row["qp_type"], "rc", "{test}");
        assert!(row["bytes"].is_u64(), "{test}");
        for key in ["value", "vs_tcp", "vs_udp"] {
            let value = row
                .get(key)
                .unwrap_or_else(|| panic!("{test} has no {key}"));
            assert!(positive(value), "{test} {key}: {value}");
        }
        for transport in ["rdma", "tcp", "udp"] {
            let figures = of(row, transport);
            assert!(positive(&figures["value"]), "{test} {transport}: {figures}");
            let latency = &figures["latency_us"];
            if unit == "us" {
                let at = |percentile: &str| latency[percentile].as_f64().expect("a number");
                assert!(
                    0.0 < at("min") && at("min") <= at("p50"),
                    "{test}: {latency}"
                );
                assert!(
                    at("p50") <= at("p99") && at("p99") <= at("max"),
                    "{test}: {latency}"
                );
                assert_eq!(figures["value"], latency["p50"], "{test}");
            } else {
                assert!(latency.is_null(), "{test}");
                assert!(positive(&figures["mmsg_per_second"]), "{test} {transport}");
                assert!(
                    figures["client_cpu_seconds_per_gb"].is_f64(),
                    "{test} {transport}"
                );
                assert!(
                    figures["server_cpu_seconds_per_gb"].is_f64(),
                    "{test} {transport}"
                );
            }
        }
    }
}

#[test]
fn several_queue_pairs_both_ways() {
    for test in ["write-bw", "read-bw"] {
        let json = perf(&[
            test,
            "--qps",
            "3",
            "--bidirectional",
            "--count",
            "30",
            "--size",
            "5000",
        ]);
        let row = &json[0];
        assert_eq!(
            (&row["qps"], &row["bidirectional"]),
            (&3.into(), &true.into())
        );
        for transport in ["rdma", "tcp", "udp"] {
            assert!(positive(&of(row, transport)["value"]), "{test} {transport}");
        }
    }
}

/// The second address of the loopback device is that of IPv6.
#[test]
fn over_ipv6() {
    for (test, device) in [
        ("write-bw", &["--device", "hirail_lo"][..]),
        ("send-lat", &[]),
    ] {
        let json = perf(&[&[test, "--gid-index", "1", "--count", "40"], device].concat());
        assert_eq!(json[0]["address"], "::1");
        for key in ["value", "vs_tcp", "vs_udp"] {
            assert!(positive(&json[0][key]), "{test} {key}: {json}");
        }
    }
}

#[test]
fn unreliable_transports() {
    for (test, qp_type, bytes) in [
        ("write-bw", "uc", 65536),
        ("write-lat", "uc", 8),
        ("send-bw", "uc", 65536),
        ("send-lat", "uc", 8),
        ("send-bw", "ud", 1024),
        ("send-lat", "ud", 8),
    ] {
        let json = perf(&[
            test,
            "--qp-type",
            qp_type,
            "--count",
            "40",
            "--no-baselines",
        ]);
        let row = &json[0];
        assert_eq!(
            (&row["qp_type"], &row["bytes"]),
            (&qp_type.into(), &bytes.into())
        );
        assert!(positive(&row["value"]), "{test} {qp_type}: {row}");
        assert!(row["vs_tcp"].is_null() && row["vs_udp"].is_null(), "{row}");
    }
}

/// Sizes around the edges of segments, sends and buffers.
#[test]
fn odd_sizes() {
    for size in ["1", "7", "4095", "4097", "61441", "1048577", "3000000"] {
        let json = perf(&["write-bw", "--size", size, "--count", "7"]);
        for transport in ["rdma", "tcp", "udp"] {
            assert!(
                positive(&of(&json[0], transport)["value"]),
                "{size} {transport}"
            );
        }
    }
    for size in ["1", "4097", "60000"] {
        let json = perf(&["send-lat", "--size", size, "--count", "7"]);
        for transport in ["rdma", "tcp", "udp"] {
            assert!(
                positive(&of(&json[0], transport)["value"]),
                "{size} {transport}"
            );
        }
    }
}

#[test]
fn all_sizes() {
    let json = perf(&["write-bw", "--all", "--count", "3"]);
    let sizes: Vec<u64> = json
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|row| row["bytes"].as_u64())
        .collect();
    assert_eq!(
        sizes,
        (1..=23).map(|power| 1 << power).collect::<Vec<u64>>()
    );
}

#[test]
fn tables_say_what_they_show() {
    let output = hirail()
        .args(["perf", "send-lat", "--count", "10"])
        .output()
        .expect("hirail runs");
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].contains("p50") && lines[0].contains("RDMA is"),
        "{said}"
    );
    assert!(lines.iter().any(|line| line.contains(" TCP ")), "{said}");
    let [.., meaning, place] = &lines[..] else {
        panic!("{said}")
    };
    assert!(
        meaning.starts_with("RC SEND 8 B, half round trip: ") && meaning.ends_with('.'),
        "{said}"
    );
    assert_eq!(
        *place,
        "RDMA ran over hirail_lo (interface lo, 127.0.0.1, link udp), path MTU 4096, to the second \
         process on this machine."
    );
}

#[test]
fn the_important_figures() {
    let json = perf(&["--duration", "0.05"]);
    let rows = json.as_array().expect("an array");
    let tests: Vec<_> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    assert_eq!(
        tests,
        [
            "write-bw",
            "write-bw",
            "read-bw",
            "write-bw",
            "send-lat",
            "write-lat",
            "atomic-lat"
        ]
    );
    for row in rows {
        for key in ["value", "vs_tcp", "vs_udp"] {
            assert!(positive(&row[key]), "{key}: {row}");
        }
    }
}

#[test]
fn all_reduce_is_correct() {
    // Parts of unequal length, and vectors larger than what is in flight.
    for (ranks, size) in [("2", "8"), ("3", "1204"), ("4", "4M"), ("5", "100004")] {
        let json = perf(&[
            "allreduce",
            "-n",
            ranks,
            "--size",
            size,
            "--duration",
            "0.05",
        ]);
        for row in json.as_array().expect("an array") {
            assert_eq!(row["correct"], true, "{row}");
            assert!(positive(&row["algbw"]) && positive(&row["busbw"]), "{row}");
            let n: f64 = ranks.parse().expect("a number");
            let ratio = row["busbw"].as_f64().unwrap_or(0.0) / row["algbw"].as_f64().unwrap_or(1.0);
            assert!((ratio - 2.0 * (n - 1.0) / n).abs() < 1e-9, "{row}");
        }
    }
}

/// A server process that is ended with the test, its port, and what it says.
struct Server(Child, String, mpsc::Receiver<String>);

impl Server {
    fn start() -> Self {
        Self::spawn(hirail().args(["perf", "--server", "--port", "0"]))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("the server says its port");
        let port = line
            .split("TCP port ")
            .nth(1)
            .and_then(|rest| rest.split(';').next());
        let port = port.unwrap_or_else(|| panic!("{line}")).to_owned();
        let (sender, lines) = mpsc::channel();
        // Keeps reading, so that the server never waits for a reader.
        thread::spawn(move || {
            let lines = said.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self(child, port, lines)
    }

    /// The next line that it says.
    fn says(&self) -> String {
        let line = self.2.recv_timeout(Duration::from_secs(60));
        line.expect("the server says something")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn client_and_server() {
    let server = Server::start();
    for address in ["127.0.0.1", "localhost"] {
        for test in ["write-bw", "read-lat"] {
            let json = perf(&[test, address, "--port", &server.1, "--count", "20"]);
            for key in ["value", "vs_tcp", "vs_udp"] {
                assert!(positive(&json[0][key]), "{address} {key}: {json}");
            }
        }
    }
}

/// A server that is killed in the middle of a run is said to be gone, at once and in one sentence.
#[test]
fn a_server_that_is_gone() {
    for (test, baselines) in [
        (&["write-bw"][..], &["--no-baselines"][..]),
        (&["write-lat"], &["--no-baselines"]),
        (&["send-bw", "--qp-type", "ud"], &["--no-baselines"]),
        (&["write-bw"], &[]),
    ] {
        let server = Server::start();
        let client = hirail()
            .arg("perf")
            .args(test)
            .args(["127.0.0.1", "--port", &server.1, "--duration", "60"])
            .args(baselines)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("hirail runs");
        assert!(server.says().ends_with(" connected"));
        thread::sleep(Duration::from_millis(300));
        let expected = format!(
            "hirail: the server at 127.0.0.1:{} has gone away: it was ended, or it crashed\n",
            server.1
        );
        drop(server);
        let output = client.wait_with_output().expect("it ran");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, expected, "{test:?}");
        assert_eq!(output.status.code(), Some(2), "{test:?}");
    }
}

/// A client that is killed in the middle of a run has not come to its end.
#[test]
fn a_client_that_is_gone() {
    let server = Server::start();
    let mut client = hirail()
        .args(["perf", "write-bw", "127.0.0.1", "--port", &server.1])
        .args(["--duration", "60", "--no-baselines"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("hirail runs");
    assert!(server.says().ends_with(" connected"));
    thread::sleep(Duration::from_millis(500));
    client.kill().expect("it runs");
    client.wait().expect("it ends");
    let said = server.says();
    assert!(said.contains("the client has gone away"), "{said}");
}

/// A server that takes IPv4 and IPv6 names IPv4 clients as such.
#[test]
fn clients_are_named_as_people_know_them() {
    let server = Server::start();
    let port: u16 = server.1.parse().expect("a number");
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let address = client.local_addr().expect("an address");
    assert_eq!(server.says(), format!("hirail perf: {address} connected"));
}

/// Links that do not reach each other are refused before anything is opened.
#[test]
fn links_that_do_not_meet() {
    let server = Server::start();
    for link in ["raw", "raw-v1"] {
        let output = hirail()
            .args(["perf", "write-bw", "127.0.0.1", "--port", &server.1])
            .args(["--count", "5", "--link", link])
            .output()
            .expect("hirail runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected = format!(
            "runs with --link udp and this end with --link {link}, which do not reach each other"
        );
        assert!(
            said.contains(&expected) && said.lines().count() == 1,
            "{said}"
        );
    }
}

/// A device whose interface has no address is named with it.
#[test]
fn a_device_without_address() {
    let exe = env!("CARGO_BIN_EXE_hirail");
    // The loopback of a new network namespace has none.
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--", exe])
        .args(["perf", "write-bw", "--device", "hirail_lo", "--count", "5"])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return println!("skipped: there is no program `unshare`");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare: ") {
        return println!("skipped: {said}");
    }
    let expected = "the device hirail_lo cannot be reached: its interface lo has no address";
    assert!(said.contains(expected), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// Two hosts with an interface of their own each, gone with the test.
struct TwoHosts {
    names: [String; 2],
}

impl TwoHosts {
    /// `Err` says why there are none.
    fn new(test: &str) -> Result<Self, String> {
        let id = std::process::id();
        let hosts = Self {
            names: ["a", "b"].map(|host| format!("hirail-{test}-{host}-{id}")),
        };
        let [a, b] = &hosts.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!(
            "link add hr0 netns {a} type veth peer name hr0 netns {b}"
        ))?;
        for (number, name) in hosts.names.iter().enumerate() {
            ip(&format!(
                "-n {name} addr add 198.51.100.{}/24 dev hr0",
                number + 1
            ))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set hr0 up"))?;
        }
        Ok(hosts)
    }

    /// `hirail perf` on one of them.
    fn perf(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.names[host],
            env!("CARGO_BIN_EXE_hirail"),
            "perf",
        ]);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            // What was never made cannot be removed, and that is fine.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.map_err(|error| format!("there is no 'ip': {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "'ip {args}' fails: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

#[test]
fn between_two_hosts() {
    let hosts = match TwoHosts::new("perf") {
        Ok(hosts) => hosts,
        Err(why) => return println!("skipped: tests between two hosts, because {why}"),
    };
    let mut server = hosts.perf(0);
    let server = Server::spawn(server.args(["--server", "--port", "0"]));
    for (test, size) in [
        ("write-bw", "100000"),
        ("read-bw", "5000"),
        ("send-lat", "8"),
    ] {
        let mut client = hosts.perf(1);
        client.args([
            test,
            "198.51.100.1",
            "--port",
            &server.1,
            "--size",
            size,
            "--json",
        ]);
        let output = client
            .args(["--count", "50"])
            .output()
            .expect("hirail runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{test}: {said}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json[0]["mtu"], 1024, "an Ethernet of 1500 bytes: {json}");
        for key in ["value", "vs_tcp", "vs_udp"] {
            assert!(positive(&json[0][key]), "{test} {key}: {json}");
        }
    }
}

/// The raw link, with both versions of RoCE, and against the UDP link where that speaks the same.
#[test]
fn over_raw_ethernet() {
    let hosts = match TwoHosts::new("raw") {
        Ok(hosts) => hosts,
        Err(why) => return println!("skipped: tests between two hosts, because {why}"),
    };
    for (theirs, ours) in [("raw", "raw"), ("raw-v1", "raw-v1"), ("udp", "raw")] {
        let mut server = hosts.perf(0);
        let server = Server::spawn(server.args(["--server", "--port", "0", "--link", theirs]));
        let mut client = hosts.perf(1);
        client.args(["write-bw", "198.51.100.1", "--link", ours, "--json"]);
        client.args(["--port", &server.1, "--size", "100000", "--count", "50"]);
        let output = client.arg("--no-baselines").output().expect("hirail runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{theirs}, {ours}: {said}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(positive(&json[0]["value"]), "{theirs}, {ours}: {json}");
    }
}

/// What goes out of a raw port does not come back to its machine, which is said before it is tried.
#[test]
fn raw_ethernet_to_the_machine_itself() {
    let hosts = match TwoHosts::new("back") {
        Ok(hosts) => hosts,
        Err(why) => return println!("skipped: tests between two hosts, because {why}"),
    };
    let mut command = hosts.perf(0);
    let output = command
        .args(["write-lat", "--device", "hirail0"])
        .args(["--link", "raw", "--count", "5"])
        .output()
        .expect("hirail runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "raw Ethernet frames to 198.51.100.1 itself do not come back";
    assert!(
        said.contains(expected) && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// Without the capability the raw link is refused with what it needs.
#[test]
fn raw_ethernet_without_the_capability() {
    let exe = env!("CARGO_BIN_EXE_hirail");
    let output = Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--", exe])
        .args(["perf", "write-lat", "--link", "raw", "--count", "10"])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return println!("skipped: there is no program `setpriv`");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv: ") {
        return println!("skipped: {said}");
    }
    let expected = "raw Ethernet on lo needs the capability CAP_NET_RAW (or root)";
    assert!(said.contains(expected), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// What a stranger sends to the server harms nobody who comes after.
#[test]
fn a_server_survives_strangers() {
    use std::io::{Read, Write};
    let server = Server::start();
    let port: u16 = server.1.parse().expect("a port");
    for sent in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"Run\":{\"end\":7,\"messages\":1}}\n",
        b"{\"Connect\":{\"end\":0,\"address\":null}}\n",
        b"\"Load\"\n{\"Reduce\":{\"times\":1}}\n{\"Check\":{\"times\":1}}\n",
        b"{\"OpenRank\":{\"transport\":\"tcp\",\"rank\":9,\"ranks\":2,\"elements\":8}}\n",
    ] {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.write_all(sent).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("Failed"), "{answer}");
    }
    let json = perf(&["write-bw", "127.0.0.1", "--port", &server.1, "--count", "5"]);
    assert!(positive(&of(&json[0], "tcp")["value"]));
}

/// Killed in the middle of a run, it leaves no second process behind.
#[test]
fn the_second_process_dies_with_the_first() {
    let mut first = hirail()
        .args(["perf", "write-bw", "--duration", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("hirail runs");
    let second = second_process(&first);
    thread::sleep(Duration::from_millis(200));
    let name = fs::read_to_string(format!("/proc/{second}/comm")).expect("it runs");
    assert_eq!(name, "hirail\n");
    first.kill().expect("it runs");
    first.wait().expect("it ran");
    assert!(is_gone(&second), "process {second} is still there");
}

/// A second process that is stopped in the middle of a run ends it with the error that the standard
/// defines for a peer which does not answer.
#[test]
fn a_stopped_peer_is_noticed() {
    let first = hirail()
        .args(["perf", "write-bw", "--duration", "60", "--no-baselines"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hirail runs");
    let second = second_process(&first);
    thread::sleep(Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(second.parse().expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
    let output = first.wait_with_output().expect("it ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    // Between two runs it is the control connection that notices.
    let noticed = said.contains("IBV_WC_RETRY_EXC_ERR") || said.contains("has not answered");
    assert!(noticed && said.lines().count() == 1, "{said}");
    assert!(is_gone(&second), "process {second} is still there");
}

/// The second process that `first` has started.
fn second_process(first: &Child) -> String {
    let children = format!("/proc/{0}/task/{0}/children", first.id());
    let second = wait_for(|| {
        let pid = fs::read_to_string(&children)
            .ok()?
            .split_whitespace()
            .next()?
            .to_owned();
        // Before that it is still being started, under the name of the first.
        let cmdline = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        cmdline.contains("--second-process").then_some(pid)
    });
    second.expect("there is a second process")
}

/// Whether a process ends soon. Whoever inherited it may take its time to collect it.
fn is_gone(pid: &str) -> bool {
    let gone = wait_for(|| match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => Some(()),
        Ok(stat) => stat
            .rsplit(')')
            .next()?
            .trim_start()
            .starts_with('Z')
            .then_some(()),
    });
    gone.is_some()
}

fn wait_for<T>(condition: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(value) = condition() {
            return Some(value);
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}
