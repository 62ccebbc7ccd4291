//! What `hirail run --trace` and `--stat` tell of programs, several at once.

use std::fs;

use serde_json::Value;

use super::process::{Folder, Program, alone, is_installed};
use super::ready::free_port;

/// A shell that runs both ends of a ping-pong of two messages; nothing where there is none.
fn both_ends() -> Option<Program> {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("skipped: ibv_rc_pingpong (Debian package ibverbs-utils) is not installed");
        return None;
    }
    let command = format!(
        "ibv_rc_pingpong -d hirail_lo -g 0 -e -n 2 -s 3000 -m 1024 -p {}",
        free_port()
    );
    // Who comes too early is refused.
    let script =
        format!("{command} & until {command} 127.0.0.1 2>/dev/null; do sleep 0.1; done; wait");
    Some(Program::new("sh").args(["-c", &script]))
}

#[test]
fn each_packet_is_a_line_and_each_counter_that_moved() {
    let _alone = alone();
    let folder = Folder::new("watched");
    let Some(program) = both_ends() else { return };
    let said = program.run_with(["--trace", "--stat"]);
    let said = said.run(&folder, "both").expect("both ends succeed");
    for (part, count) in [
        ("RC SEND First ", 4),
        ("RC SEND Middle ", 4),
        ("RC SEND Last ", 4),
        ("ends 3000 B in 3 packets", 4),
        ("RC ACK ", 4),
        (" msn=2 ", 2),
        (" ibv_rc_pingpong  hirail_lo on UDP", 2),
    ] {
        assert_eq!(said.matches(part).count(), count, "{part:?}: {said}");
    }
    let packets: Vec<_> = said.lines().filter(|line| line.contains(" RC ")).collect();
    for line in &packets {
        let words: Vec<_> = line.split_whitespace().skip(1).take(4).collect();
        let way = words[0];
        assert!(way == "out" || way == "in", "{line}");
        assert_eq!(words[1..], ["127.0.0.1", ">", "127.0.0.1"], "{line}");
    }
    // Once each, though both ends have recorded it.
    assert_eq!(packets.len(), 16, "{said}");
    let sends: Vec<_> = said
        .lines()
        .filter(|it| it.contains("rdma_sends"))
        .collect();
    assert_eq!(sends.len(), 2, "{said}");
    for line in sends {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..3], ["rdma_sends", "2", "requests"], "{line}");
    }
}

/// Every so often, too, and for programs that read it; the recording stays where one is asked for.
#[test]
fn a_trace_and_a_recording_go_together() {
    let _alone = alone();
    let folder = Folder::new("watched-json");
    let Some(program) = both_ends() else { return };
    let [lines, recording] = ["trace.json", "recording.pcapng"].map(|name| folder.join(name));
    let mut trace = std::ffi::OsString::from("--trace=");
    trace.push(&lines);
    let program = program
        .run_with([trace, "--json".into(), "--stat=50ms".into()])
        .recorded(&recording);
    let said = program.run(&folder, "both").expect("both ends succeed");
    let lines = fs::read_to_string(lines).expect("a trace");
    let packets: Value = serde_json::from_str(&lines).expect("JSON");
    let decoded = super::recording::packets(&recording).expect("a recording");
    let count = packets.as_array().expect("an array").len();
    // Both ends are in the recording.
    assert_eq!((count, decoded), (16, 32), "{lines}");
    // The last of the objects has the sums.
    let at = said.rfind("\n{\n").map_or(0, |at| at + 1);
    let last = said.get(at..).unwrap_or_default();
    let last = &last[..last.rfind('}').map_or(0, |at| at + 1)];
    let sums: Value = serde_json::from_str(last).expect(&said);
    let devices = sums["devices"].as_array().expect("an array");
    // A client that came too early has sent nothing.
    let sends = devices.iter().map(|it| &it["counters"]["rdma_sends"]);
    let sends: Vec<_> = sends.filter_map(Value::as_u64).collect();
    assert_eq!(sends, [2, 2], "{said}");
}
