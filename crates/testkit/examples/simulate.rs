//! Runs seeds of the simulation: `simulate --seed N` shows one, `simulate --seeds A..B` runs many.
//! Built with `planted-bugs`, `simulate --plant BUG` before either plants a bug into the engine.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: simulate --seed N [--pcap FILE] | --seeds A..B";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(args) = plant(&args) else {
        return usage();
    };
    match *args {
        ["--seed", seed] => one(seed, None),
        ["--seed", seed, "--pcap", file] => one(seed, Some(file)),
        ["--seeds", seeds] => many(seeds),
        _ => usage(),
    }
}

/// Plants the bug that the first arguments name; the other arguments.
#[cfg(feature = "planted-bugs")]
fn plant<'a, 'b>(args: &'a [&'b str]) -> Option<&'a [&'b str]> {
    use hirail_rnic::planted::{Bug, plant};
    let ["--plant", name, rest @ ..] = args else {
        return Some(args);
    };
    let bug = Bug::ALL.iter().find(|bug| format!("{bug:?}") == *name)?;
    plant(Some(*bug));
    Some(rest)
}

#[cfg(not(feature = "planted-bugs"))]
fn plant<'a, 'b>(args: &'a [&'b str]) -> Option<&'a [&'b str]> {
    Some(args)
}

fn usage() -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{USAGE}");
    ExitCode::from(2)
}

fn one(seed: &str, capture: Option<&str>) -> ExitCode {
    let Ok(seed) = seed.parse() else {
        return usage();
    };
    let mut out = std::io::stdout().lock();
    let sink: Option<Box<dyn Write>> = match capture.map(std::fs::File::create) {
        None => None,
        Some(Ok(file)) => Some(Box::new(std::io::BufWriter::new(file))),
        Some(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "cannot write the capture: {error}");
            return ExitCode::from(2);
        }
    };
    let result = testkit::sim::run_aloud(seed, sink, |text| {
        let _ = out.write_all(text.as_bytes());
    });
    match result {
        Ok(outcome) => {
            let _ = writeln!(out, "{outcome:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(out, "{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(seeds: &str) -> ExitCode {
    let range = seeds
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse::<u64>().ok()?..b.parse::<u64>().ok()?));
    let Some(range) = range else {
        return usage();
    };
    let mut out = std::io::stdout().lock();
    let total = range.end.saturating_sub(range.start);
    let start = Instant::now();
    let mut last = start;
    let (mut failed, mut completions, mut steps, mut errors) = (0u64, 0, 0, 0u64);
    for (count, seed) in (1u64..).zip(range) {
        match testkit::sim::run(seed) {
            Ok(outcome) => {
                completions += outcome.completions;
                steps += outcome.steps;
                errors += u64::from(outcome.failed);
            }
            Err(failure) => {
                failed += 1;
                let _ = writeln!(out, "{failure}");
            }
        }
        if last.elapsed().as_secs() >= 5 {
            last = Instant::now();
            let rate = count as f64 / start.elapsed().as_secs_f64();
            let _ = writeln!(
                out,
                "{count} of {total} seeds, {failed} failed, {rate:.0}/s"
            );
            let _ = out.flush();
        }
    }
    let _ = writeln!(
        out,
        "{total} seeds, {failed} failed; {completions} completions, {steps} steps, {errors} streams \
         ended in error, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
