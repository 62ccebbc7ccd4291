//! What loss costs, by recovery strategy: 1 % loss on a 25 Gb/s link of 10 µs round trip, path MTU
//! 4096, sixteen messages of 1 MiB in flight, in virtual time. Prints the table; the bounds are
//! those that the strategies are built for.

use hirail_rnic::{RecoveryKind, SendOp, Span, WindowConfig};
use hirail_vocab::WcStatus;
use hirail_wire::{AckTimeout, PathMtu};
use testkit::net::{Faults, Link};
use testkit::{Net, Pair, Setup};

const LINE_BPS: u64 = 25_000_000_000;
const MESSAGE: u32 = 1 << 20;
const IN_FLIGHT: u64 = 16;
const MESSAGES: u64 = 200;
/// Lost packets per million.
const LOSS_PPM: u32 = 10_000;

/// Payload bits per second over `MESSAGES` messages, as a share of the line's bits.
fn share(recovery: RecoveryKind, loss_ppm: u32, seed: u64) -> f64 {
    let link = Link {
        rate_bps: LINE_BPS,
        delay: Span::from_ns(4_300),
        ..Link::default()
    };
    let setup = Setup {
        mtu: PathMtu::Mtu4096,
        memory: MESSAGE as usize,
        max_send_wr: IN_FLIGHT as u32,
        timeout: AckTimeout::new(8),
        ..Setup::default()
    };
    let window = WindowConfig {
        initial: 1 << 20,
        minimum: 1 << 20,
        maximum: 1 << 20,
        ..WindowConfig::default()
    };
    let mut net = Net::new(seed);
    net.set_faults(Faults::loss(loss_ppm));
    let mut pair = Pair::on(
        net,
        link,
        |config| {
            config.recovery = recovery;
            config.window = window;
            config.port_mtu = PathMtu::Mtu4096;
        },
        setup,
    );
    let start = pair.net.now();
    let (mut posted, mut done) = (0, 0);
    while done < MESSAGES {
        while posted < MESSAGES && posted - done < IN_FLIGHT {
            let op = SendOp::Write {
                va: testkit::BASE,
                rkey: pair.b.rkey(),
            };
            pair.post(posted, op, 0, MESSAGE);
            posted += 1;
        }
        pair.net.step().expect("messages are still on the way");
        for cqe in pair.a.poll_send() {
            assert_eq!(cqe.status, WcStatus::Success, "message {}", cqe.wr_id);
            done += 1;
        }
    }
    let seconds = pair.net.now().since(start).as_ns() as f64 / 1e9;
    (MESSAGES * u64::from(MESSAGE) * 8) as f64 / seconds / LINE_BPS as f64
}

fn mean(recovery: RecoveryKind) -> f64 {
    let shares = [1, 2, 3].map(|seed| share(recovery, LOSS_PPM, seed));
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
fn one_percent_loss() {
    let lossless = share(RecoveryKind::GoBackN, 0, 0);
    let go_back_n = mean(RecoveryKind::GoBackN);
    let selective = mean(RecoveryKind::SelectiveRepeat);
    // Go-back-N resends what was in flight when the loss was noticed: a round trip of the line.
    let p = f64::from(LOSS_PPM) / 1e6;
    let packet_seconds = (4096.0 + 82.0) * 8.0 / LINE_BPS as f64;
    let window = 10e-6 / packet_seconds;
    let model = lossless * (1.0 - p) / (1.0 - p + p * window);
    println!("share of 25 Gb/s, 1 % loss, 10 us round trip, MTU 4096, 16 x 1 MiB in flight");
    println!("  no loss           {:5.1} %", 100.0 * lossless);
    println!("  go-back-N         {:5.1} %", 100.0 * go_back_n);
    println!(
        "  its model         {:5.1} %  (W = {window:.1} packets)",
        100.0 * model
    );
    println!("  selective repeat  {:5.1} %", 100.0 * selective);
    assert!(lossless > 0.97, "a line without loss is filled");
    assert!(
        (go_back_n / model - 1.0).abs() < 0.2,
        "go-back-N is off its model"
    );
    assert!(selective > 0.9, "selective repeat fills the line");
}
