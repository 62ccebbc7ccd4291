//! Turns what the responder owes into packets: READ responses, atomic acknowledges, ACKs and NAKs.
//!
//! As on the requester's side, an offer changes nothing; [`commit`] moves on by what the link took.

use hirail_vocab::{Counter, QpType};
use hirail_wire::{
    Aeth, Bth, Credits, Ext, Headers, NakCode, Opcode, Operation, PKey, Psn, Syndrome,
};

use super::answers::{Answer, Kind, Tail};
use crate::event::{AsyncEvent, Denial, Denied, Target};
use crate::host::{Host, ReadMostly};
use crate::mr::Access;
use crate::planted::{self, Bug};
use crate::qp::state::Capabilities;
use crate::qp::{Cx, Inner};
use crate::requester::pad_of;
use crate::send_queue::Cursor;
use crate::transmit::{Budget, Run, Work};

/// Whether the responder has data class packets to send.
pub(crate) fn has_work<H: Host>(q: &Inner<H>) -> bool {
    q.responder.answers.has_jobs() && may_answer(q)
}

/// Whether the responder has an acknowledgement to send that nothing holds back.
pub(crate) fn has_acknowledgement<H: Host>(q: &Inner<H>) -> bool {
    let is_held = q.responder.answers.has_jobs() && !planted::has(Bug::AckOvertakesResponses);
    let waits = q.responder.answers.owes_ack() && q.responder.conversation.is_holding();
    q.responder.answers.has_tail() && !is_held && !waits && may_answer(q)
}

fn may_answer<H: Host>(q: &Inner<H>) -> bool {
    Capabilities::of(q.state).accepts_requests || q.responder.answers.owes_fatal_nak()
}

/// Fills `run` with responses to READs and atomics.
pub(crate) fn offer<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, budget: Budget, run: &mut Run<H>) {
    let mut round = 0;
    while let Some(answer) = q.responder.answers.nth(round).copied() {
        for response in answer.next..answer.end {
            let (headers, read) = response_packet(cx, q, &answer, response);
            let payload_len = read.map_or(0, |(_, _, len)| len);
            if !run.has_room(budget, headers.len() + payload_len as usize + 3) {
                return;
            }
            let mark = run.segment_mark();
            if let Some((va, rkey, len)) = read.filter(|(_, _, len)| *len > 0) {
                let pd = match answer.kind {
                    Kind::Read(_, pd) => pd,
                    Kind::Atomic(_) | Kind::Done => cx.qp.pd,
                };
                // The region is checked again for each response: it may be gone by now.
                let slice = cx.device.keys().read().check_remote(
                    rkey,
                    pd,
                    cx.qp.qpn,
                    va,
                    len,
                    Access::REMOTE_READ,
                );
                match slice {
                    Ok(slice) => run.push_memory(slice),
                    Err(_) => {
                        if run.is_empty() {
                            cx.device.deny(|| Denied {
                                qpn: cx.qp.qpn,
                                operation: Operation::ReadRequest,
                                why: Denial::Access,
                                target: Some(Target {
                                    rkey,
                                    va,
                                    length: len,
                                }),
                            });
                            refuse(cx, q);
                        }
                        return;
                    }
                }
            }
            run.push(
                headers,
                payload_len,
                mark,
                Cursor::default(),
                Cursor::default(),
            );
        }
        round += 1;
    }
}

/// The region of a READ that was accepted is gone: NAK in place of the response, QP in error.
pub(crate) fn refuse<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if let Some(psn) = q.responder.answers.abandon() {
        q.responder.epsn = psn;
    }
    cx.count(Counter::RespRemoteAccessErrors);
    q.responder.answers.fatal_nak(NakCode::RemoteAccessError);
    q.enter_error(cx);
    cx.raise(AsyncEvent::QpAccessErr);
    q.schedule(cx, Work::Acknowledgement);
}

