//! Describing a QP before it is made.

use std::sync::Arc;

use hirail_rnic::{QpInit, VerbError};
use hirail_vocab::QpType;

use super::cq::Cq;
use super::pd::Pd;
use super::qp::Qp;
use super::srq::Srq;
use super::xrc::Xrcd;
use crate::error::Error;

/// Describes a QP before it is made; see [`Pd::qp`].
#[derive(Clone, Copy, Debug)]
pub struct QpBuilder<'a> {
    pd: &'a Pd,
    send_cq: &'a Cq,
    recv_cq: &'a Cq,
    srq: Option<&'a Srq>,
    xrcd: Option<&'a Xrcd>,
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
            xrcd: None,
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

    /// The domain of an XRC target QP ([`QpType::XrcRecv`]). Completions of what comes through it
    /// go to the queue of the SRQ that the sender named, not to those of the QP.
    #[must_use]
    pub fn xrcd(self, xrcd: &'a Xrcd) -> Self {
        Self {
            xrcd: Some(xrcd),
            ..self
        }
    }

    /// Entries of its send and its receive queue.
    pub(crate) fn depths(&self) -> (u32, u32) {
        // XRC initiators have no receive queue, targets have no queue at all.
        match self.qp_type {
            QpType::XrcSend => (self.max_send_wr, 0),
            QpType::XrcRecv => (0, 0),
            _ => (self.max_send_wr, self.max_recv_wr),
        }
    }

    /// Makes the QP, in RESET.
    ///
    /// # Errors
    /// The device's limits, an XRC target without domain, objects of another device, or a forked
    /// child.
    pub fn build(self) -> Result<Qp, Error> {
        crate::fork::check()?;
        let context = self.pd.context();
        context.expect("a CQ", self.send_cq.context())?;
        context.expect("a CQ", self.recv_cq.context())?;
        if let Some(srq) = self.srq {
            context.expect("an SRQ", srq.pd().context())?;
        }
        if let Some(xrcd) = self.xrcd {
            context.expect("an XRC domain", xrcd.context())?;
        }
        if self.qp_type == QpType::XrcRecv && self.xrcd.is_none() {
            return Err(Error::Verb(VerbError::Missing { what: "xrcd" }));
        }
        let (max_send_wr, max_recv_wr) = self.depths();
        let init = QpInit {
            qp_type: self.qp_type,
            pd: self.pd.inner.id,
            send_cq: Arc::clone(&self.send_cq.inner.cq),
            recv_cq: Arc::clone(&self.recv_cq.inner.cq),
            srq: self.srq.map(|srq| Arc::clone(&srq.inner.srq)),
            xrcd: self.xrcd.map(|xrcd| xrcd.inner.id),
            max_send_wr,
            max_recv_wr,
            max_send_sge: self.max_send_sge,
            max_recv_sge: self.max_recv_sge,
            max_inline_data: self.max_inline_data,
            sq_sig_all: self.signal_all,
        };
        let qp = context.rnic().device.create_qp(&init)?;
        Ok(Qp::new(
            qp,
            self.pd,
            [self.send_cq, self.recv_cq],
            self.srq,
            self.xrcd,
        ))
    }
}
