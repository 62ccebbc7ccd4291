//! What `modify_qp` sets and `query_qp` returns: the attributes of a queue pair and the mask that
//! says which of them are meant. Which may be set in which transition is in [`state`](super::state).

use hirail_vocab::QpState;
use hirail_wire::{AckTimeout, Gid, PathMtu, Psn, QKey, Qpn, RnrTimer};

use super::state::ModifyError;
use crate::mr::Access;

bitflags::bitflags! {
    /// Which attributes of a [`QpAttr`] are meant (`enum ibv_qp_attr_mask`; `ibv_modify_qp(3)`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AttrMask: u32 {
        /// The state to go to.
        const STATE = 1 << 0;
        /// The state that the caller believes the queue pair to be in.
        const CUR_STATE = 1 << 1;
        /// Whether the end of draining raises an event.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// What the peer may do.
        const ACCESS_FLAGS = 1 << 3;
        /// Index of the partition key.
        const PKEY_INDEX = 1 << 4;
        /// Port.
        const PORT = 1 << 5;
        /// Queue key.
        const QKEY = 1 << 6;
        /// Path to the peer.
        const AV = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Local ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Retries after a timeout or a sequence NAK.
        const RETRY_CNT = 1 << 10;
        /// Retries after an RNR NAK.
        const RNR_RETRY = 1 << 11;
        /// First sequence number expected.
        const RQ_PSN = 1 << 12;
        /// Initiator depth: reads and atomics outstanding at the peer.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// Wait that RNR NAKs ask for.
        const MIN_RNR_TIMER = 1 << 15;
        /// First sequence number sent.
        const SQ_PSN = 1 << 16;
        /// Responder resources: reads and atomics outstanding from the peer.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// State of path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// Sizes of the queues.
        const CAP = 1 << 19;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
        /// Rate limit in kbit/s.
        const RATE_LIMIT = 1 << 25;
    }
}

/// The verbs' names, `IBV_QP_AV, IBV_QP_PATH_MTU`; bits that have no name in hexadecimal.
impl core::fmt::Display for AttrMask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut comma = "";
        let mut names = self.iter_names();
        for (name, _) in names.by_ref() {
            write!(f, "{comma}IBV_QP_{name}")?;
            comma = ", ";
        }
        if !names.remaining().is_empty() {
            write!(f, "{comma}{:#x}", names.remaining().bits())?;
        }
        Ok(())
    }
}

/// Where packets of a connection, or of one datagram, go (`struct ibv_ah_attr` with its GRH, which
/// RoCE always needs).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// Destination: an IP address, or a multicast group for datagrams.
    pub dgid: Gid,
    /// Index of the local GID, which decides source address, VLAN and RoCE version.
    pub sgid_index: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 ToS or IPv6 traffic class; the upper six bits are the DSCP.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits. Not zero: it decides the UDP source port too.
    pub flow_label: u32,
    /// Service level; its low three bits are the 802.1p priority.
    pub sl: u8,
    /// Static rate as encoded by the verbs; 0 is the port's speed.
    pub static_rate: u8,
    /// Destination MAC, for links that need one.
    pub dmac: [u8; 6],
    /// Port, from 1.
    pub port: u8,
}

impl AddressVector {
    /// Flow labels are below this.
    pub const FLOW_LABEL_LIMIT: u32 = 1 << 20;

    /// The path from the first GID of port 1 to `dgid`, with 64 hops and everything else 0.
    pub const fn to(dgid: Gid) -> Self {
        Self {
            dgid,
            sgid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
            static_rate: 0,
            dmac: [0; 6],
            port: 1,
        }
    }

    /// Priority of packets on this path, 0 to 7.
    pub const fn priority(&self) -> u8 {
        self.sl & 7
    }
}

/// State of path migration (`enum ibv_mig_state`). hirail keeps what is set and never migrates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum MigrationState {
    /// No alternate path is in use; the state of a connection without migration.
    #[default]
    Migrated = 0,
    /// The alternate path is being loaded.
    Rearm = 1,
    /// The alternate path is ready.
    Armed = 2,
}

impl MigrationState {
    /// The state with the verbs' number `code`.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Migrated,
            1 => Self::Rearm,
            2 => Self::Armed,
            _ => return None,
        })
    }
}

