//! The side that asks: REQ out, REP in, RTU out.

use hirail_rnic::Instant;
use hirail_wire::cm::{
    Ids, IpHeader, Message, Mra, Note, Rej, RejReason, Rep, Req, ServiceId, Transport,
};
use hirail_wire::mad::Mad;
use hirail_wire::{AckTimeout, PKey, PathMtu, Psn, QKey, Qpn};

use super::{Connection, Role, State, agree, four_bits, granted};
use crate::cm::{Arrival, Cm, Entry, Peer};
use crate::config::{ack_timeout, span};
use crate::error::CmError;
use crate::event::{Ece, Event, Response};
use crate::ids::CommId;
use crate::path::Path;
use crate::planted::{self, Bug};
use crate::private_data::{self, Limits};

/// What to connect to, and how.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// What to be connected to.
    pub service: ServiceId,
    /// The way there.
    pub path: Path,
    /// The IP addresses, for services that stand for a port.
    pub addresses: Option<IpHeader>,
    /// The queue pair of this side.
    pub qpn: Qpn,
    /// Transport.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: PathMtu,
    /// READs and atomics of the peer to serve at once; no more than the device can.
    pub responder_resources: u8,
    /// READs and atomics to have open at the peer; no more than the device can.
    pub initiator_depth: u8,
    /// Retries after a lost acknowledgement.
    pub retry_count: u8,
    /// Retries of the peer after an RNR NAK; 7: for ever.
    pub rnr_retry_count: u8,
    /// Whether this side wants end-to-end credits.
    pub flow_control: bool,
    /// Whether receives come from a shared queue.
    pub srq: bool,
    /// Local ACK timeout; from the configuration's times without.
    pub ack_timeout: Option<AckTimeout>,
    /// Options for a device of the same vendor.
    pub ece: Option<Ece>,
    /// The peer may connect to the same service at the same time: one connection comes of it.
    pub peer_to_peer: bool,
    /// What to say with it: 56 bytes with addresses, 92 without.
    pub private_data: &'a [u8],
}

impl<'a> Connect<'a> {
    /// An RC connection of a queue pair with everything that the device can do.
    pub const fn new(service: ServiceId, path: Path, qpn: Qpn, mtu: PathMtu) -> Self {
        Self {
            service,
            path,
            addresses: None,
            qpn,
            transport: Transport::Rc,
            mtu,
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            retry_count: 7,
            rnr_retry_count: 7,
            flow_control: false,
            srq: false,
            ack_timeout: None,
            ece: None,
            peer_to_peer: false,
            private_data: &[],
        }
    }
}

impl Cm {
    /// Asks for a connection. [`Event::Response`], [`Event::Rejected`] or [`Event::Unreachable`]
    /// follows.
    ///
    /// # Errors
    /// Too much private data, or the table is full.
    pub fn connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<CommId, CmError> {
        let addresses = connect.addresses.as_ref();
        let data = private_data::compose("REQ", addresses, connect.private_data, Limits::REQ)?;
        let id = self.new_id()?;
        let local_psn = Psn::new(self.ids.draw() as u32);
        let transaction = self.new_transaction(id);
        let config = &self.config;
        let lifetime = match connect.ack_timeout {
            // There and back is twice as long.
            Some(timeout) => timeout.code().max(1) - 1,
            None => config.packet_lifetime,
        };
        let local_ack_timeout = match connect.ack_timeout {
            Some(timeout) => timeout.code(),
            None => ack_timeout(lifetime, config.ack_delay),
        };
        let responder_resources = connect
            .responder_resources
            .min(config.max_responder_resources);
        let initiator_depth = connect.initiator_depth.min(config.max_initiator_depth);
        let max_retries = four_bits(config.max_cm_retries);
        let path = connect.path;
        let req = Req {
            local_id: id.0,
            ece_vendor: connect.ece.map_or(0, |ece| ece.vendor),
            service: connect.service,
            ca_guid: config.ca_guid,
            qkey: QKey(0),
            qpn: connect.qpn,
            responder_resources,
            initiator_depth,
            remote_response_timeout: config.response_timeout,
            local_response_timeout: config.response_timeout,
            transport: connect.transport,
            flow_control: connect.flow_control,
            starting_psn: local_psn,
            retry_count: connect.retry_count,
            rnr_retry_count: connect.rnr_retry_count,
            pkey: PKey::DEFAULT,
            mtu: Some(connect.mtu),
            max_cm_retries: max_retries,
            srq: connect.srq,
            local_gid: path.local,
            remote_gid: path.remote,
            flow_label: path.flow_label,
            packet_rate: 0,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl,
            ack_timeout: AckTimeout::new(local_ack_timeout),
            has_alternate: false,
            private_data: &data,
        };
        let options = connect.ece.map_or(0, |ece| ece.options);
        let mad = Mad::cm_bytes(&Message::Req(req), transaction, options);
        let connection = Connection {
            role: Role::Active,
            state: State::ReqSent,
            is_owned: true,
            service: connect.service,
            waits_at: None,
            meets: connect.peer_to_peer,
            nobody_listened: false,
            has_alternate: false,
            path,
            data_path: path,
            transaction,
            remote_id: 0,
            peer: None,
            local_qpn: connect.qpn,
            remote_qpn: Qpn::new(0),
            local_psn,
            remote_psn: Psn::new(0),
            transport: connect.transport,
            mtu: connect.mtu,
            responder_resources,
            initiator_depth,
            retry_count: connect.retry_count,
            rnr_retry_count: connect.rnr_retry_count,
            ack_timeout: local_ack_timeout,
            lifetime,
            response_timeout: config.response_timeout,
            request_timeout: config.response_timeout,
            granted_until: None,
            max_retries,
            retries_left: max_retries,
            deadline: None,
            repeated: Some(Box::new(mad)),
        };
        if connect.peer_to_peer {
            self.meeting.insert((connect.service, path.remote), id);
        }
        self.entries
            .insert(id, Entry::Connection(Box::new(connection)));
        self.send_and_wait(now, id);
        Ok(id)
    }

