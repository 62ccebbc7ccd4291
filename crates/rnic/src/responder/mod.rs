//! The responder of connected services: executes the peer's requests.
//!
//! A request is first placed by its PSN (new, duplicate, gap). A new one goes through [`checks`],
//! which decide, in the standard's order, and returns either what to execute or how to refuse; then
//! one function here changes state. What is owed to the peer waits in [`answers`] and becomes
//! packets in [`reply`]. Rules: IBTA Vol 1, chapter 9 (Transport Layer).

pub(crate) mod answers;
mod checks;
pub(crate) mod conversation;
pub(crate) mod datagram;
pub(crate) mod reply;

use std::sync::Arc;

use hirail_vocab::{Counter, DropReason, QpState, WcOpcode, WcStatus};
use hirail_wire::{Ext, Headers, Msn, NakCode, Operation, Psn, Rkey};

use crate::cq::{Cqe, WcPayload};
use crate::device::{CompletionQueue, SharedReceiveQueue};
use crate::event::{AsyncEvent, Denied, Target};
use crate::host::{Host, Payload, ReadMostly, Region};
use crate::mr::PdId;
use crate::planted::{self, Bug};
use crate::qp::attr::QpAttr;
use crate::qp::state::Capabilities;
use crate::qp::{Cx, Inner};
use crate::recovery::{self, reorder::Kept};
use crate::recv_queue::{RecvRing, RecvWqe};
use crate::send_queue::Cursor;
use crate::sgl;
use crate::srq::{HeldRecv, Taken};
use crate::transmit::Work;
use answers::{Answer, Answers};
use checks::{Checked, Fatal, Refuse};
use conversation::Conversation;

type PayloadOf<'a, H> = <<H as Host>::Region as Region>::Payload<'a>;

/// Which multi-packet message is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Send,
    Write,
}

/// Whether requests after a gap are discarded without a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Silence {
    #[default]
    Not,
    AfterSequenceNak,
    AfterRnrNak,
}

/// The WRITE being received.
#[derive(Clone, Copy, Debug, Default)]
struct Write {
    /// Address of the next byte.
    va: u64,
    rkey: Rkey,
    /// Bytes still to come.
    left: u32,
    /// DMALen.
    length: u32,
}

/// State of the responder of one QP.
pub(crate) struct Responder<H: Host> {
    /// PSN of the next new request.
    pub(crate) epsn: Psn,
    /// Messages completed.
    pub(crate) msn: Msn,
    open: Open,
    silence: Silence,
    /// The first good request has been seen.
    established: bool,
    /// A receive WQE is in use; it is the oldest of the QP's own queue, or held from an SRQ.
    has_receive: bool,
    /// The packet that is being handled shall find no receive WQE ([`Device::starve`]).
    pub(crate) starved: bool,
    /// Scatter position in it.
    scatter: Cursor,
    /// Bytes placed under it.
    placed: u32,
    write: Write,
    /// The SRQ that `held` came from.
    srq: Option<Arc<SharedReceiveQueue<H>>>,
    held: HeldRecv,
    pub(crate) answers: Answers,
    pub(crate) conversation: Conversation,
}

impl<H: Host> Default for Responder<H> {
    fn default() -> Self {
        Self {
            epsn: Psn::new(0),
            msn: Msn::new(0),
            open: Open::Nothing,
            silence: Silence::Not,
            established: false,
            has_receive: false,
            starved: false,
            scatter: Cursor::default(),
            placed: 0,
            write: Write::default(),
            srq: None,
            held: HeldRecv::new(),
            answers: Answers::default(),
            conversation: Conversation::default(),
        }
    }
}

