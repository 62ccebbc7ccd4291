//! The requester: turns send WQEs into request packets.
//!
//! [`offer`] only reads: it fills a [`Run`] from the cursor on. [`commit`] moves the cursor over
//! the packets that the link took; so a link that takes fewer leaves nothing to be undone. Rules:
//! IBTA Vol 1, chapter 9 (Transport Layer).

use hirail_vocab::{Counter, QpState, QpType, WcStatus};
use hirail_wire::{
    AtomicEth, Bth, Deth, Ext, Headers, Msn, Opcode, Operation, PKey, PathMtu, Psn, Qpn, Reth,
    Service,
};

use crate::device::Device;
use crate::host::{Host, Lock, ReadMostly};
use crate::mr::{Access, Slice};
use crate::planted::{self, Bug};
use crate::qp::{Cx, Inner};
use crate::recovery::{Recovery, selective};
use crate::send_queue::{Cursor, Pieces, SendOp, UdDestination, Wqe};
use crate::sgl;
use crate::time::{Instant, Span};
use crate::transmit::{Budget, Run, Work};
use crate::window::PACKET_OVERHEAD;

/// At most this many packets without a request for acknowledgement, as rxe does.
const ACK_REQUEST_PACKETS: u8 = 64;

/// At most this many PSNs outstanding, so that a PSN is never mistaken for one half the circle away
/// (IBTA Vol 1, chapter 9).
const MAX_PSN_DISTANCE: i32 = (1 << 23) - 1;

/// State of the requester and completer of one QP.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Next packet to be made.
    pub(crate) cursor: Cursor,
    /// Oldest PSN not acknowledged.
    pub(crate) una: Psn,
    /// One past the newest PSN ever sent (or asked for, by a READ).
    pub(crate) sent_end: Psn,
    /// Bytes between `una` and the cursor, as charged to the window.
    pub(crate) in_flight: u64,
    /// Bytes set aside in the window for the run that the link has not answered.
    reserved: u64,
    /// READ requests and atomics without a full response.
    pub(crate) slots_used: u16,
    /// Packets sent since the last request for acknowledgement.
    unasked_packets: u8,
    /// Bytes sent since then.
    unasked_bytes: u64,
    /// The newest PSN in flight that asks for an answer, until that is in.
    asked: Option<Psn>,
    pub(crate) retries_left: u8,
    pub(crate) rnr_retries_left: u8,
    /// The READ or atomic at this PSN was asked for again because a later response had come: what
    /// else comes of the old responses says nothing new.
    pub(crate) asked_again: Option<Psn>,
    /// The peer has answered something since the QP was connected.
    pub(crate) heard: bool,
    /// Raise SQ_DRAINED when everything started has completed.
    pub(crate) drain_notify: bool,
    /// Nothing is sent before this time: an RNR NAK asked for it.
    pub(crate) rnr_until: Option<Instant>,
    /// When the oldest unacknowledged packet counts as lost.
    pub(crate) timeout_at: Option<Instant>,
    /// End-to-end credits: the last SSN that the responder has a receive WQE for.
    pub(crate) credit_limit: Option<u32>,
}

impl Requester {
    /// Starts at `psn`, with fresh retry counters.
    pub(crate) fn start(&mut self, psn: Psn, retry_cnt: u8, rnr_retry: u8) {
        self.una = psn;
        self.sent_end = psn;
        self.retries_left = retry_cnt;
        self.rnr_retries_left = rnr_retry;
    }

    /// Abandons everything before WQE `wqe`, whose first PSN is `psn`.
    pub(crate) fn skip_to(&mut self, wqe: u32, psn: Psn) {
        self.cursor = Cursor::start_of(wqe);
        self.una = psn;
        self.sent_end = psn;
        self.slots_used = 0;
        self.asked_again = None;
        self.forget_unasked();
        debug_assert!(self.asked.is_none(), "the window still counts on an answer");
    }

    /// Whether everything that was started has completed.
    pub(crate) fn is_drained(&self) -> bool {
        self.una == self.sent_end && self.cursor.packet == 0
    }

    pub(crate) fn stop_timers(&mut self) {
        self.rnr_until = None;
        self.timeout_at = None;
    }

