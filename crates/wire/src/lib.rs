//! RoCE packet formats: bytes to typed headers and back, the ICRC, capture files. No I/O.
//!
//! Two layers. [`view`] reads any field of any bytes, also of packets that are refused;
//! [`Headers`] and its like can only hold what is valid. Parsing never panics and never allocates;
//! each refusal is a [`ParseError`] with a name that a counter can carry.
//!
//! "IBTA Vol 1" in comments is the InfiniBand Architecture Specification, Volume 1, of the
//! InfiniBand Trade Association: chapter 9 is the Transport Layer, chapter 12 Communication
//! Management, the annexes A14, A16 and A17 are XRC, RoCE and RoCEv2.
#![forbid(unsafe_code)]

pub mod aeth;
mod bytes;
mod checksum;
pub mod cm;
pub mod error;
pub mod ethernet;
pub mod ext;
pub mod frame;
pub mod grh;
pub mod header;
pub mod icrc;
pub mod id;
pub mod ip;
pub mod iwarp;
pub mod lldp;
pub mod mac_control;
pub mod mad;
pub mod opcode;
pub mod pcap;
pub mod selective;
pub mod udp;
pub mod view;

pub use aeth::{Aeth, Credits, NakCode, Syndrome};
pub use error::ParseError;
pub use ethernet::MacAddr;
pub use ext::{AtomicEth, Deth, Ext, Feth, FlushRange, Reth};
pub use frame::{Encapsulation, FrameView, Framing};
pub use header::{Bth, Headers};
pub use icrc::{Icrc, IcrcPrefix, solve_ipv4_id};
pub use id::{AckTimeout, Gid, Lkey, Msn, PKey, PathMtu, Psn, QKey, Qpn, Rkey, RnrTimer};
pub use opcode::{ExtKind, Opcode, Operation, Service};
pub use selective::{Hello, Sack};
