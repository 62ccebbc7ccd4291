//! The link by hand, without an engine, over a virtual cable in a network namespace of the test
//! thread's own. Where there cannot be one, the tests say so.

use std::process::Command;
use std::time::Duration;

use hirail_rnic::{GidEntry, PacketMeta};
use hirail_vocab::{Counters, DropReason};
use hirail_wire::mac_control::Pfc;
use hirail_wire::{Bth, Ext, Headers, Opcode, Operation, Psn, Qpn, Service};

use super::open::gids;
use super::packet::framing;
use super::*;
use crate::config::Config;
use crate::devices::{self, Kind, NetDevice};
use crate::error::Error;
use crate::port::raw::{RawError, socket};
use crate::runtime::link::Arrival;

/// Runs `ip`; whether it worked.
fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// Both ends of a cable.
fn cable() -> Option<[NetDevice; 2]> {
    if let Err(error) = socket::leave_network() {
        println!("skipped: no network namespace of its own: {error}");
        return None;
    }
    let laid = ip("link add near mtu 9000 type veth peer name far mtu 9000")
        && ["lo", "near", "far"]
            .iter()
            .all(|name| ip(&format!("link set {name} up")));
    if !laid {
        println!("skipped: no virtual cable; is there a program `ip`?");
        return None;
    }
    let devices = devices::list().expect("interfaces");
    let find = |name| {
        let found = devices.iter().find(|device| device.interface == name);
        found.expect("just made").clone()
    };
    Some([find("near"), find("far")])
}

fn link(device: &NetDevice, options: RawOptions) -> (RawLink, Qpn) {
    let (link, engine) = RawLink::open(device, options, &Config::default()).expect("port");
    (link, engine.first_qpn)
}

/// What arrived; `meanwhile` happens at each packet.
struct Arrived<'a> {
    packets: Vec<PacketMeta>,
    refused: Vec<DropReason>,
    counters: Counters,
    meanwhile: &'a mut dyn FnMut(usize),
}

impl<'a> Arrived<'a> {
    fn new(meanwhile: &'a mut dyn FnMut(usize)) -> Self {
        Self {
            packets: Vec::new(),
            refused: Vec::new(),
            counters: Counters::new(),
            meanwhile,
        }
    }
}

impl Sink for Arrived<'_> {
    fn packet(&mut self, arrival: Arrival<'_>) {
        self.packets.push(arrival.meta);
        (self.meanwhile)(self.packets.len());
    }

    fn refused(&mut self, reason: DropReason) {
        self.refused.push(reason);
    }

    fn count(&mut self, counter: Counter, amount: u64) {
        self.counters.add(counter, amount);
    }

    fn gids(&mut self, _table: &[GidEntry]) {}
}

