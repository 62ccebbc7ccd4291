//! `hirail perf`: measures RDMA beside TCP and plain UDP.
//!
//! Both ends are processes of their own. The client asks the server over a control connection to
//! open, connect and run ends of a [`job::Job`]; transports differ behind [`endpoint::Endpoint`]
//! only, take turns ([`mod@bench`]) and end up in the same rows ([`report`]).

mod allreduce;
mod bench;
mod control;
mod cpu;
mod device;
mod endpoint;
mod job;
mod patience;
mod peer;
mod progress;
mod rdma;
mod report;
mod series;
mod serve;
mod summary;
mod tcp;
mod udp;
mod units;

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hirail::Faults;
use hirail::config::Config;

use crate::number;
use crate::outcome::{Error, Outcome};
use crate::output::Output;
use crate::perf::bench::Amount;
use crate::perf::job::{Job, QpType, Shape, Test, Transport};
use crate::perf::peer::Peer;
use crate::perf::progress::Progress;
use crate::perf::report::Row;
use crate::perf::series::Unit;

/// TCP port of the control connection.
const PORT: u16 = 18515;
/// Path MTUs that there are.
const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];
/// The one of an Ethernet of 1500 bytes.
const ETHERNET_MTU: usize = 1024;
/// Message size of bandwidth and of latency tests.
const LARGE: usize = 64 << 10;
const SMALL: usize = 8;
/// Operand of an atomic operation.
const WORD: usize = 8;
/// Sizes of `--all`.
const ALL_SIZES: std::ops::RangeInclusive<u32> = 1..=23;

/// Measure bandwidth and latency, each beside the same job with TCP and plain UDP
#[derive(clap::Args)]
#[command(after_help = "\
Without ADDRESS both ends run on this machine, as two processes. Sizes take K, M and G for powers
of 1024. Each transport warms up, then they take turns; figures are medians over the turns.

Examples:
  hirail perf                                  the important figures
  hirail perf write-bw --size 1M --qps 8 --bidirectional
  hirail perf send-lat --all --json
  hirail perf --server                         on one machine, and on another:
  hirail perf write-bw 192.0.2.7 --duration 10
  hirail perf allreduce -n 4 --size 16M")]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum, default_value_t = Goal::Summary, hide_default_value = true)]
    test: Goal,

    /// Machine that runs 'hirail perf --server'
    address: Option<String>,

    /// Serve clients until interrupted
    #[arg(long, conflicts_with_all = ["address", "second_process"])]
    server: bool,

    /// TCP port on which both ends agree what to run; with --server, 0 takes a free one and says
    /// which [default: 18515]
    #[arg(long, value_name = "PORT", value_parser = number::within::<u16>(0..=65535), allow_negative_numbers = true)]
    port: Option<u16>,

    /// Type of the queue pairs [default: rc]
    #[arg(long, value_enum, value_name = "TYPE")]
    qp_type: Option<QpType>,

    /// Bytes of a message [default: 64K for bandwidth, 8 for latency, 16M for allreduce]
    #[arg(long, short, value_parser = units::parse_size, value_name = "BYTES", conflicts_with = "all", allow_negative_numbers = true)]
    size: Option<usize>,

    /// All sizes from 2 bytes to 8M
    #[arg(long, short)]
    all: bool,

    /// Queue pairs [default: 1]
    #[arg(long, short, value_name = "N", value_parser = number::within::<usize>(1..=Job::MAX_QPS as u64), allow_negative_numbers = true)]
    qps: Option<usize>,

    /// Both ways at the same time
    #[arg(long, short)]
    bidirectional: bool,

    /// Measure so many messages per queue pair
    #[arg(long, short, value_name = "N", value_parser = number::within::<u64>(1..=number::MANY), conflicts_with = "duration", allow_negative_numbers = true)]
    count: Option<u64>,

    /// Measure each figure of each transport for so long [default: 1; summary 0.6,
    /// --all 0.25, allreduce 2]
    #[arg(long, short, value_parser = units::parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// Messages in flight per queue pair [default: 128]
    #[arg(long, value_name = "N", value_parser = number::within::<usize>(1..=Job::MAX_DEPTH as u64), allow_negative_numbers = true)]
    depth: Option<usize>,

    /// Payload of a packet [default: the most that both ports have]
    #[arg(long, value_name = "BYTES", value_parser = mtus())]
    mtu: Option<usize>,

    #[command(flatten)]
    device: device::Choice,

    /// RDMA only, nothing to compare it with
    #[arg(long)]
    no_baselines: bool,

    /// Processes of an allreduce [default: 4]
    #[arg(long, short = 'n', value_name = "N", value_parser = number::within::<usize>(2..=allreduce::Rank::MOST as u64), allow_negative_numbers = true)]
    ranks: Option<usize>,

    /// Be the other end of the process that started this one, over standard input
    #[arg(long, hide = true)]
    second_process: bool,
}

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goal {
    Summary,
    Test(Test),
    Allreduce,
}

