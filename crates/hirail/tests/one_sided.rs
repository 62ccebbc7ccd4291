//! One-sided operations against targets that compute and never call in, that take their memory
//! away under load, or that fork.
//!
//! Some targets are processes of their own: this test binary starts itself, and the two meet over
//! TCP to exchange what they must know.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hirail::config::Config;
use hirail::exchange::{self, Connection, Listener};
use hirail::port::PortOptions;
use hirail::{
    Access, ConnectOptions, Context, Cq, Error, Faults, MemoryNetwork, Mr, Pd, Qp, RemoteMemory,
    SendWr, WcStatus,
};

const ROLE: &str = "HIRAIL_TEST_TARGET";
const ALL: Access = Access::all().difference(Access::ZERO_BASED);
const PATIENCE: Duration = Duration::from_secs(60);

/// The word of the target's memory that tells it to stop, behind everything else.
const STOP: usize = 65_528;
/// A word that is counted up.
const COUNTER: usize = 65_520;
/// Bytes that are written and read back.
const SOME: usize = 20_000;

/// A device with a queue and a domain.
struct Side {
    context: Context,
    pd: Pd,
    cq: Cq,
}

impl Side {
    fn on(context: Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4096).unwrap();
        Self { context, pd, cq }
    }

    /// On the loopback device, at a UDP port that only this test uses.
    fn udp(port: u16) -> Self {
        let config = Config {
            port: PortOptions {
                udp_port: port,
                ..PortOptions::default()
            },
            ..Config::default()
        };
        Self::on(Context::open_with("hirail_lo", &config).unwrap())
    }

    /// Two of them on a network in memory.
    fn in_memory() -> [Self; 2] {
        let network = MemoryNetwork::new(Faults::default());
        [1, 2].map(|number| {
            let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
            Self::on(network.open(address).unwrap())
        })
    }

    /// Two of them over UDP.
    fn over_udp() -> [Self; 2] {
        let port = free_port();
        [(); 2].map(|()| Self::udp(port))
    }

    fn qp(&self) -> Qp {
        let builder = self.pd.qp(&self.cq, &self.cq).max_inline_data(64);
        builder.build().unwrap()
    }

    #[track_caller]
    fn carry_out(&self, qp: &Qp, wr: &SendWr<'_>) {
        qp.post(wr).unwrap();
        self.cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
    }
}

fn connect(a: (&Side, &Qp), b: (&Side, &Qp)) {
    for (from, to) in [(a, b), (b, a)] {
        let options = ConnectOptions::new(&from.0.context, 0);
        from.1
            .connect(&to.1.endpoint(0).unwrap(), &options)
            .unwrap();
    }
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

fn pattern(round: u64) -> Vec<u8> {
    (0..SOME as u64).map(|i| (i * 7 + round) as u8).collect()
}

/// Writes, reads and counts, everything checked; the longest time that one operation took.
fn use_memory(side: &Side, qp: &Qp, remote: RemoteMemory, rounds: u64) -> Duration {
    let mr = side.pd.register(2 * SOME + 8, ALL).unwrap();
    let mut longest = Duration::ZERO;
    let mut timed = |wr: &SendWr<'_>| {
        let start = Instant::now();
        side.carry_out(qp, wr);
        longest = longest.max(start.elapsed());
    };
    for round in 0..rounds {
        mr.write(0, &pattern(round));
        timed(&SendWr::write(1, &[mr.slice(..SOME)], remote));
        timed(&SendWr::read(2, &[mr.slice(SOME..2 * SOME)], remote));
        assert_eq!(mr.to_vec(SOME, SOME), pattern(round));
        let (before, word) = ([mr.slice(2 * SOME..)], remote.offset(COUNTER as u64));
        timed(&SendWr::fetch_add(3, &before, word, 1));
        assert_eq!(mr.load_u64(2 * SOME), round);
        timed(&SendWr::compare_swap(
            4,
            &before,
            word,
            round + 1,
            round + 1,
        ));
        assert_eq!(mr.load_u64(2 * SOME), round + 1);
    }
    longest
}

/// Tells the target to stop.
fn stop(side: &Side, qp: &Qp, remote: RemoteMemory) {
    let word = 1u64.to_ne_bytes();
    let wr = SendWr::write(9, &[], remote.offset(STOP as u64));
    side.carry_out(qp, &wr.with_inline(&word));
}

