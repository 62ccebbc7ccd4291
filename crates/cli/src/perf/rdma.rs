//! The RDMA end: queue pairs of this library on one completion queue, polled.
//!
//! Bandwidth tests keep `depth` messages of each queue pair in flight, posted in batches of which
//! the last asks for a completion. `write-lat` polls memory at both ends, as programs do that wait
//! for data; everything else polls the completion queue. An end that only serves polls as well.
//!
//! Beside the queue pairs of the job there is a reliable one between the ends, over which each
//! writes words into the other's memory: that it is done with a run, and where messages can get
//! lost (UC and UD) how many have come, so that a sender does not outrun its receiver.

use std::time::{Duration, Instant};

use hirail::{
    Access, ConnectOptions, Context, Cq, Destination, Mr, Qp, QpEndpoint, RemoteMemory, Send,
    SendOp, Wc, WcStatus,
};
use hirail_vocab::{Counter, CounterSnapshot};
use hirail_wire::{PathMtu, QKey, Rkey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::Error;
use crate::perf::control::Lifeline;
use crate::perf::endpoint::{Endpoint, Place, Ran, parse_address, round_trips};
use crate::perf::job::{Job, QpType, Role, Shape, Test};
use crate::perf::patience::{Patience, STALL};

/// Most messages that are posted at once, and of which one asks for a completion.
const BATCH: usize = 32;
/// Messages up to this size are copied when they are posted.
const INLINE: usize = 64;
/// Completions taken at once.
const TAKE: usize = 64;
/// Sends between two completions of a round-trip test.
const SIGNAL_EVERY: u64 = 16;
/// Bytes that a UD receive needs in front of the message.
const GRH: usize = 40;
/// All memory of a job is at most about this large: queue pairs share buffers beyond it.
const MEMORY: usize = 64 << 20;
/// Bytes in flight at most where nothing holds a sender back.
const UNHELD: usize = 128 << 10;
/// Silence after which what is in flight must have got lost.
const LOST: Duration = Duration::from_millis(20);
/// Queue key of the datagram tests.
const QKEY: QKey = QKey(0x6869_7261);

/// Words at the start of an end's memory, a cache line each.
mod word {
    /// Number of the last run that the other end is done with; written by it.
    pub(super) const DONE: usize = 0;
    /// Messages that have come to the other end in all runs; written by it.
    pub(super) const CREDIT: usize = 64;
    /// What is written to the other end's words.
    pub(super) const DONE_SOURCE: usize = 128;
    pub(super) const CREDIT_SOURCE: usize = 192;
    /// Where buffers start.
    pub(super) const END: usize = 256;
}

/// One end of a job over RDMA.
pub(crate) struct Rdma {
    job: Job,
    role: Role,
    lifeline: Lifeline,
    context: Context,
    gid_index: u8,
    cq: Cq,
    mr: Mr,
    layout: Layout,
    control: Qp,
    lanes: Vec<Lane>,
    /// The other end's memory.
    remote: Option<RemoteMemory>,
    /// Runs so far.
    run: u64,
    /// Round trips so far, whose number memory is polled for.
    trips: u64,
    tally: Tally,
    /// What the device had counted at the end of the last run.
    counted: CounterSnapshot,
}

/// A queue pair of the job.
struct Lane {
    qp: Qp,
    /// UD: where messages go.
    destination: Option<Destination>,
    /// Messages of this run that are not posted yet.
    unposted: u64,
    /// Messages posted and not known to be done.
    outstanding: usize,
    /// Those of a round-trip test that were posted after the last one to ask for a completion.
    unsignaled: usize,
}

/// What completions have told.
#[derive(Default)]
struct Tally {
    /// Requests of the control queue pair that are not done.
    control: usize,
    /// Messages posted, in all runs.
    sent: u64,
    /// Of those, how many were given up as lost.
    lost: u64,
    /// Messages received, in all runs.
    received: u64,
    /// Of those, how many the other end was told of.
    told: u64,
}

/// Where buffers are. Queue pairs take slots in turn.
#[derive(Clone, Copy)]
struct Layout {
    slots: usize,
    stride: usize,
}

impl Layout {
    fn new(job: &Job) -> Self {
        let grh = if job.qp_type == QpType::Ud { GRH } else { 0 };
        let line = if job.bytes < 4096 { 64 } else { 4096 };
        let stride = (job.bytes + grh).next_multiple_of(line);
        Self {
            slots: (MEMORY / stride).clamp(1, job.qps),
            stride,
        }
    }

    /// Offset of what queue pair `lane` sends or reads into.
    fn ours(self, lane: usize) -> usize {
        word::END + lane % self.slots * self.stride
    }

    /// Offset of what comes to queue pair `lane`.
    fn theirs(self, lane: usize) -> usize {
        self.ours(lane) + self.slots * self.stride
    }

    fn total(self) -> usize {
        word::END + 2 * self.slots * self.stride
    }
}

/// What a completion is of: the upper half of a work request's number. The lower half of a send's
/// says how many messages it completes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Control,
    Send(usize),
    Receive(usize),
}

