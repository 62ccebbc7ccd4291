//! The table of connections, one row for what each end sent, and what else was in the capture.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, Value, json};

use crate::outcome::Error;
use crate::output::{BAD, FAINT, HEADING, Output};

use super::dissect::{Body, IcrcCheck};
use super::follow::{CmState, Connection, End, Follower, Kind, Service, Side, Tally, Tie};
use super::json::side_number;
use super::{Record, Sink};

/// Counts what the connections do not, and prints the table at the end.
#[derive(Default)]
pub(super) struct Summary {
    /// Only this connection, by index.
    only: Option<usize>,
    packets: u64,
    times: Option<(u64, u64)>,
    /// RoCE packets by what their ICRC says: ok, bad, unknown.
    icrcs: [u64; 3],
    cm_messages: u64,
    pauses: u64,
    lldp: u64,
    refused: u64,
    others: u64,
}

impl Summary {
    /// A summary of all connections, or of the one with this index.
    pub(super) fn new(only: Option<usize>) -> Self {
        Self {
            only,
            ..Self::default()
        }
    }
}

impl Sink for Summary {
    fn packet(&mut self, record: &Record<'_>, _: &mut Output) -> Result<(), Error> {
        self.packets += 1;
        if let Some(now) = record.packet.time_ns {
            let (first, last) = self.times.unwrap_or((now, now));
            self.times = Some((first.min(now), last.max(now)));
        }
        match &record.dissection.content {
            Body::Roce(roce) => {
                let at = match roce.icrc {
                    IcrcCheck::Ok(_) => 0,
                    IcrcCheck::Bad { .. } => 1,
                    IcrcCheck::Unknown => 2,
                };
                self.icrcs[at] += 1;
                self.cm_messages += u64::from(roce.mad.is_some());
            }
            Body::MacControl(_) => self.pauses += 1,
            Body::Lldp(_) => self.lldp += 1,
            _ if record.story.connection.is_none() => self.others += 1,
            _ => {}
        }
        self.refused += u64::from(record.dissection.refused.is_some());
        Ok(())
    }

    fn finish(&mut self, follower: &Follower, out: &mut Output) -> Result<(), Error> {
        let connections: Vec<_> = follower
            .connections()
            .iter()
            .enumerate()
            .filter(|(index, connection)| {
                connection.joined.is_none() && self.only.is_none_or(|only| only == *index)
            })
            .collect();
        if out.is_json() {
            let values: Vec<_> = connections
                .iter()
                .map(|(index, connection)| connection_json(index + 1, connection))
                .collect();
            return out.json(&values);
        }
        if !connections.is_empty() {
            table(&connections, out)?;
            writeln!(out)?;
        }
        writeln!(out, "{}", self.totals(connections.len()))?;
        if self.icrcs[1] > 0 {
            let count = counted(self.icrcs[1], "packet has", "packets have");
            writeln!(out, "{}", out.paint(BAD, format!("{count} a wrong ICRC.")))?;
        }
        if self.refused > 0 {
            let count = counted(self.refused, "packet is", "packets are");
            writeln!(out, "{}", out.paint(BAD, format!("{count} malformed.")))?;
        }
        Ok(())
    }
}

