//! The opcode table: which operations each service carries, and which headers follow the BTH.
//!
//! An opcode is a service (upper three bits) and an operation (lower five). RC, UC and XRC share
//! operation codes, so one row describes an operation for all of them (IBTA
//! Vol 1, chapter 9, Transport Layer; annex A14 for XRC).

use core::fmt;

/// Transport service, the upper three bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Extended reliable connection.
    Xrc = 0xa0,
    /// Congestion notification.
    Cnp = 0x80,
    /// Manufacturer defined. Other stacks drop these, so hirail's own negotiation travels here.
    Manufacturer = 0xc0,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 6] = [
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::Xrc,
        Self::Cnp,
        Self::Manufacturer,
    ];

    /// Whether this service has `operation`.
    pub const fn carries(self, operation: Operation) -> bool {
        use Operation as Op;
        match self {
            Self::Rc | Self::Xrc => !matches!(operation, Op::Cnp | Op::Hello | Op::Sack),
            Self::Uc => {
                (operation.is_send() || operation.is_write())
                    && !matches!(operation, Op::SendLastInv | Op::SendOnlyInv)
            }
            Self::Ud => matches!(operation, Op::SendOnly | Op::SendOnlyImm),
            Self::Cnp => matches!(operation, Op::Cnp),
            Self::Manufacturer => matches!(operation, Op::Hello | Op::Sack),
        }
    }
}

/// What follows the BTH (and the XRCETH, where there is one), before the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExtKind {
    /// Nothing.
    None,
    /// Immediate data.
    Imm,
    /// The key to invalidate.
    Ieth,
    /// RETH.
    Reth,
    /// RETH and immediate data.
    RethImm,
    /// AtomicETH.
    Atomic,
    /// AETH.
    Aeth,
    /// AETH and the original data of an atomic.
    AtomicAck,
    /// DETH.
    Deth,
    /// DETH and immediate data.
    DethImm,
    /// FETH and RETH.
    Flush,
    /// The 16 reserved bytes of a CNP.
    Cnp,
    /// hirail's hello.
    Hello,
    /// hirail's selective acknowledgement.
    Sack,
}

impl ExtKind {
    /// Length in bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Imm | Self::Ieth | Self::Aeth => 4,
            Self::Deth => 8,
            Self::AtomicAck | Self::DethImm => 12,
            Self::Reth | Self::Cnp | Self::Hello => 16,
            Self::RethImm | Self::Flush => 20,
            Self::Atomic => 28,
            Self::Sack => 36,
        }
    }

    /// Whether there is nothing.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Request,
    Response,
    Control,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    /// A message, answer or notice in one packet.
    Only,
}

#[derive(Clone, Copy)]
struct Row {
    code: u8,
    role: Role,
    place: Place,
    ext: ExtKind,
    payload: bool,
}

const PAYLOAD: bool = true;
const BARE: bool = false;

/// Makes the enum, its rows and its names from one table.
macro_rules! operations {
    ($($variant:ident $code:literal $name:literal $role:ident $place:ident $ext:ident $payload:ident,)*) => {
        /// What a packet does, the lower five bits of an opcode.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Operation {
            $(#[doc = concat!($name, ".")] $variant,)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            const COUNT: usize = Self::ALL.len();
        }

        static ROWS: [Row; Operation::COUNT] = [$(Row {
            code: $code,
            role: Role::$role,
            place: Place::$place,
            ext: ExtKind::$ext,
            payload: $payload,
        },)*];

        /// Per operation: under RC, UC, UD, XRC, and alone.
        static NAMES: [[&str; 5]; Operation::COUNT] = [$([
            concat!("RC ", $name),
            concat!("UC ", $name),
            concat!("UD ", $name),
            concat!("XRC ", $name),
            $name,
        ],)*];
    };
}

