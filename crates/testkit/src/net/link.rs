//! What a link is like, and what goes wrong on it.

use hirail_rnic::Span;
use hirail_rnic::transmit::Budget;

/// The way from a node to the network and on to the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bits per second, whole Ethernet frames. 0: as fast as you like.
    pub rate_bps: u64,
    /// From the last bit sent to the arrival.
    pub delay: Span,
    /// Most packets of one run that the node asks the engine for.
    pub packets: usize,
    /// Most bytes of one run.
    pub bytes: usize,
    /// Runs that the node polls before it tells the engine what was sent.
    pub runs: usize,
}

impl Default for Link {
    /// 100 Gb/s and 1 µs, one packet at a time.
    fn default() -> Self {
        Self {
            rate_bps: 100_000_000_000,
            delay: Span::from_us(1),
            packets: 1,
            bytes: 64 << 10,
            runs: 1,
        }
    }
}

impl Link {
    pub(super) const fn budget(&self) -> Budget {
        Budget {
            packets: self.packets,
            bytes: self.bytes,
        }
    }

    /// How long a frame of `len` bytes occupies the link (FCS, preamble and gap included).
    pub fn occupies(&self, len: usize) -> Span {
        if self.rate_bps == 0 {
            return Span::ZERO;
        }
        let bits = (len as u128 + 24) * 8;
        Span::from_ps((bits * 1_000_000_000_000).div_ceil(u128::from(self.rate_bps)) as u64)
    }
}

/// Faults of the network, each a probability in parts per million and independent of the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// A frame vanishes.
    pub loss: u32,
    /// A frame arrives twice, the second time up to `late_by` later.
    pub duplicate: u32,
    /// A bit of a frame flips.
    pub corrupt: u32,
    /// A frame is overtaken: it arrives up to `late_by` late.
    pub reorder: u32,
    /// How late what is reordered or duplicated arrives at most.
    pub late_by: Span,
    /// Every frame is late by up to this much; frames keep their order.
    pub jitter: Span,
    /// A frame is marked with congestion experienced.
    pub mark: u32,
    /// The link takes only a part of a run, or nothing, and is busy for a while.
    pub refuse: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        loss: 0,
        duplicate: 0,
        corrupt: 0,
        reorder: 0,
        late_by: Span::ZERO,
        jitter: Span::ZERO,
        mark: 0,
        refuse: 0,
    };

    /// Only loss, in parts per million.
    pub const fn loss(ppm: u32) -> Self {
        Self {
            loss: ppm,
            ..Self::NONE
        }
    }
}
