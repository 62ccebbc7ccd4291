//! Pieces of work requests that all queues share.

use hirail_wire::Lkey;

/// Scatter/gather entry: a piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sge {
    /// First address, in the terms of the region (its iova, or 0 for a zero-based one).
    pub addr: u64,
    /// Bytes; 0 is legal and touches nothing.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}
