//! The symbols of the library, with the versions that programs ask for.
//!
//! Nearly all binaries of distributions are linked to be bound at start: one symbol missing, and the
//! program does not start. So everything is here, what the device does not have included.

use crate::{
    ah, async_event, bridge, channel, comp_counter, context, cq, device, dm, marshal, missing, mr,
    names, pd, qp, query, register, srq,
};
use hirail_abi::export;

export! {
    // Devices
    device::get_device_list => "ibv_get_device_list" "@@IBVERBS_1.1";
    device::free_device_list => "ibv_free_device_list" "@@IBVERBS_1.1";
    device::get_device_name => "ibv_get_device_name" "@@IBVERBS_1.1";
    device::get_device_guid => "ibv_get_device_guid" "@@IBVERBS_1.1";
    device::get_device_index => "ibv_get_device_index" "@@IBVERBS_1.9";
    device::get_sysfs_path => "ibv_get_sysfs_path" "@@IBVERBS_1.0";
    device::read_sysfs_file => "ibv_read_sysfs_file" "@@IBVERBS_1.0";
    context::open_device => "ibv_open_device" "@@IBVERBS_1.1";
    context::close_device => "ibv_close_device" "@@IBVERBS_1.1";
    context::fork_init => "ibv_fork_init" "@@IBVERBS_1.1";
    context::is_fork_initialized => "ibv_is_fork_initialized" "@@IBVERBS_1.13";
    context::fork_range => "ibv_dontfork_range" "@@IBVERBS_1.1";
    context::fork_range => "ibv_dofork_range" "@@IBVERBS_1.1";

    // What they are like
    query::query_device => "ibv_query_device" "@@IBVERBS_1.1";
    query::query_port_old => "ibv_query_port" "@@IBVERBS_1.1";
    query::query_port_speed => "ibv_query_port_speed" "@@IBVERBS_1.16";
    query::query_gid => "ibv_query_gid" "@@IBVERBS_1.1";
    query::query_gid_ex => "_ibv_query_gid_ex" "@@IBVERBS_1.11";
    query::query_gid_table => "_ibv_query_gid_table" "@@IBVERBS_1.11";
    query::query_pkey => "ibv_query_pkey" "@@IBVERBS_1.1";
    query::get_pkey_index => "ibv_get_pkey_index" "@@IBVERBS_1.5";

    // Events
    async_event::get_async_event => "ibv_get_async_event" "@@IBVERBS_1.1";
    async_event::ack_async_event => "ibv_ack_async_event" "@@IBVERBS_1.1";
    channel::create_comp_channel => "ibv_create_comp_channel" "@@IBVERBS_1.0";
    channel::destroy_comp_channel => "ibv_destroy_comp_channel" "@@IBVERBS_1.0";
    channel::get_cq_event => "ibv_get_cq_event" "@@IBVERBS_1.1";
    channel::ack_cq_events => "ibv_ack_cq_events" "@@IBVERBS_1.1";

    // Objects
    pd::alloc_pd => "ibv_alloc_pd" "@@IBVERBS_1.1";
    pd::dealloc_pd => "ibv_dealloc_pd" "@@IBVERBS_1.1";
    mr::reg_mr => "ibv_reg_mr" "@@IBVERBS_1.1";
    mr::reg_mr_iova => "ibv_reg_mr_iova" "@@IBVERBS_1.7";
    mr::reg_mr_iova2 => "ibv_reg_mr_iova2" "@@IBVERBS_1.8";
    mr::rereg_mr => "ibv_rereg_mr" "@@IBVERBS_1.1";
    mr::dereg_mr => "ibv_dereg_mr" "@@IBVERBS_1.1";
    cq::create_cq => "ibv_create_cq" "@@IBVERBS_1.1";
    cq::resize_cq => "ibv_resize_cq" "@@IBVERBS_1.1";
    cq::destroy_cq => "ibv_destroy_cq" "@@IBVERBS_1.1";
    srq::create_srq => "ibv_create_srq" "@@IBVERBS_1.1";
    srq::modify_srq => "ibv_modify_srq" "@@IBVERBS_1.1";
    srq::query_srq => "ibv_query_srq" "@@IBVERBS_1.1";
    srq::destroy_srq => "ibv_destroy_srq" "@@IBVERBS_1.1";
    qp::create_qp => "ibv_create_qp" "@@IBVERBS_1.1";
    qp::modify_qp => "ibv_modify_qp" "@@IBVERBS_1.1";
    qp::query_qp => "ibv_query_qp" "@@IBVERBS_1.1";
    qp::destroy_qp => "ibv_destroy_qp" "@@IBVERBS_1.1";
    qp::attach_mcast => "ibv_attach_mcast" "@@IBVERBS_1.1";
    qp::detach_mcast => "ibv_detach_mcast" "@@IBVERBS_1.1";
    qp::qp_to_qp_ex => "ibv_qp_to_qp_ex" "@@IBVERBS_1.6";
    qp::query_ece => "ibv_query_ece" "@@IBVERBS_1.10";
    qp::set_ece => "ibv_set_ece" "@@IBVERBS_1.10";
    query::query_qp_data_in_order => "ibv_query_qp_data_in_order" "@@IBVERBS_1.14";
    ah::create_ah => "ibv_create_ah" "@@IBVERBS_1.1";
    ah::create_ah_from_wc => "ibv_create_ah_from_wc" "@@IBVERBS_1.1";
    ah::init_ah_from_wc => "ibv_init_ah_from_wc" "@@IBVERBS_1.1";
    ah::destroy_ah => "ibv_destroy_ah" "@@IBVERBS_1.1";
    ah::resolve_eth_l2_from_gid => "ibv_resolve_eth_l2_from_gid" "@@IBVERBS_1.1";

    // Importing objects
    context::import_device => "ibv_import_device" "@@IBVERBS_1.10";
    pd::import_pd => "ibv_import_pd" "@@IBVERBS_1.10";
    pd::unimport_pd => "ibv_unimport_pd" "@@IBVERBS_1.10";
    mr::import_mr => "ibv_import_mr" "@@IBVERBS_1.10";
    mr::unimport_mr => "ibv_unimport_mr" "@@IBVERBS_1.10";
    dm::import_dm => "ibv_import_dm" "@@IBVERBS_1.13";
    dm::unimport_dm => "ibv_unimport_dm" "@@IBVERBS_1.13";

    // Memory of files, of this library, of the device
    register::reg_dmabuf_mr => "ibv_reg_dmabuf_mr" "@@IBVERBS_1.12";
    register::reg_mr_ex => "ibv_reg_mr_ex" "@@IBVERBS_1.15";
    register::alloc_buf => "ibv_alloc_buf" "@@IBVERBS_1.17";
    register::free_buf => "ibv_free_buf" "@@IBVERBS_1.17";
    register::reg_buf_mr => "ibv_reg_buf_mr" "@@IBVERBS_1.17";
    register::export_buf_dmabuf_fd => "ibv_export_buf_dmabuf_fd" "@@IBVERBS_1.18";
    dm::dm_export_dmabuf_fd => "ibv_dm_export_dmabuf_fd" "@@IBVERBS_1.16";

    // Completion counters
    comp_counter::query_comp_cntr_caps => "_ibv_query_comp_cntr_caps" "@@IBVERBS_1.18";
    comp_counter::create_comp_cntr => "ibv_create_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::destroy_comp_cntr => "ibv_destroy_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::qp_attach_comp_cntr => "ibv_qp_attach_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::set_comp_cntr => "ibv_set_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::set_err_comp_cntr => "ibv_set_err_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::inc_comp_cntr => "ibv_inc_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::inc_err_comp_cntr => "ibv_inc_err_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::read_comp_cntr => "ibv_read_comp_cntr" "@@IBVERBS_1.18";
    comp_counter::read_err_comp_cntr => "ibv_read_err_comp_cntr" "@@IBVERBS_1.18";

    // Words and rates
    names::node_type_str => "ibv_node_type_str" "@@IBVERBS_1.1";
    names::port_state_str => "ibv_port_state_str" "@@IBVERBS_1.1";
    names::event_type_str => "ibv_event_type_str" "@@IBVERBS_1.1";
    names::wc_status_str => "ibv_wc_status_str" "@@IBVERBS_1.1";
    names::rate_to_mult => "ibv_rate_to_mult" "@@IBVERBS_1.0";
    names::mult_to_rate => "mult_to_ibv_rate" "@@IBVERBS_1.0";
    names::rate_to_mbps => "ibv_rate_to_mbps" "@@IBVERBS_1.1";
    names::mbps_to_rate => "mbps_to_ibv_rate" "@@IBVERBS_1.1";

    // From the kernel's structures
    marshal::copy_ah_attr => "ibv_copy_ah_attr_from_kern" "@@IBVERBS_1.1";
    marshal::copy_qp_attr => "ibv_copy_qp_attr_from_kern" "@@IBVERBS_1.0";
}

