//! Nodes, the network between them, the users on them, and the checks.

use std::collections::BTreeMap;

use hirail_cm::{
    Accept, Answer, Cm, CommId, Config, Connect, Event, IdRange, IpHeader, Listen, ListenerId,
    Meta, Path, PortSpace, Query, Question, RejReason, Reply, Request, Response, ServiceId,
    ServiceStatus, State, Transmit,
};
use hirail_rnic::qp::attr::QpAttr;
use hirail_rnic::{Instant, Span};
use hirail_vocab::QpState;
use hirail_wire::mad::Mad;
use hirail_wire::{Gid, PathMtu, QKey, Qpn};

use super::scenario::{AnswerPlan, Kind, Plan, Scenario};

/// Longer than every plan takes, however many messages were lost.
const LONGEST: Span = Span::from_ms(3_000_000);
/// Steps of a run that goes round in circles.
const MOST_STEPS: u32 = 200_000;
/// When a user finds out by itself that the other side is gone: its data was never acknowledged.
const DATA_FAILS: Span = Span::from_ms(400_000);
/// An answer is remembered for so long at least; nobody says how often a question comes again.
const ANSWERS_KEPT: Span = Span::from_ms(15_000);
/// Code of the lifetime of packets, and of the local ACK timeout that follows from it.
const LIFETIME: u8 = 16;

/// Ports: of all addresses, and of one address as well.
const PORTS: [u16; 2] = [1000, 1001];

enum Happening {
    Arrive {
        node: usize,
        meta: Meta,
        mad: Box<[u8; Mad::LEN]>,
    },
    Timer(usize),
    Start(usize, usize),
    Confirm(usize, usize),
    Answer(usize, usize, CommId),
    Disconnect(usize, usize),
    GiveUp(usize, usize),
    DataFails(usize, usize),
    Data(usize, usize),
    Forget(usize),
}

struct Node {
    cm: Cm,
    gid: Gid,
    listeners: BTreeMap<ListenerId, (PortSpace, usize, bool)>,
    alarm: Option<Instant>,
}

/// How one side of a plan ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum End {
    Rejected(RejReason),
    Unreachable,
    Disconnected,
    GaveUp,
    Forgotten,
    /// Of a datagram service.
    Replied(ServiceStatus),
}

#[derive(Default)]
struct Side {
    id: Option<CommId>,
    is_active: bool,
    started_at: Option<Instant>,
    accepted_at: Option<Instant>,
    responded: bool,
    established: bool,
    disconnected_at: Option<Instant>,
    end: Option<End>,
    ended_at: Option<Instant>,
    exited: bool,
    attributes: Option<[QpAttr; 2]>,
    requests: u32,
}

struct Course {
    plan: Plan,
    sides: [Side; 2],
    /// Something happened that no plan foresees.
    is_wild: bool,
}

pub(crate) struct World<F> {
    scenario: Scenario,
    nodes: Vec<Node>,
    courses: Vec<Course>,
    owners: BTreeMap<(usize, CommId), (usize, usize)>,
    queue: BTreeMap<(u128, u64), Happening>,
    sequence: u64,
    now: Instant,
    rng: fastrand::Rng,
    sent: u64,
    print: F,
}

type Check = Result<(), String>;

fn node_config(scenario: &Scenario, index: usize, life: u64) -> Config {
    let node = &scenario.nodes[index];
    Config {
        seed: u128::from(scenario.seed) << 64 | u128::from(life) << 8 | index as u128,
        ids: IdRange {
            first: (index as u32 + 1) << 22,
            bits: 22,
        },
        ca_guid: index as u64 + 1,
        port_mtu: node.mtu,
        max_responder_resources: node.limits[0],
        max_initiator_depth: node.limits[1],
        packet_lifetime: LIFETIME,
        response_timeout: node.response_timeout,
        max_cm_retries: node.max_retries,
        ..Config::default()
    }
}

fn open(scenario: &Scenario, index: usize, life: u64) -> Node {
    let mut cm = Cm::new(node_config(scenario, index, life));
    let ip: std::net::IpAddr = [192, 0, 2, index as u8 + 1].into();
    let mut listeners = BTreeMap::new();
    if !scenario.nodes[index].is_deaf {
        for space in [PortSpace::Tcp, PortSpace::Udp] {
            for (which, is_near) in [(0, false), (1, false), (1, true)] {
                let listen = Listen {
                    service: ServiceId::of_port(space, PORTS[which]),
                    address: is_near.then_some(ip),
                    backlog: scenario.backlog,
                };
                let id = cm.listen(listen).expect("free");
                listeners.insert(id, (space, which, is_near));
            }
        }
    }
    Node {
        cm,
        gid: Gid::from_ip(ip),
        listeners,
        alarm: None,
    }
}

