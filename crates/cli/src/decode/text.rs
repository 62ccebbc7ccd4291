//! Packets as lines for people: aligned columns, then headers, then what following found.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use hirail_wire::cm::Message;
use hirail_wire::ip::{Ecn, PROTOCOL_UDP};
use hirail_wire::iwarp::{Ddp, Enhanced, Opcode as Rdmap, Revision, StartupKind};
use hirail_wire::lldp::{Dcbx, Lldp, Selector};
use hirail_wire::mac_control::MacControl;
use hirail_wire::pcap::Direction;
use hirail_wire::{Ext, Operation, Syndrome};

use crate::outcome::Error;
use crate::output::{BAD, FAINT, GOOD, HEADING, Output};

use super::dissect::{Body, IcrcCheck, Roce, Tcp};
use super::follow::{Crc, Event, Follower, MessageRef, Side, Unit, UnitKind};
use super::json::tcp_flags;
use super::{Record, Sink};

/// Something that a person looking for trouble wants to see.
const WARN: Style = AnsiColor::Yellow.on_default();

/// Lines that are looked at before the columns get their widths.
const LOOKED_AT: usize = 1000;

/// Column headings, and whether the column is aligned to the right.
const COLUMNS: [(&str, bool); 9] = [
    ("time", true),
    ("path", false),
    ("opcode", false),
    ("msg", true),
    ("PSN", false),
    ("QPN", false),
    ("fl", false),
    ("len", true),
    ("ICRC", false),
];

/// Their widths before anything is known of what will come.
const LIVE_WIDTHS: [usize; COLUMNS.len()] = [10, 27, 15, 5, 6, 6, 2, 5, 4];

const TIME: usize = 0;
const PATH: usize = 1;
const FLAGS: usize = 6;
const ICRC: usize = 8;

/// Prints one line per packet.
#[derive(Default)]
pub(super) struct Lines {
    /// Lines that wait until the widths are known.
    waiting: Vec<Line>,
    widths: Option<[usize; COLUMNS.len()]>,
    start_ns: Option<u64>,
    /// Some time needs all nine digits.
    nanoseconds: bool,
    /// Packets are shown as they come, and which way they went.
    live: bool,
}

/// A line before its columns have widths.
#[derive(Default)]
struct Line {
    /// Nanoseconds since the first packet; absent on further lines of the same packet.
    time_ns: Option<u64>,
    cells: [String; COLUMNS.len()],
    icrc: Icrc,
    /// What the headers say.
    headers: String,
    notes: Vec<(Style, String)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Icrc {
    #[default]
    None,
    Ok,
    Bad,
    Unknown,
    Off,
}

impl Sink for Lines {
    fn packet(&mut self, record: &Record<'_>, out: &mut Output) -> Result<(), Error> {
        let time_ns = record
            .packet
            .time_ns
            .map(|now| now.saturating_sub(*self.start_ns.get_or_insert(now)));
        let mut lines = lines(record);
        if let Some(first) = lines.first_mut() {
            first.time_ns = time_ns;
        }
        if self.live {
            return self.print_live(lines, record.packet.direction, out);
        }
        match &self.widths {
            Some(widths) => lines
                .iter()
                .try_for_each(|line| print(line, widths, self.nanoseconds, out)),
            None => {
                self.nanoseconds |= time_ns.is_some_and(|ns| ns % 1000 != 0);
                self.waiting.append(&mut lines);
                if self.waiting.len() >= LOOKED_AT {
                    self.settle(out)
                } else {
                    Ok(())
                }
            }
        }
    }

    fn finish(&mut self, _: &Follower, out: &mut Output) -> Result<(), Error> {
        if self.waiting.is_empty() {
            Ok(())
        } else {
            self.settle(out)
        }
    }
}

impl Lines {
    /// Shows packets as they come: nothing waits for the widths of columns.
    pub(super) fn live() -> Self {
        Self {
            live: true,
            ..Self::default()
        }
    }

