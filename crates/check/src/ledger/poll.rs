//! Completions are polled: what they cover is the program's again.

use std::collections::VecDeque;

use hirail_vocab::{FindingCode, WcStatus};

use super::post::{digests, part};
use super::{LANDED, Landed, Ledger, Memory, trace};
use crate::objects::Kind;
use crate::queues::{Op, Payload, Posted};

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number of the request.
    pub wr_id: u64,
    /// The queue pair that it was done on.
    pub qpn: u32,
    /// How it ended.
    pub status: WcStatus,
    /// It is of a receive.
    pub is_receive: bool,
}

impl Ledger {
    /// Completions were polled, and the program is about to see them. `here` makes the place where
    /// it polled, should that be needed.
    pub fn polled(
        &mut self,
        device: u64,
        cq: u64,
        completions: &[Completion],
        memory: &dyn Memory,
        here: &dyn Fn() -> Vec<usize>,
    ) {
        for completion in completions {
            let qp = self.numbers.get(&(device, completion.qpn)).copied();
            if completion.is_receive {
                self.received(device, cq, qp, completion);
            } else if let Some(qp) = qp {
                self.sent(qp, completion, memory, here);
            }
        }
    }

    fn sent(
        &mut self,
        qp: u64,
        completion: &Completion,
        memory: &dyn Memory,
        here: &dyn Fn() -> Vec<usize>,
    ) {
        let is_good = completion.status == WcStatus::Success;
        let Some(queue) = self.qps.get_mut(&qp) else {
            return;
        };
        let is_meant =
            |posted: &Posted| posted.wr_id == completion.wr_id && (posted.signaled || !is_good);
        let Some(place) = queue.sends.iter().position(is_meant) else {
            return;
        };
        let init = queue.init;
        // Who completes vouches for all before it.
        let done: VecDeque<_> = queue.sends.drain(..=place).collect();
        let signaled = done.iter().filter(|posted| posted.signaled).count();
        queue.signaled -= signaled;
        queue.is_stuck = false;
        self.expect(init.send_cq, -(signaled as i64));
        let last = done.len() - 1;
        for (place, posted) in done.iter().enumerate() {
            if is_good || place < last {
                self.unchanged(init.device, qp, posted, memory, here);
                if posted.op.is_some_and(Op::receives) {
                    self.landed(init.device, posted);
                }
            } else if !posted.is_told {
                self.failed(qp, posted, completion.status);
            }
        }
        for posted in &done {
            self.release(init.device, posted);
        }
    }

    /// What was sent must be as it was when it was posted.
    fn unchanged(
        &mut self,
        device: u64,
        qp: u64,
        posted: &Posted,
        memory: &dyn Memory,
        here: &dyn Fn() -> Vec<usize>,
    ) {
        for payload in &posted.payload {
            let now = digests(payload.addr, payload.length, memory);
            let Some(now) = now.filter(|now| *now != payload.digests) else {
                continue;
            };
            let by_peer = payload.is_shared && memory.peer_writes(device) != posted.peer_writes;
            if by_peer || self.was_landed_in(payload, posted.number) {
                continue;
            }
            let size = part(payload.length);
            let differs = |place: &usize| now.get(*place) != payload.digests.get(*place);
            let first = (0..now.len()).find(differs).unwrap_or(0) as u64 * size;
            let last = (0..now.len()).rfind(differs).unwrap_or(0) as u64 * size;
            let end = (last + size).min(payload.length);
            let name = self.objects.name(Kind::Qp, qp);
            let message = format!(
                "the payload of a {} of {} bytes on {name} was changed before it completed: bytes \
                 {first} to {} of {:#x} are not those that were posted",
                posted.op.map_or("request", Op::name),
                posted.length(),
                end - 1,
                payload.addr,
            );
            let polled = self.sites.intern(&here());
            let traces = vec![
                trace("posted", posted.site),
                trace("completion polled", polled),
            ];
            self.find(FindingCode::PayloadChanged, name, message, traces);
            return;
        }
    }

    /// Whether the device itself may have written there since request `number` was posted.
    fn was_landed_in(&self, payload: &Payload, number: u64) -> bool {
        let overlaps = |addr: u64, length: u64| {
            addr < payload.addr + payload.length && payload.addr < addr + length
        };
        let landed = self.landed.iter().rev();
        if landed
            .take_while(|landed| landed.until >= number)
            .any(|landed| overlaps(landed.addr, landed.length))
        {
            return true;
        }
        let mut queues = Vec::new();
        for qp in self.qps.values() {
            let reads = qp.sends.iter().filter(|it| it.op.is_some_and(Op::receives));
            queues.extend(reads.map(|posted| (qp.init.device, posted)));
            let receives = &qp.receives.queue;
            queues.extend(receives.iter().map(|posted| (qp.init.device, posted)));
        }
        for srq in self.srqs.values() {
            let receives = &srq.receives.queue;
            queues.extend(receives.iter().map(|posted| (srq.device, posted)));
        }
        queues.iter().any(|(device, posted)| {
            posted.sges.iter().any(|sge| {
                let region = self.keys.local(*device, sge.lkey);
                region.is_some_and(|region| overlaps(region.host(sge.addr), sge.length.into()))
            })
        })
    }

