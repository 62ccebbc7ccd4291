//! Queue pairs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hirail_rnic::mr::Access;
use hirail_rnic::qp::attr::{AddressVector, AttrMask, QpAttr};
use hirail_rnic::{QpInit, SendData, SendFlags, SendOp, SendWr, UdDestination};
use hirail_vocab::{QpState, QpType};
use hirail_wire::{AckTimeout, Gid, PathMtu, Psn, QKey, Qpn, RnrTimer};

use super::context::Context;
use super::cq::Cq;
use super::mr::MrSlice;
use super::pd::Pd;
use super::srq::Srq;
use super::work::{Destination, SgeList};
use crate::error::Error;
use crate::port::sys;
use crate::runtime::{Threads, now};

/// Describes a QP before it is made; see [`Pd::qp`].
pub struct QpBuilder<'a> {
    pd: &'a Pd,
    send_cq: &'a Cq,
    recv_cq: &'a Cq,
    srq: Option<&'a Srq>,
    qp_type: QpType,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    signal_all: bool,
}

impl<'a> QpBuilder<'a> {
    pub(crate) fn new(pd: &'a Pd, send_cq: &'a Cq, recv_cq: &'a Cq) -> Self {
        Self {
            pd,
            send_cq,
            recv_cq,
            srq: None,
            qp_type: QpType::Rc,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            signal_all: false,
        }
    }

    /// Transport; RC if not said otherwise.
    #[must_use]
    pub fn qp_type(self, qp_type: QpType) -> Self {
        Self { qp_type, ..self }
    }

    /// Send requests outstanding at most; 128 if not said otherwise.
    #[must_use]
    pub fn max_send_wr(self, max_send_wr: u32) -> Self {
        Self {
            max_send_wr,
            ..self
        }
    }

    /// Receive requests outstanding at most; 128 if not said otherwise.
    #[must_use]
    pub fn max_recv_wr(self, max_recv_wr: u32) -> Self {
        Self {
            max_recv_wr,
            ..self
        }
    }

    /// Scatter/gather entries of a request at most; 1 if not said otherwise.
    #[must_use]
    pub fn max_sge(self, send: u32, recv: u32) -> Self {
        Self {
            max_send_sge: send,
            max_recv_sge: recv,
            ..self
        }
    }

    /// Inline bytes of a send request at most; none if not said otherwise.
    #[must_use]
    pub fn max_inline_data(self, max_inline_data: u32) -> Self {
        Self {
            max_inline_data,
            ..self
        }
    }

    /// Every send request makes a completion, also those not posted as signaled.
    #[must_use]
    pub fn signal_all(self) -> Self {
        Self {
            signal_all: true,
            ..self
        }
    }

    /// Receives come from a shared queue.
    #[must_use]
    pub fn srq(self, srq: &'a Srq) -> Self {
        Self {
            srq: Some(srq),
            ..self
        }
    }

    /// Makes the QP, in RESET.
    ///
    /// # Errors
    /// The device's limits, or a forked child.
    pub fn build(self) -> Result<Qp, Error> {
        crate::fork::check()?;
        let init = QpInit {
            qp_type: self.qp_type,
            pd: self.pd.inner.id,
            send_cq: Arc::clone(&self.send_cq.inner.cq),
            recv_cq: Arc::clone(&self.recv_cq.inner.cq),
            srq: self.srq.map(|srq| Arc::clone(&srq.inner.srq)),
            xrcd: None,
            max_send_wr: self.max_send_wr,
            max_recv_wr: self.max_recv_wr,
            max_send_sge: self.max_send_sge,
            max_recv_sge: self.max_recv_sge,
            max_inline_data: self.max_inline_data,
            sq_sig_all: self.signal_all,
        };
        let qp = self.pd.context().rnic().device.create_qp(&init)?;
        Ok(Qp {
            inner: Arc::new(QpInner {
                qp,
                psn: Psn::new(sys::random() as u32),
                pd: self.pd.clone(),
                _cqs: [self.send_cq.clone(), self.recv_cq.clone()],
                _srq: self.srq.cloned(),
            }),
        })
    }
}

/// What the other side needs to know to connect to a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpEndpoint {
    /// GID of its port.
    pub gid: Gid,
    /// Its number.
    pub qpn: Qpn,
    /// First PSN that it will send.
    pub psn: Psn,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.gid, self.qpn, self.psn)
    }
}

