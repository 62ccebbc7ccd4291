//! Two connection managers and what is under way between them.

use hirail_cm::{
    Accept, Cm, CommId, Config, Connect, Event, IdRange, IpHeader, Listen, Meta, Path, PortSpace,
    Request, Response, ServiceId, Transmit,
};
use hirail_rnic::{Instant, Span};
use hirail_wire::cm::Message;
use hirail_wire::mad::Mad;
use hirail_wire::{Gid, PathMtu, Qpn};

/// The service of the tests: TCP port 18515.
pub(crate) const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 18515);

/// A node with its connection manager.
pub(crate) struct Node {
    pub(crate) cm: Cm,
    pub(crate) gid: Gid,
}

impl Node {
    /// Node `number`; its GUID is that number.
    pub(crate) fn new(number: u8) -> Self {
        Self::with(number, |config| config)
    }

    pub(crate) fn with(number: u8, change: impl Fn(Config) -> Config) -> Self {
        let config = Config {
            seed: u128::from(number) << 64 | 0x5eed,
            ids: IdRange {
                first: u32::from(number) << 22,
                bits: 22,
            },
            ca_guid: number.into(),
            port_mtu: PathMtu::Mtu4096,
            ..Config::default()
        };
        let ip: std::net::IpAddr = [192, 0, 2, number].into();
        Self {
            cm: Cm::new(change(config)),
            gid: Gid::from_ip(ip),
        }
    }

    /// What it sends now.
    pub(crate) fn sends(&mut self) -> Vec<Transmit> {
        core::iter::from_fn(|| self.cm.poll_transmit()).collect()
    }

    /// What it tells its user now.
    pub(crate) fn tells(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.cm.poll_event()).collect()
    }
}

/// The active and the passive side, and a clock.
pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::of(Node::new(1), Node::new(2))
    }

    /// With a listener at the second one.
    pub(crate) fn listening() -> Self {
        let mut pair = Self::new();
        pair.b.cm.listen(anybody()).unwrap();
        pair
    }

    pub(crate) fn of(a: Node, b: Node) -> Self {
        let now = Instant::from_ns(1_000_000);
        Self { a, b, now }
    }

    /// The request of the tests: queue pair 0x11 at node 1.
    pub(crate) fn request(&self) -> Connect<'static> {
        let (source, dest) = (self.a.gid.to_ip(), self.b.gid.to_ip());
        Connect {
            addresses: Some(IpHeader {
                source_port: 40000,
                source,
                dest,
            }),
            private_data: b"hello",
            ..Connect::new(
                SERVICE,
                Path::new(self.a.gid, 3, self.b.gid),
                Qpn::new(0x11),
                PathMtu::Mtu1024,
            )
        }
    }

    /// Starts the usual connection.
    pub(crate) fn connect(&mut self) -> CommId {
        let request = self.request();
        self.a.cm.connect(self.now, &request).unwrap()
    }

    /// Gives messages of the first one to the second one.
    pub(crate) fn give_b(&mut self, messages: &[Transmit]) {
        deliver(&mut self.b.cm, self.now, messages);
    }

    /// Gives messages of the second one to the first one.
    pub(crate) fn give_a(&mut self, messages: &[Transmit]) {
        deliver(&mut self.a.cm, self.now, messages);
    }

    /// Delivers everything until nothing is under way; the names of the messages in order, `>` for
    /// those of the first one.
    pub(crate) fn exchange(&mut self) -> Vec<String> {
        let mut log = Vec::new();
        loop {
            let (there, back) = (self.a.sends(), self.b.sends());
            if there.is_empty() && back.is_empty() {
                return log;
            }
            log.extend(names(&there).iter().map(|name| format!("> {name}")));
            log.extend(names(&back).iter().map(|name| format!("< {name}")));
            self.give_b(&there);
            self.give_a(&back);
        }
    }

    /// The usual connection up to the request; the ids of both sides.
    pub(crate) fn requested(&mut self) -> (CommId, Request) {
        let id = self.connect();
        assert_eq!(self.exchange(), ["> REQ"]);
        (id, self.heard())
    }

    /// The request that the second one has told of.
    pub(crate) fn heard(&mut self) -> Request {
        match &self.b.tells()[..] {
            [Event::Request(request)] => (**request).clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The response that the first one has told of.
    pub(crate) fn responded(&mut self) -> Response {
        match &self.a.tells()[..] {
            [Event::Response(response)] => (**response).clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The second one accepts with queue pair 0x22.
    pub(crate) fn accept(&mut self, id: CommId) {
        let accept = Accept {
            private_data: b"welcome",
            ..Accept::new(Qpn::new(0x22))
        };
        self.b.cm.accept(self.now, id, &accept).unwrap();
    }

    /// The usual connection, established; the ids of both sides.
    pub(crate) fn established(&mut self) -> (CommId, CommId) {
        let (a, request) = self.requested();
        self.accept(request.id);
        assert_eq!(self.exchange(), ["< REP"]);
        self.responded();
        self.a.cm.confirm(a, &[]).unwrap();
        assert_eq!(self.exchange(), ["> RTU"]);
        let told = self.b.tells();
        assert!(matches!(told[..], [Event::Established { .. }]), "{told:?}");
        (a, request.id)
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, span: Span) {
        self.now += span;
        self.a.cm.handle_timeout(self.now);
        self.b.cm.handle_timeout(self.now);
    }

    /// Until the next deadline of either; false where there is none.
    pub(crate) fn wait_for_timer(&mut self) -> bool {
        let timers = [self.a.cm.poll_timer(), self.b.cm.poll_timer()];
        let Some(next) = timers.into_iter().flatten().min() else {
            return false;
        };
        let span = next.since(self.now);
        self.wait(span);
        true
    }

    /// Nothing is left anywhere once everything has run out.
    pub(crate) fn is_forgotten(&mut self) {
        while self.wait_for_timer() {
            self.exchange();
        }
        self.a.tells();
        self.b.tells();
        for node in [&self.a, &self.b] {
            let sizes = node.cm.sizes();
            let rest = [sizes.entries, sizes.names, sizes.timers];
            assert_eq!(rest, [0; 3], "{sizes:?}");
        }
    }
}

/// A listener at all addresses.
pub(crate) fn anybody() -> Listen {
    Listen {
        service: SERVICE,
        address: None,
        backlog: 16,
    }
}

pub(crate) fn deliver(cm: &mut Cm, now: Instant, messages: &[Transmit]) {
    for message in messages {
        let meta = Meta {
            source: message.path.local,
            destination: message.path.remote,
            sgid_index: 5,
            traffic_class: message.path.traffic_class | 2,
        };
        cm.handle_mad(now, &meta, &message.mad);
    }
}

pub(crate) fn read(message: &Transmit) -> Message<'_> {
    let mad = Mad::parse(&message.mad).expect("a MAD");
    mad.cm().expect("a CM message")
}

pub(crate) fn names(messages: &[Transmit]) -> Vec<&'static str> {
    messages.iter().map(|it| read(it).name()).collect()
}

/// 4.096 µs · 2^code.
pub(crate) fn code(code: u8) -> Span {
    Span::from_ns(4096 << code)
}
