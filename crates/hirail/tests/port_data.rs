//! What goes into a transmitter comes out of a receiver: every packet, in order, with a right ICRC,
//! whichever fast paths are in use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use hirail::port::{
    self, Datagram, Family, IcrcChecker, Path, PortOptions, PushError, Receiver, Recorder, Sent,
    Sweep, Transmitter,
};
use hirail_rnic::host::Fault;
use hirail_wire::mad::{CmAttribute, Mad, MadHeader};
use hirail_wire::pcap::Reader;
use hirail_wire::{
    Bth, Deth, Ext, Headers, Opcode, Operation, Psn, QKey, Qpn, Reth, Rkey, Service,
};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn options() -> PortOptions {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("port");
    let udp_port = socket.local_addr().expect("bound").port();
    PortOptions {
        udp_port,
        ..PortOptions::default()
    }
}

fn path(address: IpAddr) -> Path {
    Path {
        source: address,
        destination: address,
        interface: 0,
        traffic_class: 0x6a,
        hop_limit: 33,
        entropy: 0xc123,
        segmentation: true,
    }
}

fn headers(dest: u32, operation: Operation, number: u32) -> Headers {
    let opcode = Opcode::new(Service::Rc, operation).expect("exists");
    let ext = match operation {
        Operation::WriteFirst => Ext::Reth(Reth {
            va: 7,
            rkey: Rkey::new(9),
            length: 1 << 20,
        }),
        _ => Ext::None,
    };
    Headers::new(
        Bth::new(opcode, Qpn::new(dest), Psn::new(number)),
        None,
        ext,
    )
    .expect("valid")
}

/// The payload of packet `number`.
fn payload(number: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32 * 31 + number).to_le_bytes()[0])
        .collect()
}

fn push(tx: &mut Transmitter, headers: Headers, number: u32, len: usize) -> Result<(), PushError> {
    let pad = (4 - len % 4) % 4;
    tx.push(&headers.with_pad(pad as u8), len, |bytes, icrc| {
        bytes.copy_from_slice(&payload(number, len));
        icrc.update(bytes);
        Ok(())
    })
}

/// What arrived: PSN, payload, place in its batch.
type Arrived = (u32, Vec<u8>, u16);

/// Receives `count` packets and checks everything about them but their payload.
fn receive(rx: &mut Receiver, count: usize, path: &Path, port: u16) -> Vec<Arrived> {
    let mut checker = IcrcChecker::new();
    let mut arrived = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while arrived.len() < count && Instant::now() < end {
        rx.recv_batch(64, Sweep::All, |datagram: Datagram<'_>| {
            checker.check(&datagram).expect("right ICRC");
            assert_eq!(datagram.source.ip(), path.source);
            assert_eq!(datagram.source.port(), port);
            assert_eq!(datagram.destination, path.destination);
            assert_eq!(datagram.traffic_class, path.traffic_class);
            assert_eq!((datagram.dscp(), datagram.ecn()), (0x1a, 2));
            assert_eq!(datagram.hop_limit, path.hop_limit);
            assert_ne!(datagram.interface, 0);
            let ib = &datagram.bytes[..datagram.bytes.len() - 4];
            let (headers, payload) = Headers::parse(ib).expect("valid");
            arrived.push((headers.bth().psn.value(), payload.to_vec(), datagram.place));
        });
        if arrived.len() < count {
            let fd = rx.as_fd().as_raw_fd();
            let mut polled = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor, as stated.
            unsafe { libc::poll(&mut polled, 1, 100) };
        }
    }
    arrived
}

