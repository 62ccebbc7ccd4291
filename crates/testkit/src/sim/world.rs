//! A run: the network with its queue pairs, what their users do and when, and all checks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use hirail_rnic::cq::Cqe;
use hirail_rnic::event::AsyncEvent;
use hirail_rnic::mr::Mr;
use hirail_rnic::qp::attr::AttrMask;
use hirail_rnic::transmit::Flow;
use hirail_rnic::wr::Sge;
use hirail_rnic::{Instant, SendData, SendFlags, SendOp, SendWr, Span};
use hirail_vocab::{Counter, QpState, QpType, WcStatus};
use hirail_wire::{
    Bth, Ext, Feth, FlushRange, Headers, Lkey, Opcode, Operation, Qpn, Reth, Rkey, Service,
};

use super::scenario::{Connection, Scenario};
use super::stream::{Check, Kind, Op, Poison, Stream, ensure};
use super::watch::Watch;
use crate::endpoint::{BASE, all_access};
use crate::net::{Seen, frame, gids, mac, owner};
use crate::{Endpoint, Faults, Memory, Net, SingleHost};

/// Nothing may take longer than this once the faults have stopped.
const PATIENCE: Span = Span::from_ms(20_000);
/// Nothing may take more steps than this.
const MAX_STEPS: u64 = 3_000_000;
/// Address of the counter that all streams to a node share.
const COUNTER: u64 = 0x77_0000;
/// Address of the region that was deregistered before the run.
const DEAD: u64 = 0x88_0000;

/// One end of a connection.
struct End {
    ep: Endpoint,
    connection: usize,
    /// The stream that it sends and the one that it receives.
    sends: Option<usize>,
    receives: Option<usize>,
    pool: usize,
    counter: Rkey,
    dead: Arc<Mr<SingleHost>>,
    dead_memory: Memory,
    /// Which buffers for requests are in use.
    slots: Vec<bool>,
    slot_len: usize,
    slots_at: usize,
    /// The user waits for SQ_DRAINED.
    is_draining: bool,
    last_wqe_told: bool,
}

impl End {
    fn slot_at(&self, slot: usize) -> usize {
        self.slots_at + slot * self.slot_len
    }
}

/// Receive requests: of one queue pair, or shared.
struct Pool {
    /// The end whose memory it is.
    end: usize,
    is_shared: bool,
    at: usize,
    length: u32,
    free: Vec<usize>,
    posted: VecDeque<(u64, usize)>,
    next: u64,
    feeders: Vec<usize>,
}

/// What a user does at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Action {
    /// Post requests to a stream.
    Post(usize),
    /// Post receive requests to a pool.
    Receive(usize),
    /// The network becomes perfect.
    Quiet,
    /// Stop the send queue of an end, to resume when it has drained.
    Drain(usize),
    /// Put an end in error.
    Kill(usize),
    /// Deregister the memory of an end.
    Deregister(usize),
    /// Somebody else sends a packet that looks like the next one of a stream.
    Stray(usize),
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Hash of everything that was sent, arrived and completed, and when, and of all events.
    pub hash: u64,
    /// Steps taken.
    pub steps: u64,
    /// Completions.
    pub completions: u64,
    /// Streams that failed, with a proper status.
    pub failed: u32,
    /// Virtual time that passed.
    pub took: Span,
}

pub(super) struct World {
    scenario: Scenario,
    net: Net,
    rng: fastrand::Rng,
    ends: Vec<End>,
    pools: Vec<Pool>,
    streams: Vec<Stream>,
    watches: Vec<Watch>,
    /// Connections in which something may fail for a reason that the run knows.
    excused: Vec<bool>,
    /// Connections whose memory has been deregistered.
    robbed: Vec<bool>,
    agenda: BinaryHeap<Reverse<(Instant, u64, Action)>>,
    sequence: u64,
    counters: Vec<Memory>,
    seen: Vec<Seen>,
    hasher: DefaultHasher,
    steps: u64,
    completions: u64,
}

impl World {
    pub(super) fn new(scenario: Scenario) -> Self {
        let seed = scenario.seed;
        let mut net = Net::new(seed);
        let mut counters = Vec::new();
        for (node, (link, config)) in scenario.nodes.iter().enumerate() {
            net.add(*link, config.device(seed ^ node as u64));
            counters.push(Memory::zeroed(8));
        }
        net.set_faults(scenario.faults);
        net.watch();
        let mut world = Self {
            net,
            rng: fastrand::Rng::with_seed(seed ^ 0x0077_0b1d),
            ends: Vec::new(),
            pools: Vec::new(),
            streams: Vec::new(),
            watches: Vec::new(),
            excused: Vec::new(),
            robbed: Vec::new(),
            agenda: BinaryHeap::new(),
            sequence: 0,
            counters,
            seen: Vec::new(),
            hasher: DefaultHasher::new(),
            steps: 0,
            completions: 0,
            scenario,
        };
        for index in 0..world.scenario.connections.len() {
            world.connect(index);
        }
        let quiet_at = Instant::EPOCH + world.scenario.quiet_at;
        world.plan(quiet_at, Action::Quiet);
        world
    }

    /// Keeps a line per packet.
    pub(super) fn log(&mut self) {
        self.net.log();
    }

    pub(super) fn take_log(&mut self) -> String {
        self.net.take_log()
    }

