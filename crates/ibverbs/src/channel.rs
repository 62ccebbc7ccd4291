//! Completion channels: one descriptor for the events of many completion queues.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;

use crate::abi;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::entry::{Object, device, number, pointer, status};
use crate::errno::Errno;
use crate::events::Events;

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    pub(crate) public: abi::CompChannel,
    /// Addresses of queues.
    pub(crate) events: Arc<Events<usize>>,
}

// SAFETY: it begins with its public part.
unsafe impl Object for ChannelObject {
    type Public = abi::CompChannel;
}

/// `ibv_create_comp_channel`.
pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut abi::Context,
) -> *mut abi::CompChannel {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        let events = Arc::new(Events::new()?);
        let public = abi::CompChannel {
            context: context.public(),
            fd: events.fd(),
            refcnt: AtomicI32::new(0),
        };
        let object = ChannelObject { public, events }.into_public();
        Ok(check::made(
            context,
            Kind::Channel,
            object,
            "completion channel",
        ))
    })
}

/// `ibv_destroy_comp_channel`: refused while queues tell their events there.
pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    // SAFETY: a channel of the caller's, and the device that it belongs to.
    let (object, context) = unsafe {
        (
            ChannelObject::of(channel),
            device(&raw const (*channel).context),
        )
    };
    status(context, || {
        if object.public.refcnt.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        check::going(Kind::Channel, channel);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { ChannelObject::take(channel) });
        Ok(())
    })
}

/// `ibv_get_cq_event`.
pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut abi::CompChannel,
    cq: *mut *mut abi::Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: a channel of the caller's, and the device that it belongs to.
    let (object, context) = unsafe {
        (
            ChannelObject::of(channel),
            device(&raw const (*channel).context),
        )
    };
    number(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        // The queue exists: events of one that is destroyed are withdrawn first, and it waits for
        // those that were taken.
        let taken = object.events.take(|address| {
            // SAFETY: as said.
            unsafe { CqObject::of(ptr::with_exposed_provenance(*address)) }
                .events
                .taken();
        })?;
        let found: *mut abi::Cq = ptr::with_exposed_provenance_mut(taken);
        // SAFETY: the caller's places, and a queue that exists.
        unsafe {
            cq.write(found);
            cq_context.write((*found).cq_context);
        }
        check::event(Kind::Cq, found);
        Ok(0)
    })
}

/// `ibv_ack_cq_events`.
pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut abi::Cq, count: c_uint) {
    // SAFETY: a queue of the caller's.
    let object = unsafe { CqObject::of(cq) };
    let completed = &object.public.cq.comp_events_completed;
    completed.fetch_add(count, Ordering::Relaxed);
    check::acknowledged(Kind::Cq, cq, count);
    object.events.acknowledged(count);
}
