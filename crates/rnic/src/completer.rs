//! The completer: what responses mean for the send queue.
//!
//! One rule carries it: `una` is the oldest PSN that is not acknowledged, and a WQE completes when
//! `una` has passed its last PSN. READs and atomics move `una` only by their own responses, so an
//! acknowledgement beyond an unanswered one is an implied NAK. Rules: IBTA Vol 1,
//! chapter 9 (Transport Layer).

use std::sync::Arc;

use hirail_vocab::{Counter, DropReason, QpState, WcStatus};
use hirail_wire::{Aeth, Ext, Headers, NakCode, Operation, Psn, RnrTimer, Syndrome};

use crate::event::AsyncEvent;
use crate::host::{Host, Lock, Payload, Region};
use crate::planted::{self, Bug};
use crate::qp::{Cx, Inner};
use crate::requester::{ack_deadline, answered, cursor_psn, go_back, position};
use crate::send_queue::{Cursor, SendOp, SendQueue};
use crate::sgl::{self, BadEntry};
use crate::time::Span;
use crate::transmit::Work;
use crate::window::PACKET_OVERHEAD;

type PayloadOf<'a, H> = <<H as Host>::Region as Region>::Payload<'a>;

/// Handles a response packet of the peer's responder.
pub(crate) fn handle_response<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: PayloadOf<'_, H>,
) -> Result<(), DropReason> {
    if !matches!(q.state, QpState::Rts | QpState::Sqd) {
        return Err(DropReason::WrongQpState);
    }
    let psn = headers.bth().psn;
    // A NAK may name the PSN after the last one sent only when that is nothing but an ACK of all.
    if psn.is_before(q.requester.una) {
        return Err(DropReason::GhostAck);
    }
    if !psn.is_before(q.requester.sent_end) {
        return Err(DropReason::AckOfUnsentPsn);
    }
    q.requester.heard = true;
    let result = match (headers.opcode().operation(), *headers.ext()) {
        (Operation::Acknowledge, Ext::Aeth(aeth)) => acknowledge(cx, q, psn, aeth),
        (Operation::AtomicAcknowledge, Ext::AtomicAck(aeth, original)) => {
            note_credits(q, &aeth);
            finish_atomic(cx, q, psn, original)
        }
        (operation, ext) if operation.is_read_response() => {
            if let Ext::Aeth(aeth) = ext {
                note_credits(q, &aeth);
            }
            read_response(cx, q, operation, psn, payload)
        }
        _ => Err(DropReason::ResponseUnexpected),
    };
    if q.state != QpState::Err {
        q.refresh_timer(cx);
    }
    result
}

/// An ACK, RNR NAK or NAK.
fn acknowledge<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    psn: Psn,
    aeth: Aeth,
) -> Result<(), DropReason> {
    match aeth.syndrome {
        Syndrome::Ack(_) => {
            cx.count(Counter::RcvdAcks);
            note_credits(q, &aeth);
            match advance_to(cx, q, psn.next()) {
                Some(missing) => implied_nak(cx, q, missing),
                None => progressed(cx, q),
            }
        }
        Syndrome::Rnr(timer) => {
            cx.count(Counter::RnrNakRetryErr);
            match advance_to(cx, q, psn) {
                Some(missing) => implied_nak(cx, q, missing),
                None => receiver_not_ready(cx, q, psn, timer),
            }
        }
        Syndrome::Nak(code) => match advance_to(cx, q, psn) {
            Some(missing) => implied_nak(cx, q, missing),
            None => negative(cx, q, psn, code),
        },
        Syndrome::Reserved(_) => return Err(DropReason::ReservedSyndrome),
    }
    Ok(())
}

fn note_credits<H: Host>(q: &mut Inner<H>, aeth: &Aeth) {
    if let Syndrome::Ack(credits) = aeth.syndrome {
        q.requester.credit_limit = credits
            .available()
            .map(|count| (aeth.msn.value() + count) & 0x00ff_ffff);
    }
}

