//! Calls of the program, as facts for the ledger. Each does nothing where nothing is checked.

use std::sync::Arc;

use hirail::{Denial, Denied, Error, VerbError, WcStatus};
use hirail_check::{
    Completion, Deny, Kind, Op, Peer, QpInit, Region, Remote, Rights, Send, Sge, Transport,
};
use hirail_rnic::wr::Sge as EngineSge;
use hirail_rnic::{SendData, SendWr};
use hirail_wire::Operation;

use super::{Later, Process, is_internal, on, place};
use crate::abi;
use crate::context::ContextObject;
use crate::entry::Object as _;
use crate::errno::Errno;
use crate::qp::QpObject;
use crate::shared::Shared;
use hirail::{QpType, SendOp};

/// What an object, or a device, is called in the ledger.
fn name<T>(object: *const T) -> u64 {
    object.expose_provenance() as u64
}

/// What the device of an object is called.
fn device(context: &ContextObject) -> u64 {
    name(Arc::as_ptr(context.shared()))
}

/// A device was opened.
pub(crate) fn opened(shared: &Arc<Shared>) {
    let Ok(config) = hirail::config::Config::load() else {
        return;
    };
    let Some(folder) = config.check else { return };
    super::start(&folder);
    let Some(checker) = on() else { return };
    let device = name(Arc::as_ptr(shared));
    let hirail = &shared.hirail;
    checker.at(|ledger, site| {
        let mtu = hirail.port_mtu().bytes();
        ledger.device_opened(device, hirail.name(), mtu, is_internal(), site);
    });
    hirail.handle_denials(move |denied| checker.denied(device, &denied));
}

/// A device, or an import of it, is about to be closed.
pub(crate) fn closing(shared: &Arc<Shared>) {
    if let Some(checker) = on()
        && Arc::strong_count(shared) == 1
    {
        checker.at(|ledger, site| ledger.device_closed(name(Arc::as_ptr(shared)), site));
    }
}

/// An object was made, or not: then it is NULL.
#[inline]
pub(crate) fn made<T>(context: &ContextObject, kind: Kind, object: *mut T, called: &str) -> *mut T {
    if let Some(checker) = on()
        && !object.is_null()
    {
        let device = device(context);
        checker.at(|ledger, site| {
            if is_internal() {
                ledger.made_internally(device, kind, name(object), called);
            } else {
                ledger.made(device, kind, name(object), called, site);
            }
        });
    }
    object
}

/// An object is destroyed: told before, since what is freed may be made anew at once.
#[inline]
pub(crate) fn going<T>(kind: Kind, object: *const T) {
    if let Some(checker) = on() {
        let object = name(object);
        checker.with(|ledger| match kind {
            Kind::Qp => ledger.qp_gone(object),
            _ => ledger.gone(kind, object),
        });
    }
}

/// A region was registered, or is another one now.
#[inline]
pub(crate) fn registered(context: &ContextObject, mr: &abi::Mr, region: &hirail::Mr, iova: u64) {
    if let Some(checker) = on() {
        let known = Region {
            device: device(context),
            pd: region.pd().id().0.into(),
            addr: mr.addr.addr() as u64,
            iova,
            length: mr.length as u64,
            rights: Rights(region.access().bits()),
            lkey: mr.lkey,
            rkey: mr.rkey,
        };
        checker.at(|ledger, site| ledger.registered(name(mr), known, site));
    }
}

/// A region is about to be deregistered.
#[inline]
pub(crate) fn deregistering(mr: *const abi::Mr) {
    if let Some(checker) = on() {
        checker.at(|ledger, site| ledger.deregistering(name(mr), site, owns));
    }
}

/// It was.
#[inline]
pub(crate) fn deregistered(mr: *const abi::Mr) {
    if let Some(checker) = on() {
        checker.at(|ledger, site| ledger.deregistered(name(mr), site));
    }
}

/// Whether the device owns what is posted to a queue pair: it is connected, and not in error.
fn owns(qp: u64) -> bool {
    use hirail::QpState::{Rtr, Rts, Sqd, Sqe};
    let qp: *const abi::Qp = core::ptr::with_exposed_provenance(qp as usize);
    // SAFETY: the ledger asks for queue pairs that exist.
    let state = unsafe { QpObject::of(qp) }.qp.state();
    matches!(state, Rtr | Rts | Sqd | Sqe)
}

/// A memory window was made, or not.
#[inline]
pub(crate) fn window(context: &ContextObject, mw: *mut abi::Mw, rkey: u32) {
    if let Some(checker) = on() {
        let device = device(context);
        checker.at(|ledger, site| ledger.window_made(device, name(mw), rkey, site));
    }
}

