//! Reading and writing capture files.

use std::path::{Path, PathBuf};

use hirail_wire::pcap::{Error, Interface, LinkType, Reader, Writer};

/// A packet with nothing borrowed: interface, time, bytes, original length, comment.
type Owned = (usize, Option<u64>, Vec<u8>, u32, Option<String>);

/// Reads to the end or to the first error.
fn read(file: &[u8]) -> (Vec<Owned>, Vec<Interface>, Option<Error>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Vec::new(), Some(error)),
    };
    let mut packets = Vec::new();
    let error = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => packets.push((
                packet.interface_index,
                packet.time_ns,
                packet.data.to_vec(),
                packet.original_len,
                packet.comment.map(|text| text.into_owned()),
            )),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(
        reader.next_packet().is_ok_and(|packet| packet.is_none()),
        "nothing after the end"
    );
    (packets, reader.interfaces().to_vec(), error)
}

/// Bytes of a file in one byte order.
#[derive(Clone, Copy)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, value: u16) -> Vec<u8> {
        match self {
            Self::Big => value.to_be_bytes().to_vec(),
            Self::Little => value.to_le_bytes().to_vec(),
        }
    }

    fn u32(self, value: u32) -> Vec<u8> {
        match self {
            Self::Big => value.to_be_bytes().to_vec(),
            Self::Little => value.to_le_bytes().to_vec(),
        }
    }

    fn u64(self, value: u64) -> Vec<u8> {
        match self {
            Self::Big => value.to_be_bytes().to_vec(),
            Self::Little => value.to_le_bytes().to_vec(),
        }
    }

    fn pcap(self, magic: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = [self.u32(magic), self.u16(2), self.u16(4)].concat();
        file.extend([self.u32(0), self.u32(0), self.u32(65535), self.u32(1)].concat());
        for (seconds, fraction, data) in records {
            let len = u32::try_from(data.len()).unwrap();
            file.extend(
                [*seconds, *fraction, len, len + 9]
                    .map(|word| self.u32(word))
                    .concat(),
            );
            file.extend_from_slice(data);
        }
        file
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let len = self.u32(u32::try_from(body.len()).unwrap() + 12);
        [self.u32(kind), len.clone(), body, len].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(
            0x0a0d_0d0a,
            &[self.u32(0x1a2b_3c4d), version, self.u64(u64::MAX)].concat(),
        )
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let pad = vec![0; value.len().next_multiple_of(4) - value.len()];
        let len = self.u16(u16::try_from(value.len()).unwrap());
        [self.u16(code), len, value.to_vec(), pad].concat()
    }

    fn interface(self, link: u16, options: &[Vec<u8>]) -> Vec<u8> {
        let fixed = [self.u16(link), self.u16(0), self.u32(0)].concat();
        self.block(1, &[fixed, options.concat()].concat())
    }

    fn enhanced(self, interface: u32, ticks: u64, data: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap();
        let (high, low) = (
            u32::try_from(ticks >> 32).unwrap(),
            (ticks & 0xffff_ffff) as u32,
        );
        let fixed = [interface, high, low, len, len]
            .map(|word| self.u32(word))
            .concat();
        let pad = vec![0; data.len().next_multiple_of(4) - data.len()];
        self.block(6, &[fixed, data.to_vec(), pad, options.concat()].concat())
    }

    /// A file with one of everything that the reader knows.
    fn pcapng(self) -> Vec<u8> {
        [
            self.section(),
            self.interface(1, &[self.option(2, b"eth0"), self.option(9, &[9])]),
            self.block(0x4000_1234, b"unknown blocks are passed over"),
            self.enhanced(0, 5_000_000_007, b"abcde", &[self.option(1, b"a comment")]),
            self.interface(101, &[]),
            self.enhanced(1, 5_000_007, b"fg", &[]),
            self.block(3, &[self.u32(3), b"hij".to_vec()].concat()),
            // A second section numbers its interfaces anew.
            self.section(),
            self.interface(
                113,
                &[self.option(9, &[0x80 | 10]), self.option(14, &self.u64(2))],
            ),
            self.enhanced(0, 3 << 9, b"", &[]),
        ]
        .concat()
    }
}

