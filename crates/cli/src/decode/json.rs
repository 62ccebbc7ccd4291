//! Packets as JSON objects: every decoded field under a stable name.
//!
//! Numbers of up to 32 bits are numbers, those of 64 bits hexadecimal strings, since many readers
//! of JSON lose the low bits of large numbers. Times are nanoseconds.

use hirail_wire::cm::{self, IpHeader as CmIpHeader, Message};
use hirail_wire::ethernet::EthernetHeader;
use hirail_wire::ip::IpHeader;
use hirail_wire::iwarp::{Ddp, Revision, StartupKind, TcpHeader};
use hirail_wire::lldp::{Dcbx, EtsTable, Lldp, Selection, Selector};
use hirail_wire::mac_control::MacControl;
use hirail_wire::mad::Mad;
use hirail_wire::{Framing, ParseError, Syndrome};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::dissect::{Body, IcrcCheck, Roce, Tcp};
use super::follow::{Crc, Event, MessageRef, Side, Unit, UnitKind};
use super::{Record, hex};

/// A packet as one object.
pub(super) struct Packet<'a>(pub(super) &'a Record<'a>);

impl Serialize for Packet<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(record) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("number", &record.number)?;
        map.serialize_entry("time_ns", &record.packet.time_ns)?;
        if let Some(interface) = &record.packet.interface.name {
            map.serialize_entry("interface", interface)?;
        }
        map.serialize_entry("length", &record.packet.original_len)?;
        map.serialize_entry("captured", &record.packet.data.len())?;
        if let Some(comment) = &record.packet.comment {
            map.serialize_entry("comment", comment)?;
        }
        let icrc = record.dissection.icrc();
        map.serialize_entry("icrc", icrc_word(icrc))?;
        if let Some(ethernet) = &record.dissection.ethernet {
            map.serialize_entry("ethernet", &ethernet_json(ethernet))?;
        }
        match &record.dissection.content {
            Body::Roce(roce) => roce_entries(&mut map, roce)?,
            Body::Tcp(tcp) => tcp_entries(&mut map, tcp)?,
            Body::MacControl(control) => {
                map.serialize_entry("mac_control", &mac_control_json(*control))?;
            }
            Body::Lldp(lldp) => map.serialize_entry("lldp", &lldp_json(lldp))?,
            Body::Ip(ip, ports) => {
                map.serialize_entry("ip", &ip_json(ip, None))?;
                if let Some((source, destination)) = ports {
                    let ports = json!({ "source": source, "destination": destination });
                    map.serialize_entry("ports", &ports)?;
                }
            }
            Body::Other(_) | Body::Undecoded => {}
        }
        if let Some(error) = &record.dissection.refused {
            map.serialize_entry("refused", &refused_json(error))?;
        }
        story_entries(&mut map, record)?;
        map.end()
    }
}

fn story_entries<M: SerializeMap>(map: &mut M, record: &Record<'_>) -> Result<(), M::Error> {
    let story = record.story;
    if !story.units.is_empty() {
        let units: Vec<_> = story.units.iter().map(unit_json).collect();
        map.serialize_entry("iwarp", &units)?;
    }
    if let Some((index, side)) = story.connection {
        let connection = json!({ "number": index + 1, "sender": side_number(side) });
        map.serialize_entry("connection", &connection)?;
    }
    if let Some(message) = story.message {
        map.serialize_entry("message", &message_json(message))?;
    }
    if !story.events.is_empty() {
        let events: Vec<_> = story.events.iter().map(event_json).collect();
        map.serialize_entry("events", &events)?;
    }
    Ok(())
}

/// `ok`, `bad` or `unknown`.
pub(super) const fn icrc_word(icrc: IcrcCheck) -> &'static str {
    match icrc {
        IcrcCheck::Ok(_) => "ok",
        IcrcCheck::Bad { .. } => "bad",
        IcrcCheck::Unknown => "unknown",
    }
}

/// The ends of a connection are 1 and 2.
pub(super) const fn side_number(side: Side) -> u8 {
    match side {
        Side::First => 1,
        Side::Second => 2,
    }
}

