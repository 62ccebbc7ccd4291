//! Connections by RDMA-CM: listen, connect, accept, with private data, as `librdmacm` and the kernel
//! do it. The peer may be another hirail, a card, or the kernel's soft-RoCE.
//!
//! The two ends of a connection, here in one process:
//!
//! ```
//! use std::time::Duration;
//! use hirail::cm::{self, Options};
//! use hirail::{Access, Context, Faults, MemoryNetwork, Qp, SendWr};
//!
//! const PATIENCE: Duration = Duration::from_secs(5);
//!
//! # fn main() -> Result<(), hirail::Error> {
//! let network = MemoryNetwork::new(Faults::default());
//! let server = network.open("192.0.2.1".parse().unwrap())?;
//! let client = network.open("192.0.2.2".parse().unwrap())?;
//!
//! let listener = cm::Listener::bind(&server, "192.0.2.1:18515".parse().unwrap())?;
//! let serving = std::thread::spawn(move || {
//!     let cq = server.create_cq(16)?;
//!     let pd = server.alloc_pd()?;
//!     let qp = pd.qp(&cq, &cq).build()?;
//!     let request = listener.accept(PATIENCE)?;
//!     assert!(request.private_data().starts_with(b"hello"));
//!     // Receives may be posted before the peer can send.
//!     request.prepare(&qp)?;
//!     let mr = pd.register(64, Access::LOCAL_WRITE)?;
//!     qp.post_recv(1, &[mr.slice(..)])?;
//!     let connection = request.accept(&qp, &Options::default(), PATIENCE)?;
//!     let received = cq.wait_polling(PATIENCE)?.ok()?;
//!     connection.wait_disconnected(PATIENCE)?;
//!     Ok::<_, hirail::Error>(mr.to_vec(0, received.byte_len as usize))
//! });
//!
//! let cq = client.create_cq(16)?;
//! let pd = client.alloc_pd()?;
//! let qp = pd.qp(&cq, &cq).max_inline_data(16).build()?;
//! let options = Options::default().private_data(b"hello");
//! let connection = cm::connect(&qp, "192.0.2.1:18515".parse().unwrap(), &options, PATIENCE)?;
//! connection.qp().post(&SendWr::send(1, &[]).with_inline(b"some data"))?;
//! cq.wait_polling(PATIENCE)?.ok()?;
//! connection.disconnect(PATIENCE)?;
//! assert_eq!(serving.join().unwrap()?, b"some data");
//! # Ok(())
//! # }
//! ```
//!
//! Who wants to do it all without waiting, owns the steps of the queue pairs, or serves many
//! connections from one place, uses the [`Manager`] of a device and an [`EventChannel`], whose
//! descriptor is readable while there are events. The calls above are made of nothing else.
//!
//! Ports belong to the host: processes that share UDP port 4791 cannot listen at the same RDMA port
//! of the same address, and every request finds the process that listens for it.

mod channel;
mod connection;
mod gsi;
mod listener;
mod manager;
mod port;

pub use channel::{EventChannel, Notice};
#[cfg(feature = "tokio")]
pub(crate) use connection::Attempt;
pub use connection::{Connection, Options, connect};
pub use hirail_cm::{
    Accept, Answer, CmError, CommId, Connect, Ece, Event, IpHeader, Limits, Listen, ListenerId,
    Path, PortSpace, Query, Question, RejReason, Reply, Request as RequestEvent, Response,
    ServiceId, ServiceStatus, State, Transport,
};
pub use listener::{Listener, Request};
pub use manager::Manager;
pub(crate) use manager::ManagerInner;
pub use port::BoundPort;
