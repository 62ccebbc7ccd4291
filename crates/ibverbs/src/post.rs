//! Posting work requests: from the structures of C to the engine's, on the stack.

use core::ffi::c_int;

use hirail::memory::UserRegion;
use hirail::{Lkey, QKey, Qpn, Rkey, SendFlags, SendOp};
use hirail_rnic::wr::Sge;
use hirail_rnic::{SendData, SendWr, UdDestination};

use crate::abi;
use crate::abi::{opcode, send_flags};
use crate::ah::AhObject;
use crate::bind;
use crate::check::{self, Kind};
use crate::entry::{Object, device, status};
use crate::errno::Errno;
use crate::pd::PdObject;
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// Entries of a list at most: no device allows more.
const MAX_SGE: usize = 31;

/// Inline bytes of a request at most: no device allows more.
pub(crate) const MAX_INLINE: usize = 1024;

/// A request that binds a window: what old callers do not have follows the rest.
#[repr(C)]
pub(crate) struct Bind {
    pub(crate) wr: abi::SendWr,
    pub(crate) part: abi::BindPart,
}

const _: () = assert!(core::mem::offset_of!(Bind, part) == 80);

/// How many entries a list has, if that can be.
#[inline]
pub(crate) fn entries(list: *const abi::Sge, count: impl TryInto<usize>) -> Result<usize, Errno> {
    match count.try_into() {
        Ok(count) if count > 0 && list.is_null() => Err(Errno::FAULT),
        Ok(count) if count <= MAX_SGE => Ok(count),
        _ => Err(Errno::INVALID),
    }
}

/// The entries of a list, for the engine.
///
/// # Safety
/// There are `count` of them.
#[inline]
unsafe fn with_sges<T>(
    list: *const abi::Sge,
    count: c_int,
    job: impl FnOnce(&[Sge]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    #[inline]
    unsafe fn copied<const N: usize>(list: *const abi::Sge, count: usize) -> [Sge; N] {
        let mut sges = [Sge::default(); N];
        for (place, sge) in sges.iter_mut().take(count).enumerate() {
            // SAFETY: the caller has `count` entries, and changes none while it posts.
            *sge = self::sge(unsafe { &*list.add(place) });
        }
        sges
    }
    let count = entries(list, count)?;
    // SAFETY: as required of the caller.
    unsafe {
        match count {
            0 => job(&[]),
            1 => job(&copied::<1>(list, 1)),
            _ => job(&copied::<MAX_SGE>(list, count)[..count]),
        }
    }
}

/// An entry, for the engine.
#[inline]
pub(crate) fn sge(sge: &abi::Sge) -> Sge {
    Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: Lkey::new(sge.lkey),
    }
}

/// Copies bytes of the program that may change meanwhile, or may not be there.
pub(crate) fn copy_inline(from: *const u8, to: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: nothing but the copy touches it, which tolerates that others do.
    let region = unsafe { UserRegion::new(from.cast_mut(), to.len(), false) };
    let region = region.ok_or(Errno::FAULT)?;
    region.read_into(0, to).map_err(|_| Errno::FAULT)
}

/// Flags, for the engine.
#[inline]
pub(crate) fn flags(flags: u32) -> SendFlags {
    SendFlags {
        signaled: flags & send_flags::SIGNALED != 0,
        fence: flags & send_flags::FENCE != 0,
        solicited: flags & send_flags::SOLICITED != 0,
    }
}

/// What a request asks for.
///
/// # Safety
/// It is a whole request of the caller's.
#[inline]
unsafe fn operation(wr: *const abi::SendWr) -> Result<SendOp, Errno> {
    // SAFETY: as required of the caller; every bit pattern of the numbers in the union is valid.
    let (wr, rdma, atomic) = unsafe { (&*wr, (*wr).op.rdma, (*wr).op.atomic) };
    let (va, rkey) = (rdma.remote_addr, Rkey::new(rdma.rkey));
    let imm = wr.imm_or_rkey.to_ne_bytes();
    Ok(match wr.opcode {
        opcode::SEND => SendOp::Send,
        opcode::SEND_WITH_IMM => SendOp::SendImm(imm),
        opcode::SEND_WITH_INV => SendOp::SendInv(Rkey::new(wr.imm_or_rkey)),
        opcode::RDMA_WRITE => SendOp::Write { va, rkey },
        opcode::RDMA_WRITE_WITH_IMM => SendOp::WriteImm { va, rkey, imm },
        opcode::RDMA_READ => SendOp::Read { va, rkey },
        opcode::ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            va,
            rkey: Rkey::new(atomic.rkey),
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        opcode::ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            va,
            rkey: Rkey::new(atomic.rkey),
            add: atomic.compare_add,
        },
        opcode::ATOMIC_WRITE => SendOp::AtomicWrite { va, rkey },
        opcode::LOCAL_INV => SendOp::LocalInv(Rkey::new(wr.imm_or_rkey)),
        opcode::BIND_MW => {
            // SAFETY: who binds has the part that says what.
            let part = unsafe { &(*core::ptr::from_ref(wr).cast::<Bind>()).part };
            // SAFETY: window and region are the caller's.
            SendOp::BindMw(unsafe { bind::request(part.mw, part.rkey, &part.info) }?)
        }
        _ => return Err(Errno::INVALID),
    })
}

/// Where a datagram of a QP in `pd` goes.
///
/// # Safety
/// The handle, if there is one, and the domain are the caller's.
#[inline]
pub(crate) unsafe fn destination(
    pd: *mut abi::Pd,
    ah: *mut abi::Ah,
    qpn: u32,
    qkey: u32,
) -> Result<Option<UdDestination>, Errno> {
    if ah.is_null() {
        return Ok(None);
    }
    // SAFETY: as required of the caller.
    let (ah, domain) = unsafe { (AhObject::of(ah), PdObject::of(pd)) };
    if ah.pd != domain.pd {
        return Err(Errno::INVALID);
    }
    Ok(Some(UdDestination {
        av: ah.vector,
        qpn: Qpn::new(qpn),
        qkey: QKey(qkey),
    }))
}

