//! Why bytes were refused: one reason per way to be wrong, each with a name that a counter can
//! carry.

use core::fmt;

/// Why a packet, header or frame was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Fewer bytes than the headers or a length field ask for.
    Truncated {
        /// Bytes that were needed, counted from the start of the refused part.
        needed: usize,
        /// Bytes that there were.
        have: usize,
    },
    /// The BTH opcode is reserved, of reliable datagram, or of a foreign manufacturer.
    UnknownOpcode(u8),
    /// The transport header version of the BTH is not 0.
    BadTver(u8),
    /// Payload and pad do not fill a multiple of four bytes, or the pad is longer than both.
    BadPad {
        /// The pad count of the BTH.
        pad: u8,
        /// Bytes of payload and pad together.
        body: usize,
    },
    /// Bytes follow the headers of an opcode that carries no payload.
    UnexpectedPayload {
        /// The opcode.
        opcode: u8,
        /// How many bytes follow.
        body: usize,
    },
    /// The selectivity level of a FLUSH is neither range nor region.
    BadFlush(u8),
    /// A hello or selective acknowledgement of somebody else who uses the same opcode.
    ForeignVendor,
    /// The IP version field contradicts the protocol that announced the header.
    BadIpVersion(u8),
    /// An IPv4 header with options, or shorter than 20 bytes; RoCE allows neither.
    BadIpHeaderLength(u8),
    /// A fragment. RoCE packets are never fragmented.
    Fragmented,
    /// The checksum of the IPv4 header is wrong.
    BadIpChecksum,
    /// A length field is impossible: shorter than its own header or in disagreement with the
    /// length around it.
    BadLength {
        /// The value of the field.
        field: usize,
        /// Bytes that the layer around it allows.
        room: usize,
    },
    /// The UDP checksum is present and wrong.
    BadUdpChecksum,
    /// The GRH announces something other than InfiniBand transport.
    BadGrhNextHeader(u8),
    /// A management datagram of an unknown base version.
    BadMadVersion(u8),
    /// A MAC control frame with an opcode that is neither PAUSE nor PFC.
    UnknownMacControl(u16),
    /// An LLDP frame whose mandatory first TLVs are missing or out of order.
    BadLldpOrder,
    /// A TLV whose length does not fit its type.
    BadTlv {
        /// TLV type.
        kind: u8,
        /// Length of its value in bytes.
        length: usize,
    },
}

impl ParseError {
    pub(crate) const fn truncated(needed: usize, have: usize) -> Self {
        Self::Truncated { needed, have }
    }

    /// The stable name of the reason, for counters and logs.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::UnknownOpcode(_) => "unknown_opcode",
            Self::BadTver(_) => "bad_tver",
            Self::BadPad { .. } => "bad_pad",
            Self::UnexpectedPayload { .. } => "unexpected_payload",
            Self::BadFlush(_) => "bad_flush",
            Self::ForeignVendor => "foreign_vendor",
            Self::BadIpVersion(_) => "bad_ip_version",
            Self::BadIpHeaderLength(_) => "bad_ip_header_length",
            Self::Fragmented => "fragmented",
            Self::BadIpChecksum => "bad_ip_checksum",
            Self::BadLength { .. } => "bad_length",
            Self::BadUdpChecksum => "bad_udp_checksum",
            Self::BadGrhNextHeader(_) => "bad_grh_next_header",
            Self::BadMadVersion(_) => "bad_mad_version",
            Self::UnknownMacControl(_) => "unknown_mac_control",
            Self::BadLldpOrder => "bad_lldp_order",
            Self::BadTlv { .. } => "bad_tlv",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, have } => write!(f, "{needed} bytes expected, got {have}"),
            Self::UnknownOpcode(opcode) => write!(f, "unknown opcode 0x{opcode:02x}"),
            Self::BadTver(tver) => write!(f, "transport header version {tver}, expected 0"),
            Self::BadPad { pad, body } => {
                write!(
                    f,
                    "pad count {pad} does not fit {body} bytes of payload and pad"
                )
            }
            Self::UnexpectedPayload { opcode, body } => {
                write!(
                    f,
                    "{body} bytes after the headers of opcode 0x{opcode:02x}, which has none"
                )
            }
            Self::BadFlush(level) => write!(f, "FLUSH selectivity {level}, expected 0 or 1"),
            Self::ForeignVendor => f.write_str("manufacturer opcode without hirail's mark"),
            Self::BadIpVersion(version) => write!(f, "IP version {version} under this EtherType"),
            Self::BadIpHeaderLength(words) => {
                write!(f, "IPv4 header of {words} words, expected 5 (no options)")
            }
            Self::Fragmented => f.write_str("IP fragment"),
            Self::BadIpChecksum => f.write_str("wrong IPv4 header checksum"),
            Self::BadLength { field, room } => {
                write!(
                    f,
                    "length field says {field} bytes where {room} are possible"
                )
            }
            Self::BadUdpChecksum => f.write_str("wrong UDP checksum"),
            Self::BadGrhNextHeader(next) => {
                write!(f, "GRH next header 0x{next:02x}, expected 0x1b")
            }
            Self::BadMadVersion(version) => write!(f, "MAD base version {version}, expected 1"),
            Self::UnknownMacControl(opcode) => write!(f, "MAC control opcode 0x{opcode:04x}"),
            Self::BadLldpOrder => f.write_str("LLDP without chassis, port and TTL first"),
            Self::BadTlv { kind, length } => write!(f, "TLV of type {kind} with length {length}"),
        }
    }
}

impl core::error::Error for ParseError {}
