//! Connections of queue pairs, and datagrams.
//!
//! A packet of a connected QP names only the QP that it goes to. So a direction is known by
//! addresses and destination QP, and two directions are tied together by what they show: a CM
//! exchange, answers to requests, or the UDP source port, which Linux makes of both QP numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hirail_wire::ip::Ecn;
use hirail_wire::udp::{flow_label_of_qpns, source_port_of_flow_label};
use hirail_wire::{Framing, Headers, Operation, PathMtu, Psn, Qpn, Syndrome};

use crate::decode::dissect::{IcrcCheck, Roce};

use super::copies::{Copies, Sent};
use super::requests::{Kind, Place, Request, Requests};
use super::{
    Connection, End, Event, Follower, MessageRef, Service, Side, Story, Tally, Tie, Track as Any,
};

/// An answer belongs to a request at most so many packets before the newest.
const ANSWERED_WITHIN: u64 = 1 << 15;

/// Which connection a packet belongs to.
#[derive(Default)]
pub(super) struct Index {
    /// By source, destination and destination QP: the connection and the end that sends.
    pub(super) connected: BTreeMap<(IpAddr, IpAddr, Qpn), (usize, Side)>,
    /// By both ends.
    datagrams: BTreeMap<[(IpAddr, Qpn); 2], (usize, Side)>,
    /// Connections of which only one direction is known.
    one_way: Vec<usize>,
}

/// What is known of a connection of two QPs.
#[derive(Default)]
pub(super) struct Track {
    /// Of each end.
    pub(super) requests: [Requests; 2],
    copies: [Copies; 2],
    /// Path MTU in bytes.
    pub(super) mtu: Option<u32>,
    /// UDP source port of the first packet.
    source_port: Option<u16>,
}

/// A packet of a connected QP, intact and legal.
struct Packet<'a> {
    time: Option<u64>,
    source: IpAddr,
    dest: IpAddr,
    source_port: Option<u16>,
    id: u16,
    marked: bool,
    service: Service,
    headers: &'a Headers,
    payload: usize,
}

impl Packet<'_> {
    fn operation(&self) -> Operation {
        self.headers.opcode().operation()
    }

    fn psn(&self) -> Psn {
        self.headers.bth().psn
    }

    fn dest_qp(&self) -> Qpn {
        self.headers.bth().dest_qp
    }
}

impl Follower {
    pub(super) fn roce(&mut self, time: Option<u64>, roce: &Roce<'_>, refused: bool) -> Story {
        let (source, dest) = (roce.source(), roce.dest());
        let corrupt = matches!(roce.icrc, IcrcCheck::Bad { .. });
        let intact = roce.headers.as_ref().filter(|_| !corrupt && !refused);
        let Some(headers) = intact else {
            // Of what the capture cut in the middle of the headers, nobody knows that it is bad.
            let refused = refused && !corrupt;
            return self.damaged(source, dest, roce.view.dest_qp(), corrupt, refused);
        };
        use hirail_wire::Service as S;
        let service = match headers.opcode().service() {
            S::Rc => Service::Rc,
            S::Uc => Service::Uc,
            S::Xrc => Service::Xrc,
            S::Ud => {
                return match roce.mad.as_ref().and_then(|mad| Some((mad, mad.cm()?))) {
                    Some((mad, message)) => {
                        self.cm(source, dest, mad.header.transaction_id, &message)
                    }
                    None => self.datagram(source, dest, headers, roce.payload_len, roce.ecn()),
                };
            }
            S::Cnp | S::Manufacturer => {
                let mut story = Story::default();
                let key = (source, dest, headers.bth().dest_qp);
                if let Some(&(index, side)) = self.qps.connected.get(&key) {
                    story.connection = Some((index, side));
                    let tallies = &mut self.connections[index].tallies;
                    tallies[side as usize].packets += 1;
                    let is_cnp = headers.opcode().operation() == Operation::Cnp;
                    tallies[side.other() as usize].cnps += u64::from(is_cnp);
                }
                return story;
            }
        };
        let source_port = match roce.framing {
            Framing::V2 { source_port, .. } => Some(source_port),
            Framing::V1(_) => None,
        };
        self.connected(&Packet {
            time,
            source,
            dest,
            source_port,
            id: roce.framing.ipv4_id(),
            marked: roce.ecn() == Ecn::Ce,
            service,
            headers,
            payload: roce.payload_len,
        })
    }