/// Headers of one response, and what memory it reads.
fn response_packet<H: Host>(
    cx: Cx<'_, H>,
    q: &Inner<H>,
    answer: &Answer,
    response: u32,
) -> (Headers, Option<(u64, hirail_wire::Rkey, u32)>) {
    let aeth = Aeth {
        syndrome: Syndrome::Ack(credits(cx, q)),
        msn: q.responder.msn,
    };
    let (operation, ext, read) = match answer.kind {
        Kind::Atomic(original) => (
            Operation::AtomicAcknowledge,
            Ext::AtomicAck(aeth, original),
            None,
        ),
        Kind::Done => (Operation::ReadResponseOnly, Ext::Aeth(aeth), None),
        Kind::Read(reth, _) => {
            let offset = u64::from(response) * u64::from(q.mtu.bytes());
            let len = (u64::from(reth.length) - offset).min(u64::from(q.mtu.bytes())) as u32;
            let operation = match (response == answer.start, response + 1 == answer.end) {
                (true, true) => Operation::ReadResponseOnly,
                (true, false) => Operation::ReadResponseFirst,
                (false, false) => Operation::ReadResponseMiddle,
                (false, true) => Operation::ReadResponseLast,
            };
            let ext = if operation == Operation::ReadResponseMiddle {
                Ext::None
            } else {
                Ext::Aeth(aeth)
            };
            (
                operation,
                ext,
                Some((reth.va.wrapping_add(offset), reth.rkey, len)),
            )
        }
    };
    let payload_len = read.map_or(0, |(_, _, len)| len);
    (
        headers(cx, q, operation, ext, answer.psn(response), payload_len),
        read,
    )
}

/// Fills `run` with the one acknowledgement that is owed.
pub(crate) fn offer_acknowledgement<H: Host>(cx: Cx<'_, H>, q: &Inner<H>, run: &mut Run<H>) {
    let epsn = q.responder.epsn;
    let (psn, syndrome) = match q.responder.answers.tail() {
        Tail::Nothing => return,
        Tail::Ack if planted::has(Bug::AckBeforePlacement) => (epsn, Syndrome::Ack(credits(cx, q))),
        Tail::Ack => (epsn.prev(), Syndrome::Ack(credits(cx, q))),
        Tail::SequenceNak(_) if planted::has(Bug::NakNamesNextPsn) => {
            (epsn.next(), Syndrome::Nak(NakCode::PsnSequenceError))
        }
        Tail::SequenceNak(_) => (epsn, Syndrome::Nak(NakCode::PsnSequenceError)),
        Tail::RnrNak(timer) => (epsn, Syndrome::Rnr(timer)),
        Tail::FatalNak(code) => (epsn, Syndrome::Nak(code)),
    };
    let ext = Ext::Aeth(Aeth {
        syndrome,
        msn: q.responder.msn,
    });
    let headers = headers(cx, q, Operation::Acknowledge, ext, psn, 0);
    let mark = run.segment_mark();
    run.push(headers, 0, mark, Cursor::default(), Cursor::default());
}

/// The link took `taken` responses.
pub(crate) fn commit<H: Host>(q: &mut Inner<H>, taken: usize) {
    let mut left = taken as u32;
    while left > 0 {
        let Some((count, next)) = q.responder.answers.advance(left) else {
            break;
        };
        left -= count;
        // The response to the newest request said all that the ACK would say, credits and MSN
        // included; behind it the peer would take the ACK for a ghost. An ACK that is asked for
        // later leaves: then that response was lost.
        if next == q.responder.epsn && q.responder.answers.owes_ack() {
            q.responder.answers.tail_sent();
            q.responder.conversation.release();
        }
    }
}

/// The link took the acknowledgement.
pub(crate) fn commit_acknowledgement<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    cx.count(Counter::SentAcks);
    q.responder.answers.tail_sent();
    q.responder.conversation.release();
}

/// Receive WQEs that the peer may count on, where it is told. A shared queue promises nothing.
pub(super) fn promised<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> Option<u32> {
    let is_shared = cx.qp.srq.is_some() || cx.qp.qp_type == QpType::XrcRecv;
    let in_use = u32::from(q.responder.is_receiving());
    (!is_shared && cx.device.config().send_credits).then(|| q.rq.len().saturating_sub(in_use))
}

fn credits<H: Host>(cx: Cx<'_, H>, q: &Inner<H>) -> Credits {
    promised(cx, q).map_or(Credits::NONE, Credits::from_available)
}

fn headers<H: Host>(
    cx: Cx<'_, H>,
    q: &Inner<H>,
    operation: Operation,
    ext: Ext,
    psn: Psn,
    payload_len: u32,
) -> Headers {
    let bth = Bth {
        opcode: Opcode::new(q.service(cx), operation).expect("reliable services have responses"),
        solicited: false,
        migrated: true,
        pad: pad_of(payload_len),
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: q.attr.dest_qpn,
        ack_req: false,
        psn,
    };
    Headers::new(bth, None, ext).expect("operation and extension were chosen together")
}