/// Receives until `is_enough`, for ten seconds at most.
fn receive_until(
    link: &mut RawLink,
    arrived: &mut Arrived<'_>,
    is_enough: impl Fn(&Arrived<'_>) -> bool,
) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !is_enough(arrived) {
        assert!(std::time::Instant::now() < end, "{:?}", arrived.refused);
        if link.receive(Sweep::All, arrived) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A packet for `qpn` from one end of the cable to the other, in priority 3.
fn frame([from, to]: [&NetDevice; 2], version: RoceVersion, qpn: Qpn, payload: usize) -> Vec<u8> {
    let flow = Flow {
        source: Gid::link_local(from.mac),
        destination: Gid::link_local(to.mac),
        source_index: 0,
        traffic_class: 26 << 2,
        hop_limit: 0,
        flow_label: 0,
        udp_source_port: 0xc001,
        priority: 3,
        destination_mac: to.mac,
    };
    let opcode = Opcode::new(Service::Uc, Operation::SendOnly).expect("exists");
    let headers = Headers::new(Bth::new(opcode, qpn, Psn::new(1)), None, Ext::None);
    let encapsulation = Encapsulation {
        dest: MacAddr(to.mac),
        source: MacAddr(from.mac),
        tag: None,
        framing: framing(&flow, version).expect("of one kind"),
    };
    let mut frame = vec![0; payload + 128];
    let payload = vec![7; payload];
    let len = encapsulation.emit_frame(&headers.expect("valid"), &payload, &mut frame);
    frame.truncate(len);
    frame
}

fn send(link: &mut RawLink, frame: &[u8]) {
    let taken = link.sender.send(0, core::iter::once(frame));
    assert_eq!(taken, Taken::First(1));
}

/// What became of 2000 packets towards a receiver half as fast as their sender.
struct Overload {
    arrived: usize,
    dropped: u32,
    sender: Counters,
    receiver: Counters,
}

fn overload([near, far]: &[NetDevice; 2], flow_control: FlowControl) -> Overload {
    const PACKETS: usize = 2000;
    let options = RawOptions {
        flow_control,
        receive_buffer: 1 << 20,
        // A pause lasts for seconds, so that a slow machine changes nothing.
        speed_mbps: Some(10),
        ..RawOptions::default()
    };
    let (mut from, _) = link(near, options.clone());
    let (mut to, qpn) = link(far, options);
    let frame = frame([near, far], RoceVersion::V2, qpn, 4096);
    let mut sent = 0;
    let mut burst = |count: usize| {
        for _ in 0..count {
            let may_send = from.open(now()).contains(Class::data(3));
            if may_send && sent < PACKETS {
                send(&mut from, &frame);
                sent += 1;
            }
        }
        sent
    };
    burst(8);
    let mut last = std::time::Instant::now();
    let mut meanwhile = |_| {
        burst(2);
    };
    let mut arrived = Arrived::new(&mut meanwhile);
    let mut seen = 0;
    // The end is when nothing has come for a while although the sender may send.
    while last.elapsed() < Duration::from_millis(300) {
        to.receive(Sweep::All, &mut arrived);
        if arrived.packets.len() > seen {
            seen = arrived.packets.len();
            last = std::time::Instant::now();
        } else {
            (arrived.meanwhile)(0);
            std::thread::yield_now();
        }
    }
    assert_eq!(arrived.refused, []);
    to.receive(Sweep::All, &mut arrived);
    let receiver = arrived.counters;
    assert_eq!(burst(0), PACKETS, "the sender was let go");
    let mut nothing = |_| {};
    let mut answers = Arrived::new(&mut nothing);
    from.receive(Sweep::All, &mut answers);
    Overload {
        arrived: seen,
        dropped: to.receiver.fill().dropped,
        sender: answers.counters,
        receiver,
    }
}

/// With flow control the sender stops whenever the queue fills, and all packets arrive. Without, the
/// same sender overruns the queue.
#[test]
fn a_fast_sender_is_held_back_and_nothing_is_lost() {
    let Some(ends) = cable() else { return };
    let lossy = overload(&ends, FlowControl::None);
    assert!(lossy.dropped > 0 && lossy.arrived < 2000);

    let pfc = overload(&ends, FlowControl::Pfc { enabled: 1 << 3 });
    assert_eq!((pfc.arrived, pfc.dropped), (2000, 0));
    let stops = pfc.sender.get(Counter::RxPrio3PauseTransition);
    assert!(stops > 0);
    let frames = pfc.receiver.get(Counter::TxPrio3Pause);
    assert!(frames >= 2 * stops, "each stop is taken back");
    assert_eq!(pfc.sender.get(Counter::RxPrio3Pause), frames);
    assert_eq!(pfc.sender.get(Counter::RxPauseCtrlPhy), frames);
    assert_eq!(pfc.sender.get(Counter::RxPrio4Pause), 0);
    assert!(pfc.sender.get(Counter::RxPrio3PauseDuration) > 0);
    assert!(pfc.receiver.get(Counter::TxPrio3PauseDuration) > 0);
    assert_eq!(pfc.receiver.get(Counter::RxPrio3Packets), 2000);

    let pause = overload(&ends, FlowControl::Pause);
    assert_eq!((pause.arrived, pause.dropped), (2000, 0));
    let stops = pause.sender.get(Counter::RxGlobalPauseTransition);
    assert!(stops > 0);
    let frames = pause.receiver.get(Counter::TxGlobalPause);
    assert_eq!(pause.sender.get(Counter::RxGlobalPause), frames);
    assert_eq!(pause.sender.get(Counter::RxPrio3Pause), 0);
}

/// A peer that was told to stop is let go when this port closes.
#[test]
fn closing_lets_the_peer_go() {
    let Some([near, far]) = cable() else { return };
    let options = RawOptions {
        flow_control: FlowControl::Pfc { enabled: 1 },
        speed_mbps: Some(10),
        ..RawOptions::default()
    };
    let (mut from, _) = link(&near, options.clone());
    let (mut to, _) = link(&far, options);
    let stop = MacControl::Pfc(Pfc::new().with(0, 0xffff));
    to.order(now(), &stop);
    let is_open = |link: &mut RawLink| link.open(now()).contains(Class::data(0));
    let wait = |link: &mut RawLink, wanted: bool| {
        let end = std::time::Instant::now() + Duration::from_secs(2);
        while is_open(link) != wanted {
            assert!(std::time::Instant::now() < end, "never {wanted}");
        }
    };
    wait(&mut from, false);
    assert!(from.next_wakeup().is_some_and(|at| at > now()));
    drop(to);
    wait(&mut from, true);
    assert_eq!(from.next_wakeup(), None);
}

/// Good packets of both versions arrive with what their headers say; broken ones are refused, each
/// under its reason.
#[test]
fn what_arrives_is_checked() {
    let Some([near, far]) = cable() else { return };
    let (mut from, _) = link(&near, RawOptions::default());
    let (mut to, qpn) = link(&far, RawOptions::default());
    let mut nothing = |_| {};
    let mut arrived = Arrived::new(&mut nothing);
    let good =
        [RoceVersion::V1, RoceVersion::V2].map(|version| frame([&near, &far], version, qpn, 100));
    for frame in &good {
        send(&mut from, frame);
    }
    receive_until(&mut to, &mut arrived, |arrived| arrived.packets.len() == 2);
    for (meta, is_roce_v1) in arrived.packets.iter().zip([true, false]) {
        assert_eq!(
            *meta,
            PacketMeta {
                source: Gid::link_local(near.mac),
                destination: Gid::link_local(far.mac),
                traffic_class: 26 << 2,
                hop_limit: 64,
                priority: 0,
                is_roce_v1,
            }
        );
    }
    let octets: usize = good.iter().map(Vec::len).sum();
    let counters = &arrived.counters;
    assert_eq!(counters.get(Counter::RxPrio3Packets), 2);
    assert_eq!(counters.get(Counter::RxPrio3Bytes), octets as u64);

    // Flip a bit of each part; cut; lie about the length.
    let [v1, v2] = good;
    let flip = |frame: &[u8], at: usize| {
        let mut frame = frame.to_vec();
        frame[at] ^= 1;
        frame
    };
    let cases = [
        (flip(&v1, 14 + 40 + 12), DropReason::BadIcrc),
        (flip(&v2, v2.len() - 1), DropReason::BadIcrc),
        // The source address is covered.
        (flip(&v2, 14 + 8 + 15), DropReason::BadIcrc),
        (flip(&v1, 14 + 6), DropReason::BadGrhNextHeader),
        (v1[..14 + 40 + 15].to_vec(), DropReason::Truncated),
        (v2[..14 + 40 + 8 + 15].to_vec(), DropReason::Truncated),
        (flip(&v2, 14 + 40 + 4), DropReason::BadLength),
    ];
    for (broken, reason) in &cases {
        send(&mut from, broken);
        let before = arrived.refused.len();
        receive_until(&mut to, &mut arrived, |now| now.refused.len() > before);
        assert_eq!(arrived.refused.last(), Some(reason), "{before}");
    }
    // Addresses, ECN and hop limit may change on the way.
    let mut changed = v2.clone();
    changed[14] |= 0x0f;
    changed[14 + 7] = 1;
    send(&mut from, &changed);
    receive_until(&mut to, &mut arrived, |arrived| arrived.packets.len() == 3);
    assert_eq!(arrived.packets[2].hop_limit, 1);
    assert_eq!(arrived.refused.len(), cases.len());
}

/// A port of version 2 alone takes no packets of version 1, and the other way round.
#[test]
fn versions_that_are_not_offered_are_refused() {
    let Some([near, far]) = cable() else { return };
    let (mut from, _) = link(&near, RawOptions::default());
    for (versions, other) in [
        (RoceVersions::V1, RoceVersion::V2),
        (RoceVersions::V2, RoceVersion::V1),
    ] {
        let (mut to, qpn) = link(
            &far,
            RawOptions {
                versions,
                ..RawOptions::default()
            },
        );
        let mut nothing = |_| {};
        let mut arrived = Arrived::new(&mut nothing);
        send(&mut from, &frame([&near, &far], other, qpn, 8));
        receive_until(&mut to, &mut arrived, |arrived| !arrived.refused.is_empty());
        assert_eq!(arrived.refused, [DropReason::NotOurAddress]);
    }
}

/// Control frames of unknown kinds are counted, those known are counted without being obeyed where
/// nothing is configured.
#[test]
fn control_frames_are_counted() {
    let Some([near, far]) = cable() else { return };
    let (mut from, _) = link(&near, RawOptions::default());
    let (mut to, _) = link(&far, RawOptions::default());
    let pfc = MacControl::Pfc(Pfc::new().with(3, 9).with(5, 0));
    let mut unknown = pfc.to_frame(MacAddr(near.mac));
    unknown[15] = 0x77;
    send(&mut from, &unknown);
    send(&mut from, &pfc.to_frame(MacAddr(near.mac)));
    let mut nothing = |_| {};
    let mut arrived = Arrived::new(&mut nothing);
    receive_until(&mut to, &mut arrived, |arrived| {
        arrived.counters.get(Counter::RxPrio5Pause) > 0
    });
    let counters = &arrived.counters;
    assert_eq!(counters.get(Counter::RxPrio3Pause), 1);
    assert_eq!(counters.get(Counter::RxPrio3PauseTransition), 0);
    assert_eq!(counters.get(Counter::DropUnknownMacControl), 1);
    assert_eq!(to.open(now()), OpenClasses::ALL);
}

/// An interface that goes down is noticed, and one that comes back is used again.
#[test]
fn the_cable_may_be_cut() {
    let Some([near, far]) = cable() else { return };
    let (mut from, _) = link(&near, RawOptions::default());
    let (mut to, qpn) = link(&far, RawOptions::default());
    let frame = frame([&near, &far], RoceVersion::V1, qpn, 8);
    assert!(ip("link set far down"));
    let mut nothing = |_| {};
    let mut arrived = Arrived::new(&mut nothing);
    receive_until(&mut to, &mut arrived, |arrived| {
        arrived.counters.get(Counter::LinkDowned) > 0
    });
    assert_eq!(arrived.counters.get(Counter::LinkDowned), 1);
    assert!(ip("link set near down"));
    let taken = from.sender.send(0, core::iter::once(&frame[..]));
    assert_eq!(taken, Taken::Refused);
    assert!(ip("link set near up") && ip("link set far up"));
    // What is sent before the cable carries again is lost.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while arrived.packets.is_empty() {
        assert!(std::time::Instant::now() < end, "never again");
        from.sender.send(0, core::iter::once(&frame[..]));
        std::thread::sleep(Duration::from_millis(5));
        to.receive(Sweep::All, &mut arrived);
    }
}

#[test]
fn gids_come_in_pairs() {
    let gid = |text: &str| Gid::from_ip(text.parse().expect("address"));
    let mac = [2, 0, 0, 0, 0, 1];
    let mut device = NetDevice {
        name: "hirail0".into(),
        interface: "eth0".into(),
        index: 2,
        mac,
        mtu: 1500,
        kind: Kind::Other,
        is_up: true,
        speed_mbps: None,
        gids: Vec::new(),
        splits_in_software: true,
    };
    let pairs = |device: &NetDevice, versions| -> Vec<(Gid, RoceVersion)> {
        let gids = gids(device, versions);
        gids.iter()
            .map(|entry| (entry.gid, entry.version))
            .collect()
    };
    let (v1, v2) = (RoceVersion::V1, RoceVersion::V2);
    let default = Gid::link_local(mac);
    assert_eq!(pairs(&device, RoceVersions::Both), [(default, v1)]);
    let address = |gid| devices::NetGid {
        gid,
        prefix_len: 24,
        is_link_local: false,
    };
    device.gids = vec![address(gid("192.0.2.1"))];
    let v4 = gid("192.0.2.1");
    assert_eq!(
        pairs(&device, RoceVersions::Both),
        [(default, v1), (v4, v1), (v4, v2)]
    );
    device.gids.insert(0, address(default));
    assert_eq!(
        pairs(&device, RoceVersions::Both),
        [(default, v1), (default, v2), (v4, v1), (v4, v2)]
    );
    assert_eq!(pairs(&device, RoceVersions::V1), [(default, v1), (v4, v1)]);
    assert_eq!(pairs(&device, RoceVersions::V2), [(default, v2), (v4, v2)]);
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options: RawOptions| options.check().expect_err("refused").to_string();
    let vlan = RawOptions {
        vlan: Some(4095),
        ..RawOptions::default()
    };
    assert_eq!(
        refused(vlan),
        "expected a VLAN from 0 (priority tags only) to 4094, got 4095"
    );
    let priority = RawOptions {
        ack_priority: 8,
        ..RawOptions::default()
    };
    assert_eq!(refused(priority), "expected a priority from 0 to 7, got 8");
    let Some([near, _]) = cable() else { return };
    let watermarks = RawOptions {
        watermarks: Some(Watermarks { xoff: 5, xon: 5 }),
        ..RawOptions::default()
    };
    let error = RawLink::open(&near, watermarks, &Config::default());
    assert!(matches!(
        error.err(),
        Some(Error::Raw(RawError::Watermarks {
            xon: 5,
            xoff: 5,
            ..
        }))
    ));
}
