//! The transport headers as types: BTH, the extension headers, and [`Headers`], their legal
//! combinations. Layouts: `protocol.md` 1.7, 1.8; syndromes: `transport.md` 3.5.
//!
//! Reserved bits are sent as 0 and ignored when received. Reading refused packets field by field
//! is the business of the views.

use core::fmt;

use crate::bytes::{Reader, Writer, u24};
use crate::{ExtKind, Msn, Opcode, PKey, ParseError, Psn, QKey, Qpn, Rkey, RnrTimer, Service};

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

/// RDMA extended transport header, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Address in the remote region.
    pub va: u64,
    /// Key of the remote region.
    pub rkey: Rkey,
    /// Bytes of the whole message; legal up to 2^31, which the responder checks.
    pub length: u32,
}

/// Atomic extended transport header, 28 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// Address of the 8 bytes, a multiple of 8, which the responder checks.
    pub va: u64,
    /// Key of the remote region.
    pub rkey: Rkey,
    /// The value to store (compare-and-swap) or to add (fetch-and-add).
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Acknowledgement or its refusal.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: Msn,
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
    /// A reserved code, which a requester ignores. Holds the whole byte; [`Headers`] accepts only
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

/// Datagram extended transport header, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deth {
    /// Must equal the receiver's.
    pub qkey: QKey,
    /// The QP that sent the packet.
    pub source_qp: Qpn,
}

/// Flush extended transport header, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feth {
    /// How much to flush.
    pub range: FlushRange,
    /// Make it visible to everybody.
    pub global: bool,
    /// Make it survive a power failure.
    pub persistent: bool,
}

/// What a FLUSH covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlushRange {
    /// The bytes that the RETH names.
    Range,
    /// The whole region of the RETH's key.
    WholeRegion,
}

/// hirail's hello, 16 bytes: tells a peer of the same kind what it may use.
///
/// 0: [`Hello::MARK`]; 8: version; 9: flags; 10: window; 12: nonce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Version of this header and of [`Sack`].
    pub version: u8,
    /// A set of the `Hello::` flags.
    pub flags: u8,
    /// Packets out of order that the sender of the hello can keep.
    pub window_packets: u16,
    /// Chosen by the side that asks, repeated by the side that answers.
    pub nonce: u32,
}

impl Hello {
    /// First bytes of a hello. Manufacturer opcodes are anybody's, so these tell it is ours.
    pub const MARK: [u8; 8] = *b"hirailSR";
    /// The version described here.
    pub const VERSION: u8 = 1;
    /// Flag: this answers a hello.
    pub const REPLY: u8 = 1;
    /// Flag: the sender takes selective acknowledgements and keeps packets out of order.
    pub const SELECTIVE_REPEAT: u8 = 2;
}

/// hirail's selective acknowledgement, 36 bytes: what has arrived beyond the first gap.
///
/// 0: flags (bit 7: of read responses); 1: cumulative PSN; 4: four 64-bit words, bit 0 of the
/// first one first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sack {
    /// The next PSN that is expected: the first gap.
    pub cumulative: Psn,
    /// Bit `i` of the 256 tells that PSN `cumulative + 1 + i` has arrived.
    pub bitmap: [u64; 4],
    /// The PSNs are those of READ responses, told by a requester, and not of requests.
    pub response: bool,
}

impl Sack {
    /// PSNs beyond the cumulative one that the bitmap covers.
    pub const SPAN: u32 = 256;

    /// A report that nothing from `cumulative` on has arrived.
    pub const fn new(cumulative: Psn, response: bool) -> Self {
        Self {
            cumulative,
            bitmap: [0; 4],
            response,
        }
    }

    /// Notes that `psn` has arrived. Ignored outside the span of the bitmap.
    pub const fn insert(&mut self, psn: Psn) {
        if let Some((word, bit)) = self.position(psn) {
            self.bitmap[word] |= bit;
        }
    }

    /// Whether `psn` is reported as arrived. Everything before the cumulative PSN has.
    pub const fn contains(&self, psn: Psn) -> bool {
        match self.position(psn) {
            Some((word, bit)) => self.bitmap[word] & bit != 0,
            None => psn.is_before(self.cumulative),
        }
    }

