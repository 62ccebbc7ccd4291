//! The RNIC engine.
pub mod host;
pub mod time;
pub mod cq;
pub mod error;
pub mod event;
pub mod mcast;
pub mod mr;
pub mod recv_queue;
pub mod srq;
pub mod wr;
