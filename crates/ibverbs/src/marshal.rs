//! From the structures of the kernel's connection manager to those of the verbs, which old users of
//! `/dev/infiniband` call for.

use core::ffi::c_int;

use crate::abi;

/// `struct ib_uverbs_ah_attr`.
#[repr(C)]
pub(crate) struct KernelAhAttr {
    dgid: [u8; 16],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    reserved: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    reserved_end: u8,
}

/// `struct ib_uverbs_qp_attr`.
#[repr(C)]
pub(crate) struct KernelQpAttr {
    attr_mask: u32,
    qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: KernelAhAttr,
    alt_ah_attr: KernelAhAttr,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    reserved: [u8; 5],
}

const _: () = assert!(size_of::<KernelAhAttr>() == 32 && size_of::<KernelQpAttr>() == 144);

fn ah_attr(from: &KernelAhAttr) -> abi::AhAttr {
    abi::AhAttr {
        dgid: abi::Gid(from.dgid),
        flow_label: from.flow_label,
        sgid_index: from.sgid_index,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// `ibv_copy_ah_attr_from_kern`.
pub(crate) unsafe extern "C" fn copy_ah_attr(to: *mut abi::AhAttr, from: *const KernelAhAttr) {
    // SAFETY: the caller's, both.
    unsafe { to.write(ah_attr(&*from)) }
}

/// `ibv_copy_qp_attr_from_kern`.
pub(crate) unsafe extern "C" fn copy_qp_attr(to: *mut abi::QpAttr, from: *const KernelQpAttr) {
    // SAFETY: the caller's, both.
    let (to, from) = unsafe { (&mut *to, &*from) };
    to.qp_state = from.qp_state as c_int;
    to.cur_qp_state = from.cur_qp_state as c_int;
    to.path_mtu = from.path_mtu as c_int;
    to.path_mig_state = from.path_mig_state as c_int;
    to.qkey = from.qkey;
    to.rq_psn = from.rq_psn;
    to.sq_psn = from.sq_psn;
    to.dest_qp_num = from.dest_qp_num;
    to.qp_access_flags = from.qp_access_flags;
    to.cap = abi::QpCap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    };
    to.ah_attr = ah_attr(&from.ah_attr);
    to.alt_ah_attr = ah_attr(&from.alt_ah_attr);
    to.pkey_index = from.pkey_index;
    to.alt_pkey_index = from.alt_pkey_index;
    to.en_sqd_async_notify = from.en_sqd_async_notify;
    to.sq_draining = from.sq_draining;
    to.max_rd_atomic = from.max_rd_atomic;
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    to.min_rnr_timer = from.min_rnr_timer;
    to.port_num = from.port_num;
    to.timeout = from.timeout;
    to.retry_cnt = from.retry_cnt;
    to.rnr_retry = from.rnr_retry;
    to.alt_port_num = from.alt_port_num;
    to.alt_timeout = from.alt_timeout;
}
