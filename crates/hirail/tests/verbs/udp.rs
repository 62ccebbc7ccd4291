//! The same over UDP: two devices of this process at one port, every transport, both families.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

use hirail::config::Config;
use hirail::port::PortOptions;
use hirail::{ConnectOptions, Context, Counter, Destination, Gid, LinkKind, Path, QpType, SendWr};

use crate::operations::{nothing, pieces, send, send_with_immediate, write, write_with_immediate};
use crate::side::{ALL, KEY, PATIENCE, Side, pattern};

/// Bytes in front of each datagram received.
const GRH: usize = 40;

/// A side on the loopback, at a UDP port that others do not use.
fn side(port: u16, qp_type: QpType) -> Side {
    let config = Config {
        port: PortOptions {
            udp_port: port,
            ..PortOptions::default()
        },
        ..Config::default()
    };
    let context = Context::open_with("hirail_lo", &config).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let builder = pd.qp(&cq, &cq).max_inline_data(64).max_sge(4, 4);
    let qp = builder.qp_type(qp_type).build().unwrap();
    let mr = pd.register(1 << 16, ALL).unwrap();
    Side {
        context,
        pd,
        cq,
        qp,
        mr,
    }
}

pub(crate) fn sides(qp_type: QpType) -> (Side, Side) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    (side(port, qp_type), side(port, qp_type))
}

/// Runs `job` on a connection of each address family.
fn connected(qp_type: QpType, job: impl Fn(&Side, &Side)) {
    let families = side(0x4000 | 17, qp_type).context.gids().len() as u8;
    assert!(families > 0);
    for gid_index in 0..families {
        let (a, b) = sides(qp_type);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let options = ConnectOptions::new(&from.context, gid_index);
            let remote = to.qp.endpoint(gid_index).unwrap();
            from.qp.connect(&remote, &options).unwrap();
        }
        job(&a, &b);
    }
}

#[test]
fn reliable_connected() {
    connected(QpType::Rc, |a, b| {
        send(a, b);
        send_with_immediate(a, b);
        write(a, b);
        write_with_immediate(a, b);
        pieces(a, b);
        nothing(a, b);
        const LEN: usize = 1 << 20;
        let [from, to] = [a, b].map(|side| side.pd.register(LEN, ALL).unwrap());
        to.write(0, &pattern(LEN));
        a.carry_out(&SendWr::read(1, &[from.slice(..)], to.remote()));
        assert_eq!(from.to_vec(0, LEN), pattern(LEN));
        let before = [a.mr.slice(0..8)];
        to.store_u64(0, 41);
        a.carry_out(&SendWr::fetch_add(2, &before, to.remote(), 1));
        assert_eq!((a.mr.load_u64(0), to.load_u64(0)), (41, 42));
    });
}

#[test]
fn unreliable_connected() {
    connected(QpType::Uc, |a, b| {
        send(a, b);
        send_with_immediate(a, b);
        write(a, b);
        write_with_immediate(a, b);
    });
}

#[test]
fn datagrams_to_one_and_to_many() {
    let (a, b) = sides(QpType::Ud);
    for side in [&a, &b] {
        side.qp.activate_datagram(KEY).unwrap();
    }
    for (index, gid) in a.context.gids().iter().enumerate() {
        let path = Path {
            gid_index: index as u8,
            ..Path::default()
        };
        b.qp.post_recv(1, &[b.mr.slice(..GRH + 64)]).unwrap();
        let to = Destination::unicast(&b.qp.endpoint(index as u8).unwrap(), KEY);
        let wr = SendWr::send(1, &[]).with_inline(b"to one");
        a.carry_out(&wr.to(to).via(path));
        assert_eq!(
            (b.done().byte_len as usize, b.mr.to_vec(GRH, 6)),
            (GRH + 6, b"to one".into())
        );

        // Linux has no way for multicast over IPv6 on its loopback.
        if gid.gid.to_ip().is_ipv6() {
            continue;
        }
        let group = Gid::from_ip("239.4.5.6".parse().unwrap());
        b.qp.attach_multicast(group).unwrap();
        b.qp.post_recv(2, &[b.mr.slice(..GRH + 64)]).unwrap();
        let wr = SendWr::send(2, &[]).with_inline(b"to many");
        a.carry_out(&wr.to(Destination::multicast(group, KEY)).via(path));
        assert_eq!(b.done().wr_id, 2);
        assert_eq!(b.mr.to_vec(GRH, 7), b"to many");
        b.qp.detach_multicast(group).unwrap();
    }
}

