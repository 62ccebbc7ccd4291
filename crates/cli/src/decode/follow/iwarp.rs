//! iWARP connections: MPA startup, then FPDUs with DDP segments of RDMAP messages.

use std::collections::VecDeque;

use hirail_wire::iwarp::{
    Ddp, Error, Fpdu, Opcode, ReadRequest, Revision, Segment, Startup, StartupKind, Terminate,
};

use crate::decode::dissect::Tcp;

use super::requests::Kind;
use super::stream::{Arrival, Stream};
use super::{Connection, End, Event, Follower, MessageRef, Service, Side, Story, Tally, Tie};

/// How a connection's first payload begins.
const REQUEST_KEY: &[u8] = b"MPA ID Req Frame";

/// Reads that wait for their response; more than any peer grants.
const MOST_READS: usize = 4096;

/// A startup frame or an FPDU.
#[derive(Clone, Debug)]
pub(in crate::decode) struct Unit {
    /// Bytes of the stream.
    pub(in crate::decode) len: usize,
    pub(in crate::decode) message: Option<MessageRef>,
    pub(in crate::decode) kind: UnitKind,
}

#[derive(Clone, Debug)]
pub(in crate::decode) enum UnitKind {
    Startup {
        kind: StartupKind,
        markers: bool,
        crc: bool,
        rejected: bool,
        revision: Revision,
        private_data: Vec<u8>,
    },
    Fpdu {
        ulpdu_len: u16,
        pad: usize,
        crc: Crc,
        /// Where markers stand, and how far back they point.
        markers: Vec<(usize, u16)>,
        segment: Result<Segment, Error>,
        /// Bytes of the message in this segment.
        payload: usize,
        read: Option<ReadRequest>,
        terminate: Option<Terminated>,
    },
}

/// What a Terminate message says.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Terminated {
    pub(in crate::decode) layer: u8,
    pub(in crate::decode) kind: u8,
    pub(in crate::decode) code: u8,
    pub(in crate::decode) meaning: &'static str,
}

/// What the CRC of an FPDU says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) enum Crc {
    Ok(u32),
    Bad {
        received: u32,
        computed: u32,
    },
    /// Both ends agreed not to use it.
    Off(u32),
}

/// What is known of a connection.
#[derive(Default)]
pub(super) struct Track {
    /// What each end sends.
    directions: [Direction; 2],
}

#[derive(Default)]
struct Direction {
    stream: Stream,
    phase: Phase,
    /// What this end's startup frame asked for.
    wants_markers: bool,
    wants_crc: bool,
    messages: u64,
    /// Messages of which segments are outstanding.
    open: [Option<Open>; Kind::ALL.len()],
    /// Reads that have not been answered.
    reads: VecDeque<Read>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The startup frame comes next.
    #[default]
    Startup,
    /// An FPDU comes next, at this position after the startup frame.
    Fpdus(u64),
    /// Where the next FPDU begins is not known any more.
    Lost,
}

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    bytes: u64,
    segments: u64,
}

struct Read {
    number: u64,
    time: Option<u64>,
}

impl Follower {
    pub(super) fn tcp(&mut self, time: Option<u64>, tcp: &Tcp<'_>) -> Story {
        let mut story = Story::default();
        let source = (tcp.ip.source(), tcp.header.source_port);
        let dest = (tcp.ip.dest(), tcp.header.dest_port);
        let known = self.streams.get(&[source, dest]).copied();
        let begins = tcp.payload.starts_with(REQUEST_KEY);
        let Some((index, side)) = known.or_else(|| {
            if !begins {
                return None;
            }
            let ends = [source, dest].map(|(address, port)| End {
                address,
                number: Some(port.into()),
            });
            let track = super::Track::Iwarp(Box::default());
            let index = self.connect(Connection::new(Service::Iwarp, ends, Tie::Named, track))?;
            self.streams.insert([source, dest], (index, Side::First));
            self.streams.insert([dest, source], (index, Side::Second));
            Some((index, Side::First))
        }) else {
            return story;
        };
        story.connection = Some((index, side));
        let connection = &mut self.connections[index];
        connection.tallies[side as usize].packets += 1;
        if let super::Track::Iwarp(track) = &mut connection.track {
            track.take(time, side, tcp, &mut connection.tallies, &mut story);
        }
        story
    }
}

