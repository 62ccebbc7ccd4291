//! The connection manager: its tables, and who gets which message.

use std::collections::{BTreeMap, VecDeque};

use hirail_rnic::{Instant, Span};
use hirail_wire::cm::{Apr, Ids as WireIds, Message, ServiceId};
use hirail_wire::mad::{Mad, MadHeader};
use hirail_wire::{Gid, Qpn};

use crate::config::{Config, span};
use crate::connection::{Connection, State};
use crate::error::CmError;
use crate::event::Event;
use crate::ids::{CommId, Ids};
use crate::path::{Meta, Path};
use crate::service::{Listen, ListenerId, Listeners};
use crate::sidr::{Asked, Heard};
use crate::timers::Timers;

/// Messages that wait for a host that does not fetch them. What is dropped is repeated by timers.
const MOST_OUTGOING: usize = 1024;

/// The version of the class that there is.
const CLASS_VERSION: u8 = 2;

/// Answer to a request for an alternate path: there is no such connection.
const APR_NO_SUCH_ID: u8 = 1;
/// Answer to a request for an alternate path: not supported.
const APR_UNSUPPORTED: u8 = 2;

/// A message to send: a SEND from QP1 to QP1 with the Q_Key of both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Which way.
    pub path: Path,
    /// The datagram.
    pub mad: [u8; Mad::LEN],
}

/// How full the tables are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sizes {
    /// Listeners.
    pub listeners: usize,
    /// Connections, questions and answers, the remembered ones included.
    pub entries: usize,
    /// Names by which those are found: numbers of the peers, queue pairs.
    pub names: usize,
    /// Deadlines.
    pub timers: usize,
    /// Messages not fetched.
    pub outgoing: usize,
    /// Events not fetched.
    pub events: usize,
}

/// The other side's port: by its GUID alone it is not known, since virtual machines and namespaces
/// are cloned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Peer {
    pub(crate) gid: Gid,
    pub(crate) ca_guid: u64,
}

/// What an id stands for.
pub(crate) enum Entry {
    Connection(Box<Connection>),
    /// A question of this side.
    Asked(Box<Asked>),
    /// A question of the other side, and later its answer.
    Heard(Box<Heard>),
}

impl Entry {
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Connection(connection) => Some(connection),
            _ => None,
        }
    }
}

/// When a message came, from where, and what its header says.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) now: Instant,
    pub(crate) meta: &'a Meta,
    pub(crate) transaction: u64,
    /// The modifier of the attribute: options of ECE.
    pub(crate) modifier: u32,
}

/// Messages on their way out.
#[derive(Default)]
pub(crate) struct Outgoing(VecDeque<Transmit>);

impl Outgoing {
    pub(crate) fn push(&mut self, path: Path, mad: [u8; Mad::LEN]) {
        if self.0.len() < MOST_OUTGOING {
            self.0.push_back(Transmit { path, mad });
        }
    }

    /// Answers a message of which nothing is kept.
    pub(crate) fn reply(&mut self, arrival: &Arrival<'_>, message: &Message<'_>) {
        let mad = Mad::cm_bytes(message, arrival.transaction, 0);
        self.push(Path::reply(arrival.meta), mad);
    }
}

/// The connection manager of a port; see the [crate's page](crate).
pub struct Cm {
    pub(crate) config: Config,
    pub(crate) ids: Ids,
    pub(crate) listeners: Listeners,
    pub(crate) entries: BTreeMap<CommId, Entry>,
    /// Requests by who sent them and what it calls them.
    pub(crate) by_request: BTreeMap<(Peer, u32), CommId>,
    /// Connections by the queue pair at the other end.
    pub(crate) by_peer_qp: BTreeMap<(Peer, Qpn), CommId>,
    /// Connections by the queue pair at this end.
    pub(crate) by_qp: BTreeMap<Qpn, CommId>,
    /// Requests of this side that may meet one of the other side.
    pub(crate) meeting: BTreeMap<(ServiceId, Gid), CommId>,
    /// Questions by who asked and what it calls them.
    pub(crate) by_question: BTreeMap<(Gid, u32), CommId>,
    pub(crate) timers: Timers,
    pub(crate) outgoing: Outgoing,
    pub(crate) events: VecDeque<Event>,
}

impl Cm {
    /// A connection manager that knows nobody.
    pub fn new(config: Config) -> Self {
        Self {
            ids: Ids::new(config.ids, config.seed),
            config,
            listeners: Listeners::default(),
            entries: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_peer_qp: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            meeting: BTreeMap::new(),
            by_question: BTreeMap::new(),
            timers: Timers::default(),
            outgoing: Outgoing::default(),
            events: VecDeque::new(),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Hears requests for a service.
    ///
    /// # Errors
    /// Somebody does already, or the table is full.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, CmError> {
        self.listeners.add(listen, self.config.max_listeners)
    }

    /// Hears no more requests for it. Those that were heard may still be answered.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), CmError> {
        self.listeners.remove(id).map(|_| ())
    }