    const fn position(&self, psn: Psn) -> Option<(usize, u64)> {
        let index = psn.distance_from(self.cumulative) - 1;
        if index < 0 || index >= Self::SPAN.cast_signed() {
            return None;
        }
        Some((index.cast_unsigned() as usize / 64, 1 << (index % 64)))
    }
}

/// The extension headers that follow BTH (and XRCETH), as one of their legal groups.
/// Immediate data stays in wire order, as verbs hands it over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ext {
    /// None.
    None,
    /// Immediate data.
    Imm([u8; 4]),
    /// The key to invalidate.
    Ieth(Rkey),
    /// RETH.
    Reth(Reth),
    /// RETH and immediate data.
    RethImm(Reth, [u8; 4]),
    /// AtomicETH.
    Atomic(AtomicEth),
    /// AETH.
    Aeth(Aeth),
    /// AETH and what the 8 bytes were before the atomic.
    AtomicAck(Aeth, u64),
    /// DETH.
    Deth(Deth),
    /// DETH and immediate data.
    DethImm(Deth, [u8; 4]),
    /// FETH and RETH.
    Flush(Feth, Reth),
    /// The reserved bytes of a CNP.
    Cnp,
    /// hirail's hello.
    Hello(Hello),
    /// hirail's selective acknowledgement.
    Sack(Sack),
}

impl Ext {
    /// Which group this is.
    #[inline]
    pub const fn kind(&self) -> ExtKind {
        match self {
            Self::None => ExtKind::None,
            Self::Imm(_) => ExtKind::Imm,
            Self::Ieth(_) => ExtKind::Ieth,
            Self::Reth(_) => ExtKind::Reth,
            Self::RethImm(..) => ExtKind::RethImm,
            Self::Atomic(_) => ExtKind::Atomic,
            Self::Aeth(_) => ExtKind::Aeth,
            Self::AtomicAck(..) => ExtKind::AtomicAck,
            Self::Deth(_) => ExtKind::Deth,
            Self::DethImm(..) => ExtKind::DethImm,
            Self::Flush(..) => ExtKind::Flush,
            Self::Cnp => ExtKind::Cnp,
            Self::Hello(_) => ExtKind::Hello,
            Self::Sack(_) => ExtKind::Sack,
        }
    }

    /// The RETH, where there is one.
    #[inline]
    pub const fn reth(&self) -> Option<Reth> {
        match *self {
            Self::Reth(reth) | Self::RethImm(reth, _) | Self::Flush(_, reth) => Some(reth),
            _ => None,
        }
    }

