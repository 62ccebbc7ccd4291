//! What the benchmarks share: goals beside figures, and the programs that are measured.

use std::error::Error;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A figure, what it should be, and how it reads.
pub(crate) struct Goal {
    pub(crate) figure: &'static str,
    pub(crate) goal: &'static str,
    /// What was measured; `None` where this build or machine cannot.
    pub(crate) measured: Option<f64>,
    /// The goal in the unit of `measured`.
    pub(crate) bound: f64,
    /// Whether larger is better.
    pub(crate) at_least: bool,
}

/// Prints figures beside their goals.
pub(crate) fn print(goals: &[Goal]) {
    println!("{:<40} {:<13} {:>8}  ", "figure", "goal", "measured");
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
        println!("{figure:<40} {bounded} {goal:<10} {measured:>8}  {verdict}");
    }
}

/// The middle of the values.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Gb/s of one second of iperf3 with 64 KiB writes.
pub(crate) fn iperf3() -> Result<f64, Box<dyn Error>> {
    let port = free_port()?.to_string();
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

/// The rows of `hirail perf`.
pub(crate) fn perf(args: &[&str]) -> Result<Vec<Value>, Box<dyn Error>> {
    let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .arg("perf")
        .args(args)
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The figure of one transport in a row of `hirail perf`.
pub(crate) fn of_transport(row: &Value, name: &str) -> Option<f64> {
    let mut transports = row["transports"].as_array()?.iter();
    transports.find(|t| t["transport"] == name)?["value"].as_f64()
}

/// A port that was free a moment ago; who takes it in between makes a program say so.
pub(crate) fn free_port() -> Result<u16, Box<dyn Error>> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
