//! The verbs: creating, changing and destroying objects, posting work.

use std::sync::Arc;

use hirail_vocab::{QpState, QpType, WcOpcode, WcStatus};
use hirail_wire::{Gid, Lkey, Qpn};

use super::receive::finish;
use super::{
    CompletionQueue, Device, SharedReceiveQueue, SharedWindow, Timer, XrcHalf, qpn_of, slot_of,
};
use crate::completion_counter::{CompletionCounter, CountedOps};
use crate::cq::{Arm, Cq, CqId};
use crate::error::{Object, VerbError};
use crate::host::{Host, Lock, ReadMostly};
use crate::mcast::GroupChange;
use crate::mr::{Access, LocalProtection, Mr, MwType, PdId, Reregister, Reregistered, Slice};
use crate::pacing::{Pacing, ReactionPoint};
use crate::qp::attr::{AttrLimits, AttrMask, QpAttr};
use crate::qp::state::{Capabilities, check_modify};
use crate::qp::{Cx, Inner, Qp, QpInit};
use crate::recovery::Recovery;
use crate::responder::conversation;
use crate::send_queue::SendWr;
use crate::srq::{Srq, SrqId, XrcSrq, XrcdId};
use crate::time::{Instant, Span};
use crate::transmit::{Class, Work};
use crate::wr::Sge;
use hirail_wire::Rkey;

/// What a shared receive queue is created with.
pub struct SrqInit<H: Host> {
    /// Protection domain of its work requests' keys.
    pub pd: PdId,
    /// Work requests at most.
    pub max_wr: u32,
    /// Scatter entries of one at most.
    pub max_sge: u32,
    /// XRC: domain and completion queue.
    pub xrc: Option<XrcHalf<H>>,
}

/// ECN-capable transport, the codepoint that RoCE senders use.
const ECT0: u8 = 2;

fn within(what: &'static str, got: u32, max: u32) -> Result<(), VerbError> {
    if got > max {
        return Err(VerbError::TooLarge {
            what,
            max: max.into(),
            got: got.into(),
        });
    }
    Ok(())
}

impl<H: Host> Device<H> {
    /// A new protection domain.
    pub fn alloc_pd(&self) -> Result<PdId, VerbError> {
        let mut dependents = self.dependents.lock();
        let limit = self.config().limits.max_pd;
        if dependents.pds.len() >= limit as usize {
            return Err(VerbError::Exhausted {
                object: Object::Pd,
                limit,
            });
        }
        dependents.next += 1;
        let pd = PdId(dependents.next);
        dependents.pds.insert(pd, 0);
        Ok(pd)
    }

    /// Gives up a protection domain that nothing lives in any more.
    pub fn dealloc_pd(&self, pd: PdId) -> Result<(), VerbError> {
        let keys = self.keys().read().users_of(pd);
        let mut dependents = self.dependents.lock();
        let users = dependents.pds.get(&pd).ok_or(VerbError::NotFound {
            object: Object::Pd,
            id: pd.0,
        })?;
        let users = users + keys;
        if users > 0 {
            return Err(VerbError::Busy {
                object: Object::Pd,
                id: pd.0,
                users,
            });
        }
        dependents.pds.remove(&pd);
        Ok(())
    }

    fn use_pd(&self, pd: PdId) -> Result<(), VerbError> {
        match self.dependents.lock().pds.get_mut(&pd) {
            Some(users) => {
                *users += 1;
                Ok(())
            }
            None => Err(VerbError::NotFound {
                object: Object::Pd,
                id: pd.0,
            }),
        }
    }

    fn use_cq(&self, cq: &CompletionQueue<H>) {
        *self.dependents.lock().cqs.entry(cq.id).or_default() += 1;
    }

    fn unuse_cq(&self, cq: &CompletionQueue<H>) {
        if let Some(users) = self.dependents.lock().cqs.get_mut(&cq.id) {
            *users -= 1;
        }
    }

    fn unuse_pd(&self, pd: PdId) {
        if let Some(users) = self.dependents.lock().pds.get_mut(&pd) {
            *users -= 1;
        }
    }

