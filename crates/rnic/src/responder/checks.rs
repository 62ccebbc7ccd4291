//! The checks on a new request, in the standard's order (IBTA Vol 1, chapter 9): opcode sequence,
//! access rights of the QP, resources, length, key. What passes is a [`Checked`], which only this
//! module can make; `execute` takes nothing else.

use hirail_vocab::WcStatus;
use hirail_wire::{AtomicEth, Ext, FlushRange, Headers, NakCode, Operation, Qpn, Reth, Rkey};

use super::{Open, take_receive};
use crate::event::{AsyncEvent, Denial};
use crate::host::{Host, Payload, ReadMostly, Region};
use crate::mr::{Access, PdId, Slice};
use crate::qp::{Cx, Inner};
use crate::send_queue::MAX_MESSAGE;
use crate::sgl;

/// A request that may be executed.
pub(super) enum Checked<H: Host> {
    /// A packet of a SEND; a receive WQE is in use and has room.
    Send {
        /// Key to invalidate at the end.
        invalidate: Option<Rkey>,
    },
    /// A packet of a WRITE.
    Write {
        /// Where its payload goes; nothing for no bytes.
        target: Option<Slice<H>>,
        /// The RETH of the first packet.
        reth: Option<Reth>,
    },
    /// A READ.
    Read {
        reth: Reth,
        responses: u32,
        /// Whose keys it may name.
        pd: PdId,
    },
    /// An atomic.
    Atomic { word: Slice<H>, operation: Atomic },
    /// An ATOMIC WRITE.
    AtomicWrite { word: Slice<H> },
    /// A FLUSH.
    Flush {
        region: Option<Slice<H>>,
        is_whole: bool,
        persistent: bool,
    },
}

/// What an atomic does.
#[derive(Clone, Copy)]
pub(super) enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// How a request is refused.
pub(super) enum Refuse {
    /// No receive WQE: RNR NAK.
    NotReady,
    /// For good.
    Fatal(Fatal),
}

impl Refuse {
    /// The same for who watches.
    pub(super) fn why(&self) -> Denial {
        match self {
            Self::NotReady => Denial::NotReady,
            Self::Fatal(fatal) => match (fatal.nak, fatal.receive) {
                (NakCode::RemoteAccessError, _) => Denial::Access,
                (NakCode::RemoteOperationalError, _) => Denial::Receive,
                (_, Some(WcStatus::LocLenErr)) => Denial::TooLong,
                _ => Denial::Request,
            },
        }
    }
}

/// A refusal that ends the connection.
pub(super) struct Fatal {
    /// What the peer is told.
    pub(super) nak: NakCode,
    /// Status of the receive WQE in use, if there is one.
    pub(super) receive: Option<WcStatus>,
    /// What this side's user is told when no receive WQE reports it.
    pub(super) event: Option<fn(Qpn) -> AsyncEvent>,
}

impl Fatal {
    fn invalid_request() -> Refuse {
        Refuse::Fatal(Self {
            nak: NakCode::InvalidRequest,
            receive: Some(WcStatus::LocQpOpErr),
            event: Some(AsyncEvent::QpReqErr),
        })
    }

    /// The R_Key does not permit it. A receive WQE already taken (a WRITE with immediate) reports
    /// it, else an asynchronous event does.
    pub(super) fn remote_access<H: Host>(q: &Inner<H>) -> Self {
        Self {
            nak: NakCode::RemoteAccessError,
            receive: Some(WcStatus::LocAccessErr),
            event: if q.responder.has_receive {
                None
            } else {
                Some(AsyncEvent::QpAccessErr)
            },
        }
    }
}

/// Decides about a new request. Only the resource check changes anything: a receive WQE taken for
/// the message stays with the QP.
pub(super) fn check<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    headers: &Headers,
    payload: <H::Region as Region>::Payload<'_>,
) -> Result<Checked<H>, Refuse> {
    let operation = headers.opcode().operation();
    sequence(q, operation)?;
    rights(q, operation, headers.ext())?;
    resources(cx, q, headers)?;
    length(q, headers, payload.len())?;
    keys(cx, q, headers, payload.len())
}