fn message_json(message: MessageRef) -> Value {
    json!({ "number": message.number, "requester": side_number(message.of) })
}

fn hex64(value: u64) -> String {
    format!("0x{value:016x}")
}

fn ethernet_json(ethernet: &EthernetHeader) -> Value {
    let mut value = json!({
        "source": ethernet.source.to_string(),
        "destination": ethernet.dest.to_string(),
        "ether_type": ethernet.ether_type.0,
    });
    if let Some(tag) = ethernet.tag {
        value["vlan"] = json!({
            "id": tag.vlan,
            "priority": tag.priority,
            "drop_eligible": tag.drop_eligible,
        });
    }
    value
}

/// `payload_len` is what the length field says of what follows the header.
fn ip_json(ip: &IpHeader, payload_len: Option<u16>) -> Value {
    let mut value = json!({
        "version": match ip { IpHeader::V4(_) => 4, IpHeader::V6(_) => 6 },
        "source": ip.source().to_string(),
        "destination": ip.dest().to_string(),
        "dscp": ip.traffic_class() >> 2,
        "ecn": ip.traffic_class() & 3,
        "ttl": ip.hop_limit(),
        "protocol": ip.protocol(),
    });
    match ip {
        IpHeader::V4(header) => {
            value["id"] = header.id.into();
            value["dont_fragment"] = header.dont_fragment.into();
            if let Some(len) = payload_len {
                value["total_length"] = (u32::from(len) + 20).into();
            }
        }
        IpHeader::V6(header) => {
            value["flow_label"] = header.flow_label.into();
            if let Some(len) = payload_len {
                value["payload_length"] = len.into();
            }
        }
    }
    value
}

fn roce_entries<M: SerializeMap>(map: &mut M, roce: &Roce<'_>) -> Result<(), M::Error> {
    match &roce.framing {
        Framing::V1(grh) => {
            let grh = json!({
                "source": grh.sgid.to_string(),
                "destination": grh.dgid.to_string(),
                "traffic_class": grh.traffic_class,
                "flow_label": grh.flow_label,
                "hop_limit": grh.hop_limit,
            });
            map.serialize_entry("grh", &grh)?;
        }
        Framing::V2 {
            ip, source_port, ..
        } => {
            map.serialize_entry("ip", &ip_json(ip, roce.udp.map(|udp| udp.length)))?;
            if let Some(udp) = roce.udp {
                let udp = json!({
                    "source_port": source_port,
                    "destination_port": hirail_wire::udp::ROCE_PORT,
                    "length": udp.length,
                    "checksum": udp.checksum,
                });
                map.serialize_entry("udp", &udp)?;
            }
        }
    }
    let view = roce.view;
    let bth = json!({
        "opcode": view.opcode_byte(),
        "name": view.opcode().map(|opcode| opcode.name()),
        "solicited": view.solicited(),
        "migrated": view.migrated(),
        "pad": view.pad(),
        "tver": view.tver(),
        "pkey": view.pkey().map(|pkey| pkey.0),
        "fecn": view.fecn(),
        "becn": view.becn(),
        "dest_qp": view.dest_qp().map(|qp| qp.value()),
        "ack_req": view.ack_req(),
        "psn": view.psn().map(|psn| psn.value()),
    });
    map.serialize_entry("bth", &bth)?;
    extension_entries(map, roce)?;
    map.serialize_entry("payload_length", &roce.payload_len)?;
    match roce.icrc {
        IcrcCheck::Ok(received) => map.serialize_entry("icrc_bytes", &hex(&received))?,
        IcrcCheck::Bad { received, computed } => {
            map.serialize_entry("icrc_bytes", &hex(&received))?;
            map.serialize_entry("icrc_expected", &hex(&computed))?;
        }
        IcrcCheck::Unknown => {}
    }
    if let Some(mad) = &roce.mad {
        map.serialize_entry("mad", &mad_json(mad))?;
        if let Some(message) = mad.cm() {
            map.serialize_entry("cm", &cm_json(&message))?;
        }
    }
    Ok(())
}