    /// A new XRC domain.
    pub fn alloc_xrcd(&self) -> XrcdId {
        let mut dependents = self.dependents.lock();
        dependents.next += 1;
        let xrcd = XrcdId(dependents.next);
        dependents.xrcds.insert(xrcd, 0);
        xrcd
    }

    /// Gives up an XRC domain that no QP and no SRQ belongs to.
    pub fn dealloc_xrcd(&self, xrcd: XrcdId) -> Result<(), VerbError> {
        let mut dependents = self.dependents.lock();
        match dependents.xrcds.get(&xrcd) {
            None => Err(VerbError::NotFound {
                object: Object::Xrcd,
                id: xrcd.0,
            }),
            Some(0) => {
                dependents.xrcds.remove(&xrcd);
                Ok(())
            }
            Some(&users) => Err(VerbError::Busy {
                object: Object::Xrcd,
                id: xrcd.0,
                users,
            }),
        }
    }

    fn use_xrcd(&self, xrcd: XrcdId) -> Result<(), VerbError> {
        match self.dependents.lock().xrcds.get_mut(&xrcd) {
            Some(users) => {
                *users += 1;
                Ok(())
            }
            None => Err(VerbError::NotFound {
                object: Object::Xrcd,
                id: xrcd.0,
            }),
        }
    }

    fn unuse_xrcd(&self, xrcd: XrcdId) {
        if let Some(users) = self.dependents.lock().xrcds.get_mut(&xrcd) {
            *users -= 1;
        }
    }

    /// Registers memory. The returned region carries the key, equal as L_Key and R_Key.
    pub fn reg_mr(
        &self,
        pd: PdId,
        iova: u64,
        length: u64,
        access: Access,
        region: H::Region,
    ) -> Result<Arc<Mr<H>>, VerbError> {
        if !self.dependents.lock().pds.contains_key(&pd) {
            return Err(VerbError::NotFound {
                object: Object::Pd,
                id: pd.0,
            });
        }
        if length > self.config().limits.max_mr_size {
            let max = self.config().limits.max_mr_size;
            return Err(VerbError::TooLarge {
                what: "length",
                max,
                got: length,
            });
        }
        self.keys()
            .write()
            .register(pd, iova, length, access, region)
    }

    /// Changes a registration.
    pub fn rereg_mr(
        &self,
        lkey: Lkey,
        change: Reregister<H>,
    ) -> Result<Reregistered<H>, VerbError> {
        self.keys().write().reregister(lkey, change)
    }

    /// Takes a registration back: its key is dead at once. The region may still be in use by the
    /// packet that is being worked on; wait until the returned pointer is the only one.
    pub fn dereg_mr(&self, lkey: Lkey) -> Result<Arc<Mr<H>>, VerbError> {
        self.keys().write().deregister(lkey)
    }

    /// Takes a registration back even where memory windows are bound to it: they are unbound. For
    /// owners whose memory goes away whatever others have bound.
    pub fn revoke_mr(&self, lkey: Lkey) -> Result<Arc<Mr<H>>, VerbError> {
        self.keys().write().revoke(lkey)
    }

    /// The piece of memory that a scatter/gather entry names, if it may be used so.
    pub fn local_slice(
        &self,
        pd: PdId,
        sge: Sge,
        need: Access,
    ) -> Result<Slice<H>, LocalProtection> {
        self.keys()
            .read()
            .check_local(sge.lkey, pd, sge.addr, sge.length, need)
    }

    /// A new memory window, bound to nothing.
    pub fn alloc_mw(&self, pd: PdId, kind: MwType) -> Result<Rkey, VerbError> {
        self.keys().write().alloc_mw(pd, kind)
    }

    /// Gives up a memory window, bound or not.
    pub fn dealloc_mw(&self, rkey: Rkey) -> Result<(), VerbError> {
        self.keys().write().dealloc_mw(rkey)
    }

