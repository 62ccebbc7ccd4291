//! The base transport header, and [`Headers`]: the legal combinations of it with the extension
//! headers (IBTA Vol 1, chapter 9, Transport Layer).
//!
//! Reserved bits are sent as 0 and ignored when received. Reading refused packets field by field
//! is the business of [`view`](crate::view).

use core::fmt;

use crate::bytes::{Reader, Writer, u24};
use crate::{Ext, Opcode, PKey, ParseError, Psn, Qpn};

/// Base transport header, 12 bytes. The transport header version is always 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// The receiver's completion shall raise a solicited event.
    pub solicited: bool,
    /// Path migration state; true on QPs that never migrate.
    pub migrated: bool,
    /// Zero bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification; not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification; not covered by the ICRC.
    pub becn: bool,
    /// The QP that shall take the packet.
    pub dest_qp: Qpn,
    /// The requester asks for an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// A BTH as a QP without migration sends it: default partition, no flags, no pad.
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Reads a BTH. Fails on an unknown opcode or transport header version.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let &[
            op,
            flags,
            pk0,
            pk1,
            congestion,
            qp0,
            qp1,
            qp2,
            ack,
            psn0,
            psn1,
            psn2,
        ] = bytes;
        let Some(opcode) = Opcode::from_u8(op) else {
            return Err(ParseError::UnknownOpcode(op));
        };
        if flags & 0x0f != 0 {
            return Err(ParseError::BadTver(flags & 0x0f));
        }
        Ok(Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: flags >> 4 & 3,
            pkey: PKey(u16::from_be_bytes([pk0, pk1])),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            dest_qp: Qpn::new(u24([qp0, qp1, qp2])),
            ack_req: ack & 0x80 != 0,
            psn: Psn::new(u24([psn0, psn1, psn2])),
        })
    }

    /// The bytes on the wire.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [pk0, pk1] = self.pkey.0.to_be_bytes();
        let [_, qp0, qp1, qp2] = self.dest_qp.value().to_be_bytes();
        let [_, psn0, psn1, psn2] = self.psn.value().to_be_bytes();
        let flags = (self.solicited as u8) << 7 | (self.migrated as u8) << 6 | (self.pad & 3) << 4;
        let congestion = (self.fecn as u8) << 7 | (self.becn as u8) << 6;
        let ack = (self.ack_req as u8) << 7;
        let op = self.opcode.to_u8();
        [
            op, flags, pk0, pk1, congestion, qp0, qp1, qp2, ack, psn0, psn1, psn2,
        ]
    }
}

/// All headers of a packet, from the BTH to the payload: only combinations that the opcode table
/// allows, so whoever holds one need not check it again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Headers {
    bth: Bth,
    /// Meaningful only where the opcode has an XRCETH; otherwise 0.
    xrc_srqn: u32,
    ext: Ext,
}

impl Headers {
    /// The most bytes that [`emit`](Self::emit) writes.
    pub const MAX_LEN: usize = 48;

    /// Headers of these parts. `None` unless the extension headers, the XRC SRQ number (24 bits)
    /// and the pad (0 to 3, and 0 where no payload can follow) fit the opcode.
    pub fn new(bth: Bth, xrc_srqn: Option<u32>, ext: Ext) -> Option<Self> {
        let fits = bth.opcode.ext_kind() == ext.kind()
            && bth.opcode.has_xrceth() == xrc_srqn.is_some()
            && xrc_srqn.is_none_or(|srqn| srqn < 1 << 24)
            && bth.pad <= 3
            && (bth.pad == 0 || bth.opcode.operation().has_payload())
            && ext.is_canonical();
        fits.then_some(Self {
            bth,
            xrc_srqn: xrc_srqn.unwrap_or(0),
            ext,
        })
    }

    /// The base transport header.
    #[inline]
    pub const fn bth(&self) -> &Bth {
        &self.bth
    }