    /// A packet that no receiver takes, or that is not whole in the capture: it is counted where it
    /// seems to belong, and changes nothing.
    fn damaged(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        qp: Option<Qpn>,
        corrupt: bool,
        refused: bool,
    ) -> Story {
        let mut story = Story::default();
        let key = qp.map(|qp| (source, dest, qp));
        if let Some(&(index, side)) = key.and_then(|key| self.qps.connected.get(&key)) {
            story.connection = Some((index, side));
            let tally = &mut self.connections[index].tallies[side as usize];
            tally.packets += 1;
            tally.corrupt += u64::from(corrupt);
            tally.refused += u64::from(refused);
        }
        story
    }

    fn datagram(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        headers: &Headers,
        payload: usize,
        ecn: Ecn,
    ) -> Story {
        let Some(deth) = headers.ext().deth() else {
            return Story::default();
        };
        let (from, to) = ((source, deth.source_qp), (dest, headers.bth().dest_qp));
        let found = self.qps.datagrams.get(&[from, to]).copied();
        let Some((index, side)) = found.or_else(|| {
            let ends = [from, to].map(|(address, qp)| End {
                address,
                number: Some(qp.value()),
            });
            let mut connection =
                Connection::new(Service::Ud, ends, Tie::Named, Any::Datagrams([0; 2]));
            connection.wanted = self.exchanges.service_at(to);
            let index = self.connect(connection)?;
            self.qps.datagrams.insert([from, to], (index, Side::First));
            self.qps
                .datagrams
                .entry([to, from])
                .or_insert((index, Side::Second));
            Some((index, Side::First))
        }) else {
            return Story::default();
        };
        let connection = &mut self.connections[index];
        let tally = &mut connection.tallies[side as usize];
        tally.packets += 1;
        tally.messages[Kind::Send as usize] += 1;
        tally.bytes += payload as u64;
        tally.marked += u64::from(ecn == Ecn::Ce);
        let mut story = Story {
            connection: Some((index, side)),
            ..Story::default()
        };
        if let Any::Datagrams(counts) = &mut connection.track {
            counts[side as usize] += 1;
            story.message = Some(MessageRef {
                of: side,
                number: counts[side as usize],
            });
        }
        story
    }

    fn connected(&mut self, packet: &Packet<'_>) -> Story {
        let key = (packet.source, packet.dest, packet.dest_qp());
        let known = self.qps.connected.get(&key).copied();
        let mut story = Story::default();
        let place = match known {
            Some(place) => self.join(place, packet, &mut story),
            None => self.tie(packet).or_else(|| self.begin(packet)),
        };
        let Some((index, side)) = place else {
            return story;
        };
        story.connection = Some((index, side));
        let connection = &mut self.connections[index];
        let Any::Qp(track) = &mut connection.track else {
            return story;
        };
        let own = side as usize;
        connection.tallies[own].packets += 1;
        connection.tallies[own].marked += u64::from(packet.marked);
        track.take(packet, side, &mut connection.tallies, &mut story);
        for (tally, requests) in connection.tallies.iter_mut().zip(&track.requests) {
            tally.missing = requests.missing();
        }
        story
    }

    /// Begins a connection of which one direction is known.
    fn begin(&mut self, packet: &Packet<'_>) -> Option<(usize, Side)> {
        // The requester is the first end, also where an answer is what is seen first.
        let side = if packet.operation().is_response() {
            Side::Second
        } else {
            Side::First
        };
        let source = End {
            address: packet.source,
            number: None,
        };
        let dest = End {
            address: packet.dest,
            number: Some(packet.dest_qp().value()),
        };
        let ends = match side {
            Side::First => [source, dest],
            Side::Second => [dest, source],
        };
        let track = Track {
            source_port: packet.source_port,
            ..Track::default()
        };
        let track = Any::Qp(Box::new(track));
        let index = self.connect(Connection::new(packet.service, ends, Tie::OneWay, track))?;
        self.qps.connected.insert(
            (packet.source, packet.dest, packet.dest_qp()),
            (index, side),
        );
        self.qps.one_way.push(index);
        Some((index, side))
    }

    /// Finds the connection whose unknown direction this packet shows.
    fn tie(&mut self, packet: &Packet<'_>) -> Option<(usize, Side)> {
        let (index, side, tie) = self.counterpart(packet, None)?;
        self.complete(index, side, packet.dest_qp(), tie);
        let connection = &self.connections[index];
        let key = (packet.source, packet.dest, packet.dest_qp());
        debug_assert_eq!(connection.end(side.other()).address, packet.dest);
        self.qps.connected.insert(key, (index, side));
        Some((index, side))
    }