/// Moves `una` up to `to` as far as SENDs and WRITEs go. Returns the PSN of the first missing
/// response when an unanswered READ or atomic is in the way.
pub(crate) fn advance_to<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, to: Psn) -> Option<Psn> {
    let before = q.requester.una;
    let mut una = before;
    let mut bytes = 0;
    let mut missing = None;
    let mut wqe = q.sq.head();
    while wqe != q.sq.tail() && una.is_before(to) {
        let entry = q.sq.get(wqe);
        wqe = wqe.wrapping_add(1);
        if entry.packets == 0 {
            continue;
        }
        let end = entry.first_psn.add(entry.packets);
        if !una.is_before(end) {
            continue;
        }
        if entry.op.is_read_or_atomic() {
            missing = Some(una);
            break;
        }
        let from = una.distance_from(entry.first_psn).cast_unsigned();
        let until = if to.is_before(end) { to } else { end };
        let count = until.distance_from(entry.first_psn).cast_unsigned();
        bytes +=
            entry.payload_bytes(from, count, q.mtu) + u64::from(count - from) * PACKET_OVERHEAD;
        una = until;
    }
    if una != before {
        settle(cx, q, una, bytes);
    }
    missing
}

/// `una` has moved: releases the window, keeps the cursor from falling behind, completes WQEs.
fn settle<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, una: Psn, bytes: u64) {
    q.requester.una = una;
    answered(q, una);
    let cursor = cursor_psn(q);
    // Nothing is in flight: there is nothing, or all of it is still to be sent again.
    let is_all = una == q.requester.sent_end || !cursor.is_after(una);
    if is_all {
        q.requester.forget_unasked();
    }
    if una.is_after(cursor) {
        // Something sent before a retransmission was acknowledged after all: skip what it covers.
        q.generation = q.generation.wrapping_add(1);
        q.requester.cursor = position(q, una);
        q.requester.slots_used = 0;
        q.release_in_flight(cx);
    } else {
        // What was sent twice was charged twice and is acknowledged once.
        let bytes = if is_all {
            q.requester.in_flight
        } else {
            bytes.min(q.requester.in_flight)
        };
        q.requester.in_flight -= bytes;
        if let Some(window) = &q.window {
            let window = Arc::clone(window);
            window.lock().acknowledged(bytes);
            cx.device.wake_waiting(&window);
        }
    }
    let sent_end = q.requester.sent_end;
    if let Some(selective) = &mut q.recovery.selective {
        selective.on_acknowledged(cx.now, una, sent_end);
    }
    q.requester.asked_again = None;
    // Any progress reloads both retry counters and the timer.
    if !planted::has(Bug::RetriesNotReloaded) {
        q.requester.retries_left = q.attr.retry_cnt;
    }
    q.requester.rnr_retries_left = q.attr.rnr_retry;
    let is_due = q.requester.is_answer_due() && !planted::has(Bug::TimerForgotten);
    q.requester.timeout_at = if is_due {
        ack_deadline(q, cx.now)
    } else {
        None
    };
    advance_head(cx, q);
    check_drained(cx, q);
}

/// After an acknowledgement: there may be something to send that waited for it.
fn progressed<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.state != QpState::Err && crate::requester::has_work(q) {
        q.schedule(cx, Work::Requests);
    }
}

/// Completes what has completed, in order, from the oldest WQE on.
pub(crate) fn advance_head<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    while !q.sq.is_empty() {
        let wqe = q.sq.get(q.sq.head());
        if let Some(status) = wqe.failed {
            q.fail_send(cx, status);
            return;
        }
        let is_done = if wqe.op.is_local() {
            wqe.received == 1
        } else {
            q.requester.una.is_after(wqe.last_psn())
        };
        if !is_done {
            break;
        }
        let next = q.sq.head().wrapping_add(1);
        if SendQueue::distance(next, q.requester.cursor.wqe) > 0 {
            q.requester.cursor = Cursor::start_of(next);
        }
        q.complete_send(cx, WcStatus::Success);
    }
    // A local invalidate may have waited for the queue to drain up to it.
    if !q.sq.is_empty() && q.sq.get(q.sq.head()).op.is_local() {
        q.schedule(cx, Work::Requests);
    }
}

/// SQD: everything that was started has completed.
pub(crate) fn check_drained<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.requester.drain_notify && q.state == QpState::Sqd && q.requester.is_drained() {
        q.requester.drain_notify = false;
        cx.raise(AsyncEvent::SqDrained);
    }
}

/// A response skipped a READ or atomic: its response counts as lost. Once: if the repeated request
/// is lost too, the timer finds out.
fn implied_nak<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, missing: Psn) {
    let is_known = q.requester.asked_again == Some(missing) || is_retransmitting(q, missing);
    if is_known || is_waiting_for_receiver(cx, q) {
        return;
    }
    cx.count(Counter::ImpliedNakSeqErr);
    retry(cx, q, missing);
    q.requester.asked_again = Some(missing);
}

/// Whether the send position is already back where the loss of `psn` puts it, so that a second report
/// of the same loss must not cost a second retry.
fn is_retransmitting<H: Host>(q: &Inner<H>, psn: Psn) -> bool {
    let from = q.recovery.restart_from(q, psn);
    cursor_psn(q) == from && q.requester.sent_end != from
}

