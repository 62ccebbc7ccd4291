//! What was measured, for people and for programs, from the same rows.

use comfy_table::{CellAlignment, ColumnConstraint, Table, presets};
use serde::Serialize;

use crate::outcome::Error;
use crate::output::{self, Output};
use crate::perf::bench::Measured;
use crate::perf::device::Over;
use crate::perf::job::{Job, QpType, Shape, Test, Transport};
use crate::perf::series::{Figures, Unit};
use crate::perf::units;

/// One job with the figures of all transports: an object of the JSON output.
#[derive(Serialize)]
pub(crate) struct Row {
    /// What the row shows, in words.
    pub(crate) figure: String,
    pub(crate) test: Test,
    pub(crate) qp_type: QpType,
    pub(crate) bytes: usize,
    pub(crate) qps: usize,
    pub(crate) bidirectional: bool,
    pub(crate) depth: usize,
    pub(crate) mtu: usize,
    /// What RDMA ran over.
    #[serde(flatten)]
    pub(crate) over: Over,
    /// The figure of RDMA.
    pub(crate) value: Option<f64>,
    /// What all values of this row are in.
    pub(crate) unit: &'static str,
    /// `value` divided by that of TCP.
    pub(crate) vs_tcp: Option<f64>,
    /// `value` divided by that of plain UDP.
    pub(crate) vs_udp: Option<f64>,
    /// All figures of each transport.
    pub(crate) transports: Vec<Figures>,
}

impl Row {
    /// The row of one job.
    pub(crate) fn new(
        figure: String,
        job: &Job,
        unit: Unit,
        over: &Over,
        measured: &Measured,
    ) -> Self {
        let transports: Vec<Figures> = measured
            .series
            .iter()
            .map(|(transport, series)| series.figures(*transport, job, unit))
            .collect();
        let value = value_of(&transports, Transport::Rdma);
        let versus = |other| Some(value? / value_of(&transports, other).filter(|&v| v > 0.0)?);
        Self {
            figure,
            test: job.test,
            qp_type: job.qp_type,
            bytes: job.bytes,
            qps: job.qps,
            bidirectional: job.bidirectional,
            depth: job.depth,
            mtu: job.mtu,
            over: over.clone(),
            value,
            unit: unit.name(),
            vs_tcp: versus(Transport::Tcp),
            vs_udp: versus(Transport::Udp),
            transports,
        }
    }

    fn versus(&self, other: Transport) -> Option<f64> {
        match other {
            Transport::Rdma => None,
            Transport::Tcp => self.vs_tcp,
            Transport::Udp => self.vs_udp,
        }
    }

    /// Whether a larger value is a better one.
    fn is_rate(&self) -> bool {
        self.test.shape() == Shape::Stream
    }
}

fn value_of(transports: &[Figures], which: Transport) -> Option<f64> {
    transports
        .iter()
        .find(|figures| figures.transport == which)
        .map(|figures| figures.value)
}

/// Prints the overview: a line per figure, the transports side by side.
pub(crate) fn overview(rows: &[Row], peer: &str, out: &mut Output) -> Result<(), Error> {
    let header = [
        "figure", "RDMA", "TCP", "RDMA/TCP", "UDP", "RDMA/UDP", "unit",
    ];
    let lines = rows.iter().map(|row| {
        let value = |transport| optional(value_of(&row.transports, transport));
        [
            row.figure.clone(),
            value(Transport::Rdma),
            value(Transport::Tcp),
            ratio(row.vs_tcp),
            value(Transport::Udp),
            ratio(row.vs_udp),
            row.unit.into(),
        ]
    });
    table(&header, lines, &[0, 6], out)?;
    writeln!(out, "\n{}", meaning(rows))?;
    place(rows, peer, out)
}

/// Prints the results of one test: a line per size and transport.
pub(crate) fn detail(rows: &[Row], peer: &str, out: &mut Output) -> Result<(), Error> {
    let lines = rows
        .iter()
        .flat_map(|row| row.transports.iter().map(move |f| (row, f)));
    if rows.iter().all(Row::is_rate) {
        let header = [
            "size",
            "over",
            "Gb/s",
            "Mmsg/s",
            "CPU s/GB client",
            "CPU s/GB server",
            "RDMA is",
        ];
        let lines = lines.map(|(row, figures)| {
            [
                units::bytes(row.bytes),
                figures.transport.name().into(),
                optional(figures.gbps),
                optional(figures.mmsg_per_second),
                optional(figures.client_cpu_seconds_per_gb),
                optional(figures.server_cpu_seconds_per_gb),
                ratio(row.versus(figures.transport)),
            ]
        });
        table(&header, lines, &[1], out)?;
    } else {
        let header = [
            "size", "over", "min us", "p50", "p90", "p99", "p99.9", "max", "RDMA is",
        ];
        let lines = lines.map(|(row, figures)| {
            let latency = |of: fn(&crate::perf::series::Percentiles) -> f64| {
                optional(figures.latency_us.as_ref().map(of))
            };
            [
                units::bytes(row.bytes),
                figures.transport.name().into(),
                latency(|l| l.min),
                latency(|l| l.p50),
                latency(|l| l.p90),
                latency(|l| l.p99),
                latency(|l| l.p999),
                latency(|l| l.max),
                ratio(row.versus(figures.transport)),
            ]
        });
        table(&header, lines, &[1], out)?;
    }
    writeln!(out, "\n{}", meaning(rows))?;
    place(rows, peer, out)
}

