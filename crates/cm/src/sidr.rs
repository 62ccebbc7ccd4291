//! Datagram services: which queue pair serves this, and with which key?

use hirail_rnic::Instant;
use hirail_wire::cm::{IpHeader, Message, ServiceId, SidrRep, SidrReq};
use hirail_wire::mad::Mad;
use hirail_wire::{Gid, PKey, QKey, Qpn};

use crate::cm::{Arrival, Cm, Entry};
use crate::config::span;
use crate::error::CmError;
use crate::event::{Ece, Event, Question, Reply};
use crate::ids::CommId;
use crate::path::Path;
use crate::planted::{self, Bug};
use crate::private_data::{self, Limits};
use crate::service::ListenerId;

/// What a service says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceStatus(pub u8);

impl ServiceStatus {
    /// Here it is.
    pub const OK: Self = Self(0);
    /// There is no such service.
    pub const UNSUPPORTED: Self = Self(1);
    /// It refuses.
    pub const REJECTED: Self = Self(2);
    /// It has no queue pair.
    pub const NO_QP: Self = Self(3);
}

/// What to ask, and where.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// The service.
    pub service: ServiceId,
    /// The way there.
    pub path: Path,
    /// The IP addresses, for services that stand for a port.
    pub addresses: Option<IpHeader>,
    /// What to say with it: 180 bytes with addresses, 216 without.
    pub private_data: &'a [u8],
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer<'a> {
    /// Whether there is such a service.
    pub status: ServiceStatus,
    /// The queue pair that serves.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: QKey,
    /// Options for a device of the same vendor.
    pub ece: Option<Ece>,
    /// What to say with it: 136 bytes.
    pub private_data: &'a [u8],
}

/// Code of Linux's response timeout.
const USUAL_TIMEOUT: u8 = 20;

/// A question of this side.
pub(crate) struct Asked {
    service: ServiceId,
    path: Path,
    mad: [u8; Mad::LEN],
    retries_left: u8,
    pub(crate) deadline: Option<Instant>,
}

/// A question of the other side.
pub(crate) struct Heard {
    pub(crate) key: (Gid, u32),
    pub(crate) waits_at: Option<ListenerId>,
    service: ServiceId,
    path: Path,
    transaction: u64,
    /// What is sent again when the question comes again.
    answer: Option<Box<[u8; Mad::LEN]>>,
    pub(crate) deadline: Option<Instant>,
}

impl Cm {
    /// Asks for a datagram service. [`Event::Reply`] or [`Event::Unreachable`] follows.
    ///
    /// # Errors
    /// Too much private data, or the table is full.
    pub fn query(&mut self, now: Instant, query: &Query<'_>) -> Result<CommId, CmError> {
        let addresses = query.addresses.as_ref();
        let most = Limits::SIDR_REQ;
        let data = private_data::compose("SIDR_REQ", addresses, query.private_data, most)?;
        let id = self.new_id()?;
        let transaction = self.new_transaction(id);
        let req = Message::SidrReq(SidrReq {
            request_id: id.0,
            pkey: PKey::DEFAULT,
            service: query.service,
            private_data: &data,
        });
        let mut asked = Asked {
            service: query.service,
            path: query.path,
            mad: Mad::cm_bytes(&req, transaction, 0),
            retries_left: self.config.max_cm_retries,
            deadline: None,
        };
        self.outgoing.push(asked.path, asked.mad);
        let at = now + self.query_patience();
        self.timers.set(id, &mut asked.deadline, Some(at));
        self.entries.insert(id, Entry::Asked(Box::new(asked)));
        Ok(id)
    }

    fn query_patience(&self) -> hirail_rnic::Span {
        Self::patience(self.config.packet_lifetime, self.config.response_timeout)
    }

    /// How long an answer is remembered: the question does not say when it will come again, but
    /// hardly anybody waits for longer than Linux does, and some repetitions may get lost.
    fn answer_memory(&self) -> hirail_rnic::Span {
        span(self.config.response_timeout.max(USUAL_TIMEOUT)).times(4)
    }

    /// Answers a question.
    ///
    /// # Errors
    /// There is no such question, or too much private data.
    pub fn answer(&mut self, now: Instant, id: CommId, answer: &Answer<'_>) -> Result<(), CmError> {
        private_data::check("SIDR_REP", answer.private_data, Limits::SIDR_REP)?;
        let at = now + self.answer_memory();
        let Some(Entry::Heard(heard)) = self.entries.get_mut(&id) else {
            return Err(CmError::NoSuchId(id));
        };
        if heard.answer.is_some() {
            return Err(CmError::NoSuchId(id));
        }
        let rep = Message::SidrRep(SidrRep {
            request_id: heard.key.1,
            status: answer.status.0,
            ece_vendor: answer.ece.map_or(0, |ece| ece.vendor),
            qpn: answer.qpn,
            service: heard.service,
            qkey: answer.qkey,
            private_data: answer.private_data,
        });
        let options = answer.ece.map_or(0, |ece| ece.options);
        let mad = Mad::cm_bytes(&rep, heard.transaction, options);
        self.outgoing.push(heard.path, mad);
        heard.answer = Some(Box::new(mad));
        self.timers.set(id, &mut heard.deadline, Some(at));
        if let Some(listener) = heard.waits_at.take() {
            self.listeners.dequeue(listener);
        }
        Ok(())
    }

