//! One connection: what is known of it, and in which state it is.

mod active;
mod close;
mod passive;

use hirail_rnic::Instant;
use hirail_wire::cm::{ServiceId, Transport};
use hirail_wire::mad::Mad;
use hirail_wire::{PathMtu, Psn, Qpn};

use crate::cm::{Cm, Peer};
use crate::config::{Config, span};
use crate::ids::CommId;
use crate::path::Path;
use crate::planted::{self, Bug};
use crate::service::ListenerId;

pub use active::Connect;
pub use passive::Accept;

/// State of a connection (IBTA Vol 1, chapter 12, State Transition Diagrams).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Active: the REQ is under way.
    ReqSent,
    /// Active: the peer accepts, the user has not confirmed yet.
    RepReceived,
    /// Passive: the user has not answered yet.
    ReqReceived,
    /// Passive: the REP is under way.
    RepSent,
    /// Both sides agree.
    Established,
    /// The DREQ is under way.
    DreqSent,
    /// Over, and remembered until nothing of it can be under way any more.
    TimeWait,
    /// Passive: refused, and remembered so that a repeated REQ hears it again.
    Refused,
}

/// Who began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Active,
    Passive,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) role: Role,
    pub(crate) state: State,
    /// The user has not given it up, and wants to hear of it.
    pub(crate) is_owned: bool,
    service: ServiceId,
    /// The listener in whose backlog it is.
    waits_at: Option<ListenerId>,
    /// Both sides connect with the same service.
    meets: bool,
    /// Somebody has said that nobody listens, which is no last word where both sides connect.
    nobody_listened: bool,
    /// The peer has named an alternate path.
    has_alternate: bool,
    /// Of the messages.
    pub(crate) path: Path,
    /// Of the data.
    pub(crate) data_path: Path,
    transaction: u64,
    /// What the other side calls it; 0 where it has not said.
    remote_id: u32,
    /// The other side, once it has said its GUID.
    peer: Option<Peer>,
    local_qpn: Qpn,
    remote_qpn: Qpn,
    /// What this side expects first.
    pub(crate) local_psn: Psn,
    /// What the other side expects first.
    pub(crate) remote_psn: Psn,
    pub(crate) transport: Transport,
    pub(crate) mtu: PathMtu,
    /// READs and atomics that the other side may have open here.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this side may have open there.
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    /// Retries after an RNR NAK of this side's queue pair.
    pub(crate) rnr_retry_count: u8,
    /// Code of the local ACK timeout.
    pub(crate) ack_timeout: u8,
    /// Code of how long a packet is under way.
    lifetime: u8,
    /// Code of how long the other side takes to answer.
    response_timeout: u8,
    /// Code of how long the other side waits before it repeats its request.
    request_timeout: u8,
    /// The other side waits until then, because it was asked to.
    granted_until: Option<Instant>,
    max_retries: u8,
    retries_left: u8,
    pub(crate) deadline: Option<Instant>,
    /// The message that is sent again when its answer does not come, or when the one that it answers
    /// comes again.
    repeated: Option<Box<[u8; Mad::LEN]>>,
}

impl Connection {
    /// One more message of those that have a number of tries is due.
    fn try_again(&mut self) -> bool {
        let has_left = self.retries_left > 0;
        if has_left && !planted::has(Bug::RetriesEndless) {
            self.retries_left -= 1;
        }
        has_left
    }

    /// When the request will have come again, if its answer was not heard, though some of its
    /// repetitions get lost as well.
    fn request_again(&self, now: Instant) -> Instant {
        let begin = self.granted_until.map_or(now, |until| until.max(now));
        begin + Cm::patience(self.lifetime, self.request_timeout).times(4)
    }

    /// Code of the time after which nothing of it is under way any more.
    fn timewait(&self) -> u8 {
        match self.ack_timeout {
            0 => self.lifetime + 1,
            code => code,
        }
    }
}

/// The part of a name that is the other side's.
fn request_name(connection: &Connection) -> Option<(Peer, u32)> {
    match connection.role {
        Role::Passive => Some((connection.peer?, connection.remote_id)),
        Role::Active => None,
    }
}

impl Cm {
    /// Sends the message of the connection that is repeated, and waits for the answer.
    fn send_and_wait(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.entries.get_mut(&id).and_then(|it| it.connection()) else {
            return;
        };
        let patience = Self::patience(connection.lifetime, connection.response_timeout);
        self.timers
            .set(id, &mut connection.deadline, Some(now + patience));
        if let Some(mad) = &connection.repeated {
            self.outgoing.push(connection.path, **mad);
        }
    }

