//! RoCE v1 and v2 over raw Ethernet frames: a network interface as a [`Link`], with link-level flow
//! control.
//!
//! Everything from the Ethernet header to the ICRC is made here, so that the ICRC is exact in both
//! directions, and the RoCE version is that of the local GID. What the kernel keeps for itself is
//! asked of it: routes, neighbours, group memberships. UDP port 4791 is joined as by every other
//! process: queue pair numbers do not collide with those of processes that use the port, and the
//! kernel does not tell our peers that nobody listens. The copies that arrive there are thrown away.
//!
//! PAUSE and PFC frames come over a socket of their own and are read before every transmission:
//! they never wait behind data. This port sends them when its receive queue fills faster than it is
//! emptied. Network cards keep such frames for themselves; virtual links pass them.

mod flow_control;
mod neighbours;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Class, Flow, OpenClasses, Run, TxPacket};
use hirail_rnic::{DeviceConfig, GidEntry, Instant, PacketMeta, RoceVersion};
use hirail_vocab::{Counter, DropReason};
use hirail_wire::ethernet::{EtherType, VlanTag};
use hirail_wire::frame::Content;
use hirail_wire::grh::Grh;
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use hirail_wire::mac_control::MacControl;
use hirail_wire::{Encapsulation, FrameView, Framing, Gid, IcrcPrefix, MacAddr};

use super::link::{Arrival, Link, Outcome, Sink};
use super::{Rnic, Threads, now, open, udp};
use crate::config::Config;
use crate::devices::{self, Kind, NetDevice};
use crate::error::Error;
use crate::port::raw::{Filter, Frame, FrameReceiver, FrameSender, RawError, Taken};
use crate::port::raw::{filter, segments};
use crate::port::{self, PortError, PortOptions, Receiver, Recorder, Sweep};
use crate::verbs::context::Context;
use flow_control::{Backpressure, Stopped};
use neighbours::{Answer, Interface, Neighbours};

pub use flow_control::{FlowControl, Watermarks};

/// Packets of one run.
const RUN_PACKETS: usize = 16;
/// Bytes of one run.
const RUN_BYTES: usize = 72 << 10;
/// Bytes of frames that go to the kernel at once.
const STAGING: usize = 256 << 10;
/// Frames read at once, and their longest: a batch of datagrams over IPv6, with its headers.
const RECEIVE_DEPTH: usize = 16;
const LONGEST_FRAME: usize = (64 << 10) + 128;
/// Frames of one look at the socket, so that a flood leaves time for sending.
const RECEIVE_BUDGET: usize = 128;
/// A polling thread looks at the UDP port once in so many calls.
const PORT_EVERY: u32 = 64;
/// Control frames read at once, their longest, and kernel memory for them.
const CONTROL_DEPTH: usize = 8;
/// Reads of one look, so that a flood of them stops nothing else.
const CONTROL_ROUNDS: usize = 16;
const CONTROL_FRAME: usize = 128;
const CONTROL_BUFFER: usize = 256 << 10;
/// Frames that are held at most.
const MOST_HELD: usize = 256;
/// Speed taken for pause times where neither the interface nor the user tells one.
const ASSUMED_SPEED_MBPS: u32 = 10_000;
/// Hops where the user gave none.
const HOP_LIMIT: u8 = 64;
/// Priority of PAUSE and PFC frames in the kernel's own queues.
const CONTROL_PRIORITY: u8 = 7;

/// Which RoCE versions a port offers: GIDs of which types it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoceVersions {
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Both, version 1 first for each address.
    #[default]
    Both,
}

impl RoceVersions {
    const fn has(self, version: RoceVersion) -> bool {
        match self {
            Self::V1 => matches!(version, RoceVersion::V1),
            Self::V2 => matches!(version, RoceVersion::V2),
            Self::Both => true,
        }
    }
}

