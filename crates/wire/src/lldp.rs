//! LLDP with the DCBX TLVs of 802.1Qaz: how a port tells its neighbour which priorities exist, how
//! they share the link, which are lossless, and which applications use them.

use crate::ParseError;
use crate::bytes::Reader;
use crate::ethernet::MacAddr;

/// TLV types that IEEE 802.1AB orders first, and the one that organisations extend.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const CHASSIS_ID: u8 = 1;
    pub(super) const PORT_ID: u8 = 2;
    pub(super) const TTL: u8 = 3;
    pub(super) const ORGANISATION: u8 = 127;
}

/// Organisation and subtypes of the DCBX TLVs.
const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const ETS_CONFIGURATION: u8 = 9;
const ETS_RECOMMENDATION: u8 = 10;
const PFC: u8 = 11;
const APPLICATION_PRIORITY: u8 = 12;

const CHASSIS_IS_MAC: u8 = 4;
const PORT_IS_MAC: u8 = 3;

/// One type-length-value of an LLDP frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// Type, 7 bits.
    pub kind: u8,
    /// Value, at most 511 bytes.
    pub value: &'a [u8],
}

impl<'a> Tlv<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let [kind, length] = reader.u16()?.to_be_bytes();
        let (kind, length) = (kind >> 1, usize::from(kind & 1) << 8 | usize::from(length));
        Ok(Self {
            kind,
            value: reader.take_slice(length)?,
        })
    }

    /// The DCBX content, where this is a TLV of DCBX.
    pub fn dcbx(&self) -> Result<Option<Dcbx<'a>>, ParseError> {
        let (kind::ORGANISATION, Some((header, body))) =
            (self.kind, self.value.split_first_chunk::<4>())
        else {
            return Ok(None);
        };
        let [organisation @ .., subtype] = *header;
        if organisation != IEEE_802_1 {
            return Ok(None);
        }
        let wrong_length = ParseError::BadTlv {
            kind: self.kind,
            length: self.value.len(),
        };
        Ok(Some(match subtype {
            ETS_CONFIGURATION => {
                let Some((&[flags], table)) = body.split_first_chunk() else {
                    return Err(wrong_length);
                };
                Dcbx::EtsConfiguration(EtsConfiguration {
                    willing: flags & 0x80 != 0,
                    credit_based_shaper: flags & 0x40 != 0,
                    max_traffic_classes: zero_is_eight(flags & 7),
                    table: EtsTable::parse(table).ok_or(wrong_length)?,
                })
            }
            ETS_RECOMMENDATION => {
                let table = body.get(1..).and_then(EtsTable::parse);
                Dcbx::EtsRecommendation(table.ok_or(wrong_length)?)
            }
            PFC => {
                let &[flags, enabled] = body else {
                    return Err(wrong_length);
                };
                Dcbx::Pfc(PfcConfiguration {
                    willing: flags & 0x80 != 0,
                    macsec_bypass: flags & 0x40 != 0,
                    capacity: zero_is_eight(flags & 15),
                    enabled,
                })
            }
            APPLICATION_PRIORITY => match body.split_first() {
                Some((_, entries)) if entries.len().is_multiple_of(3) => {
                    Dcbx::ApplicationPriority(ApplicationTable(entries))
                }
                _ => return Err(wrong_length),
            },
            _ => return Ok(None),
        }))
    }
}

const fn zero_is_eight(count: u8) -> u8 {
    if count == 0 { 8 } else { count }
}

/// Content of a DCBX TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dcbx<'a> {
    /// How the sender schedules.
    EtsConfiguration(EtsConfiguration),
    /// How the sender wishes that its neighbour scheduled.
    EtsRecommendation(EtsTable),
    /// Which priorities are lossless.
    Pfc(PfcConfiguration),
    /// Which applications use which priority.
    ApplicationPriority(ApplicationTable<'a>),
}

