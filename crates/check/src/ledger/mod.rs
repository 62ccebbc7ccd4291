//! What is known of a process, and the facts that change it.
//!
//! Objects, devices included, go by numbers that the caller chooses: their addresses, say. A fact
//! about an object that is not known changes nothing: it was made before anybody looked, or it is
//! gone, which is the business of whoever frees it.

mod events;
mod peer;
mod poll;
mod post;

use std::collections::{BTreeMap, VecDeque};

use hirail_vocab::FindingCode;

use crate::finding::{Finding, Findings, Trace};
use crate::keys::{Keys, Region, Rights};
use crate::objects::{Kind, Objects};
use crate::queues::{Cq, Qp, QpInit, Receives, Srq};
use crate::site::{Site, Sites};

pub use peer::{Deny, Peer};
pub use poll::Completion;

/// The memory of the process, and what peers do to it.
pub trait Memory {
    /// A digest of bytes; nothing where they cannot be read.
    fn digest(&self, addr: u64, length: u64) -> Option<u32>;

    /// WRITEs and atomics of peers that a device has executed so far.
    fn peer_writes(&self, device: u64) -> u64;
}

/// Memory that the device wrote for a request of the program, lately.
struct Landed {
    /// The request's number, and that of the first one posted after it had completed.
    until: u64,
    addr: u64,
    length: u64,
}

/// How many of these are remembered.
const LANDED: usize = 4096;

struct Device {
    mtu: u32,
}

/// What is known of a process.
#[derive(Default)]
pub struct Ledger {
    sites: Sites,
    findings: Findings,
    objects: Objects,
    devices: BTreeMap<u64, Device>,
    keys: Keys,
    qps: BTreeMap<u64, Qp>,
    /// Queue pairs by device and number.
    numbers: BTreeMap<(u64, u32), u64>,
    srqs: BTreeMap<u64, Srq>,
    cqs: BTreeMap<u64, Cq>,
    /// Requests posted so far.
    posted: u64,
    landed: VecDeque<Landed>,
}

impl Ledger {
    /// The place of a backtrace, its innermost frame first.
    pub fn site(&mut self, frames: &[usize]) -> Site {
        self.sites.intern(frames)
    }

    /// The backtrace of a place.
    pub fn frames(&self, site: Site) -> &[usize] {
        self.sites.frames(site)
    }

    /// Whether there is anything to [take](Self::take).
    pub fn has_news(&self) -> bool {
        self.findings.has_news()
    }

    /// What is new since the last time: findings, and known ones whose count has doubled.
    pub fn take(&mut self) -> Vec<Finding> {
        self.findings.take()
    }

    /// A device was opened, by the program or by a library for itself.
    pub fn device_opened(
        &mut self,
        device: u64,
        name: &str,
        mtu: u32,
        is_internal: bool,
        site: Site,
    ) {
        self.devices.insert(device, Device { mtu });
        let name = format!("device {name}");
        self.objects
            .add(device, Kind::Device, device, name, is_internal, site);
    }

    /// A device is closed.
    pub fn device_closed(&mut self, device: u64, site: Site) {
        self.objects.close(device, site, &mut self.findings);
        self.devices.remove(&device);
        self.qps.retain(|_, qp| qp.init.device != device);
        self.numbers.retain(|(of, _), _| *of != device);
        self.srqs.retain(|_, srq| srq.device != device);
    }

    /// An object was made about which there is no more to say.
    pub fn made(&mut self, device: u64, kind: Kind, object: u64, name: &str, site: Site) {
        self.objects
            .add(device, kind, object, name.to_owned(), false, site);
    }

    /// The same for one that a library made for itself, and keeps.
    pub fn made_internally(&mut self, device: u64, kind: Kind, object: u64, name: &str) {
        let site = Site::default();
        self.objects
            .add(device, kind, object, name.to_owned(), true, site);
    }

    /// An object was destroyed; regions and queue pairs have calls of their own.
    pub fn gone(&mut self, kind: Kind, object: u64) {
        self.objects.remove(kind, object);
        match kind {
            Kind::Cq => {
                self.cqs.remove(&object);
            }
            Kind::Srq => {
                if let Some(srq) = self.srqs.remove(&object) {
                    for posted in srq.receives.queue {
                        self.release(srq.device, &posted);
                    }
                }
            }
            _ => {}
        }
    }

    /// Memory was registered, or a region changed.
    pub fn registered(&mut self, mr: u64, region: Region, site: Site) {
        self.keys.add(mr, region, site);
        let name = format!("MR lkey {:#x}", region.lkey);
        self.objects
            .add(region.device, Kind::Mr, mr, name, false, site);
    }

