//! The passive side: a port, the requests that come to it, and their answers.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use hirail_cm::PortSpace;
use hirail_vocab::QpState;

use super::connection::{Attempt, Connection, Options};
use super::manager::Manager;
use super::port::BoundPort;
use super::{Accept, CommId, Event, EventChannel, RejReason, RequestEvent};
use crate::error::Error;
use crate::port::sys;
use crate::verbs::context::Context;
use crate::verbs::qp::Qp;

/// Requests that may wait for [`Listener::accept`].
const BACKLOG: u32 = 128;

/// Waits for peers to connect.
pub struct Listener {
    // The first to go, so that no request comes to a channel that nobody reads.
    port: BoundPort,
    channel: EventChannel,
    manager: Manager,
}

impl Listener {
    /// Listens at an address of the device, or at all of them where it is unspecified; port 0 takes
    /// any that is free.
    ///
    /// # Errors
    /// The device does not have the address, or somebody on this host listens there.
    pub fn bind(context: &Context, address: SocketAddr) -> Result<Self, Error> {
        let manager = Manager::of(context)?;
        let channel = EventChannel::new()?;
        let mut port = BoundPort::bind(&manager, PortSpace::Tcp, address)?;
        port.listen(BACKLOG, &channel)?;
        Ok(Self {
            port,
            channel,
            manager,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.address()
    }

    /// The next request for a connection.
    ///
    /// # Errors
    /// None came in time.
    pub fn accept(&self, timeout: Duration) -> Result<Request, Error> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(request) = self.try_accept()? {
                return Ok(request);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::NoEvent { waited: timeout });
            }
            sys::wait_readable(&[self.fd()], left);
        }
    }

    /// The next request for a connection, if there is one.
    ///
    /// # Errors
    /// In a forked child.
    pub fn try_accept(&self) -> Result<Option<Request>, Error> {
        while let Some(notice) = self.channel.try_event()? {
            let Event::Request(event) = notice.event else {
                // A request that was withdrawn before anybody took it.
                continue;
            };
            let request = Request::new(&self.manager, *event)?;
            // Withdrawn meanwhile.
            if self.manager.state(request.id()).is_some() {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// A descriptor that is readable while requests wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.local_addr())
            .finish_non_exhaustive()
    }
}

/// Somebody wants to connect. Dropping it refuses.
#[derive(Debug)]
pub struct Request {
    manager: Manager,
    event: RequestEvent,
    channel: EventChannel,
    is_answered: bool,
}

impl Request {
    fn new(manager: &Manager, event: RequestEvent) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        manager.move_to(event.id, &channel);
        Ok(Self {
            manager: manager.clone(),
            event,
            channel,
            is_answered: false,
        })
    }

    /// The peer, as it calls itself.
    pub fn peer(&self) -> SocketAddr {
        match &self.event.addresses {
            Some(addresses) => (addresses.source, addresses.source_port).into(),
            None => (self.event.path.remote.to_ip(), 0).into(),
        }
    }

    /// What the peer says with it. Zeros up to 56 bytes follow.
    pub fn private_data(&self) -> &[u8] {
        &self.event.private_data
    }

    /// Everything that it says.
    pub fn event(&self) -> &RequestEvent {
        &self.event
    }

    fn id(&self) -> CommId {
        self.event.id
    }

    /// Takes a queue pair to RTR, towards the peer, so that receives can be posted before it may
    /// send. [`accept`](Self::accept) does it where it has not been done.
    ///
    /// # Errors
    /// The queue pair is past INIT.
    pub fn prepare(&self, qp: &Qp) -> Result<(), Error> {
        if qp.state() == QpState::Reset {
            let (attr, mask) = self.manager.attributes(self.id(), QpState::Init)?;
            qp.modify(&attr, mask)?;
        }
        let (attr, mask) = self.manager.attributes(self.id(), QpState::Rtr)?;
        qp.modify(&attr, mask)
    }

    /// Accepts with this queue pair, in RESET, INIT or as [`prepare`](Self::prepare) has left it,
    /// and waits until the peer is ready.
    ///
    /// # Errors
    /// The peer has withdrawn or does not answer in time, or too much private data.
    pub fn accept(
        self,
        qp: &Qp,
        options: &Options,
        timeout: Duration,
    ) -> Result<Connection, Error> {
        self.start_accept(qp, options)?.wait(timeout)
    }

    /// Accepts without waiting.
    pub(crate) fn start_accept(mut self, qp: &Qp, options: &Options) -> Result<Attempt, Error> {
        if qp.state() != QpState::Rtr {
            self.prepare(qp)?;
        }
        let (mut attr, mask) = self.manager.attributes(self.id(), QpState::Rts)?;
        attr.max_rd_atomic = attr.max_rd_atomic.min(options.initiator_depth);
        qp.modify(&attr, mask)?;
        self.manager.attach(self.id(), qp);
        let accept = Accept {
            responder_resources: options.responder_resources,
            initiator_depth: options.initiator_depth,
            rnr_retry_count: options.rnr_retry_count,
            ece: options.ece,
            private_data: &options.private_data,
            ..Accept::new(qp.qpn())
        };
        self.manager.accept(self.id(), &accept)?;
        self.is_answered = true;
        Ok(Attempt::of(Connection {
            manager: self.manager.clone(),
            id: self.id(),
            qp: qp.clone(),
            channel: self.channel.clone(),
            peer: self.peer(),
            private_data: self.event.private_data.clone(),
        }))
    }

    /// Refuses, with up to 148 bytes to say.
    ///
    /// # Errors
    /// The peer has withdrawn, or too much private data.
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), Error> {
        self.manager
            .reject(self.id(), RejReason::CONSUMER, private_data)?;
        self.is_answered = true;
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_answered {
            // The peer may have withdrawn.
            let _ = self.manager.destroy(self.id());
        }
    }
}
