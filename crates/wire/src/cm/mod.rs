//! Connection management messages, as the 232 data bytes of a MAD carry them (IBTA Vol 1,
//! chapter 12, Communication Management).
//!
//! This reads and writes them. What a connection does with them is the business of whoever runs one.

mod emit;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};
use crate::{AckTimeout, Gid, PKey, ParseError, PathMtu, Psn, QKey, Qpn};

/// Bytes of a CM message.
pub const LEN: usize = 232;

/// Bytes of private data that each message holds, and where they begin.
pub mod private_data {
    use core::ops::Range;

    /// In a REQ; those of an [`IpHeader`](super::IpHeader) are among them.
    pub const REQ: Range<usize> = 140..super::LEN;
    /// In an MRA.
    pub const MRA: Range<usize> = 10..super::LEN;
    /// In a REJ.
    pub const REJ: Range<usize> = 84..super::LEN;
    /// In a REP.
    pub const REP: Range<usize> = 36..super::LEN;
    /// In an RTU.
    pub const RTU: Range<usize> = 8..super::LEN;
    /// In a DREQ.
    pub const DREQ: Range<usize> = 12..super::LEN;
    /// In a DREP.
    pub const DREP: Range<usize> = 8..super::LEN;
    /// In a SIDR_REQ; those of an [`IpHeader`](super::IpHeader) are among them.
    pub const SIDR_REQ: Range<usize> = 16..super::LEN;
    /// In a SIDR_REP.
    pub const SIDR_REP: Range<usize> = 96..super::LEN;
}

/// A CM message. The communication ids are the sender's first, then the receiver's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Request for a connection.
    Req(Req<'a>),
    /// "I got it, give me time".
    Mra(Mra<'a>),
    /// Refusal.
    Rej(Rej<'a>),
    /// Acceptance.
    Rep(Rep<'a>),
    /// The requesting side is ready.
    Rtu(Note<'a>),
    /// Request to disconnect.
    Dreq {
        /// Communication ids.
        ids: Ids,
        /// The QP at the receiver of this message.
        remote_qpn: Qpn,
        /// 220 bytes.
        private_data: &'a [u8],
    },
    /// The answer to it.
    Drep(Note<'a>),
    /// Datagram service: which QP serves this?
    SidrReq(SidrReq<'a>),
    /// The answer to it.
    SidrRep(SidrRep<'a>),
    /// Request for an alternate path; RoCE does not use it.
    Lap(Ids),
    /// The answer to it.
    Apr(Apr),
}

/// The communication ids by which two sides name one connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ids {
    /// Chosen by the sender of the message; 0 where it has none.
    pub local: u32,
    /// Chosen by the receiver.
    pub remote: u32,
}

/// A message that says nothing but which connection it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note<'a> {
    /// Communication ids.
    pub ids: Ids,
    /// 224 bytes.
    pub private_data: &'a [u8],
}

/// Transport that a REQ asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
    /// Something else: the service code and the extended one.
    Other(u8, u8),
}

/// Request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req<'a> {
    /// The requester's communication id.
    pub local_id: u32,
    /// Vendor of its ECE options, 24 bits; 0 where it has none.
    pub ece_vendor: u32,
    /// What it wants to be connected to.
    pub service: ServiceId,
    /// Node GUID of the requester.
    pub ca_guid: u64,
    /// Queue key; 0 for connections.
    pub qkey: QKey,
    /// Its QP.
    pub qpn: Qpn,
    /// Reads and atomics that it can serve at once.
    pub responder_resources: u8,
    /// Reads and atomics that it wants to have open at once.
    pub initiator_depth: u8,
    /// Time code of its patience with an answer.
    pub remote_response_timeout: u8,
    /// Time code of how soon it answers.
    pub local_response_timeout: u8,
    /// Transport service.
    pub transport: Transport,
    /// Whether it wants end-to-end credits.
    pub flow_control: bool,
    /// PSN that it expects first, that is, of the other side's first request.
    pub starting_psn: Psn,
    /// Retries after a lost acknowledgement.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7: for ever.
    pub rnr_retry_count: u8,
    /// Partition.
    pub pkey: PKey,
    /// Path MTU; `None` for a reserved code.
    pub mtu: Option<PathMtu>,
    /// How often a CM message is repeated.
    pub max_cm_retries: u8,
    /// Whether its receives come from a shared queue.
    pub srq: bool,
    /// GID of the requester.
    pub local_gid: Gid,
    /// GID of the side that is asked.
    pub remote_gid: Gid,
    /// Flow label of the path, 20 bits.
    pub flow_label: u32,
    /// Packet rate code of the path.
    pub packet_rate: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Hop limit of the path.
    pub hop_limit: u8,
    /// Service level of the path.
    pub sl: u8,
    /// Local ACK timeout.
    pub ack_timeout: AckTimeout,
    /// Whether an alternate path follows. It is not read, and none is written: RoCE migrates nothing.
    pub has_alternate: bool,
    /// 92 bytes: see [`IpHeader`].
    pub private_data: &'a [u8],
}

/// Acceptance of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep<'a> {
    /// Communication ids.
    pub ids: Ids,
    /// Queue key; 0 for connections.
    pub qkey: QKey,
    /// The accepting QP; 0 where it is one of XRC.
    pub qpn: Qpn,
    /// The EE context of the accepting side; for XRC its QP.
    pub eecn: Qpn,
    /// Vendor of its ECE options, 24 bits; 0 where it has none.
    pub ece_vendor: u32,
    /// PSN that it expects first, that is, of the other side's first request.
    pub starting_psn: Psn,
    /// Reads and atomics that it can serve at once.
    pub responder_resources: u8,
    /// Reads and atomics that it wants to have open at once.
    pub initiator_depth: u8,
    /// Time code of how long its acknowledgements may take.
    pub target_ack_delay: u8,
    /// What it thinks of the alternate path: 0 accepted, 1 not supported, 2 rejected.
    pub failover: u8,
    /// Whether it wants end-to-end credits.
    pub flow_control: bool,
    /// Retries after an RNR NAK that the other side shall use.
    pub rnr_retry_count: u8,
    /// Whether its receives come from a shared queue.
    pub srq: bool,
    /// Node GUID of the accepting side.
    pub ca_guid: u64,
    /// 196 bytes.
    pub private_data: &'a [u8],
}

/// Refusal of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej<'a> {
    /// Communication ids.
    pub ids: Ids,
    /// What is refused: 0 a REQ, 1 a REP, 2 something else.
    pub rejected: u8,
    /// Why.
    pub reason: RejReason,
    /// Additional information: for some reasons a value that would do; at most 72 bytes.
    pub ari: &'a [u8],
    /// 148 bytes.
    pub private_data: &'a [u8],
}

/// Message receipt acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra<'a> {
    /// Communication ids.
    pub ids: Ids,
    /// What was received: 0 a REQ, 1 a REP, 2 a LAP.
    pub received: u8,
    /// Time code of how long the answer may take.
    pub service_timeout: u8,
    /// 222 bytes.
    pub private_data: &'a [u8],
}

