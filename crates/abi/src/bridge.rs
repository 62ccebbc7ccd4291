//! How `librdmacm.so.1` reaches `libibverbs.so.1`, where devices and connections are: one symbol of a
//! version node of hirail's own, a function that returns a table of functions.
//!
//! Functions that return a number give 0 or a number of `errno.h`; those that return a pointer give
//! NULL and leave the number in `errno`. IP addresses are GIDs: IPv4 as `::ffff:a.b.c.d`.

use core::ffi::{CStr, c_int, c_uint, c_void};

use crate::{
    Ah, AhAttr, CompChannel, Context, Cq, Device, Gid, Mr, Pd, Qp, QpAttr, QpInitAttr, Srq,
    SrqInitAttr,
};

/// The symbol that returns the table: an `extern "C" fn() -> *const Bridge`.
pub const BRIDGE_SYMBOL: &CStr = c"hirail_bridge";

/// The version node of the symbol. It changes with the table.
pub const BRIDGE_NODE: &CStr = c"HIRAIL_PRIVATE_2";

/// The connection manager of an open device.
#[repr(C)]
pub struct Cm {
    opaque: [u8; 0],
}

/// Where connections tell of their events.
#[repr(C)]
pub struct CmChannel {
    opaque: [u8; 0],
}

/// A port at an address of a device, or at all of them.
#[repr(C)]
pub struct CmPort {
    opaque: [u8; 0],
}

/// A path between two ports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct CmPath {
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub sl: u8,
}

/// The IP addresses that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct CmAddresses {
    pub source: [u8; 16],
    pub dest: [u8; 16],
    pub source_port: u16,
}

/// What a queue pair and its user say of themselves, in requests, answers and events.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CmParam {
    pub qpn: u32,
    pub qkey: u32,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    /// Status of the answer to a question.
    pub status: u8,
    /// 0 where the user has not set it.
    pub ack_timeout: u8,
    /// 0: no options.
    pub ece_vendor: u32,
    pub ece_options: u32,
    pub private_data: *const u8,
    pub private_data_len: usize,
}

/// A request for a connection or a datagram service.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CmRequest {
    pub service: u64,
    pub path: CmPath,
    pub addresses: CmAddresses,
    /// `IBV_QPT_RC` or `IBV_QPT_UC`.
    pub qp_type: c_int,
    pub param: CmParam,
}

/// What happened.
pub mod cm_event {
    pub const REQUEST: u32 = 1;
    pub const RESPONSE: u32 = 2;
    pub const ESTABLISHED: u32 = 3;
    pub const REJECTED: u32 = 4;
    pub const UNREACHABLE: u32 = 5;
    pub const DISCONNECTED: u32 = 6;
    pub const TIMEWAIT_EXIT: u32 = 7;
    pub const QUESTION: u32 = 8;
    pub const REPLY: u32 = 9;
}

/// An event. Its private data lies in the event itself.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CmEvent {
    pub kind: u32,
    /// Communication id.
    pub id: u32,
    pub cm: *mut Cm,
    /// Who heard a request; 0 if nobody did.
    pub listener: u32,
    /// Why a connection was rejected.
    pub reason: u16,
    pub request: CmRequest,
    pub private_data: [u8; 256],
}