/// Which opcode may follow which.
fn sequence<H: Host>(q: &Inner<H>, operation: Operation) -> Result<(), Refuse> {
    let continues = !operation.starts_message();
    let fits = match q.responder.open {
        Open::Nothing => !continues,
        Open::Send => continues && operation.is_send(),
        Open::Write => continues && operation.is_write(),
    };
    if fits {
        Ok(())
    } else {
        Err(Fatal::invalid_request())
    }
}

/// What the QP allows its peer at all.
fn rights<H: Host>(q: &Inner<H>, operation: Operation, ext: &Ext) -> Result<(), Refuse> {
    use Operation as O;
    let needed = match operation {
        O::WriteFirst | O::WriteOnly | O::WriteOnlyImm => Access::REMOTE_WRITE,
        O::ReadRequest => Access::REMOTE_READ,
        O::CompareSwap | O::FetchAdd => Access::REMOTE_ATOMIC,
        O::AtomicWrite => Access::REMOTE_WRITE,
        O::Flush => flush_access(ext),
        _ => return Ok(()),
    };
    if q.attr.access.contains(needed) {
        Ok(())
    } else {
        Err(Fatal::invalid_request())
    }
}

fn flush_access(ext: &Ext) -> Access {
    let Ext::Flush(feth, _) = ext else {
        return Access::NONE;
    };
    let mut needed = Access::NONE;
    if feth.global {
        needed |= Access::FLUSH_GLOBAL;
    }
    if feth.persistent {
        needed |= Access::FLUSH_PERSISTENT;
    }
    needed
}

/// A receive WQE for what consumes one; a place for the answer of what must be replayable.
fn resources<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>, headers: &Headers) -> Result<(), Refuse> {
    let operation = headers.opcode().operation();
    let needs_receive = operation.claims_receive();
    if let Some(number) = headers.xrc_srqn() {
        // The SRQ must exist in the target's domain.
        let is_ours = cx
            .device
            .srq(number)
            .is_some_and(|srq| srq.xrc.as_ref().map(|xrc| xrc.domain) == cx.qp.xrcd);
        if needs_receive && !is_ours {
            return Err(Fatal::invalid_request());
        }
    }
    if needs_receive && (q.responder.starved || !take_receive(cx, q, headers.xrc_srqn())) {
        return Err(Refuse::NotReady);
    }
    let needs_answer = matches!(
        operation,
        Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush
    );
    if needs_answer && !q.responder.answers.has_place() {
        return Err(Fatal::invalid_request());
    }
    Ok(())
}

/// Packet sizes against the path MTU, message sizes against DMALen and the receive buffer.
fn length<H: Host>(q: &Inner<H>, headers: &Headers, payload: usize) -> Result<(), Refuse> {
    let operation = headers.opcode().operation();
    let mtu = q.mtu.bytes() as usize;
    let fits = if operation.is_first() || operation.is_middle() {
        payload == mtu
    } else if operation.is_last() {
        (1..=mtu).contains(&payload)
    } else {
        payload <= mtu
    };
    if !fits {
        return Err(Fatal::invalid_request());
    }
    if let Some(reth) = headers.ext().reth()
        && u64::from(reth.length) > MAX_MESSAGE
    {
        return Err(Fatal::invalid_request());
    }
    if operation.is_send() {
        let wqe = q
            .responder
            .receive(&q.rq)
            .ok_or_else(Fatal::invalid_request)?;
        let room = sgl::total(wqe.sges);
        if u64::from(q.responder.placed) + payload as u64 > room {
            return Err(Refuse::Fatal(Fatal {
                nak: NakCode::InvalidRequest,
                receive: Some(WcStatus::LocLenErr),
                event: None,
            }));
        }
    } else if operation.is_write() {
        let payload = payload as u32;
        let left = match headers.ext().reth() {
            Some(reth) => reth.length,
            None => q.responder.write.left,
        };
        let is_whole = if operation.ends_message() {
            payload == left
        } else {
            payload < left
        };
        if !is_whole {
            return Err(Fatal::invalid_request());
        }
    } else if operation == Operation::AtomicWrite
        && (payload != 8 || headers.ext().reth().is_none_or(|reth| reth.length != 8))
    {
        return Err(Fatal::invalid_request());
    }
    Ok(())
}

