//! The one table of counters. The software RNIC, the simulated hosts and the diagnosis of real
//! hosts use these names; operators know them from `hw_counters` and `counters` in sysfs, from
//! `rdma statistic` and from `ethtool -S`. A name that no other stack has says so in its text.
//!
//! Adding a counter is one entry here; [`Counter::ALL`], the lookups, `hirail explain` and
//! `docs/counters.md` follow.

use core::fmt;
use core::ops::Index;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one step of a counter stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Packets of the transport, one per Ethernet frame.
    Packets,
    /// Ethernet frames of flow control.
    Frames,
    /// Octets.
    Octets,
    /// Words of four octets, the unit of InfiniBand's data counters.
    FourOctets,
    /// Requests, one per message.
    Requests,
    /// Completions.
    Completions,
    /// Times that something happened.
    Events,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// The unit in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Frames => "frames",
            Self::Octets => "octets",
            Self::FourOctets => "4 octets",
            Self::Requests => "requests",
            Self::Completions => "completions",
            Self::Events => "events",
            Self::Microseconds => "microseconds",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! counters {
    (
        $( group $group:literal {
            $( $(#[doc = $doc:literal])+ $unit:ident $variant:ident = $name:literal; )+
        } )+
        per priority $prio_group:literal {
            $( #[doc = $prio_doc:literal] $prio_unit:ident $prio_fn:ident:
                $( $prio_variant:ident = $prio_name:literal ),+; )+
        }
        drops $drop_group:literal {
            $( $(#[doc = $drop_doc:literal])+
                $reason:ident, $drop_variant:ident = $drop_name:literal $(, also $also:ident)?; )+
        }
    ) => {
        /// A counter, by its public name. The order is that of [`Counter::ALL`].
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Counter {
            $( $(
                #[doc = concat!("`", $name, "`:")]
                $(#[doc = $doc])+
                $variant,
            )+ )+
            $( $(
                #[doc = concat!("`", $prio_name, "`:", $prio_doc)]
                $prio_variant,
            )+ )+
            $(
                #[doc = concat!("`drop_", $drop_name, "`: see [`DropReason::", stringify!($reason), "`].")]
                $drop_variant,
            )+
        }

        impl Counter {
            /// Every counter, in the order in which they are printed.
            pub const ALL: &[Self] = &[
                $( $( Self::$variant, )+ )+
                $( $( Self::$prio_variant, )+ )+
                $( Self::$drop_variant, )+
            ];

            /// How many counters there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name under which operators know it.
            pub const fn name(self) -> &'static str {
                match self {
                    $( $( Self::$variant => $name, )+ )+
                    $( $( Self::$prio_variant => $prio_name, )+ )+
                    $( Self::$drop_variant => concat!("drop_", $drop_name), )+
                }
            }

            /// The counter called `name`.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|counter| counter.name() == name)
            }

            /// What one step stands for.
            pub const fn unit(self) -> Unit {
                match self {
                    $( $( Self::$variant => Unit::$unit, )+ )+
                    $( $(Self::$prio_variant)|+ => Unit::$prio_unit, )+
                    $( Self::$drop_variant => Unit::Packets, )+
                }
            }

            /// What it counts, in a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $( $( Self::$variant => concat!($($doc),+).trim_ascii_start(), )+ )+
                    $( $(Self::$prio_variant)|+ => $prio_doc.trim_ascii_start(), )+
                    $( Self::$drop_variant => DropReason::$reason.meaning(), )+
                }
            }

            /// Heading of the group that it is listed under.
            pub const fn group(self) -> &'static str {
                match self {
                    $( $(Self::$variant)|+ => $group, )+
                    $( $(Self::$prio_variant)|+ )|+ => $prio_group,
                    $( Self::$drop_variant )|+ => $drop_group,
                }
            }

            $(
                #[doc = concat!("The counter of `priority` (0 to 7; the low three bits decide):", $prio_doc)]
                pub const fn $prio_fn(priority: u8) -> Self {
                    const BY_PRIORITY: [Counter; 8] = [$( Counter::$prio_variant ),+];
                    BY_PRIORITY[(priority & 7) as usize]
                }
            )+
        }

        /// Why a packet was discarded without effect. Each discarded packet has exactly one
        /// reason, and each reason its own counter.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $( $(#[doc = $drop_doc])+ $reason, )+
        }

        impl DropReason {
            /// Every reason.
            pub const ALL: &[Self] = &[$( Self::$reason ),+];

            /// Its name; the counter's name without `drop_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$reason => $drop_name, )+
                }
            }

            /// The reason called `name` (without `drop_`).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.name() == name)
            }

            /// The counter of this reason.
            pub const fn counter(self) -> Counter {
                match self {
                    $( Self::$reason => Counter::$drop_variant, )+
                }
            }

            /// The counter that cards keep for the same thing, which moves with this one.
            pub const fn also(self) -> Option<Counter> {
                match self {
                    $( Self::$reason => counters!(@also $($also)?), )+
                }
            }

            /// Why such a packet is discarded, in a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $( Self::$reason => concat!($($drop_doc),+).trim_ascii_start(), )+
                }
            }
        }
    };
    (@also) => { None };
    (@also $also:ident) => { Some(Counter::$also) };
}

