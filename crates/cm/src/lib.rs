//! The connection manager as a sans-IO state machine: who wants to talk to whom, and with which
//! queue pairs (IBTA Vol 1, chapter 12).
//!
//! It opens no socket, reads no clock and draws no randomness: messages, time and a seed are handed
//! in. It owns no queue pair either. Whoever does is told by an [`Event`] when the peer is known, and
//! by [`Cm::attributes`] what to set.
//!
//! # The contract
//!
//! **In**: the calls of [`Cm`]; [`Cm::handle_mad`] with a message that came to QP1;
//! [`Cm::handle_timeout`]. **Out**: [`Cm::poll_transmit`], [`Cm::poll_timer`], [`Cm::poll_event`].
//! After any input, drain the outputs. `now` never goes backwards.
//!
//! # A connection's life
//!
//! | | active side | passive side |
//! | --- | --- | --- |
//! | REQ | [`connect`](Cm::connect) | [`Event::Request`], answered by [`accept`](Cm::accept) or [`reject`](Cm::reject) |
//! | REP | [`Event::Response`]: take the QP to RTS, then [`confirm`](Cm::confirm) | QP in RTS before `accept` |
//! | RTU | connected | [`Event::Established`], also when data came first ([`communication_established`](Cm::communication_established)) |
//! | REJ | [`Event::Rejected`] | |
//! | DREQ, DREP | [`disconnect`](Cm::disconnect), [`Event::Disconnected`] | the same |
//!
//! A connection that existed stays known for a while so that late packets meet nobody new;
//! [`Event::TimewaitExit`] ends that, and only then is its id free again. [`destroy`](Cm::destroy)
//! gives an id up in any state.
//!
//! Datagram services are asked for by [`query`](Cm::query) and answered by [`answer`](Cm::answer).
//!
//! # Many processes, one port
//!
//! [`route`](route()) reads from a message whose it is: the process that chose the communication id
//! ([`Config::ids`] gives each one a range), or the one that listens for a service.

#![forbid(unsafe_code)]

mod attributes;
mod cm;
mod config;
mod connection;
mod error;
mod event;
mod ids;
mod path;
pub mod planted;
mod private_data;
mod route;
mod service;
mod sidr;
mod timers;

pub use cm::{Cm, Sizes, Transmit};
pub use config::{Config, IdRange};
pub use connection::{Accept, Connect, State};
pub use error::CmError;
pub use event::{Ece, Event, Question, Reply, Request, Response};
pub use hirail_wire::cm::{IpHeader, PortSpace, RejReason, ServiceId, Transport};
pub use ids::CommId;
pub use path::{Meta, Path};
pub use private_data::Limits;
pub use route::{Route, route};
pub use service::{Listen, ListenerId};
pub use sidr::{Answer, Query, ServiceStatus};
