//! Building send requests piece by piece with the functions inside a queue pair, and posting them
//! together.
//!
//! Between `wr_start` and `wr_complete` a lock of the queue pair is held, as the interface allows. A
//! mistake is remembered and told at the end; then none of the requests is posted.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr;

use hirail::{Feth, FlushRange, QpType, Rkey, SendOp};
use hirail_rnic::wr::Sge;
use hirail_rnic::{SendData, SendWr, UdDestination};

use crate::abi;
use crate::bind;
use crate::check;
use crate::entry::{Object, device, status};
use crate::errno::Errno;
use crate::post::{self, MAX_INLINE};
use crate::qp::QpObject;

/// `IBV_QP_EX_WITH_…`.
const RDMA_WRITE: u64 = 1;
const RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
const SEND: u64 = 1 << 2;
const SEND_WITH_IMM: u64 = 1 << 3;
const RDMA_READ: u64 = 1 << 4;
const ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
const ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
const LOCAL_INV: u64 = 1 << 7;
const BIND_MW: u64 = 1 << 8;
const SEND_WITH_INV: u64 = 1 << 9;
const FLUSH: u64 = 1 << 11;
pub(crate) const ATOMIC_WRITE: u64 = 1 << 12;

/// What queue pairs of a type can be asked to do.
pub(crate) const fn operations(qp_type: QpType) -> u64 {
    let both = SEND | SEND_WITH_IMM;
    let connected = both | RDMA_WRITE | RDMA_WRITE_WITH_IMM | LOCAL_INV | BIND_MW;
    match qp_type {
        QpType::Ud | QpType::Gsi => both,
        QpType::Uc => connected,
        QpType::XrcRecv => 0,
        QpType::Rc | QpType::XrcSend => {
            connected
                | RDMA_READ
                | ATOMIC_CMP_AND_SWP
                | ATOMIC_FETCH_AND_ADD
                | SEND_WITH_INV
                | FLUSH
                | ATOMIC_WRITE
        }
    }
}

/// Requests that are being built. Memory is kept for the next ones.
#[derive(Default)]
pub(crate) struct Batch {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    error: Option<Errno>,
}

struct Request {
    wr_id: u64,
    flags: u32,
    op: SendOp,
    data: Data,
    ud: Option<UdDestination>,
    xrc_srqn: u32,
    window: *mut abi::Mw,
}

/// Where the bytes of a request are in its batch.
enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }

    /// Does with the request that was begun last.
    fn last(&mut self, job: impl FnOnce(&mut Request)) {
        match self.requests.last_mut() {
            Some(request) => job(request),
            None => self.refuse(Errno::INVALID),
        }
    }

    fn refuse(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    fn set_sges(&mut self, sges: impl ExactSizeIterator<Item = Sge>) {
        let start = self.sges.len();
        self.sges.extend(sges);
        let range = start..self.sges.len();
        self.last(|request| request.data = Data::Sges(range));
    }

    /// Copies pieces of the program's memory.
    fn set_inline(&mut self, pieces: impl Iterator<Item = abi::DataBuf>) {
        let start = self.inline.len();
        for piece in pieces {
            let at = self.inline.len();
            let end = at.saturating_add(piece.length);
            if end - start > MAX_INLINE {
                return self.refuse(Errno::INVALID);
            }
            self.inline.resize(end, 0);
            if let Err(errno) = post::copy_inline(piece.addr.cast(), &mut self.inline[at..]) {
                return self.refuse(errno);
            }
        }
        let range = start..self.inline.len();
        self.last(|request| request.data = Data::Inline(range));
    }

    /// Posts everything, or nothing if something is wrong with what was built.
    fn post(&self, object: &QpObject) -> Result<(), Errno> {
        if let Some(errno) = self.error {
            return Err(errno);
        }
        object.qp.expect_room(self.requests.len())?;
        for request in &self.requests {
            let inline;
            let data = match &request.data {
                Data::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
                Data::Inline(range) => {
                    inline = [&self.inline[range.clone()]];
                    SendData::Inline(&inline)
                }
            };
            let wr = SendWr {
                wr_id: request.wr_id,
                op: request.op,
                flags: post::flags(request.flags),
                data,
                ud: request.ud,
                xrc_srqn: request.xrc_srqn,
            };
            check::send(object, &wr, || object.qp.queue(&wr))?;
            if let SendOp::BindMw(bound) = request.op {
                // SAFETY: the window that the caller named when the request was built.
                unsafe { bind::renamed(request.window, bound.rkey().value()) };
            }
        }
        Ok(())
    }
}