    /// When the QP needs to be called.
    pub(crate) fn deadline<H: Host>(&self, recovery: &Recovery<H>) -> Option<Instant> {
        [self.timeout_at, self.rnr_until, recovery.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether packets are in flight that nobody asked an answer for.
    pub(crate) fn must_ask(&self) -> bool {
        self.unasked_packets > 0
    }

    /// Whether an answer is due.
    pub(crate) fn is_answer_due(&self) -> bool {
        self.asked.is_some()
    }

    /// Nothing is in flight, or it is to be sent again.
    pub(crate) fn forget_unasked(&mut self) {
        self.unasked_packets = 0;
        self.unasked_bytes = 0;
    }
}

/// What came of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// The run has packets.
    Filled,
    /// Nothing to send until something else happens.
    Nothing,
    /// There is something, but the window has not the room that it needs.
    WindowFull {
        /// Bytes.
        need: u64,
    },
    /// There is something, but not before this time.
    Paced(Instant),
}

/// Fills `run` with the next request packets.
pub(crate) fn offer<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    budget: Budget,
    run: &mut Run<H>,
) -> Offer {
    if !matches!(q.state, QpState::Rts | QpState::Sqd) {
        return Offer::Nothing;
    }
    if q.requester.rnr_until.is_some_and(|until| cx.now < until) {
        return Offer::Nothing;
    }
    let not_before = q.pacing.next_send_at();
    if not_before > cx.now {
        return Offer::Paced(not_before);
    }
    offer_lost(cx, q, budget, run);
    if !run.is_empty() {
        return Offer::Filled;
    }
    let mut builder = Builder::new(cx, q);
    loop {
        let cursor = builder.cursor;
        if cursor.wqe == q.sq.tail() {
            break;
        }
        let wqe = *q.sq.get(cursor.wqe);
        if wqe.failed.is_some() {
            break;
        }
        if wqe.op.is_local() {
            if wqe.received == 0 {
                let is_held = q.state == QpState::Sqd || wqe.flags.fence && builder.slots_used > 0;
                // It takes effect in its turn: only when everything before it has been sent.
                if is_held || !run.is_empty() || !run_local(cx, q, cursor.wqe) {
                    break;
                }
            }
            builder.cursor = Cursor::start_of(cursor.wqe.wrapping_add(1));
            if run.is_empty() {
                q.requester.cursor = builder.cursor;
                if q.state == QpState::Err {
                    break;
                }
            }
            continue;
        }
        if cursor.packet == 0 && !may_start(q, &wqe, &builder) {
            break;
        }
        match builder.add(cx, q, &wqe, budget, run) {
            Ok(()) => {}
            Err(Stop::NoRoom) => break,
            Err(Stop::WindowFull { need }) => {
                if run.is_empty() {
                    return Offer::WindowFull { need };
                }
                break;
            }
            Err(Stop::Broken(status)) => {
                // Packets before this one go out first; then it is found again.
                if run.is_empty() {
                    fail_at(cx, q, cursor.wqe, status);
                }
                break;
            }
        }
    }
    if run.is_empty() {
        return Offer::Nothing;
    }
    if let Some(window) = &q.window {
        q.requester.reserved = builder.cost;
        window.lock().reserve(cx.qp, builder.cost);
    }
    Offer::Filled
}

/// The link has answered, or what was offered is void: the window gets back what was set aside.
pub(crate) fn unreserve<H: Host>(q: &mut Inner<H>) {
    let bytes = core::mem::take(&mut q.requester.reserved);
    if bytes > 0
        && let Some(window) = &q.window
    {
        window.lock().unreserve(bytes);
    }
}

/// Selective repeat: fills `run` with packets that count as lost, which leaves the send position
/// alone and the window as it is: they are in flight already.
fn offer_lost<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, budget: Budget, run: &mut Run<H>) {
    while let Some(psn) = selective::next_lost(q) {
        let cursor = position(q, psn);
        let wqe = *q.sq.get(cursor.wqe);
        // One packet asks for several responses: the request is at the first PSN that is missing.
        let is_packet = !wqe.op.is_read_or_atomic()
            || cursor.packet == wqe.received
            || cursor.packet % cx.device.read_piece(q.mtu) == 0;
        let added = is_packet && wqe.failed.is_none() && {
            let mut builder = Builder::resending(cx, q, cursor);
            let added = builder.add(cx, q, &wqe, budget, run).is_ok();
            if !added && !run.is_empty() {
                // No room: the rest waits for the next run.
                return;
            }
            added
        };
        if let Some(selective) = &mut q.recovery.selective {
            // Whatever cannot be built is found again, and reported, by the standard's timer.
            selective.skip(psn);
        }
        run.is_resend |= added;
    }
}

impl<H: Host> Device<H> {
    /// How long requests are cut.
    pub(crate) fn pieces(&self, qp_type: QpType, mtu: PathMtu) -> Pieces {
        let is_cut = self.config().equal_writes && qp_type.is_reliable();
        Pieces {
            read: self.read_piece(mtu),
            write: if is_cut { 1 } else { u32::MAX },
        }
    }

    /// Responses that one READ request asks for at most.
    pub(crate) fn read_piece(&self, mtu: PathMtu) -> u32 {
        (self.config().read_request_bytes / mtu.bytes()).max(1)
    }
}