/// Queues one request.
///
/// # Safety
/// It is a whole request of the caller's.
#[inline]
unsafe fn queue(object: &QpObject, wr: *const abi::SendWr) -> Result<(), Errno> {
    // SAFETY: as required of the caller; the union holds numbers, and a handle for a datagram.
    let (request, op, ud) = unsafe {
        let ud = if object.is_datagram {
            let ud = (*wr).op.ud;
            destination(object.public.qp.pd, ud.ah, ud.remote_qpn, ud.remote_qkey)?
        } else {
            None
        };
        let qp = &raw const object.public.qp;
        let op = operation(wr).inspect_err(|errno| check::refused(qp, "an operation", *errno))?;
        (&*wr, op, ud)
    };
    let post = |data: SendData<'_>| {
        let wr_of = SendWr {
            wr_id: request.wr_id,
            op,
            flags: flags(request.send_flags),
            data,
            ud,
            xrc_srqn: request.xrc_srqn,
        };
        check::send(object, &wr_of, || object.qp.queue(&wr_of))?;
        if let SendOp::BindMw(bound) = op {
            // SAFETY: a whole request, so the window is the caller's.
            unsafe { bind::renamed((*wr.cast::<Bind>()).part.mw, bound.rkey().value()) };
        }
        Ok(())
    };
    if request.send_flags & send_flags::INLINE != 0 && op.sends_payload() {
        // SAFETY: the list is a part of the request.
        return unsafe { with_inline(request, post) };
    }
    // SAFETY: as before.
    unsafe {
        with_sges(request.sg_list, request.num_sge, |sges| {
            post(SendData::Sges(sges))
        })
    }
}

/// Copies what a request sends inline.
///
/// # Safety
/// It is a whole request of the caller's.
unsafe fn with_inline(
    request: &abi::SendWr,
    post: impl FnOnce(SendData<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut bytes = [0; MAX_INLINE];
    let mut length = 0;
    for place in 0..entries(request.sg_list, request.num_sge)? {
        // SAFETY: as required of the caller.
        let sge = unsafe { &*request.sg_list.add(place) };
        let to = bytes.get_mut(length..length + sge.length as usize);
        let to = to.ok_or(Errno::INVALID)?;
        copy_inline(core::ptr::with_exposed_provenance(sge.addr as usize), to)?;
        length += to.len();
    }
    post(SendData::Inline(&[&bytes[..length]]))
}

/// Posts a request that binds a window.
///
/// # Safety
/// The QP and all that the request names are the caller's.
pub(crate) unsafe fn post_bind(qp: *mut abi::Qp, bind: &Bind) -> Result<(), Errno> {
    // SAFETY: as required of the caller.
    unsafe {
        let object = QpObject::of(qp);
        queue(object, core::ptr::from_ref(bind).cast())?;
        object.qp.ring();
    }
    Ok(())
}

/// `post_send`: requests before the first that is refused are queued.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut abi::Qp,
    first: *mut abi::SendWr,
    bad: *mut *mut abi::SendWr,
) -> c_int {
    // SAFETY: a QP of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (QpObject::of(qp), device(&raw const (*qp).context)) };
    let mut wr = first;
    let result = status(context, || {
        let mut result = Ok(());
        while result.is_ok() && !wr.is_null() {
            // SAFETY: a list of the caller's.
            unsafe {
                result = queue(object, wr);
                if result.is_ok() {
                    wr = (*wr).next;
                }
            }
        }
        object.qp.ring();
        result
    });
    if result != 0 && !bad.is_null() {
        // SAFETY: the caller's place.
        unsafe { bad.write(wr) };
    }
    result
}

/// Hands a list of receive requests to `post`, one by one.
///
/// # Safety
/// List and place, if there are any, are the caller's.
#[inline]
unsafe fn post_receives(
    context: &crate::context::ContextObject,
    first: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
    post: impl Fn(u64, &[Sge]) -> Result<(), hirail::Error>,
) -> c_int {
    let mut wr = first;
    let result = status(context, || {
        while !wr.is_null() {
            // SAFETY: as required of the caller.
            unsafe {
                let request = &*wr;
                with_sges(request.sg_list, request.num_sge, |sges| {
                    Ok(post(request.wr_id, sges)?)
                })?;
                wr = request.next;
            }
        }
        Ok(())
    });
    if result != 0 && !bad.is_null() {
        // SAFETY: as required of the caller.
        unsafe { bad.write(wr) };
    }
    result
}

/// `post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut abi::Qp,
    first: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: a QP of the caller's, the device that it belongs to, a list and a place.
    unsafe {
        let (object, context) = (QpObject::of(qp), device(&raw const (*qp).context));
        post_receives(context, first, bad, |wr_id, sges| {
            check::receive(Kind::Qp, qp, wr_id, sges, || {
                object.qp.queue_recv(wr_id, sges)
            })
        })
    }
}

/// `post_srq_recv`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut abi::Srq,
    first: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: a queue of the caller's, the device that it belongs to, a list and a place.
    unsafe {
        let (object, context) = (SrqObject::of(srq), device(&raw const (*srq).context));
        post_receives(context, first, bad, |wr_id, sges| {
            check::receive(Kind::Srq, srq, wr_id, sges, || {
                object.srq.queue_recv(wr_id, sges)
            })
        })
    }
}