    /// The queue pair is in RTS: tells the peer so. The connection stands.
    ///
    /// # Errors
    /// The peer has not accepted, or has thought better of it; too much private data.
    pub fn confirm(&mut self, id: CommId, data: &[u8]) -> Result<(), CmError> {
        private_data::check("RTU", data, Limits::RTU)?;
        let connection = self.owned(id)?;
        connection.expect(id, "confirm", &[State::RepReceived])?;
        connection.state = State::Established;
        let note = Note {
            ids: connection.ids(id),
            private_data: data,
        };
        let mad = Mad::cm_bytes(&Message::Rtu(note), connection.transaction, 0);
        connection.repeated = Some(Box::new(mad));
        self.send_again(id);
        Ok(())
    }

    /// The peer accepts.
    pub(crate) fn hear_rep(&mut self, arrival: &Arrival<'_>, rep: &Rep<'_>) {
        let id = CommId(rep.ids.remote);
        let Some(connection) = self.heard_from(id.0, arrival.meta) else {
            // The peer need not wait for an RTU that will not come.
            return self.refuse(arrival, rep.ids, Rej::OF_REP, RejReason::INVALID_COMM_ID);
        };
        let is_again = connection.role == Role::Active && connection.remote_id == rep.ids.local;
        match connection.state {
            State::ReqSent => self.take_rep(arrival, id, rep),
            State::Established if is_again && !planted::has(Bug::RtuNotRepeated) => {
                self.send_again(id);
            }
            State::RepReceived if is_again => self.ask_for_time(arrival.now, id, Rej::OF_REP),
            _ => {}
        }
    }

    fn take_rep(&mut self, arrival: &Arrival<'_>, id: CommId, rep: &Rep<'_>) {
        let peer = Peer {
            gid: arrival.meta.source,
            ca_guid: rep.ca_guid,
        };
        let is_xrc = self
            .entries
            .get_mut(&id)
            .and_then(Entry::connection)
            .is_some_and(|connection| connection.transport == Transport::Xrc);
        let qpn = if is_xrc { rep.eecn } else { rep.qpn };
        if let Some(old) = self.other_connection(peer, qpn, Some(id)) {
            // The peer would not take a queue pair that is still part of a connection.
            self.refuse(arrival, rep.ids, Rej::OF_REP, RejReason::STALE_CONNECTION);
            self.supersede(arrival.now, old);
            self.remove(id);
            return self.rejected(id, RejReason::STALE_CONNECTION);
        }
        let (resources, depth) = self
            .config
            .cross(rep.responder_resources, rep.initiator_depth);
        let limits = (
            self.config.max_responder_resources,
            self.config.max_initiator_depth,
        );
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        connection.state = State::RepReceived;
        connection.repeated = None;
        connection.remote_id = rep.ids.local;
        connection.peer = Some(peer);
        connection.remote_qpn = qpn;
        connection.remote_psn = rep.starting_psn;
        connection.responder_resources = agree(connection.responder_resources, resources, limits.0);
        connection.initiator_depth = agree(connection.initiator_depth, depth, limits.1);
        connection.rnr_retry_count = rep.rnr_retry_count;
        let named = ack_timeout(connection.lifetime, rep.target_ack_delay);
        connection.ack_timeout = connection.ack_timeout.max(named);
        self.timers.set(id, &mut connection.deadline, None);
        self.by_peer_qp.insert((peer, qpn), id);
        self.events.push_back(Event::Response(Box::new(Response {
            id,
            ca_guid: rep.ca_guid,
            qpn,
            psn: rep.starting_psn,
            responder_resources: connection.responder_resources,
            initiator_depth: connection.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            flow_control: rep.flow_control,
            srq: rep.srq,
            ece: Ece::read(rep.ece_vendor, arrival.modifier),
            private_data: rep.private_data.to_vec(),
        })));
    }

