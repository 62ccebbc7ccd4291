//! RoCE v2 over UDP sockets, without privileges: the port as a [`Link`].

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use hirail_rnic::PacketMeta;
use hirail_rnic::host::Fault;
use hirail_rnic::transmit::{Budget, Run, Segment};
use hirail_vocab::{Counters, DropReason};
use hirail_wire::Gid;

use super::Threads;
use super::link::{Arrival, Link, Sink};
use crate::port::send::{Path, PushError, Transmitter};

/// Packets of one run: what one message to the kernel can hold.
const RUN_PACKETS: usize = 64;

/// Bytes of one run: two messages to the kernel, since a First packet is longer than the Middles.
const RUN_BYTES: usize = 72 << 10;