/// Whether the first packet of a WQE may be made now.
fn may_start<H: Host>(q: &Inner<H>, wqe: &Wqe, builder: &Builder) -> bool {
    let is_new = !wqe.first_psn.is_before(q.requester.sent_end);
    if is_new && q.state == QpState::Sqd && !planted::has(Bug::DrainStartsNew) {
        return false;
    }
    if wqe.flags.fence && builder.slots_used > 0 && !planted::has(Bug::FenceIgnored) {
        return false;
    }
    if is_new
        && wqe.op.consumes_receive()
        && let Some(limit) = q.requester.credit_limit
    {
        // With no credit left, one message may go as a probe, when nothing else is in flight.
        let within = Msn::new(limit).distance_from(Msn::new(wqe.ssn)) >= 0;
        let is_probe = q.requester.una == wqe.first_psn;
        return within || is_probe;
    }
    true
}

/// Executes a local operation; whether it is done.
fn run_local<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, wqe: u32) -> bool {
    let op = q.sq.get(wqe).op;
    let outcome = match op {
        SendOp::LocalInv(key) => {
            // It waits for all earlier WQEs.
            if q.sq.head() != wqe {
                return false;
            }
            cx.device
                .keys()
                .write()
                .invalidate_local(key, cx.qp.pd, cx.qp.qpn)
                .map_err(|_| WcStatus::LocQpOpErr)
        }
        SendOp::BindMw(bind) => cx
            .device
            .keys()
            .write()
            .bind_mw(&bind, cx.qp.pd, cx.qp.qpn)
            .map(|_| ())
            .map_err(|_| WcStatus::MwBindErr),
        _ => unreachable!("only local operations come here"),
    };
    match outcome {
        Ok(()) => {
            q.sq.get_mut(wqe).received = 1;
            crate::completer::advance_head(cx, q);
            true
        }
        Err(status) => {
            fail_at(cx, q, wqe, status);
            false
        }
    }
}

/// A WQE was found broken here: it completes with `status` once all earlier ones have completed.
pub(crate) fn fail_at<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, wqe: u32, status: WcStatus) {
    q.sq.get_mut(wqe).failed = Some(status);
    crate::completer::advance_head(cx, q);
}

/// Why no further packet was added.
enum Stop {
    /// The run is full, or a slot, a PSN or a fence is missing.
    NoRoom,
    WindowFull {
        need: u64,
    },
    Broken(WcStatus),
}

/// The send position while a run is being made; nothing of it is kept before `commit`.
struct Builder {
    cursor: Cursor,
    slots_used: u16,
    unasked_packets: u8,
    unasked_bytes: u64,
    /// Bytes that the window still takes.
    room: u64,
    /// A request for acknowledgement goes out at least once per so many bytes.
    ask_every: u64,
    /// Each packet asks for an acknowledgement.
    asks_always: bool,
    destination: Option<UdDestination>,
    /// Bytes of all packets added, as charged to the window.
    cost: u64,
}

impl Builder {
    fn new<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> Self {
        let (room, cap) = match &q.window {
            Some(window) => {
                let window = window.lock();
                let must_ask = q.requester.must_ask();
                (
                    window.room(cx.qp, must_ask, packet_cost(q.mtu)),
                    window.cap(),
                )
            }
            None => (u64::MAX, u64::MAX),
        };
        Self {
            cursor: q.requester.cursor,
            slots_used: q.requester.slots_used,
            unasked_packets: q.requester.unasked_packets,
            unasked_bytes: q.requester.unasked_bytes,
            room,
            ask_every: cap / 4,
            asks_always: false,
            destination: None,
            cost: 0,
        }
    }

    /// For packets that are in flight already: nothing limits them. They ask: who has them already
    /// does not answer unasked, and it may be the answer that was lost.
    fn resending<H: Host>(cx: Cx<'_, H>, q: &Inner<H>, cursor: Cursor) -> Self {
        Self {
            cursor,
            slots_used: 0,
            room: u64::MAX,
            asks_always: !planted::has(Bug::RepeatAsksNothing),
            ..Self::new(cx, q)
        }
    }

    /// Adds the packet at the cursor.
    fn add<H: Host>(
        &mut self,
        cx: Cx<'_, H>,
        q: &Inner<H>,
        wqe: &Wqe,
        budget: Budget,
        run: &mut Run<H>,
    ) -> Result<(), Stop> {
        if wqe.op.is_read_or_atomic() {
            self.add_request(cx, q, wqe, budget, run)
        } else if cx.qp.qp_type.is_datagram() {
            self.add_datagram(cx, q, wqe, budget, run)
        } else {
            self.add_payload(cx, q, wqe, budget, run)
        }
    }

    /// Whether `count` PSNs from `psn` on may be in flight: the PSN circle is finite, and a peer that
    /// keeps packets out of order keeps so many.
    fn is_within_reach<H: Host>(&self, q: &Inner<H>, psn: Psn, count: u32) -> bool {
        let end = psn.add(count).distance_from(q.requester.una);
        let reach = match &q.recovery.selective {
            Some(selective) => selective.window().cast_signed(),
            None => MAX_PSN_DISTANCE,
        };
        // One request may always go when nothing is in flight, however many PSNs it takes.
        end <= reach || psn == q.requester.una
    }