    /// A region is about to be deregistered. `owns` tells whether the device still owns what was
    /// posted to a queue pair.
    pub fn deregistering(&mut self, mr: u64, site: Site, owns: impl Fn(u64) -> bool) {
        let Some(live) = self.keys.region(mr) else {
            return;
        };
        if live.uses == 0 {
            return;
        }
        let (region, registered) = (live.region, live.site);
        let mut first = None;
        let mut uses = 0;
        let names = |posted: &crate::queues::Posted| {
            posted
                .sges
                .iter()
                .any(|sge| sge.lkey == region.lkey && sge.length > 0)
        };
        let mut served = BTreeMap::new();
        for (&address, qp) in &mut self.qps {
            if qp.init.device != region.device || !owns(address) {
                continue;
            }
            if let Some(srq) = qp.init.srq {
                served.insert(srq, address);
            }
            let posted = qp.sends.iter_mut().chain(&mut qp.receives.queue);
            for posted in posted.filter(|posted| names(posted)) {
                uses += 1;
                posted.is_told = true;
                first.get_or_insert((Kind::Qp, address, posted.op, posted.site));
            }
        }
        for &srq in served.keys() {
            let queue = self.srqs.get_mut(&srq).map(|srq| &mut srq.receives.queue);
            for posted in queue.into_iter().flatten().filter(|posted| names(posted)) {
                uses += 1;
                posted.is_told = true;
                first.get_or_insert((Kind::Srq, srq, None, posted.site));
            }
        }
        let Some((kind, object, op, posted)) = first else {
            return;
        };
        let what = op.map_or("receive", crate::queues::Op::name);
        let others = if uses == 1 {
            String::new()
        } else {
            format!(" (and {} more)", uses - 1)
        };
        let owner = self.objects.name(kind, object);
        let message = format!(
            "{region} (lkey {:#x}) is deregistered while a {what} posted to {owner}{others} has \
             not completed",
            region.lkey
        );
        let traces = vec![
            trace("deregistered", site),
            trace("posted", posted),
            trace("registered", registered),
        ];
        let name = self.objects.name(Kind::Mr, mr);
        self.find(FindingCode::DeregisteredInUse, name, message, traces);
    }

    /// A region was deregistered.
    pub fn deregistered(&mut self, mr: u64, site: Site) {
        self.keys.remove(mr, site);
        self.objects.remove(Kind::Mr, mr);
    }

    /// A memory window was made.
    pub fn window_made(&mut self, device: u64, mw: u64, rkey: u32, site: Site) {
        self.keys.add_window(device, rkey);
        self.made(device, Kind::Mw, mw, &format!("MW rkey {rkey:#x}"), site);
    }

    /// A completion queue was made.
    pub fn cq_made(&mut self, device: u64, cq: u64, name: &str, cqe: u32, site: Site) {
        self.made(device, Kind::Cq, cq, name, site);
        let queue = Cq {
            cqe,
            due: 0,
            is_told: false,
        };
        self.cqs.insert(cq, queue);
    }

    /// A completion queue has another size.
    pub fn cq_resized(&mut self, cq: u64, cqe: u32) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            (cq.cqe, cq.is_told) = (cqe, false);
        }
    }

    /// A shared receive queue was made; one for XRC has a completion queue.
    pub fn srq_made(
        &mut self,
        device: u64,
        srq: u64,
        name: &str,
        queue: (u64, Option<u64>),
        site: Site,
    ) {
        self.made(device, Kind::Srq, srq, name, site);
        let queue = Srq {
            device,
            pd: queue.0,
            cq: queue.1,
            is_ambiguous: false,
            receives: Receives::default(),
        };
        self.srqs.insert(srq, queue);
    }

    /// A queue pair was made.
    pub fn qp_made(&mut self, qp: u64, init: QpInit, site: Site) {
        let name = format!("QP {:#x}", init.qpn);
        self.objects
            .add(init.device, Kind::Qp, qp, name, false, site);
        self.numbers.insert((init.device, init.qpn), qp);
        if let Some(srq) = init.srq.and_then(|srq| self.srqs.get_mut(&srq)) {
            srq.is_ambiguous |= srq.cq.is_some_and(|cq| cq != init.recv_cq);
            srq.cq = Some(init.recv_cq);
        }
        let queue = Qp {
            init,
            rights: None,
            sends: VecDeque::new(),
            signaled: 0,
            is_stuck: false,
            receives: Receives::default(),
        };
        self.qps.insert(qp, queue);
    }

    /// A queue pair lets its peer do this from now on.
    pub fn qp_rights(&mut self, qp: u64, rights: Rights) {
        if let Some(qp) = self.qps.get_mut(&qp) {
            qp.rights = Some(rights);
        }
    }

    /// A queue pair was reset: what was posted to it is forgotten, its completions included.
    pub fn qp_reset(&mut self, qp: u64) {
        let Some(qp) = self.qps.get_mut(&qp) else {
            return;
        };
        let init = qp.init;
        let sends = std::mem::take(&mut qp.sends);
        let receives = std::mem::take(&mut qp.receives.queue);
        qp.is_stuck = false;
        let signaled = std::mem::take(&mut qp.signaled);
        self.expect(init.send_cq, -(signaled as i64));
        self.expect(init.recv_cq, -(receives.len() as i64));
        for posted in sends.iter().chain(&receives) {
            self.release(init.device, posted);
        }
    }

    /// A queue pair was destroyed.
    pub fn qp_gone(&mut self, qp: u64) {
        self.qp_reset(qp);
        self.objects.remove(Kind::Qp, qp);
        if let Some(gone) = self.qps.remove(&qp) {
            let number = (gone.init.device, gone.init.qpn);
            if self.numbers.get(&number) == Some(&qp) {
                self.numbers.remove(&number);
            }
        }
    }

    /// A posted request is nobody's any more.
    fn release(&mut self, device: u64, posted: &crate::queues::Posted) {
        for sge in &posted.sges {
            if sge.length > 0 {
                self.keys.count(device, sge.lkey, -1);
            }
        }
    }

    /// More completions may come to a queue, or fewer.
    fn expect(&mut self, cq: u64, by: i64) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.due = cq.due.saturating_add_signed(by);
        }
    }

    fn find(&mut self, code: FindingCode, object: String, message: String, traces: Vec<Trace>) {
        self.findings.add(code, object, message, traces);
    }
}

const fn trace(role: &'static str, site: Site) -> Trace {
    Trace { role, site }
}
