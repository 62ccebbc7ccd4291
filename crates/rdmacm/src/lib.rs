//! `librdmacm.so.1` on hirail: programs written against the C interface of rdma_cm connect over the
//! software RNIC, as they are. `hirail run -- PROGRAM` puts this library in front of the system's.
//!
//! | module | |
//! | --- | --- |
//! | `exports` | the symbols and their versions |
//! | `entry`, `errno` | the way in: no panic leaves the library |
//! | `bridge` | the way to `libibverbs.so.1`, where devices and connections are |
//! | `device`, `address` | devices, and which one an address belongs to |
//! | `id`, `registry` | ids, and whose an event is |
//! | `channel`, `event`, `translate` | events behind a descriptor |
//! | `resolve`, `port`, `listen`, `connect`, `qp`, `srq`, `multicast` | what an id goes through |
//! | `endpoint`, `addrinfo`, `lookup`, `option`, `names` | the rest of the interface |
//! | `rsocket` | sockets over RDMA |
//!
//! It knows the structures of C and nothing of the engine. A call with an id that was made without a
//! channel waits for its event (`id::complete`).

#![deny(unsafe_op_in_unsafe_fn)]

mod address;
mod addrinfo;
mod bridge;
mod channel;
mod connect;
mod device;
mod endpoint;
mod entry;
mod errno;
mod event;
mod exports;
mod id;
mod listen;
mod lookup;
mod multicast;
mod names;
mod option;
mod port;
mod qp;
mod registry;
mod resolve;
mod rsocket;
mod srq;
mod translate;
