//! Queue pairs: making, changing, asking and destroying them. Posting is elsewhere.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hirail::{
    AckTimeout, AttrMask, Gid, PathMtu, Psn, QKey, Qp, QpAttr, QpState, QpType, Qpn, RnrTimer,
};
use hirail_rnic::qp::attr::MigrationState;

use crate::abi;
use crate::ah;
use crate::async_event::Subject;
use crate::check::{self, Kind};
use crate::comp_counter;
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::events::Acknowledgements;
use crate::ex;
use crate::ex::wr::Batch;
use crate::lock::Lock;
use crate::pd::PdObject;
use crate::srq::SrqObject;
use crate::xrc::XrcdObject;

/// A queue pair. All of them have the extended form; who does not know it looks at its beginning
/// only.
#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) public: abi::QpEx,
    pub(crate) qp: Qp,
    pub(crate) is_datagram: bool,
    cap: abi::QpCap,
    sq_sig_all: c_int,
    /// Operations that the program may build with the functions of the extended form.
    pub(crate) send_ops: u64,
    /// Multicast groups that it is attached to.
    groups: AtomicUsize,
    pub(crate) events: Acknowledgements,
    /// Completion counters that are attached.
    pub(crate) counters: Mutex<Vec<Arc<comp_counter::Use>>>,
    /// Held from `wr_start` to `wr_complete`.
    pub(crate) building: Lock,
    /// Requests that are being built; whoever holds `building` has them.
    pub(crate) batch: UnsafeCell<Batch>,
}

// SAFETY: it begins with its public part, which begins with a `abi::Qp`.
unsafe impl Object for QpObject {
    type Public = abi::Qp;
}

/// What a queue pair is made with.
pub(crate) struct QpMaking {
    pub(crate) base: abi::QpInitAttr,
    pub(crate) pd: *mut abi::Pd,
    pub(crate) xrcd: *mut abi::Xrcd,
    pub(crate) send_ops: u64,
}

/// The transports that programs can have. QP1 is not for them, raw packets are not there.
pub(crate) fn transport(code: c_int) -> Result<QpType, Errno> {
    const RAW_PACKET: c_int = 8;
    const DRIVER: c_int = 0xff;
    match u8::try_from(code).ok().and_then(QpType::from_code) {
        Some(QpType::Gsi) => Err(Errno::INVALID),
        Some(qp_type) => Ok(qp_type),
        None if code == RAW_PACKET || code == DRIVER => Err(Errno::UNSUPPORTED),
        None => Err(Errno::INVALID),
    }
}

impl QpObject {
    /// Whether all requests make completions.
    pub(crate) fn signals_all(&self) -> bool {
        self.sq_sig_all != 0
    }

    /// Hands out a queue pair.
    pub(crate) fn hand_out(context: &ContextObject, qp: Qp, making: &QpMaking) -> *mut abi::Qp {
        let base = &making.base;
        let qpn = qp.qpn().value();
        let object = Self {
            public: ex::wr::public(abi::Qp {
                context: context.public(),
                qp_context: base.qp_context,
                pd: making.pd,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                handle: qpn,
                qp_num: qpn,
                state: AtomicI32::new(0),
                qp_type: base.qp_type,
                mutex: [0; 5],
                cond: [0; 6],
                events_completed: AtomicU32::new(0),
            }),
            is_datagram: qp.qp_type().is_datagram(),
            qp,
            cap: base.cap,
            sq_sig_all: base.sq_sig_all,
            send_ops: making.send_ops,
            groups: AtomicUsize::new(0),
            events: Acknowledgements::default(),
            counters: Mutex::default(),
            building: Lock::new(),
            batch: UnsafeCell::default(),
        };
        let public = object.into_public();
        context
            .events
            .add(Subject::Qp(qpn), public.expose_provenance());
        // SAFETY: it was just made.
        let object = unsafe { Self::of(public) };
        check::qp(context, public, &object.qp, &object.cap);
        public
    }
}

