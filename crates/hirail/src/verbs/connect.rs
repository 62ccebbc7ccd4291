//! What two sides tell each other to connect their QPs, and how they do it.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use hirail_rnic::mr::Access;
use hirail_rnic::qp::attr::{AttrMask, QpAttr};
use hirail_vocab::{QpState, QpType};
use hirail_wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, RnrTimer};

use super::context::Context;
use super::work::Path;
use crate::error::Error;

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
            let gid = Gid::from(words.next()?.parse::<Ipv6Addr>().ok()?);
            let mut number = || {
                let value = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                (value < 1 << 24).then_some(value)
            };
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
    /// Which way packets go.
    pub path: Path,
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
}

impl ConnectOptions {
    /// The usual, from the GID at `gid_index`: the port's MTU, all remote access, 16 READs, 67 ms
    /// timeout, 7 retries.
    pub fn new(context: &Context, gid_index: u8) -> Self {
        Self {
            path: Path {
                gid_index,
                ..Path::default()
            },
            path_mtu: context.port_mtu(),
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
            max_rd_atomic: context.limits().max_qp_init_rd_atom,
            max_dest_rd_atomic: context.limits().max_qp_rd_atom,
            timeout: AckTimeout::new(14),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(12),
        }
    }

    /// The attributes that take a QP of this type, whose first PSN is `psn`, from INIT to RTR and
    /// from there to RTS (`ibv_modify_qp(3)` has the table).
    pub(crate) fn steps(
        &self,
        qp_type: QpType,
        psn: Psn,
        remote: &QpEndpoint,
    ) -> [(QpAttr, AttrMask); 2] {
        let rtr = QpAttr {
            qp_state: QpState::Rtr,
            access: self.access,
            av: self.path.to(remote.gid),
            path_mtu: self.path_mtu,
            dest_qpn: remote.qpn,
            rq_psn: remote.psn,
            sq_psn: psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            max_rd_atomic: self.max_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            ..QpAttr::default()
        };
        let rts = QpAttr {
            qp_state: QpState::Rts,
            ..rtr.clone()
        };
        let mut to_rtr = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::ACCESS_FLAGS;
        let mut to_rts = AttrMask::STATE | AttrMask::SQ_PSN;
        if matches!(qp_type, QpType::Rc | QpType::XrcRecv) {
            to_rtr |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
        }
        if qp_type.is_reliable() {
            to_rts |= AttrMask::TIMEOUT;
        }
        if matches!(qp_type, QpType::Rc | QpType::XrcSend) {
            to_rts |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
        }
        [(rtr, to_rtr), (rts, to_rts)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_back() {
        let endpoint = QpEndpoint {
            gid: "::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().into(),
            qpn: Qpn::new(0x123456),
            psn: Psn::new(0xabcdef),
        };
        let text = endpoint.to_string();
        assert_eq!(text, "::ffff:192.0.2.1 0x123456 0xabcdef");
        assert_eq!(text.parse::<QpEndpoint>().unwrap(), endpoint);
    }

    #[test]
    fn what_is_no_endpoint_is_shown() {
        for text in [
            "",
            "::1",
            "::1 0x1",
            "::1 0x1 0x2 0x3",
            "192.0.2.1 0x1 0x2",
            "::1 1 2",
            "::1 0x1000000 0x2",
        ] {
            let error = text.parse::<QpEndpoint>().unwrap_err().to_string();
            let expected = format!("expected an endpoint: GID QPN PSN from the peer, got {text:?}");
            assert_eq!(error, expected);
        }
    }
}
