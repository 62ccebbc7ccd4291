//! Paging in ahead: `ibv_advise_mr(3)`.
//!
//! The engine has no page tables of its own: whatever this process has mapped it reaches, when it is
//! needed. So memory on demand costs nothing, and making it present spares the first packet its page
//! faults.

use hirail_rnic::mr::{Access, Refusal};
use hirail_rnic::wr::Sge;

use super::pd::Pd;
use crate::fork::Forked;

/// Why memory is not made present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefetchError {
    /// This process is a forked child of the one that opened the device.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The key does not give access to these bytes, or not the access that is asked for.
    #[error("the key does not give access: {0:?}")]
    Refused(Refusal),
    /// The region was not registered with [`Access::ON_DEMAND`].
    #[error("the region is not one on demand")]
    NotOnDemand,
    /// Pages are not there, or cannot be written.
    #[error("pages are missing")]
    Fault,
}

/// What memory is made present for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// To be read.
    Read,
    /// To be written.
    Write,
    /// For neither: what is not in memory stays where it is.
    NoFault,
}

impl Pd {
    /// Makes a part of a region on demand present before it is needed; waits until it is.
    ///
    /// # Errors
    /// See [`PrefetchError`]. Pages before the first that is missing may be present then.
    pub fn prefetch(&self, part: impl Into<Sge>, what: Prefetch) -> Result<(), PrefetchError> {
        crate::fork::check()?;
        let part = part.into();
        let device = &self.context().rnic().device;
        let piece = |need| {
            device
                .local_slice(self.inner.id, part, need)
                .map_err(|error| PrefetchError::Refused(error.0))
        };
        // The key first: whose it is matters more than what it grants.
        let slice = piece(Access::NONE)?;
        piece(Access::ON_DEMAND).map_err(|error| match error {
            PrefetchError::Refused(Refusal::MissingRight) => PrefetchError::NotOnDemand,
            other => other,
        })?;
        if what == Prefetch::Write {
            piece(Access::LOCAL_WRITE)?;
        }
        if what == Prefetch::NoFault {
            return Ok(());
        }
        let (region, is_write) = (slice.region(), what == Prefetch::Write);
        region
            .populate(slice.offset(), slice.len().into(), is_write)
            .map_err(|_| PrefetchError::Fault)
    }
}

#[cfg(test)]
mod tests {
    use hirail_wire::Lkey;

    use super::*;
    use crate::{Faults, MemoryNetwork};

    #[test]
    fn only_memory_on_demand_is_made_present() {
        let network = MemoryNetwork::new(Faults::default());
        let device = network.open("192.0.2.1".parse().unwrap()).unwrap();
        let (pd, other) = (device.alloc_pd().unwrap(), device.alloc_pd().unwrap());
        let mr = pd.register(8192, Access::ON_DEMAND).unwrap();
        let part = mr.slice(100..5000);
        assert_eq!(pd.prefetch(part, Prefetch::Read), Ok(()));
        assert_eq!(pd.prefetch(part, Prefetch::NoFault), Ok(()));
        let refused = |why| Err(PrefetchError::Refused(why));
        let no_right = refused(Refusal::MissingRight);
        assert_eq!(pd.prefetch(part, Prefetch::Write), no_right);
        let foreign = refused(Refusal::ForeignPd);
        assert_eq!(other.prefetch(part, Prefetch::Read), foreign);
        let beyond = Sge {
            length: 8192,
            ..part.sge
        };
        let out_of_range = refused(Refusal::OutOfRange);
        assert_eq!(pd.prefetch(beyond, Prefetch::Read), out_of_range);
        let unknown = Sge {
            lkey: Lkey::new(part.sge.lkey.value() ^ 1),
            ..part.sge
        };
        let no_key = refused(Refusal::UnknownKey);
        assert_eq!(pd.prefetch(unknown, Prefetch::NoFault), no_key);
        let resident = pd.register(4096, Access::LOCAL_WRITE).unwrap();
        let fetched = pd.prefetch(resident.slice(..), Prefetch::Write);
        assert_eq!(fetched, Err(PrefetchError::NotOnDemand));
        let access = Access::LOCAL_WRITE | Access::ON_DEMAND;
        let writable = pd.register(4096, access).unwrap();
        let fetched = pd.prefetch(writable.slice(..), Prefetch::Write);
        assert_eq!(fetched, Ok(()));
    }
}