/// How to use an interface as a raw port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawOptions {
    /// Link-level flow control.
    pub flow_control: FlowControl,
    /// RoCE versions.
    pub versions: RoceVersions,
    /// VLAN of all frames. With 0 their tags carry a priority only. Without, frames have no tag, and
    /// the network sees the priority in the DSCP alone: give queue pairs a traffic class that agrees
    /// with their service level (by default the priority is the DSCP divided by 8).
    pub vlan: Option<u16>,
    /// Priority of acknowledgements: they stop when it is stopped.
    pub ack_priority: u8,
    /// Speed of the link in Mb/s, which the unit of pause times depends on, where the interface does
    /// not tell or tells wrong.
    pub speed_mbps: Option<u32>,
    /// Kernel memory for frames that wait to be read, in bytes. Above the system's limit
    /// (`net.core.rmem_max`, doubled) only with CAP_NET_ADMIN.
    pub receive_buffer: usize,
    /// When to stop the peer, and when to let it go on. A quarter and an eighth of the receive buffer
    /// where not given.
    pub watermarks: Option<Watermarks>,
}

impl Default for RawOptions {
    /// No flow control, both versions, no tags; acknowledgements in the priority of CNPs, where they
    /// do not wait behind data.
    fn default() -> Self {
        Self {
            flow_control: FlowControl::None,
            versions: RoceVersions::Both,
            vlan: None,
            ack_priority: 6,
            speed_mbps: None,
            receive_buffer: 8 << 20,
            watermarks: None,
        }
    }
}

impl RawOptions {
    fn check(&self) -> Result<(), RawError> {
        if let Some(vlan @ 4095..) = self.vlan {
            return Err(RawError::NoSuchVlan(vlan));
        }
        if self.ack_priority > 7 {
            return Err(RawError::NoSuchPriority(self.ack_priority));
        }
        Ok(())
    }
}

impl Context {
    /// Opens a network interface, such as `eth0`, as a raw port for RoCE v1 and v2. The process needs
    /// CAP_NET_RAW. What is not about the link is configured by the environment.
    ///
    /// Packets to addresses of this port itself do not come back. On the loopback interface they
    /// do, to raw ports: the kernel keeps them from its sockets, since it did not send them.
    ///
    /// # Errors
    /// There is no such interface, an option is out of range, the process may not, or UDP port 4791
    /// is in use by somebody who does not share it.
    pub fn open_raw(interface: &str, options: RawOptions) -> Result<Self, Error> {
        open_raw(interface, options, &Config::load()?)
    }

    /// The same, configured as given.
    ///
    /// # Errors
    /// As [`open_raw`](Self::open_raw).
    pub fn open_raw_with(
        interface: &str,
        options: RawOptions,
        config: &Config,
    ) -> Result<Self, Error> {
        open_raw(interface, options, config)
    }
}

fn open_raw(interface: &str, options: RawOptions, config: &Config) -> Result<Context, Error> {
    let all = devices::list().map_err(Error::Interfaces)?;
    let Some(device) = all.iter().find(|device| device.interface == interface) else {
        let known = all.into_iter().map(|device| device.interface).collect();
        return Err(Error::Raw(RawError::NoSuchInterface {
            name: interface.to_owned(),
            known,
        }));
    };
    let (link, engine) = RawLink::open(device, options, config)?;
    let rnic = Rnic::start(&device.name, engine, Box::new(link)).map_err(Error::Descriptor)?;
    Ok(Context::new(&device.name, rnic, None))
}

/// The GID table: for each address an entry of version 1, then one of version 2. Version 1 does not
/// need an IP address: the GID made from the Ethernet address is always there.
fn gids(device: &NetDevice, versions: RoceVersions) -> Vec<GidEntry> {
    let default = Gid::link_local(device.mac);
    let has_default = device.gids.iter().any(|entry| entry.gid == default);
    let lone = GidEntry {
        gid: default,
        version: RoceVersion::V1,
    };
    let needs_default = !has_default && device.mac != [0; 6];
    let lone = needs_default.then_some(lone);
    let pairs = device.gids.iter().flat_map(|entry| {
        [RoceVersion::V1, RoceVersion::V2].map(|version| GidEntry {
            gid: entry.gid,
            version,
        })
    });
    lone.into_iter()
        .chain(pairs)
        .filter(|entry| versions.has(entry.version))
        .collect()
}

