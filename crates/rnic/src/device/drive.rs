//! The transmit side as the driver sees it: what to send next, what was sent, timers, events.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use hirail_vocab::{Counter, WcStatus};
use hirail_wire::{Bth, Ext, Headers, Opcode, Operation, Psn, Service};

use super::receive::finish;
use super::{Device, Event, Timer};
use crate::completer;
use crate::host::{Host, Lock, ReadMostly};
use crate::pacing::Dcqcn;
use crate::qp::{Cx, Inner, Qp};
use crate::recovery;
use crate::requester::{self, Offer};
use crate::responder::reply;
use crate::send_queue::Cursor;
use crate::time::Instant;
use crate::transmit::{Budget, OpenClasses, Run, Work};

impl<H: Host> Device<H> {
    /// Fills `run` with the next packets to be sent, of one QP, at most what `budget` allows and
    /// only of `open` classes. False when there is nothing now. A run that was filled must be
    /// answered by [`sent`](Self::sent); other QPs' runs may be polled before that.
    pub fn poll_transmit(
        &self,
        now: Instant,
        open: OpenClasses,
        budget: Budget,
        run: &mut Run<H>,
    ) -> bool {
        self.schedule().release_paced(now);
        loop {
            let next = self.schedule().pop(open);
            let Some((class, work, qp)) = next else {
                return false;
            };
            run.clear();
            let cx = Cx {
                device: self,
                qp: &qp,
                now,
            };
            let mut inner = qp.inner.lock();
            let q = &mut *inner;
            q.queued &= !work.bit();
            if q.offered & work.bit() != 0 {
                // `sent` puts it in line again.
                if work == Work::Requests {
                    self.pass_turn(q, &qp);
                }
                continue;
            }
            if matches!(work, Work::Requests | Work::Responses) && q.class != class {
                // Its priority changed just when it was called up.
                q.schedule(cx, work);
                continue;
            }
            if let Some(flow) = &q.flow {
                run.set_flow(**flow);
            }
            match work {
                Work::Requests => match requester::offer(cx, q, budget, run) {
                    Offer::Filled => {}
                    Offer::Nothing => {
                        finish(cx, q);
                        self.pass_turn(q, &qp);
                        continue;
                    }
                    Offer::WindowFull { need } => {
                        self.wait_for_window(q, &qp, need);
                        continue;
                    }
                    Offer::Paced(at) => {
                        q.queued |= work.bit();
                        self.schedule().pace(at, class, Arc::clone(&qp));
                        self.pass_turn(q, &qp);
                        continue;
                    }
                },
                Work::Responses => reply::offer(cx, q, budget, run),
                Work::Acknowledgement => {
                    if reply::has_acknowledgement(q) {
                        reply::offer_acknowledgement(cx, q, run);
                    }
                }
                Work::Recovery => offer_recovery(q, run),
                Work::Cnp => {
                    if core::mem::take(&mut q.cnp_due) {
                        offer_cnp(q, &self.config().dcqcn, run);
                    }
                }
            }
            finish(cx, q);
            if run.is_empty() {
                continue;
            }
            q.offered |= work.bit();
            run.epoch = q.epoch;
            run.generation = q.generation;
            run.work = work;
            run.class = class;
            drop(inner);
            run.qp = Some(qp);
            return true;
        }
    }

    /// A QP with something to send found no room in the window, and waits for it.
    fn wait_for_window(&self, q: &mut Inner<H>, qp: &Arc<Qp<H>>, need: u64) {
        let Some(window) = &q.window else { return };
        q.queued |= Work::Requests.bit();
        // Whoever must ask is in the midst of a message.
        let may_pass = q.requester.must_ask() && need <= requester::packet_cost(q.mtu);
        window.lock().wait(qp, need, may_pass);
        // There may be room for who has waited longer.
        self.wake_waiting(window);
    }

    /// A QP that may have been woken has no use for the window now.
    fn pass_turn(&self, q: &Inner<H>, qp: &Arc<Qp<H>>) {
        if let Some(window) = &q.window {
            window.lock().pass(qp);
            self.wake_waiting(window);
        }
    }