/// Computes until told to stop; looks at its own memory now and then and calls nothing else.
fn compute(mr: &Mr) -> u64 {
    let mut sum = 0u64;
    while mr.load_u64(STOP) == 0 {
        for i in 0..100_000u64 {
            sum = sum.rotate_left(7) ^ std::hint::black_box(i);
        }
    }
    sum
}

// --- Targets that do not call in.

/// Longest that one operation may take: the progress thread has to get a turn on a machine that
/// others use too.
const STALL: Duration = Duration::from_secs(20);

#[test]
fn a_target_that_computes() {
    for [a, b] in [Side::in_memory(), Side::over_udp()] {
        let (own, other) = (a.qp(), b.qp());
        connect((&a, &own), (&b, &other));
        let mr = b.pd.register(1 << 16, ALL).unwrap();
        let remote = mr.remote();
        let target = thread::spawn(move || {
            compute(&mr);
            mr.load_u64(COUNTER)
        });
        let longest = use_memory(&a, &own, remote, 50);
        stop(&a, &own, remote);
        assert_eq!(target.join().unwrap(), 50);
        println!("longest operation: {longest:?}");
        assert!(longest < STALL, "{longest:?}");
    }
}

/// A target in a process of its own, ended with this value.
struct Target {
    child: Child,
    connection: Connection,
}

impl Target {
    fn start(role: &str, udp_port: u16) -> Self {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "target", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {address} {udp_port}"))
            .spawn()
            .unwrap();
        let connection = listener.accept(PATIENCE).unwrap();
        Self { child, connection }
    }

