//! A library for `LD_PRELOAD` by which programs written for sockets of the kernel talk over RDMA:
//! their streams and datagrams are rsockets of `librdmacm.so.1`. `hirail run --rsockets` sets it. It
//! stands for `librspreload.so` of rdma-core (`rsocket(7)`); both ends must use rsockets.
//!
//! | module | |
//! | --- | --- |
//! | `function` | the functions of the C library and of rsockets, found by name |
//! | `table` | which descriptors mean an rsocket |
//! | `socket` | making, connecting and closing |
//! | `transfer`, `wait`, `option` | the calls that move bytes, wait, and set options |
//!
//! The program's descriptor is a socket of the kernel, which is not used unless the peer has no
//! rsocket: then it takes over, as it was set. So `fstat`, `dup` and closing at `exec` are what they
//! would be.
//!
//! What it cannot do: calls within the C library do not come by (`fdopen` of a socket, for one), and
//! rsockets stay with the process that made them when it forks.
//!
//! Some of these functions are called in signal handlers, so nothing here allocates or takes a lock
//! for descriptors that mean no rsocket.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(test))]
mod function;
#[cfg(not(test))]
mod option;
#[cfg(not(test))]
mod socket;
mod table;
#[cfg(not(test))]
mod transfer;
#[cfg(not(test))]
mod wait;