counters! {
    group "Requests served (responder)" {
        /// RDMA WRITE messages accepted, with immediate or without.
        Requests RxWriteRequests = "rx_write_requests";
        /// RDMA READ requests accepted.
        Requests RxReadRequests = "rx_read_requests";
        /// Compare-and-swap, fetch-and-add and ATOMIC WRITE requests accepted.
        Requests RxAtomicRequests = "rx_atomic_requests";
        /// SEND messages received into a receive request. As in the kernel's rxe.
        Requests RdmaRecvs = "rdma_recvs";
        /// FLUSH requests carried out. hirail's own name.
        Requests RxFlushRequests = "rx_flush_requests";
        /// Packets that found no receive request: answered with an RNR NAK on RC, discarded on UC
        /// and UD.
        Packets OutOfBuffer = "out_of_buffer";
        /// Request packets that arrived after a gap in the packet sequence: something before them
        /// was lost or overtaken on the way here.
        Packets OutOfSequence = "out_of_sequence";
        /// Request packets that had been received before: the peer retransmitted what was not
        /// lost, or the acknowledgement was.
        Packets DuplicateRequest = "duplicate_request";
        /// RNR NAKs sent because no receive request was posted. As in the kernel's rxe.
        Packets SendRnrErr = "send_rnr_err";
        /// NAKs of a packet sequence error sent, one per gap. hirail's own name.
        Packets SendSeqErr = "send_seq_err";
        /// Positive acknowledgements sent, not counting those inside read and atomic responses.
        /// hirail's own name.
        Packets SentAcks = "sent_acks";
        /// Receive completions with an error, flushed ones included.
        Completions RespCqeError = "resp_cqe_error";
        /// Receive requests flushed because their queue pair went to the error state. A
        /// consequence, never the cause.
        Completions RespCqeFlushError = "resp_cqe_flush_error";
        /// Messages longer than the receive request that they arrived for.
        Events RespLocalLengthError = "resp_local_length_error";
        /// Requests of the peer refused with a remote access error (NAK 2): wrong or stale rkey,
        /// range or rights.
        Events RespRemoteAccessErrors = "resp_remote_access_errors";
        /// Requests of the peer refused as invalid (NAK 1). Named after its twin at the requester.
        Events RespRemoteInvalidRequest = "resp_remote_invalid_request";
        /// Requests of the peer refused with a remote operational error (NAK 3): this side's own
        /// receive request names bad memory. Named after its twins.
        Events RespRemoteOperationErrors = "resp_remote_operation_errors";
        /// Request packets held out of order until the gap before them was filled, with selective
        /// repeat. hirail's own name.
        Packets SrHeldPackets = "sr_held_packets";
    }
    group "Requests made (requester)" {
        /// SEND messages acknowledged or, on UC and UD, sent. As in the kernel's rxe.
        Requests RdmaSends = "rdma_sends";
        /// NAKs of a packet sequence error received: the peer misses packets that this side sent.
        Packets PacketSeqErr = "packet_seq_err";
        /// Times that a response proved an earlier read or atomic lost: its response was skipped.
        Events ImpliedNakSeqErr = "implied_nak_seq_err";
        /// Times that the ACK timer ran out with requests unanswered.
        Events LocalAckTimeoutErr = "local_ack_timeout_err";
        /// RNR NAKs received: the peer had no receive request posted.
        Packets RnrNakRetryErr = "rnr_nak_retry_err";
        /// Queue pairs that died because the peer did not answer after all retries
        /// (`IBV_WC_RETRY_EXC_ERR`).
        Events ReqTransportRetriesExceeded = "req_transport_retries_exceeded";
        /// Queue pairs that died because the peer had no receive request after all RNR retries
        /// (`IBV_WC_RNR_RETRY_EXC_ERR`).
        Events ReqRnrRetriesExceeded = "req_rnr_retries_exceeded";
        /// Send completions with an error, flushed ones included.
        Completions ReqCqeError = "req_cqe_error";
        /// Send requests flushed because their queue pair went to the error state. A consequence,
        /// never the cause.
        Completions ReqCqeFlushError = "req_cqe_flush_error";
        /// Requests that the peer refused as invalid (NAK 1).
        Events ReqRemoteInvalidRequest = "req_remote_invalid_request";
        /// Requests that the peer refused with a remote access error (NAK 2).
        Events ReqRemoteAccessErrors = "req_remote_access_errors";
        /// Requests that the peer could not carry out (NAK 3). Named after its twins.
        Events ReqRemoteOperationErrors = "req_remote_operation_errors";
        /// Packets sent again, for whatever reason and by whichever recovery. hirail's own name.
        Packets RetransmittedPackets = "retransmitted_packets";
        /// The part of `retransmitted_packets` that selective repeat sent because the peer reported
        /// just these missing. hirail's own name.
        Packets SrRetransmittedPackets = "sr_retransmitted_packets";
        /// Acknowledgements received, not counting those inside read and atomic responses. hirail's
        /// own name.
        Packets RcvdAcks = "rcvd_acks";
        /// Retransmissions by the adaptive timer, which is shorter than the ACK timeout. hirail has
        /// one with selective repeat.
        Events RoceAdpRetrans = "roce_adp_retrans";
        /// Times that the adaptive retransmission timer ran out.
        Events RoceAdpRetransTo = "roce_adp_retrans_to";
        /// Times that a sender restarted slowly after being idle or after loss.
        Events RoceSlowRestart = "roce_slow_restart";
        /// CNPs generated for a slow restart.
        Packets RoceSlowRestartCnps = "roce_slow_restart_cnps";
        /// Times that a sender's slow-restart state changed.
        Events RoceSlowRestartTrans = "roce_slow_restart_trans";
    }
    group "Congestion control" {
        /// Packets received with the ECN mark CE: a switch on the way was congested.
        Packets NpEcnMarkedRocePackets = "np_ecn_marked_roce_packets";
        /// CNPs sent by this side's notification point, at most one per flow and
        /// min_time_between_cnps.
        Packets NpCnpSent = "np_cnp_sent";
        /// CNPs received and obeyed by this side's reaction point.
        Packets RpCnpHandled = "rp_cnp_handled";
        /// CNPs received and ignored: the reaction point is off, or the queue pair is not one that
        /// it paces.
        Packets RpCnpIgnored = "rp_cnp_ignored";
    }
    group "Port" {
        /// Data sent, all packets from the BTH to the ICRC.
        FourOctets PortXmitData = "port_xmit_data";
        /// Data received, all packets from the BTH to the ICRC.
        FourOctets PortRcvData = "port_rcv_data";
        /// Packets sent.
        Packets PortXmitPackets = "port_xmit_packets";
        /// Packets received.
        Packets PortRcvPackets = "port_rcv_packets";
        /// Packets sent to one peer.
        Packets UnicastXmitPackets = "unicast_xmit_packets";
        /// Packets received that were sent to this port alone.
        Packets UnicastRcvPackets = "unicast_rcv_packets";
        /// Packets sent to a multicast group.
        Packets MulticastXmitPackets = "multicast_xmit_packets";
        /// Packets received for a multicast group.
        Packets MulticastRcvPackets = "multicast_rcv_packets";
        /// Packets received that are malformed or damaged.
        Packets PortRcvErrors = "port_rcv_errors";
        /// Packets that were to be sent and had to be given up: the link is down or refused them.
        Packets PortXmitDiscards = "port_xmit_discards";
        /// Times that there were packets to send and the link took none: socket buffer full, or
        /// priority paused.
        Events PortXmitWait = "port_xmit_wait";
        /// Times that the link went down.
        Events LinkDowned = "link_downed";
        /// Packets received with a wrong ICRC: damaged on the way, or rewritten by a device that did
        /// not know how.
        Packets RxIcrcEncapsulated = "rx_icrc_encapsulated";
        /// Packets received with a partition key that does not match (`bad_pkey_cntr` of
        /// `ibv_port_attr`).
        Packets BadPkeyCntr = "bad_pkey_cntr";
        /// Datagrams received with a wrong queue key (`qkey_viol_cntr` of `ibv_port_attr`).
        Packets QkeyViolCntr = "qkey_viol_cntr";
        /// Packets that arrived here and were handed to the process on this host that owns their
        /// queue pair. hirail's own name.
        Packets FwdXmitPackets = "fwd_xmit_packets";
        /// Packets that another process on this host received and handed over. hirail's own name.
        Packets FwdRcvPackets = "fwd_rcv_packets";
        /// 802.3x PAUSE frames received: the switch stopped this port altogether.
        Frames RxGlobalPause = "rx_global_pause";
        /// 802.3x PAUSE frames sent.
        Frames TxGlobalPause = "tx_global_pause";
        /// Time for which received 802.3x PAUSE frames stopped this port.
        Microseconds RxGlobalPauseDuration = "rx_global_pause_duration";
        /// Time for which this port told its peer to stop by 802.3x PAUSE frames.
        Microseconds TxGlobalPauseDuration = "tx_global_pause_duration";
        /// Changes from running to stopped by received 802.3x PAUSE frames.
        Events RxGlobalPauseTransition = "rx_global_pause_transition";
        /// Link-layer flow control frames received, PAUSE and PFC of all priorities.
        Frames RxPauseCtrlPhy = "rx_pause_ctrl_phy";
        /// Link-layer flow control frames sent, PAUSE and PFC of all priorities.
        Frames TxPauseCtrlPhy = "tx_pause_ctrl_phy";
    }
    per priority "Port, per priority" {
        /// PFC frames received that name this priority: the switch stops or resumes it.
        Frames rx_prio_pause:
            RxPrio0Pause = "rx_prio0_pause", RxPrio1Pause = "rx_prio1_pause",
            RxPrio2Pause = "rx_prio2_pause", RxPrio3Pause = "rx_prio3_pause",
            RxPrio4Pause = "rx_prio4_pause", RxPrio5Pause = "rx_prio5_pause",
            RxPrio6Pause = "rx_prio6_pause", RxPrio7Pause = "rx_prio7_pause";
        /// PFC frames sent that name this priority: this side cannot take more of it.
        Frames tx_prio_pause:
            TxPrio0Pause = "tx_prio0_pause", TxPrio1Pause = "tx_prio1_pause",
            TxPrio2Pause = "tx_prio2_pause", TxPrio3Pause = "tx_prio3_pause",
            TxPrio4Pause = "tx_prio4_pause", TxPrio5Pause = "tx_prio5_pause",
            TxPrio6Pause = "tx_prio6_pause", TxPrio7Pause = "tx_prio7_pause";
        /// Time for which received PFC frames stopped this priority.
        Microseconds rx_prio_pause_duration:
            RxPrio0PauseDuration = "rx_prio0_pause_duration",
            RxPrio1PauseDuration = "rx_prio1_pause_duration",
            RxPrio2PauseDuration = "rx_prio2_pause_duration",
            RxPrio3PauseDuration = "rx_prio3_pause_duration",
            RxPrio4PauseDuration = "rx_prio4_pause_duration",
            RxPrio5PauseDuration = "rx_prio5_pause_duration",
            RxPrio6PauseDuration = "rx_prio6_pause_duration",
            RxPrio7PauseDuration = "rx_prio7_pause_duration";
        /// Time for which this side told its peer to stop this priority.
        Microseconds tx_prio_pause_duration:
            TxPrio0PauseDuration = "tx_prio0_pause_duration",
            TxPrio1PauseDuration = "tx_prio1_pause_duration",
            TxPrio2PauseDuration = "tx_prio2_pause_duration",
            TxPrio3PauseDuration = "tx_prio3_pause_duration",
            TxPrio4PauseDuration = "tx_prio4_pause_duration",
            TxPrio5PauseDuration = "tx_prio5_pause_duration",
            TxPrio6PauseDuration = "tx_prio6_pause_duration",
            TxPrio7PauseDuration = "tx_prio7_pause_duration";
        /// Changes of this priority from running to stopped by received PFC frames.
        Events rx_prio_pause_transition:
            RxPrio0PauseTransition = "rx_prio0_pause_transition",
            RxPrio1PauseTransition = "rx_prio1_pause_transition",
            RxPrio2PauseTransition = "rx_prio2_pause_transition",
            RxPrio3PauseTransition = "rx_prio3_pause_transition",
            RxPrio4PauseTransition = "rx_prio4_pause_transition",
            RxPrio5PauseTransition = "rx_prio5_pause_transition",
            RxPrio6PauseTransition = "rx_prio6_pause_transition",
            RxPrio7PauseTransition = "rx_prio7_pause_transition";
        /// Packets received in this priority; without a VLAN tag, the DSCP divided by 8.
        Packets rx_prio_packets:
            RxPrio0Packets = "rx_prio0_packets", RxPrio1Packets = "rx_prio1_packets",
            RxPrio2Packets = "rx_prio2_packets", RxPrio3Packets = "rx_prio3_packets",
            RxPrio4Packets = "rx_prio4_packets", RxPrio5Packets = "rx_prio5_packets",
            RxPrio6Packets = "rx_prio6_packets", RxPrio7Packets = "rx_prio7_packets";
        /// Packets sent in this priority; over UDP, the DSCP divided by 8.
        Packets tx_prio_packets:
            TxPrio0Packets = "tx_prio0_packets", TxPrio1Packets = "tx_prio1_packets",
            TxPrio2Packets = "tx_prio2_packets", TxPrio3Packets = "tx_prio3_packets",
            TxPrio4Packets = "tx_prio4_packets", TxPrio5Packets = "tx_prio5_packets",
            TxPrio6Packets = "tx_prio6_packets", TxPrio7Packets = "tx_prio7_packets";
        /// Octets received in this priority, whole Ethernet frames without FCS.
        Octets rx_prio_bytes:
            RxPrio0Bytes = "rx_prio0_bytes", RxPrio1Bytes = "rx_prio1_bytes",
            RxPrio2Bytes = "rx_prio2_bytes", RxPrio3Bytes = "rx_prio3_bytes",
            RxPrio4Bytes = "rx_prio4_bytes", RxPrio5Bytes = "rx_prio5_bytes",
            RxPrio6Bytes = "rx_prio6_bytes", RxPrio7Bytes = "rx_prio7_bytes";
        /// Octets sent in this priority, whole Ethernet frames without FCS.
        Octets tx_prio_bytes:
            TxPrio0Bytes = "tx_prio0_bytes", TxPrio1Bytes = "tx_prio1_bytes",
            TxPrio2Bytes = "tx_prio2_bytes", TxPrio3Bytes = "tx_prio3_bytes",
            TxPrio4Bytes = "tx_prio4_bytes", TxPrio5Bytes = "tx_prio5_bytes",
            TxPrio6Bytes = "tx_prio6_bytes", TxPrio7Bytes = "tx_prio7_bytes";
    }
    drops "Discarded packets, one counter per reason" {
        /// Too short for its headers, or cut off before its ICRC.
        Truncated, DropTruncated = "truncated", also PortRcvErrors;
        /// More payload than the largest MTU, or than the port ever takes.
        Oversized, DropOversized = "oversized", also PortRcvErrors;
        /// A header contradicts the packet around it, or one that the operation needs is missing.
        BadHeader, DropBadHeader = "bad_header", also PortRcvErrors;
        /// The IP version is not the one that the protocol around it announced.
        BadIpVersion, DropBadIpVersion = "bad_ip_version", also PortRcvErrors;
        /// An IPv4 header with options or shorter than 20 octets; RoCE has neither.
        BadIpHeaderLength, DropBadIpHeaderLength = "bad_ip_header_length", also PortRcvErrors;
        /// The checksum of the IPv4 header is wrong.
        BadIpChecksum, DropBadIpChecksum = "bad_ip_checksum", also PortRcvErrors;
        /// An IP fragment; RoCE packets are never fragmented.
        Fragmented, DropFragmented = "fragmented", also PortRcvErrors;
        /// The UDP checksum is there and wrong.
        BadUdpChecksum, DropBadUdpChecksum = "bad_udp_checksum", also PortRcvErrors;
        /// The GRH of a RoCE v1 packet announces something else than InfiniBand's transport.
        BadGrhNextHeader, DropBadGrhNextHeader = "bad_grh_next_header", also PortRcvErrors;
        /// A length field is shorter than its own header, or disagrees with the layer around it.
        BadLength, DropBadLength = "bad_length", also PortRcvErrors;
        /// An opcode that the standard does not define, or not for this service.
        UnknownOpcode, DropUnknownOpcode = "unknown_opcode", also PortRcvErrors;
        /// A manufacturer-specific opcode (0xC0 and up) that hirail does not speak.
        ManufacturerOpcode, DropManufacturerOpcode = "manufacturer_opcode";
        /// A hello or selective acknowledgement without hirail's mark: somebody else uses the same
        /// manufacturer-specific opcode.
        ForeignVendor, DropForeignVendor = "foreign_vendor";
        /// A transport header version other than 0.
        BadTver, DropBadTver = "bad_tver", also PortRcvErrors;
        /// A pad count that does not fit the payload.
        BadPad, DropBadPad = "bad_pad", also PortRcvErrors;
        /// Octets follow the headers of an operation that carries no payload.
        UnexpectedPayload, DropUnexpectedPayload = "unexpected_payload", also PortRcvErrors;
        /// A FLUSH that selects neither a range nor a whole region.
        BadFlush, DropBadFlush = "bad_flush", also PortRcvErrors;
        /// A management datagram of an unknown version.
        BadMadVersion, DropBadMadVersion = "bad_mad_version", also PortRcvErrors;
        /// A MAC control frame that is neither PAUSE nor PFC.
        UnknownMacControl, DropUnknownMacControl = "unknown_mac_control", also PortRcvErrors;
        /// The ICRC is wrong: the packet was damaged, or rewritten on the way.
        BadIcrc, DropBadIcrc = "bad_icrc", also RxIcrcEncapsulated;
        /// The ICRC is right for one value of the IPv4 identification only, which this peer would
        /// not have sent: taken for damage. Over a UDP socket the field itself cannot be seen.
        ImplausibleIpv4Id, DropImplausibleIpv4Id = "implausible_ipv4_id", also RxIcrcEncapsulated;
        /// The destination address is none of this port's.
        NotOurAddress, DropNotOurAddress = "not_our_address";
        /// Destination QP 0, the subnet management interface, which RoCE does not have.
        Qp0, DropQp0 = "qp0";
        /// No queue pair has this number, nor does another process on this host.
        UnknownQp, DropUnknownQp = "unknown_qp";
        /// The opcode belongs to another service than the queue pair.
        WrongQpType, DropWrongQpType = "wrong_qp_type";
        /// The queue pair is not ready to receive, or not ready to send where a response came.
        WrongQpState, DropWrongQpState = "wrong_qp_state";
        /// Source or destination address is not that of the connection.
        WrongSource, DropWrongSource = "wrong_source";
        /// The partition key does not match.
        BadPkey, DropBadPkey = "bad_pkey", also BadPkeyCntr;
        /// The queue key of a datagram does not match.
        BadQkey, DropBadQkey = "bad_qkey", also QkeyViolCntr;
        /// No queue pair is attached to the multicast group.
        MulticastNoMember, DropMulticastNoMember = "multicast_no_member";
        /// A request that comes after a gap. The NAK for this gap has been sent (once); the peer goes
        /// back and sends this packet again.
        OutOfSequenceSilent, DropOutOfSequenceSilent = "out_of_sequence_silent", also OutOfSequence;
        /// A request that follows one answered with an RNR NAK; the peer sends it again.
        AfterRnrNak, DropAfterRnrNak = "after_rnr_nak";
        /// A request was received out of order once more while it is already held, with selective
        /// repeat.
        DuplicateHeld, DropDuplicateHeld = "duplicate_held", also DuplicateRequest;
        /// No room to hold a packet that came out of order; the peer sends it again.
        ReorderPoolFull, DropReorderPoolFull = "reorder_pool_full";
        /// A repeated read or atomic whose stored answer is gone, or that asks for something else
        /// than the first time.
        DuplicateUnreplayable, DropDuplicateUnreplayable = "duplicate_unreplayable", also DuplicateRequest;
        /// An acknowledgement older than everything outstanding.
        GhostAck, DropGhostAck = "ghost_ack";
        /// An acknowledgement of a packet that was never sent.
        AckOfUnsentPsn, DropAckOfUnsentPsn = "ack_of_unsent_psn";
        /// A response that no outstanding request waits for at this place.
        ResponseUnexpected, DropResponseUnexpected = "response_unexpected";
        /// A read response after a gap; the rest of the read is requested again.
        ResponseGap, DropResponseGap = "response_gap";
        /// An acknowledgement with a reserved syndrome.
        ReservedSyndrome, DropReservedSyndrome = "reserved_syndrome";
        /// A packet of an unreliable connection whose message lost an earlier packet.
        UcBrokenMessage, DropUcBrokenMessage = "uc_broken_message";
        /// A message on an unreliable connection that found no receive request.
        UcNoReceiveWqe, DropUcNoReceiveWqe = "uc_no_receive_wqe", also OutOfBuffer;
        /// A message on an unreliable connection that this side must refuse (rkey, range, rights,
        /// length), which only a reliable connection can tell the peer.
        UcRefused, DropUcRefused = "uc_refused";
        /// A datagram that found no receive request.
        UdNoReceiveWqe, DropUdNoReceiveWqe = "ud_no_receive_wqe", also OutOfBuffer;
        /// A datagram longer than its receive request, 40 bytes of GRH included.
        UdTooLong, DropUdTooLong = "ud_too_long";
        /// A datagram whose receive request names bad memory.
        UdReceiveFault, DropUdReceiveFault = "ud_receive_fault";
        /// A congestion notification for a queue pair that is not here.
        CnpUnknownQp, DropCnpUnknownQp = "cnp_unknown_qp", also RpCnpIgnored;
        /// A packet for another process on this host that could not be handed over: its queue is
        /// full or the process is gone.
        ForwardFailed, DropForwardFailed = "forward_failed";
    }
}