/// Runs of every shape over both families, with every combination of fast paths.
#[test]
fn everything_arrives_in_order() {
    for address in [V4, V6] {
        for fast in 0..8u8 {
            let options = PortOptions {
                segmentation: fast & 1 != 0,
                coalescing: fast & 2 != 0,
                steering: fast & 4 != 0,
                ..options()
            };
            let (mut rx, pool) = port::open(&options).expect("port");
            let dest = rx.blocks()[0].qpns().start + 3;
            let path = path(address);
            let port = pool
                .source_port(Family::of(address), path.entropy)
                .expect("socket");
            assert!(port >= 0xc000);
            let mut tx = Transmitter::new(pool, &options);
            // A long write; single small ones; sizes up and down; nothing but headers.
            let mut sizes = vec![4096; 33];
            sizes.extend([
                1000, 0, 0, 0, 1, 2, 3, 4, 5, 8, 8, 8, 4096, 100, 4096, 4095, 256,
            ]);
            sizes.extend([64; 150]);
            let mut expected = Vec::new();
            let mut begun = false;
            for (number, len) in (0..).zip(sizes) {
                let operation = if number == 0 {
                    Operation::WriteFirst
                } else {
                    Operation::WriteMiddle
                };
                loop {
                    if !begun {
                        tx.begin(&path).expect("socket");
                        begun = true;
                    }
                    match push(&mut tx, headers(dest, operation, number), number, len) {
                        Ok(()) => break,
                        Err(PushError::Full) => {
                            assert!(!tx.is_empty());
                            assert!(tx.flush(|_, sent| assert_eq!(sent.offered, sent.taken)));
                            begun = false;
                        }
                        Err(PushError::Fault) => unreachable!(),
                    }
                }
                expected.push((number, payload(number, len)));
            }
            assert!(tx.flush(|_, sent| assert_eq!(sent.offered, sent.taken)));
            assert!(tx.is_empty());
            let arrived = receive(&mut rx, expected.len(), &path, port);
            let batched = arrived.iter().any(|(_, _, place)| *place > 0);
            let arrived: Vec<_> = arrived
                .into_iter()
                .map(|(psn, bytes, _)| (psn, bytes))
                .collect();
            assert_eq!(arrived, expected, "{address} {fast:03b}");
            let fast_paths = rx.fast_paths();
            assert_eq!(fast_paths.coalescing, options.coalescing);
            assert_eq!(
                batched,
                options.segmentation && options.coalescing,
                "{fast:03b}"
            );
            let stats = tx.stats();
            assert_eq!(stats.packets, expected.len() as u64);
            assert_eq!(stats.messages < stats.packets, options.segmentation);
            assert_eq!((stats.refused, stats.split), (0, 0));
        }
    }
}

/// Several runs on several paths in one flush, each accounted for by itself.
#[test]
fn runs_are_reported_one_by_one() {
    let options = options();
    let (mut rx, pool) = port::open(&options).expect("port");
    let dest = rx.blocks()[0].qpns().start;
    let mut tx = Transmitter::new(pool, &options);
    let mut number = 0;
    for (run, entropy) in [0xc001, 0xc001, 0xc002, 0xffff, 0xc001]
        .into_iter()
        .enumerate()
    {
        tx.begin(&Path {
            entropy,
            ..path(V4)
        })
        .expect("socket");
        for _ in 0..run {
            push(
                &mut tx,
                headers(dest, Operation::WriteMiddle, number),
                number,
                512,
            )
            .expect("room");
            number += 1;
        }
    }
    let mut reports = Vec::new();
    assert!(tx.flush(|run, sent| reports.push((run, sent))));
    let expected = |n: usize| {
        (
            n,
            Sent {
                offered: n as u32,
                taken: n as u32,
            },
        )
    };
    assert_eq!(reports, (0..5).map(expected).collect::<Vec<_>>());
    let mut count = 0;
    let end = Instant::now() + Duration::from_secs(10);
    while count < 10 && Instant::now() < end {
        count += rx.recv_batch(64, Sweep::All, |_| {});
    }
    assert_eq!(count, 10);
}

/// A shorter packet of the next run to the same destination ends the batch of the one before; each
/// run is told what was taken of it.
#[test]
fn an_acknowledgement_rides_with_the_answer() {
    let options = options();
    let (mut rx, pool) = port::open(&options).expect("port");
    let dest = rx.blocks()[0].qpns().start;
    let path = path(V4);
    let port = pool.source_port(Family::V4, path.entropy).expect("socket");
    let mut tx = Transmitter::new(pool, &options);
    for (number, len) in [(0, 8), (1, 0)] {
        tx.begin(&path).expect("socket");
        let headers = headers(dest, Operation::WriteMiddle, number);
        push(&mut tx, headers, number, len).expect("room");
    }
    let mut reports = Vec::new();
    assert!(tx.flush(|run, sent| reports.push((run, sent.offered, sent.taken))));
    assert_eq!(reports, [(0, 1, 1), (1, 1, 1)]);
    let stats = tx.stats();
    assert_eq!((stats.messages, stats.packets), (1, 2));
    let arrived = receive(&mut rx, 2, &path, port);
    assert_eq!(arrived, [(0, payload(0, 8), 0), (1, Vec::new(), 1)]);
}

