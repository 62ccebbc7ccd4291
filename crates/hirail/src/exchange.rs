//! Out-of-band exchange: two sides tell each other over TCP what they need to connect.
//!
//! Queue pairs cannot be connected, nor memory be reached, before numbers and keys are known. Real
//! programs have their own way to pass them on; this one is for those that have none. Every item is
//! a line that says what follows and how long it is, and then the item and a line feed, so that a
//! person can read along:
//!
//! ```text
//! endpoint 35
//! ::ffff:192.0.2.1 0x000011 0x4a5b6c
//! memory 31
//! 0x7f3a5c000000 4096 0x00012345
//! bytes 5
//! ready
//! ```
//!
//! Both sides of an exchange:
//!
//! ```
//! use std::time::Duration;
//! use hirail::exchange::{self, Listener};
//!
//! const PATIENCE: Duration = Duration::from_secs(5);
//!
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || {
//!     let mut peer = listener.accept(PATIENCE)?;
//!     let greeting = peer.receive_bytes()?;
//!     peer.send_bytes(&greeting)
//! });
//! let mut peer = exchange::connect(address, PATIENCE)?;
//! peer.send_bytes(b"hello")?;
//! assert_eq!(peer.receive_bytes()?, b"hello");
//! # server.join().unwrap()?;
//! # Ok::<(), hirail::Error>(())
//! ```

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::port::sys;
use crate::{QpEndpoint, RemoteMemory};

/// Longest byte string.
pub const MAX_BYTES: usize = 64 << 10;

/// Longest line that announces an item.
const MAX_HEADER: usize = 32;

/// Time between two attempts to connect to a peer that does not listen yet.
const AGAIN: Duration = Duration::from_millis(20);

/// What can be exchanged beside byte strings.
pub trait Item: sealed::Sealed + fmt::Display + FromStr<Err = Error> {
    /// The word that announces it.
    const KIND: &'static str;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::QpEndpoint {}
    impl Sealed for crate::RemoteMemory {}
}

impl Item for QpEndpoint {
    const KIND: &'static str = "endpoint";
}

impl Item for RemoteMemory {
    const KIND: &'static str = "memory";
}

/// The word that announces a byte string.
const BYTES: &str = "bytes";

/// Waits for peers to connect.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Listens at an address; port 0 takes any that is free.
    ///
    /// # Errors
    /// The address is not this host's, or the port is in use.
    pub fn bind(address: impl ToSocketAddrs + fmt::Debug) -> Result<Self, Error> {
        let listener = TcpListener::bind(&address).map_err(|error| Error::Listen {
            address: in_words(&address),
            error,
        })?;
        listener.set_nonblocking(true).map_err(Error::OutOfBand)?;
        Ok(Self { listener })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.listener.local_addr().map_err(Error::OutOfBand)
    }

    /// The next peer that connects. `timeout` holds for this, and then for each item that is
    /// exchanged with it.
    ///
    /// # Errors
    /// None came in time.
    pub fn accept(&self, timeout: Duration) -> Result<Connection, Error> {
        let end = Instant::now() + timeout;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Connection::new(stream, timeout),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer was gone before it was accepted, or a signal came.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(Error::OutOfBand(error)),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Silence {
                    expected: "a connection",
                    waited: timeout,
                });
            }
            sys::wait_readable(&[self.listener.as_fd()], left);
        }
    }
}

/// Connects to a peer. One that does not listen yet is tried again until `timeout` is over, which
/// then holds for each item that is exchanged.
///
/// # Errors
/// There is nobody at the address, or no such address.
pub fn connect(
    address: impl ToSocketAddrs + fmt::Debug,
    timeout: Duration,
) -> Result<Connection, Error> {
    let end = Instant::now() + timeout;
    let unreachable = |error| Error::Unreachable {
        address: in_words(&address),
        error,
    };
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(unreachable)?.collect();
    loop {
        let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in &addresses {
            // A zero timeout would be refused.
            let left = end.saturating_duration_since(Instant::now()).max(AGAIN);
            match TcpStream::connect_timeout(address, left) {
                Ok(stream) => return Connection::new(stream, timeout),
                Err(error) => failure = error,
            }
        }
        let may_come = failure.kind() == ErrorKind::ConnectionRefused;
        if !may_come || Instant::now() + AGAIN > end {
            return Err(unreachable(failure));
        }
        thread::sleep(AGAIN);
    }
}

/// An address as the caller wrote it, without the quotes that Rust puts around text.
fn in_words(address: &impl fmt::Debug) -> String {
    format!("{address:?}").replace('"', "")
}

/// A connection to a peer.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    timeout: Duration,
}