impl FromStr for QpEndpoint {
    type Err = Error;

    /// Reads what `Display` wrote.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let mut words = text.split_whitespace();
            let gid = Gid::from(words.next()?.parse::<std::net::Ipv6Addr>().ok()?);
            let mut number = || u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
            let endpoint = Self {
                gid,
                qpn: Qpn::new(number()?),
                psn: Psn::new(number()?),
            };
            words.next().is_none().then_some(endpoint)
        };
        parse().ok_or_else(|| Error::Exchange {
            expected: "an endpoint: GID QPN PSN",
            got: text.to_owned(),
        })
    }
}

/// How a QP is connected.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Index of the local GID.
    pub gid_index: u8,
    /// Path MTU; both sides must have the same.
    pub path_mtu: PathMtu,
    /// What the peer may do besides sending.
    pub access: Access,
    /// READs and atomics of this side outstanding at the peer.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence NAK.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK; 7 is without end.
    pub rnr_retry: u8,
    /// Wait that RNR NAKs of this side ask for.
    pub min_rnr_timer: RnrTimer,
    /// Traffic class: DSCP in the upper six bits.
    pub traffic_class: u8,
    /// Service level; its low three bits are the priority.
    pub service_level: u8,
}

impl ConnectOptions {
    /// The usual: the port's MTU, all remote access, 16 READs, 67 ms timeout, 7 retries.
    pub fn new(context: &Context, gid_index: u8) -> Self {
        Self {
            gid_index,
            path_mtu: context.port_mtu(),
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            max_rd_atomic: context.limits().max_qp_init_rd_atom,
            max_dest_rd_atomic: context.limits().max_qp_rd_atom,
            timeout: AckTimeout::new(14),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(12),
            traffic_class: 0,
            service_level: 0,
        }
    }
}

/// A send request. [`Qp`]'s `post_*` methods cover the usual ones; this is all there is.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Signaled, fenced, solicited.
    pub flags: SendFlags,
    /// Registered memory to send from, or to read into.
    pub slices: &'a [MrSlice],
    /// In place of `slices`: bytes that are copied now.
    pub inline: Option<&'a [u8]>,
    /// UD: where to.
    pub destination: Option<Destination>,
}

impl<'a> Send<'a> {
    /// A signaled request.
    pub fn new(wr_id: u64, op: SendOp, slices: &'a [MrSlice]) -> Self {
        Self {
            wr_id,
            op,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            slices,
            inline: None,
            destination: None,
        }
    }
}

/// A queue pair. Clones are handles to the same one.
#[derive(Clone)]
pub struct Qp {
    inner: Arc<QpInner>,
}

struct QpInner {
    qp: Arc<hirail_rnic::Qp<Threads>>,
    /// First PSN that it sends.
    psn: Psn,
    pd: Pd,
    _cqs: [Cq; 2],
    _srq: Option<Srq>,
}

