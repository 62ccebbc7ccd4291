//! `hirail perf allreduce`: a ring all-reduce over processes of this machine, every element of the
//! result checked.
//!
//! The vector is cut into as many parts as there are ranks. In the first half of the steps each
//! rank adds what comes from its predecessor and passes it on, until every part is summed
//! somewhere; in the second half the sums go round. Each rank sends `2 (n - 1) / n` vectors.

mod rank;
mod rdma;
mod tcp;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde::Serialize;

use crate::outcome::{Error, Outcome};
use crate::output::Output;
use crate::perf::control::{Answer, Ask};
use crate::perf::device::Choice;
use crate::perf::job::Transport;
use crate::perf::peer::Peer;
use crate::perf::progress::Progress;
use crate::perf::report;
use crate::perf::series::median;
use crate::perf::units;

pub(crate) use rank::Rank;

/// What is reduced, and for how long each transport does it.
pub(crate) struct Plan {
    /// Processes.
    pub(crate) ranks: usize,
    /// Bytes of each rank's vector.
    pub(crate) bytes: usize,
    /// Time to measure.
    pub(crate) duration: Duration,
    /// Whether TCP does the same for comparison.
    pub(crate) baseline: bool,
    /// Device of all ranks.
    pub(crate) device: Choice,
}

/// Where the ranks meet unless a device is chosen.
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Turns that each transport gets.
const TURNS: u32 = 5;

/// An object of the JSON output.
#[derive(Serialize)]
struct Row {
    test: &'static str,
    transport: Transport,
    ranks: usize,
    bytes: usize,
    /// Bytes of a vector by the time of one all-reduce, in 10^9 bytes per second.
    algbw: f64,
    /// `algbw` times `2 (n - 1) / n`: what each rank's link carries, comparable over n.
    busbw: f64,
    unit: &'static str,
    /// Microseconds of one all-reduce.
    time_us: f64,
    /// `busbw` divided by that of TCP.
    vs_tcp: Option<f64>,
    /// Whether every element of every rank was what it must be, each time.
    correct: bool,
}