impl Tag {
    fn number(self, count: usize) -> u64 {
        let upper = match self {
            Self::Control => 0,
            Self::Send(lane) => (1 << 20) | (lane << 1),
            Self::Receive(lane) => (1 << 20) | (lane << 1) | 1,
        };
        ((upper as u64) << 32) | count as u64
    }

    fn of(number: u64) -> (Self, usize) {
        let (upper, count) = ((number >> 32) as usize, number as u32 as usize);
        let lane = (upper & !(1 << 20)) >> 1;
        match (upper, upper & 1) {
            (0, _) => (Self::Control, count),
            (_, 0) => (Self::Send(lane), count),
            _ => (Self::Receive(lane), count),
        }
    }
}

/// What the other end must know.
#[derive(Serialize, Deserialize)]
struct Address {
    control: String,
    lanes: Vec<String>,
    memory: u64,
    length: u64,
    rkey: u32,
}

impl Rdma {
    /// Makes queue pairs and registers memory.
    pub(crate) fn open(job: &Job, place: &Place) -> Result<Self, Error> {
        let device = place.devices.at(place.local)?;
        let context = device.context.clone();
        let layout = Layout::new(job);
        let receives = Self::receives(job);
        let depth = u32::try_from(job.depth).expect("jobs are checked");
        let entries = job.qps * (job.depth + receives) + 64;
        let cq = context.create_cq(u32::try_from(entries).unwrap_or(u32::MAX))?;
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr = pd.register(layout.total(), access)?;
        let control = pd.qp(&cq, &cq).max_send_wr(16).max_recv_wr(1).build()?;
        let lanes = (0..job.qps).map(|_| {
            let qp = pd
                .qp(&cq, &cq)
                .qp_type(match job.qp_type {
                    QpType::Rc => hirail::QpType::Rc,
                    QpType::Uc => hirail::QpType::Uc,
                    QpType::Ud => hirail::QpType::Ud,
                })
                .max_send_wr(depth)
                .max_recv_wr(u32::try_from(receives.max(1)).expect("jobs are checked"))
                .max_inline_data(INLINE as u32)
                .build()?;
            Ok(Lane {
                qp,
                destination: None,
                unposted: 0,
                outstanding: 0,
                unsignaled: 0,
            })
        });
        let lanes = lanes.collect::<Result<_, Error>>()?;
        Ok(Self {
            job: *job,
            role: place.role,
            lifeline: place.lifeline.clone(),
            gid_index: device.gid_index,
            cq,
            mr,
            layout,
            control,
            lanes,
            remote: None,
            run: 0,
            trips: 0,
            tally: Tally::default(),
            counted: context.counters(),
            context,
        })
    }

    /// Receives that each queue pair has posted.
    fn receives(job: &Job) -> usize {
        match job.test {
            Test::SendBw => job.depth.max(2),
            // An ACK can wait while the peer has receives left that it knows of.
            Test::SendLat => 64,
            _ => 0,
        }
    }