fn extension_entries<M: SerializeMap>(map: &mut M, roce: &Roce<'_>) -> Result<(), M::Error> {
    let view = roce.view;
    if let Some(srqn) = view.xrc_srqn() {
        map.serialize_entry("xrceth", &json!({ "srqn": srqn }))?;
    }
    if let Some(deth) = view.deth() {
        let deth = json!({ "qkey": deth.qkey.0, "source_qp": deth.source_qp.value() });
        map.serialize_entry("deth", &deth)?;
    }
    if let Some(feth) = view.feth() {
        let feth = json!({
            "selectivity": feth >> 4 & 3,
            "global": feth & 1 != 0,
            "persistent": feth & 2 != 0,
        });
        map.serialize_entry("feth", &feth)?;
    }
    if let Some(reth) = view.reth() {
        let reth =
            json!({ "va": hex64(reth.va), "rkey": reth.rkey.value(), "length": reth.length });
        map.serialize_entry("reth", &reth)?;
    }
    if let Some(atomic) = view.atomic_eth() {
        let atomic = json!({
            "va": hex64(atomic.va),
            "rkey": atomic.rkey.value(),
            "swap_or_add": hex64(atomic.swap_or_add),
            "compare": hex64(atomic.compare),
        });
        map.serialize_entry("atomiceth", &atomic)?;
    }
    if let Some(aeth) = view.aeth() {
        let mut value = json!({ "syndrome": aeth.syndrome.to_u8(), "msn": aeth.msn.value() });
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                value["kind"] = "ack".into();
                value["credits"] = credits.available().into();
            }
            Syndrome::Rnr(timer) => {
                value["kind"] = "rnr".into();
                let wait_ns = u64::try_from(timer.delay().as_nanos()).unwrap_or(u64::MAX);
                value["wait_ns"] = wait_ns.into();
            }
            Syndrome::Nak(code) => {
                value["kind"] = "nak".into();
                value["nak"] = code.to_string().into();
            }
            Syndrome::Reserved(_) => value["kind"] = "reserved".into(),
        }
        map.serialize_entry("aeth", &value)?;
    }
    if let Some(original) = view.atomic_original() {
        map.serialize_entry("atomicacketh", &json!({ "original": hex64(original) }))?;
    }
    if let Some(rkey) = view.ieth() {
        map.serialize_entry("ieth", &json!({ "rkey": rkey.value() }))?;
    }
    if let Some(imm) = view.imm() {
        map.serialize_entry("immediate", &u32::from_be_bytes(imm))?;
    }
    let Some(headers) = &roce.headers else {
        return Ok(());
    };
    match headers.ext() {
        hirail_wire::Ext::Hello(hello) => {
            let hello = json!({
                "version": hello.version,
                "flags": hello.flags,
                "window_packets": hello.window_packets,
                "nonce": hello.nonce,
            });
            map.serialize_entry("hello", &hello)
        }
        hirail_wire::Ext::Sack(sack) => {
            let sack = json!({
                "cumulative": sack.cumulative.value(),
                "bitmap": sack.bitmap.map(hex64),
                "response": sack.response,
            });
            map.serialize_entry("sack", &sack)
        }
        _ => Ok(()),
    }
}

fn mad_json(mad: &Mad<'_>) -> Value {
    let header = &mad.header;
    json!({
        "class": header.class.0,
        "class_version": header.class_version,
        "method": header.method,
        "response": header.response,
        "status": header.status,
        "transaction_id": hex64(header.transaction_id),
        "attribute_id": header.attribute_id,
        "attribute_modifier": header.attribute_modifier,
    })
}

