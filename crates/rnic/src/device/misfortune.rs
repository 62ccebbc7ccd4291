//! What a test does to queue pairs from outside: misfortunes that packets alone cannot bring.

use hirail_vocab::QpState;
use hirail_wire::Qpn;

use super::Device;
use super::receive::finish;
use crate::event::AsyncEvent;
use crate::host::{Host, Lock};
use crate::qp::Cx;
use crate::time::Instant;

impl<H: Host> Device<H> {
    /// If the next packet for this queue pair needs a receive WQE, it finds none, however many are
    /// posted: a reliable sender gets an RNR NAK. Nothing where there is no such queue pair.
    pub fn starve(&self, qpn: Qpn) {
        if let Some(qp) = self.qp(qpn) {
            qp.inner.lock().responder.starved = true;
        }
    }

    /// The queue pair fails as one of a broken card does: it enters ERR, what was posted is flushed,
    /// and the application is told ([`AsyncEvent::QpFatal`]). Nothing where there is none, or where
    /// it has failed already.
    pub fn kill(&self, now: Instant, qpn: Qpn) {
        let Some(qp) = self.qp(qpn) else { return };
        let cx = Cx {
            device: self,
            qp: &qp,
            now,
        };
        let mut inner = qp.inner.lock();
        // A queue pair that was never used has nothing to fail with.
        if !matches!(inner.state, QpState::Reset | QpState::Err) {
            inner.enter_error(cx);
            cx.raise(AsyncEvent::QpFatal);
        }
        finish(cx, &mut inner);
    }
}
