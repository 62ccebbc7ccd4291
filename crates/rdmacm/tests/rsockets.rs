//! Sockets of the built library, as a program has them: both ends in one process.

use std::ffi::{CString, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use libc::{pollfd, sockaddr, sockaddr_in, socklen_t};

/// A function of the library; its name is looked up once.
macro_rules! calls {
    ($( fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty; )*) => { $(
        fn $name($($argument: $type),*) -> $result {
            static FOUND: OnceLock<usize> = OnceLock::new();
            let found = *FOUND.get_or_init(|| address(stringify!($name)));
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: the library's function of this name, with arguments of the tests'.
            unsafe {
                let function: Function = std::mem::transmute(found);
                function($($argument),*)
            }
        }
    )* };
}

calls! {
    fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rlisten(fd: c_int, backlog: c_int) -> c_int;
    fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rshutdown(fd: c_int, how: c_int) -> c_int;
    fn rclose(fd: c_int) -> c_int;
    fn rsend(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize;
    fn rrecv(fd: c_int, into: *mut c_void, length: usize, flags: c_int) -> isize;
    fn rpoll(polls: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn rfcntl(fd: c_int, command: c_int, argument: libc::c_long) -> c_int;
    fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rgetsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, length: *mut socklen_t) -> c_int;
    fn rsetsockopt(fd: c_int, level: c_int, name: c_int, from: *const c_void, length: socklen_t) -> c_int;
    fn repoll_create(flags: c_int) -> c_int;
    fn repoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int;
    fn repoll_wait(set: c_int, to: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int;
}

fn address(name: &str) -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let path = testkit::cdylib::build("hirail-rdmacm");
        // It stands on the other one.
        testkit::cdylib::build("hirail-ibverbs");
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the library loads");
        library.expose_provenance()
    });
    let name = CString::new(name).unwrap();
    // SAFETY: the library is loaded, and the name ends with a zero.
    let found = unsafe {
        libc::dlsym(
            std::ptr::with_exposed_provenance_mut(library),
            name.as_ptr(),
        )
    };
    assert!(!found.is_null(), "{name:?}");
    found.expose_provenance()
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

const SIZE: socklen_t = size_of::<sockaddr_in>() as socklen_t;

fn loopback(port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// A descriptor, closed with the value.
struct Fd(c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        rclose(self.0);
    }
}

fn stream() -> Fd {
    let fd = rsocket(libc::AF_INET, libc::SOCK_STREAM, 0);
    assert!(fd >= 0, "{}", errno());
    Fd(fd)
}

/// A listener, and its port.
fn listener() -> (Fd, u16) {
    let fd = stream();
    let mut address = loopback(0);
    let mut length = SIZE;
    assert_eq!(rbind(fd.0, (&raw const address).cast(), SIZE), 0);
    assert_eq!(rlisten(fd.0, 8), 0, "{}", errno());
    let to = (&raw mut address).cast();
    assert_eq!(rgetsockname(fd.0, to, &raw mut length), 0);
    (fd, u16::from_be(address.sin_port))
}

fn connect(fd: c_int, port: u16) -> c_int {
    let to = loopback(port);
    rconnect(fd, (&raw const to).cast(), SIZE)
}

/// Both ends of a connection. The listener's answers before `raccept` is called.
fn pair() -> (Fd, Fd) {
    let (listener, port) = listener();
    let client = stream();
    assert_eq!(connect(client.0, port), 0, "{}", errno());
    let server = raccept(listener.0, std::ptr::null_mut(), std::ptr::null_mut());
    assert!(server >= 0, "{}", errno());
    (Fd(server), client)
}

fn send(fd: &Fd, bytes: &[u8], flags: c_int) -> isize {
    rsend(fd.0, bytes.as_ptr().cast(), bytes.len(), flags)
}

fn receive(fd: &Fd, length: usize, flags: c_int) -> Result<Vec<u8>, c_int> {
    let mut bytes = vec![0; length];
    let done = rrecv(fd.0, bytes.as_mut_ptr().cast(), length, flags);
    bytes.truncate(usize::try_from(done).map_err(|_| errno())?);
    Ok(bytes)
}

/// What a socket is ready for.
fn poll(fd: &Fd, events: i16, timeout: c_int) -> i16 {
    let mut one = pollfd {
        fd: fd.0,
        events,
        revents: 0,
    };
    assert!(rpoll(&raw mut one, 1, timeout) >= 0, "{}", errno());
    one.revents
}

fn option(fd: &Fd, level: c_int, name: c_int) -> c_int {
    let mut value: c_int = -1;
    let mut length = size_of::<c_int>() as socklen_t;
    let to = (&raw mut value).cast();
    assert_eq!(rgetsockopt(fd.0, level, name, to, &raw mut length), 0);
    value
}

fn set_option(fd: &Fd, level: c_int, name: c_int, value: c_int) -> c_int {
    let length = size_of::<c_int>() as socklen_t;
    rsetsockopt(fd.0, level, name, (&raw const value).cast(), length)
}

/// Bytes that tell where they belong.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 % 251) as u8).collect()
}