fn cm_json(message: &Message<'_>) -> Value {
    let ids = |ids: cm::Ids| json!({ "local_id": ids.local, "remote_id": ids.remote });
    let ip_header = |private_data| {
        CmIpHeader::parse(private_data).map(|ip| {
            json!({
                "source_port": ip.source_port,
                "source": ip.source.to_string(),
                "destination": ip.dest.to_string(),
            })
        })
    };
    let mut value = match message {
        Message::Req(req) => json!({
            "local_id": req.local_id,
            "service_id": hex64(req.service.0),
            "service": req.service.to_string(),
            "ca_guid": hex64(req.ca_guid),
            "qpn": req.qpn.value(),
            "starting_psn": req.starting_psn.value(),
            "transport": match req.transport {
                cm::Transport::Rc => "rc",
                cm::Transport::Uc => "uc",
                cm::Transport::Xrc => "xrc",
                cm::Transport::Other(..) => "other",
            },
            "responder_resources": req.responder_resources,
            "initiator_depth": req.initiator_depth,
            "remote_response_timeout": req.remote_response_timeout,
            "local_response_timeout": req.local_response_timeout,
            "flow_control": req.flow_control,
            "retry_count": req.retry_count,
            "rnr_retry_count": req.rnr_retry_count,
            "max_cm_retries": req.max_cm_retries,
            "pkey": req.pkey.0,
            "mtu": req.mtu.map(|mtu| mtu.bytes()),
            "srq": req.srq,
            "local_gid": req.local_gid.to_string(),
            "remote_gid": req.remote_gid.to_string(),
            "flow_label": req.flow_label,
            "packet_rate": req.packet_rate,
            "traffic_class": req.traffic_class,
            "hop_limit": req.hop_limit,
            "sl": req.sl,
            "ack_timeout": req.ack_timeout.code(),
            "ip": ip_header(req.private_data),
        }),
        Message::Rep(rep) => {
            let mut value = ids(rep.ids);
            value["qpn"] = rep.qpn.value().into();
            value["starting_psn"] = rep.starting_psn.value().into();
            value["responder_resources"] = rep.responder_resources.into();
            value["initiator_depth"] = rep.initiator_depth.into();
            value["target_ack_delay"] = rep.target_ack_delay.into();
            value["flow_control"] = rep.flow_control.into();
            value["rnr_retry_count"] = rep.rnr_retry_count.into();
            value["srq"] = rep.srq.into();
            value["ca_guid"] = hex64(rep.ca_guid).into();
            value
        }
        Message::Rej(rej) => {
            let mut value = ids(rej.ids);
            value["rejected"] = rej.rejected.into();
            value["reason"] = rej.reason.0.into();
            value["meaning"] = rej.reason.to_string().into();
            value
        }
        Message::Mra(mra) => {
            let mut value = ids(mra.ids);
            value["received"] = mra.received.into();
            value["service_timeout"] = mra.service_timeout.into();
            value
        }
        Message::Dreq {
            ids: both,
            remote_qpn,
            ..
        } => {
            let mut value = ids(*both);
            value["remote_qpn"] = remote_qpn.value().into();
            value
        }
        Message::Rtu(note) | Message::Drep(note) => ids(note.ids),
        Message::Lap(both) => ids(*both),
        Message::Apr(apr) => {
            let mut value = ids(apr.ids);
            value["status"] = apr.status.into();
            value
        }
        Message::SidrReq(req) => json!({
            "request_id": req.request_id,
            "pkey": req.pkey.0,
            "service_id": hex64(req.service.0),
            "service": req.service.to_string(),
            "ip": ip_header(req.private_data),
        }),
        Message::SidrRep(rep) => json!({
            "request_id": rep.request_id,
            "status": rep.status,
            "qpn": rep.qpn.value(),
            "qkey": rep.qkey.0,
            "service_id": hex64(rep.service.0),
            "service": rep.service.to_string(),
        }),
    };
    value["message"] = message.name().into();
    value
}

fn tcp_entries<M: SerializeMap>(map: &mut M, tcp: &Tcp<'_>) -> Result<(), M::Error> {
    map.serialize_entry("ip", &ip_json(&tcp.ip, Some(tcp.length)))?;
    let header = &tcp.header;
    let value = json!({
        "source_port": header.source_port,
        "destination_port": header.dest_port,
        "sequence": header.sequence,
        "acknowledgement": header.acknowledgement,
        "flags": tcp_flags(header),
        "window": header.window,
        "payload_length": tcp.payload.len(),
    });
    map.serialize_entry("tcp", &value)
}

