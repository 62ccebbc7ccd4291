//! The RNIC engine.
pub mod host;
pub mod time;