    /// Connects to it; what it lets others use.
    fn connect(&mut self, side: &Side, qp: &Qp) -> RemoteMemory {
        let remote = self.connection.swap(&qp.endpoint(0).unwrap()).unwrap();
        let options = ConnectOptions::new(&side.context, 0);
        qp.connect(&remote, &options).unwrap();
        let memory = self.connection.receive().unwrap();
        self.connection.meet().unwrap();
        memory
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The entry of a target's process. Started as a test, it has nothing to do.
#[test]
fn target() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let mut peer = exchange::connect(words[1], PATIENCE).unwrap();
    let side = Side::udp(words[2].parse().unwrap());
    let qp = side.qp();
    let remote = peer.swap(&qp.endpoint(0).unwrap()).unwrap();
    qp.connect(&remote, &ConnectOptions::new(&side.context, 0))
        .unwrap();
    let mr = side.pd.register(1 << 16, ALL).unwrap();
    qp.post_recv(0, &[mr.slice(..8)]).unwrap();
    peer.send(&mr.remote()).unwrap();
    peer.meet().unwrap();
    match words[0] {
        "compute" => {
            compute(&mr);
        }
        "sleep" => {
            while mr.load_u64(STOP) == 0 {
                thread::sleep(Duration::from_millis(50));
            }
        }
        "fork" => fork_and_go_on(&side, &qp, &mr),
        "exit" => converse_and_exit(&side, &qp, &mr),
        role => panic!("there is no role {role}"),
    }
    let counted = mr.load_u64(COUNTER);
    peer.send_bytes(&counted.to_ne_bytes()).unwrap();
}

#[test]
fn a_process_that_computes_and_one_that_sleeps() {
    for role in ["compute", "sleep"] {
        let port = free_port();
        let mut target = Target::start(role, port);
        let side = Side::udp(port);
        let qp = side.qp();
        let remote = target.connect(&side, &qp);
        let longest = use_memory(&side, &qp, remote, 50);
        stop(&side, &qp, remote);
        let counted = target.connection.receive_bytes().unwrap();
        assert_eq!(counted, 50u64.to_ne_bytes());
        assert!(target.child.wait().unwrap().success());
        println!("{role}: longest operation {longest:?}");
        assert!(longest < STALL, "{longest:?}");
    }
}

/// Messages of a conversation.
const MESSAGES: u64 = 20;

/// Answers every message but the last, and exits with that in hand.
fn converse_and_exit(side: &Side, qp: &Qp, mr: &Mr) -> ! {
    for number in 0..MESSAGES {
        side.cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
        if number + 1 < MESSAGES {
            qp.post_recv(number, &[mr.slice(..8)]).unwrap();
            let answer = SendWr::send(number, &[]).with_inline(b"answered");
            qp.post(&answer.unsignaled()).unwrap();
        }
    }
    // As it is done in the midst of a program: nothing is dropped.
    std::process::exit(0)
}

#[test]
fn a_process_that_exits_with_the_last_message_in_hand() {
    let port = free_port();
    let mut target = Target::start("exit", port);
    let side = Side::udp(port);
    let (qp, mr) = (side.qp(), side.pd.register(8, ALL).unwrap());
    target.connect(&side, &qp);
    for number in 0..MESSAGES {
        qp.post_recv(number, &[mr.slice(..)]).unwrap();
        qp.post(&SendWr::send(number, &[]).with_inline(b"question"))
            .unwrap();
        // The completion and the answer; to the last one there is none.
        for _ in 0..if number + 1 < MESSAGES { 2 } else { 1 } {
            side.cq.wait_polling(PATIENCE).unwrap().ok().unwrap();
        }
    }
    assert!(target.child.wait().unwrap().success());
}

// --- Targets that take their memory away.

/// QPs that write without pause.
const WRITERS: usize = 4;

/// Several QPs write all of `remote` again and again until they fail; how each failed.
fn write_until_failure(a: &Side, b: &Side, remote: RemoteMemory) -> Vec<WcStatus> {
    let source = a.pd.register(remote.len as usize, ALL).unwrap();
    source.write(0, &vec![0xee; source.len()]);
    let pairs: Vec<(Qp, Qp)> = (0..WRITERS)
        .map(|_| {
            let pair = (a.qp(), b.qp());
            connect((a, &pair.0), (b, &pair.1));
            pair
        })
        .collect();
    let mut failures = Vec::new();
    let slices = [source.slice(..)];
    let wr = SendWr::write(1, &slices, remote);
    for (qp, _) in &pairs {
        qp.post_all([wr; 4]).unwrap();
    }
    while failures.len() < WRITERS {
        let wc = a.cq.wait_polling(PATIENCE).unwrap();
        match wc.status {
            WcStatus::Success => {
                let (qp, _) = pairs.iter().find(|(qp, _)| qp.qpn() == wc.qpn).unwrap();
                qp.post(&wr).unwrap();
            }
            WcStatus::WrFlushErr => {}
            status => failures.push(status),
        }
    }
    drop(pairs);
    while a.cq.poll_one().unwrap().is_some() {}
    failures
}

#[test]
fn memory_is_its_owners_again_when_it_was_deregistered() {
    for sides in [Side::in_memory(), Side::over_udp()] {
        let [a, b] = &sides;
        for round in 0..5 {
            let bytes: Arc<[AtomicU8]> = (0..1 << 14).map(|_| AtomicU8::new(0)).collect();
            let mr = b.pd.register_shared(Arc::clone(&bytes), ALL).unwrap();
            let remote = mr.remote();
            thread::scope(|scope| {
                let writers = scope.spawn(|| write_until_failure(a, b, remote));
                // In the middle of it, the region goes, and what is stored from now on stays.
                while bytes[bytes.len() - 1].load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                drop(mr);
                assert_eq!(Arc::strong_count(&bytes), 1);
                for byte in &*bytes {
                    byte.store(round, Ordering::Relaxed);
                }
                let failures = writers.join().unwrap();
                assert_eq!(failures, [WcStatus::RemAccessErr; WRITERS]);
                assert!(bytes.iter().all(|b| b.load(Ordering::Relaxed) == round));
            });
            while b.context.async_event().unwrap().is_some() {}
        }
    }
}

/// Pages of our own making.
struct Pages {
    addr: *mut u8,
    len: usize,
}

// SAFETY: an address range is as good in one thread as in another; what is in it is only ever
// accessed as atomics and by the library.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(len: usize, fd: i32) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = if fd < 0 {
            libc::MAP_PRIVATE | libc::MAP_ANON
        } else {
            libc::MAP_SHARED
        };
        // SAFETY: a fresh mapping where the kernel likes.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        Self {
            addr: addr.cast(),
            len,
        }
    }

    fn register(&self, pd: &Pd) -> Mr {
        // SAFETY: nothing else is mapped there while the tests run, and nobody else looks at it but
        // as atomics.
        unsafe { pd.register_raw(self.addr, self.len, ALL) }.unwrap()
    }

    /// The last byte, as long as it is there.
    fn last(&self) -> u8 {
        // SAFETY: it is mapped, and bytes are always aligned.
        let byte = unsafe { AtomicU8::from_ptr(self.addr.add(self.len - 1)) };
        byte.load(Ordering::Acquire)
    }

    /// Takes the pages away, but keeps the place: other threads would map something else there.
    fn vanish(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: over pages of our own.
        let addr = unsafe { libc::mmap(self.addr.cast(), self.len, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(addr.cast(), self.addr);
    }

    fn make_read_only(&self) {
        // SAFETY: pages of our own.
        let result = unsafe { libc::mprotect(self.addr.cast(), self.len, libc::PROT_READ) };
        assert_eq!(result, 0);
    }
}

/// A file in memory.
fn file(len: usize) -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: no memory involved but the name.
    let fd = unsafe { libc::memfd_create(c"hirail-test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: it was just made, and is nobody else's.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.set_len(len as u64).unwrap();
    file
}

/// Peers write while `take_away` does what it says to the pages; then they fail, and nobody else.
fn taken_away_at_the_target(take_away: impl Fn(&Pages, &std::fs::File)) {
    const LEN: usize = 1 << 16;
    for sides in [Side::in_memory(), Side::over_udp()] {
        let [a, b] = &sides;
        let file = file(LEN);
        let pages = Pages::new(LEN, std::os::fd::AsRawFd::as_raw_fd(&file));
        let mr = pages.register(&b.pd);
        let remote = mr.remote();
        thread::scope(|scope| {
            let writers = scope.spawn(|| write_until_failure(a, b, remote));
            while pages.last() == 0 {
                thread::yield_now();
            }
            take_away(&pages, &file);
            let failures = writers.join().unwrap();
            // As if the memory had been deregistered.
            assert_eq!(failures, [WcStatus::RemAccessErr; WRITERS]);
        });
        drop(mr);
        // Others are not concerned.
        let (own, other) = (a.qp(), b.qp());
        connect((a, &own), (b, &other));
        let mr = b.pd.register(1 << 16, ALL).unwrap();
        use_memory(a, &own, mr.remote(), 2);
    }
}

#[test]
fn pages_that_are_unmapped() {
    taken_away_at_the_target(|pages, _| pages.vanish());
}

#[test]
fn pages_that_become_read_only() {
    taken_away_at_the_target(|pages, _| pages.make_read_only());
}

#[test]
fn pages_of_a_file_that_is_cut_off() {
    taken_away_at_the_target(|_, file| file.set_len(0).unwrap());
}

#[test]
fn sources_that_are_unmapped() {
    for sides in [Side::in_memory(), Side::over_udp()] {
        let [a, b] = &sides;
        let target = b.pd.register(1 << 16, ALL).unwrap();
        // First the pages that are sent, then those that are read.
        for reads in [false, true] {
            let (own, other) = (a.qp(), b.qp());
            connect((a, &own), (b, &other));
            let pages = Pages::new(1 << 16, -1);
            let mr = pages.register(if reads { &b.pd } else { &a.pd });
            let (slices, into) = ([mr.slice(..)], [target.slice(..)]);
            let wr = if reads {
                SendWr::read(1, &into, mr.remote())
            } else {
                SendWr::write(1, &slices, target.remote())
            };
            let into = a.pd.register(1 << 16, ALL).unwrap();
            let into = [into.slice(..)];
            let wr = if reads {
                SendWr {
                    slices: &into,
                    ..wr
                }
            } else {
                wr
            };
            own.post_all([wr; 8]).unwrap();
            let mut done = 0;
            let status = loop {
                let wc = a.cq.wait_polling(PATIENCE).unwrap();
                if wc.status != WcStatus::Success {
                    break wc.status;
                }
                own.post(&wr).unwrap();
                done += 1;
                if done == 20 {
                    pages.vanish();
                }
            };
            if reads {
                assert_eq!(status, WcStatus::RemAccessErr);
            } else {
                assert_eq!(status, WcStatus::LocProtErr);
            }
            while a.cq.poll_one().unwrap().is_some() {}
        }
    }
}

// --- Processes that fork.

/// Runs `child` in a forked child and waits for it; its exit code.
///
/// The child may call what takes no lock, and ends without running destructors.
fn in_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only calls what returns at once in a forked child, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the child's own alarm, should it hang after all.
        unsafe { libc::alarm(30) };
        let code = child();
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        1000 + libc::WTERMSIG(status)
    }
}

