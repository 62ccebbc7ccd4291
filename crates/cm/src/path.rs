//! Which way messages and data go.

use hirail_rnic::qp::attr::AddressVector;
use hirail_wire::Gid;

/// A path between two ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// GID of this side.
    pub local: Gid,
    /// Its index in the port's table.
    pub sgid_index: u8,
    /// GID of the other side.
    pub remote: Gid,
    /// IPv6 flow label, 20 bits. Not zero: it decides the UDP source port too.
    pub flow_label: u32,
    /// IPv4 ToS or IPv6 traffic class; the upper six bits are the DSCP.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// Service level; its low three bits are the 802.1p priority.
    pub sl: u8,
}

impl Path {
    /// Hops of a packet where nobody says otherwise.
    pub const HOP_LIMIT: u8 = 64;

    /// The plain path from the GID at `sgid_index` to `remote`.
    pub const fn new(local: Gid, sgid_index: u8, remote: Gid) -> Self {
        Self {
            local,
            sgid_index,
            remote,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: Self::HOP_LIMIT,
            sl: 0,
        }
    }

    /// The way back of a message.
    pub(crate) const fn reply(meta: &Meta) -> Self {
        Self {
            // ECN is the network's.
            traffic_class: meta.traffic_class & !3,
            ..Self::new(meta.destination, meta.sgid_index, meta.source)
        }
    }

    /// The path as the verbs take it.
    pub const fn address_vector(&self) -> AddressVector {
        AddressVector {
            sgid_index: self.sgid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            sl: self.sl,
            ..AddressVector::to(self.remote)
        }
    }
}

/// What the network layer of a message said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Source GID.
    pub source: Gid,
    /// Destination GID, one of this port's.
    pub destination: Gid,
    /// Its index in the port's table.
    pub sgid_index: u8,
    /// Traffic class as it arrived.
    pub traffic_class: u8,
}
