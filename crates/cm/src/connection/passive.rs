//! The side that is asked: REQ in, REP out, RTU in.

use hirail_rnic::Instant;
use hirail_wire::cm::{Ids, Message, Note, Rej, RejReason, Rep, Req, Transport};
use hirail_wire::mad::Mad;
use hirail_wire::{PKey, PathMtu, Psn, QKey, Qpn};

use super::{Connection, Role, State, agree, four_bits};
use crate::cm::{Arrival, Cm, Entry, Peer};
use crate::error::CmError;
use crate::event::{Ece, Event, Request};
use crate::ids::CommId;
use crate::path::Path;
use crate::planted::{self, Bug};
use crate::private_data::{self, Limits};
use crate::service::ListenerId;

/// How to accept.
#[derive(Clone, Debug)]
pub struct Accept<'a> {
    /// The queue pair of this side, in RTS.
    pub qpn: Qpn,
    /// READs and atomics of the peer to serve at once; no more than it asked for.
    pub responder_resources: u8,
    /// READs and atomics to have open at the peer; no more than it serves.
    pub initiator_depth: u8,
    /// Retries of the peer after an RNR NAK; 7: for ever.
    pub rnr_retry_count: u8,
    /// Whether this side wants end-to-end credits.
    pub flow_control: bool,
    /// Whether receives come from a shared queue.
    pub srq: bool,
    /// Options for a device of the same vendor.
    pub ece: Option<Ece>,
    /// What to say with it: 196 bytes.
    pub private_data: &'a [u8],
}

impl<'a> Accept<'a> {
    /// Accepts with as many READs and atomics as both sides can do.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            rnr_retry_count: 7,
            flow_control: false,
            srq: false,
            ece: None,
            private_data: &[],
        }
    }
}

/// A failover that RoCE does not do.
const FAILOVER_UNSUPPORTED: u8 = 1;

/// A refusal on its way: the reason, and a value that would do.
type Refusal = (RejReason, Vec<u8>);

impl Cm {
    /// Somebody wants to connect.
    pub(crate) fn hear_req(&mut self, arrival: &Arrival<'_>, req: &Req<'_>) {
        let peer = Peer {
            gid: arrival.meta.source,
            ca_guid: req.ca_guid,
        };
        let known = self.by_request.get(&(peer, req.local_id)).copied();
        if let Some(id) = known.filter(|_| !planted::has(Bug::RequestHeardAgain)) {
            return self.hear_req_again(arrival, id, req);
        }
        let met = self.meeting.get(&(req.service, peer.gid)).copied();
        if let Some(id) = met
            && let Some(Entry::Connection(connection)) = self.entries.get(&id)
        {
            if connection.state == State::ReqSent {
                return self.meet(arrival, peer, id, req);
            }
            // It was overtaken by the answer to ours.
            if connection.role == Role::Active && connection.remote_qpn == req.qpn {
                return;
            }
        }
        if let Some(old) = self.other_connection(peer, req.qpn, None) {
            self.refuse_req(arrival, req, (RejReason::STALE_CONNECTION, Vec::new()));
            return self.supersede(arrival.now, old);
        }
        if let Err(refusal) = self.take_req(arrival, peer, req) {
            self.refuse_req(arrival, req, refusal);
        }
    }

    /// Makes a connection of a request.
    fn take_req(
        &mut self,
        arrival: &Arrival<'_>,
        peer: Peer,
        req: &Req<'_>,
    ) -> Result<(), Refusal> {
        let plain = |reason| (reason, Vec::new());
        let asked = self.check_req(req)?;
        let dest = asked
            .addresses
            .map_or(arrival.meta.destination.to_ip(), |it| it.dest);
        let listener = self
            .listeners
            .find(req.service, dest)
            .ok_or(plain(RejReason::INVALID_SERVICE_ID))?;
        let no_room = plain(RejReason::NO_RESOURCES);
        let id = self.new_id().map_err(|_| no_room.clone())?;
        if !self.listeners.enqueue(listener) {
            return Err(no_room);
        }
        self.begin_passive(arrival, peer, id, Some(listener), req, asked);
        Ok(())
    }