    /// The user gives a question up that it has not answered.
    pub(crate) fn give_question_up(&mut self, now: Instant, id: CommId) -> Result<(), CmError> {
        let refusal = Answer {
            status: ServiceStatus::REJECTED,
            qpn: Qpn::new(0),
            qkey: QKey(0),
            ece: None,
            private_data: &[],
        };
        self.answer(now, id, &refusal)?;
        self.events.retain(|event| event.id() != id);
        Ok(())
    }

    pub(crate) fn query_timeout(&mut self, now: Instant, id: CommId) {
        let at = now + self.query_patience();
        let Some(Entry::Asked(asked)) = self.entries.get_mut(&id) else {
            return;
        };
        if asked.retries_left > 0 && !planted::has(Bug::QuestionNotRepeated) {
            asked.retries_left -= 1;
            self.outgoing.push(asked.path, asked.mad);
            return self.timers.set(id, &mut asked.deadline, Some(at));
        }
        self.remove(id);
        self.events.push_back(Event::Unreachable { id });
    }

    pub(crate) fn hear_question(&mut self, arrival: &Arrival<'_>, req: &SidrReq<'_>) {
        let key = (arrival.meta.source, req.request_id);
        let known = self.by_question.get(&key).copied();
        if let Some(id) = known.filter(|_| !planted::has(Bug::QuestionHeardAgain)) {
            let at = arrival.now + self.answer_memory();
            if let Some(Entry::Heard(heard)) = self.entries.get_mut(&id)
                && let Some(answer) = &heard.answer
            {
                self.outgoing.push(heard.path, **answer);
                self.timers.set(id, &mut heard.deadline, Some(at));
            }
            return;
        }
        if let Err(status) = self.take_question(arrival, key, req) {
            let rep = Message::SidrRep(SidrRep {
                request_id: req.request_id,
                status: status.0,
                ece_vendor: 0,
                qpn: Qpn::new(0),
                service: req.service,
                qkey: QKey(0),
                private_data: &[],
            });
            self.outgoing.reply(arrival, &rep);
        }
    }

    fn take_question(
        &mut self,
        arrival: &Arrival<'_>,
        key: (Gid, u32),
        req: &SidrReq<'_>,
    ) -> Result<(), ServiceStatus> {
        let (addresses, private_data) = private_data::split(req.service, req.private_data)
            .map_err(|_| ServiceStatus::REJECTED)?;
        let dest = addresses.map_or(arrival.meta.destination.to_ip(), |it| it.dest);
        let listener = self
            .listeners
            .find(req.service, dest)
            .ok_or(ServiceStatus::UNSUPPORTED)?;
        let id = self.new_id().map_err(|_| ServiceStatus::REJECTED)?;
        if !self.listeners.enqueue(listener) {
            return Err(ServiceStatus::REJECTED);
        }
        let path = Path::reply(arrival.meta);
        let heard = Heard {
            key,
            waits_at: Some(listener),
            service: req.service,
            path,
            transaction: arrival.transaction,
            answer: None,
            deadline: None,
        };
        self.by_question.insert(key, id);
        self.entries.insert(id, Entry::Heard(Box::new(heard)));
        self.events.push_back(Event::Question(Box::new(Question {
            id,
            listener,
            service: req.service,
            addresses,
            path,
            private_data,
        })));
        Ok(())
    }

    pub(crate) fn hear_reply(&mut self, arrival: &Arrival<'_>, rep: &SidrRep<'_>) {
        let id = CommId(rep.request_id);
        let Some(Entry::Asked(asked)) = self.entries.get(&id) else {
            return;
        };
        if asked.path.remote != arrival.meta.source || asked.service != rep.service {
            return;
        }
        let path = asked.path;
        self.remove(id);
        self.events.push_back(Event::Reply(Box::new(Reply {
            id,
            status: ServiceStatus(rep.status),
            qpn: rep.qpn,
            qkey: rep.qkey,
            path,
            ece: Ece::read(rep.ece_vendor, arrival.modifier),
            private_data: rep.private_data.to_vec(),
        })));
    }
}