/// The names of the flags that are set.
pub(super) fn tcp_flags(header: &TcpHeader) -> Vec<&'static str> {
    [
        (TcpHeader::SYN, "SYN"),
        (TcpHeader::FIN, "FIN"),
        (TcpHeader::RST, "RST"),
        (TcpHeader::PSH, "PSH"),
        (TcpHeader::ACK, "ACK"),
    ]
    .into_iter()
    .filter(|(flag, _)| header.has(*flag))
    .map(|(_, name)| name)
    .collect()
}

fn unit_json(unit: &Unit) -> Value {
    let mut value = match &unit.kind {
        UnitKind::Startup {
            kind,
            markers,
            crc,
            rejected,
            revision,
            private_data,
        } => {
            let mut value = json!({
                "frame": match kind {
                    StartupKind::Request => "mpa_request",
                    StartupKind::Reply => "mpa_reply",
                },
                "markers": markers,
                "crc": crc,
                "rejected": rejected,
                "revision": revision.number(),
                "private_data": hex(private_data),
            });
            if let Revision::Two(Some(enhanced)) = revision {
                value["enhanced"] = json!({
                    "peer_to_peer": enhanced.peer_to_peer,
                    "rtr_send": enhanced.rtr_send,
                    "rtr_write": enhanced.rtr_write,
                    "rtr_read": enhanced.rtr_read,
                    "ird": enhanced.ird,
                    "ord": enhanced.ord,
                });
            }
            value
        }
        UnitKind::Fpdu {
            ulpdu_len,
            pad,
            crc,
            markers,
            segment,
            payload,
            read,
            terminate,
        } => {
            let (word, number) = match crc {
                Crc::Ok(received) => ("ok", received),
                Crc::Bad { received, .. } => ("bad", received),
                Crc::Off(received) => ("off", received),
            };
            let mut value = json!({
                "frame": "fpdu",
                "ulpdu_length": ulpdu_len,
                "pad": pad,
                "crc": word,
                "crc_bytes": hex(&number.to_le_bytes()),
            });
            if !markers.is_empty() {
                let markers: Vec<_> = markers
                    .iter()
                    .map(|(offset, back)| json!({ "offset": offset, "pointer": back }))
                    .collect();
                value["markers"] = markers.into();
            }
            match segment {
                Err(error) => value["error"] = error.to_string().into(),
                Ok(segment) => {
                    value["ddp"] = match segment.ddp() {
                        Ddp::Tagged { stag, offset } => {
                            json!({ "tagged": true, "stag": stag, "to": hex64(offset) })
                        }
                        Ddp::Untagged {
                            invalidate,
                            queue,
                            msn,
                            offset,
                        } => json!({
                            "tagged": false,
                            "invalidate_stag": invalidate,
                            "qn": queue,
                            "msn": msn,
                            "mo": offset,
                        }),
                    };
                    value["ddp"]["last"] = segment.last().into();
                    value["rdmap"] = json!({
                        "opcode": segment.opcode() as u8,
                        "name": segment.opcode().name(),
                    });
                    value["payload_length"] = (*payload).into();
                }
            }
            if let Some(read) = read {
                value["read_request"] = json!({
                    "sink_stag": read.sink_stag,
                    "sink_to": hex64(read.sink_offset),
                    "length": read.length,
                    "source_stag": read.source_stag,
                    "source_to": hex64(read.source_offset),
                });
            }
            if let Some(terminate) = terminate {
                value["terminate"] = json!({
                    "layer": terminate.layer,
                    "type": terminate.kind,
                    "code": terminate.code,
                    "meaning": terminate.meaning,
                });
            }
            value
        }
    };
    if let Some(message) = unit.message {
        value["message"] = message_json(message);
    }
    value
}

fn mac_control_json(control: MacControl) -> Value {
    match control {
        MacControl::Pause { quanta } => json!({ "kind": "pause", "quanta": quanta }),
        MacControl::Pfc(pfc) => {
            let priorities: Vec<_> = pfc
                .iter()
                .map(|(priority, quanta)| json!({ "priority": priority, "quanta": quanta }))
                .collect();
            json!({ "kind": "pfc", "priorities": priorities })
        }
    }
}