/// The number of the first call that did not say that this is a forked child, or 0.
fn all_calls_are_refused(side: &Side, qp: &Qp, mr: &Mr) -> i32 {
    let is_forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked(_)));
    let refused = [
        is_forked(side.cq.poll_one().map(drop)),
        is_forked(side.cq.wait_polling(PATIENCE).map(drop)),
        is_forked(side.cq.wait(PATIENCE).map(drop)),
        is_forked(side.cq.arm(hirail::Arm::Any).map(drop)),
        is_forked(side.cq.moderate(1, Duration::ZERO)),
        is_forked(side.cq.resize(10)),
        is_forked(qp.post(&SendWr::send(1, &[]))),
        is_forked(qp.post_recv(1, &[])),
        is_forked(qp.fail()),
        is_forked(qp.query().map(drop)),
        is_forked(qp.endpoint(0).map(drop)),
        is_forked(side.pd.register(64, ALL).map(drop)),
        is_forked(side.pd.alloc_mw(hirail::MwType::Type1).map(drop)),
        is_forked(side.pd.create_srq(1, 1).map(drop)),
        is_forked(side.pd.qp(&side.cq, &side.cq).build().map(drop)),
        is_forked(side.context.alloc_pd().map(drop)),
        is_forked(side.context.create_cq(1).map(drop)),
        is_forked(side.context.create_channel().map(drop)),
        is_forked(side.context.alloc_xrcd().map(drop)),
        is_forked(side.context.async_event().map(drop)),
        is_forked(side.context.wait_async_event(PATIENCE).map(drop)),
        is_forked(side.context.poll().map(drop)),
        is_forked(side.context.gid(0).map(drop)),
        side.context.gids().is_empty(),
        qp.state() == hirail::QpState::Err,
        // Memory is the child's own copy.
        mr.load_u64(COUNTER) < u64::MAX,
    ];
    refused
        .iter()
        .position(|refused| !refused)
        .map_or(0, |at| at as i32 + 1)
}

