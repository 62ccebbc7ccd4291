//! Async verbs over the network in memory: many tasks, cancellation, and ends of all kinds.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hirail::future::{AsyncCq, AsyncEvents, AsyncQp, Dispatcher};
use hirail::{
    Access, AsyncEvent, ConnectOptions, Context, Destination, Error, Faults, MemoryNetwork, Mr, Pd,
    QKey, QpType, SendWr, WcStatus,
};
use tokio::time::timeout;

const ALL: Access = Access::all().difference(Access::ZERO_BASED);
const PATIENCE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(20);

/// One end of a connection.
struct End {
    context: Context,
    pd: Pd,
    dispatcher: Dispatcher,
    qp: AsyncQp,
    mr: Mr,
}

impl End {
    fn new(network: &MemoryNetwork, number: u8) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
        let context = network.open(address).unwrap();
        let pd = context.alloc_pd().unwrap();
        let dispatcher = Dispatcher::new(&context).unwrap();
        let qp = AsyncQp::build(&dispatcher, &pd, |qp| {
            qp.max_send_wr(8).max_recv_wr(16).max_inline_data(16)
        })
        .unwrap();
        let mr = pd.register(1 << 16, ALL).unwrap();
        Self {
            context,
            pd,
            dispatcher,
            qp,
            mr,
        }
    }
}

fn connect(a: (&Context, &AsyncQp), b: (&Context, &AsyncQp)) {
    for (from, to) in [(a, b), (b, a)] {
        let options = ConnectOptions::new(from.0, 0);
        let remote = to.1.qp().endpoint(0).unwrap();
        from.1.qp().connect(&remote, &options).unwrap();
    }
}

fn pair_with(faults: Faults) -> (End, End) {
    let network = MemoryNetwork::new(faults);
    let (a, b) = (End::new(&network, 1), End::new(&network, 2));
    connect((&a.context, &a.qp), (&b.context, &b.qp));
    (a, b)
}

fn pair() -> (End, End) {
    pair_with(Faults::default())
}

