//! Several processes at one UDP port, while some of them are killed, stopped, or fork.
//!
//! The test binary starts itself as members. A member answers requests and, when told to, sends
//! numbered requests to another member's queue pair numbers and counts the answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hirail::port::{
    self, Datagram, IcrcChecker, Path, PortOptions, QpnBlock, Receiver, Steering, Sweep,
    Transmitter,
};
use hirail_wire::{Bth, Ext, Headers, Opcode, Operation, Psn, Qpn, Service};

const ROLE: &str = "HIRAIL_TEST_MEMBER";

/// Time that an exchange goes on between two events.
const A_WHILE: Duration = Duration::from_millis(150);

// --- The member, in a process of its own.

/// What a member knows about the exchange with a peer.
#[derive(Default)]
struct Exchange {
    block: u16,
    sent: u32,
    answered: u32,
    last_answer: Option<Instant>,
    longest_stall: Duration,
    paused: bool,
}

struct Member {
    receiver: Receiver,
    transmitter: Transmitter,
    checker: IcrcChecker,
    address: IpAddr,
    own: Qpn,
    peers: HashMap<u16, Exchange>,
    bad: u32,
    multicasts: u32,
    answers: Vec<(Qpn, u32)>,
}

impl Member {
    fn new(port: u16, steering: bool, address: IpAddr) -> Self {
        let options = PortOptions {
            udp_port: port,
            steering,
            ..PortOptions::default()
        };
        let (receiver, pool) = port::open(&options).expect("port");
        let block = receiver.blocks()[0];
        Self {
            transmitter: Transmitter::new(pool, &options),
            checker: IcrcChecker::new(),
            address,
            own: Qpn::new(block.qpns().start + 7),
            peers: HashMap::new(),
            bad: 0,
            multicasts: 0,
            answers: Vec::new(),
            receiver,
        }
    }

    fn path(&self, destination: IpAddr) -> Path {
        Path {
            source: self.address,
            destination,
            interface: if destination.is_multicast() { 1 } else { 0 },
            traffic_class: 0x68,
            hop_limit: 0,
            entropy: 0xc000 + (self.own.value() % 0x4000) as u16,
            segmentation: true,
        }
    }

    /// Sends a numbered packet; `is_answer` tells what it is.
    fn send(&mut self, to: Qpn, destination: IpAddr, number: u32, is_answer: bool) {
        let opcode = Opcode::new(Service::Rc, Operation::SendOnly).expect("exists");
        let bth = Bth::new(opcode, to, Psn::new(number));
        let headers = Headers::new(bth, None, Ext::None).expect("valid");
        let mut payload = self.own.value().to_be_bytes().to_vec();
        payload.extend(number.to_be_bytes());
        payload.extend(u32::from(is_answer).to_be_bytes());
        let path = self.path(destination);
        self.transmitter.begin(&path).expect("socket");
        self.transmitter
            .push(&headers, payload.len(), |bytes, icrc| {
                bytes.copy_from_slice(&payload);
                icrc.update(bytes);
                Ok(())
            })
            .expect("room");
    }

