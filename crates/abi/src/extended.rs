//! The objects of the extended interfaces: functions inside the object itself.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};

use crate::{Ah, Cq, DataBuf, Mw, MwBindInfo, Qp, Sge, layout};

/// `struct ibv_wc_tm_info`.
#[repr(C)]
pub struct TmInfo {
    pub tag: u64,
    pub private: u32,
}

/// `struct ibv_cq_ex`.
#[repr(C)]
pub struct CqEx {
    pub cq: Cq,
    pub comp_mask: u32,
    /// Of the completion that is being looked at, as `wr_id` is.
    pub status: UnsafeCell<c_int>,
    pub wr_id: UnsafeCell<u64>,
    pub start_poll: unsafe extern "C" fn(*mut Self, *mut c_void) -> c_int,
    pub next_poll: unsafe extern "C" fn(*mut Self) -> c_int,
    pub end_poll: unsafe extern "C" fn(*mut Self),
    pub read_opcode: unsafe extern "C" fn(*mut Self) -> c_int,
    pub read_vendor_err: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_byte_len: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_imm_data: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_qp_num: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_src_qp: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_wc_flags: unsafe extern "C" fn(*mut Self) -> c_uint,
    pub read_slid: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_sl: unsafe extern "C" fn(*mut Self) -> u8,
    pub read_dlid_path_bits: unsafe extern "C" fn(*mut Self) -> u8,
    pub read_completion_ts: unsafe extern "C" fn(*mut Self) -> u64,
    pub read_cvlan: unsafe extern "C" fn(*mut Self) -> u16,
    pub read_flow_tag: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_tm_info: unsafe extern "C" fn(*mut Self, *mut TmInfo),
    pub read_completion_wallclock_ns: unsafe extern "C" fn(*mut Self) -> u64,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
pub struct QpEx {
    pub qp: Qp,
    pub comp_mask: u64,
    /// Set by the caller for the next request, as `wr_flags` is.
    pub wr_id: UnsafeCell<u64>,
    pub wr_flags: UnsafeCell<c_uint>,
    pub wr: QpExOps,
}

/// The functions of `struct ibv_qp_ex`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QpExOps {
    pub atomic_cmp_swp: unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64),
    pub atomic_fetch_add: unsafe extern "C" fn(*mut QpEx, u32, u64, u64),
    pub bind_mw: unsafe extern "C" fn(*mut QpEx, *mut Mw, u32, *const MwBindInfo),
    pub local_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub rdma_read: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub rdma_write: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub rdma_write_imm: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub send: unsafe extern "C" fn(*mut QpEx),
    pub send_imm: unsafe extern "C" fn(*mut QpEx, u32),
    pub send_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub send_tso: unsafe extern "C" fn(*mut QpEx, *mut c_void, u16, u16),
    pub set_ud_addr: unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32),
    pub set_xrc_srqn: unsafe extern "C" fn(*mut QpEx, u32),
    pub set_inline_data: unsafe extern "C" fn(*mut QpEx, *mut c_void, usize),
    pub set_inline_data_list: unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf),
    pub set_sge: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub set_sge_list: unsafe extern "C" fn(*mut QpEx, usize, *const Sge),
    pub start: unsafe extern "C" fn(*mut QpEx),
    pub complete: unsafe extern "C" fn(*mut QpEx) -> c_int,
    pub abort: unsafe extern "C" fn(*mut QpEx),
    pub atomic_write: unsafe extern "C" fn(*mut QpEx, u32, u64, *const c_void),
    /// Since version 45; earlier programs do not look here.
    pub flush: unsafe extern "C" fn(*mut QpEx, u32, u64, usize, u8, u8),
}

layout! {
    CqEx: 288 {
        comp_mask 128, status 132, wr_id 136, start_poll 144, read_opcode 168,
        read_completion_wallclock_ns 280,
    }
    QpEx: 360 { comp_mask 160, wr_id 168, wr_flags 176, wr 184 }
    QpExOps: 176 { start 136, atomic_write 160, flush 168 }
}