#[test]
fn bytes_go_both_ways_at_once() {
    let (one, other) = pair();
    let bytes = pattern(4_000_000);
    thread::scope(|scope| {
        for fd in [&one, &other] {
            scope.spawn(|| assert_eq!(send(fd, &bytes, 0), bytes.len() as isize));
            scope.spawn(|| {
                let got = receive(fd, bytes.len(), libc::MSG_WAITALL).unwrap();
                assert!(got == bytes, "{} bytes", got.len());
            });
        }
    });
}

#[test]
fn what_was_sent_before_the_end_is_read_first() {
    let (server, client) = pair();
    assert_eq!(send(&server, b"last words", 0), 10);
    assert_eq!(send(&server, b"", 0), 0);
    drop(server);
    assert_eq!(receive(&client, 4, libc::MSG_PEEK).unwrap(), b"last");
    assert_eq!(poll(&client, libc::POLLIN, 5000), libc::POLLIN);
    assert_eq!(receive(&client, 100, 0).unwrap(), b"last words");
    assert_eq!(receive(&client, 100, 0).unwrap(), b"");
    let hung = poll(&client, libc::POLLIN, 5000);
    assert_eq!(hung, libc::POLLIN | libc::POLLHUP);
    assert_eq!(send(&client, b"too late", 0), -1);
    assert_eq!(errno(), libc::ECONNRESET);
}

#[test]
fn one_direction_can_end_before_the_other() {
    let (server, client) = pair();
    assert_eq!(send(&client, b"question", 0), 8);
    assert_eq!(rshutdown(client.0, libc::SHUT_WR), 0);
    assert_eq!(send(&client, b"more", 0), -1);
    assert_eq!(errno(), libc::EPIPE);
    assert_eq!(receive(&server, 100, 0).unwrap(), b"question");
    assert_eq!(receive(&server, 100, 0).unwrap(), b"");
    assert_eq!(send(&server, b"answer", 0), 6);
    assert_eq!(receive(&client, 100, 0).unwrap(), b"answer");
}

