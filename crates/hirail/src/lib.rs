//! Under construction.

pub mod memory;