/// Makes a queue pair.
///
/// # Safety
/// All objects that it names are the caller's.
pub(crate) unsafe fn create(
    context: &ContextObject,
    making: &mut QpMaking,
) -> Result<*mut abi::Qp, Errno> {
    let qp_type = transport(making.base.qp_type)?;
    let base = &making.base;
    // SAFETY: as required of the caller.
    let (xrcd, pd, send_cq, recv_cq, srq) = unsafe {
        let xrcd = (!making.xrcd.is_null()).then(|| &*XrcdObject::of(making.xrcd).domain);
        let pd = (!making.pd.is_null()).then(|| &PdObject::of(making.pd).pd);
        let cq = |cq: *mut abi::Cq| (!cq.is_null()).then(|| &CqObject::of(cq).cq);
        let srq = (!base.srq.is_null()).then(|| &SrqObject::of(base.srq).srq);
        (xrcd, pd, cq(base.send_cq), cq(base.recv_cq), srq)
    };
    // An XRC target has neither domain nor queues of its own: those of its XRC domain stand in.
    let stand_in = xrcd.filter(|_| qp_type == QpType::XrcRecv);
    let pd = pd.or(stand_in.map(|xrcd| &xrcd.pd)).ok_or(Errno::INVALID)?;
    let send_cq = send_cq
        .or(stand_in.map(|xrcd| &xrcd.cq))
        .ok_or(Errno::INVALID)?;
    let recv_cq = match (recv_cq, qp_type) {
        (Some(cq), _) => cq,
        (None, QpType::XrcSend | QpType::XrcRecv) => send_cq,
        (None, _) => return Err(Errno::INVALID),
    };
    if qp_type == QpType::XrcSend && srq.is_some() {
        return Err(Errno::INVALID);
    }
    let mut cap = base.cap;
    // Programs that ask for nothing count on what other devices give: the room of one piece.
    cap.max_inline_data = cap.max_inline_data.max(size_of::<abi::Sge>() as u32);
    if making.send_ops & ex::wr::ATOMIC_WRITE != 0 {
        // Its eight bytes are given by value.
        cap.max_inline_data = cap.max_inline_data.max(8);
    }
    if matches!(qp_type, QpType::XrcSend | QpType::XrcRecv) || srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    if qp_type == QpType::XrcRecv {
        (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
    }
    let mut builder = pd
        .qp(send_cq, recv_cq)
        .qp_type(qp_type)
        .max_send_wr(cap.max_send_wr)
        .max_recv_wr(cap.max_recv_wr)
        .max_sge(cap.max_send_sge, cap.max_recv_sge)
        .max_inline_data(cap.max_inline_data);
    if let Some(srq) = srq {
        builder = builder.srq(srq);
    }
    if let Some(xrcd) = xrcd {
        builder = builder.xrcd(&xrcd.xrcd);
    }
    if base.sq_sig_all != 0 {
        builder = builder.signal_all();
    }
    let qp = builder.build()?;
    making.base.cap = cap;
    Ok(QpObject::hand_out(context, qp, making))
}

/// `ibv_create_qp`.
pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut abi::Pd,
    init: *mut abi::QpInitAttr,
) -> *mut abi::Qp {
    // SAFETY: a domain of the caller's.
    let context = unsafe { device(&raw const (*pd).context) };
    pointer(context, || {
        // SAFETY: the caller's, and so is all that it names. Of the structure's last four bytes
        // nothing is made use of.
        unsafe {
            let mut making = QpMaking {
                base: ptr::read(init),
                pd,
                xrcd: ptr::null_mut(),
                send_ops: 0,
            };
            let qp = create(context, &mut making)?;
            (*init).cap = making.base.cap;
            Ok(qp)
        }
    })
}

/// `ibv_destroy_qp`: refused while it is attached to multicast groups; waits until its events are
/// acknowledged.
pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut abi::Qp) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    status(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        if object.groups.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        let subject = Subject::Qp(object.qp.qpn().value());
        context.events.remove(subject, qp.expose_provenance());
        object.events.wait(|owed| check::waits(Kind::Qp, qp, owed));
        check::going(Kind::Qp, qp);
        // SAFETY: the caller gives it up, once; nobody can name it any more.
        drop(unsafe { QpObject::take(qp) });
        Ok(())
    })
}

fn state(code: c_int) -> Result<QpState, Errno> {
    let state = u8::try_from(code).ok().and_then(QpState::from_code);
    state.ok_or(Errno::INVALID)
}

