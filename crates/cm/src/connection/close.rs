//! The end of a connection: refused, disconnected, given up; and the time after it.

use hirail_rnic::Instant;
use hirail_wire::Qpn;
use hirail_wire::cm::{Ids, Message, Note, Rej, RejReason};
use hirail_wire::mad::Mad;

use super::{Role, State};
use crate::cm::{Arrival, Cm, Entry, Peer};
use crate::config::span;
use crate::error::CmError;
use crate::event::Event;
use crate::ids::CommId;
use crate::planted::{self, Bug};
use crate::private_data::{self, Limits};

impl Cm {
    /// Ends a connection. The user takes the queue pair to ERR itself, now. [`Event::Disconnected`]
    /// follows when the peer knows, or has not answered for long enough. Ending what has ended does
    /// nothing.
    ///
    /// # Errors
    /// There is no connection yet, or too much private data.
    pub fn disconnect(&mut self, now: Instant, id: CommId, data: &[u8]) -> Result<(), CmError> {
        private_data::check("DREQ", data, Limits::DREQ)?;
        let connection = self.owned(id)?;
        match connection.state {
            State::Established => self.send_dreq(now, id, data),
            State::RepSent | State::RepReceived => {
                self.break_off(id, RejReason::CONSUMER);
                self.end(now, id);
            }
            State::DreqSent | State::TimeWait => {}
            State::ReqSent | State::ReqReceived | State::Refused => {
                let state = connection.state;
                let call = "disconnect";
                return Err(CmError::WrongState { id, state, call });
            }
        }
        Ok(())
    }

    /// Gives an id up, whatever its state: withdraws, refuses or disconnects where that is due, and
    /// tells of nothing more.
    ///
    /// # Errors
    /// There is no such id.
    pub fn destroy(&mut self, now: Instant, id: CommId) -> Result<(), CmError> {
        let connection = match self.entries.get_mut(&id) {
            Some(Entry::Connection(connection)) if connection.is_owned => connection,
            Some(Entry::Asked(_)) => {
                self.remove(id);
                return Ok(());
            }
            Some(Entry::Heard(_)) => return self.give_question_up(now, id),
            _ => return Err(CmError::NoSuchId(id)),
        };
        match connection.state {
            State::ReqSent => {
                self.withdraw(id);
                self.remove(id);
            }
            State::ReqReceived | State::RepReceived => {
                self.reject(now, id, RejReason::CONSUMER, &[])?;
            }
            State::RepSent => {
                self.break_off(id, RejReason::CONSUMER);
                self.remember(now, id, false);
            }
            State::Established => {
                self.send_dreq(now, id, &[]);
                self.disown(id);
            }
            State::DreqSent | State::TimeWait | State::Refused => self.disown(id),
        }
        // What the user has not fetched yet is of no use to it any more.
        self.events.retain(|event| event.id() != id);
        Ok(())
    }