    /// Whether messages can get lost.
    fn is_lossy(&self) -> bool {
        self.job.qp_type != QpType::Rc
    }

    /// Whether the receiver takes part, message by message.
    fn is_two_sided(&self) -> bool {
        matches!(self.job.test, Test::SendBw | Test::SendLat)
    }

    /// Whether the other end starts operations.
    fn serves(&self) -> bool {
        self.role == Role::Server || self.job.bidirectional
    }

    fn remote(&self) -> RemoteMemory {
        self.remote.expect("ends run after they are connected")
    }

    /// What one message of queue pair `lane` is.
    fn operation(&self, lane: usize) -> SendOp {
        let RemoteMemory { addr, rkey, .. } = self.remote();
        let va = addr + self.layout.theirs(lane) as u64;
        match self.job.test {
            Test::WriteBw | Test::WriteLat => SendOp::Write { va, rkey },
            Test::SendBw | Test::SendLat => SendOp::Send,
            Test::ReadBw | Test::ReadLat => SendOp::Read { va, rkey },
            Test::AtomicLat => SendOp::FetchAdd { va, rkey, add: 1 },
        }
    }

    /// Messages of all queue pairs together that may be in flight.
    fn budget(&self) -> u64 {
        if self.is_lossy() && self.is_two_sided() {
            let credit = self.mr.load_u64(word::CREDIT);
            let flying = self.tally.sent.saturating_sub(credit + self.tally.lost);
            let most = self.job.depth.min(UNHELD / self.job.bytes).max(1);
            (most as u64).saturating_sub(flying)
        } else {
            u64::MAX
        }
    }

    /// Posts the next batch of a queue pair, if there is room for it.
    fn post(&mut self, number: usize) -> Result<bool, Error> {
        let batch = (self.job.depth / 4).clamp(1, BATCH);
        let lane = &self.lanes[number];
        let room = self.job.depth - lane.outstanding;
        let count = (batch as u64).min(lane.unposted).min(self.budget());
        if count == 0 || (room as u64) < count {
            return Ok(false);
        }
        let operation = self.operation(number);
        let start = self.layout.ours(number);
        let slices = [self.mr.slice(start..start + self.job.bytes)];
        let inline = [0; INLINE];
        let copied = self.job.bytes <= INLINE && self.job.test != Test::ReadBw;
        let sends = (1..=count).map(|nth| {
            let wr_id = Tag::Send(number).number(count as usize);
            let mut send = Send::new(wr_id, operation, &slices);
            send.flags.signaled = nth == count;
            send.destination = lane.destination;
            if copied {
                (send.slices, send.inline) = (&[], Some(&inline[..self.job.bytes]));
            }
            send
        });
        lane.qp.post_all(sends)?;
        let lane = &mut self.lanes[number];
        lane.unposted -= count;
        lane.outstanding += count as usize;
        self.tally.sent += count;
        Ok(true)
    }

    /// Takes completions; whether there were any.
    fn take(&mut self) -> Result<bool, Error> {
        let mut failed = None;
        let (lanes, tally) = (&mut self.lanes, &mut self.tally);
        // Receives that were used, by queue pair; posted again below.
        let mut used = [0u32; TAKE];
        let mut uses = 0;
        let count = self.cq.poll(TAKE, |wc: Wc| {
            if wc.status != WcStatus::Success {
                failed = failed.or(Some(wc));
                return;
            }
            match Tag::of(wc.wr_id) {
                (Tag::Control, _) => tally.control -= 1,
                (Tag::Send(lane), count) => lanes[lane].outstanding -= count,
                (Tag::Receive(lane), _) => {
                    tally.received += 1;
                    used[uses] = lane as u32;
                    uses += 1;
                }
            }
        })?;
        if let Some(wc) = failed {
            return Err(self.failure(&wc));
        }
        for &lane in &used[..uses] {
            self.post_receive(lane as usize)?;
        }
        Ok(count > 0)
    }

