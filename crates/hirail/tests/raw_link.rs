//! Raw Ethernet between two network namespaces that the test makes: both RoCE versions, against the
//! UDP link as well, with tags, and with flow control in both directions.
//!
//! The test binary starts itself inside each namespace, once per side. What one side says is heard by
//! the other. Where namespaces cannot be made, the tests say so.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use hirail::config::Config;
use hirail::port::raw::{FrameSender, Taken};
use hirail::{
    Access, AckTimeout, ConnectOptions, Context, Counter, Cq, Destination, FlowControl, Mr, Pd,
    QKey, Qp, QpEndpoint, QpType, RawOptions, RemoteMemory, RoceVersion, SendWr, Watermarks,
    WcStatus, devices,
};
use hirail_wire::frame::Content;
use hirail_wire::mac_control::{MacControl, Pfc};
use hirail_wire::{FrameView, Framing, Gid, MacAddr, pcap};

const PATIENCE: Duration = Duration::from_secs(30);

/// The interface in either namespace.
const CABLE: &str = "cable";

// --- The hosts.

/// Two namespaces, joined by a cable. They go with this value.
struct Hosts {
    names: [String; 2],
    /// Where the sides live.
    of_side: [usize; 2],
}

impl Hosts {
    /// Host 0 has 10.9.0.1 and fd09::1, host 1 has 10.9.0.2 and fd09::2; both have the link-local
    /// address made from their Ethernet address. Nothing where this user cannot have that.
    fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("hirail-{}-{number}-{side}", std::process::id());
        let hosts = Self {
            names: [name("a"), name("b")],
            of_side: [0, 1],
        };
        for name in &hosts.names {
            if let Err(reason) = ip(&format!("netns add {name}")) {
                println!("skipped: cannot make a network namespace: {reason}");
                return None;
            }
            // Addresses are valid at once.
            let detect = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
            ip_words(&["netns", "exec", name, "sh", "-c", detect]).expect("set");
        }
        let [a, b] = &hosts.names;
        ip(&format!(
            "link add {CABLE} mtu 9000 netns {a} type veth peer name {CABLE} mtu 9000 netns {b}"
        ))
        .expect("cable");
        for (name, number) in [(a, 1), (b, 2)] {
            for what in [
                "link set lo up".to_owned(),
                format!("addr add 10.9.0.{number}/24 dev {CABLE}"),
                format!("addr add fd09::{number}/64 dev {CABLE} nodad"),
                format!("link set {CABLE} up"),
            ] {
                ip(&format!("-n {name} {what}")).expect("configured");
            }
        }
        Some(hosts)
    }

    /// Both sides on the first host.
    fn into_one(mut self) -> Self {
        self.of_side = [0, 0];
        self
    }

    /// Starts a side of this test in its namespace.
    fn start(&self, side: usize, what: &str) -> Child {
        let exe = std::env::current_exe().expect("own path");
        Command::new("ip")
            .args(["netns", "exec", &self.names[self.of_side[side]]])
            .arg(exe)
            .args(["--exact", "side", "--nocapture"])
            .env(SIDE, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("side")
    }

    /// Runs both sides to their end; `meanwhile` gets the process id of the second one.
    fn run_with(&self, what: [&str; 2], meanwhile: impl FnOnce(u32)) {
        let mut children = [self.start(0, what[0]), self.start(1, what[1])];
        let mut ins = [0, 1].map(|host: usize| children[host].stdin.take().expect("piped"));
        ins.reverse();
        let mut relays = Vec::new();
        for (host, mut other) in ins.into_iter().enumerate() {
            let output = children[host].stdout.take().expect("piped");
            relays.push(thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    match line.strip_prefix("> ") {
                        // The other side may have ended already.
                        Some(said) => drop(writeln!(other, "{said}")),
                        None => println!("side {host}: {line}"),
                    }
                }
            }));
        }
        meanwhile(children[1].id());
        let end = Instant::now() + 3 * PATIENCE;
        let mut ended = [None, None];
        while ended.iter().any(Option::is_none) {
            for (child, ended) in children.iter_mut().zip(&mut ended) {
                *ended = ended.or(child.try_wait().expect("a child"));
            }
            let failed = ended.iter().flatten().any(|status| !status.success());
            if failed || Instant::now() > end {
                // Whoever still waits for the other would wait for long.
                for child in &mut children {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                break;
            }
            sleep(Duration::from_millis(5));
        }
        for relay in relays {
            relay.join().expect("relayed");
        }
        for (host, ended) in ended.iter().enumerate() {
            let status = ended.as_ref().map(|status| status.success());
            assert_ne!(status, Some(false), "side {host} failed");
        }
        assert!(ended.iter().all(Option::is_some), "in time: {ended:?}");
    }

    fn run(&self, what: [&str; 2]) {
        self.run_with(what, |_| {});
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    ip_words(&arguments.split(' ').collect::<Vec<_>>())
}

