//! Messages for QP 1 that have to wait before they can be delivered.
//!
//! Some find the queue of their process full: the kernel lets ten datagrams wait at a Unix socket
//! (`net.unix.max_dgram_qlen`), and many may connect at once.
//!
//! Others ask for a service before anybody listens for it. A client may know by other means that its
//! server is about to listen, as perftest's does, and win the race by microseconds. The standard
//! leaves the passive side time to answer, and a request says how long (IBTA Vol 1, chapter 12, REQ:
//! Remote CM Response Timeout). So a request waits a part of that time for a listener, and is refused
//! only then.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::gsi;
use super::recv::Datagram;
use super::registry::names::Name;
use super::sys;
use crate::fork::Descriptor;

/// How long a message waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often it is tried again.
const PERIOD: Duration = Duration::from_millis(2);

/// Messages that may wait.
const MOST: usize = 1024;

/// Whom a message is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// The process with this name.
    Owner(Name),
    /// Whoever listens for the service; it has that name.
    Listener { service: u64, name: Name },
    /// Whoever manages connections at the address.
    Manager(Name),
}

impl To {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Owner(name) | Self::Listener { name, .. } | Self::Manager(name) => name,
        }
    }
}

/// A message that waits.
pub(super) struct Message {
    pub(super) to: To,
    bytes: Box<[u8]>,
    segment: usize,
    source: SocketAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    interface: u32,
    place: u16,
    until: Instant,
}

impl Message {
    /// The packets, and the bytes of each.
    pub(super) fn packets(&self) -> (Datagram<'_>, usize) {
        let packets = Datagram {
            bytes: &self.bytes,
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            interface: self.interface,
            place: self.place,
        };
        (packets, self.segment)
    }

    /// Whether it has waited long enough.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// The messages that wait, in the order of their arrival.
pub(super) struct Held {
    messages: VecDeque<Message>,
    timer: Descriptor,
}

impl Held {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            messages: VecDeque::new(),
            timer: Descriptor::new(sys::timer()?),
        })
    }

    /// Readable when it is time to try again.
    pub(super) fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Whether something waits for the same receiver.
    pub(super) fn has(&self, to: &To) -> bool {
        let mut messages = self.messages.iter();
        messages.any(|message| message.to.name() == to.name())
    }

    /// Lets packets wait. False where too many wait already.
    pub(super) fn push(&mut self, to: To, packets: &Datagram<'_>, segment: usize) -> bool {
        if self.messages.len() >= MOST {
            return false;
        }
        let patience = match to {
            // Its sender must hear of the refusal before it would ask again.
            To::Listener { .. } => gsi::response_timeout(packets.bytes).map(|time| time / 2),
            To::Owner(_) | To::Manager(_) => None,
        };
        let patience = patience.map_or(PATIENCE, |time| time.min(PATIENCE));
        if self.messages.is_empty() {
            sys::set_timer(self.timer(), PERIOD);
        }
        self.messages.push_back(Message {
            to,
            bytes: packets.bytes.into(),
            segment,
            source: packets.source,
            destination: packets.destination,
            traffic_class: packets.traffic_class,
            hop_limit: packets.hop_limit,
            interface: packets.interface,
            place: packets.place,
            until: Instant::now() + patience,
        });
        true
    }

    /// Takes all that wait.
    pub(super) fn take(&mut self) -> VecDeque<Message> {
        sys::clear_timer(self.timer());
        std::mem::take(&mut self.messages)
    }

    /// Lets one of those wait on.
    pub(super) fn put_back(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Sets the timer if anything waits.
    pub(super) fn wake(&self) {
        if !self.messages.is_empty() {
            sys::set_timer(self.timer(), PERIOD);
        }
    }
}
