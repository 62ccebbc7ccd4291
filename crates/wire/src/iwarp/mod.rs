//! iWARP, RoCE's sibling on TCP: RDMAP (RFC 5040) over DDP (RFC 5041) over MPA (RFC 5044).
//!
//! hirail does not run iWARP; it reads it in captures. From the TCP stream upwards: a [`Startup`]
//! frame in each direction, then [`Fpdu`]s, each with one DDP [`Segment`] of an RDMAP message.
//! Putting the TCP stream together is the caller's work.

mod fpdu;
mod rdmap;
mod startup;
mod tcp;

use core::fmt;

pub use fpdu::{Fpdu, MARKER_INTERVAL, emit_fpdu};
pub use rdmap::{Ddp, Opcode, ReadRequest, Segment, Terminate};
pub use startup::{Enhanced, Revision, Startup, StartupKind};
pub use tcp::TcpHeader;

use crate::ParseError;

/// Why bytes of an iWARP stream were refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// More bytes are needed. In a stream this is no error yet: they may still arrive.
    Truncated {
        /// Bytes needed from the beginning of the frame or header.
        needed: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The stream does not begin with the key of an MPA startup frame.
    NotMpa,
    /// The MPA revision is neither 1 nor 2.
    BadRevision(u8),
    /// More private data than the 512 bytes that a startup frame may carry, or less than the 4 of
    /// the enhanced set-up.
    BadPrivateData(u16),
    /// The DDP version is not 1.
    BadDdpVersion(u8),
    /// The RDMAP version is not 1.
    BadRdmapVersion(u8),
    /// An RDMAP opcode without meaning.
    UnknownOpcode(u8),
    /// An opcode under the wrong DDP header: tagged instead of untagged, the other way round, or a
    /// wrong queue number.
    WrongHeader(Opcode),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, have } => write!(f, "expected {needed} bytes, got {have}"),
            Self::NotMpa => f.write_str("not an MPA startup frame"),
            Self::BadRevision(revision) => write!(f, "MPA revision {revision}, expected 1 or 2"),
            Self::BadPrivateData(len) => {
                write!(f, "{len} bytes of MPA private data, expected at most 512")
            }
            Self::BadDdpVersion(version) => write!(f, "DDP version {version}, expected 1"),
            Self::BadRdmapVersion(version) => write!(f, "RDMAP version {version}, expected 1"),
            Self::UnknownOpcode(opcode) => write!(f, "unknown RDMAP opcode {opcode}"),
            Self::WrongHeader(opcode) => write!(f, "{opcode} under the wrong DDP header"),
        }
    }
}

impl core::error::Error for Error {}

/// The cursor over bytes knows one way to fail.
impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Truncated { needed, have } => Self::Truncated { needed, have },
            _ => unreachable!("a cursor over bytes only runs short"),
        }
    }
}
