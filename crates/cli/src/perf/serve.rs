//! The serving end: does what a client asks for until the client goes away.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};

use crate::outcome::{Error, Outcome};
use crate::perf::allreduce::Rank;
use crate::perf::control::{Answer, Ask, Control};
use crate::perf::cpu;
use crate::perf::device::Choice;
use crate::perf::endpoint::{self, Counters, Endpoint, Place, cannot};
use crate::perf::job::Role;
use crate::perf::peer::{self, VERSION};

/// Serves clients on TCP port `port`, one after another, until the process is ended.
pub(crate) fn forever(port: u16, choice: &Choice) -> Result<Outcome, Error> {
    let listener = listen(port).map_err(cannot(format_args!(
        "listen on TCP port {port} (--port takes another)"
    )))?;
    // With port 0 the kernel has chosen.
    let port = listener.local_addr().map_or(port, |address| address.port());
    note(format_args!(
        "serving on TCP port {port}; a client is 'hirail perf TEST ADDRESS'"
    ));
    loop {
        let (stream, client) = listener
            .accept()
            .map_err(cannot(format_args!("accept on TCP port {port}")))?;
        let client = canonical(client);
        note(format_args!("{client} connected"));
        let ended = stream
            .local_addr()
            .map_err(cannot("use the connection"))
            .and_then(|local| {
                let mut control = Control::new(stream.into(), "the client".into())?;
                let local = local.ip().to_canonical();
                let place = Place::new(Role::Server, local, choice, &control)?;
                session(&mut control, &place)
            });
        match ended {
            Ok(()) => note(format_args!("{client} is done")),
            Err(error) => note(format_args!("{client}: {error}")),
        }
    }
}

/// Serves the process that started this one.
pub(crate) fn first_process(choice: &Choice) -> Result<Outcome, Error> {
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut control = peer::first_process()?;
    let place = Place::new(Role::Server, localhost, choice, &control)?;
    // What fails in a session is the connection, and then the first process is gone or tells.
    let _ = session(&mut control, &place);
    Ok(Outcome::Clean)
}

/// All IPv6 and IPv4 addresses, or the latter only where the kernel has no IPv6.
fn listen(port: u16) -> io::Result<TcpListener> {
    let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, port).into();
    let both = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).and_then(|socket| {
        socket.set_only_v6(false)?;
        socket.set_reuse_address(true)?;
        socket.bind(&any.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    });
    both.or_else(
        |error| match error.raw_os_error().map(nix::errno::Errno::from_raw) {
            Some(nix::errno::Errno::EAFNOSUPPORT | nix::errno::Errno::EADDRNOTAVAIL) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            }
            _ => Err(error),
        },
    )
}

/// IPv4 clients reach a socket for both as mapped addresses; people know them as IPv4.
fn canonical(client: SocketAddr) -> SocketAddr {
    match client.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => (v4, client.port()).into(),
        IpAddr::V6(_) => client,
    }
}

fn note(text: std::fmt::Arguments<'_>) {
    // A server whose standard error went away still serves.
    let _ = writeln!(io::stderr(), "hirail perf: {text}");
}

/// Answers one client to its end.
fn session(control: &mut Control, place: &Place) -> Result<(), Error> {
    let mut ends: Vec<Box<dyn Endpoint>> = Vec::new();
    let mut rank: Option<Rank> = None;
    while let Some(ask) = control.receive(None)? {
        let answer = match ask {
            Ask::Hello { .. } => Ok(Answer::Hello {
                version: VERSION.into(),
                link: place.devices.link(),
            }),
            Ask::PortMtu => place.port_mtu().map(|bytes| Answer::PortMtu { bytes }),
            Ask::Open { transport, job } => match job.fault() {
                Some(fault) => Err(Error::new(fault)),
                None => endpoint::open(transport, &job, place).map(|end| {
                    let address = end.address();
                    ends.push(end);
                    Answer::Opened { address }
                }),
            },
            Ask::Connect { end, address } => nth(&mut ends, end)
                .and_then(|end| end.connect(&address))
                .map(|()| Answer::Done),
            Ask::Run { end, messages } => match nth(&mut ends, end) {
                Ok(end) => {
                    control.send(&Answer::Started)?;
                    let before = cpu::time();
                    end.run(messages).map(|ran| Answer::Ran {
                        elapsed: ran.elapsed.map(nanoseconds),
                        cpu: nanoseconds(cpu::time().saturating_sub(before)),
                        delivered: ran.delivered,
                        counters: ran.counters,
                    })
                }
                Err(error) => Err(error),
            },
            Ask::Close => {
                ends.clear();
                rank = None;
                Ok(Answer::Done)
            }
            Ask::OpenRank {
                transport,
                rank: number,
                ranks,
                elements,
            } => Rank::open(transport, number, ranks, elements, place).map(|opened| {
                let address = opened.address();
                rank = Some(opened);
                Answer::Opened { address }
            }),
            Ask::ConnectRank { previous, next } => member(&mut rank)
                .and_then(|r| r.connect(&previous, &next))
                .map(|()| Answer::Done),
            Ask::Load => member(&mut rank)
                .map(|rank| rank.load())
                .map(|()| Answer::Done),
            Ask::Reduce { times } => member(&mut rank).and_then(|rank| {
                let (before, start) = (cpu::time(), Instant::now());
                rank.reduce(times)?;
                Ok(Answer::Ran {
                    elapsed: Some(nanoseconds(start.elapsed())),
                    cpu: nanoseconds(cpu::time().saturating_sub(before)),
                    delivered: None,
                    counters: Counters::new(),
                })
            }),
            Ask::Check { times } => member(&mut rank).map(|rank| Answer::Checked {
                wrong: rank.check(times),
            }),
        };
        control.send(&answer.unwrap_or_else(|error| Answer::Failed(error.to_string())))?;
    }
    // A client that is done has closed what it opened.
    if ends.is_empty() {
        Ok(())
    } else {
        control.is_alive()
    }
}

fn nth(ends: &mut [Box<dyn Endpoint>], n: usize) -> Result<&mut Box<dyn Endpoint>, Error> {
    ends.get_mut(n)
        .ok_or_else(|| Error::new("the client named an end that it did not open"))
}

fn member(rank: &mut Option<Rank>) -> Result<&mut Rank, Error> {
    rank.as_mut()
        .ok_or_else(|| Error::new("the client named a rank that it did not open"))
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
