//! Work requests and completions.

use core::ffi::{c_int, c_uint, c_void};

use crate::{Ah, Mr, Mw, layout};

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// The part of `struct ibv_send_wr` that every caller has. Structures of old callers end here; what
/// follows is read only where the operation says that it is there ([`BindPart`]).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    /// Immediate data as on the wire, or a key in host order.
    pub imm_or_rkey: u32,
    pub op: SendPart,
    pub xrc_srqn: u32,
}

/// The union `wr` of a send request.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SendPart {
    pub rdma: RdmaPart,
    pub atomic: AtomicPart,
    pub ud: UdPart,
}

/// WRITE and READ.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RdmaPart {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Atomics.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AtomicPart {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// Datagrams.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UdPart {
    pub ah: *mut Ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// What follows [`SendWr`] when it binds a window.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BindPart {
    pub mw: *mut Mw,
    pub rkey: u32,
    pub info: MwBindInfo,
}

/// `struct ibv_mw_bind_info`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MwBindInfo {
    pub mr: *mut Mr,
    pub addr: u64,
    pub length: u64,
    pub access: c_uint,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
pub struct MwBind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub info: MwBindInfo,
}

/// `struct ibv_data_buf`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DataBuf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data as on the wire, or a key in host order.
    pub imm_or_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `enum ibv_wr_opcode`.
pub mod opcode {
    pub const RDMA_WRITE: i32 = 0;
    pub const RDMA_WRITE_WITH_IMM: i32 = 1;
    pub const SEND: i32 = 2;
    pub const SEND_WITH_IMM: i32 = 3;
    pub const RDMA_READ: i32 = 4;
    pub const ATOMIC_CMP_AND_SWP: i32 = 5;
    pub const ATOMIC_FETCH_AND_ADD: i32 = 6;
    pub const LOCAL_INV: i32 = 7;
    pub const BIND_MW: i32 = 8;
    pub const SEND_WITH_INV: i32 = 9;
    pub const ATOMIC_WRITE: i32 = 15;
}

/// `enum ibv_send_flags`.
pub mod send_flags {
    pub const FENCE: u32 = 1;
    pub const SIGNALED: u32 = 2;
    pub const SOLICITED: u32 = 4;
    pub const INLINE: u32 = 8;
}

/// `enum ibv_wc_flags`.
pub mod wc_flags {
    pub const GRH: u32 = 1;
    pub const WITH_IMM: u32 = 2;
    pub const WITH_INV: u32 = 8;
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
