//! Capture files: [`Reader`] takes pcap and pcapng in either byte order, [`Writer`] makes pcapng.
//!
//! Both work on anything that implements `std::io`'s `Read` or `Write`; neither opens a file. Times
//! are nanoseconds since the Unix epoch. A hostile file costs an error that names the offset, never
//! a panic and never memory beyond [`MAX_PACKET`] and a few buffers.

mod reader;
mod writer;

use std::borrow::Cow;
use std::{fmt, io};

pub use reader::Reader;
pub use writer::Writer;

/// The longest packet that a capture may hold, in bytes: libpcap's own limit.
pub const MAX_PACKET: usize = 262_144;

/// What the bytes of a captured packet begin with: a number of the tcpdump registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family in 4 bytes of the capturing host's order.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// An IPv4 or IPv6 header, told apart by its version field.
    pub const RAW: Self = Self(101);
    /// Linux "cooked" capture: what `tcpdump -i any` records.
    pub const LINUX_SLL: Self = Self(113);
    /// An IPv4 header.
    pub const IPV4: Self = Self(228);
    /// An IPv6 header.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2: what newer `tcpdump -i any` records.
    pub const LINUX_SLL2: Self = Self(276);
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NULL => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::LINUX_SLL => "Linux cooked",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self::LINUX_SLL2 => "Linux cooked v2",
            Self(number) => return write!(f, "link type {number}"),
        };
        f.write_str(name)
    }
}

/// An interface that packets were captured on. A pcap file has exactly one, without a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// What its packets begin with.
    pub link_type: LinkType,
    /// Its name on the capturing host, where the file tells it.
    pub name: Option<String>,
}

/// Which way a packet went, seen from where it was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It arrived.
    Inbound,
    /// It was sent.
    Outbound,
}

/// One captured packet, borrowed from the reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Where it was captured.
    pub interface: &'a Interface,
    /// The place of this interface in [`Reader::interfaces`].
    pub interface_index: usize,
    /// When it was captured, in nanoseconds since the Unix epoch. A pcapng "simple packet" has no
    /// time.
    pub time_ns: Option<u64>,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// How many bytes the packet had on the wire; more than `data` where the capture cut it short.
    pub original_len: u32,
    /// The first comment on the packet, pcapng only.
    pub comment: Option<Cow<'a, str>>,
    /// Which way it went, where the file tells it; pcapng only.
    pub direction: Option<Direction>,
}

/// Why a capture cannot be read, or not any further.
#[derive(Debug)]
pub enum Error {
    /// The source of bytes failed.
    Io(io::Error),
    /// The first four bytes are neither pcap's nor pcapng's (fewer where the file is shorter).
    NotACapture {
        /// The bytes that stand there.
        found: [u8; 4],
        /// How many of them exist.
        len: usize,
    },
    /// The file ends inside something.
    Truncated {
        /// Where in the file that something begins, in bytes.
        offset: u64,
        /// What it is.
        what: &'static str,
        /// How many bytes it needs.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// A field has a value that it cannot have.
    Malformed {
        /// Where in the file the block or record with that field begins, in bytes.
        offset: u64,
        /// The field.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read: {error}"),
            Self::NotACapture { len: 0, .. } => {
                f.write_str("expected a pcap or pcapng capture, found an empty file")
            }
            Self::NotACapture { found, len } => {
                f.write_str("expected a pcap or pcapng capture, found a file that begins with")?;
                found
                    .iter()
                    .take(*len)
                    .try_for_each(|byte| write!(f, " {byte:02x}"))?;
                if found.starts_with(&[0x1f, 0x8b]) {
                    f.write_str(" (gzip: unpack it first)")?;
                }
                Ok(())
            }
            Self::Truncated {
                offset,
                what,
                expected,
                found,
            } => write!(
                f,
                "cut off at offset {offset}: expected {expected} bytes of {what}, found {found}"
            ),
            Self::Malformed {
                offset,
                what,
                expected,
                found,
            } => {
                write!(
                    f,
                    "bad {what} at offset {offset}: expected {expected}, found {found:#x}"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Block types of pcapng.
mod block {
    pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const OBSOLETE_PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const ENHANCED_PACKET: u32 = 6;
}

/// Option codes of pcapng.
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    /// Of a packet.
    pub(super) const FLAGS: u16 = 2;
    /// Of an interface.
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const TIME_RESOLUTION: u16 = 9;
    pub(super) const TIME_OFFSET: u16 = 14;
}

/// Reads as 0x1a2b3c4d in the byte order of the section.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
