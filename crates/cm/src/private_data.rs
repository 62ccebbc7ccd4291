//! What the users tell each other while they connect: how much of it fits where, and the header in
//! front of it by which RDMA-CM says which IP addresses are meant.

use hirail_wire::cm::{IpHeader, ServiceId, private_data};

use crate::error::CmError;

/// Bytes of private data that each message carries at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits;

impl Limits {
    /// A connection request of an IP port.
    pub const REQ_IP: usize = Self::REQ - IpHeader::LEN;
    /// A connection request.
    pub const REQ: usize = private_data::REQ.end - private_data::REQ.start;
    /// An acceptance.
    pub const REP: usize = private_data::REP.end - private_data::REP.start;
    /// A refusal.
    pub const REJ: usize = private_data::REJ.end - private_data::REJ.start;
    /// "Ready".
    pub const RTU: usize = private_data::RTU.end - private_data::RTU.start;
    /// A request to disconnect.
    pub const DREQ: usize = private_data::DREQ.end - private_data::DREQ.start;
    /// A question for a datagram service of an IP port.
    pub const SIDR_REQ_IP: usize = Self::SIDR_REQ - IpHeader::LEN;
    /// A question for a datagram service.
    pub const SIDR_REQ: usize = private_data::SIDR_REQ.end - private_data::SIDR_REQ.start;
    /// The answer to one.
    pub const SIDR_REP: usize = private_data::SIDR_REP.end - private_data::SIDR_REP.start;
}

/// Refuses private data that does not fit.
pub(crate) fn check(message: &'static str, data: &[u8], most: usize) -> Result<(), CmError> {
    if data.len() <= most {
        return Ok(());
    }
    Err(CmError::PrivateDataTooLong {
        message,
        most,
        got: data.len(),
    })
}

/// The private data of a request: the header, where there is one, and what the user says. `message`
/// holds `most` bytes in all.
pub(crate) fn compose(
    message: &'static str,
    addresses: Option<&IpHeader>,
    data: &[u8],
    most: usize,
) -> Result<Vec<u8>, CmError> {
    let header = addresses.map(IpHeader::to_bytes);
    let header = header.as_ref().map_or(&[][..], |header| &header[..]);
    check(message, data, most - header.len())?;
    Ok([header, data].concat())
}

/// A header of another version, or of no IP version that there is.
pub(crate) struct BadHeader;

/// Takes the private data of a request for `service` apart. Services that stand for an IP port have
/// the header in front.
pub(crate) fn split(
    service: ServiceId,
    data: &[u8],
) -> Result<(Option<IpHeader>, Vec<u8>), BadHeader> {
    if service.port().is_none() {
        return Ok((None, data.to_vec()));
    }
    let header = IpHeader::parse(data).ok_or(BadHeader)?;
    Ok((Some(header), data[IpHeader::LEN..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths that RDMA-CM's users know.
    #[test]
    fn limits() {
        assert_eq!((Limits::REQ, Limits::REQ_IP), (92, 56));
        assert_eq!((Limits::REP, Limits::REJ, Limits::RTU), (196, 148, 224));
        assert_eq!((Limits::SIDR_REQ, Limits::SIDR_REQ_IP), (216, 180));
        assert_eq!((Limits::SIDR_REP, Limits::DREQ), (136, 220));
    }
}
