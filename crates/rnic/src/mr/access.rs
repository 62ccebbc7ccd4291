//! Access rights of memory regions and windows, with the bits of `enum ibv_access_flags`.

use bitflags::bitflags;

use crate::error::VerbError;

bitflags! {
    /// A set of access rights. Reading locally is always allowed and has no bit.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct Access: u32 {
        /// Local receive requests, reads and atomics may write here.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 2;
        /// Peers may use atomic operations.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from the first byte of the region or window.
        const ZERO_BASED = 1 << 5;
        /// Pages need not be resident.
        const ON_DEMAND = 1 << 6;
        /// The memory consists of huge pages (a hint).
        const HUGETLB = 1 << 7;
        /// Peers may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may become visible out of order (a permission that the engine does not use).
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// No right beyond reading locally.
    pub const NONE: Self = Self::empty();

    /// Bits that a device may ignore without knowing them (`IBV_ACCESS_OPTIONAL_RANGE`).
    const OPTIONAL: u32 = 0x3ff0_0000;

    /// The rights in a verbs flag word. Unknown bits are refused, unless they are optional ones.
    pub const fn from_verbs(bits: u32) -> Result<Self, VerbError> {
        match bits & !Self::all().bits() & !Self::OPTIONAL {
            0 => Ok(Self::from_bits_truncate(bits)),
            got => Err(VerbError::UnknownAccess { got }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_refused_and_optional_ones_ignored() {
        let unknown = |got| Err(VerbError::UnknownAccess { got });
        assert_eq!(Access::from_verbs(1 << 10 | 1), unknown(1 << 10));
        assert_eq!(Access::from_verbs(1 << 31), unknown(1 << 31));
        assert_eq!(Access::from_verbs(1 << 29 | 1), Ok(Access::LOCAL_WRITE));
        assert_eq!(Access::from_verbs(0x10_03ff), Ok(Access::all()));
    }

    #[test]
    fn sets_print_their_names() {
        let set = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert_eq!(format!("{set:?}"), "Access(LOCAL_WRITE | REMOTE_READ)");
    }
}
