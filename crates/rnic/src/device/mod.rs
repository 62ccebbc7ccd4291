//! The device: owns the tables, demultiplexes packets, and hands QPs that want to send to the link.
//!
//! All methods take `&self`; the locks inside are the host's kind ([`Host`]). Lock order: QP, then
//! the tables (keys, SRQs, GIDs), then SRQ, then CQ, then window, then schedule. One QP's lock is
//! never taken under another's.

mod drive;
mod misfortune;
mod receive;
mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hirail_vocab::{AsyncEventKind, Counters};
use hirail_wire::{Gid, PathMtu, Qpn};

use crate::config::{DeviceConfig, GidEntry};
use crate::cq::{Cq, CqId, Cqe};
use crate::event::{AsyncEvent, Denied};
use crate::host::{Host, Lock, ReadMostly};
use crate::mcast::{GroupLimits, GroupTable};
use crate::mr::{KeyTable, PdId};
use crate::qp::Qp;
use crate::qp::attr::AddressVector;
use crate::schedule::Schedule;
use crate::srq::{Srq, SrqId, XrcdId};
use crate::transmit::{Flow, Work};
use crate::window::{Window, WindowKey};

pub use receive::PacketMeta;
pub use verbs::SrqInit;

/// A completion queue as QPs and users share it.
pub struct CompletionQueue<H: Host> {
    /// Its number.
    pub id: CqId,
    queue: H::Lock<Cq>,
}

impl<H: Host> CompletionQueue<H> {
    /// The queue itself, locked: to poll, arm, resize and moderate it.
    pub fn lock(&self) -> <H::Lock<Cq> as Lock<Cq>>::Guard<'_> {
        self.queue.lock()
    }
}

/// A shared receive queue as QPs and users share it.
pub struct SharedReceiveQueue<H: Host> {
    /// Its number.
    pub id: SrqId,
    /// Domain of the keys in its work requests.
    pub pd: PdId,
    /// What XRC adds.
    pub xrc: Option<XrcHalf<H>>,
    queue: H::Lock<Srq>,
}

/// What a shared receive queue for XRC has besides.
pub struct XrcHalf<H: Host> {
    /// Only target QPs of this domain may deliver.
    pub domain: XrcdId,
    /// Where its completions go, whichever QP took the work request.
    pub cq: Arc<CompletionQueue<H>>,
}

impl<H: Host> SharedReceiveQueue<H> {
    /// The queue itself, locked: to post to it, arm its limit and resize it.
    pub fn lock(&self) -> <H::Lock<Srq> as Lock<Srq>>::Guard<'_> {
        self.queue.lock()
    }
}

/// What happened that the host must tell its user.
pub enum Event<H: Host> {
    /// A completion queue that was armed has what it was armed for.
    Completion(Arc<CompletionQueue<H>>),
    /// An asynchronous event.
    Async(AsyncEvent),
    /// A request of the peer that got nothing, where that is asked for.
    Denied(Denied),
}

/// What a timer of the engine belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// A QP: retransmission, RNR wait.
    Qp(Qpn),
    /// A completion queue: moderation.
    Cq(CqId),
}

/// A window as the QPs that send through it share it.
pub(crate) type SharedWindow<H> = Arc<<H as Host>::Lock<Window<H>>>;

/// QPs by number.
struct QpTable<H: Host> {
    slots: Vec<Option<Arc<Qp<H>>>>,
    /// Freed slots, the longest free first, so that late packets do not meet a new QP.
    free: std::collections::VecDeque<u32>,
    /// QP1, if the host runs one.
    gsi: Option<Arc<Qp<H>>>,
}

impl<H: Host> QpTable<H> {
    fn get(&self, qpn: Qpn, config: &DeviceConfig) -> Option<&Arc<Qp<H>>> {
        if qpn == Qpn::GSI {
            return self.gsi.as_ref();
        }
        self.slots.get(slot_of(qpn, config)? as usize)?.as_ref()
    }
}

/// The slot of a QPN; nothing for numbers that the device does not give out.
fn slot_of(qpn: Qpn, config: &DeviceConfig) -> Option<u32> {
    let offset = qpn.value().checked_sub(config.first_qpn.value())?;
    let rotation = config.qpn_rotation % config.qpns;
    if offset >= config.qpns {
        None
    } else if offset >= rotation {
        Some(offset - rotation)
    } else {
        Some(offset + config.qpns - rotation)
    }
}

/// The QPN of a slot.
fn qpn_of(slot: u32, config: &DeviceConfig) -> Qpn {
    let offset = (u64::from(slot) + u64::from(config.qpn_rotation)) % u64::from(config.qpns);
    Qpn::new(config.first_qpn.value() + offset as u32)
}

