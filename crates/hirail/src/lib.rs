//! A software RNIC in user space: RDMA over Converged Ethernet (RoCE v2) with no card, no kernel
//! module and no root. Wire-compatible with real cards and with the kernel's rxe.
//!
//! This page is the guide; the types have the details. Names are those of the verbs, so whoever
//! knows `libibverbs` is at home, and its manual pages apply.
//!
//! | to do | there is |
//! | --- | --- |
//! | open a device | [`Context`], configured by [`config`], found by [`devices`] |
//! | say whose keys work with whose QPs | [`Pd`] |
//! | let others reach memory | [`Mr`], [`Mw`]; what to tell them: [`RemoteMemory`] |
//! | learn what is done | [`Cq`], [`CompletionChannel`]; what it says: [`Wc`] |
//! | talk to a peer | [`Qp`] by [`QpBuilder`]; what to do: [`SendWr`] |
//! | receive for many QPs at once | [`Srq`], and [`Xrcd`] |
//! | meet the peer | [`cm`], or [`exchange`] |
//! | await instead of waiting | `future`, feature `tokio` |
//! | test a program without a network, or with a bad one | [`MemoryNetwork`], [`Faults`] |
//!
//! # The first message
//!
//! Two devices, one QP on each, and both kinds of operation: a WRITE, of which the peer notices
//! nothing, and a SEND, for which it has to have a receive posted.
//!
//! ```
//! use std::time::Duration;
//! use hirail::{Access, ConnectOptions, Context, Cq, Faults, MemoryNetwork, Mr, Qp, SendWr};
//!
//! /// Everything that one side needs.
//! fn side(context: &Context) -> Result<(Cq, Qp, Mr), hirail::Error> {
//!     let pd = context.alloc_pd()?;
//!     let cq = context.create_cq(64)?;
//!     let qp = pd.qp(&cq, &cq).max_send_wr(16).max_recv_wr(16).build()?;
//!     let mr = pd.register(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     Ok((cq, qp, mr))
//! }
//!
//! # fn main() -> Result<(), hirail::Error> {
//! // On a real network: `Context::open("hirail0")`, or `Context::open_loopback()`.
//! let network = MemoryNetwork::new(Faults::default());
//! let (here, there) = (
//!     network.open("192.0.2.1".parse().unwrap())?,
//!     network.open("192.0.2.2".parse().unwrap())?,
//! );
//! let (cq, qp, mr) = side(&here)?;
//! let (peer_cq, peer_qp, peer_mr) = side(&there)?;
//!
//! // What the two sides must know of each other: where their QPs are, and where memory is.
//! let peer_memory = peer_mr.remote();
//! qp.connect(&peer_qp.endpoint(0)?, &ConnectOptions::new(&here, 0))?;
//! peer_qp.connect(&qp.endpoint(0)?, &ConnectOptions::new(&there, 0))?;
//!
//! let patience = Duration::from_secs(5);
//! mr.write(0, b"hello, memory");
//! qp.post(&SendWr::write(1, &[mr.slice(..13)], peer_memory.offset(100)))?;
//! let wc = cq.wait_polling(patience)?.ok()?;
//! assert_eq!(wc.wr_id, 1);
//! assert_eq!(peer_mr.to_vec(100, 13), b"hello, memory");
//!
//! peer_qp.post_recv(7, &[peer_mr.slice(..64)])?;
//! qp.post(&SendWr::send(2, &[mr.slice(..5)]))?;
//! let received = peer_cq.wait_polling(patience)?.ok()?;
//! assert_eq!((received.wr_id, received.byte_len), (7, 5));
//! assert_eq!(peer_mr.to_vec(0, 5), b"hello");
//!
//! // A WRITE with immediate data: memory and, with it, four bytes that say what to make of it.
//! peer_qp.post_recv(8, &[])?;
//! let length = 13u32.to_be_bytes();
//! qp.post(&SendWr::write(3, &[mr.slice(..13)], peer_memory).with_imm(length))?;
//! let received = peer_cq.wait_polling(patience)?.ok()?;
//! assert_eq!(received.imm().map(u32::from_be_bytes), Some(13));
//! # Ok(())
//! # }
//! ```
//!
//! Between two processes the three values travel out of band, which [`exchange`] does over TCP;
//! `examples/hello.rs` is a whole program.
//!
//! # Who does the work
//!
//! A thread that polls a completion queue ([`Cq::poll`], [`Cq::wait_polling`]) drives the device
//! itself: the lowest latency, at the price of a processor. A thread that sleeps ([`Cq::wait`],
//! [`CompletionChannel`]) or awaits leaves it to a thread of the device, and so does a program that
//! is busy elsewhere: peers read and write its memory all the same. Handles are cheap to clone (but
//! for [`Mr`], whose drop takes the memory back), and any of them may be used by any number of
//! threads.
//!
//! Acknowledgements leave a moment after the completion that shows a message to its receiver, so
//! that answers go first. What is owed when the process exits (returning from `main`,
//! `std::process::exit`) is sent then. One that is killed or aborts sends nothing more, and the
//! sender of its last message may never hear that it arrived.
//!
//! # Memory
//!
//! A peer may write into registered memory at any moment, so there is never a `&[u8]` of it: [`Mr`]
//! copies bytes in and out, and loads and stores words. Where the bytes come from is up to the
//! program; [`Pd`] lists the ways, among them to lend a buffer for the length of a closure. What a
//! WRITE brings becomes visible with its last byte last, so it may be polled for:
//!
//! ```
//! # use hirail::{Access, ConnectOptions, Faults, MemoryNetwork, SendWr};
//! # let network = MemoryNetwork::new(Faults::default());
//! # let context = network.open("192.0.2.1".parse().unwrap())?;
//! # let (pd, cq) = (context.alloc_pd()?, context.create_cq(8)?);
//! # let qp = pd.qp(&cq, &cq).max_inline_data(16).build()?;
//! # qp.connect(&qp.endpoint(0)?, &ConnectOptions::new(&context, 0))?;
//! let mr = pd.register(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! # qp.post(&SendWr::write(1, &[], mr.remote()).with_inline(b"eight by"))?;
//! while mr.load_u8(7) == 0 {
//!     // Compute something; or help with `context.poll()`.
//! }
//! assert_eq!(mr.to_vec(0, 8), b"eight by");
//! # Ok::<(), hirail::Error>(())
//! ```
//!
//! Dropping a region takes its keys back and waits until no packet touches the memory. Requests that
//! still name it, here or at a peer, end with an error; so do those that meet a page that the
//! program has unmapped.
//!
//! # What goes wrong
//!
//! There are three kinds. A verb that is refused returns an [`Error`] that says what was expected
//! and what came, and nothing has changed. A request that fails later ends in a completion whose
//! [`status`](Wc::status) says why; [`Wc::ok`] makes an error of it, with a hint where the peer never
//! answered at all. What concerns no request, such as a peer that violates access rights, is an
//! asynchronous event ([`Context::wait_async_event`]).
//!
//! After `fork` the device is the parent's. Every call in the child returns [`Error::Forked`] without
//! waiting for anything; the child may `exec`. Where the parent had made nothing on its devices, the
//! child may open its own.
//!
//! # Bad networks
//!
//! What a program does when packets get lost is found out best where they do:
//!
//! ```
//! use hirail::{Faults, MemoryNetwork};
//!
//! let network = MemoryNetwork::new(Faults {
//!     seed: 42,
//!     loss: 0.01,
//!     reordering: 0.01,
//!     ..Faults::default()
//! });
//! let context = network.open("192.0.2.1".parse().unwrap())?;
//! # Ok::<(), hirail::Error>(())
//! ```