    /// Records the packets.
    pub(super) fn record(&mut self, sink: Box<dyn std::io::Write>) {
        self.net.record(sink);
    }

    /// Sets up connection `index`.
    fn connect(&mut self, index: usize) {
        // Who shares a queue is made like the one that has it.
        let previous = index
            .checked_sub(1)
            .map(|i| self.scenario.connections[i].clone());
        let connection = &mut self.scenario.connections[index];
        let shares = match &previous {
            Some(other)
                if connection.shares_srq
                    && other.setup.with_srq
                    && !other.shares_srq
                    && other.setup.qp_type == connection.setup.qp_type =>
            {
                connection.setup = other.setup.clone();
                connection.max_message = other.max_message;
                connection.nodes[1] = other.nodes[1];
                true
            }
            _ => {
                connection.shares_srq = false;
                false
            }
        };
        let connection = self.scenario.connections[index].clone();
        let shared = shares.then(|| {
            let end = self.ends.len() - 1;
            (
                self.ends[end].ep.srq.clone().expect("it has one"),
                self.ends[end].pool,
            )
        });
        let a = self.make_end(index, &connection, 0, None);
        let b = self.make_end(index, &connection, 1, shared);
        let setup = &connection.setup;
        let (psn_a, psn_b) = (setup.psn_a, setup.psn_b);
        self.ends[a]
            .ep
            .connect(&self.net, setup, &self.ends[b].ep, psn_b, psn_a);
        let other_setup = connection.other_setup();
        self.ends[b]
            .ep
            .connect(&self.net, &other_setup, &self.ends[a].ep, psn_a, psn_b);
        for (from, to, side, psn) in [(a, b, 0, psn_a), (b, a, 1, psn_b)] {
            if connection.requests[side] == 0 {
                continue;
            }
            let number = self.streams.len();
            let is_reliable = setup.qp_type.is_reliable();
            let mut stream = Stream::new(number, from, to, connection.arena(), psn);
            stream.is_exact = is_reliable;
            stream.signals_all = setup.sq_sig_all;
            let (_, config) = &self.scenario.nodes[connection.nodes[side]];
            stream.read_piece = (config.read_request_bytes / setup.mtu.bytes()).max(1);
            if config.equal_writes && is_reliable {
                stream.write_piece = 1;
            }
            stream.to_post = connection.requests[side];
            stream.poison_at = connection.poison[side];
            self.streams.push(stream);
            let quiet_at = Instant::EPOCH + self.scenario.quiet_at;
            self.watches
                .push(Watch::new(psn, setup.mtu, is_reliable, quiet_at));
            self.ends[from].sends = Some(number);
            self.ends[to].receives = Some(number);
            let pool = self.ends[to].pool;
            self.pools[pool].feeders.push(number);
            let at = self.after(0..20);
            self.plan(at, Action::Post(number));
        }
        self.excused.push(false);
        self.robbed.push(false);
        if connection.has_strays {
            for stream in [self.ends[a].sends, self.ends[b].sends]
                .into_iter()
                .flatten()
            {
                let at = self.after(5..100);
                self.plan(at, Action::Stray(stream));
            }
        }
        if connection.drains {
            let at = self.after(1..300);
            self.plan(at, Action::Drain(a));
        }
        if let Some(span) = connection.dies_at {
            self.plan(Instant::EPOCH + span, Action::Kill(b));
        }
        if let Some(span) = connection.deregisters_at {
            self.plan(Instant::EPOCH + span, Action::Deregister(b));
        }
    }

    fn make_end(
        &mut self,
        index: usize,
        connection: &Connection,
        side: usize,
        shared: Option<(Arc<hirail_rnic::SharedReceiveQueue<SingleHost>>, usize)>,
    ) -> usize {
        let node = connection.nodes[side];
        let sends = connection.setup.max_send_wr as usize;
        let receives = connection.setup.max_recv_wr as usize;
        let slots_at = connection.arena();
        let slot_len = connection.slot();
        let pool_at = slots_at + sends * slot_len;
        let receive_len = connection.max_message as usize + 40;
        let setup = crate::Setup {
            memory: pool_at + receives * receive_len,
            ..connection.setup.clone()
        };
        let end = self.ends.len();
        let is_target = side == 1;
        let (ep, pool) = match shared {
            Some((srq, pool)) => (Endpoint::sharing(&self.net, node, &setup, srq), pool),
            None => {
                let ep = Endpoint::new(&self.net, node, &setup, is_target);
                let pool = self.pools.len();
                self.pools.push(Pool {
                    end,
                    is_shared: ep.srq.is_some(),
                    at: pool_at,
                    length: receive_len as u32,
                    free: (0..receives).rev().collect(),
                    posted: VecDeque::new(),
                    next: 0,
                    feeders: Vec::new(),
                });
                let at = self.after(0..30);
                self.plan(at, Action::Receive(pool));
                (ep, pool)
            }
        };
        let register = |at, memory: &Memory| {
            ep.device
                .reg_mr(ep.pd, at, memory.len() as u64, all_access(), memory.clone())
                .expect("a key is free")
        };
        let counter = register(COUNTER, &self.counters[node]).rkey();
        let dead_memory = Memory::zeroed(connection.arena());
        let dead = register(DEAD, &dead_memory);
        ep.device.dereg_mr(dead.lkey()).expect("it was registered");
        self.ends.push(End {
            ep,
            connection: index,
            sends: None,
            receives: None,
            pool,
            counter,
            dead,
            dead_memory,
            slots: vec![false; sends],
            slot_len,
            slots_at,
            is_draining: false,
            last_wqe_told: false,
        });
        end
    }