/// The RNIC.
pub struct Device<H: Host> {
    config: DeviceConfig,
    counters: Counters,
    keys: H::ReadMostly<KeyTable<H>>,
    gids: H::ReadMostly<Vec<GidEntry>>,
    qps: H::ReadMostly<QpTable<H>>,
    cqs: H::ReadMostly<BTreeMap<CqId, Arc<CompletionQueue<H>>>>,
    srqs: H::ReadMostly<BTreeMap<SrqId, Arc<SharedReceiveQueue<H>>>>,
    groups: H::ReadMostly<GroupTable>,
    windows: H::Lock<BTreeMap<WindowKey, SharedWindow<H>>>,
    schedule: H::Lock<Schedule<H>>,
    /// There may be events in the schedule; changed under its lock.
    has_events: AtomicBool,
    /// Somebody wants to know which requests of peers got nothing.
    reports_denials: AtomicBool,
    dependents: H::Lock<Dependents>,
}

/// Numbers in use, and how many objects depend on each.
#[derive(Default)]
struct Dependents {
    next: u32,
    pds: BTreeMap<PdId, u32>,
    xrcds: BTreeMap<XrcdId, u32>,
    /// QPs and XRC SRQs that complete on each CQ.
    cqs: BTreeMap<CqId, u32>,
    /// QPs that receive from each SRQ.
    srqs: BTreeMap<SrqId, u32>,
}