    /// A new completion queue of at least one entry.
    pub fn create_cq(&self, cqe: u32) -> Result<Arc<CompletionQueue<H>>, VerbError> {
        let limits = &self.config().limits;
        within("cqe", cqe, limits.max_cqe)?;
        if cqe == 0 {
            return Err(VerbError::TooSmall {
                what: "cqe",
                min: 1,
                got: 0,
            });
        }
        let mut cqs = self.cqs.write();
        if cqs.len() >= limits.max_cq as usize {
            return Err(VerbError::Exhausted {
                object: Object::Cq,
                limit: limits.max_cq,
            });
        }
        let mut dependents = self.dependents.lock();
        dependents.next += 1;
        let id = CqId(dependents.next);
        dependents.cqs.insert(id, 0);
        let cq = Arc::new(CompletionQueue {
            id,
            queue: Lock::new(Cq::new(cqe)),
        });
        cqs.insert(id, Arc::clone(&cq));
        Ok(cq)
    }

    /// Destroys a completion queue that no QP uses.
    pub fn destroy_cq(&self, cq: &CompletionQueue<H>) -> Result<(), VerbError> {
        let mut cqs = self.cqs.write();
        let mut dependents = self.dependents.lock();
        match dependents.cqs.get(&cq.id) {
            None => {
                return Err(VerbError::NotFound {
                    object: Object::Cq,
                    id: cq.id.0,
                });
            }
            Some(0) => {}
            Some(&users) => {
                return Err(VerbError::Busy {
                    object: Object::Cq,
                    id: cq.id.0,
                    users,
                });
            }
        }
        dependents.cqs.remove(&cq.id);
        cqs.remove(&cq.id);
        Ok(())
    }

    /// Asks for one event at the next completion; true: there are completions already.
    pub fn req_notify_cq(&self, cq: &CompletionQueue<H>, arm: Arm) -> bool {
        cq.lock().arm(arm)
    }

    /// Changes the moderation of a completion queue: an event after `count` completions or
    /// `period`, whichever is first.
    pub fn modify_cq(&self, now: Instant, cq: &Arc<CompletionQueue<H>>, count: u16, period: Span) {
        let mut queue = cq.lock();
        let is_due = queue.moderate(count, period, now);
        let deadline = queue.moderation_deadline();
        drop(queue);
        if is_due {
            self.raise_event(super::Event::Completion(Arc::clone(cq)));
        }
        if let Some(deadline) = deadline {
            self.schedule().arm(Timer::Cq(cq.id), deadline);
        }
    }

    /// A new shared receive queue.
    pub fn create_srq(&self, init: SrqInit<H>) -> Result<Arc<SharedReceiveQueue<H>>, VerbError> {
        let limits = &self.config().limits;
        within("max_wr", init.max_wr, limits.max_srq_wr)?;
        within("max_sge", init.max_sge, limits.max_srq_sge)?;
        if init.max_wr == 0 {
            return Err(VerbError::TooSmall {
                what: "max_wr",
                min: 1,
                got: 0,
            });
        }
        let mut srqs = self.srqs.write();
        if srqs.len() >= limits.max_srq as usize {
            return Err(VerbError::Exhausted {
                object: Object::Srq,
                limit: limits.max_srq,
            });
        }
        self.use_pd(init.pd)?;
        if let Some(xrc) = &init.xrc {
            if let Err(error) = self.use_xrcd(xrc.domain) {
                self.unuse_pd(init.pd);
                return Err(error);
            }
            self.use_cq(&xrc.cq);
        }
        let id = {
            let mut dependents = self.dependents.lock();
            dependents.next += 1;
            let id = SrqId(dependents.next);
            dependents.srqs.insert(id, 0);
            id
        };
        let SrqInit {
            pd,
            max_wr,
            max_sge,
            xrc,
        } = init;
        let half = xrc.as_ref().map(|xrc| XrcSrq {
            domain: xrc.domain,
            cq: xrc.cq.id,
        });
        let queue = Lock::new(Srq::new(pd, max_wr, max_sge, half));
        let srq = Arc::new(SharedReceiveQueue { id, pd, xrc, queue });
        srqs.insert(id, Arc::clone(&srq));
        Ok(srq)
    }