    /// The opcode.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.bth.opcode
    }

    /// The shared receive queue that an XRC request names.
    #[inline]
    pub const fn xrc_srqn(&self) -> Option<u32> {
        if self.bth.opcode.has_xrceth() {
            Some(self.xrc_srqn)
        } else {
            None
        }
    }

    /// The extension headers.
    #[inline]
    pub const fn ext(&self) -> &Ext {
        &self.ext
    }

    /// The same with another PSN.
    #[inline]
    #[must_use]
    pub const fn with_psn(mut self, psn: Psn) -> Self {
        self.bth.psn = psn;
        self
    }

    /// The same with or without a request for acknowledgement.
    #[inline]
    #[must_use]
    pub const fn with_ack_req(mut self, ack_req: bool) -> Self {
        self.bth.ack_req = ack_req;
        self
    }

    /// The same with a solicited event or without.
    #[inline]
    #[must_use]
    pub const fn with_solicited(mut self, solicited: bool) -> Self {
        self.bth.solicited = solicited;
        self
    }

    /// The same to another QP.
    #[inline]
    #[must_use]
    pub const fn with_dest_qp(mut self, dest_qp: Qpn) -> Self {
        self.bth.dest_qp = dest_qp;
        self
    }

    /// The same with the low two bits of `pad` as pad count; 0 where no payload can follow.
    #[inline]
    #[must_use]
    pub const fn with_pad(mut self, pad: u8) -> Self {
        self.bth.pad = if self.bth.opcode.operation().has_payload() {
            pad & 3
        } else {
            0
        };
        self
    }

    /// The same with the pad count for a payload of `len` bytes.
    #[inline]
    #[must_use]
    pub const fn with_payload_len(self, len: usize) -> Self {
        self.with_pad((len.wrapping_neg() & 3).to_le_bytes()[0])
    }

    /// Bytes from the BTH to the payload.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "headers are never empty")]
    pub const fn len(&self) -> usize {
        self.bth.opcode.header_len()
    }

    /// Bytes from the BTH to the ICRC inclusive, with a payload of `payload` bytes and its pad.
    #[inline]
    pub const fn ib_len(&self, payload: usize) -> usize {
        self.len() + payload.next_multiple_of(4) + 4
    }

    /// Writes the headers to the front of `buffer` and returns their length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`len`](Self::len).
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer);
        writer.put(self.bth.to_bytes());
        if self.bth.opcode.has_xrceth() {
            writer.u32(self.xrc_srqn);
        }
        self.ext.emit(&mut writer);
        writer.written()
    }

    /// Reads the headers of a packet. `ib` reaches from the BTH to the pad, without the ICRC.
    /// Returns them and the payload without its pad.
    #[inline]
    pub fn parse(ib: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(ib);
        let bth = Bth::parse(reader.take()?)?;
        let opcode = bth.opcode;
        let xrc_srqn = if opcode.has_xrceth() {
            reader.u32()? & 0x00ff_ffff
        } else {
            0
        };
        let ext = Ext::parse(opcode.ext_kind(), &mut reader)?;
        let body = reader.rest();
        if opcode.operation().has_payload() {
            let pad = usize::from(bth.pad);
            match body.split_at_checked(body.len().wrapping_sub(pad)) {
                Some((payload, _)) if body.len().is_multiple_of(4) => {
                    Ok((Self { bth, xrc_srqn, ext }, payload))
                }
                _ => Err(ParseError::BadPad {
                    pad: bth.pad,
                    body: body.len(),
                }),
            }
        } else if !body.is_empty() {
            Err(ParseError::UnexpectedPayload {
                opcode: opcode.to_u8(),
                body: body.len(),
            })
        } else if bth.pad != 0 {
            Err(ParseError::BadPad {
                pad: bth.pad,
                body: 0,
            })
        } else {
            Ok((Self { bth, xrc_srqn, ext }, body))
        }
    }
}

/// One line: opcode, destination, PSN, then what the extension headers say.
impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bth {
            opcode,
            dest_qp,
            psn,
            ..
        } = self.bth;
        write!(f, "{opcode} qp={dest_qp} psn={psn}")?;
        for (set, name) in [
            (self.bth.solicited, "se"),
            (self.bth.ack_req, "ack"),
            (self.bth.fecn, "fecn"),
            (self.bth.becn, "becn"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        if let Some(srqn) = self.xrc_srqn() {
            write!(f, " srq=0x{srqn:06x}")?;
        }
        fmt::Display::fmt(&self.ext, f)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aeth, Credits, Msn, NakCode, Operation, Reth, Rkey, Service, Syndrome};

    #[test]
    fn combinations_are_checked() {
        let opcode = |service, operation| Opcode::new(service, operation).expect("an opcode");
        let bth = Bth::new(
            opcode(Service::Rc, Operation::SendOnly),
            Qpn::new(2),
            Psn::new(3),
        );
        let reth = Ext::Reth(Reth {
            va: 0,
            rkey: Rkey::new(0),
            length: 0,
        });
        assert!(Headers::new(bth, None, Ext::None).is_some());
        assert!(
            Headers::new(bth, None, reth).is_none(),
            "a SEND has no RETH"
        );
        assert!(
            Headers::new(bth, Some(1), Ext::None).is_none(),
            "RC has no XRCETH"
        );
        assert!(Headers::new(Bth { pad: 4, ..bth }, None, Ext::None).is_none());

        let ack = Bth {
            opcode: opcode(Service::Rc, Operation::Acknowledge),
            ..bth
        };
        let aeth = |syndrome| {
            Ext::Aeth(Aeth {
                syndrome,
                msn: Msn::new(0),
            })
        };
        assert!(Headers::new(ack, None, aeth(Syndrome::Ack(Credits::NONE))).is_some());
        assert!(Headers::new(ack, None, aeth(Syndrome::Reserved(0x45))).is_some());
        assert!(Headers::new(ack, None, aeth(Syndrome::Reserved(0x05))).is_none());
        assert!(Headers::new(ack, None, aeth(Syndrome::Nak(NakCode::Reserved(4)))).is_none());
        let padded = Bth { pad: 1, ..ack };
        assert!(Headers::new(padded, None, aeth(Syndrome::Ack(Credits::NONE))).is_none());

        let xrc = Bth {
            opcode: opcode(Service::Xrc, Operation::SendOnly),
            ..bth
        };
        assert!(Headers::new(xrc, None, Ext::None).is_none());
        assert!(Headers::new(xrc, Some(1 << 24), Ext::None).is_none());
        assert_eq!(
            Headers::new(xrc, Some(9), Ext::None).and_then(|h| h.xrc_srqn()),
            Some(9)
        );
    }
}