/// A completion queue was made.
#[inline]
pub(crate) fn cq(context: &ContextObject, cq: *mut abi::Cq, number: u32, cqe: u32) {
    if let Some(checker) = on() {
        let device = device(context);
        let called = format!("CQ {number:#x}");
        checker.at(|ledger, site| ledger.cq_made(device, name(cq), &called, cqe, site));
    }
}

/// It has another size.
#[inline]
pub(crate) fn resized(cq: *const abi::Cq, cqe: u32) {
    if let Some(checker) = on() {
        checker.with(|ledger| ledger.cq_resized(name(cq), cqe));
    }
}

/// It overran.
pub(crate) fn overran(cq: usize) {
    if let Some(checker) = on() {
        checker.put_off(Later::Overran(cq as u64));
    }
}

/// A shared receive queue was made.
#[inline]
pub(crate) fn srq(
    context: &ContextObject,
    srq: *mut abi::Srq,
    made: &hirail::Srq,
    xrc: Option<*mut abi::Cq>,
) {
    if let Some(checker) = on() {
        let device = device(context);
        let called = format!("SRQ {:#x}", made.id().0);
        let queue = (made.pd().id().0.into(), xrc.map(|cq| name(cq)));
        checker.at(|ledger, site| ledger.srq_made(device, name(srq), &called, queue, site));
    }
}

/// A queue pair was made.
#[inline]
pub(crate) fn qp(context: &ContextObject, qp: *mut abi::Qp, object: &hirail::Qp, cap: &abi::QpCap) {
    if let Some(checker) = on() {
        // SAFETY: it was just made.
        let public = unsafe { &*qp };
        let init = QpInit {
            device: device(context),
            qpn: object.qpn().value(),
            transport: match object.qp_type() {
                QpType::Ud | QpType::Gsi => Transport::Datagram,
                QpType::Uc => Transport::Unreliable,
                QpType::Rc | QpType::XrcSend | QpType::XrcRecv => Transport::Reliable,
            },
            pd: object.pd().id().0.into(),
            send_cq: name(public.send_cq),
            recv_cq: name(public.recv_cq),
            srq: (!public.srq.is_null()).then(|| name(public.srq)),
            max_send_wr: cap.max_send_wr,
        };
        checker.at(|ledger, site| ledger.qp_made(name(qp), init, site));
    }
}

/// A queue pair was modified.
#[inline]
pub(crate) fn modified(qp: *const abi::Qp, is_reset: bool, access: Option<u32>) {
    if let Some(checker) = on() {
        checker.with(|ledger| {
            if let Some(access) = access {
                ledger.qp_rights(name(qp), Rights(access));
            }
            if is_reset {
                ledger.qp_reset(name(qp));
            }
        });
    }
}

fn sges(list: &[EngineSge]) -> Vec<Sge> {
    let sge = |sge: &EngineSge| Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: sge.lkey.value(),
    };
    list.iter().map(sge).collect()
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Verb(VerbError::QueueFull { .. }))
}

/// Posts a send request by `post`.
#[inline]
pub(crate) fn send(
    object: &QpObject,
    wr: &SendWr<'_>,
    post: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    match on() {
        None => post(),
        Some(_) => checked_send(object, wr, post),
    }
}

#[cold]
fn checked_send(
    object: &QpObject,
    wr: &SendWr<'_>,
    post: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(checker) = on() else { return post() };
    let (list, inline) = match wr.data {
        SendData::Sges(list) => (sges(list), None),
        SendData::Inline(pieces) => {
            let length: usize = pieces.iter().map(|piece| piece.len()).sum();
            (Vec::new(), Some(length as u32))
        }
    };
    let (op, remote) = match wr.op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => (Op::Send, None),
        SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. } => {
            (Op::Write, Some((va, rkey)))
        }
        SendOp::Read { va, rkey } => (Op::Read, Some((va, rkey))),
        SendOp::CompareSwap { va, rkey, .. } | SendOp::FetchAdd { va, rkey, .. } => {
            (Op::Atomic, Some((va, rkey)))
        }
        SendOp::AtomicWrite { va, rkey } => (Op::AtomicWrite, Some((va, rkey))),
        SendOp::Flush { va, rkey, .. } => (Op::Flush, Some((va, rkey))),
        SendOp::LocalInv(_) | SendOp::BindMw(_) => (Op::Local, None),
    };
    let send = Send {
        wr_id: wr.wr_id,
        op,
        signaled: wr.flags.signaled || object.signals_all(),
        sges: &list,
        inline,
        remote: remote.map(|(addr, rkey)| Remote {
            addr,
            rkey: rkey.value(),
        }),
    };
    let qp = name(&raw const object.public);
    let mut post = Some(post);
    let posted = checker.at(|ledger, site| {
        ledger.send_posting(qp, &send, site, &Process);
        let posted = post.take().map_or(Ok(()), |post| post());
        if let Err(error) = &posted {
            ledger.send_refused(qp, &error.to_string(), is_full(error), site);
        }
        posted
    });
    match (posted, post) {
        (Some(posted), _) => posted,
        (None, Some(post)) => post(),
        (None, None) => Ok(()),
    }
}