impl<H: Host> Responder<H> {
    /// Starts to expect `psn`, with the depth that the attributes give.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        self.epsn = attr.rq_psn;
        self.answers = Answers::new(attr.max_dest_rd_atomic);
    }

    /// The CQ of the XRC SRQ whose receive WQE is in use.
    pub(crate) fn xrc_cq(&self) -> Option<&Arc<CompletionQueue<H>>> {
        Some(&self.srq.as_ref()?.xrc.as_ref()?.cq)
    }

    /// Lets go of a receive WQE taken from an SRQ; its number, so that it can be flushed. One of
    /// the QP's own queue stays there.
    pub(crate) fn abandon_receive(&mut self, _own: &mut RecvRing) -> Option<u64> {
        let had = core::mem::take(&mut self.has_receive);
        (had && self.srq.is_some()).then(|| self.held.wqe().wr_id)
    }

    /// Whether a receive WQE is in use.
    pub(crate) fn is_receiving(&self) -> bool {
        self.has_receive
    }

    /// Starts over with the receive WQE in use: what came for it was dropped.
    fn keep_receive(&mut self) {
        self.scatter = Cursor::default();
        self.placed = 0;
    }

    /// The receive WQE in use.
    fn receive<'a>(&'a self, own: &'a RecvRing) -> Option<RecvWqe<'a>> {
        if !self.has_receive {
            None
        } else if self.srq.is_some() {
            Some(self.held.wqe())
        } else {
            own.front()
        }
    }
}

/// Handles a request packet for a connected QP.
pub(crate) fn handle_request<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
) -> Result<(), DropReason> {
    if !Capabilities::of(q.state).accepts_requests {
        return Err(DropReason::WrongQpState);
    }
    if cx.qp.qp_type.is_reliable() {
        let result = reliable(cx, q, headers, payload);
        if q.recovery.pool.is_some() {
            execute_kept(cx, q);
        }
        result
    } else {
        unreliable(cx, q, headers, payload)
    }
}

fn reliable<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
) -> Result<(), DropReason> {
    let mut distance = headers.bth().psn.distance_from(q.responder.epsn);
    if planted::has(Bug::WrapIgnored) {
        distance = headers.bth().psn.value() as i32 - q.responder.epsn.value() as i32;
    }
    if distance > 0 {
        return match keep(cx, q, distance.cast_unsigned(), headers, payload) {
            Some(kept) => kept,
            None => gap(cx, q, headers.bth().psn),
        };
    }
    if distance < 0 {
        if executes_duplicates(headers.opcode().operation()) {
            let epsn = q.responder.epsn;
            if let Ok(checked) = checks::check(cx, q, headers, payload) {
                execute(cx, q, headers, payload, checked);
                q.responder.epsn = epsn;
            }
        }
        return duplicate(cx, q, headers);
    }
    q.responder.silence = Silence::Not;
    match checks::check(cx, q, headers, payload) {
        Ok(checked) => {
            execute(cx, q, headers, payload, checked);
            Ok(())
        }
        Err(Refuse::NotReady) => {
            deny(cx, q, headers, &Refuse::NotReady);
            cx.count(Counter::OutOfBuffer);
            cx.count(Counter::SendRnrErr);
            q.responder.silence = Silence::AfterRnrNak;
            if planted::has(Bug::RnrMovesPsn) {
                q.responder.epsn = q.responder.epsn.next();
            }
            q.responder.answers.rnr_nak(q.attr.min_rnr_timer);
            q.schedule(cx, Work::Acknowledgement);
            Ok(())
        }
        Err(Refuse::Fatal(fatal)) => {
            fail(cx, q, headers, fatal);
            Ok(())
        }
    }
}

/// Never, unless the bug was planted.
fn executes_duplicates(operation: Operation) -> bool {
    planted::has(Bug::DuplicateExecuted)
        && matches!(operation, Operation::SendOnly | Operation::WriteOnly)
        || planted::has(Bug::AtomicExecutedAgain) && operation.is_atomic()
}