    fn post_receive(&self, number: usize) -> Result<(), Error> {
        let start = self.layout.theirs(number);
        let grh = if self.job.qp_type == QpType::Ud {
            GRH
        } else {
            0
        };
        let slices = [self.mr.slice(start..start + self.job.bytes + grh)];
        Ok(self.lanes[number]
            .qp
            .post_recv(Tag::Receive(number).number(1), &slices)?)
    }

    /// Writes one of our words into the other end's memory.
    fn tell(&mut self, source: usize, target: usize, value: u64) -> Result<(), Error> {
        self.mr.store_u64(source, value);
        let RemoteMemory { addr, rkey, .. } = self.remote();
        let va = addr + target as u64;
        let slices = [self.mr.slice(source..source + 8)];
        let send = Send::new(Tag::Control.number(1), SendOp::Write { va, rkey }, &slices);
        self.control.post(&send)?;
        self.tally.control += 1;
        Ok(())
    }

    fn failure(&self, wc: &Wc) -> Error {
        let status = wc.status.name();
        let what = match Tag::of(wc.wr_id).0 {
            Tag::Control => "a WRITE of the tests' own connection".to_owned(),
            Tag::Receive(_) => "a receive".to_owned(),
            Tag::Send(_) => {
                let qp_type = self.job.qp_type.name().to_uppercase();
                format!("{qp_type} {}", self.job.test.operation())
            }
        };
        let hint = wc.hint().map_or_else(
            || format!("'hirail explain {status}' says what that means"),
            str::to_owned,
        );
        Error::new(format!("{what} ended with {status}; {hint}"))
    }

    /// Streams one way or both, and returns when this end is done and has heard that the other is.
    fn stream(&mut self, messages: u64) -> Result<Ran, Error> {
        let starts = self.role == Role::Client || self.job.bidirectional;
        let serves = self.serves();
        let total = messages * self.lanes.len() as u64;
        let first = self.tally.received;
        let expected = if serves && self.is_two_sided() {
            total
        } else {
            0
        };
        for lane in &mut self.lanes {
            lane.unposted = if starts { messages } else { 0 };
        }
        // Who only serves sees nothing until the end, so it waits as long as a slow run takes.
        let slow = Duration::from_secs(total.saturating_mul(self.job.bytes as u64) >> 24);
        let mut patience = Patience::until(STALL + slow).watching(&self.lifeline);
        let mut lost_after = LOST;
        let mut elapsed = None;
        let mut last_came = Instant::now();
        let start = Instant::now();
        loop {
            let mut moved = false;
            for lane in 0..self.lanes.len() {
                moved |= self.post(lane)?;
            }
            let came = self.take()?;
            moved |= came;
            let quiet = if came {
                last_came = Instant::now();
                false
            } else {
                self.is_lossy() && last_came.elapsed() > Duration::from_millis(1)
            };
            self.grant(quiet)?;
            let sending = self
                .lanes
                .iter()
                .any(|l| l.unposted > 0 || l.outstanding > 0);
            if starts && !sending && elapsed.is_none() {
                elapsed = Some(start.elapsed());
                self.tell(word::DONE_SOURCE, word::DONE, self.run)?;
            }
            let received = self.tally.received - first;
            let all_came = received >= expected || quiet;
            let heard = !serves || (all_came && self.mr.load_u64(word::DONE) >= self.run);
            if !sending && heard && self.tally.control == 0 {
                let delivered = (self.is_lossy() && expected > 0).then_some(received);
                return Ok(Ran {
                    elapsed,
                    delivered,
                    ..Ran::default()
                });
            }
            if moved {
                patience.rewarded();
                lost_after = LOST;
            } else if patience.missed()? > lost_after {
                lost_after += LOST;
                let credit = self.mr.load_u64(word::CREDIT);
                self.tally.lost = self.tally.sent.saturating_sub(credit);
            }
        }
    }

    /// Tells a sender that nothing else holds back how many of its messages have come.
    fn grant(&mut self, quiet: bool) -> Result<(), Error> {
        if !(self.is_lossy() && self.is_two_sided()) || self.tally.control > 8 {
            return Ok(());
        }
        let untold = self.tally.received - self.tally.told;
        let step = (self.job.depth.min(UNHELD / self.job.bytes) / 4).max(1) as u64;
        if untold >= step || (quiet && untold > 0) {
            self.tally.told = self.tally.received;
            self.tell(word::CREDIT_SOURCE, word::CREDIT, self.tally.received)?;
        }
        Ok(())
    }

