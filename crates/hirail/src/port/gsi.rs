//! Who gets a packet for QP 1: all processes of a host share it, and connection management tells
//! them apart (IBTA Vol 1, chapter 12, Communication Management).
//!
//! A message that answers another one carries the communication id that the receiving side chose;
//! its upper ten bits are the block of the process that chose it. A message that begins something
//! carries a service id, and the process that listens for it has bound a name for it.

use std::time::Duration;

use hirail_cm::Route;
use hirail_wire::Headers;
use hirail_wire::cm::Message;
use hirail_wire::mad::Mad;

use super::steering::QpnBlock;

/// Bits of a communication id that its owner counts with.
pub const ID_BITS: u32 = 22;

/// In place of a service id: messages that nobody waits for. Whoever manages connections at an
/// address answers them, so that a peer is refused and need not wait for an answer.
pub const ANYTHING: u64 = 0;

/// Where a packet for QP 1 belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addressee {
    /// The process that chose the communication id.
    Block(QpnBlock),
    /// The process that listens for the service id.
    Service(u64),
}

/// The first communication id of a block; it has 2^22. Whoever manages connections takes its ids
/// from the blocks of its process.
pub fn first_communication_id(block: QpnBlock) -> u32 {
    u32::from(block.number()) << ID_BITS
}

/// Reads the addressee of a packet for QP 1, from BTH to ICRC. `None` where it is no message that
/// anybody waits for.
pub(super) fn addressee(ib: &[u8]) -> Option<Addressee> {
    let (_, payload) = Headers::parse(ib.get(..ib.len().checked_sub(4)?)?).ok()?;
    Some(match hirail_cm::route(payload)? {
        Route::Service(service) => Addressee::Service(service.0),
        Route::Id(id) => Addressee::Block(QpnBlock::new((id.0 >> ID_BITS) as u16)),
    })
}

/// How long the sender of a connection request waits for its answer.
pub(super) fn response_timeout(ib: &[u8]) -> Option<Duration> {
    let (_, payload) = Headers::parse(ib.get(..ib.len().checked_sub(4)?)?).ok()?;
    match Mad::parse(payload).ok()?.cm()? {
        Message::Req(req) => Some(Duration::from_nanos(4096 << req.remote_response_timeout)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hirail_wire::mad::{CmAttribute, Mad, MadHeader};
    use hirail_wire::{Bth, Deth, Ext, Opcode, Operation, Psn, QKey, Qpn, Service};

    use super::*;

    /// A packet to QP 1 with a CM message whose first words are `words`.
    fn packet(attribute: CmAttribute, words: [u32; 4]) -> Vec<u8> {
        let opcode = Opcode::new(Service::Ud, Operation::SendOnly).expect("exists");
        let bth = Bth::new(opcode, Qpn::GSI, Psn::new(0));
        let deth = Deth {
            qkey: QKey::GSI,
            source_qp: Qpn::GSI,
        };
        let headers = Headers::new(bth, None, Ext::Deth(deth)).expect("valid");
        let mut ib = vec![0; headers.len()];
        headers.emit(&mut ib);
        let mut data = [0; Mad::DATA_LEN];
        for (bytes, word) in data.chunks_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        let mad = Mad {
            header: MadHeader::cm(attribute, 7),
            data: &data,
        };
        ib.extend(mad.to_bytes());
        ib.extend([0; 4]);
        ib
    }

    #[test]
    fn requests_go_by_service_and_answers_by_id() {
        let block = QpnBlock::new(0x155);
        let theirs = first_communication_id(block) + 9;
        let ours = first_communication_id(QpnBlock::new(3));
        for attribute in CmAttribute::ALL.iter().copied() {
            let ib = packet(attribute, [ours, theirs, 0x0100, 0x4001]);
            let expected = match attribute {
                CmAttribute::Req | CmAttribute::SidrReq => Addressee::Service(0x0100_0000_4001),
                // The first word of a SIDR answer is the request's id.
                CmAttribute::SidrRep => Addressee::Block(QpnBlock::new(3)),
                _ => Addressee::Block(block),
            };
            assert_eq!(addressee(&ib), Some(expected), "{attribute}");
            for cut in [0, 3, 12, 20, ib.len() - 5] {
                assert_eq!(addressee(&ib[..cut]), None);
            }
        }
    }

    #[test]
    fn requests_say_how_long_they_wait() {
        let mut ib = packet(CmAttribute::Req, [7, 0, 0x0100, 0x4001]);
        let timeout = ib.len() - 4 - Mad::DATA_LEN + 43;
        for (code, time) in [
            (0, Duration::from_nanos(4096)),
            (20, Duration::from_micros(4_294_967)),
        ] {
            ib[timeout] = code << 3;
            let said = response_timeout(&ib).expect("a request");
            assert_eq!(said.as_micros(), time.as_micros());
        }
        let question = packet(CmAttribute::SidrReq, [7, 0, 0x0100, 0x4001]);
        assert_eq!(response_timeout(&question), None);
    }
}