/// A packet whose memory is gone is left out; what came before it is sent.
#[test]
fn a_fault_ends_the_run() {
    let options = options();
    let (mut rx, pool) = port::open(&options).expect("port");
    let dest = rx.blocks()[0].qpns().start;
    let path = path(V4);
    let port = pool.source_port(Family::V4, path.entropy).expect("socket");
    let mut tx = Transmitter::new(pool, &options);
    tx.begin(&path).expect("socket");
    for number in 0..2 {
        push(
            &mut tx,
            headers(dest, Operation::WriteMiddle, number),
            number,
            100,
        )
        .expect("room");
    }
    let bad = headers(dest, Operation::WriteMiddle, 2);
    assert_eq!(tx.push(&bad, 100, |_, _| Err(Fault)), Err(PushError::Fault));
    tx.flush(|run, sent| {
        assert_eq!(
            (run, sent),
            (
                0,
                Sent {
                    offered: 2,
                    taken: 2
                }
            )
        )
    });
    let arrived = receive(&mut rx, 2, &path, port);
    assert_eq!(
        arrived.iter().map(|arrived| arrived.0).collect::<Vec<_>>(),
        [0, 1]
    );
}

/// What the kernel refuses for good counts as lost on the way; the path after it works.
#[test]
fn refused_packets_are_lost() {
    let options = options();
    let (mut rx, pool) = port::open(&options).expect("port");
    let dest = rx.blocks()[0].qpns().start;
    let mut tx = Transmitter::new(pool, &options);
    // Not an address of this host.
    let nowhere = Path {
        source: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99)),
        ..path(V4)
    };
    for path in [nowhere, path(V4)] {
        tx.begin(&path).expect("socket");
        for number in 0..4 {
            push(
                &mut tx,
                headers(dest, Operation::WriteMiddle, number),
                number,
                64,
            )
            .expect("room");
        }
    }
    let mut reports = Vec::new();
    assert!(tx.flush(|_, sent| reports.push(sent.taken)));
    assert_eq!(reports, [4, 4]);
    assert_eq!(tx.stats().refused, 4);
    let port = tx.source_port(&path(V4)).expect("socket");
    assert_eq!(receive(&mut rx, 4, &path(V4), port).len(), 4);
}

/// A program that does not share the port is named.
#[test]
fn the_holder_is_named() {
    let holder = UdpSocket::bind("0.0.0.0:0").expect("port");
    let udp_port = holder.local_addr().expect("bound").port();
    let options = PortOptions {
        udp_port,
        ..PortOptions::default()
    };
    let Err(error) = port::open(&options) else {
        panic!("the port is taken")
    };
    let start = format!(
        "UDP port {udp_port} is in use by process {} (",
        std::process::id()
    );
    assert!(error.to_string().starts_with(&start), "{error}");
    drop(holder);
    port::open(&options).expect("free again");
}

/// A process may have more than one block, each with its own way in.
#[test]
fn more_blocks() {
    for steering in [true, false] {
        let options = PortOptions {
            steering,
            ..options()
        };
        let (mut rx, pool) = port::open(&options).expect("port");
        let first = rx.blocks()[0];
        let second = rx.claim_block().expect("free");
        assert_eq!(rx.blocks(), [first, second]);
        let path = path(V4);
        let port = pool.source_port(Family::V4, path.entropy).expect("socket");
        let mut tx = Transmitter::new(pool, &options);
        tx.begin(&path).expect("socket");
        for (number, block) in [first, second, second, first].into_iter().enumerate() {
            let headers = headers(block.qpns().start, Operation::WriteMiddle, number as u32);
            push(&mut tx, headers, number as u32, 64).expect("room");
        }
        tx.flush(|_, sent| assert_eq!(sent.taken, 4));
        let mut psns: Vec<_> = receive(&mut rx, 4, &path, port)
            .into_iter()
            .map(|(psn, ..)| psn)
            .collect();
        psns.sort_unstable();
        assert_eq!(psns, [0, 1, 2, 3]);
    }
}