impl Track {
    fn take(
        &mut self,
        time: Option<u64>,
        side: Side,
        tcp: &Tcp<'_>,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) {
        let tally = &mut tallies[side as usize];
        let bytes = tcp.payload.len() as u64;
        match self.directions[side as usize]
            .stream
            .take(&tcp.header, tcp.payload)
        {
            Arrival::Empty | Arrival::InOrder => {}
            Arrival::Again => {
                tally.again += 1;
                story.events.push(Event::TcpAgain { bytes });
            }
            Arrival::AfterGap(bytes) => story.events.push(Event::TcpMissing { bytes }),
            Arrival::Late => {
                tally.late += 1;
                story.events.push(Event::TcpLate);
            }
            Arrival::Broken => self.lose(side, "too many bytes are missing", story),
        }
        while let Some(unit) = self.unit(time, side, tallies, story) {
            story.message = story.message.or(unit.message);
            self.directions[side as usize].stream.consume(unit.len);
            story.units.push(unit);
        }
        if self.directions[side as usize].phase == Phase::Lost {
            self.directions[side as usize].stream.discard();
        }
    }

    fn lose(&mut self, side: Side, why: &'static str, story: &mut Story) {
        let phase = &mut self.directions[side as usize].phase;
        if *phase != Phase::Lost {
            *phase = Phase::Lost;
            story.events.push(Event::LostTrack(why));
        }
    }

    /// The next unit of what `side` sends, where it is complete.
    fn unit(
        &mut self,
        time: Option<u64>,
        side: Side,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) -> Option<Unit> {
        let direction = &self.directions[side as usize];
        match direction.phase {
            Phase::Lost => None,
            Phase::Startup => self.startup(side, story),
            Phase::Fpdus(position) => self.fpdu(time, side, position, tallies, story),
        }
    }

    fn startup(&mut self, side: Side, story: &mut Story) -> Option<Unit> {
        let direction = &mut self.directions[side as usize];
        let expected = match side {
            Side::First => StartupKind::Request,
            Side::Second => StartupKind::Reply,
        };
        match Startup::parse(direction.stream.ready()) {
            Ok((startup, len)) if startup.kind == expected => {
                let unit = UnitKind::Startup {
                    kind: startup.kind,
                    markers: startup.markers,
                    crc: startup.crc,
                    rejected: startup.rejected,
                    revision: startup.revision,
                    private_data: startup.private_data.to_vec(),
                };
                direction.wants_markers = startup.markers;
                direction.wants_crc = startup.crc;
                direction.phase = Phase::Fpdus(0);
                Some(Unit {
                    len,
                    message: None,
                    kind: unit,
                })
            }
            Err(Error::Truncated { .. }) => None,
            Ok(_) | Err(_) => {
                self.lose(side, "there is no MPA startup frame", story);
                None
            }
        }
    }

    fn fpdu(
        &mut self,
        time: Option<u64>,
        side: Side,
        position: u64,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) -> Option<Unit> {
        // Markers are inserted for the receiver, where it asked; CRCs if either side asked.
        let markers = self.directions[side.other() as usize].wants_markers;
        let uses_crc = self.directions.iter().any(|direction| direction.wants_crc);
        let direction = &mut self.directions[side as usize];
        let fpdu = Fpdu::parse(direction.stream.ready(), markers.then_some(position)).ok()?;
        let (len, ulpdu_len, pad) = (fpdu.bytes().len(), fpdu.ulpdu_len(), fpdu.pad());
        let crc = match (uses_crc, fpdu.crc(), fpdu.computed_crc()) {
            (false, received, _) => Crc::Off(received),
            (true, received, computed) if received == computed => Crc::Ok(received),
            (true, received, computed) => Crc::Bad { received, computed },
        };
        let marks: Vec<_> = fpdu.markers().collect();
        let markers_ok = fpdu.markers_ok();
        let ulpdu: Vec<u8> = fpdu.ulpdu().flatten().copied().collect();
        let segment = Segment::parse(&ulpdu);
        let header = segment.as_ref().map_or(ulpdu.len(), Segment::header_len);
        let payload = &ulpdu[header..];
        let opcode = segment.as_ref().ok().map(Segment::opcode);
        let read = (opcode == Some(Opcode::ReadRequest))
            .then(|| ReadRequest::parse(payload).ok())
            .flatten();
        let terminate = (opcode == Some(Opcode::Terminate))
            .then(|| Terminate::parse(payload).ok())
            .flatten()
            .map(|terminate| Terminated {
                layer: terminate.layer,
                kind: terminate.kind,
                code: terminate.code,
                meaning: terminate.meaning(),
            });
        let payload = payload.len();
        direction.phase = Phase::Fpdus(position + len as u64);
        let corrupt = matches!(crc, Crc::Bad { .. });
        tallies[side as usize].corrupt += u64::from(corrupt);
        tallies[side as usize].refused += u64::from(!corrupt && segment.is_err());
        if !markers_ok || (segment.is_err() && !matches!(crc, Crc::Ok(_))) {
            self.lose(side, "this is no FPDU", story);
        }
        let message = match &segment {
            Ok(segment) if !corrupt => {
                let length = read.map_or(payload as u64, |read| read.length.into());
                self.message(time, side, segment, length, tallies, story)
            }
            _ => None,
        };
        let kind = UnitKind::Fpdu {
            ulpdu_len,
            pad,
            crc,
            markers: marks,
            segment,
            payload,
            read,
            terminate,
        };
        Some(Unit { len, message, kind })
    }

