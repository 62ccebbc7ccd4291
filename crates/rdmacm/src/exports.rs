//! The symbols of the library, with the versions that programs ask for.
//!
//! Nearly all binaries of distributions are linked to be bound at start: one symbol missing, and the
//! program does not start. So everything is here.

use hirail_abi::export;

use crate::{
    addrinfo, channel, connect, device, endpoint, event, id, listen, lookup, multicast, names,
    option, qp, resolve, rsocket, srq,
};

export! {
    // Events
    channel::create_event_channel => "rdma_create_event_channel" "@@RDMACM_1.0";
    channel::destroy_event_channel => "rdma_destroy_event_channel" "@@RDMACM_1.0";
    channel::get_cm_event => "rdma_get_cm_event" "@@RDMACM_1.0";
    event::ack_cm_event => "rdma_ack_cm_event" "@@RDMACM_1.0";
    event::write_cm_event => "rdma_write_cm_event" "@@RDMACM_1.4";
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
    lookup::resolve_addrinfo => "rdma_resolve_addrinfo" "@@RDMACM_1.4";
    lookup::query_addrinfo => "rdma_query_addrinfo" "@@RDMACM_1.4";
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

// Sockets
export! {
    rsocket::rsocket => "rsocket" "@@RDMACM_1.0";
    rsocket::rbind => "rbind" "@@RDMACM_1.0";
    rsocket::rlisten => "rlisten" "@@RDMACM_1.0";
    rsocket::raccept => "raccept" "@@RDMACM_1.0";
    rsocket::rconnect => "rconnect" "@@RDMACM_1.0";
    rsocket::rshutdown => "rshutdown" "@@RDMACM_1.0";
    rsocket::rclose => "rclose" "@@RDMACM_1.0";
    rsocket::rgetsockname => "rgetsockname" "@@RDMACM_1.0";
    rsocket::rgetpeername => "rgetpeername" "@@RDMACM_1.0";
    rsocket::rgetsockopt => "rgetsockopt" "@@RDMACM_1.0";
    rsocket::rsetsockopt => "rsetsockopt" "@@RDMACM_1.0";
    rsocket::rfcntl => "rfcntl" "@@RDMACM_1.0";
    rsocket::rpoll => "rpoll" "@@RDMACM_1.0";
    rsocket::rselect => "rselect" "@@RDMACM_1.0";
    rsocket::rrecv => "rrecv" "@@RDMACM_1.0";
    rsocket::rrecvfrom => "rrecvfrom" "@@RDMACM_1.0";
    rsocket::rrecvmsg => "rrecvmsg" "@@RDMACM_1.0";
    rsocket::rsend => "rsend" "@@RDMACM_1.0";
    rsocket::rsendto => "rsendto" "@@RDMACM_1.0";
    rsocket::rsendmsg => "rsendmsg" "@@RDMACM_1.0";
    rsocket::rread => "rread" "@@RDMACM_1.0";
    rsocket::rreadv => "rreadv" "@@RDMACM_1.0";
    rsocket::rwrite => "rwrite" "@@RDMACM_1.0";
    rsocket::rwritev => "rwritev" "@@RDMACM_1.0";
    rsocket::riomap => "riomap" "@@RDMACM_1.0";
    rsocket::riounmap => "riounmap" "@@RDMACM_1.0";
    rsocket::riowrite => "riowrite" "@@RDMACM_1.0";
    rsocket::repoll_create => "repoll_create" "@@RDMACM_1.5";
    rsocket::repoll_ctl => "repoll_ctl" "@@RDMACM_1.5";
    rsocket::repoll_wait => "repoll_wait" "@@RDMACM_1.5";
}
