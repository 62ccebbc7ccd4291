//! What a completion says: its status and which operation it completes. Numbers and names are
//! those of `enum ibv_wc_status` and `enum ibv_wc_opcode` (`ibv_poll_cq(3)`).

use crate::names::names;

names! {
    /// How a work request ended (`enum ibv_wc_status`).
    pub enum WcStatus {
        /// The operation was carried out.
        Success = 0, "IBV_WC_SUCCESS";
        /// A received message is longer than the receive request posted for it, or the length of
        /// a send request is not possible for its operation (UD beyond the MTU, more than 2 GiB,
        /// an atomic whose result buffer is not 8 bytes).
        LocLenErr = 1, "IBV_WC_LOC_LEN_ERR";
        /// The request contradicts its queue pair: an operation that the type does not have, a bad
        /// address handle, too many scatter/gather entries, inline data beyond the limit.
        LocQpOpErr = 2, "IBV_WC_LOC_QP_OP_ERR";
        /// End-to-end context error of reliable datagram, which does not exist on RoCE.
        LocEecOpErr = 3, "IBV_WC_LOC_EEC_OP_ERR";
        /// A scatter/gather entry of the local request is not covered by its memory region: wrong
        /// lkey, another protection domain, out of range, or no right to write locally.
        LocProtErr = 4, "IBV_WC_LOC_PROT_ERR";
        /// The request was still queued when its queue pair went to the error state. A consequence,
        /// never the cause: look for the first completion with another status.
        WrFlushErr = 5, "IBV_WC_WR_FLUSH_ERR";
        /// A memory window could not be bound: no bind right, wrong domain, range or access.
        MwBindErr = 6, "IBV_WC_MW_BIND_ERR";
        /// The peer sent a response that does not fit the outstanding request.
        BadRespErr = 7, "IBV_WC_BAD_RESP_ERR";
        /// A remote write with immediate violated the access rights of this side's memory.
        LocAccessErr = 8, "IBV_WC_LOC_ACCESS_ERR";
        /// The peer refused the request as invalid (NAK 1): its queue pair does not allow this kind
        /// of access, its receive buffer is too small, or packets came in an impossible order.
        RemInvReqErr = 9, "IBV_WC_REM_INV_REQ_ERR";
        /// The peer refused access (NAK 2): wrong or stale rkey, address out of range, or a right
        /// that the memory region does not grant.
        RemAccessErr = 10, "IBV_WC_REM_ACCESS_ERR";
        /// The peer could not carry the request out (NAK 3), usually because its own receive
        /// request names bad memory.
        RemOpErr = 11, "IBV_WC_REM_OP_ERR";
        /// No answer after all retries (retry_cnt × the ACK timeout): the peer is gone, unreachable,
        /// or its queue pair is not ready to receive.
        RetryExcErr = 12, "IBV_WC_RETRY_EXC_ERR";
        /// The peer had no receive request posted, for longer than rnr_retry allows.
        RnrRetryExcErr = 13, "IBV_WC_RNR_RETRY_EXC_ERR";
        /// Reliable datagram domain violation, which does not exist on RoCE.
        LocRddViolErr = 14, "IBV_WC_LOC_RDD_VIOL_ERR";
        /// Invalid reliable datagram request, which does not exist on RoCE.
        RemInvRdReqErr = 15, "IBV_WC_REM_INV_RD_REQ_ERR";
        /// The peer aborted the operation (XRC).
        RemAbortErr = 16, "IBV_WC_REM_ABORT_ERR";
        /// Invalid end-to-end context number of reliable datagram, which does not exist on RoCE.
        InvEecnErr = 17, "IBV_WC_INV_EECN_ERR";
        /// Invalid end-to-end context state of reliable datagram, which does not exist on RoCE.
        InvEecStateErr = 18, "IBV_WC_INV_EEC_STATE_ERR";
        /// The device failed.
        FatalErr = 19, "IBV_WC_FATAL_ERR";
        /// A management request got no response in time.
        RespTimeoutErr = 20, "IBV_WC_RESP_TIMEOUT_ERR";
        /// An error that no other status describes.
        GeneralErr = 21, "IBV_WC_GENERAL_ERR";
        /// Tag matching failed.
        TmErr = 22, "IBV_WC_TM_ERR";
        /// A tag-matched rendezvous was left to software.
        TmRndvIncomplete = 23, "IBV_WC_TM_RNDV_INCOMPLETE";
    }
}

names! {
    /// Which operation a completion belongs to (`enum ibv_wc_opcode`).
    pub enum WcOpcode {
        /// A SEND of any kind was carried out.
        Send = 0, "IBV_WC_SEND";
        /// An RDMA WRITE, with immediate or without, was carried out.
        RdmaWrite = 1, "IBV_WC_RDMA_WRITE";
        /// The data of an RDMA READ has arrived.
        RdmaRead = 2, "IBV_WC_RDMA_READ";
        /// The old value of a compare-and-swap has arrived.
        CompSwap = 3, "IBV_WC_COMP_SWAP";
        /// The old value of a fetch-and-add has arrived.
        FetchAdd = 4, "IBV_WC_FETCH_ADD";
        /// A memory window was bound.
        BindMw = 5, "IBV_WC_BIND_MW";
        /// A local key was invalidated.
        LocalInv = 6, "IBV_WC_LOCAL_INV";
        /// A segmented send of a raw packet queue pair, which hirail does not have.
        Tso = 7, "IBV_WC_TSO";
        /// A FLUSH was answered: the remote range is globally visible or persistent.
        Flush = 8, "IBV_WC_FLUSH";
        /// An ATOMIC WRITE of 8 bytes was carried out.
        AtomicWrite = 9, "IBV_WC_ATOMIC_WRITE";
        /// A message was received into a receive request.
        Recv = 128, "IBV_WC_RECV";
        /// An RDMA WRITE with immediate consumed a receive request; its data went elsewhere.
        RecvRdmaWithImm = 129, "IBV_WC_RECV_RDMA_WITH_IMM";
    }
}

impl WcOpcode {
    /// Whether the completion belongs to a receive queue.
    pub const fn is_receive(self) -> bool {
        self.code() & 0x80 != 0
    }
}

impl WcStatus {
    /// The words that `ibv_wc_status_str` and the programs that call it print.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocLenErr => "local length error",
            Self::LocQpOpErr => "local QP operation error",
            Self::LocEecOpErr => "local EE context operation error",
            Self::LocProtErr => "local protection error",
            Self::WrFlushErr => "Work Request Flushed Error",
            Self::MwBindErr => "memory management operation error",
            Self::BadRespErr => "bad response error",
            Self::LocAccessErr => "local access error",
            Self::RemInvReqErr => "remote invalid request error",
            Self::RemAccessErr => "remote access error",
            Self::RemOpErr => "remote operation error",
            Self::RetryExcErr => "transport retry counter exceeded",
            Self::RnrRetryExcErr => "RNR retry counter exceeded",
            Self::LocRddViolErr => "local RDD violation error",
            Self::RemInvRdReqErr => "remote invalid RD request",
            Self::RemAbortErr => "aborted error",
            Self::InvEecnErr => "invalid EE context number",
            Self::InvEecStateErr => "invalid EE context state",
            Self::FatalErr => "fatal error",
            Self::RespTimeoutErr => "response timeout error",
            Self::GeneralErr => "general error",
            Self::TmErr => "TM error",
            Self::TmRndvIncomplete => "TM software rendezvous",
        }
    }
}
