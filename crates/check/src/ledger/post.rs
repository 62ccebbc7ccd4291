//! Work requests are posted.

use hirail_vocab::FindingCode;

use super::{Ledger, Memory, trace};
use crate::finding::Trace;
use crate::keys::{Sge, Wrong};
use crate::objects::Kind;
use crate::queues::{Op, Payload, Posted, Send, Transport};
use crate::site::Site;

/// Parts of an entry that have digests of their own, so that a finding can say where bytes changed.
const PARTS: u64 = 16;

/// A part is no shorter.
const PART: u64 = 256;

impl Ledger {
    /// A send request is about to be posted.
    pub fn send_posting(&mut self, qp: u64, send: &Send<'_>, site: Site, memory: &dyn Memory) {
        let Some(queue) = self.qps.get(&qp) else {
            return;
        };
        let init = queue.init;
        let is_full = queue.sends.len() >= init.max_send_wr as usize;
        let total: u64 = send.sges.iter().map(|sge| u64::from(sge.length)).sum();
        let length = total + u64::from(send.inline.unwrap_or(0));
        let name = self.objects.name(Kind::Qp, qp);
        let mut is_told = false;
        if let Some((sge, wrong)) = self.wrong(init.device, init.pd, send.sges, send.op.receives())
        {
            is_told = true;
            self.wrong_entry(&name, send.op.name(), sge, wrong, site);
        }
        let mtu = self.devices.get(&init.device).map(|device| device.mtu);
        if let Some(mtu) = mtu
            && init.transport == Transport::Datagram
            && length > u64::from(mtu)
        {
            is_told = true;
            let message =
                format!("a SEND of {length} bytes on {name}: datagrams have {mtu} bytes at most");
            let traces = vec![trace("posted", site)];
            self.find(FindingCode::UdTooLong, name.clone(), message, traces);
        }
        if is_full && self.is_stuck(qp) {
            is_told = true;
            self.stuck(qp, site);
        }
        let payload = if send.op.sends() && !is_told {
            self.payload(init.device, send.sges, memory)
        } else {
            Vec::new()
        };
        for sge in send.sges.iter().filter(|sge| sge.length > 0) {
            self.keys.count(init.device, sge.lkey, 1);
        }
        self.posted += 1;
        let posted = Posted {
            wr_id: send.wr_id,
            op: Some(send.op),
            signaled: send.signaled,
            sges: send.sges.into(),
            remote: send.remote,
            site,
            number: self.posted,
            is_told,
            peer_writes: if payload.iter().any(|part| part.is_shared) {
                memory.peer_writes(init.device)
            } else {
                0
            },
            payload,
        };
        if let Some(queue) = self.qps.get_mut(&qp) {
            queue.signaled += usize::from(send.signaled);
            queue.sends.push_back(posted);
        }
        if send.signaled {
            self.expect(init.send_cq, 1);
            self.weigh(init.send_cq, site);
        }
    }

    /// The send request that was about to be posted was refused.
    pub fn send_refused(&mut self, qp: u64, why: &str, is_full: bool, site: Site) {
        let Some(queue) = self.qps.get_mut(&qp) else {
            return;
        };
        let init = queue.init;
        let Some(posted) = queue.sends.pop_back() else {
            return;
        };
        queue.signaled -= usize::from(posted.signaled);
        if posted.signaled {
            self.expect(init.send_cq, -1);
        }
        self.release(init.device, &posted);
        if posted.is_told {
            return;
        }
        if is_full {
            // Room comes back when completions are polled, if there will be any.
            if self.is_stuck(qp) {
                self.stuck(qp, site);
            }
            return;
        }
        let what = posted.op.map_or("request", Op::name);
        self.refused(Kind::Qp, qp, &format!("a {what}"), why, site);
    }

    /// Something that is no request was to be posted.
    pub fn refused(&mut self, kind: Kind, object: u64, what: &str, why: &str, site: Site) {
        let name = self.objects.name(kind, object);
        let message = format!("{what} on {name} was refused: {why}");
        let traces = vec![trace("posted", site)];
        self.find(FindingCode::PostRefused, name, message, traces);
    }

    /// Whether no completion will ever make room in the send queue.
    fn is_stuck(&self, qp: u64) -> bool {
        let queue = self.qps.get(&qp);
        queue.is_some_and(|qp| qp.signaled == 0 && !qp.sends.is_empty() && !qp.is_stuck)
    }

    fn stuck(&mut self, qp: u64, site: Site) {
        let Some(queue) = self.qps.get_mut(&qp) else {
            return;
        };
        queue.is_stuck = true;
        let count = queue.sends.len();
        let most = queue.init.max_send_wr;
        let name = self.objects.name(Kind::Qp, qp);
        let message = format!(
            "a send on {name} finds its send queue full: {count} requests are outstanding \
             (max_send_wr is {most}), and none of them is signalled"
        );
        let traces = vec![trace("posted", site)];
        self.find(FindingCode::SendQueueStuck, name, message, traces);
    }