    /// Some microseconds from now.
    fn after(&mut self, us: core::ops::Range<u64>) -> Instant {
        self.net.now() + Span::from_ns(self.rng.u64(us.start * 1000..us.end * 1000))
    }

    fn plan(&mut self, at: Instant, action: Action) {
        self.sequence += 1;
        self.agenda.push(Reverse((at, self.sequence, action)));
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) -> Result<Outcome, String> {
        let end = Instant::EPOCH + self.scenario.quiet_at + PATIENCE;
        loop {
            let planned = self.agenda.peek().map(|Reverse((at, _, _))| *at);
            let next = self.net.next_at();
            let Some(at) = [planned, next].into_iter().flatten().min() else {
                break;
            };
            ensure!(
                at <= end,
                "not finished {PATIENCE:?} after the last fault{}",
                self.unfinished()
            );
            self.steps += 1;
            ensure!(
                self.steps <= MAX_STEPS,
                "not finished after {MAX_STEPS} steps{}",
                self.unfinished()
            );
            if next == Some(at) {
                let node = self.net.step().expect("there is something");
                self.look(node)?;
            } else if let Some(Reverse((at, _, action))) = self.agenda.pop() {
                self.net.run_until(at);
                self.act(action)?;
            }
        }
        self.finish()?;
        self.hasher.write_u64(self.net.trace_hash());
        Ok(Outcome {
            hash: self.hasher.finish(),
            steps: self.steps,
            completions: self.completions,
            failed: self
                .streams
                .iter()
                .filter(|stream| stream.failed.is_some())
                .count() as u32,
            took: self.net.now().since(Instant::EPOCH),
        })
    }

    fn unfinished(&self) -> String {
        let mut text = String::new();
        for stream in self.streams.iter().filter(|stream| !stream.is_finished()) {
            let [from, to] = [stream.from, stream.to].map(|end| &self.ends[end].ep);
            text += &format!(
                "; stream {} from {} on node {} in {} to {} on node {} in {}: {} of {} requests \
                 done, next begins with PSN {:?}",
                stream.number,
                from.qp.qpn,
                from.node,
                from.state(),
                to.qp.qpn,
                to.node,
                to.state(),
                stream.done,
                stream.ops.len(),
                stream.ops.get(stream.done).map(|op| op.first_psn),
            );
        }
        text
    }

    fn act(&mut self, action: Action) -> Check {
        match action {
            Action::Post(stream) => self.post(stream),
            Action::Receive(pool) => self.post_receives(pool),
            Action::Quiet => {
                self.net.set_faults(Faults::NONE);
                Ok(())
            }
            Action::Drain(end) => self.drain(end),
            Action::Stray(stream) => self.stray(stream),
            Action::Kill(end) => {
                self.excuse(end);
                let ep = &self.ends[end].ep;
                if ep.state() != QpState::Err {
                    ep.modify(&self.net, AttrMask::STATE, |attr| {
                        attr.qp_state = QpState::Err
                    });
                }
                let node = ep.node;
                self.net.settle(node);
                self.look(node)
            }
            Action::Deregister(end) => {
                // Who receives into that memory suffers too.
                let pool = self.ends[end].pool;
                for other in 0..self.ends.len() {
                    if other == end || self.ends[other].pool == pool {
                        self.excuse(other);
                        let connection = self.ends[other].connection;
                        self.robbed[connection] = true;
                    }
                }
                let ep = &self.ends[end].ep;
                let _ = ep.device.dereg_mr(ep.mr.lkey());
                Ok(())
            }
        }
    }

    fn excuse(&mut self, end: usize) {
        let connection = self.ends[end].connection;
        self.excused[connection] = true;
    }

    /// A packet with the right queue pair, sequence number and key, but not from the peer.
    fn stray(&mut self, number: usize) -> Check {
        if self.streams[number].is_finished() {
            return Ok(());
        }
        let target = &self.ends[self.streams[number].to];
        let (node, qpn) = (target.ep.node, target.ep.qp.qpn);
        let psn = self.watches[number].next_new();
        let reth = Reth {
            va: BASE,
            rkey: target.ep.rkey(),
            length: 16,
        };
        let index = usize::from(self.scenario.connections[target.connection].setup.gid_index);
        let service = match target.ep.qp.qp_type {
            QpType::Rc => Service::Rc,
            QpType::XrcRecv => Service::Xrc,
            _ => Service::Uc,
        };
        let opcode = Opcode::new(service, Operation::WriteOnly).expect("each has WRITE");
        let srq = (service == Service::Xrc).then_some(1);
        let headers = Headers::new(Bth::new(opcode, qpn, psn), srq, Ext::Reth(reth))
            .expect("the headers belong together");
        // The address is another one of the same port, or another port's.
        let flow = Flow {
            source: gids(node + 1)[index],
            destination: gids(node)[index],
            source_index: index as u8,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_source_port: 0xc000,
            priority: 0,
            destination_mac: [0; 6],
        };
        let is_the_peers =
            self.ends[self.streams[number].from].ep.node == (node + 1) % self.net.nodes();
        if service != Service::Uc && !is_the_peers {
            let version = self.net.device(node).gids()[index].version;
            let encapsulation = frame::encapsulation(&flow, version, mac(node));
            let mut bytes = Vec::new();
            frame::emit_headers(&headers, &[0x5a; 16], &encapsulation, &mut bytes);
            let from = (node + 1) % self.net.nodes();
            self.net.inject(from, flow.destination, bytes);
        }
        let at = self.after(5..200);
        self.plan(at, Action::Stray(number));
        Ok(())
    }