    /// Both directions were seen on their own, and now one answers the other: they are one.
    /// Returns where the packet belongs.
    fn join(
        &mut self,
        (index, side): (usize, Side),
        packet: &Packet<'_>,
        story: &mut Story,
    ) -> Option<(usize, Side)> {
        let here = &self.connections[index];
        if !packet.operation().is_response() || here.tie != Tie::OneWay {
            return Some((index, side));
        }
        let Some((main, main_side, tie)) = self.counterpart(packet, Some(index)) else {
            return Some((index, side));
        };
        // What was sent in this direction so far was sent by the same end.
        let connection = &mut self.connections[index];
        connection.joined = Some(main);
        let tally = std::mem::take(&mut connection.tallies[side as usize]);
        let Any::Qp(track) = &mut connection.track else {
            return Some((index, side));
        };
        let requests = std::mem::take(&mut track.requests[side as usize]);
        let copies = std::mem::take(&mut track.copies[side as usize]);
        let times = connection.times;
        let connection = &mut self.connections[main];
        connection.tallies[main_side as usize] = tally;
        if let Any::Qp(track) = &mut connection.track {
            track.requests[main_side as usize] = requests;
            track.copies[main_side as usize] = copies;
        }
        connection.times = match (connection.times, times) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (times, None) | (None, times) => times,
        };
        self.complete(main, main_side, packet.dest_qp(), tie);
        self.qps.one_way.retain(|&other| other != index);
        self.qps.connected.insert(
            (packet.source, packet.dest, packet.dest_qp()),
            (main, main_side),
        );
        story.events.push(Event::Joined { connection: index });
        Some((main, main_side))
    }

    /// The second direction of a connection is known: `side` sends to `qp`.
    fn complete(&mut self, index: usize, side: Side, qp: Qpn, tie: Tie) {
        let connection = &mut self.connections[index];
        connection.ends[side.other() as usize].number = Some(qp.value());
        connection.tie = tie;
        self.qps.one_way.retain(|&other| other != index);
    }

    /// Among the connections with one direction, the one whose other direction `packet` belongs to,
    /// the end that sends it, and what shows that.
    fn counterpart(
        &self,
        packet: &Packet<'_>,
        except: Option<usize>,
    ) -> Option<(usize, Side, Tie)> {
        let mut candidates = Vec::new();
        for &index in &self.qps.one_way {
            let connection = &self.connections[index];
            let Any::Qp(track) = &connection.track else {
                continue;
            };
            let Some(side) = Side::BOTH.into_iter().find(|&side| {
                connection.end(side).address == packet.source
                    && connection.end(side.other()).address == packet.dest
                    && connection.end(side.other()).number.is_none()
            }) else {
                continue;
            };
            if except == Some(index) || connection.service != packet.service {
                continue;
            }
            let requests = &track.requests[side.other() as usize];
            if packet.operation().is_response() && !requests.has_sent(packet.psn(), ANSWERED_WITHIN)
            {
                continue;
            }
            let known = connection.end(side).number.map(Qpn::new);
            let made = known.map(|known| {
                source_port_of_flow_label(flow_label_of_qpns(known, packet.dest_qp()))
            });
            let same_port = track.source_port == packet.source_port;
            let port = if same_port && made.is_some() && made == packet.source_port {
                Tie::SourcePort
            } else if same_port && packet.source_port.is_some() {
                Tie::SamePort
            } else {
                Tie::Only
            };
            candidates.push((index, side, port));
        }
        let best = [Tie::SourcePort, Tie::SamePort, Tie::Only]
            .into_iter()
            .find(|tie| candidates.iter().any(|(.., port)| port == tie))?;
        candidates.retain(|(.., port)| *port == best);
        if packet.operation().is_response() {
            // Of several that fit, the newest.
            let (index, side, _) = *candidates.last()?;
            return Some((index, side, Tie::Answers));
        }
        // On one host both directions look alike: chance is no evidence there.
        let enough = best != Tie::Only || packet.source != packet.dest;
        match candidates.as_slice() {
            &[found] if enough => Some(found),
            _ => None,
        }
    }
}