    /// A packet of a SEND or WRITE on a connected QP.
    fn add_payload<H: Host>(
        &mut self,
        cx: Cx<'_, H>,
        q: &Inner<H>,
        wqe: &Wqe,
        budget: Budget,
        run: &mut Run<H>,
    ) -> Result<(), Stop> {
        let packet = self.cursor.packet;
        let is_last = packet + 1 == wqe.packets;
        let piece = match wqe.op {
            SendOp::Write { .. } => cx.device.pieces(cx.qp.qp_type, q.mtu).write,
            _ => u32::MAX,
        };
        let starts = packet.is_multiple_of(piece);
        let ends = is_last || (packet + 1).is_multiple_of(piece);
        let operation = payload_operation(&wqe.op, starts, ends);
        let payload_len = wqe.payload_bytes(packet, packet + 1, q.mtu) as u32;
        let psn = wqe.first_psn.add(packet);
        let cost = if psn.is_before(q.requester.una) {
            // Go-back-0 repeats what is acknowledged: no answer will release it from the window.
            0
        } else {
            u64::from(payload_len) + PACKET_OVERHEAD
        };
        let is_reliable = cx.qp.qp_type.is_reliable();
        if is_reliable {
            let need = if run.is_empty() && cost > 0 && !q.requester.must_ask() {
                // Nothing is lost by waiting a little: small pieces of a message would cost the link
                // and the peer more than what they carry is worth.
                let packets = u64::from(wqe.packets - packet);
                let bytes = wqe.payload_bytes(packet, wqe.packets, q.mtu);
                (bytes + packets * PACKET_OVERHEAD).min(2 * self.ask_every)
            } else {
                cost
            };
            if need.max(cost) > self.room {
                return Err(Stop::WindowFull {
                    need: need.max(cost),
                });
            }
            if !self.is_within_reach(q, psn, 1) {
                return Err(Stop::NoRoom);
            }
        }
        let ext = payload_ext(wqe, operation, packet, piece, q.mtu);
        let headers = self.headers(
            cx,
            q,
            wqe,
            operation,
            ext,
            psn,
            payload_len,
            is_reliable,
            is_last,
            cost,
        );
        if !run.has_room(budget, headers.len() + payload_len as usize + 3) {
            return Err(Stop::NoRoom);
        }
        let mark = run.segment_mark();
        let start = self.cursor;
        let mut after = start;
        if let Err(status) = gather(cx, q, wqe, &mut after, payload_len, run) {
            run.rewind_segments(mark);
            return Err(Stop::Broken(status));
        }
        if is_last {
            after = Cursor::start_of(start.wqe.wrapping_add(1));
        } else {
            after.packet += 1;
        }
        self.account(headers.bth().ack_req, cost);
        run.push(headers, payload_len, mark, start, after);
        self.cursor = after;
        Ok(())
    }

