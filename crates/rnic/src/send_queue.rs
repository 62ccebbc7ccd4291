//! The send queue of a QP: what users post, and the ring of WQEs that requester and completer walk.
//!
//! A WQE gets its PSNs when it is posted: the send queue is executed in order, so the number of
//! packets before it is known. Requester and completer then speak about positions in the ring
//! (`Cursor`) and PSNs only.

use hirail_vocab::{QpType, WcOpcode, WcStatus};
use hirail_wire::{PathMtu, Psn, QKey, Qpn, Rkey};

use crate::error::{Queue, VerbError};
use crate::mr::BindMw;
use crate::qp::attr::AddressVector;
use crate::wr::Sge;

/// The operation of a send work request, with what only that operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data (4 bytes, carried as they are).
    SendImm([u8; 4]),
    /// SEND that invalidates a key at the responder.
    SendInv(Rkey),
    /// RDMA WRITE to `va` under `rkey`.
    Write {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Immediate data.
        imm: [u8; 4],
    },
    /// RDMA READ from `va` under `rkey`.
    Read {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
    },
    /// Compare-and-swap of a remote 64-bit word.
    CompareSwap {
        /// Remote address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Value to compare with.
        compare: u64,
        /// Value to store when equal.
        swap: u64,
    },
    /// Fetch-and-add of a remote 64-bit word.
    FetchAdd {
        /// Remote address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Value to add.
        add: u64,
    },
    /// ATOMIC WRITE: stores 8 bytes as one.
    AtomicWrite {
        /// Remote address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: Rkey,
    },
    /// FLUSH of `length` remote bytes.
    Flush {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Bytes, unless the whole region is meant.
        length: u32,
        /// What is flushed and how far.
        what: hirail_wire::Feth,
    },
    /// Invalidates a local key.
    LocalInv(Rkey),
    /// Binds a memory window.
    BindMw(BindMw),
}

impl SendOp {
    /// The completion's opcode.
    pub const fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => WcOpcode::Send,
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::Flush { .. } => WcOpcode::Flush,
            Self::LocalInv(_) => WcOpcode::LocalInv,
            Self::BindMw(_) => WcOpcode::BindMw,
        }
    }

    /// Whether the operation ends with a response of its own kind (not an ACK) and so takes one
    /// of the initiator's read/atomic slots.
    pub const fn is_read_or_atomic(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::CompareSwap { .. }
                | Self::FetchAdd { .. }
                | Self::AtomicWrite { .. }
                | Self::Flush { .. }
        )
    }

    /// Whether nothing goes on the wire.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInv(_) | Self::BindMw(_))
    }

    /// Whether the operation sends its scatter/gather list (rather than filling it).
    pub const fn sends_payload(&self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendImm(_)
                | Self::SendInv(_)
                | Self::Write { .. }
                | Self::WriteImm { .. }
                | Self::AtomicWrite { .. }
        )
    }

    /// Whether the responder takes a receive WQE for it.
    pub const fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInv(_) | Self::WriteImm { .. }
        )
    }

    /// Whether a QP of this type may post the operation (the table of `ibv_post_send(3)`).
    pub const fn allowed_on(&self, qp_type: QpType) -> bool {
        match qp_type {
            QpType::Rc | QpType::XrcSend => true,
            QpType::Uc => matches!(
                self,
                Self::Send
                    | Self::SendImm(_)
                    | Self::Write { .. }
                    | Self::WriteImm { .. }
                    | Self::LocalInv(_)
                    | Self::BindMw(_)
            ),
            QpType::Ud | QpType::Gsi => matches!(self, Self::Send | Self::SendImm(_)),
            QpType::XrcRecv => false,
        }
    }
}

/// Flags of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// Make a completion on success (errors always make one).
    pub signaled: bool,
    /// Start only when all earlier READs and atomics have completed.
    pub fence: bool,
    /// Ask the receiver to raise a solicited event.
    pub solicited: bool,
}

/// Where the bytes of a send work request are.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// In registered memory, read when packets are made and again when they are retransmitted.
    Sges(&'a [Sge]),
    /// In these pieces, copied now; their memory is free again at once and needs no key.
    Inline(&'a [&'a [u8]]),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct UdDestination {
    /// The address handle's vector.
    pub av: AddressVector,
    /// The QP there.
    pub qpn: Qpn,
    /// Its queue key, or one with the controlled bit for the sender's own key.
    pub qkey: QKey,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// The user's number for it, returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// How to do it.
    pub flags: SendFlags,
    /// The bytes.
    pub data: SendData<'a>,
    /// UD: where to. Ignored elsewhere.
    pub ud: Option<UdDestination>,
    /// XRC: the SRQ at the target. Ignored elsewhere.
    pub xrc_srqn: u32,
}

