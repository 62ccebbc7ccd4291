//! From why bytes were refused to the counter that says so.

use hirail_vocab::DropReason;
use hirail_wire::ParseError;

/// The reason under which a packet that could not be parsed is counted; it has the error's name.
pub const fn drop_reason(error: ParseError) -> DropReason {
    match error {
        ParseError::Truncated { .. } => DropReason::Truncated,
        ParseError::UnknownOpcode(0xc0..) => DropReason::ManufacturerOpcode,
        ParseError::UnknownOpcode(_) => DropReason::UnknownOpcode,
        ParseError::ForeignVendor => DropReason::ForeignVendor,
        ParseError::BadTver(_) => DropReason::BadTver,
        ParseError::BadPad { .. } => DropReason::BadPad,
        ParseError::UnexpectedPayload { .. } => DropReason::UnexpectedPayload,
        ParseError::BadFlush(_) => DropReason::BadFlush,
        ParseError::BadIpVersion(_) => DropReason::BadIpVersion,
        ParseError::BadIpHeaderLength(_) => DropReason::BadIpHeaderLength,
        ParseError::Fragmented => DropReason::Fragmented,
        ParseError::BadIpChecksum => DropReason::BadIpChecksum,
        ParseError::BadLength { .. } => DropReason::BadLength,
        ParseError::BadUdpChecksum => DropReason::BadUdpChecksum,
        ParseError::BadGrhNextHeader(_) => DropReason::BadGrhNextHeader,
        ParseError::BadMadVersion(_) => DropReason::BadMadVersion,
        ParseError::UnknownMacControl(_) => DropReason::UnknownMacControl,
        // Neither is looked at for a packet of the transport.
        ParseError::BadLldpOrder | ParseError::BadTlv { .. } => DropReason::BadHeader,
    }
}