fn lldp_json(lldp: &Lldp<'_>) -> Value {
    let mut value = json!({
        "chassis_id": hex(lldp.chassis_id),
        "chassis_mac": lldp.chassis_mac().map(|mac| mac.to_string()),
        "port_id": hex(lldp.port_id),
        "port_mac": lldp.port_mac().map(|mac| mac.to_string()),
        "ttl_s": lldp.ttl_s,
    });
    let table = |table: &EtsTable| {
        json!({
            "class_of_priority": table.class_of_priority,
            "bandwidth_percent": table.bandwidth,
            "selection": table.selection.map(|selection| match selection {
                Selection::Strict => "strict",
                Selection::CreditBasedShaper => "credit_based_shaper",
                Selection::Ets => "ets",
                Selection::Vendor => "vendor",
                Selection::Reserved(_) => "reserved",
            }),
        })
    };
    for dcbx in lldp.dcbx() {
        match dcbx {
            Dcbx::EtsConfiguration(ets) => {
                value["ets"] = table(&ets.table);
                value["ets"]["willing"] = ets.willing.into();
                value["ets"]["max_traffic_classes"] = ets.max_traffic_classes.into();
            }
            Dcbx::EtsRecommendation(recommended) => {
                value["ets_recommendation"] = table(&recommended);
            }
            Dcbx::Pfc(pfc) => {
                let enabled: Vec<u8> = (0..8)
                    .filter(|priority| pfc.enabled >> priority & 1 != 0)
                    .collect();
                value["pfc"] = json!({
                    "willing": pfc.willing,
                    "capacity": pfc.capacity,
                    "enabled": enabled,
                });
            }
            Dcbx::ApplicationPriority(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|entry| {
                        json!({
                            "priority": entry.priority,
                            "selector": match entry.selector {
                                Selector::EtherType => "ether_type",
                                Selector::TcpPort => "tcp_port",
                                Selector::UdpPort => "udp_port",
                                Selector::AnyPort => "any_port",
                                Selector::Dscp => "dscp",
                                Selector::Reserved(_) => "reserved",
                            },
                            "protocol": entry.protocol,
                        })
                    })
                    .collect();
                value["application_priorities"] = entries.into();
            }
        }
    }
    value
}

fn refused_json(error: &ParseError) -> Value {
    json!({ "reason": error.reason(), "text": error.to_string() })
}

fn event_json(event: &Event) -> Value {
    match event {
        Event::Missing { packets } => json!({ "event": "missing", "packets": packets }),
        Event::Late => json!({ "event": "late" }),
        Event::Again => json!({ "event": "retransmission" }),
        Event::Copy => json!({ "event": "duplicate" }),
        Event::Restart => json!({ "event": "restart" }),
        Event::Whole { bytes, packets } => {
            json!({ "event": "message_ends", "bytes": bytes, "packets": packets })
        }
        Event::Acknowledges {
            first,
            last,
            latency_ns,
        } => json!({
            "event": "acknowledges",
            "first": first,
            "last": last,
            "latency_ns": latency_ns,
        }),
        Event::NothingNew => json!({ "event": "acknowledged_before" }),
        Event::Answered { bytes, latency_ns } => {
            json!({ "event": "answered", "bytes": bytes, "latency_ns": latency_ns })
        }
        Event::Nak(code) => json!({ "event": "nak", "nak": code.to_string() }),
        Event::Rnr { wait } => {
            let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            json!({ "event": "rnr", "wait_ns": wait_ns })
        }
        Event::Joined { connection } => {
            json!({ "event": "joined", "connection": connection + 1 })
        }
        Event::CmAgain => json!({ "event": "cm_again" }),
        Event::TcpAgain { bytes } => json!({ "event": "tcp_retransmission", "bytes": bytes }),
        Event::TcpMissing { bytes } => json!({ "event": "tcp_missing", "bytes": bytes }),
        Event::TcpLate => json!({ "event": "tcp_late" }),
        Event::LostTrack(why) => json!({ "event": "lost_track", "why": why }),
    }
}