pub mod cm;
pub mod config;
pub mod devices;
pub mod exchange;
pub mod fork;
#[cfg(feature = "tokio")]
pub mod future;
pub mod memory;
pub mod port;
pub mod stat;
pub mod sysfs;

mod error;
mod exit;
mod runtime;
mod verbs;

pub use error::Error;
pub use hirail_rnic::completion_counter::{CompletionCounter, Counted, CountedOps};
pub use hirail_rnic::cq::{Arm, CqId, WcPayload};
pub use hirail_rnic::event::{AsyncEvent, Denial, Denied, Target};
pub use hirail_rnic::mr::{Access, BindMw, MwType, Refusal};
pub use hirail_rnic::qp::attr::{AddressVector, AttrMask, QpAttr};
pub use hirail_rnic::srq::SrqId;
pub use hirail_rnic::{GidEntry, Limits, RecoveryKind, RoceVersion, SendFlags, SendOp, VerbError};
pub use hirail_vocab::{
    AsyncEventKind, Counter, CounterSnapshot, LinkKind, QpState, QpType, WcOpcode, WcStatus,
};
pub use hirail_wire::{
    AckTimeout, Feth, FlushRange, Gid, Lkey, PathMtu, Psn, QKey, Qpn, Rkey, RnrTimer,
};
pub use runtime::Notify;
pub use runtime::faults::{FAULTS, Faults, FaultsError, Flap};
pub use runtime::memory::MemoryNetwork;
pub use runtime::raw::{FlowControl, RawOptions, RoceVersions, Watermarks};
pub use verbs::builder::QpBuilder;
pub use verbs::connect::{ConnectOptions, QpEndpoint};
pub use verbs::context::Context;
pub use verbs::cq::{CompletionChannel, Cq};
pub use verbs::mr::{Mr, MrSlice, RemoteMemory};
pub use verbs::mw::Mw;
pub use verbs::pd::Pd;
pub use verbs::prefetch::{Prefetch, PrefetchError};
pub use verbs::qp::Qp;
pub use verbs::srq::Srq;
pub use verbs::wc::Wc;
#[doc(hidden)]
pub use verbs::work::SendWr as Send;
pub use verbs::work::{Destination, Path, SendWr};
pub use verbs::xrc::Xrcd;

/// The program in docs/library.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;
