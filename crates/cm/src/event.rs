//! What the user must be told.

use hirail_wire::cm::{IpHeader, RejReason, ServiceId, Transport};
use hirail_wire::{AckTimeout, PathMtu, Psn, QKey, Qpn};

use crate::ids::CommId;
use crate::path::Path;
use crate::service::ListenerId;
use crate::sidr::ServiceStatus;

/// Options of enhanced connection establishment: a hint from one vendor's device to
/// another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ece {
    /// Vendor, 24 bits, not 0.
    pub vendor: u32,
    /// Whatever the vendor wants.
    pub options: u32,
}

impl Ece {
    /// What a message carried; nothing where it names no vendor.
    pub(crate) fn read(vendor: u32, options: u32) -> Option<Self> {
        (vendor != 0).then_some(Self { vendor, options })
    }
}

/// Something happened. What has an id concerns that connection or question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Somebody wants to connect.
    Request(Box<Request>),
    /// The peer accepts: take the queue pair to RTS, then call [`Cm::confirm`](crate::Cm::confirm).
    Response(Box<Response>),
    /// The peer is ready.
    Established {
        /// The connection.
        id: CommId,
        /// What the peer says with it.
        private_data: Vec<u8>,
    },
    /// The peer refuses, or withdraws. The connection is over and its id with it.
    Rejected {
        /// The connection.
        id: CommId,
        /// Why.
        reason: RejReason,
        /// For some reasons a value that would do.
        ari: Vec<u8>,
        /// What the peer says with it.
        private_data: Vec<u8>,
    },
    /// No answer, for long enough. The connection is over and its id with it.
    Unreachable {
        /// The connection or question.
        id: CommId,
    },
    /// The connection has ended. [`TimewaitExit`](Self::TimewaitExit) follows.
    Disconnected {
        /// The connection.
        id: CommId,
    },
    /// Nothing of the connection is under way any more; its id is free.
    TimewaitExit {
        /// The connection.
        id: CommId,
    },
    /// Somebody asks for a datagram service.
    Question(Box<Question>),
    /// The answer to a question of this side. The question is over.
    Reply(Box<Reply>),
}

/// Somebody wants to connect: answer by [`Cm::accept`](crate::Cm::accept) or
/// [`Cm::reject`](crate::Cm::reject).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The connection to be.
    pub id: CommId,
    /// Who heard it. Nothing where both sides connected at once and this one became the passive
    /// one: `id` is then that of its own [`connect`](crate::Cm::connect).
    pub listener: Option<ListenerId>,
    /// What for.
    pub service: ServiceId,
    /// The IP addresses that the peer names, for services that stand for a port.
    pub addresses: Option<IpHeader>,
    /// The way to the peer.
    pub path: Path,
    /// Node GUID of the peer.
    pub ca_guid: u64,
    /// Its queue pair.
    pub qpn: Qpn,
    /// The sequence number that it expects first.
    pub psn: Psn,
    /// Transport.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: PathMtu,
    /// READs and atomics that the peer wants to have open here, as far as this side can.
    pub responder_resources: u8,
    /// READs and atomics that it serves, as far as this side can have them open.
    pub initiator_depth: u8,
    /// Retries after a lost acknowledgement.
    pub retry_count: u8,
    /// Retries after an RNR NAK that this side shall use.
    pub rnr_retry_count: u8,
    /// Local ACK timeout.
    pub ack_timeout: AckTimeout,
    /// Whether it wants end-to-end credits.
    pub flow_control: bool,
    /// Whether its receives come from a shared queue.
    pub srq: bool,
    /// Options of its vendor.
    pub ece: Option<Ece>,
    /// What the peer says with it, up to the end of the message.
    pub private_data: Vec<u8>,
}

/// The peer accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The connection.
    pub id: CommId,
    /// Node GUID of the peer.
    pub ca_guid: u64,
    /// Its queue pair.
    pub qpn: Qpn,
    /// The sequence number that it expects first.
    pub psn: Psn,
    /// READs and atomics that the peer may have open here, as agreed.
    pub responder_resources: u8,
    /// READs and atomics that this side may have open there, as agreed.
    pub initiator_depth: u8,
    /// Retries after an RNR NAK that this side shall use.
    pub rnr_retry_count: u8,
    /// Whether it wants end-to-end credits.
    pub flow_control: bool,
    /// Whether its receives come from a shared queue.
    pub srq: bool,
    /// Options of its vendor.
    pub ece: Option<Ece>,
    /// What the peer says with it, up to the end of the message.
    pub private_data: Vec<u8>,
}

/// Somebody asks for a datagram service: answer by [`Cm::answer`](crate::Cm::answer).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The question.
    pub id: CommId,
    /// Who heard it.
    pub listener: ListenerId,
    /// What for.
    pub service: ServiceId,
    /// The IP addresses that the peer names, for services that stand for a port.
    pub addresses: Option<IpHeader>,
    /// The way to the peer.
    pub path: Path,
    /// What the peer says with it, up to the end of the message.
    pub private_data: Vec<u8>,
}

/// The answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The question.
    pub id: CommId,
    /// Whether there is such a service.
    pub status: ServiceStatus,
    /// The queue pair that serves.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: QKey,
    /// The way to it.
    pub path: Path,
    /// Options of its vendor.
    pub ece: Option<Ece>,
    /// What the peer says with it, up to the end of the message.
    pub private_data: Vec<u8>,
}