    /// What of a request can be told without knowing who listens.
    fn check_req(&self, req: &Req<'_>) -> Result<Checked, Refusal> {
        let plain = |reason| (reason, Vec::new());
        if matches!(req.transport, Transport::Other(..)) {
            return Err(plain(RejReason::INVALID_TRANSPORT_TYPE));
        }
        if !PKey::DEFAULT.matches(req.pkey) {
            return Err(plain(RejReason::UNSUPPORTED_REQUEST));
        }
        let most = self.config.port_mtu;
        let Some(mtu) = req.mtu.filter(|mtu| *mtu <= most) else {
            return Err((RejReason::INVALID_MTU, vec![most.code()]));
        };
        let (addresses, mut data) = private_data::split(req.service, req.private_data)
            .map_err(|_| plain(RejReason::UNSUPPORTED_REQUEST))?;
        if planted::has(Bug::PrivateDataCut) {
            data.pop();
        }
        Ok(Checked {
            mtu,
            addresses,
            data,
        })
    }

    fn begin_passive(
        &mut self,
        arrival: &Arrival<'_>,
        peer: Peer,
        id: CommId,
        listener: Option<ListenerId>,
        req: &Req<'_>,
        asked: Checked,
    ) {
        let local_psn = Psn::new(self.ids.draw() as u32);
        let (responder_resources, initiator_depth) = self
            .config
            .cross(req.responder_resources, req.initiator_depth);
        let path = Path::reply(arrival.meta);
        let data_path = Path {
            remote: req.local_gid,
            flow_label: req.flow_label,
            traffic_class: req.traffic_class,
            hop_limit: req.hop_limit.max(1),
            sl: req.sl,
            ..path
        };
        let connection = Connection {
            role: Role::Passive,
            state: State::ReqReceived,
            is_owned: true,
            service: req.service,
            waits_at: listener,
            meets: listener.is_none(),
            nobody_listened: false,
            has_alternate: req.has_alternate,
            path,
            data_path,
            transaction: arrival.transaction,
            remote_id: req.local_id,
            peer: Some(peer),
            local_qpn: Qpn::new(0),
            remote_qpn: req.qpn,
            local_psn,
            remote_psn: req.starting_psn,
            transport: req.transport,
            mtu: asked.mtu,
            responder_resources,
            initiator_depth,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: req.ack_timeout.code(),
            lifetime: req.ack_timeout.code().max(1) - 1,
            response_timeout: req.local_response_timeout,
            request_timeout: req.remote_response_timeout,
            granted_until: None,
            max_retries: four_bits(req.max_cm_retries),
            retries_left: 0,
            deadline: None,
            repeated: None,
        };
        self.name(id, &connection);
        self.entries
            .insert(id, Entry::Connection(Box::new(connection)));
        self.events.push_back(Event::Request(Box::new(Request {
            id,
            listener,
            service: req.service,
            addresses: asked.addresses,
            path: data_path,
            ca_guid: req.ca_guid,
            qpn: req.qpn,
            psn: req.starting_psn,
            transport: req.transport,
            mtu: asked.mtu,
            responder_resources,
            initiator_depth,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: req.ack_timeout,
            flow_control: req.flow_control,
            srq: req.srq,
            ece: Ece::read(req.ece_vendor, arrival.modifier),
            private_data: asked.data,
        })));
    }

    /// Both sides have sent a REQ for the same service to each other. The one with the larger GUID,
    /// or the larger number of its queue pair, stays the active one.
    fn meet(&mut self, arrival: &Arrival<'_>, peer: Peer, id: CommId, req: &Req<'_>) {
        let Some(Entry::Connection(connection)) = self.entries.get(&id) else {
            return;
        };
        let here = (self.config.ca_guid, connection.local_qpn.value());
        let there = (req.ca_guid, req.qpn.value());
        if here > there || planted::has(Bug::BothActive) {
            // It hears of ours.
            return;
        }
        match self.check_req(req) {
            Ok(asked) => {
                self.remove(id);
                self.begin_passive(arrival, peer, id, None, req, asked);
            }
            Err(refusal) => self.refuse_req(arrival, req, refusal),
        }
    }

