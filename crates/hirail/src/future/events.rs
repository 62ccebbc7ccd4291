//! Asynchronous events, awaited.

use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

use super::watch;
use crate::AsyncEvent;
use crate::error::Error;
use crate::verbs::context::Context;

/// The asynchronous events of a device, for tasks to wait on.
#[derive(Debug)]
pub struct AsyncEvents {
    context: Context,
    fd: AsyncFd<OwnedFd>,
}

impl AsyncEvents {
    /// The events of this device. Each is taken once, whoever takes it.
    ///
    /// # Errors
    /// The process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without its I/O driver.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self {
            fd: watch(context.async_fd())?,
            context: context.clone(),
        })
    }

    /// Takes the oldest event, waiting until there is one.
    ///
    /// Cancellation safe: an event is taken only when it is returned.
    ///
    /// # Errors
    /// In a forked child.
    pub async fn next(&self) -> Result<AsyncEvent, Error> {
        loop {
            if let Some(event) = self.context.async_event()? {
                return Ok(event);
            }
            let mut ready = self.fd.readable().await.map_err(Error::Descriptor)?;
            // Who finds an event leaves the descriptor marked as ready, for others who wait.
            if let Some(event) = self.context.async_event()? {
                return Ok(event);
            }
            ready.clear_ready();
        }
    }
}