/// Enhanced transmission selection: configuration of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtsConfiguration {
    /// Takes the neighbour's recommendation.
    pub willing: bool,
    /// Has a credit-based shaper.
    pub credit_based_shaper: bool,
    /// Traffic classes that the port supports, 1 to 8.
    pub max_traffic_classes: u8,
    /// The settings.
    pub table: EtsTable,
}

/// Which traffic class each priority uses, and how classes share the link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtsTable {
    /// Traffic class of each priority, 0 to 15.
    pub class_of_priority: [u8; 8],
    /// Share of each traffic class in percent. Those of ETS classes add up to 100.
    pub bandwidth: [u8; 8],
    /// How each traffic class is selected.
    pub selection: [Selection; 8],
}

impl EtsTable {
    const LEN: usize = 20;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (classes, bytes) = bytes.split_first_chunk::<4>()?;
        let (&bandwidth, selection) = bytes.split_first_chunk::<8>()?;
        let mut class_of_priority = [0; 8];
        for (pair, byte) in class_of_priority
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(classes)
        {
            *pair = [byte >> 4, byte & 15];
        }
        let selection = selection.first_chunk::<8>()?.map(Selection::from_u8);
        Some(Self {
            class_of_priority,
            bandwidth,
            selection,
        })
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (byte, [high, low]) in bytes.iter_mut().zip(self.class_of_priority.as_chunks().0) {
            *byte = (high & 15) << 4 | low & 15;
        }
        bytes[4..12].copy_from_slice(&self.bandwidth);
        bytes[12..20].copy_from_slice(&self.selection.map(Selection::to_u8));
        bytes
    }
}

/// Transmission selection algorithm of a traffic class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Selection {
    /// Before all lower classes.
    Strict,
    /// Credit-based shaper.
    CreditBasedShaper,
    /// A share of what strict classes leave.
    Ets,
    /// The vendor's own.
    Vendor,
    /// A reserved number, 3 to 254.
    Reserved(u8),
}

impl Selection {
    const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Strict,
            1 => Self::CreditBasedShaper,
            2 => Self::Ets,
            255 => Self::Vendor,
            value => Self::Reserved(value),
        }
    }

    const fn to_u8(self) -> u8 {
        match self {
            Self::Strict => 0,
            Self::CreditBasedShaper => 1,
            Self::Ets => 2,
            Self::Vendor => 255,
            Self::Reserved(value) => value,
        }
    }
}

/// Which priorities a port makes lossless.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PfcConfiguration {
    /// Takes the neighbour's configuration.
    pub willing: bool,
    /// Can bypass MACsec.
    pub macsec_bypass: bool,
    /// Priorities that can be lossless at once, 1 to 15; 8 or more means any number.
    pub capacity: u8,
    /// Bit n: priority n is lossless.
    pub enabled: u8,
}

/// The entries of an application priority TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApplicationTable<'a>(&'a [u8]);

impl ApplicationTable<'_> {
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = ApplicationPriority> {
        self.0
            .as_chunks()
            .0
            .iter()
            .map(|&entry| ApplicationPriority::from_bytes(entry))
    }
}

/// An application uses a priority.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ApplicationPriority {
    /// Priority, 0 to 7.
    pub priority: u8,
    /// How the application is known.
    pub selector: Selector,
    /// EtherType, port or DSCP.
    pub protocol: u16,
}

impl ApplicationPriority {
    /// RoCE v1 at a priority.
    pub const fn roce_v1(priority: u8) -> Self {
        Self {
            priority,
            selector: Selector::EtherType,
            protocol: 0x8915,
        }
    }

    /// RoCE v2 at a priority.
    pub const fn roce_v2(priority: u8) -> Self {
        Self {
            priority,
            selector: Selector::UdpPort,
            protocol: crate::udp::ROCE_PORT,
        }
    }

    /// A DSCP at a priority.
    pub const fn dscp(priority: u8, dscp: u8) -> Self {
        Self {
            priority,
            selector: Selector::Dscp,
            protocol: dscp as u16,
        }
    }

    const fn from_bytes([flags, p0, p1]: [u8; 3]) -> Self {
        let selector = Selector::from_u8(flags & 7);
        Self {
            priority: flags >> 5,
            selector,
            protocol: u16::from_be_bytes([p0, p1]),
        }
    }

