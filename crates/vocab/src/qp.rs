//! Types and states of queue pairs, with the numbers and names of the verbs.

use crate::names::names;

names! {
    /// State of a queue pair (`enum ibv_qp_state`; IBTA Vol 1, chapter 10).
    pub enum QpState {
        /// Fresh or emptied. Nothing may be posted, packets are dropped.
        Reset = 0, "IBV_QPS_RESET";
        /// Receive requests may be posted; packets are dropped.
        Init = 1, "IBV_QPS_INIT";
        /// Ready to receive: requests of the peer are served, nothing of its own is sent.
        Rtr = 2, "IBV_QPS_RTR";
        /// Ready to send: everything works.
        Rts = 3, "IBV_QPS_RTS";
        /// Send queue draining or drained: started requests finish, no new one starts.
        Sqd = 4, "IBV_QPS_SQD";
        /// Send queue in error (UC and UD): sends are flushed, receiving goes on.
        Sqe = 5, "IBV_QPS_SQE";
        /// Error: everything posted is flushed, packets are dropped. Only RESET leads out.
        Err = 6, "IBV_QPS_ERR";
    }
}

names! {
    /// Transport of a queue pair (`enum ibv_qp_type`, and the kernel's number for QP1).
    pub enum QpType {
        /// The general services queue pair, QP1: a UD queue pair that carries management datagrams.
        Gsi = 1, "IB_QPT_GSI";
        /// Reliable connection: acknowledged, in order, with reads and atomics.
        Rc = 2, "IBV_QPT_RC";
        /// Unreliable connection: in order, unacknowledged; sends and writes only.
        Uc = 3, "IBV_QPT_UC";
        /// Unreliable datagram: one packet per message, to any peer and to multicast groups.
        Ud = 4, "IBV_QPT_UD";
        /// Sending half of an extended reliable connection; it has no receive queue.
        XrcSend = 9, "IBV_QPT_XRC_SEND";
        /// Receiving half of an extended reliable connection; each request names a shared receive
        /// queue.
        XrcRecv = 10, "IBV_QPT_XRC_RECV";
    }
}

impl QpType {
    /// Whether lost packets are repaired: RC and XRC.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcSend | Self::XrcRecv)
    }

    /// Whether the queue pair talks to one peer: everything but UD and QP1.
    pub const fn is_connected(self) -> bool {
        !self.is_datagram()
    }

    /// Whether each send names its destination: UD and QP1.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Gsi)
    }
}
