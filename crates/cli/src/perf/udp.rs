//! The UDP baseline: a socket per queue pair of the job, polled, and no more protocol than it
//! takes to lose nothing.
//!
//! A stream is cut into segments of the path MTU, each behind a 64-bit position. The sender stages
//! as many as one `UDP_SEGMENT` send holds, the receiver takes them back in one piece (`UDP_GRO`)
//! and copies their payload to where it belongs, as RDMA would. A window that fits the receiver's
//! socket buffer keeps loss out; should a datagram get lost all the same, the sender goes back to
//! what was acknowledged. Round trips carry a one-byte mark and start over when they get lost.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::Error;
use crate::perf::control::Lifeline;
use crate::perf::endpoint::{Endpoint, Place, Ran, cannot, parse_address, round_trips};
use crate::perf::job::{Job, Role, Shape, Test};
use crate::perf::patience::Patience;
use crate::perf::tcp::REQUEST;

/// Bytes in front of a segment: its position in the stream, or with [`ACK`] how far the receiver
/// has come.
const HEADER: usize = 8;
/// Tells an acknowledgement from a segment.
const ACK: u64 = 1 << 63;
/// Most payload of an IPv4 datagram, and so of one send with segmentation.
const MOST: usize = 65_507;
/// Most segments of one send in kernels before 6.9.
const SEGMENTS: usize = 64;
/// Buffers repeat after this much of a message.
const MEMORY: usize = 256 << 10;
/// What the kernel charges a socket for a datagram besides its bytes, roughly.
const OVERHEAD: usize = 2304;
/// Silence after which something must have got lost.
const LOST: Duration = Duration::from_millis(20);

/// One end of the UDP baseline.
pub(crate) struct Udp {
    job: Job,
    role: Role,
    flows: Vec<Flow>,
}

/// What the other end must know of this one.
#[derive(Serialize, Deserialize)]
struct Address {
    sockets: Vec<SocketAddr>,
    /// Stream bytes that a socket of this end can hold.
    window: u64,
}

impl Udp {
    /// Binds a socket per flow.
    pub(crate) fn open(job: &Job, place: &Place) -> Result<Self, Error> {
        if job.test.shape() != Shape::Stream && job.bytes > MOST {
            return Err(Error::new(format!(
                "a UDP round trip holds at most {MOST} bytes"
            )));
        }
        let header = if job.test.shape() == Shape::Stream {
            HEADER
        } else {
            0
        };
        let flows = (0..job.qps).map(|_| Flow::open(job, header, place));
        Ok(Self {
            job: *job,
            role: place.role,
            flows: flows.collect::<Result<_, _>>()?,
        })
    }

    fn stream(&mut self, messages: u64) -> Result<Ran, Error> {
        let (sends, receives) = (self.job.sends(self.role), self.job.receives(self.role));
        let total = messages * self.job.bytes as u64;
        for flow in &mut self.flows {
            flow.outgoing.end += if sends { total } else { 0 };
            flow.incoming.end += if receives { total } else { 0 };
        }
        let start = Instant::now();
        let mut patience = Patience::default().watching(&self.flows[0].lifeline);
        let mut patient = LOST;
        loop {
            let (mut sent, mut received, mut done) = (false, false, true);
            for flow in &mut self.flows {
                sent |= flow.send()?;
                received |= flow.receive()?;
                flow.acknowledge()?;
                done &= flow.is_done();
            }
            if done {
                break;
            }
            if received {
                patience.rewarded();
                patient = LOST;
            } else if !sent && patience.wait()? > patient {
                patient += LOST;
                for flow in &mut self.flows {
                    flow.outgoing.sent = flow.outgoing.acked;
                }
            }
        }
        Ok(Ran {
            elapsed: sends.then(|| start.elapsed()),
            ..Ran::default()
        })
    }

    fn round_trips(&mut self, messages: u64, there: usize, back: usize) -> Result<Ran, Error> {
        let flow = &self.flows[0];
        let mut outgoing = vec![0u8; there.max(back)];
        let mut buffer = vec![0u8; 1 << 16];
        if self.role == Role::Server {
            loop {
                let mark = flow.await_message(&mut buffer, there, None, Duration::MAX)?;
                let mark = mark.expect("waits without end");
                flow.send_marked(&mut outgoing[..back], mark)?;
                if mark & LAST != 0 {
                    return Ok(Ran::default());
                }
            }
        }
        let mut histogram = round_trips();
        let mut mark = 0u8;
        let start = Instant::now();
        let mut before = start;
        for message in 1..=messages {
            loop {
                let last = if message == messages { LAST } else { 0 };
                mark = (mark.wrapping_add(1) & !LAST) | last;
                flow.send_marked(&mut outgoing[..there], mark)?;
                if flow
                    .await_message(&mut buffer, back, Some(mark), 5 * LOST)?
                    .is_some()
                {
                    break;
                }
            }
            let now = Instant::now();
            histogram.saturating_record((now - before).as_nanos() as u64);
            before = now;
        }
        Ok(Ran {
            elapsed: Some(start.elapsed()),
            round_trips: Some(histogram),
            ..Ran::default()
        })
    }
}