impl Summary {
    /// One sentence about the capture.
    fn totals(&self, connections: usize) -> String {
        let mut text = counted(self.packets, "packet", "packets");
        if let Some((first, last)) = self.times {
            text.push_str(&format!(" in {:.6} s", (last - first) as f64 / 1e9));
        }
        let mut parts = vec![counted(connections as u64, "connection", "connections")];
        let [ok, bad, unknown] = self.icrcs;
        for (count, one, many) in [
            (self.cm_messages, "CM message", "CM messages"),
            (self.pauses, "PAUSE or PFC frame", "PAUSE or PFC frames"),
            (self.lldp, "LLDP frame", "LLDP frames"),
            (self.others, "other packet", "other packets"),
            (ok, "right ICRC", "right ICRCs"),
            (bad, "wrong ICRC", "wrong ICRCs"),
            (
                unknown,
                "ICRC that cannot be checked",
                "ICRCs that cannot be checked",
            ),
        ] {
            if count > 0 {
                parts.push(counted(count, one, many));
            }
        }
        format!("{text}: {}.", parts.join(", "))
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

const HEADINGS: [&str; 17] = [
    "#", "service", "from", "to", "packets", "messages", "bytes", "again", "dup", "late", "lost",
    "NAK", "RNR", "CNP", "CE", "bad", "known by",
];

/// The columns that hold numbers, and those of them that count troubles.
const NUMBERS: std::ops::Range<usize> = 4..16;
const TROUBLES: std::ops::Range<usize> = 7..16;
const MESSAGES: usize = 5;

/// Nothing is the rule in the columns of troubles: what is there should stand out.
const NOTHING: &str = "-";

fn table(connections: &[(usize, &Connection)], out: &mut Output) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (index, connection) in connections {
        for side in Side::BOTH {
            let tally = connection.tally(side);
            if side == Side::First || tally.packets > 0 {
                rows.push(row(index + 1, connection, side, tally));
            }
        }
    }
    // Troubles that nobody has get no column.
    let absent: Vec<_> = TROUBLES
        .filter(|&column| rows.iter().all(|row| row[column] == NOTHING))
        .collect();
    let shown = |row: &[String]| -> Vec<String> {
        let cells = row
            .iter()
            .enumerate()
            .filter(|(column, _)| !absent.contains(column));
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown(&HEADINGS.map(str::to_owned)));
    for row in &rows {
        table.add_row(shown(row));
    }
    let columns = (0..HEADINGS.len()).filter(|column| !absent.contains(column));
    for (column, shown) in columns.zip(table.column_iter_mut()) {
        shown.set_padding((0, 2));
        if NUMBERS.contains(&column) && column != MESSAGES {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (at, line) in table.lines().enumerate() {
        let line = line.trim_end();
        match at {
            0 => writeln!(out, "{}", out.paint(HEADING, line))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    if !absent.is_empty() {
        let names: Vec<_> = absent.iter().map(|&column| HEADINGS[column]).collect();
        writeln!(
            out,
            "{}",
            out.paint(FAINT, format!("nowhere: {}", names.join(", ")))
        )?;
    }
    Ok(())
}

fn row(number: usize, connection: &Connection, side: Side, tally: &Tally) -> Vec<String> {
    let first = side == Side::First;
    let or_nothing = |count: u64| {
        if count == 0 {
            NOTHING.to_owned()
        } else {
            count.to_string()
        }
    };
    let mut row = vec![
        if first {
            number.to_string()
        } else {
            String::new()
        },
        if first {
            connection.service.name().to_owned()
        } else {
            String::new()
        },
        end(connection.service, connection.end(side)),
        end(connection.service, connection.end(side.other())),
        tally.packets.to_string(),
        messages(tally),
        tally.bytes.to_string(),
    ];
    let troubles = [
        tally.again,
        tally.copies,
        tally.late,
        tally.missing,
        tally.naks,
        tally.rnrs,
        tally.cnps,
        tally.marked,
        tally.corrupt + tally.refused,
    ];
    row.extend(troubles.map(or_nothing));
    row.push(if first {
        known_by(connection)
    } else {
        String::new()
    });
    row
}

fn end(service: Service, end: End) -> String {
    let address = end.address;
    match (service, end.number) {
        (_, None) => format!("{address} ?"),
        (Service::Iwarp, Some(port)) => format!("{address} {port}"),
        (_, Some(qp)) => format!("{address} {qp:06x}"),
    }
}

fn messages(tally: &Tally) -> String {
    let kinds: Vec<_> = Kind::ALL
        .into_iter()
        .zip(tally.messages)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {}", kind.name()))
        .collect();
    if kinds.is_empty() {
        NOTHING.to_owned()
    } else {
        kinds.join(", ")
    }
}

fn known_by(connection: &Connection) -> String {
    let mut text = tie_text(connection.tie).to_owned();
    if let Some(service) = connection.wanted {
        text.push_str(&format!(" {service}"));
    }
    if let Some(state) = connection.state {
        text.push_str(&format!(", {}", state_text(state)));
    }
    text
}

const fn tie_text(tie: Tie) -> &'static str {
    match tie {
        Tie::OneWay => "one way",
        Tie::Named => "headers",
        Tie::Cm => "CM",
        Tie::Answers => "answers",
        Tie::SourcePort => "source port",
        Tie::SamePort => "same port",
        Tie::Only => "addresses",
    }
}

fn state_text(state: CmState) -> String {
    match state {
        CmState::Requested => "requested".to_owned(),
        CmState::Accepted => "accepted".to_owned(),
        CmState::Established => "established".to_owned(),
        CmState::Rejected(reason) => format!("rejected: {reason}"),
        CmState::Disconnecting => "disconnecting".to_owned(),
        CmState::Disconnected => "disconnected".to_owned(),
    }
}

fn connection_json(number: usize, connection: &Connection) -> Value {
    let ends: Vec<_> = Side::BOTH
        .map(|side| {
            let End { address, number } = connection.end(side);
            let mut value = json!({ "address": address.to_string() });
            let key = if connection.service == Service::Iwarp {
                "port"
            } else {
                "qpn"
            };
            value[key] = number.into();
            value
        })
        .into();
    let sent: Vec<_> = Side::BOTH
        .map(|side| tally_json(side, connection.tally(side)))
        .into();
    json!({
        "number": number,
        "service": connection.service.name(),
        "ends": ends,
        "tied_by": tie_text(connection.tie),
        "wanted": connection.wanted.map(|service| service.to_string()),
        "state": connection.state.map(state_text),
        "first_ns": connection.times.map(|(first, _)| first),
        "last_ns": connection.times.map(|(_, last)| last),
        "sent": sent,
    })
}

fn tally_json(side: Side, tally: &Tally) -> Value {
    let messages: Map<String, Value> = Kind::ALL
        .into_iter()
        .zip(tally.messages)
        .map(|(kind, count)| (kind.name().to_lowercase(), count.into()))
        .collect();
    json!({
        "by": side_number(side),
        "packets": tally.packets,
        "messages": messages,
        "bytes": tally.bytes,
        "retransmissions": tally.again,
        "duplicates": tally.copies,
        "late": tally.late,
        "missing": tally.missing,
        "naks": tally.naks,
        "rnr_naks": tally.rnrs,
        "cnps": tally.cnps,
        "ce_marked": tally.marked,
        "bad_icrc": tally.corrupt,
        "refused": tally.refused,
    })
}
