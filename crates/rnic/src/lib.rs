//! The RNIC as a sans-IO state machine: InfiniBand's transport (RC, UC, UD, XRC) as RoCE carries it.
//!
//! The engine opens no socket, starts no thread, reads no clock and draws no randomness: packets,
//! time, seeds and memory are handed in. Who runs it (a host runtime, a simulator, a test) decides
//! about locks through [`host::Host`].
//!
//! # The contract
//!
//! **In**: the verbs of [`Device`]; [`Device::handle_packet`]; [`Device::handle_timeout`]. **Out**:
//! [`Device::poll_transmit`] (answered by [`Device::sent`]), [`Device::poll_timer`],
//! [`Device::poll_event`], and completions, which land in their [`CompletionQueue`] and leave by its
//! poll. After any input, drain the outputs. `now` never goes backwards.
//!
//! A link that takes fewer packets than it was offered says so in [`Device::sent`]; nothing of the
//! QP has moved before, so nothing needs to be undone. One driver at a time receives, transmits and
//! fires timers; verbs may be called from any thread meanwhile.
//!
//! # The map
//!
//! [`device`] demultiplexes and owns the tables. [`qp`] is one queue pair. Its three roles are
//! `requester` (send WQEs to packets), `completer` (responses to completions) and `responder`
//! (the peer's requests). `recovery` says where to start again after a loss, `window` and
//! [`pacing`] how much and how fast.
//!
//! # Sources
//!
//! "IBTA Vol 1" in comments is the InfiniBand Architecture Specification, Volume 1, of the
//! InfiniBand Trade Association: chapter 9 is the Transport Layer, chapters 10 and 11 are the
//! verbs, the annexes A14, A16 and A17 are XRC, RoCE and RoCEv2. Names with a (3) are manual pages
//! of rdma-core. "rxe" is Linux's soft-RoCE: what it does is said where peers meet it.

#![forbid(unsafe_code)]

pub mod completion_counter;
pub mod config;
pub mod cq;
pub mod device;
pub mod error;
pub mod event;
pub mod host;
pub mod mcast;
pub mod mr;
pub mod pacing;
pub mod planted;
pub mod qp;
pub mod recv_queue;
pub mod send_queue;
pub mod srq;
pub mod time;
pub mod transmit;
pub mod wr;

mod completer;
mod recovery;
mod refusal;
mod requester;
mod responder;
mod schedule;
mod sgl;
mod window;

pub use config::{DeviceConfig, GidEntry, Limits, RoceVersion};
pub use device::{
    CompletionQueue, Device, Event, PacketMeta, SharedReceiveQueue, SrqInit, Timer, XrcHalf,
};
pub use error::VerbError;
pub use host::{Fault, Host, Payload, Region};
pub use qp::{Qp, QpInit};
pub use recovery::RecoveryKind;
pub use refusal::drop_reason;
pub use responder::datagram::GRH_BYTES;
pub use send_queue::{SendData, SendFlags, SendOp, SendWr, UdDestination};
pub use time::{Instant, Span};
pub use window::WindowConfig;
