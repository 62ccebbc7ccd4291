//! Rules of the kernel that the port relies on, measured on frames.
//!
//! The ICRC covers the IPv4 Identification, which the kernel writes after the ICRC was made. These
//! tests send real batches between two interfaces of a network namespace of their own, capture the
//! frames, and check the ICRC of each. Where such a namespace cannot be made they say so.

mod namespace;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use hirail::devices::{self, Kind};
use hirail::port::{self, Path, PortOptions, Sweep, Transmitter};
use hirail_wire::ip::IpHeader;
use hirail_wire::{
    Bth, Ext, FrameView, Framing, Headers, Opcode, Operation, Psn, Qpn, Reth, Rkey, Service,
};

use namespace::{in_namespace, ip};

const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
];

/// A virtual cable whose far end is no address of ours: frames to the second addresses go out by
/// `near0` and are seen at `far0`, which splits batches as a cable without offloads does.
fn cable() {
    ip("link set lo up");
    ip("link add near0 type veth peer name far0");
    for end in ["near0", "far0"] {
        ip(&format!("link set {end} mtu 4300 gso_max_segs 1"));
        ip(&format!("link set {end} up"));
    }
    ip("link set near0 address 02:00:00:00:00:01");
    ip(&format!("addr add {}/24 dev near0", V4[0]));
    ip(&format!("addr add {}/64 dev near0 nodad", V6[0]));
    for far in [IpAddr::V4(V4[1]), IpAddr::V6(V6[1])] {
        ip(&format!(
            "neigh add {far} lladdr 02:00:00:00:00:02 dev near0 nud permanent"
        ));
    }
}

/// Frames that arrive at an interface.
struct Capture(OwnedFd);

impl Capture {
    fn open(interface: &str) -> Self {
        let index = devices::list()
            .expect("devices")
            .into_iter()
            .find(|device| device.interface == interface)
            .expect("interface")
            .index;
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory involved.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: a fresh descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is as long as stated.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        let buffer: libc::c_int = 32 << 20;
        let len = size_of_val(&buffer) as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
        let value = (&raw const buffer).cast();
        // SAFETY: the value is as long as stated.
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) };
        Self(fd)
    }

    /// The RoCE frames that have come, until none comes for a while.
    fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let end = Instant::now() + Duration::from_secs(5);
        let mut buffer = vec![0; 70_000];
        while frames.len() < count && Instant::now() < end {
            let fd = self.0.as_raw_fd();
            // SAFETY: the buffer is as long as stated.
            let len = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            let Ok(len) = usize::try_from(len) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let frame = buffer[..len].to_vec();
            if FrameView::parse(&frame).is_ok_and(|view| view.roce().is_some()) {
                frames.push(frame);
            }
        }
        frames
    }
}

fn headers(operation: Operation, number: u32) -> Headers {
    let opcode = Opcode::new(Service::Rc, operation).expect("exists");
    let ext = match operation {
        Operation::WriteFirst => Ext::Reth(Reth {
            va: 7,
            rkey: Rkey::new(9),
            length: 1 << 20,
        }),
        _ => Ext::None,
    };
    let bth = Bth::new(opcode, Qpn::new(0x1234), Psn::new(number));
    Headers::new(bth, None, ext).expect("valid")
}

/// Packets of `sizes`, in one run.
fn send(tx: &mut Transmitter, path: &Path, sizes: &[usize]) {
    tx.begin(path).expect("socket");
    for (number, len) in (0..).zip(sizes.iter().copied()) {
        let operation = if number == 0 {
            Operation::WriteFirst
        } else {
            Operation::WriteMiddle
        };
        let pad = (4 - len % 4) % 4;
        let headers = headers(operation, number).with_pad(pad as u8);
        tx.push(&headers, len, |bytes, icrc| {
            bytes.fill(number.to_le_bytes()[0]);
            icrc.update(bytes);
            Ok(())
        })
        .expect("room");
    }
    assert!(tx.flush(|_, sent| assert_eq!(sent.offered, sent.taken)));
}

fn path(source: IpAddr, destination: IpAddr, segmentation: bool) -> Path {
    Path {
        source,
        destination,
        interface: 0,
        traffic_class: 0x68,
        hop_limit: 7,
        entropy: 0xd234,
        segmentation,
    }
}

