//! Whose a message is, where many processes share a port.

use hirail_wire::cm::{Message, ServiceId};
use hirail_wire::mad::Mad;

use crate::ids::CommId;

/// Whose a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Whoever chose this communication id.
    Id(CommId),
    /// Whoever listens for this service.
    Service(ServiceId),
}

/// Reads from the bytes of a MAD whose it is; `None` where it is no message of connection
/// management.
pub fn route(mad: &[u8]) -> Option<Route> {
    let id = match Mad::parse(mad).ok()?.cm()? {
        Message::Req(req) => return Some(Route::Service(req.service)),
        Message::SidrReq(req) => return Some(Route::Service(req.service)),
        Message::SidrRep(rep) => rep.request_id,
        Message::Mra(mra) => mra.ids.remote,
        Message::Rej(rej) => rej.ids.remote,
        Message::Rep(rep) => rep.ids.remote,
        Message::Rtu(note) | Message::Drep(note) => note.ids.remote,
        Message::Dreq { ids, .. } | Message::Lap(ids) => ids.remote,
        Message::Apr(apr) => apr.ids.remote,
    };
    Some(Route::Id(CommId(id)))
}

#[cfg(test)]
mod tests {
    use hirail_wire::mad::{CmAttribute, MadHeader};

    use super::*;

    #[test]
    fn requests_go_by_service_and_the_rest_by_id() {
        for attribute in CmAttribute::ALL.iter().copied() {
            let mut data = [0; Mad::DATA_LEN];
            for (bytes, word) in data.chunks_mut(4).zip([7u32, 9, 0x0100, 0x4001]) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
            let header = MadHeader::cm(attribute, 1);
            let mad = Mad {
                header,
                data: &data,
            };
            let bytes = mad.to_bytes();
            let expected = match attribute {
                CmAttribute::Req | CmAttribute::SidrReq => {
                    Route::Service(ServiceId(0x0100_0000_4001))
                }
                // The first word of a SIDR answer is the request's id.
                CmAttribute::SidrRep => Route::Id(CommId(7)),
                _ => Route::Id(CommId(9)),
            };
            assert_eq!(route(&bytes), Some(expected), "{attribute}");
            assert_eq!(route(&bytes[..255]), None);
        }
    }
}
