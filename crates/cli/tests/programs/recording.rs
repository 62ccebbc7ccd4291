//! What a recording of packets shows.

use std::fs::File;
use std::path::Path;

use hirail_wire::ethernet::EtherType;
use hirail_wire::frame::Content;
use hirail_wire::pcap::Reader;

/// There are RoCE packets, and all of them have the right ICRC.
pub(crate) fn shows_roce(recording: &Path) -> Result<(), String> {
    match packets(recording) {
        Ok(0) => Err("nothing was sent as RoCE".to_owned()),
        Ok(_) => Ok(()),
        Err(reason) => Err(format!("the recording: {reason}")),
    }
}

/// How many RoCE packets there are, all with the right ICRC.
pub(crate) fn packets(recording: &Path) -> Result<usize, String> {
    let file = File::open(recording).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
    let mut count = 0;
    while let Some(packet) = reader.next_packet().map_err(|error| error.to_string())? {
        // A recording of a UDP port begins with IP.
        let is_v6 = packet.data.first().is_some_and(|first| first >> 4 == 6);
        let ether_type = if is_v6 {
            EtherType::IPV6
        } else {
            EtherType::IPV4
        };
        let content = Content::parse(ether_type, packet.data);
        let content = content.map_err(|error| error.to_string())?;
        if let Content::Roce(roce) = content {
            if !roce.icrc_is_right() {
                return Err(format!("packet {count} has a wrong ICRC"));
            }
            count += 1;
        }
    }
    Ok(count)
}