/// Longest message, 2^31 bytes (IBTA Vol 1, chapter 9).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// One entry of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// The bytes are in the inline area, not under SGEs.
    pub(crate) is_inline: bool,
    pub(crate) sge_count: u16,
    /// Message length in bytes.
    pub(crate) length: u32,
    /// PSN of its first packet (or of its first response).
    pub(crate) first_psn: Psn,
    /// PSNs that it takes: packets, or responses for a READ. 0 for local operations.
    pub(crate) packets: u32,
    /// READ and friends: responses received so far. Local operations: 1 once executed.
    pub(crate) received: u32,
    /// Found broken here before anything of it was acknowledged: completes with this status when
    /// all earlier WQEs have completed.
    pub(crate) failed: Option<WcStatus>,
    /// SSN of the message, for end-to-end credits.
    pub(crate) ssn: u32,
    pub(crate) xrc_srqn: u32,
}

impl Wqe {
    /// PSN of the last packet. Meaningless for local operations.
    pub(crate) const fn last_psn(&self) -> Psn {
        self.first_psn.add(self.packets.saturating_sub(1))
    }

    /// Payload bytes in its packets (or responses) from number `from` to before `to`.
    pub(crate) fn payload_bytes(&self, from: u32, to: u32, mtu: PathMtu) -> u64 {
        let at =
            |packet: u32| (u64::from(packet) * u64::from(mtu.bytes())).min(u64::from(self.length));
        at(to) - at(from)
    }
}

/// A position in the send queue: a packet of a WQE, and where its payload starts in the SGEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    /// Running number of the WQE, wrapping.
    pub(crate) wqe: u32,
    /// Packet (or READ response) within it.
    pub(crate) packet: u32,
    /// SGE that holds the next byte.
    pub(crate) sge: u16,
    /// Offset of that byte in the SGE.
    pub(crate) sge_offset: u32,
}

impl Cursor {
    pub(crate) const fn start_of(wqe: u32) -> Self {
        Self {
            wqe,
            packet: 0,
            sge: 0,
            sge_offset: 0,
        }
    }
}

/// Packets of one message on the wire at most, where a request is cut into several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pieces {
    pub(crate) read: u32,
    pub(crate) write: u32,
}

/// The ring. Memory is taken when the first WQE is posted.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: Box<[Wqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    destinations: Box<[Option<UdDestination>]>,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// Oldest WQE that has not completed.
    head: u32,
    /// Next WQE to be posted.
    tail: u32,
    /// PSN of the next packet to be queued.
    pub(crate) next_psn: Psn,
    /// SSN of the next message.
    next_ssn: u32,
}

impl SendQueue {
    pub(crate) fn new(depth: u32, max_sge: u32, max_inline: u32) -> Self {
        Self {
            wqes: Box::default(),
            sges: Box::default(),
            inline: Box::default(),
            destinations: Box::default(),
            depth,
            max_sge,
            max_inline,
            head: 0,
            tail: 0,
            next_psn: Psn::new(0),
            next_ssn: 1,
        }
    }

    /// Empties the ring and restarts numbering at `psn`.
    pub(crate) fn reset(&mut self) {
        self.head = 0;
        self.tail = 0;
        self.next_ssn = 1;
    }

    pub(crate) const fn head(&self) -> u32 {
        self.head
    }