/// A sentence on where they were measured: between which ends, over what.
fn place(rows: &[Row], peer: &str, out: &mut Output) -> Result<(), Error> {
    let Some(Row { over, mtu, .. }) = rows.first() else {
        return Ok(());
    };
    writeln!(out, "RDMA ran over {over}, path MTU {mtu}, to {peer}.")
}

/// A sentence on what the rows show.
fn meaning(rows: &[Row]) -> String {
    let baselines = [(Transport::Tcp, "TCP"), (Transport::Udp, "plain UDP")];
    let compared = |(other, name): (Transport, &'static str)| {
        let ratios = rows
            .iter()
            .filter_map(move |row| Some((row, row.versus(other)?)));
        let ratios: Vec<(&Row, f64)> = ratios.collect();
        (!ratios.is_empty()).then_some((name, ratios))
    };
    let compared: Vec<_> = baselines.into_iter().filter_map(compared).collect();
    let mut text = match rows {
        [row] => of_one(row, &compared),
        _ => of_many(rows, &compared),
    };
    if !compared.is_empty() {
        text += ", measured in turns within one run";
    }
    text + "." + &losses(rows)
}

/// Per baseline: its name and the ratios of the rows that have one.
type Compared<'a> = [(&'static str, Vec<(&'a Row, f64)>)];

fn of_one(row: &Row, compared: &Compared<'_>) -> String {
    let value = optional(row.value);
    let mut text = format!("{}: {value} {} over RDMA", row.figure, row.unit);
    for (number, (name, ratios)) in compared.iter().enumerate() {
        let lead = if number == 0 { "," } else { " and" };
        let ratio = units::figure(ratios[0].1);
        text += &format!("{lead} {ratio} times that over {name}");
    }
    text
}

fn of_many(rows: &[Row], compared: &Compared<'_>) -> String {
    if compared.is_empty() {
        return "These are figures of RDMA alone, compared with nothing".into();
    }
    let good = |(row, ratio): &&(&Row, f64)| {
        if row.is_rate() {
            *ratio >= 1.0
        } else {
            *ratio <= 1.0
        }
    };
    let counts = compared.iter().map(|(name, ratios)| {
        let ahead = ratios.iter().filter(good).count();
        format!(
            "{ahead} of {} figures as good as {name} or better",
            ratios.len()
        )
    });
    let reading = match (rows.iter().any(Row::is_rate), rows.iter().all(Row::is_rate)) {
        (_, true) => "a ratio above 1 is in favour of RDMA",
        (false, false) => "a ratio below 1 is in favour of RDMA",
        (true, false) => "a ratio of rates above 1, or of times below 1, is in favour of RDMA",
    };
    let counts: Vec<String> = counts.collect();
    format!("RDMA is in {}; {reading}", counts.join(" and in "))
}

/// What got lost, where anything did.
fn losses(rows: &[Row]) -> String {
    let lost = |row: &Row| {
        let of = |f: &Figures| {
            if f.transport == Transport::Rdma {
                f.lost
            } else {
                None
            }
        };
        row.transports.iter().find_map(of)
    };
    let most = rows.iter().filter_map(lost).fold(0.0, f64::max);
    if most == 0.0 {
        return String::new();
    }
    let most = units::figure(most * 100.0);
    format!(
        " Up to {most} % of the messages got lost, as unreliable transports may; they do not count."
    )
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), units::figure)
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |ratio| format!("{ratio:.2}x"))
}

/// Prints lines in aligned columns: those in `left` to the left, numbers to the right, and none that
/// is empty throughout.
pub(crate) fn table<const N: usize>(
    header: &[&str; N],
    lines: impl Iterator<Item = [String; N]>,
    left: &[usize],
    out: &mut Output,
) -> Result<(), Error> {
    let lines: Vec<_> = lines.collect();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(header)
        .add_rows(&lines);
    for (number, column) in table.column_iter_mut().enumerate() {
        // Such as the ratios of a measurement that is compared with nothing.
        if lines.iter().all(|line| line[number].is_empty()) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
        let right = !left.contains(&number);
        column.set_cell_alignment(if right {
            CellAlignment::Right
        } else {
            CellAlignment::Left
        });
        column.set_padding((0, 2));
    }
    for (number, line) in table.lines().enumerate() {
        let line = line.trim_end();
        match number {
            0 => writeln!(out, "{}", out.paint(output::HEADING, line))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}
