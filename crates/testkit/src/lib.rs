//! What the tests of hirail share: devices on an in-memory network in virtual time, a scripted peer
//! for traces of one device, models and checkers that stand outside the engine; and what the built
//! libraries for C programs look like.
//!
//! Save for [`cdylib`], everything here is deterministic: time is virtual, randomness comes from seeds, equal times are
//! ordered by a running number.

#![forbid(unsafe_code)]

pub mod cdylib;
pub mod endpoint;
pub mod host;
pub mod memory;
pub mod net;
pub mod script;
pub mod sim;

pub use endpoint::{BASE, Endpoint, Pair, Setup, wr};
pub use host::SingleHost;
pub use memory::Memory;
pub use net::{Faults, Link, Net, NodeId};
