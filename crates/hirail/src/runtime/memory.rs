//! A link in memory: RNICs of one process, joined by a network with seeded faults. For tests of
//! programs that must survive loss, without a network and without waiting for one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Flow, Run, Segment, TxPacket};
use hirail_rnic::{DeviceConfig, GidEntry, PacketMeta, RecoveryKind, RoceVersion};
use hirail_vocab::{DropReason, LinkKind};
use hirail_wire::{Gid, IcrcPrefix, PathMtu};

use super::link::{Arrival, Link, Outcome, Sink};
use super::{Rnic, Threads};
use crate::error::Error;
use crate::port::{Sweep, sys};
use crate::verbs::context::Context;

/// What a [`MemoryNetwork`] does to packets. Probabilities are between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Seed of all randomness.
    pub seed: u64,
    /// A packet vanishes.
    pub loss: f64,
    /// A packet arrives twice.
    pub duplication: f64,
    /// A packet is held back, so that later ones pass it.
    pub reordering: f64,
    /// A bit of a packet is flipped.
    pub corruption: f64,
    /// A packet that is ECN-capable is marked "congestion experienced".
    pub ce_mark: f64,
    /// Time on the way.
    pub delay: Duration,
    /// Loss recovery of the devices on this network.
    pub recovery: RecoveryKind,
}

impl Default for Faults {
    /// A perfect network.
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            corruption: 0.0,
            ce_mark: 0.0,
            delay: Duration::ZERO,
            recovery: RecoveryKind::GoBackN,
        }
    }
}

/// How long a reordered packet is held back beyond its delay.
const HELD_BACK: Duration = Duration::from_micros(200);

/// Packets waiting at one port; more are lost, as in a switch.
const QUEUE: usize = 4096;

/// A network in memory. Clones are handles to the same one.
#[derive(Clone)]
pub struct MemoryNetwork {
    shared: Arc<Shared>,
}

struct Shared {
    faults: Faults,
    state: Mutex<State>,
}

struct State {
    rng: fastrand::Rng,
    sequence: u64,
    ports: Vec<Port>,
}

struct Port {
    gid: Gid,
    groups: Vec<Gid>,
    queue: BinaryHeap<Reverse<Packet>>,
    bell: File,
}

/// A packet on its way: due time in nanoseconds, then the order of sending.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    due: u64,
    sequence: u64,
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    hop_limit: u8,
    /// BTH to ICRC.
    bytes: Vec<u8>,
}

impl MemoryNetwork {
    /// A network without ports.
    pub fn new(faults: Faults) -> Self {
        let state = State {
            rng: fastrand::Rng::with_seed(faults.seed),
            sequence: 0,
            ports: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                faults,
                state: Mutex::new(state),
            }),
        }
    }

    /// Opens a device on a new port with this address.
    ///
    /// # Errors
    /// The process has no descriptor or thread left.
    pub fn open(&self, address: IpAddr) -> Result<Context, Error> {
        crate::fork::check()?;
        let gid = Gid::from_ip(address);
        let bell = File::from(sys::event().map_err(Error::Descriptor)?);
        let index = {
            let mut state = self.state();
            state.ports.push(Port {
                gid,
                groups: Vec::new(),
                queue: BinaryHeap::new(),
                bell,
            });
            state.ports.len() - 1
        };
        let config = DeviceConfig {
            gids: vec![GidEntry {
                gid,
                version: RoceVersion::V2,
            }],
            port_mtu: PathMtu::Mtu4096,
            seed: u128::from(self.shared.faults.seed) << 64 | index as u128,
            recovery: self.shared.faults.recovery,
            ..DeviceConfig::default()
        };
        let link = MemoryLink {
            network: self.clone(),
            index,
            buffer: Vec::new(),
        };
        let name = format!("hirail_mem{index}");
        let rnic = Rnic::start(&name, config, Box::new(link)).map_err(Error::Descriptor)?;
        Ok(Context::new(&name, rnic, None))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries one packet to the port with its destination's address, if there is one.
    fn carry(&self, flow: &Flow, mut bytes: Vec<u8>) {
        let faults = &self.shared.faults;
        let mut state = self.state();
        let rng = &mut state.rng;
        if rng.f64() < faults.loss {
            return;
        }
        let mut traffic_class = flow.traffic_class;
        if traffic_class & 3 != 0 && rng.f64() < faults.ce_mark {
            traffic_class |= 3;
        }
        if rng.f64() < faults.corruption {
            let at = rng.usize(..bytes.len());
            bytes[at] ^= 1 << rng.u32(..8);
        }
        let copies = if rng.f64() < faults.duplication { 2 } else { 1 };
        let mut delay = faults.delay;
        if rng.f64() < faults.reordering {
            delay += HELD_BACK;
        }
        let due = sys::now_ns() + delay.as_nanos() as u64;
        let State {
            sequence, ports, ..
        } = &mut *state;
        let is_reached = |port: &&mut Port| {
            port.gid == flow.destination || port.groups.contains(&flow.destination)
        };
        for port in ports.iter_mut().filter(is_reached) {
            for _ in 0..copies {
                *sequence += 1;
                if port.queue.len() == QUEUE {
                    continue;
                }
                port.queue.push(Reverse(Packet {
                    due,
                    sequence: *sequence,
                    source: flow.source,
                    destination: flow.destination,
                    traffic_class,
                    hop_limit: flow.hop_limit,
                    bytes: bytes.clone(),
                }));
                let _ = (&port.bell).write(&1u64.to_ne_bytes());
            }
        }
    }
}

