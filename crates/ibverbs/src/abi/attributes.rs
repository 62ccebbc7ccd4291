//! What objects are made with, and what can be set and asked.

use core::ffi::{c_int, c_uint, c_void};

use super::{CompChannel, Cq, Gid, Pd, Srq, Td, Xrcd, layout};

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_ah_attr`, its `struct ibv_global_route` unfolded.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct AhAttr {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QpCap,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_qp_init_attr`. What follows its last field is not touched: there the extended form
/// goes on.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    /// Padding here, the mask of what follows in the extended form.
    pub(crate) comp_mask: u32,
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
pub(crate) struct QpInitAttrEx {
    pub(crate) base: QpInitAttr,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

/// `struct ibv_qp_open_attr`.
#[repr(C)]
pub(crate) struct QpOpenAttr {
    pub(crate) comp_mask: u32,
    pub(crate) qp_num: u32,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) qp_context: *mut c_void,
    pub(crate) qp_type: c_int,
}

/// `struct ibv_srq_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SrqInitAttr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
}

/// `struct ibv_srq_init_attr_ex`.
#[repr(C)]
pub(crate) struct SrqInitAttrEx {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_int,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut Xrcd,
    pub(crate) cq: *mut Cq,
    pub(crate) tm_cap: [u32; 2],
}

/// `struct ibv_xrcd_init_attr`.
#[repr(C)]
pub(crate) struct XrcdInitAttr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: c_int,
    pub(crate) oflags: c_int,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
pub(crate) struct CqInitAttrEx {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut CompChannel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut Pd,
}

/// `struct ibv_modify_cq_attr`.
#[repr(C)]
pub(crate) struct ModifyCqAttr {
    pub(crate) attr_mask: u32,
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}

/// `struct ibv_td_init_attr`.
#[repr(C)]
pub(crate) struct TdInitAttr {
    pub(crate) comp_mask: u32,
}

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
pub(crate) struct ParentDomainInitAttr {
    pub(crate) pd: *mut Pd,
    pub(crate) td: *mut Td,
    pub(crate) comp_mask: u32,
    pub(crate) alloc: usize,
    pub(crate) free: usize,
    pub(crate) pd_context: *mut c_void,
}

/// `struct ibv_values_ex`.
#[repr(C)]
pub(crate) struct ValuesEx {
    pub(crate) comp_mask: u32,
    pub(crate) raw_clock: libc::timespec,
}

/// `struct ibv_ece`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Ece {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}

layout! {
    QpCap: 20 { max_inline_data 16 }
    AhAttr: 32 {
        flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22, dlid 24, sl 26,
        src_path_bits 27, static_rate 28, is_global 29, port_num 30,
    }
    QpAttr: 144 {
        cap 36, ah_attr 56, alt_ah_attr 88, pkey_index 120, max_rd_atomic 126,
        max_dest_rd_atomic 127, min_rnr_timer 128, port_num 129, timeout 130, retry_cnt 131,
        rnr_retry 132, rate_limit 136,
    }
    QpInitAttr: 64 { cap 32, qp_type 52, sq_sig_all 56, comp_mask 60 }
    QpInitAttrEx: 136 {
        pd 64, xrcd 72, create_flags 80, max_tso_header 84, rwq_ind_tbl 88, rx_hash_conf 96,
        source_qpn 120, send_ops_flags 128,
    }
    QpOpenAttr: 32 { qp_num 4, xrcd 8, qp_context 16, qp_type 24 }
    SrqAttr: 12 { srq_limit 8 }
    SrqInitAttr: 24 { attr 8 }
    SrqInitAttrEx: 64 { attr 8, comp_mask 20, srq_type 24, pd 32, xrcd 40, cq 48, tm_cap 56 }
    XrcdInitAttr: 12 { fd 4, oflags 8 }
    CqInitAttrEx: 56 {
        cq_context 8, channel 16, comp_vector 24, wc_flags 32, comp_mask 40, flags 44,
        parent_domain 48,
    }
    ModifyCqAttr: 8 { cq_count 4, cq_period 6 }
    ParentDomainInitAttr: 48 { td 8, comp_mask 16, alloc 24, free 32, pd_context 40 }
    ValuesEx: 24 { raw_clock 8 }
    Ece: 12 { options 4, comp_mask 8 }
}