    fn disown(&mut self, id: CommId) {
        if let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) {
            connection.is_owned = false;
        }
    }

    fn send_dreq(&mut self, now: Instant, id: CommId, data: &[u8]) {
        let transaction = self.new_transaction(id);
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        let dreq = Message::Dreq {
            ids: connection.ids(id),
            remote_qpn: connection.remote_qpn,
            private_data: data,
        };
        connection.state = State::DreqSent;
        connection.retries_left = connection.max_retries;
        connection.repeated = Some(Box::new(Mad::cm_bytes(&dreq, transaction, 0)));
        self.send_and_wait(now, id);
    }

    /// The peer ends a connection.
    pub(crate) fn hear_dreq(&mut self, arrival: &Arrival<'_>, ids: Ids, remote_qpn: Qpn) {
        let id = CommId(ids.remote);
        let is_known = match self.heard_from(id.0, arrival.meta) {
            // Whoever means another queue pair means another connection.
            Some(connection) if connection.local_qpn != remote_qpn => return,
            Some(connection) if connection.remote_id != ids.local => return,
            Some(connection) => Some(connection.state),
            None => None,
        };
        let is_over = matches!(is_known, None | Some(State::TimeWait));
        if matches!(
            is_known,
            Some(State::ReqSent | State::ReqReceived | State::Refused)
        ) || is_over && planted::has(Bug::LateDreqIgnored)
        {
            return;
        }
        let drep = Message::Drep(Note {
            ids: Ids {
                local: ids.remote,
                remote: ids.local,
            },
            private_data: &[],
        });
        self.outgoing.reply(arrival, &drep);
        if !is_over {
            self.end(arrival.now, id);
        } else if is_known.is_some() && planted::has(Bug::DisconnectedAgain) {
            self.events.push_back(Event::Disconnected { id });
        }
    }

    /// The peer knows that a connection has ended.
    pub(crate) fn hear_drep(&mut self, arrival: &Arrival<'_>, drep: &Note<'_>) {
        let id = CommId(drep.ids.remote);
        if let Some(connection) = self.heard_from(id.0, arrival.meta)
            && connection.state == State::DreqSent
            && connection.remote_id == drep.ids.local
        {
            self.end(arrival.now, id);
        }
    }

    /// The peer refuses.
    pub(crate) fn hear_rej(&mut self, arrival: &Arrival<'_>, rej: &Rej<'_>) {
        let Some(id) = self.refused_connection(arrival, rej) else {
            return;
        };
        let Some(connection) = self.heard_from(id.0, arrival.meta) else {
            return;
        };
        let names_peer = [0, connection.remote_id].contains(&rej.ids.local);
        if !names_peer && connection.state != State::ReqSent {
            return;
        }
        let standing = matches!(connection.state, State::Established | State::DreqSent);
        if planted::has(Bug::LateRejIgnored) && standing
            || planted::has(Bug::RejIgnored) && !standing
        {
            return;
        }
        match connection.state {
            State::ReqSent if connection.meets && rej.reason == RejReason::INVALID_SERVICE_ID => {
                // The peer has not come to connecting yet.
                connection.nobody_listened = true;
                return;
            }
            State::ReqSent | State::ReqReceived => self.remove(id),
            State::RepReceived | State::RepSent => self.remember(arrival.now, id, false),
            State::Established | State::DreqSent => return self.end(arrival.now, id),
            State::TimeWait | State::Refused => return,
        }
        self.events.push_back(Event::Rejected {
            id,
            reason: rej.reason,
            ari: rej.ari.to_vec(),
            private_data: rej.private_data.to_vec(),
        });
    }

    /// The connection that a REJ is about. Who withdraws before it was answered knows no id of ours
    /// and says its GUID instead.
    fn refused_connection(&self, arrival: &Arrival<'_>, rej: &Rej<'_>) -> Option<CommId> {
        if rej.ids.remote != 0 {
            return Some(CommId(rej.ids.remote));
        }
        if rej.reason != RejReason::TIMEOUT {
            return None;
        }
        let peer = Peer {
            gid: arrival.meta.source,
            ca_guid: u64::from_be_bytes(*rej.ari.first_chunk()?),
        };
        self.by_request.get(&(peer, rej.ids.local)).copied()
    }

    /// The peer uses the queue pair of a connection for another one: it has lost this one.
    pub(super) fn supersede(&mut self, now: Instant, id: CommId) {
        let Some(Entry::Connection(connection)) = self.entries.get(&id) else {
            return;
        };
        let is_owned = connection.is_owned;
        match connection.state {
            State::Established => {
                // In case it has not.
                self.send_dreq(now, id, &[]);
                self.end(now, id);
            }
            State::RepReceived | State::RepSent => {
                self.remember(now, id, false);
                if is_owned {
                    self.rejected(id, RejReason::STALE_CONNECTION);
                }
            }
            State::DreqSent => self.end(now, id),
            State::ReqSent | State::ReqReceived | State::TimeWait | State::Refused => {}
        }
    }

    /// A connection has ended.
    pub(super) fn end(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        let is_owned = connection.is_owned;
        if is_owned {
            self.events.push_back(Event::Disconnected { id });
        }
        self.remember(now, id, is_owned);
    }

    /// Nothing more comes of a connection; it is remembered until what may still be under way has
    /// arrived or is lost.
    pub(super) fn remember(&mut self, now: Instant, id: CommId, is_owned: bool) {
        let Some(connection) = self.entries.get_mut(&id).and_then(Entry::connection) else {
            return;
        };
        let mut at = now + span(connection.timewait());
        if connection.state == State::RepSent {
            // The peer may never have heard the REP, and ask again.
            at = at.max(connection.request_again(now));
        }
        connection.state = State::TimeWait;
        connection.is_owned = is_owned;
        connection.repeated = None;
        if planted::has(Bug::TimewaitEndless) && connection.role == Role::Passive {
            return self.timers.set(id, &mut connection.deadline, None);
        }
        self.timers.set(id, &mut connection.deadline, Some(at));
        if planted::has(Bug::NoTimewait) {
            self.timewait_exit(id);
        }
    }

    pub(super) fn timewait_exit(&mut self, id: CommId) {
        let is_owned = self.owned(id).is_ok();
        self.remove(id);
        if is_owned {
            self.events.push_back(Event::TimewaitExit { id });
        }
    }
}

impl Event {
    /// The connection or question that it is about.
    pub fn id(&self) -> CommId {
        match self {
            Self::Request(request) => request.id,
            Self::Response(response) => response.id,
            Self::Question(question) => question.id,
            Self::Reply(reply) => reply.id,
            Self::Established { id, .. }
            | Self::Rejected { id, .. }
            | Self::Unreachable { id }
            | Self::Disconnected { id }
            | Self::TimewaitExit { id } => *id,
        }
    }
}