    const fn to_bytes(self) -> [u8; 3] {
        let [p0, p1] = self.protocol.to_be_bytes();
        [(self.priority & 7) << 5 | self.selector.to_u8() & 7, p0, p1]
    }
}

/// How an application priority entry knows its application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Selector {
    /// EtherType; protocol 0 stands for all that no other entry names.
    EtherType,
    /// Port of TCP or SCTP.
    TcpPort,
    /// Port of UDP or DCCP.
    UdpPort,
    /// Port of any of these.
    AnyPort,
    /// DSCP.
    Dscp,
    /// A reserved number: 0, 6 or 7.
    Reserved(u8),
}

impl Selector {
    const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::EtherType,
            2 => Self::TcpPort,
            3 => Self::UdpPort,
            4 => Self::AnyPort,
            5 => Self::Dscp,
            value => Self::Reserved(value),
        }
    }

    const fn to_u8(self) -> u8 {
        match self {
            Self::EtherType => 1,
            Self::TcpPort => 2,
            Self::UdpPort => 3,
            Self::AnyPort => 4,
            Self::Dscp => 5,
            Self::Reserved(value) => value,
        }
    }
}

/// An LLDP data unit whose TLVs lie within it, begin with the mandatory ones and, where they are of
/// DCBX, have the right length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lldp<'a> {
    /// Who sends: subtype and identifier.
    pub chassis_id: &'a [u8],
    /// From which port: subtype and identifier.
    pub port_id: &'a [u8],
    /// Seconds for which the information is good; 0 withdraws it.
    pub ttl_s: u16,
    /// The TLVs after these three, up to the end.
    rest: &'a [u8],
}

impl<'a> Lldp<'a> {
    /// Reads what follows the EtherType.
    pub fn parse(content: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(content);
        let mut mandatory = |kind| match Tlv::parse(&mut reader) {
            Ok(tlv) if tlv.kind == kind => Ok(tlv.value),
            Ok(_) => Err(ParseError::BadLldpOrder),
            Err(error) => Err(error),
        };
        let chassis_id = mandatory(kind::CHASSIS_ID)?;
        let port_id = mandatory(kind::PORT_ID)?;
        let ttl = mandatory(kind::TTL)?;
        for (kind, id) in [(kind::CHASSIS_ID, chassis_id), (kind::PORT_ID, port_id)] {
            // A subtype and 1 to 255 bytes.
            if !(2..=256).contains(&id.len()) {
                return Err(ParseError::BadTlv {
                    kind,
                    length: id.len(),
                });
            }
        }
        let Some(&ttl) = ttl.first_chunk() else {
            return Err(ParseError::BadTlv {
                kind: kind::TTL,
                length: ttl.len(),
            });
        };
        let ttl_s = u16::from_be_bytes(ttl);
        let lldp = Self {
            chassis_id,
            port_id,
            ttl_s,
            rest: reader.rest(),
        };
        loop {
            // A missing end at the end of the frame is tolerated, as by other stacks.
            if reader.rest().is_empty() {
                return Ok(lldp);
            }
            let tlv = Tlv::parse(&mut reader)?;
            if tlv.kind == kind::END {
                return Ok(lldp);
            }
            tlv.dcbx()?;
        }
    }

    /// The TLVs after the mandatory ones, in order.
    pub fn tlvs(&self) -> impl Iterator<Item = Tlv<'a>> + use<'a> {
        let mut reader = Reader::new(self.rest);
        core::iter::from_fn(move || {
            Tlv::parse(&mut reader)
                .ok()
                .filter(|tlv| tlv.kind != kind::END)
        })
        .fuse()
    }

    /// The DCBX contents, in order.
    pub fn dcbx(&self) -> impl Iterator<Item = Dcbx<'a>> + use<'a> {
        self.tlvs().filter_map(|tlv| tlv.dcbx().ok().flatten())
    }