/// Counters that grew since somebody took note of them.
struct Tally {
    counts: Box<[u64; Counter::COUNT]>,
    is_empty: bool,
}

impl Tally {
    fn new() -> Self {
        Self {
            counts: Box::new([0; Counter::COUNT]),
            is_empty: true,
        }
    }

    fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter.index()] += amount;
        self.is_empty = false;
    }

    fn flush(&mut self, sink: &mut dyn Sink) {
        if self.is_empty {
            return;
        }
        self.is_empty = true;
        for (counter, count) in Counter::ALL.iter().zip(self.counts.iter_mut()) {
            if *count > 0 {
                sink.count(*counter, core::mem::take(count));
            }
        }
    }
}

/// A frame in the staging buffer.
#[derive(Clone, Copy)]
struct Staged {
    start: usize,
    end: usize,
    /// Which outcome it belongs to.
    outcome: usize,
}

/// A frame that cannot go yet: its destination is being asked for, or it is a datagram of a queue
/// pair whose class is open while its own priority is stopped. To the engine it has left.
struct Held {
    pending: Option<(IpAddr, IpAddr)>,
    priority: u8,
    frame: Vec<u8>,
}

/// See the module's description.
struct RawLink {
    options: RawOptions,
    interface: u32,
    mac: MacAddr,
    is_loopback: bool,
    /// RoCE versions by GID index.
    versions: Vec<RoceVersion>,
    /// Our place among the processes at the UDP port.
    port: Receiver,
    receiver: FrameReceiver,
    control: FrameReceiver,
    sender: FrameSender,
    /// Control frames do not wait behind data.
    control_sender: FrameSender,
    neighbours: Neighbours<Interface>,
    stopped: Stopped,
    backpressure: Backpressure,
    /// Frames, back to back.
    staging: Box<[u8]>,
    staged: Vec<Staged>,
    held: Vec<Held>,
    tally: Tally,
    recorder: Option<Arc<Recorder>>,
    /// Calls of `receive`.
    calls: u32,
}

/// Everything that the frames of a run share.
struct Route {
    encapsulation: Encapsulation,
    prefix: IcrcPrefix,
    priority: u8,
    /// Whom to ask for, where the Ethernet destination is not known.
    pending: Option<(IpAddr, IpAddr)>,
}

/// Where frames of a flow go.
enum Destination {
    Known(MacAddr),
    /// The address of `.1` is asked for on behalf of `.0`.
    Pending(IpAddr, IpAddr),
    Unreachable,
}

