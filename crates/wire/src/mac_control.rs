//! MAC control frames: PAUSE (IEEE 802.3x) and priority flow control (IEEE 802.1Qbb). A port
//! uses one or the other. They are never tagged, never forwarded and never paused themselves.

use crate::ParseError;
use crate::bytes::Reader;
use crate::ethernet::{EtherType, EthernetHeader, MacAddr};

/// Bit times of one quantum, the unit of pause times.
pub const QUANTUM_BITS: u32 = 512;

/// What a MAC control frame asks the receiver to do. Times are in quanta; 0 resumes. A new frame
/// replaces what is left of the time before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MacControl {
    /// Send nothing for a time.
    Pause {
        /// Quanta.
        quanta: u16,
    },
    /// Send nothing of some priorities for a time.
    Pfc(Pfc),
}

/// Priority flow control: a time for each of the enabled priorities. The others are untouched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Pfc {
    /// Bit n: priority n is meant.
    pub enabled: u8,
    /// Quanta per priority. Those not enabled have no meaning.
    pub quanta: [u16; 8],
}

impl Pfc {
    /// Nothing asked yet.
    pub const fn new() -> Self {
        Self {
            enabled: 0,
            quanta: [0; 8],
        }
    }

    /// The same, and pause (or with 0 quanta resume) `priority`, 0 to 7.
    #[must_use]
    pub const fn with(mut self, priority: u8, quanta: u16) -> Self {
        self.enabled |= 1 << (priority & 7);
        self.quanta[(priority & 7) as usize] = quanta;
        self
    }

    /// The enabled priorities and their quanta, lowest priority first.
    pub fn iter(self) -> impl Iterator<Item = (u8, u16)> {
        (0..8)
            .zip(self.quanta)
            .filter(move |(priority, _)| self.enabled >> priority & 1 != 0)
    }
}

impl MacControl {
    /// Bytes of a whole frame without FCS.
    pub const FRAME_LEN: usize = 60;

    const PAUSE: u16 = 0x0001;
    const PFC: u16 = 0x0101;

    /// Reads what follows the EtherType.
    pub fn parse(content: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(content);
        match reader.u16()? {
            Self::PAUSE => Ok(Self::Pause {
                quanta: reader.u16()?,
            }),
            Self::PFC => {
                // The upper byte of the vector is reserved.
                let [_, enabled] = *reader.take()?;
                let mut quanta = [0; 8];
                for time in &mut quanta {
                    *time = reader.u16()?;
                }
                Ok(Self::Pfc(Pfc { enabled, quanta }))
            }
            opcode => Err(ParseError::UnknownMacControl(opcode)),
        }
    }

    /// The whole frame from the station `source`, without FCS.
    pub fn to_frame(&self, source: MacAddr) -> [u8; Self::FRAME_LEN] {
        let mut frame = [0; Self::FRAME_LEN];
        let ethernet = EthernetHeader {
            dest: MacAddr::MAC_CONTROL,
            source,
            tag: None,
            ether_type: EtherType::MAC_CONTROL,
        };
        let start = ethernet.emit(&mut frame);
        let content = &mut frame[start..];
        match *self {
            Self::Pause { quanta } => {
                content[..2].copy_from_slice(&Self::PAUSE.to_be_bytes());
                content[2..4].copy_from_slice(&quanta.to_be_bytes());
            }
            Self::Pfc(Pfc { enabled, quanta }) => {
                content[..2].copy_from_slice(&Self::PFC.to_be_bytes());
                content[3] = enabled;
                for (place, time) in content[4..].as_chunks_mut::<2>().0.iter_mut().zip(quanta) {
                    *place = time.to_be_bytes();
                }
            }
        }
        frame
    }
}