    /// Stops the send queue, or resumes it.
    fn drain(&mut self, end: usize) -> Check {
        let ep = &self.ends[end].ep;
        if ep.state() != QpState::Rts {
            return Ok(());
        }
        ep.modify(
            &self.net,
            AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY,
            |attr| {
                attr.qp_state = QpState::Sqd;
                attr.en_sqd_async_notify = true;
            },
        );
        let node = ep.node;
        self.ends[end].is_draining = true;
        self.net.settle(node);
        self.look(node)
    }

    fn post_receives(&mut self, pool: usize) -> Check {
        let is_over = self.pools[pool]
            .feeders
            .iter()
            .all(|&stream| self.streams[stream].is_finished());
        if is_over {
            return Ok(());
        }
        let end = self.pools[pool].end;
        for _ in 0..self.rng.usize(1..=4) {
            let Pool {
                at, length, next, ..
            } = self.pools[pool];
            let Some(slot) = self.pools[pool].free.pop() else {
                break;
            };
            let offset = (at + slot * length as usize) as u64;
            let sges = self.split(end, offset, length);
            let id = (pool as u64) << 32 | next;
            self.pools[pool].posted.push_back((id, slot));
            self.pools[pool].next += 1;
            let posted = self.ends[end].ep.try_post_recv(&mut self.net, id, &sges);
            ensure!(
                posted.is_ok(),
                "receive request {id:#x} was refused: {posted:?}"
            );
        }
        let at = self.after(1..60);
        self.plan(at, Action::Receive(pool));
        self.look(self.ends[end].ep.node)
    }

    /// A list of one to three entries that make up a range of an end's memory.
    fn split(&mut self, end: usize, offset: u64, length: u32) -> Vec<Sge> {
        let mut cuts = vec![0, length];
        for _ in 0..self.rng.usize(0..3) {
            cuts.push(self.rng.u32(0..=length));
        }
        cuts.sort_unstable();
        let ep = &self.ends[end].ep;
        cuts.windows(2)
            .map(|cut| ep.sge(offset + u64::from(cut[0]), cut[1] - cut[0]))
            .collect()
    }

    fn post(&mut self, number: usize) -> Check {
        for _ in 0..self.rng.usize(1..=4) {
            let stream = &self.streams[number];
            let end = &self.ends[stream.from];
            let free = end.slots.iter().position(|used| !used);
            let has_failed = stream.failed.is_some();
            if has_failed && (free.is_none() || self.chance(50)) {
                // Requests on a queue pair in error are flushed. A few of them are enough.
                self.streams[number].to_post = 0;
            }
            let Some(slot) = free.filter(|_| self.streams[number].to_post > 0) else {
                break;
            };
            self.post_one(number, slot)?;
        }
        if self.streams[number].to_post > 0 {
            let at = self.after(1..40);
            self.plan(at, Action::Post(number));
        }
        self.look(self.ends[self.streams[number].from].ep.node)
    }

    fn post_one(&mut self, number: usize, slot: usize) -> Check {
        let (from, to) = (self.streams[number].from, self.streams[number].to);
        let connection = self.scenario.connections[self.ends[from].connection].clone();
        let mut op = self.invent(number, slot, &connection);
        self.prepare(from, &mut op);
        let stream = &mut self.streams[number];
        stream.to_post -= 1;
        let index = stream.ops.len() as u64;
        let must_signal =
            stream.to_post == 0 || self.ends[from].slots.iter().filter(|used| !**used).count() == 1;
        op.signaled |= must_signal;
        self.ends[from].slots[slot] = true;
        if op.poison.is_some() {
            let connection = self.ends[from].connection;
            self.excused[connection] = true;
        }
        let sends = matches!(
            op.kind,
            Kind::Send | Kind::SendImm(_) | Kind::Write | Kind::WriteImm(_) | Kind::AtomicWrite
        );
        let is_inline = sends
            && op.len <= connection.setup.max_inline
            && op.poison != Some(Poison::BadLocalKey)
            && self.chance(30);
        let mut sges = if op.kind == Kind::Flush {
            Vec::new()
        } else if op.kind.is_read_or_atomic() && op.kind != Kind::Read {
            vec![self.ends[from].ep.sge(op.local as u64, op.len)]
        } else {
            self.split(from, op.local as u64, op.len)
        };
        if op.poison == Some(Poison::BadLocalKey)
            && let Some(sge) = sges.iter_mut().rev().find(|sge| sge.length > 0)
        {
            sge.lkey = Lkey::new(0x0bad_0bad);
        }
        let inline = self.ends[from].ep.memory.read(op.local, op.len as usize);
        let pieces = [&inline[..]];
        let target = &self.ends[to];
        let wr = SendWr {
            wr_id: (number as u64) << 32 | index,
            op: self.operation(&op, to),
            flags: SendFlags {
                signaled: op.signaled,
                fence: op.fence,
                solicited: op.solicited,
            },
            data: if is_inline {
                SendData::Inline(&pieces)
            } else {
                SendData::Sges(&sges)
            },
            ud: connection
                .setup
                .qp_type
                .is_datagram()
                .then(|| target.ep.as_destination(&connection.setup)),
            xrc_srqn: target.ep.srq.as_ref().map_or(0, |srq| srq.id.0),
        };
        let ep = &self.ends[from].ep;
        let posted = ep.device.post_send(self.net.now(), &ep.qp, &wr);
        ensure!(
            posted.is_ok(),
            "request {index} of stream {number} was refused: {posted:?}"
        );
        if is_inline {
            ep.memory.fill(op.local, &vec![0xee; op.len as usize]);
        }
        let node = ep.node;
        self.streams[number].posted(op);
        self.net.settle(node);
        Ok(())
    }

