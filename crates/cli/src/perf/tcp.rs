//! The TCP baseline: a connection per queue pair of the job.
//!
//! Streams use blocking writes of one message each, a thread per connection and direction, and
//! end with one byte from the receiver, so that time stops when everything has arrived. Round
//! trips poll non-blocking sockets with Nagle's algorithm off.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::outcome::Error;
use crate::perf::endpoint::{Endpoint, Place, Ran, cannot, parse_address, round_trips};
use crate::perf::job::{Job, Role, Shape, Test};
use crate::perf::patience::{Patience, STALL, silent};

/// Bytes of the request whose answer a round trip waits for: those of an RDMA READ request, BTH
/// and RETH.
pub(crate) const REQUEST: usize = 28;

/// Largest single write or read. Longer messages go in several.
const CHUNK: usize = 1 << 20;

/// Reads take at least this much, as much as iperf3's.
const READ: usize = 128 << 10;

/// Streams of messages from this size on use Nagle's algorithm.
const NAGLE: usize = 16 << 10;

/// One end of the TCP baseline.
pub(crate) struct Tcp {
    job: Job,
    role: Role,
    /// The server's, until the connections are there.
    listener: Option<TcpListener>,
    streams: Vec<TcpStream>,
}

impl Tcp {
    /// The server listens; the client has nothing to do yet.
    pub(crate) fn open(job: &Job, place: &Place) -> Result<Self, Error> {
        let listener = match place.role {
            Role::Client => None,
            Role::Server => Some(
                TcpListener::bind((place.local, 0))
                    .map_err(cannot(format_args!("listen on {}", place.local)))?,
            ),
        };
        Ok(Self {
            job: *job,
            role: place.role,
            listener,
            streams: Vec::new(),
        })
    }

    /// Sends, receives or both, and returns once the receiver has confirmed the last byte.
    fn stream(&self, messages: u64) -> Result<Ran, Error> {
        let total = messages * self.job.bytes as u64;
        let (sends, receives) = (self.job.sends(self.role), self.job.receives(self.role));
        let bytes = self.job.bytes;
        let exchange = |stream: &TcpStream| -> io::Result<()> {
            match (sends, receives) {
                (true, false) => write_messages(stream, bytes, messages)?,
                (false, _) => read_all(stream, total)?,
                (true, true) => thread::scope(|scope| {
                    let writer = scope.spawn(|| write_messages(stream, bytes, messages));
                    read_all(stream, total)?;
                    writer.join().expect("a writer does not panic")
                })?,
            }
            if receives {
                (&mut &*stream).write_all(&[1])?;
            }
            if sends {
                (&mut &*stream).read_exact(&mut [0])?;
            }
            Ok(())
        };
        let start = Instant::now();
        thread::scope(|scope| {
            let (first, others) = self.streams.split_first().expect("a job has a connection");
            let threads: Vec<_> = others.iter().map(|s| scope.spawn(|| exchange(s))).collect();
            let results = [exchange(first)].into_iter().chain(
                threads
                    .into_iter()
                    .map(|t| t.join().expect("a stream does not panic")),
            );
            results.collect::<io::Result<Vec<()>>>()
        })
        .map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => silent(STALL),
            _ => cannot("stream over TCP")(error),
        })?;
        Ok(Ran {
            elapsed: sends.then(|| start.elapsed()),
            ..Ran::default()
        })
    }

    /// Round trips on the first connection: `there` bytes from the client, `back` bytes to it.
    fn round_trips(&self, messages: u64, there: usize, back: usize) -> Result<Ran, Error> {
        let stream = &self.streams[0];
        let mut buffer = vec![0u8; there.max(back)];
        if self.role == Role::Server {
            for _ in 0..messages {
                poll_read(stream, &mut buffer[..there])?;
                poll_write(stream, &buffer[..back])?;
            }
            return Ok(Ran::default());
        }
        let mut histogram = round_trips();
        let start = Instant::now();
        let mut before = start;
        for _ in 0..messages {
            poll_write(stream, &buffer[..there])?;
            poll_read(stream, &mut buffer[..back])?;
            let now = Instant::now();
            histogram.saturating_record((now - before).as_nanos() as u64);
            before = now;
        }
        Ok(Ran {
            elapsed: Some(start.elapsed()),
            round_trips: Some(histogram),
            ..Ran::default()
        })
    }
}

