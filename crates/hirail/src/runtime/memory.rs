//! A link in memory: RNICs of one process, joined by a network with seeded faults. For tests of
//! programs that must survive loss, without a network and without waiting for one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Flow, Run, Segment, TxPacket};
use hirail_rnic::{DeviceConfig, GidEntry, PacketMeta, RecoveryKind, RoceVersion};
use hirail_vocab::{DropReason, LinkKind};
use hirail_wire::{Gid, IcrcPrefix, PathMtu};

use super::faults::{Faults, FaultyLink};
use super::link::{Arrival, Link, Outcome, Sink};
use super::{Rnic, Threads};
use crate::error::Error;
use crate::port::{Sweep, sys};
use crate::verbs::context::Context;

/// Packets waiting at one port; more are lost, as in a switch.
const QUEUE: usize = 4096;

/// A network in memory. Clones are handles to the same one.
#[derive(Clone)]
pub struct MemoryNetwork {
    shared: Arc<Shared>,
}

struct Shared {
    faults: Faults,
    recovery: RecoveryKind,
    ports: Mutex<Vec<Port>>,
}

struct Port {
    gid: Gid,
    groups: Vec<Gid>,
    queue: VecDeque<Packet>,
    bell: File,
}

/// A packet on its way.
struct Packet {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    hop_limit: u8,
    /// BTH to ICRC.
    bytes: Vec<u8>,
}

impl MemoryNetwork {
    /// A network without ports, whose devices recover from losses by go-back-N.
    pub fn new(faults: Faults) -> Self {
        Self::with_recovery(faults, RecoveryKind::GoBackN)
    }

    /// A network without ports, and how its devices recover from losses.
    pub fn with_recovery(faults: Faults, recovery: RecoveryKind) -> Self {
        Self {
            shared: Arc::new(Shared {
                faults,
                recovery,
                ports: Mutex::default(),
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
            let mut ports = self.ports();
            ports.push(Port {
                gid,
                groups: Vec::new(),
                queue: VecDeque::new(),
                bell,
            });
            ports.len() - 1
        };
        let config = DeviceConfig {
            gids: vec![GidEntry {
                gid,
                version: RoceVersion::V2,
            }],
            port_mtu: PathMtu::Mtu4096,
            seed: u128::from(self.shared.faults.seed) << 64 | index as u128,
            recovery: self.shared.recovery,
            ..DeviceConfig::default()
        };
        let link = MemoryLink {
            network: self.clone(),
            index,
            buffer: Vec::new(),
        };
        let name = format!("hirail_mem{index}");
        // Each port has a fate of its own.
        let faults = Faults {
            seed: self.shared.faults.seed.wrapping_add(index as u64),
            ..self.shared.faults
        };
        let link = FaultyLink::around(Box::new(link), &faults);
        let rnic = Rnic::start(&name, config, link, None).map_err(Error::Descriptor)?;
        Ok(Context::new(&name, rnic, None))
    }

    fn ports(&self) -> std::sync::MutexGuard<'_, Vec<Port>> {
        self.shared
            .ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries one packet to the port with its destination's address, if there is one.
    fn carry(&self, flow: &Flow, bytes: &[u8]) {
        let mut ports = self.ports();
        let is_reached = |port: &&mut Port| {
            port.gid == flow.destination || port.groups.contains(&flow.destination)
        };
        for port in ports.iter_mut().filter(is_reached) {
            if port.queue.len() == QUEUE {
                continue;
            }
            port.queue.push_back(Packet {
                source: flow.source,
                destination: flow.destination,
                traffic_class: flow.traffic_class,
                hop_limit: flow.hop_limit,
                bytes: bytes.to_vec(),
            });
            let _ = (&port.bell).write(&1u64.to_ne_bytes());
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
        let port = &mut self.network.ports()[self.index];
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
        let ports = self.network.ports();
        Ok(vec![ports[self.index].bell.as_fd().try_clone_to_owned()?])
    }

    fn receive(&mut self, _sweep: Sweep, sink: &mut dyn Sink) -> usize {
        let mut arrived = Vec::new();
        {
            let mut ports = self.network.ports();
            let port = &mut ports[self.index];
            while arrived.len() < 64
                && let Some(packet) = port.queue.pop_front()
            {
                arrived.push(packet);
            }
            if port.queue.is_empty() {
                let _ = (&port.bell).read(&mut [0; 8]);
            }
        }
        for packet in &arrived {
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
        arrived.len()
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
                self.network.carry(run.flow(), &self.buffer);
                outcome.taken += 1;
            }
            outcomes.push(outcome);
        }
        true
    }

    fn join(&mut self, group: Gid) -> Result<(), Error> {
        self.network.ports()[self.index].groups.push(group);
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        self.network.ports()[self.index]
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
