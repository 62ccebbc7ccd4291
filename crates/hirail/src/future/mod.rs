//! Async verbs on tokio; feature `tokio`.
//!
//! Nothing here polls: the device's own thread drives, and a task wakes when its completion queue
//! raises an event. Two ways to use it:
//!
//! - [`AsyncCq`] gives the completions of one queue, one after another, to programs that keep their
//!   own books about what they posted.
//! - [`AsyncQp`] gives each request as a future. A [`Dispatcher`] hands completions of many such QPs
//!   to whom they belong.
//!
//! [`connect`], [`AsyncListener`] and [`accept`] make connections as [`cm`](crate::cm) does.
//!
//! All of it is cancellation safe: a future that is dropped loses no completion of anybody else,
//! and no message. A request that was posted cannot be taken back, though: dropping its future only
//! means that nobody asks how it ended, and until it has ended the device may read its memory or
//! write to it. Registered memory stays valid for that long whatever happens.
//!
//! ```
//! use hirail::future::{AsyncQp, Dispatcher};
//! use hirail::{Access, ConnectOptions, Faults, MemoryNetwork, SendWr};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), hirail::Error> {
//! // Two devices on a network in memory; real ones come from `Context::open`.
//! let network = MemoryNetwork::new(Faults::default());
//! let side = |address: &str| {
//!     let context = network.open(address.parse().unwrap())?;
//!     let pd = context.alloc_pd()?;
//!     let dispatcher = Dispatcher::new(&context)?;
//!     let qp = AsyncQp::build(&dispatcher, &pd, |qp| qp.max_send_wr(16))?;
//!     let mr = pd.register(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     Ok::<_, hirail::Error>((context, qp, mr))
//! };
//! let (context_a, a, memory_a) = side("192.0.2.1")?;
//! let (context_b, b, memory_b) = side("192.0.2.2")?;
//! // With two processes, the endpoints and `memory_b.remote()` travel by `hirail::exchange`.
//! a.qp().connect(&b.qp().endpoint(0)?, &ConnectOptions::new(&context_a, 0))?;
//! b.qp().connect(&a.qp().endpoint(0)?, &ConnectOptions::new(&context_b, 0))?;
//!
//! b.post_recv(7, &[memory_b.slice(2048..)])?;
//! memory_a.write(0, b"some data");
//! a.write(&[memory_a.slice(0..9)], memory_b.remote()).await?;
//! a.send(&[memory_a.slice(0..4)]).await?;
//!
//! let received = b.recv().await?;
//! assert_eq!((received.wr_id, received.byte_len), (7, 4));
//! assert_eq!(memory_b.to_vec(0, 9), b"some data");
//! # Ok(())
//! # }
//! ```
//!
//! # Several requests at once
//!
//! A future borrows the list of slices that it was given. `tokio::join!` keeps its futures beyond
//! the expressions that make them, so a list that stands in such an expression would be gone too
//! early (the compiler says "temporary value dropped while borrowed"). Give the lists names first:
//!
//! ```
//! # use hirail::future::{AsyncQp, Dispatcher};
//! # use hirail::{Access, ConnectOptions, Faults, MemoryNetwork};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), hirail::Error> {
//! # let network = MemoryNetwork::new(Faults::default());
//! # let context = network.open("192.0.2.1".parse().unwrap())?;
//! # let (pd, dispatcher) = (context.alloc_pd()?, Dispatcher::new(&context)?);
//! # let qp = AsyncQp::build(&dispatcher, &pd, |qp| qp.max_send_wr(16))?;
//! # qp.qp().connect(&qp.qp().endpoint(0)?, &ConnectOptions::new(&context, 0))?;
//! # let mr = pd.register(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! # let peer_memory = mr.remote().offset(2048);
//! mr.write(0, b"head");
//! mr.write(100, b"body");
//! let (head, body) = ([mr.slice(0..4)], [mr.slice(100..104)]);
//! let (first, second) = tokio::join!(
//!     qp.write(&head, peer_memory),
//!     qp.write(&body, peer_memory.offset(4)),
//! );
//! first.and(second)?;
//! assert_eq!(mr.to_vec(2048, 8), b"headbody");
//! # Ok(())
//! # }
//! ```
//!
//! What `tokio::spawn` starts must own what it uses: an `async move` block that holds the [`AsyncQp`]
//! (or an `Arc` of it, for many tasks) and the [`Mr`](crate::Mr) may write its lists where they are
//! needed.

mod connections;
mod cq;
mod dispatcher;
mod events;
mod qp;

pub use connections::{AsyncListener, accept, connect, disconnected};
pub use cq::AsyncCq;
pub use dispatcher::Dispatcher;
pub use events::AsyncEvents;
pub use qp::AsyncQp;

use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;

/// Watches a descriptor of ours, through one of its own.
#[allow(
    deprecated,
    reason = "it is sound where the descriptor is owned; the successor is an unsafe function"
)]
fn watch(fd: BorrowedFd<'_>) -> Result<AsyncFd<OwnedFd>, Error> {
    let fd = fd.try_clone_to_owned().map_err(Error::Descriptor)?;
    AsyncFd::with_interest(fd, Interest::READABLE).map_err(Error::Descriptor)
}