impl ValueEnum for Goal {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Summary,
            Self::Test(Test::WriteBw),
            Self::Test(Test::WriteLat),
            Self::Test(Test::SendBw),
            Self::Test(Test::SendLat),
            Self::Test(Test::ReadBw),
            Self::Test(Test::ReadLat),
            Self::Test(Test::AtomicLat),
            Self::Allreduce,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Summary => {
                Some(PossibleValue::new("summary").help("The important figures; the default"))
            }
            Self::Test(test) => test.to_possible_value(),
            Self::Allreduce => Some(
                PossibleValue::new("allreduce")
                    .help("Ring all-reduce over processes of this machine, result checked"),
            ),
        }
    }
}

pub(crate) fn run(args: &Args, config: &Config, out: &mut Output) -> Result<Outcome, Error> {
    if args.second_process {
        return serve::first_process(&args.device);
    }
    args.check()?;
    if !config.faults.is_perfect() {
        let Faults { seed, .. } = config.faults;
        eprintln!(
            "hirail perf: faults on purpose: {} of seed {seed}",
            config.faults
        );
    }
    if args.server {
        return serve::forever(args.port.unwrap_or(PORT), &args.device);
    }
    match args.test {
        Goal::Summary => summary(args, out),
        Goal::Test(test) => one_test(args, test, out),
        Goal::Allreduce => allreduce::run(&args.allreduce()?, out),
    }
}

/// The important figures.
fn summary(args: &Args, out: &mut Output) -> Result<Outcome, Error> {
    let mut peer = args.peer()?;
    let amount = args.amount(Duration::from_millis(600));
    let jobs = summary::figures(args.depth(), args.mtu(&mut peer)?);
    let rows = measure(args, &mut peer, &jobs, amount)?;
    if out.is_json() {
        out.json(&rows)?
    } else {
        report::overview(&rows, peer.control.peer(), out)?
    }
    Ok(Outcome::Clean)
}

/// One test, in one size or all.
fn one_test(args: &Args, test: Test, out: &mut Output) -> Result<Outcome, Error> {
    let job = args.job(test)?;
    let mut peer = args.peer()?;
    let job = Job {
        mtu: args.mtu(&mut peer)?,
        ..job
    };
    let sizes: Vec<usize> = if args.all {
        ALL_SIZES
            .map(|power| 1 << power)
            .filter(|&bytes| job.fits(bytes))
            .collect()
    } else {
        vec![job.bytes]
    };
    let amount = args.amount(Duration::from_millis(if args.all { 250 } else { 1000 }));
    let unit = Unit::of(test.shape());
    let jobs: Vec<_> = sizes
        .into_iter()
        .map(|bytes| Job { bytes, ..job })
        .map(|job| (job, unit, summary::title(&job)))
        .collect();
    if let Some((job, ..)) = jobs.iter().find(|(job, ..)| !job.fits(job.bytes)) {
        return Err(Error::new(format!(
            "a UD message is one packet, so --size is at most {} here",
            job.mtu
        )));
    }
    let rows = measure(args, &mut peer, &jobs, amount)?;
    if out.is_json() {
        out.json(&rows)?
    } else {
        report::detail(&rows, peer.control.peer(), out)?
    }
    Ok(Outcome::Clean)
}

/// Runs jobs one after another.
fn measure(
    args: &Args,
    peer: &mut Peer,
    jobs: &[(Job, Unit, String)],
    amount: Amount,
) -> Result<Vec<Row>, Error> {
    let transports = if args.no_baselines {
        &Transport::ALL[..1]
    } else {
        &Transport::ALL[..]
    };
    let over = peer.place.over()?;
    let progress = Progress::new(jobs.len());
    let mut rows = Vec::new();
    let mut said = Vec::new();
    for (job, unit, title) in jobs {
        progress.say(title.clone());
        let measured = bench::measure(peer, job, transports, amount, &progress)?;
        rows.push(Row::new(title.clone(), job, *unit, &over, &measured));
        said.extend(measured.notes);
    }
    drop(progress);
    said.dedup();
    notes(&said);
    Ok(rows)
}

/// Says on standard error what is missing from the results.
fn notes(notes: &[String]) {
    for note in notes {
        // The results go elsewhere and are worth printing all the same.
        let _ = writeln!(io::stderr(), "hirail perf: {note}");
    }
}