    /// A READ, an atomic, an ATOMIC WRITE or a FLUSH.
    fn add_request<H: Host>(
        &mut self,
        cx: Cx<'_, H>,
        q: &Inner<H>,
        wqe: &Wqe,
        budget: Budget,
        run: &mut Run<H>,
    ) -> Result<(), Stop> {
        if q.attr.max_rd_atomic == 0 {
            return Err(Stop::Broken(WcStatus::LocQpOpErr));
        }
        let is_full = self.slots_used >= u16::from(q.attr.max_rd_atomic);
        if is_full && !planted::has(Bug::DepthIgnored) {
            return Err(Stop::NoRoom);
        }
        let start = self.cursor;
        let psn = wqe.first_psn.add(start.packet);
        // A long READ is asked for in pieces, each a READ request of its own on the wire, so that
        // the responses in flight stay within the window: the responder has none. The pieces lie
        // on a fixed grid, since a repeated request must stay within one that the responder knows.
        let piece = cx.device.read_piece(q.mtu);
        let responses = (piece - start.packet % piece).min(wqe.packets - start.packet);
        let bytes = wqe.payload_bytes(start.packet, start.packet + responses, q.mtu);
        let cost = bytes + u64::from(responses) * PACKET_OVERHEAD;
        // It may be more than the window; half of that must be free.
        let need = cost.min(2 * self.ask_every);
        if need > self.room {
            return Err(Stop::WindowFull { need });
        }
        if !self.is_within_reach(q, psn, responses) {
            return Err(Stop::NoRoom);
        }
        let mut offset = u64::from(start.packet) * u64::from(q.mtu.bytes());
        if planted::has(Bug::ReadOffsetLost) && !start.packet.is_multiple_of(piece) {
            offset = 0;
        }
        let mut payload_len = 0;
        let (operation, ext) = match wqe.op {
            SendOp::Read { va, rkey } => (
                Operation::ReadRequest,
                Ext::Reth(Reth {
                    va: va.wrapping_add(offset),
                    rkey,
                    length: bytes as u32,
                }),
            ),
            SendOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            } => (
                Operation::CompareSwap,
                Ext::Atomic(AtomicEth {
                    va,
                    rkey,
                    swap_or_add: swap,
                    compare,
                }),
            ),
            SendOp::FetchAdd { va, rkey, add } => (
                Operation::FetchAdd,
                Ext::Atomic(AtomicEth {
                    va,
                    rkey,
                    swap_or_add: add,
                    compare: 0,
                }),
            ),
            SendOp::AtomicWrite { va, rkey } => {
                payload_len = wqe.length;
                (
                    Operation::AtomicWrite,
                    Ext::Reth(Reth {
                        va,
                        rkey,
                        length: wqe.length,
                    }),
                )
            }
            SendOp::Flush {
                va,
                rkey,
                length,
                what,
            } => (
                Operation::Flush,
                Ext::Flush(what, Reth { va, rkey, length }),
            ),
            _ => unreachable!("only reads and atomics come here"),
        };
        // Atomics return 8 bytes and ATOMIC WRITE stores 8, nothing else.
        let needs_8 = matches!(
            wqe.op,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. }
        );
        if needs_8 && wqe.length != 8 {
            return Err(Stop::Broken(WcStatus::LocLenErr));
        }
        let headers = self.headers(
            cx,
            q,
            wqe,
            operation,
            ext,
            psn,
            payload_len,
            true,
            true,
            cost,
        );
        if !run.has_room(budget, headers.len() + payload_len as usize) {
            return Err(Stop::NoRoom);
        }
        let mark = run.segment_mark();
        let mut after = start;
        if payload_len > 0
            && let Err(status) = gather(cx, q, wqe, &mut after, payload_len, run)
        {
            run.rewind_segments(mark);
            return Err(Stop::Broken(status));
        }
        let after = if start.packet + responses == wqe.packets {
            Cursor::start_of(start.wqe.wrapping_add(1))
        } else {
            Cursor {
                packet: start.packet + responses,
                ..start
            }
        };
        self.slots_used += 1;
        self.account(true, cost);
        run.push(headers, payload_len, mark, start, after);
        self.cursor = after;
        Ok(())
    }

    /// A datagram. A run holds datagrams to one destination only.
    fn add_datagram<H: Host>(
        &mut self,
        cx: Cx<'_, H>,
        q: &Inner<H>,
        wqe: &Wqe,
        budget: Budget,
        run: &mut Run<H>,
    ) -> Result<(), Stop> {
        let start = self.cursor;
        let Some(destination) = q.sq.destination(start.wqe) else {
            return Err(Stop::Broken(WcStatus::LocQpOpErr));
        };
        let Some(flow) = cx.device.datagram_flow(cx.qp.qpn, &destination.av) else {
            return Err(Stop::Broken(WcStatus::LocQpOpErr));
        };
        // What a card answers; IBTA C10-93.1.1 would let it pass silently.
        if wqe.length > cx.device.port_mtu().bytes() {
            return Err(Stop::Broken(WcStatus::LocLenErr));
        }
        if self
            .destination
            .is_some_and(|first| first.av != destination.av)
        {
            return Err(Stop::NoRoom);
        }
        let qkey = if destination.qkey.is_controlled() {
            q.attr.qkey
        } else {
            destination.qkey
        };
        let deth = Deth {
            qkey,
            source_qp: cx.qp.qpn,
        };
        let (operation, ext) = match wqe.op {
            SendOp::SendImm(imm) => (Operation::SendOnlyImm, Ext::DethImm(deth, imm)),
            _ => (Operation::SendOnly, Ext::Deth(deth)),
        };
        let bth = Bth {
            opcode: Opcode::new(Service::Ud, operation).expect("UD carries SEND Only"),
            solicited: wqe.flags.solicited,
            migrated: true,
            pad: pad_of(wqe.length),
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: if destination.av.dgid.is_multicast() {
                Qpn::MULTICAST
            } else {
                destination.qpn
            },
            ack_req: false,
            psn: wqe.first_psn,
        };
        let headers = Headers::new(bth, None, ext).expect("the table above pairs them");
        if !run.has_room(budget, headers.len() + wqe.length as usize + 3) {
            return Err(Stop::NoRoom);
        }
        let mark = run.segment_mark();
        let mut after = start;
        if let Err(status) = gather(cx, q, wqe, &mut after, wqe.length, run) {
            run.rewind_segments(mark);
            return Err(Stop::Broken(status));
        }
        if run.is_empty() {
            run.set_flow(flow);
            self.destination = Some(*destination);
        }
        let after = Cursor::start_of(start.wqe.wrapping_add(1));
        run.push(headers, wqe.length, mark, start, after);
        self.cursor = after;
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is a field of the header that it makes"
    )]
    fn headers<H: Host>(
        &self,
        cx: Cx<'_, H>,
        q: &Inner<H>,
        wqe: &Wqe,
        operation: Operation,
        ext: Ext,
        psn: Psn,
        payload_len: u32,
        is_reliable: bool,
        ends_message: bool,
        cost: u64,
    ) -> Headers {
        let service = q.service(cx);
        // The packet that fills the window must ask too, or nobody would open it again; that of the
        // destination or that of selective repeat.
        let fills_window = self.room.saturating_sub(cost) < packet_cost(q.mtu)
            || !self.is_within_reach(q, psn.next(), 1);
        let ack_req = is_reliable
            && (ends_message
                || fills_window
                || self.asks_always
                || self.unasked_packets >= ACK_REQUEST_PACKETS - 1
                || self.unasked_bytes + cost >= self.ask_every);
        let bth = Bth {
            opcode: Opcode::new(service, operation).expect("post checked operation and QP type"),
            solicited: wqe.flags.solicited && ends_message && wqe.op.consumes_receive(),
            migrated: true,
            pad: pad_of(payload_len),
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: q.attr.dest_qpn,
            ack_req,
            psn,
        };
        let xrc_srqn = (service == Service::Xrc).then_some(wqe.xrc_srqn);
        Headers::new(bth, xrc_srqn, ext).expect("operation and extension were chosen together")
    }

    fn account(&mut self, asked: bool, cost: u64) {
        self.cost += cost;
        if self.room != u64::MAX {
            self.room = self.room.saturating_sub(cost);
        } else {
            // Nothing was in flight: this first packet goes in any case, the next ones must fit.
            self.room = (4 * self.ask_every).saturating_sub(cost);
        }
        if asked {
            self.unasked_packets = 0;
            self.unasked_bytes = 0;
        } else {
            // Without bound on unreliable services, where nobody asks.
            self.unasked_packets = self.unasked_packets.saturating_add(1);
            self.unasked_bytes += cost;
        }
    }
}