/// The extended form of `qp`.
pub(crate) fn public(qp: abi::Qp) -> abi::QpEx {
    abi::QpEx {
        qp,
        comp_mask: 0,
        wr_id: UnsafeCell::new(0),
        wr_flags: UnsafeCell::new(0),
        wr: abi::QpExOps {
            atomic_cmp_swp,
            atomic_fetch_add,
            bind_mw,
            local_inv,
            rdma_read,
            rdma_write,
            rdma_write_imm,
            send,
            send_imm,
            send_inv,
            send_tso,
            set_ud_addr,
            set_xrc_srqn,
            set_inline_data,
            set_inline_data_list,
            set_sge,
            set_sge_list,
            start,
            complete,
            abort,
            atomic_write,
            flush,
        },
    }
}

/// Works on the batch of a queue pair, on whose behalf nothing can be answered now.
///
/// # Safety
/// The caller builds requests for the queue pair: nobody else has its batch.
unsafe fn with_batch(qp: *mut abi::QpEx, job: impl FnOnce(&mut Batch)) {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) =
        unsafe { (QpObject::of(qp.cast()), device(&raw const (*qp).qp.context)) };
    status(context, || {
        // SAFETY: as required of the caller.
        job(unsafe { &mut *object.batch.get() });
        Ok(())
    });
}

/// Begins a request.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin(qp: *mut abi::QpEx, needs: u64, op: SendOp, window: *mut abi::Mw) {
    // SAFETY: as required of the caller, who has set number and flags for this request.
    unsafe {
        let (wr_id, flags) = (*(*qp).wr_id.get(), *(*qp).wr_flags.get());
        let has = QpObject::of(qp.cast()).send_ops;
        with_batch(qp, |batch| {
            if has & needs == 0 {
                batch.refuse(Errno::INVALID);
            }
            let start = batch.sges.len();
            batch.requests.push(Request {
                wr_id,
                flags,
                op,
                data: Data::Sges(start..start),
                ud: None,
                xrc_srqn: 0,
                window,
            });
        });
    }
}

/// Functions that begin a request.
macro_rules! beginners {
    ($($name:ident($($argument:ident: $type:ty),*): $needs:expr => $op:expr;)*) => { $(
        unsafe extern "C" fn $name(qp: *mut abi::QpEx $(, $argument: $type)*) {
            // SAFETY: the caller builds requests.
            unsafe { begin(qp, $needs, $op, ptr::null_mut()) }
        }
    )* };
}

beginners! {
    atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64): ATOMIC_CMP_AND_SWP =>
        SendOp::CompareSwap { va, rkey: Rkey::new(rkey), compare, swap };
    atomic_fetch_add(rkey: u32, va: u64, add: u64): ATOMIC_FETCH_AND_ADD =>
        SendOp::FetchAdd { va, rkey: Rkey::new(rkey), add };
    local_inv(rkey: u32): LOCAL_INV => SendOp::LocalInv(Rkey::new(rkey));
    rdma_read(rkey: u32, va: u64): RDMA_READ => SendOp::Read { va, rkey: Rkey::new(rkey) };
    rdma_write(rkey: u32, va: u64): RDMA_WRITE => SendOp::Write { va, rkey: Rkey::new(rkey) };
    rdma_write_imm(rkey: u32, va: u64, imm: u32): RDMA_WRITE_WITH_IMM =>
        SendOp::WriteImm { va, rkey: Rkey::new(rkey), imm: imm.to_ne_bytes() };
    send(): SEND => SendOp::Send;
    send_imm(imm: u32): SEND_WITH_IMM => SendOp::SendImm(imm.to_ne_bytes());
    send_inv(rkey: u32): SEND_WITH_INV => SendOp::SendInv(Rkey::new(rkey));
}

unsafe extern "C" fn bind_mw(
    qp: *mut abi::QpEx,
    mw: *mut abi::Mw,
    rkey: u32,
    info: *const abi::MwBindInfo,
) {
    // SAFETY: the caller builds requests; window and region are his.
    unsafe {
        match bind::request(mw, rkey, &*info) {
            Ok(bind) => begin(qp, BIND_MW, SendOp::BindMw(bind), mw),
            Err(errno) => with_batch(qp, |batch| batch.refuse(errno)),
        }
    }
}

