//! Asynchronous events: whom they happened to, and who waits until they are acknowledged.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hirail::AsyncEvent;

use crate::abi;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::entry::{Object, without_device};
use crate::errno::Errno;
use crate::events::Events;
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// An object that events happen to, by what the engine calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Cq(u32),
    Qp(u32),
    Srq(u32),
}

/// The events of a device.
pub(crate) struct AsyncEvents {
    queue: Events<abi::AsyncEvent>,
    /// Addresses of the objects that exist; a target of XRC may have several.
    subjects: Mutex<BTreeMap<Subject, Vec<usize>>>,
}

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            queue: Events::new()?,
            subjects: Mutex::default(),
        })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.queue.fd()
    }

    fn subjects(&self) -> MutexGuard<'_, BTreeMap<Subject, Vec<usize>>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events of `subject` name `address` from now on.
    pub(crate) fn add(&self, subject: Subject, address: usize) {
        self.subjects().entry(subject).or_default().push(address);
    }

    /// Nothing happens to the object at `address` any more, and what has happened is forgotten unless
    /// somebody has taken it already.
    pub(crate) fn remove(&self, subject: Subject, address: usize) {
        let mut subjects = self.subjects();
        if let Some(addresses) = subjects.get_mut(&subject) {
            addresses.retain(|known| *known != address);
            if addresses.is_empty() {
                subjects.remove(&subject);
            }
        }
        self.queue.withdraw(|event| event.element == address);
    }

    /// What `look` sees at an address of `subject`, which is there so long.
    pub(crate) fn find<T>(&self, subject: Subject, look: impl FnOnce(usize) -> T) -> Option<T> {
        let subjects = self.subjects();
        let address = *subjects.get(&subject)?.first()?;
        Some(look(address))
    }

    /// Tells of an event, unless its object is gone.
    pub(crate) fn raise(&self, event: AsyncEvent) {
        let subject = match event {
            AsyncEvent::CqErr(cq) => Subject::Cq(cq.0),
            AsyncEvent::QpFatal(qpn)
            | AsyncEvent::QpReqErr(qpn)
            | AsyncEvent::QpAccessErr(qpn)
            | AsyncEvent::CommEst(qpn)
            | AsyncEvent::SqDrained(qpn)
            | AsyncEvent::QpLastWqeReached(qpn) => Subject::Qp(qpn.value()),
            AsyncEvent::SrqErr(srq) | AsyncEvent::SrqLimitReached(srq) => Subject::Srq(srq.0),
            AsyncEvent::PortActive | AsyncEvent::PortErr | AsyncEvent::GidChange => {
                return self.push(event, 1);
            }
            AsyncEvent::DeviceFatal => return self.push(event, 0),
        };
        let subjects = self.subjects();
        for address in subjects.get(&subject).into_iter().flatten() {
            self.push(event, *address);
        }
    }

    fn push(&self, event: AsyncEvent, element: usize) {
        self.queue.push(abi::AsyncEvent {
            element,
            event_type: event.kind().code().into(),
        });
    }
}

/// Does with the acknowledgements of the object that `event` happened to.
///
/// # Safety
/// The object exists, or it is an event of no object.
unsafe fn with_owner(
    event: &abi::AsyncEvent,
    job: impl Fn(&crate::events::Acknowledgements, Kind, *const ()),
) {
    let element: *const () = ptr::with_exposed_provenance(event.element);
    // IBV_EVENT_CQ_ERR; SRQ_ERR and SRQ_LIMIT_REACHED; QP_FATAL to PATH_MIG_ERR and LAST_WQE_REACHED.
    // SAFETY: as required of the caller.
    unsafe {
        match event.event_type {
            0 => job(
                &CqObject::of(element.cast()).async_events,
                Kind::Cq,
                element,
            ),
            14 | 15 => job(&SrqObject::of(element.cast()).events, Kind::Srq, element),
            1..=7 | 16 => job(&QpObject::of(element.cast()).events, Kind::Qp, element),
            _ => {}
        }
    }
}

/// `ibv_get_async_event`. It waits even when the device has failed: its last event tells so.
pub(crate) unsafe extern "C" fn get_async_event(
    context: *mut abi::Context,
    event: *mut abi::AsyncEvent,
) -> c_int {
    without_device(-1, || {
        // SAFETY: an open device of the caller's.
        let context = unsafe { ContextObject::of(context) };
        if hirail::fork::check().is_err() {
            Errno::DEAD.set();
            return -1;
        }
        // The object exists: events of those that are destroyed are withdrawn first.
        // SAFETY: as said.
        let taken = context.events.queue.take(|event| unsafe {
            with_owner(event, |acks, kind, object| {
                acks.taken();
                check::event(kind, object);
            });
        });
        match taken {
            Ok(taken) => {
                // SAFETY: the caller's.
                unsafe { ptr::write(event, taken) };
                0
            }
            Err(errno) => {
                errno.set();
                -1
            }
        }
    })
}

/// `ibv_ack_async_event`.
pub(crate) unsafe extern "C" fn ack_async_event(event: *mut abi::AsyncEvent) {
    without_device((), || {
        // SAFETY: an event that `get_async_event` gave; its object waits to be destroyed until it is
        // acknowledged.
        unsafe {
            with_owner(&*event, |acks, kind, object| {
                check::acknowledged(kind, object, 1);
                acks.acknowledged(1);
            })
        }
    });
}
