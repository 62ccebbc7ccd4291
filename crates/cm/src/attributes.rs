//! What to set on the queue pair of a connection: the attributes of each step, as
//! rdma_init_qp_attr(3) of librdmacm returns them.

use hirail_rnic::mr::Access;
use hirail_rnic::qp::attr::{AttrMask, QpAttr};
use hirail_wire::cm::Transport;
use hirail_wire::{AckTimeout, RnrTimer};

use crate::cm::Cm;
use crate::connection::{Connection, Role, State};
use crate::error::CmError;
use crate::ids::CommId;
use crate::planted::{self, Bug};
use hirail_vocab::QpState;

impl Cm {
    /// The attributes that take the queue pair of a connection to INIT, RTR or RTS, and which of
    /// them are meant. The user may change them before it sets them. For every other state only the
    /// state is.
    ///
    /// RTR and RTS are known when the peer is: on the passive side from [`Event::Request`] on, on the
    /// active one from [`Event::Response`] on.
    ///
    /// [`Event::Request`]: crate::Event::Request
    /// [`Event::Response`]: crate::Event::Response
    ///
    /// # Errors
    /// There is no such connection, or the peer is not known yet.
    pub fn attributes(&self, id: CommId, state: QpState) -> Result<(QpAttr, AttrMask), CmError> {
        let connection = self.seen_by_user(id)?;
        let needs_peer = matches!(state, QpState::Rtr | QpState::Rts);
        if needs_peer && connection.state == State::ReqSent {
            return Err(CmError::WrongState {
                id,
                state: connection.state,
                call: "set on the queue pair",
            });
        }
        Ok(step(connection, state, self.config().min_rnr_timer))
    }

    /// The attributes that take a queue pair to INIT before there is a connection.
    pub fn initial_attributes() -> (QpAttr, AttrMask) {
        let attr = QpAttr {
            qp_state: QpState::Init,
            ..QpAttr::default()
        };
        (attr, INIT)
    }
}

const INIT: AttrMask = AttrMask::STATE
    .union(AttrMask::PKEY_INDEX)
    .union(AttrMask::PORT)
    .union(AttrMask::ACCESS_FLAGS);

fn step(connection: &Connection, state: QpState, min_rnr_timer: RnrTimer) -> (QpAttr, AttrMask) {
    let mut access = Access::REMOTE_WRITE;
    if connection.responder_resources != 0 {
        access |= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    }
    let (mut rq_psn, mut sq_psn) = (connection.local_psn, connection.remote_psn);
    if planted::has(Bug::PsnSwapped) {
        (rq_psn, sq_psn) = (sq_psn, rq_psn);
    }
    let attr = QpAttr {
        qp_state: state,
        access,
        path_mtu: connection.mtu,
        av: connection.data_path.address_vector(),
        dest_qpn: connection.remote_qpn(),
        rq_psn,
        sq_psn,
        max_dest_rd_atomic: connection.responder_resources,
        max_rd_atomic: connection.initiator_depth,
        min_rnr_timer,
        timeout: AckTimeout::new(connection.ack_timeout),
        retry_cnt: connection.retry_count,
        rnr_retry: connection.rnr_retry_count,
        ..QpAttr::default()
    };
    let is_reliable = !matches!(connection.transport, Transport::Uc);
    let is_xrc = connection.transport == Transport::Xrc;
    // Of XRC each side has one half alone: the active one the requester, the passive one the responder.
    let has_requester = is_reliable && !(is_xrc && connection.role == Role::Passive);
    let has_responder = is_reliable && !(is_xrc && connection.role == Role::Active);
    let mask = match state {
        QpState::Init => INIT,
        QpState::Rtr => {
            let mut mask = AttrMask::STATE
                | AttrMask::AV
                | AttrMask::PATH_MTU
                | AttrMask::DEST_QPN
                | AttrMask::RQ_PSN;
            if has_responder {
                mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
            }
            mask | AttrMask::ACCESS_FLAGS
        }
        QpState::Rts => {
            let mut mask = AttrMask::STATE | AttrMask::SQ_PSN;
            if is_reliable {
                mask |= AttrMask::TIMEOUT;
            }
            if has_requester {
                mask |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
            }
            mask
        }
        _ => AttrMask::STATE,
    };
    (attr, mask)
}