    /// The device has written what was asked of it.
    fn landed(&mut self, device: u64, posted: &Posted) {
        for sge in &posted.sges {
            let Some(region) = self.keys.local(device, sge.lkey) else {
                continue;
            };
            let landed = Landed {
                until: self.posted,
                addr: region.host(sge.addr),
                length: sge.length.into(),
            };
            if self.landed.len() == LANDED {
                self.landed.pop_front();
            }
            self.landed.push_back(landed);
        }
    }

    /// A send ended with an error that was not foreseen when it was posted.
    fn failed(&mut self, qp: u64, posted: &Posted, status: WcStatus) {
        let name = self.objects.name(Kind::Qp, qp);
        let op = posted.op.unwrap_or(Op::Local);
        match status {
            WcStatus::RemAccessErr => {
                let Some(remote) = posted.remote else { return };
                let length = if op == Op::Atomic { 8 } else { posted.length() };
                let message = format!(
                    "the peer of {name} refused a {} of {length} bytes at its address {:#x} under \
                     its rkey {:#x} (IBV_WC_REM_ACCESS_ERR)",
                    op.name(),
                    remote.addr,
                    remote.rkey
                );
                let traces = vec![trace("posted", posted.site)];
                self.find(FindingCode::RemoteAccessRefused, name, message, traces);
            }
            WcStatus::LocProtErr => self.unprotected(Kind::Qp, qp, posted, op.receives()),
            _ => {}
        }
    }

    /// A request failed for what it names here: keys were right when it was posted.
    fn unprotected(&mut self, kind: Kind, queue: u64, posted: &Posted, write: bool) {
        let known = match kind {
            Kind::Srq => self.srqs.get(&queue).map(|srq| (srq.device, srq.pd)),
            _ => self.qps.get(&queue).map(|qp| (qp.init.device, qp.init.pd)),
        };
        let Some((device, pd)) = known else { return };
        let wrong = posted.sges.iter().find_map(|sge| {
            let wrong = self.keys.judge_local(device, pd, *sge, write)?;
            Some((*sge, wrong))
        });
        let Some((sge, wrong)) = wrong else { return };
        let name = self.objects.name(kind, queue);
        let what = posted.op.map_or("receive", Op::name);
        let message = format!(
            "a {what} on {name} ended with IBV_WC_LOC_PROT_ERR: the lkey {:#x} of its {} bytes at \
             {:#x} {}",
            sge.lkey, sge.length, sge.addr, wrong.text
        );
        let mut traces = vec![trace("posted", posted.site)];
        traces.extend(wrong.traces);
        self.find(wrong.code, name, message, traces);
    }

    fn received(&mut self, device: u64, cq: u64, qp: Option<u64>, completion: &Completion) {
        let Some((kind, queue, posted)) = self.take_receive(cq, qp, completion.wr_id) else {
            return;
        };
        match completion.status {
            WcStatus::Success => self.landed(device, &posted),
            WcStatus::LocLenErr => {
                let name = self.objects.name(kind, queue);
                let message = format!(
                    "a message to QP {:#x} was longer than the {} bytes of the receive that it \
                     was for (IBV_WC_LOC_LEN_ERR)",
                    completion.qpn,
                    posted.length()
                );
                let traces = vec![trace("receive posted", posted.site)];
                self.find(FindingCode::ReceiveTooSmall, name, message, traces);
            }
            WcStatus::LocProtErr if !posted.is_told => {
                self.unprotected(kind, queue, &posted, true);
            }
            _ => {}
        }
        self.release(device, &posted);
    }

    /// The receive request that completed: of the queue pair, of its shared queue, or of one for
    /// XRC that completes here.
    fn take_receive(
        &mut self,
        cq: u64,
        qp: Option<u64>,
        wr_id: u64,
    ) -> Option<(Kind, u64, Posted)> {
        if let Some(address) = qp
            && let Some(qp) = self.qps.get_mut(&address)
        {
            if let Some(posted) = qp.receives.take(wr_id) {
                self.expect(cq, -1);
                return Some((Kind::Qp, address, posted));
            }
            if let Some(shared) = qp.init.srq {
                let posted = self.srqs.get_mut(&shared)?.receives.take(wr_id)?;
                return Some((Kind::Srq, shared, posted));
            }
        }
        let mut shared = self.srqs.iter_mut().filter(|(_, srq)| srq.cq == Some(cq));
        shared.find_map(|(&address, srq)| {
            let posted = srq.receives.take(wr_id)?;
            Some((Kind::Srq, address, posted))
        })
    }
}