    /// Destroys a shared receive queue that no QP uses.
    pub fn destroy_srq(&self, srq: &SharedReceiveQueue<H>) -> Result<(), VerbError> {
        let mut srqs = self.srqs.write();
        {
            let mut dependents = self.dependents.lock();
            match dependents.srqs.get(&srq.id) {
                None => {
                    return Err(VerbError::NotFound {
                        object: Object::Srq,
                        id: srq.id.0,
                    });
                }
                Some(0) => {}
                Some(&users) => {
                    return Err(VerbError::Busy {
                        object: Object::Srq,
                        id: srq.id.0,
                        users,
                    });
                }
            }
            dependents.srqs.remove(&srq.id);
        }
        srqs.remove(&srq.id);
        drop(srqs);
        self.unuse_pd(srq.pd);
        if let Some(xrc) = &srq.xrc {
            self.unuse_xrcd(xrc.domain);
            self.unuse_cq(&xrc.cq);
        }
        Ok(())
    }

    /// A new QP in RESET. QP1 is a QP of type [`QpType::Gsi`], at most one of them.
    pub fn create_qp(&self, init: &QpInit<H>) -> Result<Arc<Qp<H>>, VerbError> {
        let limits = &self.config().limits;
        within("max_send_wr", init.max_send_wr, limits.max_qp_wr)?;
        within("max_recv_wr", init.max_recv_wr, limits.max_qp_wr)?;
        within("max_send_sge", init.max_send_sge, limits.max_sge)?;
        within("max_recv_sge", init.max_recv_sge, limits.max_sge)?;
        within(
            "max_inline_data",
            init.max_inline_data,
            limits.max_inline_data,
        )?;
        self.use_pd(init.pd)?;
        if let Some(xrcd) = init.xrcd
            && let Err(error) = self.use_xrcd(xrcd)
        {
            self.unuse_pd(init.pd);
            return Err(error);
        }
        let created = self.insert_qp(init);
        match &created {
            Ok(_) => {
                self.use_cq(&init.send_cq);
                self.use_cq(&init.recv_cq);
                if let Some(srq) = &init.srq {
                    *self.dependents.lock().srqs.entry(srq.id).or_default() += 1;
                }
                let mut schedule = self.schedule();
                schedule.grow(Class::data(0), self.config().is_paced);
                if init.qp_type.is_datagram() {
                    // Any priority may be that of its next datagram.
                    (1..8).for_each(|priority| schedule.admit(Class::data(priority)));
                }
            }
            Err(_) => {
                self.unuse_pd(init.pd);
                if let Some(xrcd) = init.xrcd {
                    self.unuse_xrcd(xrcd);
                }
            }
        }
        created
    }

    fn insert_qp(&self, init: &QpInit<H>) -> Result<Arc<Qp<H>>, VerbError> {
        let limit = self.config().limits.max_qp.min(self.config().qpns);
        let make = |qpn| {
            Arc::new(Qp {
                qpn,
                qp_type: init.qp_type,
                pd: init.pd,
                send_cq: Arc::clone(&init.send_cq),
                recv_cq: Arc::clone(&init.recv_cq),
                srq: init.srq.clone(),
                xrcd: init.xrcd,
                sq_sig_all: init.sq_sig_all,
                inner: Lock::new(Inner::new(init, Recovery::new(self.config().recovery))),
            })
        };
        let mut table = self.qps.write();
        if init.qp_type == QpType::Gsi {
            if table.gsi.is_some() {
                return Err(VerbError::Exhausted {
                    object: Object::Qp,
                    limit: 1,
                });
            }
            let qp = make(Qpn::GSI);
            table.gsi = Some(Arc::clone(&qp));
            return Ok(qp);
        }
        // Numbers are reused only when all have been given out once.
        let index = if (table.slots.len() as u32) < limit {
            table.slots.push(None);
            table.slots.len() as u32 - 1
        } else {
            table.free.pop_front().ok_or(VerbError::Exhausted {
                object: Object::Qp,
                limit,
            })?
        };
        let qp = make(qpn_of(index, self.config()));
        table.slots[index as usize] = Some(Arc::clone(&qp));
        Ok(qp)
    }