    /// Prints the lines of a packet, in columns that are wide enough for what is common and grow.
    fn print_live(
        &mut self,
        lines: Vec<Line>,
        direction: Option<Direction>,
        out: &mut Output,
    ) -> Result<(), Error> {
        let is_first = self.widths.is_none();
        let widths = self.widths.get_or_insert(LIVE_WIDTHS);
        if is_first {
            heading(widths, out)?;
        }
        let way = match direction {
            Some(Direction::Inbound) => "in  ",
            Some(Direction::Outbound) => "out ",
            None => "",
        };
        for mut line in lines {
            line.cells[PATH].insert_str(0, way);
            for (width, cell) in widths.iter_mut().zip(&line.cells) {
                *width = (*width).max(cell.len());
            }
            print(&line, widths, self.nanoseconds, out)?;
        }
        Ok(())
    }

    /// Fixes the widths of the columns and prints what has waited for that.
    fn settle(&mut self, out: &mut Output) -> Result<(), Error> {
        let mut widths = COLUMNS.map(|_| 0);
        for line in &mut self.waiting {
            line.cells[TIME] = time(line.time_ns, self.nanoseconds);
            for (width, cell) in widths.iter_mut().zip(&line.cells) {
                *width = (*width).max(cell.len());
            }
        }
        // Columns without any content vanish; the others are as wide as their headings at least.
        for (width, (name, _)) in widths.iter_mut().zip(COLUMNS) {
            *width = if *width == 0 {
                0
            } else {
                (*width).max(name.len())
            };
        }
        heading(&widths, out)?;
        for line in std::mem::take(&mut self.waiting) {
            print(&line, &widths, self.nanoseconds, out)?;
        }
        self.widths = Some(widths);
        Ok(())
    }
}

fn heading(widths: &[usize; COLUMNS.len()], out: &mut Output) -> Result<(), Error> {
    let mut heading = String::new();
    for (width, (name, right)) in widths.iter().zip(COLUMNS) {
        column(&mut heading, name, *width, right);
    }
    let heading = out.paint(HEADING, format!("{heading}headers; notes"));
    writeln!(out, "{heading}")
}

/// Appends a cell and the space behind it; nothing for a column that has no content.
fn column(text: &mut String, cell: &str, width: usize, right: bool) {
    let _ = match (width, right) {
        (0, _) => Ok(()),
        (_, true) => write!(text, "{cell:>width$}  "),
        (_, false) => write!(text, "{cell:width$}  "),
    };
}

fn print(
    line: &Line,
    widths: &[usize; COLUMNS.len()],
    nanoseconds: bool,
    out: &mut Output,
) -> Result<(), Error> {
    let mut text = String::new();
    for (at, (width, (_, right))) in widths.iter().zip(COLUMNS).enumerate() {
        let mut cell = String::new();
        if at == TIME {
            column(&mut cell, &time(line.time_ns, nanoseconds), *width, right);
        } else {
            column(&mut cell, &line.cells[at], *width, right);
        }
        let style = match (at, line.icrc) {
            (ICRC, Icrc::Ok) => GOOD,
            (ICRC, Icrc::Bad) => BAD,
            (TIME | PATH, _) => FAINT,
            _ => Style::new(),
        };
        let _ = if style == Style::new() {
            text.write_str(&cell)
        } else {
            write!(text, "{}", out.paint(style, cell))
        };
    }
    text.push_str(&line.headers);
    for (at, (style, note)) in line.notes.iter().enumerate() {
        let before = if at == 0 && line.headers.is_empty() {
            ""
        } else {
            "; "
        };
        let _ = write!(text, "{before}{}", out.paint(*style, note));
    }
    writeln!(out, "{}", text.trim_end())
}

fn time(ns: Option<u64>, nanoseconds: bool) -> String {
    let Some(ns) = ns else { return String::new() };
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if nanoseconds {
        format!("{seconds}.{ns:09}")
    } else {
        format!("{seconds}.{:06}", ns / 1000)
    }
}

/// The lines of a packet: one, or more where it completes several units of iWARP.
fn lines(record: &Record<'_>) -> Vec<Line> {
    let mut line = Line::default();
    line.cells[PATH] = path(record);
    if let Some((index, _)) = record.story.connection {
        line.cells[3] = match record.story.message {
            Some(message) => message_cell(index, message),
            None => format!("{}", index + 1),
        };
    }
    let mut more = Vec::new();
    match &record.dissection.content {
        Body::Roce(roce) => roce_line(&mut line, roce),
        Body::Tcp(tcp) => more = tcp_lines(&mut line, tcp, record),
        Body::MacControl(control) => mac_control_line(&mut line, *control),
        Body::Lldp(lldp) => lldp_line(&mut line, lldp),
        Body::Ip(ip, ports) => {
            line.cells[2] = match (ip.protocol(), ports) {
                (PROTOCOL_UDP, _) => "UDP".to_owned(),
                (1, _) => "ICMP".to_owned(),
                (58, _) => "ICMPv6".to_owned(),
                (protocol, _) => format!("IP protocol {protocol}"),
            };
            if let Some((source, dest)) = ports {
                line.headers = format!("port {source} > {dest}");
            }
        }
        Body::Other(ether_type) => {
            line.cells[2] = match ether_type.0 {
                0x0806 => "ARP".to_owned(),
                number => format!("EtherType {number:04x}"),
            };
        }
        Body::Undecoded => line.cells[2] = format!("{}", record.packet.interface.link_type),
    }
    tag_and_dscp(&mut line, record);
    notes(&mut line, record);
    let mut lines = vec![line];
    lines.append(&mut more);
    lines
}

fn path(record: &Record<'_>) -> String {
    match (record.dissection.addresses(), &record.dissection.ethernet) {
        (Some((source, dest)), _) => match (&record.dissection.content, record.story.connection) {
            // Ports tell iWARP connections apart, as QPNs do for RoCE.
            (Body::Tcp(tcp), _) => {
                let (source_port, dest_port) = (tcp.header.source_port, tcp.header.dest_port);
                let bracket = |address: std::net::IpAddr, port| {
                    std::net::SocketAddr::new(address, port).to_string()
                };
                format!(
                    "{} > {}",
                    bracket(source, source_port),
                    bracket(dest, dest_port)
                )
            }
            _ => format!("{source} > {dest}"),
        },
        (None, Some(ethernet)) => format!("{} > {}", ethernet.source, ethernet.dest),
        (None, None) => String::new(),
    }
}

/// Connection and message: `2>5` is the fifth message that connection 2's first end requested.
fn message_cell(connection: usize, message: MessageRef) -> String {
    let of = match message.of {
        Side::First => '>',
        Side::Second => '<',
    };
    format!("{}{of}{}", connection + 1, message.number)
}

fn tag_and_dscp(line: &mut Line, record: &Record<'_>) {
    let tag = record.dissection.ethernet.and_then(|ethernet| ethernet.tag);
    let class = match &record.dissection.content {
        Body::Roce(roce) => roce.framing.traffic_class(),
        Body::Tcp(Tcp { ip, .. }) | Body::Ip(ip, _) => ip.traffic_class(),
        _ => 0,
    };
    if class >> 2 != 0 {
        push(&mut line.headers, &format!("dscp={}", class >> 2));
    }
    if let Some(tag) = tag {
        push(
            &mut line.headers,
            &format!("vlan={} prio={}", tag.vlan, tag.priority),
        );
    }
}

/// Appends a word.
fn push(text: &mut String, word: &str) {
    if !text.is_empty() && !word.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

fn roce_line(line: &mut Line, roce: &Roce<'_>) {
    let view = roce.view;
    let cm = roce.mad.as_ref().and_then(|mad| mad.cm());
    line.cells[2] = match (&cm, roce.operation(), view.aeth().map(|aeth| aeth.syndrome)) {
        (Some(message), ..) => format!("CM {}", message.name()),
        (None, Some(Operation::Acknowledge), Some(Syndrome::Nak(_))) => short(roce, "NAK"),
        (None, Some(Operation::Acknowledge), Some(Syndrome::Rnr(_))) => short(roce, "RNR NAK"),
        (None, Some(Operation::Acknowledge), _) => short(roce, "ACK"),
        _ => match (view.opcode(), view.opcode_byte()) {
            (Some(opcode), _) => opcode
                .name()
                .replace("RDMA ", "")
                .replace("response", "resp")
                .replace("with Immediate", "Imm")
                .replace("with Invalidate", "Inv")
                .replace("Acknowledge", "ACK"),
            (None, Some(byte)) => format!("opcode {byte:02x}"),
            (None, None) => "RoCE, cut off".to_owned(),
        },
    };
    if let Some(psn) = view.psn() {
        line.cells[4] = format!("{:06x}", psn.value());
    }
    if let Some(qp) = view.dest_qp() {
        line.cells[5] = format!("{:06x}", qp.value());
    }
    line.cells[FLAGS] = [
        (view.solicited() == Some(true), 'S'),
        (view.ack_req() == Some(true), 'A'),
        (view.fecn() == Some(true), 'F'),
        (view.becn() == Some(true), 'B'),
        (roce.ecn() == Ecn::Ce, 'C'),
    ]
    .into_iter()
    .filter(|(set, _)| *set)
    .map(|(_, letter)| letter)
    .collect();
    line.cells[7] = roce.payload_len.to_string();
    let (icrc, word) = match roce.icrc {
        IcrcCheck::Ok(_) => (Icrc::Ok, "ok"),
        IcrcCheck::Bad { .. } => (Icrc::Bad, "BAD"),
        IcrcCheck::Unknown => (Icrc::Unknown, "?"),
    };
    line.icrc = icrc;
    line.cells[ICRC] = word.to_owned();
    line.headers = match &cm {
        Some(message) => cm_headers(message),
        None => extension_headers(roce),
    };
}

/// The service's name with another operation.
fn short(roce: &Roce<'_>, operation: &str) -> String {
    let name = roce.view.opcode().map_or("", |opcode| opcode.name());
    let service = name.split(' ').next().unwrap_or_default();
    format!("{service} {operation}")
}

fn extension_headers(roce: &Roce<'_>) -> String {
    let view = roce.view;
    let mut text = String::new();
    if let Some(srqn) = view.xrc_srqn() {
        push(&mut text, &format!("srq={srqn:06x}"));
    }
    if let Some(deth) = view.deth() {
        let (source, qkey) = (deth.source_qp.value(), deth.qkey.0);
        push(&mut text, &format!("from={source:06x} qkey={qkey:08x}"));
    }
    if let Some(feth) = view.feth() {
        push(
            &mut text,
            if feth >> 4 & 3 == 0 {
                "range"
            } else {
                "region"
            },
        );
        push(&mut text, if feth & 1 != 0 { "global" } else { "" });
        push(&mut text, if feth & 2 != 0 { "persistent" } else { "" });
    }
    if let Some(reth) = view.reth() {
        let (va, rkey, length) = (reth.va, reth.rkey.value(), reth.length);
        push(&mut text, &format!("va={va:x} rkey={rkey:x} len={length}"));
    }
    if let Some(atomic) = view.atomic_eth() {
        push(
            &mut text,
            &format!("va={:x} rkey={:x}", atomic.va, atomic.rkey.value()),
        );
        let operand = atomic.swap_or_add;
        push(
            &mut text,
            &match roce.operation() {
                Some(Operation::CompareSwap) => {
                    format!("compare={:x} swap={operand:x}", atomic.compare)
                }
                _ => format!("add={operand:x}"),
            },
        );
    }
    if let Some(aeth) = view.aeth() {
        push(&mut text, &format!("msn={}", aeth.msn.value()));
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                if let Some(available) = credits.available() {
                    push(&mut text, &format!("credits={available}"));
                }
            }
            Syndrome::Reserved(byte) => push(&mut text, &format!("reserved syndrome {byte:02x}")),
            // Told below, with what it means.
            Syndrome::Nak(_) | Syndrome::Rnr(_) => {}
        }
    }
    if let Some(original) = view.atomic_original() {
        push(&mut text, &format!("was={original:x}"));
    }
    if let Some(rkey) = view.ieth() {
        push(&mut text, &format!("inv={:x}", rkey.value()));
    }
    if let Some(imm) = view.imm() {
        push(&mut text, &format!("imm={:08x}", u32::from_be_bytes(imm)));
    }
    let ext = roce.headers.as_ref().map(|headers| headers.ext());
    if let Some(ext @ (Ext::Hello(_) | Ext::Sack(_))) = ext {
        push(&mut text, ext.to_string().trim());
    }
    text
}

