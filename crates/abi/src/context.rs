//! The open device: the function table of `struct ibv_context`, and the one that lies in front of it.

use core::ffi::{c_int, c_uint, c_void};

use crate::{
    AllocDmAttr, Context, Cq, CqEx, CqInitAttrEx, DeviceAttr, DeviceAttrEx, Dm, ModifyCqAttr, Mr,
    Mw, MwBind, ParentDomainInitAttr, Pd, PortAttr, Qp, QpInitAttrEx, QpOpenAttr, RecvWr, SendWr,
    Sge, Srq, SrqInitAttrEx, Td, TdInitAttr, ValuesEx, Wc, Xrcd, XrcdInitAttr, layout,
};

/// A slot for an operation that this library does not have: the caller reports `EOPNOTSUPP`.
pub type Absent = usize;

/// `struct ibv_context_ops`: what inline functions call. Slots without a name are history.
#[repr(C)]
pub struct ContextOps {
    pub query_device: unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int,
    pub query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int,
    pub history_2: [usize; 5],
    pub alloc_mw: unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw,
    pub bind_mw: unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> c_int,
    pub dealloc_mw: unsafe extern "C" fn(*mut Mw) -> c_int,
    pub history_10: [usize; 1],
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub history_13: [usize; 7],
    pub post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub history_21: [usize; 4],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub history_27: [usize; 5],
}

/// What lies in front of `struct ibv_context` (`struct verbs_context`), in the order of addresses.
#[repr(C)]
pub struct ExtendedOps {
    pub query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int,
    pub advise_mr: unsafe extern "C" fn(*mut Pd, c_int, u32, *const Sge, u32) -> c_int,
    pub alloc_null_mr: Absent,
    pub read_counters: Absent,
    pub attach_counters_point_flow: Absent,
    pub create_counters: Absent,
    pub destroy_counters: Absent,
    pub reg_dm_mr: unsafe extern "C" fn(*mut Pd, *mut Dm, u64, usize, c_uint) -> *mut Mr,
    pub alloc_dm: unsafe extern "C" fn(*mut Context, *mut AllocDmAttr) -> *mut Dm,
    pub free_dm: unsafe extern "C" fn(*mut Dm) -> c_int,
    pub modify_flow_action_esp: Absent,
    pub destroy_flow_action: Absent,
    pub create_flow_action_esp: Absent,
    pub modify_qp_rate_limit: Absent,
    pub alloc_parent_domain:
        unsafe extern "C" fn(*mut Context, *mut ParentDomainInitAttr) -> *mut Pd,
    pub dealloc_td: unsafe extern "C" fn(*mut Td) -> c_int,
    pub alloc_td: unsafe extern "C" fn(*mut Context, *mut TdInitAttr) -> *mut Td,
    pub modify_cq: unsafe extern "C" fn(*mut Cq, *mut ModifyCqAttr) -> c_int,
    pub post_srq_ops: Absent,
    pub destroy_rwq_ind_table: Absent,
    pub create_rwq_ind_table: Absent,
    pub destroy_wq: Absent,
    pub modify_wq: Absent,
    pub create_wq: Absent,
    pub query_rt_values: unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> c_int,
    pub create_cq_ex: unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx,
    pub private: usize,
    pub query_device_ex:
        unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int,
    pub destroy_flow: Absent,
    pub destroy_flow_placeholder: Absent,
    pub create_flow: Absent,
    pub create_flow_placeholder: Absent,
    pub open_qp: unsafe extern "C" fn(*mut Context, *mut QpOpenAttr) -> *mut Qp,
    pub create_qp_ex: unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp,
    pub get_srq_num: unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int,
    pub create_srq_ex: unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq,
    pub open_xrcd: unsafe extern "C" fn(*mut Context, *mut XrcdInitAttr) -> *mut Xrcd,
    pub close_xrcd: unsafe extern "C" fn(*mut Xrcd) -> c_int,
    pub placeholder: usize,
    /// Bytes of the whole block up to the end of `struct ibv_context`.
    pub size: usize,
}

impl ExtendedOps {
    /// What `size` says.
    pub const SIZE: usize = size_of::<Self>() + size_of::<Context>();
}

layout! {
    ContextOps: 256 {
        query_device 0, query_port 8, alloc_mw 56, bind_mw 64, dealloc_mw 72, poll_cq 88,
        req_notify_cq 96, post_srq_recv 160, post_send 200, post_recv 208,
    }
    ExtendedOps: 320 {
        query_port 0, advise_mr 8, reg_dm_mr 56, alloc_dm 64, free_dm 72, alloc_parent_domain 112, dealloc_td 120, alloc_td 128,
        modify_cq 136, query_rt_values 192, create_cq_ex 200, private 208, query_device_ex 216,
        open_qp 256, create_qp_ex 264, get_srq_num 272, create_srq_ex 280, open_xrcd 288,
        close_xrcd 296, size 312,
    }
}
const _: () = assert!(ExtendedOps::SIZE == 648);
