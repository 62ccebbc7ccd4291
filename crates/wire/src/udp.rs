//! UDP headers of RoCE v2 (`protocol.md` 1.5).

/// The destination port of every RoCE v2 packet.
pub const ROCE_PORT: u16 = 4791;