impl RawLink {
    /// Opens the sockets. Returns how the engine on this link is to be made as well.
    fn open(
        device: &NetDevice,
        options: RawOptions,
        config: &Config,
    ) -> Result<(Self, DeviceConfig), Error> {
        options.check()?;
        let failed = |error| Error::Raw(RawError::socket(&device.interface, error));
        let recorder = match &config.pcap {
            None => None,
            Some(path) => Some(Arc::new(
                Recorder::open_ethernet(path, &device.interface).map_err(|error| {
                    Error::Capture {
                        path: path.clone(),
                        error,
                    }
                })?,
            )),
        };
        // Before anything else, since it is what is most likely refused.
        let sender = FrameSender::open(device.index, config.port.send_buffer).map_err(failed)?;
        let control_sender = FrameSender::open(device.index, CONTROL_BUFFER).map_err(failed)?;
        control_sender.skip_queues();
        let (port, _) = port::open(&PortOptions {
            // Next to nothing is kept of the copies that come there.
            receive_buffer: 0,
            coalescing: false,
            steering: config.port.steering,
            ..PortOptions::default()
        })?;
        let block = port.blocks().first().copied().ok_or(PortError::Crowded)?;
        let receiver = FrameReceiver::open(
            device.index,
            Filter::Program(filter::program(block, options.vlan.unwrap_or(0))),
            options.receive_buffer,
            RECEIVE_DEPTH,
            LONGEST_FRAME,
        )
        .map_err(failed)?;
        let control = FrameReceiver::open(
            device.index,
            Filter::EtherType(EtherType::MAC_CONTROL),
            CONTROL_BUFFER,
            CONTROL_DEPTH,
            CONTROL_FRAME,
        )
        .map_err(failed)?;
        // An interface that cannot filter passes the frames anyway.
        let _ = control.set_group(MacAddr::MAC_CONTROL, true);

        let room = receiver.fill().room;
        let watermarks = options.watermarks.unwrap_or(Watermarks::of(room));
        let Watermarks { xoff, xon } = watermarks;
        if xon >= xoff || xoff >= room {
            return Err(Error::Raw(RawError::Watermarks { xon, xoff, room }));
        }
        let gids = gids(device, options.versions);
        let engine = open::engine(device, gids, block, room, config)?;
        let speed_mbps = options
            .speed_mbps
            .or(device.speed_mbps)
            .unwrap_or(ASSUMED_SPEED_MBPS);
        let quantum = flow_control::quantum(speed_mbps);
        let mode = options.flow_control;
        let cnp_priority = engine.dcqcn.cnp_priority();
        let link = Self {
            interface: device.index,
            mac: MacAddr(device.mac),
            is_loopback: device.kind == Kind::Loopback,
            versions: engine.gids.iter().map(|entry| entry.version).collect(),
            neighbours: Neighbours::new(Interface {
                name: device.interface.clone(),
                index: device.index,
            }),
            stopped: Stopped::new(mode, quantum, options.ack_priority, cnp_priority),
            backpressure: Backpressure::new(mode, watermarks, quantum),
            options,
            port,
            receiver,
            control,
            sender,
            control_sender,
            staging: vec![0; STAGING].into(),
            staged: Vec::with_capacity(STAGING / 64),
            held: Vec::new(),
            tally: Tally::new(),
            recorder,
            calls: 0,
        };
        Ok((link, engine))
    }

    fn version(&self, flow: &Flow) -> RoceVersion {
        let index = usize::from(flow.source_index);
        self.versions.get(index).copied().unwrap_or_default()
    }

    fn destination(&mut self, now: Instant, flow: &Flow) -> Destination {
        let given = MacAddr(flow.destination_mac);
        if given != MacAddr::default() || self.is_loopback {
            return Destination::Known(given);
        }
        if flow.destination.is_multicast() {
            return Destination::Known(MacAddr::of_group(flow.destination));
        }
        if self.version(flow) == RoceVersion::V1
            && let Some(mac) = MacAddr::of_link_local(flow.destination)
        {
            return Destination::Known(mac);
        }
        let (source, destination) = (flow.source.to_ip(), flow.destination.to_ip());
        match self.neighbours.resolve(now, source, destination) {
            Answer::Known(mac) => Destination::Known(mac),
            Answer::Pending => Destination::Pending(source, destination),
            Answer::Unreachable => Destination::Unreachable,
        }
    }

    /// The way of a run; nothing where its destination cannot be reached.
    fn route(&mut self, now: Instant, run: &Run<Threads>) -> Option<Route> {
        let flow = run.flow();
        let (dest, pending) = match self.destination(now, flow) {
            Destination::Known(mac) => (mac, None),
            Destination::Pending(source, destination) => {
                (MacAddr::default(), Some((source, destination)))
            }
            Destination::Unreachable => return None,
        };
        let priority = if run.class() == Class::ACK {
            self.options.ack_priority
        } else {
            flow.priority & 7
        };
        let framing = framing(flow, self.version(flow))?;
        let encapsulation = Encapsulation {
            dest,
            source: self.mac,
            tag: self.options.vlan.map(|vlan| VlanTag {
                priority,
                drop_eligible: false,
                vlan,
            }),
            framing,
        };
        Some(Route {
            encapsulation,
            prefix: framing.icrc_prefix(),
            priority,
            pending,
        })
    }