/// Whether an RNR wait is running: it is finished before any other recovery.
fn is_waiting_for_receiver<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> bool {
    q.requester.rnr_until.is_some_and(|until| cx.now < until)
}

/// Sends again from `psn`, if a retry is left.
pub(crate) fn retry<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn) {
    if q.requester.retries_left == 0 {
        cx.count(Counter::ReqTransportRetriesExceeded);
        q.fail_send(cx, WcStatus::RetryExcErr);
        return;
    }
    if !planted::has(Bug::RetriesEndless) {
        q.requester.retries_left -= 1;
    }
    if let Some(window) = &q.window {
        window.lock().lost(cx.now);
    }
    let from = q.recovery.restart_from(q, psn);
    // The timer starts again when something has been sent.
    go_back(cx, q, from);
}

fn receiver_not_ready<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn, timer: RnrTimer) {
    if is_waiting_for_receiver(cx, q) {
        // A copy of the one that is being waited for.
        return;
    }
    if q.requester.rnr_retries_left == 0 {
        cx.count(Counter::ReqRnrRetriesExceeded);
        q.fail_send(cx, WcStatus::RnrRetryExcErr);
        return;
    }
    // 7 means without end.
    if q.attr.rnr_retry < 7 {
        q.requester.rnr_retries_left -= 1;
    }
    // It did hear us, so retries spent until now were not in vain. rxe adds a sequence NAK to each
    // RNR NAK; where that comes after the wait it would cost a retry each time.
    q.requester.retries_left = q.attr.retry_cnt;
    go_back(cx, q, psn);
    let delay = if planted::has(Bug::RnrNotWaited) {
        Span::ZERO
    } else {
        Span::from(timer.delay())
    };
    q.requester.rnr_until = Some(cx.now + delay);
}

fn negative<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, psn: Psn, code: NakCode) {
    let status = match code {
        NakCode::PsnSequenceError => {
            cx.count(Counter::PacketSeqErr);
            if !is_waiting_for_receiver(cx, q) && !is_retransmitting(q, psn) {
                retry(cx, q, psn);
            }
            return;
        }
        NakCode::InvalidRequest => {
            cx.count(Counter::ReqRemoteInvalidRequest);
            WcStatus::RemInvReqErr
        }
        NakCode::RemoteAccessError => {
            cx.count(Counter::ReqRemoteAccessErrors);
            WcStatus::RemAccessErr
        }
        NakCode::RemoteOperationalError => {
            cx.count(Counter::ReqRemoteOperationErrors);
            WcStatus::RemOpErr
        }
        // Reliable datagrams do not exist here, and reserved codes say nothing.
        NakCode::InvalidRdRequest | NakCode::Reserved(_) => return,
    };
    q.fail_send(cx, status);
}

/// A timer of the QP has come due.
pub(crate) fn handle_timeout<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.requester.rnr_until.is_some_and(|until| until <= cx.now) {
        q.requester.rnr_until = None;
        progressed(cx, q);
    }
    if q.requester.timeout_at.is_some_and(|at| at <= cx.now) {
        q.requester.timeout_at = None;
        if q.requester.una != q.requester.sent_end && !is_waiting_for_receiver(cx, q) {
            cx.count(Counter::LocalAckTimeoutErr);
            let una = if planted::has(Bug::TimeoutResendsNothing) {
                q.requester.sent_end
            } else {
                q.requester.una
            };
            retry(cx, q, una);
            q.requester.asked_again = None;
        }
    }
    crate::recovery::handle_timeout(cx, q);
    crate::responder::conversation::handle_timeout(cx, q);
    q.refresh_timer(cx);
}

