//! What went over the wire.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use hirail_wire::FrameView;
use hirail_wire::pcap::Reader;

/// This host's Ethernet address there.
const OURS: [u8; 6] = [0x52, 0x54, 0, 0x77, 0, 1];

/// Every ICRC is right, and all that hirail sends has MigReq = 1, which the kernel has put up with.
pub(crate) fn check(recording: &Path) -> String {
    let file = File::open(recording).expect("recorded");
    let mut reader = Reader::new(BufReader::new(file)).expect("a recording");
    let (mut from_us, mut from_kernel) = (0, 0);
    while let Some(packet) = reader.next_packet().expect("whole") {
        let view = FrameView::parse(packet.data).expect("well-formed");
        let Some(roce) = view.roce() else { continue };
        assert!(roce.icrc_is_right(), "{:?}", roce.framing());
        // The source in the Ethernet header.
        if packet.data[6..12] == OURS {
            assert_eq!(roce.view().migrated(), Some(true));
            from_us += 1;
        } else {
            from_kernel += 1;
        }
    }
    assert!(
        from_us > 500 && from_kernel > 500,
        "{from_us} {from_kernel}"
    );
    format!(
        "{from_us} frames of hirail, all with MigReq = 1, and {from_kernel} of the kernel: every \
         ICRC is right"
    )
}
