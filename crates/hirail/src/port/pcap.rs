//! `HIRAIL_PCAP`: every packet of the port in a pcapng file, one record per packet as on the wire,
//! without privileges.
//!
//! Records begin with the IP header: a UDP socket sees no Ethernet header. Those of a raw port are
//! whole frames. Processes that record to
//! the same file at the same time share it: the first one empties it, the others append, and each
//! record is one write. The time is that of handing the packet to the kernel or of reading it.

use std::fs::File;
use std::io::{self, BufWriter};
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

/// A capture file.
#[derive(Debug)]
pub struct Recorder {
    udp_port: u16,
    file: Mutex<Writer<BufWriter<File>>>,
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
        }
        file.lock_shared()?;
        // Both headers in one write: packets of other processes must not come between them.
        let mut writer = Writer::new(BufWriter::with_capacity(BUFFER, file))?;
        writer.add_interface(interface, link_type)?;
        writer.flush()?;
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
