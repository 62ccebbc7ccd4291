//! What Linux's sysfs would say of the devices, for programs that read files where they could ask
//! (Documentation/ABI/stable/sysfs-class-infiniband of the kernel has the names).
//!
//! Only what is true of a device without hardware is here. Counters that move are not: a file would
//! stand still. [`stat`](crate::stat) has them.

use hirail_wire::Gid;

use crate::devices::NetDevice;

/// Vendor in the verbs: a locally administered OUI, so no vendor's; programs switch on code for the
/// cards they know.
pub const VENDOR_ID: u32 = 0x02_6872;

/// Part in the verbs: small numbers are nobody's.
pub const VENDOR_PART_ID: u32 = 1;

/// `HIRAIL`, in the place of the name of a board.
pub const BOARD_ID: &str = "HIRAIL";

/// The GUID of a device, from its interface's Ethernet address.
pub fn guid(device: &NetDevice) -> [u8; 8] {
    let mut guid = [0; 8];
    guid.copy_from_slice(&Gid::link_local(device.mac).0[8..]);
    guid
}

/// A rate as ports tell it: lanes and the speed of one (IBTA, PortInfo).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRate {
    /// Code of the width: 1 is one lane, 2 is four.
    pub width: u8,
    /// Code of the speed of a lane.
    pub speed: u8,
    /// As sysfs has it.
    pub text: &'static str,
}

impl LinkRate {
    /// The one that comes closest to a rate without passing it by more than half. Where the driver
    /// knows none, nothing but this host's speed limits the device; 100 Gb/s stands for that.
    pub fn of(device: &NetDevice) -> Self {
        let (width, speed, text) = match device.speed_mbps.unwrap_or(100_000) {
            0..=4_999 => (1, 1, "2.5 Gb/sec (1X SDR)"),
            5_000..=19_999 => (1, 4, "10 Gb/sec (1X QDR)"),
            20_000..=29_999 => (1, 32, "25 Gb/sec (1X EDR)"),
            30_000..=44_999 => (2, 4, "40 Gb/sec (4X QDR)"),
            45_000..=79_999 => (1, 64, "50 Gb/sec (1X HDR)"),
            80_000..=149_999 => (2, 32, "100 Gb/sec (4X EDR)"),
            150_000..=299_999 => (2, 64, "200 Gb/sec (4X HDR)"),
            _ => (2, 128, "400 Gb/sec (4X NDR)"),
        };
        Self { width, speed, text }
    }
}

/// The files of `/sys/class/infiniband/NAME`, by their path below it, and what they say, without the
/// end of the line.
pub fn files(device: &NetDevice) -> Vec<(String, String)> {
    let guid = groups(&guid(device));
    let [state, phys_state] = match device.is_up {
        true => ["4: ACTIVE", "5: LinkUp"],
        false => ["1: DOWN", "3: Disabled"],
    };
    let mut files: Vec<(String, String)> = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", "hirail"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0"),
        ("board_id", BOARD_ID),
        ("ports/1/state", state),
        ("ports/1/phys_state", phys_state),
        ("ports/1/rate", LinkRate::of(device).text),
        ("ports/1/link_layer", "Ethernet"),
        // What Ethernet does not have.
        ("ports/1/lid", "0x0"),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/sm_lid", "0x0"),
        ("ports/1/sm_sl", "0"),
        // The default partition, the only one there is on Ethernet.
        ("ports/1/pkeys/0", "0xffff"),
        // What a port without a physical layer and without virtual lanes never counts.
        ("ports/1/counters/symbol_error", "0"),
        ("ports/1/counters/local_link_integrity_errors", "0"),
        ("ports/1/counters/excessive_buffer_overrun_errors", "0"),
        ("ports/1/counters/VL15_dropped", "0"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    for (index, entry) in device.gids.iter().enumerate() {
        let attribute = |kind: &str| format!("ports/1/gid_attrs/{kind}/{index}");
        files.extend([
            (format!("ports/1/gids/{index}"), groups(&entry.gid.0)),
            (attribute("types"), "RoCE v2".to_owned()),
            (attribute("ndevs"), device.interface.clone()),
        ]);
    }
    files
}

/// Bytes in twos.
fn groups(bytes: &[u8]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    groups.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Kind, NetGid};

    fn device() -> NetDevice {
        let gid = |text: &str| NetGid {
            gid: Gid::from_ip(text.parse().unwrap()),
            prefix_len: 24,
            is_link_local: false,
        };
        NetDevice {
            name: "hirail0".to_owned(),
            interface: "eth0".to_owned(),
            index: 2,
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 1500,
            kind: Kind::Other,
            is_up: true,
            speed_mbps: Some(25_000),
            gids: vec![gid("192.0.2.7"), gid("2001:db8::7")],
            splits_in_software: true,
        }
    }

    #[test]
    fn files_say_what_the_kernel_would() {
        let files = files(&device());
        let read = |path: &str| {
            let file = files.iter().find(|(known, _)| known == path);
            file.map(|(_, text)| text.as_str())
        };
        assert_eq!(read("node_guid"), Some("0000:00ff:fe00:0007"));
        assert_eq!(read("ports/1/rate"), Some("25 Gb/sec (1X EDR)"));
        let v4 = "0000:0000:0000:0000:0000:ffff:c000:0207";
        assert_eq!(read("ports/1/gids/0"), Some(v4));
        let v6 = "2001:0db8:0000:0000:0000:0000:0000:0007";
        assert_eq!(read("ports/1/gids/1"), Some(v6));
        assert_eq!(read("ports/1/gid_attrs/types/1"), Some("RoCE v2"));
        assert_eq!(read("ports/1/gid_attrs/ndevs/1"), Some("eth0"));
        assert_eq!(read("ports/1/gids/2"), None);
    }

    #[test]
    fn rates_are_told_by_lanes() {
        for (mbps, text) in [
            (Some(1_000), "2.5 Gb/sec (1X SDR)"),
            (Some(10_000), "10 Gb/sec (1X QDR)"),
            (None, "100 Gb/sec (4X EDR)"),
            (Some(800_000), "400 Gb/sec (4X NDR)"),
        ] {
            let device = NetDevice {
                speed_mbps: mbps,
                ..device()
            };
            assert_eq!(LinkRate::of(&device).text, text);
        }
    }
}
