//! Connections by RDMA-CM: on a network in memory, perfect and bad, and between processes that
//! share the UDP port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hirail::cm::{
    self, Answer, BoundPort, CmError, Connect, Event, EventChannel, IpHeader, Listener, Manager,
    Options, PortSpace, Query, RejReason, ServiceId, ServiceStatus, State,
};
use hirail::config::Config;
use hirail::{
    Access, Context, Cq, Error, Faults, MemoryNetwork, Mr, QKey, Qp, QpState, QpType, Qpn, SendWr,
    WcStatus,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A queue pair and what it needs.
struct Side {
    cq: Cq,
    qp: Qp,
    mr: Mr,
}

fn side(context: &Context) -> Side {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let qp = pd.qp(&cq, &cq).max_inline_data(64).build().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.register(4096, access).unwrap();
    Side { cq, qp, mr }
}

fn pair(faults: Faults) -> (Context, Context) {
    let network = MemoryNetwork::new(faults);
    let open = |address: &str| network.open(address.parse().unwrap()).unwrap();
    (open("192.0.2.1"), open("192.0.2.2"))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::new("192.0.2.1".parse().unwrap(), port)
}

/// The server's half of a conversation: accepts one connection, says "welcome", answers one message
/// and waits for the end.
fn serve(context: &Context, listener: &Listener) {
    let Side { cq, qp, mr } = side(context);
    let request = listener.accept(PATIENCE).unwrap();
    assert!(request.private_data().starts_with(b"hello"));
    request.prepare(&qp).unwrap();
    qp.post_recv(1, &[mr.slice(..64)]).unwrap();
    qp.post_recv(2, &[mr.slice(64..128)]).unwrap();
    let options = Options::default().private_data(b"welcome");
    let connection = request.accept(&qp, &options, PATIENCE).unwrap();
    let received = cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
    assert_eq!(mr.to_vec(0, received.byte_len as usize), b"ping");
    qp.post(&SendWr::send(3, &[]).with_inline(b"pong")).unwrap();
    // The client may have ended it before its acknowledgement came.
    assert_eq!(cq.wait_polling(PATIENCE).unwrap().wr_id, 3);
    connection.wait_disconnected(PATIENCE).unwrap();
    // The second receive is flushed without anybody having asked.
    let flushed = cq.wait_polling(PATIENCE).unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (2, WcStatus::WrFlushErr));
}

/// The client's half.
fn talk(context: &Context, to: SocketAddr) {
    let Side { cq, qp, mr } = side(context);
    let options = Options::default().private_data(b"hello");
    let connection = cm::connect(&qp, to, &options, PATIENCE).unwrap();
    assert!(connection.private_data().starts_with(b"welcome"));
    assert_eq!(connection.peer(), to);
    qp.post_recv(1, &[mr.slice(..64)]).unwrap();
    qp.post_recv(2, &[mr.slice(64..128)]).unwrap();
    qp.post(&SendWr::send(3, &[]).with_inline(b"ping")).unwrap();
    let mut done = [0; 2].map(|_| cq.wait_polling(PATIENCE).unwrap().ok().unwrap().wr_id);
    done.sort_unstable();
    assert_eq!(done, [1, 3]);
    assert_eq!(mr.to_vec(0, 4), b"pong");
    connection.disconnect(PATIENCE).unwrap();
    assert_eq!(qp.state(), QpState::Err);
    let flushed = cq.wait_polling(PATIENCE).unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (2, WcStatus::WrFlushErr));
}

#[test]
fn connections_carry_data_both_ways() {
    let (server, client) = pair(Faults::default());
    let listener = Listener::bind(&server, address(18515)).unwrap();
    assert_eq!(listener.local_addr(), address(18515));
    thread::scope(|scope| {
        scope.spawn(|| serve(&server, &listener));
        talk(&client, address(18515));
    });
}

/// Messages come twice and late. (Losses cost seconds each, and are for the simulation.)
#[test]
fn on_a_bad_network() {
    let (server, client) = pair(Faults {
        seed: 7,
        duplication: 0.3,
        reordering: 0.3,
        delay: Duration::from_micros(50),
        ..Faults::default()
    });
    let listener = Listener::bind(&server, address(18515)).unwrap();
    for _ in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| serve(&server, &listener));
            talk(&client, address(18515));
        });
    }
}

