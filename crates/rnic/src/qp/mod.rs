//! The queue pair: a plain struct, one lock, three roles.
//!
//! [`Qp`] is what tables and lines hold; `Inner` is what its lock protects. The roles live in
//! modules of their own (`requester`, `completer`,
//! `responder`); here is what they share: the lifecycle, the end in error, the
//! timers and the places where the QP stands in line.

pub mod attr;
pub mod state;

use std::sync::Arc;

use hirail_vocab::{Counter, QpState, QpType, WcOpcode, WcStatus};
use hirail_wire::{PathMtu, Qpn};

use crate::completion_counter::Attached;
use crate::cq::Cqe;
use crate::device::{CompletionQueue, Device, SharedReceiveQueue, SharedWindow, Timer};
use crate::event::AsyncEvent;
use crate::host::{Host, Lock};
use crate::mr::PdId;
use crate::pacing::{NotificationPoint, Pacing};
use crate::planted::{self, Bug};
use crate::recovery::Recovery;
use crate::recv_queue::RecvRing;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::send_queue::{SendQueue, Wqe};
use crate::srq::XrcdId;
use crate::time::Instant;
use crate::transmit::{Class, Flow, Work};
use attr::QpAttr;

/// `vendor_err` of a transport-retry error when the peer never answered anything at all.
pub const VENDOR_ERR_NEVER_HEARD: u32 = 1;

/// What a QP is created with.
pub struct QpInit<H: Host> {
    /// Transport.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Where send completions go.
    pub send_cq: Arc<CompletionQueue<H>>,
    /// Where receive completions go.
    pub recv_cq: Arc<CompletionQueue<H>>,
    /// Shared receive queue in place of one of its own.
    pub srq: Option<Arc<SharedReceiveQueue<H>>>,
    /// XRC domain of a target QP.
    pub xrcd: Option<XrcdId>,
    /// Send work requests outstanding at most.
    pub max_send_wr: u32,
    /// Receive work requests outstanding at most.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request at most.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request at most.
    pub max_recv_sge: u32,
    /// Inline bytes of a send request at most.
    pub max_inline_data: u32,
    /// Every send request makes a completion, flagged or not.
    pub sq_sig_all: bool,
}

/// A queue pair.
pub struct Qp<H: Host> {
    /// Its number.
    pub qpn: Qpn,
    /// Its transport.
    pub qp_type: QpType,
    /// Its protection domain.
    pub pd: PdId,
    pub(crate) send_cq: Arc<CompletionQueue<H>>,
    pub(crate) recv_cq: Arc<CompletionQueue<H>>,
    pub(crate) srq: Option<Arc<SharedReceiveQueue<H>>>,
    pub(crate) xrcd: Option<XrcdId>,
    pub(crate) sq_sig_all: bool,
    pub(crate) inner: H::Lock<Inner<H>>,
}

/// What the lock of a QP protects.
pub(crate) struct Inner<H: Host> {
    pub(crate) state: QpState,
    /// Changes when the QP is reset or fails: whatever was offered before is void.
    pub(crate) epoch: u32,
    /// Changes when the send position moves other than by `sent`: requests offered before are void.
    pub(crate) generation: u32,
    /// Kinds of [`Work`] for which the QP stands in a line: its class's, the window's waiting line
    /// or the paced ones.
    pub(crate) queued: u8,
    /// Kinds of [`Work`] of which a run was offered and not answered yet: nothing more of that kind
    /// is offered meanwhile, or the same packets would go out twice.
    pub(crate) offered: u8,
    /// A completion queue was full: the QP fails at the end of the call.
    pub(crate) cq_overrun: bool,
    /// Data class: of the connection, or of the next datagram.
    pub(crate) class: Class,
    pub(crate) mtu: PathMtu,
    /// A CNP is owed to the peer.
    pub(crate) cnp_due: bool,
    /// Timer that the host was asked for; it fires once.
    armed: Option<Instant>,
    /// A later one that it was asked for before: there is no need to ask again for every short wait.
    armed_later: Option<Instant>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder<H>,
    pub(crate) sq: SendQueue,
    pub(crate) rq: RecvRing,
    pub(crate) window: Option<SharedWindow<H>>,
    /// Addresses of a connected QP.
    pub(crate) flow: Option<Box<Flow>>,
    pub(crate) attr: Box<QpAttr>,
    pub(crate) pacing: Pacing,
    pub(crate) notification: NotificationPoint,
    pub(crate) recovery: Recovery<H>,
    pub(crate) counters: Attached,
}

/// What a role needs besides the QP's own state.
pub(crate) struct Cx<'a, H: Host> {
    pub(crate) device: &'a Device<H>,
    pub(crate) qp: &'a Arc<Qp<H>>,
    pub(crate) now: Instant,
}

impl<H: Host> Clone for Cx<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Cx<'_, H> {}