#[test]
fn who_must_not_wait_is_told_so() {
    let (server, client) = pair();
    assert_eq!(receive(&client, 1, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    let flags = (libc::O_RDWR | libc::O_NONBLOCK).into();
    assert_eq!(rfcntl(client.0, libc::F_SETFL, flags), 0);
    assert_eq!(receive(&client, 1, 0), Err(libc::EAGAIN));
    // Until the peer's buffer and the own one are full.
    let bytes = pattern(100_000);
    let mut sent = 0;
    loop {
        match send(&client, &bytes, 0) {
            -1 => break assert_eq!(errno(), libc::EAGAIN),
            some => sent += some as usize,
        }
        assert!(sent < 10_000_000, "nobody reads");
    }
    assert_eq!(poll(&client, libc::POLLOUT, 0), 0);
    let mut read = 0;
    while read < sent {
        read += receive(&server, 1 << 20, 0).unwrap().len();
    }
    assert_eq!(poll(&client, libc::POLLOUT, 5000), libc::POLLOUT);
}

#[test]
fn a_call_waits_as_long_as_it_was_told() {
    let (_server, client) = pair();
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: 20_000,
    };
    let length = size_of_val(&time) as socklen_t;
    let from = (&raw const time).cast();
    let set = rsetsockopt(client.0, libc::SOL_SOCKET, libc::SO_RCVTIMEO, from, length);
    assert_eq!(set, 0);
    let start = Instant::now();
    assert_eq!(receive(&client, 1, 0), Err(libc::EAGAIN));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(poll(&client, libc::POLLIN, 10), 0);
}

#[test]
fn connecting_may_take_its_time() {
    let (listener, port) = listener();
    let client = stream();
    let flags = (libc::O_RDWR | libc::O_NONBLOCK).into();
    assert_eq!(rfcntl(client.0, libc::F_SETFL, flags), 0);
    assert_eq!(connect(client.0, port), -1);
    assert_eq!(errno(), libc::EINPROGRESS);
    assert_eq!(poll(&client, libc::POLLOUT, 10_000), libc::POLLOUT);
    assert_eq!(option(&client, libc::SOL_SOCKET, libc::SO_ERROR), 0);
    assert_eq!(connect(client.0, port), -1);
    assert_eq!(errno(), libc::EISCONN);
    assert_eq!(poll(&listener, libc::POLLIN, 10_000), libc::POLLIN);
}

#[test]
fn nobody_listens() {
    let (listening, port) = listener();
    drop(listening);
    let client = stream();
    assert_eq!(connect(client.0, port), -1);
    assert_eq!(errno(), libc::ECONNREFUSED);
    let client = stream();
    let flags = (libc::O_RDWR | libc::O_NONBLOCK).into();
    assert_eq!(rfcntl(client.0, libc::F_SETFL, flags), 0);
    assert_eq!(connect(client.0, port), -1);
    assert_eq!(errno(), libc::EINPROGRESS);
    let told = poll(&client, libc::POLLOUT, 10_000);
    assert_eq!(told & libc::POLLERR, libc::POLLERR);
    let error = option(&client, libc::SOL_SOCKET, libc::SO_ERROR);
    assert_eq!(error, libc::ECONNREFUSED);
}

#[test]
fn descriptors_and_options_are_those_of_sockets() {
    assert_eq!(rsocket(libc::AF_UNIX, libc::SOCK_STREAM, 0), -1);
    assert_eq!(errno(), libc::ENOTSUP);
    assert_eq!(receive(&Fd(0), 1, 0), Err(libc::EBADF));
    let fd = stream();
    assert_eq!(receive(&fd, 1, 0), Err(libc::ENOTCONN));
    assert_eq!(
        set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 10_000),
        0
    );
    assert_eq!(option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF), 20_000);
    assert_eq!(set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1), 0);
    assert_eq!(option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    const SOL_RDMA: c_int = 0x10000;
    for (name, value) in [(0, 100), (1, 200), (2, 0), (3, 4)] {
        assert_eq!(set_option(&fd, SOL_RDMA, name, value), 0);
        assert_eq!(option(&fd, SOL_RDMA, name), value);
    }
    assert_eq!(set_option(&fd, SOL_RDMA, 99, 1), -1);
    assert_eq!(errno(), libc::ENOTSUP);
}

#[test]
fn a_set_tells_of_sockets_and_of_pipes() {
    let (server, client) = pair();
    let mut pipe = [0; 2];
    // SAFETY: two places.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let set = repoll_create(0);
    assert!(set >= 0);
    let add = |fd, events: c_int, mark| {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: mark,
        };
        assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event), 0);
    };
    add(client.0, libc::EPOLLIN | libc::EPOLLET, 1);
    add(pipe[0], libc::EPOLLIN, 2);
    let wait = |timeout| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let found = repoll_wait(set, events.as_mut_ptr(), 4, timeout);
        assert!(found >= 0, "{}", errno());
        let mut marks: Vec<u64> = events[..found as usize]
            .iter()
            .map(|event| event.u64)
            .collect();
        marks.sort_unstable();
        marks
    };
    assert_eq!(wait(0), []);
    assert_eq!(send(&server, b"x", 0), 1);
    assert_eq!(wait(5000), [1]);
    // SAFETY: one byte is there.
    assert_eq!(unsafe { libc::write(pipe[1], b"y".as_ptr().cast(), 1) }, 1);
    // The socket has told of its byte.
    assert_eq!(wait(5000), [2]);
    assert_eq!(send(&server, b"z", 0), 1);
    while wait(5000) != [1, 2] {}
    for fd in [set, pipe[0], pipe[1]] {
        // SAFETY: descriptors of ours.
        unsafe { libc::close(fd) };
    }
}

#[test]
fn many_connections_leave_nothing_behind() {
    let (listener, port) = listener();
    let once = || {
        let client = stream();
        assert_eq!(connect(client.0, port), 0, "{}", errno());
        let server = Fd(raccept(
            listener.0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ));
        assert_eq!(send(&client, b"hello", 0), 5);
        assert_eq!(receive(&server, 5, libc::MSG_WAITALL).unwrap(), b"hello");
    };
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..50 {
        once();
    }
    let before = descriptors();
    for _ in 0..1000 {
        once();
    }
    // Other tests run beside this one.
    assert!(descriptors() < before + 200, "{before}, {}", descriptors());
}
