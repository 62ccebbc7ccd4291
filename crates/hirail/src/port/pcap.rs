//! `HIRAIL_PCAP`: every packet of the port in a pcapng file, one record per packet as on the wire,
//! without privileges.
//!
//! Records begin with the IP header: a UDP socket sees no Ethernet header. Those of a raw port are
//! whole frames. Processes that record to the same file at the same time share it and the interface
//! that it names: the first one empties it, the others append, and each record is one write. tcpdump
//! reads no file of several sections, so that there is one, and packets of one kind. The time is that
//! of handing the packet to the kernel or of reading it.

use std::fs::File;
use std::io::{self, BufWriter, Read as _};
use std::path::Path as FilePath;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use core::net::{IpAddr, SocketAddr};

use hirail_wire::ethernet::{EtherType, VlanTag};
use hirail_wire::ip::{IpHeader, Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use hirail_wire::pcap::{Direction, LinkType, Writer};
use hirail_wire::udp::{ROCE_PORT, UdpHeader};

use super::recv::Datagram;
use super::send::Path;

/// Longer than any record, each of which is one write.
const BUFFER: usize = 128 << 10;

/// Type of the block that a pcapng file begins with.
const SECTION_HEADER: [u8; 4] = 0x0a0d_0d0a_u32.to_le_bytes();

/// A capture file.
#[derive(Debug)]
pub struct Recorder {
    udp_port: u16,
    file: Mutex<Writer<BufWriter<File>>>,
}

/// The kind of packets of a recording's first interface; `None` where the file has no beginning.
fn link_type_of(path: &FilePath) -> Option<LinkType> {
    // A section header of 28 bytes, the type and length of the next block, then it.
    let mut beginning = [0; 38];
    let mut file = File::open(path).ok()?;
    file.read_exact(&mut beginning).ok()?;
    let is_there = beginning[..4] == SECTION_HEADER;
    is_there.then(|| LinkType(u16::from_le_bytes([beginning[36], beginning[37]])))
}

impl Recorder {
    /// Opens `path`, which another process may be recording to.
    pub fn open(path: &FilePath, udp_port: u16) -> io::Result<Self> {
        Self::create(path, udp_port, "hirail", LinkType::RAW)
    }

    /// The same for a port whose whole frames are seen.
    pub fn open_ethernet(path: &FilePath, interface: &str) -> io::Result<Self> {
        Self::create(path, ROCE_PORT, interface, LinkType::ETHERNET)
    }

    fn create(
        path: &FilePath,
        udp_port: u16,
        interface: &str,
        link_type: LinkType,
    ) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        if file.try_lock().is_ok() {
            // Nobody else records: what is in the file is from an earlier run.
            file.set_len(0)?;
        } else {
            // Whoever made it shares it when it has its beginning.
            file.lock_shared()?;
        }
        let theirs = link_type_of(path);
        let sink = BufWriter::with_capacity(BUFFER, file.try_clone()?);
        let writer = match theirs {
            None => {
                // Both headers in one write: packets of other processes must not come between them.
                let mut writer = Writer::new(sink)?;
                writer.add_interface(interface, link_type)?;
                writer.flush()?;
                writer
            }
            Some(theirs) if theirs == link_type => Writer::resume(sink),
            Some(theirs) => {
                let text = format!("another process records other packets to it, {theirs}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        file.lock_shared()?;
        Ok(Self {
            udp_port,
            file: Mutex::new(writer),
        })
    }

    /// Records a packet that the kernel took, the `place`-th of its batch.
    pub(super) fn sent(&self, path: &Path, source_port: u16, place: u16, ib: &[u8]) {
        let hop_limit = if path.hop_limit == 0 {
            64
        } else {
            path.hop_limit
        };
        let source = SocketAddr::new(path.source, source_port);
        self.record(
            Direction::Outbound,
            source,
            path.destination,
            path.traffic_class,
            hop_limit,
            place,
            ib,
        );
    }

    /// Records a packet that arrived, with the IPv4 Identification that its ICRC implies.
    pub fn received(&self, datagram: &Datagram<'_>, ipv4_id: u16) {
        let Datagram {
            bytes,
            source,
            destination,
            traffic_class,
            hop_limit,
            ..
        } = *datagram;
        self.record(
            Direction::Inbound,
            source,
            destination,
            traffic_class,
            hop_limit,
            ipv4_id,
            bytes,
        );
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of both headers")]
    fn record(
        &self,
        direction: Direction,
        source: SocketAddr,
        dest: IpAddr,
        traffic_class: u8,
        hop_limit: u8,
        id: u16,
        ib: &[u8],
    ) {
        let udp = UdpHeader {
            source_port: source.port(),
            dest_port: self.udp_port,
            checksum: 0,
        };
        let len = UdpHeader::LEN + ib.len();
        let (ip, ip_bytes);
        let (v4, v6);
        match (source.ip(), dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                let header = Ipv4Header {
                    traffic_class,
                    id,
                    dont_fragment: true,
                    ttl: hop_limit,
                    protocol: PROTOCOL_UDP,
                    source,
                    dest,
                };
                v4 = header.to_bytes(len);
                (ip, ip_bytes) = (IpHeader::V4(header), &v4[..]);
            }
            (IpAddr::V6(source), IpAddr::V6(dest)) => {
                let header = Ipv6Header {
                    traffic_class,
                    flow_label: 0,
                    next_header: PROTOCOL_UDP,
                    hop_limit,
                    source,
                    dest,
                };
                v6 = header.to_bytes(len);
                (ip, ip_bytes) = (IpHeader::V6(header), &v6[..]);
            }
            _ => return,
        }
        let udp_bytes = udp.with_checksum(&ip, ib).to_bytes(ib.len());
        self.write(direction, &[ip_bytes, &udp_bytes, ib]);
    }

    /// Records an Ethernet frame, with its tag put back where it was.
    pub(crate) fn frame(&self, direction: Direction, frame: &[u8], tag: Option<VlanTag>) {
        let (addresses, rest) = frame.split_at(frame.len().min(12));
        match tag {
            None => self.write(direction, &[frame]),
            Some(tag) => {
                let ([a, b], [c, d]) = (EtherType::VLAN.0.to_be_bytes(), tag.tci().to_be_bytes());
                self.write(direction, &[addresses, &[a, b, c, d], rest]);
            }
        }
    }

    fn write(&self, direction: Direction, parts: &[&[u8]]) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let time_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk ends the capture, not the connection.
        let _ = file.write_directed(0, time_ns, direction, parts);
        let _ = file.flush();
    }
}

#[cfg(test)]
mod tests {
    use hirail_wire::pcap::Reader;

    use super::*;

    /// tcpdump and others refuse a second section or interface.
    #[test]
    fn those_who_share_a_file_share_its_interface() {
        let name = format!("hirail-recorders-{}.pcapng", std::process::id());
        let path = std::env::temp_dir().join(name);
        let recorders = [1, 2].map(|_| Recorder::open(&path, 4791).expect("a file"));
        for (recorder, byte) in recorders.iter().zip(1..) {
            recorder.write(Direction::Outbound, &[&[byte; 8]]);
        }
        let other = Recorder::open_ethernet(&path, "eth0").expect_err("another kind");
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput);

        let bytes = std::fs::read(&path).expect("it is there");
        // The magic number of a section's byte order.
        let magic = 0x1a2b_3c4d_u32.to_le_bytes();
        assert_eq!(bytes.windows(4).filter(|it| **it == magic).count(), 1);
        let mut reader = Reader::new(&bytes[..]).expect("a capture");
        for byte in 1..=2 {
            let packet = reader.next_packet().expect("whole").expect("a packet");
            assert_eq!(packet.data, [byte; 8]);
            assert_eq!(packet.interface_index, 0);
        }
        drop(recorders);

        // Nobody records any more: it begins anew, as whatever.
        let recorder = Recorder::open_ethernet(&path, "eth0").expect("a file");
        drop(recorder);
        std::fs::remove_file(&path).expect("it is there");
    }
}
