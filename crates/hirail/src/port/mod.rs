//! The UDP port of RoCE v2 (4791), shared by all processes of a host without a daemon and without
//! privileges.
//!
//! | module | what it does |
//! | --- | --- |
//! | `registry` | who owns which queue pair numbers; how packets find their owner whatever dies |
//! | [`steering`] | queue pair numbers in blocks, and the BPF program that picks sockets by them |
//! | [`socket`] | sockets and their options |
//! | [`recv`], `forward` | batches in, packets to their owners |
//! | [`send`] | packets to batches, and out |
//! | [`icrc_check`] | the ICRC through a socket that hides a field |
//! | `gsi`, `held` | QP 1, which all processes share, and its messages that must wait |
//! | [`pcap`] | `HIRAIL_PCAP` |
//! | [`raw`] | whole Ethernet frames, past the UDP port |
//!
//! [`open`] gives a [`Receiver`], which belongs to whoever drives the device, and a
//! [`TransmitPool`], from which any thread makes a [`Transmitter`].

mod census;
mod control;
mod forward;
mod gsi;
mod held;
pub mod icrc_check;
pub mod pcap;
pub mod raw;
pub mod recv;
mod registry;
pub mod send;
pub mod socket;
pub mod steering;
pub(crate) mod sys;

use std::io;
use std::sync::Arc;

use thiserror::Error;

use hirail_wire::udp::ROCE_PORT;

pub use census::Holder;
pub use gsi::{ANYTHING, ID_BITS, first_communication_id};
pub use icrc_check::{BadIcrc, IcrcChecker};
pub use pcap::Recorder;
pub use recv::{Datagram, ReceiveStats, Receiver, Sweep};
pub use send::{Path, PushError, Sent, TransmitStats, Transmitter};
pub use socket::{Family, TransmitPool};
pub use steering::QpnBlock;

/// How to use the port. The defaults use whatever the kernel has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortOptions {
    /// UDP port to receive at and to send to. Every RoCE v2 stack uses 4791; another one serves tests
    /// that must not meet other programs.
    pub udp_port: u16,
    /// Hand batches of packets to the kernel (`UDP_SEGMENT`) where a path allows it.
    pub segmentation: bool,
    /// Let the kernel join packets that arrive together (`UDP_GRO`).
    pub coalescing: bool,
    /// Let the kernel pick the owner's socket. Without, one socket serves all processes, and
    /// whoever reads a packet passes it on.
    pub steering: bool,
    /// Receive buffer per socket in bytes, as the kernel counts. Above the system's limit
    /// (`net.core.rmem_max`, doubled) only with privilege.
    pub receive_buffer: usize,
    /// Send buffer per socket in bytes, likewise.
    pub send_buffer: usize,
}

impl Default for PortOptions {
    /// Buffers of 8 MiB: some 100 full batches, or 10 ms at 6 Gb/s for a process that was not
    /// scheduled.
    fn default() -> Self {
        Self {
            udp_port: ROCE_PORT,
            segmentation: true,
            coalescing: true,
            steering: true,
            receive_buffer: 8 << 20,
            send_buffer: 8 << 20,
        }
    }
}

/// How packets reach this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steering {
    /// The kernel picks this process's socket; a probe has shown it.
    Verified,
    /// The kernel picks this process's socket; no probe came back, the loopback interface may be
    /// down.
    Unverified,
    /// One socket serves all processes of this user, who pass packets on.
    Off,
    /// Processes of another user hold the port and pass packets on.
    Forwarded,
}

/// Which fast paths are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastPaths {
    /// How packets reach this process.
    pub steering: Steering,
    /// The kernel splits batches that are sent (`UDP_SEGMENT`).
    pub segmentation: bool,
    /// The kernel joins packets that arrive (`UDP_GRO`).
    pub coalescing: bool,
    /// Packets over IPv6 can arrive.
    pub ipv6: bool,
    /// Receive buffer in bytes, as the kernel counts.
    pub receive_buffer: usize,
}

/// Why the port cannot be used.
#[derive(Debug, Error)]
pub enum PortError {
    /// Somebody holds it who does not share.
    #[error("UDP port {port} is in use by {holder}")]
    InUse {
        /// The port.
        port: u16,
        /// Who, as far as can be seen.
        holder: Holder,
    },
    /// Every block of queue pair numbers is taken.
    #[error("too many processes share the port: all 510 blocks of queue pair numbers are taken")]
    Crowded,
    /// A system call failed.
    #[error("cannot open a socket: {0}")]
    Socket(#[source] io::Error),
}

/// Opens the port: joins the processes that share it.
pub fn open(options: &PortOptions) -> Result<(Receiver, Arc<TransmitPool>), PortError> {
    crate::fork::prepare();
    let receiver = Receiver::open(options)?;
    Ok((receiver, Arc::new(TransmitPool::new(options))))
}
