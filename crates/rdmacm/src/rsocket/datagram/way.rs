//! A queue pair for datagrams at one of this host's addresses.

use core::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use hirail_abi::{Ah, UdPart, Wc};

use super::header;
use crate::bridge::bridge;
use crate::errno::Errno;
use crate::id::{qp_type, space};
use crate::resolve;
use crate::rsocket::endpoint::{Depths, Endpoint, Handle};
use crate::rsocket::link::RECEIVED;
use crate::rsocket::memory::{Cursor, Memory, access};
use crate::rsocket::option::Sizes;
use crate::rsocket::ring::{Piece, Pieces};
use crate::translate;

/// Bytes of a datagram with the header in front of it.
pub(super) const SLOT: usize = 2048;

/// The device writes these in front of what it receives.
const GRH: usize = 40;

/// `RDMA_UDP_QKEY`: what peers expect.
const QKEY: u32 = 0x0123_4567;

/// Where a peer is.
pub(super) struct Address {
    ah: *mut Ah,
    pub(super) qpn: u32,
}

// SAFETY: a handle may be used from any thread.
unsafe impl Send for Address {}

impl Drop for Address {
    fn drop(&mut self) {
        if let Ok(bridge) = bridge() {
            // SAFETY: it is given up, once.
            unsafe { (bridge.destroy_ah)(self.ah) };
        }
    }
}

/// See the [module](self).
pub(super) struct Way {
    pub(super) local: SocketAddr,
    endpoint: Endpoint,
    out: Memory,
    into: Memory,
    /// Slots that nothing is sent from.
    free: Vec<usize>,
    slots: usize,
    inline: usize,
    /// What stands in front of all that is sent.
    header: Vec<u8>,
    /// Bytes of a packet.
    mtu: usize,
}

impl Way {
    pub(super) fn new(local: SocketAddr, sizes: &Sizes) -> Result<Self, Errno> {
        let slots = |queue: u16, buffer: usize| usize::from(queue).min(buffer / SLOT).max(1);
        let send = slots(sizes.send_queue, sizes.send_buffer);
        let recv = slots(sizes.recv_queue, sizes.recv_buffer);
        let handle = Arc::new(Handle::new(space::UDP, qp_type::UD)?);
        // The port of the kernel's socket is what peers know.
        resolve::bind(&handle.id(), SocketAddr::new(local.ip(), 0))?;
        let depths = Depths {
            send: send as u32,
            recv: recv as u32,
            recv_sges: 1,
            inline: sizes.inline.into(),
        };
        let (_, pd) = handle.device()?;
        let mtu = handle.id().state().device.map_or(0, |device| device.mtu());
        let endpoint = Endpoint::new(&handle, qp_type::UD, depths)?;
        // SAFETY: the domain is the device's own, which stays.
        let (out, into) = unsafe {
            (
                Memory::new(pd, send * SLOT, access::LOCAL_WRITE)?,
                Memory::new(pd, recv * (SLOT + GRH), access::LOCAL_WRITE)?,
            )
        };
        let this = Self {
            local,
            endpoint,
            out,
            into,
            free: (0..send).collect(),
            slots: send,
            inline: sizes.inline.into(),
            header: header::encode(local),
            mtu: 128 << mtu,
        };
        for slot in 0..recv {
            this.receive(slot)?;
        }
        Ok(this)
    }

    pub(super) fn fd(&self) -> c_int {
        self.endpoint.fd()
    }

    pub(super) fn qpn(&self) -> u32 {
        self.endpoint.qpn()
    }

    pub(super) fn arm(&self) -> Result<(), Errno> {
        self.endpoint.arm()
    }

    /// Whether something can be sent, and whether nothing is on its way.
    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Bytes of the longest datagram.
    pub(super) fn most(&self) -> usize {
        SLOT.min(self.mtu) - self.header.len()
    }

    fn receive(&self, slot: usize) -> Result<(), Errno> {
        let piece = Piece {
            at: slot * (SLOT + GRH),
            length: SLOT + GRH,
        };
        let name = RECEIVED | slot as u64;
        self.endpoint.receive(name, &mut [self.into.sge(piece)])
    }

    /// The way to a peer.
    pub(super) fn address(&self, remote: SocketAddr, qpn: u32) -> Result<Address, Errno> {
        let handle = self.endpoint.handle();
        let device = handle.id().state().device.ok_or(Errno::NO_DEVICE)?;
        let path = resolve::path(device, self.local.ip(), remote.ip())?;
        let mut attr = translate::ah_attr(&path);
        let (_, pd) = handle.device()?;
        // SAFETY: the device's own domain, and attributes on the stack.
        let ah = unsafe { (bridge()?.create_ah)(pd, &raw mut attr) };
        Ok(Address {
            ah: Errno::check_pointer(ah)?,
            qpn,
        })
    }

    /// Sends the program's bytes, not more than [`most`](Self::most), where
    /// [`can_send`](Self::can_send).
    pub(super) fn send(&mut self, to: &Address, from: &mut Cursor<'_>) -> Result<(), Errno> {
        let Some(slot) = self.free.pop() else {
            return Err(Errno(libc::EAGAIN));
        };
        let at = slot * SLOT;
        self.out.put(at, &self.header);
        let body = Piece {
            at: at + self.header.len(),
            length: from.left(),
        };
        let length = self.header.len() + body.length;
        let body = Pieces {
            first: body,
            second: Piece::default(),
        };
        self.out.fill(body, from);
        let mut place = self.out.sge(Piece { at, length });
        let to = UdPart {
            ah: to.ah,
            remote_qpn: to.qpn,
            remote_qkey: QKEY,
        };
        let sent = self
            .endpoint
            .send(slot as u64, &mut place, length <= self.inline, to);
        sent.inspect_err(|_| self.free.push(slot))
    }

    /// Takes what has come: `arrived` is given each datagram, with its header. Whether there was
    /// anything.
    pub(super) fn process(&mut self, mut arrived: impl FnMut(&[u8])) -> Result<bool, Errno> {
        let mut completions = [Wc::default(); 16];
        let mut is_news = false;
        loop {
            let found = self.endpoint.poll(&mut completions)?;
            for completion in &completions[..found] {
                is_news = true;
                if completion.wr_id & RECEIVED == 0 {
                    self.free.push(completion.wr_id as usize);
                    continue;
                }
                let slot = (completion.wr_id & !RECEIVED) as usize;
                let length = completion.byte_len as usize;
                if completion.status == 0 && length > GRH {
                    let bytes: [u8; SLOT] = self.into.get(slot * (SLOT + GRH) + GRH);
                    arrived(&bytes[..(length - GRH).min(SLOT)]);
                }
                self.receive(slot)?;
            }
            if found < completions.len() {
                return Ok(is_news);
            }
        }
    }
}