/// What of `attr` is in `mask`, for the engine.
fn attributes(attr: &abi::QpAttr, mask: AttrMask) -> Result<QpAttr, Errno> {
    let mut to = QpAttr::default();
    let has = |bit| mask.contains(bit);
    if has(AttrMask::STATE) {
        to.qp_state = state(attr.qp_state)?;
    }
    if has(AttrMask::CUR_STATE) {
        to.cur_qp_state = state(attr.cur_qp_state)?;
    }
    if has(AttrMask::PATH_MTU) {
        let mtu = u8::try_from(attr.path_mtu)
            .ok()
            .and_then(PathMtu::from_code);
        to.path_mtu = mtu.ok_or(Errno::INVALID)?;
    }
    if has(AttrMask::PATH_MIG_STATE) {
        let code = u8::try_from(attr.path_mig_state).ok();
        to.path_mig_state = code
            .and_then(MigrationState::from_code)
            .ok_or(Errno::INVALID)?;
    }
    if has(AttrMask::ACCESS_FLAGS) {
        to.access = hirail::Access::from_verbs(attr.qp_access_flags)?;
    }
    if has(AttrMask::AV) {
        to.av = ah::vector(&attr.ah_attr)?;
    }
    if has(AttrMask::ALT_PATH) {
        to.alt_av = ah::vector(&attr.alt_ah_attr)?;
    }
    to.qkey = QKey(attr.qkey);
    to.rq_psn = Psn::new(attr.rq_psn);
    to.sq_psn = Psn::new(attr.sq_psn);
    to.dest_qpn = Qpn::new(attr.dest_qp_num);
    to.pkey_index = attr.pkey_index;
    to.en_sqd_async_notify = attr.en_sqd_async_notify != 0;
    to.max_rd_atomic = attr.max_rd_atomic;
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    to.min_rnr_timer = RnrTimer::new(attr.min_rnr_timer);
    to.port = attr.port_num;
    to.timeout = AckTimeout::new(attr.timeout);
    to.retry_cnt = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    to.rate_limit_kbps = attr.rate_limit;
    Ok(to)
}

/// What the engine knows, for a program.
pub(crate) fn attributes_to_c(attr: &QpAttr) -> abi::QpAttr {
    abi::QpAttr {
        qp_state: attr.qp_state.code().into(),
        cur_qp_state: attr.cur_qp_state.code().into(),
        path_mtu: attr.path_mtu.code().into(),
        path_mig_state: c_int::from(attr.path_mig_state as u8),
        qkey: attr.qkey.0,
        rq_psn: attr.rq_psn.value(),
        sq_psn: attr.sq_psn.value(),
        dest_qp_num: attr.dest_qpn.value(),
        qp_access_flags: attr.access.bits(),
        cap: abi::QpCap::default(),
        ah_attr: ah::attributes(&attr.av),
        alt_ah_attr: ah::attributes(&attr.alt_av),
        pkey_index: attr.pkey_index,
        alt_pkey_index: 0,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: u8::from(attr.sq_draining),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer.code(),
        port_num: attr.port,
        timeout: attr.timeout.code(),
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: attr.rate_limit_kbps,
    }
}

/// Codes of timers have five bits.
const LAST_TIMER: u8 = 31;