#[test]
fn refusals_say_why() {
    let (server, client) = pair(Faults::default());
    let _manager = Manager::of(&server).unwrap();
    let refused = |port: u16| {
        let side = side(&client);
        cm::connect(&side.qp, address(port), &Options::default(), PATIENCE)
    };
    let Err(Error::Rejected { peer, reason, .. }) = refused(1) else {
        panic!("nobody listens")
    };
    assert_eq!((peer, reason), (address(1), RejReason::INVALID_SERVICE_ID));
    let listener = Listener::bind(&server, address(2)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            listener
                .accept(PATIENCE)
                .unwrap()
                .reject(b"not you")
                .unwrap()
        });
        let Err(error) = refused(2) else {
            panic!("refused")
        };
        let text = error.to_string();
        assert_eq!(text, "192.0.2.1:2 refuses the connection: consumer reject");
        let Error::Rejected { private_data, .. } = error else {
            panic!("{error}")
        };
        assert!(private_data.starts_with(b"not you\0"));
    });
    // Dropped without an answer.
    thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept(PATIENCE).unwrap()));
        assert!(matches!(refused(2), Err(Error::Rejected { .. })));
    });
    drop(listener);
    assert!(matches!(refused(2), Err(Error::Rejected { .. })), "no more");
    let long = Options::default().private_data(&[0; 57]);
    let too_long = cm::connect(&side(&client).qp, address(2), &long, PATIENCE);
    assert!(
        matches!(
            too_long,
            Err(Error::Cm(CmError::PrivateDataTooLong { most: 56, .. }))
        ),
        "{too_long:?}"
    );
}

/// A port belongs to one listener; a free one is found, and found free again.
#[test]
fn ports_are_given_out_once() {
    let (server, _) = pair(Faults::default());
    let any = "0.0.0.0:0".parse().unwrap();
    let listener = Listener::bind(&server, any).unwrap();
    let port = listener.local_addr().port();
    assert!((32768..61000).contains(&port), "{port}");
    for taken in [address(port), SocketAddr::new(any.ip(), port)] {
        let again = Listener::bind(&server, taken);
        assert!(matches!(again, Err(Error::AddressInUse { .. })), "{taken}");
    }
    // Another space has other ports.
    let manager = Manager::of(&server).unwrap();
    let udp = BoundPort::bind(&manager, PortSpace::Udp, address(port)).unwrap();
    assert_eq!(udp.service(), ServiceId::of_port(PortSpace::Udp, port));
    drop(listener);
    Listener::bind(&server, address(port)).unwrap();
    let elsewhere = Listener::bind(&server, "192.0.2.9:5".parse().unwrap());
    assert!(matches!(elsewhere, Err(Error::NoSuchAddress { .. })));
}