/// Selective repeat: keeps a request that arrived too early and says so. Nothing where the peer does
/// not speak it.
fn keep<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    ahead: u32,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
) -> Option<Result<(), DropReason>> {
    let kept = q.recovery.pool.as_mut()?.keep(ahead, headers, payload);
    recovery::owe_sack(cx, q);
    Some(match kept {
        Kept::New => {
            cx.count(Counter::SrHeldPackets);
            Ok(())
        }
        Kept::Already => Err(DropReason::DuplicateHeld),
        Kept::Beyond => Err(DropReason::ReorderPoolFull),
    })
}

/// Executes requests whose turn has come since the gap before them was filled.
fn execute_kept<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    let mut filled = false;
    while q.state != QpState::Err {
        let psn = q.responder.epsn;
        let Some((headers, payload)) = q.recovery.pool.as_mut().and_then(|pool| pool.take(psn))
        else {
            break;
        };
        filled = true;
        // Its result was counted or answered; a request refused for now is sent again.
        let _ = reliable(cx, q, &headers, H::Region::held(&payload));
        if let Some(pool) = &mut q.recovery.pool {
            pool.give_back(psn, payload);
        }
        if q.responder.epsn == psn {
            break;
        }
    }
    if filled {
        recovery::owe_sack(cx, q);
    }
}

/// A request after a hole: one NAK, then silence until the hole is filled.
fn gap<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn) -> Result<(), DropReason> {
    match q.responder.silence {
        _ if planted::has(Bug::GapToldAgain) => {
            q.responder.answers.sequence_nak(psn);
            q.schedule(cx, Work::Acknowledgement);
            Ok(())
        }
        Silence::Not => {
            cx.count(Counter::OutOfSequence);
            cx.count(Counter::SendSeqErr);
            q.responder.silence = Silence::AfterSequenceNak;
            q.responder.answers.sequence_nak(psn);
            q.schedule(cx, Work::Acknowledgement);
            Ok(())
        }
        Silence::AfterSequenceNak => {
            q.responder.answers.discarded(psn);
            Err(DropReason::OutOfSequenceSilent)
        }
        Silence::AfterRnrNak => Err(DropReason::AfterRnrNak),
    }
}

/// A request that was executed before: answered again, never executed again.
fn duplicate<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
) -> Result<(), DropReason> {
    let psn = headers.bth().psn;
    let is_known = match (headers.opcode().operation(), headers.ext()) {
        (Operation::ReadRequest, Ext::Reth(reth)) => {
            q.responder.answers.replay_read(psn, reth, q.mtu)
        }
        (
            Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush,
            _,
        ) => q.responder.answers.replay_one(psn),
        _ => {
            cx.count(Counter::DuplicateRequest);
            if headers.bth().ack_req {
                q.responder.answers.acknowledge();
                q.responder.conversation.asked_again();
                q.schedule(cx, Work::Acknowledgement);
            }
            return Ok(());
        }
    };
    if !is_known {
        return Err(DropReason::DuplicateUnreplayable);
    }
    cx.count(Counter::DuplicateRequest);
    q.schedule(cx, Work::Responses);
    Ok(())
}

/// UC: nothing is answered; a message with a hole is dropped as a whole.
fn unreliable<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
) -> Result<(), DropReason> {
    let psn = headers.bth().psn;
    let starts = headers.opcode().operation().starts_message();
    let is_next = psn == q.responder.epsn;
    q.responder.epsn = psn.next();
    if q.responder.open != Open::Nothing && (starts || !is_next) {
        break_message(cx, q);
    }
    if !starts && (!is_next || q.responder.open == Open::Nothing) {
        return Err(DropReason::UcBrokenMessage);
    }
    match checks::check(cx, q, headers, payload) {
        Ok(checked) => {
            execute(cx, q, headers, payload, checked);
            Ok(())
        }
        Err(refuse) => {
            deny(cx, q, headers, &refuse);
            break_message(cx, q);
            Err(match refuse {
                Refuse::NotReady => DropReason::UcNoReceiveWqe,
                Refuse::Fatal(_) => DropReason::UcRefused,
            })
        }
    }
}