/// The answer to a request for an alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apr {
    /// Communication ids.
    pub ids: Ids,
    /// 0 loaded, 1 no such connection, 2 not supported; others refuse for other reasons.
    pub status: u8,
}

/// Question for the QP of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq<'a> {
    /// Repeated by the answer.
    pub request_id: u32,
    /// Partition.
    pub pkey: PKey,
    /// The service.
    pub service: ServiceId,
    /// 216 bytes: see [`IpHeader`].
    pub private_data: &'a [u8],
}

/// The answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep<'a> {
    /// Of the question.
    pub request_id: u32,
    /// 0 when there is such a service, 1 when there is not, 2 when it refuses, 3 when it has no QP.
    pub status: u8,
    /// Vendor of its ECE options, 24 bits; 0 where it has none.
    pub ece_vendor: u32,
    /// The QP that serves it.
    pub qpn: Qpn,
    /// The service.
    pub service: ServiceId,
    /// Queue key of that QP.
    pub qkey: QKey,
    /// 136 bytes.
    pub private_data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the message of this attribute id from the data bytes of a MAD. `None` for an attribute
    /// that is no CM message.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when the data is shorter than [`LEN`].
    pub fn parse(attribute: u16, data: &'a [u8]) -> Result<Option<Self>, ParseError> {
        let Some(data) = data.first_chunk::<LEN>() else {
            return Err(ParseError::Truncated {
                needed: LEN,
                have: data.len(),
            });
        };
        let m = Fields(data);
        Ok(Some(match attribute {
            0x10 => Self::Req(req(m)),
            0x11 => Self::Mra(Mra {
                ids: m.ids(),
                received: m.u8(8) >> 6,
                service_timeout: m.u8(9) >> 3,
                private_data: &data[private_data::MRA],
            }),
            0x12 => Self::Rej(Rej {
                ids: m.ids(),
                rejected: m.u8(8) >> 6,
                reason: RejReason(m.u16(10)),
                ari: &data[12..12 + usize::from(m.u8(9) >> 1).min(Rej::MAX_ARI)],
                private_data: &data[private_data::REJ],
            }),
            0x13 => Self::Rep(Rep {
                ids: m.ids(),
                qkey: QKey(m.u32(8)),
                qpn: Qpn::new(m.u24(12)),
                eecn: Qpn::new(m.u24(16)),
                ece_vendor: u32::from_be_bytes([0, m.u8(15), m.u8(19), m.u8(23)]),
                starting_psn: Psn::new(m.u24(20)),
                responder_resources: m.u8(24),
                initiator_depth: m.u8(25),
                target_ack_delay: m.u8(26) >> 3,
                failover: m.u8(26) >> 1 & 3,
                flow_control: m.u8(26) & 1 != 0,
                rnr_retry_count: m.u8(27) >> 5,
                srq: m.u8(27) & 0x10 != 0,
                ca_guid: m.u64(28),
                private_data: &data[private_data::REP],
            }),
            0x14 => Self::Rtu(Note {
                ids: m.ids(),
                private_data: &data[private_data::RTU],
            }),
            0x15 => Self::Dreq {
                ids: m.ids(),
                remote_qpn: Qpn::new(m.u24(8)),
                private_data: &data[private_data::DREQ],
            },
            0x16 => Self::Drep(Note {
                ids: m.ids(),
                private_data: &data[private_data::DREP],
            }),
            0x17 => Self::SidrReq(SidrReq {
                request_id: m.u32(0),
                pkey: PKey(m.u16(4)),
                service: ServiceId(m.u64(8)),
                private_data: &data[private_data::SIDR_REQ],
            }),
            0x18 => Self::SidrRep(SidrRep {
                request_id: m.u32(0),
                status: m.u8(4),
                ece_vendor: u32::from_be_bytes([0, m.u8(6), m.u8(7), m.u8(11)]),
                qpn: Qpn::new(m.u24(8)),
                service: ServiceId(m.u64(12)),
                qkey: QKey(m.u32(20)),
                private_data: &data[private_data::SIDR_REP],
            }),
            0x19 => Self::Lap(m.ids()),
            0x1a => Self::Apr(Apr {
                ids: m.ids(),
                status: m.u8(9),
            }),
            _ => return Ok(None),
        }))
    }

    /// The short name, such as `"REQ"`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq { .. } => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
            Self::Lap(_) => "LAP",
            Self::Apr(_) => "APR",
        }
    }
}