impl Counter {
    /// Its place in [`Counter::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One value per counter, shared by threads. Each value is exact; two of them read one after the
/// other are not of the same moment.
pub struct Counters([AtomicU64; Counter::COUNT]);

impl Counters {
    /// All zero.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::COUNT])
    }

    /// Adds `n` to `counter`, in its unit. Wraps at 2^64.
    pub fn add(&self, counter: Counter, n: u64) {
        self.0[counter.index()].fetch_add(n, Relaxed);
    }

    /// Counts one discarded packet: its reason's counter, and the card's counter of the same
    /// thing where there is one.
    pub fn drop_packet(&self, reason: DropReason) {
        self.add(reason.counter(), 1);
        if let Some(also) = reason.also() {
            self.add(also, 1);
        }
    }

    /// The value of `counter`.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter.index()].load(Relaxed)
    }

    /// All values.
    pub fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot(core::array::from_fn(|i| self.0[i].load(Relaxed)))
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// The values of all counters at one time, or what was added between two times.
#[derive(Clone, PartialEq, Eq)]
pub struct CounterSnapshot([u64; Counter::COUNT]);

impl CounterSnapshot {
    /// All zero.
    pub const ZERO: Self = Self([0; Counter::COUNT]);

    /// The value of `counter`.
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter.index()]
    }

    /// Sets the value of `counter`: snapshots can come from another process or from a file.
    pub const fn set(&mut self, counter: Counter, value: u64) {
        self.0[counter.index()] = value;
    }

    /// All counters with their values, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().copied().zip(self.0)
    }

    /// The counters that are not zero, in the order of [`Counter::ALL`].
    pub fn non_zero(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.iter().filter(|&(_, value)| value != 0)
    }

    /// What was counted after `earlier`. Right across a wrap at 2^64.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(core::array::from_fn(|i| {
            self.0[i].wrapping_sub(earlier.0[i])
        }))
    }

    /// The sum with `other`, counter by counter: several devices or processes taken together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }
}

