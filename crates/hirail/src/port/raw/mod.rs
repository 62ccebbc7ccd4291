//! Raw Ethernet (`AF_PACKET`, needs `CAP_NET_RAW`): whole frames in and out of one interface.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`socket`] | packet sockets, batches of frames |
//! | `filter` | the BPF program that picks the frames of this process |
//! | `segments` | batches of datagrams that a virtual link passes uncut |
//! | `neighbour` | Ethernet addresses, from the kernel's routes and neighbours |

pub(crate) mod filter;
pub(crate) mod neighbour;
pub(crate) mod segments;
pub mod socket;

use std::io;

use thiserror::Error;

pub use socket::{Fill, Filter, Frame, FrameReceiver, FrameSender, Taken};

/// Why an interface cannot be used as a raw port.
#[derive(Debug, Error)]
pub enum RawError {
    /// No interface of this name can be a port.
    #[error("there is no interface {name} to be a port; there are: {}", .known.join(", "))]
    NoSuchInterface {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The process may not.
    #[error("raw Ethernet on {interface} needs the capability CAP_NET_RAW (or root)")]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// A system call failed.
    #[error("cannot open a packet socket on {interface}: {error}")]
    Socket {
        /// The interface.
        interface: String,
        /// Why not.
        error: io::Error,
    },
    /// VLANs have numbers below 4095.
    #[error("expected a VLAN from 0 (priority tags only) to 4094, got {0}")]
    NoSuchVlan(u16),
    /// Priorities are 0 to 7.
    #[error("expected a priority from 0 to 7, got {0}")]
    NoSuchPriority(u8),
    /// Going on must need a lower level than stopping, and stopping must leave headroom.
    #[error(
        "expected XON below XOFF and XOFF below the receive buffer of {room} bytes, \
             got XON at {xon} and XOFF at {xoff}"
    )]
    Watermarks {
        /// Level to go on at.
        xon: usize,
        /// Level to stop at.
        xoff: usize,
        /// What the kernel granted.
        room: usize,
    },
}

impl RawError {
    /// What `error` of a packet socket on `interface` means.
    pub(crate) fn socket(interface: &str, error: io::Error) -> Self {
        let interface = interface.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { interface },
            _ => Self::Socket { interface, error },
        }
    }
}
