//! Runs one job over all transports, turn by turn: a disturbance of the machine hits them alike,
//! and what is compared was measured within the same second.

use std::time::Duration;

use crate::outcome::Error;
use crate::perf::control::{Answer, Ask};
use crate::perf::cpu;
use crate::perf::endpoint::{self, Endpoint};
use crate::perf::job::{Job, Transport};
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

/// Turns that each transport gets at least.
const TURNS: u32 = 5;
/// Longest turn.
const TURN: Duration = Duration::from_millis(500);
/// A warm-up that lasts this long says how fast the transport is.
const WARM: Duration = Duration::from_millis(20);

impl Amount {
    /// Turns that each transport gets.
    pub(crate) fn turns(self) -> u32 {
        match self {
            Self::Count(messages) => u32::try_from(messages).unwrap_or(TURNS).min(TURNS),
            Self::Time(time) => {
                let turns = time.as_nanos().div_ceil(TURN.as_nanos());
                u32::try_from(turns).unwrap_or(u32::MAX).max(TURNS)
            }
        }
    }

    /// Messages of a turn of a transport that takes `pace` messages per second.
    fn per_turn(self, pace: f64) -> u64 {
        let messages = match self {
            Self::Count(messages) => messages.div_ceil(u64::from(self.turns().max(1))),
            Self::Time(time) => (pace * (time / self.turns()).as_secs_f64()) as u64,
        };
        messages.max(1)
    }
}

/// The results of one job.
pub(crate) struct Measured {
    /// A series per transport that could do it.
    pub(crate) series: Vec<(Transport, Series)>,
    /// Why a transport is missing: sentences.
    pub(crate) notes: Vec<String>,
}

/// One transport, both of its ends connected.
struct Lane {
    transport: Transport,
    /// Number of the other end at the server.
    number: usize,
    end: Box<dyn Endpoint>,
    messages: u64,
    series: Series,
}

/// Runs `job` over `transports`.
pub(crate) fn measure(
    peer: &mut Peer,
    job: &Job,
    transports: &[Transport],
    amount: Amount,
    progress: &Progress,
) -> Result<Measured, Error> {
    let mut notes = Vec::new();
    let mut lanes = Vec::new();
    let mut opened = 0;
    for &transport in transports {
        match Lane::open(peer, job, transport, &mut opened)
            .and_then(|mut lane| lane.warm_up(peer, amount).map(|()| lane))
        {
            Ok(lane) => lanes.push(lane),
            Err(error) => notes.push(format!("{} was not measured: {error}", transport.name())),
        }
    }
    for _ in 0..amount.turns() {
        lanes.retain_mut(|lane| match lane.turn(peer) {
            Ok(()) => true,
            Err(error) => {
                let name = lane.transport.name();
                notes.push(format!("{name} was given up: {error}"));
                false
            }
        });
        progress.step();
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
        let Answer::Opened { address } = peer.control.ask(&Ask::Open {
            transport,
            job: *job,
        })?
        else {
            return Err(peer.control.misfit());
        };
        let number = *opened;
        *opened += 1;
        let mut end = endpoint::open(transport, job, peer.place)?;
        peer.control.send(&Ask::Connect {
            end: number,
            address: end.address(),
        })?;
        let connected = end.connect(&address);
        match (peer.control.answer(), connected) {
            (Ok(Answer::Done), Ok(())) => Ok(Self {
                transport,
                number,
                end,
                messages: 1,
                series: Series::default(),
            }),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(())) => Err(peer.control.misfit()),
        }
    }

    /// Runs until it is known how many messages make a turn.
    fn warm_up(&mut self, peer: &mut Peer, amount: Amount) -> Result<(), Error> {
        let most = match amount {
            Amount::Count(messages) => messages,
            Amount::Time(_) => u64::MAX,
        };
        self.messages = 16.min(most);
        loop {
            let sample = self.run(peer)?;
            let seconds = sample.elapsed.as_secs_f64().max(1e-9);
            if sample.elapsed >= WARM || self.messages >= most {
                self.messages = amount.per_turn(self.messages as f64 / seconds);
                break;
            }
            let factor = (1.2 * WARM.as_secs_f64() / seconds).clamp(1.2, 32.0);
            self.messages = ((self.messages as f64 * factor) as u64).min(most);
        }
        self.series = Series::default();
        Ok(())
    }

    fn turn(&mut self, peer: &mut Peer) -> Result<(), Error> {
        let sample = self.run(peer)?;
        self.series.samples.push(sample);
        Ok(())
    }

    /// One run of both ends.
    fn run(&mut self, peer: &mut Peer) -> Result<Sample, Error> {
        let messages = self.messages;
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
        let Answer::Ran { elapsed, cpu } = there? else {
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
        let elapsed = here
            .elapsed
            .max(elapsed.map(Duration::from_nanos))
            .unwrap_or_default();
        Ok(Sample {
            messages,
            elapsed,
            client_cpu,
            server_cpu: Duration::from_nanos(cpu),
        })
    }
}
