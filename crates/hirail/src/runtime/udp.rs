//! RoCE v2 over UDP sockets, without privileges: the port as a [`Link`].

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use hirail_rnic::PacketMeta;
use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Flow, Run, Segment, TxPacket};
use hirail_vocab::{Counter, DropReason, LinkKind};
use hirail_wire::{Gid, Icrc};

use super::Threads;
use super::gids::GidWatch;
use super::link::{Arrival, Link, Outcome, Sink};
use super::traffic::Traffic;
use crate::devices::NetDevice;
use crate::error::Error;
use crate::port::{
    IcrcChecker, Path, PushError, ReceiveStats, Receiver, Recorder, Sweep, TransmitStats,
    Transmitter,
};

/// Packets of one run: what one message to the kernel can hold.
const RUN_PACKETS: usize = 64;

/// Bytes of one run: two messages of 64 KiB at the largest path MTU, and not the First of a third,
/// whose size would break the batches.
const RUN_BYTES: usize = 132 << 10;

/// The same where WRITEs have packets of one size: two full batches.
const EQUAL_RUN_BYTES: usize = 124 << 10;

/// Packets of one look at the sockets, so that a flood leaves time for sending.
const RECEIVE_BUDGET: usize = 32;

/// Once in so many calls a polling thread looks whether the addresses have changed.
const GIDS_EVERY: u32 = 1024;

/// And a thread that was woken, perhaps by just that: then it is woken again until it has looked.
const GIDS_EVERY_WOKEN: u32 = 16;

/// Where the kernel may split batches of packets.
pub(crate) enum Segmentation {
    /// On all paths.
    Everywhere,
    /// Over IPv6, and over IPv4 to addresses of this host: hardware that splits may number the packets
    /// otherwise than the ICRC assumes.
    InThisHost,
    /// On no path.
    Nowhere,
}

/// See the module's description.
pub(crate) struct UdpLink {
    receiver: Receiver,
    checker: IcrcChecker,
    transmitter: Transmitter,
    recorder: Option<Arc<Recorder>>,
    /// Index of the interface that link-local and multicast packets leave and arrive by.
    interface: u32,
    interface_name: String,
    gids: GidWatch,
    /// Calls of `receive`.
    calls: u32,
    segmentation: Segmentation,
    run_bytes: usize,
    received: Traffic,
    sent: Traffic,
    /// Packets for which there was no socket.
    without_socket: u64,
    /// What the port has told the counters.
    counted: (ReceiveStats, TransmitStats),
}

/// Bytes of Ethernet, IP and UDP headers in front of a packet.
const fn framing(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => 14 + 20 + 8,
        IpAddr::V6(_) => 14 + 40 + 8,
    }
}

/// The priority that a network gives to a traffic class, where frames have no tag: its DSCP divided
/// by 8.
const fn priority(traffic_class: u8) -> u8 {
    traffic_class >> 5
}

impl UdpLink {
    pub(super) fn new(
        receiver: Receiver,
        mut transmitter: Transmitter,
        recorder: Option<Arc<Recorder>>,
        device: &NetDevice,
        gids: GidWatch,
        segmentation: Segmentation,
        has_equal_writes: bool,
    ) -> Self {
        if let Some(recorder) = &recorder {
            transmitter.record_to(Arc::clone(recorder));
        }
        Self {
            receiver,
            checker: IcrcChecker::new(),
            transmitter,
            recorder,
            interface: device.index,
            interface_name: device.interface.clone(),
            gids,
            calls: 0,
            segmentation,
            run_bytes: if has_equal_writes {
                EQUAL_RUN_BYTES
            } else {
                RUN_BYTES
            },
            received: Traffic::default(),
            sent: Traffic::default(),
            without_socket: 0,
            counted: Default::default(),
        }
    }