/// The rest of a UC message will not come: its receive WQE serves the next message, or ends in
/// error where it came from an SRQ and cannot be given back.
fn break_message<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    q.responder.open = Open::Nothing;
    q.responder.keep_receive();
    if q.responder.has_receive && q.responder.srq.is_some() {
        finish_receive(cx, q, WcStatus::LocQpOpErr, None);
    }
}

/// Executes a checked request.
fn execute<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
    checked: Checked<H>,
) {
    let mut packets = 1;
    let outcome = match checked {
        Checked::Send { invalidate } => execute_send(cx, q, headers, payload, invalidate),
        Checked::Write { target, reth } => {
            if let Some(reth) = reth {
                q.responder.write = Write {
                    va: reth.va,
                    rkey: reth.rkey,
                    left: reth.length,
                    length: reth.length,
                };
            }
            match target.map_or(Ok(()), |target| target.write(0, payload)) {
                Ok(()) => {
                    written(cx, q, headers, payload.len() as u32);
                    Ok(())
                }
                Err(_) => Err(Fatal::remote_access(q)),
            }
        }
        Checked::Read {
            reth,
            responses,
            pd,
        } => {
            cx.count(Counter::RxReadRequests);
            packets = responses;
            q.responder
                .answers
                .push(Answer::read(headers.bth().psn, reth, pd, responses));
            if !planted::has(Bug::MsnWithoutReads) {
                q.responder.msn = q.responder.msn.next();
            }
            Ok(())
        }
        Checked::Atomic { word, operation } => {
            let original = match operation {
                checks::Atomic::CompareSwap { compare, swap } => {
                    let done = word.compare_swap(0, compare, swap);
                    match done {
                        Ok(found) if planted::has(Bug::SwapAlways) => {
                            word.compare_swap(0, found, swap)
                        }
                        _ => done,
                    }
                }
                checks::Atomic::FetchAdd { add } => word.fetch_add(0, add),
            };
            original
                .map_err(|_| Fatal::remote_access(q))
                .map(|original| {
                    cx.count(Counter::RxAtomicRequests);
                    q.responder
                        .answers
                        .push(Answer::atomic(headers.bth().psn, original));
                    q.responder.msn = q.responder.msn.next();
                })
        }
        Checked::AtomicWrite { word } => word
            .store_word(0, payload)
            .map_err(|_| Fatal::remote_access(q))
            .map(|()| {
                cx.count(Counter::RxAtomicRequests);
                q.responder.answers.push(Answer::done(headers.bth().psn));
                q.responder.msn = q.responder.msn.next();
            }),
        Checked::Flush {
            region,
            is_whole,
            persistent,
        } => {
            let flushed = region.map_or(Ok(()), |slice| {
                if is_whole {
                    slice.flush_region(persistent)
                } else {
                    slice.flush(persistent)
                }
            });
            flushed.map_err(|_| Fatal::remote_access(q)).map(|()| {
                cx.count(Counter::RxFlushRequests);
                q.responder.answers.push(Answer::done(headers.bth().psn));
                q.responder.msn = q.responder.msn.next();
            })
        }
    };
    match outcome {
        Ok(()) => accepted(cx, q, headers, packets),
        Err(fatal) => fail(cx, q, headers, fatal),
    }
}

/// A new request was executed: moves ePSN and sees to the answer.
fn accepted<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, headers: &Headers, packets: u32) {
    if q.state == QpState::Err {
        return;
    }
    let bth = headers.bth();
    let operation = bth.opcode.operation();
    if cx.qp.qp_type.is_reliable() {
        q.responder.epsn = q.responder.epsn.add(packets);
        if q.responder.answers.caught_up(q.responder.epsn) {
            q.responder.silence = Silence::AfterSequenceNak;
        }
        // READs and atomics are answered by responses of their own, others only when asked.
        let wants_ack = bth.ack_req && (operation.is_send() || operation.is_write());
        if wants_ack {
            q.responder.answers.acknowledge();
        }
        if q.responder.answers.has_jobs() {
            q.schedule(cx, Work::Responses);
        } else if wants_ack {
            conversation::acknowledge(cx, q, operation);
        }
    }
    if !q.responder.established {
        q.responder.established = true;
        if q.state == QpState::Rtr {
            cx.raise(AsyncEvent::CommEst);
        }
    }
}