#[test]
fn pcap_in_both_orders_and_units() {
    for order in [Order::Big, Order::Little] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let file = order.pcap(magic, &[(1, 5, b"abc"), (2, 0, b"")]);
            let (packets, interfaces, error) = read(&file);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                interfaces,
                [Interface {
                    link_type: LinkType::ETHERNET,
                    name: None
                }]
            );
            let first = (0, Some(1_000_000_000 + 5 * unit), b"abc".to_vec(), 12, None);
            assert_eq!(
                packets,
                [first, (0, Some(2_000_000_000), Vec::new(), 9, None)]
            );
        }
    }
}

#[test]
fn pcapng_in_both_orders() {
    for order in [Order::Big, Order::Little] {
        let (packets, interfaces, error) = read(&order.pcapng());
        assert!(error.is_none(), "{error:?}");
        let named = |link_type, name: Option<&str>| Interface {
            link_type,
            name: name.map(Into::into),
        };
        let expected = [
            named(LinkType::ETHERNET, Some("eth0")),
            named(LinkType::RAW, None),
            named(LinkType::LINUX_SLL, None),
        ];
        assert_eq!(interfaces, expected);
        let comment = Some("a comment".to_owned());
        let expected = [
            (0, Some(5_000_000_007), b"abcde".to_vec(), 5, comment),
            (1, Some(5_000_007_000), b"fg".to_vec(), 2, None),
            (0, None, b"hij".to_vec(), 3, None),
            (2, Some(3_500_000_000), Vec::new(), 0, None),
        ];
        assert_eq!(packets, expected);
    }
}

#[test]
fn what_is_written_is_read() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    let first = writer.add_interface("hirail0", LinkType::ETHERNET).unwrap();
    let second = writer.add_interface("hirail_lo", LinkType::RAW).unwrap();
    writer
        .write_packet(
            first,
            1_700_000_000_123_456_789,
            &[b"head", b"", b"tail!"],
            None,
        )
        .unwrap();
    writer
        .write_packet(second, u64::MAX, &[b"x"], Some("dropped: bad_icrc"))
        .unwrap();
    writer
        .write_packet(first, 0, &[], Some(&"é".repeat(40_000)))
        .unwrap();
    let refused = writer.write_packet(2, 0, &[b"x"], None).unwrap_err();
    assert_eq!(refused.to_string(), "expected an interface below 2, got 2");
    let refused = writer
        .write_packet(0, 0, &[&vec![0; 262_145]], None)
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "expected a packet of at most 262144 bytes, got 262145"
    );

    let (packets, interfaces, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(interfaces[0].name.as_deref(), Some("hirail0"));
    assert_eq!(interfaces[1].link_type, LinkType::RAW);
    let bytes = b"headtail!".to_vec();
    assert_eq!(
        packets[0],
        (0, Some(1_700_000_000_123_456_789), bytes, 9, None)
    );
    let comment = Some("dropped: bad_icrc".to_owned());
    assert_eq!(packets[1], (1, Some(u64::MAX), b"x".to_vec(), 1, comment));
    assert_eq!(
        packets[2].4,
        Some("é".repeat(32_766)),
        "a long comment is cut"
    );
}

/// A file that ends anywhere gives the packets before its end, and an error unless the cut falls
/// between two packets.
#[test]
fn truncation_at_every_length() {
    let records: [(u32, u32, &[u8]); 3] = [(1, 1, b"abc"), (2, 2, b"defgh"), (3, 3, b"ij")];
    let files = [
        Order::Little.pcapng(),
        Order::Big.pcapng(),
        Order::Little.pcap(0xa1b2_c3d4, &records),
        Order::Big.pcap(0xa1b2_3c4d, &records),
    ];
    for file in files {
        let (all, ..) = read(&file);
        let mut seen_whole = 0;
        for len in 0..file.len() {
            let (packets, _, error) = read(&file[..len]);
            assert!(all.starts_with(&packets), "cut at {len}");
            seen_whole = seen_whole.max(packets.len());
            match error {
                None => {}
                Some(Error::NotACapture { len: found, .. }) => assert_eq!(found, len.min(4)),
                Some(Error::Truncated {
                    offset,
                    expected,
                    found,
                    ..
                }) => {
                    assert!(offset <= len as u64 && found < expected, "cut at {len}");
                }
                Some(other) => panic!("cut at {len}: {other}"),
            }
        }
        assert_eq!(seen_whole, all.len() - 1);
    }
}