/// Attributes of a queue pair (`struct ibv_qp_attr`, what of it means something on RoCE).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// State to go to, or the state it is in.
    pub qp_state: QpState,
    /// State that the caller believes the queue pair to be in.
    pub cur_qp_state: QpState,
    /// Payload bytes of a full packet. Both ends must agree.
    pub path_mtu: PathMtu,
    /// State of path migration.
    pub path_mig_state: MigrationState,
    /// Queue key (UD).
    pub qkey: QKey,
    /// First sequence number expected; the peer's `sq_psn`.
    pub rq_psn: Psn,
    /// First sequence number sent; the peer's `rq_psn`.
    pub sq_psn: Psn,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// What the peer may do: remote write, read and atomic.
    pub access: Access,
    /// Path to the peer.
    pub av: AddressVector,
    /// Alternate path; kept, never used.
    pub alt_av: AddressVector,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Whether the end of draining raises `IBV_EVENT_SQ_DRAINED`.
    pub en_sqd_async_notify: bool,
    /// Whether the send queue is still draining. Only `query_qp` tells.
    pub sq_draining: bool,
    /// Initiator depth: reads and atomics that may be outstanding at the peer, at most its
    /// `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// Responder resources: reads and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Wait that RNR NAKs of this side ask for.
    pub min_rnr_timer: RnrTimer,
    /// Port, from 1.
    pub port: u8,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence NAK, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK, 0 to 6, or 7 for as many as it takes.
    pub rnr_retry: u8,
    /// Rate limit in kbit/s; 0 is none.
    pub rate_limit_kbps: u32,
}

/// A queue pair fresh from creation: RESET, everything else zero (of codes: code 0), the smallest
/// MTU, port 1.
impl Default for QpAttr {
    fn default() -> Self {
        let nowhere = AddressVector {
            hop_limit: 0,
            ..AddressVector::to(Gid::default())
        };
        Self {
            qp_state: QpState::Reset,
            cur_qp_state: QpState::Reset,
            path_mtu: PathMtu::Mtu256,
            path_mig_state: MigrationState::Migrated,
            qkey: QKey(0),
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            dest_qpn: Qpn::default(),
            access: Access::empty(),
            av: nowhere,
            alt_av: nowhere,
            pkey_index: 0,
            en_sqd_async_notify: false,
            sq_draining: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: RnrTimer::new(0),
            port: 1,
            timeout: AckTimeout::new(0),
            retry_cnt: 0,
            rnr_retry: 0,
            rate_limit_kbps: 0,
        }
    }
}

/// What the device allows attributes to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrLimits {
    /// Ports, numbered from 1.
    pub ports: u8,
    /// Length of the table of partition keys.
    pub pkeys: u16,
    /// Length of the table of GIDs.
    pub gids: u16,
    /// The port's active MTU.
    pub active_mtu: PathMtu,
    /// Largest initiator depth (`max_qp_init_rd_atom`).
    pub max_rd_atomic: u8,
    /// Most responder resources (`max_qp_rd_atom`).
    pub max_dest_rd_atomic: u8,
}