impl<H: Host> Cx<'_, H> {
    pub(crate) fn count(&self, counter: Counter) {
        self.device.counters().add(counter, 1);
    }

    /// Raises an asynchronous event of this QP.
    pub(crate) fn raise(&self, event: impl FnOnce(Qpn) -> AsyncEvent) {
        self.device.raise(event(self.qp.qpn));
    }

    /// A completion of this QP, now.
    pub(crate) fn cqe(&self, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Cqe {
        Cqe::new(self.now, wr_id, self.qp.qpn, status, opcode)
    }
}

impl<H: Host> Inner<H> {
    pub(crate) fn new(init: &QpInit<H>, retransmission: Recovery<H>) -> Self {
        Self {
            state: QpState::Reset,
            epoch: 0,
            generation: 0,
            queued: 0,
            offered: 0,
            cq_overrun: false,
            class: Class::data(0),
            mtu: PathMtu::Mtu1024,
            cnp_due: false,
            armed: None,
            armed_later: None,
            requester: Requester::default(),
            responder: Responder::default(),
            sq: SendQueue::new(init.max_send_wr, init.max_send_sge, init.max_inline_data),
            rq: RecvRing::new(
                crate::error::Queue::Receive,
                if init.srq.is_some() {
                    0
                } else {
                    init.max_recv_wr
                },
                init.max_recv_sge,
            ),
            window: None,
            flow: None,
            attr: Box::default(),
            pacing: Pacing::None,
            notification: NotificationPoint::default(),
            recovery: retransmission,
            counters: Attached::default(),
        }
    }

    /// Puts the QP in line for `work`, once.
    pub(crate) fn schedule(&mut self, cx: Cx<'_, H>, work: Work) {
        if work == Work::Requests && cx.qp.qp_type.is_datagram() {
            self.follow_priority(cx);
        }
        if self.queued & work.bit() != 0 {
            return;
        }
        self.queued |= work.bit();
        let class = match work {
            Work::Requests | Work::Responses => self.class,
            Work::Acknowledgement | Work::Recovery => Class::ACK,
            Work::Cnp => Class::CNP,
        };
        cx.device.schedule().push(class, work, Arc::clone(cx.qp));
    }

    /// The next datagram's priority decides where a datagram QP stands in line.
    fn follow_priority(&mut self, cx: Cx<'_, H>) {
        let next = self.requester.cursor.wqe;
        if next == self.sq.tail() {
            return;
        }
        let priority = self.sq.destination(next).map(|to| to.av.priority());
        let class = priority.map_or(self.class, Class::data);
        if class == self.class {
            return;
        }
        let bit = Work::Requests.bit();
        // Who is not in line any more has just been called up, and is sent to the right one.
        if self.queued & bit != 0
            && cx
                .device
                .schedule()
                .withdraw(self.class, Work::Requests, cx.qp)
        {
            self.queued &= !bit;
        }
        self.class = class;
    }