fn cm_headers(message: &Message<'_>) -> String {
    match message {
        Message::Req(req) => format!(
            "{} qp={:06x} psn={:06x} mtu={}",
            req.service,
            req.qpn.value(),
            req.starting_psn.value(),
            req.mtu
                .map_or_else(|| "?".to_owned(), |mtu| mtu.bytes().to_string()),
        ),
        Message::Rep(rep) => {
            format!(
                "qp={:06x} psn={:06x}",
                rep.qpn.value(),
                rep.starting_psn.value()
            )
        }
        Message::Rej(rej) => format!("{}", rej.reason),
        Message::Mra(mra) => format!("timeout code {}", mra.service_timeout),
        Message::Dreq { remote_qpn, .. } => format!("qp={:06x}", remote_qpn.value()),
        Message::SidrReq(req) => format!("{}", req.service),
        Message::SidrRep(rep) if rep.status == 0 => {
            format!(
                "{} qp={:06x} qkey={:08x}",
                rep.service,
                rep.qpn.value(),
                rep.qkey.0
            )
        }
        Message::SidrRep(rep) => format!("{} status {}", rep.service, rep.status),
        Message::Rtu(_) | Message::Drep(_) | Message::Lap(_) | Message::Apr(_) => String::new(),
    }
}

/// Fills in the first line of a TCP segment; returns the lines of its further units.
fn tcp_lines(line: &mut Line, tcp: &Tcp<'_>, record: &Record<'_>) -> Vec<Line> {
    let mut units = record.story.units.iter();
    let Some(first) = units.next() else {
        let flags = tcp_flags(&tcp.header).join(" ");
        line.cells[2] = format!("TCP {flags}");
        line.cells[7] = tcp.payload.len().to_string();
        if !tcp.payload.is_empty() && record.story.connection.is_some() {
            line.headers = "part of an FPDU".to_owned();
        }
        return Vec::new();
    };
    unit_line(line, first);
    units
        .map(|unit| {
            let mut line = Line::default();
            if let (Some((index, _)), Some(message)) = (record.story.connection, unit.message) {
                line.cells[3] = message_cell(index, message);
            }
            unit_line(&mut line, unit);
            line
        })
        .collect()
}