/// Whose keys a request may name: those of the QP's domain, and through an XRC target those of the
/// domain of the SRQ that the request names. A target may be made without a
/// domain of its own.
fn domain<H: Host>(cx: Cx<'_, H>, headers: &Headers) -> PdId {
    let srq = headers
        .xrc_srqn()
        .and_then(|number| cx.device.srq(number))
        .filter(|srq| srq.xrc.as_ref().map(|xrc| xrc.domain) == cx.qp.xrcd);
    srq.map_or(cx.qp.pd, |srq| srq.pd)
}

/// R_Key, domain, range, rights. Nothing is checked for zero bytes.
fn keys<H: Host>(
    cx: Cx<'_, H>,
    q: &Inner<H>,
    headers: &Headers,
    payload: usize,
) -> Result<Checked<H>, Refuse> {
    let operation = headers.opcode().operation();
    let pd = domain(cx, headers);
    let slice = |rkey, va, len, need| {
        cx.device
            .keys()
            .read()
            .check_remote(rkey, pd, cx.qp.qpn, va, len, need)
            .map_err(|_| Refuse::Fatal(Fatal::remote_access(q)))
    };
    match (operation, *headers.ext()) {
        (operation, ext) if operation.is_send() => {
            let invalidate = if let Ext::Ieth(key) = ext {
                Some(key)
            } else {
                None
            };
            Ok(Checked::Send { invalidate })
        }
        (operation, ext) if operation.is_write() => {
            let (va, rkey) = match ext.reth() {
                Some(reth) => {
                    if reth.length > payload as u32 {
                        // The whole range, before the first byte of it is touched.
                        slice(reth.rkey, reth.va, reth.length, Access::REMOTE_WRITE)?;
                    }
                    (reth.va, reth.rkey)
                }
                None => (q.responder.write.va, q.responder.write.rkey),
            };
            let target = if payload == 0 {
                None
            } else {
                Some(slice(rkey, va, payload as u32, Access::REMOTE_WRITE)?)
            };
            Ok(Checked::Write {
                target,
                reth: ext.reth(),
            })
        }
        (Operation::ReadRequest, Ext::Reth(reth)) => {
            if reth.length > 0 {
                slice(reth.rkey, reth.va, reth.length, Access::REMOTE_READ)?;
            }
            let responses = reth.length.div_ceil(q.mtu.bytes()).max(1);
            Ok(Checked::Read {
                reth,
                responses,
                pd,
            })
        }
        (Operation::CompareSwap | Operation::FetchAdd, Ext::Atomic(atomic)) => {
            // A misaligned address beats a bad key, as on cards.
            if !atomic.va.is_multiple_of(8) {
                return Err(Fatal::invalid_request());
            }
            let AtomicEth {
                va,
                rkey,
                swap_or_add,
                compare,
            } = atomic;
            let word = slice(rkey, va, 8, Access::REMOTE_ATOMIC)?;
            let operation = if operation == Operation::CompareSwap {
                Atomic::CompareSwap {
                    compare,
                    swap: swap_or_add,
                }
            } else {
                Atomic::FetchAdd { add: swap_or_add }
            };
            Ok(Checked::Atomic { word, operation })
        }
        (Operation::AtomicWrite, Ext::Reth(reth)) => {
            if !reth.va.is_multiple_of(8) {
                return Err(Fatal::invalid_request());
            }
            Ok(Checked::AtomicWrite {
                word: slice(reth.rkey, reth.va, 8, Access::REMOTE_WRITE)?,
            })
        }
        (Operation::Flush, ext @ Ext::Flush(feth, reth)) => {
            let need = flush_access(&ext);
            // A FLUSH of no bytes of a range touches nothing; one of the whole region always does.
            let is_whole = feth.range == FlushRange::WholeRegion;
            let region = if reth.length == 0 && !is_whole {
                None
            } else {
                Some(slice(reth.rkey, reth.va, reth.length, need)?)
            };
            Ok(Checked::Flush {
                region,
                is_whole,
                persistent: feth.persistent,
            })
        }
        _ => Err(Fatal::invalid_request()),
    }
}