    pub(crate) const fn tail(&self) -> u32 {
        self.tail
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// How far WQE `a` is ahead of WQE `b`.
    pub(crate) const fn distance(a: u32, b: u32) -> i32 {
        a.wrapping_sub(b).cast_signed()
    }

    fn slot(&self, wqe: u32) -> usize {
        // The ring has a power of two of slots, so running numbers may wrap.
        wqe as usize & (self.wqes.len() - 1)
    }

    pub(crate) fn get(&self, wqe: u32) -> &Wqe {
        &self.wqes[self.slot(wqe)]
    }

    pub(crate) fn get_mut(&mut self, wqe: u32) -> &mut Wqe {
        let slot = self.slot(wqe);
        &mut self.wqes[slot]
    }

    pub(crate) fn sges(&self, wqe: u32) -> &[Sge] {
        let slot = self.slot(wqe);
        let start = slot * self.max_sge as usize;
        &self.sges[start..start + usize::from(self.wqes[slot].sge_count)]
    }

    pub(crate) fn inline(&self, wqe: u32) -> &[u8] {
        let slot = self.slot(wqe);
        let start = slot * self.max_inline as usize;
        &self.inline[start..start + self.wqes[slot].length as usize]
    }

    pub(crate) fn destination(&self, wqe: u32) -> Option<&UdDestination> {
        self.destinations.get(self.slot(wqe))?.as_ref()
    }

    /// Refuses when there is no room for so many requests.
    pub(crate) fn expect_room(&self, requests: usize) -> Result<(), VerbError> {
        if requests > (self.depth - self.len()) as usize {
            return Err(VerbError::QueueFull {
                queue: Queue::Send,
                depth: self.depth,
            });
        }
        Ok(())
    }

    /// Queues a request, or says why not; then nothing has changed. What has more packets than a piece
    /// is several messages on the wire.
    pub(crate) fn post(
        &mut self,
        wr: &SendWr<'_>,
        qp_type: QpType,
        mtu: PathMtu,
        pieces: Pieces,
    ) -> Result<(), VerbError> {
        self.expect_room(1)?;
        if !wr.op.allowed_on(qp_type) {
            return Err(VerbError::OperationNotAllowed { qp_type });
        }
        let is_datagram = matches!(qp_type, QpType::Ud | QpType::Gsi);
        if is_datagram && wr.ud.is_none() {
            return Err(VerbError::Missing {
                what: "address handle",
            });
        }
        let (length, sge_count, is_inline) = self.measure(wr)?;
        if self.wqes.is_empty() {
            self.allocate(is_datagram);
        }
        if is_inline && self.inline.is_empty() {
            self.inline = vec![0; self.wqes.len() * self.max_inline as usize].into_boxed_slice();
        }
        let packets = if wr.op.is_local() {
            0
        } else if is_datagram || matches!(wr.op, SendOp::Flush { .. }) {
            1
        } else {
            length.div_ceil(mtu.bytes()).max(1)
        };
        let slot = self.slot(self.tail);
        self.wqes[slot] = Wqe {
            wr_id: wr.wr_id,
            op: wr.op,
            flags: wr.flags,
            is_inline,
            sge_count,
            length,
            first_psn: self.next_psn,
            packets,
            received: 0,
            failed: None,
            ssn: self.next_ssn,
            xrc_srqn: wr.xrc_srqn,
        };
        match wr.data {
            SendData::Sges(sges) => {
                let start = slot * self.max_sge as usize;
                self.sges[start..start + sges.len()].copy_from_slice(sges);
            }
            SendData::Inline(pieces) => {
                let mut at = slot * self.max_inline as usize;
                for piece in pieces {
                    self.inline[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
        }
        if is_datagram {
            self.destinations[slot] = wr.ud;
        }
        let messages = match wr.op {
            SendOp::Read { .. } => packets.div_ceil(pieces.read),
            SendOp::Write { .. } => packets.div_ceil(pieces.write),
            _ => packets.min(1),
        };
        self.next_ssn = (self.next_ssn + messages) & 0x00ff_ffff;
        self.next_psn = self.next_psn.add(packets);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    fn measure(&self, wr: &SendWr<'_>) -> Result<(u32, u16, bool), VerbError> {
        let (length, sge_count, is_inline) = match wr.data {
            SendData::Sges(sges) => {
                if sges.len() > self.max_sge as usize {
                    return Err(VerbError::TooLarge {
                        what: "num_sge",
                        max: u64::from(self.max_sge),
                        got: sges.len() as u64,
                    });
                }
                let length = sges.iter().map(|sge| u64::from(sge.length)).sum();
                (length, sges.len() as u16, false)
            }
            SendData::Inline(pieces) => {
                let length = pieces.iter().map(|piece| piece.len() as u64).sum();
                if length > u64::from(self.max_inline) || !wr.op.sends_payload() {
                    return Err(VerbError::TooLarge {
                        what: "inline data",
                        max: u64::from(self.max_inline),
                        got: length,
                    });
                }
                (length, 0, true)
            }
        };
        if length > MAX_MESSAGE {
            return Err(VerbError::TooLarge {
                what: "message length",
                max: MAX_MESSAGE,
                got: length,
            });
        }
        Ok((length as u32, sge_count, is_inline))
    }

    fn allocate(&mut self, is_datagram: bool) {
        let slots = self.depth.next_power_of_two() as usize;
        const EMPTY: Wqe = Wqe {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags {
                signaled: false,
                fence: false,
                solicited: false,
            },
            is_inline: false,
            sge_count: 0,
            length: 0,
            first_psn: Psn::new(0),
            packets: 0,
            received: 0,
            failed: None,
            ssn: 0,
            xrc_srqn: 0,
        };
        self.wqes = vec![EMPTY; slots].into_boxed_slice();
        self.sges = vec![Sge::default(); slots * self.max_sge as usize].into_boxed_slice();
        if is_datagram {
            self.destinations = vec![None; slots].into_boxed_slice();
        }
    }

    /// Takes the oldest WQE off the ring.
    pub(crate) fn pop(&mut self) -> Wqe {
        debug_assert!(!self.is_empty(), "a WQE completes once");
        let wqe = *self.get(self.head);
        self.head = self.head.wrapping_add(1);
        wqe
    }
}
