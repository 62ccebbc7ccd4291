//! Work requests and completions.

use core::ffi::{c_int, c_uint, c_void};

use super::{Ah, Mr, Mw, layout};

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

/// The part of `struct ibv_send_wr` that every caller has. Structures of old callers end here; what
/// follows is read only where the operation says that it is there ([`BindPart`]).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    /// Immediate data as on the wire, or a key in host order.
    pub(crate) imm_or_rkey: u32,
    pub(crate) op: SendPart,
    pub(crate) xrc_srqn: u32,
}

/// The union `wr` of a send request.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SendPart {
    pub(crate) rdma: RdmaPart,
    pub(crate) atomic: AtomicPart,
    pub(crate) ud: UdPart,
}

/// WRITE and READ.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RdmaPart {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

/// Atomics.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AtomicPart {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

/// Datagrams.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UdPart {
    pub(crate) ah: *mut Ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// What follows [`SendWr`] when it binds a window.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BindPart {
    pub(crate) mw: *mut Mw,
    pub(crate) rkey: u32,
    pub(crate) info: MwBindInfo,
}

/// `struct ibv_mw_bind_info`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MwBindInfo {
    pub(crate) mr: *mut Mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: c_uint,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
pub(crate) struct MwBind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) info: MwBindInfo,
}

/// `struct ibv_data_buf`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DataBuf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data as on the wire, or a key in host order.
    pub(crate) imm_or_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// `enum ibv_wr_opcode`.
pub(crate) mod opcode {
    pub(crate) const RDMA_WRITE: i32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: i32 = 1;
    pub(crate) const SEND: i32 = 2;
    pub(crate) const SEND_WITH_IMM: i32 = 3;
    pub(crate) const RDMA_READ: i32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: i32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: i32 = 6;
    pub(crate) const LOCAL_INV: i32 = 7;
    pub(crate) const BIND_MW: i32 = 8;
    pub(crate) const SEND_WITH_INV: i32 = 9;
    pub(crate) const ATOMIC_WRITE: i32 = 15;
}

/// `enum ibv_send_flags`.
pub(crate) mod send_flags {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 2;
    pub(crate) const SOLICITED: u32 = 4;
    pub(crate) const INLINE: u32 = 8;
}

/// `enum ibv_wc_flags`.
pub(crate) mod wc_flags {
    pub(crate) const GRH: u32 = 1;
    pub(crate) const WITH_IMM: u32 = 2;
    pub(crate) const WITH_INV: u32 = 8;
}

layout! {
    Sge: 16 { length 8, lkey 12 }
    RecvWr: 32 { next 8, sg_list 16, num_sge 24 }
    SendWr: 80 {
        next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_or_rkey 36, op 40, xrc_srqn 72,
    }
    RdmaPart: 16 { rkey 8 }
    AtomicPart: 32 { compare_add 8, swap 16, rkey 24 }
    UdPart: 16 { remote_qpn 8, remote_qkey 12 }
    BindPart: 48 { rkey 8, info 16 }
    MwBindInfo: 32 { addr 8, length 16, access 24 }
    MwBind: 48 { send_flags 8, info 16 }
    DataBuf: 16 { length 8 }
    Wc: 48 {
        status 8, opcode 12, vendor_err 16, byte_len 20, imm_or_rkey 24, qp_num 28, src_qp 32,
        wc_flags 36, pkey_index 40, slid 42, sl 44, dlid_path_bits 45,
    }
}
