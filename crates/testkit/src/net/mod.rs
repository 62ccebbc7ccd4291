//! A network of devices in memory and virtual time.
//!
//! Each node has a link of some rate into a network that delivers every frame to the node of its
//! destination address after a delay, unless a seeded fault intervenes. The network drives the
//! devices by the engine's contract: after every input it drains timers, events and packets. Frames
//! are bytes; a device sees only what was parsed from them.

pub mod frame;
mod link;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::rc::Rc;

use hirail_rnic::cq::CqId;
use hirail_rnic::event::AsyncEvent;
use hirail_rnic::transmit::{OpenClasses, Run};
use hirail_rnic::{DeviceConfig, Event, GidEntry, Instant, RoceVersion, Span, Timer};
use hirail_vocab::DropReason;
use hirail_wire::pcap::{LinkType, Writer};
use hirail_wire::{Gid, Headers, MacAddr};

pub use link::{Faults, Link};

use crate::SingleHost;
use crate::host::TestDevice;

/// A node of the network, by its number.
pub type NodeId = usize;

/// The network and what is attached to it.
pub struct Net {
    now: Instant,
    nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    rng: fastrand::Rng,
    faults: Faults,
    hasher: DefaultHasher,
    /// Frame buffers to be used again.
    spare: Vec<Vec<u8>>,
    payload: Vec<u8>,
    capture: Option<Writer<Box<dyn Write>>>,
    log: Option<String>,
    watched: Option<Vec<Seen>>,
    delivered: u64,
}

/// A packet as an observer of the network sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// Where: the sender of a packet that was sent, the receiver of one that arrived.
    pub node: NodeId,
    /// Whether it was sent or has arrived.
    pub is_sent: bool,
    /// The other end.
    pub peer: Gid,
    /// Its headers.
    pub headers: Headers,
    /// Payload bytes.
    pub payload_len: usize,
    /// Hash of the payload.
    pub digest: u64,
    /// Why the device dropped it, if it did.
    pub dropped: Option<DropReason>,
}

struct Node {
    device: Rc<TestDevice>,
    mac: MacAddr,
    link: Link,
    open: OpenClasses,
    /// Until when the link is occupied.
    busy_until: Instant,
    /// The latest arrival of a frame that keeps its order.
    last_arrival: Instant,
    /// The earliest wake-up that is scheduled.
    wake_at: Option<Instant>,
    runs: Vec<Run<SingleHost>>,
    /// Asynchronous events, oldest first.
    events: VecDeque<AsyncEvent>,
    /// Completion queues that raised an event, oldest first.
    notified: VecDeque<CqId>,
}

/// Something that will happen. Equal times happen in the order in which they were scheduled.
struct Scheduled {
    at: Instant,
    sequence: u64,
    what: What,
}

