//! rsockets: the calls of sockets over RDMA (`rsocket(7)`), on the wire as rdma-core speaks them.
//!
//! | module | |
//! | --- | --- |
//! | `protocol` | what peers tell each other |
//! | `ring`, `sender`, `receiver` | both halves of a stream, without bytes and queues |
//! | `memory`, `endpoint`, `link` | those with a queue pair and buffers |
//! | `stream`, `connect`, `accept`, `transfer`, `close` | what a stream goes through |
//! | `datagram` | sockets for datagrams |
//! | `table`, `name`, `option`, `config` | descriptors, addresses, options |
//! | `wait`, `poll`, `select`, `epoll` | waiting |
//! | `io`, `iomap` | the calls that move bytes |
//! | `service`, `keepalive` | what happens while the program is elsewhere |
//!
//! One lock guards a socket, and is not held while a thread sleeps. The program's threads move the
//! bytes; the service's thread only answers.
//!
//! A forked child cannot use the sockets of its parent: the device belongs to that process. What is
//! open when a process exits is shut down, as the kernel does with its sockets; one that is killed
//! says nothing, and its peers find out when they ask.

mod accept;
mod close;
mod config;
mod connect;
mod datagram;
mod endpoint;
mod epoll;
#[cfg(test)]
mod flow_tests;
mod io;
mod iomap;
mod keepalive;
mod link;
mod memory;
mod name;
mod option;
mod poll;
mod protocol;
mod receiver;
mod ring;
mod select;
mod sender;
mod service;
mod stream;
mod table;
mod transfer;
mod wait;

pub(crate) use accept::{raccept, rlisten};
pub(crate) use close::{rclose, rshutdown};
pub(crate) use connect::rconnect;
pub(crate) use epoll::{repoll_create, repoll_ctl, repoll_wait};
pub(crate) use io::{
    rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev,
};
pub(crate) use iomap::{riomap, riounmap, riowrite};
pub(crate) use name::{rbind, rgetpeername, rgetsockname, rsocket};
pub(crate) use option::{rfcntl, rgetsockopt, rsetsockopt};
pub(crate) use poll::rpoll;
pub(crate) use select::rselect;
