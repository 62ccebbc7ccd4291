//! A queue pair with one completion queue for both directions, and the id that it belongs to.

use core::ffi::{c_int, c_uint};
use core::ptr;
use std::net::SocketAddr;
use std::sync::Arc;

use hirail_abi::{
    CompChannel, Context, Cq, Pd, QpCap, QpInitAttr, RdmaCmId, RdmaPart, RecvWr, SendPart, SendWr,
    Sge, UdPart, Wc, opcode, send_flags,
};

use super::service;
use crate::bridge::bridge;
use crate::errno::Errno;
use crate::id::{self, Id};
use crate::qp;

/// An id of rdma_cm whose events go to the [service](super::service).
pub(super) struct Handle(*mut RdmaCmId);

// SAFETY: an id may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(super) fn new(port_space: c_int, qp_type: c_int) -> Result<Self, Errno> {
        let channel = service::channel()?;
        // SAFETY: the service's channel stays.
        let id = unsafe { Id::hand_out(channel, ptr::null_mut(), port_space, qp_type)? };
        Ok(Self(id.public()))
    }

    /// One that an event has brought.
    ///
    /// # Safety
    /// It exists, and nobody else will destroy it.
    pub(super) unsafe fn adopt(id: *mut RdmaCmId) -> Self {
        Self(id)
    }

    pub(super) fn public(&self) -> *mut RdmaCmId {
        self.0
    }

    pub(super) fn id(&self) -> Arc<Id> {
        // SAFETY: it exists as long as this does.
        unsafe { Id::of(self.0) }.expect("it is not NULL")
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.id().state().local
    }

    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.id().state().remote
    }

    /// The open device and a domain of it, as soon as it is known which one it is.
    pub(super) fn device(&self) -> Result<(*mut Context, *mut Pd), Errno> {
        // SAFETY: it exists as long as this does.
        let (verbs, pd) = unsafe { ((*self.0).verbs, (*self.0).pd) };
        if verbs.is_null() || pd.is_null() {
            return Err(Errno::NO_DEVICE);
        }
        Ok((verbs, pd))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        service::forget(self.0);
        // SAFETY: nobody uses it any more.
        let _ = unsafe { id::destroy(self.0) };
    }
}

/// Sizes of queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub(super) send: u32,
    pub(super) recv: u32,
    pub(super) recv_sges: u32,
    pub(super) inline: u32,
}

/// Bytes that must fit into a request itself: an entry of a table.
const LEAST_INLINE: u32 = 24;

/// See the [module](self).
pub(super) struct Endpoint {
    handle: Arc<Handle>,
    context: *mut Context,
    channel: *mut CompChannel,
    cq: *mut Cq,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl Endpoint {
    /// A queue pair for `handle`, in the first state from which it can be connected.
    pub(super) fn new(handle: &Arc<Handle>, qp_type: c_int, depths: Depths) -> Result<Self, Errno> {
        let bridge = bridge()?;
        let (context, pd) = handle.device()?;
        let entries = c_int::try_from(depths.send + depths.recv).map_err(|_| Errno::INVALID)?;
        // SAFETY: an open device; what was made goes with `this`.
        unsafe {
            let channel = Errno::check_pointer((bridge.create_comp_channel)(context))?;
            let cq = (bridge.create_cq)(context, entries, ptr::null_mut(), channel, 0);
            let cq = Errno::check_pointer(cq).inspect_err(|_| {
                (bridge.destroy_comp_channel)(channel);
            })?;
            let this = Self {
                handle: Arc::clone(handle),
                context,
                channel,
                cq,
            };
            // Events are looked for, and waited for somewhere else.
            let flags = libc::fcntl(this.fd(), libc::F_GETFL);
            if libc::fcntl(this.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) != 0 {
                return Err(Errno::last());
            }
            let mut init = QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: ptr::null_mut(),
                cap: QpCap {
                    max_send_wr: depths.send,
                    max_recv_wr: depths.recv,
                    max_send_sge: 2,
                    max_recv_sge: depths.recv_sges,
                    max_inline_data: depths.inline.max(LEAST_INLINE),
                },
                qp_type,
                sq_sig_all: 1,
                comp_mask: 0,
            };
            qp::create(handle.public(), pd, &raw mut init)?;
            Ok(this)
        }
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Number of the queue pair.
    pub(super) fn qpn(&self) -> u32 {
        // SAFETY: the queue pair exists as long as this does.
        unsafe { (*(*self.handle.public()).qp).qp_num }
    }

    /// Readable after a completion that was asked for.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: the channel exists as long as this does.
        unsafe { (*self.channel).fd }
    }

