//! What a link is to the driver: packets in, runs out, descriptors to wait on.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use hirail_rnic::transmit::{Budget, OpenClasses, Run};
use hirail_rnic::{GidEntry, Instant, PacketMeta};
use hirail_vocab::{Counter, DropReason, LinkKind};
use hirail_wire::{Gid, Qpn};

use super::{Rnic, Threads, now};
use crate::error::Error;
use crate::fork::Descriptor;
use crate::port::Sweep;

/// A packet as a link delivers it: its ICRC has been found right.
pub(crate) struct Arrival<'a> {
    pub(crate) meta: PacketMeta,
    /// BTH to pad, without the ICRC.
    pub(crate) ib: &'a [u8],
}

/// What the driver does with arrivals.
pub(crate) trait Sink {
    /// A good packet.
    fn packet(&mut self, arrival: Arrival<'_>);
    /// A packet that the link itself refused.
    fn refused(&mut self, reason: DropReason);
    /// Something else that the link counts.
    fn count(&mut self, counter: Counter, amount: u64);
    /// The addresses of the port have changed.
    fn gids(&mut self, table: &[GidEntry]);
    /// If the next packet of this queue pair needs a receive, there shall be none.
    fn starve(&mut self, _qpn: Qpn) {}
    /// This queue pair shall fail.
    fn kill(&mut self, _qpn: Qpn) {}
    /// The port has got its link, or lost it.
    fn port(&mut self, _is_up: bool) {}
}

/// What became of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// Packets that left, from the first on.
    pub(crate) taken: usize,
    /// The memory under the next one is gone.
    pub(crate) faulted: bool,
}

/// A port: UDP, raw Ethernet, or memory.
pub(crate) trait Link: Send {
    /// Which of these it is: what it can count depends on it.
    fn kind(&self) -> LinkKind;

    /// Descriptors that become readable when packets arrive.
    fn readable(&self) -> std::io::Result<Vec<OwnedFd>>;

    /// Receives what has arrived, up to some batch; how many packets that was.
    fn receive(&mut self, sweep: Sweep, sink: &mut dyn Sink) -> usize;

    /// Sends runs and pushes what became of each, in their order. False when the link had no room
    /// and wants to be asked again a little later.
    fn transmit(&mut self, runs: &[Run<Threads>], outcomes: &mut Vec<Outcome>) -> bool;

    /// Most packets and bytes of one run.
    fn budget(&self) -> Budget;

    /// Packets of this group shall arrive from now on. Where that cannot be, nothing has changed.
    fn join(&mut self, group: Gid) -> Result<(), Error>;

    /// No more packets of this group.
    fn leave(&mut self, group: Gid);

    /// Makes a service at an address this process's until the descriptor is closed. Nothing to do
    /// where no other process shares the port.
    fn claim(&mut self, _service: u64, _address: IpAddr) -> std::io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Connection requests for a service at an address shall arrive from now on, and those for
    /// [`ANYTHING`](crate::port::ANYTHING) where nobody listens for them. Nothing to do where no
    /// other process shares the port.
    fn listen(&mut self, _service: u64, _address: IpAddr) -> std::io::Result<()> {
        Ok(())
    }

    /// Undoes `listen`.
    fn ignore(&mut self, _service: u64, _address: IpAddr) {}

    /// Classes that may be sent now.
    fn open(&mut self, _now: Instant) -> OpenClasses {
        OpenClasses::ALL
    }

    /// When the link must be driven again even if nothing arrives: a class opens, or something that
    /// it waits for is due.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}

impl Rnic {
    /// Makes a service at an address this process's, until what this returns is dropped.
    pub(crate) fn claim(
        &self,
        service: u64,
        address: IpAddr,
    ) -> std::io::Result<Option<Descriptor>> {
        let claimed = self.wait_and_drive(|driver| driver.link_mut().claim(service, address))?;
        Ok(claimed.map(Descriptor::new))
    }

    /// Sees to what has come, unless somebody else does: for a thread that does not poll.
    pub(crate) fn step(&self) {
        let start = now();
        self.try_drive(|rnic, driver| {
            let moved = driver.step(rnic, start, Sweep::All);
            self.progress.ensure_wakeup(|| driver.next_wakeup(rnic));
            moved
        });
    }
}