struct MemoryLink {
    network: MemoryNetwork,
    index: usize,
    buffer: Vec<u8>,
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        // Nobody is at this address any more.
        let port = &mut self.network.state().ports[self.index];
        port.gid = Gid::default();
        port.groups.clear();
        port.queue.clear();
    }
}

impl MemoryLink {
    /// Puts a packet together, BTH to ICRC.
    fn build(&mut self, run: &Run<Threads>, packet: &TxPacket) -> Result<(), Fault> {
        let len = packet.wire_len() + 4;
        self.buffer.clear();
        self.buffer.resize(len, 0);
        packet.headers.emit(&mut self.buffer);
        let mut at = packet.headers.len();
        for segment in run.segments(packet) {
            match segment {
                Segment::Memory(slice) => {
                    let end = at + slice.len() as usize;
                    slice
                        .region()
                        .read_into(slice.offset(), &mut self.buffer[at..end])?;
                    at = end;
                }
                Segment::Inline { start, len } => {
                    let bytes = &run.inline_bytes()[*start..start + len];
                    self.buffer[at..at + len].copy_from_slice(bytes);
                    at += len;
                }
            }
        }
        let flow = run.flow();
        let icrc = prefix(flow.source, flow.destination).compute(&self.buffer[..len - 4], 0);
        self.buffer[len - 4..].copy_from_slice(&icrc);
        Ok(())
    }
}

/// The network header of this link is that of RoCE v2 with Identification 0 and source port 0.
fn prefix(source: Gid, destination: Gid) -> IcrcPrefix {
    match (source.to_ip(), destination.to_ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            IcrcPrefix::v2_ipv4(source, destination, 0, true)
        }
        _ => IcrcPrefix::v2_ipv6(source.0.into(), destination.0.into(), 0),
    }
}

impl Link for MemoryLink {
    fn kind(&self) -> LinkKind {
        LinkKind::Memory
    }

    fn readable(&self) -> io::Result<Vec<OwnedFd>> {
        let state = self.network.state();
        Ok(vec![
            state.ports[self.index].bell.as_fd().try_clone_to_owned()?,
        ])
    }

    fn receive(&mut self, _sweep: Sweep, sink: &mut dyn Sink) -> usize {
        let mut due = Vec::new();
        {
            let mut state = self.network.state();
            let now = sys::now_ns();
            let port = &mut state.ports[self.index];
            while due.len() < 64 && port.queue.peek().is_some_and(|next| next.0.due <= now) {
                due.extend(port.queue.pop().map(|next| next.0));
            }
            if port.queue.is_empty() {
                let _ = (&port.bell).read(&mut [0; 8]);
            }
        }
        for packet in &due {
            let Some((ib, icrc)) = packet.bytes.split_last_chunk::<4>() else {
                sink.refused(DropReason::Truncated);
                continue;
            };
            if prefix(packet.source, packet.destination).compute(ib, 0) != *icrc {
                sink.refused(DropReason::BadIcrc);
                continue;
            }
            let meta = PacketMeta {
                source: packet.source,
                destination: packet.destination,
                traffic_class: packet.traffic_class,
                hop_limit: packet.hop_limit,
                priority: 0,
                is_roce_v1: false,
            };
            sink.packet(Arrival { meta, ib });
        }
        due.len()
    }

    fn transmit(&mut self, runs: &[Run<Threads>], outcomes: &mut Vec<Outcome>) -> bool {
        for run in runs {
            let mut outcome = Outcome {
                taken: 0,
                faulted: false,
            };
            for packet in run.packets() {
                if self.build(run, packet).is_err() {
                    outcome.faulted = true;
                    break;
                }
                self.network.carry(run.flow(), self.buffer.clone());
                outcome.taken += 1;
            }
            outcomes.push(outcome);
        }
        true
    }

    fn join(&mut self, group: Gid) -> Result<(), Error> {
        self.network.state().ports[self.index].groups.push(group);
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        self.network.state().ports[self.index]
            .groups
            .retain(|joined| *joined != group);
    }

    fn budget(&self) -> Budget {
        Budget {
            packets: 16,
            bytes: 64 << 10,
        }
    }
}
