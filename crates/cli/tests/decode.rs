//! `hirail decode`: what people see (compared with files that were read and found right), what
//! scripts get, and what bad input gets.
//!
//! `UPDATE_EXPECT=1` rewrites the files.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expect_test::expect_file;
use hirail_wire::ethernet::{EtherType, EthernetHeader, MacAddr, VlanTag};
use hirail_wire::grh::Grh;
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_TCP};
use hirail_wire::iwarp::{
    Ddp, Opcode as Rdmap, Revision, Segment, Startup, StartupKind, TcpHeader, emit_fpdu,
};
use hirail_wire::lldp::{ApplicationPriority, LldpWriter, PfcConfiguration};
use hirail_wire::mac_control::{MacControl, Pfc};
use hirail_wire::pcap::{LinkType, Writer};
use hirail_wire::{
    Aeth, AtomicEth, Bth, Credits, Encapsulation, Ext, Feth, FlushRange, Framing, Headers, Hello,
    Msn, Opcode, Operation, Psn, Qpn, Reth, Rkey, Sack, Service, Syndrome,
};
use serde_json::Value;

fn hirail(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(args)
        .output()
        .expect("hirail runs")
}

/// Runs `hirail decode` on a file's content.
fn decode(args: &[&str], content: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(["decode", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hirail runs");
    let mut stdin = child.stdin.take().unwrap();
    let content = content.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&content));
    let output = child.wait_with_output().unwrap();
    // A refused file need not be read to its end.
    let _ = feeder.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("hirail writes UTF-8")
}

fn good(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

fn json(output: Output) -> Vec<Value> {
    serde_json::from_str(&good(output)).expect("hirail writes JSON")
}

fn capture(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/captures");
    directory.join(format!("{name}.pcap"))
}

fn all_captures() -> Vec<PathBuf> {
    let directory = capture("x").parent().unwrap().to_owned();
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect();
    files.sort();
    files
}

/// The lines of captures that show one thing each.
#[test]
fn lines_for_people() {
    for name in [
        "rc-send-imm",
        "rc-wire-loss-request",
        "rc-wire-loss-read",
        "rc-wire-loss-atomic",
        "rc-wire-duplicate",
        "rc-wire-reorder",
        "rc-wire-corrupt",
        "rc-psn-wrap-read",
        "rc-ecn-ce",
        "rnr-then-ok",
        "cm-rping",
        "cm-ucmatose-2conn",
        "cm-reject",
        "cm-udaddy",
        "rc-send-ipv6-linklocal",
        "siw-rping",
        "siw-read-bw",
    ] {
        let output = good(hirail(&["decode", capture(name).to_str().unwrap()]));
        expect_file![format!("data/decode/{name}.txt")].assert_eq(&output);
    }
}

/// The tables of all captures, one after the other.
#[test]
fn tables_for_people() {
    let mut output = String::new();
    for file in all_captures() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let table = good(hirail(&["decode", "--summary", file.to_str().unwrap()]));
        output.push_str(&format!("{name}\n{table}\n"));
    }
    expect_file!["data/decode/summaries.txt"].assert_eq(&output);
}

/// Every ICRC of the captures is right but the 11 that were damaged on purpose.
#[test]
fn icrcs_of_all_captures() {
    let mut counts = [0; 3];
    for file in all_captures() {
        let packets = json(hirail(&["decode", "--json", file.to_str().unwrap()]));
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let bad = packets
            .iter()
            .filter(|packet| packet["icrc"] == "bad")
            .count();
        assert_eq!(
            bad,
            if name == "rc-wire-corrupt.pcap" {
                11
            } else {
                0
            },
            "{name}"
        );
        for packet in &packets {
            let at = match packet["icrc"].as_str().unwrap() {
                "ok" => 0,
                "bad" => 1,
                "unknown" => 2,
                other => panic!("{other}"),
            };
            counts[at] += 1;
            assert_eq!(
                at == 2,
                packet.get("bth").is_none(),
                "{name}: unknown without RoCE only"
            );
        }
    }
    assert_eq!(counts[1], 11);
    assert!(counts[0] > 1900 && counts[2] > 300, "{counts:?}");
}