/// Linux lets a socket into so many groups. Who is refused hears why and is in no group, and what
/// was there before works on.
#[test]
fn a_group_that_cannot_be_joined() {
    let file = "/proc/sys/net/ipv4/igmp_max_memberships";
    let most: u16 = match std::fs::read_to_string(file).map(|text| text.trim().parse()) {
        Ok(Ok(most @ 1..=1000)) => most,
        other => return println!("skipped: {file} says {other:?}"),
    };
    let (a, b) = sides(QpType::Ud);
    for side in [&a, &b] {
        side.qp.activate_datagram(KEY).unwrap();
    }
    let group = |n: u16| Gid::from_ip(Ipv4Addr::new(239, 7, (n >> 8) as u8, n as u8).into());
    for n in 0..most {
        b.qp.attach_multicast(group(n)).unwrap();
    }
    let error = b.qp.attach_multicast(group(most)).unwrap_err();
    let expected = format!(
        "cannot join the multicast group {} on the interface lo: {}",
        group(most).to_ip(),
        std::io::Error::from_raw_os_error(libc::ENOBUFS),
    );
    assert_eq!(error.to_string(), expected);
    // Rolled back: there is nothing to detach from.
    let error = b.qp.detach_multicast(group(most)).unwrap_err();
    assert!(matches!(error, hirail::Error::Verb(_)), "{error}");
    // One less, and there is room again.
    b.qp.detach_multicast(group(0)).unwrap();
    b.qp.attach_multicast(group(most)).unwrap();
    b.qp.post_recv(1, &[b.mr.slice(..GRH + 64)]).unwrap();
    let wr = SendWr::send(1, &[]).with_inline(b"to many");
    let path = Path {
        gid_index: ipv4(&a) as u8,
        ..Path::default()
    };
    let to = Destination::multicast(group(most), KEY);
    a.carry_out(&wr.to(to).via(path));
    assert_eq!(
        (b.done().wr_id, b.mr.to_vec(GRH, 7)),
        (1, b"to many".into())
    );
}

/// Packets and octets by priority, which over UDP is the DSCP divided by 8; and no counter moves that
/// the link is said not to count.
#[test]
fn traffic_by_priority() {
    let (a, b) = sides(QpType::Ud);
    for side in [&a, &b] {
        side.qp.activate_datagram(KEY).unwrap();
    }
    let gid_index = ipv4(&a) as u8;
    for traffic_class in [0x60, 0x7c, 0xa0] {
        b.qp.post_recv(1, &[b.mr.slice(..GRH + 64)]).unwrap();
        let path = Path {
            gid_index,
            traffic_class,
            ..Path::default()
        };
        let to = Destination::unicast(&b.qp.endpoint(gid_index).unwrap(), KEY);
        let wr = SendWr::send(1, &[]).with_inline(b"12345678");
        a.carry_out(&wr.to(to).via(path));
        b.done();
    }
    // Ethernet, IPv4 and UDP headers, BTH, DETH, payload, ICRC.
    let octets = (14 + 20 + 8) + (12 + 8) + 8 + 4;
    for (priority, packets) in [(2, 0), (3, 2), (5, 1)] {
        let counters = [
            (&a, Counter::tx_prio_packets(priority), packets),
            (&a, Counter::tx_prio_bytes(priority), packets * octets),
            (&b, Counter::rx_prio_packets(priority), packets),
            (&b, Counter::rx_prio_bytes(priority), packets * octets),
        ];
        for (side, counter, expected) in counters {
            let get = || side.context.counters().get(counter);
            // What was sent is counted with the next look at what has arrived.
            let end = Instant::now() + PATIENCE;
            while get() < expected && Instant::now() < end {
                side.context.poll().unwrap();
            }
            assert_eq!(get(), expected, "{counter}");
        }
    }
    let counters = a.context.counters();
    assert_eq!(counters.get(Counter::UnicastXmitPackets), 3);
    assert_eq!(b.context.counters().get(Counter::UnicastRcvPackets), 3);
    for (counter, value) in counters.non_zero() {
        let links = counter.counted_on();
        assert!(links.contains(&LinkKind::Udp), "{counter} {value}");
    }
}

fn ipv4(side: &Side) -> usize {
    let gids = side.context.gids();
    let is_ipv4 = |entry: &hirail::GidEntry| entry.gid.to_ip().is_ipv4();
    gids.iter().position(is_ipv4).unwrap()
}