/// The table.
#[repr(C)]
pub struct Bridge {
    // Verbs
    pub get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut Device,
    pub free_device_list: unsafe extern "C" fn(*mut *mut Device),
    pub open_device: unsafe extern "C" fn(*mut Device) -> *mut Context,
    pub alloc_pd: unsafe extern "C" fn(*mut Context) -> *mut Pd,
    pub create_comp_channel: unsafe extern "C" fn(*mut Context) -> *mut CompChannel,
    pub destroy_comp_channel: unsafe extern "C" fn(*mut CompChannel) -> c_int,
    pub create_cq:
        unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq,
    pub destroy_cq: unsafe extern "C" fn(*mut Cq) -> c_int,
    pub create_qp: unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp,
    pub destroy_qp: unsafe extern "C" fn(*mut Qp) -> c_int,
    pub modify_qp: unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int,
    pub create_srq: unsafe extern "C" fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq,
    pub destroy_srq: unsafe extern "C" fn(*mut Srq) -> c_int,
    pub attach_mcast: unsafe extern "C" fn(*mut Qp, *const Gid, u16) -> c_int,
    pub detach_mcast: unsafe extern "C" fn(*mut Qp, *const Gid, u16) -> c_int,
    pub get_cq_event:
        unsafe extern "C" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int,
    pub ack_cq_events: unsafe extern "C" fn(*mut Cq, c_uint),
    pub reg_mr: unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr,
    pub dereg_mr: unsafe extern "C" fn(*mut Mr) -> c_int,
    pub create_ah: unsafe extern "C" fn(*mut Pd, *mut AhAttr) -> *mut Ah,
    pub destroy_ah: unsafe extern "C" fn(*mut Ah) -> c_int,

    // Devices and paths
    /// The device that has an IP address.
    pub find_device: unsafe extern "C" fn(ip: *const [u8; 16]) -> *mut Device,
    /// The connection manager of an open device, which stays open.
    pub cm: unsafe extern "C" fn(*mut Context) -> *mut Cm,
    /// The path from an address of the device to another one.
    pub path: unsafe extern "C" fn(
        *mut Cm,
        local: *const [u8; 16],
        remote: *const [u8; 16],
        *mut CmPath,
    ) -> c_int,

    // Events
    pub channel_new: unsafe extern "C" fn() -> *mut CmChannel,
    /// Readable while there are events.
    pub channel_fd: unsafe extern "C" fn(*mut CmChannel) -> c_int,
    /// The oldest event, or `EAGAIN`.
    pub channel_next: unsafe extern "C" fn(*mut CmChannel, *mut CmEvent) -> c_int,
    pub channel_free: unsafe extern "C" fn(*mut CmChannel),

    // Listening
    /// Takes a port of a port space; 0 takes any.
    pub port_bind:
        unsafe extern "C" fn(*mut Cm, space: u16, ip: *const [u8; 16], port: u16) -> *mut CmPort,
    pub port_number: unsafe extern "C" fn(*mut CmPort) -> u16,
    /// Hears requests; what the listener is called in events.
    pub port_listen: unsafe extern "C" fn(
        *mut CmPort,
        backlog: u32,
        *mut CmChannel,
        listener: *mut u32,
    ) -> c_int,
    pub port_free: unsafe extern "C" fn(*mut CmPort),

    // Connections
    pub connect:
        unsafe extern "C" fn(*mut Cm, *const CmRequest, *mut CmChannel, id: *mut u32) -> c_int,
    pub query:
        unsafe extern "C" fn(*mut Cm, *const CmRequest, *mut CmChannel, id: *mut u32) -> c_int,
    pub accept: unsafe extern "C" fn(*mut Cm, id: u32, *const CmParam) -> c_int,
    pub answer: unsafe extern "C" fn(*mut Cm, id: u32, *const CmParam) -> c_int,
    pub confirm: unsafe extern "C" fn(*mut Cm, id: u32) -> c_int,
    pub reject:
        unsafe extern "C" fn(*mut Cm, id: u32, reason: u16, data: *const u8, len: usize) -> c_int,
    pub disconnect: unsafe extern "C" fn(*mut Cm, id: u32) -> c_int,
    pub destroy: unsafe extern "C" fn(*mut Cm, id: u32) -> c_int,
    /// The queue pair goes to ERR when the connection ends.
    pub attach: unsafe extern "C" fn(*mut Cm, id: u32, *mut Qp) -> c_int,
    /// What takes the queue pair to a state, and which fields are meant.
    pub attributes: unsafe extern "C" fn(
        *mut Cm,
        id: u32,
        state: c_int,
        *mut QpAttr,
        mask: *mut c_int,
    ) -> c_int,
    /// Events of a connection go to another channel from now on.
    pub move_to: unsafe extern "C" fn(*mut Cm, id: u32, *mut CmChannel) -> c_int,
}
