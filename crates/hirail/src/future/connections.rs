//! Connections by RDMA-CM, awaited.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

use super::watch;
use crate::cm::{Attempt, Connection, Listener, Options, Request};
use crate::error::Error;
use crate::verbs::qp::Qp;

/// A listener for tasks to wait on.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    fd: AsyncFd<OwnedFd>,
}

impl AsyncListener {
    /// Waits for the peers that connect to `listener`.
    ///
    /// # Errors
    /// The process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without its I/O driver.
    pub fn new(listener: Listener) -> Result<Self, Error> {
        Ok(Self {
            fd: watch(listener.fd())?,
            listener,
        })
    }

    /// The listener itself.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The next request for a connection.
    ///
    /// Cancellation safe: a request is taken only when it is returned.
    ///
    /// # Errors
    /// In a forked child.
    pub async fn accept(&self) -> Result<Request, Error> {
        until(&self.fd, || self.listener.try_accept()).await
    }
}

/// Connects a queue pair to whoever listens at `peer`: [`cm::connect`](crate::cm::connect) without
/// a limit of time but the connection manager's own. Dropping the future gives the connection up.
///
/// # Errors
/// The peer refuses or does not answer, or is of a family that the device has no address of.
///
/// # Panics
/// Outside a tokio runtime, or in one without its I/O driver.
pub async fn connect(qp: &Qp, peer: SocketAddr, options: &Options) -> Result<Connection, Error> {
    finish(Attempt::start(qp, peer, options)?).await
}

/// Accepts a request with a queue pair, and waits until the peer is ready:
/// [`Request::accept`] without a limit of time but the connection manager's own. Dropping the future
/// gives the connection up.
///
/// # Errors
/// The peer has withdrawn or does not answer, or too much private data.
///
/// # Panics
/// Outside a tokio runtime, or in one without its I/O driver.
pub async fn accept(request: Request, qp: &Qp, options: &Options) -> Result<Connection, Error> {
    finish(request.start_accept(qp, options)?).await
}

/// Waits until a connection has ended, by whomever.
///
/// Cancellation safe: nothing is taken from anybody.
///
/// # Errors
/// In a forked child.
///
/// # Panics
/// Outside a tokio runtime, or in one without its I/O driver.
pub async fn disconnected(connection: &Connection) -> Result<(), Error> {
    let fd = watch(connection.fd())?;
    until(&fd, || Ok(connection.has_ended()?.then_some(()))).await
}

async fn finish(mut attempt: Attempt) -> Result<Connection, Error> {
    let fd = attempt.fd().map(watch).transpose()?;
    let fd = fd.expect("an attempt has a connection until it is finished");
    until(&fd, || attempt.check()).await
}

/// What `check` finds, which it may whenever the descriptor is readable.
async fn until<T>(
    fd: &AsyncFd<OwnedFd>,
    mut check: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        let mut ready = fd.readable().await.map_err(Error::Descriptor)?;
        // Who finds something leaves the descriptor marked as ready, for others who wait.
        if let Some(found) = check()? {
            return Ok(found);
        }
        ready.clear_ready();
    }
}
