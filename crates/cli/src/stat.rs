//! `hirail stat`: counters of the hirail processes on this host, read from outside while they run.

use std::thread;
use std::time::Duration;

use hirail::stat::{self, ProcessCounters};
use hirail_vocab::{Counter, CounterSnapshot, DropReason, LinkKind};
use serde_json::{Map, Value, json};

use crate::number;
use crate::outcome::{Error, Outcome};
use crate::output::{BAD, FAINT, HEADING, Output};

/// Show the counters of the hirail processes on this host
#[derive(clap::Args)]
#[command(after_help = "\
Without a process, one line each; with one, all its counters that are not zero, and the names of
those that its kind of link does not count (N stands for each priority). Processes of other users
are shown to root only. 'hirail explain COUNTER' says what a counter means.

Examples:
  hirail stat
  hirail stat 4711
  hirail stat --interval 1s --count 10
  hirail stat --json")]
pub(crate) struct Args {
    /// Only this process, with all its counters
    #[arg(value_parser = number::within::<u32>(1..=u64::from(u32::MAX)), allow_negative_numbers = true)]
    pid: Option<u32>,

    /// Show what was added within this time, such as 2s or 500ms, again and again; with --json, an
    /// array each time
    #[arg(long, short, value_parser = duration, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Duration>,

    /// Stop after so many intervals
    #[arg(long, requires = "interval", value_name = "N", value_parser = number::within::<u64>(1..=number::MANY), allow_negative_numbers = true)]
    count: Option<u64>,
}

/// Reads "500ms", "2s" or plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err("write a time such as 500ms, 2s or 1min".into()),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if (0.05..=86_400.0).contains(&(value * scale)) => {
            Ok(Duration::from_secs_f64(value * scale))
        }
        _ => Err("write a time between 50ms and a day, such as 500ms or 2s".into()),
    }
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<Outcome, Error> {
    let mut before = read(args.pid)?;
    let Some(interval) = args.interval else {
        show(&before, args.pid.is_some(), out)?;
        return Ok(Outcome::Clean);
    };
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        thread::sleep(interval);
        let now = read(args.pid)?;
        let added: Vec<ProcessCounters> = now.iter().map(|it| since(it, &before)).collect();
        show(&added, args.pid.is_some(), out)?;
        out.flush()?;
        before = now;
    }
    Ok(Outcome::Clean)
}

/// The processes, or the one asked for.
fn read(pid: Option<u32>) -> Result<Vec<ProcessCounters>, Error> {
    let mut all = stat::processes()
        .map_err(|error| Error::new(format!("cannot list the processes of this host: {error}")))?;
    if let Some(pid) = pid {
        let pids: Vec<String> = all.iter().map(|it| it.pid.to_string()).collect();
        all.retain(|it| it.pid == pid);
        if all.is_empty() {
            let known = match pids.len() {
                0 => "none does that I may look at".to_owned(),
                _ => format!("these do: {}", pids.join(", ")),
            };
            return Err(Error::new(format!(
                "process {pid} does not use hirail; {known}"
            )));
        }
    }
    Ok(all)
}

/// What a device has counted since an earlier look; everything for a new one.
pub(crate) fn since(now: &ProcessCounters, before: &[ProcessCounters]) -> ProcessCounters {
    let earlier = before
        .iter()
        .find(|it| it.pid == now.pid && it.device == now.device);
    let counters = earlier.map_or_else(
        || now.counters.clone(),
        |earlier| now.counters.since(&earlier.counters),
    );
    ProcessCounters {
        counters,
        ..now.clone()
    }
}

fn show(all: &[ProcessCounters], in_full: bool, out: &mut Output) -> Result<(), Error> {
    if out.is_json() {
        return out.json(&all.iter().map(to_json).collect::<Vec<_>>());
    }
    if in_full {
        all.iter().try_for_each(|it| print_in_full(it, None, out))
    } else {
        print_table(all, out)
    }
}