    /// Builds frames of a run from packet `first` on, as many as fit; how many.
    fn stage(
        &mut self,
        route: &Route,
        run: &Run<Threads>,
        first: usize,
        outcome: usize,
    ) -> Result<usize, (usize, Fault)> {
        for (index, packet) in run.packets().iter().enumerate().skip(first) {
            let start = self.staged.last().map_or(0, |last| last.end);
            let end = start + route.encapsulation.len() + packet.wire_len() + 4;
            if end > self.staging.len() {
                return Ok(index);
            }
            let frame = &mut self.staging[start..end];
            build(route, run, packet, frame).map_err(|fault| (index, fault))?;
            self.staged.push(Staged {
                start,
                end,
                outcome,
            });
        }
        Ok(run.packets().len())
    }

    /// Sends everything staged, which has one priority; counts what was taken in `outcomes`. False
    /// where there was no room for the rest, which is forgotten.
    fn flush(&mut self, priority: u8, outcomes: &mut [Outcome]) -> bool {
        let Self {
            sender,
            staging,
            staged,
            tally,
            recorder,
            ..
        } = self;
        let mut first = 0;
        let mut bytes = 0;
        let mut sent = 0;
        let mut has_room = true;
        while first < staged.len() {
            let frames = staged[first..].iter();
            let frames = frames.map(|frame| &staging[frame.start..frame.end]);
            let (gone, is_sent) = match sender.send(priority, frames) {
                Taken::First(count) => (count, true),
                // Lost like on a broken cable; the transport notices.
                Taken::Refused => (1, false),
                Taken::Full => {
                    tally.add(Counter::PortXmitWait, 1);
                    has_room = false;
                    break;
                }
            };
            for frame in &staged[first..first + gone] {
                outcomes[frame.outcome].taken += 1;
                if !is_sent {
                    tally.add(Counter::PortXmitDiscards, 1);
                    continue;
                }
                bytes += frame.end - frame.start;
                sent += 1;
                if let Some(recorder) = recorder {
                    recorder.frame(&staging[frame.start..frame.end], None);
                }
            }
            first += gone;
        }
        staged.clear();
        if sent > 0 {
            tally.add(Counter::tx_prio_packets(priority), sent);
            tally.add(Counter::tx_prio_bytes(priority), bytes as u64);
        }
        has_room
    }

    /// Keeps the staged frames until they can go.
    fn hold(&mut self, route: &Route, outcome: &mut Outcome) {
        for staged in self.staged.drain(..) {
            outcome.taken += 1;
            if self.held.len() == MOST_HELD {
                self.tally.add(Counter::PortXmitDiscards, 1);
                continue;
            }
            self.held.push(Held {
                pending: route.pending,
                priority: route.priority,
                frame: self.staging[staged.start..staged.end].to_vec(),
            });
        }
    }

    /// Sends what was held and can go now.
    fn release_held(&mut self, now: Instant) {
        if self.held.is_empty() {
            return;
        }
        let open = self.stopped.open(now);
        for mut held in core::mem::take(&mut self.held) {
            if !open.contains(Class::data(held.priority)) {
                self.held.push(held);
                continue;
            }
            if let Some((source, destination)) = held.pending {
                match self.neighbours.resolve(now, source, destination) {
                    Answer::Known(mac) => held.frame[..6].copy_from_slice(&mac.0),
                    Answer::Pending => {
                        self.held.push(held);
                        continue;
                    }
                    Answer::Unreachable => {
                        self.tally.add(Counter::PortXmitDiscards, 1);
                        continue;
                    }
                }
            }
            let end = held.frame.len();
            self.staging[..end].copy_from_slice(&held.frame);
            self.staged.push(Staged {
                start: 0,
                end,
                outcome: 0,
            });
            let mut outcome = [Outcome {
                taken: 0,
                faulted: false,
            }];
            if !self.flush(held.priority, &mut outcome) {
                // No room: lost, and the transport sends it again.
                self.tally.add(Counter::PortXmitDiscards, 1);
            }
        }
    }

