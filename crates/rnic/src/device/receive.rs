//! From a packet to its QP: the checks that concern no QP's state, then the role.

use hirail_vocab::{Counter, DropReason, QpType};
use hirail_wire::{Gid, Headers, PKey, Qpn, Service};

use super::Device;
use crate::event::AsyncEvent;
use crate::host::{Host, Lock, Payload, ReadMostly, Region};
use crate::planted::{self, Bug};
use crate::qp::{Cx, Inner, Qp};
use crate::time::Instant;
use crate::transmit::Work;
use crate::{completer, recovery, responder};
use std::sync::Arc;

/// Congestion experienced, the ECN codepoint that switches set.
const CE: u8 = 3;

/// What the network layer of a packet said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketMeta {
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
    /// Traffic class as it arrived: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit as it arrived; 0 where the link does not tell.
    pub hop_limit: u8,
    /// Priority (PCP) as it arrived; 0 without a tag.
    pub priority: u8,
    /// The packet came with a GRH in an Ethernet frame (RoCE v1).
    pub is_roce_v1: bool,
}

impl PacketMeta {
    const fn is_marked(&self) -> bool {
        self.traffic_class & 3 == CE
    }
}

type PayloadOf<'a, H> = <<H as Host>::Region as Region>::Payload<'a>;

impl<H: Host> Device<H> {
    /// Handles a packet whose ICRC was found right.
    ///
    /// # Errors
    /// Why the packet was discarded; it has been counted.
    pub fn handle_packet(
        &self,
        now: Instant,
        meta: &PacketMeta,
        headers: &Headers,
        payload: PayloadOf<'_, H>,
    ) -> Result<(), DropReason> {
        self.counters.add(Counter::PortRcvPackets, 1);
        let octets = headers.ib_len(payload.len()) as u64;
        self.counters.add(Counter::PortRcvData, octets.div_ceil(4));
        if !meta.destination.is_multicast() {
            self.counters.add(Counter::UnicastRcvPackets, 1);
        }
        let result = self.dispatch(now, meta, headers, payload);
        if let Err(reason) = result {
            self.counters.drop_packet(reason);
        }
        result
    }

    fn dispatch(
        &self,
        now: Instant,
        meta: &PacketMeta,
        headers: &Headers,
        payload: PayloadOf<'_, H>,
    ) -> Result<(), DropReason> {
        let qpn = headers.bth().dest_qp;
        if payload.len() > self.port_mtu().bytes() as usize {
            return Err(DropReason::Oversized);
        }
        if qpn == Qpn::MULTICAST {
            return self.deliver_to_group(now, meta, headers, payload);
        }
        let table = self.qps.read();
        if let Some(qp) = table.get(qpn, &self.config) {
            return self.deliver(now, meta, headers, payload, qp);
        }
        drop(table);
        self.check_address(meta)?;
        let is_cnp = headers.opcode().service() == Service::Cnp;
        Err(match qpn {
            Qpn::SMI => DropReason::Qp0,
            _ if is_cnp => DropReason::CnpUnknownQp,
            _ => DropReason::UnknownQp,
        })
    }

    /// Whether a packet was sent to this port, or to a group.
    fn check_address(&self, meta: &PacketMeta) -> Result<(), DropReason> {
        let is_ours = meta.destination.is_multicast()
            || self
                .gids
                .read()
                .iter()
                .any(|entry| entry.gid == meta.destination);
        if is_ours {
            Ok(())
        } else {
            Err(DropReason::NotOurAddress)
        }
    }

    /// Gives a packet to one QP.
    fn deliver(
        &self,
        now: Instant,
        meta: &PacketMeta,
        headers: &Headers,
        payload: PayloadOf<'_, H>,
        qp: &Arc<Qp<H>>,
    ) -> Result<(), DropReason> {
        let service = headers.opcode().service();
        let operation = headers.opcode().operation();
        if qp.qp_type.is_datagram() {
            self.check_address(meta)?;
        }
        let fits = match service {
            Service::Rc => qp.qp_type == QpType::Rc,
            Service::Uc => qp.qp_type == QpType::Uc,
            Service::Ud => qp.qp_type.is_datagram(),
            Service::Xrc if operation.is_request() => qp.qp_type == QpType::XrcRecv,
            Service::Xrc => qp.qp_type == QpType::XrcSend,
            Service::Cnp => true,
            Service::Manufacturer => qp.qp_type.is_reliable(),
        };
        if !fits {
            return Err(DropReason::WrongQpType);
        }
        let cx = Cx {
            device: self,
            qp,
            now,
        };
        let mut inner = qp.inner.lock();
        let q = &mut *inner;
        if qp.qp_type.is_connected() {
            let comes_from_peer = q.flow.as_ref().is_some_and(|flow| {
                flow.destination == meta.source && flow.source == meta.destination
            });
            if !comes_from_peer && !planted::has(Bug::SourceNotChecked) {
                self.check_address(meta)?;
                if q.flow.is_some() {
                    return Err(DropReason::WrongSource);
                }
            }
        }
        if !PKey::DEFAULT.matches(headers.bth().pkey) {
            return Err(DropReason::BadPkey);
        }
        if service == Service::Cnp {
            let is_obeyed = q.pacing.on_cnp(now);
            let counter = if is_obeyed {
                Counter::RpCnpHandled
            } else {
                Counter::RpCnpIgnored
            };
            self.counters.add(counter, 1);
            return Ok(());
        }
        if meta.is_marked() && qp.qp_type.is_connected() {
            self.counters.add(Counter::NpEcnMarkedRocePackets, 1);
            if q.flow.is_some() && q.notification.on_marked(now, &self.config().dcqcn) {
                q.cnp_due = true;
                q.schedule(cx, Work::Cnp);
            }
        }
        let result = match service {
            Service::Ud => responder::datagram::handle_datagram(cx, q, meta, headers, payload),
            Service::Manufacturer => recovery::handle_packet(cx, q, headers.ext()),
            _ if operation.is_response() => completer::handle_response(cx, q, headers, payload),
            _ => responder::handle_request(cx, q, headers, payload),
        };
        q.responder.starved = false;
        finish(cx, q);
        result
    }

    /// Gives a multicast datagram to every member; each drop is counted.
    fn deliver_to_group(
        &self,
        now: Instant,
        meta: &PacketMeta,
        headers: &Headers,
        payload: PayloadOf<'_, H>,
    ) -> Result<(), DropReason> {
        if headers.opcode().service() != Service::Ud || !meta.destination.is_multicast() {
            return Err(DropReason::UnknownQp);
        }
        let groups = self.groups.read();
        let members = groups.members(meta.destination);
        if members.is_empty() {
            return Err(DropReason::MulticastNoMember);
        }
        self.counters.add(Counter::MulticastRcvPackets, 1);
        for member in members {
            let Some(qp) = self.qp(*member) else { continue };
            if let Err(reason) = self.deliver(now, meta, headers, payload, &qp) {
                self.counters.drop_packet(reason);
            }
        }
        Ok(())
    }
}

/// What is due at the end of every call on a QP: a queue that overran takes the QP with it.
pub(super) fn finish<H: Host>(cx: Cx<'_, H>, q: &mut Inner<H>) {
    if q.cq_overrun {
        q.cq_overrun = false;
        q.enter_error(cx);
        q.cq_overrun = false;
        cx.raise(AsyncEvent::QpFatal);
    }
}
