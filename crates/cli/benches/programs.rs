//! Measures unmodified programs on hirail beside TCP and UDP, and prints the figures beside their
//! goals: `cargo bench --bench programs`, on a machine with nothing else to do. It judges no build:
//! the exit status says only whether the figures could be taken.
//!
//! Machines have slow and fast minutes, so each round runs everything once, a ratio is one of the
//! same round, and the median of the rounds counts.

mod figures;

use std::error::Error;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::Duration;

use figures::{Goal, free_port, iperf3, median, of_transport, perf, print};

/// How often everything is run.
const ROUNDS: usize = 5;

/// What one round measures.
#[derive(Default)]
struct Series {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("programs: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    build_libraries()?;
    let mut series = [
        ("iperf3, one stream", "Gb/s"),
        ("ib_write_bw 64 KiB, 1 QP", "Gb/s"),
        ("ib_write_bw 64 KiB, 8 QPs", "Gb/s"),
        ("hirail perf write-bw 64 KiB", "Gb/s"),
        ("UDP 8 B, half round trip", "us"),
        ("ib_send_lat 8 B", "us"),
        ("ib_write_lat 8 B", "us"),
        ("ib_write_bw 8 B", "Mmsg/s"),
        ("hirail perf write-bw 8 B", "Mmsg/s"),
    ]
    .map(|(name, unit)| Series {
        name,
        unit,
        values: Vec::new(),
    });
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let long = ["-s", "65536", "-D", "1", "--report_gbits"];
        let short = ["-s", "8", "-n", "20000"];
        let rdma = ["--duration", "1", "--no-baselines"];
        let figures = [
            iperf3()?,
            perftest("ib_write_bw", &long, 3)?,
            perftest("ib_write_bw", &[&long[..], &["-q", "8"]].concat(), 3)?,
            of_perf(&[&["write-bw", "-s", "64K"], &rdma[..]].concat(), "rdma")?,
            of_perf(&["send-lat", "-s", "8", "--duration", "1"], "udp")?,
            perftest("ib_send_lat", &short, 4)?,
            perftest("ib_write_lat", &short, 4)?,
            perftest("ib_write_bw", &["-s", "8", "-D", "1"], 4)?,
            of_perf(&[&["write-bw", "-s", "8"], &rdma[..]].concat(), "rdma")?,
        ];
        for (series, figure) in series.iter_mut().zip(figures) {
            series.values.push(figure);
        }
    }
    println!(
        "{:<40} {:>8} {:>8} {:>8}",
        "", "lowest", "median", "highest"
    );
    for series in &series {
        let mut sorted = series.values.clone();
        let middle = median(&mut sorted).unwrap_or(f64::NAN);
        let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
        let Series { name, unit, .. } = series;
        println!("{name:<40} {low:>8.2} {middle:>8.2} {high:>8.2} {unit}");
    }
    println!();
    let [tcp, one, eight, rust, udp, send, write, rate, rust_rate] = &series;
    print(&[
        goal(
            "ib_write_bw 64 KiB, 1 QP",
            "1 x iperf3",
            one,
            tcp,
            1.0,
            true,
        ),
        goal(
            "ib_write_bw 64 KiB, 8 QPs",
            "1 x iperf3",
            eight,
            tcp,
            1.0,
            true,
        ),
        goal("ib_send_lat 8 B", "1.4 x UDP", send, udp, 1.4, false),
        goal("ib_write_lat 8 B", "3 x UDP", write, udp, 3.0, false),
        goal("ib_write_bw 64 KiB", "0.95 x Rust", one, rust, 0.95, true),
        goal(
            "ib_write_bw 8 B",
            "0.95 x Rust",
            rate,
            rust_rate,
            0.95,
            true,
        ),
    ]);
    Ok(())
}

/// A figure as a multiple of another of the same round.
fn goal(
    figure: &'static str,
    goal: &'static str,
    of: &Series,
    beside: &Series,
    bound: f64,
    at_least: bool,
) -> Goal {
    let pairs = of.values.iter().zip(&beside.values);
    let mut ratios: Vec<_> = pairs.map(|(of, beside)| of / beside).collect();
    Goal {
        figure,
        goal,
        measured: median(&mut ratios),
        bound,
        at_least,
    }
}

fn of_perf(args: &[&str], transport: &str) -> Result<f64, Box<dyn Error>> {
    let rows = perf(args)?;
    let figure = rows.first().and_then(|row| of_transport(row, transport));
    figure.ok_or_else(|| format!("hirail perf {} has no figure", args.join(" ")).into())
}

/// The figure in a column of the line that a program of perftest prints.
fn perftest(program: &str, options: &[&str], column: usize) -> Result<f64, Box<dyn Error>> {
    let port = free_port()?.to_string();
    let mut server = Server(start(program, options, &port, &[])?);
    let output = (0..50).find_map(|_| {
        thread::sleep(Duration::from_millis(100));
        let client = start(program, options, &port, &["127.0.0.1"]).ok()?;
        let output = client.wait_with_output().ok()?;
        output.status.success().then_some(output)
    });
    let output = output.ok_or_else(|| format!("{program} does not run"))?;
    server.0.wait()?;
    figure(&output, column).ok_or_else(|| format!("{program} reports no figure").into())
}

fn start(program: &str, options: &[&str], port: &str, more: &[&str]) -> Result<Child, String> {
    Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(["run", "--", "timeout", "60", program])
        .args(["-d", "hirail_lo", "-x", "0", "-F", "-p", port])
        .args(options)
        .args(more)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))
}

/// Ended with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // `timeout` passes that on to the program.
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        }
        let _ = self.0.wait();
    }
}

/// The only line that is all figures.
fn figure(output: &Output, column: usize) -> Option<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = text.lines().filter_map(|line| {
        let words = line.split_whitespace().map(str::parse);
        let words: Vec<f64> = words.collect::<Result<_, _>>().ok()?;
        (words.len() > column).then(|| words[column])
    });
    rows.next()
}

/// The C libraries, which cargo builds for no benchmark.
fn build_libraries() -> Result<(), Box<dyn Error>> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--release"]);
    let status = build
        .args(["-p", "hirail-ibverbs", "-p", "hirail-rdmacm"])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the libraries do not build".into())
    }
}
