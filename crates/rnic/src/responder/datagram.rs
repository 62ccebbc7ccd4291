//! Receiving datagrams (UD and QP1): one packet is one message, behind a 40-byte area for the
//! network header. Rules: IBTA Vol 1, chapter 9 (Transport Layer); the area: annex A17 (RoCEv2).

use core::net::{IpAddr, Ipv6Addr};

use hirail_vocab::{Counter, DropReason, WcOpcode, WcStatus};
use hirail_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use hirail_wire::{Ext, Headers};

use super::{finish_receive_with, receive_pd, take_receive};
use crate::cq::WcPayload;
use crate::device::PacketMeta;
use crate::event::{Denial, Denied};
use crate::host::{Host, Payload, Region};
use crate::qp::state::Capabilities;
use crate::qp::{Cx, Inner};
use crate::send_queue::Cursor;
use crate::sgl;

/// Bytes in front of the payload of every datagram received.
pub const GRH_BYTES: u32 = 40;

/// NxtHdr of a GRH: InfiniBand's transport follows.
const NEXT_HEADER_IBA: u8 = 0x1b;

/// Handles a datagram for this QP.
pub(crate) fn handle_datagram<H: Host>(
    cx: Cx<'_, H>,
    q: &mut Inner<H>,
    meta: &PacketMeta,
    headers: &Headers,
    payload: <H::Region as Region>::Payload<'_>,
) -> Result<(), DropReason> {
    if !Capabilities::of(q.state).accepts_requests {
        return Err(DropReason::WrongQpState);
    }
    let deth = headers.ext().deth().ok_or(DropReason::BadHeader)?;
    if deth.qkey != q.attr.qkey {
        return Err(DropReason::BadQkey);
    }
    if payload.len() > cx.device.port_mtu().bytes() as usize {
        return Err(DropReason::UdTooLong);
    }
    let deny = |why| {
        cx.device.deny(|| Denied {
            qpn: cx.qp.qpn,
            operation: headers.opcode().operation(),
            why,
            target: None,
        });
    };
    if !take_receive(cx, q, None) {
        deny(Denial::NotReady);
        return Err(DropReason::UdNoReceiveWqe);
    }
    let bytes = GRH_BYTES + payload.len() as u32;
    let pd = receive_pd(cx, q);
    let wqe = q.responder.receive(&q.rq).expect("one was taken");
    if sgl::total(wqe.sges) < u64::from(bytes) {
        // The WQE stays for the next datagram.
        q.responder.keep_receive();
        deny(Denial::TooLong);
        return Err(DropReason::UdTooLong);
    }
    let grh = network_header(meta, headers.ib_len(payload.len()));
    let mut cursor = Cursor::default();
    let wr_id = wqe.wr_id;
    let placed = sgl::scatter_bytes(cx, pd, wqe.sges, &mut cursor, &grh)
        .and_then(|()| sgl::scatter(cx, pd, wqe.sges, &mut cursor, payload));
    let mut cqe = cx.cqe(wr_id, WcStatus::Success, WcOpcode::Recv);
    if placed.is_err() {
        cqe.status = WcStatus::LocProtErr;
        finish_receive_with(cx, q, cqe);
        return Err(DropReason::UdReceiveFault);
    }
    cqe.byte_len = bytes;
    cqe.src_qp = deth.source_qp;
    cqe.grh = true;
    cqe.grh_is_ipv4 = meta.source.to_ip().is_ipv4() && meta.destination.to_ip().is_ipv4();
    cqe.sl = meta.priority;
    cqe.solicited = headers.bth().solicited;
    if let Ext::DethImm(_, imm) = *headers.ext() {
        cqe.payload = WcPayload::Imm(imm);
    }
    cx.count(Counter::RdmaRecvs);
    finish_receive_with(cx, q, cqe);
    Ok(())
}

/// The 40 bytes: an IPv6 header, or 20 zero bytes and an IPv4 header. Links that do not show the
/// header have it made from what they do show.
fn network_header(meta: &PacketMeta, ib_len: usize) -> [u8; 40] {
    // The UDP header belongs to what the network header counts.
    let udp_len = ib_len + 8;
    match (meta.source.to_ip(), meta.destination.to_ip()) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            let mut grh = [0; 40];
            let header = Ipv4Header {
                traffic_class: meta.traffic_class,
                id: 0,
                dont_fragment: true,
                ttl: meta.hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                dest,
            };
            grh[20..].copy_from_slice(&header.to_bytes(udp_len));
            grh
        }
        _ => Ipv6Header {
            traffic_class: meta.traffic_class,
            flow_label: 0,
            next_header: if meta.is_roce_v1 {
                NEXT_HEADER_IBA
            } else {
                PROTOCOL_UDP
            },
            hop_limit: meta.hop_limit,
            source: Ipv6Addr::from_octets(meta.source.0),
            dest: Ipv6Addr::from_octets(meta.destination.0),
        }
        .to_bytes(if meta.is_roce_v1 { ib_len } else { udp_len }),
    }
}