#[test]
fn errors_say_where_and_what() {
    let section = Order::Little.section();
    let interface = Order::Little.interface(1, &[]);
    let after = |block: Vec<u8>| [section.clone(), interface.clone(), block].concat();
    let mut bad_trailer = Order::Little.block(99, b"xxxx");
    *bad_trailer.last_mut().unwrap() = 1;
    let mut long_packet = Order::Little.enhanced(0, 0, b"abcd", &[]);
    long_packet[20] = 5;
    let cases = [
        (
            Vec::new(),
            "expected a pcap or pcapng capture, found an empty file",
        ),
        (
            b"\x7fELF\x02\x01".to_vec(),
            "expected a pcap or pcapng capture, found a file that begins with 7f 45 4c 46",
        ),
        (
            b"\x1f\x8b\x08\x00".to_vec(),
            "expected a pcap or pcapng capture, found a file that begins with 1f 8b 08 00 (gzip: unpack it first)",
        ),
        (
            Order::Big.pcap(0xa1b2_c3d4, &[(0, 0, &[0; 10])])[..45].to_vec(),
            "cut off at offset 40: expected 10 bytes of packet data, found 5",
        ),
        (
            [Order::Big.pcap(0xa1b2_c3d4, &[]), vec![0xff; 16]].concat(),
            "bad captured length of a packet at offset 24: expected at most 262144, found 0xffffffff",
        ),
        (
            after(Order::Little.enhanced(1, 0, b"a", &[])),
            "bad interface number of a packet at offset 48: expected one that the section has described, found 0x1",
        ),
        (
            after(vec![6, 0, 0, 0, 0xfc, 0xff, 0xff, 0x7f]),
            "bad block length at offset 48: expected at most 1310732, found 0x7ffffffc",
        ),
        (
            after(vec![6, 0, 0, 0, 13, 0, 0, 0]),
            "bad block length at offset 48: expected a multiple of 4, at least 12, found 0xd",
        ),
        (
            after(bad_trailer),
            "bad trailing block length at offset 48: expected the same as the leading one, found 0x1000010",
        ),
        (
            after(long_packet),
            "bad captured length of a packet block at offset 48: expected at most what the block holds, found 0x24",
        ),
    ];
    for (file, expected) in cases {
        let (_, _, error) = read(&file);
        assert_eq!(error.expect("an error").to_string(), expected);
    }
}

/// Flipping any one byte of a file, to several values, ends in packets or in an error.
#[test]
fn damaged_files_never_panic() {
    for file in [Order::Little.pcapng(), Order::Big.pcapng()] {
        for at in 0..file.len() {
            for value in [0, 1, 3, 4, 6, 0x0a, 0x7f, 0x80, 0xfc, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let (packets, ..) = read(&damaged);
                assert!(packets.len() <= 6);
            }
        }
    }
}

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/captures");
    let mut files = std::fs::read_dir(directory)
        .expect("the captures are in the repository")
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect::<Vec<_>>();
    files.sort();
    files
}

/// Every capture survives the way through the writer.
#[test]
fn captures_are_read_and_rewritten() {
    let mut total = 0;
    for path in captures() {
        let (packets, interfaces, error) = read(&std::fs::read(&path).unwrap());
        assert!(error.is_none(), "{}: {error:?}", path.display());
        assert_eq!(interfaces.len(), 1);
        let mut writer = Writer::new(Vec::new()).unwrap();
        let port = writer
            .add_interface("eth0", interfaces[0].link_type)
            .unwrap();
        for (_, time, data, _, _) in &packets {
            writer
                .write_packet(port, time.unwrap(), &[data], None)
                .unwrap();
        }
        let (again, ..) = read(&writer.into_inner());
        assert_eq!(again, packets, "{}", path.display());
        total += packets.len();
    }
    assert_eq!(captures().len(), 78);
    assert!(total > 2000, "{total}");
}