impl<H: Host> Device<H> {
    /// A device with nothing on it.
    pub fn new(config: DeviceConfig) -> Self {
        let limits = &config.limits;
        Self {
            counters: Counters::new(),
            keys: ReadMostly::new(KeyTable::new(config.seed, limits.max_mr)),
            gids: ReadMostly::new(config.gids.clone()),
            qps: ReadMostly::new(QpTable {
                slots: Vec::new(),
                free: std::collections::VecDeque::new(),
                gsi: None,
            }),
            cqs: ReadMostly::new(BTreeMap::new()),
            srqs: ReadMostly::new(BTreeMap::new()),
            groups: ReadMostly::new(GroupTable::new(GroupLimits {
                groups: limits.max_mcast_grp,
                attached: limits.max_mcast_qp_attach,
                total: limits
                    .max_mcast_grp
                    .saturating_mul(limits.max_mcast_qp_attach),
            })),
            windows: Lock::new(BTreeMap::new()),
            schedule: Lock::new(Schedule::new()),
            has_events: AtomicBool::new(false),
            reports_denials: AtomicBool::new(false),
            dependents: Lock::new(Dependents::default()),
            config,
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Active MTU of the port.
    pub fn port_mtu(&self) -> PathMtu {
        self.config.port_mtu
    }

    /// The GID table, in order. The place of an address that is gone has a GID of zeros.
    pub fn gids(&self) -> Vec<GidEntry> {
        self.gids.read().clone()
    }

    /// Replaces the GID table and tells the user so.
    pub fn set_gids(&self, gids: Vec<GidEntry>) {
        *self.gids.write() = gids;
        self.raise(AsyncEvent::GidChange);
    }

    /// Keys of memory regions and windows.
    pub(crate) fn keys(&self) -> &H::ReadMostly<KeyTable<H>> {
        &self.keys
    }

    pub(crate) fn schedule(&self) -> <H::Lock<Schedule<H>> as Lock<Schedule<H>>>::Guard<'_> {
        self.schedule.lock()
    }

    /// Tells the user of an asynchronous event.
    pub fn raise(&self, event: AsyncEvent) {
        self.raise_event(Event::Async(event));
    }

    /// From now on tells which requests of peers got nothing ([`Event::Denied`]).
    pub fn report_denials(&self) {
        self.reports_denials.store(true, Ordering::Relaxed);
    }

    /// Tells of a request that got nothing, where somebody wants to know.
    #[cold]
    pub(crate) fn deny(&self, denied: impl FnOnce() -> Denied) {
        if self.reports_denials.load(Ordering::Relaxed) {
            self.raise_event(Event::Denied(denied()));
        }
    }

    fn raise_event(&self, event: Event<H>) {
        let mut schedule = self.schedule();
        schedule.raise(event);
        self.has_events.store(true, Ordering::Release);
    }

    /// The oldest event. Asking where there is none, which is what every call ends with, takes no
    /// lock.
    fn pop_event(&self) -> Option<Event<H>> {
        if !self.has_events.load(Ordering::Acquire) {
            return None;
        }
        let mut schedule = self.schedule();
        let event = schedule.pop_event();
        if event.is_none() {
            self.has_events.store(false, Ordering::Release);
        }
        event
    }

    pub(crate) fn srq(&self, number: u32) -> Option<Arc<SharedReceiveQueue<H>>> {
        self.srqs.read().get(&SrqId(number)).cloned()
    }

    /// The QP of this number.
    pub fn qp(&self, qpn: Qpn) -> Option<Arc<Qp<H>>> {
        self.qps.read().get(qpn, &self.config).cloned()
    }

    /// QPs that exist, QP1 not counted.
    pub fn qp_count(&self) -> u32 {
        let table = self.qps.read();
        (table.slots.len() - table.free.len()) as u32
    }

    /// Puts a completion on its queue and sees to the event; false when the queue was full.
    pub(crate) fn complete(
        &self,
        cq: &Arc<CompletionQueue<H>>,
        cqe: Cqe,
        now: crate::time::Instant,
    ) -> bool {
        let mut queue = cq.lock();
        let before = queue.moderation_deadline();
        let pushed = queue.push(cqe, now);
        let deadline = queue.moderation_deadline();
        drop(queue);
        if pushed.notify {
            self.raise_event(Event::Completion(Arc::clone(cq)));
        }
        if let Some(deadline) = deadline
            && before.is_none()
        {
            self.schedule().arm(Timer::Cq(cq.id), deadline);
        }
        if pushed.died {
            self.raise(AsyncEvent::CqErr(cq.id));
        }
        !pushed.overrun
    }

    /// The window towards a destination, joined by one more QP.
    pub(crate) fn join_window(&self, key: WindowKey) -> SharedWindow<H> {
        let mut windows = self.windows.lock();
        let window = windows
            .entry(key)
            .or_insert_with(|| Arc::new(Lock::new(Window::new(key, self.config.window))));
        window.lock().join();
        Arc::clone(window)
    }

    /// One QP less uses the window.
    pub(crate) fn leave_window(&self, window: &SharedWindow<H>) {
        let mut windows = self.windows.lock();
        let mut guard = window.lock();
        guard.users -= 1;
        if guard.users == 0 {
            windows.remove(&guard.key);
        }
    }

    /// The window may have room: the QP whose turn it is gets in line again.
    pub(crate) fn wake_waiting(&self, window: &SharedWindow<H>) {
        let mut guard = window.lock();
        let (_, class) = guard.key;
        let woken = guard.wake();
        drop(guard);
        if let Some(qp) = woken {
            self.schedule().push(class, Work::Requests, qp);
        }
    }

    /// Addresses and network-layer fields of packets from `local` to where `av` points; nothing if
    /// the source GID does not exist.
    pub(crate) fn flow(&self, local: Qpn, remote: Qpn, av: &AddressVector) -> Option<Flow> {
        let source = self.gids.read().get(usize::from(av.sgid_index))?.gid;
        if source == Gid::default() {
            return None;
        }
        Some(Flow {
            source,
            destination: av.dgid,
            source_index: av.sgid_index,
            traffic_class: av.traffic_class,
            hop_limit: av.hop_limit,
            flow_label: av.flow_label,
            udp_source_port: udp_source_port(local, remote, av.flow_label),
            priority: av.priority(),
            destination_mac: av.dmac,
        })
    }

    /// The same for a datagram, whose source port depends on the sender alone, as in rxe.
    pub(crate) fn datagram_flow(&self, local: Qpn, av: &AddressVector) -> Option<Flow> {
        let mut flow = self.flow(local, Qpn::new(0), av)?;
        flow.udp_source_port = 0xc000 + (local.value().wrapping_mul(0x61c8_8647) >> 18) as u16;
        Some(flow)
    }
}

/// Source port by Linux's rule: the flow label folded, or the product of both QPNs
/// (`rdma_get_udp_sport`).
fn udp_source_port(local: Qpn, remote: Qpn, flow_label: u32) -> u16 {
    let label = if flow_label != 0 {
        flow_label
    } else {
        let mut product = u64::from(local.value()) * u64::from(remote.value());
        product ^= product >> 20;
        product ^= product >> 40;
        (product & 0xf_ffff) as u32
    };
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}

impl<H: Host> Event<H> {
    /// The kind of an asynchronous event.
    pub fn async_kind(&self) -> Option<AsyncEventKind> {
        match self {
            Self::Async(event) => Some(event.kind()),
            Self::Completion(_) | Self::Denied(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_round_the_numbers() {
        let config = DeviceConfig {
            first_qpn: Qpn::new(100),
            qpns: 10,
            qpn_rotation: 7,
            ..DeviceConfig::default()
        };
        for slot in 0..10 {
            assert_eq!(slot_of(qpn_of(slot, &config), &config), Some(slot));
        }
        assert_eq!(qpn_of(0, &config), Qpn::new(107));
        assert_eq!(qpn_of(3, &config), Qpn::new(100));
        assert_eq!(slot_of(Qpn::new(99), &config), None);
        assert_eq!(slot_of(Qpn::new(110), &config), None);
    }

    /// Values of Linux's rule.
    #[test]
    fn udp_source_ports() {
        let port = |local, remote, label| udp_source_port(Qpn::new(local), Qpn::new(remote), label);
        assert_eq!(port(1, 2, 0x12345), 0xe341);
        assert_eq!(port(0x12, 0x34, 0), 0xc3a8);
        assert_eq!(port(0x34, 0x12, 0), 0xc3a8);
        assert_eq!(port(0xab_cdef, 0x12_3456, 0), 0xc3c8);
    }
}
