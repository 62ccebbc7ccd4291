//! CM exchanges: they tell which two QPs make a connection, and for what.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hirail_wire::cm::{Ids, Message, Rep, Req, ServiceId, Transport};
use hirail_wire::{PathMtu, Qpn};

use super::requests::Requests;
use super::{
    CmState, Connection, End, Event, Follower, Service, Side, Story, Tie, Track as Any, qp,
};

/// Exchanges by what identifies them.
#[derive(Default)]
pub(super) struct Exchanges {
    /// Connections by the end that chose a communication id.
    ids: BTreeMap<(IpAddr, u32), (usize, Side)>,
    /// Questions for a datagram service by the end that asked and its transaction.
    questions: BTreeMap<(IpAddr, u64), ServiceId>,
    /// Datagram services by the QP that serves them.
    services: BTreeMap<(IpAddr, Qpn), ServiceId>,
}

impl Exchanges {
    /// The datagram service that a QP serves.
    pub(super) fn service_at(&self, end: (IpAddr, Qpn)) -> Option<ServiceId> {
        self.services.get(&end).copied()
    }
}

impl Follower {
    /// Takes a CM message from `source` to `dest`.
    pub(super) fn cm(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        transaction: u64,
        message: &Message<'_>,
    ) -> Story {
        let mut story = Story::default();
        let state = match message {
            Message::Req(req) => {
                story.connection = self.requested(source, dest, req, &mut story.events);
                return story;
            }
            Message::Rep(rep) => {
                story.connection = self.accepted(source, dest, rep, &mut story.events);
                return story;
            }
            Message::SidrReq(req) => {
                self.exchanges
                    .questions
                    .insert((source, transaction), req.service);
                return story;
            }
            Message::SidrRep(rep) => {
                let question = self.exchanges.questions.remove(&(dest, transaction));
                if rep.status == 0 {
                    let service = question.unwrap_or(rep.service);
                    self.exchanges.services.insert((source, rep.qpn), service);
                }
                return story;
            }
            Message::Mra(mra) => (mra.ids, None),
            Message::Rtu(note) => (note.ids, Some(CmState::Established)),
            Message::Rej(rej) => (rej.ids, Some(CmState::Rejected(rej.reason))),
            Message::Dreq { ids, .. } => (*ids, Some(CmState::Disconnecting)),
            Message::Drep(note) => (note.ids, Some(CmState::Disconnected)),
            Message::Lap(ids) => (*ids, None),
            Message::Apr(apr) => (apr.ids, None),
        };
        let (ids, state) = state;
        story.connection = self.exchange(source, dest, ids);
        if let (Some((index, _)), Some(state)) = (story.connection, state) {
            let known = &mut self.connections[index].state;
            // Both ends may ask to disconnect; what answers the first comes before the second.
            if *known == Some(state) {
                story.events.push(Event::CmAgain);
            }
            if *known != Some(CmState::Disconnected) {
                *known = Some(state);
            }
        }
        story
    }

    /// The connection that a message belongs to, and the end that sent it.
    fn exchange(&self, source: IpAddr, dest: IpAddr, ids: Ids) -> Option<(usize, Side)> {
        let by_sender = self.exchanges.ids.get(&(source, ids.local)).copied();
        by_sender.or_else(|| {
            let (index, side) = self.exchanges.ids.get(&(dest, ids.remote)).copied()?;
            Some((index, side.other()))
        })
    }

    fn requested(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        req: &Req<'_>,
        events: &mut Vec<Event>,
    ) -> Option<(usize, Side)> {
        let own = End {
            address: source,
            number: Some(req.qpn.value()),
        };
        if let Some(&(index, side)) = self.exchanges.ids.get(&(source, req.local_id))
            && self.connections[index].end(side) == own
        {
            events.push(Event::CmAgain);
            return Some((index, side));
        }
        let service = match req.transport {
            Transport::Uc => Service::Uc,
            Transport::Xrc => Service::Xrc,
            Transport::Rc | Transport::Other(..) => Service::Rc,
        };
        let mut track = qp::Track::default();
        // Each end says which PSN it expects first, that is, where the other one begins.
        track.requests[1] = Requests::starting_at(req.starting_psn);
        track.mtu = req.mtu.map(PathMtu::bytes);
        let ends = [
            own,
            End {
                address: dest,
                number: None,
            },
        ];
        let track = Any::Qp(Box::new(track));
        let mut connection = Connection::new(service, ends, Tie::Cm, track);
        connection.wanted = Some(req.service);
        connection.state = Some(CmState::Requested);
        let place = (self.connect(connection)?, Side::First);
        self.exchanges.ids.insert((source, req.local_id), place);
        Some(place)
    }

    fn accepted(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        rep: &Rep<'_>,
        events: &mut Vec<Event>,
    ) -> Option<(usize, Side)> {
        let &(index, first) = self.exchanges.ids.get(&(dest, rep.ids.remote))?;
        let second = first.other();
        let connection = &mut self.connections[index];
        let requester = Qpn::new(connection.end(first).number?);
        if connection.end(second).number.is_some() {
            events.push(Event::CmAgain);
            return Some((index, second));
        }
        connection.ends[second as usize].number = Some(rep.qpn.value());
        connection.state = Some(CmState::Accepted);
        if let Any::Qp(track) = &mut connection.track {
            track.requests[first as usize] = Requests::starting_at(rep.starting_psn);
        }
        self.exchanges
            .ids
            .insert((source, rep.ids.local), (index, second));
        // From here on these QPNs are this connection's, whatever was theirs before.
        self.qps
            .connected
            .insert((dest, source, rep.qpn), (index, first));
        self.qps
            .connected
            .insert((source, dest, requester), (index, second));
        Some((index, second))
    }
}