impl Track {
    /// Takes a packet that `side` sent.
    fn take(
        &mut self,
        packet: &Packet<'_>,
        side: Side,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) {
        let operation = packet.operation();
        self.learn_mtu(packet);
        let opcode = packet.headers.opcode().to_u8();
        let wanted = operation.is_request() && self.requests[side as usize].is_wanted(packet.psn());
        let sent =
            self.copies[side as usize].take(packet.psn(), opcode, packet.id, packet.time, wanted);
        match Kind::of(operation) {
            Some(kind) => self.request(packet, kind, side, sent, tallies, story),
            None if operation.is_response() => self.response(packet, side, sent, tallies, story),
            None => {}
        }
    }

    fn learn_mtu(&mut self, packet: &Packet<'_>) {
        let full = packet.operation().is_first() || packet.operation().is_middle();
        let mtu = u32::try_from(packet.payload)
            .ok()
            .and_then(PathMtu::from_bytes);
        if let (true, Some(mtu)) = (full, mtu) {
            self.mtu = Some(mtu.bytes());
            for requests in &mut self.requests {
                requests.learn_mtu(mtu.bytes());
            }
        }
    }

    fn request(
        &mut self,
        packet: &Packet<'_>,
        kind: Kind,
        side: Side,
        sent: Sent,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) {
        let bytes = match (kind, packet.headers.ext().reth()) {
            (Kind::Read, Some(reth)) => reth.length.into(),
            (Kind::Atomic, _) => 8,
            _ => packet.payload as u64,
        };
        let request = Request {
            psn: packet.psn(),
            operation: packet.operation(),
            kind,
            bytes,
            time: packet.time,
            sent,
        };
        let placed = self.requests[side as usize].request(&request, self.mtu);
        let tally = &mut tallies[side as usize];
        note(placed.place, tally, story);
        story.message = placed.message.map(|number| MessageRef { of: side, number });
        if placed.is_new {
            tally.bytes += bytes;
            tally.messages[kind as usize] += u64::from(placed.begins);
        }
        if let Some((bytes, packets)) = placed.whole
            && packets > 1
            && kind != Kind::Read
        {
            story.events.push(Event::Whole { bytes, packets });
        }
    }

    fn response(
        &mut self,
        packet: &Packet<'_>,
        side: Side,
        sent: Sent,
        tallies: &mut [Tally; 2],
        story: &mut Story,
    ) {
        let of = side.other();
        let requests = &mut self.requests[of as usize];
        let message = |number| MessageRef { of, number };
        story.message = requests.message(packet.psn()).map(message);
        if packet.operation() != Operation::Acknowledge {
            // An answer acknowledges what was requested before.
            requests.acknowledge(packet.psn().prev(), packet.time);
            let Some(answered) = requests.answer(packet.psn(), packet.time, sent) else {
                return;
            };
            note(answered.place, &mut tallies[side as usize], story);
            story.message = Some(message(answered.message));
            if let Some((bytes, latency_ns)) = answered.whole {
                story.events.push(Event::Answered { bytes, latency_ns });
            }
            return;
        }
        if sent == Sent::AsCopy {
            note(Place::Copy, &mut tallies[side as usize], story);
            return;
        }
        let tally = &mut tallies[of as usize];
        match packet.headers.ext().aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) => {
                let acknowledged = requests.acknowledge(packet.psn(), packet.time);
                if let Some((first, last)) = acknowledged.messages {
                    let latency_ns = acknowledged.latency_ns;
                    story.events.push(Event::Acknowledges {
                        first,
                        last,
                        latency_ns,
                    });
                } else if acknowledged.again {
                    story.events.push(Event::NothingNew);
                }
            }
            Some(Syndrome::Rnr(timer)) => {
                requests.acknowledge(packet.psn().prev(), packet.time);
                requests.refuse(packet.psn());
                tally.rnrs += 1;
                story.events.push(Event::Rnr {
                    wait: timer.delay(),
                });
            }
            Some(Syndrome::Nak(code)) => {
                requests.acknowledge(packet.psn().prev(), packet.time);
                requests.refuse(packet.psn());
                tally.naks += 1;
                story.events.push(Event::Nak(code));
            }
            Some(Syndrome::Reserved(_)) | None => {}
        }
    }
}

/// Counts and tells where a packet stands among the others.
fn note(place: Place, tally: &mut Tally, story: &mut Story) {
    let event = match place {
        Place::InOrder => return,
        Place::AfterGap(packets) => Event::Missing { packets },
        Place::Late => {
            tally.late += 1;
            Event::Late
        }
        Place::Again => {
            tally.again += 1;
            Event::Again
        }
        Place::Copy => {
            tally.copies += 1;
            Event::Copy
        }
        Place::Restart => Event::Restart,
    };
    story.events.push(event);
}