    /// The Ethernet address by which the chassis calls itself, where it does.
    pub fn chassis_mac(&self) -> Option<MacAddr> {
        mac_of(CHASSIS_IS_MAC, self.chassis_id)
    }

    /// The Ethernet address by which the port is called, where it is.
    pub fn port_mac(&self) -> Option<MacAddr> {
        mac_of(PORT_IS_MAC, self.port_id)
    }
}

fn mac_of(subtype: u8, id: &[u8]) -> Option<MacAddr> {
    let (&first, mac) = id.split_first()?;
    (first == subtype).then(|| mac.try_into().ok().map(MacAddr))?
}

/// Writes an LLDP data unit into a caller's buffer, TLV by TLV.
///
/// Each method panics when the buffer is too short for its TLV.
#[derive(Debug)]
pub struct LldpWriter<'a> {
    buffer: &'a mut [u8],
    written: usize,
}

impl<'a> LldpWriter<'a> {
    /// Begins with the mandatory TLVs: chassis and port known by Ethernet addresses, and the
    /// seconds for which the information is good.
    pub fn new(buffer: &'a mut [u8], chassis: MacAddr, port: MacAddr, ttl_s: u16) -> Self {
        let mut writer = Self { buffer, written: 0 };
        writer.tlv(kind::CHASSIS_ID, &[&[CHASSIS_IS_MAC], &chassis.0]);
        writer.tlv(kind::PORT_ID, &[&[PORT_IS_MAC], &port.0]);
        writer.tlv(kind::TTL, &[&ttl_s.to_be_bytes()]);
        writer
    }

    /// Adds a DCBX TLV: ETS configuration.
    pub fn ets_configuration(&mut self, ets: &EtsConfiguration) {
        let flags = u8::from(ets.willing) << 7
            | u8::from(ets.credit_based_shaper) << 6
            | ets.max_traffic_classes & 7;
        self.dcbx(ETS_CONFIGURATION, &[flags], &ets.table.to_bytes());
    }

    /// Adds a DCBX TLV: ETS recommendation.
    pub fn ets_recommendation(&mut self, table: &EtsTable) {
        self.dcbx(ETS_RECOMMENDATION, &[0], &table.to_bytes());
    }

    /// Adds a DCBX TLV: PFC.
    pub fn pfc(&mut self, pfc: &PfcConfiguration) {
        let flags =
            u8::from(pfc.willing) << 7 | u8::from(pfc.macsec_bypass) << 6 | pfc.capacity & 15;
        self.dcbx(PFC, &[flags], &[pfc.enabled]);
    }

    /// Adds a DCBX TLV: application priorities, at most 168.
    pub fn application_priorities(&mut self, entries: &[ApplicationPriority]) {
        let mut header = [0; 5];
        header[..3].copy_from_slice(&IEEE_802_1);
        header[3] = APPLICATION_PRIORITY;
        self.tlv_header(kind::ORGANISATION, header.len() + 3 * entries.len());
        self.put(&header);
        for entry in entries {
            self.put(&entry.to_bytes());
        }
    }

    /// Adds any TLV whose value is the concatenation of `parts`, at most 511 bytes.
    pub fn tlv(&mut self, kind: u8, parts: &[&[u8]]) {
        self.tlv_header(kind, parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.put(part);
        }
    }

    /// Ends the data unit and returns its length.
    pub fn finish(mut self) -> usize {
        self.tlv_header(kind::END, 0);
        self.written
    }

    fn dcbx(&mut self, subtype: u8, flags: &[u8], body: &[u8]) {
        self.tlv(kind::ORGANISATION, &[&IEEE_802_1, &[subtype], flags, body]);
    }

    fn tlv_header(&mut self, kind: u8, length: usize) {
        assert!(
            kind < 128 && length < 512,
            "TLV type {kind} of {length} bytes"
        );
        let [low, high, ..] = length.to_le_bytes();
        self.put(&[kind << 1 | high, low]);
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.written + bytes.len();
        self.buffer[self.written..end].copy_from_slice(bytes);
        self.written = end;
    }
}
