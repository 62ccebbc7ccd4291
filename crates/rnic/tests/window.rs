//! The window between queue pairs: whatever becomes of some of them, the others go on.

use std::collections::BTreeMap;

use hirail_rnic::transmit::{Budget, OpenClasses, Run};
use hirail_rnic::{DeviceConfig, Instant, PacketMeta, SendOp, Timer, WindowConfig};
use hirail_vocab::WcStatus;
use hirail_wire::{
    AckTimeout, Aeth, Bth, Credits, Ext, Headers, Msn, Opcode, Operation, Psn, Qpn, Service,
    Syndrome,
};
use testkit::net::gids;
use testkit::{Endpoint, Link, Net, Setup, SingleHost};

/// What a full packet is charged to the window.
const PACKET: u64 = 1024 + 66;

/// Senders on one device to one destination. Their packets go nowhere; answers are made by hand.
struct Senders {
    ends: Vec<Endpoint>,
    /// By the number of the queue pair that its packets name.
    by_peer: BTreeMap<Qpn, usize>,
    now: Instant,
    run: Run<SingleHost>,
    timers: Vec<(Timer, Instant)>,
}

/// A packet that the link took.
struct Sent {
    sender: usize,
    psn: Psn,
    asks: bool,
}

impl Senders {
    /// Sender `n` has the ACK timeout code `timeouts[n]`.
    fn new(window: WindowConfig, timeouts: &[u8]) -> Self {
        let mut net = Net::new(1);
        for _ in 0..2 {
            let config = DeviceConfig {
                window,
                ..DeviceConfig::default()
            };
            net.add(Link::default(), config);
        }
        let mut ends = Vec::new();
        let mut by_peer = BTreeMap::new();
        for (sender, &timeout) in timeouts.iter().enumerate() {
            let setup = Setup {
                timeout: AckTimeout::new(timeout),
                ..Setup::default()
            };
            let [a, b] = [0, 1].map(|node| Endpoint::new(&net, node, &setup, false));
            a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
            by_peer.insert(b.qp.qpn, sender);
            ends.push(a);
        }
        Self {
            now: net.now(),
            ends,
            by_peer,
            run: Run::new(),
            timers: Vec::new(),
        }
    }

    fn write(&self, sender: usize, length: u32) {
        let end = &self.ends[sender];
        let op = SendOp::Write {
            va: testkit::BASE,
            rkey: end.rkey(),
        };
        let sges = [end.sge(0, length)];
        end.device
            .post_send(self.now, &end.qp, &testkit::endpoint::wr(1, op, &sges))
            .expect("there is room");
    }

    /// The next run, of which the link takes so many packets at most; nothing where nobody may send.
    fn send(&mut self, takes: usize) -> Option<Vec<Sent>> {
        let device = &self.ends[0].device;
        let budget = Budget {
            packets: 16,
            bytes: 64 << 10,
        };
        if !device.poll_transmit(self.now, OpenClasses::ALL, budget, &mut self.run) {
            return None;
        }
        let taken = takes.min(self.run.packets().len());
        let sent = self.run.packets()[..taken]
            .iter()
            .map(|packet| packet.headers.bth())
            .map(|bth| Sent {
                sender: self.by_peer[&bth.dest_qp],
                psn: bth.psn,
                asks: bth.ack_req,
            })
            .collect();
        device.sent(self.now, &mut self.run, taken);
        self.timers
            .extend(core::iter::from_fn(|| device.poll_timer()));
        Some(sent)
    }

    /// The first timer that was asked for comes due.
    fn fire(&mut self) {
        let first = (0..self.timers.len()).min_by_key(|&n| self.timers[n].1);
        let (timer, at) = self.timers.remove(first.expect("a timer runs"));
        self.now = at;
        self.ends[0].device.handle_timeout(at, timer);
    }

    fn acknowledge(&self, sent: &Sent) {
        let opcode = Opcode::new(Service::Rc, Operation::Acknowledge).expect("RC acknowledges");
        let aeth = Aeth {
            syndrome: Syndrome::Ack(Credits::NONE),
            msn: Msn::new(0),
        };
        let bth = Bth::new(opcode, self.ends[sent.sender].qp.qpn, sent.psn);
        let headers = Headers::new(bth, None, Ext::Aeth(aeth)).expect("an ACK has an AETH");
        let meta = PacketMeta {
            source: gids(1)[0],
            destination: gids(0)[0],
            traffic_class: 0,
            hop_limit: 64,
            priority: 0,
            is_roce_v1: false,
        };
        self.ends[0]
            .device
            .handle_packet(self.now, &meta, &headers, &[])
            .expect("it acknowledges what was sent");
    }
}

/// A loss cuts the cap below what is in flight, and all of that is halves of messages that ask for
/// no answer yet: nobody would ever make room, if one of them did not send a packet that asks.
#[test]
fn halves_of_messages_do_not_hold_a_window_that_was_cut() {
    let window = WindowConfig {
        initial: 16 * PACKET,
        minimum: PACKET,
        maximum: 16 * PACKET,
        ..WindowConfig::default()
    };
    let mut s = Senders::new(window, &[14, 14, 14, 4]);
    for sender in 0..3 {
        s.write(sender, 10 * 1024);
    }
    s.write(3, 7 * 1024);
    // The link takes three packets of each run, which ask for nothing, and the whole message of the
    // last one, which fills the window and is lost.
    for sender in 0..3 {
        let sent = s.send(3).expect("there is room");
        assert!(
            sent.iter()
                .all(|packet| packet.sender == sender && !packet.asks)
        );
    }
    assert_eq!(s.send(7).expect("there is room").len(), 7);
    assert!(s.send(16).is_none(), "the window is full");
    s.fire();
    let sent = s.send(16).expect("somebody asks");
    assert!(sent.len() == 1 && sent[0].asks, "with a single packet");
    assert!(s.send(16).is_none(), "an answer is due now");
    s.acknowledge(&sent[0]);
    while let Some(sent) = s.send(16) {
        sent.iter()
            .filter(|packet| packet.asks)
            .for_each(|packet| s.acknowledge(packet));
    }
    for end in &s.ends {
        let done: Vec<_> = end.poll_send().iter().map(|cqe| cqe.status).collect();
        assert_eq!(done, [WcStatus::Success]);
    }
}
