//! One connection with its queue pair, and how the active side makes one.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use hirail_cm::{PortSpace, ServiceId};
use hirail_vocab::{QpState, QpType};
use hirail_wire::AckTimeout;

use super::manager::Manager;
use super::{CommId, Connect, Ece, Event, EventChannel, IpHeader, Notice, Transport};
use crate::error::Error;
use crate::port::sys;
use crate::verbs::qp::Qp;

/// How to connect, or to accept.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to say with it: up to 56 bytes when connecting, 196 when accepting.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer to serve at once, as far as device and peer can.
    pub responder_resources: u8,
    /// READs and atomics to have open at the peer, as far as device and peer can.
    pub initiator_depth: u8,
    /// Retries after a lost acknowledgement; both sides use what the connecting one says.
    pub retry_count: u8,
    /// Retries of the peer after an RNR NAK; 7: for ever.
    pub rnr_retry_count: u8,
    /// Local ACK timeout of both sides, said by the connecting one.
    pub ack_timeout: Option<AckTimeout>,
    /// Traffic class of all packets, said by the connecting one.
    pub traffic_class: u8,
    /// Options for a device of the same vendor.
    pub ece: Option<Ece>,
}

impl Default for Options {
    /// Nothing said, everything that the devices can do, 7 retries.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout: None,
            traffic_class: 0,
            ece: None,
        }
    }
}

impl Options {
    /// With this to say.
    #[must_use]
    pub fn private_data(self, bytes: &[u8]) -> Self {
        Self {
            private_data: bytes.to_vec(),
            ..self
        }
    }
}

/// A connection and its queue pair. Dropping it disconnects.
///
/// When either side disconnects, the queue pair goes to ERR at once, and everything posted there
/// completes as flushed.
pub struct Connection {
    pub(super) manager: Manager,
    pub(super) id: CommId,
    pub(super) qp: Qp,
    pub(super) channel: EventChannel,
    pub(super) peer: SocketAddr,
    pub(super) private_data: Vec<u8>,
}

impl Connection {
    /// Its queue pair, in RTS while the connection stands.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The peer: the address that was connected to, or that it says it connects from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the peer said with its answer, or with its request. Zeros up to the length of the
    /// message follow.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Its communication id.
    pub fn id(&self) -> CommId {
        self.id
    }

    /// Disconnects, and waits until the peer knows.
    ///
    /// # Errors
    /// The peer has not said so in time.
    pub fn disconnect(&self, timeout: Duration) -> Result<(), Error> {
        self.start_disconnect()?;
        self.wait_disconnected(timeout)
    }

    /// Disconnects without waiting. The queue pair is in ERR then.
    ///
    /// # Errors
    /// In a forked child.
    pub fn start_disconnect(&self) -> Result<(), Error> {
        match self.manager.disconnect(self.id, &[]) {
            // It has ended, and is forgotten already.
            Err(Error::Cm(_)) => Ok(()),
            other => other,
        }
    }

    /// Waits until the connection has ended, by whomever.
    ///
    /// # Errors
    /// It has not in time.
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now() + timeout;
        while !self.has_ended()? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::NoEvent { waited: timeout });
            }
            sys::wait_readable(&[self.fd()], left);
        }
        Ok(())
    }

    /// Whether the connection has ended.
    ///
    /// # Errors
    /// In a forked child.
    pub fn has_ended(&self) -> Result<bool, Error> {
        use super::State;
        while self.channel.try_event()?.is_some() {}
        let state = self.manager.state(self.id);
        Ok(matches!(state, None | Some(State::TimeWait)))
    }

    /// A descriptor that is readable when it may have ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It is over already where the peer has gone long ago.
        let _ = self.manager.destroy(self.id);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .field("qp", &self.qp)
            .finish_non_exhaustive()
    }
}