operations! {
    SendFirst          0x00 "SEND First"                     Request  First  None      PAYLOAD,
    SendMiddle         0x01 "SEND Middle"                    Request  Middle None      PAYLOAD,
    SendLast           0x02 "SEND Last"                      Request  Last   None      PAYLOAD,
    SendLastImm        0x03 "SEND Last with Immediate"       Request  Last   Imm       PAYLOAD,
    SendLastInv        0x16 "SEND Last with Invalidate"      Request  Last   Ieth      PAYLOAD,
    SendOnly           0x04 "SEND Only"                      Request  Only   None      PAYLOAD,
    SendOnlyImm        0x05 "SEND Only with Immediate"       Request  Only   Imm       PAYLOAD,
    SendOnlyInv        0x17 "SEND Only with Invalidate"      Request  Only   Ieth      PAYLOAD,
    WriteFirst         0x06 "RDMA WRITE First"               Request  First  Reth      PAYLOAD,
    WriteMiddle        0x07 "RDMA WRITE Middle"              Request  Middle None      PAYLOAD,
    WriteLast          0x08 "RDMA WRITE Last"                Request  Last   None      PAYLOAD,
    WriteLastImm       0x09 "RDMA WRITE Last with Immediate" Request  Last   Imm       PAYLOAD,
    WriteOnly          0x0a "RDMA WRITE Only"                Request  Only   Reth      PAYLOAD,
    WriteOnlyImm       0x0b "RDMA WRITE Only with Immediate" Request  Only   RethImm   PAYLOAD,
    ReadRequest        0x0c "RDMA READ Request"              Request  Only   Reth      BARE,
    ReadResponseFirst  0x0d "RDMA READ response First"       Response First  Aeth      PAYLOAD,
    ReadResponseMiddle 0x0e "RDMA READ response Middle"      Response Middle None      PAYLOAD,
    ReadResponseLast   0x0f "RDMA READ response Last"        Response Last   Aeth      PAYLOAD,
    ReadResponseOnly   0x10 "RDMA READ response Only"        Response Only   Aeth      PAYLOAD,
    Acknowledge        0x11 "Acknowledge"                    Response Only   Aeth      BARE,
    AtomicAcknowledge  0x12 "ATOMIC Acknowledge"             Response Only   AtomicAck BARE,
    CompareSwap        0x13 "CmpSwap"                        Request  Only   Atomic    BARE,
    FetchAdd           0x14 "FetchAdd"                       Request  Only   Atomic    BARE,
    Flush              0x1c "FLUSH"                          Request  Only   Flush     BARE,
    AtomicWrite        0x1d "ATOMIC WRITE"                   Request  Only   Reth      PAYLOAD,
    Cnp                0x01 "CNP"                            Control  Only   Cnp       BARE,
    Hello              0x00 "HELLO"                          Control  Only   Hello     BARE,
    Sack               0x01 "SACK"                           Control  Only   Sack      BARE,
}

impl Operation {
    #[inline]
    const fn row(self) -> Row {
        ROWS[self as usize]
    }

    /// Whether a requester sends it and a responder executes it.
    #[inline]
    pub const fn is_request(self) -> bool {
        matches!(self.row().role, Role::Request)
    }

    /// Whether a responder sends it and the requester's completer consumes it.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(self.row().role, Role::Response)
    }

    /// Whether it is the first packet of several.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self.row().place, Place::First)
    }

    /// Whether packets of the same message come before and after.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self.row().place, Place::Middle)
    }

    /// Whether it is the last packet of several.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(self.row().place, Place::Last)
    }

    /// Whether the packet is complete in itself: the Only forms, and everything that has no other
    /// form (READ request, atomics, FLUSH, ATOMIC WRITE, acknowledgements).
    #[inline]
    pub const fn is_only(self) -> bool {
        matches!(self.row().place, Place::Only)
    }

    /// Whether it begins a message: First or Only.
    #[inline]
    pub const fn starts_message(self) -> bool {
        matches!(self.row().place, Place::First | Place::Only)
    }

    /// Whether it ends a message: Last or Only.
    #[inline]
    pub const fn ends_message(self) -> bool {
        matches!(self.row().place, Place::Last | Place::Only)
    }

    /// Whether payload may follow its headers.
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.row().payload
    }

    /// Whether it carries immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self.row().ext, ExtKind::Imm | ExtKind::RethImm)
    }

    /// Whether it carries a key to invalidate.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(self.row().ext, ExtKind::Ieth)
    }

    /// Whether it carries a RETH.
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(
            self.row().ext,
            ExtKind::Reth | ExtKind::RethImm | ExtKind::Flush
        )
    }

    /// Whether it carries an AETH.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        matches!(self.row().ext, ExtKind::Aeth | ExtKind::AtomicAck)
    }

    /// Whether it is any SEND.
    #[inline]
    pub const fn is_send(self) -> bool {
        self as u8 <= Self::SendOnlyInv as u8
    }

    /// Whether it is any RDMA WRITE (not ATOMIC WRITE).
    #[inline]
    pub const fn is_write(self) -> bool {
        Self::WriteFirst as u8 <= self as u8 && self as u8 <= Self::WriteOnlyImm as u8
    }

    /// Whether it is any RDMA READ response.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        Self::ReadResponseFirst as u8 <= self as u8 && self as u8 <= Self::ReadResponseOnly as u8
    }

    /// Whether it is a compare-and-swap or a fetch-and-add.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether a packet with it takes a receive work request for its message: the first of a SEND,
    /// and of a WRITE the one with the immediate.
    #[inline]
    pub const fn claims_receive(self) -> bool {
        self.is_send() && self.starts_message() || self.is_write() && self.has_imm()
    }

    /// Whether its end takes a receive work request: SENDs, and WRITEs with immediate.
    #[inline]
    pub const fn consumes_receive(self) -> bool {
        self.ends_message() && (self.is_send() || self.has_imm())
    }
}

