//! `hirail decode --json` against tshark, an independent dissector, on every capture in the
//! repository and every field that both decode.
//!
//! Where tshark is wrong or silent (found with tshark 4.0), a field is not in the list below, or
//! the reason stands beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hirail_wire::pcap::{LinkType, Reader, Writer};
use serde_json::Value;

/// How a field's values are written by tshark.
#[derive(Clone, Copy)]
enum Form {
    /// Decimal, hexadecimal with 0x, or a truth value.
    Number,
    /// Hexadecimal digits without 0x, perhaps with colons.
    Bytes,
    /// As it is.
    Text,
    /// A length that includes the pad.
    Length,
}

use Form::{Bytes, Length, Number, Text};

/// tshark's field, ours as a JSON pointer (`*` stands for each element of an array), and the form.
const FIELDS: &[(&str, &str, Form)] = &[
    ("frame.len", "/length", Number),
    ("frame.cap_len", "/captured", Number),
    ("eth.src", "/ethernet/source", Text),
    ("eth.dst", "/ethernet/destination", Text),
    ("eth.type", "/ethernet/ether_type", Number),
    ("ip.version", "/ip/version", Number),
    ("ip.src", "/ip/source", Text),
    ("ip.dst", "/ip/destination", Text),
    ("ip.dsfield.dscp", "/ip/dscp", Number),
    ("ip.dsfield.ecn", "/ip/ecn", Number),
    ("ip.ttl", "/ip/ttl", Number),
    ("ip.proto", "/ip/protocol", Number),
    ("ip.id", "/ip/id", Number),
    ("ip.flags.df", "/ip/dont_fragment", Number),
    ("ip.len", "/ip/total_length", Number),
    ("ipv6.src", "/ip/source", Text),
    ("ipv6.dst", "/ip/destination", Text),
    ("ipv6.tclass.dscp", "/ip/dscp", Number),
    ("ipv6.tclass.ecn", "/ip/ecn", Number),
    ("ipv6.hlim", "/ip/ttl", Number),
    ("ipv6.nxt", "/ip/protocol", Number),
    ("ipv6.flow", "/ip/flow_label", Number),
    ("ipv6.plen", "/ip/payload_length", Number),
    ("udp.srcport", "/udp/source_port", Number),
    ("udp.dstport", "/udp/destination_port", Number),
    ("udp.length", "/udp/length", Number),
    ("udp.checksum", "/udp/checksum", Number),
    ("infiniband.bth.opcode", "/bth/opcode", Number),
    ("infiniband.bth.se", "/bth/solicited", Number),
    ("infiniband.bth.m", "/bth/migrated", Number),
    ("infiniband.bth.padcnt", "/bth/pad", Number),
    ("infiniband.bth.tver", "/bth/tver", Number),
    ("infiniband.bth.p_key", "/bth/pkey", Number),
    ("infiniband.bth.destqp", "/bth/dest_qp", Number),
    ("infiniband.bth.a", "/bth/ack_req", Number),
    ("infiniband.bth.psn", "/bth/psn", Number),
    // tshark gives the addresses of atomics under the same names as those of RDMA.
    ("infiniband.reth.va", "/{reth,atomiceth}/va", Number),
    ("infiniband.reth.r_key", "/{reth,atomiceth}/rkey", Number),
    ("infiniband.reth.dmalen", "/reth/length", Number),
    (
        "infiniband.atomiceth.swapdt",
        "/atomiceth/swap_or_add",
        Number,
    ),
    ("infiniband.atomiceth.cmpdt", "/atomiceth/compare", Number),
    ("infiniband.aeth.syndrome", "/aeth/syndrome", Number),
    ("infiniband.aeth.msn", "/aeth/msn", Number),
    (
        "infiniband.atomicacketh.origremdt",
        "/atomicacketh/original",
        Number,
    ),
    ("infiniband.immdt", "/immediate", Bytes),
    ("infiniband.ieth", "/ieth/rkey", Bytes),
    ("infiniband.deth.q_key", "/deth/qkey", Number),
    ("infiniband.deth.srcqp", "/deth/source_qp", Number),
    ("data.len", "/payload_length", Length),
    // tshark shows the ICRC as it would read big-endian: its bytes in wire order.
    ("infiniband.invariant.crc", "/icrc_bytes", Number),
    ("infiniband.mad.mgmtclass", "/mad/class", Number),
    ("infiniband.mad.classversion", "/mad/class_version", Number),
    ("infiniband.mad.method", "/mad/method", Number),
    ("infiniband.mad.status", "/mad/status", Number),
    (
        "infiniband.mad.transactionid",
        "/mad/transaction_id",
        Number,
    ),
    ("infiniband.mad.attributeid", "/mad/attribute_id", Number),
    (
        "infiniband.mad.attributemodifier",
        "/mad/attribute_modifier",
        Number,
    ),
    // Of the path in a REQ, tshark reads flow label and packet rate with wrong widths.
    ("infiniband.cm.req", "/cm/local_id", Number),
    ("infiniband.cm.req.serviceid", "/cm/service_id", Number),
    ("infiniband.cm.req.localcaguid", "/cm/ca_guid", Number),
    ("infiniband.cm.req.localqpn", "/cm/qpn", Number),
    (
        "infiniband.cm.req.responderres",
        "/cm/responder_resources",
        Number,
    ),
    ("infiniband.cm.req.initdepth", "/cm/initiator_depth", Number),
    (
        "infiniband.cm.req.remoteresptout",
        "/cm/remote_response_timeout",
        Number,
    ),
    ("infiniband.cm.req.e2eflowctrl", "/cm/flow_control", Number),
    ("infiniband.cm.req.startpsn", "/cm/starting_psn", Number),
    (
        "infiniband.cm.req.localresptout",
        "/cm/local_response_timeout",
        Number,
    ),
    ("infiniband.cm.req.retrcount", "/cm/retry_count", Number),
    (
        "infiniband.cm.req.rnrretrcount",
        "/cm/rnr_retry_count",
        Number,
    ),
    ("infiniband.cm.req.pkey", "/cm/pkey", Number),
    ("infiniband.cm.req.maxcmretr", "/cm/max_cm_retries", Number),
    ("infiniband.cm.req.srq", "/cm/srq", Number),
    (
        "infiniband.cm.req.prim_tfcclass",
        "/cm/traffic_class",
        Number,
    ),
    ("infiniband.cm.req.prim_hoplim", "/cm/hop_limit", Number),
    ("infiniband.cm.req.prim_sl", "/cm/sl", Number),
    (
        "infiniband.cm.req.prim_localacktout",
        "/cm/ack_timeout",
        Number,
    ),
    (
        "infiniband.cm.req.ip_cm.sport",
        "/cm/ip/source_port",
        Number,
    ),
    ("infiniband.cm.req.ip_cm.sip4", "/cm/ip/source", Text),
    ("infiniband.cm.req.ip_cm.dip4", "/cm/ip/destination", Text),
    ("infiniband.cm.req.ip_cm.sip6", "/cm/ip/source", Text),
    ("infiniband.cm.req.ip_cm.dip6", "/cm/ip/destination", Text),
    ("infiniband.cm.rep", "/cm/local_id", Number),
    ("infiniband.cm.rep.remotecommid", "/cm/remote_id", Number),
    ("infiniband.cm.rep.localqpn", "/cm/qpn", Number),
    ("infiniband.cm.rep.startpsn", "/cm/starting_psn", Number),
    (
        "infiniband.cm.rep.respres",
        "/cm/responder_resources",
        Number,
    ),
    ("infiniband.cm.rep.initdepth", "/cm/initiator_depth", Number),
    (
        "infiniband.cm.rep.tgtackdelay",
        "/cm/target_ack_delay",
        Number,
    ),
    ("infiniband.cm.rep.e2eflowctrl", "/cm/flow_control", Number),
    (
        "infiniband.cm.rep.rnrretrcount",
        "/cm/rnr_retry_count",
        Number,
    ),
    ("infiniband.cm.rep.srq", "/cm/srq", Number),
    ("infiniband.cm.rep.localcaguid", "/cm/ca_guid", Number),
    ("infiniband.cm.rtu.localcommid", "/cm/local_id", Number),
    ("infiniband.cm.rtu.remotecommid", "/cm/remote_id", Number),
    ("infiniband.cm.rej.localcommid", "/cm/local_id", Number),
    ("infiniband.cm.rej.remotecommid", "/cm/remote_id", Number),
    ("infiniband.cm.rej.msgrej", "/cm/rejected", Number),
    ("infiniband.cm.rej.reason", "/cm/reason", Number),
    ("infiniband.cm.dreq.localcommid", "/cm/local_id", Number),
    ("infiniband.cm.dreq.remotecommid", "/cm/remote_id", Number),
    ("infiniband.cm.req.remoteqpneecn", "/cm/remote_qpn", Number),
    ("infiniband.cm.drsp.localcommid", "/cm/local_id", Number),
    ("infiniband.cm.drsp.remotecommid", "/cm/remote_id", Number),
    ("tcp.srcport", "/tcp/source_port", Number),
    ("tcp.dstport", "/tcp/destination_port", Number),
    ("tcp.seq_raw", "/tcp/sequence", Number),
    ("tcp.ack_raw", "/tcp/acknowledgement", Number),
    ("tcp.window_size_value", "/tcp/window", Number),
    ("tcp.len", "/tcp/payload_length", Number),
    ("iwarp_mpa.marker_flag", "/iwarp/*/markers", Number),
    ("iwarp_mpa.crc_flag", "/iwarp/*[mpa]/crc", Number),
    ("iwarp_mpa.rej_flag", "/iwarp/*/rejected", Number),
    ("iwarp_mpa.rev", "/iwarp/*/revision", Number),
    ("iwarp_mpa.ulpdulength", "/iwarp/*/ulpdu_length", Number),
    ("iwarp_mpa.crc", "/iwarp/*/crc_bytes", Number),
    ("iwarp_ddp.tagged_flag", "/iwarp/*/ddp/tagged", Number),
    ("iwarp_ddp.last_flag", "/iwarp/*/ddp/last", Number),
    ("iwarp_ddp.stag", "/iwarp/*/ddp/stag", Number),
    ("iwarp_ddp.tagged_offset", "/iwarp/*/ddp/to", Number),
    ("iwarp_ddp.qn", "/iwarp/*/ddp/qn", Number),
    ("iwarp_ddp.msn", "/iwarp/*/ddp/msn", Number),
    ("iwarp_ddp.mo", "/iwarp/*/ddp/mo", Number),
    ("iwarp_rdma.opcode", "/iwarp/*/rdmap/opcode", Number),
    (
        "iwarp_rdma.sinkstag",
        "/iwarp/*/read_request/sink_stag",
        Number,
    ),
    ("iwarp_rdma.sinkto", "/iwarp/*/read_request/sink_to", Number),
    (
        "iwarp_rdma.rdmardsz",
        "/iwarp/*/read_request/length",
        Number,
    ),
    (
        "iwarp_rdma.srcstag",
        "/iwarp/*/read_request/source_stag",
        Number,
    ),
    (
        "iwarp_rdma.srcto",
        "/iwarp/*/read_request/source_to",
        Number,
    ),
];