    /// A receive request is about to be posted to a queue pair (`Kind::Qp`) or a shared queue.
    pub fn receive_posting(
        &mut self,
        kind: Kind,
        queue: u64,
        wr_id: u64,
        sges: &[Sge],
        site: Site,
    ) {
        let (device, pd, cq) = match kind {
            Kind::Srq => match self.srqs.get(&queue) {
                Some(srq) => (srq.device, srq.pd, srq.cq.filter(|_| !srq.is_ambiguous)),
                None => return,
            },
            _ => match self.qps.get(&queue) {
                Some(qp) => (qp.init.device, qp.init.pd, Some(qp.init.recv_cq)),
                None => return,
            },
        };
        let wrong = self.wrong(device, pd, sges, true);
        let is_told = wrong.is_some();
        if let Some((sge, wrong)) = wrong {
            let name = self.objects.name(kind, queue);
            self.wrong_entry(&name, "receive", sge, wrong, site);
        }
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            self.keys.count(device, sge.lkey, 1);
        }
        self.posted += 1;
        let posted = Posted {
            wr_id,
            op: None,
            signaled: true,
            sges: sges.into(),
            remote: None,
            site,
            number: self.posted,
            is_told,
            payload: Vec::new(),
            peer_writes: 0,
        };
        if kind == Kind::Srq {
            if let Some(srq) = self.srqs.get_mut(&queue) {
                srq.receives.post(posted);
            }
        } else if let Some(qp) = self.qps.get_mut(&queue) {
            qp.receives.post(posted);
            let recv_cq = qp.init.recv_cq;
            self.expect(recv_cq, 1);
        }
        if let Some(cq) = cq {
            self.weigh(cq, site);
        }
    }

    /// The receive request that was about to be posted was refused.
    pub fn receive_refused(
        &mut self,
        kind: Kind,
        queue: u64,
        why: &str,
        is_full: bool,
        site: Site,
    ) {
        let (device, posted) = if kind == Kind::Srq {
            let Some(srq) = self.srqs.get_mut(&queue) else {
                return;
            };
            srq.receives.total -= 1;
            (srq.device, srq.receives.queue.pop_back())
        } else {
            let Some(qp) = self.qps.get_mut(&queue) else {
                return;
            };
            qp.receives.total -= 1;
            let posted = qp.receives.queue.pop_back();
            let init = qp.init;
            self.expect(init.recv_cq, -1);
            (init.device, posted)
        };
        let Some(posted) = posted else { return };
        self.release(device, &posted);
        if !is_full && !posted.is_told {
            self.refused(kind, queue, "a receive", why, site);
        }
    }

    /// The first entry of a list that may not be used, and why.
    fn wrong(&self, device: u64, pd: u64, sges: &[Sge], write: bool) -> Option<(Sge, Wrong)> {
        let judge = |sge: &Sge| Some((*sge, self.keys.judge_local(device, pd, *sge, write)?));
        sges.iter().find_map(judge)
    }

    fn wrong_entry(&mut self, name: &str, what: &str, sge: Sge, wrong: Wrong, posted: Site) {
        let Sge { addr, length, lkey } = sge;
        let message = format!(
            "a {what} posted to {name} names {length} bytes at {addr:#x}, whose lkey {lkey:#x} {}",
            wrong.text
        );
        let mut traces = vec![trace("posted", posted)];
        traces.extend::<Vec<Trace>>(wrong.traces);
        self.find(wrong.code, name.to_owned(), message, traces);
    }

    /// What a request sends, with digests of how it is now.
    fn payload(&self, device: u64, sges: &[Sge], memory: &dyn Memory) -> Vec<Payload> {
        let mut payload = Vec::new();
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let Some(region) = self.keys.local(device, sge.lkey) else {
                continue;
            };
            let (addr, length) = (region.host(sge.addr), u64::from(sge.length));
            let digests = digests(addr, length, memory);
            payload.extend(digests.map(|digests| Payload {
                addr,
                length,
                digests,
                is_shared: region.rights.let_peers_write(),
            }));
        }
        payload
    }

    /// Whether a completion queue can hold what may come.
    fn weigh(&mut self, cq: u64, site: Site) {
        let Some(queue) = self.cqs.get(&cq) else {
            return;
        };
        if queue.is_told {
            return;
        }
        let shared = self
            .srqs
            .values()
            .filter(|srq| srq.cq == Some(cq) && !srq.is_ambiguous);
        let due = queue.due
            + shared
                .map(|srq| srq.receives.queue.len() as u64)
                .sum::<u64>();
        let cqe = queue.cqe;
        if due <= u64::from(cqe) {
            return;
        }
        if let Some(queue) = self.cqs.get_mut(&cq) {
            queue.is_told = true;
        }
        let name = self.objects.name(Kind::Cq, cq);
        let message = format!(
            "{due} requests that complete on {name} are outstanding, and it holds {cqe} \
             completions (cqe of ibv_create_cq)"
        );
        let mut traces = vec![trace("posted", site)];
        traces.extend(
            self.objects
                .site(Kind::Cq, cq)
                .map(|site| trace("CQ made", site)),
        );
        self.find(FindingCode::CqOverrunRisk, name, message, traces);
    }
}

/// Bytes of a part of so many.
pub(super) fn part(length: u64) -> u64 {
    length.div_ceil(PARTS).max(PART)
}

/// Digests of all parts; nothing where bytes cannot be read.
pub(super) fn digests(addr: u64, length: u64, memory: &dyn Memory) -> Option<Vec<u32>> {
    let part = part(length);
    let parts = (0..length).step_by(usize::try_from(part).ok()?);
    parts
        .map(|start| memory.digest(addr + start, part.min(length - start)))
        .collect()
}