    /// The AETH, where there is one.
    #[inline]
    pub const fn aeth(&self) -> Option<Aeth> {
        match *self {
            Self::Aeth(aeth) | Self::AtomicAck(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// The DETH, where there is one.
    #[inline]
    pub const fn deth(&self) -> Option<Deth> {
        match *self {
            Self::Deth(deth) | Self::DethImm(deth, _) => Some(deth),
            _ => None,
        }
    }

    /// The immediate data, where there is any.
    #[inline]
    pub const fn imm(&self) -> Option<[u8; 4]> {
        match *self {
            Self::Imm(imm) | Self::RethImm(_, imm) | Self::DethImm(_, imm) => Some(imm),
            _ => None,
        }
    }

    /// Whether each value has one form on the wire and that form stands for the same value.
    const fn is_canonical(&self) -> bool {
        match self.aeth() {
            Some(Aeth {
                syndrome: Syndrome::Reserved(byte),
                ..
            }) => {
                matches!(Syndrome::from_u8(byte), Syndrome::Reserved(_))
            }
            Some(Aeth {
                syndrome: Syndrome::Nak(NakCode::Reserved(code)),
                ..
            }) => code < 32 && matches!(NakCode::from_code(code), NakCode::Reserved(_)),
            _ => true,
        }
    }

    #[inline]
    fn parse(kind: ExtKind, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match kind {
            ExtKind::None => Self::None,
            ExtKind::Imm => Self::Imm(*reader.take()?),
            ExtKind::Ieth => Self::Ieth(Rkey::new(reader.u32()?)),
            ExtKind::Reth => Self::Reth(parse_reth(reader)?),
            ExtKind::RethImm => Self::RethImm(parse_reth(reader)?, *reader.take()?),
            ExtKind::Atomic => Self::Atomic(AtomicEth {
                va: reader.u64()?,
                rkey: Rkey::new(reader.u32()?),
                swap_or_add: reader.u64()?,
                compare: reader.u64()?,
            }),
            ExtKind::Aeth => Self::Aeth(parse_aeth(reader)?),
            ExtKind::AtomicAck => Self::AtomicAck(parse_aeth(reader)?, reader.u64()?),
            ExtKind::Deth => Self::Deth(parse_deth(reader)?),
            ExtKind::DethImm => Self::DethImm(parse_deth(reader)?, *reader.take()?),
            ExtKind::Flush => Self::Flush(parse_feth(reader)?, parse_reth(reader)?),
            ExtKind::Cnp => {
                reader.take::<16>()?;
                Self::Cnp
            }
            ExtKind::Hello => Self::Hello(parse_hello(reader)?),
            ExtKind::Sack => Self::Sack(parse_sack(reader)?),
        })
    }

    #[inline]
    fn emit(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::None => {}
            Self::Imm(imm) => writer.put(imm),
            Self::Ieth(rkey) => writer.u32(rkey.value()),
            Self::Reth(reth) => emit_reth(reth, writer),
            Self::RethImm(reth, imm) => {
                emit_reth(reth, writer);
                writer.put(imm);
            }
            Self::Atomic(AtomicEth {
                va,
                rkey,
                swap_or_add,
                compare,
            }) => {
                writer.u64(va);
                writer.u32(rkey.value());
                writer.u64(swap_or_add);
                writer.u64(compare);
            }
            Self::Aeth(aeth) => emit_aeth(aeth, writer),
            Self::AtomicAck(aeth, original) => {
                emit_aeth(aeth, writer);
                writer.u64(original);
            }
            Self::Deth(deth) => emit_deth(deth, writer),
            Self::DethImm(deth, imm) => {
                emit_deth(deth, writer);
                writer.put(imm);
            }
            Self::Flush(
                Feth {
                    range,
                    global,
                    persistent,
                },
                reth,
            ) => {
                let level = u32::from(range == FlushRange::WholeRegion);
                writer.u32(level << 4 | u32::from(persistent) << 1 | u32::from(global));
                emit_reth(reth, writer);
            }
            Self::Cnp => writer.put([0; 16]),
            Self::Hello(Hello {
                version,
                flags,
                window_packets,
                nonce,
            }) => {
                writer.put(Hello::MARK);
                writer.put([version, flags]);
                writer.u16(window_packets);
                writer.u32(nonce);
            }
            Self::Sack(Sack {
                cumulative,
                bitmap,
                response,
            }) => {
                writer.u8(u8::from(response) << 7);
                writer.u24(cumulative.value());
                for word in bitmap {
                    writer.u64(word);
                }
            }
        }
    }
}

#[inline]
fn parse_reth(reader: &mut Reader<'_>) -> Result<Reth, ParseError> {
    Ok(Reth {
        va: reader.u64()?,
        rkey: Rkey::new(reader.u32()?),
        length: reader.u32()?,
    })
}

#[inline]
fn emit_reth(reth: Reth, writer: &mut Writer<'_>) {
    writer.u64(reth.va);
    writer.u32(reth.rkey.value());
    writer.u32(reth.length);
}

#[inline]
fn parse_aeth(reader: &mut Reader<'_>) -> Result<Aeth, ParseError> {
    Ok(Aeth {
        syndrome: Syndrome::from_u8(reader.u8()?),
        msn: Msn::new(reader.u24()?),
    })
}

#[inline]
fn emit_aeth(aeth: Aeth, writer: &mut Writer<'_>) {
    writer.u8(aeth.syndrome.to_u8());
    writer.u24(aeth.msn.value());
}

#[inline]
fn parse_deth(reader: &mut Reader<'_>) -> Result<Deth, ParseError> {
    let qkey = QKey(reader.u32()?);
    Ok(Deth {
        qkey,
        source_qp: Qpn::new(reader.u32()?),
    })
}

#[inline]
fn emit_deth(deth: Deth, writer: &mut Writer<'_>) {
    writer.u32(deth.qkey.0);
    writer.u32(deth.source_qp.value());
}

#[inline]
fn parse_feth(reader: &mut Reader<'_>) -> Result<Feth, ParseError> {
    let &[_, _, _, byte] = reader.take()?;
    let range = match byte >> 4 & 3 {
        0 => FlushRange::Range,
        1 => FlushRange::WholeRegion,
        level => return Err(ParseError::BadFlush(level)),
    };
    Ok(Feth {
        range,
        global: byte & 1 != 0,
        persistent: byte & 2 != 0,
    })
}

fn parse_hello(reader: &mut Reader<'_>) -> Result<Hello, ParseError> {
    if *reader.take()? != Hello::MARK {
        return Err(ParseError::ForeignVendor);
    }
    Ok(Hello {
        version: reader.u8()?,
        flags: reader.u8()?,
        window_packets: reader.u16()?,
        nonce: reader.u32()?,
    })
}

fn parse_sack(reader: &mut Reader<'_>) -> Result<Sack, ParseError> {
    Ok(Sack {
        response: reader.u8()? & 0x80 != 0,
        cumulative: Psn::new(reader.u24()?),
        bitmap: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
    })
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

    /// Whether this is a request or response of a connected service (RC, UC, XRC).
    #[inline]
    pub const fn is_connected(&self) -> bool {
        matches!(
            self.bth.opcode.service(),
            Service::Rc | Service::Uc | Service::Xrc
        )
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

/// Each field with a space in front; nothing for none.
impl fmt::Display for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Flush(
            Feth {
                range,
                global,
                persistent,
            },
            _,
        ) = self
        {
            let range = if *range == FlushRange::Range {
                "range"
            } else {
                "region"
            };
            let global = if *global { " global" } else { "" };
            let persistent = if *persistent { " persistent" } else { "" };
            write!(f, " {range}{global}{persistent}")?;
        }
        if let Some(Deth { qkey, source_qp }) = self.deth() {
            write!(f, " src={source_qp} qkey=0x{:08x}", qkey.0)?;
        }
        if let Some(Reth { va, rkey, length }) = self.reth() {
            write!(f, " va=0x{va:016x} rkey={rkey} len={length}")?;
        }
        if let Some(Aeth { syndrome, msn }) = self.aeth() {
            write!(f, " {syndrome} msn={}", msn.value())?;
        }
        if let Some(imm) = self.imm() {
            write!(f, " imm=0x{:08x}", u32::from_be_bytes(imm))?;
        }
        match self {
            Self::Ieth(rkey) => write!(f, " inv={rkey}"),
            Self::Atomic(AtomicEth {
                va,
                rkey,
                swap_or_add,
                compare,
            }) => {
                write!(
                    f,
                    " va=0x{va:016x} rkey={rkey} swap_or_add=0x{swap_or_add:x}"
                )?;
                write!(f, " compare=0x{compare:x}")
            }
            Self::AtomicAck(_, original) => write!(f, " original=0x{original:x}"),
            Self::Hello(Hello {
                version,
                flags,
                window_packets,
                nonce,
            }) => {
                write!(
                    f,
                    " version={version} flags=0x{flags:02x} window={window_packets}"
                )?;
                write!(f, " nonce=0x{nonce:08x}")
            }
            Self::Sack(Sack {
                cumulative,
                bitmap,
                response,
            }) => {
                let of = if *response { " of=responses" } else { "" };
                let arrived: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
                write!(f, " next={cumulative} beyond={arrived}{of}")
            }
            _ => Ok(()),
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
    use crate::Operation;

    /// `transport.md` 3.5, credit codes.
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

    #[test]
    fn sack_covers_its_span() {
        let mut sack = Sack::new(Psn::new(0xff_fff0), false);
        let beyond = |n| sack.cumulative.add(n);
        let marked = [1, 2, 64, 65, 128, 256];
        let (inside, outside) = (marked.map(beyond), [0, 257, 3].map(beyond));
        for psn in inside {
            sack.insert(psn);
        }
        sack.insert(outside[0]);
        sack.insert(outside[1]);
        assert!(inside.into_iter().all(|psn| sack.contains(psn)));
        assert!(!outside.into_iter().any(|psn| sack.contains(psn)));
        assert!(sack.contains(sack.cumulative.prev()));
        assert_eq!(sack.bitmap.map(u64::count_ones), [3, 2, 0, 1]);
    }
}