/// Posts a receive request to a queue by `post`.
#[inline]
pub(crate) fn receive<T>(
    kind: Kind,
    queue: *const T,
    wr_id: u64,
    list: &[EngineSge],
    post: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    match on() {
        None => post(),
        Some(_) => checked_receive(kind, name(queue), wr_id, list, post),
    }
}

#[cold]
fn checked_receive(
    kind: Kind,
    queue: u64,
    wr_id: u64,
    list: &[EngineSge],
    post: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(checker) = on() else { return post() };
    let list = sges(list);
    let mut post = Some(post);
    let posted = checker.at(|ledger, site| {
        ledger.receive_posting(kind, queue, wr_id, &list, site);
        let posted = post.take().map_or(Ok(()), |post| post());
        if let Err(error) = &posted {
            ledger.receive_refused(kind, queue, &error.to_string(), is_full(error), site);
        }
        posted
    });
    match (posted, post) {
        (Some(posted), _) => posted,
        (None, Some(post)) => post(),
        (None, None) => Ok(()),
    }
}

/// A request could not even be read.
pub(crate) fn refused(qp: *const abi::Qp, what: &str, errno: Errno) {
    if let Some(checker) = on() {
        let why = std::io::Error::from_raw_os_error(errno.0).to_string();
        checker.at(|ledger, site| ledger.refused(Kind::Qp, name(qp), what, &why, site));
    }
}

/// Completions were polled.
#[inline]
pub(crate) fn polled(
    context: &ContextObject,
    cq: *const abi::Cq,
    completions: impl Iterator<Item = Completion>,
) {
    if let Some(checker) = on() {
        let completions: Vec<_> = completions.collect();
        if !completions.is_empty() {
            let device = device(context);
            checker.with(|ledger| {
                ledger.polled(device, name(cq), &completions, &Process, &place::here);
            });
        }
    }
}

/// A completion as C has it.
pub(crate) fn completion(wc: &abi::Wc) -> Completion {
    const RECV: i32 = 1 << 7;
    let status = u8::try_from(wc.status).ok().and_then(WcStatus::from_code);
    Completion {
        wr_id: wc.wr_id,
        qpn: wc.qp_num,
        status: status.unwrap_or(WcStatus::GeneralErr),
        is_receive: wc.opcode & RECV != 0,
    }
}

/// A completion as the library has it.
pub(crate) fn completion_of(wc: &hirail::Wc) -> Completion {
    Completion {
        wr_id: wc.wr_id,
        qpn: wc.qpn.value(),
        status: wc.status,
        is_receive: u32::from(wc.opcode.code()) & 128 != 0,
    }
}

/// An event of an object was taken.
#[inline]
pub(crate) fn event<T>(kind: Kind, object: *const T) {
    if let Some(checker) = on() {
        checker.at(|ledger, site| ledger.event_taken(kind, name(object), site));
    }
}

/// Events of an object were acknowledged.
#[inline]
pub(crate) fn acknowledged<T>(kind: Kind, object: *const T, count: u32) {
    if let Some(checker) = on() {
        checker.with(|ledger| ledger.events_acknowledged(kind, name(object), count));
    }
}

/// An object waits for acknowledgements longer than it should.
pub(crate) fn waits<T>(kind: Kind, object: *const T, owed: i64) {
    if let Some(checker) = on() {
        checker.at(|ledger, site| ledger.waits_for_acknowledgement(kind, name(object), owed, site));
    }
}

/// What a peer asked for, and did not get; nothing where a completion says more.
pub(super) fn peer(device: u64, denied: &Denied) -> Option<Peer> {
    let operation = denied.operation;
    let op = match operation {
        Operation::ReadRequest => Op::Read,
        Operation::CompareSwap | Operation::FetchAdd => Op::Atomic,
        Operation::AtomicWrite => Op::AtomicWrite,
        Operation::Flush => Op::Flush,
        _ if operation.is_write() => Op::Write,
        _ => Op::Send,
    };
    Some(Peer {
        device,
        qpn: denied.qpn.value(),
        op,
        why: match denied.why {
            Denial::NotReady => Deny::NotReady,
            Denial::Access => Deny::Access,
            Denial::TooLong => Deny::TooLong,
            Denial::Request => Deny::Request,
            Denial::Receive => return None,
        },
        target: denied.target.map(|target| {
            let remote = Remote {
                addr: target.va,
                rkey: target.rkey.value(),
            };
            (remote, target.length)
        }),
    })
}