fn ip_words(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

// --- A side, in a process of its own.

/// Names what a process of this binary is to do as one side.
const SIDE: &str = "HIRAIL_TEST_RAW_SIDE";

#[test]
fn side() {
    let Ok(what) = std::env::var(SIDE) else {
        return;
    };
    let words: Vec<&str> = what.split(' ').collect();
    match words[0] {
        "transfer" => transfer(&words[1..]),
        "multicast" => multicast(&words[1..]),
        "stream" => stream(&words[1..]),
        "watch" => watch(&words[1..]),
        "sink" => sink(),
        "nobody" => nobody(),
        "asleep" => asleep(),
        "lull" => lull(),
        "refused" => refused(),
        other => panic!("what is {other}?"),
    }
}

/// The other side.
struct Wire {
    heard: Receiver<String>,
}

impl Wire {
    fn new() -> Self {
        let (to, heard) = mpsc::channel();
        thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { heard }
    }

    fn say(&self, line: &str) {
        println!("> {line}");
        std::io::stdout().flush().expect("said");
    }

    fn hear(&self) -> String {
        self.heard.recv_timeout(PATIENCE).expect("the other side")
    }

    /// Both get here before either goes on.
    fn meet(&self, place: &str) {
        self.say(place);
        assert_eq!(self.hear(), place);
    }
}

/// A port: `udp`, or `raw` with options behind it.
fn open(words: &[&str], config: &Config) -> Context {
    let mut options = RawOptions::default();
    let interface = value(words, "on").unwrap_or(CABLE);
    for word in &words[1..] {
        let (key, value) = word.split_once('=').expect("key=value");
        match key {
            "pfc" => {
                let enabled = value.parse().expect("a mask");
                options.flow_control = FlowControl::Pfc { enabled };
            }
            "pause" => options.flow_control = FlowControl::Pause,
            "vlan" => options.vlan = value.parse().ok(),
            "speed" => options.speed_mbps = value.parse().ok(),
            "xoff" => {
                let xoff = value.parse().expect("bytes");
                options.watermarks = Some(Watermarks {
                    xoff,
                    xon: xoff / 2,
                });
            }
            // About the scenario.
            _ => {}
        }
    }
    if words[0] == "raw" {
        return Context::open_raw_with(interface, options, config).expect("raw port");
    }
    Context::open_with(&device(interface).name, config).expect("UDP port")
}

fn device(interface: &str) -> devices::NetDevice {
    let devices = devices::list().expect("interfaces");
    let found = devices
        .into_iter()
        .find(|device| device.interface == interface);
    found.expect("made before")
}

/// The value behind `key=`.
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Index of the GID that a name stands for.
fn gid_index(context: &Context, name: &str) -> u8 {
    let mac = device(CABLE).mac;
    let is_it = |gid: Gid, version: RoceVersion| {
        let (family, version_wanted) = match name.split_once('/') {
            Some((family, "v1")) => (family, RoceVersion::V1),
            Some((family, _)) => (family, RoceVersion::V2),
            None => panic!("what is {name}?"),
        };
        let is_family = match family {
            "mac" => gid == Gid::link_local(mac),
            "ipv4" => gid.to_ip().is_ipv4(),
            _ => matches!(gid.to_ip(), IpAddr::V6(v6) if !v6.is_unicast_link_local()),
        };
        is_family && version == version_wanted
    };
    let gids = context.gids();
    let found = gids
        .iter()
        .position(|entry| is_it(entry.gid, entry.version));
    found.unwrap_or_else(|| panic!("no {name} in {gids:?}")) as u8
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i + seed) * 7 + (i + seed) / 251) as u8)
        .collect()
}

/// A connected queue pair and what belongs to it.
struct End {
    context: Context,
    qp: Qp,
    cq: Cq,
    recv_cq: Cq,
    mr: Mr,
    remote: RemoteMemory,
}