/// The n-th packet of a batch has Identification n, a single one has 0, DF is set; so every ICRC is
/// right, over IPv4 and IPv6, in batches and not.
#[test]
fn icrcs_are_right_on_the_wire() {
    if in_namespace("icrcs_are_right_on_the_wire") {
        return;
    }
    cable();
    let near = devices::list()
        .expect("devices")
        .into_iter()
        .find(|d| d.interface == "near0");
    let near = near.expect("interface");
    assert_eq!(
        (near.kind, near.splits_in_software, near.is_up),
        (Kind::Veth, true, true)
    );
    assert_eq!(near.ipv4(), Some(V4[0]));
    assert_eq!(near.path_mtu().bytes(), 4096);
    // The standard's port: that is where frames are recognised.
    let options = PortOptions::default();
    let (_rx, pool) = port::open(&options).expect("port");
    let capture = Capture::open("far0");
    let sizes: Vec<usize> = [4096; 29].into_iter().chain([100, 8, 8, 8, 3, 0]).collect();
    for (source, destination) in [
        (V4[0].into(), V4[1].into()),
        (IpAddr::V6(V6[0]), IpAddr::V6(V6[1])),
    ] {
        for segmentation in [true, false] {
            let mut tx = Transmitter::new(pool.clone(), &options);
            let path = path(source, destination, segmentation);
            send(&mut tx, &path, &sizes);
            let frames = capture.frames(sizes.len());
            assert_eq!(frames.len(), sizes.len(), "split before the far end");
            let mut ids = Vec::new();
            for (frame, number) in frames.iter().zip(0..) {
                let view = FrameView::parse(frame).expect("well-formed");
                let roce = view.roce().expect("RoCE");
                assert!(
                    roce.icrc_is_right(),
                    "{segmentation} {number}: {:?}",
                    roce.framing()
                );
                assert_eq!(roce.headers().expect("valid").0.bth().psn, Psn::new(number));
                let framing = roce.framing();
                assert_eq!((framing.traffic_class(), framing.hop_limit()), (0x68, 7));
                if let Framing::V2 {
                    ip: IpHeader::V4(ip),
                    source_port,
                    ..
                } = framing
                {
                    assert!(ip.dont_fragment);
                    assert_eq!(*source_port, tx.source_port(&path).expect("socket"));
                }
                ids.push(framing.ipv4_id());
            }
            let batched = source.is_ipv4() && segmentation;
            assert_eq!(ids.iter().any(|id| *id > 0), batched, "{ids:?}");
            assert_eq!(tx.stats().messages < sizes.len() as u64, segmentation);
        }
    }
}

/// A batch that the kernel does not take is sent packet by packet, each with its ICRC made anew;
/// those that no longer fit the interface are lost on the way.
#[test]
fn batches_that_are_refused() {
    if in_namespace("batches_that_are_refused") {
        return;
    }
    cable();
    ip("link set near0 mtu 1500");
    let options = PortOptions::default();
    let (_rx, pool) = port::open(&options).expect("port");
    let capture = Capture::open("far0");
    let mut tx = Transmitter::new(pool, &options);
    let path = path(V4[0].into(), V4[1].into(), true);
    // The first packet of a write is longer: it and its successor are a batch of their own.
    for (batches, sizes) in [(2, [4096, 4096, 4096, 100]), (0, [200, 200, 200, 200])] {
        let before = tx.stats();
        send(&mut tx, &path, &sizes);
        let fitting = sizes.iter().filter(|size| **size < 1400).count();
        let frames = capture.frames(fitting);
        assert_eq!(frames.len(), fitting);
        for frame in &frames {
            let view = FrameView::parse(frame).expect("well-formed");
            let roce = view.roce().expect("RoCE");
            assert!(roce.icrc_is_right());
            assert_eq!(roce.framing().ipv4_id(), 0);
        }
        let after = tx.stats();
        assert_eq!(after.split - before.split, batches);
        assert_eq!(
            after.refused - before.refused,
            (sizes.len() - fitting) as u64
        );
        assert_eq!(after.packets - before.packets, fitting as u64);
    }
}

/// Why transmit sockets are not connected: there the Identification is unpredictable.
#[test]
fn connected_sockets_would_count() {
    if in_namespace("connected_sockets_would_count") {
        return;
    }
    cable();
    let socket = UdpSocket::bind((V4[0], 0)).expect("port");
    socket.connect((V4[1], 4791)).expect("route");
    let capture = Capture::open("far0");
    let packet = [
        [0x64, 0, 0xff, 0xff, 0, 0, 0, 5, 0, 0, 0, 1].as_slice(),
        &[0; 8],
    ]
    .concat();
    for _ in 0..4 {
        socket.send(&packet).expect("sent");
    }
    let ids: Vec<u16> = capture
        .frames(4)
        .iter()
        .map(|frame| {
            FrameView::parse(frame)
                .expect("frame")
                .roce()
                .expect("RoCE")
                .framing()
                .ipv4_id()
        })
        .collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().any(|id| *id > 127), "{ids:?}");
}

/// Multicast over IPv6: every process that has joined hears it.
#[test]
fn ipv6_multicast() {
    if in_namespace("ipv6_multicast") {
        return;
    }
    cable();
    let interface = devices::list()
        .expect("devices")
        .into_iter()
        .find(|device| device.interface == "near0")
        .expect("interface")
        .index;
    let group: IpAddr = "ff0e::4791:1".parse().expect("address");
    let options = PortOptions::default();
    let mut receivers: Vec<_> = (0..3)
        .map(|_| port::open(&options).expect("port"))
        .collect();
    for (receiver, _) in &mut receivers[..2] {
        receiver.join_multicast(group, interface).expect("joined");
    }
    let mut tx = Transmitter::new(receivers[2].1.clone(), &options);
    let path = Path {
        interface,
        ..path(V6[0].into(), group, true)
    };
    tx.begin(&path).expect("socket");
    let headers = headers(Operation::WriteMiddle, 1).with_dest_qp(Qpn::MULTICAST);
    tx.push(&headers, 0, |_, _| Ok(())).expect("room");
    tx.flush(|_, sent| assert_eq!(sent.taken, 1));
    let mut heard = [0; 3];
    let end = Instant::now() + Duration::from_secs(5);
    while heard != [1, 1, 0] && Instant::now() < end {
        for ((receiver, _), count) in receivers.iter_mut().zip(&mut heard) {
            *count += receiver.recv_batch(8, Sweep::All, |datagram| {
                assert_eq!(datagram.destination, group);
                assert_eq!(datagram.interface, interface);
            });
        }
    }
    assert_eq!(heard, [1, 1, 0]);
    receivers[0]
        .0
        .leave_multicast(group, interface)
        .expect("left");
    assert!(receivers[0].0.as_fd().as_raw_fd() >= 0);
}