/// A READ response packet (also the answer to ATOMIC WRITE and FLUSH).
fn read_response<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    operation: Operation,
    psn: Psn,
    payload: PayloadOf<'_, H>,
) -> Result<(), DropReason> {
    // It acknowledges everything before; what is missing there was lost.
    if let Some(missing) = advance_to(cx, q, psn)
        && missing != psn
        && !planted::has(Bug::ReadGapIgnored)
    {
        implied_nak(cx, q, missing);
        return Err(DropReason::ResponseGap);
    }
    if q.state == QpState::Err {
        return Err(DropReason::WrongQpState);
    }
    let Some(wqe) = unanswered(q) else {
        return Err(DropReason::ResponseUnexpected);
    };
    let entry = *q.sq.get(wqe);
    let index = psn.distance_from(entry.first_psn);
    let is_next = index.cast_unsigned() == entry.received || planted::has(Bug::ReadGapIgnored);
    if index < 0 || !is_next {
        return Err(DropReason::ResponseUnexpected);
    }
    let expected = match entry.op {
        SendOp::Read { .. } => {
            entry.payload_bytes(entry.received, entry.received + 1, q.mtu) as usize
        }
        SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => 0,
        _ => {
            // The peer answers an atomic with a READ response.
            q.fail_send(cx, WcStatus::BadRespErr);
            return Ok(());
        }
    };
    // A READ begins with First or Only and ends with Last or Only. In between anything goes: it may
    // be asked for in pieces, and again from any packet, and the network mixes old with new.
    let is_first = entry.received == 0;
    let is_last = entry.received + 1 == entry.packets;
    let ends = matches!(
        operation,
        Operation::ReadResponseLast | Operation::ReadResponseOnly
    );
    let starts = matches!(
        operation,
        Operation::ReadResponseFirst | Operation::ReadResponseOnly
    );
    if payload.len() != expected || (is_first && !starts) || (is_last && !ends) {
        q.fail_send(cx, WcStatus::BadRespErr);
        return Ok(());
    }
    if place(cx, q, wqe, entry.received, payload).is_err() {
        q.fail_send(cx, WcStatus::LocProtErr);
        return Ok(());
    }
    if ends {
        q.requester.slots_used = q.requester.slots_used.saturating_sub(1);
    }
    let bytes = entry.payload_bytes(entry.received, entry.received + 1, q.mtu);
    answer(cx, q, wqe, psn, bytes);
    Ok(())
}

/// An atomic acknowledge: the value before the operation.
fn finish_atomic<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    psn: Psn,
    original: u64,
) -> Result<(), DropReason> {
    if let Some(missing) = advance_to(cx, q, psn)
        && missing != psn
    {
        implied_nak(cx, q, missing);
        return Err(DropReason::ResponseGap);
    }
    if q.state == QpState::Err {
        return Err(DropReason::WrongQpState);
    }
    let Some(wqe) = unanswered(q) else {
        return Err(DropReason::ResponseUnexpected);
    };
    let entry = *q.sq.get(wqe);
    if entry.first_psn != psn {
        return Err(DropReason::ResponseUnexpected);
    }
    if !matches!(
        entry.op,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
    ) {
        q.fail_send(cx, WcStatus::BadRespErr);
        return Ok(());
    }
    // Integers travel in network order and live in host order.
    let mut cursor = Cursor::start_of(wqe);
    let word = original.to_ne_bytes();
    if sgl::scatter_bytes(cx, cx.qp.pd, q.sq.sges(wqe), &mut cursor, &word).is_err() {
        q.fail_send(cx, WcStatus::LocProtErr);
        return Ok(());
    }
    if !planted::has(Bug::SlotLeak) {
        q.requester.slots_used = q.requester.slots_used.saturating_sub(1);
    }
    let bytes = u64::from(entry.length);
    answer(cx, q, wqe, psn, bytes);
    Ok(())
}

/// The oldest READ or atomic without its full response, if everything before it is acknowledged.
fn unanswered<H: Host>(q: &Inner<H>) -> Option<u32> {
    let mut wqe = q.sq.head();
    while wqe != q.sq.tail() {
        let entry = q.sq.get(wqe);
        if entry.packets > 0 {
            let is_next =
                entry.op.is_read_or_atomic() && !q.requester.una.is_before(entry.first_psn);
            return is_next.then_some(wqe);
        }
        wqe = wqe.wrapping_add(1);
    }
    None
}

/// One more response of a READ or atomic is in.
fn answer<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, wqe: u32, psn: Psn, bytes: u64) {
    q.sq.get_mut(wqe).received += 1;
    settle(cx, q, psn.next(), bytes + PACKET_OVERHEAD);
    progressed(cx, q);
}

/// Scatters a READ response into the WQE's SGEs.
fn place<H: Host>(
    cx: Cx<'_, H>,
    q: &Inner<H>,
    wqe: u32,
    packet: u32,
    payload: PayloadOf<'_, H>,
) -> Result<(), BadEntry> {
    let sges = q.sq.sges(wqe);
    let (sge, sge_offset) = sgl::seek(sges, u64::from(packet) * u64::from(q.mtu.bytes()));
    let mut cursor = Cursor {
        wqe,
        packet,
        sge,
        sge_offset,
    };
    sgl::scatter(cx, cx.qp.pd, sges, &mut cursor, payload)
}
