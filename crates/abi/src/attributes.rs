//! What objects are made with, and what can be set and asked.

use core::ffi::{c_int, c_uint, c_void};

use crate::{CompChannel, Cq, Gid, Pd, Srq, Td, Xrcd, layout};

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_ah_attr`, its `struct ibv_global_route` unfolded.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_qp_init_attr`. What follows its last field is not touched: there the extended form
/// goes on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    /// Padding here, the mask of what follows in the extended form.
    pub comp_mask: u32,
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
pub struct QpInitAttrEx {
    pub base: QpInitAttr,
    pub pd: *mut Pd,
    pub xrcd: *mut Xrcd,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

/// `struct ibv_qp_open_attr`.
#[repr(C)]
pub struct QpOpenAttr {
    pub comp_mask: u32,
    pub qp_num: u32,
    pub xrcd: *mut Xrcd,
    pub qp_context: *mut c_void,
    pub qp_type: c_int,
}

/// `struct ibv_srq_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

/// `struct ibv_srq_init_attr_ex`.
#[repr(C)]
pub struct SrqInitAttrEx {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
    pub comp_mask: u32,
    pub srq_type: c_int,
    pub pd: *mut Pd,
    pub xrcd: *mut Xrcd,
    pub cq: *mut Cq,
    pub tm_cap: [u32; 2],
}

/// `struct ibv_xrcd_init_attr`.
#[repr(C)]
pub struct XrcdInitAttr {
    pub comp_mask: u32,
    pub fd: c_int,
    pub oflags: c_int,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
pub struct CqInitAttrEx {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut CompChannel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut Pd,
}

/// `struct ibv_modify_cq_attr`.
#[repr(C)]
pub struct ModifyCqAttr {
    pub attr_mask: u32,
    pub cq_count: u16,
    pub cq_period: u16,
}

/// `struct ibv_td_init_attr`.
#[repr(C)]
pub struct TdInitAttr {
    pub comp_mask: u32,
}

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
pub struct ParentDomainInitAttr {
    pub pd: *mut Pd,
    pub td: *mut Td,
    pub comp_mask: u32,
    pub alloc: usize,
    pub free: usize,
    pub pd_context: *mut c_void,
}

/// `struct ibv_mr_init_attr`: which of its fields there are is said by `comp_mask`.
#[repr(C)]
pub struct MrInitAttr {
    pub length: usize,
    pub access: c_int,
    pub comp_mask: u64,
    pub iova: u64,
    pub addr: *mut c_void,
    pub fd: c_int,
    pub fd_offset: u64,
    pub dmah: *mut c_void,
    pub buf: *mut c_void,
}

/// `IBV_REG_MR_MASK_…`.
pub mod reg_mr_mask {
    pub const IOVA: u64 = 1;
    pub const ADDR: u64 = 1 << 1;
    pub const FD: u64 = 1 << 2;
    pub const FD_OFFSET: u64 = 1 << 3;
    pub const DMAH: u64 = 1 << 4;
    pub const BUF: u64 = 1 << 5;
    pub const ALL: u64 = 0x3f;
}

/// `struct ibv_comp_cntr_caps`.
#[repr(C)]
pub struct CompCntrCaps {
    pub max_value: u64,
    pub max_counters: u32,
    pub supported_qp_attach_ops: u32,
}

/// `struct ibv_comp_cntr_init_attr`.
#[derive(Default)]
#[repr(C)]
pub struct CompCntrInitAttr {
    pub comp_mask: u32,
    pub kind: c_uint,
    pub flags: u32,
}

/// `struct ibv_qp_attach_comp_cntr_attr`.
#[repr(C)]
pub struct QpAttachCompCntrAttr {
    pub comp_mask: u32,
    pub op_mask: u32,
}

/// `struct ibv_alloc_dm_attr`.
#[repr(C)]
pub struct AllocDmAttr {
    pub length: usize,
    pub log_align_req: u32,
    pub comp_mask: u32,
}

/// `struct ibv_values_ex`.
#[repr(C)]
pub struct ValuesEx {
    pub comp_mask: u32,
    pub raw_clock: libc::timespec,
}

/// `struct ibv_ece`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Ece {
    pub vendor_id: u32,
    pub options: u32,
    pub comp_mask: u32,
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
    MrInitAttr: 72 { access 8, comp_mask 16, iova 24, addr 32, fd 40, fd_offset 48, dmah 56, buf 64 }
    CompCntrCaps: 16 { max_counters 8, supported_qp_attach_ops 12 }
    CompCntrInitAttr: 12 { kind 4, flags 8 }
    QpAttachCompCntrAttr: 8 { op_mask 4 }
    AllocDmAttr: 16 { log_align_req 8, comp_mask 12 }
    ValuesEx: 24 { raw_clock 8 }
    Ece: 12 { options 4, comp_mask 8 }
}