fn unit_line(line: &mut Line, unit: &Unit) {
    match &unit.kind {
        UnitKind::Startup {
            kind,
            markers,
            crc,
            rejected,
            revision,
            private_data,
        } => {
            line.cells[2] = match kind {
                StartupKind::Request => "MPA Request".to_owned(),
                StartupKind::Reply => "MPA Reply".to_owned(),
            };
            line.cells[7] = private_data.len().to_string();
            let mut text = format!("revision={}", revision.number());
            for (set, word) in [(*markers, "markers"), (*crc, "CRC")] {
                push(&mut text, if set { word } else { "" });
            }
            if let Revision::Two(Some(Enhanced {
                peer_to_peer,
                ird,
                ord,
                ..
            })) = revision
            {
                push(&mut text, &format!("ird={ird} ord={ord}"));
                push(&mut text, if *peer_to_peer { "peer-to-peer" } else { "" });
            }
            line.headers = text;
            if *rejected {
                line.notes.push((BAD, "rejected".to_owned()));
            }
        }
        UnitKind::Fpdu {
            crc,
            markers,
            segment,
            payload,
            read,
            terminate,
            ..
        } => {
            let (icrc, word) = match crc {
                Crc::Ok(_) => (Icrc::Ok, "ok"),
                Crc::Bad { .. } => (Icrc::Bad, "BAD"),
                Crc::Off(_) => (Icrc::Off, "-"),
            };
            line.icrc = icrc;
            line.cells[ICRC] = word.to_owned();
            line.cells[7] = payload.to_string();
            match segment {
                Err(error) => {
                    line.cells[2] = "FPDU".to_owned();
                    line.notes.push((BAD, error.to_string()));
                }
                Ok(segment) => {
                    let name = segment.opcode().name();
                    line.cells[2] =
                        format!("iWARP {}", name.replace("with SE and Invalidate", "SE Inv"))
                            .replace("with Invalidate", "Inv")
                            .replace("with SE", "SE");
                    line.cells[FLAGS] = if segment.last() {
                        "L".to_owned()
                    } else {
                        String::new()
                    };
                    line.headers = match (segment.ddp(), read) {
                        (_, Some(read)) => format!(
                            "from={:x}:{:x} to={:x}:{:x} len={}",
                            read.source_stag,
                            read.source_offset,
                            read.sink_stag,
                            read.sink_offset,
                            read.length
                        ),
                        (Ddp::Tagged { stag, offset }, _) => format!("stag={stag:x} to={offset:x}"),
                        (
                            Ddp::Untagged {
                                queue,
                                msn,
                                offset,
                                invalidate,
                            },
                            _,
                        ) => {
                            let mut text = format!("qn={queue} msn={msn} mo={offset}");
                            if matches!(segment.opcode(), Rdmap::SendInv | Rdmap::SendSeInv) {
                                push(&mut text, &format!("inv={invalidate:x}"));
                            }
                            text
                        }
                    };
                }
            }
            if !markers.is_empty() {
                push(&mut line.headers, &format!("markers={}", markers.len()));
            }
            if let Some(terminate) = terminate {
                line.notes.push((BAD, terminate.meaning.to_owned()));
            }
        }
    }
}