fn req(m: Fields<'_>) -> Req<'_> {
    let transport = match (m.u8(43) >> 1 & 3, m.u8(51) & 7) {
        (0, _) => Transport::Rc,
        (1, _) => Transport::Uc,
        (3, 1) => Transport::Xrc,
        (service, extended) => Transport::Other(service, extended),
    };
    Req {
        local_id: m.u32(0),
        ece_vendor: m.u24(5),
        service: ServiceId(m.u64(8)),
        ca_guid: m.u64(16),
        qkey: QKey(m.u32(28)),
        qpn: Qpn::new(m.u24(32)),
        responder_resources: m.u8(35),
        initiator_depth: m.u8(39),
        remote_response_timeout: m.u8(43) >> 3,
        local_response_timeout: m.u8(47) >> 3,
        transport,
        flow_control: m.u8(43) & 1 != 0,
        starting_psn: Psn::new(m.u24(44)),
        retry_count: m.u8(47) & 7,
        rnr_retry_count: m.u8(50) & 7,
        pkey: PKey(m.u16(48)),
        mtu: PathMtu::from_code(m.u8(50) >> 4),
        max_cm_retries: m.u8(51) >> 4,
        srq: m.u8(51) & 8 != 0,
        local_gid: m.gid(56),
        remote_gid: m.gid(72),
        flow_label: m.u32(88) >> 12,
        packet_rate: m.u8(91) & 0x3f,
        traffic_class: m.u8(92),
        hop_limit: m.u8(93),
        sl: m.u8(94) >> 4,
        ack_timeout: AckTimeout::new(m.u8(95) >> 3),
        has_alternate: m.gid(112) != Gid::default(),
        private_data: &m.0[private_data::REQ],
    }
}

/// What a REQ or SIDR_REQ asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceId(pub u64);

/// The port space of a service id that stands for an IP port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortSpace {
    /// Connections: RC.
    Tcp,
    /// Datagrams: UD.
    Udp,
    /// InfiniBand's own.
    Ib,
    /// IP over InfiniBand.
    Ipoib,
}

impl ServiceId {
    /// The service id that stands for a port.
    pub const fn of_port(space: PortSpace, port: u16) -> Self {
        let space: u64 = match space {
            PortSpace::Tcp => 0x0106,
            PortSpace::Udp => 0x0111,
            PortSpace::Ib => 0x013f,
            PortSpace::Ipoib => 0x0002,
        };
        Self(space << 16 | port as u64)
    }

