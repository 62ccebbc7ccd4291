//! Queue pairs.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hirail_rnic::SendOp;
use hirail_rnic::completion_counter::{CompletionCounter, CountedOps};
use hirail_rnic::mr::{Access, BindMw, MwType};
use hirail_rnic::qp::attr::{AttrMask, QpAttr};
use hirail_rnic::wr::Sge;
use hirail_vocab::{QpState, QpType};
use hirail_wire::{Gid, Lkey, Psn, QKey, Qpn};

use super::connect::{ConnectOptions, QpEndpoint};
use super::context::Context;
use super::cq::Cq;
use super::mr::{Mr, MrSlice, RemoteMemory};
use super::mw::{self, Mw};
use super::pd::Pd;
use super::srq::Srq;
use super::work::{Described, SendWr, SgeList};
use super::xrc::Xrcd;
use crate::error::Error;
use crate::port::sys;
use crate::runtime::{Threads, now};

/// A queue pair. Clones are handles to the same one; the last one to go destroys it, and nothing of
/// it completes any more then.
#[derive(Clone)]
pub struct Qp {
    inner: Arc<QpInner>,
}

/// A queue pair that may be gone.
pub(crate) struct WeakQp(Weak<QpInner>);

impl WeakQp {
    pub(crate) fn upgrade(&self) -> Option<Qp> {
        self.0.upgrade().map(|inner| Qp { inner })
    }
}

struct QpInner {
    qp: Arc<hirail_rnic::Qp<Threads>>,
    /// First PSN that it sends.
    psn: Psn,
    /// Multicast groups that it is attached to.
    groups: Mutex<BTreeSet<Gid>>,
    pd: Pd,
    _cqs: [Cq; 2],
    _srq: Option<Srq>,
    _xrcd: Option<Xrcd>,
}

impl Qp {
    pub(crate) fn new(
        qp: Arc<hirail_rnic::Qp<Threads>>,
        pd: &Pd,
        cqs: [&Cq; 2],
        srq: Option<&Srq>,
        xrcd: Option<&Xrcd>,
    ) -> Self {
        Self {
            inner: Arc::new(QpInner {
                qp,
                psn: Psn::new(sys::random() as u32),
                groups: Mutex::default(),
                pd: pd.clone(),
                _cqs: cqs.map(Cq::clone),
                _srq: srq.cloned(),
                _xrcd: xrcd.cloned(),
            }),
        }
    }

