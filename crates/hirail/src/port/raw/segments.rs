//! Frames that nobody has cut into packets yet.
//!
//! A sender on this host may hand the kernel a batch of datagrams as one (`UDP_SEGMENT`), and the
//! kernel may join datagrams that arrive together (`UDP_GRO`). A virtual link passes such a batch as
//! it is: one IP header, up to 64 KiB, and the size of the pieces beside it. What a network card
//! would have put on the wire is made here, in place: the header of each packet is written over the
//! end of the packet before it, which has been dealt with by then.

use hirail_wire::ip::IpHeader;
use hirail_wire::{FrameView, Framing};

/// Hands `f` the frames that `frame` consists of, whose datagrams carry `segment` bytes each, the
/// last one maybe fewer. What is not RoCE v2 is handed over as it is.
pub(crate) fn split(frame: &mut [u8], segment: usize, mut f: impl FnMut(&[u8])) {
    let parts = FrameView::parse(frame)
        .ok()
        .and_then(|view| Some((view.encapsulation()?, view.roce()?.ib().len() + 4)));
    let Some((mut encapsulation, total)) = parts else {
        f(frame);
        return;
    };
    let head = encapsulation.len();
    let mut start = 0;
    while start < total {
        let len = segment.min(total - start);
        let packet = &mut frame[start..start + head + len];
        encapsulation.emit(len, packet);
        f(packet);
        start += len;
        // The kernel counts the Identification up from packet to packet.
        if let Framing::V2 {
            ip: IpHeader::V4(ip),
            ..
        } = &mut encapsulation.framing
        {
            ip.id = ip.id.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use hirail_wire::ethernet::{MacAddr, VlanTag};
    use hirail_wire::ip::Ipv4Header;
    use hirail_wire::{Bth, Encapsulation, Ext, Headers, Opcode, Operation, Psn, Qpn, Service};

    fn encapsulation(id: u16) -> Encapsulation {
        Encapsulation {
            dest: MacAddr([2, 0, 0, 0, 0, 1]),
            source: MacAddr([2, 0, 0, 0, 0, 2]),
            tag: Some(VlanTag {
                priority: 3,
                drop_eligible: false,
                vlan: 9,
            }),
            framing: Framing::V2 {
                ip: IpHeader::V4(Ipv4Header {
                    traffic_class: 0x6a,
                    id,
                    dont_fragment: true,
                    ttl: 64,
                    protocol: 17,
                    source: Ipv4Addr::new(192, 0, 2, 1),
                    dest: Ipv4Addr::new(192, 0, 2, 2),
                }),
                source_port: 0xc123,
                udp_checksum: false,
            },
        }
    }

    /// A batch made of three packets comes apart into these, each with its own header.
    #[test]
    fn a_batch_comes_apart() {
        let frames: Vec<Vec<u8>> = [(0xffff, 256), (0, 256), (1, 44)]
            .map(|(id, payload)| {
                let opcode = Opcode::new(Service::Rc, Operation::SendOnly).expect("exists");
                let bth = Bth::new(opcode, Qpn::new(77), Psn::new(id.into()));
                let headers = Headers::new(bth, None, Ext::None).expect("valid");
                let mut frame = vec![0; 512];
                let payload = vec![id as u8; payload];
                let len = encapsulation(id).emit_frame(&headers, &payload, &mut frame);
                frame.truncate(len);
                frame
            })
            .into();
        let head = encapsulation(0).len();
        let bodies: Vec<u8> = frames
            .iter()
            .flat_map(|frame| frame[head..].to_vec())
            .collect();
        let mut batch = vec![0; head + bodies.len()];
        encapsulation(0xffff).emit(bodies.len(), &mut batch);
        batch[head..].copy_from_slice(&bodies);
        let mut got = Vec::new();
        split(&mut batch, frames[0].len() - head, |frame| {
            let view = FrameView::parse(frame).expect("a frame");
            assert!(view.roce().expect("RoCE").icrc_is_right());
            got.push(frame.to_vec());
        });
        assert_eq!(got, frames);
    }

    #[test]
    fn what_is_no_packet_stays_whole() {
        let mut short = [8, 0].repeat(20);
        let mut got = Vec::new();
        split(&mut short, 10, |frame| got.push(frame.len()));
        assert_eq!(got, [40]);
    }
}
