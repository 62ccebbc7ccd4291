//! What peers tell each other: in the private data of the connection, in 32 bits of immediate data
//! with every WRITE, and in two tables that each writes in the other's memory.
//!
//! Source: `librdmacm/docs/rsocket` of rdma-core ("rsocket Protocol and Design Guide"), and what
//! rdma-core says beyond it on the wire: the table of mapped buffers is announced by a flag, and its
//! size by a byte that was reserved.

/// Entries of the table through which a receiver tells where its halves of a buffer are.
pub(super) const TARGETS: u32 = 2;

/// The version of the protocol.
const VERSION: u8 = 1;

/// The host is big-endian: what it writes into tables is, too.
const FLAG_BIG_ENDIAN: u8 = 1;

/// There is a table of mapped buffers.
const FLAG_IOMAP: u8 = 2;

/// A piece of memory of the peer's (`struct rs_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

/// How integers lie in tables: they are written as the host that reads them has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// This host's.
    pub(super) const OWN: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn read_u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn read_u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// So many bytes of `from`, from `at` on.
fn part<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

impl Sge {
    pub(super) const SIZE: usize = 16;

    pub(super) fn encode(self, order: Order) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&order.u64(self.addr));
        bytes[8..12].copy_from_slice(&order.u32(self.key));
        bytes[12..].copy_from_slice(&order.u32(self.length));
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::SIZE], order: Order) -> Self {
        Self {
            addr: order.read_u64(part(bytes, 0)),
            key: order.read_u32(part(bytes, 8)),
            length: order.read_u32(part(bytes, 12)),
        }
    }
}

/// A mapped buffer (`struct rs_iomap`): what the peer calls its first byte, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) sge: Sge,
}

impl Mapping {
    pub(super) const SIZE: usize = 24;

    pub(super) fn encode(self, order: Order) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&order.u64(self.offset));
        bytes[8..].copy_from_slice(&self.sge.encode(order));
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::SIZE], order: Order) -> Self {
        Self {
            offset: order.read_u64(part(bytes, 0)),
            sge: Sge::decode(&part(bytes, 8), order),
        }
    }
}

/// Numbers of mapped buffers up to 128 are said as they are, greater ones in steps of 256.
const EXACT: u16 = 128;

/// As many buffers as can be said, at least one of a greater number's step.
pub(super) fn sayable(mappings: u16) -> u16 {
    read_scaled(scaled(mappings))
}

fn scaled(mappings: u16) -> u8 {
    if mappings <= EXACT {
        mappings as u8
    } else {
        EXACT as u8 | (mappings >> 8) as u8 & 0x7f
    }
}

fn read_scaled(byte: u8) -> u16 {
    let byte = u16::from(byte);
    if byte <= EXACT {
        byte
    } else {
        (byte & !EXACT) << 8
    }
}

/// What each side says of itself when the connection is made (`struct rs_conn_data`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) order: Order,
    /// Messages that the other side may send before it hears more.
    pub(super) credits: u16,
    /// Buffers that the other side may map.
    pub(super) mappings: u16,
    /// Whether there is a table of mapped buffers.
    pub(super) has_iomap: bool,
    /// The table of targets; its length is in entries.
    pub(super) targets: Sge,
    /// The first target.
    pub(super) buffer: Sge,
}

impl Hello {
    pub(super) const SIZE: usize = 40;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        if self.has_iomap {
            bytes[1] |= FLAG_IOMAP;
        }
        if self.order == Order::Big {
            bytes[1] |= FLAG_BIG_ENDIAN;
        }
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scaled(self.mappings);
        bytes[8..24].copy_from_slice(&self.targets.encode(Order::Big));
        bytes[24..].copy_from_slice(&self.buffer.encode(Order::Big));
        bytes
    }

    /// What the other side says; nothing where it speaks another version. More may follow.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < Self::SIZE || bytes[0] != VERSION {
            return None;
        }
        let flags = bytes[1];
        let has_iomap = flags & FLAG_IOMAP != 0;
        Some(Self {
            order: if flags & FLAG_BIG_ENDIAN == 0 {
                Order::Little
            } else {
                Order::Big
            },
            credits: u16::from_be_bytes(part(bytes, 2)),
            mappings: if has_iomap { read_scaled(bytes[7]) } else { 0 },
            has_iomap,
            targets: Sge::decode(&part(bytes, 8), Order::Big),
            buffer: Sge::decode(&part(bytes, 24), Order::Big),
        })
    }

    /// Where an entry of the peer's table of targets is.
    pub(super) fn target_at(&self, entry: u32) -> u64 {
        let at = u64::from(entry) * Sge::SIZE as u64;
        self.targets.addr.wrapping_add(at)
    }

    /// Where an entry of the peer's table of mapped buffers is: it follows the other one.
    pub(super) fn mapping_at(&self, entry: u16) -> u64 {
        let at = u64::from(entry) * Mapping::SIZE as u64;
        self.target_at(self.targets.length).wrapping_add(at)
    }
}

/// What is said of the connection itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Control {
    /// Nothing more is sent or received.
    Disconnect,
    /// The peer is asked whether it is there. This is never heard: it goes without immediate data.
    KeepAlive,
    /// Nothing more is sent.
    Shutdown,
}