impl End {
    /// Connects to the other side's next one.
    fn connect(
        wire: &Wire,
        context: &Context,
        pd: &Pd,
        gid_index: u8,
        priority: u8,
        bytes: usize,
    ) -> Self {
        let [cq, recv_cq] = [0, 1].map(|_| context.create_cq(64).expect("CQ"));
        let qp = pd.qp(&cq, &recv_cq).build().expect("QP");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.register(bytes, access).expect("MR");
        let own = qp.endpoint(gid_index).expect("endpoint");
        wire.say(&format!("{own} {}", mr.remote()));
        let heard = wire.hear();
        let words: Vec<&str> = heard.split(' ').collect();
        let peer: QpEndpoint = words[..3].join(" ").parse().expect("endpoint");
        let remote = words[3..].join(" ").parse().expect("memory");
        let mut options = ConnectOptions::new(context, gid_index);
        options.path.service_level = priority;
        // What a switch would take for the priority without a tag.
        options.path.traffic_class = priority << 5;
        // Longer than a machine that is busy with other things may stop a process.
        options.timeout = AckTimeout::new(19);
        qp.connect(&peer, &options).expect("connected");
        Self {
            context: context.clone(),
            qp,
            cq,
            recv_cq,
            mr,
            remote,
        }
    }

    #[track_caller]
    fn expect(&self, wr_id: u64) {
        let wc = self.cq.wait_polling(PATIENCE).expect("completion");
        let got = (wc.status, wc.wr_id);
        let counters = self.context.counters();
        assert_eq!(got, (WcStatus::Success, wr_id), "{counters:?}");
    }

    #[track_caller]
    fn expect_received(&self, bytes: usize) {
        let wc = self.recv_cq.wait_polling(PATIENCE).expect("completion");
        let got = (wc.status, wc.byte_len as usize);
        assert_eq!(got, (WcStatus::Success, bytes));
    }
}

/// WRITE, SEND both ways and READ, all of it compared.
fn transfer(words: &[&str]) {
    const WRITTEN: usize = 1 << 20;
    const SENT: usize = 70_001;
    let wire = Wire::new();
    let config = Config {
        pcap: value(words, "pcap").map(PathBuf::from),
        ..Config::default()
    };
    let context = open(&words[2..], &config);
    let gid = gid_index(&context, words[1]);
    let priority = value(words, "priority").map_or(0, |text| text.parse().expect("0 to 7"));
    let pd = context.alloc_pd().expect("PD");
    let end = End::connect(&wire, &context, &pd, gid, priority, 2 * WRITTEN);
    let (qp, mr) = (&end.qp, &end.mr);
    qp.post_recv(1, &[mr.slice(WRITTEN..WRITTEN + SENT)])
        .expect("posted");
    wire.meet("ready");
    if words[0] == "asks" {
        mr.write(0, &pattern(1, WRITTEN));
        qp.post(&SendWr::write(2, &[mr.slice(..WRITTEN)], end.remote))
            .expect("posted");
        qp.post(&SendWr::send(3, &[mr.slice(..SENT)]))
            .expect("posted");
        end.expect(2);
        end.expect(3);
        end.expect_received(SENT);
        assert_eq!(mr.to_vec(WRITTEN, SENT), pattern(2, SENT));
        mr.write(0, &vec![0; WRITTEN]);
        qp.post(&SendWr::read(4, &[mr.slice(..WRITTEN)], end.remote))
            .expect("posted");
        end.expect(4);
        assert_eq!(mr.to_vec(0, WRITTEN), pattern(1, WRITTEN));
    } else {
        end.expect_received(SENT);
        assert_eq!(mr.to_vec(0, WRITTEN), pattern(1, WRITTEN));
        assert_eq!(mr.to_vec(WRITTEN, SENT), pattern(1, SENT));
        mr.write(WRITTEN, &pattern(2, SENT));
        qp.post(&SendWr::send(5, &[mr.slice(WRITTEN..WRITTEN + SENT)]))
            .expect("posted");
        end.expect(5);
    }
    wire.meet("done");
    let counters = context.counters();
    assert_eq!(counters.get(Counter::PortRcvErrors), 0);
    assert_eq!(counters.get(Counter::RxIcrcEncapsulated), 0);
    if words[2] == "raw" {
        assert!(counters.get(Counter::rx_prio_packets(priority)) > 200);
        assert!(counters.get(Counter::tx_prio_packets(priority)) > 200);
        // Only what looks for a neighbour may find nobody.
        assert!(
            datagrams_without_port() < 20,
            "{}",
            datagrams_without_port()
        );
        // Acknowledgements are told apart by tags alone.
        if value(words, "vlan").is_some() {
            assert!(counters.get(Counter::RxPrio6Packets) > 0);
        }
    }
}