    /// Asks the host for a timer when the QP needs one earlier than the one it has.
    pub(crate) fn refresh_timer(&mut self, cx: Cx<'_, H>) {
        let deadlines = [
            self.requester.deadline(&self.recovery),
            self.responder.conversation.deadline(),
        ];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return;
        };
        if self.armed.is_none_or(|armed| deadline < armed) {
            self.armed_later = self.armed;
            self.armed = Some(deadline);
            cx.device.schedule().arm(Timer::Qp(cx.qp.qpn), deadline);
        }
    }

    /// The timer that the host was asked for has fired (or an earlier one that it replaced).
    pub(crate) fn timer_fired(&mut self, now: Instant) {
        if self.armed.is_some_and(|armed| armed <= now) {
            self.armed = self.armed_later.take().filter(|later| *later > now);
        }
    }

    /// Takes the oldest send WQE off the queue and reports it, if it is to be reported.
    pub(crate) fn complete_send(&mut self, cx: Cx<'_, H>, status: WcStatus) {
        let wqe = self.sq.pop();
        self.counters.count(wqe.op.wc_opcode(), status, wqe.length);
        if status == WcStatus::Success && !wqe.flags.signaled && !cx.qp.sq_sig_all {
            return;
        }
        if planted::has(Bug::CompletionLost) && wqe.wr_id % 16 == 5 {
            return;
        }
        if status == WcStatus::WrFlushErr {
            cx.count(Counter::ReqCqeFlushError);
        } else if status != WcStatus::Success {
            cx.count(Counter::ReqCqeError);
        }
        let cqe = self.send_cqe(cx, &wqe, status);
        if planted::has(Bug::CompletionTwice) && wqe.wr_id % 16 == 5 {
            cx.device.complete(&cx.qp.send_cq, cqe, cx.now);
        }
        self.cq_overrun |= !cx.device.complete(&cx.qp.send_cq, cqe, cx.now);
    }

    fn send_cqe(&self, cx: Cx<'_, H>, wqe: &Wqe, status: WcStatus) -> Cqe {
        let mut cqe = cx.cqe(wqe.wr_id, status, wqe.op.wc_opcode());
        cqe.byte_len = wqe.length;
        // A transport-retry error of a peer that never said a word is usually a blocked port.
        if status == WcStatus::RetryExcErr && !self.requester.heard {
            cqe.vendor_err = VENDOR_ERR_NEVER_HEARD;
        }
        cqe
    }

    /// Reports a receive WQE that was just taken off its queue.
    pub(crate) fn complete_receive(&mut self, cx: Cx<'_, H>, cqe: Cqe) {
        self.counters.count(cqe.opcode, cqe.status, cqe.byte_len);
        if cqe.status == WcStatus::WrFlushErr {
            cx.count(Counter::RespCqeFlushError);
        } else if cqe.status != WcStatus::Success {
            cx.count(Counter::RespCqeError);
        }
        // An XRC SRQ completes on a CQ of its own, whichever QP the message came through.
        let cq = self.responder.xrc_cq().unwrap_or(&cx.qp.recv_cq);
        self.cq_overrun |= !cx.device.complete(cq, cqe, cx.now);
    }

    /// The oldest send WQE failed: report it, then everything else is flushed.
    pub(crate) fn fail_send(&mut self, cx: Cx<'_, H>, status: WcStatus) {
        if !self.sq.is_empty() {
            self.complete_send(cx, status);
        }
        if cx.qp.qp_type.is_reliable() {
            self.enter_error(cx);
        } else {
            self.enter_send_queue_error(cx);
        }
    }

    /// UC and UD: a send WQE failed; the send side stops, the receive side goes on.
    fn enter_send_queue_error(&mut self, cx: Cx<'_, H>) {
        self.state = QpState::Sqe;
        self.epoch = self.epoch.wrapping_add(1);
        self.flush_sends(cx);
    }

    /// Everything that was posted is flushed, in order, once; nothing moves any more.
    pub(crate) fn enter_error(&mut self, cx: Cx<'_, H>) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.stop(cx);
        self.flush_sends(cx);
        if !planted::has(Bug::ReceivesNotFlushed) {
            self.flush_receives(cx);
        }
        if cx.qp.srq.is_some() && !planted::has(Bug::LastWqeNotTold) {
            // It will take no more receive WQEs from the shared queue.
            cx.raise(AsyncEvent::QpLastWqeReached);
        }
    }

    pub(crate) fn flush_sends(&mut self, cx: Cx<'_, H>) {
        while !self.sq.is_empty() {
            self.complete_send(cx, WcStatus::WrFlushErr);
        }
        let tail = self.sq.tail();
        self.requester.skip_to(tail, self.sq.next_psn);
    }

    pub(crate) fn flush_receives(&mut self, cx: Cx<'_, H>) {
        if let Some(wr_id) = self.responder.abandon_receive(&mut self.rq) {
            self.complete_receive(cx, Self::flushed_receive(cx, wr_id));
        }
        while let Some(wr_id) = self.rq.front().map(|wqe| wqe.wr_id) {
            self.rq.pop();
            self.complete_receive(cx, Self::flushed_receive(cx, wr_id));
        }
    }

    fn flushed_receive(cx: Cx<'_, H>, wr_id: u64) -> Cqe {
        cx.cqe(wr_id, WcStatus::WrFlushErr, WcOpcode::Recv)
    }

    /// Ends everything in flight: void runs, no timers, no window held.
    pub(crate) fn stop(&mut self, cx: Cx<'_, H>) {
        self.epoch = self.epoch.wrapping_add(1);
        (self.armed, self.armed_later) = (None, None);
        self.responder.conversation.release();
        self.release_in_flight(cx);
        if let Some(window) = self.window.clone() {
            self.stop_waiting(cx, &window);
        }
        self.requester.stop_timers();
        self.recovery.stop();
    }

    /// Gives the window back whatever this QP had in flight.
    pub(crate) fn release_in_flight(&mut self, cx: Cx<'_, H>) {
        crate::requester::unreserve(self);
        let was_due = crate::requester::expect_nothing(self).is_some();
        let bytes = core::mem::take(&mut self.requester.in_flight);
        if (bytes > 0 || was_due)
            && !planted::has(Bug::WindowLeak)
            && let Some(window) = &self.window
        {
            let window = Arc::clone(window);
            window.lock().release(bytes);
            cx.device.wake_waiting(&window);
        }
    }

    /// Stops using a window.
    pub(crate) fn leave_window(&mut self, cx: Cx<'_, H>, window: &SharedWindow<H>) {
        self.stop_waiting(cx, window);
        cx.device.leave_window(window);
    }

    /// Stops waiting for room in a window; who waits behind may get it.
    fn stop_waiting(&mut self, cx: Cx<'_, H>, window: &SharedWindow<H>) {
        if window.lock().forget(cx.qp) {
            self.queued &= !Work::Requests.bit();
        }
        cx.device.wake_waiting(window);
    }

    /// To RESET: both queues are emptied without completions, all numbering restarts.
    pub(crate) fn reset(&mut self, cx: Cx<'_, H>) {
        self.stop(cx);
        self.state = QpState::Reset;
        self.sq.reset();
        self.rq.clear();
        self.responder.abandon_receive(&mut self.rq);
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.cnp_due = false;
        self.pacing = Pacing::None;
        if let Some(window) = self.window.take() {
            self.leave_window(cx, &window);
        }
        self.flow = None;
        *self.attr = QpAttr::default();
    }
}
