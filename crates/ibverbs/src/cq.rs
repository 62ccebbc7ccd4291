//! Completion queues: making, changing and destroying them. Polling is elsewhere.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hirail::{Cq, CqId, Notify, Wc};

use crate::abi;
use crate::async_event::Subject;
use crate::channel::ChannelObject;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::entry::{Object, device, pointer, status};
use crate::errno::Errno;
use crate::events::{Acknowledgements, Events};
use crate::ex;
use crate::lock::Lock;

/// A completion queue. All of them have the extended form; who does not know it looks at its
/// beginning only.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) public: abi::CqEx,
    pub(crate) cq: Cq,
    /// Completion events.
    pub(crate) events: Acknowledgements,
    /// Asynchronous ones.
    pub(crate) async_events: Acknowledgements,
    teller: Option<Arc<Teller>>,
    /// Held between `start_poll` and `end_poll`.
    pub(crate) polling: Lock,
    /// The completion that is being looked at; whoever holds `polling` has it.
    pub(crate) current: UnsafeCell<Option<Wc>>,
}

// SAFETY: it begins with its public part, which begins with a `abi::Cq`.
unsafe impl Object for CqObject {
    type Public = abi::Cq;
}

/// Puts a queue into its channel when the device says that it has completions.
struct Teller {
    events: Arc<Events<usize>>,
    /// The queue's address; 0 before it has one.
    address: AtomicUsize,
}

impl Notify for Teller {
    fn notify(&self, _: CqId) {
        self.events.push(self.address.load(Ordering::Acquire));
    }
}

/// What a queue is made with.
pub(crate) struct CqInit {
    pub(crate) cqe: i64,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut abi::CompChannel,
    pub(crate) comp_vector: i64,
}

/// Makes a queue.
///
/// # Safety
/// The channel, if there is one, is the caller's.
pub(crate) unsafe fn create(context: &ContextObject, init: &CqInit) -> Result<*mut abi::Cq, Errno> {
    let cqe = u32::try_from(init.cqe).map_err(|_| Errno::INVALID)?;
    if !(0..context.num_comp_vectors().into()).contains(&init.comp_vector) {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller.
    let channel = unsafe {
        let is_none = init.channel.is_null();
        (!is_none).then(|| ChannelObject::of(init.channel))
    };
    if channel.is_some_and(|channel| channel.public.context != context.public()) {
        return Err(Errno::INVALID);
    }
    let teller = channel.map(|channel| {
        Arc::new(Teller {
            events: Arc::clone(&channel.events),
            address: AtomicUsize::new(0),
        })
    });
    let cq = match &teller {
        Some(teller) => {
            let teller: Arc<dyn Notify> = Arc::clone(teller) as _;
            context.hirail().create_cq_notifying(cqe, teller)?
        }
        None => context.hirail().create_cq(cqe)?,
    };
    let id = cq.id().0;
    let object = CqObject {
        public: ex::cq::public(abi::Cq {
            context: context.public(),
            channel: init.channel,
            cq_context: init.cq_context,
            handle: id,
            cqe: AtomicI32::new(cqe.cast_signed()),
            mutex: [0; 5],
            cond: [0; 6],
            comp_events_completed: AtomicU32::new(0),
            async_events_completed: AtomicU32::new(0),
        }),
        cq,
        events: Acknowledgements::default(),
        async_events: Acknowledgements::default(),
        teller: teller.clone(),
        polling: Lock::new(),
        current: UnsafeCell::new(None),
    };
    let public = object.into_public();
    // Nothing has armed it yet, so nobody has looked for the address.
    if let Some(teller) = teller {
        teller
            .address
            .store(public.expose_provenance(), Ordering::Release);
    }
    if let Some(channel) = channel {
        channel.public.refcnt.fetch_add(1, Ordering::AcqRel);
    }
    context
        .events
        .add(Subject::Cq(id), public.expose_provenance());
    check::cq(context, public, id, cqe);
    Ok(public)
}

/// `ibv_create_cq`.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut abi::Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
    comp_vector: c_int,
) -> *mut abi::Cq {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    pointer(context, || {
        let init = CqInit {
            cqe: cqe.into(),
            cq_context,
            channel,
            comp_vector: comp_vector.into(),
        };
        // SAFETY: the channel is the caller's.
        unsafe { create(context, &init) }
    })
}

/// `ibv_destroy_cq`: refused while queue pairs use it; waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut abi::Cq) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (CqObject::of(cq), device(&raw const (*cq).context)) };
    status(context, || {
        hirail::fork::check().map_err(hirail::Error::from)?;
        if object.cq.users() > 0 {
            return Err(Errno::BUSY);
        }
        let subject = Subject::Cq(object.cq.id().0);
        context.events.remove(subject, cq.expose_provenance());
        object.cq.silence();
        if let Some(teller) = &object.teller {
            let address = cq.expose_provenance();
            teller.events.withdraw(|event| *event == address);
            object.events.wait(|owed| check::waits(Kind::Cq, cq, owed));
            // SAFETY: channels stay while queues tell their events there.
            let channel = unsafe { ChannelObject::of(object.public.cq.channel) };
            channel.public.refcnt.fetch_sub(1, Ordering::AcqRel);
        }
        object
            .async_events
            .wait(|owed| check::waits(Kind::Cq, cq, owed));
        check::going(Kind::Cq, cq);
        // SAFETY: the caller gives it up, once; nobody can name it any more.
        drop(unsafe { CqObject::take(cq) });
        Ok(())
    })
}

/// `ibv_resize_cq`.
pub(crate) unsafe extern "C" fn resize_cq(cq: *mut abi::Cq, cqe: c_int) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (CqObject::of(cq), device(&raw const (*cq).context)) };
    status(context, || {
        let entries = u32::try_from(cqe).map_err(|_| Errno::INVALID)?;
        object.cq.resize(entries)?;
        object.public.cq.cqe.store(cqe, Ordering::Relaxed);
        check::resized(cq, entries);
        Ok(())
    })
}

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

/// `modify_cq` of the extended table.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut abi::Cq, attr: *mut abi::ModifyCqAttr) -> c_int {
    // SAFETY: a queue of the caller's, and the device that it belongs to.
    let (object, context) = unsafe { (CqObject::of(cq), device(&raw const (*cq).context)) };
    status(context, || {
        // SAFETY: the caller's.
        let attr = unsafe { ptr::read(attr) };
        if attr.attr_mask & !MODERATE != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if attr.attr_mask & MODERATE != 0 {
            let period = Duration::from_micros(attr.cq_period.into());
            object.cq.moderate(attr.cq_count, period)?;
        }
        Ok(())
    })
}