fn code(code: u8) -> Span {
    Span::from_ns(4096 << code)
}

impl<F: FnMut(&str)> World<F> {
    pub(crate) fn new(scenario: Scenario, print: F) -> Self {
        let nodes = (0..scenario.nodes.len())
            .map(|index| open(&scenario, index, 0))
            .collect();
        let mut world = Self {
            nodes,
            courses: Vec::new(),
            owners: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            now: Instant::from_ns(1),
            rng: fastrand::Rng::with_seed(scenario.seed ^ 0x51_3141),
            sent: 0,
            print,
            scenario,
        };
        world.say(|world| format!("{:#?}", world.scenario));
        for plan in world.scenario.plans.clone() {
            world.plan(plan, false);
        }
        world
    }

    fn say(&mut self, line: impl FnOnce(&Self) -> String) {
        let line = format!("{:?} {}", self.now, line(self));
        (self.print)(&line);
    }

    fn plan(&mut self, plan: Plan, is_wild: bool) {
        let index = self.courses.len();
        let start = plan.start;
        let begin = Instant::from_ns(1) + start;
        self.at(begin, Happening::Start(index, 0));
        if plan.kind == Kind::Meeting {
            self.at(begin + plan.think[1], Happening::Start(index, 1));
        }
        if let Some((side, after)) = plan.gives_up {
            self.at(begin + after, Happening::GiveUp(index, side));
        }
        if let Some(after) = plan.forgets_after {
            self.at(begin + after, Happening::Forget(index));
        }
        let is_wild = is_wild || plan.gives_up.is_some();
        self.courses.push(Course {
            plan,
            sides: Default::default(),
            is_wild,
        });
    }

    /// Then, or now if that has passed.
    fn at(&mut self, at: Instant, happening: Happening) {
        let at = at.max(self.now);
        self.sequence += 1;
        self.queue.insert((at.as_ps(), self.sequence), happening);
    }

    /// So long from now.
    fn after(&mut self, span: Span, happening: Happening) {
        self.at(self.now + span, happening);
    }