    /// Destroys a QP: nothing of it is completed any more. One that is attached to a multicast
    /// group must be detached first.
    pub fn destroy_qp(&self, now: Instant, qp: &Arc<Qp<H>>) -> Result<(), VerbError> {
        self.groups.read().check_detached(qp.qpn)?;
        {
            let mut table = self.qps.write();
            if qp.qpn == Qpn::GSI {
                table.gsi = None;
            } else {
                let absent = VerbError::NotFound {
                    object: Object::Qp,
                    id: qp.qpn.value(),
                };
                let index = slot_of(qp.qpn, self.config()).ok_or(absent)?;
                let slot = table.slots.get_mut(index as usize).and_then(Option::take);
                if slot.is_none() {
                    return Err(VerbError::NotFound {
                        object: Object::Qp,
                        id: qp.qpn.value(),
                    });
                }
                table.free.push_back(index);
            }
        }
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        qp.inner.lock().reset(cx);
        self.keys().write().release_qp_windows(qp.qpn);
        self.unuse_cq(&qp.send_cq);
        self.unuse_cq(&qp.recv_cq);
        if let Some(srq) = &qp.srq
            && let Some(users) = self.dependents.lock().srqs.get_mut(&srq.id)
        {
            *users -= 1;
        }
        self.unuse_pd(qp.pd);
        if let Some(xrcd) = qp.xrcd {
            self.unuse_xrcd(xrcd);
        }
        self.schedule().shrink();
        Ok(())
    }

    /// Changes attributes and state of a QP; all of it or nothing.
    pub fn modify_qp(
        &self,
        now: Instant,
        qp: &Arc<Qp<H>>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), VerbError> {
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        let from = q.state;
        let to = if mask.contains(AttrMask::STATE) {
            attr.qp_state
        } else {
            from
        };
        if mask.contains(AttrMask::CUR_STATE) && attr.cur_qp_state != from {
            return Err(VerbError::WrongState {
                verb: "modify_qp with cur_qp_state",
                got: from,
            });
        }
        check_modify(qp.qp_type, from, to, mask)?;
        attr.check_values(mask, &self.attr_limits())?;
        if from == QpState::Sqd && to == QpState::Rts && q.is_draining() {
            return Err(VerbError::WrongState {
                verb: "modify_qp to RTS while draining",
                got: from,
            });
        }
        if mask.contains(AttrMask::AV) && !qp.qp_type.is_datagram() {
            let dest_qpn = if mask.contains(AttrMask::DEST_QPN) {
                attr.dest_qpn
            } else {
                q.attr.dest_qpn
            };
            let mut flow = self
                .flow(qp.qpn, dest_qpn, &attr.av)
                .ok_or(VerbError::NotFound {
                    object: Object::Gid,
                    id: attr.av.sgid_index.into(),
                })?;
            if self.config().is_paced {
                // Only a sender that answers CNPs may call its packets ECN-capable.
                flow.traffic_class = flow.traffic_class & !3 | ECT0;
                let point = ReactionPoint::new(Arc::clone(&self.config().dcqcn));
                q.pacing = Pacing::Dcqcn(Box::new(point));
            }
            q.class = Class::data(flow.priority);
            self.schedule().admit(q.class);
            q.flow = Some(Box::new(flow));
            crate::requester::unreserve(q);
            let asked = crate::requester::expect_nothing(q);
            if let Some(old) = q.window.take() {
                q.release_window(cx, &old);
            }
            if qp.qp_type.is_reliable() {
                q.window = Some(self.join_window((attr.av.dgid, q.class)));
            }
            if let Some(psn) = asked {
                crate::requester::expect_answer(cx, q, psn);
            }
        }
        q.assign(attr, mask);
        match to {
            QpState::Reset => q.reset(cx),
            QpState::Err => q.enter_error(cx),
            QpState::Rtr if from == QpState::Init => {
                q.mtu = if qp.qp_type.is_datagram() {
                    self.port_mtu()
                } else {
                    q.attr.path_mtu
                };
                q.responder.start(&q.attr);
                q.state = to;
            }
            QpState::Rts if from == QpState::Rtr => {
                q.sq.next_psn = q.attr.sq_psn;
                let (retry, rnr) = (q.attr.retry_cnt, q.attr.rnr_retry);
                q.requester.start(q.attr.sq_psn, retry, rnr);
                q.state = to;
                crate::recovery::start(cx, q);
            }
            QpState::Rts => {
                q.state = to;
                q.schedule(cx, Work::Requests);
            }
            QpState::Sqd if from == QpState::Rts => {
                q.state = to;
                q.requester.drain_notify = q.attr.en_sqd_async_notify;
                crate::completer::check_drained(cx, q);
            }
            _ => q.state = to,
        }
        finish(cx, q);
        Ok(())
    }

