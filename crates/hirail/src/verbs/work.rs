//! Work requests as users describe them.

use hirail_rnic::VerbError;
use hirail_rnic::wr::Sge;
use hirail_wire::{Gid, QKey, Qpn};

use super::mr::MrSlice;
use crate::error::Error;

/// Entries that fit without allocating: the device's limit.
const MAX_SGE: usize = 31;

/// Scatter/gather entries on the stack.
pub(crate) struct SgeList {
    entries: [Sge; MAX_SGE],
    count: usize,
}

impl SgeList {
    pub(crate) fn new(slices: &[MrSlice]) -> Result<Self, Error> {
        if slices.len() > MAX_SGE {
            return Err(Error::Verb(VerbError::TooLarge {
                what: "num_sge",
                max: MAX_SGE as u64,
                got: slices.len() as u64,
            }));
        }
        let mut entries = [Sge::default(); MAX_SGE];
        for (entry, slice) in entries.iter_mut().zip(slices) {
            *entry = slice.sge;
        }
        Ok(Self {
            entries,
            count: slices.len(),
        })
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.entries[..self.count]
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// GID of the port, or of a multicast group.
    pub gid: Gid,
    /// QP there.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: QKey,
}