impl Default for CounterSnapshot {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Index<Counter> for CounterSnapshot {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter.index()]
    }
}

/// Prints what is not zero.
impl fmt::Debug for CounterSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.non_zero()
                    .map(|(counter, value)| (counter.name(), value)),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_lead_back() {
        let names: BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), Counter::COUNT);
        for (i, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter.index(), i);
            assert_eq!(Counter::from_name(counter.name()), Some(counter));
        }
        assert_eq!(Counter::from_name("no_such_counter"), None);
    }

    /// Names are what sysfs allows, and every text is a sentence.
    #[test]
    fn names_and_meanings_are_well_formed() {
        for counter in Counter::ALL {
            let name = counter.name();
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
            let meaning = counter.meaning();
            assert!(
                meaning.ends_with('.') && !meaning.contains("  "),
                "{name}: {meaning:?}"
            );
        }
    }

    #[test]
    fn each_drop_reason_has_its_counter() {
        let mut seen = BTreeSet::new();
        for &reason in DropReason::ALL {
            let counter = reason.counter();
            assert!(seen.insert(counter), "{reason}");
            assert_eq!(counter.name(), format!("drop_{reason}"));
            assert_eq!(counter.meaning(), reason.meaning());
            assert_eq!(DropReason::from_name(reason.name()), Some(reason));
        }
        let named = Counter::ALL
            .iter()
            .filter(|counter| counter.name().starts_with("drop_"));
        assert_eq!(seen.len(), named.count());
    }

    #[test]
    fn a_discarded_packet_counts_under_both_names() {
        let counters = Counters::new();
        counters.drop_packet(DropReason::BadIcrc);
        counters.drop_packet(DropReason::GhostAck);
        let counted: Vec<_> = counters.snapshot().non_zero().collect();
        assert_eq!(
            counted,
            [
                (Counter::RxIcrcEncapsulated, 1),
                (Counter::DropBadIcrc, 1),
                (Counter::DropGhostAck, 1),
            ]
        );
    }

    #[test]
    fn per_priority_counters_follow_a_rule() {
        for priority in 0..8 {
            for (counter, name) in [
                (
                    Counter::rx_prio_pause(priority),
                    format!("rx_prio{priority}_pause"),
                ),
                (
                    Counter::tx_prio_pause(priority),
                    format!("tx_prio{priority}_pause"),
                ),
                (
                    Counter::rx_prio_pause_duration(priority),
                    format!("rx_prio{priority}_pause_duration"),
                ),
                (
                    Counter::tx_prio_pause_duration(priority),
                    format!("tx_prio{priority}_pause_duration"),
                ),
                (
                    Counter::rx_prio_pause_transition(priority),
                    format!("rx_prio{priority}_pause_transition"),
                ),
                (
                    Counter::rx_prio_packets(priority),
                    format!("rx_prio{priority}_packets"),
                ),
                (
                    Counter::tx_prio_packets(priority),
                    format!("tx_prio{priority}_packets"),
                ),
                (
                    Counter::rx_prio_bytes(priority),
                    format!("rx_prio{priority}_bytes"),
                ),
                (
                    Counter::tx_prio_bytes(priority),
                    format!("tx_prio{priority}_bytes"),
                ),
            ] {
                assert_eq!(counter.name(), name);
            }
        }
    }

    #[test]
    fn snapshots_subtract_and_add() {
        let counters = Counters::default();
        counters.add(Counter::PortXmitPackets, u64::MAX);
        let before = counters.snapshot();
        counters.add(Counter::PortXmitPackets, 3);
        counters.add(Counter::NpCnpSent, 2);
        let now = counters.snapshot();
        assert_eq!(now[Counter::PortXmitPackets], 2);
        let diff = now.since(&before);
        assert_eq!(diff.get(Counter::PortXmitPackets), 3);
        assert_eq!(before.plus(&diff), now);
        assert_eq!(
            format!("{diff:?}"),
            r#"{"np_cnp_sent": 2, "port_xmit_packets": 3}"#
        );
    }
}
