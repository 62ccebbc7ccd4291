//! Why a call was refused. Nothing has changed then.

use thiserror::Error;

use crate::connection::State;
use crate::ids::CommId;
use crate::service::ListenerId;

/// Why a call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CmError {
    /// There is no such connection, or it is over.
    #[error("there is no connection {0}")]
    NoSuchId(CommId),
    /// There is no such listener.
    #[error("there is no listener {}", .0.0)]
    NoSuchListener(ListenerId),
    /// The call does not fit the state of the connection.
    #[error("connection {id} is in state {state:?}, in which there is nothing to {call}")]
    WrongState {
        /// The connection.
        id: CommId,
        /// Its state.
        state: State,
        /// What was tried.
        call: &'static str,
    },
    /// Private data that does not fit the message.
    #[error("{got} bytes of private data, but a {message} carries {most}")]
    PrivateDataTooLong {
        /// The message.
        message: &'static str,
        /// Bytes that fit.
        most: usize,
        /// Bytes given.
        got: usize,
    },
    /// Somebody listens there already.
    #[error("the service is listened for already")]
    AddressInUse,
    /// As many entries as the configuration allows.
    #[error("the table of {what} is full: {limit}")]
    Full {
        /// Which table.
        what: &'static str,
        /// Its size.
        limit: usize,
    },
}