/// What a full packet is charged to the window.
pub(crate) fn packet_cost(mtu: PathMtu) -> u64 {
    u64::from(mtu.bytes()) + PACKET_OVERHEAD
}

/// Pad bytes after a payload of `len` bytes.
pub(crate) const fn pad_of(len: u32) -> u8 {
    (len.wrapping_neg() & 3) as u8
}

fn payload_operation(op: &SendOp, is_first: bool, is_last: bool) -> Operation {
    use Operation as O;
    match (op, is_first, is_last) {
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, true, false) => O::WriteFirst,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, false, false) => O::WriteMiddle,
        (SendOp::Write { .. }, false, true) => O::WriteLast,
        (SendOp::Write { .. }, true, true) => O::WriteOnly,
        (SendOp::WriteImm { .. }, false, true) => O::WriteLastImm,
        (SendOp::WriteImm { .. }, true, true) => O::WriteOnlyImm,
        (_, true, false) => O::SendFirst,
        (_, false, false) => O::SendMiddle,
        (SendOp::SendImm(_), false, true) => O::SendLastImm,
        (SendOp::SendImm(_), true, true) => O::SendOnlyImm,
        (SendOp::SendInv(_), false, true) => O::SendLastInv,
        (SendOp::SendInv(_), true, true) => O::SendOnlyInv,
        (_, false, true) => O::SendLast,
        (_, true, true) => O::SendOnly,
    }
}

/// The extension header of packet `packet` of a WQE that is cut every `piece` packets.
fn payload_ext(wqe: &Wqe, operation: Operation, packet: u32, piece: u32, mtu: PathMtu) -> Ext {
    let reth = |va: u64, rkey| {
        let end = packet.saturating_add(piece).min(wqe.packets);
        Reth {
            va: va.wrapping_add(wqe.payload_bytes(0, packet, mtu)),
            rkey,
            length: wqe.payload_bytes(packet, end, mtu) as u32,
        }
    };
    match (wqe.op, operation) {
        (SendOp::Write { va, rkey }, Operation::WriteFirst | Operation::WriteOnly)
        | (SendOp::WriteImm { va, rkey, .. }, Operation::WriteFirst) => Ext::Reth(reth(va, rkey)),
        (SendOp::WriteImm { va, rkey, imm }, Operation::WriteOnlyImm) => {
            Ext::RethImm(reth(va, rkey), imm)
        }
        (SendOp::WriteImm { imm, .. }, Operation::WriteLastImm)
        | (SendOp::SendImm(imm), Operation::SendLastImm | Operation::SendOnlyImm) => Ext::Imm(imm),
        (SendOp::SendInv(rkey), Operation::SendLastInv | Operation::SendOnlyInv) => Ext::Ieth(rkey),
        _ => Ext::None,
    }
}