    fn attr_limits(&self) -> AttrLimits {
        let limits = &self.config().limits;
        AttrLimits {
            ports: 1,
            pkeys: 1,
            gids: self.gids.read().len() as u16,
            active_mtu: self.port_mtu(),
            max_rd_atomic: limits.max_qp_init_rd_atom,
            max_dest_rd_atomic: limits.max_qp_rd_atom,
        }
    }

    /// Attributes of a QP, its state among them.
    pub fn query_qp(&self, qp: &Qp<H>) -> QpAttr {
        let q = qp.inner.lock();
        let mut attr = (*q.attr).clone();
        attr.qp_state = q.state;
        attr.cur_qp_state = q.state;
        attr.sq_draining = q.state == QpState::Sqd && q.is_draining();
        attr.sq_psn = q.sq.next_psn;
        if q.state != QpState::Reset {
            attr.rq_psn = q.responder.epsn;
        }
        attr
    }

    /// Counts completions of these operations of a QP from now on, until it is destroyed.
    pub fn attach_counter(
        &self,
        qp: &Qp<H>,
        counter: &Arc<CompletionCounter>,
        ops: CountedOps,
    ) -> Result<(), VerbError> {
        let mut q = qp.inner.lock();
        if !matches!(q.state, QpState::Reset | QpState::Init) {
            return Err(VerbError::WrongState {
                verb: "attach_counter",
                got: q.state,
            });
        }
        if q.counters.has(ops) {
            return Err(VerbError::Busy {
                object: Object::Qp,
                id: qp.qpn.value(),
                users: 1,
            });
        }
        q.counters.add(ops, Arc::clone(counter));
        Ok(())
    }

    /// Queues a send request. In ERR and SQE it is flushed at once.
    pub fn post_send(
        &self,
        now: Instant,
        qp: &Arc<Qp<H>>,
        wr: &SendWr<'_>,
    ) -> Result<(), VerbError> {
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        let can = Capabilities::of(q.state);
        if !can.may_post_send {
            return Err(VerbError::WrongState {
                verb: "post_send",
                got: q.state,
            });
        }
        let pieces = self.pieces(qp.qp_type, q.mtu);
        q.sq.post(wr, qp.qp_type, q.mtu, pieces)?;
        if can.flushes_sends {
            q.flush_sends(cx);
        } else {
            q.schedule(cx, Work::Requests);
            conversation::answered(cx, q);
        }
        finish(cx, q);
        Ok(())
    }

    /// Refuses when the send queue has no room for so many requests now.
    pub fn expect_send_room(&self, qp: &Qp<H>, requests: usize) -> Result<(), VerbError> {
        qp.inner.lock().sq.expect_room(requests)
    }

    /// Sees to it that what is owed to the peer of `qp` leaves at the next opportunity: its
    /// application is about to end the connection.
    pub fn acknowledge(&self, now: Instant, qp: &Arc<Qp<H>>) {
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        conversation::release(cx, &mut qp.inner.lock());
    }

