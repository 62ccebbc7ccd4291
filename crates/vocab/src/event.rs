//! Asynchronous events of a device, with the numbers and names of `enum ibv_event_type`
//! (`ibv_get_async_event(3)`).

use crate::names::names;

names! {
    /// What happened outside any completion (`enum ibv_event_type`).
    pub enum AsyncEventKind {
        /// A completion queue overran: a completion found no room. The queue is dead.
        CqErr = 0, "IBV_EVENT_CQ_ERR";
        /// A queue pair failed in a way that no completion can report.
        QpFatal = 1, "IBV_EVENT_QP_FATAL";
        /// The peer sent an invalid request; the queue pair went to the error state.
        QpReqErr = 2, "IBV_EVENT_QP_REQ_ERR";
        /// The peer violated memory access rights; the queue pair went to the error state.
        QpAccessErr = 3, "IBV_EVENT_QP_ACCESS_ERR";
        /// The first good request arrived on a queue pair that is ready to receive but not yet to
        /// send: the connection is there although the peer's ready-to-use message is not.
        CommEst = 4, "IBV_EVENT_COMM_EST";
        /// A queue pair that was told to drain has nothing more in flight.
        SqDrained = 5, "IBV_EVENT_SQ_DRAINED";
        /// The connection migrated to its alternate path.
        PathMig = 6, "IBV_EVENT_PATH_MIG";
        /// A path migration failed.
        PathMigErr = 7, "IBV_EVENT_PATH_MIG_ERR";
        /// The device failed; every later call returns an error.
        DeviceFatal = 8, "IBV_EVENT_DEVICE_FATAL";
        /// The port can carry traffic.
        PortActive = 9, "IBV_EVENT_PORT_ACTIVE";
        /// The port lost its link.
        PortErr = 10, "IBV_EVENT_PORT_ERR";
        /// The port's LID changed, which does not exist on RoCE.
        LidChange = 11, "IBV_EVENT_LID_CHANGE";
        /// The port's table of partition keys changed.
        PkeyChange = 12, "IBV_EVENT_PKEY_CHANGE";
        /// The subnet manager changed, which does not exist on RoCE.
        SmChange = 13, "IBV_EVENT_SM_CHANGE";
        /// A shared receive queue failed.
        SrqErr = 14, "IBV_EVENT_SRQ_ERR";
        /// A shared receive queue holds fewer requests than its limit. The limit is now disarmed.
        SrqLimitReached = 15, "IBV_EVENT_SRQ_LIMIT_REACHED";
        /// A queue pair in the error state will take no more requests from its shared receive
        /// queue; it may be destroyed.
        QpLastWqeReached = 16, "IBV_EVENT_QP_LAST_WQE_REACHED";
        /// The subnet manager asks for new registrations, which does not exist on RoCE.
        ClientReregister = 17, "IBV_EVENT_CLIENT_REREGISTER";
        /// The port's table of GIDs changed: an address was added or removed.
        GidChange = 18, "IBV_EVENT_GID_CHANGE";
        /// A work queue failed.
        WqFatal = 19, "IBV_EVENT_WQ_FATAL";
    }
}
