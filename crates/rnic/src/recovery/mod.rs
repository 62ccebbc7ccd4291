//! Loss recovery as a strategy: where to start again when something was lost.
//!
//! Go-back-N is the standard's and interoperates with everybody. Go-back-0 starts the message over,
//! as early RoCE cards did; it is here for the lessons. Selective repeat resends what is missing;
//! both ends must speak it (see [`selective`]).

use hirail_wire::Psn;

use crate::host::Host;
use crate::qp::{Cx, Inner};
use crate::time::Instant;

/// The strategies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryKind {
    /// Resend everything from the first lost packet on.
    #[default]
    GoBackN,
    /// Resend the whole message that the first lost packet belongs to, and all after it.
    GoBackZero,
}

/// State of the strategy of one QP.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    kind: RecoveryKind,
}

impl Recovery {
    pub(crate) fn new(kind: RecoveryKind) -> Self {
        Self { kind }
    }

    /// Where to send from again after the loss of `psn`.
    pub(crate) fn restart_from<H: Host>(&self, q: &Inner<H>, psn: Psn) -> Psn {
        match self.kind {
            RecoveryKind::GoBackN => psn,
            RecoveryKind::GoBackZero => q.message_start(psn),
        }
    }

    pub(crate) fn on_acknowledged(&mut self, _una: Psn) {}

    pub(crate) fn deadline(&self) -> Option<Instant> {
        None
    }

    pub(crate) fn stop(&mut self) {}

    pub(crate) fn reset(&mut self) {}
}

pub(crate) fn handle_timeout<H: Host>(_cx: Cx<'_, H>, _q: &mut Inner<H>) {}