/// Requests for connections come to the process that listens, whoever reads them first; answers to
/// the one that chose the id.
#[test]
fn connection_requests_find_their_listener() {
    let options = options();
    let (mut first, pool) = port::open(&options).expect("port");
    // The first member has to answer the second one's questions meanwhile.
    let stop = &std::sync::atomic::AtomicBool::new(false);
    let (mut second, _pool) = std::thread::scope(|scope| {
        let first = &mut first;
        scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                first.recv_batch(8, Sweep::All, |_| {});
            }
        });
        let second = port::open(&options).expect("port");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        second
    });
    let service = 0x0000_0000_0106_4711;
    let elsewhere = "192.0.2.1".parse().expect("address");
    second.listen(service, V4).expect("free");
    assert!(first.listen(service, V4).is_err(), "taken");
    first.listen(service, elsewhere).expect("another address");
    first.listen(service + 1, V4).expect("free");
    // Requests that nobody listens for.
    second.listen(port::ANYTHING, V4).expect("free");

    let mut tx = Transmitter::new(pool, &options);
    let opcode = Opcode::new(Service::Ud, Operation::SendOnly).expect("exists");
    let deth = Deth {
        qkey: QKey::GSI,
        source_qp: Qpn::GSI,
    };
    let mut send = |attribute: CmAttribute, words: [u32; 4]| {
        let mut data = [0; Mad::DATA_LEN];
        for (bytes, word) in data.chunks_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        let mad = Mad {
            header: MadHeader::cm(attribute, 1),
            data: &data,
        }
        .to_bytes();
        let bth = Bth::new(opcode, Qpn::GSI, Psn::new(0));
        let headers = Headers::new(bth, None, Ext::Deth(deth)).expect("valid");
        tx.begin(&path(V4)).expect("socket");
        tx.push(&headers, mad.len(), |bytes, icrc| {
            bytes.copy_from_slice(&mad);
            icrc.update(bytes);
            Ok(())
        })
        .expect("room");
        tx.flush(|_, sent| assert_eq!(sent.taken, 1));
    };
    let mut arrives = |wanted: usize| {
        let mut heard = [0, 0];
        let end = Instant::now() + Duration::from_secs(10);
        while heard == [0, 0] && Instant::now() < end {
            for (member, count) in [&mut first, &mut second].into_iter().zip(&mut heard) {
                *count += member.recv_batch(8, Sweep::All, |datagram| {
                    assert_eq!(datagram.source.ip(), V4);
                    IcrcChecker::new().check(&datagram).expect("right ICRC");
                });
            }
        }
        let mut expected = [0, 0];
        expected[wanted] = 1;
        assert_eq!(heard, expected);
    };
    for _ in 0..5 {
        send(
            CmAttribute::Req,
            [7, 0, (service >> 32) as u32, service as u32],
        );
        arrives(1);
        send(
            CmAttribute::SidrReq,
            [7, 0, (service >> 32) as u32, service as u32 + 1],
        );
        arrives(0);
        send(
            CmAttribute::Req,
            [7, 0, (service >> 32) as u32, service as u32 + 2],
        );
        arrives(1);
    }
    let blocks = [1, 2].map(|number: u32| number << 22);
    for (owner, id) in blocks.into_iter().enumerate() {
        send(CmAttribute::Rep, [7, id + 5, 0, 0]);
        arrives(owner);
        send(CmAttribute::Drep, [7, id + 5, 0, 0]);
        arrives(owner);
    }
}

/// The capture holds every packet both ways, as a dissector wants it.
#[test]
fn records_every_packet() {
    let file = std::env::temp_dir().join(format!("hirail-port-data-{}.pcapng", std::process::id()));
    for address in [V4, V6] {
        // An earlier capture is replaced.
        let options = options();
        let (mut rx, pool) = port::open(&options).expect("port");
        let dest = rx.blocks()[0].qpns().start;
        let path = path(address);
        let mut tx = Transmitter::new(pool, &options);
        // The port of the standard: that is what dissectors look for.
        let recorder = std::sync::Arc::new(Recorder::open(&file, 4791).expect("file"));
        tx.record_to(recorder.clone());
        tx.begin(&path).expect("socket");
        for number in 0..20 {
            push(
                &mut tx,
                headers(dest, Operation::WriteMiddle, number),
                number,
                256,
            )
            .expect("room");
        }
        tx.flush(|_, _| {});
        let mut checker = IcrcChecker::new();
        let mut count = 0;
        let end = Instant::now() + Duration::from_secs(10);
        while count < 20 && Instant::now() < end {
            count += rx.recv_batch(64, Sweep::All, |datagram| {
                let id = checker.check(&datagram).expect("right ICRC");
                recorder.received(&datagram, id);
            });
        }
        drop((tx, recorder));
        let bytes = std::fs::read(&file).expect("file");
        let mut reader = Reader::new(&bytes[..]).expect("pcapng");
        let mut packets = 0;
        while let Some(packet) = reader.next_packet().expect("whole blocks") {
            let ether_type = if address.is_ipv4() { 0x0800u16 } else { 0x86dd };
            let frame = [&[0; 12][..], &ether_type.to_be_bytes(), packet.data].concat();
            let view = hirail_wire::FrameView::parse(&frame).expect("well-formed");
            let roce = view.roce().expect("RoCE");
            assert!(roce.icrc_is_right());
            assert_eq!(roce.udp_checksum_is_right(), Some(true));
            packets += 1;
        }
        assert_eq!(packets, 40);
    }
    std::fs::remove_file(&file).expect("removed");
}