/// What 32 bits of immediate data say. The same form names sends in their completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// So many bytes follow those before.
    Data(u32),
    /// So many bytes went into a mapped buffer. This is never heard, for the same reason.
    Direct(u32),
    /// Messages may be sent up to this number; with bytes, a target was written.
    Credits(u16),
    /// This entry of the table of mapped buffers was written.
    Mapped(u16),
    Control(Control),
    /// Something that this version does not know.
    Unknown,
}

/// Bits of the meaning, below the type.
const MEANING: u32 = (1 << 29) - 1;

impl Message {
    pub(super) fn encode(self) -> u32 {
        let (kind, meaning) = match self {
            Self::Data(length) => (0, length),
            Self::Direct(length) => (2, length),
            Self::Credits(limit) => (4, limit.into()),
            Self::Mapped(entry) => (6, entry.into()),
            Self::Control(Control::Disconnect) => (7, 0),
            Self::Control(Control::KeepAlive) => (7, 1),
            Self::Control(Control::Shutdown) => (7, 2),
            Self::Unknown => (5, 0),
        };
        kind << 29 | meaning & MEANING
    }

    pub(super) fn decode(bits: u32) -> Self {
        let meaning = bits & MEANING;
        match (bits >> 29, meaning) {
            (0, length) => Self::Data(length),
            (2, length) => Self::Direct(length),
            // The number goes round; senders do not take what is above it away.
            (4, limit) => Self::Credits(limit as u16),
            (6, entry) => Self::Mapped(entry as u16),
            (7, 0) => Self::Control(Control::Disconnect),
            (7, 1) => Self::Control(Control::KeepAlive),
            (7, 2) => Self::Control(Control::Shutdown),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    /// Private data of the request of `rstream` of rdma-core 44, as it was on the wire.
    const REQUEST: &str = "01 02 01 80 00 00 00 00 \
        00 00 55 e9 86 1f e0 00 00 00 41 95 00 00 00 02 \
        00 00 7f 8f 8a 58 50 00 00 00 42 20 00 08 00 00";

    #[test]
    fn the_hello_of_rdma_core() {
        let bytes = bytes(REQUEST);
        let hello = Hello::decode(&bytes).unwrap();
        let expected = Hello {
            order: Order::Little,
            credits: 384,
            mappings: 0,
            has_iomap: true,
            targets: Sge {
                addr: 0x55e9_861f_e000,
                key: 0x4195,
                length: TARGETS,
            },
            buffer: Sge {
                addr: 0x7f8f_8a58_5000,
                key: 0x4220,
                length: 1 << 19,
            },
        };
        assert_eq!(hello, expected);
        assert_eq!(hello.encode()[..], bytes);
        assert_eq!(hello.target_at(1), 0x55e9_861f_e010);
        assert_eq!(hello.mapping_at(0), 0x55e9_861f_e020);
    }

    #[test]
    fn a_hello_that_is_short_or_of_another_version_is_none() {
        let mut bytes = bytes(REQUEST);
        bytes.resize(56, 0);
        assert!(Hello::decode(&bytes).is_some());
        assert_eq!(Hello::decode(&bytes[..39]), None);
        bytes[0] = 2;
        assert_eq!(Hello::decode(&bytes), None);
    }

    #[test]
    fn the_target_that_rdma_core_wrote() {
        let written = bytes("00 50 60 8a 8f 7f 00 00 20 42 00 00 00 00 08 00");
        let target = Sge::decode(&part(&written, 0), Order::Little);
        let expected = Sge {
            addr: 0x7f8f_8a60_5000,
            key: 0x4220,
            length: 1 << 19,
        };
        assert_eq!(target, expected);
        assert_eq!(target.encode(Order::Little)[..], written);
        let swapped = target.encode(Order::Big);
        assert_eq!(Sge::decode(&swapped, Order::Big), target);
        assert_ne!(swapped[..], written);
    }

    #[test]
    fn the_messages_of_rdma_core() {
        for (bits, message) in [
            (0x8000_0180, Message::Credits(384)),
            (0x0000_0010, Message::Data(16)),
            (0xe000_0000, Message::Control(Control::Disconnect)),
            (0xe000_0002, Message::Control(Control::Shutdown)),
            (0xc000_0003, Message::Mapped(3)),
        ] {
            assert_eq!(Message::decode(bits), message);
            assert_eq!(message.encode(), bits);
        }
        // 0xfff0 + 384 goes round.
        assert_eq!(Message::decode(0x8001_0170), Message::Credits(0x170));
        for unknown in [0x2000_0000, 0x6000_0001, 0xa000_0000, 0xe000_0003] {
            assert_eq!(Message::decode(unknown), Message::Unknown);
        }
    }

    #[test]
    fn numbers_of_mappings_are_said_in_a_byte() {
        for exact in [0, 1, 64, 128] {
            assert_eq!(sayable(exact), exact);
        }
        assert_eq!(sayable(512), 512);
        assert_eq!(sayable(513), 512);
        for mappings in 0..=u16::MAX >> 1 {
            assert_eq!(sayable(sayable(mappings)), sayable(mappings));
        }
    }

    #[test]
    fn a_mapping_comes_back() {
        let mapping = Mapping {
            offset: 0x1122_3344_5566_7788,
            sge: Sge {
                addr: 7,
                key: 8,
                length: 9,
            },
        };
        for order in [Order::Little, Order::Big] {
            assert_eq!(Mapping::decode(&mapping.encode(order), order), mapping);
        }
    }
}
