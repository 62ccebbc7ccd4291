//! What the engine hands to a link: a run of packets of one QP, as typed headers and references to
//! the payload, and the token by which the link says how many it took.

use std::sync::Arc;

use hirail_wire::{Gid, Headers};

use crate::host::Host;
use crate::mr::Slice;
use crate::qp::Qp;
use crate::send_queue::Cursor;

/// Traffic class of the engine's transmit side. Classes 0 to 7 are the priorities of the QPs' data
/// (requests and READ responses; a datagram's priority is that of its address handle, so a UD QP
/// waits for the class of its next WQE); acknowledgements and CNPs have classes of their own, so that a
/// paused priority never blocks them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(u8);

impl Class {
    /// Acknowledgements, NAKs and atomic acknowledgements.
    pub const ACK: Self = Self(8);
    /// Congestion notification packets.
    pub const CNP: Self = Self(9);
    /// Number of classes.
    pub const COUNT: usize = 10;

    /// The data class of a priority, 0 to 7.
    pub const fn data(priority: u8) -> Self {
        Self(priority & 7)
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn bit(self) -> u16 {
        1 << self.0
    }
}

/// A set of classes that a link would take packets of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenClasses(u16);

impl OpenClasses {
    /// Every class.
    pub const ALL: Self = Self((1 << Class::COUNT) - 1);

    /// Requests and READ responses of all priorities, no acknowledgements and no CNPs.
    pub const DATA: Self = Self((1 << Class::ACK.0) - 1);

    /// The classes in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The set without `class`.
    #[must_use]
    pub const fn without(self, class: Class) -> Self {
        Self(self.0 & !class.bit())
    }

    /// Whether `class` is in the set.
    pub const fn contains(self, class: Class) -> bool {
        self.0 & class.bit() != 0
    }
}

/// How much one call of `poll_transmit` may return.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Most packets.
    pub packets: usize,
    /// Most bytes, transport headers and payload. One packet is always allowed.
    pub bytes: usize,
}

/// Addresses and network-layer fields that all packets of a run share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
    /// Index of the source GID in the port's table (it decides the RoCE version).
    pub source_index: u8,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// UDP source port, 0xC000 to 0xFFFF: the entropy of the path.
    pub udp_source_port: u16,
    /// Priority (PCP), 0 to 7.
    pub priority: u8,
    /// Destination Ethernet address, for links that need one; zero where unknown.
    pub destination_mac: [u8; 6],
}

/// A piece of payload.
pub enum Segment<H: Host> {
    /// Checked registered memory.
    Memory(Slice<H>),
    /// Bytes of the run's own inline area.
    Inline {
        /// Offset in [`Run::inline_bytes`].
        start: usize,
        /// Bytes.
        len: usize,
    },
}

/// One packet of a run.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket {
    /// BTH (pad count included) and extension headers.
    pub headers: Headers,
    /// Payload bytes, without pad.
    pub payload_len: u32,
    wire_len: u32,
    segments: (u16, u16),
    /// Where the QP stands before this packet is sent.
    pub(crate) at: Cursor,
    /// Where the QP stands once this packet is sent.
    pub(crate) after: Cursor,
}

impl TxPacket {
    /// Bytes of headers, payload and pad; the ICRC comes on top.
    pub fn wire_len(&self) -> usize {
        self.wire_len as usize
    }
}

/// What a QP stands in line for, and what a run consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Requests, by the requester.
    Requests = 1,
    /// Responses to READs and atomics, by the responder.
    Responses = 2,
    /// One ACK or NAK.
    Acknowledgement = 4,
    /// One congestion notification packet.
    Cnp = 8,
    /// A hello or a selective acknowledgement.
    Recovery = 16,
}

impl Work {
    pub(crate) const fn bit(self) -> u8 {
        self as u8
    }
}

/// A run of packets of one QP. Owned and reused by the driver; nothing of the QP changes until
/// [`crate::Device::sent`] says how many packets went out.
pub struct Run<H: Host> {
    pub(crate) qp: Option<Arc<Qp<H>>>,
    pub(crate) epoch: u32,
    pub(crate) generation: u32,
    pub(crate) work: Work,
    /// The packets repeat earlier ones; the send position is elsewhere and stays there.
    pub(crate) is_resend: bool,
    pub(crate) class: Class,
    flow: Option<Flow>,
    packets: Vec<TxPacket>,
    segments: Vec<Segment<H>>,
    inline: Vec<u8>,
    bytes: usize,
}

impl<H: Host> Default for Run<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Host> Run<H> {
    /// An empty run. Its buffers grow to the largest run offered and are then reused.
    pub fn new() -> Self {
        Self {
            qp: None,
            epoch: 0,
            generation: 0,
            work: Work::Requests,
            is_resend: false,
            class: Class::ACK,
            flow: None,
            packets: Vec::with_capacity(64),
            segments: Vec::with_capacity(128),
            inline: Vec::with_capacity(4096),
            bytes: 0,
        }
    }

    /// The addresses of its packets.
    ///
    /// # Panics
    /// When the run is empty.
    pub fn flow(&self) -> &Flow {
        self.flow
            .as_ref()
            .expect("only a run that poll_transmit filled is sent")
    }

    /// Its class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Its packets, in the order in which they must go out.
    pub fn packets(&self) -> &[TxPacket] {
        &self.packets
    }

    /// The payload of a packet, piece by piece.
    pub fn segments(&self, packet: &TxPacket) -> &[Segment<H>] {
        &self.segments[usize::from(packet.segments.0)..usize::from(packet.segments.1)]
    }

    /// The inline area that [`Segment::Inline`] refers to.
    pub fn inline_bytes(&self) -> &[u8] {
        &self.inline
    }

    /// Forgets packets and references to memory, keeps the buffers.
    pub fn clear(&mut self) {
        self.qp = None;
        self.is_resend = false;
        self.flow = None;
        self.packets.clear();
        self.segments.clear();
        self.inline.clear();
        self.bytes = 0;
    }

    pub(crate) fn set_flow(&mut self, flow: Flow) {
        self.flow = Some(flow);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether a packet of `wire_len` bytes still fits.
    pub(crate) fn has_room(&self, budget: Budget, wire_len: usize) -> bool {
        self.packets.is_empty()
            || (self.packets.len() < budget.packets && self.bytes + wire_len <= budget.bytes)
    }

    pub(crate) fn push_memory(&mut self, slice: Slice<H>) {
        self.segments.push(Segment::Memory(slice));
    }

    pub(crate) fn push_inline(&mut self, bytes: &[u8]) {
        let start = self.inline.len();
        self.inline.extend_from_slice(bytes);
        self.segments.push(Segment::Inline {
            start,
            len: bytes.len(),
        });
    }

    /// Number of segments so far: where the next packet's begin.
    pub(crate) fn segment_mark(&self) -> usize {
        self.segments.len()
    }

    /// Takes back the segments of a packet that could not be completed.
    pub(crate) fn rewind_segments(&mut self, mark: usize) {
        self.segments.truncate(mark);
    }

    /// Adds a packet whose segments were pushed since `mark`.
    pub(crate) fn push(
        &mut self,
        headers: Headers,
        payload_len: u32,
        mark: usize,
        at: Cursor,
        after: Cursor,
    ) {
        let wire_len = headers.len() + payload_len as usize + usize::from(headers.bth().pad);
        let packet = TxPacket {
            headers,
            payload_len,
            wire_len: wire_len as u32,
            segments: (mark as u16, self.segments.len() as u16),
            at,
            after,
        };
        self.bytes += wire_len;
        self.packets.push(packet);
    }
}