impl Endpoint for Udp {
    fn address(&self) -> Value {
        let sockets = self
            .flows
            .iter()
            .filter_map(|flow| flow.socket.local_addr().ok())
            .collect();
        json!(Address {
            sockets,
            window: self.flows[0].incoming.window
        })
    }

    fn connect(&mut self, peer: &Value) -> Result<(), Error> {
        let peer: Address = parse_address(peer)?;
        if peer.sockets.len() != self.flows.len() {
            return Err(Error::new(
                "the other end opened another number of UDP sockets",
            ));
        }
        for (flow, address) in self.flows.iter_mut().zip(peer.sockets) {
            flow.socket
                .connect(address)
                .map_err(cannot(format_args!("send UDP datagrams to {address}")))?;
            flow.outgoing.window = peer.window;
        }
        Ok(())
    }

    fn run(&mut self, messages: u64) -> Result<Ran, Error> {
        let bytes = self.job.bytes;
        match self.job.test.shape() {
            Shape::Stream => self.stream(messages),
            Shape::PingPong => self.round_trips(messages, bytes, bytes),
            Shape::RoundTrip if self.job.test == Test::AtomicLat => {
                self.round_trips(messages, REQUEST + 12, 8)
            }
            Shape::RoundTrip => self.round_trips(messages, REQUEST, bytes),
        }
    }
}

/// In a mark: no further round trip follows in this run.
const LAST: u8 = 0x80;

/// One socket with a stream each way.
struct Flow {
    socket: UdpSocket,
    lifeline: Lifeline,
    cut: Cut,
    /// Segments of one send: 1 where the kernel does not segment.
    segments: usize,
    outgoing: Outgoing,
    incoming: Incoming,
    buffer: Vec<u8>,
}

/// How a stream of messages is cut into segments: none spans two messages.
#[derive(Clone, Copy)]
struct Cut {
    bytes: usize,
    mtu: usize,
}

impl Cut {
    /// Where in its message `position` is.
    fn offset(self, position: u64) -> usize {
        (position % self.bytes as u64) as usize
    }

    /// Payload of the segment that starts at `position`.
    fn segment(self, position: u64) -> usize {
        self.mtu.min(self.bytes - self.offset(position))
    }
}

/// Positions in the stream that this end sends; `acked <= sent <= end`.
struct Outgoing {
    acked: u64,
    sent: u64,
    end: u64,
    /// Most bytes between `acked` and `sent`: what the other end's socket holds.
    window: u64,
    source: Vec<u8>,
    staging: Vec<u8>,
}

/// Positions in the stream that this end receives; `acked <= received <= end`.
struct Incoming {
    acked: u64,
    received: u64,
    end: u64,
    /// What this end's socket holds.
    window: u64,
    /// A segment came twice or out of order: say where we are.
    asked: bool,
    memory: Vec<u8>,
}

impl Flow {
    fn open(job: &Job, header: usize, place: &Place) -> Result<Self, Error> {
        let set_up = cannot("set up a UDP socket");
        let socket = UdpSocket::bind((place.local, 0))
            .map_err(cannot(format_args!("open a UDP socket on {}", place.local)))?;
        let cut = Cut {
            bytes: job.bytes,
            mtu: job.mtu,
        };
        let segment = header + cut.segment(0);
        let gso = i32::try_from(segment).expect("a segment is at most an MTU and a header");
        let segmenting = setsockopt(&socket, sockopt::UdpGsoSegment, &gso).is_ok();
        // Without it segments come one by one: slower, and still right.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let options = socket2::SockRef::from(&socket);
        let room = options
            .set_recv_buffer_size(4 << 20)
            .and_then(|()| options.set_send_buffer_size(4 << 20))
            .and_then(|()| socket.set_nonblocking(true))
            .and_then(|()| options.recv_buffer_size())
            .map_err(set_up)?;
        let segments = if segmenting {
            (MOST / segment).clamp(1, SEGMENTS)
        } else {
            1
        };
        let window = room * 3 / 4 / (segments * segment + OVERHEAD) * segments * cut.segment(0);
        let memory = vec![0x5A; job.bytes.min(MEMORY + job.mtu)];
        Ok(Self {
            socket,
            lifeline: place.lifeline.clone(),
            cut,
            segments,
            outgoing: Outgoing {
                acked: 0,
                sent: 0,
                end: 0,
                window: 0,
                source: memory.clone(),
                staging: Vec::with_capacity(MOST),
            },
            incoming: Incoming {
                acked: 0,
                received: 0,
                end: 0,
                window: window.max(cut.segment(0)) as u64,
                asked: false,
                memory,
            },
            buffer: vec![0; 1 << 16],
        })
    }

