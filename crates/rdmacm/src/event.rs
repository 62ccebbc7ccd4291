//! Events as programs hold them, from `rdma_get_cm_event` to `rdma_ack_cm_event`.

use core::ffi::{c_int, c_uint, c_void};
use core::mem;
use std::ptr;
use std::sync::Arc;

use hirail_abi::{CmParam, ConnParam, EventParam, RdmaCmEvent, RdmaCmId, UdParam};

use crate::entry::number;
use crate::errno::Errno;
use crate::id::Id;
use crate::names::kind;

/// An event: the part that programs see, and whose it is.
#[repr(C)]
pub(crate) struct EventObject {
    public: RdmaCmEvent,
    /// Waits for the acknowledgement before it goes.
    owner: Arc<Id>,
    /// What the peer said.
    _said: Box<[u8]>,
}

/// What an event says.
pub(crate) struct Told {
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: EventParam,
    pub(crate) said: Box<[u8]>,
}

impl Told {
    /// An event that says nothing more.
    pub(crate) fn new(kind: u32, status: c_int) -> Self {
        Self {
            kind,
            status,
            param: no_param(),
            said: Box::default(),
        }
    }

    /// With what the peer of a connection said.
    pub(crate) fn conn(self, param: &CmParam, said: &[u8]) -> Self {
        let conn = ConnParam {
            private_data: ptr::null(),
            private_data_len: said.len() as u8,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq,
            qp_num: param.qpn,
        };
        let mut param = no_param();
        param.conn = conn;
        Self {
            param,
            said: said.into(),
            ..self
        }
    }

    /// With what a datagram service said.
    pub(crate) fn ud(self, ud: UdParam, said: &[u8]) -> Self {
        let mut param = no_param();
        param.ud = ud;
        Self {
            param,
            said: said.into(),
            ..self
        }
    }
}

/// Nothing said.
pub(crate) fn no_param() -> EventParam {
    // SAFETY: numbers and NULL.
    unsafe { mem::zeroed() }
}

/// Makes an event of `owner` for the program: about `id`, which `listener` has heard.
pub(crate) fn make(
    owner: Arc<Id>,
    id: *mut RdmaCmId,
    listener: *mut RdmaCmId,
    told: Told,
) -> *mut RdmaCmEvent {
    let mut param = told.param;
    if !told.said.is_empty() {
        let said: *const c_void = told.said.as_ptr().cast();
        // Both forms begin with the same two fields.
        param.conn.private_data = said;
        param.conn.private_data_len = told.said.len() as u8;
    }
    let object = EventObject {
        public: RdmaCmEvent {
            id,
            listen_id: listener,
            event: told.kind,
            status: told.status,
            param,
        },
        owner,
        _said: told.said,
    };
    Box::into_raw(Box::new(object)).cast()
}

/// Takes an event back from the program.
///
/// # Safety
/// It came out of [`make`], and nobody uses it any more.
pub(crate) unsafe fn acknowledge(event: *mut RdmaCmEvent) {
    // SAFETY: as required of the caller.
    let object = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    object.owner.acknowledged();
}

/// `rdma_ack_cm_event`.
pub(crate) unsafe extern "C" fn ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    number(|| {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an event of ours, which the caller gives back, once.
        unsafe { acknowledge(event) };
        Ok(())
    })
}

/// `rdma_write_cm_event`: tells of something that the program has found out.
pub(crate) unsafe extern "C" fn write_cm_event(
    id: *mut RdmaCmId,
    event: c_uint,
    status: c_int,
    arg: u64,
) -> c_int {
    number(|| {
        if event != kind::USER {
            return Err(Errno::INVALID);
        }
        // SAFETY: an id of the caller's.
        let id = unsafe { Id::of(id)? };
        let mut told = Told::new(event, status);
        told.param.arg = arg;
        id.tell(told);
        Ok(())
    })
}