    /// Port space and port, where the service id stands for one.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        let space = match self.0 >> 16 {
            0x0106 => PortSpace::Tcp,
            0x0111 => PortSpace::Udp,
            0x013f => PortSpace::Ib,
            0x0002 => PortSpace::Ipoib,
            _ => return None,
        };
        let [.., high, low] = self.0.to_be_bytes();
        Some((space, u16::from_be_bytes([high, low])))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((space, port)) = self.port() else {
            return write!(f, "0x{:016x}", self.0);
        };
        let space = match space {
            PortSpace::Tcp => "tcp",
            PortSpace::Udp => "udp",
            PortSpace::Ib => "ib",
            PortSpace::Ipoib => "ipoib",
        };
        write!(f, "{space}/{port}")
    }
}

/// The addresses at the beginning of the private data of a REQ or SIDR_REQ, 36 bytes. The user's
/// own private data follows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// Port of the connecting side.
    pub source_port: u16,
    /// Address of the connecting side.
    pub source: IpAddr,
    /// Address that it asked for.
    pub dest: IpAddr,
}

impl IpHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// The bytes on the wire. The addresses are of one family; a mixed pair is written as IPv6.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u8(0);
        match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                writer.u8(4 << 4);
                writer.u16(self.source_port);
                for ip in [source, dest] {
                    writer.put([0; 12]);
                    writer.put(ip.octets());
                }
            }
            (source, dest) => {
                writer.u8(6 << 4);
                writer.u16(self.source_port);
                for ip in [source, dest] {
                    writer.put(Gid::from_ip(ip).0);
                }
            }
        }
        bytes
    }

    /// Reads the header; `None` where the private data begins with something else.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(private_data);
        let (0, version) = (reader.u8().ok()?, reader.u8().ok()? >> 4) else {
            return None;
        };
        let source_port = reader.u16().ok()?;
        let mut address = || -> Option<IpAddr> {
            let bytes = reader.take::<16>().ok()?;
            match version {
                4 => {
                    let (_, v4) = bytes.split_last_chunk::<4>()?;
                    Some(Ipv4Addr::from_octets(*v4).into())
                }
                6 => Some(Ipv6Addr::from_octets(*bytes).into()),
                _ => None,
            }
        };
        Some(Self {
            source_port,
            source: address()?,
            dest: address()?,
        })
    }
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RejReason(pub u16);

impl Rej<'_> {
    /// Most bytes of additional information.
    pub const MAX_ARI: usize = 72;
    /// What is refused: a REQ.
    pub const OF_REQ: u8 = 0;
    /// What is refused: a REP.
    pub const OF_REP: u8 = 1;
    /// What is refused: something else.
    pub const OF_OTHER: u8 = 2;
}

impl RejReason {
    /// The sender has no room.
    pub const NO_RESOURCES: Self = Self(3);
    /// The sender has waited long enough.
    pub const TIMEOUT: Self = Self(4);
    /// The sender does not do this.
    pub const UNSUPPORTED_REQUEST: Self = Self(5);
    /// The sender knows no such connection.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// Nobody listens.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Not with this transport.
    pub const INVALID_TRANSPORT_TYPE: Self = Self(9);
    /// The queue pair is, or was until just now, part of another connection.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The path MTU is more than the sender's port carries.
    pub const INVALID_MTU: Self = Self(26);
    /// The application refuses.
    pub const CONSUMER: Self = Self(28);
    /// The communication id is in use.
    pub const DUPLICATE_LOCAL_COMM_ID: Self = Self(30);

    /// The reason in words; `None` for an unassigned number.
    pub const fn meaning(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no QP",
            2 => "no EEC",
            3 => "no resources",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id",
            9 => "invalid transport type",
            10 => "stale connection",
            11 => "RDC does not exist",
            12 => "primary GID rejected",
            13 => "primary LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "invalid alternate GID",
            19 => "invalid alternate LID",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and CM redirect",
            25 => "port redirect",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count reject",
            30 => "duplicate local communication id",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            _ => return None,
        })
    }
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => f.write_str(meaning),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// Fields at fixed offsets of a message.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8; LEN]);

impl Fields<'_> {
    fn at<const N: usize>(self, offset: usize) -> [u8; N] {
        *self.0[offset..]
            .first_chunk()
            .expect("all offsets lie within a message")
    }

    fn u8(self, offset: usize) -> u8 {
        self.0[offset]
    }

    fn u16(self, offset: usize) -> u16 {
        u16::from_be_bytes(self.at(offset))
    }

    fn u24(self, offset: usize) -> u32 {
        crate::bytes::u24(self.at(offset))
    }

    fn u32(self, offset: usize) -> u32 {
        u32::from_be_bytes(self.at(offset))
    }

    fn u64(self, offset: usize) -> u64 {
        u64::from_be_bytes(self.at(offset))
    }

    fn gid(self, offset: usize) -> Gid {
        Gid(self.at(offset))
    }

    fn ids(self) -> Ids {
        Ids {
            local: self.u32(0),
            remote: self.u32(4),
        }
    }
}
