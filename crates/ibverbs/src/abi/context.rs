//! The open device: the function table of `struct ibv_context`, and the one that lies in front of it.

use core::ffi::{c_int, c_void};

use super::{
    Context, Cq, CqEx, CqInitAttrEx, DeviceAttr, DeviceAttrEx, ModifyCqAttr, Mw, MwBind,
    ParentDomainInitAttr, Pd, PortAttr, Qp, QpInitAttrEx, QpOpenAttr, RecvWr, SendWr, Srq,
    SrqInitAttrEx, Td, TdInitAttr, ValuesEx, Wc, Xrcd, XrcdInitAttr, layout,
};

/// A slot for an operation that this library does not have: the caller reports `EOPNOTSUPP`.
pub(crate) type Absent = usize;

/// `struct ibv_context_ops`: what inline functions call. Slots without a name are history.
#[repr(C)]
pub(crate) struct ContextOps {
    pub(crate) query_device: unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int,
    pub(crate) query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int,
    pub(crate) history_2: [usize; 5],
    pub(crate) alloc_mw: unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw,
    pub(crate) bind_mw: unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> c_int,
    pub(crate) dealloc_mw: unsafe extern "C" fn(*mut Mw) -> c_int,
    pub(crate) history_10: [usize; 1],
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub(crate) history_13: [usize; 7],
    pub(crate) post_srq_recv:
        unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub(crate) history_21: [usize; 4],
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub(crate) history_27: [usize; 5],
}

/// What lies in front of `struct ibv_context` (`struct verbs_context`), in the order of addresses.
#[repr(C)]
pub(crate) struct ExtendedOps {
    pub(crate) query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int,
    pub(crate) advise_mr: unsafe extern "C" fn(*mut Pd, c_int, u32, *mut c_void, u32) -> c_int,
    pub(crate) alloc_null_mr: Absent,
    pub(crate) read_counters: Absent,
    pub(crate) attach_counters_point_flow: Absent,
    pub(crate) create_counters: Absent,
    pub(crate) destroy_counters: Absent,
    pub(crate) reg_dm_mr: Absent,
    pub(crate) alloc_dm: Absent,
    pub(crate) free_dm: Absent,
    pub(crate) modify_flow_action_esp: Absent,
    pub(crate) destroy_flow_action: Absent,
    pub(crate) create_flow_action_esp: Absent,
    pub(crate) modify_qp_rate_limit: Absent,
    pub(crate) alloc_parent_domain:
        unsafe extern "C" fn(*mut Context, *mut ParentDomainInitAttr) -> *mut Pd,
    pub(crate) dealloc_td: unsafe extern "C" fn(*mut Td) -> c_int,
    pub(crate) alloc_td: unsafe extern "C" fn(*mut Context, *mut TdInitAttr) -> *mut Td,
    pub(crate) modify_cq: unsafe extern "C" fn(*mut Cq, *mut ModifyCqAttr) -> c_int,
    pub(crate) post_srq_ops: Absent,
    pub(crate) destroy_rwq_ind_table: Absent,
    pub(crate) create_rwq_ind_table: Absent,
    pub(crate) destroy_wq: Absent,
    pub(crate) modify_wq: Absent,
    pub(crate) create_wq: Absent,
    pub(crate) query_rt_values: unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> c_int,
    pub(crate) create_cq_ex: unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx,
    pub(crate) private: usize,
    pub(crate) query_device_ex:
        unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int,
    pub(crate) destroy_flow: Absent,
    pub(crate) destroy_flow_placeholder: Absent,
    pub(crate) create_flow: Absent,
    pub(crate) create_flow_placeholder: Absent,
    pub(crate) open_qp: unsafe extern "C" fn(*mut Context, *mut QpOpenAttr) -> *mut Qp,
    pub(crate) create_qp_ex: unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp,
    pub(crate) get_srq_num: unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int,
    pub(crate) create_srq_ex: unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq,
    pub(crate) open_xrcd: unsafe extern "C" fn(*mut Context, *mut XrcdInitAttr) -> *mut Xrcd,
    pub(crate) close_xrcd: unsafe extern "C" fn(*mut Xrcd) -> c_int,
    pub(crate) placeholder: usize,
    /// Bytes of the whole block up to the end of `struct ibv_context`.
    pub(crate) size: usize,
}

impl ExtendedOps {
    /// What `size` says.
    pub(crate) const SIZE: usize = size_of::<Self>() + size_of::<Context>();
}

layout! {
    ContextOps: 256 {
        query_device 0, query_port 8, alloc_mw 56, bind_mw 64, dealloc_mw 72, poll_cq 88,
        req_notify_cq 96, post_srq_recv 160, post_send 200, post_recv 208,
    }
    ExtendedOps: 320 {
        query_port 0, advise_mr 8, alloc_parent_domain 112, dealloc_td 120, alloc_td 128,
        modify_cq 136, query_rt_values 192, create_cq_ex 200, private 208, query_device_ex 216,
        open_qp 256, create_qp_ex 264, get_srq_num 272, create_srq_ex 280, open_xrcd 288,
        close_xrcd 296, size 312,
    }
}
const _: () = assert!(ExtendedOps::SIZE == 648);
