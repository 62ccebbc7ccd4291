//! `rdma/rdma_cma.h`: ids, their routes and events.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::{AhAttr, CompChannel, Context, Cq, Gid, Pd, Qp, Srq, layout};

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// `struct ibv_sa_path_rec`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct SaPathRec {
    pub dgid: Gid,
    pub sgid: Gid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

/// `struct rdma_addr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RdmaAddr {
    pub src: libc::sockaddr_storage,
    pub dst: libc::sockaddr_storage,
    pub sgid: Gid,
    pub dgid: Gid,
    /// In network order.
    pub pkey: u16,
}

/// `struct rdma_route`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RdmaRoute {
    pub addr: RdmaAddr,
    pub path_rec: *mut SaPathRec,
    pub num_paths: c_int,
}

/// `struct rdma_cm_id`.
#[repr(C)]
pub struct RdmaCmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut Qp,
    pub route: RdmaRoute,
    pub ps: c_int,
    pub port_num: u8,
    pub event: *mut RdmaCmEvent,
    pub send_cq_channel: *mut CompChannel,
    pub send_cq: *mut Cq,
    pub recv_cq_channel: *mut CompChannel,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub pd: *mut Pd,
    pub qp_type: c_int,
}

/// `struct rdma_conn_param`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_ud_param`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UdParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: AhAttr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// The union `param` of an event.
#[derive(Clone, Copy)]
#[repr(C)]
pub union EventParam {
    pub conn: ConnParam,
    pub ud: UdParam,
    /// Of events that the program has written itself.
    pub arg: u64,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub struct RdmaCmEvent {
    pub id: *mut RdmaCmId,
    pub listen_id: *mut RdmaCmId,
    pub event: c_uint,
    pub status: c_int,
    pub param: EventParam,
}

/// `struct rdma_addrinfo`.
#[repr(C)]
pub struct RdmaAddrInfo {
    pub flags: c_int,
    pub family: c_int,
    pub qp_type: c_int,
    pub port_space: c_int,
    pub src_len: libc::socklen_t,
    pub dst_len: libc::socklen_t,
    pub src_addr: *mut libc::sockaddr,
    pub dst_addr: *mut libc::sockaddr,
    pub src_canonname: *mut c_char,
    pub dst_canonname: *mut c_char,
    pub route_len: usize,
    pub route: *mut c_void,
    pub connect_len: usize,
    pub connect: *mut c_void,
    pub next: *mut Self,
}

/// `struct rdma_cm_join_mc_attr_ex`.
#[repr(C)]
pub struct JoinMcAttrEx {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut libc::sockaddr,
}

layout! {
    EventChannel: 4 { fd 0 }
    SaPathRec: 64 {
        sgid 16, dlid 32, slid 34, raw_traffic 36, flow_label 40, hop_limit 44, traffic_class 45,
        reversible 48, numb_path 52, pkey 54, sl 56, mtu 58, rate 60, packet_life_time 62,
    }
    RdmaAddr: 296 { dst 128, sgid 256, dgid 272, pkey 288 }
    RdmaRoute: 312 { path_rec 296, num_paths 304 }
    RdmaCmId: 416 {
        channel 8, context 16, qp 24, route 32, ps 344, port_num 348, event 352,
        send_cq_channel 360, send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392, pd 400,
        qp_type 408,
    }
    ConnParam: 24 {
        private_data_len 8, responder_resources 9, initiator_depth 10, flow_control 11,
        retry_count 12, rnr_retry_count 13, srq 14, qp_num 16,
    }
    UdParam: 56 { private_data_len 8, ah_attr 16, qp_num 48, qkey 52 }
    RdmaCmEvent: 80 { listen_id 8, event 16, status 20, param 24 }
    RdmaAddrInfo: 96 {
        family 4, qp_type 8, port_space 12, src_len 16, dst_len 20, src_addr 24, dst_addr 32,
        src_canonname 40, dst_canonname 48, route_len 56, route 64, connect_len 72, connect 80,
        next 88,
    }
    JoinMcAttrEx: 16 { join_flags 4, addr 8 }
}