/// Connects a queue pair in RESET (or INIT) to whoever listens at `peer`, from the device's address
/// that fits.
///
/// # Errors
/// The peer refuses, does not answer in time, or is of a family that the device has no address of.
pub fn connect(
    qp: &Qp,
    peer: SocketAddr,
    options: &Options,
    timeout: Duration,
) -> Result<Connection, Error> {
    let mut attempt = Attempt::start(qp, peer, options)?;
    attempt.wait(timeout)
}

/// A connection in the making: on the active side until the peer accepts, on the passive one until
/// the peer is ready.
pub(crate) struct Attempt {
    connection: Option<Connection>,
}

impl Attempt {
    /// Asks for a connection.
    pub(crate) fn start(qp: &Qp, peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        let manager = Manager::of(qp.context())?;
        let channel = EventChannel::new()?;
        let mut path = manager.path_to(peer.ip())?;
        path.traffic_class = options.traffic_class;
        let source_port = 32768 + (sys::random() % 28232) as u16;
        // The rule of Linux, by which the two ports make the flow label.
        let label = u32::from(source_port) * 31 + u32::from(peer.port());
        path.flow_label = label & 0xf_ffff;
        if qp.state() == QpState::Reset {
            let (attr, mask) = Manager::initial_attributes();
            qp.modify(&attr, mask)?;
        }
        let service = ServiceId::of_port(PortSpace::Tcp, peer.port());
        let request = Connect {
            addresses: Some(IpHeader {
                source_port,
                source: path.local.to_ip(),
                dest: peer.ip(),
            }),
            transport: match qp.qp_type() {
                QpType::Uc => Transport::Uc,
                _ => Transport::Rc,
            },
            responder_resources: options.responder_resources,
            initiator_depth: options.initiator_depth,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
            ack_timeout: options.ack_timeout,
            ece: options.ece,
            private_data: &options.private_data,
            ..Connect::new(service, path, qp.qpn(), qp.context().port_mtu())
        };
        let id = manager.connect(&request, &channel)?;
        manager.attach(id, qp);
        Ok(Self::of(Connection {
            manager,
            id,
            qp: qp.clone(),
            channel,
            peer,
            private_data: Vec::new(),
        }))
    }

    pub(super) fn of(connection: Connection) -> Self {
        Self {
            connection: Some(connection),
        }
    }

    /// What to wait on until [`check`](Self::check) may say more.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::fd)
    }

    /// The connection, once it stands; an error, once it does not; nothing until then.
    pub(crate) fn check(&mut self) -> Result<Option<Connection>, Error> {
        while let Some(connection) = &mut self.connection
            && let Some(Notice { event, .. }) = connection.channel.try_event()?
        {
            match event {
                Event::Response(response) => {
                    let Connection {
                        manager, id, qp, ..
                    } = connection;
                    for state in [QpState::Rtr, QpState::Rts] {
                        let (attr, mask) = manager.attributes(*id, state)?;
                        qp.modify(&attr, mask)?;
                    }
                    manager.confirm(*id, &[])?;
                    connection.private_data = response.private_data;
                    return Ok(self.connection.take());
                }
                Event::Established { .. } => return Ok(self.connection.take()),
                Event::Rejected {
                    reason,
                    private_data,
                    ..
                } => {
                    return Err(Error::Rejected {
                        peer: connection.peer,
                        reason,
                        private_data,
                    });
                }
                Event::Disconnected { .. } => {
                    return Err(Error::Disconnected {
                        peer: connection.peer,
                    });
                }
                Event::Unreachable { .. } => {
                    return Err(Error::NoAnswer {
                        peer: connection.peer,
                    });
                }
                Event::Request(_)
                | Event::TimewaitExit { .. }
                | Event::Question(_)
                | Event::Reply(_) => {}
            }
        }
        Ok(None)
    }

    /// Waits for the connection.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Connection, Error> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(connection) = self.check()? {
                return Ok(connection);
            }
            let left = end.saturating_duration_since(Instant::now());
            let fd = self.fd().filter(|_| !left.is_zero());
            let Some(fd) = fd else {
                return Err(Error::NoEvent { waited: timeout });
            };
            sys::wait_readable(&[fd], left);
        }
    }
}
