//! From why bytes were refused to the counter that says so.

use hirail_vocab::DropReason;
use hirail_wire::ParseError;

/// The reason under which a packet that could not be parsed is counted.
pub const fn drop_reason(error: ParseError) -> DropReason {
    match error {
        ParseError::Truncated { .. } => DropReason::Truncated,
        ParseError::UnknownOpcode(opcode) if opcode >= 0xc0 => DropReason::ManufacturerOpcode,
        ParseError::UnknownOpcode(_) => DropReason::UnknownOpcode,
        ParseError::ForeignVendor => DropReason::ManufacturerOpcode,
        ParseError::BadTver(_) => DropReason::BadTver,
        ParseError::BadPad { .. } => DropReason::BadPad,
        ParseError::Fragmented => DropReason::Fragmented,
        ParseError::UnexpectedPayload { .. }
        | ParseError::BadFlush(_)
        | ParseError::BadIpVersion(_)
        | ParseError::BadIpHeaderLength(_)
        | ParseError::BadIpChecksum
        | ParseError::BadLength { .. }
        | ParseError::BadUdpChecksum
        | ParseError::BadGrhNextHeader(_)
        | ParseError::BadMadVersion(_)
        | ParseError::UnknownMacControl(_)
        | ParseError::BadLldpOrder
        | ParseError::BadTlv { .. } => DropReason::BadHeader,
    }
}