    /// Tells the counters what has moved since the last time.
    fn count(&mut self, sink: &mut dyn Sink) {
        self.received.flush(|priority, packets, octets| {
            sink.count(Counter::rx_prio_packets(priority), packets);
            sink.count(Counter::rx_prio_bytes(priority), octets);
        });
        self.sent.flush(|priority, packets, octets| {
            sink.count(Counter::tx_prio_packets(priority), packets);
            sink.count(Counter::tx_prio_bytes(priority), octets);
        });
        let now = (self.receiver.stats(), self.transmitter.stats());
        let (received, sent) = core::mem::replace(&mut self.counted, now);
        let discards = now.1.refused - sent.refused + core::mem::take(&mut self.without_socket);
        for (counter, amount) in [
            (
                Counter::FwdXmitPackets,
                now.0.passed_on - received.passed_on,
            ),
            (
                Counter::FwdRcvPackets,
                now.0.taken_over - received.taken_over,
            ),
            (
                DropReason::ForwardFailed.counter(),
                now.0.pass_on_dropped - received.pass_on_dropped,
            ),
            (Counter::PortXmitDiscards, discards),
            (Counter::PortXmitWait, now.1.blocked - sent.blocked),
        ] {
            if amount > 0 {
                sink.count(counter, amount);
            }
        }
        for _ in received.runts..now.0.runts {
            sink.refused(DropReason::Truncated);
        }
    }

    fn path(&self, flow: &Flow) -> Path {
        let source = flow.source.to_ip();
        let destination = flow.destination.to_ip();
        let needs_interface = flow.destination.is_multicast()
            || matches!(destination, IpAddr::V6(ip) if ip.is_unicast_link_local());
        Path {
            source,
            destination,
            interface: if needs_interface { self.interface } else { 0 },
            traffic_class: flow.traffic_class,
            hop_limit: flow.hop_limit,
            entropy: flow.udp_source_port,
            segmentation: match &self.segmentation {
                Segmentation::Everywhere => true,
                Segmentation::Nowhere => false,
                Segmentation::InThisHost => {
                    destination.is_ipv6() || self.gids.is_local(&destination)
                }
            },
        }
    }

    /// Pushes the packets of one run from `first` on; how many, and why no more.
    fn push(&mut self, run: &Run<Threads>, first: usize) -> (usize, Option<PushError>) {
        for (index, packet) in run.packets().iter().enumerate().skip(first) {
            let pushed = self.transmitter.push(
                &packet.headers,
                packet.payload_len as usize,
                |payload, icrc| gather(run, packet, payload, icrc),
            );
            if let Err(error) = pushed {
                return (index, Some(error));
            }
        }
        (run.packets().len(), None)
    }
}

/// Copies the payload of a packet into place and covers it with the ICRC.
pub(super) fn gather(
    run: &Run<Threads>,
    packet: &TxPacket,
    payload: &mut [u8],
    icrc: &mut Icrc,
) -> Result<(), Fault> {
    let mut rest = payload;
    for segment in run.segments(packet) {
        match segment {
            Segment::Memory(slice) => {
                let (piece, tail) = rest.split_at_mut(slice.len() as usize);
                slice.region().gather(slice.offset(), piece, icrc)?;
                rest = tail;
            }
            Segment::Inline { start, len } => {
                let (piece, tail) = rest.split_at_mut(*len);
                piece.copy_from_slice(&run.inline_bytes()[*start..start + len]);
                icrc.update(piece);
                rest = tail;
            }
        }
    }
    Ok(())
}

impl Link for UdpLink {
    fn kind(&self) -> LinkKind {
        LinkKind::Udp
    }

    fn readable(&self) -> io::Result<Vec<OwnedFd>> {
        let fds = [self.receiver.as_fd(), self.gids.as_fd()];
        fds.iter().map(BorrowedFd::try_clone_to_owned).collect()
    }