    /// Reads the control frames that have come.
    fn listen(&mut self, now: Instant) {
        let Self {
            control,
            stopped,
            tally,
            recorder,
            ..
        } = self;
        for _ in 0..CONTROL_ROUNDS {
            let count = control.receive(|frame| {
                if let Some(recorder) = recorder {
                    recorder.frame(frame.bytes, frame.tag);
                }
                let parsed = match FrameView::parse(frame.bytes).map(|view| view.content) {
                    Ok(Content::MacControl(bytes)) => MacControl::parse(bytes),
                    Ok(_) => return,
                    Err(error) => Err(error),
                };
                let mut count = |counter, amount| tally.add(counter, amount);
                match parsed {
                    Ok(order) => stopped.handle(now, &order, &mut count),
                    Err(error) => {
                        let reason = hirail_rnic::drop_reason(error);
                        count(reason.counter(), 1);
                        if let Some(also) = reason.also() {
                            count(also, 1);
                        }
                    }
                }
            });
            if count < CONTROL_DEPTH {
                return;
            }
        }
    }

    /// Tells the peer to stop or to go on, as the receive queue demands.
    fn regulate(&mut self) {
        if !self.backpressure.is_on() {
            return;
        }
        let now = now();
        if let Some(order) = self.backpressure.look(now, self.receiver.fill().queued) {
            self.order(now, &order);
        }
    }

    fn order(&mut self, now: Instant, order: &MacControl) {
        let frame = order.to_frame(self.mac);
        let frames = core::iter::once(&frame[..]);
        // Where there is no room the next look tries again.
        if self.control_sender.send(CONTROL_PRIORITY, frames) == Taken::First(1) {
            let tally = &mut self.tally;
            let mut count = |counter, amount| tally.add(counter, amount);
            self.backpressure.sent(now, order, &mut count);
            if let Some(recorder) = &self.recorder {
                recorder.frame(&frame, None);
            }
        }
    }

    /// Takes note of paused time.
    fn settle(&mut self, now: Instant) {
        let tally = &mut self.tally;
        let mut count = |counter, amount| tally.add(counter, amount);
        self.stopped.settle(now, &mut count);
        self.backpressure.settle(now, &mut count);
    }
}

/// Network headers of a flow; nothing where its addresses are of two kinds.
fn framing(flow: &Flow, version: RoceVersion) -> Option<Framing> {
    let hop_limit = if flow.hop_limit == 0 {
        HOP_LIMIT
    } else {
        flow.hop_limit
    };
    if version == RoceVersion::V1 {
        return Some(Framing::V1(Grh {
            traffic_class: flow.traffic_class,
            flow_label: flow.flow_label,
            hop_limit,
            sgid: flow.source,
            dgid: flow.destination,
        }));
    }
    let (ip, udp_checksum) = match (flow.source.to_ip(), flow.destination.to_ip()) {
        // An atomic datagram needs no Identification (RFC 6864), and 0 is what a socket would send.
        // The ICRC protects it better than a UDP checksum, which IPv4 does not ask for.
        (IpAddr::V4(source), IpAddr::V4(dest)) => (
            IpHeader::V4(Ipv4Header {
                traffic_class: flow.traffic_class,
                id: 0,
                dont_fragment: true,
                ttl: hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                dest,
            }),
            false,
        ),
        // Sockets refuse datagrams without one over IPv6.
        (IpAddr::V6(source), IpAddr::V6(dest)) => (
            IpHeader::V6(Ipv6Header {
                traffic_class: flow.traffic_class,
                flow_label: flow.flow_label,
                next_header: PROTOCOL_UDP,
                hop_limit,
                source,
                dest,
            }),
            true,
        ),
        _ => return None,
    };
    Some(Framing::V2 {
        ip,
        source_port: flow.udp_source_port,
        udp_checksum,
    })
}