/// A defined opcode: a service and an operation that the service carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode {
    service: Service,
    operation: Operation,
}

/// What each of the 256 opcodes means.
static OPCODES: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut service = 0;
    while service < Service::ALL.len() {
        let mut operation = 0;
        while operation < Operation::COUNT {
            let opcode = Opcode::new(Service::ALL[service], Operation::ALL[operation]);
            if let Some(opcode) = opcode {
                let slot = &mut table[opcode.to_u8() as usize];
                assert!(slot.is_none(), "two operations of one service share a code");
                *slot = Some(opcode);
            }
            operation += 1;
        }
        service += 1;
    }
    table
};

impl Opcode {
    /// The opcode of `operation` under `service`, if it exists.
    pub const fn new(service: Service, operation: Operation) -> Option<Self> {
        if service.carries(operation) {
            Some(Self { service, operation })
        } else {
            None
        }
    }

    /// The opcode with this value in the BTH, if it is a defined one.
    #[inline]
    pub const fn from_u8(value: u8) -> Option<Self> {
        OPCODES[value as usize]
    }

    /// The value in the BTH.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self.service as u8 | self.operation.row().code
    }

    /// The transport service.
    #[inline]
    pub const fn service(self) -> Service {
        self.service
    }

    /// The operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.operation
    }

    /// Whether an XRCETH follows the BTH: in every XRC request.
    #[inline]
    pub const fn has_xrceth(self) -> bool {
        matches!(self.service, Service::Xrc) && self.operation.is_request()
    }

    /// What follows the BTH and the XRCETH.
    #[inline]
    pub const fn ext_kind(self) -> ExtKind {
        match (self.service, self.operation.row().ext) {
            (Service::Ud, ExtKind::Imm) => ExtKind::DethImm,
            (Service::Ud, _) => ExtKind::Deth,
            (_, ext) => ext,
        }
    }

    /// Bytes from the BTH to the payload.
    #[inline]
    pub const fn header_len(self) -> usize {
        12 + 4 * self.has_xrceth() as usize + self.ext_kind().len()
    }

    /// The name, such as `"RC SEND First"`.
    pub const fn name(self) -> &'static str {
        let column = match self.service {
            Service::Rc => 0,
            Service::Uc => 1,
            Service::Ud => 2,
            Service::Xrc => 3,
            Service::Cnp | Service::Manufacturer => 4,
        };
        NAMES[self.operation as usize][column]
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The rules about opcodes and their headers, stated without the table.
#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = (u8, Opcode)> {
        (0..=u8::MAX).filter_map(|value| Some((value, Opcode::from_u8(value)?)))
    }

    #[test]
    fn values_round_trip() {
        for (value, opcode) in all() {
            assert_eq!(opcode.to_u8(), value, "{opcode}");
            assert_eq!(
                Opcode::new(opcode.service(), opcode.operation()),
                Some(opcode)
            );
        }
        for service in Service::ALL {
            for &operation in Operation::ALL {
                if let Some(opcode) = Opcode::new(service, operation) {
                    assert_eq!(Opcode::from_u8(opcode.to_u8()), Some(opcode));
                }
            }
        }
    }

    #[test]
    fn defined_ranges() {
        let rc = [0x00..=0x14, 0x16..=0x17, 0x1c..=0x1d];
        let xrc = [0xa0..=0xb4, 0xb6..=0xb7, 0xbc..=0xbd];
        let others = [0x20..=0x2b, 0x64..=0x65, 0x81..=0x81, 0xc0..=0xc1];
        let defined = |value| {
            [&rc[..], &xrc, &others]
                .concat()
                .iter()
                .any(|range| range.contains(&value))
        };
        for value in 0..=u8::MAX {
            assert_eq!(
                Opcode::from_u8(value).is_some(),
                defined(value),
                "0x{value:02x}"
            );
        }
    }

    #[test]
    fn uc_and_xrc_repeat_rc() {
        for (value, opcode) in all() {
            let rc = match value {
                0x20..=0x3f => Opcode::from_u8(value - 0x20),
                0xa0..=0xbf => Opcode::from_u8(value - 0xa0),
                _ => continue,
            };
            let rc = rc.expect("an RC opcode with the same operation code");
            assert_eq!(rc.operation(), opcode.operation(), "{opcode}");
            assert_eq!(rc.ext_kind(), opcode.ext_kind(), "{opcode}");
            assert_eq!(
                opcode.header_len() - rc.header_len(),
                4 * usize::from(opcode.service() == Service::Xrc && rc.operation().is_request()),
                "{opcode}"
            );
        }
    }

    /// The name of an operation says all about its place and its immediate or invalidate header.
    #[test]
    fn names_agree_with_predicates() {
        for (_, opcode) in all() {
            let (name, op) = (opcode.name(), opcode.operation());
            assert_eq!(op.is_first(), name.ends_with("First"), "{name}");
            assert_eq!(op.is_middle(), name.ends_with("Middle"), "{name}");
            assert_eq!(op.is_last(), name.contains(" Last"), "{name}");
            assert_eq!(op.has_imm(), name.ends_with("Immediate"), "{name}");
            assert_eq!(op.has_ieth(), name.ends_with("Invalidate"), "{name}");
            assert_eq!(op.is_send(), name.contains("SEND"), "{name}");
            assert_eq!(op.is_write(), name.contains("RDMA WRITE"), "{name}");
            assert_eq!(op.is_read_response(), name.contains("response"), "{name}");
            let response = name.contains("response") || name.contains("Acknowledge");
            assert_eq!(op.is_response(), response, "{name}");
            assert_eq!(op.consumes_receive(), {
                let ends = name.contains(" Last") || name.contains(" Only");
                ends && (name.contains("SEND") || name.ends_with("Immediate"))
            });
        }
    }

    #[test]
    fn each_packet_has_one_place_and_at_most_one_role() {
        for &op in Operation::ALL {
            let places = [op.is_first(), op.is_middle(), op.is_last(), op.is_only()];
            assert_eq!(places.into_iter().filter(|&is| is).count(), 1, "{op:?}");
            assert_eq!(op.starts_message(), op.is_first() || op.is_only(), "{op:?}");
            assert_eq!(op.ends_message(), op.is_last() || op.is_only(), "{op:?}");
            assert!(!(op.is_request() && op.is_response()), "{op:?}");
        }
    }

    /// A RETH starts a WRITE and nothing else of it; each READ response but Middle has an AETH.
    #[test]
    fn extension_headers_follow_the_place() {
        for (_, opcode) in all() {
            let op = opcode.operation();
            if op.is_write() {
                assert_eq!(op.has_reth(), op.starts_message(), "{opcode}");
            }
            if op.is_response() {
                assert_eq!(op.has_aeth(), !op.is_middle(), "{opcode}");
            }
            if !op.is_only() {
                assert!(op.has_payload(), "{opcode} is part of a longer message");
            }
            if opcode.service() == Service::Ud {
                assert!(matches!(
                    opcode.ext_kind(),
                    ExtKind::Deth | ExtKind::DethImm
                ));
            }
        }
        assert_eq!(
            all().map(|(_, opcode)| opcode.header_len()).max(),
            Some(12 + 36)
        );
        let standard = all().filter(|(value, _)| *value < 0xc0);
        assert_eq!(
            standard.map(|(_, opcode)| opcode.header_len()).max(),
            Some(44)
        );
    }
}
