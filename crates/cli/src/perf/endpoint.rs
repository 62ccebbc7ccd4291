//! One end of a job over one transport. TCP, UDP and RDMA differ behind this face only.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::outcome::Error;
use crate::perf::control::{Control, Lifeline};
use crate::perf::device::{Choice, Devices, Link, Over};
use crate::perf::job::{Job, Role, Transport};
use crate::perf::{rdma, tcp, udp};

/// What an end has to say about a run.
#[derive(Default)]
pub(crate) struct Ran {
    /// From its first operation to the moment it knew that everything it started was done; `None`
    /// for an end that only served.
    pub(crate) elapsed: Option<Duration>,
    /// Nanoseconds of each round trip, where round trips were measured.
    pub(crate) round_trips: Option<Histogram<u64>>,
    /// Messages that came, all queue pairs together, where some may get lost.
    pub(crate) delivered: Option<u64>,
    /// What the device counted meanwhile: counters by name, those that moved.
    pub(crate) counters: Counters,
}

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// A histogram of round trips: 1 ns to a minute, three significant digits.
pub(crate) fn round_trips() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are constants")
}

/// One end of a job, with everything that the job needs set up before its first run.
pub(crate) trait Endpoint {
    /// What the other end must know to reach this one.
    fn address(&self) -> Value;

    /// Gets ready to run with the endpoint of that address. The other end does the same meanwhile.
    fn connect(&mut self, peer: &Value) -> Result<(), Error>;

    /// Does this end's part of `messages` messages per queue pair. Both ends run with the same
    /// number; the server is called a little earlier.
    fn run(&mut self, messages: u64) -> Result<Ran, Error>;
}

/// Where an end sits, apart from the job.
pub(crate) struct Place {
    /// Which end it is.
    pub(crate) role: Role,
    /// This machine, as the other end reaches it.
    pub(crate) local: IpAddr,
    /// Whether the other end is still there.
    pub(crate) lifeline: Lifeline,
    /// The RDMA devices that it has open.
    pub(crate) devices: Devices,
}

impl Place {
    /// An end on this device, or at this address if none was chosen. Opens nothing yet.
    pub(crate) fn new(
        role: Role,
        local: IpAddr,
        choice: &Choice,
        control: &Control,
    ) -> Result<Self, Error> {
        Ok(Self {
            role,
            lifeline: control.lifeline(),
            local: choice.address(local)?,
            devices: Devices::new(choice.clone()),
        })
    }

    /// Refuses raw Ethernet to this machine itself, where there is no way back.
    pub(crate) fn check_raw(&self, is_same_host: bool) -> Result<(), Error> {
        if self.devices.link() == Link::Udp || !is_same_host || self.local.is_loopback() {
            return Ok(());
        }
        Err(Error::new(format!(
            "raw Ethernet frames to {} itself do not come back; run the server on another machine, \
             or both ends on hirail_lo",
            self.local
        )))
    }

    /// What its RDMA runs go over.
    pub(crate) fn over(&self) -> Result<Over, Error> {
        self.devices.over(self.local)
    }

    /// The largest path MTU of its port.
    pub(crate) fn port_mtu(&self) -> Result<usize, Error> {
        let device = self.devices.at(self.local)?;
        Ok(device.context.port_mtu().bytes() as usize)
    }
}

/// Sets up one end of `job`.
pub(crate) fn open(
    transport: Transport,
    job: &Job,
    place: &Place,
) -> Result<Box<dyn Endpoint>, Error> {
    Ok(match transport {
        Transport::Rdma => Box::new(rdma::Rdma::open(job, place)?),
        Transport::Tcp => Box::new(tcp::Tcp::open(job, place)?),
        Transport::Udp => Box::new(udp::Udp::open(job, place)?),
    })
}

/// Takes an address out of a message of the other end.
pub(crate) fn parse_address<T: serde::de::DeserializeOwned>(address: &Value) -> Result<T, Error> {
    T::deserialize(address)
        .map_err(|error| Error::new(format!("the other end sent no usable address: {error}")))
}

/// Turns an I/O error into a sentence: `what` is "cannot send to 10.0.0.1" or the like.
pub(crate) fn cannot(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(format!("cannot {what}: {error}"))
}