    /// Receives, answers, and sends one request to every peer.
    fn turn(&mut self, requests: bool) {
        let Self {
            receiver,
            checker,
            own,
            peers,
            bad,
            answers,
            multicasts,
            ..
        } = self;
        receiver.recv_batch(1000, Sweep::All, |datagram: Datagram<'_>| {
            let is_right = checker.check(&datagram).is_ok();
            let ib = &datagram.bytes[..datagram.bytes.len() - 4];
            let Ok((headers, payload)) = Headers::parse(ib) else {
                *bad += 1;
                return;
            };
            let dest = headers.bth().dest_qp;
            if dest == Qpn::MULTICAST && datagram.destination.is_multicast() {
                *multicasts += 1;
                return;
            }
            if !is_right || dest != *own {
                *bad += 1;
                return;
            }
            let word = |at: usize| {
                u32::from_be_bytes(payload[at..at + 4].try_into().expect("long enough"))
            };
            let from = Qpn::new(word(0));
            if word(8) == 0 {
                answers.push((from, word(4)));
            } else if let Some(peer) = peers.get_mut(&QpnBlock::of(from).number()) {
                peer.answered += 1;
                let now = Instant::now();
                if let Some(last) = peer.last_answer.replace(now) {
                    peer.longest_stall = peer.longest_stall.max(now - last);
                }
            }
        });
        let address = self.address;
        for (to, number) in core::mem::take(&mut self.answers) {
            self.send(to, address, number, true);
        }
        if requests {
            for block in self.peers.keys().copied().collect::<Vec<_>>() {
                let peer = self.peers.get_mut(&block).expect("listed");
                if !peer.paused {
                    peer.sent += 1;
                    let (number, block) = (peer.sent, u32::from(peer.block));
                    self.send(Qpn::new((block << 14) + 8), address, number, false);
                }
            }
        }
        self.transmitter.flush(|_, _| {});
    }

    /// Obeys its parent until it is told to quit, or the parent is gone.
    fn run(mut self) {
        let (commands, inbox) = mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if commands.send(line.expect("text")).is_err() {
                    return;
                }
            }
        });
        let block = self.receiver.blocks()[0].number();
        let steering = self.receiver.fast_paths().steering;
        println!("joined {block} {steering:?}");
        let mut next_request = Instant::now();
        loop {
            match inbox.try_recv() {
                Ok(line) => {
                    let words: Vec<&str> = line.split(' ').collect();
                    let argument = || words[1].parse::<u16>().expect("number");
                    match words[0] {
                        "peer" => {
                            let peer = self.peers.entry(argument()).or_default();
                            (peer.block, peer.paused, peer.last_answer) = (argument(), false, None);
                        }
                        "forget" => drop(self.peers.remove(&argument())),
                        "report" => {
                            self.settle();
                            self.report(argument());
                        }
                        "steering" => println!("{:?}", self.receiver.fast_paths().steering),
                        "listen" => {
                            let group = words[1].parse().expect("address");
                            self.receiver.join_multicast(group, 1).expect("group");
                            println!("listening");
                        }
                        "shout" => {
                            let group = words[1].parse().expect("address");
                            self.send(Qpn::MULTICAST, group, 0, false);
                            println!("shouted");
                        }
                        "fork" => println!("child {}", fork_sleeper()),
                        "quit" => return,
                        _ => panic!("{line}"),
                    }
                }
                Err(mpsc::TryRecvError::Disconnected) => return,
                Err(mpsc::TryRecvError::Empty) => {}
            }
            let requests = Instant::now() >= next_request;
            if requests {
                next_request = Instant::now() + Duration::from_millis(1);
            }
            self.turn(requests);
            wait(&self.receiver, 1);
        }
    }

    /// Waits for answers that are on their way.
    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && self.peers.values().any(|peer| peer.answered < peer.sent) {
            self.turn(false);
            wait(&self.receiver, 1);
        }
    }

    fn report(&mut self, block: u16) {
        let peer = self.peers.remove(&block).unwrap_or_default();
        let stats = self.receiver.stats();
        println!(
            "{} {} {} {} {} {}",
            peer.sent,
            peer.answered,
            peer.longest_stall.as_millis(),
            self.bad,
            stats.passed_on + stats.taken_over,
            self.multicasts,
        );
    }
}

fn wait(receiver: &Receiver, milliseconds: i32) {
    let fd = receiver.as_fd().as_raw_fd();
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, as stated.
    unsafe { libc::poll(&mut polled, 1, milliseconds) };
}

/// A forked child that never calls into the library and sleeps until it is killed.
fn fork_sleeper() -> i32 {
    // SAFETY: the child only sleeps, for a bounded time, and exits.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::sleep(30);
            libc::_exit(0);
        }
        pid
    }
}

// --- The tests, which steer members.

/// A member as its parent sees it. Killed when dropped.
struct Handle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    block: u16,
    steering: String,
}

#[derive(PartialEq, Debug)]
struct Report {
    sent: u32,
    answered: u32,
    stall_ms: u32,
    bad: u32,
    passed: u32,
    multicasts: u32,
}

/// Members of one test, at a port of their own.
struct Group {
    port: u16,
    steering: bool,
    address: IpAddr,
}

