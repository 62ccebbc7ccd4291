//! Queue pairs and shared receive queues, and what is posted to them.

use std::collections::VecDeque;

use crate::keys::{Rights, Sge};
use crate::site::Site;

/// What a queue pair can do with requests, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable: RC and XRC.
    Reliable,
    /// UC.
    Unreliable,
    /// UD.
    Datagram,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Its device.
    pub device: u64,
    /// Its number.
    pub qpn: u32,
    /// Its transport.
    pub transport: Transport,
    /// Its protection domain.
    pub pd: u64,
    /// Where its sends complete.
    pub send_cq: u64,
    /// Where its receives complete.
    pub recv_cq: u64,
    /// Where it receives from, if not from a queue of its own.
    pub srq: Option<u64>,
    /// Send requests at most.
    pub max_send_wr: u32,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// SEND, in any form.
    Send,
    /// RDMA WRITE, in any form.
    Write,
    /// RDMA READ.
    Read,
    /// A remote atomic.
    Atomic,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// Something with keys or windows, which moves no bytes.
    Local,
}

impl Op {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::Atomic => "atomic",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::Flush => "FLUSH",
            Self::Local => "local operation",
        }
    }

    /// Whether its entries are read.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::AtomicWrite)
    }

    /// Whether its entries are written.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }

    /// What the peer's memory must grant.
    pub(crate) const fn needs(self) -> Rights {
        match self {
            Self::Write | Self::AtomicWrite => Rights::REMOTE_WRITE,
            Self::Read => Rights::REMOTE_READ,
            Self::Atomic => Rights::REMOTE_ATOMIC,
            Self::Send | Self::Flush | Self::Local => Rights(0),
        }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address there.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
}

/// A send request as it is posted.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it does.
    pub op: Op,
    /// It makes a completion when it succeeds.
    pub signaled: bool,
    /// Its entries; none of an inline request, whose bytes are copied.
    pub sges: &'a [Sge],
    /// Bytes of an inline request.
    pub inline: Option<u32>,
    /// The memory that it names at the peer.
    pub remote: Option<Remote>,
}

/// Bytes that the device reads, with digests of their parts when the request was posted.
pub(crate) struct Payload {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) digests: Vec<u32>,
    /// Peers may write there.
    pub(crate) is_shared: bool,
}

/// A request that was posted and has not completed.
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) op: Option<Op>,
    pub(crate) signaled: bool,
    pub(crate) sges: Box<[Sge]>,
    pub(crate) remote: Option<Remote>,
    pub(crate) site: Site,
    /// In order of all requests of the process.
    pub(crate) number: u64,
    /// A finding has been made of it already.
    pub(crate) is_told: bool,
    pub(crate) payload: Vec<Payload>,
    /// Writes of peers that had arrived when it was posted.
    pub(crate) peer_writes: u64,
}

impl Posted {
    pub(crate) fn length(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// Receives that are posted.
#[derive(Default)]
pub(crate) struct Receives {
    pub(crate) queue: VecDeque<Posted>,
    /// Posted so far.
    pub(crate) total: u64,
    /// Most at a time.
    pub(crate) most: usize,
    /// Where the last one was posted.
    pub(crate) last: Option<Site>,
}

impl Receives {
    pub(crate) fn post(&mut self, posted: Posted) {
        self.last = Some(posted.site);
        self.queue.push_back(posted);
        self.total += 1;
        self.most = self.most.max(self.queue.len());
    }

    /// Takes out the request that completed.
    pub(crate) fn take(&mut self, wr_id: u64) -> Option<Posted> {
        let place = self.queue.iter().position(|posted| posted.wr_id == wr_id)?;
        self.queue.remove(place)
    }
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) init: QpInit,
    /// What it lets its peer do.
    pub(crate) rights: Option<Rights>,
    pub(crate) sends: VecDeque<Posted>,
    /// Signalled ones in `sends`.
    pub(crate) signaled: usize,
    /// Its send queue has been reported as stuck.
    pub(crate) is_stuck: bool,
    pub(crate) receives: Receives,
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) device: u64,
    pub(crate) pd: u64,
    /// Where its receives complete, as far as it is one place.
    pub(crate) cq: Option<u64>,
    pub(crate) is_ambiguous: bool,
    pub(crate) receives: Receives,
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) cqe: u32,
    /// Completions that queue pairs may make there.
    pub(crate) due: u64,
    /// The risk has been told of.
    pub(crate) is_told: bool,
}