    /// The same for all QPs: the application is about to end.
    pub fn acknowledge_all(&self, now: Instant) {
        let qps: Vec<_> = self.qps.read().slots.iter().flatten().cloned().collect();
        for qp in qps {
            self.acknowledge(now, &qp);
        }
    }

    /// Queues a receive request. In ERR it is flushed at once.
    pub fn post_recv(
        &self,
        now: Instant,
        qp: &Arc<Qp<H>>,
        wr_id: u64,
        sges: &[Sge],
    ) -> Result<(), VerbError> {
        if qp.srq.is_some() {
            return Err(VerbError::HasSrq { qpn: qp.qpn });
        }
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        let can = Capabilities::of(q.state);
        if !can.may_post_recv {
            return Err(VerbError::WrongState {
                verb: "post_recv",
                got: q.state,
            });
        }
        if can.flushes_receives {
            let cqe = cx.cqe(wr_id, WcStatus::WrFlushErr, WcOpcode::Recv);
            q.complete_receive(cx, cqe);
            finish(cx, q);
            return Ok(());
        }
        q.rq.push(wr_id, sges)
    }

    /// Attaches a datagram QP to a multicast group. True when it is the group's first member here
    /// and the link should join.
    pub fn attach_mcast(&self, qp: &Qp<H>, group: Gid) -> Result<GroupChange, VerbError> {
        if !qp.qp_type.is_datagram() {
            return Err(VerbError::OperationNotAllowed {
                qp_type: qp.qp_type,
            });
        }
        self.groups.write().attach(group, qp.qpn)
    }

    /// Detaches a QP from all its multicast groups.
    pub fn detach_from_all(&self, qp: &Qp<H>) {
        let mut groups = self.groups.write();
        let all: Vec<Gid> = groups.groups().collect();
        for group in all {
            // Groups that it is not in say so.
            let _ = groups.detach(group, qp.qpn);
        }
    }

    /// Detaches a QP from a multicast group.
    pub fn detach_mcast(&self, qp: &Qp<H>, group: Gid) -> Result<GroupChange, VerbError> {
        self.groups.write().detach(group, qp.qpn)
    }
}

impl<H: Host> Inner<H> {
    /// Whether started work requests have not all completed.
    fn is_draining(&self) -> bool {
        !self.requester.is_drained()
    }

    /// Leaves a window for another path, giving back what is in flight.
    fn release_window(&mut self, cx: Cx<'_, H>, old: &SharedWindow<H>) {
        let bytes = core::mem::take(&mut self.requester.in_flight);
        old.lock().release(bytes);
        self.leave_window(cx, old);
    }

    /// Takes over the attributes in `mask`.
    fn assign(&mut self, attr: &QpAttr, mask: AttrMask) {
        let own = &mut *self.attr;
        macro_rules! take {
            ($($bit:ident: $field:ident),* $(,)?) => {
                $(if mask.contains(AttrMask::$bit) {
                    own.$field = attr.$field.clone();
                })*
            };
        }
        take! {
            EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify,
            ACCESS_FLAGS: access,
            PKEY_INDEX: pkey_index,
            PORT: port,
            QKEY: qkey,
            AV: av,
            PATH_MTU: path_mtu,
            TIMEOUT: timeout,
            RETRY_CNT: retry_cnt,
            RNR_RETRY: rnr_retry,
            RQ_PSN: rq_psn,
            MAX_QP_RD_ATOMIC: max_rd_atomic,
            ALT_PATH: alt_av,
            MIN_RNR_TIMER: min_rnr_timer,
            SQ_PSN: sq_psn,
            MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
            PATH_MIG_STATE: path_mig_state,
            DEST_QPN: dest_qpn,
            RATE_LIMIT: rate_limit_kbps,
        }
        if mask.contains(AttrMask::RETRY_CNT) {
            self.requester.retries_left = attr.retry_cnt;
        }
        if mask.contains(AttrMask::RNR_RETRY) {
            self.requester.rnr_retries_left = attr.rnr_retry;
        }
    }
}