/// Numbers that must hold whatever the words are.
#[test]
fn tables_for_scripts() {
    let table = |name: &str| {
        let file = capture(name);
        json(hirail(&[
            "decode",
            "--summary",
            "--json",
            file.to_str().unwrap(),
        ]))
    };
    let loss = &table("rc-wire-loss-request")[0];
    assert_eq!(loss["service"], "RC");
    assert_eq!(loss["sent"][0]["messages"]["write"], 6);
    assert_eq!(loss["sent"][0]["bytes"], 6 * 4096);
    assert_eq!(loss["sent"][0]["naks"], 6);
    // 24 packets make 6 messages of 4096 bytes; the rest came again.
    assert_eq!(
        loss["sent"][0]["retransmissions"].as_u64().unwrap(),
        47 - 24 + 5
    );
    assert_eq!(loss["sent"][0]["missing"], 0);
    // 40 packets of 24; six came late, which are not counted as sent again.
    assert_eq!(
        table("rc-wire-reorder")[0]["sent"][0]["retransmissions"],
        40 - 24
    );
    assert_eq!(table("rc-wire-duplicate")[0]["sent"][0]["duplicates"], 9);
    assert_eq!(table("rc-wire-corrupt")[0]["sent"][0]["bad_icrc"], 11);
    assert_eq!(table("rc-ecn-ce")[0]["sent"][0]["ce_marked"], 8);
    assert_eq!(table("rnr-exceeded")[0]["sent"][0]["rnr_naks"], 3);
    let rping = &table("cm-rping")[0];
    assert_eq!(
        (&rping["wanted"], &rping["state"]),
        (&"tcp/7174".into(), &"disconnected".into())
    );
    assert_eq!(rping["sent"][1]["messages"]["read"], 3);
    assert_eq!(table("cm-ucmatose-2conn").len(), 2);
    assert_eq!(table("rc-send-bw-2qp").len(), 2);
}

/// Both ends of every RC connection are found, also without a CM exchange.
#[test]
fn both_ends_are_found() {
    for file in all_captures() {
        let connections = json(hirail(&[
            "decode",
            "--summary",
            "--json",
            file.to_str().unwrap(),
        ]));
        for connection in connections {
            let rejected = connection["state"]
                .as_str()
                .is_some_and(|s| s.starts_with("rejected"));
            if connection["service"] == "RC" && !rejected {
                assert_ne!(connection["tied_by"], "one way", "{}", file.display());
                assert!(connection["ends"][0]["qpn"].is_u64(), "{}", file.display());
                assert!(connection["ends"][1]["qpn"].is_u64(), "{}", file.display());
            }
        }
    }
}

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn ipv4(source: Ipv4Addr, dest: Ipv4Addr, id: u16, traffic_class: u8) -> Framing {
    let ip = IpHeader::V4(Ipv4Header {
        traffic_class,
        id,
        dont_fragment: true,
        ttl: 64,
        protocol: 17,
        source,
        dest,
    });
    Framing::V2 {
        ip,
        source_port: 0xc123,
        udp_checksum: false,
    }
}

fn frame(framing: Framing, tag: Option<VlanTag>, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let encapsulation = Encapsulation {
        dest: MAC_B,
        source: MAC_A,
        tag,
        framing,
    };
    let mut frame = vec![0; encapsulation.frame_len(headers, payload.len())];
    encapsulation.emit_frame(headers, payload, &mut frame);
    frame
}

fn headers(service: Service, operation: Operation, qp: u32, psn: u32, ext: Ext) -> Headers {
    let opcode = Opcode::new(service, operation).expect("an opcode");
    let bth = Bth::new(opcode, Qpn::new(qp), Psn::new(psn));
    let srqn = opcode.has_xrceth().then_some(0x99);
    Headers::new(bth, srqn, ext).expect("legal headers")
}

