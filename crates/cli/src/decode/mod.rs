//! `hirail decode`: the packets of a capture file, what they say and what becomes of them.

mod both_ends;
mod dissect;
mod follow;
mod json;
mod summary;
mod text;

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::PathBuf;

use hirail_wire::pcap::{self, Reader};

use crate::number;
use crate::outcome::{Error, Outcome};
use crate::output::Output;

use both_ends::BothEnds;
use dissect::{Captured, Dissection, IcrcCheck};
use follow::{Crc, Follower, Story, UnitKind};

/// Print the packets of a capture file, one aligned line each
///
/// Reads pcap and pcapng with Ethernet, Linux "cooked" and raw IP packets, and decodes RoCE v1 and
/// v2 with connection management, iWARP, PAUSE, PFC and LLDP with DCBX. Connections are followed:
/// message boundaries, packets sent again, duplicated or missing, refusals, acknowledgements.
#[derive(clap::Args)]
#[command(after_help = "\
Columns:
  time    seconds since the first packet
  msg     connection, then which message of the end that asked for it (>) or of the other end (<)
  PSN     packet sequence number, hexadecimal, as are QPNs, keys and addresses
  QPN     the queue pair that the packet goes to
  fl      S solicited, A acknowledgement requested, F FECN, B BECN, C marked by a congested queue,
          L last segment (iWARP)
  len     bytes of payload, without headers and pad
  ICRC    ok, BAD, or ? where the capture does not hold all of it; the CRC of iWARP, - where off

A packet that both its sender and its receiver recorded in the file (HIRAIL_PCAP) is shown once.

Columns of --summary, counting what the first-named end has sent and what became of it:
  messages  requested by it, with their bytes; those of a READ are the bytes read
  again     packets sent again          dup   copies that the network made of packets
  late      packets overtaken           lost  packets that never came by
  NAK, RNR  refusals of its requests    CNP   congestion notifications sent to it
  CE        its packets that a queue marked as having met congestion
  bad       its packets that a receiver throws away
  known by  what ties the two ends together

Exit status: 0 done, 1 with --check and something found, 2 the file is none or is cut off, or has
no such connection.

Examples:
  hirail decode capture.pcapng              one line per packet
  hirail decode --summary capture.pcap      one row per direction of each connection
  hirail decode -c 3 capture.pcap           connection 3 only
  hirail decode --json capture.pcap | jq '.[] | select(.icrc == \"bad\")'
  tcpdump -w - udp port 4791 | hirail decode -")]
pub(crate) struct Args {
    /// A pcap or pcapng file; - for standard input
    file: PathBuf,

    /// Print a table of connections instead of packets
    #[arg(long, short)]
    summary: bool,

    /// Print only packets of this connection, by its number
    #[arg(long, short, value_name = "NUMBER", value_parser = number::within::<u32>(1..=u64::from(u32::MAX)), allow_negative_numbers = true)]
    connection: Option<u32>,

    /// Exit with status 1 if a checksum is wrong or a packet would be refused
    #[arg(long)]
    check: bool,
}

/// One packet with all that is known of it.
struct Record<'a> {
    /// From 1, in the order of the capture.
    number: u64,
    packet: &'a pcap::Packet<'a>,
    dissection: &'a Dissection<'a>,
    story: &'a Story,
}

impl Record<'_> {
    /// Whether a receiver would throw the packet away.
    fn is_bad(&self) -> bool {
        let bad_crc = self.story.units.iter().any(|unit| match &unit.kind {
            UnitKind::Fpdu { crc, segment, .. } => {
                matches!(crc, Crc::Bad { .. }) || segment.is_err()
            }
            UnitKind::Startup { .. } => false,
        });
        matches!(self.dissection.icrc(), IcrcCheck::Bad { .. })
            || self.dissection.refused.is_some()
            || bad_crc
    }
}

