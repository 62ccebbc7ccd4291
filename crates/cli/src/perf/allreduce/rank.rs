//! One rank of a ring all-reduce: which part goes where in which step, and whether the sums came
//! out right.

use std::ops::Range;

use serde_json::Value;

use crate::outcome::Error;
use crate::perf::allreduce::rdma::RdmaRing;
use crate::perf::allreduce::tcp::TcpRing;
use crate::perf::endpoint::Place;
use crate::perf::job::Transport;

/// What a received part does to the part that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combine {
    /// Is added to it.
    Add,
    /// Replaces it.
    Replace,
}

/// A rank's vector and its connections to both neighbours. Indices count elements.
pub(crate) trait Ring {
    /// What both neighbours must know to reach this rank.
    fn address(&self) -> Value;

    /// Gets ready to receive from the previous and send to the next rank, which do the same
    /// meanwhile.
    fn connect(&mut self, previous: &Value, next: &Value) -> Result<(), Error>;

    /// Fills the vector.
    fn store(&mut self, values: &[f32]);

    /// The vector.
    fn values(&self) -> Vec<f32>;

    /// Sends one part to the next rank while another comes from the previous one.
    fn step(
        &mut self,
        send: Range<usize>,
        receive: Range<usize>,
        combine: Combine,
    ) -> Result<(), Error>;
}

/// Largest sum that an `f32` represents exactly together with all smaller ones.
const EXACT: u64 = 1 << 24;
/// Ranks start from whole numbers below this.
const START: usize = 16;

/// How many reductions in a row stay exact with so many ranks.
pub(crate) fn most_times(ranks: usize) -> u32 {
    let ranks = ranks.max(2) as u64;
    (1..)
        .take_while(|&n| ranks.pow(n) * START as u64 <= EXACT)
        .last()
        .unwrap_or(1)
}

/// One rank.
pub(crate) struct Rank {
    rank: usize,
    ranks: usize,
    elements: usize,
    ring: Box<dyn Ring>,
}

impl Rank {
    /// Most ranks of a ring.
    pub(crate) const MOST: usize = 64;
    /// Most elements of a vector, 1 GiB of them.
    pub(crate) const MOST_ELEMENTS: usize = 1 << 28;

    /// Sets up rank number `rank` of `ranks`, all on this machine.
    pub(crate) fn open(
        transport: Transport,
        rank: usize,
        ranks: usize,
        elements: usize,
        place: &Place,
    ) -> Result<Self, Error> {
        let valid = (2..=Self::MOST).contains(&ranks)
            && rank < ranks
            && (ranks..=Self::MOST_ELEMENTS).contains(&elements);
        if !valid {
            return Err(Error::new("the all-reduce is out of range"));
        }
        let ring: Box<dyn Ring> = match transport {
            Transport::Tcp => Box::new(TcpRing::open(elements, place)?),
            Transport::Rdma => Box::new(RdmaRing::open(elements, place)?),
            Transport::Udp => return Err(Error::new("there is no all-reduce over plain UDP")),
        };
        Ok(Self {
            rank,
            ranks,
            elements,
            ring,
        })
    }

    /// What both neighbours must know to reach this rank.
    pub(crate) fn address(&self) -> Value {
        self.ring.address()
    }

    /// Connects to both neighbours.
    pub(crate) fn connect(&mut self, previous: &Value, next: &Value) -> Result<(), Error> {
        self.ring.connect(previous, next)
    }

    /// Fills the vector with this rank's numbers.
    pub(crate) fn load(&mut self) {
        let values: Vec<f32> = (0..self.elements).map(|i| start(self.rank, i)).collect();
        self.ring.store(&values);
    }

    /// Reduces `times` times in a row, each on the result of the one before.
    pub(crate) fn reduce(&mut self, times: u32) -> Result<(), Error> {
        for _ in 0..times {
            for (send, receive, combine) in steps(self.rank, self.ranks) {
                self.ring
                    .step(self.part(send), self.part(receive), combine)?;
            }
        }
        Ok(())
    }

    /// What is wrong with the vector after `times` reductions, if anything: every element is
    /// compared with the sum that it must be.
    pub(crate) fn check(&self, times: u32) -> Option<String> {
        let growth = (self.ranks as f32).powi(times as i32 - 1);
        // Elements repeat with the period of `start`.
        let sums: Vec<f32> = (0..START)
            .map(|i| (0..self.ranks).map(|rank| start(rank, i)).sum::<f32>() * growth)
            .collect();
        self.ring
            .values()
            .iter()
            .enumerate()
            .find_map(|(i, &value)| {
                let sum = sums[i % START];
                (value != sum).then(|| {
                    format!(
                        "rank {} has {value} as element {i}, which must be {sum}",
                        self.rank
                    )
                })
            })
    }

    fn part(&self, part: usize) -> Range<usize> {
        let edge = |part| part * self.elements / self.ranks;
        edge(part)..edge(part + 1)
    }
}

/// Element `i` of `rank` before the first reduction.
fn start(rank: usize, i: usize) -> f32 {
    ((i * 5 + rank * 3) % START) as f32
}

/// The steps of one reduction: part to send, part to receive, and what to do with that. After the
/// first half rank r has the whole sum of part r + 1; the second half passes the sums round.
fn steps(rank: usize, ranks: usize) -> impl Iterator<Item = (usize, usize, Combine)> {
    let scatter = (0..ranks - 1).map(move |s| (rank + ranks - s, Combine::Add));
    let gather = (0..ranks - 1).map(move |s| (rank + 1 + ranks - s, Combine::Replace));
    scatter
        .chain(gather)
        .map(move |(send, combine)| (send % ranks, (send + ranks - 1) % ranks, combine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_agree_on_every_step() {
        for ranks in 2..=9 {
            for rank in 0..ranks {
                let next = (rank + 1) % ranks;
                for (ours, theirs) in steps(rank, ranks).zip(steps(next, ranks)) {
                    assert_eq!(
                        ours.0, theirs.1,
                        "what rank {rank} sends, rank {next} receives"
                    );
                    assert_ne!(ours.0, ours.1);
                }
            }
        }
    }

    #[test]
    fn steps_reduce() {
        for ranks in 2..=9 {
            let mut vectors: Vec<Vec<u64>> = (0..ranks)
                .map(|rank| (0..ranks).map(|i| 1 << (rank + 8 * (i % 7))).collect())
                .collect();
            let sums: Vec<u64> = (0..ranks)
                .map(|i| vectors.iter().map(|v| v[i]).sum())
                .collect();
            let schedule: Vec<Vec<_>> = (0..ranks).map(|r| steps(r, ranks).collect()).collect();
            for step in 0..2 * (ranks - 1) {
                let sent: Vec<u64> = (0..ranks)
                    .map(|rank| vectors[rank][schedule[rank][step].0])
                    .collect();
                for rank in 0..ranks {
                    let (_, part, combine) = schedule[rank][step];
                    let value = sent[(rank + ranks - 1) % ranks];
                    let slot = &mut vectors[rank][part];
                    *slot = if combine == Combine::Add {
                        *slot + value
                    } else {
                        value
                    };
                }
            }
            assert!(
                vectors.iter().all(|vector| *vector == sums),
                "{ranks} ranks"
            );
        }
    }

    #[test]
    fn sums_stay_exact() {
        for ranks in 2..=Rank::MOST {
            let times = most_times(ranks);
            assert!(times >= 3, "{ranks} ranks reduce {times} times");
            assert!((ranks as u64).pow(times) * START as u64 <= EXACT);
        }
    }
}