    /// Completions; how many.
    pub(super) fn poll(&self, to: &mut [Wc]) -> Result<usize, Errno> {
        // SAFETY: an open device's functions, a queue that exists and so many places.
        let found =
            unsafe { ((*self.context).ops.poll_cq)(self.cq, to.len() as c_int, to.as_mut_ptr()) };
        usize::try_from(found).map_err(|_| Errno::DEAD)
    }

    /// Asks for an event at the next completion; what was told before is forgotten.
    pub(super) fn arm(&self) -> Result<(), Errno> {
        let bridge = bridge()?;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a channel and a queue that exist, and places.
        unsafe {
            while (bridge.get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (bridge.ack_cq_events)(cq, 1);
            }
            Errno::check(((*self.context).ops.req_notify_cq)(self.cq, 0))
        }
    }

    /// Posts receives: of each, its name and places, which may be none.
    pub(super) fn receive(&self, wr_id: u64, places: &mut [Sge]) -> Result<(), Errno> {
        let mut request = RecvWr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: places.as_mut_ptr(),
            num_sge: places.len() as c_int,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a queue pair that exists, and a request on the stack.
        Errno::check(unsafe {
            let qp = (*self.handle.public()).qp;
            ((*self.context).ops.post_recv)(qp, &raw mut request, &raw mut bad)
        })
    }

    /// Posts so many receives of no bytes.
    pub(super) fn receive_nothing(&self, count: usize) -> Result<(), Errno> {
        const MOST: usize = 32;
        let mut left = count;
        while left > 0 {
            let some = left.min(MOST);
            let mut requests: [RecvWr; MOST] = core::array::from_fn(|_| RecvWr {
                wr_id: super::link::RECEIVED,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 0,
            });
            let first = requests.as_mut_ptr();
            for place in 1..some {
                // SAFETY: both are in the array, which is reached by this pointer alone.
                unsafe { (*first.add(place - 1)).next = first.add(place) };
            }
            let mut bad = ptr::null_mut();
            // SAFETY: a queue pair that exists, and requests on the stack.
            Errno::check(unsafe {
                let qp = (*self.handle.public()).qp;
                ((*self.context).ops.post_recv)(qp, first, &raw mut bad)
            })?;
            left -= some;
        }
        Ok(())
    }

    fn post(&self, request: &mut SendWr) -> Result<(), Errno> {
        let mut bad = ptr::null_mut();
        // SAFETY: a queue pair that exists, and a request of the caller's with what it names.
        Errno::check(unsafe {
            let qp = (*self.handle.public()).qp;
            ((*self.context).ops.post_send)(qp, request, &raw mut bad)
        })
    }

    /// Writes bytes to the peer's memory; with immediate data the peer hears of it.
    pub(super) fn write(
        &self,
        wr_id: u64,
        immediate: Option<u32>,
        places: &mut [Sge],
        is_inline: bool,
        addr: u64,
        rkey: u32,
    ) -> Result<(), Errno> {
        let mut request = SendWr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: places.as_mut_ptr(),
            num_sge: places.len() as c_int,
            opcode: match immediate {
                Some(_) => opcode::RDMA_WRITE_WITH_IMM,
                None => opcode::RDMA_WRITE,
            },
            send_flags: inline(is_inline),
            imm_or_rkey: immediate.unwrap_or(0).to_be(),
            op: SendPart {
                rdma: RdmaPart {
                    remote_addr: addr,
                    rkey,
                },
            },
            xrc_srqn: 0,
        };
        self.post(&mut request)
    }

    /// Sends a datagram.
    pub(super) fn send(
        &self,
        wr_id: u64,
        place: &mut Sge,
        is_inline: bool,
        to: UdPart,
    ) -> Result<(), Errno> {
        let mut request = SendWr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: place,
            num_sge: 1,
            opcode: opcode::SEND,
            send_flags: inline(is_inline),
            imm_or_rkey: 0,
            op: SendPart { ud: to },
            xrc_srqn: 0,
        };
        self.post(&mut request)
    }
}

fn inline(is_inline: bool) -> c_uint {
    if is_inline { send_flags::INLINE } else { 0 }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let Ok(bridge) = bridge() else { return };
        // SAFETY: nobody uses them any more.
        unsafe {
            let _ = qp::destroy(self.handle.public());
            (bridge.destroy_cq)(self.cq);
            (bridge.destroy_comp_channel)(self.channel);
        }
    }
}
