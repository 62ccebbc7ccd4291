//! Objects as applications see them. What this library changes after it made one is atomic or read
//! by nobody else; the rest never changes.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32};

use crate::{Cond, ContextOps, Device, Mutex, layout};

/// `struct ibv_context`.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: Mutex,
    /// All ones: there are operations in front of this structure.
    pub abi_compat: usize,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

/// `struct ibv_td`.
#[repr(C)]
pub struct Td {
    pub context: *mut Context,
}

/// `struct ibv_xrcd`.
#[repr(C)]
pub struct Xrcd {
    pub context: *mut Context,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_dm`.
#[repr(C)]
pub struct Dm {
    pub context: *mut Context,
    pub memcpy_to_dm: unsafe extern "C" fn(*mut Self, u64, *const c_void, usize) -> c_int,
    pub memcpy_from_dm: unsafe extern "C" fn(*mut c_void, *mut Self, u64, usize) -> c_int,
    pub comp_mask: u32,
    pub handle: u32,
}

/// `struct ibv_comp_cntr`.
#[repr(C)]
pub struct CompCntr {
    pub context: *mut Context,
    pub handle: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub struct Mw {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub rkey: AtomicU32,
    pub handle: u32,
    pub kind: c_int,
}

/// `struct ibv_ah`.
#[repr(C)]
pub struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: AtomicI32,
}

/// `struct ibv_cq`.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: AtomicI32,
    pub mutex: Mutex,
    pub cond: Cond,
    pub comp_events_completed: AtomicU32,
    pub async_events_completed: AtomicU32,
}

/// `struct ibv_srq`.
#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
    pub srq_context: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
    pub mutex: Mutex,
    pub cond: Cond,
    pub events_completed: AtomicU32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: AtomicI32,
    pub qp_type: c_int,
    pub mutex: Mutex,
    pub cond: Cond,
    pub events_completed: AtomicU32,
}

/// `struct ibv_async_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AsyncEvent {
    /// A pointer to the object, or the number of the port.
    pub element: usize,
    pub event_type: c_uint,
}

layout! {
    Context: 328 { ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280, abi_compat 320 }
    Pd: 16 { handle 8 }
    Td: 8 { context 0 }
    Xrcd: 8 { context 0 }
    Mr: 48 { pd 8, addr 16, length 24, handle 32, lkey 36, rkey 40 }
    Dm: 32 { memcpy_to_dm 8, memcpy_from_dm 16, comp_mask 24, handle 28 }
    CompCntr: 16 { handle 8 }
    Mw: 32 { pd 8, rkey 16, handle 20, kind 24 }
    Ah: 24 { pd 8, handle 16 }
    CompChannel: 16 { fd 8, refcnt 12 }
    Cq: 128 {
        channel 8, cq_context 16, handle 24, cqe 28, mutex 32, cond 72, comp_events_completed 120,
        async_events_completed 124,
    }
    Srq: 128 { srq_context 8, pd 16, handle 24, mutex 32, cond 72, events_completed 120 }
    Qp: 160 {
        qp_context 8, pd 16, send_cq 24, recv_cq 32, srq 40, handle 48, qp_num 52, state 56,
        qp_type 60, mutex 64, cond 104, events_completed 152,
    }
    AsyncEvent: 16 { event_type 8 }
}