    /// The link took the first `taken` packets of `run`, and the memory under the next one is gone:
    /// its request fails as one with a bad key would, its READ is refused.
    pub fn faulted(&self, now: Instant, run: &mut Run<H>, taken: usize) {
        let at = run.packets().get(taken).map(|packet| packet.at);
        let (qp, epoch, work) = (run.qp.clone(), run.epoch, run.work);
        self.sent(now, run, taken);
        let (Some(qp), Some(at)) = (qp, at) else {
            return;
        };
        let cx = Cx {
            device: self,
            qp: &qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        if q.epoch != epoch {
            return;
        }
        match work {
            Work::Requests => requester::fail_at(cx, q, at.wqe, WcStatus::LocProtErr),
            Work::Responses => reply::refuse(cx, q),
            Work::Acknowledgement | Work::Cnp | Work::Recovery => {}
        }
        finish(cx, q);
    }

    /// The link took the first `taken` packets of `run`; the others are offered again.
    pub fn sent(&self, now: Instant, run: &mut Run<H>, taken: usize) {
        let Some(qp) = run.qp.take() else { return };
        debug_assert!(
            taken <= run.len(),
            "a link takes no more than it is offered"
        );
        let cx = Cx {
            device: self,
            qp: &qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        q.offered &= !run.work.bit();
        if run.work == Work::Requests {
            requester::unreserve(q);
        }
        self.counters.add(Counter::PortXmitPackets, taken as u64);
        let octets: usize = run.packets()[..taken]
            .iter()
            .map(|packet| packet.wire_len() + 4)
            .sum();
        self.counters
            .add(Counter::PortXmitData, octets.div_ceil(4) as u64);
        let kind = if run.flow().destination.is_multicast() {
            Counter::MulticastXmitPackets
        } else {
            Counter::UnicastXmitPackets
        };
        self.counters.add(kind, taken as u64);
        let is_valid = run.epoch == q.epoch;
        match run.work {
            Work::Requests => {
                if is_valid && run.generation == q.generation {
                    requester::commit(cx, q, run, taken);
                }
                if requester::has_work(q) {
                    q.schedule(cx, Work::Requests);
                }
                if let Some(window) = &q.window {
                    self.wake_waiting(window);
                }
            }
            Work::Responses => {
                if is_valid {
                    reply::commit(q, taken);
                }
                if reply::has_work(q) {
                    q.schedule(cx, Work::Responses);
                } else if reply::has_acknowledgement(q) {
                    q.schedule(cx, Work::Acknowledgement);
                }
            }
            Work::Acknowledgement => {
                if is_valid && taken > 0 {
                    reply::commit_acknowledgement(cx, q);
                }
                if reply::has_acknowledgement(q) {
                    q.schedule(cx, Work::Acknowledgement);
                }
            }
            Work::Recovery => {
                if is_valid && taken > 0 {
                    q.recovery.sent();
                }
                if q.recovery.has_work() {
                    q.schedule(cx, Work::Recovery);
                }
            }
            Work::Cnp => {
                if taken == 0 {
                    q.cnp_due = true;
                    q.schedule(cx, Work::Cnp);
                } else {
                    cx.count(Counter::NpCnpSent);
                }
            }
        }
        finish(cx, q);
        drop(inner);
        run.clear();
    }

    /// A timer that the engine asked for has come due.
    pub fn handle_timeout(&self, now: Instant, timer: Timer) {
        match timer {
            Timer::Qp(qpn) => {
                let Some(qp) = self.qp(qpn) else { return };
                let cx = Cx {
                    device: self,
                    qp: &qp,
                    now,
                };
                let mut inner = qp.inner.lock();
                inner.timer_fired(now);
                completer::handle_timeout(cx, &mut inner);
                finish(cx, &mut inner);
            }
            Timer::Cq(id) => {
                let cq = self.cqs.read().get(&id).cloned();
                let Some(cq) = cq else { return };
                let mut queue = cq.lock();
                let is_due = queue.handle_timeout(now);
                let again = queue.moderation_deadline();
                drop(queue);
                if is_due {
                    self.raise_event(Event::Completion(cq));
                } else if let Some(again) = again {
                    self.schedule().arm(timer, again);
                }
            }
        }
    }

    /// A timer that the host shall arm: call [`handle_timeout`](Self::handle_timeout) at that time
    /// or later. Timers are not taken back; one that is not needed any more does nothing.
    pub fn poll_timer(&self) -> Option<(Timer, Instant)> {
        self.schedule().pop_timer()
    }

    /// When a paced QP may send next: call [`poll_transmit`](Self::poll_transmit) then.
    pub fn next_paced(&self) -> Option<Instant> {
        self.schedule().next_paced()
    }

    /// Whether a QP is ready to send.
    pub fn has_ready(&self) -> bool {
        self.schedule().has_ready()
    }

    /// Whether there are events to be [polled](Self::poll_event). It takes no lock.
    pub fn has_event(&self) -> bool {
        self.has_events.load(Ordering::Acquire)
    }

    /// What happened that the host must tell its user.
    pub fn poll_event(&self) -> Option<Event<H>> {
        self.pop_event()
    }
}

/// A hello or a selective acknowledgement to the peer.
fn offer_recovery<H: Host>(q: &Inner<H>, run: &mut Run<H>) {
    let (operation, ext, psn) = match q.recovery.due() {
        (Some(hello), _) => (Operation::Hello, Ext::Hello(hello), Psn::new(0)),
        (None, true) => (
            Operation::Sack,
            Ext::Sack(recovery::sack(q)),
            q.responder.epsn,
        ),
        (None, false) => return,
    };
    let opcode = Opcode::new(Service::Manufacturer, operation).expect("both have opcodes");
    let bth = Bth::new(opcode, q.attr.dest_qpn, psn);
    let headers = Headers::new(bth, None, ext).expect("operation and extension belong together");
    let mark = run.segment_mark();
    run.push(headers, 0, mark, Cursor::default(), Cursor::default());
}

/// A congestion notification packet to the peer.
fn offer_cnp<H: Host>(q: &Inner<H>, params: &Dcqcn, run: &mut Run<H>) {
    let Some(flow) = &q.flow else { return };
    let mut flow = **flow;
    flow.traffic_class = params.cnp_dscp() << 2;
    flow.priority = params.cnp_priority();
    run.set_flow(flow);
    let opcode = Opcode::new(Service::Cnp, Operation::Cnp).expect("the CNP has an opcode");
    let mut bth = Bth::new(opcode, q.attr.dest_qpn, Psn::new(0));
    bth.becn = true;
    bth.migrated = false;
    let headers = Headers::new(bth, None, Ext::Cnp).expect("a CNP carries its reserved bytes");
    let mark = run.segment_mark();
    run.push(headers, 0, mark, Cursor::default(), Cursor::default());
}