    /// The peer has our message and asks for time.
    pub(crate) fn hear_mra(&mut self, arrival: &Arrival<'_>, mra: &Mra<'_>) {
        if planted::has(Bug::MraIgnored) {
            return;
        }
        let id = CommId(mra.ids.remote);
        let Some(connection) = self.heard_from(id.0, arrival.meta) else {
            return;
        };
        let state = match mra.received {
            Rej::OF_REQ => State::ReqSent,
            Rej::OF_REP => State::RepSent,
            _ => return,
        };
        if connection.state != state {
            return;
        }
        if state == State::ReqSent {
            connection.remote_id = mra.ids.local;
        }
        let at = granted(arrival.now, connection.lifetime, mra.service_timeout);
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        self.timers.set(id, &mut connection.deadline, Some(at));
    }

    /// No answer to the REQ.
    pub(super) fn req_exhausted(&mut self, id: CommId) {
        self.withdraw(id);
        let Some(Entry::Connection(connection)) = self.entries.get(&id) else {
            return;
        };
        let nobody_listened = connection.nobody_listened;
        self.remove(id);
        if nobody_listened {
            self.rejected(id, RejReason::INVALID_SERVICE_ID);
        } else {
            self.events.push_back(Event::Unreachable { id });
        }
    }

    /// Tells a peer that has not answered that this side waits no longer.
    pub(super) fn withdraw(&mut self, id: CommId) {
        let guid = self.config.ca_guid.to_be_bytes();
        if let Some(Entry::Connection(connection)) = self.entries.get(&id) {
            let rej = Message::Rej(Rej {
                ids: Ids {
                    local: id.0,
                    remote: connection.remote_id,
                },
                rejected: Rej::OF_REQ,
                reason: RejReason::TIMEOUT,
                // It may have no name for the connection, and finds it by this.
                ari: &guid,
                private_data: &[],
            });
            let mad = Mad::cm_bytes(&rej, connection.transaction, 0);
            self.outgoing.push(connection.path, mad);
        }
    }

    /// Tells the user of a refusal that came without words.
    pub(super) fn rejected(&mut self, id: CommId, reason: RejReason) {
        self.events.push_back(Event::Rejected {
            id,
            reason,
            ari: Vec::new(),
            private_data: Vec::new(),
        });
    }

    /// Refuses a message of which nothing is kept.
    pub(super) fn refuse(
        &mut self,
        arrival: &Arrival<'_>,
        ids: Ids,
        rejected: u8,
        reason: RejReason,
    ) {
        let rej = Message::Rej(Rej {
            ids: Ids {
                local: ids.remote,
                remote: ids.local,
            },
            rejected,
            reason,
            ari: &[],
            private_data: &[],
        });
        self.outgoing.reply(arrival, &rej);
    }

    /// Tells the peer that its message is here and the user is slow.
    pub(super) fn ask_for_time(&mut self, now: Instant, id: CommId, received: u8) {
        let service_timeout = self.config.service_timeout;
        if let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) {
            // It hears of it a little later.
            let until = granted(now, connection.lifetime, service_timeout);
            connection.granted_until = Some(until + span(connection.lifetime));
            let mra = Message::Mra(Mra {
                ids: connection.ids(id),
                received,
                service_timeout,
                private_data: &[],
            });
            let mad = Mad::cm_bytes(&mra, connection.transaction, 0);
            self.outgoing.push(connection.path, mad);
        }
    }
}

impl Connection {
    /// The queue pair of the other side.
    pub(crate) const fn remote_qpn(&self) -> Qpn {
        self.remote_qpn
    }

    /// The ids of a message about it.
    pub(super) const fn ids(&self, id: CommId) -> Ids {
        Ids {
            local: id.0,
            remote: self.remote_id,
        }
    }

    /// Refuses a call that does not fit the state.
    pub(super) fn expect(
        &self,
        id: CommId,
        call: &'static str,
        states: &[State],
    ) -> Result<(), CmError> {
        if states.contains(&self.state) {
            return Ok(());
        }
        let state = self.state;
        Err(CmError::WrongState { id, state, call })
    }
}
