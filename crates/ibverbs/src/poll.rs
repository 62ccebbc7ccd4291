//! Completions, as C programs take them.

use core::ffi::c_int;

use hirail::{Arm, Wc, WcPayload};

use crate::abi;
use crate::abi::wc_flags;
use crate::check;
use crate::cq::CqObject;
use crate::entry::{Object, count, device, status};
use crate::errno::Errno;

/// `poll_cq`: how many there were, or a negative number of `errno.h`.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut abi::Cq,
    max: c_int,
    completions: *mut abi::Wc,
) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (CqObject::of(cq), device(&raw const (*cq).context)) };
    count(context, || {
        let max = usize::try_from(max).map_err(|_| Errno::INVALID)?;
        let mut next = completions;
        let taken = object.cq.poll(max, |wc| {
            // SAFETY: the caller has room for `max`.
            unsafe {
                next.write(completion(&wc));
                next = next.add(1);
            }
        })?;
        // SAFETY: so many were written.
        let told = (0..taken).map(|place| check::completion(unsafe { &*completions.add(place) }));
        check::polled(context, cq, told);
        Ok(taken as c_int)
    })
}

/// The flags of a completion.
#[inline]
pub(crate) fn flags(wc: &Wc) -> u32 {
    let payload = match wc.payload {
        WcPayload::None => 0,
        WcPayload::Imm(_) => wc_flags::WITH_IMM,
        WcPayload::Invalidated(_) => wc_flags::WITH_INV,
    };
    payload | if wc.grh { wc_flags::GRH } else { 0 }
}

/// Immediate data as on the wire, or the key that was invalidated.
#[inline]
pub(crate) fn imm_or_rkey(wc: &Wc) -> u32 {
    match wc.payload {
        WcPayload::None => 0,
        WcPayload::Imm(imm) => u32::from_ne_bytes(imm),
        WcPayload::Invalidated(rkey) => rkey.value(),
    }
}

/// Service level. There is none in RoCE v2, and for a datagram ConnectX cards put the kind of its
/// network header there: bit 3 for UDP, and 1 for IPv6 or 2 for IPv4. UCX takes its word for it, and
/// looks for the destination accordingly.
#[inline]
pub(crate) fn service_level(wc: &Wc) -> u8 {
    const UDP: u8 = 1 << 3;
    match (wc.grh, wc.grh_is_ipv4) {
        (false, _) => wc.sl,
        (true, false) => UDP | 1,
        (true, true) => UDP | 2,
    }
}

#[inline]
fn completion(wc: &Wc) -> abi::Wc {
    abi::Wc {
        wr_id: wc.wr_id,
        status: wc.status.code().into(),
        opcode: wc.opcode.code().into(),
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        imm_or_rkey: imm_or_rkey(wc),
        qp_num: wc.qpn.value(),
        src_qp: wc.src_qp.value(),
        wc_flags: flags(wc),
        pkey_index: wc.pkey_index,
        slid: 0,
        sl: service_level(wc),
        dlid_path_bits: 0,
    }
}

/// `req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut abi::Cq, solicited_only: c_int) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (CqObject::of(cq), device(&raw const (*cq).context)) };
    status(context, || {
        let arm = if solicited_only == 0 {
            Arm::Any
        } else {
            Arm::Solicited
        };
        object.cq.arm(arm)?;
        Ok(())
    })
}
