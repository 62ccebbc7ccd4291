//! Queue pairs of ids: made with what the program leaves out, and led to work.

use core::ffi::c_int;
use core::mem;
use std::ptr;
use std::sync::Arc;

use hirail_abi::{
    CompChannel, Cq, ExtendedOps, Pd, Qp, QpAttr, QpInitAttr, QpInitAttrEx, RdmaCmId,
};

use crate::bridge::bridge;
use crate::device::Device;
use crate::entry::{nothing, number};
use crate::errno::Errno;
use crate::id::{Id, MOST, qp_type};

/// `enum ibv_qp_state`.
mod state {
    pub(super) const INIT: i32 = 1;
    pub(super) const RTR: i32 = 2;
    pub(super) const RTS: i32 = 3;
    pub(super) const ERR: i32 = 6;
}

/// `enum ibv_qp_attr_mask`.
mod mask {
    pub(super) const STATE: i32 = 1;
    pub(super) const ACCESS_FLAGS: i32 = 1 << 3;
    pub(super) const PKEY_INDEX: i32 = 1 << 4;
    pub(super) const PORT: i32 = 1 << 5;
    pub(super) const QKEY: i32 = 1 << 6;
    pub(super) const TIMEOUT: i32 = 1 << 9;
    pub(super) const SQ_PSN: i32 = 1 << 16;
}

/// `IBV_QP_INIT_ATTR_PD`.
const HAS_PD: u32 = 1;

/// `IBV_QP_INIT_ATTR_XRCD`.
const HAS_XRCD: u32 = 1 << 1;

/// What takes the queue pair of an id to a state, and which fields are meant.
fn attributes(id: &Arc<Id>, state: c_int) -> Result<(QpAttr, c_int), Errno> {
    let mut attr = QpAttr::default();
    let mut meant = mask::STATE;
    if id.is_datagram() {
        attr.qkey = id.state().qkey;
        attr.port_num = 1;
        meant |= match state {
            state::INIT => mask::PKEY_INDEX | mask::PORT | mask::QKEY,
            state::RTS => mask::SQ_PSN,
            _ => 0,
        };
    } else if let Ok((cm, comm)) = id.connection() {
        // SAFETY: a manager of the other library, and places.
        Errno::check(unsafe {
            (bridge()?.attributes)(cm, comm, state, &raw mut attr, &raw mut meant)
        })?;
        // What the program wants itself goes before what both sides have worked out.
        if let Some(timeout) = id.state().options.ack_timeout
            && meant & mask::TIMEOUT != 0
        {
            attr.timeout = timeout;
        }
    } else if state == state::INIT {
        attr.port_num = 1;
        meant |= mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
    } else {
        return Err(Errno::INVALID);
    }
    attr.qp_state = state;
    Ok((attr, meant))
}

fn modify(id: &Arc<Id>, attr: &mut QpAttr, meant: c_int) -> Result<(), Errno> {
    // SAFETY: the id exists while somebody calls, and its queue pair with it.
    Errno::check(unsafe { (bridge()?.modify_qp)((*id.public()).qp, attr, meant) })
}

fn step(id: &Arc<Id>, state: c_int) -> Result<(), Errno> {
    let (mut attr, meant) = attributes(id, state)?;
    modify(id, &mut attr, meant)
}

/// Leads the queue pair of a connection whose peer is known to RTS: with at most so many READs and
/// atomics of the peer, and at the peer.
pub(crate) fn ready(id: &Arc<Id>, responder_resources: u8, depth: u8) -> Result<(), Errno> {
    step(id, state::INIT)?;
    for state in [state::RTR, state::RTS] {
        let (mut attr, meant) = attributes(id, state)?;
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(responder_resources);
        attr.max_rd_atomic = attr.max_rd_atomic.min(depth);
        modify(id, &mut attr, meant)?;
    }
    attach(id)
}

/// The queue pair goes to ERR by itself when the connection ends.
pub(crate) fn attach(id: &Arc<Id>) -> Result<(), Errno> {
    let (cm, comm) = id.connection()?;
    // SAFETY: the id exists while somebody calls, and its queue pair with it.
    unsafe {
        let qp = (*id.public()).qp;
        if qp.is_null() {
            return Ok(());
        }
        Errno::check((bridge()?.attach)(cm, comm, qp))
    }
}

/// The queue pair of a connection goes to ERR: what is posted there is flushed.
pub(crate) fn fail(id: &Arc<Id>) {
    // SAFETY: the id exists while somebody calls.
    let has_qp = unsafe { !(*id.public()).qp.is_null() };
    if has_qp && !id.is_datagram() {
        let mut attr = QpAttr {
            qp_state: state::ERR,
            ..QpAttr::default()
        };
        // It is there already, or was reset.
        let _ = modify(id, &mut attr, mask::STATE);
    }
}