enum What {
    Arrival {
        node: NodeId,
        frame: Vec<u8>,
    },
    Timer {
        node: NodeId,
        timer: Timer,
    },
    /// The link is free, or a paced QP may send.
    Wake {
        node: NodeId,
    },
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl Net {
    /// An empty network whose faults follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::EPOCH,
            nodes: Vec::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::NONE,
            hasher: DefaultHasher::new(),
            spare: Vec::new(),
            payload: Vec::new(),
            capture: None,
            log: None,
            watched: None,
            delivered: 0,
        }
    }

    /// Attaches a device. Its GID table is made here: an IPv4 address, an IPv6 address, both for
    /// RoCE v2, and a link-local one for RoCE v1.
    pub fn add(&mut self, link: Link, config: DeviceConfig) -> NodeId {
        let node = self.nodes.len();
        let [v4, v6, v1] = gids(node);
        let config = DeviceConfig {
            gids: vec![
                GidEntry {
                    gid: v4,
                    version: RoceVersion::V2,
                },
                GidEntry {
                    gid: v6,
                    version: RoceVersion::V2,
                },
                GidEntry {
                    gid: v1,
                    version: RoceVersion::V1,
                },
            ],
            ..config
        };
        self.nodes.push(Node {
            device: Rc::new(TestDevice::new(config)),
            mac: mac(node),
            link,
            open: OpenClasses::ALL,
            busy_until: Instant::EPOCH,
            last_arrival: Instant::EPOCH,
            wake_at: None,
            runs: (0..link.runs.max(1)).map(|_| Run::new()).collect(),
            events: VecDeque::new(),
            notified: VecDeque::new(),
        });
        node
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// A node's device.
    pub fn device(&self, node: NodeId) -> &Rc<TestDevice> {
        &self.nodes[node].device
    }

    /// What goes wrong from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Which classes a node's link takes from now on.
    pub fn set_open(&mut self, node: NodeId, open: OpenClasses) {
        self.nodes[node].open = open;
        self.settle(node);
    }

    /// Records every frame, as it arrives, into a capture.
    ///
    /// # Panics
    ///
    /// If the sink fails.
    pub fn record(&mut self, sink: Box<dyn Write>) {
        let mut writer = Writer::new(sink).expect("the capture can be written");
        for node in 0..self.nodes.len() {
            writer
                .add_interface(&format!("node{node}"), LinkType::ETHERNET)
                .expect("the capture can be written");
        }
        self.capture = Some(writer);
    }

    /// Keeps a line per frame sent, to be taken by [`take_log`](Self::take_log).
    pub fn log(&mut self) {
        self.log = Some(String::new());
    }

    /// The lines since the last call.
    pub fn take_log(&mut self) -> String {
        self.log.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Keeps a note of every packet sent and arrived, to be taken by
    /// [`take_watched`](Self::take_watched).
    pub fn watch(&mut self) {
        self.watched = Some(Vec::new());
    }

    /// Swaps the notes since the last call into `notes`, whose content is dropped.
    pub fn take_watched(&mut self, notes: &mut Vec<Seen>) {
        notes.clear();
        if let Some(watched) = &mut self.watched {
            core::mem::swap(watched, notes);
        }
    }

    /// A number that two runs share only if they did the same: a hash of all that was sent and all
    /// that arrived, where and when.
    pub fn trace_hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// Frames that arrived.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Things that are still to happen.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// A node's next asynchronous event.
    pub fn next_event(&mut self, node: NodeId) -> Option<AsyncEvent> {
        self.nodes[node].events.pop_front()
    }

    /// The next completion queue of a node that raised an event.
    pub fn next_notified(&mut self, node: NodeId) -> Option<CqId> {
        self.nodes[node].notified.pop_front()
    }

    /// To be called after verbs were called on a node's device: sees to what they caused.
    pub fn settle(&mut self, node: NodeId) {
        let device = Rc::clone(&self.nodes[node].device);
        while let Some((timer, at)) = device.poll_timer() {
            self.schedule(at.max(self.now), What::Timer { node, timer });
        }
        self.collect_events(node, &device);
        self.transmit(node, &device);
        self.collect_events(node, &device);
        while let Some((timer, at)) = device.poll_timer() {
            self.schedule(at.max(self.now), What::Timer { node, timer });
        }
        if let Some(at) = device.next_paced() {
            let busy_until = self.nodes[node].busy_until;
            self.wake(node, at.max(busy_until));
        }
    }

    fn collect_events(&mut self, node: NodeId, device: &TestDevice) {
        let node = &mut self.nodes[node];
        while let Some(event) = device.poll_event() {
            match event {
                Event::Async(event) => node.events.push_back(event),
                Event::Completion(cq) => node.notified.push_back(cq.id),
                Event::Denied(_) => {}
            }
        }
    }

    /// Sends what the node has to send, as long as its link takes it.
    fn transmit(&mut self, node: NodeId, device: &TestDevice) {
        let mut runs = core::mem::take(&mut self.nodes[node].runs);
        loop {
            let Node {
                link,
                open,
                busy_until,
                ..
            } = self.nodes[node];
            if busy_until > self.now {
                if device.has_ready() {
                    self.wake(node, busy_until);
                }
                break;
            }
            let mut polled = 0;
            while polled < runs.len()
                && device.poll_transmit(self.now, open, link.budget(), &mut runs[polled])
            {
                polled += 1;
            }
            if polled == 0 {
                break;
            }
            let mut is_refused = false;
            for run in &mut runs[..polled] {
                let offered = run.packets().len();
                assert!(offered > 0 && offered <= link.packets, "{offered} packets");
                let mut taken = offered;
                if is_refused {
                    taken = 0;
                } else if self.happens(self.faults.refuse) {
                    is_refused = true;
                    taken = self.rng.usize(0..offered);
                }
                for packet in 0..taken {
                    self.send(node, run, packet);
                }
                device.sent(self.now, run, taken);
            }
            if is_refused {
                let node = &mut self.nodes[node];
                node.busy_until = node.busy_until.max(self.now) + Span::from_us(1);
            }
        }
        self.nodes[node].runs = runs;
    }

    /// Puts a packet on the wire.
    fn send(&mut self, node: NodeId, run: &Run<SingleHost>, packet: usize) {
        let packet = &run.packets()[packet];
        let flow = run.flow();
        let version = self.nodes[node].device.gids()[usize::from(flow.source_index)].version;
        let encapsulation = frame::encapsulation(flow, version, self.nodes[node].mac);
        let mut bytes = self.spare.pop().unwrap_or_default();
        let mut payload = core::mem::take(&mut self.payload);
        let emitted = frame::emit(run, packet, &encapsulation, &mut payload, &mut bytes);
        if let Some(watched) = &mut self.watched {
            watched.push(Seen {
                at: self.now,
                node,
                is_sent: true,
                peer: flow.destination,
                headers: packet.headers,
                payload_len: payload.len(),
                digest: digest(&payload),
                dropped: None,
            });
        }
        self.payload = payload;
        if emitted.is_err() {
            // Memory that is gone cannot be sent. The peer will miss the packet.
            self.spare.push(bytes);
            return;
        }
        if let Some(log) = &mut self.log {
            use std::fmt::Write as _;
            let headers = &packet.headers;
            let _ = writeln!(
                log,
                "{:?} {node} > {headers} +{}",
                self.now, packet.payload_len
            );
        }
        self.hasher.write_u128(self.now.as_ps());
        self.hasher.write_usize(node);
        // The ICRC stands for what is before it.
        self.hasher.write(&bytes[bytes.len() - 4..]);
        self.carry(node, flow.destination, bytes);
    }

    /// Sends a frame that the test made, from `node`, to whoever has the address.
    pub fn inject(&mut self, node: NodeId, destination: Gid, frame: Vec<u8>) {
        self.carry(node, destination, frame);
    }

    fn carry(&mut self, source: NodeId, destination: Gid, mut bytes: Vec<u8>) {
        let from = &mut self.nodes[source];
        let sent_at = from.busy_until.max(self.now) + from.link.occupies(bytes.len());
        from.busy_until = sent_at;
        let mut at = sent_at + from.link.delay;
        if self.faults != Faults::NONE {
            at += self.up_to(self.faults.jitter);
            if self.happens(self.faults.mark) {
                frame::mark(&mut bytes);
            }
            if self.happens(self.faults.loss) {
                self.spare.push(bytes);
                return;
            }
        }
        let is_late = self.happens(self.faults.reorder);
        if is_late {
            at += self.up_to(self.faults.late_by);
        } else {
            let from = &mut self.nodes[source];
            at = at.max(from.last_arrival);
            from.last_arrival = at;
        }
        let copy_at = self
            .happens(self.faults.duplicate)
            .then(|| at + self.up_to(self.faults.late_by));
        if destination.is_multicast() {
            for node in (0..self.nodes.len()).filter(|node| *node != source) {
                let frame = self.copy(&bytes);
                self.schedule(at, What::Arrival { node, frame });
            }
            self.spare.push(bytes);
            return;
        }
        let Some(node) = owner(destination).filter(|node| *node < self.nodes.len()) else {
            self.spare.push(bytes);
            return;
        };
        if let Some(copy_at) = copy_at {
            let frame = self.copy(&bytes);
            self.schedule(copy_at, What::Arrival { node, frame });
        }
        if self.happens(self.faults.corrupt) {
            // Behind the Ethernet addresses, which the FCS would protect.
            let bit = self.rng.usize(12 * 8..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.schedule(at, What::Arrival { node, frame: bytes });
    }

    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.u32(0..1_000_000) < ppm
    }

    fn up_to(&mut self, most: Span) -> Span {
        if most == Span::ZERO {
            return Span::ZERO;
        }
        Span::from_ps(self.rng.u64(0..=most.as_ps()))
    }

    fn schedule(&mut self, at: Instant, what: What) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.queue.push(Reverse(Scheduled { at, sequence, what }));
    }

    fn wake(&mut self, node: NodeId, at: Instant) {
        let at = at.max(self.now);
        if self.nodes[node].wake_at.is_none_or(|wake_at| at < wake_at) {
            self.nodes[node].wake_at = Some(at);
            self.schedule(at, What::Wake { node });
        }
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Instant> {
        Some(self.queue.peek()?.0.at)
    }

    /// Lets the next thing happen. The node that it happened to; `None` when nothing is left.
    pub fn step(&mut self) -> Option<NodeId> {
        let Reverse(Scheduled { at, what, .. }) = self.queue.pop()?;
        assert!(at >= self.now, "time does not go backwards");
        self.now = at;
        let node = match what {
            What::Arrival { node, frame } => {
                self.arrive(node, &frame);
                self.spare.push(frame);
                node
            }
            What::Timer { node, timer } => {
                if let Some(log) = &mut self.log {
                    use std::fmt::Write as _;
                    let _ = writeln!(log, "{:?} {node} ! {timer:?}", self.now);
                }
                let device = Rc::clone(&self.nodes[node].device);
                device.handle_timeout(self.now, timer);
                node
            }
            What::Wake { node } => {
                if self.nodes[node]
                    .wake_at
                    .is_some_and(|wake_at| wake_at <= at)
                {
                    self.nodes[node].wake_at = None;
                }
                node
            }
        };
        self.settle(node);
        Some(node)
    }

    fn arrive(&mut self, node: NodeId, frame: &[u8]) {
        self.delivered += 1;
        self.hasher.write_u128(self.now.as_ps());
        self.hasher.write_usize(node);
        self.hasher.write(frame);
        if let Some(capture) = &mut self.capture {
            let time_ns = self.now.as_ns() as u64;
            capture
                .write_packet(node as u32, time_ns, &[frame], None)
                .expect("the capture can be written");
        }
        let device = &self.nodes[node].device;
        match frame::parse(frame) {
            Ok((meta, headers, payload)) => {
                let result = device.handle_packet(self.now, &meta, &headers, payload);
                if let Some(watched) = &mut self.watched {
                    watched.push(Seen {
                        at: self.now,
                        node,
                        is_sent: false,
                        peer: meta.source,
                        headers,
                        payload_len: payload.len(),
                        digest: 0,
                        dropped: result.err(),
                    });
                }
                if let Some(log) = &mut self.log {
                    use std::fmt::Write as _;
                    let outcome = match result {
                        Ok(()) => String::new(),
                        Err(reason) => format!(" dropped: {reason}"),
                    };
                    let _ = writeln!(log, "{:?} {node} < {headers}{outcome}", self.now);
                }
            }
            Err(reason) => device.counters().drop_packet(reason),
        }
    }

    /// Lets everything happen that happens before `until`, and then it is `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Lets everything happen that is due within `span`.
    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Runs until nothing is left to happen.
    ///
    /// # Panics
    ///
    /// If that does not come about within 10 virtual minutes or ten million steps: a live-lock.
    pub fn run(&mut self) {
        let end = self.now + Span::from_ms(600_000);
        for _ in 0..10_000_000 {
            if self.next_at().is_none_or(|at| at > end) {
                assert!(
                    self.queue.is_empty(),
                    "things still happen after 10 minutes"
                );
                return;
            }
            self.step();
        }
        panic!("ten million steps and no end");
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The GIDs of a node: IPv4, IPv6 and link-local.
pub fn gids(node: NodeId) -> [Gid; 3] {
    let [_, number] = ((node + 1) as u16).to_be_bytes();
    [
        Gid::from(std::net::Ipv4Addr::new(10, 0, 0, number)),
        Gid::from(std::net::Ipv6Addr::new(
            0xfd00,
            0,
            0,
            0,
            0,
            0,
            0,
            number.into(),
        )),
        Gid::link_local(mac(node).0),
    ]
}

/// The Ethernet address of a node.
pub fn mac(node: NodeId) -> MacAddr {
    let [high, low] = ((node + 1) as u16).to_be_bytes();
    MacAddr([0x02, 0, 0, 0, high, low])
}

/// The node that has an address.
pub fn owner(gid: Gid) -> Option<NodeId> {
    let [.., low] = gid.0;
    let node = usize::from(low).checked_sub(1)?;
    gids(node).contains(&gid).then_some(node)
}