fn mac_control_line(line: &mut Line, control: MacControl) {
    match control {
        MacControl::Pause { quanta } => {
            line.cells[2] = "PAUSE".to_owned();
            line.headers = pause(quanta);
        }
        MacControl::Pfc(pfc) => {
            line.cells[2] = "PFC".to_owned();
            let priorities: Vec<_> = pfc
                .iter()
                .map(|(priority, quanta)| format!("prio {priority}: {}", pause(quanta)))
                .collect();
            line.headers = priorities.join(", ");
        }
    }
}

fn pause(quanta: u16) -> String {
    if quanta == 0 {
        "resume".to_owned()
    } else {
        format!("pause {quanta} quanta")
    }
}

fn lldp_line(line: &mut Line, lldp: &Lldp<'_>) {
    line.cells[2] = "LLDP".to_owned();
    let priorities = |bits: u8| {
        let set: Vec<_> = (0..8)
            .filter(|bit| bits >> bit & 1 != 0)
            .map(|bit| bit.to_string())
            .collect();
        if set.is_empty() {
            "none".to_owned()
        } else {
            set.join("+")
        }
    };
    let mut text = format!("ttl={}s", lldp.ttl_s);
    for dcbx in lldp.dcbx() {
        match dcbx {
            Dcbx::Pfc(pfc) => push(&mut text, &format!("pfc={}", priorities(pfc.enabled))),
            Dcbx::EtsConfiguration(ets) => {
                let shares = ets
                    .table
                    .bandwidth
                    .map(|percent| percent.to_string())
                    .join("/");
                push(&mut text, &format!("ets={shares}%"));
            }
            Dcbx::EtsRecommendation(table) => {
                let shares = table.bandwidth.map(|percent| percent.to_string()).join("/");
                push(&mut text, &format!("recommends={shares}%"));
            }
            Dcbx::ApplicationPriority(entries) => {
                for entry in entries.iter() {
                    let (priority, protocol) = (entry.priority, entry.protocol);
                    push(
                        &mut text,
                        &match entry.selector {
                            Selector::EtherType => {
                                format!("ethertype-{protocol:04x}=prio{priority}")
                            }
                            Selector::TcpPort => format!("tcp-{protocol}=prio{priority}"),
                            Selector::UdpPort => format!("udp-{protocol}=prio{priority}"),
                            Selector::AnyPort => format!("port-{protocol}=prio{priority}"),
                            Selector::Dscp => format!("dscp-{protocol}=prio{priority}"),
                            Selector::Reserved(_) => format!("reserved-{protocol}=prio{priority}"),
                        },
                    );
                }
            }
        }
    }
    line.headers = text;
}