/// A capture with these frames, a microsecond and a nanosecond apart.
fn capture_of(frames: &[(Vec<u8>, Option<&str>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let port = writer.add_interface("hirail0", LinkType::ETHERNET).unwrap();
    for (at, (frame, comment)) in (0..).zip(frames) {
        writer
            .write_packet(
                port,
                1_700_000_000_000_000_000 + at * 1001,
                &[frame],
                *comment,
            )
            .unwrap();
    }
    writer.into_inner()
}

fn plain<const N: usize>(frames: [Vec<u8>; N]) -> Vec<u8> {
    capture_of(&frames.map(|frame| (frame, None)))
}

/// What no capture at hand shows: every other kind of packet, and refused ones.
#[test]
fn everything_else() {
    use Service::{Cnp, Manufacturer, Rc, Ud, Xrc};
    let reth = |length| Reth {
        va: 0x7f00_0000_1000,
        rkey: Rkey::new(0x1234),
        length,
    };
    let aeth = |syndrome| {
        Ext::Aeth(Aeth {
            syndrome,
            msn: Msn::new(1),
        })
    };
    let ack = aeth(Syndrome::Ack(Credits::from_available(24)));
    let v1 = |sgid: Ipv4Addr, dgid: Ipv4Addr| {
        let (sgid, dgid) = (sgid.into(), dgid.into());
        Framing::V1(Grh {
            traffic_class: 0x68,
            flow_label: 7,
            hop_limit: 1,
            sgid,
            dgid,
        })
    };
    let v6 = Framing::V2 {
        ip: IpHeader::V6(Ipv6Header {
            traffic_class: 0x6b,
            flow_label: 0,
            next_header: 17,
            hop_limit: 64,
            source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            dest: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        }),
        source_port: 0xc000,
        udp_checksum: true,
    };
    let tag = Some(VlanTag {
        priority: 3,
        drop_eligible: false,
        vlan: 100,
    });
    let send = headers(Rc, Operation::SendOnly, 0x11, 5, Ext::None);
    let flush = Feth {
        range: FlushRange::Range,
        global: true,
        persistent: true,
    };
    let mut sack = Sack::new(Psn::new(7), false);
    sack.insert(Psn::new(9));
    let hello = Hello {
        version: Hello::VERSION,
        flags: Hello::SELECTIVE_REPEAT,
        window_packets: 256,
        nonce: 0xabcd,
    };
    let mut cnp = headers(Cnp, Operation::Cnp, 0x12, 0, Ext::Cnp);
    cnp = Headers::new(
        Bth {
            becn: true,
            ..*cnp.bth()
        },
        None,
        Ext::Cnp,
    )
    .unwrap();
    let atomic = AtomicEth {
        va: 0x7f00_0000_2000,
        rkey: Rkey::new(0x1234),
        swap_or_add: 1,
        compare: 0,
    };
    let forth = |id| ipv4(A, B, id, 0);
    let back = |id| ipv4(B, A, id, 0);
    let mut frames = vec![
        (frame(v1(A, B), None, &send, b"version 1"), None),
        (
            frame(
                v1(B, A),
                tag,
                &headers(Rc, Operation::Acknowledge, 0x12, 5, ack),
                b"",
            ),
            None,
        ),
        (
            frame(
                v6,
                None,
                &headers(
                    Rc,
                    Operation::WriteOnlyImm,
                    0x13,
                    1,
                    Ext::RethImm(reth(3), *b"imm!"),
                ),
                b"abc",
            ),
            Some("marked on the way"),
        ),
        (
            frame(
                forth(1),
                None,
                &headers(Xrc, Operation::SendOnlyImm, 0x21, 1, Ext::Imm([0, 0, 0, 9])),
                b"xrc",
            ),
            None,
        ),
        (
            frame(
                back(1),
                None,
                &headers(Xrc, Operation::Acknowledge, 0x22, 1, ack),
                b"",
            ),
            None,
        ),
        (
            frame(
                forth(2),
                None,
                &headers(Xrc, Operation::FetchAdd, 0x21, 2, Ext::Atomic(atomic)),
                b"",
            ),
            None,
        ),
        (
            frame(
                forth(3),
                None,
                &headers(Rc, Operation::WriteOnly, 0x11, 5, Ext::Reth(reth(8))),
                &[1; 8],
            ),
            None,
        ),
        (
            frame(
                forth(4),
                None,
                &headers(Rc, Operation::Flush, 0x11, 6, Ext::Flush(flush, reth(8))),
                b"",
            ),
            None,
        ),
        (
            frame(
                back(2),
                None,
                &headers(Rc, Operation::ReadResponseOnly, 0x12, 6, ack),
                b"",
            ),
            None,
        ),
        (
            frame(
                forth(5),
                None,
                &headers(Rc, Operation::AtomicWrite, 0x11, 7, Ext::Reth(reth(8))),
                &[2; 8],
            ),
            None,
        ),
        (
            frame(
                back(3),
                None,
                &headers(Rc, Operation::ReadResponseOnly, 0x12, 7, ack),
                b"",
            ),
            None,
        ),
        (frame(back(4), None, &cnp, b""), None),
        (
            frame(
                forth(6),
                None,
                &headers(Manufacturer, Operation::Hello, 0x11, 0, Ext::Hello(hello)),
                b"",
            ),
            None,
        ),
        (
            frame(
                back(5),
                None,
                &headers(Manufacturer, Operation::Sack, 0x12, 7, Ext::Sack(sack)),
                b"",
            ),
            None,
        ),
        (
            frame(
                forth(7),
                None,
                &headers(
                    Ud,
                    Operation::SendOnly,
                    1,
                    0,
                    Ext::Deth(hirail_wire::Deth {
                        qkey: hirail_wire::QKey::GSI,
                        source_qp: Qpn::GSI,
                    }),
                ),
                &[0; 256],
            ),
            None,
        ),
    ];
    // Refused, one way after the other; the ICRC of what was changed is wrong.
    let mut unknown = frame(forth(8), None, &send, b"abcd");
    unknown[42] = 0x1f;
    let mut version = frame(forth(9), None, &send, b"abcd");
    version[43] |= 1;
    let mut checksum = frame(forth(10), None, &send, b"abcd");
    checksum[24] ^= 1;
    let mut fragment = frame(forth(11), None, &send, b"abcd");
    fragment[20] = 0x20;
    // The checksum follows: 0x4000 less in the header, 0x2000 more in turn.
    let sum = u32::from(u16::from_be_bytes([fragment[24], fragment[25]])) + 0x2000;
    let [.., high, low] = (sum % 0xffff).to_be_bytes();
    fragment[24..26].copy_from_slice(&[high, low]);
    frames.extend([unknown, version, checksum, fragment].map(|frame| (frame, None)));
    // Not RoCE at all.
    let pfc = MacControl::Pfc(Pfc::new().with(3, 65535).with(4, 0));
    let pause = MacControl::Pause { quanta: 100 };
    frames.extend([pfc, pause].map(|control| (control.to_frame(MAC_A).to_vec(), None)));
    let mut lldp = vec![0; 200];
    let ethernet = EthernetHeader {
        dest: MacAddr::LLDP,
        source: MAC_A,
        tag: None,
        ether_type: EtherType::LLDP,
    };
    let start = ethernet.emit(&mut lldp);
    let mut writer = LldpWriter::new(&mut lldp[start..], MAC_A, MAC_A, 120);
    writer.pfc(&PfcConfiguration {
        willing: true,
        macsec_bypass: false,
        capacity: 8,
        enabled: 0b1000,
    });
    writer.application_priorities(&[
        ApplicationPriority::roce_v2(3),
        ApplicationPriority::dscp(3, 26),
    ]);
    let end = start + writer.finish();
    lldp.truncate(end);
    frames.push((lldp, None));
    let mut arp = vec![0; 60];
    EthernetHeader {
        dest: MacAddr::BROADCAST,
        source: MAC_A,
        tag: None,
        ether_type: EtherType(0x0806),
    }
    .emit(&mut arp);
    frames.push((arp, None));
    frames.push((vec![0xff; 9], None));

    let file = capture_of(&frames);
    expect_file!["data/decode/everything-else.txt"].assert_eq(&good(decode(&[], &file)));
    expect_file!["data/decode/everything-else.summary.txt"]
        .assert_eq(&good(decode(&["--summary"], &file)));
    let lines = good(decode(&["--json"], &file));
    expect_file!["data/decode/everything-else.json"].assert_eq(&lines);
    let packets: Vec<Value> = serde_json::from_str(&lines).unwrap();
    assert_eq!(packets.len(), frames.len());
    let reason = |at: usize| {
        packets[at]["refused"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let reasons = [reason(15), reason(16), reason(17), reason(18)];
    assert_eq!(
        reasons,
        [
            "unknown_opcode",
            "bad_tver",
            "bad_ip_checksum",
            "fragmented"
        ]
    );
    // The ICRC covers neither the IPv4 checksum nor anything that was not changed.
    assert_eq!(
        [15, 16, 17, 18].map(|at| &packets[at]["icrc"]),
        ["bad", "bad", "ok", "bad"]
    );
    assert_eq!(decode(&["--check"], &file).status.code(), Some(1));
}

/// A capture that was told to keep the first bytes only.
#[test]
fn packets_that_are_cut_short() {
    let reth = Reth {
        va: 0x1000,
        rkey: Rkey::new(1),
        length: 1024,
    };
    let headers = headers(Service::Rc, Operation::WriteOnly, 0x11, 5, Ext::Reth(reth));
    let whole = frame(ipv4(A, B, 1, 0), None, &headers, &[7; 1023]);
    for kept in 0..whole.len() {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend([0; 8]);
        file.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
        file.extend([0; 8]);
        file.extend(u32::try_from(kept).unwrap().to_le_bytes());
        file.extend(u32::try_from(whole.len()).unwrap().to_le_bytes());
        file.extend(&whole[..kept]);
        if kept % 16 != 0 && kept > 90 {
            continue;
        }
        let packets = json(decode(&["--json", "--check"], &file));
        assert_eq!(packets[0]["icrc"], "unknown", "{kept}");
        assert!(
            packets[0].get("refused").is_none(),
            "{kept}: nobody refused it"
        );
        assert_eq!(packets[0].get("bth").is_some(), kept >= 42, "{kept}");
        if kept >= 70 {
            // All headers are there, so the packet can be followed.
            assert_eq!(packets[0]["reth"]["length"], 1024);
            assert_eq!(packets[0]["payload_length"], 1023);
            assert_eq!(packets[0]["message"]["number"], 1);
        }
    }
}

/// Two QPs of one host: both directions look alike, until one answers the other.
#[test]
fn loopback() {
    let on_lo = |source_port, headers: Headers, payload: &[u8]| {
        let mut framing = ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0, 0);
        if let Framing::V2 {
            source_port: port, ..
        } = &mut framing
        {
            *port = source_port;
        }
        frame(framing, None, &headers, payload)
    };
    let send = |port, qp, psn| {
        on_lo(
            port,
            headers(Service::Rc, Operation::SendOnly, qp, psn, Ext::None),
            b"ping",
        )
    };
    let ack = |port, qp, psn| {
        let aeth = Aeth {
            syndrome: Syndrome::Ack(Credits::NONE),
            msn: Msn::new(1),
        };
        on_lo(
            port,
            headers(
                Service::Rc,
                Operation::Acknowledge,
                qp,
                psn,
                Ext::Aeth(aeth),
            ),
            b"",
        )
    };
    // Two connections ask before any of them is answered.
    let file = plain([
        send(0xc001, 0x21, 10),
        send(0xc002, 0x31, 50),
        send(0xc003, 0x32, 900),
        ack(0xc003, 0x32, 50),
        ack(0xc001, 0x22, 10),
        ack(0xc002, 0x31, 900),
    ]);
    let connections = json(decode(&["--summary", "--json"], &file));
    let ends = |at: usize| {
        let qpn = |end: usize| connections[at]["ends"][end]["qpn"].as_u64();
        (qpn(0), qpn(1))
    };
    assert_eq!(connections.len(), 2, "{connections:#?}");
    assert_eq!(ends(0), (Some(0x22), Some(0x21)));
    assert_eq!(ends(1), (Some(0x32), Some(0x31)));
    for connection in &connections {
        assert_eq!(connection["tied_by"], "answers");
    }
    assert_eq!(connections[1]["sent"][0]["packets"], 2);
    assert_eq!(connections[1]["sent"][1]["packets"], 2);
    let packets = json(decode(&["--json"], &file));
    assert_eq!(packets[3]["events"][0]["event"], "joined");
    assert_eq!(packets[5]["events"][0]["event"], "acknowledges");
    assert_eq!(packets[5]["connection"]["number"], 2);
}

/// A packet that is sent again after a refusal is no copy, however soon it comes and although its
/// Identification is the same.
#[test]
fn identifications_that_tell_nothing() {
    let send = || {
        let headers = headers(Service::Rc, Operation::SendOnly, 0x11, 1, Ext::None);
        frame(ipv4(A, B, 0, 0), None, &headers, b"data")
    };
    let rnr = {
        let syndrome = Syndrome::Rnr(hirail_wire::RnrTimer::new(1));
        let aeth = Aeth {
            syndrome,
            msn: Msn::new(0),
        };
        frame(
            ipv4(B, A, 0, 0),
            None,
            &headers(
                Service::Rc,
                Operation::Acknowledge,
                0x12,
                1,
                Ext::Aeth(aeth),
            ),
            b"",
        )
    };
    let packets = json(decode(&["--json"], &plain([send(), rnr, send(), send()])));
    let event = |at: usize| {
        packets[at]["events"][0]["event"]
            .as_str()
            .unwrap_or_default()
    };
    assert_eq!([event(1), event(2)], ["rnr", "retransmission"]);
    assert_eq!(event(3), "retransmission", "still wanted");
}

/// Segments of one direction of a TCP stream, from sequence number 1000 on.
struct TcpSide {
    source: (Ipv4Addr, u16),
    dest: (Ipv4Addr, u16),
    sequence: u32,
}

impl TcpSide {
    fn segment(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = TcpHeader {
            source_port: self.source.1,
            dest_port: self.dest.1,
            sequence: self.sequence,
            acknowledgement: 1,
            flags: TcpHeader::ACK | TcpHeader::PSH,
            window: 500,
        };
        self.sequence += u32::try_from(payload.len()).unwrap();
        let ip = Ipv4Header {
            traffic_class: 0,
            id: 1,
            dont_fragment: true,
            ttl: 64,
            protocol: PROTOCOL_TCP,
            source: self.source.0,
            dest: self.dest.0,
        };
        let ethernet = EthernetHeader {
            dest: MAC_B,
            source: MAC_A,
            tag: None,
            ether_type: EtherType::IPV4,
        };
        let mut frame = vec![0; 14];
        ethernet.emit(&mut frame);
        frame.extend(ip.to_bytes(TcpHeader::LEN + payload.len()));
        frame.extend(header.to_bytes());
        frame.extend(payload);
        frame
    }
}

/// iWARP with CRC and markers, cut into segments that do not heed FPDUs, one of them lost at first
/// and one FPDU damaged.
#[test]
fn iwarp_with_markers_and_crc() {
    let startup = |kind| {
        let startup = Startup {
            kind,
            markers: kind == StartupKind::Reply,
            crc: true,
            rejected: false,
            revision: Revision::One,
            private_data: b"hi",
        };
        let mut buffer = [0; 532];
        let len = startup.emit(&mut buffer);
        buffer[..len].to_vec()
    };
    // The reply asks for markers: what the first end sends has them.
    let mut stream = Vec::new();
    let fpdu = |segment: Segment, payload: &[u8], stream: &mut Vec<u8>| {
        let mut ulpdu = vec![0; segment.header_len()];
        segment.emit(&mut ulpdu);
        ulpdu.extend(payload);
        let position = Some(stream.len() as u64);
        emit_fpdu(&ulpdu, position, true, stream);
    };
    let write = |last, offset| {
        Segment::new(Rdmap::Write, last, Ddp::Tagged { stag: 0x77, offset }).unwrap()
    };
    let send = |msn| {
        let ddp = Ddp::Untagged {
            invalidate: 0,
            queue: 0,
            msn,
            offset: 0,
        };
        Segment::new(Rdmap::Send, true, ddp).unwrap()
    };
    fpdu(write(false, 0x1000), &[1; 1000], &mut stream);
    fpdu(write(true, 0x13e8), &[2; 500], &mut stream);
    fpdu(send(1), b"first", &mut stream);
    let damaged = stream.len() + 25;
    fpdu(send(2), b"second", &mut stream);
    stream[damaged] ^= 1;
    fpdu(send(3), b"", &mut stream);
    let terminate = Segment::new(
        Rdmap::Terminate,
        true,
        Ddp::Untagged {
            invalidate: 0,
            queue: 2,
            msn: 1,
            offset: 0,
        },
    )
    .unwrap();
    fpdu(terminate, &[0x20, 2, 0, 0], &mut stream);

    let mut first = TcpSide {
        source: (A, 40_000),
        dest: (B, 7174),
        sequence: 1000,
    };
    let mut second = TcpSide {
        source: (B, 7174),
        dest: (A, 40_000),
        sequence: 5000,
    };
    let mut frames = vec![
        first.segment(&startup(StartupKind::Request)),
        second.segment(&startup(StartupKind::Reply)),
    ];
    let mut pieces: Vec<_> = stream
        .chunks(700)
        .map(|piece| first.segment(piece))
        .collect();
    // One segment is lost and comes when TCP sends it again, another one comes twice.
    let lost = pieces.remove(1);
    frames.push(pieces[0].clone());
    frames.extend(pieces[1..].iter().cloned());
    frames.push(lost);
    frames.push(pieces[0].clone());
    let frames: Vec<_> = frames.into_iter().map(|frame| (frame, None)).collect();
    let file = capture_of(&frames);
    expect_file!["data/decode/iwarp-markers.txt"].assert_eq(&good(decode(&[], &file)));
    let packets = json(decode(&["--json"], &file));
    let units: Vec<_> = packets
        .iter()
        .filter_map(|packet| packet["iwarp"].as_array())
        .flatten()
        .collect();
    let crcs: Vec<_> = units
        .iter()
        .filter(|unit| unit["frame"] == "fpdu")
        .map(|unit| &unit["crc"])
        .collect();
    assert_eq!(crcs, ["ok", "ok", "ok", "bad", "ok", "ok"]);
    let markers: usize = units
        .iter()
        .filter_map(|unit| unit["markers"].as_array())
        .map(Vec::len)
        .sum();
    assert_eq!(markers, stream.len().div_ceil(512));
    assert_eq!(decode(&["--check"], &file).status.code(), Some(1));
}

/// Captures of `tcpdump -i any` and of IP tunnels begin with other headers than Ethernet's.
#[test]
fn other_link_types() {
    let send = headers(Service::Rc, Operation::SendOnly, 0x11, 1, Ext::None);
    let ethernet = frame(ipv4(A, B, 1, 0), None, &send, b"data");
    let packet = &ethernet[14..];
    let mut sll = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 0xa, 0, 0, 0x08, 0];
    sll.extend(packet);
    let mut sll2 = vec![
        0x08, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 0xa, 0, 0,
    ];
    sll2.extend(packet);
    let mut null = vec![2, 0, 0, 0];
    null.extend(packet);
    for (link_type, data) in [
        (LinkType::RAW, packet),
        (LinkType::IPV4, packet),
        (LinkType::LINUX_SLL, &sll),
        (LinkType::LINUX_SLL2, &sll2),
        (LinkType::NULL, &null),
    ] {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let port = writer.add_interface("any", link_type).unwrap();
        writer.write_packet(port, 0, &[data], None).unwrap();
        let packets = json(decode(&["--json"], &writer.into_inner()));
        assert_eq!(packets[0]["icrc"], "ok", "{link_type}");
        assert_eq!(packets[0]["bth"]["psn"], 1, "{link_type}");
        assert!(packets[0].get("ethernet").is_none(), "{link_type}");
    }
}

/// Bad input gets one sentence that names it and what would be right, and status 2.
#[test]
fn bad_input() {
    let sentence = |output: Output| {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let missing = sentence(hirail(&["decode", "no-such-file.pcap"]));
    assert!(missing.contains("'no-such-file.pcap'"), "{missing}");
    for content in [&b""[..], b"\x7fELF", b"just text, no capture"] {
        let output = decode(&[], content);
        assert_eq!(text(&output.stdout), "");
        let error = sentence(output);
        assert!(
            error.starts_with("hirail: standard input: ") && error.contains("pcap or pcapng"),
            "{error}"
        );
    }
    let directory = sentence(hirail(&["decode", env!("CARGO_MANIFEST_DIR")]));
    assert!(
        directory.contains(env!("CARGO_MANIFEST_DIR")),
        "{directory}"
    );
    let nothing = sentence(hirail(&["decode", "-c", "0", "x.pcap"]));
    assert!(nothing.contains("'0'"), "{nothing}");
}

/// A file that was cut off shows what is in front of the cut, then the error.
#[test]
fn a_file_that_is_cut_off() {
    let whole = std::fs::read(capture("rc-send-only")).unwrap();
    let complete = good(decode(&[], &whole));
    let cut = decode(&[], &whole[..whole.len() - 1]);
    assert_eq!(cut.status.code(), Some(2));
    let shown = text(&cut.stdout);
    assert_eq!(shown.lines().count(), complete.lines().count() - 1);
    assert!(complete.starts_with(&shown));
    assert!(
        text(&cut.stderr).contains("cut off at offset"),
        "{}",
        text(&cut.stderr)
    );
    let packets: Vec<Value> =
        serde_json::from_slice(&decode(&["--json"], &whole[..whole.len() - 1]).stdout)
            .expect("the array is closed");
    assert_eq!(packets.len(), 15);
}

#[test]
fn check_finds_wrong_icrcs() {
    let run = |name: &str| {
        hirail(&[
            "decode",
            "--check",
            "--summary",
            capture(name).to_str().unwrap(),
        ])
    };
    assert_eq!(run("rc-wire-corrupt").status.code(), Some(1));
    assert_eq!(run("rc-write-bw").status.code(), Some(0));
    assert_eq!(run("siw-rping").status.code(), Some(0));
}

#[test]
fn one_connection_only() {
    let file = capture("cm-ucmatose-2conn");
    let file = file.to_str().unwrap();
    let packets = json(hirail(&["decode", "--json", "-c", "2", file]));
    assert_eq!(packets.len(), 9);
    assert!(
        packets
            .iter()
            .all(|packet| packet["connection"]["number"] == 2)
    );
    assert_eq!(
        json(hirail(&["decode", "--json", "-s", "-c", "2", file])).len(),
        1
    );
}

/// A number that no connection has is a mistake in every form of output.
#[test]
fn no_such_connection() {
    let two = std::fs::read(capture("cm-ucmatose-2conn")).unwrap();
    let no_packets = plain([]);
    for form in [&["-c", "99"][..], &["-s", "-c99"], &["--json", "-c99"]] {
        for (content, known) in [(&two, "there are 1 to 2"), (&no_packets, "there are none")] {
            let output = decode(form, content);
            assert_eq!(output.status.code(), Some(2), "{form:?}");
            assert_eq!(text(&output.stdout), "", "{form:?}");
            let expected = format!("hirail: there is no connection 99; {known}\n");
            assert_eq!(text(&output.stderr), expected, "{form:?}");
        }
    }
}

/// `hirail decode FILE | head -1` is nobody's mistake.
#[test]
fn a_reader_that_goes_away() {
    let frames: Vec<_> = (0..20_000u32)
        .map(|psn| {
            let send = headers(Service::Rc, Operation::SendOnly, 0x11, psn, Ext::None);
            (frame(ipv4(A, B, 0, 0), None, &send, b"data"), None)
        })
        .collect();
    let file = capture_of(&frames);
    let mut child = Command::new(env!("CARGO_BIN_EXE_hirail"))
        .args(["decode", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&file));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

/// A small generator of numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// All three kinds of output for a capture that makes no sense.
fn survives(file: &[u8], packets: usize) {
    let lines = good(decode(&[], file));
    assert!(lines.lines().count() > packets);
    assert_eq!(json(decode(&["--json"], file)).len(), packets);
    good(decode(&["--summary"], file));
    json(decode(&["--summary", "--json"], file));
}

/// Frames with bytes changed and ends cut off.
#[test]
fn damaged_frames() {
    let mut random = Random(1);
    let mut writer = Writer::new(Vec::new()).unwrap();
    let port = writer.add_interface("x", LinkType::ETHERNET).unwrap();
    let mut count = 0;
    for file in all_captures() {
        let bytes = std::fs::read(file).unwrap();
        let mut reader = hirail_wire::pcap::Reader::new(bytes.as_slice()).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            for _ in 0..4 {
                let mut data = packet.data.to_vec();
                for _ in 0..=random.below(3) {
                    let at = usize::try_from(random.below(data.len().min(100) as u64)).unwrap();
                    data[at] = random.below(256).to_le_bytes()[0];
                }
                if random.below(4) == 0 {
                    data.truncate(usize::try_from(random.below(data.len() as u64)).unwrap());
                }
                writer
                    .write_packet(port, random.below(1 << 40), &[&data], None)
                    .unwrap();
                count += 1;
            }
        }
    }
    survives(&writer.into_inner(), count);
}

/// Packets that are legal each, and senseless together: any operation of any service at any PSN.
#[test]
fn senseless_packets() {
    let mut random = Random(2);
    let mut frames = Vec::new();
    while frames.len() < 20_000 {
        let services = [
            Service::Rc,
            Service::Uc,
            Service::Ud,
            Service::Xrc,
            Service::Cnp,
        ];
        let Some(opcode) = Opcode::new(random.pick(&services), random.pick(Operation::ALL)) else {
            continue;
        };
        let far = if random.below(100) == 0 { 1 << 24 } else { 40 };
        let psn = Psn::new(u32::try_from(0xff_fff0 + random.below(far)).unwrap());
        let qp = Qpn::new(u32::try_from(0x10 + random.below(4)).unwrap());
        let bth = Bth::new(opcode, qp, psn);
        // The headers are whatever bytes follow; parsing gives them meaning.
        let mut bytes = vec![0; opcode.header_len()];
        bytes[..12].copy_from_slice(&bth.to_bytes());
        for byte in &mut bytes[12..] {
            *byte = if random.below(2) == 0 {
                0
            } else {
                random.below(256).to_le_bytes()[0]
            };
        }
        let Ok((headers, _)) = Headers::parse(&bytes) else {
            continue;
        };
        let payload = if opcode.operation().has_payload() {
            vec![0; random.pick(&[0, 1, 8, 256, 1024, 1000])]
        } else {
            Vec::new()
        };
        let addresses = [Ipv4Addr::LOCALHOST, A, B];
        let id = u16::try_from(random.below(3)).unwrap();
        let framing = ipv4(random.pick(&addresses), random.pick(&addresses), id, 0);
        frames.push((frame(framing, None, &headers, &payload), None));
    }
    survives(&capture_of(&frames), frames.len());
}

/// Streams of iWARP whose segments come in any order, with anything in them.
#[test]
fn senseless_streams() {
    let mut random = Random(3);
    let mut frames = Vec::new();
    for port in 0..40 {
        let mut side = TcpSide {
            source: (A, 40_000 + port),
            dest: (B, 7174),
            sequence: 1000,
        };
        let mut startup = [0; 532];
        let len = Startup {
            kind: StartupKind::Request,
            markers: true,
            crc: port % 2 == 0,
            rejected: false,
            revision: Revision::Two(None),
            private_data: b"",
        }
        .emit(&mut startup);
        frames.push((side.segment(&startup[..len]), None));
        for _ in 0..100 {
            side.sequence = side
                .sequence
                .wrapping_add(u32::try_from(random.below(9)).unwrap())
                .wrapping_sub(4);
            let mut payload = vec![0; usize::try_from(random.below(300)).unwrap()];
            for byte in payload
                .iter_mut()
                .take(usize::try_from(random.below(40)).unwrap())
            {
                *byte = random.pick(&[0, 0, 0, 0x41, 0xc1, 0x40, 0x43, 0x42, 0xff]);
            }
            frames.push((side.segment(&payload), None));
        }
    }
    survives(&capture_of(&frames), frames.len());
}