/// As many as `asked`, or as `offered` where the program does not care.
pub(crate) fn agreed(asked: u8, offered: u8) -> u8 {
    if asked == MOST { offered } else { asked }
}

/// `rdma_init_qp_attr`.
pub(crate) unsafe extern "C" fn init_qp_attr(
    id: *mut RdmaCmId,
    attr: *mut QpAttr,
    meant: *mut c_int,
) -> c_int {
    number(|| {
        if attr.is_null() || meant.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an id and places of the caller's. Structures of old callers end before the rate
        // limit.
        unsafe {
            let (found, found_mask) = attributes(&Id::of(id)?, (*attr).qp_state)?;
            let room = mem::offset_of!(QpAttr, rate_limit);
            ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), attr.cast(), room);
            meant.write(found_mask);
        }
        Ok(())
    })
}

/// A completion queue with a channel of its own.
///
/// # Safety
/// The id exists.
unsafe fn create_cq(id: *mut RdmaCmId, entries: u32) -> Result<(*mut CompChannel, *mut Cq), Errno> {
    let bridge = bridge()?;
    // SAFETY: as required of the caller; what was made is given up where the rest fails.
    unsafe {
        let verbs = (*id).verbs;
        let entries = c_int::try_from(entries.max(1)).map_err(|_| Errno::INVALID)?;
        let channel = Errno::check_pointer((bridge.create_comp_channel)(verbs))?;
        let cq = (bridge.create_cq)(verbs, entries, id.cast(), channel, 0);
        let cq = Errno::check_pointer(cq).inspect_err(|_| {
            (bridge.destroy_comp_channel)(channel);
        })?;
        Ok((channel, cq))
    }
}

/// Makes the completion queues that the program has not given.
///
/// # Safety
/// The id exists.
pub(crate) unsafe fn create_cqs(
    id: *mut RdmaCmId,
    send: Option<u32>,
    recv: Option<u32>,
) -> Result<(), Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        if let Some(entries) = send {
            ((*id).send_cq_channel, (*id).send_cq) = create_cq(id, entries)?;
        }
        if let Some(entries) = recv {
            ((*id).recv_cq_channel, (*id).recv_cq) = create_cq(id, entries)?;
        }
    }
    Ok(())
}

/// Destroys the completion queues that were made here.
///
/// # Safety
/// The id exists.
unsafe fn destroy_cqs(id: *mut RdmaCmId) -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: as required of the caller; each pointer is forgotten with what it names.
    unsafe {
        for cq in [&raw mut (*id).send_cq, &raw mut (*id).recv_cq] {
            if !(*cq).is_null() {
                Errno::check((bridge.destroy_cq)(*cq))?;
                *cq = ptr::null_mut();
            }
        }
        let (send, recv) = (
            &raw mut (*id).send_cq_channel,
            &raw mut (*id).recv_cq_channel,
        );
        for channel in [send, recv] {
            if !(*channel).is_null() {
                Errno::check((bridge.destroy_comp_channel)(*channel))?;
                *channel = ptr::null_mut();
            }
        }
    }
    Ok(())
}

/// `rdma_create_qp`.
pub(crate) unsafe extern "C" fn create_qp(
    id: *mut RdmaCmId,
    pd: *mut Pd,
    init: *mut QpInitAttr,
) -> c_int {
    // SAFETY: an id, a domain and attributes of the caller's.
    number(|| unsafe { create(id, pd, init) })
}

/// See [`create_qp`].
///
/// # Safety
/// The id and the domain exist, and what the attributes name.
pub(crate) unsafe fn create(
    id: *mut RdmaCmId,
    pd: *mut Pd,
    init: *mut QpInitAttr,
) -> Result<(), Errno> {
    let bridge = bridge()?;
    // SAFETY: as required of the caller; in front of an open device are its functions.
    unsafe {
        let xrcd = match (*id).qp_type {
            qp_type::XRC_RECV => device_of(id)?.xrcd()?,
            _ => ptr::null_mut(),
        };
        make(id, pd, init, |pd, init| {
            if xrcd.is_null() {
                return (bridge.create_qp)(pd, init);
            }
            let mut whole: QpInitAttrEx = mem::zeroed();
            ptr::copy_nonoverlapping(init.cast::<u8>(), (&raw mut whole).cast(), PLAIN);
            whole.base.comp_mask = HAS_PD | HAS_XRCD;
            (whole.pd, whole.xrcd) = (pd, xrcd);
            let extended = (*pd).context.cast::<ExtendedOps>().sub(1);
            let qp = ((*extended).create_qp_ex)((*pd).context, &raw mut whole);
            (*init).cap = whole.base.cap;
            qp
        })
    }
}

/// Bytes of `struct ibv_qp_init_attr`, which has no mask.
const PLAIN: usize = mem::offset_of!(QpInitAttr, comp_mask);