// What the device does not have.
export! {
    missing::nothing => "ibv_copy_path_rec_from_kern" "@@IBVERBS_1.0";
    missing::nothing => "ibv_copy_path_rec_to_kern" "@@IBVERBS_1.0";
    missing::register_driver => "ibv_register_driver" "@IBVERBS_1.1";

    // Hints of where a processor's caches are
    missing::pointer => "ibv_alloc_dmah" "@@IBVERBS_1.15";
    missing::status => "ibv_dealloc_dmah" "@@IBVERBS_1.15";
}

/// Exports to the private nodes of all versions. Their numbers change with structures that these
/// functions never see.
macro_rules! shared {
    ($($function:path => $name:literal;)*) => {
        export! { $(
            $function => $name
                "@@IBVERBS_PRIVATE_34" "@IBVERBS_PRIVATE_57" "@IBVERBS_PRIVATE_59"
                "@IBVERBS_PRIVATE_64";
        )* }
    };
}

// What rdma-core shares with its provider libraries. They load, offer themselves, and find no device
// of theirs.
export! {
    missing::register_driver => "verbs_register_driver_34" "@@IBVERBS_PRIVATE_34";
    missing::register_driver => "verbs_register_driver_57" "@@IBVERBS_PRIVATE_57";
    missing::register_driver => "verbs_register_driver_59" "@@IBVERBS_PRIVATE_59";
    missing::register_driver => "verbs_register_driver_64" "@@IBVERBS_PRIVATE_64";
}