    fn receive(&mut self, sweep: Sweep, sink: &mut dyn Sink) -> usize {
        self.calls = self.calls.wrapping_add(1);
        let every = match sweep {
            Sweep::Hot => GIDS_EVERY,
            Sweep::All => GIDS_EVERY_WOKEN,
        };
        if self.calls.is_multiple_of(every)
            && let Some(table) = self.gids.changed()
        {
            sink.gids(table);
        }
        let Self {
            receiver,
            checker,
            recorder,
            received,
            ..
        } = self;
        let count = receiver.recv_batch(RECEIVE_BUDGET, sweep, |datagram| {
            let octets = framing(datagram.destination) + datagram.bytes.len();
            received.add(priority(datagram.traffic_class), 1, octets as u64);
            let id = match checker.check(&datagram) {
                Ok(id) => id,
                Err(error) => return sink.refused(error.reason()),
            };
            if let Some(recorder) = recorder {
                recorder.received(&datagram, id);
            }
            let meta = PacketMeta {
                source: Gid::from_ip(datagram.source.ip()),
                destination: Gid::from_ip(datagram.destination),
                traffic_class: datagram.traffic_class,
                hop_limit: datagram.hop_limit,
                priority: 0,
                is_roce_v1: false,
            };
            let ib = &datagram.bytes[..datagram.bytes.len() - 4];
            sink.packet(Arrival { meta, ib });
        });
        self.count(sink);
        count
    }

    fn transmit(&mut self, runs: &[Run<Threads>], outcomes: &mut Vec<Outcome>) -> bool {
        let base = outcomes.len();
        let mut has_room = true;
        // Runs since the last flush begin here; the first of them begins at packet `skipped`.
        let mut first_run = base;
        for run in runs {
            outcomes.push(Outcome {
                taken: 0,
                faulted: false,
            });
            let index = outcomes.len() - 1;
            let path = self.path(run.flow());
            let mut next = 0;
            loop {
                if self.transmitter.begin(&path).is_err() {
                    // No socket to be had: the packets are lost, and the timers know what to do.
                    outcomes[index].taken = run.packets().len();
                    self.without_socket += run.packets().len() as u64;
                    break;
                }
                let (pushed, error) = self.push(run, next);
                match error {
                    None => break,
                    Some(PushError::Fault) => {
                        outcomes[index].faulted = true;
                        break;
                    }
                    Some(PushError::Full) => {
                        has_room &= flush(&mut self.transmitter, &mut outcomes[first_run..]);
                        first_run = index;
                        // What was not taken of this run stays behind, in order.
                        if outcomes[index].taken < pushed {
                            break;
                        }
                        next = pushed;
                    }
                }
            }
        }
        has_room &= flush(&mut self.transmitter, &mut outcomes[first_run..]);
        for (run, outcome) in runs.iter().zip(&outcomes[base..]) {
            let flow = run.flow();
            let packets = &run.packets()[..outcome.taken];
            let headers = framing(flow.destination.to_ip()) + 4;
            let octets: usize = packets.iter().map(|it| headers + it.wire_len()).sum();
            let priority = priority(flow.traffic_class);
            self.sent.add(priority, packets.len() as u64, octets as u64);
        }
        has_room
    }

    fn join(&mut self, group: Gid) -> Result<(), Error> {
        let joined = self.receiver.join_multicast(group.to_ip(), self.interface);
        joined.map_err(|error| Error::join(group, &self.interface_name, error))
    }

    fn leave(&mut self, group: Gid) {
        // It fails where the interface is gone, and the membership with it.
        let _ = self.receiver.leave_multicast(group.to_ip(), self.interface);
    }

    fn claim(&mut self, service: u64, address: IpAddr) -> io::Result<Option<OwnedFd>> {
        self.receiver.claim(service, address).map(Some)
    }

    fn listen(&mut self, service: u64, address: IpAddr) -> io::Result<()> {
        self.receiver.listen(service, address)
    }

    fn ignore(&mut self, service: u64, address: IpAddr) {
        self.receiver.ignore(service, address);
    }

    fn budget(&self) -> Budget {
        Budget {
            packets: RUN_PACKETS,
            bytes: self.run_bytes,
        }
    }
}

/// Hands everything to the kernel and adds what was taken to the outcomes, one per run begun.
fn flush(transmitter: &mut Transmitter, outcomes: &mut [Outcome]) -> bool {
    transmitter.flush(|run, sent| {
        if let Some(outcome) = outcomes.get_mut(run) {
            outcome.taken += sent.taken as usize;
        }
    })
}
