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
const TURNS: u32 = 5;
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

/// One transport, both of its ends connected.
struct Lane {
    transport: Transport,
    /// Number of the other end at the server.
    number: usize,
    end: Box<dyn Endpoint>,
    /// Messages to send each way, when all turns are over.
    total: u64,
    /// Messages that are left of them.
    left: u64,
    /// Messages of a turn.
    turn: u64,
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
            Err(error) => give_up(transport, error)?,
        }
    }
    while lanes.iter().any(|lane| lane.left > 0) {
        for number in (0..lanes.len()).rev() {
            if let Err(error) = lanes[number].take_turn(peer) {
                give_up(lanes[number].transport, error)?;
                lanes.remove(number);
            }
        }
        let done = lanes
            .iter()
            .map(|lane| 1.0 - lane.left as f64 / lane.total.max(1) as f64);
        progress.at(done.fold(1.0, f64::min));
    }
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
            total: 0,
            left: 0,
            turn: 1,
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
        let pace = loop {
            let elapsed = self.run(peer, messages)?.elapsed;
            let seconds = elapsed.as_secs_f64().max(1e-9);
            if elapsed >= WARM || messages >= most {
                break messages as f64 / seconds;
            }
            let factor = (1.2 * WARM.as_secs_f64() / seconds).clamp(1.2, 32.0);
            messages = ((messages as f64 * factor) as u64 + 1).min(most);
        };
        self.series = Series::default();
        let longest = ((pace * TURN.as_secs_f64()) as u64).max(1);
        self.total = match amount {
            Amount::Count(messages) => messages,
            Amount::Time(time) => ((pace * time.as_secs_f64()) as u64).max(1),
        };
        self.turn = self.total.div_ceil(u64::from(TURNS)).min(longest);
        self.left = self.total;
        Ok(())
    }

    fn take_turn(&mut self, peer: &mut Peer) -> Result<(), Error> {
        let messages = self.turn.min(self.left);
        if messages > 0 {
            let sample = self.run(peer, messages)?;
            self.series.samples.push(sample);
            self.left -= messages;
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
        let there = peer.control.answer();
        let here = here?;
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
        Ok(Sample {
            messages: came.min(sent),
            sent,
            elapsed,
            client_cpu,
            server_cpu: Duration::from_nanos(cpu),
        })
    }
}
