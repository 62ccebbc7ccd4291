//! What a device is made with, and the limits that it reports.

use std::sync::Arc;

use hirail_wire::{Gid, PathMtu, Qpn};

use crate::pacing::{Dcqcn, DcqcnParams};
use crate::recovery::RecoveryKind;
use crate::time::Span;
use crate::window::WindowConfig;

/// Limits of a device, reported as a card would (`ibv_query_device`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one work queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of one work request.
    pub max_sge: u32,
    /// Scatter/gather entries of one READ.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Memory regions and windows together.
    pub max_mr: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics outstanding at one QP as responder.
    pub max_qp_rd_atom: u8,
    /// READs and atomics outstanding at one QP as initiator.
    pub max_qp_init_rd_atom: u8,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of one shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter entries of one of its work requests.
    pub max_srq_sge: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// QPs attached to one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Inline bytes of one send work request.
    pub max_inline_data: u32,
}

impl Default for Limits {
    /// Between a ConnectX-5 and the kernel's rxe: what programs that size themselves by the limits
    /// are used to. Nothing is allocated before it is used, so none of these costs memory.
    fn default() -> Self {
        Self {
            max_qp: 1 << 16,
            max_qp_wr: 32768,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 1 << 20,
            max_cqe: 4_194_303,
            max_mr: 1 << 22,
            max_mr_size: u64::MAX,
            max_pd: 1 << 22,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            max_srq: 1 << 18,
            max_srq_wr: 32767,
            max_srq_sge: 31,
            max_mcast_grp: 8192,
            max_mcast_qp_attach: 240,
            max_inline_data: 1024,
        }
    }
}

/// RoCE version of a GID table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoceVersion {
    /// RoCE v1: EtherType 0x8915, GRH.
    V1,
    /// RoCE v2: UDP port 4791.
    #[default]
    V2,
}

/// An entry of the port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// How packets with it travel.
    pub version: RoceVersion,
}

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Limits reported and kept.
    pub limits: Limits,
    /// First QPN that the device gives out.
    pub first_qpn: Qpn,
    /// QPNs that it may give out.
    pub qpns: u32,
    /// How far from the first QPN the device starts to give them out; it goes round. Whoever takes
    /// over numbers of a device that is gone starts elsewhere, so that late packets find nobody.
    pub qpn_rotation: u32,
    /// Seed of everything unpredictable: keys, hellos.
    pub seed: u128,
    /// GID table of the port.
    pub gids: Vec<GidEntry>,
    /// Active MTU of the port: the longest datagram.
    pub port_mtu: PathMtu,
    /// The window towards each destination.
    pub window: WindowConfig,
    /// A READ is asked for in pieces of this many bytes, rounded down to the path MTU. The
    /// responses in flight are bounded by nothing else.
    pub read_request_bytes: u32,
    /// Whether long WRITEs without immediate of reliable connections go out as WRITEs of one packet
    /// each, every one with a RETH. Then all packets have one size, and a link that takes packets of
    /// equal size together takes more of them; it costs 16 bytes per packet. A WRITE that ends outside
    /// of the peer's region is refused at the first packet outside of it, where one message would be
    /// refused as a whole.
    pub equal_writes: bool,
    /// How long an ACK may wait in a conversation at most; zero: it never waits. It is a part of what
    /// the standard calls Local CA ACK Delay, which peers add to their ACK timeouts. An ACK waits for
    /// four turns of the conversation if that is less, and not at all on a QP whose own timeout is
    /// shorter than eight times this.
    pub ack_delay: Span,
    /// Loss recovery of new QPs.
    pub recovery: RecoveryKind,
    /// Congestion control: parameters of both points.
    pub dcqcn: Arc<Dcqcn>,
    /// Whether the reaction point paces new connections.
    pub is_paced: bool,
    /// Whether ACKs carry end-to-end credits. A requester that honours them never meets an RNR NAK,
    /// but it waits where it could have tried.
    pub send_credits: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            first_qpn: Qpn::new(0x11),
            qpns: 1 << 16,
            qpn_rotation: 0,
            seed: 0,
            gids: Vec::new(),
            port_mtu: PathMtu::Mtu4096,
            window: WindowConfig::default(),
            read_request_bytes: 64 << 10,
            equal_writes: false,
            ack_delay: Span::ZERO,
            recovery: RecoveryKind::GoBackN,
            dcqcn: Arc::new(default_dcqcn()),
            is_paced: false,
            send_credits: true,
        }
    }
}

/// DCQCN with the cards' defaults, at 100 Gb/s.
fn default_dcqcn() -> Dcqcn {
    DcqcnParams::default()
        .check(100_000_000_000)
        .expect("the defaults lie within their own ranges")
}
