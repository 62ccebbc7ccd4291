//! Asynchronous events: what happened to an object outside any completion
//! (`ibv_get_async_event(3)`).

use hirail_vocab::AsyncEventKind;
use hirail_wire::{Operation, Qpn, Rkey};

use crate::cq::CqId;
use crate::srq::SrqId;

/// An event and the object it happened to. Named as in [`AsyncEventKind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// A completion queue overran and is dead.
    CqErr(CqId),
    /// A queue pair failed in a way that no completion can report.
    QpFatal(Qpn),
    /// The peer sent an invalid request.
    QpReqErr(Qpn),
    /// The peer violated access rights.
    QpAccessErr(Qpn),
    /// The first good request arrived in RTR.
    CommEst(Qpn),
    /// A queue pair in SQD has finished what it had started.
    SqDrained(Qpn),
    /// A queue pair in ERR takes no more requests from its shared receive queue.
    QpLastWqeReached(Qpn),
    /// A shared receive queue failed.
    SrqErr(SrqId),
    /// A shared receive queue fell below its limit.
    SrqLimitReached(SrqId),
    /// The port can carry traffic.
    PortActive,
    /// The port lost its link.
    PortErr,
    /// The port's GID table changed.
    GidChange,
    /// The device failed.
    DeviceFatal,
}

impl AsyncEvent {
    /// The verbs' number and name for it.
    pub const fn kind(self) -> AsyncEventKind {
        match self {
            Self::CqErr(_) => AsyncEventKind::CqErr,
            Self::QpFatal(_) => AsyncEventKind::QpFatal,
            Self::QpReqErr(_) => AsyncEventKind::QpReqErr,
            Self::QpAccessErr(_) => AsyncEventKind::QpAccessErr,
            Self::CommEst(_) => AsyncEventKind::CommEst,
            Self::SqDrained(_) => AsyncEventKind::SqDrained,
            Self::QpLastWqeReached(_) => AsyncEventKind::QpLastWqeReached,
            Self::SrqErr(_) => AsyncEventKind::SrqErr,
            Self::SrqLimitReached(_) => AsyncEventKind::SrqLimitReached,
            Self::PortActive => AsyncEventKind::PortActive,
            Self::PortErr => AsyncEventKind::PortErr,
            Self::GidChange => AsyncEventKind::GidChange,
            Self::DeviceFatal => AsyncEventKind::DeviceFatal,
        }
    }
}

/// A request of the peer that got nothing here. Told only where somebody asked for it
/// ([`Device::report_denials`](crate::Device::report_denials)): the peer hears of it on the wire, but
/// nobody here does who could say which call of the program it was that made it fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The queue pair that the request was for.
    pub qpn: Qpn,
    /// What was asked for.
    pub operation: Operation,
    /// Why not.
    pub why: Denial,
    /// The memory that the request names, if it names any.
    pub target: Option<Target>,
}

/// Memory as a request of the peer names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its key.
    pub rkey: Rkey,
    /// Address of the first byte.
    pub va: u64,
    /// Bytes.
    pub length: u32,
}

/// Why a request of the peer got nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// No receive work request was posted. A reliable peer tries again; others lose the message.
    NotReady,
    /// The key does not give access to this memory, or not in this way.
    Access,
    /// The message is longer than the receive work request has room.
    TooLong,
    /// The receive work request names memory that it may not use.
    Receive,
    /// The queue pair does not allow such a request, or the request is wrong in itself.
    Request,
}