/// Runs the plan and prints what came of it.
pub(crate) fn run(plan: &Plan, out: &mut Output) -> Result<Outcome, Error> {
    let transports: &[Transport] = if plan.baseline {
        &[Transport::Rdma, Transport::Tcp]
    } else {
        &[Transport::Rdma]
    };
    let progress = Progress::new(transports.len());
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for &transport in transports {
        progress.say(format!("all-reduce over {}", transport.name()));
        let (row, wrong) = measure(plan, transport, &progress)?;
        progress.next();
        rows.push(row);
        notes.extend(wrong);
    }
    drop(progress);
    let busbw = |transport| {
        rows.iter()
            .find(|row| row.transport == transport)
            .map(|r| r.busbw)
    };
    let vs_tcp = Some(Transport::Rdma)
        .and_then(busbw)
        .zip(busbw(Transport::Tcp))
        .map(|(ours, theirs)| ours / theirs);
    for row in rows
        .iter_mut()
        .filter(|row| row.transport == Transport::Rdma)
    {
        row.vs_tcp = vs_tcp;
    }
    super::notes(&notes);
    if out.is_json() {
        out.json(&rows)?;
    } else {
        print(plan, &rows, vs_tcp, out)?;
    }
    Ok(if rows.iter().all(|row| row.correct) {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}

fn print(plan: &Plan, rows: &[Row], vs_tcp: Option<f64>, out: &mut Output) -> Result<(), Error> {
    let header = [
        "over",
        "ranks",
        "size",
        "time us",
        "algbw GB/s",
        "busbw GB/s",
        "result",
    ];
    let lines = rows.iter().map(|row| {
        [
            row.transport.name().into(),
            row.ranks.to_string(),
            units::bytes(row.bytes),
            units::figure(row.time_us),
            units::figure(row.algbw),
            units::figure(row.busbw),
            if row.correct {
                "correct".into()
            } else {
                "wrong".into()
            },
        ]
    });
    report::table(&header, lines, &[0, 6], out)?;
    let elements = plan.bytes / size_of::<f32>();
    let checked = format!(
        "All {elements} elements of {} ranks were compared",
        plan.ranks
    );
    match vs_tcp {
        Some(ratio) => writeln!(
            out,
            "\n{checked}; RDMA has {} times the bus bandwidth of TCP.",
            units::figure(ratio)
        ),
        None => writeln!(
            out,
            "\n{checked}; there is no other transport to compare with."
        ),
    }?;
    let over = plan.device.over(plan.device.address(LOCALHOST)?)?;
    writeln!(out, "RDMA ran over {over}, on this machine.")
}

/// Sets up a ring and measures it. Also says what was wrong with a result.
fn measure(
    plan: &Plan,
    transport: Transport,
    progress: &Progress,
) -> Result<(Row, Option<String>), Error> {
    let mut ring = Ring::new(plan, transport)?;
    let one = ring.reduce(1)?;
    let mut wrong = ring.check(1)?;
    let turn = plan.duration / TURNS;
    let fitting = turn.as_secs_f64() / one.as_secs_f64().max(1e-9);
    let times = (fitting as u32).clamp(1, rank::most_times(plan.ranks));
    let mut seconds = Vec::new();
    for turn_number in 1..=TURNS {
        // Short vectors: several series of exact reductions make a turn.
        let mut spent = Duration::ZERO;
        let mut reduced = 0;
        while reduced == 0 || spent < turn {
            spent += ring.reduce(times)?;
            reduced += times;
            wrong = wrong.or(ring.check(times)?);
        }
        seconds.push(spent.as_secs_f64() / f64::from(reduced));
        progress.at(f64::from(turn_number) / f64::from(TURNS));
    }
    let time = median(seconds).max(1e-9);
    let algbw = plan.bytes as f64 / time / 1e9;
    let ranks = plan.ranks as f64;
    let row = Row {
        test: "allreduce",
        transport,
        ranks: plan.ranks,
        bytes: plan.bytes,
        algbw,
        busbw: algbw * 2.0 * (ranks - 1.0) / ranks,
        unit: "GB/s",
        time_us: time * 1e6,
        vs_tcp: None,
        correct: wrong.is_none(),
    };
    Ok((row, wrong))
}

/// The processes of a ring, connected.
struct Ring {
    ranks: Vec<Peer>,
}

impl Ring {
    fn new(plan: &Plan, transport: Transport) -> Result<Self, Error> {
        let ranks = (0..plan.ranks)
            .map(|_| Peer::spawn(&plan.device))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ring = Self { ranks };
        let elements = plan.bytes / size_of::<f32>();
        let opened = ring.ask(|rank| Ask::OpenRank {
            transport,
            rank,
            ranks: plan.ranks,
            elements,
        })?;
        let addresses: Vec<_> = opened
            .into_iter()
            .map(|answer| {
                if let Answer::Opened { address } = answer {
                    address
                } else {
                    default()
                }
            })
            .collect();
        let n = plan.ranks;
        ring.ask(|rank| Ask::ConnectRank {
            previous: addresses[(rank + n - 1) % n].clone(),
            next: addresses[(rank + 1) % n].clone(),
        })?;
        Ok(ring)
    }

    /// Asks every rank, then takes all answers: they work at the same time.
    fn ask(&mut self, ask: impl Fn(usize) -> Ask) -> Result<Vec<Answer>, Error> {
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            rank.control.send(&ask(number))?;
        }
        let answers = self.ranks.iter_mut().map(|rank| rank.control.answer());
        let answers: Result<Vec<_>, _> = answers.collect();
        if answers.is_err() {
            // One that is gone is why its neighbours fail.
            self.ranks
                .iter()
                .try_for_each(|rank| rank.control.is_alive())?;
        }
        answers
    }

    /// The time that the slowest rank took for `times` all-reduces of fresh vectors.
    fn reduce(&mut self, times: u32) -> Result<Duration, Error> {
        self.ask(|_| Ask::Load)?;
        let answers = self.ask(|_| Ask::Reduce { times })?;
        let slowest = answers.iter().filter_map(|answer| match answer {
            Answer::Ran { elapsed, .. } => *elapsed,
            _ => None,
        });
        Ok(Duration::from_nanos(slowest.max().unwrap_or(0)))
    }

    fn check(&mut self, times: u32) -> Result<Option<String>, Error> {
        Ok(self
            .ask(|_| Ask::Check { times })?
            .into_iter()
            .find_map(|answer| match answer {
                Answer::Checked { wrong } => wrong,
                _ => Some("a rank did not check its result".into()),
            }))
    }
}

/// An address that nobody can use.
fn default() -> serde_json::Value {
    serde_json::Value::Null
}
