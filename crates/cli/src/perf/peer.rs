//! The other end as the client sees it: a second process of this program on this machine, or a
//! server on another one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};

use crate::outcome::Error;
use crate::perf::control::{Answer, Ask, Control};
use crate::perf::device::Choice;
use crate::perf::endpoint::{Place, cannot};
use crate::perf::job::Role;
use crate::perf::patience::STALL;

/// This program's version, which both ends must share.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long a second process gets to end by itself.
const GRACE: Duration = Duration::from_millis(500);

/// The other end, connected and of the same version.
pub(crate) struct Peer {
    /// Where to ask it. Before `child`, so that the process sees its end first.
    pub(crate) control: Control,
    /// The ends of a job, as the client's endpoints need it.
    pub(crate) place: Place,
    _child: Option<Reaped>,
}

impl Peer {
    /// Starts a second process.
    pub(crate) fn spawn(choice: &Choice) -> Result<Self, Error> {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None)
            .map_err(cannot("make a socket pair for the second process"))?;
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let control = Control::new(ours, "the second process on this machine".into())?;
        let place = Place::new(Role::Client, localhost, choice, &control)?;
        // The link stays good when the file is replaced meanwhile, as by a compiler.
        let child = Command::new("/proc/self/exe")
            .args(["perf", "--second-process"])
            .args(choice.arguments())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(cannot("start a second process"))?;
        Self {
            control,
            place,
            _child: Some(Reaped(child)),
        }
        .greet(true)
    }

    /// Connects to a server.
    pub(crate) fn connect(address: &str, port: u16, choice: &Choice) -> Result<Self, Error> {
        // As in URLs.
        let address = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(address);
        let addresses: Vec<SocketAddr> = (address, port).to_socket_addrs().map_or_else(
            |error| {
                let why = "an IP address or a host's name is needed; --port takes a port";
                Err(Error::new(format!(
                    "cannot find '{address}' ({why}): {error}"
                )))
            },
            |found| Ok(found.collect()),
        )?;
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match std::net::TcpStream::connect_timeout(&address, STALL) {
                Ok(stream) => {
                    let local = stream
                        .local_addr()
                        .map_err(cannot("use the connection"))?
                        .ip();
                    let control = Control::new(stream.into(), format!("the server at {address}"))?;
                    return Self {
                        place: Place::new(Role::Client, local, choice, &control)?,
                        control,
                        _child: None,
                    }
                    .greet(local == address.ip());
                }
                Err(error) => failure = error,
            }
        }
        if is_half_an_address(address) {
            return Err(Error::new(format!(
                "the link-local address {address} needs its interface, such as {address}%eth0"
            )));
        }
        Err(Error::new(format!(
            "cannot connect to {address}, TCP port {port} ({failure}); \
             'hirail perf --server' must run there"
        )))
    }

    /// The largest path MTU between the two ports.
    pub(crate) fn path_mtu(&mut self) -> Result<usize, Error> {
        match self.control.ask(&Ask::PortMtu)? {
            Answer::PortMtu { bytes } => Ok(bytes.min(self.place.port_mtu()?)),
            _ => Err(self.control.misfit()),
        }
    }

    /// Refuses another version, and a link that this end's does not reach.
    fn greet(mut self, is_same_host: bool) -> Result<Self, Error> {
        match self.control.ask(&Ask::Hello {
            version: VERSION.into(),
        })? {
            Answer::Hello { version, link } if version == VERSION => {
                let ours = self.place.devices.link();
                if ours.reaches(link, is_same_host) {
                    self.place.check_raw(is_same_host)?;
                    return Ok(self);
                }
                let on_one_host = if ours.reaches(link, false) {
                    " on one host"
                } else {
                    ""
                };
                Err(Error::new(format!(
                    "{} runs with --link {} and this end with --link {}, which do not reach each \
                     other{on_one_host}; both ends need the same",
                    self.control.peer(),
                    link.name(),
                    ours.name()
                )))
            }
            Answer::Hello { version, .. } => Err(Error::new(format!(
                "{} is hirail {version} and this is {VERSION}; both ends need the same",
                self.control.peer()
            ))),
            _ => Err(self.control.misfit()),
        }
    }
}

/// Whether it is a link-local address that does not say on which link.
fn is_half_an_address(address: &str) -> bool {
    address
        .parse()
        .is_ok_and(|v6: Ipv6Addr| v6.is_unicast_link_local())
}

/// A child that is gone when this is: by itself once its connection ends, or killed.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In the second process: its connection to the first. It dies with the first, even in the middle
/// of a run; should the first have died already, the connection is at its end.
pub(crate) fn first_process() -> Result<Control, Error> {
    let broken = |what: io::Error| Error::new(format!("a second process has no first: {what}"));
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| broken(errno.into()))?;
    // It was started by a link whose name says nothing to those who list processes.
    prctl::set_name(c"hirail").map_err(|errno| broken(errno.into()))?;
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(broken)?;
    let socket = Socket::from(stdin);
    socket.local_addr().map_err(broken)?;
    Control::new(socket, "the first process".into())
}