/// Protocols that tshark guesses in the payload of RDMA, and thereby hides or mistakes it. So it
/// does with Ethernet, which is no name for this option.
const GUESSES: &[&str] = &[
    "rpcordma",
    "smb_direct",
    "nvme-rdma",
    "iser",
    "lnet",
    "smc",
    "infiniband.eoib",
];

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/captures");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("the captures are in the repository")
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect();
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

/// A file that is gone when the test is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("hirail-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The packets of several captures in one file, with the name and the place of each.
fn merged(files: &[PathBuf]) -> (Temporary, Vec<(String, usize)>) {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let mut places = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).unwrap();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let interface = writer
            .add_interface(&name(file), LinkType::ETHERNET)
            .unwrap();
        let mut number = 0;
        while let Some(packet) = reader.next_packet().unwrap() {
            number += 1;
            writer
                .write_packet(interface, packet.time_ns.unwrap(), &[packet.data], None)
                .unwrap();
            places.push((name(file), number));
        }
    }
    (
        Temporary::new("merged.pcapng", &writer.into_inner()),
        places,
    )
}

/// Whether tshark is there; says so where it is not.
fn tshark_is_there() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok();
    if !there {
        println!("skipped: tshark is not installed, so there is nothing to compare with");
    }
    there
}

