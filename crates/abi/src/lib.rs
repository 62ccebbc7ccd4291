//! What the libraries of hirail for C programs share, byte for byte: the structures that programs
//! and the inline functions of `verbs.h` and `rdma_verbs.h` read and write, and the table by which
//! one library reaches the other ([`Bridge`]). Only what others can see is here; what a library keeps
//! lies behind the public part. There is no code, save the macro that exports functions.
//!
//! Sizes and offsets are asserted: a mistake does not compile.

// Fields have the names and the meaning that they have in C.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod attributes;
mod bridge;
mod context;
mod device;
mod export;
mod extended;
mod objects;
mod rdma;
mod work;

pub use attributes::*;
pub use bridge::*;
pub use context::*;
pub use device::*;
pub use extended::*;
pub use objects::*;
pub use rdma::*;
pub use work::*;

/// Asserts the size of a type and the offsets of fields of it.
macro_rules! layout {
    ($($type:ty: $size:literal { $($field:ident $offset:literal),* $(,)? })*) => { $(
        const _: () = assert!(size_of::<$type>() == $size);
        $(const _: () = assert!(core::mem::offset_of!($type, $field) == $offset);)*
    )* };
}

use layout;

/// `union ibv_gid`: 16 bytes, aligned as its `__be64` halves are.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(8))]
pub struct Gid(pub [u8; 16]);

/// Room that C keeps for a mutex of its own; nothing here touches it, and zeros are an unlocked one.
pub type Mutex = [u64; 5];

/// Room that C keeps for a condition variable of its own.
pub type Cond = [u64; 6];