/// Datagrams in this namespace that nobody had a socket for.
fn datagrams_without_port() -> u64 {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("counters")
    };
    let v4 = read("snmp");
    let rows: Vec<Vec<&str>> = v4
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .map(|line| line.split_ascii_whitespace().collect())
        .collect();
    let column = rows[0].iter().position(|name| *name == "NoPorts");
    let v4: u64 = rows[1][column.expect("a column")].parse().expect("number");
    let v6 = read("snmp6");
    let line = v6.lines().find(|line| line.starts_with("Udp6NoPorts"));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    v4 + number.map_or(0, |number| number.parse::<u64>().expect("number"))
}

/// Datagrams to a group: host 0 sends, host 1 is a member, then is not.
fn multicast(words: &[&str]) {
    let wire = Wire::new();
    let context = open(&words[2..], &Config::default());
    let gid = gid_index(&context, words[1]);
    let group = match words[1] {
        "ipv4/v2" => Gid::from_ip("239.9.1.2".parse().expect("address")),
        _ => Gid::from_ip("ff0e::9:1:2".parse().expect("address")),
    };
    let pd = context.alloc_pd().expect("PD");
    let (qp, cq) = datagram_qp(&context, &pd);
    let mr = pd.register(4096, Access::LOCAL_WRITE).expect("MR");
    if words[0] == "asks" {
        mr.write(0, b"to all");
        for _ in 0..2 {
            wire.meet("ready");
            let path = hirail::Path {
                gid_index: gid,
                ..hirail::Path::default()
            };
            let slices = [mr.slice(..6)];
            let wr = SendWr::send(1, &slices)
                .to(Destination::multicast(group, KEY))
                .via(path);
            qp.post(&wr).expect("posted");
            let wc = cq.wait_polling(PATIENCE).expect("completion");
            assert_eq!(wc.status, WcStatus::Success);
            wire.meet("sent");
        }
        return;
    }
    qp.post_recv(7, &[mr.slice(..)]).expect("posted");
    qp.attach_multicast(group).expect("joined");
    wire.meet("ready");
    let wc = cq.wait_polling(PATIENCE).expect("completion");
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 46));
    assert_eq!(mr.to_vec(40, 6), b"to all");
    wire.meet("sent");
    qp.post_recv(8, &[mr.slice(..)]).expect("posted");
    qp.detach_multicast(group).expect("left");
    wire.meet("ready");
    wire.meet("sent");
    assert!(cq.wait_polling(Duration::from_millis(100)).is_err());
}

/// Priorities of the streams.
const STREAMS: [u8; 2] = [3, 0];
const MESSAGE: usize = 8192;
const SLOTS: usize = 4;

/// Writes in two priorities without a pause, until told to stop. Says its counters then.
fn stream(words: &[&str]) {
    let wire = Wire::new();
    let context = open(words, &Config::default());
    let gid = gid_index(&context, "mac/v1");
    let pd = context.alloc_pd().expect("PD");
    let ends =
        STREAMS.map(|priority| End::connect(&wire, &context, &pd, gid, priority, SLOTS * MESSAGE));
    wire.meet("ready");
    let post = |end: &End, slot: usize| {
        let range = slot * MESSAGE..(slot + 1) * MESSAGE;
        let to = end.remote.offset((slot * MESSAGE) as u64);
        end.qp
            .post(&SendWr::write(slot as u64, &[end.mr.slice(range)], to))
            .expect("posted");
    };
    for end in &ends {
        end.mr.write(0, &pattern(3, SLOTS * MESSAGE));
        for slot in 0..SLOTS {
            post(end, slot);
        }
    }
    while wire.heard.try_recv().is_err() {
        for end in &ends {
            if let Some(wc) = end.cq.poll_one().expect("polled") {
                assert_eq!(wc.status, WcStatus::Success);
                post(end, wc.wr_id as usize);
            }
        }
    }
    for end in &ends {
        for _ in 0..SLOTS {
            let wc = end.cq.wait_polling(PATIENCE).expect("completion");
            assert_eq!(wc.status, WcStatus::Success);
        }
    }
    let counters = context.counters();
    wire.say(
        &[
            Counter::RxPrio3Pause,
            Counter::RxPrio3PauseTransition,
            Counter::RxPrio3PauseDuration,
            Counter::RxGlobalPause,
            Counter::RxGlobalPauseTransition,
            Counter::RxGlobalPauseDuration,
            Counter::PacketSeqErr,
        ]
        .map(|counter| counters.get(counter).to_string())
        .join(" "),
    );
    wire.meet("done");
}

