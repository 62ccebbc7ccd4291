//! `libibverbs.so.1` on hirail: programs written against the C verbs run on the software RNIC, as
//! they are. `hirail run -- PROGRAM` puts this library in front of the system's.
//!
//! | module | |
//! | --- | --- |
//! | `exports` | the symbols and their versions, by way of `hirail_abi::export` |
//! | `abi` | the structures of C, byte for byte: the crate `hirail-abi` |
//! | `bridge` | what `librdmacm.so.1` has of this library |
//! | `entry` | the way in: no panic leaves the library |
//! | `device`, `context`, `query` | devices, open ones, and what can be asked |
//! | `shared` | what an open device has in common with those imported from it |
//! | `dm`, `file` | memory of the device; memory behind descriptors |
//! | `pd`, `mr`, `register`, `bind`, `cq`, `channel`, `qp`, `srq`, `xrc`, `ah` | objects |
//! | `post`, `poll`, `ex` | the data path: pointers in the objects lead here |
//! | `events`, `async_event` | events behind descriptors |
//! | `check` | what `hirail run --check` sees of it all |
//! | `comp_counter` | completion counters |
//!
//! Everything is done by the library `hirail`; here are only the shapes of C.

#![deny(unsafe_op_in_unsafe_fn)]

use hirail_abi as abi;

mod ah;
mod async_event;
mod bind;
mod bridge;
mod channel;
mod check;
mod comp_counter;
mod context;
mod cq;
mod device;
mod dm;
mod entry;
mod errno;
mod events;
mod ex;
mod exports;
mod file;
mod lock;
mod marshal;
mod missing;
mod mr;
mod names;
mod pd;
mod poll;
mod post;
mod qp;
mod query;
mod register;
mod shared;
mod srq;
#[cfg(test)]
mod testing;
mod xrc;