pub(crate) fn to_json(it: &ProcessCounters) -> Value {
    let counters: Map<String, Value> = it
        .counters
        .non_zero()
        .map(|(counter, value)| (counter.name().to_owned(), value.into()))
        .collect();
    json!({
        "pid": it.pid,
        "command": it.command,
        "device": it.device,
        "link": it.link.map(LinkKind::name),
        "qps": it.qps,
        "counters": counters,
        "not_counted": it.link.map(Counter::not_counted_on),
    })
}

fn print_table(all: &[ProcessCounters], out: &mut Output) -> Result<(), Error> {
    if all.is_empty() {
        let text = "no process of this host uses hirail, as far as this user may look";
        let text = out.paint(FAINT, text);
        return writeln!(out, "{text}");
    }
    let heading = format!(
        "{:>8} {:<16} {:<12} {:>6} {:>13} {:>10} {:>13} {:>10} {:>9} {:>9}",
        "PID",
        "command",
        "device",
        "QPs",
        "packets out",
        "out",
        "packets in",
        "in",
        "resent",
        "dropped"
    );
    let heading = out.paint(HEADING, heading);
    writeln!(out, "{heading}")?;
    for it in all {
        let get = |counter| it.counters.get(counter);
        let resent = get(Counter::RetransmittedPackets);
        let dropped = dropped(&it.counters);
        write!(
            out,
            "{:>8} {:<16} {:<12} {:>6} {:>13} {:>10} {:>13} {:>10} ",
            it.pid,
            it.command,
            it.device,
            it.qps,
            get(Counter::PortXmitPackets),
            bytes(4 * get(Counter::PortXmitData)),
            get(Counter::PortRcvPackets),
            bytes(4 * get(Counter::PortRcvData)),
        )?;
        let resent = alarming(resent, out);
        let dropped = alarming(dropped, out);
        writeln!(out, "{resent} {dropped}")?;
    }
    Ok(())
}

fn alarming(value: u64, out: &Output) -> impl std::fmt::Display + use<> {
    let style = if value > 0 { BAD } else { FAINT };
    out.paint(style, format!("{value:>9}"))
}

/// Packets discarded for any reason.
fn dropped(counters: &CounterSnapshot) -> u64 {
    DropReason::ALL
        .iter()
        .map(|reason| counters.get(reason.counter()))
        .sum()
}

/// "1.5 GB" and the like.
fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next().unwrap_or("B");
    while scaled >= 1000.0 {
        let Some(next) = units.next() else { break };
        scaled /= 1000.0;
        unit = next;
    }
    if unit == "B" {
        format!("{value} B")
    } else {
        format!("{scaled:.1} {unit}")
    }
}

/// All counters of a device that are not zero, and how much that is in a second if they were counted
/// `within` a time; without one, also what the kind of link does not count.
pub(crate) fn print_in_full(
    it: &ProcessCounters,
    within: Option<Duration>,
    out: &mut Output,
) -> Result<(), Error> {
    let link = it.link.map_or(String::new(), |link| format!(" on {link}"));
    let title = format!(
        "{} {}  {}{link}, {} QPs",
        it.pid, it.command, it.device, it.qps
    );
    let title = out.paint(HEADING, title);
    writeln!(out, "{title}")?;
    let mut group = "";
    for (counter, value) in it.counters.non_zero() {
        if counter.group() != group {
            group = counter.group();
            let group = out.paint(FAINT, group);
            writeln!(out, "  {group}")?;
        }
        let unit = counter.unit().name();
        write!(out, "    {:<34}{value:>16} {unit}", counter.name())?;
        if let Some(within) = within {
            let rate = value as f64 / within.as_secs_f64();
            let rate = out.paint(FAINT, format!("  {rate:.0}/s"));
            write!(out, "{rate}")?;
        }
        writeln!(out)?;
    }
    if let (Some(link), None) = (it.link, within) {
        let names = Counter::not_counted_on(link).join(" ");
        let line = out.paint(FAINT, format!("not counted on this link: {names}"));
        writeln!(out, "  {line}")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1min"), Ok(Duration::from_secs(60)));
        assert!(duration("0").is_err());
        assert!(duration("1h").is_err());
    }

    #[test]
    fn byte_counts() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000_000), "1.5 GB");
    }
}