    /// Puts a segment into its message. `bytes` is what it carries, or what a read asks for.
    fn message(
        &mut self,
        time: Option<u64>,
        side: Side,
        segment: &Segment,
        bytes: u64,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) -> Option<MessageRef> {
        let kind = match segment.opcode() {
            Opcode::Write => Kind::Write,
            Opcode::ReadRequest => Kind::Read,
            Opcode::AtomicRequest => Kind::Atomic,
            Opcode::Send | Opcode::SendInv | Opcode::SendSe | Opcode::SendSeInv => Kind::Send,
            Opcode::Immediate | Opcode::ImmediateSe => Kind::Send,
            Opcode::ReadResponse => return self.response(time, side, segment, bytes, story),
            Opcode::AtomicResponse | Opcode::Terminate => return None,
        };
        let direction = &mut self.directions[side as usize];
        let tally = &mut tallies[side as usize];
        // An untagged segment tells where in its message it is.
        let continues = match segment.ddp() {
            Ddp::Untagged { offset, .. } => offset != 0,
            Ddp::Tagged { .. } => true,
        };
        let open = &mut direction.open[kind as usize];
        let mut message = match open.take().filter(|_| continues) {
            Some(message) => message,
            None => {
                direction.messages += 1;
                tally.messages[kind as usize] += 1;
                Open {
                    number: direction.messages,
                    bytes: 0,
                    segments: 0,
                }
            }
        };
        message.bytes += bytes;
        message.segments += 1;
        tally.bytes += bytes;
        if kind == Kind::Read {
            if direction.reads.len() == MOST_READS {
                direction.reads.pop_front();
            }
            direction.reads.push_back(Read {
                number: message.number,
                time,
            });
        } else if !segment.last() {
            *open = Some(message);
        } else if message.segments > 1 {
            let (bytes, packets) = (message.bytes, message.segments);
            story.events.push(Event::Whole { bytes, packets });
        }
        Some(MessageRef {
            of: side,
            number: message.number,
        })
    }

    /// A read response answers the oldest read of the other end.
    fn response(
        &mut self,
        time: Option<u64>,
        side: Side,
        segment: &Segment,
        bytes: u64,
        story: &mut Story,
    ) -> Option<MessageRef> {
        let of = side.other();
        let open = &mut self.directions[side as usize].open[Kind::Read as usize];
        let mut message = open.take();
        let reads = &mut self.directions[of as usize].reads;
        let read = reads.front()?;
        let (number, asked) = (read.number, read.time);
        let so_far = message.as_mut().map_or(0, |message| message.bytes) + bytes;
        if segment.last() {
            reads.pop_front();
            let latency_ns = time.zip(asked).map(|(now, then)| now.saturating_sub(then));
            story.events.push(Event::Answered {
                bytes: so_far,
                latency_ns,
            });
        } else {
            let segments = message.map_or(0, |message| message.segments) + 1;
            self.directions[side as usize].open[Kind::Read as usize] = Some(Open {
                number,
                bytes: so_far,
                segments,
            });
        }
        Some(MessageRef { of, number })
    }
}