impl Args {
    /// Refuses options that have no meaning for what was asked for.
    fn check(&self) -> Result<(), Error> {
        let stream = matches!(self.test, Goal::Test(test) if test.shape() == Shape::Stream);
        let is_test = matches!(self.test, Goal::Test(_));
        let is_ring = self.test == Goal::Allreduce;
        let client = "the client, not the server";
        let refused = [
            (self.server && self.duration.is_some(), "--duration", client),
            (self.server && self.depth.is_some(), "--depth", client),
            (self.server && self.mtu.is_some(), "--mtu", client),
            (self.server && self.no_baselines, "--no-baselines", client),
            (self.server && self.test != Goal::Summary, "TEST", client),
            (
                self.port.is_some() && !self.server && self.address.is_none(),
                "--port",
                "--server, or a test with an ADDRESS",
            ),
            (
                self.port == Some(0) && !self.server,
                "--port 0",
                "--server, which then takes a free port",
            ),
            (
                self.address.is_some() && is_ring,
                "ADDRESS",
                "tests, not allreduce",
            ),
            (
                self.qp_type.is_some() && !is_test,
                "--qp-type",
                "a single test",
            ),
            (
                self.size.is_some() && !is_test && !is_ring,
                "--size",
                "a single test or allreduce",
            ),
            (self.all && !is_test, "--all", "a single test"),
            (
                self.all && self.test == Goal::Test(Test::AtomicLat),
                "--all",
                "tests with a size",
            ),
            (
                self.qps.is_some() && !stream,
                "--qps",
                "the bandwidth tests",
            ),
            (
                self.bidirectional && !stream,
                "--bidirectional",
                "the bandwidth tests",
            ),
            (self.count.is_some() && !is_test, "--count", "a single test"),
            (self.ranks.is_some() && !is_ring, "--ranks", "allreduce"),
            (
                self.depth.is_some() && is_ring,
                "--depth",
                "tests, not allreduce",
            ),
            (
                self.mtu.is_some() && is_ring,
                "--mtu",
                "tests, not allreduce",
            ),
        ];
        match refused.into_iter().find(|(refused, ..)| *refused) {
            Some((_, option, place)) => Err(Error::new(format!("{option} is for {place}"))),
            None => Ok(()),
        }
    }

    /// The job of one test. Its path MTU is only known once the peer is.
    fn job(&self, test: Test) -> Result<Job, Error> {
        let qp_type = self.qp_type.unwrap_or(QpType::Rc);
        if let Some(why) = test.unfit_for(qp_type) {
            let (test, qp_type) = (test.name(), qp_type.name());
            return Err(Error::new(format!(
                "{test} cannot run over {qp_type}: {why}"
            )));
        }
        let usual = match test.shape() {
            _ if test == Test::AtomicLat => WORD,
            Shape::Stream if qp_type == QpType::Ud => ETHERNET_MTU,
            Shape::Stream => LARGE,
            Shape::PingPong | Shape::RoundTrip => SMALL,
        };
        let bytes = self.size.unwrap_or(usual);
        if test == Test::AtomicLat && bytes != WORD {
            return Err(Error::new(format!(
                "an atomic operation has {WORD} bytes, not {bytes}"
            )));
        }
        if !(1..=Job::MAX_BYTES).contains(&bytes) {
            let most = Job::MAX_BYTES;
            return Err(Error::new(format!("--size is 1 to {most}, not {bytes}")));
        }
        Ok(Job {
            test,
            qp_type,
            bytes,
            qps: self.qps.unwrap_or(1),
            bidirectional: self.bidirectional,
            depth: self.depth(),
            mtu: ETHERNET_MTU,
        })
    }

    fn allreduce(&self) -> Result<allreduce::Plan, Error> {
        let ranks = self.ranks.unwrap_or(4);
        let float = size_of::<f32>();
        let bytes = self.size.unwrap_or(16 << 20);
        let most = allreduce::Rank::MOST_ELEMENTS * float;
        if !bytes.is_multiple_of(float) || !(ranks * float..=most).contains(&bytes) {
            return Err(Error::new(format!(
                "--size of an all-reduce over {ranks} ranks is a multiple of {float} from {} \
                 to {most} bytes, not {bytes}",
                ranks * float
            )));
        }
        Ok(allreduce::Plan {
            ranks,
            bytes,
            duration: self.duration.unwrap_or(Duration::from_secs(2)),
            baseline: !self.no_baselines,
            device: self.device.clone(),
        })
    }

    fn depth(&self) -> usize {
        self.depth.unwrap_or(128)
    }

    /// The path MTU: as asked for, or the largest that both ports have.
    fn mtu(&self, peer: &mut Peer) -> Result<usize, Error> {
        let most = peer.path_mtu()?;
        match self.mtu {
            Some(mtu) if mtu > most => Err(Error::new(format!(
                "--mtu is at most {most} between these ports, not {mtu}"
            ))),
            Some(mtu) => Ok(mtu),
            None => Ok(most),
        }
    }

    fn amount(&self, usual: Duration) -> Amount {
        match self.count {
            Some(count) => Amount::Count(count),
            None => Amount::Time(self.duration.unwrap_or(usual)),
        }
    }

    fn peer(&self) -> Result<Peer, Error> {
        match &self.address {
            Some(address) => Peer::connect(address, self.port.unwrap_or(PORT), &self.device),
            None => Peer::spawn(&self.device),
        }
    }
}

/// Takes one of [`MTUS`].
fn mtus() -> impl TypedValueParser<Value = usize> {
    PossibleValuesParser::new(MTUS).map(|text| text.parse().expect("they are numbers"))
}