impl Connection {
    fn new(stream: TcpStream, timeout: Duration) -> Result<Self, Error> {
        stream.set_nonblocking(false).map_err(Error::OutOfBand)?;
        stream.set_nodelay(true).map_err(Error::OutOfBand)?;
        Ok(Self { stream, timeout })
    }

    /// Address of this end: that of the device by which the peer is likely to be reached.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.stream.local_addr().map_err(Error::OutOfBand)
    }

    /// Address of the peer.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        self.stream.peer_addr().map_err(Error::OutOfBand)
    }

    /// Sends an item.
    ///
    /// # Errors
    /// The peer is gone, or takes nothing.
    pub fn send<T: Item>(&mut self, item: &T) -> Result<(), Error> {
        self.put(T::KIND, item.to_string().as_bytes())
    }

    /// Receives an item.
    ///
    /// # Errors
    /// The peer says something else, nothing in time, or is gone.
    pub fn receive<T: Item>(&mut self) -> Result<T, Error> {
        let text = self.get(T::KIND)?;
        String::from_utf8_lossy(&text).parse()
    }

    /// Sends an item and receives the peer's.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn swap<T: Item>(&mut self, item: &T) -> Result<T, Error> {
        self.send(item)?;
        self.receive()
    }

    /// Sends a byte string of at most [`MAX_BYTES`].
    ///
    /// # Errors
    /// The peer is gone, or takes nothing.
    ///
    /// # Panics
    /// When the string is too long.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        assert!(
            bytes.len() <= MAX_BYTES,
            "{} bytes, at most {MAX_BYTES}",
            bytes.len()
        );
        self.put(BYTES, bytes)
    }

    /// Receives a byte string.
    ///
    /// # Errors
    /// The peer says something else, nothing in time, or is gone.
    pub fn receive_bytes(&mut self) -> Result<Vec<u8>, Error> {
        self.get(BYTES)
    }

    /// Returns when the peer has come to the same point.
    ///
    /// # Errors
    /// The peer does not in time.
    pub fn meet(&mut self) -> Result<(), Error> {
        self.send_bytes(b"")?;
        match self.receive_bytes()? {
            bytes if bytes.is_empty() => Ok(()),
            bytes => Err(Error::Exchange {
                expected: "an empty byte string",
                got: String::from_utf8_lossy(&bytes).into_owned(),
            }),
        }
    }

    fn put(&mut self, kind: &'static str, item: &[u8]) -> Result<(), Error> {
        let mut text = format!("{kind} {}\n", item.len()).into_bytes();
        text.extend_from_slice(item);
        text.push(b'\n');
        let timeout = Some(self.timeout.max(AGAIN));
        self.stream
            .set_write_timeout(timeout)
            .and_then(|()| self.stream.write_all(&text))
            .map_err(Error::OutOfBand)
    }

    fn get(&mut self, expected: &'static str) -> Result<Vec<u8>, Error> {
        let end = Instant::now() + self.timeout;
        let mut header = Vec::new();
        while header.last() != Some(&b'\n') {
            let mut byte = [0];
            self.fill(&mut byte, end, expected)?;
            header.push(byte[0]);
            if header.len() > MAX_HEADER {
                return Err(strange(expected, &header));
            }
        }
        let header = String::from_utf8_lossy(&header);
        let header = header.trim_end_matches('\n');
        let length = header
            .split_once(' ')
            .filter(|(kind, _)| *kind == expected)
            .and_then(|(_, length)| length.parse::<usize>().ok())
            .filter(|length| *length <= MAX_BYTES);
        let length = length.ok_or_else(|| strange(expected, header.as_bytes()))?;
        let mut item = vec![0; length + 1];
        self.fill(&mut item, end, expected)?;
        match item.pop() {
            Some(b'\n') => Ok(item),
            _ => Err(strange("the end of an item", &item)),
        }
    }

    /// Reads all of `bytes` before `end`.
    fn fill(
        &mut self,
        bytes: &mut [u8],
        end: Instant,
        expected: &'static str,
    ) -> Result<(), Error> {
        let mut filled = 0;
        while filled < bytes.len() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Silence {
                    expected,
                    waited: self.timeout,
                });
            }
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut bytes[filled..]));
            match read {
                Ok(0) => return Err(Error::HungUp { expected }),
                Ok(read) => filled += read,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(Error::HungUp { expected });
                }
                Err(error) => return Err(Error::OutOfBand(error)),
            }
        }
        Ok(())
    }
}

fn strange(expected: &'static str, got: &[u8]) -> Error {
    Error::Exchange {
        expected,
        got: String::from_utf8_lossy(got).into_owned(),
    }
}