impl Group {
    fn new(address: IpAddr) -> Self {
        // A port that nobody has at the moment.
        let socket = UdpSocket::bind("0.0.0.0:0").expect("port");
        let port = socket.local_addr().expect("bound").port();
        Self {
            port,
            steering: true,
            address,
        }
    }

    fn join(&self) -> Handle {
        self.try_join(&mut Command::new(
            std::env::current_exe().expect("own path"),
        ))
        .expect("a member")
    }

    fn try_join(&self, command: &mut Command) -> Option<Handle> {
        let mut child = command
            .args(["--exact", "member", "--nocapture", "--test-threads=1"])
            .env(
                ROLE,
                format!("{} {} {}", self.port, self.steering, self.address),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut handle = Handle {
            child,
            input,
            output,
            block: 0,
            steering: String::new(),
        };
        // Before the member speaks, its test harness does.
        let line = loop {
            let line = handle.read()?;
            if let Some(at) = line.find("joined ") {
                break line[at..].to_owned();
            }
        };
        let words: Vec<&str> = line.split(' ').collect();
        handle.block = words[1].parse().expect("block");
        handle.steering = words[2].to_owned();
        Some(handle)
    }
}

impl Handle {
    fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.output.read_line(&mut line).expect("text");
        (len > 0).then(|| line.trim_end().to_owned())
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("alive");
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.read().expect("an answer")
    }

    fn exchange_with(&mut self, peer: &Self) {
        self.tell(&format!("peer {}", peer.block));
    }