    /// Makes up a request.
    fn invent(&mut self, number: usize, slot: usize, connection: &Connection) -> Op {
        let qp_type = connection.setup.qp_type;
        let mtu = connection.setup.mtu.bytes();
        let most = connection.max_message;
        let arena = connection.arena();
        let index = self.streams[number].ops.len();
        let first_psn = self.streams[number].next_psn;
        let local = self.ends[self.streams[number].from].slot_at(slot);
        let poison = (self.streams[number].poison_at == Some(index as u32)).then(|| {
            let all = [
                Poison::UnknownKey,
                Poison::StaleKey,
                Poison::OutOfRange,
                Poison::BadLocalKey,
                Poison::TooLong,
                Poison::Misaligned,
            ];
            all[self.rng.usize(0..all.len())]
        });
        let imm = self.rng.u32(..).to_be_bytes();
        let mut kind = match qp_type {
            QpType::Ud if self.chance(70) => Kind::Send,
            QpType::Ud => Kind::SendImm(imm),
            QpType::Uc => match self.rng.u32(0..10) {
                0..=2 => Kind::Send,
                3 => Kind::SendImm(imm),
                4..=7 => Kind::Write,
                _ => Kind::WriteImm(imm),
            },
            _ => match self.rng.u32(0..20) {
                0..=3 => Kind::Send,
                4 => Kind::SendImm(imm),
                5..=8 => Kind::Write,
                9 | 10 => Kind::WriteImm(imm),
                11..=14 => Kind::Read,
                15 => Kind::FetchAdd {
                    add: self.rng.u64(..),
                },
                16 => Kind::CompareSwap {
                    compare: 0,
                    swap: self.rng.u64(..),
                },
                17 => Kind::AtomicWrite,
                18 => Kind::Flush,
                _ => Kind::Count,
            },
        };
        match poison {
            Some(Poison::TooLong) => kind = Kind::Send,
            Some(Poison::Misaligned) => kind = Kind::FetchAdd { add: 1 },
            Some(Poison::BadLocalKey) => kind = Kind::Write,
            Some(_) if kind.takes_receive() || matches!(kind, Kind::Count | Kind::Flush) => {
                kind = Kind::Write;
            }
            _ => {}
        }
        let mut len = match self.rng.u32(0..100) {
            0..=4 => 0,
            5..=34 => self.rng.u32(1..65),
            35..=64 => (mtu * self.rng.u32(1..13) + self.rng.u32(0..3)).saturating_sub(1),
            _ => self.rng.u32(0..=most),
        }
        .min(most);
        let is_word = matches!(
            kind,
            Kind::FetchAdd { .. } | Kind::CompareSwap { .. } | Kind::AtomicWrite | Kind::Count
        );
        if is_word {
            len = 8;
        }
        match poison {
            // Accesses to nothing are always allowed.
            Some(Poison::TooLong) => len = most + 41 + self.rng.u32(0..20),
            Some(_) => len = len.max(1),
            None => {}
        }
        let mut remote = self.rng.usize(0..=arena.saturating_sub(len as usize));
        if is_word {
            remote = remote / 8 * 8;
        }
        let packets = if kind.is_read_or_atomic() && kind != Kind::Read {
            1
        } else {
            len.div_ceil(mtu).max(1)
        };
        if let Kind::CompareSwap { compare, .. } = &mut kind {
            let word = &self.streams[number].predicted[remote..];
            *compare = u64::from_ne_bytes(*word.first_chunk().expect("words lie inside"));
            if self.rng.u32(0..100) < 30 {
                *compare = compare.wrapping_add(1);
            }
        }
        let changes = !matches!(
            kind,
            Kind::Send | Kind::SendImm(_) | Kind::Read | Kind::Flush
        );
        let overlaps = changes && self.streams[number].reads_overlap(remote, len as usize);
        let fence_percent = if overlaps { 70 } else { 8 };
        Op {
            kind,
            len: if kind == Kind::Flush { 0 } else { len },
            slot,
            local,
            remote,
            signaled: self.chance(60),
            fence: qp_type.is_reliable() && self.chance(fence_percent),
            solicited: kind.takes_receive() && self.chance(30),
            first_psn,
            packets,
            poison,
            bytes: Vec::new(),
        }
    }