impl Endpoint for Tcp {
    fn address(&self) -> Value {
        json!(
            self.listener
                .as_ref()
                .and_then(|listener| listener.local_addr().ok())
        )
    }

    fn connect(&mut self, peer: &Value) -> Result<(), Error> {
        let streaming = self.job.test.shape() == Shape::Stream;
        match self.listener.take() {
            Some(listener) => {
                self.streams = (0..self.job.qps)
                    .map(|_| accept(&listener))
                    .collect::<Result<_, _>>()?;
            }
            None => {
                let address: SocketAddr = parse_address(peer)?;
                for _ in 0..self.job.qps {
                    let stream = TcpStream::connect_timeout(&address, STALL)
                        .map_err(cannot(format_args!("connect to {address} over TCP")))?;
                    self.streams.push(stream);
                }
            }
        }
        for stream in &self.streams {
            let ready = if streaming {
                stream
                    .set_nonblocking(false)
                    .and_then(|()| stream.set_read_timeout(Some(STALL)))
                    .and_then(|()| stream.set_write_timeout(Some(STALL)))
            } else {
                stream.set_nonblocking(true)
            };
            // In streams of small messages Nagle's algorithm waits for delayed ACKs once the send
            // buffer is full; in those of large ones it saves a segment for each one's remainder.
            let nodelay = !streaming || self.job.bytes < NAGLE;
            let ready = ready.and_then(|()| stream.set_nodelay(nodelay));
            ready.map_err(cannot("set up a TCP connection"))?;
        }
        Ok(())
    }

    fn run(&mut self, messages: u64) -> Result<Ran, Error> {
        let bytes = self.job.bytes;
        match self.job.test.shape() {
            Shape::Stream => self.stream(messages),
            Shape::PingPong => self.round_trips(messages, bytes, bytes),
            Shape::RoundTrip if self.job.test == Test::AtomicLat => {
                self.round_trips(messages, REQUEST + 12, 8)
            }
            Shape::RoundTrip => self.round_trips(messages, REQUEST, bytes),
        }
    }
}

/// Accepts one connection, or fails when none comes in time.
pub(crate) fn accept(listener: &TcpListener) -> Result<TcpStream, Error> {
    listener
        .set_nonblocking(true)
        .map_err(cannot("listen over TCP"))?;
    let mut patience = Patience::default();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => patience.wait()?,
            Err(error) => return Err(cannot("accept a TCP connection")(error)),
        };
    }
}

/// Writes each message with one call, unless it is longer than [`CHUNK`].
fn write_messages(mut stream: &TcpStream, bytes: usize, messages: u64) -> io::Result<()> {
    let message = vec![0x5A; bytes.min(CHUNK)];
    for _ in 0..messages {
        let mut left = bytes;
        while left > 0 {
            let n = left.min(CHUNK);
            stream.write_all(&message[..n])?;
            left -= n;
        }
    }
    Ok(())
}

fn read_all(mut stream: &TcpStream, total: u64) -> io::Result<()> {
    let mut buffer = vec![0u8; READ];
    let mut left = total;
    while left > 0 {
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match stream.read(&mut buffer[..most]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => left -= n as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Polls until `buffer` is full.
fn poll_read(mut stream: &TcpStream, buffer: &mut [u8]) -> Result<(), Error> {
    let mut patience = Patience::default();
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => {
                return Err(Error::new(
                    "the other end closed its TCP connection in a run",
                ));
            }
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                patience.wait()?;
            }
            Err(error) => return Err(cannot("receive over TCP")(error)),
        }
    }
    Ok(())
}

/// Polls until all of `buffer` is on its way.
fn poll_write(mut stream: &TcpStream, buffer: &[u8]) -> Result<(), Error> {
    let mut patience = Patience::default();
    let mut sent = 0;
    while sent < buffer.len() {
        match stream.write(&buffer[sent..]) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                patience.wait()?;
            }
            Err(error) => return Err(cannot("send over TCP")(error)),
        }
    }
    Ok(())
}
