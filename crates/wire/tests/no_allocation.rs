//! Sorting, parsing, checking and writing packets allocates nothing, whether they are legal or not.

use std::hint::black_box;

use hirail_wire::frame::Content;
use hirail_wire::lldp::Lldp;
use hirail_wire::mac_control::MacControl;
use hirail_wire::mad::Mad;
use hirail_wire::{FrameView, Headers, solve_ipv4_id};

use frames::frames;

mod frames;

/// Everything that a port does with a frame.
fn handle(frame: &[u8], buffer: &mut [u8]) {
    let Ok(view) = FrameView::parse(frame) else {
        return;
    };
    match view.content {
        Content::Roce(roce) => {
            let prefix = roce.framing().icrc_prefix();
            let computed = prefix.compute(roce.ib(), 1);
            let ib_len = roce.ib().len() + 4;
            black_box(solve_ipv4_id(computed, 1, roce.icrc_received(), ib_len));
            black_box((roce.icrc_is_right(), roce.udp_checksum_is_right()));
            black_box((roce.view().psn(), roce.view().payload()));
            if let (Ok((headers, payload)), Some(encapsulation)) =
                (roce.headers(), view.encapsulation())
            {
                black_box(encapsulation.emit_frame(&headers, payload, buffer));
                black_box(Mad::parse(payload).map(|mad| mad.to_bytes()).ok());
            }
        }
        Content::MacControl(content) => {
            let control = MacControl::parse(content);
            black_box(
                control
                    .map(|control| control.to_frame(view.ethernet.source))
                    .ok(),
            );
        }
        Content::Lldp(content) => {
            black_box(Lldp::parse(content).map(|lldp| lldp.dcbx().count()).ok());
        }
        Content::Tcp(..) | Content::Other(_) => {}
    }
}

#[test]
fn packets_cost_no_allocation() {
    let frames = frames();
    let mut buffer = vec![0; 2048];
    // Once before: `crc32fast` looks at the processor the first time.
    handle(&frames[0], &mut buffer);
    let allocated = allocation_counter::measure(|| {
        for frame in &frames {
            for len in 0..=frame.len() {
                handle(&frame[..len], &mut buffer);
                black_box(Headers::parse(&frame[frame.len() - len..]).ok());
            }
        }
    });
    assert_eq!(allocated.count_total, 0);
    let allocates = allocation_counter::measure(|| drop(black_box(vec![1u8])));
    assert_eq!(allocates.count_total, 1, "the counter counts");
}