#[test]
fn a_child_is_refused_and_the_parent_undisturbed() {
    for [a, b] in [Side::in_memory(), Side::over_udp()] {
        let (own, other) = (a.qp(), b.qp());
        connect((&a, &own), (&b, &other));
        let mr = b.pd.register(1 << 16, ALL).unwrap();
        let going = AtomicBool::new(true);
        let rounds = AtomicU64::new(0);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while going.load(Ordering::Relaxed) {
                    mr.store_u64(COUNTER, 0);
                    longest = longest.max(use_memory(&a, &own, mr.remote(), 3));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                longest
            });
            for _ in 0..5 {
                let before = rounds.load(Ordering::Relaxed);
                // In the midst of whatever the other threads do, with whatever they hold.
                let code = in_fork(|| all_calls_are_refused(&a, &own, &mr));
                assert_eq!(code, 0, "call {code}");
                let start = Instant::now();
                while rounds.load(Ordering::Relaxed) < before + 2 && start.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            // A child that only runs another program.
            let status = Command::new("true").status().unwrap();
            assert!(status.success());
            going.store(false, Ordering::Relaxed);
            let longest = worker.join().unwrap();
            assert!(longest < STALL, "{longest:?}");
        });
    }
}

/// A target that forks; the child lets go of everything that it has copies of, and the parent goes
/// on as if nothing had been.
fn fork_and_go_on(side: &Side, qp: &Qp, mr: &Mr) {
    while mr.load_u64(COUNTER) < 10 {
        thread::sleep(Duration::from_millis(1));
    }
    let code = in_fork(|| {
        let code = all_calls_are_refused(side, qp, mr);
        // Other descriptors may have taken the numbers of those that were closed.
        let sockets: Vec<UdpSocket> = (0..40)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        // SAFETY: the child ends without dropping the originals, or touching them again.
        let handles = unsafe { (std::ptr::read(mr), std::ptr::read(qp), std::ptr::read(side)) };
        drop(handles);
        let all_open = sockets.iter().all(|socket| socket.local_addr().is_ok());
        if code == 0 && !all_open { 101 } else { code }
    });
    assert_eq!(code, 0, "call {code}");
    while mr.load_u64(STOP) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_target_that_forks_goes_on() {
    let port = free_port();
    let mut target = Target::start("fork", port);
    let side = Side::udp(port);
    let qp = side.qp();
    let remote = target.connect(&side, &qp);
    let longest = use_memory(&side, &qp, remote, 200);
    stop(&side, &qp, remote);
    let counted = target.connection.receive_bytes().unwrap();
    assert_eq!(counted, 200u64.to_ne_bytes());
    assert!(target.child.wait().unwrap().success());
    assert!(longest < STALL, "{longest:?}");
}
