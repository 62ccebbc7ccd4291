//! Management datagrams: 256 bytes in a UD SEND to QP1 (IBTA Vol 1, chapter 13, Management
//! Model). RoCE uses the connection management class only; what its messages say is in [`cm`].

use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::{ParseError, cm};

/// Common header of a management datagram, 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MadHeader {
    /// Management class.
    pub class: MadClass,
    /// Version of the class; 2 for connection management.
    pub class_version: u8,
    /// Whether this answers a request; never set in connection management.
    pub response: bool,
    /// Method, 7 bits.
    pub method: u8,
    /// Status, 0 for success.
    pub status: u16,
    /// Whatever the class wants.
    pub class_specific: u16,
    /// Pairs questions with answers.
    pub transaction_id: u64,
    /// What the data is; for connection management the kind of message.
    pub attribute_id: u16,
    /// Refines the attribute; carries the ECE attribute in REQ and REP.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Length in bytes.
    pub const LEN: usize = 24;
    /// The only base version.
    pub const BASE_VERSION: u8 = 1;
    /// Method Send, the only one of connection management.
    pub const METHOD_SEND: u8 = 3;

    /// The header of a connection management message.
    pub const fn cm(attribute: CmAttribute, transaction_id: u64) -> Self {
        Self {
            class: MadClass::CM,
            class_version: 2,
            response: false,
            method: Self::METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute_id: attribute as u16,
            attribute_modifier: 0,
        }
    }

    /// Reads a header. Fails when there are too few bytes or the base version is not 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let base_version = reader.u8()?;
        if base_version != Self::BASE_VERSION {
            return Err(ParseError::BadMadVersion(base_version));
        }
        let class = MadClass(reader.u8()?);
        let class_version = reader.u8()?;
        let method = reader.u8()?;
        let status = reader.u16()?;
        let class_specific = reader.u16()?;
        let transaction_id = reader.u64()?;
        let attribute_id = reader.u16()?;
        let _reserved = reader.u16()?;
        let attribute_modifier = reader.u32()?;
        Ok(Self {
            class,
            class_version,
            response: method & 0x80 != 0,
            method: method & 0x7f,
            status,
            class_specific,
            transaction_id,
            attribute_id,
            attribute_modifier,
        })
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        let method = u8::from(self.response) << 7 | self.method & 0x7f;
        writer.put([Self::BASE_VERSION, self.class.0, self.class_version, method]);
        writer.u16(self.status);
        writer.u16(self.class_specific);
        writer.u64(self.transaction_id);
        writer.u16(self.attribute_id);
        writer.u16(0);
        writer.u32(self.attribute_modifier);
        bytes
    }
}

/// A management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad<'a> {
    /// The common header.
    pub header: MadHeader,
    /// The rest, whose meaning class and attribute tell.
    pub data: &'a [u8; Mad::DATA_LEN],
}

impl<'a> Mad<'a> {
    /// Length in bytes.
    pub const LEN: usize = 256;
    /// Bytes after the header.
    pub const DATA_LEN: usize = Self::LEN - MadHeader::LEN;

    /// Reads the payload of a packet to QP1, which must have exactly 256 bytes.
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let header = MadHeader::parse(payload)?;
        let data = payload.get(MadHeader::LEN..).unwrap_or_default();
        match data.first_chunk() {
            Some(chunk) if chunk.len() == data.len() => Ok(Self {
                header,
                data: chunk,
            }),
            Some(_) => Err(ParseError::BadLength {
                field: payload.len(),
                room: Self::LEN,
            }),
            None => Err(ParseError::truncated(Self::LEN, payload.len())),
        }
    }

    /// The bytes of a connection management message. `ece` is the vendor's part of the options that
    /// a REQ or REP may carry, 0 for none.
    pub fn cm_bytes(message: &cm::Message<'_>, transaction_id: u64, ece: u32) -> [u8; Mad::LEN] {
        let header = MadHeader {
            attribute_modifier: ece,
            ..MadHeader::cm(message.attribute(), transaction_id)
        };
        Mad {
            header,
            data: &message.to_bytes(),
        }
        .to_bytes()
    }

    /// The kind of a connection management message.
    pub fn cm_attribute(&self) -> Option<CmAttribute> {
        match self.header.class {
            MadClass::CM => CmAttribute::from_id(self.header.attribute_id),
            _ => None,
        }
    }

    /// The connection management message.
    pub fn cm(&self) -> Option<cm::Message<'a>> {
        let attribute = self.cm_attribute()?;
        cm::Message::parse(attribute as u16, self.data)
            .ok()
            .flatten()
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; Mad::LEN] {
        let mut bytes = [0; Mad::LEN];
        let (header, data) = bytes.split_at_mut(MadHeader::LEN);
        header.copy_from_slice(&self.header.to_bytes());
        data.copy_from_slice(self.data);
        bytes
    }
}

/// Management class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MadClass(pub u8);

impl MadClass {
    /// Connection management.
    pub const CM: Self = Self(0x07);

    /// The name; `None` for a class that does not occur on QP1.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x03 => "subnet administration",
            0x04 => "performance",
            0x06 => "device management",
            0x07 => "connection management",
            0x08 => "SNMP tunnelling",
            0x21 => "congestion management",
            _ => return None,
        })
    }
}

/// Messages of connection management, by attribute id.
macro_rules! cm_attributes {
    ($($variant:ident $id:literal $name:literal $doc:literal,)*) => {
        /// Kind of a connection management message: the attribute id of its MAD.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum CmAttribute {
            $(#[doc = $doc] $variant = $id,)*
        }

        impl CmAttribute {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The kind with this attribute id.
            pub const fn from_id(id: u16) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The short name, such as `"REQ"`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

cm_attributes! {
    Req     0x10 "REQ"      "Request for a connection.",
    Mra     0x11 "MRA"      "Receipt; the answer takes a while.",
    Rej     0x12 "REJ"      "Refusal.",
    Rep     0x13 "REP"      "Acceptance.",
    Rtu     0x14 "RTU"      "Ready to use.",
    Dreq    0x15 "DREQ"     "Request to disconnect.",
    Drep    0x16 "DREP"     "Answer to it.",
    SidrReq 0x17 "SIDR_REQ" "Question for the QP of a datagram service.",
    SidrRep 0x18 "SIDR_REP" "Answer to it.",
    Lap     0x19 "LAP"      "Alternate path; not used on RoCE.",
    Apr     0x1a "APR"      "Answer to it.",
}

impl fmt::Display for CmAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