/// `ibv_modify_qp`.
pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut abi::Qp,
    attr: *mut abi::QpAttr,
    mask: c_int,
) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    status(context, || {
        let mut mask = AttrMask::from_bits(mask.cast_unsigned()).ok_or(Errno::INVALID)?;
        if object.qp.qp_type() == QpType::XrcSend {
            // An initiator has no responder; programs that treat both halves alike say what it would
            // need all the same.
            mask -= AttrMask::MIN_RNR_TIMER | AttrMask::MAX_DEST_RD_ATOMIC;
        }
        // Old callers' structures end before the rate limit, so only what is meant is read.
        // SAFETY: the caller's.
        let attr = unsafe {
            let mut copy = abi::QpAttr::default();
            let room = core::mem::offset_of!(abi::QpAttr, rate_limit);
            ptr::copy_nonoverlapping(attr.cast::<u8>(), (&raw mut copy).cast(), room);
            if mask.contains(AttrMask::RATE_LIMIT) {
                copy.rate_limit = (*attr).rate_limit;
            }
            copy
        };
        let is_beyond = |bit, code| mask.contains(bit) && code > LAST_TIMER;
        if is_beyond(AttrMask::TIMEOUT, attr.timeout)
            || is_beyond(AttrMask::MIN_RNR_TIMER, attr.min_rnr_timer)
        {
            return Err(Errno::INVALID);
        }
        object.qp.modify(&attributes(&attr, mask)?, mask)?;
        if mask.contains(AttrMask::STATE) && attr.qp_state == c_int::from(QpState::Reset.code()) {
            // Providers take out what the QP has completed before it was reset, and programs that use
            // it again rely on that.
            let public = &object.public.qp;
            for cq in [public.send_cq, public.recv_cq] {
                if !cq.is_null() {
                    // SAFETY: queues stay while queue pairs use them.
                    unsafe { CqObject::of(cq) }.cq.forget(object.qp.qpn())?;
                }
            }
        }
        let is_reset =
            mask.contains(AttrMask::STATE) && attr.qp_state == c_int::from(QpState::Reset.code());
        let rights = mask.contains(AttrMask::ACCESS_FLAGS);
        check::modified(qp, is_reset, rights.then_some(attr.qp_access_flags));
        if mask.contains(AttrMask::STATE) {
            object
                .public
                .qp
                .state
                .store(attr.qp_state, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// `ibv_query_qp`: everything is told, whatever is asked for.
pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut abi::Qp,
    attr: *mut abi::QpAttr,
    _: c_int,
    init: *mut abi::QpInitAttr,
) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    status(context, || {
        let now = object.qp.query()?;
        let all = abi::QpAttr {
            cap: object.cap,
            ..attributes_to_c(&now)
        };
        object
            .public
            .qp
            .state
            .store(all.qp_state, Ordering::Relaxed);
        let public = &object.public.qp;
        let made = abi::QpInitAttr {
            qp_context: public.qp_context,
            send_cq: public.send_cq,
            recv_cq: public.recv_cq,
            srq: public.srq,
            cap: object.cap,
            qp_type: public.qp_type,
            sq_sig_all: object.sq_sig_all,
            comp_mask: 0,
        };
        // SAFETY: the caller's; where old ones end is respected.
        unsafe {
            let room = core::mem::offset_of!(abi::QpAttr, rate_limit);
            ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), attr.cast(), room);
            let room = core::mem::offset_of!(abi::QpInitAttr, comp_mask);
            ptr::copy_nonoverlapping((&raw const made).cast::<u8>(), init.cast(), room);
        }
        Ok(())
    })
}

/// `ibv_attach_mcast`.
pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut abi::Qp,
    gid: *const abi::Gid,
    _: u16,
) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    status(context, || {
        // SAFETY: the caller's.
        object.qp.attach_multicast(Gid(unsafe { (*gid).0 }))?;
        object.groups.fetch_add(1, Ordering::AcqRel);
        Ok(())
    })
}

/// `ibv_detach_mcast`.
pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut abi::Qp,
    gid: *const abi::Gid,
    _: u16,
) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    status(context, || {
        // SAFETY: the caller's.
        object.qp.detach_multicast(Gid(unsafe { (*gid).0 }))?;
        object.groups.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    })
}

/// `ibv_qp_to_qp_ex`: NULL unless the QP was made to be posted to by the functions in it.
pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut abi::Qp) -> *mut abi::QpEx {
    // SAFETY: a QP of the caller's.
    if unsafe { QpObject::of(qp) }.send_ops == 0 {
        return ptr::null_mut();
    }
    qp.cast()
}

/// `ibv_query_ece`: there are no options.
pub(crate) unsafe extern "C" fn query_ece(_: *mut abi::Qp, ece: *mut abi::Ece) -> c_int {
    // SAFETY: the caller's.
    unsafe { ece.write(abi::Ece::default()) };
    0
}

/// `ibv_set_ece`: as a device without options does.
pub(crate) unsafe extern "C" fn set_ece(_: *mut abi::Qp, ece: *mut abi::Ece) -> c_int {
    // SAFETY: the caller's.
    let is_none = unsafe { (*ece).vendor_id == 0 && (*ece).options == 0 };
    if is_none { 0 } else { libc::EOPNOTSUPP }
}
