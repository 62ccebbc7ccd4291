//! How the two ends agree on what to run: one JSON object per line over a stream socket, beside
//! the data. The client asks, the server answers.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::MsgFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use socket2::Socket;

use crate::outcome::Error;
use crate::perf::device::Link;
use crate::perf::endpoint::Counters;
use crate::perf::job::{Job, Transport};
use crate::perf::patience::STALL;

/// What a client asks a server for.
#[derive(Serialize, Deserialize)]
pub(crate) enum Ask {
    /// First of all: the version, which must be the server's own.
    Hello { version: String },
    /// The largest path MTU; answered by [`Answer::PortMtu`].
    PortMtu,
    /// Open an end of this job; answered by [`Answer::Opened`].
    Open { transport: Transport, job: Job },
    /// Connect the end that was opened as number `end`; answered by [`Answer::Done`].
    Connect { end: usize, address: Value },
    /// Run it; answered by [`Answer::Started`] and then [`Answer::Ran`].
    Run { end: usize, messages: u64 },
    /// Close all ends; answered by [`Answer::Done`].
    Close,
    /// Open a rank of an all-reduce; answered by [`Answer::Opened`].
    OpenRank {
        transport: Transport,
        rank: usize,
        ranks: usize,
        elements: usize,
    },
    /// Connect the rank to its neighbours; answered by [`Answer::Done`].
    ConnectRank { previous: Value, next: Value },
    /// Fill the rank's vector; answered by [`Answer::Done`].
    Load,
    /// Reduce so many times in a row; answered by [`Answer::Ran`].
    Reduce { times: u32 },
    /// Compare with what so many reductions must give; answered by [`Answer::Checked`].
    Check { times: u32 },
}

/// What a server answers.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The server's version, and what its device runs on.
    Hello {
        version: String,
        /// Absent in the answer of another version.
        #[serde(default)]
        link: Link,
    },
    /// The largest path MTU of the server's port, in bytes.
    PortMtu { bytes: usize },
    /// An end is open; its address.
    Opened { address: Value },
    /// That is done.
    Done,
    /// The end is about to run.
    Started,
    /// The run is over. Nanoseconds of it (if this end can tell) and of the process's CPU time;
    /// messages that came, where some may get lost; what the device counted.
    Ran {
        elapsed: Option<u64>,
        cpu: u64,
        delivered: Option<u64>,
        counters: Counters,
    },
    /// What is wrong with the result of an all-reduce, if anything.
    Checked { wrong: Option<String> },
    /// It could not be done: a sentence.
    Failed(String),
}

/// How long the end of the connection may take to arrive after that of the data.
const FAREWELL: Duration = Duration::from_millis(50);
/// Longest line that is accepted.
const LINE: u64 = 1 << 20;

/// Tells whether the other side is still there, without a word to it.
#[derive(Clone)]
pub(crate) struct Lifeline(Rc<(Socket, String)>);

impl Lifeline {
    /// Fails if the other side has ended the connection.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let mut byte = [MaybeUninit::uninit()];
        match self.0.0.recv_with_flags(&mut byte, flags.bits()) {
            Ok(0) => Err(self.gone()),
            Err(error) if is_end(&error) => Err(self.gone()),
            // It has said something, or nothing.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn gone(&self) -> Error {
        let peer = &self.0.1;
        Error::new(format!("{peer} has gone away: it was ended, or it crashed"))
    }
}

/// One side of the connection.
pub(crate) struct Control {
    reader: BufReader<Socket>,
    writer: Socket,
    lifeline: Lifeline,
    /// How to call the other side in messages.
    peer: String,
}

impl Control {
    /// A connection to `peer`, a name for messages.
    pub(crate) fn new(socket: Socket, peer: String) -> Result<Self, Error> {
        // Lines are short and waited for. A socket pair has no such option and needs none.
        let _ = socket.set_tcp_nodelay(true);
        let clone = || {
            socket.try_clone().map_err(|error| {
                Error::new(format!("cannot use the connection to {peer}: {error}"))
            })
        };
        let (writer, lifeline) = (clone()?, clone()?);
        Ok(Self {
            reader: BufReader::new(socket),
            writer,
            lifeline: Lifeline(Rc::new((lifeline, peer.clone()))),
            peer,
        })
    }

    /// How to call the other side in messages.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends one message.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), Error> {
        let mut line = serde_json::to_vec(message).expect("our messages are representable");
        line.push(b'\n');
        self.writer
            .write_all(&line)
            .map_err(|error| self.lost(&error))
    }

    /// Receives one message, waiting up to `patience`, or for ever; `None` at the end of the
    /// connection.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Option<T>, Error> {
        self.writer
            .set_read_timeout(patience)
            .map_err(|error| self.lost(&error))?;
        let mut line = Vec::new();
        match (&mut self.reader).take(LINE).read_until(b'\n', &mut line) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_slice(&line).map(Some).map_err(|_| {
                Error::new(format!(
                    "what {} sends is not hirail perf's protocol",
                    self.peer
                ))
            }),
            Err(error) if is_end(&error) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let seconds = patience.unwrap_or_default().as_secs();
                Err(Error::new(format!(
                    "{} has not answered for {seconds} s",
                    self.peer
                )))
            }
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Receives an answer, which must come in time; a failure there is one here.
    pub(crate) fn answer(&mut self) -> Result<Answer, Error> {
        match self.receive(Some(3 * STALL))? {
            Some(Answer::Failed(sentence)) => Err(Error::new(sentence)),
            Some(answer) => Ok(answer),
            None => Err(self.gone()),
        }
    }

    /// Fails if the other side is gone. Asked after something else has failed, for the end of this
    /// connection may arrive a moment after that of the data.
    pub(crate) fn is_alive(&self) -> Result<(), Error> {
        thread::sleep(FAREWELL);
        self.lifeline.check()
    }

    /// What tells an end, in the middle of a run, that the other side is gone.
    pub(crate) fn lifeline(&self) -> Lifeline {
        self.lifeline.clone()
    }

    /// Asks and takes the answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Answer, Error> {
        self.send(ask)?;
        self.answer()
    }

    /// An answer that does not fit what was asked.
    pub(crate) fn misfit(&self) -> Error {
        Error::new(format!(
            "{} answered something else than was asked",
            self.peer
        ))
    }

    fn gone(&self) -> Error {
        self.lifeline.gone()
    }

    fn lost(&self, error: &std::io::Error) -> Error {
        if is_end(error) {
            return self.gone();
        }
        Error::new(format!("lost the connection to {}: {error}", self.peer))
    }
}

/// Whether the other side went away before it had read everything.
fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