/// One thread, no waiting in calls, the steps of the queue pairs by hand: what a C library does.
#[test]
fn everything_by_hand() {
    let (server, client) = pair(Faults::default());
    let (managers, channel) = (
        [&server, &client].map(|it| Manager::of(it).unwrap()),
        EventChannel::new().unwrap(),
    );
    assert!(channel.fd().as_raw_fd() >= 0);
    let mut port = BoundPort::bind(&managers[0], PortSpace::Tcp, address(7)).unwrap();
    let listener = port.listen(4, &channel).unwrap();
    let sides = [side(&server), side(&client)];
    let mut path = managers[1].path_to(address(7).ip()).unwrap();
    path.traffic_class = 0x68;
    let request = Connect {
        addresses: Some(IpHeader {
            source_port: 99,
            source: path.local.to_ip(),
            dest: address(7).ip(),
        }),
        ..Connect::new(port.service(), path, sides[1].qp.qpn(), client.port_mtu())
    };
    let (attr, mask) = Manager::initial_attributes();
    sides[1].qp.modify(&attr, mask).unwrap();
    let active = managers[1].connect(&request, &channel).unwrap();
    managers[1].set_tag(active, 77);

    let heard = channel.wait(PATIENCE).unwrap();
    let Event::Request(heard) = heard.event else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (heard.listener, heard.path.traffic_class),
        (Some(listener), 0x68)
    );
    let passive = heard.id;
    let step = |index: usize, id, state| {
        let (attr, mask) = managers[index].attributes(id, state).unwrap();
        sides[index].qp.modify(&attr, mask).unwrap();
    };
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        step(0, passive, state);
    }
    let other = EventChannel::new().unwrap();
    managers[0].move_to(passive, &other);
    managers[0]
        .accept(passive, &cm::Accept::new(sides[0].qp.qpn()))
        .unwrap();
    let response = channel.wait(PATIENCE).unwrap();
    assert!(matches!(response.event, Event::Response(_)), "{response:?}");
    assert_eq!(response.manager.tag(response.event.id()), Some(77));
    for state in [QpState::Rtr, QpState::Rts] {
        step(1, active, state);
    }
    managers[1].confirm(active, &[]).unwrap();
    let established = other.wait(PATIENCE).unwrap();
    assert!(matches!(established.event, Event::Established { id, .. } if id == passive));
    assert_eq!(managers[0].state(passive), Some(State::Established));

    let (a, b) = (&sides[0], &sides[1]);
    a.qp.post_recv(1, &[a.mr.slice(..8)]).unwrap();
    b.qp.post(&SendWr::send(2, &[]).with_inline(b"data"))
        .unwrap();
    assert_eq!(
        a.cq.wait_polling(PATIENCE).unwrap().ok().unwrap().byte_len,
        4
    );

    managers[0].disconnect(passive, &[]).unwrap();
    assert_eq!(
        a.qp.state(),
        QpState::Rts,
        "not attached: the user's business"
    );
    let ended = channel.wait(PATIENCE).unwrap();
    assert_eq!(ended.event, Event::Disconnected { id: active });
    let ended = other.wait(PATIENCE).unwrap();
    assert_eq!(ended.event, Event::Disconnected { id: passive });
    for (manager, channel, id) in [
        (&managers[1], &channel, active),
        (&managers[0], &other, passive),
    ] {
        let exit = channel.wait(PATIENCE).unwrap();
        assert_eq!(exit.event, Event::TimewaitExit { id });
        assert_eq!((manager.state(id), manager.users()), (None, 0));
    }
    assert!(channel.try_event().unwrap().is_none());
}

/// The first data stands for an RTU: the RTU is kept back by not sending it.
#[test]
fn data_before_the_rtu() {
    let (server, client) = pair(Faults::default());
    let (managers, channel) = (
        [&server, &client].map(|it| Manager::of(it).unwrap()),
        EventChannel::new().unwrap(),
    );
    let mut port = BoundPort::bind(&managers[0], PortSpace::Ib, address(7)).unwrap();
    port.listen(1, &channel).unwrap();
    let sides = [side(&server), side(&client)];
    let path = managers[1].path_to(address(7).ip()).unwrap();
    let request = Connect {
        addresses: Some(IpHeader {
            source_port: 99,
            source: path.local.to_ip(),
            dest: address(7).ip(),
        }),
        ..Connect::new(port.service(), path, sides[1].qp.qpn(), client.port_mtu())
    };
    let active = managers[1].connect(&request, &channel).unwrap();
    let heard = channel.wait(PATIENCE).unwrap().event.id();
    let step = |index: usize, id| {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let (attr, mask) = managers[index].attributes(id, state).unwrap();
            sides[index].qp.modify(&attr, mask).unwrap();
        }
    };
    // In RTR when the data comes: that is what tells.
    for state in [QpState::Init, QpState::Rtr] {
        let (attr, mask) = managers[0].attributes(heard, state).unwrap();
        sides[0].qp.modify(&attr, mask).unwrap();
    }
    managers[0]
        .accept(heard, &cm::Accept::new(sides[0].qp.qpn()))
        .unwrap();
    channel.wait(PATIENCE).unwrap();
    step(1, active);
    sides[0].qp.post_recv(1, &[sides[0].mr.slice(..8)]).unwrap();
    let send = SendWr::send(2, &[]).with_inline(b"data");
    sides[1].qp.post(&send).unwrap();
    let told = channel.wait(PATIENCE).unwrap();
    assert!(
        matches!(told.event, Event::Established { id, .. } if id == heard),
        "{told:?}"
    );
}