    /// A REQ that is known comes again: so does what it was answered by.
    fn hear_req_again(&mut self, arrival: &Arrival<'_>, id: CommId, req: &Req<'_>) {
        let Some(Entry::Connection(connection)) = self.entries.get(&id) else {
            return;
        };
        match connection.state {
            State::ReqReceived => self.ask_for_time(arrival.now, id, Rej::OF_REQ),
            State::RepSent => self.send_again(id),
            State::Refused => {
                self.send_again(id);
                self.remember_answer(arrival.now, id);
            }
            State::TimeWait => {
                self.refuse_req(arrival, req, (RejReason::STALE_CONNECTION, Vec::new()));
                self.remember_answer(arrival.now, id);
            }
            State::Established | State::DreqSent | State::ReqSent | State::RepReceived => {}
        }
    }

    /// Remembers an answer until the request would have come again, had it not been heard.
    fn remember_answer(&mut self, now: Instant, id: CommId) {
        if let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) {
            let at = connection.request_again(now);
            self.timers.set(id, &mut connection.deadline, Some(at));
        }
    }

    fn refuse_req(&mut self, arrival: &Arrival<'_>, req: &Req<'_>, (reason, ari): Refusal) {
        let rej = Message::Rej(Rej {
            ids: Ids {
                local: 0,
                remote: req.local_id,
            },
            rejected: Rej::OF_REQ,
            reason,
            ari: &ari,
            private_data: &[],
        });
        self.outgoing.reply(arrival, &rej);
    }

    /// The user has seen a request: it fills the backlog no longer.
    ///
    /// # Errors
    /// There is no such request.
    pub fn seen(&mut self, id: CommId) -> Result<(), CmError> {
        match self.entries.get_mut(&id) {
            Some(Entry::Heard(heard)) => {
                if let Some(listener) = heard.waits_at.take() {
                    self.listeners.dequeue(listener);
                }
            }
            _ => {
                self.owned(id)?;
                self.stop_waiting(id);
            }
        }
        Ok(())
    }

    /// Accepts. The queue pair is in RTS. [`Event::Established`] follows, or
    /// [`Event::Unreachable`].
    ///
    /// # Errors
    /// There is nothing to accept, or too much private data.
    pub fn accept(&mut self, now: Instant, id: CommId, accept: &Accept<'_>) -> Result<(), CmError> {
        private_data::check("REP", accept.private_data, Limits::REP)?;
        let (ca_guid, target_ack_delay) = (self.config.ca_guid, self.config.ack_delay);
        let limits = (
            self.config.max_responder_resources,
            self.config.max_initiator_depth,
        );
        let connection = self.owned(id)?;
        connection.expect(id, "accept", &[State::ReqReceived])?;
        connection.responder_resources = agree(
            accept.responder_resources,
            connection.responder_resources,
            limits.0,
        );
        connection.initiator_depth =
            agree(accept.initiator_depth, connection.initiator_depth, limits.1);
        connection.local_qpn = accept.qpn;
        // The number of a target of XRC is in another place.
        let is_xrc = connection.transport == Transport::Xrc;
        let nobody = Qpn::new(0);
        let (qpn, eecn) = if is_xrc {
            (nobody, accept.qpn)
        } else {
            (accept.qpn, nobody)
        };
        let rep = Rep {
            ids: connection.ids(id),
            qkey: QKey(0),
            qpn,
            eecn,
            ece_vendor: accept.ece.map_or(0, |ece| ece.vendor),
            starting_psn: connection.local_psn,
            responder_resources: connection.responder_resources,
            initiator_depth: connection.initiator_depth,
            target_ack_delay,
            failover: if connection.has_alternate {
                FAILOVER_UNSUPPORTED
            } else {
                0
            },
            flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq || is_xrc,
            ca_guid,
            private_data: accept.private_data,
        };
        let options = accept.ece.map_or(0, |ece| ece.options);
        let mad = Mad::cm_bytes(&Message::Rep(rep), connection.transaction, options);
        connection.state = State::RepSent;
        connection.repeated = Some(Box::new(mad));
        connection.retries_left = connection.max_retries;
        self.by_qp.insert(accept.qpn, id);
        self.stop_waiting(id);
        self.send_and_wait(now, id);
        Ok(())
    }

    /// Refuses: a request, or on the active side an acceptance. The connection is over and its id
    /// with it.
    ///
    /// # Errors
    /// There is nothing to refuse, or too much private data.
    pub fn reject(
        &mut self,
        now: Instant,
        id: CommId,
        reason: RejReason,
        data: &[u8],
    ) -> Result<(), CmError> {
        private_data::check("REJ", data, Limits::REJ)?;
        let connection = self.owned(id)?;
        connection.expect(id, "reject", &[State::ReqReceived, State::RepReceived])?;
        let is_request = connection.state == State::ReqReceived;
        let rej = Message::Rej(Rej {
            ids: connection.ids(id),
            rejected: if is_request { Rej::OF_REQ } else { Rej::OF_REP },
            reason,
            ari: &[],
            private_data: data,
        });
        let mad = Mad::cm_bytes(&rej, connection.transaction, 0);
        connection.repeated = Some(Box::new(mad));
        self.send_again(id);
        self.stop_waiting(id);
        if is_request {
            let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
                return Ok(());
            };
            connection.state = State::Refused;
            connection.is_owned = false;
            self.remember_answer(now, id);
        } else {
            self.remember(now, id, false);
        }
        Ok(())
    }

    /// The peer is ready.
    pub(crate) fn hear_rtu(&mut self, arrival: &Arrival<'_>, rtu: &Note<'_>) {
        let id = CommId(rtu.ids.remote);
        let Some(connection) = self.heard_from(id.0, arrival.meta) else {
            return;
        };
        if connection.remote_id == rtu.ids.local {
            let data = rtu.private_data.to_vec();
            self.establish(id, data);
        }
    }

    /// The first data has come to a queue pair ([`CommEst`](hirail_rnic::event::AsyncEvent::CommEst)):
    /// its peer is ready, whether its RTU comes or not.
    pub fn communication_established(&mut self, qpn: Qpn) {
        if planted::has(Bug::DataIsNoRtu) {
            return;
        }
        if let Some(id) = self.by_qp.get(&qpn).copied() {
            self.establish(id, Vec::new());
        }
    }

    fn establish(&mut self, id: CommId, private_data: Vec<u8>) {
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        let is_again = connection.state == State::Established
            && connection.role == Role::Passive
            && planted::has(Bug::EstablishedAgain);
        if connection.state != State::RepSent && !is_again {
            return;
        }
        connection.state = State::Established;
        connection.repeated = None;
        self.timers.set(id, &mut connection.deadline, None);
        self.events
            .push_back(Event::Established { id, private_data });
    }

    /// No RTU, and no data either.
    pub(super) fn rep_exhausted(&mut self, now: Instant, id: CommId) {
        self.break_off(id, RejReason::TIMEOUT);
        self.remember(now, id, false);
        self.events.push_back(Event::Unreachable { id });
    }

    /// Tells the peer of a connection that may or may not stand that it does not.
    pub(super) fn break_off(&mut self, id: CommId, reason: RejReason) {
        if let Some(Entry::Connection(connection)) = self.entries.get(&id) {
            let rej = Message::Rej(Rej {
                ids: connection.ids(id),
                rejected: Rej::OF_OTHER,
                reason,
                ari: &[],
                private_data: &[],
            });
            let mad = Mad::cm_bytes(&rej, connection.transaction, 0);
            self.outgoing.push(connection.path, mad);
        }
    }
}

/// A request that can be heard.
struct Checked {
    mtu: PathMtu,
    addresses: Option<hirail_wire::cm::IpHeader>,
    data: Vec<u8>,
}
