//! What is measured: a [`Job`] says it completely, and both ends work from the same one.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use hirail_wire::PathMtu;
use serde::{Deserialize, Serialize};

/// The tests, under the names that users of perftest know without their `ib_`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// RDMA WRITE bandwidth and message rate
    WriteBw,
    /// RDMA WRITE half round trip, both ends polling memory
    WriteLat,
    /// SEND bandwidth and message rate
    SendBw,
    /// SEND half round trip, both ends polling their completion queue
    SendLat,
    /// RDMA READ bandwidth and message rate
    ReadBw,
    /// RDMA READ, from the request to its completion
    ReadLat,
    /// Fetch-and-add, from the request to its completion
    AtomicLat,
}

impl Test {
    /// How data moves in it.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::WriteBw | Self::SendBw | Self::ReadBw => Shape::Stream,
            Self::WriteLat | Self::SendLat => Shape::PingPong,
            Self::ReadLat | Self::AtomicLat => Shape::RoundTrip,
        }
    }

    /// The operation as people write it.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::WriteBw | Self::WriteLat => "WRITE",
            Self::SendBw | Self::SendLat => "SEND",
            Self::ReadBw | Self::ReadLat => "READ",
            Self::AtomicLat => "fetch-and-add",
        }
    }

    /// Its name on the command line and in JSON.
    pub(crate) fn name(self) -> String {
        name_of(&self)
    }

    /// Why queue pairs of this type cannot run it, if they cannot.
    pub(crate) fn unfit_for(self, qp_type: QpType) -> Option<&'static str> {
        match (self, qp_type) {
            (Self::ReadBw | Self::ReadLat | Self::AtomicLat, QpType::Uc) => {
                Some("UC has SEND and RDMA WRITE only")
            }
            (Self::SendBw | Self::SendLat, _) | (_, QpType::Rc | QpType::Uc) => None,
            (_, QpType::Ud) => Some("UD has SEND only"),
        }
    }
}

/// How data moves in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Many messages in flight, one way or both.
    Stream,
    /// The same message back and forth; the figure is half of a round trip.
    PingPong,
    /// A small request and its answer; the figure is the whole round trip.
    RoundTrip,
}

/// The types of queue pair that tests run over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QpType {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl QpType {
    /// Its name on the command line and in JSON.
    pub(crate) fn name(self) -> String {
        name_of(&self)
    }
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .as_ref()
        .map_or("", PossibleValue::get_name)
        .to_owned()
}

/// What moves the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// Queue pairs of this library.
    Rdma,
    /// A TCP connection per queue pair of the job.
    Tcp,
    /// A UDP socket per queue pair of the job, and the least protocol that loses nothing.
    Udp,
}

impl Transport {
    /// RDMA, and what it is compared with.
    pub(crate) const ALL: [Self; 3] = [Self::Rdma, Self::Tcp, Self::Udp];

    /// Its name in tables and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rdma => "RDMA",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// Which end of the job a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Starts every operation and measures.
    Client,
    /// Is written to, read from and sent to.
    Server,
}

/// One measurement, as far as both ends must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The test.
    pub(crate) test: Test,
    /// Type of the queue pairs.
    pub(crate) qp_type: QpType,
    /// Bytes of a message.
    pub(crate) bytes: usize,
    /// Queue pairs, or connections, or flows.
    pub(crate) qps: usize,
    /// Whether the server does the same towards the client at the same time.
    pub(crate) bidirectional: bool,
    /// Messages in flight per queue pair.
    pub(crate) depth: usize,
    /// Payload bytes of a packet.
    pub(crate) mtu: usize,
}

impl Job {
    /// A megabyte-sized buffer repeats rather than grows: what matters is the size of a message.
    pub(crate) const MAX_BYTES: usize = 1 << 30;
    /// More queue pairs than this measure the scheduler.
    pub(crate) const MAX_QPS: usize = 1024;
    /// Deepest send queue of a test.
    pub(crate) const MAX_DEPTH: usize = 16384;

    /// Whether the data of this job flows away from `role`. In a READ it flows from the server,
    /// which does nothing for it.
    pub(crate) fn sends(&self, role: Role) -> bool {
        let source = if self.test == Test::ReadBw {
            Role::Server
        } else {
            Role::Client
        };
        role == source || self.bidirectional
    }

    /// Whether the data of this job flows to `role`.
    pub(crate) fn receives(&self, role: Role) -> bool {
        let other = if role == Role::Client {
            Role::Server
        } else {
            Role::Client
        };
        self.sends(other)
    }

    /// Whether a message of it may have this many bytes: UD's fit into a packet.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.qp_type != QpType::Ud || bytes <= self.mtu
    }

    /// What is wrong with it, if it came from a peer that did not check.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let in_range = (1..=Self::MAX_BYTES).contains(&self.bytes)
            && (1..=Self::MAX_QPS).contains(&self.qps)
            && (1..=Self::MAX_DEPTH).contains(&self.depth)
            && PathMtu::ALL
                .iter()
                .any(|mtu| mtu.bytes() as usize == self.mtu);
        if in_range {
            None
        } else {
            Some("the job is out of range")
        }
    }
}