fn execute_send<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
    invalidate: Option<Rkey>,
) -> Result<(), Fatal> {
    let operation = headers.opcode().operation();
    let pd = receive_pd(cx, q);
    let mut cursor = q.responder.scatter;
    let wqe = q
        .responder
        .receive(&q.rq)
        .expect("the resource check provided a receive WQE");
    let is_placed = !(planted::has(Bug::LastPacketNotPlaced) && operation.is_last());
    if is_placed && sgl::scatter(cx, pd, wqe.sges, &mut cursor, payload).is_err() {
        return Err(Fatal {
            nak: NakCode::RemoteOperationalError,
            receive: Some(WcStatus::LocProtErr),
            event: None,
        });
    }
    q.responder.scatter = cursor;
    q.responder.placed += payload.len() as u32;
    q.responder.open = if operation.ends_message() {
        Open::Nothing
    } else {
        Open::Send
    };
    if !operation.ends_message() {
        return Ok(());
    }
    if let Some(key) = invalidate {
        // The key dies after the data is placed and before the completion.
        if cx
            .device
            .keys()
            .write()
            .invalidate_remote(key, cx.qp.pd, cx.qp.qpn)
            .is_err()
        {
            return Err(Fatal {
                nak: NakCode::RemoteAccessError,
                receive: Some(WcStatus::LocAccessErr),
                event: None,
            });
        }
    }
    q.responder.msn = q.responder.msn.next();
    cx.count(Counter::RdmaRecvs);
    finish_receive(cx, q, WcStatus::Success, Some(headers));
    Ok(())
}

/// A packet of a WRITE was placed.
fn written<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, headers: &Headers, bytes: u32) {
    let operation = headers.opcode().operation();
    let write = &mut q.responder.write;
    write.va = write.va.wrapping_add(u64::from(bytes));
    write.left -= bytes;
    q.responder.open = if operation.ends_message() {
        Open::Nothing
    } else {
        Open::Write
    };
    if operation.ends_message() {
        q.responder.msn = q.responder.msn.next();
        cx.count(Counter::RxWriteRequests);
        if operation.has_imm() {
            finish_receive(cx, q, WcStatus::Success, Some(headers));
        }
    }
}

/// Takes the receive WQE in use off its queue and reports it. `headers` are those of the last
/// packet of a good message.
fn finish_receive<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    status: WcStatus,
    headers: Option<&Headers>,
) {
    let Some(wr_id) = q.responder.receive(&q.rq).map(|wqe| wqe.wr_id) else {
        return;
    };
    let mut cqe = cx.cqe(wr_id, status, WcOpcode::Recv);
    if let Some(headers) = headers {
        cqe.solicited = headers.bth().solicited && !planted::has(Bug::SolicitedLost);
        cqe.byte_len = q.responder.placed;
        if headers.opcode().operation().is_write() {
            cqe.opcode = WcOpcode::RecvRdmaWithImm;
            cqe.byte_len = q.responder.write.length;
            if planted::has(Bug::LengthOfLastPacket) {
                cqe.byte_len = cqe.byte_len.min(q.mtu.bytes());
            }
        }
        cqe.payload = match *headers.ext() {
            _ if planted::has(Bug::ImmediateLost) => WcPayload::None,
            Ext::Imm(imm) | Ext::RethImm(_, imm) => WcPayload::Imm(imm),
            Ext::Ieth(key) => WcPayload::Invalidated(key),
            _ => WcPayload::None,
        };
    }
    finish_receive_with(cx, q, cqe);
}

