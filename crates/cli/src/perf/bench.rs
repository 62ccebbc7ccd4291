//! Runs one job over all transports, turn by turn: a disturbance of the machine hits them alike,
//! and what is compared was measured within the same second.

use std::time::Duration;

use crate::outcome::Error;
use crate::perf::control::{Answer, Ask};
use crate::perf::cpu;
use crate::perf::endpoint::{self, Endpoint};
use crate::perf::job::{Job, Role, Transport};
use crate::perf::peer::Peer;
use crate::perf::progress::Progress;
use crate::perf::series::{Sample, Series};

/// How much of a job is measured, for each transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// So many messages per queue pair.
    Count(u64),
    /// As many as go into this time.
    Time(Duration),
}

/// Turns that each transport gets at least, if there is enough to do.
const TURNS: u64 = 5;
/// Longest turn.
const TURN: Duration = Duration::from_millis(500);
/// A warm-up that lasts this long says how fast the transport is.
const WARM: Duration = Duration::from_millis(20);

/// The results of one job.
pub(crate) struct Measured {
    /// A series per transport that could do it.
    pub(crate) series: Vec<(Transport, Series)>,
    /// Why a baseline is missing: sentences.
    pub(crate) notes: Vec<String>,
}

/// What a lane has left to do.
#[derive(Clone, Copy)]
enum Left {
    Messages { left: u64, of: u64 },
    Seconds { left: f64, of: f64 },
}

impl Left {
    fn all(amount: Amount) -> Self {
        match amount {
            Amount::Count(of) => Self::Messages { left: of, of },
            Amount::Time(time) => {
                let of = time.as_secs_f64();
                Self::Seconds { left: of, of }
            }
        }
    }

    /// Messages of the next turn at this pace; 0 when nothing is left that would say anything new.
    fn turn(self, pace: f64) -> u64 {
        let longest = (pace * TURN.as_secs_f64()).max(1.0) as u64;
        match self {
            Self::Messages { left, of } => of.div_ceil(TURNS).min(longest).min(left),
            Self::Seconds { left, of } if left < 0.1 * (of / TURNS as f64) => 0,
            Self::Seconds { left, of } => {
                ((pace * left.min(of / TURNS as f64)).max(1.0) as u64).min(longest)
            }
        }
    }

    /// A turn of that was taken.
    fn took(&mut self, messages: u64, elapsed: Duration) {
        match self {
            Self::Messages { left, .. } => *left -= messages,
            Self::Seconds { left, .. } => *left -= elapsed.as_secs_f64().max(1e-6),
        }
    }

    /// The share that is done.
    fn done(self) -> f64 {
        match self {
            Self::Messages { left, of } => 1.0 - left as f64 / of as f64,
            Self::Seconds { left, of } => 1.0 - left.max(0.0) / of,
        }
    }
}

/// One transport, both of its ends connected.
struct Lane {
    transport: Transport,
    /// Number of the other end at the server.
    number: usize,
    end: Box<dyn Endpoint>,
    /// What is left to do.
    left: Left,
    /// Messages per second that each queue pair sent in the last run.
    pace: f64,
    /// Messages that one run of both ends sends, for one that each queue pair sends.
    flows: u64,
    series: Series,
}

/// Runs `job` over `transports`. Without RDMA there is no result; without a baseline there is a
/// note.
pub(crate) fn measure(
    peer: &mut Peer,
    job: &Job,
    transports: &[Transport],
    amount: Amount,
    progress: &Progress,
) -> Result<Measured, Error> {
    let mut notes = Vec::new();
    let mut give_up = |transport: Transport, error: Error| match transport {
        Transport::Rdma => Err(error),
        Transport::Tcp | Transport::Udp => {
            notes.push(format!("{} was not measured: {error}", transport.name()));
            Ok(())
        }
    };
    let mut lanes: Vec<Lane> = Vec::new();
    let mut opened = 0;
    for &transport in transports {
        let lane = Lane::open(peer, job, transport, &mut opened);
        match lane.and_then(|mut lane| lane.warm_up(peer, amount).map(|()| lane)) {
            Ok(lane) => lanes.push(lane),
            Err(error) => {
                peer.control.is_alive()?;
                give_up(transport, error)?;
            }
        }
    }
    while lanes.iter().any(|lane| lane.next_turn() > 0) {
        for number in (0..lanes.len()).rev() {
            if let Err(error) = lanes[number].take_turn(peer) {
                peer.control.is_alive()?;
                give_up(lanes[number].transport, error)?;
                lanes.remove(number);
            }
        }
        progress.at(lanes
            .iter()
            .map(|lane| lane.left.done())
            .fold(1.0, f64::min));
    }
    progress.next();
    let series = lanes
        .into_iter()
        .map(|lane| (lane.transport, lane.series))
        .collect();
    match peer.control.ask(&Ask::Close)? {
        Answer::Done => Ok(Measured { series, notes }),
        _ => Err(peer.control.misfit()),
    }
}

