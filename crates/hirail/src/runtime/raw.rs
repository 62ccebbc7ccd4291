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
mod open;
mod packet;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Class, Flow, OpenClasses, Run};
use hirail_rnic::{Instant, RoceVersion};
use hirail_vocab::{Counter, LinkKind};
use hirail_wire::ethernet::VlanTag;
use hirail_wire::frame::Content;
use hirail_wire::mac_control::MacControl;
use hirail_wire::pcap::Direction;
use hirail_wire::{Encapsulation, FrameView, Gid, MacAddr};

use super::gids::GidWatch;
use super::link::{Link, Outcome, Sink};
use super::{Threads, now};
use crate::error::Error;
use crate::port::raw::{FrameReceiver, FrameSender, Taken};
use crate::port::{Receiver, Recorder, Sweep};
use flow_control::{Backpressure, Stopped};
use neighbours::{Answer, Interface, Neighbours};
use packet::Route;

pub use flow_control::{FlowControl, Watermarks};
pub use open::{RawOptions, RoceVersions};

/// Packets of one run.
const RUN_PACKETS: usize = 16;
/// Bytes of one run.
const RUN_BYTES: usize = 72 << 10;
/// Bytes of frames that go to the kernel at once.
const STAGING: usize = 256 << 10;
/// Frames read at once.
const RECEIVE_DEPTH: usize = 16;
/// Frames of one look at the socket, so that a flood leaves time for sending.
const RECEIVE_BUDGET: usize = 128;
/// A polling thread looks at the UDP port once in so many calls.
const PORT_EVERY: u32 = 64;
/// Control frames read at once.
const CONTROL_DEPTH: usize = 8;
/// Reads of one look, so that a flood of them stops nothing else.
const CONTROL_ROUNDS: usize = 16;
/// Frames that are held at most.
const MOST_HELD: usize = 256;
/// Priority of PAUSE and PFC frames in the kernel's own queues.
const CONTROL_PRIORITY: u8 = 7;

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

/// A frame that cannot go yet: its destination is being asked for. To the engine it has left.
struct Held {
    pending: (IpAddr, IpAddr),
    priority: u8,
    frame: Vec<u8>,
}

/// See the module's description.
struct RawLink {
    options: RawOptions,
    interface: u32,
    interface_name: String,
    mac: MacAddr,
    is_loopback: bool,
    /// The GID table, which tells the RoCE version of an index.
    gids: GidWatch,
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

/// Where frames of a flow go.
enum Destination {
    Known(MacAddr),
    /// The address of `.1` is asked for on behalf of `.0`.
    Pending(IpAddr, IpAddr),
    Unreachable,
}

impl RawLink {
    fn version(&self, flow: &Flow) -> RoceVersion {
        let entry = self.gids.table().get(usize::from(flow.source_index));
        entry.map(|entry| entry.version).unwrap_or_default()
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
        let framing = packet::framing(flow, self.version(flow))?;
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
            packet::build(route, run, packet, frame).map_err(|fault| (index, fault))?;
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
                    let frame = &staging[frame.start..frame.end];
                    recorder.frame(Direction::Outbound, frame, None);
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
    fn hold(&mut self, pending: (IpAddr, IpAddr), priority: u8, outcome: &mut Outcome) {
        for staged in self.staged.drain(..) {
            outcome.taken += 1;
            if self.held.len() == MOST_HELD {
                self.tally.add(Counter::PortXmitDiscards, 1);
                continue;
            }
            self.held.push(Held {
                pending,
                priority,
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
            let (source, destination) = held.pending;
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
                    recorder.frame(Direction::Inbound, frame.bytes, frame.tag);
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
                recorder.frame(Direction::Outbound, &frame, None);
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

impl Link for RawLink {
    fn kind(&self) -> LinkKind {
        LinkKind::Raw
    }

    fn readable(&self) -> io::Result<Vec<OwnedFd>> {
        let fds = [
            self.receiver.as_fd(),
            self.control.as_fd(),
            self.port.as_fd(),
            self.gids.as_fd(),
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
            if let Some(table) = self.gids.changed() {
                sink.gids(table);
            }
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
                packet::for_each_packet(frame, &mut *sink, |bytes, sink| {
                    if let Some(recorder) = recorder {
                        recorder.frame(Direction::Inbound, bytes, tag);
                    }
                    packet::deliver(bytes, tag, options.versions, sink);
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
            let is_other = route.priority != staged || route.pending.is_some();
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
                if let Some(pending) = route.pending {
                    self.hold(pending, route.priority, &mut outcomes[index]);
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

    fn join(&mut self, group: Gid) -> Result<(), Error> {
        let mac = MacAddr::of_group(group);
        let failed = |error| Error::join(group, &self.interface_name, error);
        self.receiver.set_group(mac, true).map_err(failed)?;
        // Routers and switches are told by the kernel, which knows groups of IP only.
        if self.options.versions.has(RoceVersion::V2)
            && let Err(error) = self.port.join_multicast(group.to_ip(), self.interface)
        {
            let _ = self.receiver.set_group(mac, false);
            return Err(failed(error));
        }
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        // It fails where the interface is gone, and the membership with it.
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