/// Where packets go.
trait Sink {
    fn packet(&mut self, record: &Record<'_>, out: &mut Output) -> Result<(), Error>;

    /// Everything has been read, or nothing more can be.
    fn finish(&mut self, follower: &Follower, out: &mut Output) -> Result<(), Error>;
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<Outcome, Error> {
    let (name, source): (String, Box<dyn Read>) = if args.file.as_os_str() == "-" {
        ("standard input".into(), Box::new(io::stdin().lock()))
    } else {
        let name = format!("'{}'", args.file.display());
        let file = File::open(&args.file)
            .map_err(|error| Error::new(format!("cannot open {name}: {error}")))?;
        (name, Box::new(BufReader::with_capacity(64 << 10, file)))
    };
    let unreadable = |error| Error::new(format!("{name}: {error}"));
    let reader = Reader::new(source).map_err(unreadable)?;
    let mut sink: Box<dyn Sink> = match (args.summary, out.is_json()) {
        (true, _) => {
            let only = args.connection.map(|number| number as usize - 1);
            Box::new(summary::Summary::new(only))
        }
        (false, true) => Box::new(JsonArray::default()),
        (false, false) => Box::new(text::Lines::default()),
    };
    let (clean, ending) = decode(reader, args.connection, sink.as_mut(), out)?;
    ending.map_err(unreadable)?;
    Ok(if args.check && !clean {
        Outcome::Findings
    } else {
        Outcome::Clean
    })
}

/// Prints packets as they are recorded, until `source` ends. One that never had any is no capture.
pub(crate) fn live(source: impl Read, out: &mut Output) -> Result<(), Error> {
    let mut source = BufReader::with_capacity(64 << 10, source);
    let unreadable = |error: &dyn fmt::Display| Error::new(format!("recording: {error}"));
    if source
        .fill_buf()
        .map_err(|error| unreadable(&error))?
        .is_empty()
    {
        return Ok(());
    }
    let reader = Reader::new(source).map_err(|error| unreadable(&error))?;
    let mut sink: Box<dyn Sink> = if out.is_json() {
        Box::new(Live(JsonArray::default()))
    } else {
        Box::new(Live(text::Lines::live()))
    };
    let (_, ending) = decode(reader, None, sink.as_mut(), out)?;
    ending.map_err(|error| unreadable(&error))
}

/// Shows every packet at once.
struct Live<S>(S);

impl<S: Sink> Sink for Live<S> {
    fn packet(&mut self, record: &Record<'_>, out: &mut Output) -> Result<(), Error> {
        self.0.packet(record, out)?;
        out.flush()
    }

    fn finish(&mut self, follower: &Follower, out: &mut Output) -> Result<(), Error> {
        self.0.finish(follower, out)?;
        out.flush()
    }
}

/// Hands all packets, or those of the connection `only`, to the sink. Returns whether all were good,
/// and how the file ended.
fn decode<R: Read>(
    mut reader: Reader<R>,
    only: Option<u32>,
    sink: &mut dyn Sink,
    out: &mut Output,
) -> Result<(bool, Result<(), pcap::Error>), Error> {
    let mut follower = Follower::default();
    let mut ends = BothEnds::default();
    let mut scratch = Vec::new();
    let (mut number, mut clean) = (0, true);
    let ending = loop {
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        number += 1;
        if ends.is_repeated(&packet) {
            continue;
        }
        let captured = Captured {
            link_type: packet.interface.link_type,
            data: packet.data,
            original_len: packet.original_len,
        };
        let dissection = Dissection::new(captured, &mut scratch);
        let story = follower.follow(packet.time_ns, &dissection);
        let record = Record {
            number,
            packet: &packet,
            dissection: &dissection,
            story: &story,
        };
        clean &= !record.is_bad();
        let wanted = only.is_none_or(|wanted| {
            story
                .connection
                .is_some_and(|(index, _)| index + 1 == wanted as usize)
        });
        if wanted {
            sink.packet(&record, out)?;
        }
    };
    if let (Ok(()), Some(wanted)) = (&ending, only) {
        exists(wanted, follower.connections().len())?;
    }
    sink.finish(&follower, out)?;
    Ok((clean, ending))
}

/// Refuses the number of a connection that is not among the `count` of the capture.
fn exists(wanted: u32, count: usize) -> Result<(), Error> {
    if wanted as usize <= count {
        return Ok(());
    }
    let known = match count {
        0 => "there are none".to_owned(),
        1 => "there is only 1".to_owned(),
        _ => format!("there are 1 to {count}"),
    };
    Err(Error::new(format!(
        "there is no connection {wanted}; {known}"
    )))
}

/// An array of one object per packet, one a line.
#[derive(Default)]
struct JsonArray {
    any: bool,
}

impl Sink for JsonArray {
    fn packet(&mut self, record: &Record<'_>, out: &mut Output) -> Result<(), Error> {
        let text = serde_json::to_string(&json::Packet(record)).expect("keys are strings");
        let before = if self.any { ",\n" } else { "[\n" };
        self.any = true;
        write!(out, "{before}{text}")
    }

    fn finish(&mut self, _: &Follower, out: &mut Output) -> Result<(), Error> {
        writeln!(out, "{}", if self.any { "\n]" } else { "[]" })
    }
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
