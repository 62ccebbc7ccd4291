//! Protection domains, and the ways to register memory in them.

use std::fmt;
use std::sync::Arc;

use hirail_rnic::VerbError;
use hirail_rnic::mr::{Access, MwType, PdId};

use super::builder::QpBuilder;
use super::context::Context;
use super::cq::Cq;
use super::mr::Mr;
use super::mw::Mw;
use super::srq::Srq;
use super::xrc::Xrcd;
use crate::error::Error;
use crate::memory::{Atom, Backing};

/// A protection domain: memory keys and QPs of one domain work with each other only. Clones are
/// handles to the same one.
///
/// # Registering memory
///
/// A registered region is written by peers at any moment, so no `&[u8]` of it may exist meanwhile,
/// and it must not go away. There are four ways to see to that:
///
/// | memory | how | who sees to it |
/// | --- | --- | --- |
/// | new, of the region's own | [`register`](Self::register) | the region owns it |
/// | the application's, made of atomics | [`register_shared`](Self::register_shared) | the region keeps its owner |
/// | borrowed | [`lend_mut`](Self::lend_mut), [`lend`](Self::lend) | registered within a closure only |
/// | anything else | [`register_raw`](Self::register_raw) | the caller: `unsafe` |
#[derive(Clone)]
pub struct Pd {
    pub(crate) inner: Arc<PdInner>,
}