/// Where the streams go.
struct Target {
    context: Context,
    ends: [End; 2],
}

impl Target {
    fn new(wire: &Wire, context: Context) -> Self {
        let gid = gid_index(&context, "mac/v1");
        let pd = context.alloc_pd().expect("PD");
        let ends = STREAMS
            .map(|priority| End::connect(wire, &context, &pd, gid, priority, SLOTS * MESSAGE));
        wire.meet("ready");
        Self { context, ends }
    }

    fn packets(&self) -> [u64; 2] {
        let counters = self.context.counters();
        STREAMS.map(|priority| counters.get(Counter::rx_prio_packets(priority)))
    }

    /// Packets of each stream in some time.
    fn flow(&self, time: Duration) -> [u64; 2] {
        let before = self.packets();
        sleep(time);
        let after = self.packets();
        [after[0] - before[0], after[1] - before[1]]
    }

    /// Waits until the streams at `which` go on; how long that took.
    fn wait_running(&self, which: &[usize]) {
        let start = self.packets();
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.packets();
            if which.iter().all(|stream| now[*stream] > start[*stream] + 5) {
                return;
            }
            assert!(Instant::now() < end, "{start:?} {now:?}");
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the streams at `which` have stopped.
    fn wait_stopped(&self, which: &[usize]) {
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            let flow = self.flow(Duration::from_millis(40));
            if which.iter().all(|stream| flow[*stream] == 0) {
                return;
            }
            assert!(Instant::now() < end, "they go on: {flow:?}");
        }
    }

    /// Ends the streams; the numbers that the other side said, and whether all arrived.
    fn stop(&self, wire: &Wire) -> Vec<u64> {
        wire.say("stop");
        let numbers = wire.hear();
        for end in &self.ends {
            let all = pattern(3, SLOTS * MESSAGE);
            assert_eq!(end.mr.to_vec(0, all.len()), all);
        }
        assert_eq!(self.context.counters().get(Counter::OutOfSequence), 0);
        wire.meet("done");
        numbers
            .split(' ')
            .map(|n| n.parse().expect("number"))
            .collect()
    }
}

/// Stops the other side's streams by control frames and watches what arrives. One quantum of its
/// link lasts 51.2 µs, so that the longest time is 3.4 s and a slow machine cannot confuse the end
/// of a pause with its being taken back.
fn watch(words: &[&str]) {
    let wire = Wire::new();
    let target = Target::new(&wire, open(&["raw"], &Config::default()));
    let device = device(CABLE);
    let mut sender = FrameSender::open(device.index, 1 << 16).expect("packet socket");
    let is_pfc = words[0] == "pfc";
    let mut order = |quanta: u16| {
        let order = if is_pfc {
            MacControl::Pfc(Pfc::new().with(3, quanta))
        } else {
            MacControl::Pause { quanta }
        };
        let frame = order.to_frame(MacAddr(device.mac));
        let taken = sender.send(0, std::iter::once(&frame[..]));
        assert_eq!(taken, Taken::First(1));
        Instant::now()
    };
    let stopped: &[usize] = if is_pfc { &[0] } else { &[0, 1] };
    target.wait_running(&[0, 1]);

    // Taken back.
    let start = order(u16::MAX);
    target.wait_stopped(stopped);
    let [priority_3, priority_0] = target.flow(Duration::from_millis(300));
    assert_eq!(priority_3, 0);
    assert_eq!(priority_0 > 0, is_pfc, "{priority_0}");
    order(0);
    target.wait_running(&[0, 1]);
    assert!(
        start.elapsed() < Duration::from_millis(3300),
        "it ended by itself"
    );

    // Over.
    const PAUSE: Duration = Duration::from_micros(9766 * 512 / 10);
    order(9766);
    // Refreshed: the old time does not count any more.
    sleep(Duration::from_millis(100));
    let start = order(9766);
    target.wait_stopped(stopped);
    target.wait_running(&[0, 1]);
    let lasted = start.elapsed();
    assert!(lasted > PAUSE - Duration::from_millis(5), "{lasted:?}");
    assert!(lasted < Duration::from_secs(3), "{lasted:?}");

    let numbers = target.stop(&wire);
    let (obeyed, other) = if is_pfc {
        (&numbers[..3], &numbers[3..6])
    } else {
        (&numbers[3..6], &numbers[..3])
    };
    assert_eq!(obeyed[..2], [4, 2], "frames, stops");
    assert!(obeyed[2] > 900_000, "stopped for {} us", obeyed[2]);
    assert_eq!(other, [0, 0, 0]);
}