    /// Sends one message of the first queue pair, its last byte the low byte of `number`.
    fn send_trip(&mut self, number: u64, last: bool) -> Result<(), Error> {
        let bytes = self.job.bytes;
        let start = self.layout.ours(0);
        let slices = [self.mr.slice(start..start + bytes)];
        let mut inline = [0; INLINE];
        let signaled = last || number.is_multiple_of(self.signal_every());
        let wr_id = Tag::Send(0).number(self.lanes[0].unsignaled + 1);
        let mut send = Send::new(wr_id, self.operation(0), &slices);
        send.flags.signaled = signaled;
        send.destination = self.lanes[0].destination;
        if bytes <= INLINE {
            inline[bytes - 1] = number as u8;
            (send.slices, send.inline) = (&[], Some(&inline[..bytes]));
        } else {
            self.mr.write(start + bytes - 1, &[number as u8]);
        }
        let lane = &mut self.lanes[0];
        lane.outstanding += 1;
        lane.unsignaled = if signaled { 0 } else { lane.unsignaled + 1 };
        Ok(lane.qp.post(&send)?)
    }

    fn signal_every(&self) -> u64 {
        SIGNAL_EVERY.min(self.job.depth as u64 / 2).max(1)
    }

    /// Takes completions until the first queue pair has at most `most` messages outstanding.
    fn drain(&mut self, most: usize) -> Result<(), Error> {
        let mut patience = Patience::default().watching(&self.lifeline);
        while self.lanes[0].outstanding > most {
            if !self.take()? {
                patience.missed()?;
            }
        }
        Ok(())
    }

    /// Polls the last byte of what the other end writes.
    fn await_byte(&mut self, number: u64) -> Result<(), Error> {
        let last = self.layout.theirs(0) + self.job.bytes - 1;
        let mut patience = Patience::default().watching(&self.lifeline);
        while self.mr.load_u8(last) != number as u8 {
            // A failed connection is seen in the completion queue only.
            if patience.wait()? > LOST {
                self.take()?;
            }
        }
        Ok(())
    }

    /// Polls the completion queue for the message after `before`.
    fn await_message(&mut self, before: u64) -> Result<(), Error> {
        let mut patience = Patience::default().watching(&self.lifeline);
        while self.tally.received == before {
            if !self.take()? {
                patience.missed()?;
            }
        }
        Ok(())
    }

    fn await_trip(&mut self, number: u64, received: u64) -> Result<(), Error> {
        if self.is_two_sided() {
            self.await_message(received)
        } else {
            self.await_byte(number)
        }
    }

    /// Messages back and forth.
    fn ping_pong(&mut self, messages: u64) -> Result<Ran, Error> {
        let most = self.job.depth - self.signal_every() as usize;
        let mut histogram = round_trips();
        let first = self.tally.received;
        let start = Instant::now();
        let mut before = start;
        for nth in 1..=messages {
            self.trips += 1;
            let (number, received) = (self.trips, first + nth - 1);
            if self.role == Role::Server {
                self.await_trip(number, received)?;
                self.send_trip(number, nth == messages)?;
            } else {
                self.send_trip(number, nth == messages)?;
                self.await_trip(number, received)?;
                let now = Instant::now();
                histogram.saturating_record((now - before).as_nanos() as u64);
                before = now;
            }
            self.drain(most)?;
        }
        let elapsed = start.elapsed();
        self.drain(0)?;
        Ok(match self.role {
            Role::Client => Ran {
                elapsed: Some(elapsed),
                round_trips: Some(histogram),
                ..Ran::default()
            },
            Role::Server => Ran::default(),
        })
    }

