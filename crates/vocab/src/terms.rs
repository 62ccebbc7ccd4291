//! The glossary: every word that hirail prints and that is not a counter, a code or a parameter of
//! its own table.

use crate::explain::Kind;

/// One entry.
pub(crate) struct Term {
    /// As hirail prints it.
    pub(crate) word: &'static str,
    /// What sort of word it is.
    pub(crate) kind: Kind,
    /// Other spellings, and what the same thing is called elsewhere.
    pub(crate) aliases: &'static [&'static str],
    /// In a few sentences.
    pub(crate) meaning: &'static str,
}

macro_rules! terms {
    ($( $kind:ident { $( $(#[doc = $doc:literal])+ $word:literal $(= $($alias:literal)|+ )?; )+ } )+) => {
        /// All entries, kind by kind.
        pub(crate) const TERMS: &[Term] = &[$( $( Term {
            word: $word,
            kind: Kind::$kind,
            aliases: &[$( $($alias),+ )?],
            meaning: concat!($($doc),+).trim_ascii_start(),
        }, )+ )+];
    };
}

terms! {
    Opcode {
        /// First packet of a SEND longer than one path MTU. It takes a receive request at the peer.
        "SEND First" = "0x00";
        /// A packet in the middle of a SEND, exactly one path MTU long.
        "SEND Middle" = "0x01";
        /// Last packet of a SEND; it completes the receive request.
        "SEND Last" = "0x02";
        /// Last packet of a SEND that also hands over 4 octets of immediate data.
        "SEND Last with Immediate" = "0x03";
        /// A SEND of one packet.
        "SEND Only" = "0x04" | "0x64" | "SEND";
        /// A SEND of one packet that also hands over 4 octets of immediate data.
        "SEND Only with Immediate" = "0x05" | "0x65" | "SEND with Immediate";
        /// First packet of an RDMA WRITE longer than one path MTU. Its RETH says where all of the
        /// message goes.
        "RDMA WRITE First" = "0x06";
        /// A packet in the middle of an RDMA WRITE, exactly one path MTU long.
        "RDMA WRITE Middle" = "0x07";
        /// Last packet of an RDMA WRITE.
        "RDMA WRITE Last" = "0x08";
        /// Last packet of an RDMA WRITE with 4 octets of immediate data, for which it takes a
        /// receive request at the peer.
        "RDMA WRITE Last with Immediate" = "0x09";
        /// An RDMA WRITE of one packet: it stores into the peer's memory without the peer's program.
        "RDMA WRITE Only" = "0x0a" | "RDMA WRITE";
        /// An RDMA WRITE of one packet with 4 octets of immediate data, for which it takes a
        /// receive request at the peer.
        "RDMA WRITE Only with Immediate" = "0x0b" | "RDMA WRITE with Immediate";
        /// Asks for octets of the peer's memory. One request uses as many sequence numbers as its
        /// answer has packets.
        "RDMA READ Request" = "0x0c" | "RDMA READ";
        /// First packet of the answer to an RDMA READ longer than one path MTU.
        "RDMA READ response First" = "0x0d";
        /// A packet in the middle of the answer to an RDMA READ. It carries no AETH.
        "RDMA READ response Middle" = "0x0e";
        /// Last packet of the answer to an RDMA READ.
        "RDMA READ response Last" = "0x0f";
        /// The answer to an RDMA READ of one packet; without payload also the answer to a FLUSH or
        /// an ATOMIC WRITE.
        "RDMA READ response Only" = "0x10" | "RDMA READ response";
        /// Acknowledges all requests up to its sequence number, or refuses one: its AETH says
        /// which.
        "Acknowledge" = "0x11" | "ACK";
        /// The answer to an atomic: the value that the peer's memory had before.
        "ATOMIC Acknowledge" = "0x12" | "ATOMIC ACK";
        /// Compare-and-swap: stores 8 octets at the peer where they equal what is expected, and
        /// returns what was there.
        "CmpSwap" = "0x13" | "compare-and-swap";
        /// Fetch-and-add: adds to 8 octets at the peer and returns what was there.
        "FetchAdd" = "0x14" | "fetch-and-add";
        /// Last packet of a SEND that also invalidates a key at the peer.
        "SEND Last with Invalidate" = "0x16";
        /// A SEND of one packet that also invalidates a key at the peer.
        "SEND Only with Invalidate" = "0x17" | "SEND with Invalidate";
        /// Answered once the peer's earlier writes to a range or region are visible to everybody,
        /// or durable.
        "FLUSH" = "0x1c";
        /// Stores 8 octets at the peer as one, after everything that was written before.
        "ATOMIC WRITE" = "0x1d";
        /// Congestion notification packet: a receiver of packets that a congested switch marked asks
        /// the sender to slow down. It is never acknowledged.
        "CNP" = "0x81" | "congestion notification packet";
        /// hirail's own packet (manufacturer-specific opcode) by which two ends find out that both
        /// speak selective repeat. Other stacks drop it.
        "HELLO" = "0xc0";
        /// hirail's own packet (manufacturer-specific opcode) that names the packets received after
        /// a gap. Other stacks drop it.
        "SACK" = "0xc1" | "selective acknowledgement";
        /// Any of the operations with 8 octets of the peer's memory as operand: compare-and-swap and
        /// fetch-and-add.
        "ATOMIC" = "atomics";
    }
    NakCode {
        /// A request refused. The code says why; all but the sequence error end the connection.
        "NAK" = "negative acknowledgement";
        /// A request of a later sequence number than expected arrived: one or more are missing. The
        /// requester goes back to the sequence number in the NAK. Sent once per gap.
        "NAK PSN sequence error" = "NAK 0" | "0x60" | "sequence NAK" | "PSN sequence error";
        /// The request cannot be right: the queue pair does not allow that kind of access, the
        /// message is too long, or its packets come in an impossible order. The requester gets
        /// IBV_WC_REM_INV_REQ_ERR.
        "NAK invalid request" = "NAK 1" | "0x61" | "invalid request";
        /// The rkey is wrong or stale, the range leaves the region, or the region does not grant the
        /// right. The requester gets IBV_WC_REM_ACCESS_ERR.
        "NAK remote access error" = "NAK 2" | "0x62";
        /// The responder could not do its part, usually because its own receive request names bad
        /// memory. The requester gets IBV_WC_REM_OP_ERR.
        "NAK remote operational error" = "NAK 3" | "0x63" | "remote operational error";
        /// Of reliable datagram, which does not exist on RoCE.
        "NAK invalid RD request" = "NAK 4" | "invalid RD request";
        /// Receiver not ready: no receive request was posted. The requester waits for the time in
        /// the NAK (one of 32 values, 10 us to 655 ms) and sends again, rnr_retry times.
        "RNR NAK" = "RNR" | "receiver not ready";
    }
    Header {
        /// Base transport header, 12 octets: opcode, partition key, destination queue pair, sequence
        /// number and flags. Every RoCE packet has one.
        "BTH" = "base transport header";
        /// RDMA extended transport header: address, rkey and length of a WRITE or READ.
        "RETH";
        /// ACK extended transport header: syndrome (ACK with credits, RNR NAK or NAK with its code)
        /// and MSN.
        "AETH";
        /// Header of an atomic request: address, rkey and two operands.
        "AtomicETH";
        /// Header of an atomic answer: the value before.
        "AtomicAckETH";
        /// Immediate data: 4 octets that end up in the completion of a receive request.
        "ImmDt" = "immediate" | "immediate data";
        /// Header of a SEND with invalidate: the key to invalidate.
        "IETH" = "inv";
        /// Datagram header: queue key and source queue pair.
        "DETH";
        /// XRC header: the shared receive queue that the request is for.
        "XRCETH";
        /// Header of a FLUSH: range or whole region, visible or durable.
        "FETH";
        /// Global route header, 40 octets with the layout of an IPv6 header. RoCE v1 packets carry
        /// it; of RoCE v2 datagrams it is made up for the first 40 octets of the receive buffer.
        "GRH" = "global route header";
        /// Invariant CRC, the last 4 octets of a packet: covers what no switch or router may
        /// change, so not DSCP, ECN, TTL and UDP checksum. A wrong one means damage, or a device that
        /// rewrote addresses without knowing RoCE.
        "ICRC" = "invariant CRC";
        /// Management datagram of 256 octets, sent to QP1. RoCE uses it for connection management.
        "MAD" = "management datagram";
        /// The octet of an AETH that says ACK, RNR NAK or NAK, with credits, timer or code.
        "syndrome";
        /// Octets, 0 to 3, that fill the payload to a multiple of 4.
        "PadCnt" = "pad" | "pad count";
        /// Version of the transport headers, always 0.
        "TVer" = "transport header version";
    }
    CmMessage {
        /// Connection management: asks for a connection, with queue pair, first sequence number and
        /// limits of the requester.
        "CM REQ" = "REQ" | "ConnectRequest";
        /// Connection management: message received, the answer takes longer.
        "CM MRA" = "MRA";
        /// Connection management: refuses a connection, with the reason.
        "CM REJ" = "REJ" | "ConnectReject";
        /// Connection management: accepts a connection.
        "CM REP" = "REP" | "ConnectReply";
        /// Connection management: ready to use, the third and last message of a connection's setup.
        "CM RTU" = "RTU" | "ReadyToUse";
        /// Connection management: ends a connection.
        "CM DREQ" = "DREQ" | "DisconnectRequest";
        /// Connection management: confirms the end of a connection.
        "CM DREP" = "DREP" | "DisconnectReply";
        /// Connection management: asks for the queue pair behind a service id, for datagrams.
        "CM SIDR_REQ" = "SIDR_REQ";
        /// Connection management: the queue pair and queue key behind a service id.
        "CM SIDR_REP" = "SIDR_REP";
        /// Connection management: loads an alternate path.
        "CM LAP" = "LAP";
        /// Connection management: the answer to loading an alternate path.
        "CM APR" = "APR";
        /// Connection management: the messages by which queue pairs of two hosts find each other.
        /// They travel to QP1 of the peer.
        "CM" = "connection management" | "RDMA-CM";
        /// Identifies what a connection request is for. For librdmacm's TCP port space it is
        /// 0x0000000001060000 plus the port.
        "service id";
    }
    QpAttribute {
        /// State that modify_qp goes to.
        "IBV_QP_STATE" = "qp_state";
        /// State that the caller of modify_qp believes the queue pair to be in.
        "IBV_QP_CUR_STATE" = "cur_qp_state";
        /// Whether the end of draining raises IBV_EVENT_SQ_DRAINED.
        "IBV_QP_EN_SQD_ASYNC_NOTIFY" = "en_sqd_async_notify";
        /// What the peer may do at this queue pair: remote write, read, atomic.
        "IBV_QP_ACCESS_FLAGS" = "qp_access_flags";
        /// Which partition key of the port the queue pair uses. RoCE has one, at index 0.
        "IBV_QP_PKEY_INDEX" = "pkey_index";
        /// The device's port, from 1.
        "IBV_QP_PORT" = "port_num";
        /// The queue key of a datagram queue pair.
        "IBV_QP_QKEY";
        /// Address vector: destination GID, GID index, hop limit, traffic class, flow label, service
        /// level.
        "IBV_QP_AV" = "ah_attr" | "address vector" | "AV";
        /// Payload octets of a full packet: 256, 512, 1024, 2048 or 4096. Both ends of a connection
        /// must have the same.
        "IBV_QP_PATH_MTU" = "path_mtu" | "MTU";
        /// How long the requester waits for an answer: 4.096 us times 2 to this power, 0 is forever. 14
        /// is 67 ms.
        "IBV_QP_TIMEOUT" = "timeout" | "local ACK timeout";
        /// How often a request is sent again after a timeout or a sequence NAK, 0 to 7. When it is
        /// used up: IBV_WC_RETRY_EXC_ERR.
        "IBV_QP_RETRY_CNT" = "retry_cnt" | "retry_count";
        /// How often a request is sent again after an RNR NAK, 0 to 6; 7 is forever. When it is used
        /// up: IBV_WC_RNR_RETRY_EXC_ERR.
        "IBV_QP_RNR_RETRY" = "rnr_retry" | "rnr_retry_count";
        /// First sequence number expected from the peer: its sq_psn.
        "IBV_QP_RQ_PSN" = "rq_psn";
        /// Initiator depth: READs and atomics that may be outstanding at the peer. At most the peer's
        /// max_dest_rd_atomic.
        "IBV_QP_MAX_QP_RD_ATOMIC" = "max_rd_atomic" | "initiator_depth";
        /// A second path for migration; hirail keeps it and does not use it.
        "IBV_QP_ALT_PATH" = "alt_ah_attr" | "alternate path";
        /// The wait that this side's RNR NAKs ask for, a code of 0 to 31; 12 is 0.64 ms.
        "IBV_QP_MIN_RNR_TIMER" = "min_rnr_timer";
        /// First sequence number sent; the peer's rq_psn.
        "IBV_QP_SQ_PSN" = "sq_psn";
        /// Responder resources: READs and atomics of the peer that this side remembers, so that it
        /// can answer them again.
        "IBV_QP_MAX_DEST_RD_ATOMIC" = "max_dest_rd_atomic" | "responder_resources";
        /// State of path migration.
        "IBV_QP_PATH_MIG_STATE" = "path_mig_state";
        /// Sizes of the queues; fixed once the queue pair is made.
        "IBV_QP_CAP";
        /// Number of the peer's queue pair.
        "IBV_QP_DEST_QPN" = "dest_qp_num";
        /// A limit of the sending rate, kbit/s.
        "IBV_QP_RATE_LIMIT" = "rate_limit";
    }
    Term {
        /// RDMA over Converged Ethernet: InfiniBand's transport in Ethernet frames. v1 puts it
        /// straight into the frame (EtherType 0x8915), v2 into UDP to port 4791, which routers
        /// can carry.
        "RoCE" = "RoCE v1" | "RoCE v2" | "4791" | "0x8915" | "RoCEv2";
        /// Remote direct memory access: reading and writing another host's memory without its
        /// program's help.
        "RDMA" = "remote direct memory access";
        /// A network adapter that does RDMA. hirail is one in software.
        "RNIC" = "HCA";
        /// The programming interface of RDMA: objects (PD, MR, CQ, QP) and work requests.
        "verbs" = "ibverbs";
        /// Protection domain: queue pairs, regions and address handles work together within one.
        "PD" = "protection domain";
        /// Memory region: a range of memory that was registered, with access rights and keys.
        "MR" = "memory region";
        /// Memory window: part of a region with its own rkey and rights, bound and unbound quickly.
        "MW" = "memory window";
        /// Completion queue: where finished work requests are reported.
        "CQ" = "completion queue";
        /// An entry of a completion queue (ibv_wc).
        "CQE" = "completion" | "WC";
        /// Queue pair: a send queue and a receive queue, the end of a connection.
        "QP" = "queue pair";
        /// Extended reliable connection: as RC, and each message names the shared receive queue that it
        /// is for, so that one connection serves all processes of a host.
        "XRC" = "extended reliable connection";
        /// Number of a queue pair, 24 bits. A packet names the one that it is for.
        "QPN" = "DestQP" | "queue pair number" | "qp_num";
        /// Queue pair 1, which takes connection management on every port.
        "QP1" = "GSI" | "general services interface";
        /// Send queue of a queue pair.
        "SQ" = "send queue";
        /// Receive queue of a queue pair.
        "RQ" = "receive queue";
        /// Shared receive queue: one receive queue for many queue pairs.
        "SRQ" = "shared receive queue" | "SRQN";
        /// A work request in a queue.
        "WQE" = "WR" | "work request";
        /// Scatter/gather entry: address, length and lkey of one piece of memory.
        "SGE" = "scatter/gather entry";
        /// Address handle: where a datagram goes.
        "AH" = "address handle";
        /// Key by which local work requests name a memory region.
        "lkey";
        /// Key by which the peer names a memory region or window: 24 bits of index, 8 of variant. A key
        /// of a region that is gone is refused.
        "rkey";
        /// Address as the peer names it in a WRITE, READ or atomic.
        "va" = "iova" | "virtual address";
        /// Right to write a region locally, which remote write and atomic rights need.
        "LOCAL_WRITE" = "IBV_ACCESS_LOCAL_WRITE";
        /// Right of peers to write a region.
        "REMOTE_WRITE" = "IBV_ACCESS_REMOTE_WRITE";
        /// Right of peers to read a region.
        "REMOTE_READ" = "IBV_ACCESS_REMOTE_READ";
        /// Right of peers to do atomics in a region.
        "REMOTE_ATOMIC" = "IBV_ACCESS_REMOTE_ATOMIC";
        /// Right to bind memory windows to a region.
        "MW_BIND" = "IBV_ACCESS_MW_BIND";
        /// Addresses of the region start at 0.
        "ZERO_BASED" = "IBV_ACCESS_ZERO_BASED";
        /// The region's pages are looked up when they are used.
        "ON_DEMAND" = "IBV_ACCESS_ON_DEMAND";
        /// Right of peers to FLUSH a region to global visibility.
        "FLUSH_GLOBAL" = "IBV_ACCESS_FLUSH_GLOBAL";
        /// Right of peers to FLUSH a region to durability.
        "FLUSH_PERSISTENT" = "IBV_ACCESS_FLUSH_PERSISTENT";
        /// Accesses to the region may overtake each other.
        "RELAXED_ORDERING" = "IBV_ACCESS_RELAXED_ORDERING";
        /// Global identifier of a port, 16 octets: on RoCE an IPv6 address or an IPv4 address as
        /// ::ffff:a.b.c.d.
        "GID" = "DGID" | "SGID" | "global identifier";
        /// Place of a GID in the port's table. It decides source address, VLAN and RoCE version.
        "GID index" = "sgid_index";
        /// Partition key, 16 bits. Two keys match if their low 15 bits are equal and one of them is a
        /// full member's. On RoCE it is always 0xffff.
        "P_Key" = "pkey" | "partition key";
        /// Queue key, 32 bits: a datagram is taken only with the key of its queue pair.
        "Q_Key" = "qkey" | "queue key";
        /// Packet sequence number, 24 bits, wrapping. Each direction of a connection has its own.
        "PSN" = "packet sequence number" | "starting_psn";
        /// The sequence number that the responder expects next.
        "ePSN" = "expected PSN";
        /// Message sequence number: how many requests the responder has completed.
        "MSN" = "message sequence number";
        /// The side of a connection that makes a request.
        "requester";
        /// The side of a connection that carries a request out and answers.
        "responder";
        /// What one work request transfers: up to 2 GiB, in one packet or many.
        "message" = "msg";
        /// Receive requests that the responder says it has left; a sender may use it to avoid RNR NAKs.
        "credits" = "end-to-end credits";
        /// SE, solicited event: this packet's completion wakes a receiver that waits for solicited
        /// ones. Flag S.
        "solicited" = "SE" | "solicited event";
        /// The sender asks for an acknowledgement of this packet. Flag A.
        "AckReq" = "ack_req" | "acknowledge request";
        /// Path migration state of the sender; 1 in connections without migration.
        "MigReq" = "migrated" | "M bit";
        /// Forward congestion notification of InfiniBand, unused on RoCE, which has ECN. Flag F.
        "FECN";
        /// Backward congestion notification: set in every CNP. Flag B.
        "BECN";
        /// The letters that `hirail decode` prints: S solicited event, A acknowledge request, F FECN,
        /// B BECN, C marked by a congested switch (ECN CE).
        "flags";
        /// Data copied when its work request is posted: the buffer may be used again at once.
        "inline" = "inline data";
        /// A work request that waits until all earlier READs and atomics have completed.
        "fence";
        /// A work request that makes a completion also when it succeeds.
        "signaled" = "signalled";
        /// A request that was received before and came again. It is answered again and never executed
        /// twice.
        "duplicate";
        /// A packet that was sent before and is sent again because its answer did not come or said
        /// that it was lost.
        "retransmission" = "retransmitted" | "sent again";
        /// An answer to a later request proves that an earlier read or atomic was lost.
        "implied NAK";
        /// An acknowledgement older than everything outstanding; it changes nothing.
        "ghost ACK";
        /// Loss recovery of the standard: everything from the lost packet on is sent again.
        "go-back-N" = "gbn";
        /// Loss recovery that sends the whole message again; early cards did.
        "go-back-0" = "gb0";
        /// Loss recovery that sends again only what is missing. Both ends must be hirail.
        "selective repeat" = "SR";
        /// Octets to one destination that may be in flight. It shrinks on loss and grows slowly.
        "window" = "window_packets";
        /// Work requests that a test keeps in flight at a time.
        "depth";
        /// Traffic class of IP, 6 bits. Switches map it to a priority.
        "DSCP";
        /// Explicit congestion notification, 2 bits of IP: a congested switch changes ECT to CE instead
        /// of dropping.
        "ECN" = "explicit congestion notification";
        /// Congestion experienced: the mark that a congested switch sets. Flag C.
        "CE" = "congestion experienced";
        /// ECN-capable transport: the sender reacts to marks, so mark instead of dropping.
        "ECT" = "ECT(0)" | "ECT(1)";
        /// Traffic class octet: DSCP and ECN.
        "traffic class" = "tclass" | "ToS";
        /// Flow label of IPv6, 20 bits. hirail and Linux derive the UDP source port from it.
        "flow label";
        /// UDP source port of RoCE v2, 0xc000 to 0xffff: differs between connections so that networks
        /// spread them over their paths, and stays the same within one.
        "source port" = "entropy";
        /// 802.1p priority, 3 bits of a VLAN tag, 0 to 7.
        "priority" = "PCP" | "prio" | "802.1p";
        /// Service level; on RoCE its low three bits become the priority.
        "SL" = "service level";
        /// Virtual LAN (802.1Q).
        "VLAN" = "802.1Q";
        /// 802.3x: a frame that stops all traffic of a link for a time.
        "PAUSE" = "802.3x" | "global pause";
        /// Priority flow control (802.1Qbb): a frame that stops chosen priorities of a link for a time,
        /// so that no packet of theirs is dropped.
        "PFC" = "priority flow control" | "802.1Qbb";
        /// Of a network or a priority: none of its packets is dropped for lack of buffers, because PFC
        /// or PAUSE stops the sender first. RoCE goes on without, but each loss costs time.
        "lossless";
        /// Unit of PAUSE and PFC times: 512 bit times.
        "quanta" = "quantum";
        /// Fill level of a receive buffer at which PFC stops the sender.
        "XOFF";
        /// Fill level of a receive buffer at which PFC lets the sender go on.
        "XON" = "resume";
        /// Buffer for what is still on its way after PFC has asked to stop.
        "headroom";
        /// Link layer discovery: a port tells its neighbour what it is.
        "LLDP";
        /// Data center bridging exchange: neighbours agree on PFC, ETS and application priorities over
        /// LLDP.
        "DCBX" = "willing";
        /// Enhanced transmission selection (802.1Qaz): traffic classes share a link by weight.
        "ETS" = "recommends" | "802.1Qaz";
        /// Traffic class of a port: a queue, with its own share of the link.
        "TC";
        /// RoCE's congestion control: switches mark (ECN), receivers notify (CNP), senders slow down.
        "DCQCN";
        /// Reaction point: the sender, which slows down for each CNP and recovers over time.
        "RP" = "reaction point";
        /// Notification point: the receiver, which answers marked packets with CNPs.
        "NP" = "notification point";
        /// Congestion point: the switch that marks.
        "CP" = "congestion point";
        /// Of DCQCN: how congested the path was lately, 0 to 1. A CNP cuts the rate by half of it.
        "alpha";
        /// The largest IB MTU that the interface's MTU has room for.
        "active MTU";
        /// Generic segmentation offload: many packets go to the kernel in one call (UDP_SEGMENT).
        "GSO" = "UDP_SEGMENT";
        /// Generic receive offload: many packets come from the kernel in one call (UDP_GRO).
        "GRO" = "UDP_GRO";
        /// A small program in the kernel that gives each packet to the process that owns its queue
        /// pair.
        "BPF" = "SO_REUSEPORT" | "SO_ATTACH_REUSEPORT_CBPF" | "port sharing";
        /// Picking the owner of a packet among the processes that share the UDP port. The kernel does it
        /// (BPF); with HIRAIL_STEERING=off one process receives all packets and passes them on.
        "steering" = "HIRAIL_STEERING";
        /// The thread that runs a device while no thread of the program polls it, so that peers can
        /// read and write although the program does something else.
        "progress thread" = "progress";
        /// Time from a message to its answer, halved: what one way costs.
        "half round trip" = "1/2 round trip";
        /// Time from a request to its answer.
        "round trip" = "RTT";
        /// Percentile: this share of all samples was not above the value (p50 is the median).
        "percentile" = "p50" | "p90" | "p99" | "p99.9" | "p99.99" | "median";
        /// Of an all-reduce: octets of the array divided by the time.
        "algbw" = "algorithm bandwidth";
        /// Of an all-reduce: algbw times 2(n - 1)/n, which is what each link carried.
        "busbw" = "bus bandwidth";
        /// Every process gets the sum of all processes' arrays. hirail measures the ring algorithm.
        "all-reduce" = "allreduce";
        /// The figure divided by that of one TCP stream doing the same in the same run.
        "vs_tcp";
        /// The figure divided by that of plain UDP doing the same in the same run.
        "vs_udp";
        /// 10^9 bits per second, of payload.
        "Gb/s" = "Gbps" | "Gbit/s";
        /// 10^6 messages per second.
        "Mmsg/s" = "Mpps";
        /// Seconds that all cores spent for 10^9 octets.
        "CPU s/GB" = "s/GB" | "cpu";
        /// RDMA over TCP, another standard: MPA, DDP and RDMAP.
        "iWARP";
        /// Of iWARP: puts messages into a TCP stream, as FPDUs.
        "MPA" = "MPA Request" | "MPA Reply";
        /// Of iWARP: a frame in the TCP stream, with length and CRC.
        "FPDU";
        /// Of iWARP: places segments into buffers, tagged (anywhere) or untagged (in order).
        "DDP";
        /// Of iWARP: the operations, above DDP.
        "RDMAP";
        /// Of iWARP: the rkey.
        "STag" = "steering tag";
        /// Of iWARP: pointers every 512 octets of the TCP stream to the start of a frame.
        "markers" = "marker";
        /// Of iWARP: reads that this side answers at a time (ird) or makes at a time (ord).
        "ird" = "ord";
        /// Of iWARP: queue number of an untagged message, and offset in it (mo).
        "qn" = "mo" | "message offset";
        /// `hirail decode`: a sequence number so far from the last that it must belong to another
        /// connection with the same queue pair number.
        "far-off PSN";
        /// What travels in one Ethernet frame: headers, payload and ICRC. A message is one packet or
        /// many.
        "packet" = "frame";
    }
    ParseReason {
        /// An LLDP frame whose first three TLVs are not the mandatory ones.
        "bad_lldp_order";
        /// A TLV of LLDP with a length that its type does not have.
        "bad_tlv";
    }
}
