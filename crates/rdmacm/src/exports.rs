//! The symbols of the library, with the versions that programs ask for.
//!
//! Nearly all binaries of distributions are linked to be bound at start: one symbol missing, and the
//! program does not start. So everything is here, what the library does not have included.

use hirail_abi::export;

use crate::{
    addrinfo, channel, connect, device, endpoint, event, id, listen, missing, multicast, names,
    option, qp, resolve, srq,
};

export! {
    // Events
    channel::create_event_channel => "rdma_create_event_channel" "@@RDMACM_1.0";
    channel::destroy_event_channel => "rdma_destroy_event_channel" "@@RDMACM_1.0";
    channel::get_cm_event => "rdma_get_cm_event" "@@RDMACM_1.0";
    event::ack_cm_event => "rdma_ack_cm_event" "@@RDMACM_1.0";
    names::event_str => "rdma_event_str" "@@RDMACM_1.0";

    // Ids, addresses and routes
    id::create_id => "rdma_create_id" "@@RDMACM_1.0";
    id::destroy_id => "rdma_destroy_id" "@@RDMACM_1.0";
    id::migrate_id => "rdma_migrate_id" "@@RDMACM_1.0";
    option::set_option => "rdma_set_option" "@@RDMACM_1.0";
    resolve::bind_addr => "rdma_bind_addr" "@@RDMACM_1.0";
    resolve::resolve_addr => "rdma_resolve_addr" "@@RDMACM_1.0";
    resolve::resolve_route => "rdma_resolve_route" "@@RDMACM_1.0";
    resolve::get_src_port => "rdma_get_src_port" "@@RDMACM_1.0";
    resolve::get_dst_port => "rdma_get_dst_port" "@@RDMACM_1.0";
    addrinfo::getaddrinfo => "rdma_getaddrinfo" "@@RDMACM_1.0";
    addrinfo::freeaddrinfo => "rdma_freeaddrinfo" "@@RDMACM_1.0";
    device::get_devices => "rdma_get_devices" "@@RDMACM_1.0";
    device::free_devices => "rdma_free_devices" "@@RDMACM_1.0";

    // Connections
    listen::listen => "rdma_listen" "@@RDMACM_1.0";
    connect::connect => "rdma_connect" "@@RDMACM_1.0";
    connect::accept => "rdma_accept" "@@RDMACM_1.0";
    connect::reject => "rdma_reject" "@@RDMACM_1.0";
    connect::reject_ece => "rdma_reject_ece" "@@RDMACM_1.3";
    connect::disconnect => "rdma_disconnect" "@@RDMACM_1.0";
    connect::establish => "rdma_establish" "@@RDMACM_1.2";
    connect::notify => "rdma_notify" "@@RDMACM_1.0";
    option::set_local_ece => "rdma_set_local_ece" "@@RDMACM_1.3";
    option::get_remote_ece => "rdma_get_remote_ece" "@@RDMACM_1.3";
    endpoint::create_ep => "rdma_create_ep" "@@RDMACM_1.0";
    endpoint::destroy_ep => "rdma_destroy_ep" "@@RDMACM_1.0";
    endpoint::get_request => "rdma_get_request" "@@RDMACM_1.0";

    // Queues
    qp::create_qp => "rdma_create_qp" "@@RDMACM_1.0";
    qp::create_qp_ex => "rdma_create_qp_ex" "@@RDMACM_1.0";
    qp::destroy_qp => "rdma_destroy_qp" "@@RDMACM_1.0";
    qp::init_qp_attr => "rdma_init_qp_attr" "@@RDMACM_1.2";
    srq::create_srq => "rdma_create_srq" "@@RDMACM_1.0";
    srq::create_srq_ex => "rdma_create_srq_ex" "@@RDMACM_1.0";
    srq::destroy_srq => "rdma_destroy_srq" "@@RDMACM_1.0";
    multicast::join_multicast => "rdma_join_multicast" "@@RDMACM_1.0";
    multicast::join_multicast_ex => "rdma_join_multicast_ex" "@@RDMACM_1.1";
    multicast::leave_multicast => "rdma_leave_multicast" "@@RDMACM_1.0";
}

// What the library does not have.
export! {
    missing::status => "rdma_query_addrinfo" "@@RDMACM_1.4";
    missing::status => "rdma_resolve_addrinfo" "@@RDMACM_1.4";
    missing::status => "rdma_write_cm_event" "@@RDMACM_1.4";

    // Sockets
    missing::status => "rsocket" "@@RDMACM_1.0";
    missing::status => "rbind" "@@RDMACM_1.0";
    missing::status => "rlisten" "@@RDMACM_1.0";
    missing::status => "raccept" "@@RDMACM_1.0";
    missing::status => "rconnect" "@@RDMACM_1.0";
    missing::status => "rshutdown" "@@RDMACM_1.0";
    missing::status => "rclose" "@@RDMACM_1.0";
    missing::status => "rgetsockname" "@@RDMACM_1.0";
    missing::status => "rgetpeername" "@@RDMACM_1.0";
    missing::status => "rgetsockopt" "@@RDMACM_1.0";
    missing::status => "rsetsockopt" "@@RDMACM_1.0";
    missing::status => "rfcntl" "@@RDMACM_1.0";
    missing::status => "rpoll" "@@RDMACM_1.0";
    missing::status => "rselect" "@@RDMACM_1.0";
    missing::number => "rrecv" "@@RDMACM_1.0";
    missing::number => "rrecvfrom" "@@RDMACM_1.0";
    missing::number => "rrecvmsg" "@@RDMACM_1.0";
    missing::number => "rsend" "@@RDMACM_1.0";
    missing::number => "rsendto" "@@RDMACM_1.0";
    missing::number => "rsendmsg" "@@RDMACM_1.0";
    missing::number => "rread" "@@RDMACM_1.0";
    missing::number => "rreadv" "@@RDMACM_1.0";
    missing::number => "rwrite" "@@RDMACM_1.0";
    missing::number => "rwritev" "@@RDMACM_1.0";
    missing::position => "riomap" "@@RDMACM_1.0";
    missing::status => "riounmap" "@@RDMACM_1.0";
    missing::number => "riowrite" "@@RDMACM_1.0";
}