/// Handles to the same domain are equal.
impl PartialEq for Pd {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Pd {}

pub(crate) struct PdInner {
    pub(crate) context: Context,
    pub(crate) id: PdId,
}

impl Pd {
    pub(crate) fn new(context: &Context) -> Result<Self, Error> {
        context.rnic().begin()?;
        let id = context.rnic().device.alloc_pd()?;
        Ok(Self {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
            }),
        })
    }

    /// The device that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Its number; that of its clones as well.
    pub fn id(&self) -> PdId {
        self.inner.id
    }

    /// Registers `bytes` of new zeroed memory, page aligned, owned by the region.
    ///
    /// # Errors
    /// Access rights that exclude each other, or the device's limits.
    pub fn register(&self, bytes: usize, access: Access) -> Result<Mr, Error> {
        let backing = Backing::zeroed(bytes).ok_or(Error::OutOfMemory { bytes })?;
        Mr::new(self, backing, access)
    }

    /// Registers memory of the application that is made of atomics, which it may go on using: an
    /// `Arc<[AtomicU64]>`, a `Box<[AtomicU8]>`, a `&'static` array, or a type of its own that hands
    /// out a mapped file as atomics. The region keeps `owner` until it is dropped.
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// # use hirail::{Access, Faults, MemoryNetwork};
    /// # let network = MemoryNetwork::new(Faults::default());
    /// # let pd = network.open("192.0.2.1".parse().unwrap())?.alloc_pd()?;
    /// let counters: Arc<[AtomicU64]> = (0..8).map(AtomicU64::new).collect();
    /// let mr = pd.register_shared(Arc::clone(&counters), Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    /// // Whatever peers do to the counters is seen here.
    /// assert_eq!(counters[7].load(Ordering::Acquire), mr.load_u64(7 * 8));
    /// # Ok::<(), hirail::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_shared<A: Atom>(
        &self,
        owner: impl AsRef<[A]> + Send + Sync + 'static,
        access: Access,
    ) -> Result<Mr, Error> {
        Mr::new(self, Backing::kept(owner), access)
    }

    /// Registers borrowed memory while `job` runs. When it returns the keys are dead and no packet
    /// touches the memory any more; requests that still name it end with an error.
    ///
    /// ```
    /// # use hirail::{Access, Faults, MemoryNetwork};
    /// # let network = MemoryNetwork::new(Faults::default());
    /// # let pd = network.open("192.0.2.1".parse().unwrap())?.alloc_pd()?;
    /// let mut buffer = vec![0; 4096];
    /// pd.lend_mut(&mut buffer, Access::LOCAL_WRITE, |mr| {
    ///     // Post requests with `mr.slice(..)` and wait for their completions.
    ///     mr.write(0, b"received");
    /// })?;
    /// assert_eq!(&buffer[..8], b"received");
    /// # Ok::<(), hirail::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`register`](Self::register); `job` has not run then.
    pub fn lend_mut<R>(
        &self,
        bytes: &mut [u8],
        access: Access,
        job: impl FnOnce(&Mr) -> R,
    ) -> Result<R, Error> {
        // SAFETY: it moves into `mr`, which is dropped before this function returns, and its `Drop`
        // waits for all users of the view. `job` gets a borrow only.
        let backing = unsafe { Backing::lent_mut(bytes) };
        let mr = Mr::new(self, backing, access)?;
        Ok(job(&mr))
    }

    /// Registers borrowed memory that is only read, here and by peers, while `job` runs; otherwise
    /// as [`lend_mut`](Self::lend_mut).
    ///
    /// # Errors
    /// As [`register`](Self::register), and when `access` allows anything to write.
    pub fn lend<R>(
        &self,
        bytes: &[u8],
        access: Access,
        job: impl FnOnce(&Mr) -> R,
    ) -> Result<R, Error> {
        let writes = access & (Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !writes.is_empty() {
            return Err(Error::ReadOnly { got: writes });
        }
        // SAFETY: as in `lend_mut`.
        let backing = unsafe { Backing::lent(bytes) };
        let mr = Mr::new(self, backing, access)?;
        Ok(job(&mr))
    }

    /// Registers `len` bytes from `addr` on, whatever they are. Nothing is touched before it is
    /// used; where pages are missing then, or are read-only, the request that needs them ends with
    /// an error, and the process goes on.
    ///
    /// # Safety
    /// Until the region is dropped the process must access these bytes, where they are mapped, only
    /// in ways that tolerate concurrent modification (raw pointers with volatile or atomic accesses,
    /// or after the completion that hands them back), and must not map anything there that a stray
    /// copy could damage.
    ///
    /// # Errors
    /// As [`register`](Self::register), and when the bytes wrap around the address space.
    pub unsafe fn register_raw(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        // SAFETY: as required of the caller.
        let backing = unsafe { raw(addr, len) }?;
        Mr::new(self, backing, access)
    }

    /// As [`register_raw`](Self::register_raw), but requests and peers know the first byte by the
    /// address `iova` (`ibv_reg_mr_iova`).
    ///
    /// # Safety
    /// As for [`register_raw`](Self::register_raw).
    ///
    /// # Errors
    /// As [`register_raw`](Self::register_raw).
    pub unsafe fn register_raw_at(
        &self,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr, Error> {
        // SAFETY: as required of the caller.
        let backing = unsafe { raw(addr, len) }?;
        Mr::new_at(self, backing, iova, access)
    }

    /// How many objects and handles there are that keep this domain, beside this handle.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }

    /// A memory window, bound to nothing. See [`Qp::bind`](super::qp::Qp::bind).
    ///
    /// # Errors
    /// The device's limit is reached, or this is a forked child.
    pub fn alloc_mw(&self, kind: MwType) -> Result<Mw, Error> {
        Mw::new(self, kind)
    }

    /// Starts to describe a QP whose completions go to `send_cq` and `recv_cq`.
    pub fn qp<'a>(&'a self, send_cq: &'a Cq, recv_cq: &'a Cq) -> QpBuilder<'a> {
        QpBuilder::new(self, send_cq, recv_cq)
    }

    /// A shared receive queue for `max_wr` receives of `max_sge` entries each.
    ///
    /// # Errors
    /// More than the device allows.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<Srq, Error> {
        Srq::new(self, max_wr, max_sge, None)
    }

    /// A shared receive queue that senders name in their requests, for the target QPs of an XRC
    /// domain; its completions go to `cq`.
    ///
    /// # Errors
    /// More than the device allows.
    pub fn create_xrc_srq(
        &self,
        xrcd: &Xrcd,
        cq: &Cq,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<Srq, Error> {
        Srq::new(self, max_wr, max_sge, Some((xrcd, cq)))
    }
}

/// Any bytes.
///
/// # Safety
/// As for [`Pd::register_raw`].
pub(crate) unsafe fn raw(addr: *mut u8, len: usize) -> Result<Backing, Error> {
    // SAFETY: as required of the caller.
    let backing = unsafe { Backing::raw(addr, len, true) };
    Ok(backing.ok_or(VerbError::AddressWraps {
        iova: addr.addr() as u64,
        length: len as u64,
    })?)
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            // Everything in it holds it, so nothing can be left.
            let _ = self.context.rnic().device.dealloc_pd(self.id);
        }
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pd").field(&self.inner.id.0).finish()
    }
}