/// What following found, and what is wrong with the packet itself.
fn notes(line: &mut Line, record: &Record<'_>) {
    if let Some(error) = &record.dissection.refused {
        line.notes
            .push((BAD, format!("refused, {}: {error}", error.reason())));
    }
    let (captured, original) = (record.packet.data.len(), record.packet.original_len);
    if captured < original as usize {
        line.notes
            .push((FAINT, format!("{captured} of {original} bytes captured")));
    }
    line.notes.extend(record.story.events.iter().map(note));
    if let Some(comment) = &record.packet.comment {
        line.notes.push((FAINT, format!("\"{comment}\"")));
    }
}

fn note(event: &Event) -> (Style, String) {
    let plain = Style::new();
    match event {
        Event::Missing { packets: 1 } => (WARN, "1 packet before it is missing".to_owned()),
        Event::Missing { packets } => (WARN, format!("{packets} packets before it are missing")),
        Event::Late => (WARN, "late".to_owned()),
        Event::Again => (WARN, "sent again".to_owned()),
        Event::Copy => (WARN, "duplicate".to_owned()),
        Event::Restart => (WARN, "far-off PSN: another connection".to_owned()),
        Event::Whole { bytes, packets } => (plain, format!("ends {bytes} B in {packets} packets")),
        Event::Acknowledges {
            first,
            last,
            latency_ns,
        } => {
            let what = if first == last {
                String::new()
            } else {
                format!("messages {first}-{last} ")
            };
            (plain, format!("{what}{}", after(*latency_ns)))
        }
        Event::NothingNew => (FAINT, "nothing new".to_owned()),
        Event::Answered { bytes, latency_ns } => {
            (plain, format!("{bytes} B done {}", after(*latency_ns)))
        }
        Event::Nak(code) => (BAD, code.to_string()),
        Event::Rnr { wait } => (WARN, format!("no receive, wait {wait:?}")),
        Event::Joined { connection } => (
            plain,
            format!(
                "the other direction is what was numbered {}",
                connection + 1
            ),
        ),
        Event::CmAgain => (WARN, "repeated".to_owned()),
        Event::TcpAgain { bytes } => (WARN, format!("{bytes} B sent again")),
        Event::TcpMissing { bytes } => (WARN, format!("{bytes} B before it are missing")),
        Event::TcpLate => (WARN, "late".to_owned()),
        Event::LostTrack(why) => (BAD, format!("not followed any more: {why}")),
    }
}

fn after(latency_ns: Option<u64>) -> String {
    match latency_ns {
        None => String::new(),
        Some(ns @ 0..100_000) => format!("after {:.1} us", ns as f64 / 1e3),
        Some(ns @ 0..1_000_000) => format!("after {:.0} us", ns as f64 / 1e3),
        Some(ns @ 0..1_000_000_000) => format!("after {:.1} ms", ns as f64 / 1e6),
        Some(ns) => format!("after {:.2} s", ns as f64 / 1e9),
    }
}