    fn is_done(&self) -> bool {
        self.outgoing.acked == self.outgoing.end && self.incoming.acked == self.incoming.end
    }

    /// Sends one batch of segments, if window and socket have room.
    fn send(&mut self) -> Result<bool, Error> {
        let out = &mut self.outgoing;
        let limit = out.end.min(out.acked + out.window);
        let mut position = out.sent;
        out.staging.clear();
        for _ in 0..self.segments {
            let length = self.cut.segment(position);
            if position + length as u64 > limit {
                break;
            }
            let offset = self.cut.offset(position) % MEMORY;
            out.staging.extend_from_slice(&position.to_be_bytes());
            out.staging
                .extend_from_slice(&out.source[offset..offset + length]);
            position += length as u64;
            // The kernel cuts into equal segments; only the last may be shorter.
            if length < self.cut.segment(0) {
                break;
            }
        }
        if out.staging.is_empty() || !put(&self.socket, &out.staging)? {
            return Ok(false);
        }
        out.sent = position;
        Ok(true)
    }

    /// Takes one batch of segments or an acknowledgement, if there is one.
    fn receive(&mut self) -> Result<bool, Error> {
        let Some(n) = take(&self.socket, &mut self.buffer)? else {
            return Ok(false);
        };
        let (out, incoming) = (&mut self.outgoing, &mut self.incoming);
        let mut rest = &self.buffer[..n];
        while let Some((header, tail)) = rest.split_first_chunk::<HEADER>() {
            let header = u64::from_be_bytes(*header);
            if header & ACK != 0 {
                let acked = header & !ACK;
                if acked > out.acked && acked <= out.end {
                    out.acked = acked;
                    out.sent = out.sent.max(acked);
                }
                rest = tail;
                continue;
            }
            let length = self.cut.segment(header);
            let Some((payload, tail)) = tail.split_at_checked(length) else {
                break;
            };
            if header == incoming.received {
                let offset = self.cut.offset(header) % MEMORY;
                incoming.memory[offset..offset + length].copy_from_slice(payload);
                incoming.received += length as u64;
            } else {
                incoming.asked = true;
            }
            rest = tail;
        }
        Ok(true)
    }

    /// Tells the sender how far we are: every quarter of the window, at the end, and when asked.
    fn acknowledge(&mut self) -> Result<(), Error> {
        let incoming = &mut self.incoming;
        let due = incoming.received - incoming.acked >= incoming.window / 4
            || incoming.received >= incoming.end;
        let wanted = incoming.asked || (due && incoming.acked != incoming.received);
        if wanted && put(&self.socket, &(incoming.received | ACK).to_be_bytes())? {
            incoming.acked = incoming.received;
            incoming.asked = false;
        }
        Ok(())
    }

    /// Sends a message, each of its segments starting with `mark`.
    fn send_marked(&self, message: &mut [u8], mark: u8) -> Result<(), Error> {
        for segment in message.chunks_mut(self.cut.segment(0)) {
            segment[0] = mark;
        }
        let mut patience = Patience::default().watching(&self.lifeline);
        let most = self.segments * self.cut.segment(0);
        for part in message.chunks(most) {
            while !put(&self.socket, part)? {
                patience.wait()?;
            }
        }
        Ok(())
    }

    /// Polls until all `bytes` of a message have come, with this mark or whatever mark comes, and
    /// returns the mark; `None` when nothing has come for as long as `lost`.
    fn await_message(
        &self,
        buffer: &mut [u8],
        bytes: usize,
        mark: Option<u8>,
        lost: Duration,
    ) -> Result<Option<u8>, Error> {
        let mut patience = Patience::default().watching(&self.lifeline);
        let mut current = mark;
        let mut missing = bytes;
        loop {
            let Some(n) = take(&self.socket, buffer)? else {
                if patience.wait()? > lost {
                    return Ok(None);
                }
                continue;
            };
            if current != Some(buffer[0]) {
                if mark.is_some() {
                    continue;
                }
                (current, missing) = (Some(buffer[0]), bytes);
            }
            missing = missing.saturating_sub(n);
            if missing == 0 {
                return Ok(current);
            }
        }
    }
}

/// Sends, unless the socket is full.
fn put(socket: &UdpSocket, bytes: &[u8]) -> Result<bool, Error> {
    match socket.send(bytes) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(cannot("send over UDP")(error)),
    }
}

/// Receives, if anything is there.
fn take(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
    match socket.recv(buffer) {
        Ok(n) if n > 0 => Ok(Some(n)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(cannot("receive over UDP")(error)),
    }
}