#[test]
fn datagram_services_answer() {
    let (server, client) = pair(Faults::default());
    let (managers, channel) = (
        [&server, &client].map(|it| Manager::of(it).unwrap()),
        EventChannel::new().unwrap(),
    );
    let mut port = BoundPort::bind(&managers[0], PortSpace::Udp, address(9)).unwrap();
    port.listen(1, &channel).unwrap();
    let path = managers[1].path_to(address(9).ip()).unwrap();
    let query = Query {
        service: port.service(),
        path,
        addresses: Some(IpHeader {
            source_port: 1,
            source: path.local.to_ip(),
            dest: address(9).ip(),
        }),
        private_data: b"who",
    };
    let asked = managers[1].query(&query, &channel).unwrap();
    let heard = channel.wait(PATIENCE).unwrap();
    let Event::Question(question) = heard.event else {
        panic!("{heard:?}")
    };
    let answer = Answer {
        status: ServiceStatus::OK,
        qpn: Qpn::new(0x77),
        qkey: QKey(0x0123_4567),
        ece: None,
        private_data: b"me",
    };
    managers[0].answer(question.id, &answer).unwrap();
    let told = channel.wait(PATIENCE).unwrap();
    let Event::Reply(reply) = told.event else {
        panic!("{told:?}")
    };
    assert_eq!(
        (reply.id, reply.qpn, reply.qkey),
        (asked, answer.qpn, answer.qkey)
    );
    assert_eq!([managers[0].users(), managers[1].users()], [0, 0]);
}

/// Cycles leave no descriptor, no entry and no name behind.
#[test]
fn cycles_leave_nothing() {
    const CYCLES: usize = 300;
    let (server, client) = pair(Faults::default());
    let listener = Listener::bind(&server, address(3)).unwrap();
    // A queue pair is in one connection at a time, and for a while after it.
    let builder = |context: &Context| (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (pd, cq) = builder(&server);
            for _ in 0..CYCLES {
                let qp = pd.qp(&cq, &cq).build().unwrap();
                let request = listener.accept(PATIENCE).unwrap();
                let connection = request.accept(&qp, &Options::default(), PATIENCE).unwrap();
                connection.wait_disconnected(PATIENCE).unwrap();
            }
        });
        let (pd, cq) = builder(&client);
        let mut before = 0;
        for count in 0..CYCLES {
            let qp = pd.qp(&cq, &cq).build().unwrap();
            let connection = cm::connect(&qp, address(3), &Options::default(), PATIENCE).unwrap();
            connection.disconnect(PATIENCE).unwrap();
            if count == CYCLES / 2 {
                before = descriptors();
            }
        }
        // Other tests of this process come and go.
        let after = descriptors();
        assert!(
            after < before + CYCLES / 3,
            "{before} descriptors, then {after}"
        );
    });
    for context in [&server, &client] {
        let manager = Manager::of(context).unwrap();
        assert_eq!(manager.users(), 0);
        let end = std::time::Instant::now() + PATIENCE;
        while manager.sizes().entries > 0 && std::time::Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let sizes = manager.sizes();
        assert_eq!((sizes.entries, sizes.names), (0, 0));
    }
}

/// The variable by which a test starts itself as another process.
const ROLE: &str = "HIRAIL_TEST_CM_ROLE";

/// Loopback with a UDP port of our own.
fn loopback() -> Context {
    let mut config = Config::load().unwrap();
    config.port.udp_port = 47917;
    Context::open_with("hirail_lo", &config).unwrap()
}