    pub(crate) fn run(mut self) -> Result<u64, String> {
        let mut steps = 0;
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now = Instant::from_ps(at);
            steps += 1;
            if steps > MOST_STEPS || self.now.since(Instant::EPOCH) > LONGEST {
                return Err("it does not end".into());
            }
            self.happen(happening)?;
            for node in 0..self.nodes.len() {
                self.drain(node)?;
            }
        }
        for course in 0..self.courses.len() {
            self.check_course(course)
                .map_err(|what| format!("plan {course}: {what}"))?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let sizes = node.cm.sizes();
            let rest = [
                sizes.entries,
                sizes.names,
                sizes.timers,
                sizes.outgoing,
                sizes.events,
            ];
            if rest != [0; 5] {
                return Err(format!("node {index} keeps {sizes:?}"));
            }
        }
        Ok(self.sent)
    }

    fn happen(&mut self, happening: Happening) -> Check {
        match happening {
            Happening::Arrive { node, meta, mad } => {
                if !self.scenario.nodes[node].is_dead {
                    let name = Mad::parse(&*mad)
                        .ok()
                        .and_then(|mad| Some(mad.cm()?.name()));
                    self.say(|_| format!("node {node} hears {}", name.unwrap_or("?")));
                    self.nodes[node].cm.handle_mad(self.now, &meta, &*mad);
                }
            }
            Happening::Timer(node) => {
                self.nodes[node].alarm = None;
                self.nodes[node].cm.handle_timeout(self.now);
            }
            Happening::Start(course, side) => self.start(course, side),
            Happening::Confirm(course, side) => self.confirm(course, side)?,
            Happening::Answer(course, side, id) => self.answer(course, side, id)?,
            Happening::Disconnect(course, side) => self.disconnect(course, side),
            Happening::GiveUp(course, side) => self.give_up(course, side),
            Happening::Forget(course) => self.forget(course),
            Happening::DataFails(course, side) => {
                let it = &self.courses[course].sides[side];
                if it.end.is_none() && it.id.is_some() && (it.established || it.responded) {
                    let is_known = self.scenario.is_faultless() && !self.has_forgotten();
                    let is_over = self.courses[course].sides[1 - side].end.is_some();
                    if is_known && is_over && it.established {
                        return Err(format!(
                            "plan {course}: side {side} believes in a connection that the other does not have"
                        ));
                    }
                    self.disconnect(course, side);
                }
            }
            Happening::Data(course, side) => {
                let it = &self.courses[course].sides[side];
                let (node, qpn) = (
                    self.courses[course].plan.nodes[side],
                    self.courses[course].plan.qpns[side],
                );
                if let Some(id) = it.id
                    && self.nodes[node].cm.state(id) == Some(State::RepSent)
                {
                    self.nodes[node].cm.communication_established(Qpn::new(qpn));
                    if self.nodes[node].cm.state(id) != Some(State::Established) {
                        return Err(format!("plan {course}: data is no RTU"));
                    }
                }
            }
        }
        Ok(())
    }

    fn has_forgotten(&self) -> bool {
        self.courses
            .iter()
            .any(|it| it.plan.forgets_after.is_some())
    }

    fn start(&mut self, course: usize, side: usize) {
        let it = &self.courses[course];
        if it.sides[side].end.is_some() {
            return;
        }
        let plan = it.plan.clone();
        let (from, to) = (plan.nodes[side], plan.nodes[1 - side]);
        let (local, remote) = (self.nodes[from].gid, self.nodes[to].gid);
        let path = Path::new(local, 0, remote);
        let addresses = Some(IpHeader {
            source_port: 40000 + course as u16,
            source: local.to_ip(),
            dest: remote.to_ip(),
        });
        let cm = &mut self.nodes[from].cm;
        let port = PORTS[usize::from(plan.near)];
        let id = match plan.kind {
            Kind::Datagram => {
                let query = Query {
                    service: ServiceId::of_port(PortSpace::Udp, port),
                    path,
                    addresses,
                    private_data: &plan.private_data,
                };
                cm.query(self.now, &query)
            }
            Kind::Connection | Kind::Meeting => {
                let is_meeting = plan.kind == Kind::Meeting;
                let service = match is_meeting {
                    true => ServiceId::of_port(PortSpace::Tcp, 2000 + course as u16),
                    false => ServiceId::of_port(PortSpace::Tcp, port),
                };
                let request = Connect {
                    addresses,
                    responder_resources: plan.depths[side][0],
                    initiator_depth: plan.depths[side][1],
                    peer_to_peer: is_meeting,
                    private_data: &plan.private_data,
                    ..Connect::new(service, path, Qpn::new(plan.qpns[side]), mtu(&plan))
                };
                cm.connect(self.now, &request)
            }
        };
        let id = id.expect("there is room");
        let it = &mut self.courses[course].sides[side];
        it.id = Some(id);
        it.is_active = true;
        it.started_at = Some(self.now);
        self.owners.insert((from, id), (course, side));
        self.say(|_| format!("plan {course} starts at node {from}: {id}"));
    }

    fn confirm(&mut self, course: usize, side: usize) -> Check {
        let it = &mut self.courses[course];
        let Some(id) = it.sides[side].id else {
            return Ok(());
        };
        if it.sides[side].end.is_some() {
            return Ok(());
        }
        let node = it.plan.nodes[side];
        let confirmed = self.nodes[node].cm.confirm(id, &[]);
        confirmed.map_err(|error| format!("plan {course}: {error}"))?;
        self.establish(course, side);
        if self.courses[course].plan.sends_data {
            let delay = self.delay();
            self.after(delay, Happening::Data(course, 1 - side));
        }
        Ok(())
    }

    /// A side believes in the connection from now on.
    fn establish(&mut self, course: usize, side: usize) {
        let it = &mut self.courses[course];
        it.sides[side].established = true;
        if it.plan.ends.0 == side {
            let after = it.plan.ends.1;
            self.after(after, Happening::Disconnect(course, side));
        }
    }

    fn answer(&mut self, course: usize, side: usize, id: CommId) -> Check {
        let it = &self.courses[course];
        if it.sides[side].id != Some(id) || it.sides[side].end.is_some() {
            return Ok(());
        }
        let plan = it.plan.clone();
        let node = plan.nodes[side];
        let cm = &mut self.nodes[node].cm;
        let error = |error| format!("plan {course}: {error}");
        if plan.kind == Kind::Datagram {
            let answer = Answer {
                status: match plan.answer {
                    AnswerPlan::Accept => ServiceStatus::OK,
                    AnswerPlan::Reject => ServiceStatus::REJECTED,
                },
                qpn: Qpn::new(plan.qpns[1]),
                qkey: QKey(course as u32),
                ece: None,
                private_data: &plan.private_data[..plan.private_data.len().min(136)],
            };
            cm.answer(self.now, id, &answer).map_err(error)?;
            self.courses[course].sides[side].accepted_at = Some(self.now);
            self.courses[course].sides[side].end = Some(End::Replied(answer.status));
            return Ok(());
        }
        match plan.answer {
            AnswerPlan::Accept => {
                let accept = Accept {
                    responder_resources: plan.depths[side][0],
                    initiator_depth: plan.depths[side][1],
                    private_data: &plan.private_data,
                    ..Accept::new(Qpn::new(plan.qpns[side]))
                };
                cm.accept(self.now, id, &accept).map_err(error)?;
                let attributes = [QpState::Rtr, QpState::Rts]
                    .map(|state| cm.attributes(id, state).expect("the peer is known").0);
                let it = &mut self.courses[course].sides[side];
                it.accepted_at = Some(self.now);
                it.attributes = Some(attributes);
                if plan.ends_early {
                    self.disconnect(course, side);
                }
            }
            AnswerPlan::Reject => {
                cm.reject(self.now, id, RejReason::CONSUMER, &plan.private_data)
                    .map_err(error)?;
                let it = &mut self.courses[course].sides[side];
                it.end = Some(End::Rejected(RejReason::CONSUMER));
                it.ended_at = Some(self.now);
                self.owners.remove(&(node, id));
            }
        }
        Ok(())
    }

    fn disconnect(&mut self, course: usize, side: usize) {
        let it = &mut self.courses[course];
        let node = it.plan.nodes[side];
        if let (Some(id), None) = (it.sides[side].id, &it.sides[side].end)
            && self.nodes[node].cm.disconnect(self.now, id, &[]).is_ok()
        {
            it.sides[side].disconnected_at.get_or_insert(self.now);
        }
    }

    fn give_up(&mut self, course: usize, side: usize) {
        let it = &mut self.courses[course];
        let node = it.plan.nodes[side];
        if let Some(id) = it.sides[side].id
            && self.nodes[node].cm.destroy(self.now, id).is_ok()
        {
            it.sides[side].end.get_or_insert(End::GaveUp);
            it.sides[side].ended_at = Some(self.now);
            self.owners.remove(&(node, id));
            self.after(DATA_FAILS, Happening::DataFails(course, 1 - side));
        }
    }

    /// The active node starts anew.
    fn forget(&mut self, course: usize) {
        let node = self.courses[course].plan.nodes[0];
        self.say(|_| format!("node {node} forgets everything"));
        self.nodes[node] = open(&self.scenario, node, self.sequence);
        self.owners.retain(|(it, _), _| *it != node);
        for index in 0..self.courses.len() {
            for side in 0..2 {
                let it = &mut self.courses[index];
                if it.plan.nodes[side] == node {
                    it.is_wild = true;
                    it.sides[side].end.get_or_insert(End::Forgotten);
                    self.after(DATA_FAILS, Happening::DataFails(index, 1 - side));
                }
            }
        }
        let mut plan = self.courses[course].plan.clone();
        // Twice: the first one is told that the queue pair is in a connection.
        for delay in [Span::from_ms(1), Span::from_ms(4000)] {
            plan.start = (self.now + delay).since(Instant::from_ns(1));
            plan.forgets_after = None;
            let mut other = plan.clone();
            other.private_data = (0..20).map(|_| self.rng.u8(..)).collect();
            self.plan(other, true);
        }
    }

    fn delay(&mut self) -> Span {
        let [least, most] = self.scenario.delay;
        if self.now.since(Instant::from_ns(1)) > self.scenario.quiet_at {
            return least;
        }
        Span::from_ps(self.rng.u64(least.as_ps()..=most.as_ps()))
    }

    /// Sends what a node has to send, and tells its users what it has to tell.
    fn drain(&mut self, node: usize) -> Check {
        while let Some(transmit) = self.nodes[node].cm.poll_transmit() {
            self.carry(node, &transmit);
        }
        while let Some(event) = self.nodes[node].cm.poll_event() {
            self.say(|_| format!("node {node} tells {event:?}"));
            self.tell(node, event)?;
        }
        if let Some(at) = self.nodes[node].cm.poll_timer()
            && self.nodes[node].alarm.is_none_or(|alarm| at < alarm)
        {
            self.nodes[node].alarm = Some(at);
            self.at(at, Happening::Timer(node));
        }
        // What was told may have made more to send.
        if self.nodes[node].cm.sizes().outgoing > 0 {
            return self.drain(node);
        }
        Ok(())
    }

    fn carry(&mut self, from: usize, transmit: &Transmit) {
        self.sent += 1;
        let path = &transmit.path;
        let to = self.nodes.iter().position(|node| node.gid == path.remote);
        let Some(to) = to else { return };
        let is_quiet = self.now.since(Instant::from_ns(1)) > self.scenario.quiet_at;
        let is_lost = !is_quiet && self.rng.u32(0..1_000_000) < self.scenario.loss;
        if is_lost || self.scenario.nodes[from].is_dead {
            self.say(|_| "lost".into());
            return;
        }
        let is_twice = !is_quiet && self.rng.u32(0..1_000_000) < self.scenario.duplicate;
        for _ in 0..if is_twice { 2 } else { 1 } {
            let delay = self.delay();
            let meta = Meta {
                source: path.local,
                destination: path.remote,
                sgid_index: 0,
                traffic_class: path.traffic_class,
            };
            let mad = Box::new(transmit.mad);
            self.after(
                delay,
                Happening::Arrive {
                    node: to,
                    meta,
                    mad,
                },
            );
        }
    }

    fn tell(&mut self, node: usize, event: Event) -> Check {
        let id = event.id();
        let owner = match &event {
            Event::Request(request) if request.listener.is_some() => {
                Some(self.request(node, request)?)
            }
            Event::Question(question) => Some(self.question(node, question)?),
            _ => self.owners.get(&(node, id)).copied(),
        };
        let Some((course, side)) = owner else {
            return Err(format!("node {node} tells nobody of {event:?}"));
        };
        let it = &self.courses[course].sides[side];
        if it.exited || it.end.is_some() && !matches!(event, Event::TimewaitExit { .. }) {
            return Err(format!(
                "plan {course}: side {side} is told after its end: {event:?}"
            ));
        }
        let what = match event {
            Event::Request(request) => self.requested(course, side, &request),
            Event::Response(response) => self.responded(course, side, &response),
            Event::Established { .. } => self.established(course, side),
            Event::Rejected { reason, .. } => {
                self.owners.remove(&(node, id));
                self.ended(course, side, End::Rejected(reason))
            }
            Event::Unreachable { .. } => {
                self.owners.remove(&(node, id));
                self.unreachable(course, side)
            }
            Event::Disconnected { .. } => self.disconnected(course, side),
            Event::TimewaitExit { .. } => {
                self.owners.remove(&(node, id));
                let it = &mut self.courses[course].sides[side];
                it.exited = true;
                if it.end == Some(End::Disconnected) {
                    Ok(())
                } else {
                    Err("the end of what has not ended".into())
                }
            }
            Event::Question(_) => Ok(()),
            Event::Reply(reply) => {
                self.owners.remove(&(node, id));
                self.replied(course, side, &reply)
            }
        };
        what.map_err(|what| format!("plan {course}, side {side}: {what}"))
    }

    /// Whose private data this is.
    fn course_of(&self, node: usize, kind: Kind, data: &[u8]) -> Result<usize, String> {
        let found = self.courses.iter().position(|course| {
            let plan = &course.plan;
            plan.kind == kind && plan.nodes[1] == node && data[..8] == plan.private_data[..8]
        });
        found.ok_or_else(|| format!("node {node} hears private data of nobody"))
    }

    fn request(&mut self, node: usize, request: &Request) -> Result<(usize, usize), String> {
        let course = self.course_of(node, Kind::Connection, &request.private_data)?;
        let is_known = self.courses[course].sides[1].end.as_ref();
        let again = self.courses[course].sides[1].requests;
        // Answers are remembered for some repetitions of the request, not for all.
        let ended_at = self.courses[course].sides[1].ended_at;
        let kept = self.patience(self.courses[course].plan.nodes[0]).times(4);
        let is_forgotten = ended_at.is_some_and(|at| self.now.since(at) > kept)
            || self.courses[course].is_wild && self.has_forgotten();
        if again > 0
            && !is_forgotten
            && !matches!(is_known, Some(End::Unreachable | End::Forgotten))
        {
            return Err(format!("plan {course}: the request is told again"));
        }
        let plan = &self.courses[course].plan;
        let expected = (PortSpace::Tcp, usize::from(plan.near), plan.near);
        let heard = request
            .listener
            .map(|listener| self.nodes[node].listeners[&listener]);
        if heard != Some(expected) {
            return Err(format!("plan {course}: heard by {heard:?}"));
        }
        let (nodes, qpn) = (plan.nodes, plan.qpns[0]);
        for (index, other) in self.courses.iter().enumerate() {
            let believes = other.sides[1].established && other.sides[1].end.is_none();
            let is_same = other.plan.nodes == nodes && other.plan.qpns[0] == qpn;
            if index != course && believes && is_same {
                return Err(format!(
                    "plan {course}: its queue pair is still in the connection of plan {index}"
                ));
            }
        }
        let side = &mut self.courses[course].sides[1];
        *side = Side {
            id: Some(request.id),
            requests: side.requests + 1,
            ..Side::default()
        };
        self.owners.insert((node, request.id), (course, 1));
        Ok((course, 1))
    }

    /// What the peer says is what its user has said.
    fn requested(&mut self, course: usize, side: usize, request: &Request) -> Check {
        let node = self.courses[course].plan.nodes[side];
        let it = &mut self.courses[course];
        let plan = &it.plan;
        if request.listener.is_none() {
            if plan.kind != Kind::Meeting {
                return Err("nobody heard it".into());
            }
            it.sides[side].is_active = false;
        }
        let mut expected = plan.private_data.clone();
        expected.resize(56, 0);
        if request.private_data != expected {
            return Err("the private data has changed".into());
        }
        let (asker, asked) = (
            &self.scenario.nodes[plan.nodes[1 - side]].limits,
            &self.scenario.nodes[node].limits,
        );
        let depths = &plan.depths[1 - side];
        let open = depths[1].min(asker[1]).min(asked[0]);
        let serve = depths[0].min(asker[0]).min(asked[1]);
        let told = [request.responder_resources, request.initiator_depth];
        if told != [open, serve] {
            return Err(format!("depths {told:?} instead of {:?}", [open, serve]));
        }
        let think = plan.think[1];
        self.after(think, Happening::Answer(course, side, request.id));
        Ok(())
    }

    fn responded(&mut self, course: usize, side: usize, response: &Response) -> Check {
        let it = &mut self.courses[course];
        let node = it.plan.nodes[side];
        if it.sides[side].responded {
            return Err("told twice that the peer accepts".into());
        }
        it.sides[side].responded = true;
        let cm = &self.nodes[node].cm;
        let [rtr, rts] = [QpState::Rtr, QpState::Rts].map(|state| {
            cm.attributes(response.id, state)
                .expect("the peer is known")
                .0
        });
        let Some([their_rtr, their_rts]) = &it.sides[1 - side].attributes else {
            return Err("the peer has not accepted".into());
        };
        if (rtr.rq_psn, rts.sq_psn) != (their_rts.sq_psn, their_rtr.rq_psn) {
            return Err("sequence numbers do not fit".into());
        }
        if rts.sq_psn != response.psn {
            return Err("this side does not start where the peer expects".into());
        }
        if rts.max_rd_atomic > their_rtr.max_dest_rd_atomic
            || their_rts.max_rd_atomic > rtr.max_dest_rd_atomic
        {
            return Err("one side opens more READs than the other serves".into());
        }
        if rtr.path_mtu != their_rtr.path_mtu || rtr.dest_qpn.value() != it.plan.qpns[1 - side] {
            return Err("the two ends do not fit".into());
        }
        if response.private_data[..it.plan.private_data.len()] != it.plan.private_data {
            return Err("the private data has changed".into());
        }
        let think = it.plan.think[0];
        self.after(think, Happening::Confirm(course, side));
        Ok(())
    }

    fn established(&mut self, course: usize, side: usize) -> Check {
        let it = &self.courses[course];
        if it.sides[side].established {
            return Err("told twice that the connection stands".into());
        }
        let other = &it.sides[1 - side];
        if it.sides[side].accepted_at.is_none() || !other.established {
            return Err("told of a connection that the peer does not have".into());
        }
        self.establish(course, side);
        Ok(())
    }

    /// One try after the other, each with the patience that was agreed.
    fn all_tries(&self, course: usize) -> Span {
        let asker = match self.courses[course].sides[1].is_active {
            // Of two that meet, the one that stays active has said it.
            true => self.courses[course].plan.nodes[1],
            false => self.courses[course].plan.nodes[0],
        };
        let node = &self.scenario.nodes[asker];
        self.patience(asker).times(u64::from(node.max_retries) + 1)
    }

    fn patience(&self, node: usize) -> Span {
        let response = code(self.scenario.nodes[node].response_timeout);
        Span::from_ps(2 * code(LIFETIME).as_ps() + response.as_ps())
    }

    fn unreachable(&mut self, course: usize, side: usize) -> Check {
        let it = &self.courses[course].sides[side];
        let since = it.accepted_at.or(it.started_at);
        let waited = since.map_or(Span::ZERO, |since| self.now.since(since));
        let least = self.all_tries(course);
        if waited < least && self.courses[course].plan.kind != Kind::Meeting {
            return Err(format!("gave up after {waited:?} instead of {least:?}"));
        }
        // The active side stood all the while, and some of these tries came through.
        let other = &self.courses[course].sides[1 - side];
        let quiet = Instant::from_ns(1) + self.scenario.quiet_at;
        let calm = self.now.since(quiet.max(since.unwrap_or(quiet)));
        let was_heard = it.accepted_at.is_some() && other.established && other.end.is_none();
        let patience = self.patience(self.courses[course].plan.nodes[0]);
        // Who was asked for time may have had no try left after it.
        let was_asked = self.courses[course].plan.think[0] > patience;
        if was_heard && !was_asked && calm > patience.times(3) {
            return Err("its acceptance was never answered".into());
        }
        self.ended(course, side, End::Unreachable)
    }

    fn disconnected(&mut self, course: usize, side: usize) -> Check {
        let it = &self.courses[course];
        let node = it.plan.nodes[0];
        if let Some(called) = it.sides[side].disconnected_at {
            let waited = self.now.since(called);
            let peer_knows = it.sides[1 - side].end.is_some();
            // The tries of the end are those that the beginning agreed on.
            let all_tries = self.all_tries(course);
            if it.sides[side].established
                && !peer_knows
                && waited < all_tries
                && it.plan.kind != Kind::Meeting
            {
                return Err("has ended, and the peer does not know".into());
            }
            let quiet = Instant::from_ns(1) + self.scenario.quiet_at;
            let in_time = called.max(quiet) + self.patience(node) + Span::from_ms(1000);
            let is_there = !self.scenario.nodes[it.plan.nodes[1 - side]].is_dead;
            let is_tame = !it.is_wild && it.plan.kind != Kind::Meeting;
            if is_there && is_tame && self.now > in_time && waited < all_tries {
                return Err("the end takes too long".into());
            }
            if is_there && is_tame && waited >= all_tries && self.scenario.is_faultless() {
                return Err("the end was never answered".into());
            }
            let answered_late = waited >= all_tries && called >= quiet;
            if is_there && is_tame && answered_late {
                return Err("the end was never answered".into());
            }
        }
        self.ended(course, side, End::Disconnected)
    }

    fn ended(&mut self, course: usize, side: usize, end: End) -> Check {
        let it = &mut self.courses[course].sides[side];
        it.end = Some(end);
        it.ended_at = Some(self.now);
        self.after(DATA_FAILS, Happening::DataFails(course, 1 - side));
        Ok(())
    }

    fn question(&mut self, node: usize, question: &Question) -> Result<(usize, usize), String> {
        let course = self.course_of(node, Kind::Datagram, &question.private_data)?;
        let it = &self.courses[course];
        let mut expected = it.plan.private_data.clone();
        expected.resize(180, 0);
        if question.private_data != expected {
            return Err(format!("plan {course}: the private data has changed"));
        }
        let answered = it.sides[1].accepted_at;
        let is_forgotten = answered.is_some_and(|at| self.now.since(at) > ANSWERS_KEPT);
        let is_new = it.is_wild && self.has_forgotten();
        if it.sides[1].requests > 0 && !is_forgotten && !is_new {
            return Err(format!("plan {course}: the question is told again"));
        }
        let side = &mut self.courses[course].sides[1];
        *side = Side {
            id: Some(question.id),
            requests: side.requests + 1,
            ..Side::default()
        };
        self.owners.insert((node, question.id), (course, 1));
        // Nobody asks for time: the answer must come while the question is asked.
        let think = self.courses[course].plan.think[1].min(Span::from_ms(1000));
        self.after(think, Happening::Answer(course, 1, question.id));
        Ok((course, 1))
    }

    fn replied(&mut self, course: usize, side: usize, reply: &Reply) -> Check {
        let plan = &self.courses[course].plan;
        if reply.status == ServiceStatus::OK {
            let length = plan.private_data.len().min(136);
            let is_right = reply.private_data[..length] == plan.private_data[..length]
                && reply.qpn == Qpn::new(plan.qpns[1])
                && reply.qkey == QKey(course as u32);
            if !is_right {
                return Err("the answer has changed".into());
            }
        }
        self.ended(course, side, End::Replied(reply.status))
    }

    /// How a plan should have ended, and did.
    fn check_course(&self, index: usize) -> Check {
        let course = &self.courses[index];
        let plan = &course.plan;
        let [active, passive] = &course.sides;
        let ends = [&active.end, &passive.end];
        if active.id.is_some() && active.end.is_none() {
            return Err("the active side has not ended".into());
        }
        if passive.id.is_some() && passive.end.is_none() {
            return Err("the passive side has not ended".into());
        }
        for side in [active, passive] {
            if side.end == Some(End::Disconnected) && !side.exited && !course.is_wild {
                return Err("is remembered for ever".into());
            }
        }
        if !self.scenario.is_faultless() || course.is_wild {
            return Ok(());
        }
        let nodes = plan.nodes.map(|node| &self.scenario.nodes[node]);
        let is_dead = nodes[0].is_dead || nodes[1].is_dead;
        let expected = match plan.kind {
            _ if is_dead => Some(End::Unreachable),
            Kind::Datagram if nodes[1].is_deaf => Some(End::Replied(ServiceStatus::UNSUPPORTED)),
            Kind::Datagram if plan.answer == AnswerPlan::Accept => {
                Some(End::Replied(ServiceStatus::OK))
            }
            Kind::Datagram => Some(End::Replied(ServiceStatus::REJECTED)),
            Kind::Meeting => None,
            Kind::Connection if mtu(plan) > nodes[1].mtu => {
                Some(End::Rejected(RejReason::INVALID_MTU))
            }
            Kind::Connection if nodes[1].is_deaf => {
                Some(End::Rejected(RejReason::INVALID_SERVICE_ID))
            }
            Kind::Connection if plan.answer == AnswerPlan::Reject => {
                Some(End::Rejected(RejReason::CONSUMER))
            }
            Kind::Connection => None,
        };
        if let Some(expected) = expected {
            let got = active.end.as_ref();
            return match got == Some(&expected) {
                true => Ok(()),
                false => Err(format!("ended with {got:?} instead of {expected:?}")),
            };
        }
        if plan.ends_early || plan.answer == AnswerPlan::Reject {
            return Ok(());
        }
        // Somebody may have given up before the other one came to connecting.
        let came_late = plan.kind == Kind::Meeting && plan.think[1] > Span::from_ms(2000);
        // The end may overtake the last word of the beginning.
        let may_overtake = plan.ends.1 < self.scenario.delay[1];
        let stood = [active, passive]
            .iter()
            .all(|it| it.established || may_overtake);
        let ended = ends == [&Some(End::Disconnected), &Some(End::Disconnected)];
        if !(came_late || stood && ended) {
            return Err(format!("established: {stood}; ended with {ends:?}"));
        }
        Ok(())
    }
}

/// Of two that meet either may become the passive one, so the MTU must fit both.
fn mtu(plan: &Plan) -> PathMtu {
    match plan.kind {
        Kind::Meeting => PathMtu::Mtu1024,
        _ => plan.mtu,
    }
}