/// Pushes the `len` bytes at the cursor as segments and moves the cursor past them.
fn gather<H: Host>(
    cx: Cx<'_, H>,
    q: &Inner<H>,
    wqe: &Wqe,
    cursor: &mut Cursor,
    len: u32,
    run: &mut Run<H>,
) -> Result<(), WcStatus> {
    if wqe.is_inline {
        let start = (cursor.packet * q.mtu.bytes()) as usize;
        run.push_inline(&q.sq.inline(cursor.wqe)[start..start + len as usize]);
        return Ok(());
    }
    let keys = cx.device.keys().read();
    sgl::walk(q.sq.sges(cursor.wqe), cursor, len, |sge, addr, piece| {
        let slice: Slice<H> = keys
            .check_local(sge.lkey, cx.qp.pd, addr, piece, Access::NONE)
            .map_err(|_| WcStatus::LocProtErr)?;
        run.push_memory(slice);
        Ok(())
    })
}

/// The link took the first `taken` packets of `run`.
pub(crate) fn commit<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, run: &Run<H>, taken: usize) {
    if run.is_resend {
        commit_lost(cx, q, run, taken);
        return;
    }
    let is_reliable = cx.qp.qp_type.is_reliable();
    let taken = if planted::has(Bug::PartialSendForgotten) {
        run.len()
    } else {
        taken
    };
    let mut bytes = 0;
    let mut wire_bytes = 0;
    let mut asked = None;
    for packet in &run.packets()[..taken] {
        wire_bytes += packet.wire_len() as u64;
        let (from, after) = (packet.at, packet.after);
        let wqe = q.sq.get(from.wqe);
        let to = if after.wqe == from.wqe {
            after.packet
        } else {
            wqe.packets
        };
        let end = wqe.first_psn.add(to);
        let cost = if end.is_after(q.requester.una) {
            wqe.payload_bytes(from.packet, to, q.mtu)
                + u64::from(to - from.packet) * PACKET_OVERHEAD
        } else {
            0
        };
        if is_reliable {
            bytes += cost;
            if wqe.op.is_read_or_atomic() {
                q.requester.slots_used += 1;
            }
            if packet.headers.bth().ack_req {
                q.requester.forget_unasked();
                // Go-back-0 repeats what is acknowledged: nothing new is answered to that.
                asked = Some(end.prev()).filter(|psn| !psn.is_before(q.requester.una));
            } else {
                q.requester.unasked_packets += 1;
                q.requester.unasked_bytes += cost;
            }
        }
        if end.is_after(q.requester.sent_end) {
            if let Some(selective) = &mut q.recovery.selective {
                selective.on_sent(cx.now, q.requester.sent_end, end);
            }
            q.requester.sent_end = end;
            if from.packet == 0 && wqe.op.consumes_receive() {
                cx.count(Counter::RdmaSends);
            }
        } else {
            cx.count(Counter::RetransmittedPackets);
            let sent_end = q.requester.sent_end;
            if let Some(selective) = &mut q.recovery.selective {
                selective.on_resent(cx.now, packet.headers.bth().psn, sent_end);
            }
        }
        q.requester.cursor = after;
    }
    if planted::has(Bug::GatherRunsAhead)
        && let Some(last) = run.packets()[taken..].last()
        && last.after.wqe == q.requester.cursor.wqe
    {
        q.requester.cursor.sge = last.after.sge;
        q.requester.cursor.sge_offset = last.after.sge_offset;
    }
    q.pacing.on_bytes_sent(cx.now, wire_bytes);
    if is_reliable {
        q.requester.in_flight += bytes;
        if let Some(window) = &q.window {
            window.lock().add(bytes);
        }
        if let Some(psn) = asked {
            expect_answer(cx, q, psn);
        }
        q.refresh_timer(cx);
    } else {
        // Unreliable service: handed to the network is done.
        q.requester.una = q.requester.sent_end;
        crate::completer::advance_head(cx, q);
        crate::completer::check_drained(cx, q);
    }
}

/// A packet that asks for an answer was sent, `psn` its last one. Nobody owes an answer before it was
/// asked for, so the timer starts here.
pub(crate) fn expect_answer<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn) {
    if q.requester.asked.is_none_or(|newest| psn.is_after(newest)) {
        set_asked(q, Some(psn));
    }
    if q.requester.timeout_at.is_none() {
        q.requester.timeout_at = ack_deadline(q, cx.now);
    }
}

/// Everything before `una` is acknowledged: the answer that was due may be in.
pub(crate) fn answered<H: Host>(q: &mut Inner<H>, una: Psn) {
    if q.requester.asked.is_some_and(|psn| psn.is_before(una)) {
        set_asked(q, None);
    }
}

/// What is in flight is given up, or another window's: no answer is due. The PSN of the one that was.
pub(crate) fn expect_nothing<H: Host>(q: &mut Inner<H>) -> Option<Psn> {
    let asked = q.requester.asked;
    set_asked(q, None);
    asked
}

/// The window counts the QPs that wait for an answer.
fn set_asked<H: Host>(q: &mut Inner<H>, asked: Option<Psn>) {
    let was_due = q.requester.is_answer_due();
    q.requester.asked = asked;
    if let Some(window) = &q.window {
        match (was_due, asked.is_some()) {
            (false, true) => window.lock().expect_answer(),
            (true, false) => window.lock().expect_no_answer(),
            _ => {}
        }
    }
}