impl Qp {
    fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qp.qpn
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.query().qp_state
    }

    /// All its attributes.
    pub fn query(&self) -> QpAttr {
        self.context().rnic().device.query_qp(&self.inner.qp)
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
        self.context()
            .rnic()
            .device
            .modify_qp(now(), &self.inner.qp, attr, mask)?;
        self.context().rnic().doorbell();
        Ok(())
    }

    /// RESET to INIT: receives may be posted from now on. [`connect`](Self::connect) does it where
    /// it has not been done.
    ///
    /// # Errors
    /// The QP is in another state.
    pub fn init(&self, access: Access) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: QpState::Init,
            access,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        self.modify(&attr, mask)
    }

    /// Takes an RC or UC QP to RTS, towards `remote`.
    ///
    /// # Errors
    /// The QP is past INIT, or an option is out of range.
    pub fn connect(&self, remote: &QpEndpoint, options: &ConnectOptions) -> Result<(), Error> {
        if self.state() == QpState::Reset {
            self.init(options.access)?;
        }
        let is_reliable = self.inner.qp.qp_type.is_reliable();
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            access: options.access,
            av: AddressVector {
                sgid_index: options.gid_index,
                traffic_class: options.traffic_class,
                sl: options.service_level,
                ..AddressVector::to(remote.gid)
            },
            path_mtu: options.path_mtu,
            dest_qpn: remote.qpn,
            rq_psn: remote.psn,
            sq_psn: self.inner.psn,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            max_rd_atomic: options.max_rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            ..QpAttr::default()
        };
        let mut rtr = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::ACCESS_FLAGS;
        let mut rts = AttrMask::STATE | AttrMask::SQ_PSN;
        if is_reliable {
            rtr |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
            rts |= AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC;
        }
        self.modify(&attr, rtr)?;
        self.modify(
            &QpAttr {
                qp_state: QpState::Rts,
                ..attr
            },
            rts,
        )
    }

    /// Takes a UD QP to RTS, with this queue key.
    ///
    /// # Errors
    /// The QP is not in RESET.
    pub fn activate_datagram(&self, qkey: QKey) -> Result<(), Error> {
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            qkey,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
        self.modify(&attr, mask)?;
        attr.qp_state = QpState::Rtr;
        self.modify(&attr, AttrMask::STATE)?;
        attr.qp_state = QpState::Rts;
        attr.sq_psn = self.inner.psn;
        self.modify(&attr, AttrMask::STATE | AttrMask::SQ_PSN)
    }

    /// To ERR: everything outstanding is flushed.
    ///
    /// # Errors
    /// The QP is in RESET.
    pub fn fail(&self) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        self.modify(&attr, AttrMask::STATE)
    }

    /// Attaches a UD QP to a multicast group of this device.
    ///
    /// # Errors
    /// Not a UD QP, not a group, or the device's limits.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), Error> {
        crate::fork::check()?;
        let change = self
            .context()
            .rnic()
            .device
            .attach_mcast(&self.inner.qp, group)?;
        self.context().rnic().group_changed(group, change);
        Ok(())
    }

    /// Detaches a UD QP from a multicast group.
    ///
    /// # Errors
    /// It was not attached.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), Error> {
        crate::fork::check()?;
        let change = self
            .context()
            .rnic()
            .device
            .detach_mcast(&self.inner.qp, group)?;
        self.context().rnic().group_changed(group, change);
        Ok(())
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// The queue is full, the state does not allow it, or there are too many entries.
    pub fn post_recv(&self, wr_id: u64, into: &[MrSlice]) -> Result<(), Error> {
        crate::fork::check()?;
        let list = SgeList::new(into)?;
        let device = &self.context().rnic().device;
        Ok(device.post_recv(now(), &self.inner.qp, wr_id, list.as_slice())?)
    }

    /// Queues a send request and sends what can be sent now.
    ///
    /// # Errors
    /// The queue is full, the state does not allow it, or the request is not possible on this QP.
    pub fn post(&self, send: &Send<'_>) -> Result<(), Error> {
        self.post_quietly(send)?;
        self.context().rnic().doorbell();
        Ok(())
    }

    /// Queues several send requests, then sends what can be sent now: packets of small messages
    /// share system calls.
    ///
    /// # Errors
    /// Of the first request that is refused; those before it are queued.
    pub fn post_all<'a>(&self, sends: impl IntoIterator<Item = Send<'a>>) -> Result<(), Error> {
        let mut result = Ok(());
        for send in sends {
            result = self.post_quietly(&send);
            if result.is_err() {
                break;
            }
        }
        self.context().rnic().doorbell();
        result
    }

    /// Queues a send request; it leaves with the next poll, doorbell or arrival.
    fn post_quietly(&self, send: &Send<'_>) -> Result<(), Error> {
        crate::fork::check()?;
        let list = SgeList::new(send.slices)?;
        let pieces: [&[u8]; 1];
        let data = match send.inline {
            Some(bytes) => {
                pieces = [bytes];
                SendData::Inline(&pieces)
            }
            None => SendData::Sges(list.as_slice()),
        };
        let ud = send.destination.map(|to| UdDestination {
            av: AddressVector::to(to.gid),
            qpn: to.qpn,
            qkey: to.qkey,
        });
        let wr = SendWr {
            wr_id: send.wr_id,
            op: send.op,
            flags: send.flags,
            data,
            ud,
            xrc_srqn: 0,
        };
        Ok(self
            .context()
            .rnic()
            .device
            .post_send(now(), &self.inner.qp, &wr)?)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if crate::fork::check().is_ok() {
            // A QP still attached to groups is detached first.
            let device = &self.pd.context().rnic().device;
            device.detach_from_all(&self.qp);
            let _ = device.destroy_qp(now(), &self.qp);
        }
    }
}