    /// A handle that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakQp {
        WeakQp(Arc::downgrade(&self.inner))
    }

    pub(crate) fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qp.qpn
    }

    /// Its transport.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp.qp_type
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// Its state. In a forked child, where it does nothing, ERR.
    pub fn state(&self) -> QpState {
        self.query().map_or(QpState::Err, |attr| attr.qp_state)
    }

    /// All its attributes.
    ///
    /// # Errors
    /// In a forked child.
    pub fn query(&self) -> Result<QpAttr, Error> {
        crate::fork::check()?;
        Ok(self.context().rnic().device.query_qp(&self.inner.qp))
    }

    /// Counts completions of these operations from now on, whether they are signaled or not, as long
    /// as the QP exists (`ibv_qp_attach_comp_cntr(3)`).
    ///
    /// # Errors
    /// The QP is connected, or one of the operations is counted by another counter already.
    pub fn attach_counter(
        &self,
        counter: &Arc<CompletionCounter>,
        ops: CountedOps,
    ) -> Result<(), Error> {
        crate::fork::check()?;
        let device = &self.context().rnic().device;
        Ok(device.attach_counter(&self.inner.qp, counter, ops)?)
    }

    /// What to tell the peer, reached at the GID of `gid_index`.
    ///
    /// # Errors
    /// There is no such GID.
    pub fn endpoint(&self, gid_index: u8) -> Result<QpEndpoint, Error> {
        Ok(QpEndpoint {
            gid: self.context().gid(gid_index)?,
            qpn: self.qpn(),
            psn: self.inner.psn,
        })
    }

    /// Changes attributes and state; all of it or nothing.
    ///
    /// # Errors
    /// What is missing, too much or out of range for the transition.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        crate::fork::check()?;
        let rnic = self.context().rnic();
        let ends = matches!(attr.qp_state, QpState::Reset | QpState::Err);
        if mask.contains(AttrMask::STATE) && ends {
            // Nothing leaves any more after this, but the application may have seen messages that
            // were not acknowledged yet.
            rnic.settle(&self.inner.qp);
        }
        rnic.device.modify_qp(now(), &self.inner.qp, attr, mask)?;
        rnic.doorbell();
        Ok(())
    }

    /// Goes to `state` with what `attr` has besides.
    fn go_to(&self, state: QpState, attr: QpAttr, mask: AttrMask) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: state,
            ..attr
        };
        self.modify(&attr, AttrMask::STATE | mask)
    }

    /// RESET to INIT: receives may be posted from now on. [`connect`](Self::connect) does it where
    /// it has not been done.
    ///
    /// # Errors
    /// The QP is in another state, or is a datagram QP.
    pub fn init(&self, access: Access) -> Result<(), Error> {
        let attr = QpAttr {
            access,
            ..QpAttr::default()
        };
        let mask = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        self.go_to(QpState::Init, attr, mask)
    }

    /// Takes a connected QP (RC, UC, XRC) to RTS, towards `remote`.
    ///
    /// # Errors
    /// The QP is past INIT, or an option is out of range.
    pub fn connect(&self, remote: &QpEndpoint, options: &ConnectOptions) -> Result<(), Error> {
        if self.state() == QpState::Reset {
            self.init(options.access)?;
        }
        for (attr, mask) in options.steps(self.qp_type(), self.inner.psn, remote) {
            self.modify(&attr, mask)?;
        }
        Ok(())
    }

    /// Takes a datagram QP to RTS, with this queue key.
    ///
    /// # Errors
    /// The QP is not in RESET.
    pub fn activate_datagram(&self, qkey: QKey) -> Result<(), Error> {
        let attr = QpAttr {
            qkey,
            sq_psn: self.inner.psn,
            ..QpAttr::default()
        };
        let mut mask = AttrMask::PKEY_INDEX | AttrMask::QKEY;
        // QP1 belongs to a port from the beginning.
        mask.set(AttrMask::PORT, self.qp_type() != QpType::Gsi);
        self.go_to(QpState::Init, attr.clone(), mask)?;
        self.go_to(QpState::Rtr, attr.clone(), AttrMask::empty())?;
        self.go_to(QpState::Rts, attr, AttrMask::SQ_PSN)
    }

    /// RTS to SQD: what was started is finished, nothing new is. `SqDrained` is raised when that is
    /// so; posting goes on.
    ///
    /// # Errors
    /// The QP is not in RTS.
    pub fn drain(&self) -> Result<(), Error> {
        let attr = QpAttr {
            en_sqd_async_notify: true,
            ..QpAttr::default()
        };
        self.go_to(QpState::Sqd, attr, AttrMask::EN_SQD_ASYNC_NOTIFY)
    }

    /// Back to RTS, from SQD when it is drained, or from SQE (UC and UD after a failed send).
    ///
    /// # Errors
    /// The QP is in another state, or is draining.
    pub fn resume(&self) -> Result<(), Error> {
        self.go_to(QpState::Rts, QpAttr::default(), AttrMask::empty())
    }

    /// To ERR: everything outstanding is flushed.
    ///
    /// # Errors
    /// The QP is in RESET.
    pub fn fail(&self) -> Result<(), Error> {
        self.go_to(QpState::Err, QpAttr::default(), AttrMask::empty())
    }

    /// To RESET: its queues are emptied without completions, and it can be connected anew.
    ///
    /// # Errors
    /// In a forked child.
    pub fn reset(&self) -> Result<(), Error> {
        self.go_to(QpState::Reset, QpAttr::default(), AttrMask::empty())
    }

    /// Attaches a UD QP to a multicast group of this device. Datagrams come to it that were sent to
    /// the group with its queue key.
    ///
    /// # Errors
    /// Not a UD QP, not a group, the device's limits, or the interface cannot join the group.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), Error> {
        crate::fork::check()?;
        let mut groups = self.groups();
        self.context().rnic().attach(&self.inner.qp, group)?;
        groups.insert(group);
        Ok(())
    }

    /// Detaches a UD QP from a multicast group.
    ///
    /// # Errors
    /// It was not attached.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), Error> {
        crate::fork::check()?;
        let mut groups = self.groups();
        self.context().rnic().detach(&self.inner.qp, group)?;
        groups.remove(&group);
        Ok(())
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, BTreeSet<Gid>> {
        let groups = self.inner.groups.lock();
        groups.unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// The queue is full, the state does not allow it, or there are too many entries.
    pub fn post_recv(&self, wr_id: u64, into: &[MrSlice]) -> Result<(), Error> {
        self.queue_recv(wr_id, SgeList::new(into)?.as_slice())
    }

    /// Queues a send request and sends what can be sent now.
    ///
    /// # Errors
    /// The queue is full, the state does not allow it, or the request is not possible on this QP.
    pub fn post(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.post_quietly(wr)?;
        self.context().rnic().doorbell();
        Ok(())
    }

    /// Queues several send requests, then sends what can be sent now: packets of small messages
    /// share system calls.
    ///
    /// # Errors
    /// Of the first request that is refused; those before it are queued.
    pub fn post_all<'a>(&self, wrs: impl IntoIterator<Item = SendWr<'a>>) -> Result<(), Error> {
        let mut result = Ok(());
        for wr in wrs {
            result = self.post_quietly(&wr);
            if result.is_err() {
                break;
            }
        }
        self.context().rnic().doorbell();
        result
    }

    /// Queues a send request; it leaves with the next poll, doorbell or arrival.
    fn post_quietly(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        crate::fork::check()?;
        let described = Described::new(wr)?;
        let device = &self.context().rnic().device;
        Ok(device.post_send(now(), &self.inner.qp, &described.wr(wr))?)
    }

    /// Queues a send request in the engine's own form, for layers that translate another interface:
    /// nothing is allocated on the way. It leaves with the next [`ring`](Self::ring), poll or
    /// arrival.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    #[inline]
    pub fn queue(&self, wr: &hirail_rnic::SendWr<'_>) -> Result<(), Error> {
        crate::fork::check()?;
        let device = &self.context().rnic().device;
        Ok(device.post_send(now(), &self.inner.qp, wr)?)
    }

    /// Refuses what the send queue has no room for.
    ///
    /// # Errors
    /// Fewer than `requests` fit now.
    pub fn expect_room(&self, requests: usize) -> Result<(), Error> {
        crate::fork::check()?;
        let device = &self.context().rnic().device;
        Ok(device.expect_send_room(&self.inner.qp, requests)?)
    }

    /// Sends what can be sent now of what was [queued](Self::queue).
    pub fn ring(&self) {
        if crate::fork::check().is_ok() {
            self.context().rnic().doorbell();
        }
    }

    /// Queues a receive whose entries are in the engine's form.
    ///
    /// # Errors
    /// As [`post_recv`](Self::post_recv).
    #[inline]
    pub fn queue_recv(&self, wr_id: u64, sges: &[Sge]) -> Result<(), Error> {
        crate::fork::check()?;
        let rnic = self.context().rnic();
        rnic.device.post_recv(now(), &self.inner.qp, wr_id, sges)?;
        // One that was flushed at once may have been waited for.
        rnic.dispatch_events();
        Ok(())
    }

    /// Posts a request that binds `window` to a part of `region`, and returns what peers may use
    /// when it has completed. A window of type 2 must not be bound.
    ///
    /// ```
    /// # use hirail::{Access, Faults, MemoryNetwork, MwType, ConnectOptions};
    /// # use std::time::Duration;
    /// # let network = MemoryNetwork::new(Faults::default());
    /// # let context = network.open("192.0.2.1".parse().unwrap())?;
    /// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// # let qp = pd.qp(&cq, &cq).build()?;
    /// # qp.connect(&qp.endpoint(0)?, &ConnectOptions::new(&context, 0))?;
    /// let mr = pd.register(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
    /// let window = pd.alloc_mw(MwType::Type2)?;
    /// let remote = qp.bind(1, &window, &mr, 0..64, Access::REMOTE_WRITE)?;
    /// cq.wait_polling(Duration::from_secs(1))?.ok()?;
    /// // `remote` can be told to the peer now.
    /// # assert_eq!(remote.len, 64);
    /// # Ok::<(), hirail::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`post`](Self::post). What is wrong with the binding itself ends its request with
    /// `IBV_WC_MW_BIND_ERR`.
    ///
    /// # Panics
    /// When the range passes the end of the region.
    pub fn bind(
        &self,
        wr_id: u64,
        window: &Mw,
        region: &Mr,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<RemoteMemory, Error> {
        crate::fork::check()?;
        let (start, len) = region.part(range);
        let addr = region.remote().addr + start as u64;
        let mut key = window.key();
        let bind = BindMw {
            window: *key,
            new_key: mw::next(*key),
            region: region.lkey(),
            addr,
            length: len as u64,
            access,
        };
        self.post(&SendWr::new(wr_id, SendOp::BindMw(bind), &[]))?;
        *key = bind.rkey();
        Ok(RemoteMemory {
            addr: if access.contains(Access::ZERO_BASED) {
                0
            } else {
                addr
            },
            len: len as u64,
            rkey: *key,
        })
    }

    /// Posts a request that unbinds `window`: its key is dead when that has completed. A window of
    /// type 2 must be bound by this QP.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn unbind(&self, wr_id: u64, window: &Mw) -> Result<(), Error> {
        crate::fork::check()?;
        let mut key = window.key();
        if window.kind() == MwType::Type2 {
            return self.post(&SendWr::local_invalidate(wr_id, *key));
        }
        let bind = BindMw {
            window: *key,
            new_key: mw::next(*key),
            region: Lkey::default(),
            addr: 0,
            length: 0,
            access: Access::empty(),
        };
        self.post(&SendWr::new(wr_id, SendOp::BindMw(bind), &[]))?;
        *key = bind.rkey();
        Ok(())
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if crate::fork::check().is_err() {
            return;
        }
        let groups = std::mem::take(&mut self.groups);
        let rnic = self.pd.context().rnic();
        for group in groups.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let _ = rnic.detach(&self.qp, group);
        }
        // The application has seen messages that may not have been acknowledged yet.
        rnic.settle(&self.qp);
        let _ = rnic.device.destroy_qp(now(), &self.qp);
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("qpn", &self.qpn())
            .field("qp_type", &self.qp_type())
            .field("state", &self.state())
            .finish()
    }
}