    /// Sends the message that is repeated once more, because the one that it answers came again.
    fn send_again(&mut self, id: CommId) {
        if let Some(connection) = self.entries.get_mut(&id).and_then(|it| it.connection())
            && let Some(mad) = &connection.repeated
        {
            self.outgoing.push(connection.path, **mad);
        }
    }

    /// What the passing of time means to a connection.
    pub(crate) fn connection_timeout(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.entries.get_mut(&id).and_then(|it| it.connection()) else {
            return;
        };
        match connection.state {
            State::ReqSent | State::RepSent | State::DreqSent => {
                let never = match connection.state {
                    State::ReqSent => Bug::ReqNotRepeated,
                    State::RepSent => Bug::RepNotRepeated,
                    _ => Bug::DreqNotRepeated,
                };
                if !planted::has(never) && connection.try_again() {
                    return self.send_and_wait(now, id);
                }
                match connection.state {
                    State::ReqSent => self.req_exhausted(id),
                    State::RepSent => self.rep_exhausted(now, id),
                    _ => self.end(now, id),
                }
            }
            State::TimeWait => self.timewait_exit(id),
            State::Refused => self.remove(id),
            State::RepReceived | State::ReqReceived | State::Established => {}
        }
    }

    /// Gives a connection the names by which the other side's messages are known again.
    fn name(&mut self, id: CommId, connection: &Connection) {
        if let Some(name) = request_name(connection) {
            self.by_request.insert(name, id);
        }
        if let Some(peer) = connection.peer {
            self.by_peer_qp.insert((peer, connection.remote_qpn), id);
        }
    }

    /// Takes all names of a connection back that are still its own.
    pub(crate) fn unname(&mut self, id: CommId, connection: &Connection) {
        fn take<K: Ord>(names: &mut std::collections::BTreeMap<K, CommId>, key: &K, id: CommId) {
            if names.get(key) == Some(&id) {
                names.remove(key);
            }
        }
        if let Some(name) = request_name(connection)
            && !planted::has(Bug::RequestIndexLeak)
        {
            take(&mut self.by_request, &name, id);
        }
        if let Some(peer) = connection.peer {
            take(&mut self.by_peer_qp, &(peer, connection.remote_qpn), id);
        }
        take(&mut self.by_qp, &connection.local_qpn, id);
        let meeting = (connection.service, connection.path.remote);
        take(&mut self.meeting, &meeting, id);
        if let Some(listener) = connection.waits_at {
            self.listeners.dequeue(listener);
        }
    }

    /// A connection makes room in the backlog of its listener.
    fn stop_waiting(&mut self, id: CommId) {
        if let Some(connection) = self.entries.get_mut(&id).and_then(|it| it.connection())
            && let Some(listener) = connection.waits_at.take()
        {
            self.listeners.dequeue(listener);
        }
    }

    /// The connection that `peer`'s queue pair is part of, unless that is `but`.
    fn other_connection(&self, peer: Peer, qpn: Qpn, but: Option<CommId>) -> Option<CommId> {
        if planted::has(Bug::StaleNotNoticed) {
            return None;
        }
        let id = *self.by_peer_qp.get(&(peer, qpn))?;
        (Some(id) != but).then_some(id)
    }
}

/// When to stop waiting for somebody who has asked for time.
fn granted(now: Instant, lifetime: u8, service_timeout: u8) -> Instant {
    now + span(service_timeout) + span(lifetime)
}

/// What both sides can do: `asked` by the user, `offered` by the peer, at most `limit` here.
fn agree(asked: u8, offered: u8, limit: u8) -> u8 {
    let here = asked.min(limit);
    if planted::has(Bug::DepthNotNegotiated) {
        return here;
    }
    here.min(offered)
}

/// Retries of a peer that names more than the field holds cannot be; those of the configuration can.
const fn four_bits(retries: u8) -> u8 {
    if retries > 15 { 15 } else { retries }
}

impl Config {
    /// READs and atomics that the peer may have open here, and this side there, when the peer serves
    /// `resources` and wants `depth`: what one side wants is what the other one serves.
    fn cross(&self, resources: u8, depth: u8) -> (u8, u8) {
        let (resources, depth) = if planted::has(Bug::DepthNotCrossed) {
            (depth, resources)
        } else {
            (resources, depth)
        };
        (
            depth.min(self.max_responder_resources),
            resources.min(self.max_initiator_depth),
        )
    }
}