unsafe extern "C" fn atomic_write(qp: *mut abi::QpEx, rkey: u32, va: u64, word: *const c_void) {
    let op = SendOp::AtomicWrite {
        va,
        rkey: Rkey::new(rkey),
    };
    let word = abi::DataBuf {
        addr: word.cast_mut(),
        length: 8,
    };
    // SAFETY: the caller builds requests.
    unsafe {
        begin(qp, ATOMIC_WRITE, op, ptr::null_mut());
        with_batch(qp, |batch| batch.set_inline([word].into_iter()));
    }
}

unsafe extern "C" fn flush(
    qp: *mut abi::QpEx,
    rkey: u32,
    va: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    // IBV_FLUSH_GLOBAL and _PERSISTENT; IBV_FLUSH_RANGE and _MR.
    let what = Feth {
        global: placement & 1 != 0,
        persistent: placement & 2 != 0,
        range: if level == 0 {
            FlushRange::Range
        } else {
            FlushRange::WholeRegion
        },
    };
    let op = SendOp::Flush {
        va,
        rkey: Rkey::new(rkey),
        length: u32::try_from(length).unwrap_or(u32::MAX),
        what,
    };
    // SAFETY: the caller builds requests.
    unsafe { begin(qp, FLUSH, op, ptr::null_mut()) }
}

/// Segmented sends belong to raw packets; no queue pair was granted them.
unsafe extern "C" fn send_tso(qp: *mut abi::QpEx, _: *mut c_void, _: u16, _: u16) {
    // SAFETY: the caller builds requests.
    unsafe { with_batch(qp, |batch| batch.refuse(Errno::INVALID)) }
}

unsafe extern "C" fn set_ud_addr(qp: *mut abi::QpEx, ah: *mut abi::Ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller builds requests; the handle is his.
    unsafe {
        let to = post::destination((*qp).qp.pd, ah, qpn, qkey);
        with_batch(qp, |batch| match to {
            Ok(to) => batch.last(|request| request.ud = to),
            Err(errno) => batch.refuse(errno),
        });
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut abi::QpEx, number: u32) {
    // SAFETY: the caller builds requests.
    unsafe { with_batch(qp, |batch| batch.last(|request| request.xrc_srqn = number)) }
}

unsafe extern "C" fn set_inline_data(qp: *mut abi::QpEx, addr: *mut c_void, length: usize) {
    // SAFETY: the caller builds requests.
    unsafe {
        with_batch(qp, |batch| {
            batch.set_inline([abi::DataBuf { addr, length }].into_iter())
        })
    }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut abi::QpEx,
    count: usize,
    list: *const abi::DataBuf,
) {
    // SAFETY: the caller builds requests, and has so many pieces.
    unsafe {
        with_batch(qp, |batch| {
            if count > 0 && list.is_null() {
                return batch.refuse(Errno::FAULT);
            }
            batch.set_inline((0..count).map(|at| *list.add(at)))
        })
    }
}

unsafe extern "C" fn set_sge(qp: *mut abi::QpEx, lkey: u32, addr: u64, length: u32) {
    let sge = abi::Sge { addr, length, lkey };
    // SAFETY: the caller builds requests.
    unsafe { with_batch(qp, |batch| batch.set_sges([post::sge(&sge)].into_iter())) }
}

unsafe extern "C" fn set_sge_list(qp: *mut abi::QpEx, count: usize, list: *const abi::Sge) {
    // SAFETY: the caller builds requests, and has so many entries.
    unsafe {
        with_batch(qp, |batch| match post::entries(list, count) {
            Ok(count) => batch.set_sges((0..count).map(|at| post::sge(&*list.add(at)))),
            Err(errno) => batch.refuse(errno),
        })
    }
}

unsafe extern "C" fn start(qp: *mut abi::QpEx) {
    // SAFETY: a QP of the caller's, who builds requests when the lock is his.
    unsafe {
        QpObject::of(qp.cast()).building.take();
        with_batch(qp, Batch::clear);
    }
}

unsafe extern "C" fn complete(qp: *mut abi::QpEx) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) =
        unsafe { (QpObject::of(qp.cast()), device(&raw const (*qp).qp.context)) };
    let result = status(context, || {
        // SAFETY: the caller builds requests.
        let result = unsafe { &*object.batch.get() }.post(object);
        object.qp.ring();
        result
    });
    object.building.give();
    result
}

unsafe extern "C" fn abort(qp: *mut abi::QpEx) {
    // SAFETY: a QP of the caller's, who builds requests until the lock is given back.
    unsafe {
        with_batch(qp, Batch::clear);
        QpObject::of(qp.cast()).building.give();
    }
}
