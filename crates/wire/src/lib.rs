//! RoCE packet formats: bytes to typed headers and back, the ICRC, capture files. No I/O.
//!
//! Two layers. The views read any field of any bytes, also of packets that are refused;
//! [`Headers`] and its like can only hold what is valid. Parsing never panics and never allocates;
//! each refusal is a [`ParseError`] with a name that a counter can carry.
#![forbid(unsafe_code)]

mod bytes;
pub mod cm;
pub mod error;
pub mod header;
pub mod icrc;
pub mod id;
pub mod iwarp;
pub mod opcode;
pub mod pcap;
pub mod udp;

pub use error::ParseError;
pub use header::{
    Aeth, AtomicEth, Bth, Credits, Deth, Ext, Feth, FlushRange, Headers, Hello, NakCode, Reth,
    Sack, Syndrome,
};
pub use icrc::{Icrc, IcrcPrefix};
pub use id::{AckTimeout, Gid, Lkey, Msn, PKey, PathMtu, Psn, QKey, Qpn, Rkey, RnrTimer};
pub use opcode::{ExtKind, Opcode, Operation, Service};
