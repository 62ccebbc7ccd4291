//! Objects as applications see them. What this library changes after it made one is atomic or read
//! by nobody else; the rest never changes.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32};

use super::{Cond, ContextOps, Device, Mutex, layout};

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: Mutex,
    /// All ones: there are operations in front of this structure.
    pub(crate) abi_compat: usize,
}

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
    pub(crate) handle: u32,
}

/// `struct ibv_td`.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) context: *mut Context,
}

/// `struct ibv_xrcd`.
#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) context: *mut Context,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct Mw {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) rkey: AtomicU32,
    pub(crate) handle: u32,
    pub(crate) kind: c_int,
}

/// `struct ibv_ah`.
#[repr(C)]
pub(crate) struct Ah {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: AtomicI32,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompChannel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: AtomicI32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) comp_events_completed: AtomicU32,
    pub(crate) async_events_completed: AtomicU32,
}

/// `struct ibv_srq`.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) context: *mut Context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: AtomicU32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: AtomicI32,
    pub(crate) qp_type: c_int,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: AtomicU32,
}

/// `struct ibv_async_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AsyncEvent {
    /// A pointer to the object, or the number of the port.
    pub(crate) element: usize,
    pub(crate) event_type: c_uint,
}

layout! {
    Context: 328 { ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280, abi_compat 320 }
    Pd: 16 { handle 8 }
    Td: 8 { context 0 }
    Xrcd: 8 { context 0 }
    Mr: 48 { pd 8, addr 16, length 24, handle 32, lkey 36, rkey 40 }
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