/// The link took packets that had been lost.
fn commit_lost<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, run: &Run<H>, taken: usize) {
    let sent_end = q.requester.sent_end;
    let mut wire_bytes = 0;
    let mut asked = None;
    for (index, packet) in run.packets().iter().enumerate() {
        let Some(selective) = &mut q.recovery.selective else {
            return;
        };
        if index < taken {
            let psn = packet.headers.bth().psn;
            wire_bytes += packet.wire_len() as u64;
            cx.count(Counter::RetransmittedPackets);
            cx.count(Counter::SrRetransmittedPackets);
            if selective.is_probe(psn) {
                cx.count(Counter::RoceAdpRetrans);
            }
            selective.on_resent(cx.now, psn, sent_end);
            asked = Some(psn).filter(|psn| !psn.is_before(q.requester.una));
        } else {
            selective.look_again(packet.headers.bth().psn);
        }
    }
    q.pacing.on_bytes_sent(cx.now, wire_bytes);
    if let Some(psn) = asked {
        expect_answer(cx, q, psn);
    }
    q.refresh_timer(cx);
}

/// When a packet sent now counts as lost.
pub(crate) fn ack_deadline<H: Host>(q: &Inner<H>, now: Instant) -> Option<Instant> {
    q.attr
        .timeout
        .duration()
        .map(|duration| now + Span::from(duration))
}

/// Whether the QP would have something to offer, as far as can be told without offering.
pub(crate) fn has_work<H: Host>(q: &Inner<H>) -> bool {
    matches!(q.state, QpState::Rts | QpState::Sqd)
        && (q.requester.cursor.wqe != q.sq.tail() || q.recovery.has_lost())
}

/// Puts the send position back to `psn`: everything from there on is sent again.
pub(crate) fn go_back<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn) {
    q.generation = q.generation.wrapping_add(1);
    q.release_in_flight(cx);
    q.requester.slots_used = 0;
    q.requester.forget_unasked();
    let is_late = planted::has(Bug::RestartOffByOne) && psn.next() != q.requester.sent_end;
    q.requester.cursor = position(q, if is_late { psn.next() } else { psn });
    q.requester.timeout_at = None;
    if let Some(selective) = &mut q.recovery.selective {
        selective.on_go_back();
    }
    q.schedule(cx, Work::Requests);
}

/// The cursor at `psn`, which lies between the oldest unacknowledged PSN and the last sent. Local
/// operations right before it come first: they may not have taken effect yet.
pub(crate) fn position<H: Host>(q: &Inner<H>, psn: Psn) -> Cursor {
    let mut first_local = None;
    let mut wqe = q.sq.head();
    while wqe != q.sq.tail() {
        let entry = q.sq.get(wqe);
        if entry.packets == 0 {
            first_local.get_or_insert(wqe);
        } else if psn.is_after(entry.last_psn()) {
            first_local = None;
        } else {
            let packet = psn.distance_from(entry.first_psn).max(0).cast_unsigned();
            if packet == 0 {
                return Cursor::start_of(first_local.unwrap_or(wqe));
            }
            let offset = u64::from(packet) * u64::from(q.mtu.bytes());
            let (sge, sge_offset) = if entry.op.sends_payload() && !entry.is_inline {
                sgl::seek(q.sq.sges(wqe), offset)
            } else {
                (0, 0)
            };
            return Cursor {
                wqe,
                packet,
                sge,
                sge_offset,
            };
        }
        wqe = wqe.wrapping_add(1);
    }
    Cursor::start_of(first_local.unwrap_or(wqe))
}

/// PSN at the cursor.
pub(crate) fn cursor_psn<H: Host>(q: &Inner<H>) -> Psn {
    let cursor = q.requester.cursor;
    let mut wqe = cursor.wqe;
    // Local operations have no PSN; the next WQE that has one tells.
    while wqe != q.sq.tail() {
        let entry = q.sq.get(wqe);
        if entry.packets > 0 {
            let packet = if wqe == cursor.wqe { cursor.packet } else { 0 };
            return entry.first_psn.add(packet);
        }
        wqe = wqe.wrapping_add(1);
    }
    q.sq.next_psn
}

impl<H: Host> Inner<H> {
    /// First PSN of the SEND or WRITE that `psn` belongs to. A READ goes on where its responses
    /// stopped: what has arrived cannot arrive again.
    pub(crate) fn message_start(&self, psn: Psn) -> Psn {
        let cursor = position(self, psn);
        if cursor.wqe == self.sq.tail() {
            return psn;
        }
        let wqe = self.sq.get(cursor.wqe);
        if wqe.op.is_read_or_atomic() {
            psn
        } else {
            wqe.first_psn
        }
    }

    pub(crate) fn service(&self, cx: Cx<'_, H>) -> Service {
        use hirail_vocab::QpType;
        match cx.qp.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud | QpType::Gsi => Service::Ud,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
        }
    }
}