    /// Takes a message that came to QP1. What is no message of connection management is ignored.
    pub fn handle_mad(&mut self, now: Instant, meta: &Meta, bytes: &[u8]) {
        let Ok(mad) = Mad::parse(bytes) else { return };
        let header = mad.header;
        let is_send = header.method == MadHeader::METHOD_SEND && !header.response;
        if header.class_version != CLASS_VERSION || !is_send {
            return;
        }
        let Some(message) = mad.cm() else { return };
        let arrival = Arrival {
            now,
            meta,
            transaction: header.transaction_id,
            modifier: header.attribute_modifier,
        };
        match message {
            Message::Req(req) => self.hear_req(&arrival, &req),
            Message::Mra(mra) => self.hear_mra(&arrival, &mra),
            Message::Rej(rej) => self.hear_rej(&arrival, &rej),
            Message::Rep(rep) => self.hear_rep(&arrival, &rep),
            Message::Rtu(note) => self.hear_rtu(&arrival, &note),
            Message::Dreq {
                ids, remote_qpn, ..
            } => self.hear_dreq(&arrival, ids, remote_qpn),
            Message::Drep(note) => self.hear_drep(&arrival, &note),
            Message::SidrReq(req) => self.hear_question(&arrival, &req),
            Message::SidrRep(rep) => self.hear_reply(&arrival, &rep),
            Message::Lap(ids) => self.hear_lap(&arrival, ids),
            // Nobody asked.
            Message::Apr(_) => {}
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.timers.pop(now) {
            match self.entries.get_mut(&id) {
                Some(Entry::Connection(connection)) => {
                    connection.deadline = None;
                    self.connection_timeout(now, id);
                }
                Some(Entry::Asked(asked)) => {
                    asked.deadline = None;
                    self.query_timeout(now, id);
                }
                Some(Entry::Heard(heard)) => {
                    heard.deadline = None;
                    self.remove(id);
                }
                None => {}
            }
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outgoing.0.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if at all. Changes with every input.
    pub fn poll_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next thing to tell the user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How full the tables are.
    pub fn sizes(&self) -> Sizes {
        let names = self.by_request.len()
            + self.by_peer_qp.len()
            + self.by_qp.len()
            + self.meeting.len()
            + self.by_question.len();
        Sizes {
            listeners: self.listeners.len(),
            entries: self.entries.len(),
            names,
            timers: self.timers.len(),
            outgoing: self.outgoing.0.len(),
            events: self.events.len(),
        }
    }

    /// The state of a connection that the user has not given up.
    pub fn state(&self, id: CommId) -> Option<State> {
        match self.entries.get(&id)? {
            Entry::Connection(connection) => connection.is_owned.then_some(connection.state),
            _ => None,
        }
    }

    /// How long a packet and its answer are under way, and the answer in the making.
    pub(crate) fn patience(lifetime: u8, response_timeout: u8) -> Span {
        Span::from_ps(
            span(lifetime)
                .times(2)
                .as_ps()
                .saturating_add(span(response_timeout).as_ps()),
        )
    }

    /// An id for one more entry.
    pub(crate) fn new_id(&mut self) -> Result<CommId, CmError> {
        let limit = self.config.max_entries;
        let what = "connections";
        let full = CmError::Full { what, limit };
        if self.entries.len() >= limit {
            return Err(full);
        }
        let entries = &self.entries;
        self.ids.next(|id| !entries.contains_key(&id)).ok_or(full)
    }

    /// A transaction id of this side.
    pub(crate) fn new_transaction(&mut self, id: CommId) -> u64 {
        self.ids.draw() & !0xffff_ffff | u64::from(id.0)
    }

    /// The connection `id`, if the message comes from its other end.
    pub(crate) fn heard_from(&mut self, id: u32, meta: &Meta) -> Option<&mut Connection> {
        let connection = self.entries.get_mut(&CommId(id))?.connection()?;
        (connection.path.remote == meta.source).then_some(connection)
    }

    /// The connection `id` of the user's.
    pub(crate) fn owned(&mut self, id: CommId) -> Result<&mut Connection, CmError> {
        self.entries
            .get_mut(&id)
            .and_then(Entry::connection)
            .filter(|connection| connection.is_owned)
            .ok_or(CmError::NoSuchId(id))
    }

    /// The connection `id` of the user's, to read.
    pub(crate) fn seen_by_user(&self, id: CommId) -> Result<&Connection, CmError> {
        match self.entries.get(&id) {
            Some(Entry::Connection(connection)) if connection.is_owned => Ok(connection),
            _ => Err(CmError::NoSuchId(id)),
        }
    }

    /// Forgets an entry and all its names.
    pub(crate) fn remove(&mut self, id: CommId) {
        match self.entries.remove(&id) {
            Some(Entry::Connection(mut connection)) => {
                self.timers.set(id, &mut connection.deadline, None);
                self.unname(id, &connection);
            }
            Some(Entry::Asked(mut asked)) => self.timers.set(id, &mut asked.deadline, None),
            Some(Entry::Heard(mut heard)) => {
                self.timers.set(id, &mut heard.deadline, None);
                self.by_question.remove(&heard.key);
                if let Some(listener) = heard.waits_at.take() {
                    self.listeners.dequeue(listener);
                }
            }
            None => {}
        }
    }

    /// Refuses an alternate path: RoCE has none.
    fn hear_lap(&mut self, arrival: &Arrival<'_>, ids: WireIds) {
        let is_known = self.heard_from(ids.remote, arrival.meta).is_some();
        let status = if is_known {
            APR_UNSUPPORTED
        } else {
            APR_NO_SUCH_ID
        };
        let ids = WireIds {
            local: ids.remote,
            remote: ids.local,
        };
        self.outgoing
            .reply(arrival, &Message::Apr(Apr { ids, status }));
    }
}
