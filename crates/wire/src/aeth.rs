//! What acknowledgements say: the AETH with its syndrome, credits and refusals
//! (IBTA Vol 1, chapter 9, Transport Layer).

use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::{Msn, ParseError, RnrTimer};

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Acknowledgement or its refusal.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: Msn,
}

impl Aeth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let syndrome = Syndrome::from_u8(reader.u8()?);
        let msn = Msn::new(reader.u24()?);
        Ok(Self { syndrome, msn })
    }

    #[inline]
    pub(crate) fn emit(self, writer: &mut Writer<'_>) {
        writer.u8(self.syndrome.to_u8());
        writer.u24(self.msn.value());
    }
}

/// What an AETH says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All up to this PSN arrived.
    Ack(Credits),
    /// No receive work request was there; come again after the time.
    Rnr(RnrTimer),
    /// Refused.
    Nak(NakCode),
    /// A reserved code, which a requester ignores. Holds the whole byte; [`Headers`](crate::Headers) accepts only
    /// bytes that are none of the others.
    Reserved(u8),
}

impl Syndrome {
    /// The syndrome of an AETH byte.
    #[inline]
    pub const fn from_u8(byte: u8) -> Self {
        match byte >> 5 {
            0 => Self::Ack(Credits::from_code(byte)),
            1 => Self::Rnr(RnrTimer::new(byte)),
            3 => Self::Nak(NakCode::from_code(byte)),
            _ => Self::Reserved(byte),
        }
    }

    /// The byte in the AETH.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.code(),
            Self::Rnr(timer) => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code.code(),
            Self::Reserved(byte) => byte,
        }
    }
}

/// End-to-end credits of an ACK: how many receive work requests are free, as a 5-bit code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credits(u8);

impl Credits {
    /// The ACK tells nothing about credits.
    pub const NONE: Self = Self(31);

    /// The credits with the low 5 bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code & 31)
    }

    /// The code, 0 to 31.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The largest credit that does not promise more than `available` receive work requests.
    pub const fn from_available(available: u32) -> Self {
        // From 2 on codes alternate between 2^n (even) and 3·2^(n-1) (odd).
        if available < 2 {
            return Self(available.to_le_bytes()[0]);
        }
        let log = available.ilog2();
        let upper_half = available >> (log - 1) & 1;
        let code = 2 * log + upper_half;
        if code > 30 {
            Self(30)
        } else {
            Self(code.to_le_bytes()[0])
        }
    }

    /// Receive work requests that are promised, 0 to 32768; `None` when the ACK does not tell.
    pub const fn available(self) -> Option<u32> {
        Some(match self.0 {
            31 => return None,
            code @ 0..=1 => code as u32,
            code if code % 2 == 0 => 1 << (code / 2),
            code => 3 << (code / 2 - 1),
        })
    }
}

/// Why a responder refuses a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A gap: the PSN of the NAK is the one that was expected.
    PsnSequenceError,
    /// An opcode out of order, a wrong length, or a right that the QP lacks.
    InvalidRequest,
    /// The key, its rights or its bounds do not admit the access.
    RemoteAccessError,
    /// The responder itself failed.
    RemoteOperationalError,
    /// Of reliable datagram; never on RoCE.
    InvalidRdRequest,
    /// A reserved code, 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// The NAK of the low 5 bits of `code`.
    pub const fn from_code(code: u8) -> Self {
        match code & 31 {
            0 => Self::PsnSequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            code => Self::Reserved(code),
        }
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        match self {
            Self::PsnSequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccessError => 2,
            Self::RemoteOperationalError => 3,
            Self::InvalidRdRequest => 4,
            Self::Reserved(code) => code & 31,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(credits) => match credits.available() {
                Some(available) => write!(f, "ACK credits={available}"),
                None => f.write_str("ACK"),
            },
            Self::Rnr(timer) => write!(f, "RNR NAK wait={:?}", timer.delay()),
            Self::Nak(code) => write!(f, "NAK {code}"),
            Self::Reserved(byte) => write!(f, "reserved syndrome 0x{byte:02x}"),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PsnSequenceError => f.write_str("PSN sequence error"),
            Self::InvalidRequest => f.write_str("invalid request"),
            Self::RemoteAccessError => f.write_str("remote access error"),
            Self::RemoteOperationalError => f.write_str("remote operational error"),
            Self::InvalidRdRequest => f.write_str("invalid RD request"),
            Self::Reserved(code) => write!(f, "reserved code {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard's list of credit codes.
    #[test]
    fn credit_codes() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
            1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, available) in (0..).zip(table) {
            assert_eq!(
                Credits::from_code(code).available(),
                Some(available),
                "{code}"
            );
        }
        assert_eq!(Credits::NONE.available(), None);
        for available in 0..70_000 {
            let promised = Credits::from_available(available)
                .available()
                .expect("a promise");
            let best = table.into_iter().filter(|&value| value <= available).max();
            assert_eq!(Some(promised), best, "{available}");
        }
        assert_eq!(Credits::from_available(u32::MAX).code(), 30);
    }

    #[test]
    fn syndromes_round_trip() {
        for byte in 0..=u8::MAX {
            let syndrome = Syndrome::from_u8(byte);
            assert_eq!(syndrome.to_u8(), byte);
            let reserved = byte & 0x80 != 0 || byte >> 5 == 2;
            assert_eq!(
                matches!(syndrome, Syndrome::Reserved(_)),
                reserved,
                "0x{byte:02x}"
            );
        }
    }
}
