//! The out-of-band exchange: items go both ways, and every way to go wrong is named.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hirail::exchange::{self, Connection, Listener, MAX_BYTES};
use hirail::{Error, Gid, Psn, QpEndpoint, Qpn, RemoteMemory, Rkey};

const PATIENCE: Duration = Duration::from_secs(20);
const IMPATIENCE: Duration = Duration::from_millis(100);

fn endpoint(number: u32) -> QpEndpoint {
    QpEndpoint {
        gid: Gid::from_ip("2001:db8::1".parse().unwrap()),
        qpn: Qpn::new(number),
        psn: Psn::new(0xff_ffff),
    }
}

/// Two connected ends.
fn pair() -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || exchange::connect(address, PATIENCE).unwrap());
    let server = listener.accept(PATIENCE).unwrap();
    (server, client.join().unwrap())
}

/// A connection whose other end sends `text` and goes away.
fn told(text: &[u8]) -> Connection {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.write_all(text).unwrap();
    listener.accept(PATIENCE).unwrap()
}

#[test]
fn items_go_both_ways() {
    let (mut a, mut b) = pair();
    let memory = RemoteMemory {
        addr: u64::MAX - 4096,
        len: 4096,
        rkey: Rkey::new(0x89ab_cdef),
    };
    let other = thread::spawn(move || {
        let theirs = b.swap(&endpoint(2)).unwrap();
        b.send(&memory).unwrap();
        let bytes = b.receive_bytes().unwrap();
        b.send_bytes(&bytes).unwrap();
        b.meet().unwrap();
        theirs
    });
    assert_eq!(a.swap(&endpoint(1)).unwrap(), endpoint(2));
    assert_eq!(a.receive::<RemoteMemory>().unwrap(), memory);
    // Any bytes, line feeds and all.
    let bytes: Vec<u8> = (0..MAX_BYTES).map(|i| i as u8).collect();
    a.send_bytes(&bytes).unwrap();
    assert_eq!(a.receive_bytes().unwrap(), bytes);
    a.meet().unwrap();
    assert_eq!(other.join().unwrap(), endpoint(1));
}

#[test]
fn what_is_said_instead_is_shown() {
    let check = |text: &[u8], message: &str| {
        let error = told(text).receive::<QpEndpoint>().unwrap_err();
        assert_eq!(error.to_string(), message);
    };
    check(
        b"memory 30\n0x1000 4096 0x00000001\n",
        r#"expected endpoint from the peer, got "memory 30""#,
    );
    check(
        b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n",
        r#"expected endpoint from the peer, got "GET / HTTP/1.1\r""#,
    );
    check(
        &[b'x'; 100],
        &format!(
            r#"expected endpoint from the peer, got "{}""#,
            "x".repeat(33)
        ),
    );
    check(
        b"endpoint 5\nhello\n",
        r#"expected an endpoint: GID QPN PSN from the peer, got "hello""#,
    );
    check(
        b"endpoint 99999999\n",
        r#"expected endpoint from the peer, got "endpoint 99999999""#,
    );
    check(
        b"endpoint 4\nhello\n",
        r#"expected the end of an item from the peer, got "hell""#,
    );
    check(
        b"",
        "expected endpoint from the peer, got the end of the connection",
    );
    check(
        b"endpoint 35\n::1",
        "expected endpoint from the peer, got the end of the connection",
    );
    let error = told(b"bytes 1\nx\n").meet().unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"expected an empty byte string from the peer, got "x""#
    );
}

#[test]
fn a_silent_peer_is_not_waited_for_without_end() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let error = listener.accept(IMPATIENCE).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Silence {
                expected: "a connection",
                ..
            }
        ),
        "{error}"
    );
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut connection = listener.accept(IMPATIENCE).unwrap();
    // A peer that says a little now and then is no better.
    let talker = thread::spawn(move || {
        for byte in b"endpoint 35\n::ffff" {
            if peer.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(IMPATIENCE / 5);
        }
    });
    let error = connection.receive::<QpEndpoint>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected endpoint from the peer, got nothing within 100ms"
    );
    drop(connection);
    talker.join().unwrap();
}

#[test]
fn nobody_there_is_named() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let start = Instant::now();
    let error = exchange::connect(address, IMPATIENCE)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!("cannot reach the peer at {address}: ")),
        "{error}"
    );
    assert!(start.elapsed() < PATIENCE);
    let error = exchange::connect("no.such.host.invalid:1", IMPATIENCE).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot reach the peer at no.such.host.invalid:1: "),
        "{error}"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = Listener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Listener::bind(address.as_str()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {address}: Address already in use (os error 98)")
    );
}

#[test]
fn a_peer_that_comes_late_is_waited_for() {
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let late = thread::spawn(move || {
        thread::sleep(IMPATIENCE);
        let listener = Listener::bind(address).unwrap();
        listener.accept(PATIENCE).unwrap().meet().unwrap();
    });
    exchange::connect(address, PATIENCE)
        .unwrap()
        .meet()
        .unwrap();
    late.join().unwrap();
}