/// Takes the streams, while it is stopped now and then by the test.
fn sink() {
    let wire = Wire::new();
    let target = Target::new(
        &wire,
        open(&["raw", "pfc=8", "xoff=16384"], &Config::default()),
    );
    target.wait_running(&[0, 1]);
    let end = Instant::now() + PATIENCE;
    // Told to stop, and told to go on.
    while target.context.counters().get(Counter::TxPrio3Pause) < 2
        || target.context.counters().get(Counter::TxPrio3PauseDuration) < 5
    {
        assert!(Instant::now() < end, "never overloaded");
        sleep(Duration::from_millis(5));
    }
    target.wait_running(&[0, 1]);
    assert_eq!(target.context.counters().get(Counter::TxPrio0Pause), 0);
    let numbers = target.stop(&wire);
    assert!(numbers[0] > 1 && numbers[1] > 0, "{numbers:?}");
    assert_eq!(numbers[6], 0, "nothing was lost");
}

/// A destination that does not exist, and the addresses of this port itself.
fn nobody() {
    let wire = Wire::new();
    let context = open(&["raw"], &Config::default());
    let gid = gid_index(&context, "ipv4/v2");
    let pd = context.alloc_pd().expect("PD");
    let own = context.gid(gid).expect("GID").to_ip();
    for nobody in [IpAddr::from([10, 9, 0, 77]), own] {
        let cq = context.create_cq(4).expect("CQ");
        let qp = pd.qp(&cq, &cq).build().expect("QP");
        let mr = pd.register(64, Access::LOCAL_WRITE).expect("MR");
        let mut options = ConnectOptions::new(&context, gid);
        (options.timeout, options.retry_cnt) = (AckTimeout::new(12), 1);
        let peer = QpEndpoint {
            gid: Gid::from_ip(nobody),
            ..qp.endpoint(gid).expect("endpoint")
        };
        qp.connect(&peer, &options).expect("connected");
        qp.post(&SendWr::send(1, &[mr.slice(..)])).expect("posted");
        let wc = cq.wait_polling(PATIENCE).expect("completion");
        assert_eq!(wc.status, WcStatus::RetryExcErr);
    }
    let end = Instant::now() + PATIENCE;
    // Each was sent twice.
    while context.counters().get(Counter::PortXmitDiscards) < 4 {
        assert!(Instant::now() < end, "given up");
        context.poll().expect("driven");
    }
    wire.meet("done");
}

/// Has work for a priority that is stopped, and does nothing. Nothing is what it must cost.
fn asleep() {
    let wire = Wire::new();
    let context = open(&["raw", "pfc=8", "speed=10"], &Config::default());
    let gid = gid_index(&context, "ipv4/v2");
    let pd = context.alloc_pd().expect("PD");
    let end = End::connect(&wire, &context, &pd, gid, 3, MESSAGE);
    let slices = [end.mr.slice(..)];
    let write = |wr_id| {
        end.qp
            .post(&SendWr::write(wr_id, &slices, end.remote))
            .expect("posted");
    };
    // The answers come to the UDP port as well, where nobody reads them.
    write(0);
    end.expect(0);
    let (datagrams, cq) = datagram_qp(&context, &pd);
    let to: QpEndpoint = wire.hear().parse().expect("endpoint");
    wire.meet("ready");
    while context.counters().get(Counter::RxPrio3PauseTransition) == 0 {
        context.poll().expect("driven");
    }
    let sent = context.counters().get(Counter::TxPrio3Packets);
    write(1);
    // The priority of a datagram is that of its address handle.
    let short = [end.mr.slice(..8)];
    let datagram = |wr_id, service_level| {
        let path = hirail::Path {
            gid_index: gid,
            service_level,
            ..hirail::Path::default()
        };
        let wr = SendWr::send(wr_id, &short).to(Destination::unicast(&to, KEY));
        wr.via(path)
    };
    let (others, others_cq) = datagram_qp(&context, &pd);
    datagrams.post(&datagram(2, 3)).expect("posted");
    others.post(&datagram(3, 4)).expect("posted");
    let wc = others_cq.wait_polling(PATIENCE).expect("completion");
    assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, 3), "not stopped");
    let before = cpu_time();
    sleep(Duration::from_secs(1));
    let used = cpu_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?}");
    let counters = context.counters();
    let now_sent = counters.get(Counter::TxPrio3Packets);
    assert_eq!(now_sent, sent, "it is stopped");
    assert!(cq.poll_one().expect("polled").is_none(), "it is stopped");
    wire.say("go on");
    let wc = cq.wait_polling(PATIENCE).expect("completion");
    assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, 2));
    end.expect(1);
    wire.meet("done");
}