#[tokio::test]
async fn every_helper() {
    let (a, b) = pair();
    let remote = b.mr.remote();
    a.mr.write(0, b"a message");
    a.qp.write(&[a.mr.slice(..9)], remote).await.unwrap();
    assert_eq!(b.mr.to_vec(0, 9), b"a message");
    a.qp.read(&[a.mr.slice(100..109)], remote).await.unwrap();
    assert_eq!(a.mr.to_vec(100, 9), b"a message");
    b.mr.store_u64(64, 1);
    let (before, word) = (a.mr.slice(8..16), remote.offset(64));
    a.qp.fetch_add(before, word, 41).await.unwrap();
    assert_eq!((a.mr.load_u64(8), b.mr.load_u64(64)), (1, 42));
    a.qp.compare_swap(before, word, 42, 7).await.unwrap();
    assert_eq!((a.mr.load_u64(8), b.mr.load_u64(64)), (42, 7));
    b.qp.post_recv(5, &[b.mr.slice(200..300)]).unwrap();
    let message = [a.mr.slice(..9)];
    let (sent, received) = tokio::join!(a.qp.send(&message), b.qp.recv());
    assert_eq!(sent.unwrap().status, WcStatus::Success);
    let received = received.unwrap();
    assert_eq!((received.wr_id, received.byte_len), (5, 9));
    b.qp.post_recv(6, &[]).unwrap();
    let wr = SendWr::write(9, &[], remote).with_inline(b"x");
    let sent = a.qp.post(&wr.with_imm(*b"imm!").unsignaled()).await;
    assert_eq!(sent.unwrap().wr_id, 9);
    assert_eq!(b.qp.recv().await.unwrap().imm(), Some(*b"imm!"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn more_tasks_than_the_queue_has_room_for() {
    const TASKS: usize = 200;
    let faults = Faults {
        seed: 1,
        loss: 0.01,
        ..Faults::default()
    };
    let (a, b) = pair_with(faults);
    let remote = b.mr.remote();
    let a = Arc::new(a);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let a = Arc::clone(&a);
            tokio::spawn(async move {
                let at = number * 8;
                a.mr.store_u64(at, number as u64 + 1);
                let to = remote.offset(at as u64);
                a.qp.write(&[a.mr.slice(at..at + 8)], to).await.unwrap();
                let back = [a.mr.slice(8192 + at..8192 + at + 8)];
                a.qp.read(&back, to).await.unwrap();
                assert_eq!(a.mr.load_u64(8192 + at), number as u64 + 1);
            })
        })
        .collect();
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    for number in 0..TASKS {
        assert_eq!(b.mr.load_u64(number * 8), number as u64 + 1);
    }
}

#[tokio::test]
async fn a_dropped_request_is_nobody_elses() {
    let (a, b) = pair();
    let remote = b.mr.remote();
    for round in 0..100u64 {
        a.mr.store_u64(0, round);
        let from = [a.mr.slice(..8)];
        // Posted, and not waited for; or not even posted.
        let forgotten = timeout(Duration::ZERO, a.qp.write(&from, remote)).await;
        drop(forgotten);
        drop(a.qp.write(&from, remote));
        // The next one gets its own completion.
        let before = a.mr.slice(8..16);
        let wc = a.qp.fetch_add(before, remote.offset(8), 1).await.unwrap();
        assert_eq!(wc.opcode, hirail::WcOpcode::FetchAdd);
        assert_eq!(a.mr.load_u64(8), round);
    }
}

#[tokio::test]
async fn no_message_is_lost_with_a_dropped_receiver() {
    let (a, b) = pair();
    for round in 0..100u64 {
        b.qp.post_recv(round, &[]).unwrap();
        // Gives up at any moment, mostly before the message.
        let early = timeout(Duration::from_micros(round * 3), b.qp.recv()).await;
        a.qp.send(&[]).await.unwrap();
        let wc = match early {
            Ok(wc) => wc,
            Err(_) => timeout(PATIENCE, b.qp.recv()).await.unwrap(),
        };
        assert_eq!(wc.unwrap().wr_id, round);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn receivers_get_one_message_each() {
    const TASKS: u64 = 16;
    let (a, b) = pair();
    let b = Arc::new(b);
    for _ in 0..10 {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let b = Arc::clone(&b);
                tokio::spawn(async move { b.qp.recv().await.unwrap().wr_id })
            })
            .collect();
        for wr_id in 0..TASKS {
            b.qp.post_recv(wr_id, &[]).unwrap();
        }
        let full = b.qp.post_recv(TASKS, &[]).unwrap_err();
        assert!(full.to_string().ends_with("is full"), "{full}");
        for _ in 0..TASKS {
            a.qp.send(&[]).await.unwrap();
        }
        let mut got = Vec::new();
        for task in tasks {
            got.push(timeout(PATIENCE, task).await.unwrap().unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, (0..TASKS).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn failures_are_errors_of_their_requests() {
    let (a, b) = pair();
    let beyond = b.mr.remote().offset(b.mr.len() as u64);
    let from = [a.mr.slice(..8)];
    let (bad, flushed) = tokio::join!(a.qp.write(&from, beyond), a.qp.send(&from));
    let status = |result: Result<hirail::Wc, Error>| match result.unwrap_err() {
        Error::Failed { status, .. } => status,
        other => panic!("{other}"),
    };
    assert_eq!(status(bad), WcStatus::RemAccessErr);
    assert_eq!(status(flushed), WcStatus::WrFlushErr);
    b.qp.post_recv(1, &[]).unwrap();
    assert_eq!(status(b.qp.recv().await), WcStatus::WrFlushErr);
    // What cannot be posted fails too, and leaves its room to others.
    a.qp.qp().reset().unwrap();
    for _ in 0..20 {
        let refused = a.qp.send(&from).await.unwrap_err();
        assert!(matches!(refused, Error::Verb(_)), "{refused}");
    }
}

#[tokio::test]
async fn qps_of_a_dispatcher_come_and_go() {
    let (a, b) = pair();
    for round in 0..50u64 {
        let own = AsyncQp::build(&a.dispatcher, &a.pd, |qp| qp.max_inline_data(8)).unwrap();
        let other = AsyncQp::build(&b.dispatcher, &b.pd, |qp| qp).unwrap();
        connect((&a.context, &own), (&b.context, &other));
        for _ in 0..4 {
            let before = a.mr.slice(..8);
            own.fetch_add(before, b.mr.remote(), 1).await.unwrap();
        }
        // Goes with a request under way.
        let from = [a.mr.slice(8..16)];
        let write = own.write(&from, b.mr.remote().offset(8));
        drop(timeout(Duration::ZERO, write).await);
        assert_eq!(b.mr.load_u64(0), (round + 1) * 4);
    }
    a.qp.write(&[a.mr.slice(..8)], b.mr.remote()).await.unwrap();
}

#[tokio::test]
async fn completions_one_after_another() {
    let network = MemoryNetwork::new(Faults::default());
    let context = network.open("192.0.2.1".parse().unwrap()).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = Arc::new(AsyncCq::new(&context, 256).unwrap());
    let builder = pd.qp(cq.cq(), cq.cq()).qp_type(QpType::Ud);
    let qp = builder.build().unwrap();
    qp.activate_datagram(QKey(1)).unwrap();
    let to = Destination::unicast(&qp.endpoint(0).unwrap(), QKey(1));
    assert!(timeout(MOMENT, cq.next()).await.is_err());
    for wr_id in 0..3 {
        qp.post(&SendWr::send(wr_id, &[]).to(to)).unwrap();
    }
    for wr_id in 0..3 {
        let wc = timeout(PATIENCE, cq.next()).await.unwrap().unwrap();
        assert_eq!(wc.wr_id, wr_id);
    }
    // Many tasks wait, some give up; all completions are seen, once.
    for round in 0..20u64 {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let cq = Arc::clone(&cq);
                tokio::spawn(async move { cq.next().await.unwrap().wr_id })
            })
            .collect();
        let fickle = tokio::spawn({
            let cq = Arc::clone(&cq);
            async move { timeout(Duration::from_micros(50 * round), cq.next()).await }
        });
        let wrs = (0..9).map(|wr_id| SendWr::send(wr_id, &[]).to(to));
        qp.post_all(wrs).unwrap();
        let mut got = Vec::new();
        for task in tasks {
            got.push(timeout(PATIENCE, task).await.unwrap().unwrap());
        }
        if let Ok(wc) = fickle.await.unwrap() {
            got.push(wc.unwrap().wr_id);
        } else {
            got.push(cq.next().await.unwrap().wr_id);
        }
        got.sort_unstable();
        assert_eq!(got, (0..9).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn events() {
    let (a, b) = pair();
    let events = Arc::new(AsyncEvents::new(&b.context).unwrap());
    assert!(timeout(MOMENT, events.next()).await.is_err());
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let events = Arc::clone(&events);
            tokio::spawn(async move { events.next().await.unwrap() })
        })
        .collect();
    let mut expected = Vec::new();
    for _ in 0..2 {
        let own = AsyncQp::build(&a.dispatcher, &a.pd, |qp| qp).unwrap();
        let other = AsyncQp::build(&b.dispatcher, &b.pd, |qp| qp).unwrap();
        connect((&a.context, &own), (&b.context, &other));
        expected.push(AsyncEvent::QpAccessErr(other.qp().qpn()));
        let beyond = b.mr.remote().offset(b.mr.len() as u64);
        assert!(own.write(&[a.mr.slice(..8)], beyond).await.is_err());
    }
    let mut got = Vec::new();
    for task in tasks {
        got.push(timeout(PATIENCE, task).await.unwrap().unwrap());
    }
    got.sort_by_key(|event| expected.iter().position(|other| other == event));
    assert_eq!(got, expected);
}

#[test]
fn a_runtime_that_ends_ends_the_waiting() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (a, b) = first.block_on(async { pair() });
    let (a, b) = (Arc::new(a), b);
    let second = runtime();
    let waiting = second.spawn({
        let a = Arc::clone(&a);
        async move { a.qp.recv().await.map(|_| ()) }
    });
    first.shutdown_timeout(PATIENCE);
    second.block_on(async {
        let ended = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(matches!(ended, Err(Error::NoRuntime)));
        let refused = timeout(PATIENCE, a.qp.write(&[], b.mr.remote())).await;
        assert!(matches!(refused.unwrap(), Err(Error::NoRuntime)));
    });
}

/// Listen, connect, accept and disconnect, all on one thread.
#[tokio::test]
async fn connections() {
    use hirail::cm::{Listener, Options};
    use hirail::future::{self, AsyncListener};

    let network = MemoryNetwork::new(Faults::default());
    let open = |address: &str| network.open(address.parse().unwrap()).unwrap();
    let (server, client) = (open("192.0.2.1"), open("192.0.2.2"));
    let address = "192.0.2.1:18515".parse().unwrap();
    let listener = AsyncListener::new(Listener::bind(&server, address).unwrap()).unwrap();
    let make = |context: &Context| {
        let dispatcher = Dispatcher::new(context).unwrap();
        AsyncQp::build(&dispatcher, &context.alloc_pd().unwrap(), |qp| qp).unwrap()
    };
    let (a, b) = (make(&client), make(&server));
    let active = async {
        let options = Options::default().private_data(b"hello");
        future::connect(a.qp(), address, &options).await.unwrap()
    };
    let passive = async {
        let request = listener.accept().await.unwrap();
        assert!(request.private_data().starts_with(b"hello"));
        future::accept(request, b.qp(), &Options::default())
            .await
            .unwrap()
    };
    let (active, passive) = tokio::join!(active, passive);
    active.start_disconnect().unwrap();
    let (here, there) = tokio::join!(
        future::disconnected(&active),
        future::disconnected(&passive)
    );
    here.and(there).unwrap();
    // Nobody listens any more.
    drop(listener);
    let refused = future::connect(make(&client).qp(), address, &Options::default()).await;
    assert!(refused.is_err());
}
