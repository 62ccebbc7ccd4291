//! Events and their names.

use core::ffi::{c_char, c_uint};

/// `enum rdma_cm_event_type`.
pub(crate) mod kind {
    pub(crate) const ADDR_RESOLVED: u32 = 0;
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_RESOLVED: u32 = 2;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_RESPONSE: u32 = 5;
    pub(crate) const CONNECT_ERROR: u32 = 6;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const MULTICAST_JOIN: u32 = 12;
    pub(crate) const MULTICAST_ERROR: u32 = 13;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
    pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
    pub(crate) const USER: u32 = 18;
}

/// `rdma_event_str`.
pub(crate) unsafe extern "C" fn event_str(event: c_uint) -> *const c_char {
    let name = match event {
        kind::ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        kind::ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        kind::ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        kind::CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        kind::CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        kind::CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        kind::UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        kind::REJECTED => c"RDMA_CM_EVENT_REJECTED",
        kind::ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        kind::DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        kind::MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        kind::MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        kind::TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        kind::ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        17 => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        kind::USER => c"RDMA_CM_EVENT_USER",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn names() {
        // SAFETY: constant text.
        let name = |event| unsafe { CStr::from_ptr(event_str(event)) };
        assert_eq!(name(0), c"RDMA_CM_EVENT_ADDR_RESOLVED");
        assert_eq!(name(9), c"RDMA_CM_EVENT_ESTABLISHED");
        assert_eq!(name(15), c"RDMA_CM_EVENT_TIMEWAIT_EXIT");
        assert_eq!(name(99), c"UNKNOWN EVENT");
    }
}
