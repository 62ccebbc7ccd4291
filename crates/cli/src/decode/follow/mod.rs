//! Following connections through a capture: which queue pairs belong together, which packets make
//! a message, what was lost, sent again, refused and acknowledged.
//!
//! [`Follower`] takes packets in the order of the capture and tells of each what it means
//! ([`Story`]). It prints nothing and keeps a bounded memory per connection. What it says is what
//! the capture shows: a packet that was lost before the capturing point was never there.

mod cm;
mod copies;
mod iwarp;
mod qp;
mod requests;
mod sequence;
mod stream;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use hirail_wire::NakCode;
use hirail_wire::cm::{RejReason, ServiceId};

use super::dissect::{Body, Dissection};

pub(super) use iwarp::{Crc, Unit, UnitKind};
pub(super) use requests::Kind;

/// Connections beyond this many are not followed.
const MOST_CONNECTIONS: usize = 1 << 16;

/// Follows all connections of a capture.
#[derive(Default)]
pub(super) struct Follower {
    connections: Vec<Connection>,
    qps: qp::Index,
    exchanges: cm::Exchanges,
    streams: BTreeMap<stream::Key, (usize, Side)>,
}

/// What a packet means in its connection.
#[derive(Default)]
pub(super) struct Story {
    /// Index of the connection in [`Follower::connections`], and which end sent the packet.
    pub(super) connection: Option<(usize, Side)>,
    /// The message that the packet is part of, or answers.
    pub(super) message: Option<MessageRef>,
    pub(super) events: Vec<Event>,
    /// What of iWARP has become complete with this packet.
    pub(super) units: Vec<Unit>,
}

/// A message by its number among those of the end that requested it, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageRef {
    pub(super) of: Side,
    pub(super) number: u64,
}

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    /// The one that asked for the connection, or whose packet was the first.
    First,
    Second,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub(super) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Something to say about a packet beyond its headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// So many packets before this one have not been seen.
    Missing { packets: u64 },
    /// It was sent before another one that came earlier.
    Late,
    /// Its sender sent it again.
    Again,
    /// The network made a second one of an earlier packet.
    Copy,
    /// Its PSN is so far off that this must be another connection with the same QPNs.
    Restart,
    /// A message of several packets is whole.
    Whole { bytes: u64, packets: u64 },
    /// Messages were acknowledged, the newest so long after its last packet.
    Acknowledges {
        first: u64,
        last: u64,
        latency_ns: Option<u64>,
    },
    /// An acknowledgement says nothing new.
    NothingNew,
    /// A read or an atomic is answered in full.
    Answered { bytes: u64, latency_ns: Option<u64> },
    /// The responder refuses a request.
    Nak(NakCode),
    /// The responder has no receive for it.
    Rnr { wait: Duration },
    /// This connection turns out to be the other direction of an earlier one.
    Joined { connection: usize },
    /// A CM message repeats one before.
    CmAgain,
    /// TCP payload that was seen before.
    TcpAgain { bytes: u64 },
    /// TCP payload before this is missing.
    TcpMissing { bytes: u64 },
    /// TCP payload that was missing has come.
    TcpLate,
    /// What follows in this direction cannot be told apart any more, because of this.
    LostTrack(&'static str),
}

/// Two ends that exchange packets.
pub(super) struct Connection {
    pub(super) service: Service,
    pub(super) ends: [End; 2],
    /// How it is known that the two ends belong together.
    pub(super) tie: Tie,
    /// What the connection was made for, where a CM exchange told.
    pub(super) wanted: Option<ServiceId>,
    pub(super) state: Option<CmState>,
    /// What was sent by each end.
    pub(super) tallies: [Tally; 2],
    /// Index of the connection that this one turned out to be part of.
    pub(super) joined: Option<usize>,
    /// Times of the first and the last packet.
    pub(super) times: Option<(u64, u64)>,
    track: Track,
}

/// What carries a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Service {
    Rc,
    Uc,
    Xrc,
    Ud,
    Iwarp,
}

impl Service {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Xrc => "XRC",
            Self::Ud => "UD",
            Self::Iwarp => "iWARP",
        }
    }
}

/// An end: an address, and the QP number (or TCP port) as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) address: IpAddr,
    pub(super) number: Option<u32>,
}

/// Why two QPs are taken for the ends of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tie {
    /// Only one direction has been seen.
    OneWay,
    /// Packets name both ends: datagrams, TCP.
    Named,
    /// A CM exchange said so.
    Cm,
    /// One answers the other's requests.
    Answers,
    /// Their UDP source port is the one that Linux makes of the two QPNs.
    SourcePort,
    /// They use the same UDP source port.
    SamePort,
    /// There is no other between these addresses.
    Only,
}

/// How far a CM exchange has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CmState {
    Requested,
    Accepted,
    Established,
    Rejected(RejReason),
    Disconnecting,
    Disconnected,
}

/// What one end has sent, and what became of it.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    /// Packets of the connection, intact or not.
    pub(super) packets: u64,
    /// Messages that this end requested, by [`Kind`].
    pub(super) messages: [u64; Kind::ALL.len()],
    /// Bytes of these messages, each counted once: written, sent, or asked to be read.
    pub(super) bytes: u64,
    /// Packets sent again.
    pub(super) again: u64,
    /// Copies made by the network.
    pub(super) copies: u64,
    /// Packets that came late: overtaken by others.
    pub(super) late: u64,
    /// Packets that never came.
    pub(super) missing: u64,
    /// Requests of this end that were refused.
    pub(super) naks: u64,
    /// Requests of this end that found no receive.
    pub(super) rnrs: u64,
    /// Congestion notifications that this end was sent.
    pub(super) cnps: u64,
    /// Packets that a queue marked (ECN-CE).
    pub(super) marked: u64,
    /// Packets with a wrong ICRC, FPDUs with a wrong CRC.
    pub(super) corrupt: u64,
    /// Packets that a receiver refuses for another reason.
    pub(super) refused: u64,
}

enum Track {
    Qp(Box<qp::Track>),
    Datagrams([u64; 2]),
    Iwarp(Box<iwarp::Track>),
}

impl Follower {
    /// Takes the next packet of the capture.
    pub(super) fn follow(&mut self, time: Option<u64>, packet: &Dissection<'_>) -> Story {
        let story = match &packet.content {
            Body::Roce(roce) => self.roce(time, roce, packet.refused.is_some()),
            Body::Tcp(tcp) => self.tcp(time, tcp),
            _ => return Story::default(),
        };
        if let (Some((index, _)), Some(time)) = (story.connection, time) {
            let times = &mut self.connections[index].times;
            let (first, last) = times.unwrap_or((time, time));
            *times = Some((first.min(time), last.max(time)));
        }
        story
    }

    /// All connections in order of their first packet. Those that were joined to another are empty.
    pub(super) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Adds a connection, unless there are too many.
    fn connect(&mut self, connection: Connection) -> Option<usize> {
        let index = self.connections.len();
        if index == MOST_CONNECTIONS {
            return None;
        }
        self.connections.push(connection);
        Some(index)
    }
}

impl Connection {
    fn new(service: Service, ends: [End; 2], tie: Tie, track: Track) -> Self {
        Self {
            service,
            ends,
            tie,
            wanted: None,
            state: None,
            tallies: Default::default(),
            joined: None,
            times: None,
            track,
        }
    }

    /// What `side` has sent.
    pub(super) fn tally(&self, side: Side) -> &Tally {
        &self.tallies[side as usize]
    }

    /// The end at `side`.
    pub(super) fn end(&self, side: Side) -> End {
        self.ends[side as usize]
    }
}