    /// Ends the exchange and tells how it went.
    fn report(&mut self, peer: &Self) -> Report {
        let line = self.ask(&format!("report {}", peer.block));
        let numbers: Vec<u32> = line
            .split(' ')
            .map(|word| word.parse().expect("number"))
            .collect();
        let [sent, answered, stall_ms, bad, passed, multicasts] = numbers[..] else {
            panic!("{line}")
        };
        Report {
            sent,
            answered,
            stall_ms,
            bad,
            passed,
            multicasts,
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of this process that has not been waited for.
        assert_eq!(
            unsafe { libc::kill(self.child.id().cast_signed(), signal) },
            0
        );
    }

    fn kill(mut self) {
        self.child.kill().expect("alive");
        self.child.wait().expect("child");
    }

    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        // Wait until it really has stopped.
        let stat = format!("/proc/{}/stat", self.child.id());
        let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
        let end = Instant::now() + Duration::from_secs(5);
        while !is_stopped() && Instant::now() < end {
            sleep(Duration::from_millis(1));
        }
        assert!(is_stopped());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing was lost, nothing came to the wrong process, and nothing stood still for long.
#[track_caller]
fn undisturbed(report: &Report) {
    assert!(report.sent > 20, "{report:?}");
    assert_eq!(report.answered, report.sent, "{report:?}");
    assert_eq!(report.bad, 0, "{report:?}");
    // The members share two cores with each other and with other tests.
    assert!(report.stall_ms < 1000, "{report:?}");
}

/// The same where packets are passed on by processes: a queue between them holds some ten messages
/// (`net.unix.max_dgram_qlen`), and a process that does not get its turn loses what comes meanwhile.
#[track_caller]
fn passed_on(report: &Report) {
    assert!(
        report.sent > 20 && report.answered > report.sent / 2,
        "{report:?}"
    );
    assert_eq!(report.bad, 0, "{report:?}");
    assert!(report.passed > 0 && report.stall_ms < 1000, "{report:?}");
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The entry of a member's process; as a test of its own it joins a group, alone.
#[test]
fn member() {
    if let Ok(role) = std::env::var(ROLE) {
        let words: Vec<&str> = role.split(' ').collect();
        let (port, steering) = (words[0].parse().expect("port"), words[1] == "true");
        return Member::new(port, steering, words[2].parse().expect("address")).run();
    }
    let member = Member::new(Group::new(V4).port, true, V4);
    assert_eq!(member.receiver.fast_paths().steering, Steering::Verified);
    assert_eq!(member.receiver.blocks()[0].number(), 1);
}

/// The founder and another member are killed; the rest notices nothing, and newcomers take over the
/// seats that were left.
#[test]
fn killed_members() {
    for address in [V4, V6] {
        let group = Group::new(address);
        let founder = group.join();
        let (mut a, mut b, c) = (group.join(), group.join(), group.join());
        for member in [&founder, &a, &b, &c] {
            assert_eq!(member.steering, "Verified");
        }
        let left = [founder.block, c.block];
        a.exchange_with(&b);
        b.exchange_with(&a);
        sleep(A_WHILE);
        founder.kill();
        sleep(A_WHILE);
        c.kill();
        sleep(A_WHILE);
        let (d, e) = (group.join(), group.join());
        assert!(left.contains(&d.block) && left.contains(&e.block) && d.block != e.block);
        a.exchange_with(&d);
        sleep(A_WHILE);
        let report = a.report(&d);
        undisturbed(&report);
        for report in [a.report(&b), b.report(&a)] {
            undisturbed(&report);
            assert_eq!(report.passed, 0, "packets took the direct way: {report:?}");
        }
    }
}

/// Members that are stopped, one of them the founder, neither disturb others nor keep newcomers out,
/// and find their place when they go on.
#[test]
fn stopped_members() {
    let group = Group::new(V4);
    let (mut a, mut b, c) = (group.join(), group.join(), group.join());
    b.exchange_with(&c);
    sleep(A_WHILE);
    a.stop();
    sleep(A_WHILE);
    let start = Instant::now();
    let d = group.join();
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(d.steering, "Verified");
    b.exchange_with(&d);
    sleep(A_WHILE);
    undisturbed(&b.report(&c));
    undisturbed(&b.report(&d));
    a.signal(libc::SIGCONT);
    a.exchange_with(&d);
    b.exchange_with(&a);
    sleep(A_WHILE);
    undisturbed(&a.report(&d));
    undisturbed(&b.report(&a));
}

/// All members are stopped when newcomers arrive. These go on among themselves, also when the
/// stopped ones are killed and every position in the kernel's list changes.
#[test]
fn newcomers_among_stopped_members() {
    let group = Group::new(V4);
    let (a, b) = (group.join(), group.join());
    a.stop();
    b.stop();
    let (mut c, mut d) = (group.join(), group.join());
    assert_eq!([c.steering.as_str(), d.steering.as_str()], ["Verified"; 2]);
    c.exchange_with(&d);
    d.exchange_with(&c);
    sleep(A_WHILE);
    a.kill();
    b.kill();
    // They find out within a watch period, and pass packets on to each other until then.
    sleep(4 * A_WHILE);
    for report in [c.report(&d), d.report(&c)] {
        // What the kernel gave to the sockets of the dying is lost.
        assert!(report.answered + 20 > report.sent, "{report:?}");
        assert!(report.bad == 0 && report.stall_ms < 1000, "{report:?}");
    }
    let before = d.report(&c).passed;
    c.exchange_with(&d);
    d.exchange_with(&c);
    sleep(A_WHILE);
    undisturbed(&c.report(&d));
    let report = d.report(&c);
    undisturbed(&report);
    assert_eq!(
        report.passed, before,
        "packets take the direct way again: {report:?}"
    );
    let e = group.join();
    d.exchange_with(&e);
    sleep(A_WHILE);
    undisturbed(&d.report(&e));
}

/// Members stopped while others joined are told everything when they go on.
#[test]
fn two_halves_become_one() {
    let group = Group::new(V4);
    let mut a = group.join();
    a.stop();
    let mut b = group.join();
    a.signal(libc::SIGCONT);
    a.exchange_with(&b);
    b.exchange_with(&a);
    sleep(2 * A_WHILE);
    undisturbed(&a.report(&b));
    undisturbed(&b.report(&a));
    // Each half holds the other's sockets by now: killing one moves nothing.
    let c = group.join();
    b.exchange_with(&c);
    sleep(A_WHILE);
    a.kill();
    sleep(A_WHILE);
    undisturbed(&b.report(&c));
}

/// A member forks; it is killed while the child, which has copies of everything, lives on.
#[test]
fn forked_and_killed() {
    let group = Group::new(V4);
    let (mut a, mut b, mut c) = (group.join(), group.join(), group.join());
    a.exchange_with(&b);
    sleep(A_WHILE);
    let line = c.ask("fork");
    let child: i32 = line
        .strip_prefix("child ")
        .expect("pid")
        .parse()
        .expect("pid");
    c.exchange_with(&b);
    sleep(A_WHILE);
    undisturbed(&c.report(&b));
    c.kill();
    sleep(A_WHILE);
    let d = group.join();
    b.exchange_with(&d);
    sleep(A_WHILE);
    // SAFETY: the child of the member, which nobody else waits for.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    sleep(A_WHILE);
    undisturbed(&a.report(&b));
    undisturbed(&b.report(&d));
}

/// A kernel without steering: one socket for all, whoever reads passes on.
#[test]
fn without_steering() {
    for address in [V4, V6] {
        let group = Group {
            steering: false,
            ..Group::new(address)
        };
        let (mut a, mut b, c) = (group.join(), group.join(), group.join());
        assert_eq!(a.steering, "Off");
        a.exchange_with(&b);
        b.exchange_with(&a);
        sleep(A_WHILE);
        c.stop();
        sleep(A_WHILE);
        c.kill();
        sleep(A_WHILE);
        passed_on(&a.report(&b));
        passed_on(&b.report(&a));
    }
}

/// A member that does not steer among members that do.
#[test]
fn mixed_steering() {
    let group = Group::new(V4);
    let (mut a, mut b) = (group.join(), group.join());
    let mut plain = Group {
        steering: false,
        ..group
    }
    .join();
    a.exchange_with(&plain);
    plain.exchange_with(&b);
    b.exchange_with(&a);
    sleep(2 * A_WHILE);
    passed_on(&a.report(&plain));
    passed_on(&plain.report(&b));
    undisturbed(&b.report(&a));
}

/// A process of another user takes part, and takes the port over when the others are gone.
#[test]
fn another_user() {
    use std::os::unix::process::CommandExt;

    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: becoming another user needs root");
        return;
    }
    let group = Group::new(V4);
    let (mut a, b) = (group.join(), group.join());
    // A copy that the other user can reach wherever the original lies.
    let copy = std::env::temp_dir().join(format!("hirail-port-sharing-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().expect("own path"), &copy).expect("copy");
    let as_nobody = || group.try_join(Command::new(&copy).uid(65534).gid(65534));
    let (other, second) = (as_nobody(), as_nobody());
    let (Some(mut other), Some(second)) = (other, second) else {
        std::fs::remove_file(&copy).expect("removed");
        println!("skipped: another user cannot run a program in the temporary directory");
        return;
    };
    std::fs::remove_file(&copy).expect("removed");
    assert_eq!(other.steering, "Forwarded");
    a.exchange_with(&other);
    other.exchange_with(&a);
    sleep(2 * A_WHILE);
    passed_on(&a.report(&other));
    passed_on(&other.report(&a));
    a.kill();
    b.kill();
    let end = Instant::now() + Duration::from_secs(5);
    while other.ask("steering") == "Forwarded" && Instant::now() < end {
        sleep(Duration::from_millis(20));
    }
    sleep(A_WHILE);
    other.exchange_with(&second);
    sleep(2 * A_WHILE);
    passed_on(&other.report(&second));
}

/// Every process that has joined a multicast group gets its own copy, nobody else does.
#[test]
fn multicast_reaches_all_who_joined() {
    for (address, multicast) in [(V4, "239.7.9.1")] {
        let group = Group::new(address);
        let mut members: Vec<Handle> = (0..4).map(|_| group.join()).collect();
        for member in &mut members[..2] {
            assert_eq!(member.ask(&format!("listen {multicast}")), "listening");
        }
        for member in &mut members[1..3] {
            assert_eq!(member.ask(&format!("shout {multicast}")), "shouted");
        }
        sleep(A_WHILE);
        let heard: Vec<u32> = members
            .iter_mut()
            .map(|member| {
                let line = member.ask("report 0");
                line.rsplit(' ')
                    .next()
                    .expect("number")
                    .parse()
                    .expect("number")
            })
            .collect();
        assert_eq!(heard, [2, 2, 0, 0], "{multicast}");
    }
}