impl QpAttr {
    /// The values of the attributes in `mask`.
    ///
    /// # Errors
    ///
    /// The first attribute outside what `limits` and the standard allow.
    pub fn check_values(&self, mask: AttrMask, limits: &AttrLimits) -> Result<(), ModifyError> {
        let within = |attribute: AttrMask, field: &'static str, got: u64, min: u64, max: u64| {
            if mask.contains(attribute) && !(min..=max).contains(&got) {
                Err(ModifyError::OutOfRange {
                    field,
                    got,
                    min,
                    max,
                })
            } else {
                Ok(())
            }
        };
        let ports = u64::from(limits.ports);
        let last_pkey = u64::from(limits.pkeys.saturating_sub(1));
        within(AttrMask::PORT, "port_num", self.port.into(), 1, ports)?;
        within(
            AttrMask::PKEY_INDEX,
            "pkey_index",
            self.pkey_index.into(),
            0,
            last_pkey,
        )?;
        within(
            AttrMask::PATH_MTU,
            "path_mtu (bytes)",
            self.path_mtu.bytes().into(),
            PathMtu::Mtu256.bytes().into(),
            limits.active_mtu.bytes().into(),
        )?;
        within(
            AttrMask::RETRY_CNT,
            "retry_cnt",
            self.retry_cnt.into(),
            0,
            7,
        )?;
        within(
            AttrMask::RNR_RETRY,
            "rnr_retry",
            self.rnr_retry.into(),
            0,
            7,
        )?;
        within(
            AttrMask::MAX_QP_RD_ATOMIC,
            "max_rd_atomic",
            self.max_rd_atomic.into(),
            0,
            limits.max_rd_atomic.into(),
        )?;
        within(
            AttrMask::MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            self.max_dest_rd_atomic.into(),
            0,
            limits.max_dest_rd_atomic.into(),
        )?;
        let last_gid = u64::from(limits.gids.saturating_sub(1));
        let last_label = u64::from(AddressVector::FLOW_LABEL_LIMIT - 1);
        for (attribute, av) in [(AttrMask::AV, &self.av), (AttrMask::ALT_PATH, &self.alt_av)] {
            within(attribute, "ah_attr.port_num", av.port.into(), 1, ports)?;
            within(
                attribute,
                "grh.sgid_index",
                av.sgid_index.into(),
                0,
                last_gid,
            )?;
            within(
                attribute,
                "grh.flow_label",
                av.flow_label.into(),
                0,
                last_label,
            )?;
            within(attribute, "ah_attr.sl", av.sl.into(), 0, 15)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttrLimits = AttrLimits {
        ports: 1,
        pkeys: 1,
        gids: 4,
        active_mtu: PathMtu::Mtu1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
    };

    #[test]
    fn display_names_attributes_as_the_verbs_do() {
        assert_eq!(
            (AttrMask::PATH_MTU | AttrMask::AV).to_string(),
            "IBV_QP_AV, IBV_QP_PATH_MTU"
        );
        assert_eq!(
            AttrMask::from_bits_retain(1 << 30 | 1).to_string(),
            "IBV_QP_STATE, 0x40000000"
        );
        assert_eq!(AttrMask::empty().to_string(), "");
    }

    #[test]
    fn defaults_are_within_the_limits() {
        assert_eq!(
            QpAttr::default().check_values(AttrMask::all(), &LIMITS),
            Ok(())
        );
    }

    /// Each value one past its limit is refused when its bit is set, and not looked at otherwise.
    #[test]
    fn values_are_checked_when_meant() {
        let av = |change: fn(&mut AddressVector)| {
            let mut av = QpAttr::default().av;
            change(&mut av);
            av
        };
        let fresh = QpAttr::default;
        for (mask, attr, message) in [
            (
                AttrMask::PORT,
                QpAttr { port: 0, ..fresh() },
                "port_num is 1 to 1, got 0",
            ),
            (
                AttrMask::PORT,
                QpAttr { port: 2, ..fresh() },
                "port_num is 1 to 1, got 2",
            ),
            (
                AttrMask::PKEY_INDEX,
                QpAttr {
                    pkey_index: 1,
                    ..fresh()
                },
                "pkey_index is 0 to 0, got 1",
            ),
            (
                AttrMask::PATH_MTU,
                QpAttr {
                    path_mtu: PathMtu::Mtu2048,
                    ..fresh()
                },
                "path_mtu (bytes) is 256 to 1024, got 2048",
            ),
            (
                AttrMask::RETRY_CNT,
                QpAttr {
                    retry_cnt: 8,
                    ..fresh()
                },
                "retry_cnt is 0 to 7, got 8",
            ),
            (
                AttrMask::RNR_RETRY,
                QpAttr {
                    rnr_retry: 8,
                    ..fresh()
                },
                "rnr_retry is 0 to 7, got 8",
            ),
            (
                AttrMask::MAX_QP_RD_ATOMIC,
                QpAttr {
                    max_rd_atomic: 17,
                    ..fresh()
                },
                "max_rd_atomic is 0 to 16, got 17",
            ),
            (
                AttrMask::MAX_DEST_RD_ATOMIC,
                QpAttr {
                    max_dest_rd_atomic: 17,
                    ..fresh()
                },
                "max_dest_rd_atomic is 0 to 16, got 17",
            ),
            (
                AttrMask::AV,
                QpAttr {
                    av: av(|av| av.sgid_index = 4),
                    ..fresh()
                },
                "grh.sgid_index is 0 to 3, got 4",
            ),
            (
                AttrMask::ALT_PATH,
                QpAttr {
                    alt_av: av(|av| av.flow_label = 1 << 20),
                    ..fresh()
                },
                "grh.flow_label is 0 to 1048575, got 1048576",
            ),
            (
                AttrMask::AV,
                QpAttr {
                    av: av(|av| av.port = 0),
                    ..fresh()
                },
                "ah_attr.port_num is 1 to 1, got 0",
            ),
            (
                AttrMask::AV,
                QpAttr {
                    av: av(|av| av.sl = 16),
                    ..fresh()
                },
                "ah_attr.sl is 0 to 15, got 16",
            ),
        ] {
            let error = attr.check_values(mask, &LIMITS).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(
                attr.check_values(AttrMask::all() - mask, &LIMITS),
                Ok(()),
                "{message}"
            );
        }
    }
}
