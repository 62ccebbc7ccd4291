//! Measures what hirail is meant to reach and prints it beside the goals: `cargo bench --bench
//! goals`, on a machine with nothing else to do. It judges no build: figures of a busy machine say
//! little, and the exit status says only whether the figures could be taken.

mod figures;

use std::error::Error;
use std::process::ExitCode;

use figures::{Goal, iperf3, median, of_transport, perf, print};
use serde_json::Value;

/// Pairs of runs that TCP is compared with iperf3 by.
const PAIRS: usize = 5;

fn main() -> ExitCode {
    match goals() {
        Ok(goals) => {
            print(&goals);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("goals: {error}");
            ExitCode::from(2)
        }
    }
}

fn goals() -> Result<Vec<Goal>, Box<dyn Error>> {
    let tcp = tcp_beside_iperf3();
    if let Err(error) = &tcp {
        eprintln!("goals: the TCP baseline was not judged: {error}");
    }
    let rows = perf(&[])?;
    let at = |row: usize, key: &str| rows[row][key].as_f64();
    let one_qp = at(0, "value");
    let goal = |figure, goal, measured, bound, at_least| Goal {
        figure,
        goal,
        measured,
        bound,
        at_least,
    };
    Ok(vec![
        goal("TCP baseline", "0.9 x iperf3", tcp.ok(), 0.9, true),
        goal(
            "WRITE 64 KiB, 1 QP",
            "1.1 x TCP",
            at(0, "vs_tcp"),
            1.1,
            true,
        ),
        goal(
            "WRITE 64 KiB, 8 QPs, both ways",
            "0.9 x 1 QP",
            at(1, "value").zip(one_qp).map(|(many, one)| many / one),
            0.9,
            true,
        ),
        goal(
            "its NAKs per million packets",
            "100",
            naks_per_million(&rows[1]),
            100.0,
            false,
        ),
        goal("WRITE 8 B, 1 QP", "1 Mmsg/s", at(3, "value"), 1.0, true),
        goal(
            "SEND 8 B, half round trip",
            "1.3 x UDP",
            at(4, "vs_udp"),
            1.3,
            false,
        ),
        goal(
            "WRITE 8 B, half round trip",
            "3 x UDP",
            at(5, "vs_udp"),
            3.0,
            false,
        ),
    ])
}

/// Sequence errors (`packet_seq_err`) in a million packets of RDMA.
fn naks_per_million(row: &Value) -> Option<f64> {
    let transports = row["transports"].as_array()?;
    let rdma = transports
        .iter()
        .find(|figures| figures["transport"] == "rdma")?;
    let counted = |name: &str| rdma["counters"][name].as_f64();
    let packets = counted("port_xmit_packets")?;
    Some(counted("packet_seq_err").unwrap_or(0.0) / packets * 1e6)
}

/// Our TCP stream as a multiple of iperf3's: the median over pairs of runs.
fn tcp_beside_iperf3() -> Result<f64, Box<dyn Error>> {
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let theirs = iperf3()?;
        let rows = perf(&["write-bw", "--size", "64K", "--duration", "1"])?;
        ratios.push(of_transport(&rows[0], "tcp").ok_or("TCP has no value")? / theirs);
    }
    median(&mut ratios).ok_or_else(|| "there are no pairs".into())
}
