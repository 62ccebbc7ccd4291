//! Messages for QP 1 that cannot be delivered at once wait.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hirail::port::socket::TransmitPool;
use hirail::port::{self, IcrcChecker, Path, PortOptions, Receiver, Sweep, Transmitter};
use hirail_wire::mad::{CmAttribute, Mad, MadHeader};
use hirail_wire::{Bth, Deth, Ext, Headers, Opcode, Operation, Psn, QKey, Qpn, Service};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn options() -> PortOptions {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("port");
    let udp_port = socket.local_addr().expect("bound").port();
    PortOptions {
        udp_port,
        ..PortOptions::default()
    }
}

const PATH: Path = Path {
    source: V4,
    destination: V4,
    interface: 0,
    traffic_class: 0,
    hop_limit: 64,
    entropy: 0xc123,
    segmentation: true,
};

/// A message of connection management for QP 1.
fn mad(attribute: CmAttribute, words: [u32; 4]) -> [u8; Mad::LEN] {
    let mut data = [0; Mad::DATA_LEN];
    for (bytes, word) in data.chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    if attribute == CmAttribute::Req {
        // Remote CM response timeout: 4 s, as Linux has it.
        data[43] = 20 << 3;
    }
    let header = MadHeader::cm(attribute, 1);
    Mad {
        header,
        data: &data,
    }
    .to_bytes()
}

/// Sends it to this host.
fn send_mad(tx: &mut Transmitter, mad: &[u8]) {
    let opcode = Opcode::new(Service::Ud, Operation::SendOnly).expect("exists");
    let deth = Deth {
        qkey: QKey::GSI,
        source_qp: Qpn::GSI,
    };
    let bth = Bth::new(opcode, Qpn::GSI, Psn::new(0));
    let headers = Headers::new(bth, None, Ext::Deth(deth)).expect("valid");
    tx.begin(&PATH).expect("socket");
    tx.push(&headers, mad.len(), |bytes, icrc| {
        bytes.copy_from_slice(mad);
        icrc.update(bytes);
        Ok(())
    })
    .expect("room");
    tx.flush(|_, sent| assert_eq!(sent.taken, 1));
}

/// Two members; the first has to answer the second one's questions while it joins.
fn two_members(options: &PortOptions) -> [(Receiver, Arc<TransmitPool>); 2] {
    let (mut first, pool) = port::open(options).expect("port");
    let stop = &AtomicBool::new(false);
    let second = std::thread::scope(|scope| {
        let first = &mut first;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                first.recv_batch(8, Sweep::All, |_| {});
            }
        });
        let second = port::open(options).expect("port");
        stop.store(true, Ordering::Relaxed);
        second
    });
    [(first, pool), second]
}

/// Drives both until either has got a packet; how many each has got.
fn wait_for_packet(members: [&mut Receiver; 2]) -> [usize; 2] {
    let mut heard = [0, 0];
    let [first, second] = members;
    let end = Instant::now() + Duration::from_secs(10);
    while heard == [0, 0] && Instant::now() < end {
        for (member, count) in [&mut *first, &mut *second].into_iter().zip(&mut heard) {
            *count += member.recv_batch(8, Sweep::All, |datagram| {
                assert_eq!(datagram.source.ip(), V4);
                IcrcChecker::new().check(&datagram).expect("right ICRC");
            });
        }
    }
    heard
}

/// A request that comes before its listener waits for it a moment, whichever process it will be in,
/// and only then goes to the one that refuses. One whose sender does not wait for long does not
/// either.
#[test]
fn early_requests_wait_for_their_listener() {
    let options = options();
    let [(mut first, pool), (mut second, _pool)] = two_members(&options);
    first.listen(port::ANYTHING, V4).expect("free");
    let mut tx = Transmitter::new(pool, &options);
    let service = 0x0000_0000_0106_4711;
    let asked = |service: u64| [7, 0, (service >> 32) as u32, service as u32];
    let question = |service| mad(CmAttribute::SidrReq, asked(service));
    let request = |service| mad(CmAttribute::Req, asked(service));
    let nothing_comes = |members: [&mut Receiver; 2]| {
        for member in members {
            let end = Instant::now() + Duration::from_millis(20);
            while Instant::now() < end {
                assert_eq!(member.recv_batch(8, Sweep::All, |_| {}), 0);
            }
        }
    };
    for (number, message) in [request(service), question(service + 1)].iter().enumerate() {
        send_mad(&mut tx, message);
        nothing_comes([&mut first, &mut second]);
        second.listen(service + number as u64, V4).expect("free");
        assert_eq!(wait_for_packet([&mut first, &mut second]), [0, 1]);
    }
    for message in [request(service + 2), question(service + 2)] {
        send_mad(&mut tx, &message);
        nothing_comes([&mut first, &mut second]);
        assert_eq!(wait_for_packet([&mut first, &mut second]), [1, 0]);
    }
}

/// More messages than the kernel lets wait at a Unix socket come to their process nevertheless, and
/// in their order.
#[test]
fn a_crowd_of_messages_is_passed_on() {
    const CROWD: u32 = 100;
    let options = options();
    let [(mut first, pool), (mut second, _pool)] = two_members(&options);
    let service = 0x0000_0000_0106_4711;
    second.listen(service, V4).expect("free");
    let mut tx = Transmitter::new(pool, &options);
    for number in 0..CROWD {
        let words = [number, 0, (service >> 32) as u32, service as u32];
        send_mad(&mut tx, &mad(CmAttribute::Req, words));
    }
    // The first reads them all before the second looks at any.
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        first.recv_batch(8, Sweep::All, |_| {});
    }
    let mut came = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while came.len() < CROWD as usize && Instant::now() < end {
        first.recv_batch(8, Sweep::All, |_| {});
        second.recv_batch(8, Sweep::All, |datagram| {
            let (_, payload) =
                Headers::parse(&datagram.bytes[..datagram.bytes.len() - 4]).expect("headers");
            let id = &payload[Mad::LEN - Mad::DATA_LEN..][..4];
            came.push(u32::from_be_bytes(id.try_into().expect("four bytes")));
        });
    }
    let expected: Vec<u32> = (0..CROWD).collect();
    assert_eq!(came, expected);
    assert_eq!(first.stats().pass_on_dropped, 0);
}