/// Queue key of all datagrams.
const KEY: QKey = QKey(0x1234);

fn datagram_qp(context: &Context, pd: &Pd) -> (Qp, Cq) {
    let cq = context.create_cq(64).expect("CQ");
    let qp = pd.qp(&cq, &cq).qp_type(QpType::Ud).build().expect("QP");
    qp.activate_datagram(KEY).expect("active");
    (qp, cq)
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("status");
    let (_, rest) = text.rsplit_once(") ").expect("a name");
    // User and system time, in hundredths of a second.
    let fields = rest.split(' ').skip(11).take(2);
    let ticks: u64 = fields.map(|n| n.parse::<u64>().expect("number")).sum();
    Duration::from_millis(10 * ticks)
}

/// Stops the other side before it has begun.
fn lull() {
    let wire = Wire::new();
    let context = open(&["raw"], &Config::default());
    let gid = gid_index(&context, "ipv4/v2");
    let pd = context.alloc_pd().expect("PD");
    let end = End::connect(&wire, &context, &pd, gid, 3, MESSAGE);
    let (datagrams, cq) = datagram_qp(&context, &pd);
    for wr_id in 0..2 {
        let into = [end.mr.slice(..64)];
        datagrams.post_recv(wr_id, &into).expect("posted");
    }
    let own = datagrams.endpoint(gid).expect("endpoint");
    wire.say(&own.to_string());
    let device = device(CABLE);
    let mut sender = FrameSender::open(device.index, 1 << 16).expect("packet socket");
    let mut order = |quanta: u16| {
        let order = MacControl::Pfc(Pfc::new().with(3, quanta));
        let frame = order.to_frame(MacAddr(device.mac));
        sender.send(0, std::iter::once(&frame[..]));
    };
    wire.meet("ready");
    order(u16::MAX);
    assert_eq!(wire.hear(), "go on");
    let wc = cq.wait_polling(PATIENCE).expect("completion");
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 48));
    assert!(cq.poll_one().expect("polled").is_none(), "it was stopped");
    order(0);
    let wc = cq.wait_polling(PATIENCE).expect("completion");
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 48));
    wire.meet("done");
}

/// Without the capability.
fn refused() {
    let error = Context::open_raw_with("lo", RawOptions::default(), &Config::default());
    assert_eq!(
        error.expect_err("refused").to_string(),
        "raw Ethernet on lo needs the capability CAP_NET_RAW (or root)"
    );
    println!("> refused as expected");
}

// --- The tests.

#[test]
fn version_1_by_ethernet_address() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["transfer asks mac/v1 raw", "transfer answers mac/v1 raw"]);
}

/// Destinations are found by ARP and by neighbour discovery.
#[test]
fn version_1_by_ip_address() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["transfer asks ipv4/v1 raw", "transfer answers ipv4/v1 raw"]);
    hosts.run(["transfer asks ipv6/v1 raw", "transfer answers ipv6/v1 raw"]);
}

#[test]
fn version_2() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["transfer asks ipv4/v2 raw", "transfer answers ipv4/v2 raw"]);
    hosts.run(["transfer asks ipv6/v2 raw", "transfer answers ipv6/v2 raw"]);
    hosts.run(["transfer asks mac/v2 raw", "transfer answers mac/v2 raw"]);
}

/// The same packets as over UDP sockets, in both directions. Batches that the kernel has not cut
/// come over the virtual cable as they are.
#[test]
fn raw_and_udp_understand_each_other() {
    let Some(hosts) = Hosts::new() else { return };
    for gid in ["ipv4/v2", "ipv6/v2"] {
        let [asks, answers] = ["asks", "answers"].map(|role| format!("transfer {role} {gid}"));
        hosts.run([&format!("{asks} raw"), &format!("{answers} udp")]);
        hosts.run([&format!("{asks} udp"), &format!("{answers} raw")]);
    }
}

#[test]
fn tags_carry_vlan_and_priority() {
    let Some(hosts) = Hosts::new() else { return };
    for vlan in ["0", "7"] {
        let [asks, answers] = ["asks ipv4/v1", "answers ipv4/v1"]
            .map(|words| format!("transfer {words} raw vlan={vlan} priority=5"));
        hosts.run([&asks, &answers]);
    }
}