/// The fields of each packet as tshark sees them.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-n", "-T", "fields"]);
    command.args([
        "-E",
        "separator=|",
        "-E",
        "aggregator=;",
        "-E",
        "occurrence=a",
    ]);
    for guess in GUESSES {
        command.args(["--disable-protocol", guess]);
    }
    command.args(["--disable-heuristic", "eth_over_ib"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", file.display());
    let text = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
    text.lines()
        .map(|line| line.split('|').map(str::to_owned).collect())
        .collect()
}

fn hirail(file: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(["decode", "--json"])
        .arg(file)
        .output()
        .expect("hirail runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("hirail writes JSON")
}

/// Our values under a pointer.
fn ours(packet: &Value, pointer: &str) -> Vec<Value> {
    if let Some(rest) = pointer.strip_prefix("/{reth,atomiceth}") {
        return ["/reth", "/atomiceth"]
            .iter()
            .flat_map(|at| ours(packet, &format!("{at}{rest}")))
            .collect();
    }
    let Some((array, rest)) = pointer.split_once("/*") else {
        let value = packet.pointer(pointer).filter(|value| !value.is_null());
        return value.cloned().into_iter().collect();
    };
    let (only_mpa, rest) = match rest.strip_prefix("[mpa]") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let elements = packet.pointer(array).and_then(Value::as_array);
    elements
        .into_iter()
        .flatten()
        .filter(|element| !only_mpa || element["frame"] != "fpdu")
        // Of an FPDU, "markers" lists them; of a startup frame it says whether they are wanted.
        .filter_map(|element| {
            element
                .pointer(rest)
                .filter(|value| !value.is_array())
                .cloned()
        })
        .collect()
}

/// A value of ours in a form that compares.
fn plain(value: &Value, form: Form) -> String {
    match (form, value) {
        (Text, _) => value.as_str().unwrap().to_lowercase(),
        (_, Value::Bool(set)) => u128::from(*set).to_string(),
        (_, Value::String(text)) => {
            let digits = text.trim_start_matches("0x");
            u128::from_str_radix(digits, 16)
                .expect("hexadecimal digits")
                .to_string()
        }
        (_, number) => number.as_u64().expect("a number").to_string(),
    }
}

/// A value of tshark's in a form that compares.
fn their_plain(value: &str, form: Form) -> String {
    let hexadecimal = |digits: &str| u128::from_str_radix(digits, 16).unwrap().to_string();
    match form {
        Text => value.to_lowercase(),
        Bytes => hexadecimal(&value.replace(':', "")),
        Length => value.to_owned(),
        Number => match value {
            "True" => "1".to_owned(),
            "False" => "0".to_owned(),
            _ => match value.strip_prefix("0x") {
                Some(digits) => hexadecimal(digits),
                None => value.parse::<u128>().unwrap().to_string(),
            },
        },
    }
}

#[test]
fn every_field_of_every_capture() {
    if !tshark_is_there() {
        return;
    }
    let names: Vec<_> = FIELDS.iter().map(|(name, ..)| *name).collect();
    let mut compared = BTreeMap::<&str, usize>::new();
    let mut differences = Vec::new();
    // Starting tshark takes half a second, so the captures of RoCE, whose packets do not depend on
    // each other, make one file. A TCP stream of iWARP does depend on what was before.
    let (iwarp, roce): (Vec<_>, Vec<_>) = captures()
        .into_iter()
        .partition(|file| name(file).starts_with("siw"));
    let groups = [roce]
        .into_iter()
        .chain(iwarp.into_iter().map(|file| vec![file]));
    for (file, places) in groups.map(|files| merged(&files)) {
        let theirs = tshark(&file.0, &names);
        let packets = hirail(&file.0);
        assert_eq!(packets.len(), places.len());
        assert_eq!(theirs.len(), places.len());
        for ((packet, values), (file, number)) in packets.iter().zip(&theirs).zip(&places) {
            for ((name, pointer, form), value) in FIELDS.iter().zip(values) {
                if value.is_empty() {
                    continue;
                }
                let mut their: Vec<_> = value.split(';').map(|v| their_plain(v, *form)).collect();
                let our: Vec<_> = ours(packet, pointer)
                    .iter()
                    .map(|v| plain(v, *form))
                    .collect();
                // tshark lists some fields twice, once under the header and once for itself.
                if !pointer.contains('*') {
                    their.dedup();
                }
                // What tshark calls data it leaves to nobody: the payload with its pad.
                if matches!(form, Length) {
                    let Some(pad) = packet["bth"]["pad"].as_u64() else {
                        continue;
                    };
                    their = vec![(their[0].parse::<u64>().unwrap() - pad).to_string()];
                }
                *compared.entry(name).or_default() += 1;
                if our != their {
                    differences.push(format!("{file} {number} {name}: {our:?}, tshark {their:?}"));
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    // A field that never occurs would be compared in vain: then its name is wrong.
    let never: Vec<_> = names
        .iter()
        .filter(|name| !compared.contains_key(*name))
        .collect();
    assert!(never.is_empty(), "never seen by tshark: {never:?}");
    let total: usize = compared.values().sum();
    println!("{total} values of {} fields agree", compared.len());
    assert!(total > 50_000, "{total}");
}

/// What we write, tshark reads: names, comments, nanoseconds.
#[test]
fn tshark_reads_our_pcapng() {
    if !tshark_is_there() {
        return;
    }
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    let first = writer.add_interface("hirail0", LinkType::ETHERNET).unwrap();
    let second = writer
        .add_interface("hirail_lo", LinkType::ETHERNET)
        .unwrap();
    let frame = [0x5a; 61];
    writer
        .write_packet(
            first,
            1_700_000_000_123_456_789,
            &[&frame[..7], &frame[7..]],
            None,
        )
        .unwrap();
    writer
        .write_packet(
            second,
            1_700_000_000_123_456_790,
            &[&frame],
            Some("dropped: bad_icrc"),
        )
        .unwrap();
    let path = Temporary::new("written.pcapng", &file);
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.comment",
        "frame.len",
    ];
    let seen = tshark(&path.0, &fields);
    assert_eq!(seen[0], ["1700000000.123456789", "hirail0", "", "61"]);
    assert_eq!(
        seen[1],
        [
            "1700000000.123456790",
            "hirail_lo",
            "dropped: bad_icrc",
            "61"
        ]
    );
    assert_eq!(seen.len(), 2);
}
