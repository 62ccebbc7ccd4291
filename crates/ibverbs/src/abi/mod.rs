//! The structures that C programs and the inline functions of `verbs.h` read and write, byte for
//! byte. Only what they can see is here; what this library keeps lies behind the public part.
//!
//! Sizes and offsets are asserted: a mistake does not compile.

mod attributes;
mod context;
mod device;
mod extended;
mod objects;
mod work;

pub(crate) use attributes::*;
pub(crate) use context::*;
pub(crate) use device::*;
pub(crate) use extended::*;
pub(crate) use objects::*;
pub(crate) use work::*;

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
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// Room that C keeps for a mutex of its own; nothing here touches it, and zeros are an unlocked one.
pub(crate) type Mutex = [u64; 5];

/// Room that C keeps for a condition variable of its own.
pub(crate) type Cond = [u64; 6];