/// Every frame of both directions, tags included, with a right ICRC.
#[test]
fn whole_frames_are_recorded() {
    let Some(hosts) = Hosts::new() else { return };
    let path = std::env::temp_dir().join(format!("hirail-raw-{}.pcapng", std::process::id()));
    let common = "raw vlan=7 priority=5";
    hosts.run([
        &format!("transfer asks mac/v1 {common} pcap={}", path.display()),
        &format!("transfer answers mac/v1 {common}"),
    ]);
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(&path).expect("recorded");
    file.read_to_end(&mut bytes).expect("read");
    std::fs::remove_file(&path).expect("removed");
    let mut reader = pcap::Reader::new(&bytes[..]).expect("pcapng");
    let mut sources = std::collections::BTreeMap::new();
    while let Some(packet) = reader.next_packet().expect("pcapng") {
        let view = FrameView::parse(packet.data).expect("a frame");
        let Content::Roce(roce) = view.content else {
            panic!("{view:?}")
        };
        assert!(roce.icrc_is_right());
        assert!(matches!(roce.framing(), Framing::V1(_)));
        let tag = view.ethernet.tag.expect("tagged");
        assert_eq!(tag.vlan, 7);
        *sources.entry(view.ethernet.source).or_insert(0) += 1;
    }
    assert_eq!(sources.len(), 2);
    assert!(sources.values().all(|count| *count > 200), "{sources:?}");
}

#[test]
fn groups() {
    let Some(hosts) = Hosts::new() else { return };
    for gid in ["ipv4/v2", "ipv6/v2", "mac/v1"] {
        let [asks, answers] = ["asks", "answers"].map(|role| format!("multicast {role} {gid}"));
        hosts.run([&format!("{asks} raw"), &format!("{answers} raw")]);
    }
    let [asks, answers] = ["asks", "answers"].map(|role| format!("multicast {role} ipv4/v2"));
    hosts.run([&format!("{asks} udp"), &format!("{answers} raw")]);
}

#[test]
fn pfc_stops_one_priority() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["stream raw pfc=8 speed=10", "watch pfc"]);
}

#[test]
fn pause_stops_everything() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["stream raw pause=on speed=10", "watch pause"]);
}

/// A receiver that is not scheduled finds its queue full, stops the sender and lets it go.
#[test]
fn an_overloaded_receiver_stops_the_sender() {
    let Some(hosts) = Hosts::new() else { return };
    let what = ["stream raw pfc=8", "sink"];
    hosts.run_with(what, |pid| {
        let signal = |name: &str| {
            let _ = Command::new("kill").args([name, &pid.to_string()]).status();
        };
        for _ in 0..20 {
            sleep(Duration::from_millis(60));
            signal("-STOP");
            sleep(Duration::from_millis(40));
            signal("-CONT");
        }
    });
}

/// Six processes on one host: four at raw ports and two at the UDP port, which all share. They do
/// not take each other's packets.
#[test]
fn raw_and_udp_live_on_one_host() {
    let Some(hosts) = Hosts::new() else { return };
    let hosts = hosts.into_one();
    for gid in ["ipv4/v2", "ipv6/v2"] {
        thread::scope(|scope| {
            for link in ["raw", "udp", "raw"] {
                let hosts = &hosts;
                scope.spawn(move || {
                    hosts.run([
                        &format!("transfer asks {gid} {link} on=lo"),
                        &format!("transfer answers {gid} {link} on=lo"),
                    ]);
                });
            }
        });
    }
}

#[test]
fn a_stopped_priority_costs_nothing() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["asleep", "lull"]);
}

#[test]
fn without_the_capability_it_says_so() {
    let exe = std::env::current_exe().expect("own path");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(exe)
        .args(["--exact", "side", "--nocapture"])
        .env(SIDE, "refused")
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no program `setpriv`");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("setpriv: ") {
        println!("skipped: {errors}");
        return;
    }
    assert!(text.contains("> refused as expected"), "{text}{errors}");
}

#[test]
fn nobody_answers() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.run(["nobody", "nobody"]);
}

#[test]
fn an_unknown_interface_is_named() {
    let error = Context::open_raw("no-such-interface", RawOptions::default());
    let text = error.expect_err("refused").to_string();
    let start = "there is no interface no-such-interface to be a port; there are: ";
    assert!(text.starts_with(start), "{text}");
}