/// The device of an id that is on one.
///
/// # Safety
/// The id exists.
pub(crate) unsafe fn device_of(id: *mut RdmaCmId) -> Result<&'static Device, Errno> {
    // SAFETY: as required of the caller.
    let device = unsafe { Id::of(id)? }.state().device;
    device.ok_or(Errno::INVALID)
}

/// `rdma_create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(id: *mut RdmaCmId, init: *mut QpInitAttrEx) -> c_int {
    number(|| {
        if init.is_null() {
            return Err(Errno::INVALID);
        }
        let bridge = bridge()?;
        // SAFETY: an id and attributes of the caller's; in front of an open device are its functions.
        unsafe {
            if (*id).qp_type == qp_type::XRC_RECV
                && ((*init).base.comp_mask & HAS_XRCD == 0 || (*init).xrcd.is_null())
            {
                (*init).xrcd = device_of(id)?.xrcd()?;
                (*init).base.comp_mask |= HAS_XRCD;
            }
            let is_given = (*init).base.comp_mask & HAS_PD != 0;
            let pd = if is_given {
                (*init).pd
            } else {
                ptr::null_mut()
            };
            make(id, pd, &raw mut (*init).base, |pd, base| {
                (*init).pd = pd;
                (*init).base.comp_mask |= HAS_PD;
                if (*base).comp_mask & !HAS_PD == 0 {
                    return (bridge.create_qp)(pd, base);
                }
                let context = (*pd).context;
                let extended = context.cast::<ExtendedOps>().sub(1);
                ((*extended).create_qp_ex)(context, init)
            })
        }
    })
}

/// Makes a queue pair by `maker`, with what the program leaves out.
///
/// # Safety
/// The id exists, and all that the attributes name.
unsafe fn make(
    public: *mut RdmaCmId,
    pd: *mut Pd,
    init: *mut QpInitAttr,
    maker: impl FnOnce(*mut Pd, *mut QpInitAttr) -> *mut Qp,
) -> Result<(), Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        let id = Id::of(public)?;
        if init.is_null() || !(*public).qp.is_null() || (*public).verbs.is_null() {
            return Err(Errno::INVALID);
        }
        let pd = if pd.is_null() { (*public).pd } else { pd };
        if pd.is_null() || (*pd).context != (*public).verbs {
            return Err(Errno::INVALID);
        }
        if (*init).srq.is_null() {
            (*init).srq = (*public).srq;
        }
        // Of XRC a side needs none for what it does not do.
        let is_half = matches!((*public).qp_type, qp_type::XRC_SEND | qp_type::XRC_RECV);
        let lacks = |cq: *mut Cq, entries| {
            let is_needed = entries > 0 || !is_half;
            (cq.is_null() && is_needed).then_some(entries)
        };
        // A shared queue of XRC has brought its own.
        if (*init).recv_cq.is_null() {
            (*init).recv_cq = (*public).recv_cq;
        }
        if (*init).send_cq.is_null() {
            (*init).send_cq = (*public).send_cq;
        }
        let send = lacks((*init).send_cq, (*init).cap.max_send_wr);
        let recv = lacks((*init).recv_cq, (*init).cap.max_recv_wr);
        let give_up = |errno: &Errno| {
            let _ = destroy_cqs(public);
            // What failed first is what the program learns.
            errno.set();
        };
        create_cqs(public, send, recv).inspect_err(give_up)?;
        if send.is_some() {
            (*init).send_cq = (*public).send_cq;
        }
        if recv.is_some() {
            (*init).recv_cq = (*public).recv_cq;
        }
        (*public).qp = Errno::check_pointer(maker(pd, init)).inspect_err(give_up)?;
        (*public).pd = pd;
        let states: &[c_int] = if id.is_datagram() {
            &[state::INIT, state::RTR, state::RTS]
        } else {
            &[state::INIT]
        };
        for state in states {
            step(&id, *state).inspect_err(|_| {
                let _ = destroy(public);
            })?;
        }
    }
    Ok(())
}

/// `rdma_destroy_qp`.
pub(crate) unsafe extern "C" fn destroy_qp(id: *mut RdmaCmId) {
    nothing(|| {
        // SAFETY: an id of the caller's. What is still in use stays, and the program cannot be told.
        let _ = unsafe { destroy(id) };
    });
}

/// See [`destroy_qp`].
///
/// # Safety
/// The id exists.
pub(crate) unsafe fn destroy(id: *mut RdmaCmId) -> Result<(), Errno> {
    // SAFETY: as required of the caller; the pointer is forgotten with what it names.
    unsafe {
        if !(*id).qp.is_null() {
            Errno::check((bridge()?.destroy_qp)((*id).qp))?;
            (*id).qp = ptr::null_mut();
        }
        destroy_cqs(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_care_takes_what_is_offered() {
        assert_eq!(agreed(MOST, 16), 16);
        assert_eq!(agreed(4, 16), 4);
        assert_eq!(agreed(0, 16), 0);
    }
}
