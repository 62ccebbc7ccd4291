//! Measures what hirail is meant to reach and prints it beside the goals: `cargo bench --bench
//! goals`, on a machine with nothing else to do. It judges no build: figures of a busy machine say
//! little, and the exit status says only whether the figures could be taken.

use std::error::Error;
use std::net::TcpListener;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Pairs of runs that TCP is compared with iperf3 by.
const PAIRS: usize = 5;

/// A figure, what it should be, and how it reads.
struct Goal {
    figure: &'static str,
    goal: &'static str,
    /// What was measured; `None` where this build or machine cannot.
    measured: Option<f64>,
    /// The goal in the unit of `measured`.
    bound: f64,
    /// Whether larger is better.
    at_least: bool,
}

fn main() -> ExitCode {
    match goals() {
        Ok(goals) => {
            print(&goals);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("goals: {error}");
            ExitCode::from(2)
        }
    }
}

fn goals() -> Result<Vec<Goal>, Box<dyn Error>> {
    let tcp = tcp_beside_iperf3();
    if let Err(error) = &tcp {
        eprintln!("goals: the TCP baseline was not judged: {error}");
    }
    let rows = perf(&[])?;
    let at = |row: usize, key: &str| rows[row][key].as_f64();
    let one_qp = at(0, "value");
    let goal = |figure, goal, measured, bound, at_least| Goal {
        figure,
        goal,
        measured,
        bound,
        at_least,
    };
    Ok(vec![
        goal("TCP baseline", "0.9 x iperf3", tcp.ok(), 0.9, true),
        goal(
            "WRITE 64 KiB, 1 QP",
            "1.1 x TCP",
            at(0, "vs_tcp"),
            1.1,
            true,
        ),
        goal(
            "WRITE 64 KiB, 8 QPs, both ways",
            "0.9 x 1 QP",
            at(1, "value").zip(one_qp).map(|(many, one)| many / one),
            0.9,
            true,
        ),
        goal(
            "its NAKs per million packets",
            "100",
            naks_per_million(&rows[1]),
            100.0,
            false,
        ),
        goal("WRITE 8 B, 1 QP", "1 Mmsg/s", at(3, "value"), 1.0, true),
        goal(
            "SEND 8 B, half round trip",
            "1.3 x UDP",
            at(4, "vs_udp"),
            1.3,
            false,
        ),
        goal(
            "WRITE 8 B, half round trip",
            "3 x UDP",
            at(5, "vs_udp"),
            3.0,
            false,
        ),
    ])
}

/// Sequence errors (`packet_seq_err`) in a million packets of RDMA.
fn naks_per_million(row: &Value) -> Option<f64> {
    let transports = row["transports"].as_array()?;
    let rdma = transports
        .iter()
        .find(|figures| figures["transport"] == "rdma")?;
    let counted = |name: &str| rdma["counters"][name].as_f64();
    let packets = counted("port_xmit_packets")?;
    Some(counted("packet_seq_err").unwrap_or(0.0) / packets * 1e6)
}

fn print(goals: &[Goal]) {
    println!("{:<32} {:<13} {:>8}  ", "figure", "goal", "measured");
    for Goal {
        figure,
        goal,
        measured,
        bound,
        at_least,
    } in goals
    {
        let verdict = match measured {
            None => "not measured".to_owned(),
            Some(value) if (value >= bound) == *at_least || value == bound => "met".to_owned(),
            Some(value) => format!("missed by {:.0} %", (value / bound - 1.0).abs() * 100.0),
        };
        let bounded = if *at_least { ">=" } else { "<=" };
        let measured = measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        println!("{figure:<32} {bounded} {goal:<10} {measured:>8}  {verdict}");
    }
}

/// Our TCP stream as a multiple of iperf3's: the median over pairs of runs.
fn tcp_beside_iperf3() -> Result<f64, Box<dyn Error>> {
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let theirs = iperf3()?;
        let rows = perf(&["write-bw", "--size", "64K", "--duration", "1"])?;
        let transports = rows[0]["transports"].as_array().ok_or("there is no row")?;
        let ours = transports
            .iter()
            .find(|t| t["transport"] == "tcp")
            .ok_or("TCP is missing")?;
        ratios.push(ours["value"].as_f64().ok_or("TCP has no value")? / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[PAIRS / 2])
}

/// Gb/s of one second of iperf3 with 64 KiB writes.
fn iperf3() -> Result<f64, Box<dyn Error>> {
    // Free a moment ago: another process may take it, and then iperf3 says so.
    let port = TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port()
        .to_string();
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start iperf3: {error}"))?;
    let output = (0..50).find_map(|_| {
        thread::sleep(Duration::from_millis(50));
        let client = ["-c", "127.0.0.1", "-p", &port, "-t", "1", "-l", "64K", "-J"];
        Command::new("iperf3")
            .args(client)
            .output()
            .ok()
            .filter(|output| output.status.success())
    });
    if output.is_none() {
        server.kill()?;
    }
    server.wait()?;
    let json: Value = serde_json::from_slice(&output.ok_or("iperf3 does not run")?.stdout)?;
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.ok_or("iperf3 reports no rate")? / 1e9)
}

fn perf(args: &[&str]) -> Result<Vec<Value>, Box<dyn Error>> {
    let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .arg("perf")
        .args(args)
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