impl Lane {
    /// Opens and connects both ends. `opened` counts the ends that the server has open.
    fn open(
        peer: &mut Peer,
        job: &Job,
        transport: Transport,
        opened: &mut usize,
    ) -> Result<Self, Error> {
        let ask = Ask::Open {
            transport,
            job: *job,
        };
        let Answer::Opened { address } = peer.control.ask(&ask)? else {
            return Err(peer.control.misfit());
        };
        let number = *opened;
        *opened += 1;
        let mut end = endpoint::open(transport, job, &peer.place)?;
        let theirs = end.address();
        peer.control.send(&Ask::Connect {
            end: number,
            address: theirs,
        })?;
        let connected = end.connect(&address);
        let answered = peer.control.answer()?;
        connected?;
        let Answer::Done = answered else {
            return Err(peer.control.misfit());
        };
        let directions = [Role::Client, Role::Server]
            .iter()
            .filter(|&&r| job.sends(r))
            .count();
        Ok(Self {
            transport,
            number,
            end,
            left: Left::Messages { left: 0, of: 1 },
            pace: 1.0,
            flows: (job.qps * directions) as u64,
            series: Series::default(),
        })
    }

    /// Runs until it is known how many messages make a turn.
    fn warm_up(&mut self, peer: &mut Peer, amount: Amount) -> Result<(), Error> {
        let most = match amount {
            Amount::Count(messages) => messages,
            Amount::Time(_) => u64::MAX,
        };
        let mut messages = 16.min(most);
        loop {
            let elapsed = self.run(peer, messages)?.elapsed;
            if elapsed >= WARM || messages >= most {
                break;
            }
            let factor = 1.2 * WARM.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
            messages = ((messages as f64 * factor.clamp(1.2, 32.0)) as u64 + 1).min(most);
        }
        self.series = Series::default();
        self.left = Left::all(amount);
        Ok(())
    }

    fn next_turn(&self) -> u64 {
        self.left.turn(self.pace)
    }

    fn take_turn(&mut self, peer: &mut Peer) -> Result<(), Error> {
        let messages = self.next_turn();
        if messages > 0 {
            let sample = self.run(peer, messages)?;
            self.series.samples.push(sample);
            self.left.took(messages, sample.elapsed);
        }
        Ok(())
    }

    /// One run of both ends.
    fn run(&mut self, peer: &mut Peer, messages: u64) -> Result<Sample, Error> {
        let Answer::Started = peer.control.ask(&Ask::Run {
            end: self.number,
            messages,
        })?
        else {
            return Err(peer.control.misfit());
        };
        let before = cpu::time();
        let here = self.end.run(messages);
        let client_cpu = cpu::time().saturating_sub(before);
        let (here, there) = match here {
            // That ends everything, so the other end's answer is not waited for.
            Err(error) if self.transport == Transport::Rdma => return Err(error),
            // Other transports go on: both ends must be done with this run.
            here => {
                let there = peer.control.answer();
                (here?, there)
            }
        };
        let Answer::Ran {
            elapsed,
            cpu,
            delivered,
            counters,
        } = there?
        else {
            return Err(peer.control.misfit());
        };
        if let Some(round_trips) = here.round_trips {
            match &mut self.series.round_trips {
                Some(all) => all
                    .add(round_trips)
                    .expect("all histograms have the same bounds"),
                none => *none = Some(round_trips),
            }
        }
        for (name, value) in here.counters.into_iter().chain(counters) {
            *self.series.counters.entry(name).or_default() += value;
        }
        let sent = messages * self.flows;
        let came = match (here.delivered, delivered) {
            (None, None) => sent,
            (here, there) => here.unwrap_or(0) + there.unwrap_or(0),
        };
        let elapsed = here
            .elapsed
            .max(elapsed.map(Duration::from_nanos))
            .unwrap_or_default();
        self.pace = messages as f64 / elapsed.as_secs_f64().max(1e-9);
        Ok(Sample {
            messages: came.min(sent),
            sent,
            elapsed,
            client_cpu,
            server_cpu: Duration::from_nanos(cpu),
        })
    }
}