    /// Requests one at a time, each until its completion. The server only drives its device.
    fn requests(&mut self, messages: u64) -> Result<Ran, Error> {
        if self.role == Role::Server {
            return self.stream(messages);
        }
        let slices = {
            let start = self.layout.ours(0);
            [self.mr.slice(start..start + self.job.bytes)]
        };
        let send = Send::new(Tag::Send(0).number(1), self.operation(0), &slices);
        let mut histogram = round_trips();
        let start = Instant::now();
        let mut before = start;
        for _ in 0..messages {
            self.lanes[0].qp.post(&send)?;
            self.lanes[0].outstanding += 1;
            self.drain(0)?;
            let now = Instant::now();
            histogram.saturating_record((now - before).as_nanos() as u64);
            before = now;
        }
        let elapsed = start.elapsed();
        // Tells the server that it is over: a stream of nothing.
        self.stream(0)?;
        Ok(Ran {
            elapsed: Some(elapsed),
            round_trips: Some(histogram),
            ..Ran::default()
        })
    }
}

impl Endpoint for Rdma {
    fn address(&self) -> Value {
        let endpoint = |qp: &Qp| {
            qp.endpoint(self.gid_index)
                .map(|e| e.to_string())
                .unwrap_or_default()
        };
        let memory = self.mr.remote();
        json!(Address {
            control: endpoint(&self.control),
            lanes: self.lanes.iter().map(|lane| endpoint(&lane.qp)).collect(),
            memory: memory.addr,
            length: memory.len,
            rkey: memory.rkey.value(),
        })
    }

    fn connect(&mut self, peer: &Value) -> Result<(), Error> {
        let peer: Address = parse_address(peer)?;
        if peer.lanes.len() != self.lanes.len() || peer.length != self.mr.remote().len {
            return Err(Error::new("the other end set up another job"));
        }
        self.remote = Some(RemoteMemory {
            addr: peer.memory,
            len: peer.length,
            rkey: Rkey::new(peer.rkey),
        });
        let path_mtu = PathMtu::ALL
            .into_iter()
            .find(|mtu| mtu.bytes() as usize == self.job.mtu)
            .filter(|mtu| *mtu <= self.context.port_mtu())
            .ok_or_else(|| {
                let most = self.context.port_mtu().bytes();
                Error::new(format!(
                    "--mtu is at most {most} on {}",
                    self.context.name()
                ))
            })?;
        let options = ConnectOptions {
            path_mtu,
            ..ConnectOptions::new(&self.context, self.gid_index)
        };
        self.control.connect(&peer.control.parse()?, &options)?;
        for (lane, endpoint) in self.lanes.iter_mut().zip(&peer.lanes) {
            let endpoint: QpEndpoint = endpoint.parse()?;
            if self.job.qp_type == QpType::Ud {
                lane.qp.activate_datagram(QKEY)?;
                lane.destination = Some(Destination {
                    gid: endpoint.gid,
                    qpn: endpoint.qpn,
                    qkey: QKEY,
                });
            } else {
                lane.qp.connect(&endpoint, &options)?;
            }
        }
        for number in 0..self.lanes.len() {
            for _ in 0..Self::receives(&self.job) {
                self.post_receive(number)?;
            }
        }
        self.counted = self.context.counters();
        Ok(())
    }

    fn run(&mut self, messages: u64) -> Result<Ran, Error> {
        self.run += 1;
        let mut ran = match self.job.test.shape() {
            Shape::Stream => self.stream(messages)?,
            Shape::PingPong => self.ping_pong(messages)?,
            Shape::RoundTrip => self.requests(messages)?,
        };
        // Since the last run and not since this one began: the other end may have begun earlier.
        let now = self.context.counters();
        let counted = now.since(&self.counted);
        self.counted = now;
        if self.job.qp_type == QpType::Uc && self.job.test == Test::WriteBw && self.serves() {
            // Nobody acknowledges these. One of those counted said that the other end is done.
            ran.delivered = Some(counted.get(Counter::RxWriteRequests).saturating_sub(1));
        }
        let named = counted
            .non_zero()
            .map(|(counter, value)| (counter.name().to_owned(), value));
        ran.counters = named.collect();
        Ok(ran)
    }
}
