//! Ten thousand RC QPs in one process, a hundred interleaved messages on each: every message is
//! checked, and so is what a QP costs in memory.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use hirail::{Access, ConnectOptions, Faults, MemoryNetwork, Qp, Send, SendOp, WcOpcode, WcStatus};

/// QPs: half of them send to the other half.
const QPS: usize = 10_000;
/// Work requests of each queue.
const DEPTH: u32 = 16;
/// Messages on each pair.
const MESSAGES: usize = 100;
/// Bytes of a message.
const BYTES: usize = 32;
/// What a QP may cost, its queues in use.
const LIMIT: usize = 6 << 10;
/// Messages on the way at a time.
const WAVE: usize = 1000;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn message(pair: usize, number: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (pair * 31 + number * 7 + i) as u8;
    }
    bytes[..8].copy_from_slice(&(pair as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

#[test]
fn ten_thousand_qps() {
    let network = MemoryNetwork::new(Faults::default());
    let context = network
        .open(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))
        .unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(65_536).unwrap();
    let pairs = QPS / 2;
    let sent = pd.register(pairs * BYTES, Access::LOCAL_WRITE).unwrap();
    let received = pd.register(pairs * BYTES, Access::LOCAL_WRITE).unwrap();
    for pair in 0..pairs {
        sent.write(pair * BYTES, &[1; BYTES]);
        received.write(pair * BYTES, &[1; BYTES]);
    }
    let before = resident();

    let options = ConnectOptions::new(&context, 0);
    let make = || {
        pd.qp(&cq, &cq)
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .build()
            .unwrap()
    };
    let qps: Vec<(Qp, Qp)> = (0..pairs)
        .map(|_| {
            let (a, b) = (make(), make());
            a.connect(&b.endpoint(0).unwrap(), &options).unwrap();
            b.connect(&a.endpoint(0).unwrap(), &options).unwrap();
            (a, b)
        })
        .collect();

    let start = Instant::now();
    let mut seen = vec![0; pairs];
    for number in 0..MESSAGES {
        for wave in (0..pairs).step_by(WAVE) {
            let wave = wave..(wave + WAVE).min(pairs);
            for pair in wave.clone() {
                let place = pair * BYTES..(pair + 1) * BYTES;
                qps[pair]
                    .1
                    .post_recv(pair as u64, &[received.slice(place.clone())])
                    .unwrap();
                sent.write(place.start, &message(pair, number));
                let slices = [sent.slice(place)];
                let send = Send::new(pair as u64, SendOp::Send, &slices);
                qps[pair].0.post(&send).unwrap();
            }
            let mut open = 2 * wave.len();
            while open > 0 {
                open -= cq
                    .poll(64, |wc| {
                        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
                        if wc.opcode == WcOpcode::Recv {
                            let pair = wc.wr_id as usize;
                            assert_eq!(wc.byte_len as usize, BYTES);
                            let bytes = received.to_vec(pair * BYTES, BYTES);
                            assert_eq!(bytes, message(pair, seen[pair]), "pair {pair}");
                            seen[pair] += 1;
                        }
                    })
                    .unwrap();
                assert!(
                    start.elapsed() < Duration::from_secs(300),
                    "messages went missing"
                );
            }
        }
    }
    assert!(seen.iter().all(|count| *count == MESSAGES));

    let per_qp = resident().saturating_sub(before) / QPS;
    println!(
        "{per_qp} bytes per QP, {QPS} QPs, {} messages",
        pairs * MESSAGES
    );
    assert!(
        per_qp <= LIMIT,
        "a QP costs {per_qp} bytes, at most {LIMIT} are allowed"
    );
}
