//! How fast a queue pair sends: not held back, or by DCQCN (Zhu et al., "Congestion Control for
//! Large-Scale RDMA Deployments", SIGCOMM 2015).
//!
//! A queue pair asks [`Pacing::next_send_at`] before it sends and reports what it sent with
//! [`Pacing::on_bytes_sent`]. Nothing here has a timer that must be served: whatever time did to a
//! rate is made up for when the rate is next touched.

mod dcqcn;
mod notification;
mod params;

pub use dcqcn::ReactionPoint;
pub use notification::NotificationPoint;
pub use params::{Dcqcn, DcqcnParams, Form};

use crate::time::Instant;

/// The pacing strategy of one queue pair.
#[derive(Clone, Debug, Default)]
pub enum Pacing {
    /// As fast as window and link allow.
    #[default]
    None,
    /// By DCQCN's reaction point.
    Dcqcn(Box<ReactionPoint>),
}

impl Pacing {
    /// A CNP for this queue pair arrived. Whether it is obeyed: `rp_cnp_handled` counts it then,
    /// otherwise `rp_cnp_ignored`.
    pub fn on_cnp(&mut self, now: Instant) -> bool {
        match self {
            Self::None => false,
            Self::Dcqcn(point) => {
                point.on_cnp(now);
                true
            }
        }
    }

    /// `bytes` (as the link counts them, headers included) were handed to the link.
    pub fn on_bytes_sent(&mut self, now: Instant, bytes: u64) {
        if let Self::Dcqcn(point) = self {
            point.on_bytes_sent(now, bytes);
        }
    }

    /// The earliest moment for the next packet; often in the past.
    pub fn next_send_at(&self) -> Instant {
        match self {
            Self::None => Instant::EPOCH,
            Self::Dcqcn(point) => point.next_send_at(),
        }
    }

    /// The rate in bit/s; `None` if nothing holds the queue pair back.
    pub fn rate_bps(&mut self, now: Instant) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Dcqcn(point) => {
                let rate = point.rate_bps(now);
                point.is_limiting().then_some(rate)
            }
        }
    }
}

#[cfg(test)]
mod tests;