/// Takes the receive WQE in use off its queue and reports it as `cqe`.
fn finish_receive_with<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, cqe: Cqe) {
    if q.responder.srq.is_none() {
        q.rq.pop();
    }
    q.complete_receive(cx, cqe);
    q.responder.has_receive = false;
    q.responder.scatter = Cursor::default();
    q.responder.placed = 0;
}

/// Provides a receive WQE: the oldest of the QP's own queue, or one out of the SRQ. False when
/// there is none now.
fn take_receive<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, xrc_srqn: Option<u32>) -> bool {
    if q.responder.has_receive {
        return true;
    }
    let srq = match xrc_srqn {
        Some(number) => cx.device.srq(number),
        None => cx.qp.srq.clone(),
    };
    let has_receive = match &srq {
        None => q.rq.front().is_some(),
        Some(srq) => {
            let taken = srq.lock().take(&mut q.responder.held);
            let limit_reached = matches!(
                taken,
                Taken::Wqe {
                    limit_reached: true
                } | Taken::Empty {
                    limit_reached: true
                }
            );
            if limit_reached {
                cx.device.raise(AsyncEvent::SrqLimitReached(srq.id));
            }
            matches!(taken, Taken::Wqe { .. })
        }
    };
    q.responder.srq = srq;
    q.responder.has_receive = has_receive;
    q.responder.scatter = Cursor::default();
    q.responder.placed = 0;
    has_receive
}

/// The domain that the keys of the receive WQE in use belong to.
fn receive_pd<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> PdId {
    q.responder.srq.as_ref().map_or(cx.qp.pd, |srq| srq.pd)
}

/// Refuses a request for good: the NAK goes out, the QP is in error.
fn fail<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, headers: &Headers, fatal: Fatal) {
    let refuse = Refuse::Fatal(fatal);
    deny(cx, q, headers, &refuse);
    let Refuse::Fatal(fatal) = refuse else { return };
    match fatal.nak {
        NakCode::InvalidRequest => cx.count(Counter::RespRemoteInvalidRequest),
        NakCode::RemoteAccessError => cx.count(Counter::RespRemoteAccessErrors),
        _ => cx.count(Counter::RespRemoteOperationErrors),
    }
    if !cx.qp.qp_type.is_reliable() {
        break_message(cx, q);
        return;
    }
    q.responder.answers.fatal_nak(fatal.nak);
    if let Some(status) = fatal.receive
        && q.responder.has_receive
    {
        if status == WcStatus::LocLenErr {
            cx.count(Counter::RespLocalLengthError);
        }
        finish_receive(cx, q, status, None);
    }
    q.enter_error(cx);
    if let Some(event) = fatal.event {
        cx.raise(event);
    }
    // The QP is in error and sends nothing any more but this.
    q.schedule(cx, Work::Acknowledgement);
    if q.responder.answers.has_jobs() {
        q.schedule(cx, Work::Responses);
    }
}

/// Tells who wants to know that the peer's request got nothing. One that was starved on purpose says
/// nothing about the program.
#[cold]
fn deny<H: Host>(cx: Cx<'_, H>, q: &Inner<H>, headers: &Headers, refuse: &Refuse) {
    if q.responder.starved {
        return;
    }
    let write = &q.responder.write;
    let operation = headers.opcode().operation();
    let target = match *headers.ext() {
        Ext::Atomic(atomic) => Some(Target {
            rkey: atomic.rkey,
            va: atomic.va,
            length: 8,
        }),
        ext => match ext.reth() {
            Some(reth) => Some(Target {
                rkey: reth.rkey,
                va: reth.va,
                length: reth.length,
            }),
            None => operation.is_write().then_some(Target {
                rkey: write.rkey,
                va: write.va,
                length: write.left,
            }),
        },
    };
    cx.device.deny(|| Denied {
        qpn: cx.qp.qpn,
        operation,
        why: refuse.why(),
        target,
    });
}
