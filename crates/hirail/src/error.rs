//! What a user of the library did wrong, or what is wrong with the world around it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hirail_cm::{CmError, RejReason};
use hirail_rnic::VerbError;
use hirail_rnic::mr::Access;
use hirail_vocab::{CcOutOfRange, WcStatus};
use hirail_wire::Gid;

use crate::config::ConfigError;
use crate::fork::Forked;
use crate::port::PortError;
use crate::port::raw::RawError;

/// An error of the library. Work requests that fail are not errors: they end in a completion with a
/// status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A verb was refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// This process is a forked child of the one that opened the device.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// There is no device of this name.
    #[error("there is no device {name}; there are: {}", .known.join(", "))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The name is that of a network interface, and its device has another one.
    #[error("{interface} is a network interface; its device is called {device}")]
    NameOfInterface {
        /// The name asked for.
        interface: String,
        /// The device of that interface.
        device: String,
    },
    /// No device has this address.
    #[error("no device has the address {address}{}", if_loopback(*address))]
    NoSuchAddress {
        /// The address asked for.
        address: IpAddr,
    },
    /// The port's GID table is shorter.
    #[error("there is no GID {index}: the port has {count}")]
    NoSuchGid {
        /// The index asked for.
        index: u8,
        /// How many there are.
        count: usize,
    },
    /// The address at this place of the port's GID table was removed from the interface.
    #[error("GID {index} is empty: its address was removed from the interface")]
    EmptyGid {
        /// The index asked for.
        index: u8,
    },
    /// The UDP port could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The interface could not be opened as a raw port.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// The interface cannot join a multicast group.
    #[error("cannot join the multicast group {} on the interface {interface}: {error}", .group.to_ip())]
    Multicast {
        /// The group.
        group: Gid,
        /// The interface.
        interface: String,
        /// Why not.
        error: io::Error,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A parameter of congestion control does not fit the line rate.
    #[error("congestion control: {0}")]
    CongestionControl(CcOutOfRange),
    /// The interfaces of this host cannot be listed.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(io::Error),
    /// The capture file cannot be written.
    #[error("cannot write the capture {}: {error}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A descriptor or thread could not be made.
    #[error("cannot make a descriptor: {0}")]
    Descriptor(io::Error),
    /// Memory could not be allocated.
    #[error("cannot allocate {bytes} bytes")]
    OutOfMemory {
        /// How many.
        bytes: usize,
    },
    /// Memory that is lent without `mut` was to be writable.
    #[error("memory lent without mut can only be read, so it cannot have {got:?}")]
    ReadOnly {
        /// The rights that are too much.
        got: Access,
    },
    /// Objects of different devices were to work together.
    #[error("expected {what} of the device {expected}, got one of {got}")]
    OtherDevice {
        /// The kind of object.
        what: &'static str,
        /// Name of the device that it should belong to.
        expected: String,
        /// Name of the device that it belongs to.
        got: String,
    },
    /// No completion came in time.
    #[error("no completion within {waited:?}")]
    NoCompletion {
        /// How long was waited.
        waited: Duration,
    },
    /// No event came in time.
    #[error("no event within {waited:?}")]
    NoEvent {
        /// How long was waited.
        waited: Duration,
    },
    /// The completion queue was made without a channel, so it cannot be waited for.
    #[error("the completion queue has no channel to wait on")]
    NoChannel,
    /// The async runtime of a dispatcher ended before its queue pairs.
    #[error("the runtime that hands on completions has ended")]
    NoRuntime,
    /// A work request ended otherwise than expected.
    #[error("work request {wr_id} ended with {}{}", .status.name(), after_colon(hint(*.status, *.never_heard)))]
    Failed {
        /// The request's number.
        wr_id: u64,
        /// How it ended.
        status: WcStatus,
        /// The peer never answered anything.
        never_heard: bool,
    },
    /// The peer said something else than it should have.
    #[error("expected {expected} from the peer, got {got:?}")]
    Exchange {
        /// What should have come.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The peer said nothing in time.
    #[error("expected {expected} from the peer, got nothing within {waited:?}")]
    Silence {
        /// What should have come.
        expected: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// The peer ended the out-of-band connection.
    #[error("expected {expected} from the peer, got the end of the connection")]
    HungUp {
        /// What should have come.
        expected: &'static str,
    },
    /// The address for out-of-band connections could not be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where to listen.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// The out-of-band connection could not be made.
    #[error("cannot reach the peer at {address}: {error}")]
    Unreachable {
        /// Where the peer should be.
        address: String,
        /// Why it is not.
        error: io::Error,
    },
    /// A call of the connection manager was refused.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// Somebody on this host listens there already.
    #[error("{address} is in use")]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The peer refuses the connection.
    #[error("{peer} refuses the connection: {reason}")]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        reason: RejReason,
        /// What it says with it; zeros up to the length of the message follow.
        private_data: Vec<u8>,
    },
    /// The peer does not answer connection requests, or stopped to while connecting.
    #[error("{peer} does not answer")]
    NoAnswer {
        /// The peer.
        peer: SocketAddr,
    },
    /// The connection has ended.
    #[error("the connection to {peer} has ended")]
    Disconnected {
        /// The peer.
        peer: SocketAddr,
    },
    /// The out-of-band connection failed.
    #[error("the connection to the peer failed: {0}")]
    OutOfBand(io::Error),
}

impl Error {
    /// What `error` says about joining `group`.
    pub(crate) fn join(group: Gid, interface: &str, error: io::Error) -> Self {
        Self::Multicast {
            group,
            interface: interface.to_owned(),
            error,
        }
    }
}

/// The usual cause of a failed work request, where more than the status is known.
pub(crate) fn hint(status: WcStatus, never_heard: bool) -> Option<&'static str> {
    let is_silent = status == WcStatus::RetryExcErr && never_heard;
    is_silent.then_some("the peer never answered; is UDP port 4791 open on the way to it?")
}

/// What is wrong where even the loopback has no address.
fn if_loopback(address: IpAddr) -> &'static str {
    if address.is_loopback() {
        "; is the interface lo up?"
    } else {
        ""
    }
}

fn after_colon(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!(": {hint}"))
}
