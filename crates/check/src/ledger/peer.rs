//! Requests of peers that got nothing.

use hirail_vocab::FindingCode;

use super::{Ledger, trace};
use crate::finding::Trace;
use crate::keys::Rights;
use crate::objects::Kind;
use crate::queues::{Op, Remote, Transport};

/// Why a request of a peer got nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deny {
    /// No receive was posted.
    NotReady,
    /// The key does not give access.
    Access,
    /// The message is longer than the receive has room.
    TooLong,
    /// Something else.
    Request,
}

/// A request of a peer that got nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The device.
    pub device: u64,
    /// The queue pair that it was for.
    pub qpn: u32,
    /// What it asked for.
    pub op: Op,
    /// Why it got nothing.
    pub why: Deny,
    /// The memory that it names, and how many bytes of it.
    pub target: Option<(Remote, u32)>,
}

impl Ledger {
    /// A request of a peer got nothing.
    pub fn denied(&mut self, peer: &Peer) {
        let Some(&qp) = self.numbers.get(&(peer.device, peer.qpn)) else {
            return;
        };
        match peer.why {
            Deny::NotReady => self.starved(qp, peer),
            Deny::TooLong => self.too_long(qp),
            Deny::Access => self.no_access(qp, peer),
            Deny::Request => self.not_allowed(qp, peer),
        }
    }

    fn starved(&mut self, qp: u64, peer: &Peer) {
        let Some(queue) = self.qps.get(&qp) else {
            return;
        };
        let transport = queue.init.transport;
        let shared = queue
            .init
            .srq
            .and_then(|srq| Some((srq, self.srqs.get(&srq)?)));
        let (kind, object, receives) = match shared {
            Some((address, srq)) => (Kind::Srq, address, &srq.receives),
            None => (Kind::Qp, qp, &queue.receives),
        };
        let lost = if transport == Transport::Reliable {
            "it was answered with RNR NAK"
        } else {
            "it is lost"
        };
        let so_far = match receives.total {
            0 => "none has been posted so far".to_owned(),
            1 => "1 has been posted so far".to_owned(),
            total => format!(
                "{total} have been posted so far, at most {} at a time",
                receives.most
            ),
        };
        let last = receives.last;
        let name = self.objects.name(kind, object);
        let message = format!(
            "a {} arrived at QP {:#x} and found no receive on {name}: {lost}; {so_far}",
            peer.op.name(),
            peer.qpn,
        );
        let mut traces = Vec::new();
        traces.extend(last.map(|site| trace("last receive posted", site)));
        let made = self.objects.site(kind, object);
        traces.extend(made.map(|site| trace("queue made", site)));
        self.find(FindingCode::ReceiveQueueStarved, name, message, traces);
    }

    /// Reliable connections tell it in a completion.
    fn too_long(&mut self, qp: u64) {
        let Some(queue) = self.qps.get(&qp) else {
            return;
        };
        if queue.init.transport == Transport::Reliable {
            return;
        }
        let shared = queue.init.srq.and_then(|srq| self.srqs.get(&srq));
        let receives = shared.map_or(&queue.receives, |srq| &srq.receives);
        let Some(front) = receives.queue.front() else {
            return;
        };
        let (room, posted) = (front.length(), front.site);
        let name = self.objects.name(Kind::Qp, qp);
        let message = format!(
            "a message to {name} did not fit into the {room} bytes of the receive that it was for, \
             and is lost{}",
            if queue.init.transport == Transport::Datagram {
                "; 40 of them are taken by the GRH"
            } else {
                ""
            }
        );
        let traces = vec![trace("receive posted", posted)];
        self.find(FindingCode::ReceiveTooSmall, name, message, traces);
    }

    fn no_access(&mut self, qp: u64, peer: &Peer) {
        let (Some(queue), Some((remote, length))) = (self.qps.get(&qp), peer.target) else {
            return;
        };
        let wrong = self.keys.judge_remote(
            peer.device,
            queue.init.pd,
            remote.rkey,
            (remote.addr, length.into()),
            peer.op.needs(),
        );
        // Through a shared queue for XRC another domain counts.
        let Some(wrong) = wrong else { return };
        let name = self.objects.name(Kind::Qp, qp);
        let message = format!(
            "the peer of {name} asked for a {} of {length} bytes at {:#x}, whose rkey {:#x} {}",
            peer.op.name(),
            remote.addr,
            remote.rkey,
            wrong.text
        );
        let traces = self.with_maker(wrong.traces, qp);
        self.find(wrong.code, name, message, traces);
    }

    fn not_allowed(&mut self, qp: u64, peer: &Peer) {
        let need = peer.op.needs();
        let rights = self.qps.get(&qp).and_then(|qp| qp.rights);
        let Some(rights) = rights.filter(|rights| !rights.contain(need)) else {
            return;
        };
        let name = self.objects.name(Kind::Qp, qp);
        let granted = if rights == Rights(0) {
            "nothing".to_owned()
        } else {
            rights.to_string()
        };
        let message = format!(
            "the peer of {name} asked for a {}, and the qp_access_flags of {name} grant {granted}: \
             they lack {need}",
            peer.op.name()
        );
        let traces = self.with_maker(Vec::new(), qp);
        self.find(FindingCode::MissingAccess, name, message, traces);
    }

    /// The places, and where the queue pair was made.
    fn with_maker(&self, mut traces: Vec<Trace>, qp: u64) -> Vec<Trace> {
        let made = self.objects.site(Kind::Qp, qp);
        traces.extend(made.map(|site| trace("QP made", site)));
        traces
    }
}
