//! RoCE packet formats.
pub mod id;
pub mod pcap;
pub use id::{AckTimeout, Gid, Lkey, Msn, PKey, PathMtu, Psn, QKey, Qpn, Rkey, RnrTimer};