shared! {
    query::query_gid_type => "ibv_query_gid_type";
    names::wr_opcode_str => "ibv_wr_opcode_str";
    missing::nothing => "__verbs_log";
    missing::number => "ibv_read_ibdev_sysfs_file";
    missing::pointer => "_verbs_init_and_alloc_context";
    missing::pointer => "verbs_open_device";
    missing::nothing => "verbs_set_ops";
    missing::nothing => "verbs_init_cq";
    missing::nothing => "verbs_uninit_context";
    missing::status => "execute_ioctl";
    missing::status => "__ioctl_final_num_attrs";
    missing::pointer => "ibv_dmabuf_heap_alloc";
    missing::status => "ibv_dmabuf_heap_cc_shared_init";
    missing::nothing => "ibv_dmabuf_heap_destroy";
    missing::nothing => "ibv_dmabuf_heap_free";
    missing::status => "ibv_cmd_advise_mr";
    missing::status => "ibv_cmd_alloc_dm";
    missing::status => "ibv_cmd_alloc_dmah";
    missing::status => "ibv_cmd_alloc_mw";
    missing::status => "ibv_cmd_alloc_pd";
    missing::status => "ibv_cmd_attach_mcast";
    missing::status => "ibv_cmd_close_xrcd";
    missing::status => "ibv_cmd_create_ah";
    missing::status => "ibv_cmd_create_comp_cntr";
    missing::status => "ibv_cmd_create_counters";
    missing::status => "ibv_cmd_create_cq";
    missing::status => "ibv_cmd_create_cq_ex";
    missing::status => "ibv_cmd_create_cq_ex2";
    missing::status => "ibv_cmd_create_flow";
    missing::status => "ibv_cmd_create_flow_action_esp";
    missing::status => "ibv_cmd_create_qp";
    missing::status => "ibv_cmd_create_qp_ex";
    missing::status => "ibv_cmd_create_qp_ex2";
    missing::status => "ibv_cmd_create_rwq_ind_table";
    missing::status => "ibv_cmd_create_srq";
    missing::status => "ibv_cmd_create_srq_ex";
    missing::status => "ibv_cmd_create_wq";
    missing::status => "ibv_cmd_dealloc_mw";
    missing::status => "ibv_cmd_dealloc_pd";
    missing::status => "ibv_cmd_dereg_mr";
    missing::status => "ibv_cmd_destroy_ah";
    missing::status => "ibv_cmd_destroy_comp_cntr";
    missing::status => "ibv_cmd_destroy_counters";
    missing::status => "ibv_cmd_destroy_cq";
    missing::status => "ibv_cmd_destroy_flow";
    missing::status => "ibv_cmd_destroy_flow_action";
    missing::status => "ibv_cmd_destroy_qp";
    missing::status => "ibv_cmd_destroy_rwq_ind_table";
    missing::status => "ibv_cmd_destroy_srq";
    missing::status => "ibv_cmd_destroy_wq";
    missing::status => "ibv_cmd_detach_mcast";
    missing::status => "ibv_cmd_export_dmabuf_fd";
    missing::status => "ibv_cmd_free_dm";
    missing::status => "ibv_cmd_free_dmah";
    missing::status => "ibv_cmd_get_context";
    missing::status => "ibv_cmd_inc_comp_cntr";
    missing::status => "ibv_cmd_inc_err_comp_cntr";
    missing::status => "ibv_cmd_modify_cq";
    missing::status => "ibv_cmd_modify_flow_action_esp";
    missing::status => "ibv_cmd_modify_qp";
    missing::status => "ibv_cmd_modify_qp_ex";
    missing::status => "ibv_cmd_modify_srq";
    missing::status => "ibv_cmd_modify_wq";
    missing::status => "ibv_cmd_open_qp";
    missing::status => "ibv_cmd_open_xrcd";
    missing::status => "ibv_cmd_poll_cq";
    missing::status => "ibv_cmd_post_recv";
    missing::status => "ibv_cmd_post_send";
    missing::status => "ibv_cmd_post_srq_recv";
    missing::status => "ibv_cmd_qp_attach_comp_cntr";
    missing::status => "ibv_cmd_query_comp_cntr_caps";
    missing::status => "ibv_cmd_query_context";
    missing::status => "ibv_cmd_query_device_any";
    missing::status => "ibv_cmd_query_mr";
    missing::status => "ibv_cmd_query_port";
    missing::status => "ibv_cmd_query_port_speed";
    missing::status => "ibv_cmd_query_qp";
    missing::status => "ibv_cmd_query_srq";
    missing::status => "ibv_cmd_read_comp_cntr";
    missing::status => "ibv_cmd_read_counters";
    missing::status => "ibv_cmd_read_err_comp_cntr";
    missing::status => "ibv_cmd_reg_dm_mr";
    missing::status => "ibv_cmd_reg_dmabuf_mr";
    missing::status => "ibv_cmd_reg_mr";
    missing::status => "ibv_cmd_reg_mr_ex";
    missing::status => "ibv_cmd_req_notify_cq";
    missing::status => "ibv_cmd_rereg_mr";
    missing::status => "ibv_cmd_resize_cq";
    missing::status => "ibv_cmd_set_comp_cntr";
    missing::status => "ibv_cmd_set_err_comp_cntr";
}

// What the library of rdma_cm has of this one.
export! {
    bridge::bridge => "hirail_bridge" "@@HIRAIL_PRIVATE_2";
}