/// Puts a packet together in a buffer of its length.
fn build(
    route: &Route,
    run: &Run<Threads>,
    packet: &TxPacket,
    frame: &mut [u8],
) -> Result<(), Fault> {
    let ib_len = packet.wire_len() + 4;
    let ib_at = route.encapsulation.emit(ib_len, frame);
    let ib = &mut frame[ib_at..];
    packet.headers.emit(ib);
    let (header, rest) = ib.split_at_mut(packet.headers.len());
    let (payload, rest) = rest.split_at_mut(packet.payload_len as usize);
    let (pad, trailer) = rest.split_at_mut(rest.len() - 4);
    let mut icrc = route.prefix.start(ib_len, 0);
    icrc.update_ib(header);
    udp::gather(run, packet, payload, &mut icrc)?;
    pad.fill(0);
    icrc.update(pad);
    trailer.copy_from_slice(&icrc.finish());
    route.encapsulation.set_udp_checksum(frame);
    Ok(())
}

impl Link for RawLink {
    fn readable(&self) -> io::Result<Vec<OwnedFd>> {
        let fds = [
            self.receiver.as_fd(),
            self.control.as_fd(),
            self.port.as_fd(),
        ];
        fds.iter().map(|fd| fd.try_clone_to_owned()).collect()
    }

    fn receive(&mut self, sweep: Sweep, sink: &mut dyn Sink) -> usize {
        let start = now();
        if sweep == Sweep::All {
            self.listen(start);
        }
        self.release_held(start);
        self.settle(start);
        self.calls = self.calls.wrapping_add(1);
        if sweep == Sweep::All || self.calls.is_multiple_of(PORT_EVERY) {
            // The port's housekeeping; of our own packets only copies come there.
            self.port.recv_batch(RECEIVE_BUDGET, Sweep::All, |_| {});
        }
        let mut count = 0;
        while count < RECEIVE_BUDGET {
            let Self {
                receiver,
                options,
                recorder,
                ..
            } = self;
            let received = receiver.receive(|frame| {
                let tag = frame.tag;
                for_each_packet(frame, &mut *sink, |bytes, sink| {
                    if let Some(recorder) = recorder {
                        recorder.frame(bytes, tag);
                    }
                    deliver(bytes, tag, options.versions, sink);
                });
            });
            count += received;
            if received > 0 || self.backpressure.release().is_some() {
                self.regulate();
            }
            if received < RECEIVE_DEPTH {
                break;
            }
        }
        let downs = self.receiver.take_downs();
        if downs > 0 {
            sink.count(Counter::LinkDowned, downs);
        }
        self.tally.flush(sink);
        count
    }

    fn transmit(&mut self, runs: &[Run<Threads>], outcomes: &mut Vec<Outcome>) -> bool {
        let now = now();
        self.release_held(now);
        let base = outcomes.len();
        outcomes.resize(
            base + runs.len(),
            Outcome {
                taken: 0,
                faulted: false,
            },
        );
        let open = self.stopped.open(now);
        // The priority of what is staged.
        let mut staged = 0;
        for (index, run) in runs.iter().enumerate() {
            let index = base + index;
            let Some(route) = self.route(now, run) else {
                let lost = run.packets().len();
                outcomes[index].taken = lost;
                self.tally.add(Counter::PortXmitDiscards, lost as u64);
                continue;
            };
            let is_held = route.pending.is_some() || !open.contains(Class::data(route.priority));
            let is_other = route.priority != staged || is_held;
            if is_other && !self.flush(staged, outcomes) {
                return false;
            }
            staged = route.priority;
            let mut next = 0;
            let mut is_faulted = false;
            while next < run.packets().len() && !is_faulted {
                (next, is_faulted) = match self.stage(&route, run, next, index) {
                    Ok(next) => (next, false),
                    Err((next, Fault)) => (next, true),
                };
                if is_held {
                    self.hold(&route, &mut outcomes[index]);
                } else if next < run.packets().len() {
                    // Also what comes before a fault must be known to have left.
                    if !self.flush(staged, outcomes) {
                        return false;
                    }
                }
            }
            outcomes[index].faulted = is_faulted;
        }
        self.flush(staged, outcomes)
    }

