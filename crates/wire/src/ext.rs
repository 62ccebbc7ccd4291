//! The extension headers, and [`Ext`]: the groups in which they follow a BTH (IBTA Vol 1,
//! chapter 9, Transport Layer).

use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::{Aeth, ExtKind, Hello, NakCode, ParseError, QKey, Qpn, Rkey, Sack, Syndrome};

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
    pub(crate) const fn is_canonical(&self) -> bool {
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
    pub(crate) fn parse(kind: ExtKind, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match kind {
            ExtKind::None => Self::None,
            ExtKind::Imm => Self::Imm(*reader.take()?),
            ExtKind::Ieth => Self::Ieth(Rkey::new(reader.u32()?)),
            ExtKind::Reth => Self::Reth(Reth::parse(reader)?),
            ExtKind::RethImm => Self::RethImm(Reth::parse(reader)?, *reader.take()?),
            ExtKind::Atomic => Self::Atomic(AtomicEth::parse(reader)?),
            ExtKind::Aeth => Self::Aeth(Aeth::parse(reader)?),
            ExtKind::AtomicAck => Self::AtomicAck(Aeth::parse(reader)?, reader.u64()?),
            ExtKind::Deth => Self::Deth(Deth::parse(reader)?),
            ExtKind::DethImm => Self::DethImm(Deth::parse(reader)?, *reader.take()?),
            ExtKind::Flush => Self::Flush(Feth::parse(reader)?, Reth::parse(reader)?),
            ExtKind::Cnp => {
                reader.take::<16>()?;
                Self::Cnp
            }
            ExtKind::Hello => Self::Hello(Hello::parse(reader)?),
            ExtKind::Sack => Self::Sack(Sack::parse(reader)?),
        })
    }

    #[inline]
    pub(crate) fn emit(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::None => {}
            Self::Imm(imm) => writer.put(imm),
            Self::Ieth(rkey) => writer.u32(rkey.value()),
            Self::Reth(reth) => reth.emit(writer),
            Self::RethImm(reth, imm) => {
                reth.emit(writer);
                writer.put(imm);
            }
            Self::Atomic(atomic) => atomic.emit(writer),
            Self::Aeth(aeth) => aeth.emit(writer),
            Self::AtomicAck(aeth, original) => {
                aeth.emit(writer);
                writer.u64(original);
            }
            Self::Deth(deth) => deth.emit(writer),
            Self::DethImm(deth, imm) => {
                deth.emit(writer);
                writer.put(imm);
            }
            Self::Flush(feth, reth) => {
                feth.emit(writer);
                reth.emit(writer);
            }
            Self::Cnp => writer.put([0; 16]),
            Self::Hello(hello) => hello.emit(writer),
            Self::Sack(sack) => sack.emit(writer),
        }
    }
}

impl Reth {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let va = reader.u64()?;
        let rkey = Rkey::new(reader.u32()?);
        let length = reader.u32()?;
        Ok(Self { va, rkey, length })
    }

    #[inline]
    fn emit(self, writer: &mut Writer<'_>) {
        writer.u64(self.va);
        writer.u32(self.rkey.value());
        writer.u32(self.length);
    }
}

impl AtomicEth {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            va: reader.u64()?,
            rkey: Rkey::new(reader.u32()?),
            swap_or_add: reader.u64()?,
            compare: reader.u64()?,
        })
    }

    #[inline]
    fn emit(self, writer: &mut Writer<'_>) {
        writer.u64(self.va);
        writer.u32(self.rkey.value());
        writer.u64(self.swap_or_add);
        writer.u64(self.compare);
    }
}

impl Deth {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let qkey = QKey(reader.u32()?);
        let source_qp = Qpn::new(reader.u32()?);
        Ok(Self { qkey, source_qp })
    }

    #[inline]
    fn emit(self, writer: &mut Writer<'_>) {
        writer.u32(self.qkey.0);
        writer.u32(self.source_qp.value());
    }
}

impl Feth {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let &[_, _, _, byte] = reader.take()?;
        let range = match byte >> 4 & 3 {
            0 => FlushRange::Range,
            1 => FlushRange::WholeRegion,
            level => return Err(ParseError::BadFlush(level)),
        };
        let (global, persistent) = (byte & 1 != 0, byte & 2 != 0);
        Ok(Self {
            range,
            global,
            persistent,
        })
    }

    #[inline]
    fn emit(self, writer: &mut Writer<'_>) {
        let level = u32::from(self.range == FlushRange::WholeRegion);
        writer.u32(level << 4 | u32::from(self.persistent) << 1 | u32::from(self.global));
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