    /// Fills the local buffer of a request, and notes what it sends or changes.
    fn prepare(&mut self, from: usize, op: &mut Op) {
        let stream = &self.streams[self.ends[from].sends.expect("it sends")];
        let memory = &self.ends[from].ep.memory;
        let mut data = vec![0; op.len as usize];
        fastrand::Rng::with_seed((stream.number as u64) << 32 | stream.ops.len() as u64)
            .fill(&mut data);
        memory.fill(op.local, &data);
        let word = || {
            let bytes = stream.predicted[op.remote..]
                .first_chunk()
                .expect("words lie inside");
            u64::from_ne_bytes(*bytes)
        };
        op.bytes = match op.kind {
            Kind::FetchAdd { add } => word().wrapping_add(add).to_ne_bytes().to_vec(),
            Kind::CompareSwap { compare, swap } => {
                let word = word();
                let after = if word == compare { swap } else { word };
                after.to_ne_bytes().to_vec()
            }
            _ => data,
        };
    }

    fn operation(&self, op: &Op, to: usize) -> SendOp {
        let target = &self.ends[to];
        let mut va = BASE + op.remote as u64;
        let mut rkey = target.ep.rkey();
        match op.poison {
            // Another index, or another variant of the same.
            Some(Poison::UnknownKey) if op.len.is_multiple_of(2) => {
                rkey = Rkey::new(rkey.value() ^ 0x0055_0100);
            }
            Some(Poison::UnknownKey) => rkey = Rkey::new(rkey.value() ^ 1),
            Some(Poison::StaleKey) => {
                rkey = target.dead.rkey();
                va = DEAD;
            }
            Some(Poison::OutOfRange) => {
                let end = BASE + target.ep.memory.len() as u64;
                va = end - u64::from(op.len) / 8 * 8 + 8 * u64::from(op.len < 8);
                if va + u64::from(op.len) <= end {
                    va += 8;
                }
            }
            Some(Poison::Misaligned) => va += 4,
            _ => {}
        }
        match op.kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm(imm) => SendOp::SendImm(imm),
            Kind::Write => SendOp::Write { va, rkey },
            Kind::WriteImm(imm) => SendOp::WriteImm { va, rkey, imm },
            Kind::Read => SendOp::Read { va, rkey },
            Kind::FetchAdd { add } => SendOp::FetchAdd { va, rkey, add },
            Kind::CompareSwap { compare, swap } => SendOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            },
            Kind::AtomicWrite => SendOp::AtomicWrite { va, rkey },
            Kind::Flush => SendOp::Flush {
                va,
                rkey,
                length: 8,
                what: Feth {
                    range: FlushRange::Range,
                    global: true,
                    persistent: false,
                },
            },
            Kind::Count => SendOp::FetchAdd {
                va: COUNTER,
                rkey: target.counter,
                add: 1,
            },
        }
    }

    /// Sees what has become of a node: packets, completions, events.
    fn look(&mut self, node: usize) -> Check {
        self.look_at_packets()?;
        for end in 0..self.ends.len() {
            if self.ends[end].ep.node != node {
                continue;
            }
            loop {
                let cqe = self.ends[end].ep.send_cq.lock().pop();
                let Some(cqe) = cqe else { break };
                self.on_send_completion(end, &cqe)?;
            }
            loop {
                let cqe = self.ends[end].ep.recv_cq.lock().pop();
                let Some(cqe) = cqe else { break };
                self.on_receive_completion(end, &cqe)?;
            }
        }
        while let Some(event) = self.net.next_event(node) {
            self.on_event(node, event)?;
        }
        Ok(())
    }

    fn note(&mut self, cqe: &Cqe) {
        self.completions += 1;
        self.hasher.write_u128(self.net.now().as_ps());
        self.hasher.write_u64(cqe.wr_id);
        self.hasher.write_u8(cqe.status.code());
        self.hasher.write_u32(cqe.byte_len);
    }

    fn on_send_completion(&mut self, end: usize, cqe: &Cqe) -> Check {
        self.note(cqe);
        let Some(number) = self.ends[end].sends else {
            return Err(format!(
                "end {end} sends nothing, and {:#x} completes",
                cqe.wr_id
            ));
        };
        let had_failed = self.streams[number].failed.is_some();
        let done = self.streams[number].done;
        let memory = self.ends[end].ep.memory.clone();
        let arena = self.ends[self.streams[number].to].ep.memory.clone();
        self.streams[number].on_completion(cqe, &memory, &arena)?;
        for index in done..self.streams[number].done {
            let slot = self.streams[number].ops[index].slot;
            self.ends[end].slots[slot] = false;
        }
        if !had_failed && self.streams[number].failed.is_some() {
            self.on_failure(end, number, cqe)?;
        }
        Ok(())
    }

    /// The first error of a stream: whether it may be.
    fn on_failure(&mut self, end: usize, number: usize, cqe: &Cqe) -> Check {
        let connection = self.ends[end].connection;
        let scenario = &self.scenario.connections[connection];
        let setup = &scenario.setup;
        let timeouts = [setup.timeout, scenario.other_timeout];
        let stream = &self.streams[number];
        let op = &stream.ops[(cqe.wr_id & 0xffff_ffff) as usize];
        let is_excused = self.excused[connection];
        let is_its_own = op
            .poison
            .is_some_and(|poison| poison.status() == cqe.status);
        let is_allowed = match cqe.status {
            WcStatus::RnrRetryExcErr => setup.rnr_retry < 7 && op.kind.takes_receive(),
            WcStatus::RetryExcErr => {
                let tries = self.watches[number].most_sent(op.first_psn, op.packets);
                let refuses = self.scenario.faults.refuse > 0;
                // The first request for a READ's later responses is that for its earlier ones.
                let enough = u32::from(setup.retry_cnt) + u32::from(op.kind != Kind::Read);
                ensure!(
                    tries >= enough || refuses && tries > 0,
                    "stream {number} gave up after sending {tries} times, {enough} are due"
                );
                // Whatever is sent in a perfect network is answered in time, by whoever lives; the
                // first time may have met what faults had left behind.
                let in_vain = self.watches[number].sent_in_vain(op.first_psn, op.packets);
                let is_short = timeouts.iter().any(|it| (1..8).contains(&it.code()));
                let may_be_late = self.scenario.has_priorities || is_short;
                is_excused || !self.scenario.is_faultless() && (in_vain < 3 || may_be_late)
            }
            WcStatus::WrFlushErr => is_excused,
            // The memory behind the keys has been taken away.
            WcStatus::RemAccessErr | WcStatus::LocProtErr | WcStatus::RemOpErr => {
                is_its_own || self.robbed[connection]
            }
            _ => is_its_own,
        };
        ensure!(
            is_allowed,
            "stream {number}: request {:?} fails with {}",
            op,
            cqe.status
        );
        let state = self.ends[end].ep.state();
        ensure!(
            state == QpState::Err,
            "stream {number} failed and its queue pair is in {state}"
        );
        self.excused[connection] = true;
        Ok(())
    }

    fn on_receive_completion(&mut self, end: usize, cqe: &Cqe) -> Check {
        self.note(cqe);
        let pool = self.ends[end].pool;
        let is_shared = self.pools[pool].is_shared;
        let position = self.pools[pool]
            .posted
            .iter()
            .position(|(id, _)| *id == cqe.wr_id);
        let Some(position) = position.filter(|at| is_shared || *at == 0) else {
            return Err(format!(
                "receive request {:#x} completes, next is {:?}",
                cqe.wr_id,
                self.pools[pool].posted.front()
            ));
        };
        let (_, slot) = self.pools[pool]
            .posted
            .remove(position)
            .expect("it was found");
        let Pool {
            at,
            length,
            end: owner,
            ..
        } = self.pools[pool];
        self.pools[pool].free.push(slot);
        let receiver = self.ends.iter().position(|e| {
            e.ep.node == self.ends[end].ep.node && e.ep.qp.qpn == cqe.qpn && e.pool == pool
        });
        let Some(receiver) = receiver else {
            return Err(format!("a completion of {} is on another's queue", cqe.qpn));
        };
        if cqe.status != WcStatus::Success {
            return self.on_receive_error(receiver, cqe);
        }
        let Some(number) = self.ends[receiver].receives else {
            return Err(format!("end {receiver} receives nothing, and has {cqe:?}"));
        };
        let buffer = self.ends[owner].ep.memory.read(
            at + slot * length as usize,
            (cqe.byte_len.min(length)) as usize,
        );
        let arena = self.ends[receiver].ep.memory.clone();
        self.streams[number].on_receive(cqe, &buffer, &arena)
    }

    fn on_receive_error(&mut self, receiver: usize, cqe: &Cqe) -> Check {
        let connection = self.ends[receiver].connection;
        let setup = &self.scenario.connections[connection].setup;
        let is_excused = self.excused[connection];
        let too_long = self.ends[receiver].receives.is_some_and(|number| {
            self.streams[number]
                .ops
                .iter()
                .any(|op| op.poison == Some(Poison::TooLong))
        });
        let is_allowed = match cqe.status {
            WcStatus::WrFlushErr => is_excused,
            WcStatus::LocLenErr => too_long,
            WcStatus::LocProtErr | WcStatus::LocAccessErr => self.robbed[connection],
            // A broken UC message cannot give back a request of a shared queue.
            WcStatus::LocQpOpErr => setup.qp_type == QpType::Uc && setup.with_srq,
            _ => false,
        };
        ensure!(
            is_allowed,
            "receive request {:#x} of end {receiver} fails with {}",
            cqe.wr_id,
            cqe.status
        );
        if setup.qp_type.is_reliable() {
            self.excused[connection] = true;
        }
        Ok(())
    }

    fn on_event(&mut self, node: usize, event: AsyncEvent) -> Check {
        self.hasher.write_u128(self.net.now().as_ps());
        self.hasher.write(format!("{event:?}").as_bytes());
        let find = |ends: &[End], qpn: Qpn| {
            ends.iter()
                .position(|end| end.ep.node == node && end.ep.qp.qpn == qpn)
        };
        match event {
            AsyncEvent::SqDrained(qpn) => {
                let end = find(&self.ends, qpn).filter(|end| self.ends[*end].is_draining);
                let Some(end) = end else {
                    return Err(format!("{qpn} on node {node} drained, nobody asked"));
                };
                self.ends[end].is_draining = false;
                if let Some(number) = self.ends[end].sends {
                    let stream = &self.streams[number];
                    ensure!(
                        stream.outstanding() == 0
                            || stream.ops[stream.done..].iter().all(|op| {
                                self.watches[number].most_sent(op.first_psn, op.packets) == 0
                            })
                            || !stream.signals_all,
                        "stream {number} drained with started requests not complete"
                    );
                }
                let ep = &self.ends[end].ep;
                if ep.state() == QpState::Sqd {
                    ep.modify(&self.net, AttrMask::STATE, |attr| {
                        attr.qp_state = QpState::Rts
                    });
                    self.net.settle(node);
                }
                Ok(())
            }
            AsyncEvent::QpLastWqeReached(qpn) => {
                let Some(end) = find(&self.ends, qpn) else {
                    return Err(format!("{qpn} does not exist"));
                };
                ensure!(
                    !self.ends[end].last_wqe_told,
                    "LAST_WQE_REACHED twice for {qpn}"
                );
                self.ends[end].last_wqe_told = true;
                Ok(())
            }
            AsyncEvent::QpReqErr(qpn) | AsyncEvent::QpAccessErr(qpn) => {
                let is_excused = find(&self.ends, qpn)
                    .is_some_and(|end| self.excused[self.ends[end].connection]);
                ensure!(is_excused, "{event:?}, and nobody did anything wrong");
                Ok(())
            }
            AsyncEvent::CommEst(_) => Err(format!("{event:?}, but it was in RTS")),
            AsyncEvent::CqErr(_) | AsyncEvent::QpFatal(_) => {
                Err(format!("{event:?}: no queue was that full"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the packets that were sent and arrived since the last look.
    fn look_at_packets(&mut self) -> Check {
        let mut seen = core::mem::take(&mut self.seen);
        self.net.take_watched(&mut seen);
        let checked = seen.iter().try_for_each(|seen| self.look_at_packet(seen));
        self.seen = seen;
        checked
    }

    fn look_at_packet(&mut self, seen: &Seen) -> Check {
        let operation = seen.headers.opcode().operation();
        let to_node = if seen.is_sent {
            owner(seen.peer)
        } else {
            Some(seen.node)
        };
        let qpn = seen.headers.bth().dest_qp;
        let to = self
            .ends
            .iter()
            .position(|end| Some(end.ep.node) == to_node && end.ep.qp.qpn == qpn);
        let Some(to) = to else { return Ok(()) };
        if operation.is_request() {
            let Some(number) = self.ends[to].receives else {
                return Ok(());
            };
            if seen.is_sent {
                let drains = self.ends[self.streams[number].from].is_draining;
                return self.watches[number].on_request_sent(seen, &self.streams[number], drains);
            }
            self.watches[number].on_request_arrived(seen);
        } else if operation.is_response() {
            let Some(number) = self.ends[to].sends else {
                return Ok(());
            };
            if seen.is_sent {
                return self.watches[number].on_response_sent(seen, &self.streams[number]);
            }
            self.watches[number].on_response_arrived(seen, &self.streams[number]);
        }
        Ok(())
    }

    /// Nothing happens any more.
    fn finish(&mut self) -> Check {
        for stream in &self.streams {
            let end = &self.ends[stream.to];
            stream.finish(&end.ep.memory)?;
        }
        for (number, end) in self.ends.iter().enumerate() {
            ensure!(
                end.dead_memory.stores() == 0,
                "somebody wrote under a key that was dead"
            );
            let state = end.ep.state();
            ensure!(
                state == QpState::Rts || state == QpState::Err && self.excused[end.connection],
                "end {number} ends in {state}"
            );
            if state == QpState::Err {
                let pool = &self.pools[end.pool];
                ensure!(
                    pool.is_shared || pool.posted.is_empty(),
                    "end {number} is in error and {} receive requests were not flushed",
                    pool.posted.len()
                );
                let tells = end.ep.srq.is_some() && end.ep.qp.qp_type != QpType::XrcRecv;
                ensure!(
                    end.last_wqe_told == tells,
                    "end {number}: LAST_WQE_REACHED {}",
                    end.last_wqe_told
                );
            }
            ensure!(
                !end.is_draining || state == QpState::Err,
                "end {number} never drained"
            );
        }
        for (node, counter) in self.counters.iter().enumerate() {
            let streams = self
                .streams
                .iter()
                .filter(|s| self.ends[s.to].ep.node == node);
            let mut returned: Vec<u64> = Vec::new();
            let mut posted = 0;
            for stream in streams {
                returned.extend(&stream.counted);
                posted += stream
                    .ops
                    .iter()
                    .filter(|op| op.kind == Kind::Count)
                    .count() as u64;
            }
            returned.sort_unstable();
            let count = returned.len();
            returned.dedup();
            let value = counter.word(0);
            ensure!(
                returned.len() == count && (count as u64..=posted).contains(&value),
                "{posted} requests counted node {node} to {value}, {count} returned, {} of them \
                 different",
                returned.len()
            );
        }
        self.check_counters()
    }

    /// The devices' own counters agree with what was seen.
    fn check_counters(&self) -> Check {
        for node in 0..self.scenario.nodes.len() {
            let counters = self.net.device(node).counters();
            if self.scenario.faults.corrupt == 0 {
                let bad = counters.get(Counter::DropBadIcrc);
                ensure!(
                    bad == 0,
                    "{bad} frames had a wrong ICRC and nothing was corrupted"
                );
            }
        }
        Ok(())
    }
}