/// A process that does `role` in this same test.
fn process(test: &str, role: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Several processes share the port: servers at different RDMA ports, clients that connect to all of
/// them, and one that has no connections at all. Every message finds its process.
#[test]
fn processes_share_the_port() {
    const TEST: &str = "processes_share_the_port";
    let ip = |index: u16| -> IpAddr {
        if index.is_multiple_of(2) {
            "127.0.0.1".parse().unwrap()
        } else {
            "::1".parse().unwrap()
        }
    };
    let port = |index: u16| SocketAddr::new(ip(index), 4000 + index);
    const SERVERS: u16 = 3;
    const CLIENTS: u16 = 3;
    match std::env::var(ROLE) {
        Err(_) => {
            let _idle = loopback();
            let mut children: Vec<_> = (0..SERVERS)
                .map(|index| process(TEST, &format!("server {index}")))
                .chain((0..CLIENTS).map(|_| process(TEST, "client")))
                .collect();
            for child in &mut children {
                assert!(child.wait().unwrap().success());
            }
        }
        Ok(role) => match role.split_once(' ') {
            Some((_, index)) => {
                let context = loopback();
                let listener = Listener::bind(&context, port(index.parse().unwrap())).unwrap();
                for _ in 0..CLIENTS {
                    serve(&context, &listener);
                }
                // Nobody else can have it.
                let again = Listener::bind(&context, listener.local_addr());
                assert!(matches!(again, Err(Error::AddressInUse { .. })));
            }
            None => {
                let context = loopback();
                for index in 0..SERVERS {
                    await_listener(&context, port(index));
                    talk(&context, port(index));
                }
            }
        },
    }
}

/// Waits until somebody listens: then the port is taken.
fn await_listener(context: &Context, address: SocketAddr) {
    let end = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < end {
        match Listener::bind(context, address) {
            Ok(listener) => drop(listener),
            Err(Error::AddressInUse { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody listens at {address}");
}

/// Where nobody listens the peer is refused, also when processes without a connection manager
/// read first.
#[test]
fn nobody_listens_among_processes() {
    const TEST: &str = "nobody_listens_among_processes";
    match std::env::var(ROLE) {
        Err(_) => {
            let _idle = loopback();
            let child = process(TEST, "client").wait().unwrap();
            assert!(child.success());
        }
        Ok(_) => {
            let context = loopback();
            let side = side(&context);
            let to = "127.0.0.1:3999".parse().unwrap();
            let refused = cm::connect(&side.qp, to, &Options::default(), PATIENCE);
            assert!(
                matches!(refused, Err(Error::Rejected { reason, .. })
                    if reason == RejReason::INVALID_SERVICE_ID),
                "{refused:?}"
            );
        }
    }
}

/// A process that exits ends its connections, and those of one that is killed are over when its peer
/// wants them to be: others that manage connections at the address say so.
#[test]
fn processes_that_end() {
    const TEST: &str = "processes_that_end";
    let address = |index: u16| SocketAddr::new("127.0.0.1".parse().unwrap(), 4100 + index);
    const ENDS: [&str; 2] = ["exit", "abort"];
    match std::env::var(ROLE) {
        Err(_) => {
            let context = loopback();
            for (index, end) in (0..).zip(ENDS) {
                let mut server = process(TEST, end);
                await_listener(&context, address(index));
                let side = side(&context);
                let options = Options::default();
                let connection = cm::connect(&side.qp, address(index), &options, PATIENCE).unwrap();
                side.qp
                    .post(&SendWr::send(1, &[]).with_inline(b"go"))
                    .unwrap();
                server.wait().unwrap();
                match end {
                    "exit" => connection.wait_disconnected(PATIENCE).unwrap(),
                    _ => connection.disconnect(PATIENCE).unwrap(),
                }
            }
        }
        Ok(role) => {
            let index = ENDS.iter().position(|end| *end == role).unwrap() as u16;
            let context = loopback();
            let listener = Listener::bind(&context, address(index)).unwrap();
            let Side { cq, qp, mr } = side(&context);
            let request = listener.accept(PATIENCE).unwrap();
            request.prepare(&qp).unwrap();
            qp.post_recv(1, &[mr.slice(..64)]).unwrap();
            let _connection = request.accept(&qp, &Options::default(), PATIENCE).unwrap();
            cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
            match role.as_str() {
                "exit" => std::process::exit(0),
                _ => std::process::abort(),
            }
        }
    }
}

/// UC works as well, and a queue pair of another kind is refused by itself.
#[test]
fn unreliable_connections() {
    let (server, client) = pair(Faults::default());
    let listener = Listener::bind(&server, address(5)).unwrap();
    let make = |context: &Context| {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4).unwrap();
        let qp = pd.qp(&cq, &cq).qp_type(QpType::Uc);
        qp.max_inline_data(8).build().unwrap()
    };
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let qp = make(&server);
            let request = listener.accept(PATIENCE).unwrap();
            request.accept(&qp, &Options::default(), PATIENCE).unwrap()
        });
        let qp = make(&client);
        let connection = cm::connect(&qp, address(5), &Options::default(), PATIENCE).unwrap();
        let served = serving.join().unwrap();
        assert_eq!(served.qp().state(), QpState::Rts);
        assert_eq!(connection.qp().state(), QpState::Rts);
    });
}