    fn budget(&self) -> Budget {
        Budget {
            packets: RUN_PACKETS,
            bytes: RUN_BYTES,
        }
    }

    fn join(&mut self, group: Gid) {
        // Without membership no packets of the group arrive, which is what the user will see.
        let _ = self.receiver.set_group(MacAddr::of_group(group), true);
        let _ = self.port.join_multicast(group.to_ip(), self.interface);
    }

    fn leave(&mut self, group: Gid) {
        let _ = self.receiver.set_group(MacAddr::of_group(group), false);
        let _ = self.port.leave_multicast(group.to_ip(), self.interface);
    }

    fn open(&mut self, now: Instant) -> OpenClasses {
        if self.options.flow_control != FlowControl::None {
            self.listen(now);
        }
        self.stopped.open(now)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let held = if self.held.is_empty() {
            None
        } else {
            self.neighbours.next_look()
        };
        [self.stopped.next_end(), held].into_iter().flatten().min()
    }
}

impl Drop for RawLink {
    /// A peer that was told to stop may go on.
    fn drop(&mut self) {
        if let Some(order) = self.backpressure.release() {
            self.order(now(), &order);
        }
    }
}

/// Hands the packets in what arrived to `f`.
fn for_each_packet(frame: Frame<'_>, sink: &mut dyn Sink, mut f: impl FnMut(&[u8], &mut dyn Sink)) {
    if frame.is_cut {
        sink.refused(DropReason::Oversized);
        return;
    }
    match frame.segment {
        None => f(frame.bytes, sink),
        Some(segment) => segments::split(frame.bytes, segment, |bytes| f(bytes, sink)),
    }
}

/// Checks a packet and hands it on.
fn deliver(bytes: &[u8], tag: Option<VlanTag>, versions: RoceVersions, sink: &mut dyn Sink) {
    let view = match FrameView::parse(bytes) {
        Ok(view) => view,
        Err(error) => {
            sink.refused(hirail_rnic::drop_reason(error));
            return;
        }
    };
    let Some(roce) = view.roce() else { return };
    let framing = roce.framing();
    // Without a tag the DSCP tells the priority, as switches see it.
    let priority = tag.map_or(framing.traffic_class() >> 5, |tag| tag.priority);
    let octets = bytes.len() + if tag.is_some() { 4 } else { 0 };
    sink.count(Counter::rx_prio_packets(priority), 1);
    sink.count(Counter::rx_prio_bytes(priority), octets as u64);
    let is_roce_v1 = matches!(framing, Framing::V1(_));
    let version = if is_roce_v1 {
        RoceVersion::V1
    } else {
        RoceVersion::V2
    };
    if !versions.has(version) {
        sink.refused(DropReason::NotOurAddress);
        return;
    }
    if !roce.icrc_is_right() {
        sink.refused(DropReason::BadIcrc);
        return;
    }
    let meta = PacketMeta {
        source: framing.source(),
        destination: framing.dest(),
        traffic_class: framing.traffic_class(),
        hop_limit: framing.hop_limit(),
        priority: tag.map_or(0, |tag| tag.priority),
        is_roce_v1,
    };
    sink.packet(Arrival {
        meta,
        ib: roce.ib(),
    });
}
