//! Bugs planted on purpose, to prove that the checkers of the tests find bugs.
//!
//! Without the feature `planted-bugs` every question is answered by a constant no, and the compiler
//! removes the question.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A repeated WRITE or SEND is executed again.
    DuplicateExecuted,
    /// A repeated atomic is executed again.
    AtomicExecutedAgain,
    /// An ACK names a PSN that has not arrived.
    AckBeforePlacement,
    /// After a loss sending starts again one packet too late.
    RestartOffByOne,
    /// A timeout resends nothing.
    TimeoutResendsNothing,
    /// Deregistering a region leaves its key in force.
    StaleKeyAccepted,
    /// The low byte of a key is not looked at.
    KeyVariantIgnored,
    /// A region seems to be eight bytes longer than it is.
    RangeTooLong,
    /// A READ that is asked for again from its middle names its first address.
    ReadOffsetLost,
    /// Responses of a READ after a hole are taken for the missing ones.
    ReadGapIgnored,
    /// Now and then a completion is forgotten.
    CompletionLost,
    /// Now and then a completion is made twice.
    CompletionTwice,
    /// What an RNR NAK asks for is not waited for.
    RnrNotWaited,
    /// An RNR NAK moves the expected PSN.
    RnrMovesPsn,
    /// Fences hold nothing back.
    FenceIgnored,
    /// READs do not count as messages.
    MsnWithoutReads,
    /// An ACK does not wait for READ responses before it.
    AckOvertakesResponses,
    /// Each packet after a gap is answered by a NAK.
    GapToldAgain,
    /// A sequence NAK names the PSN after the missing one.
    NakNamesNextPsn,
    /// All packets offered count as sent, however many the link took.
    PartialSendForgotten,
    /// When the link took less than offered, the scatter/gather position stays behind the last
    /// packet offered.
    GatherRunsAhead,
    /// Progress does not reload the retry counter.
    RetriesNotReloaded,
    /// Retries are never used up.
    RetriesEndless,
    /// The ACK timer is not started again on progress.
    TimerForgotten,
    /// Going back does not give the window back what was in flight.
    WindowLeak,
    /// An atomic acknowledge does not free its slot.
    SlotLeak,
    /// Immediate data is not in the completion.
    ImmediateLost,
    /// A WRITE with immediate is reported with the length of its last packet.
    LengthOfLastPacket,
    /// The solicited bit is lost.
    SolicitedLost,
    /// The last packet of a longer SEND is not placed.
    LastPacketNotPlaced,
    /// SQD does not keep new requests back.
    DrainStartsNew,
    /// Receive requests of a queue pair in error are forgotten.
    ReceivesNotFlushed,
    /// The last-WQE event is not raised.
    LastWqeNotTold,
    /// Packets of anybody are taken for those of the peer.
    SourceNotChecked,
    /// Of several packets kept out of order only the first one has its bytes.
    PoolLosesBytes,
    /// What selective repeat sends again asks for no answer.
    RepeatAsksNothing,
    /// What selective repeat has to send again waits for room in the window.
    RepeatWaitsForRoom,
    /// Halves of messages, which ask for no answer yet, hold a window that was cut.
    HalvesHoldWindow,
    /// A repeated READ is answered from the packet after the one asked for.
    ReplayOffByOne,
    /// Sequence numbers are compared as if they did not wrap.
    WrapIgnored,
    /// READs and atomics are sent however many are outstanding.
    DepthIgnored,
    /// Compare-and-swap swaps without comparing.
    SwapAlways,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::DuplicateExecuted,
        Self::AtomicExecutedAgain,
        Self::AckBeforePlacement,
        Self::RestartOffByOne,
        Self::TimeoutResendsNothing,
        Self::StaleKeyAccepted,
        Self::KeyVariantIgnored,
        Self::RangeTooLong,
        Self::ReadOffsetLost,
        Self::ReadGapIgnored,
        Self::CompletionLost,
        Self::CompletionTwice,
        Self::RnrNotWaited,
        Self::RnrMovesPsn,
        Self::FenceIgnored,
        Self::MsnWithoutReads,
        Self::AckOvertakesResponses,
        Self::GapToldAgain,
        Self::NakNamesNextPsn,
        Self::PartialSendForgotten,
        Self::GatherRunsAhead,
        Self::RetriesNotReloaded,
        Self::RetriesEndless,
        Self::TimerForgotten,
        Self::WindowLeak,
        Self::SlotLeak,
        Self::ImmediateLost,
        Self::LengthOfLastPacket,
        Self::SolicitedLost,
        Self::LastPacketNotPlaced,
        Self::DrainStartsNew,
        Self::ReceivesNotFlushed,
        Self::LastWqeNotTold,
        Self::SourceNotChecked,
        Self::PoolLosesBytes,
        Self::RepeatAsksNothing,
        Self::RepeatWaitsForRoom,
        Self::HalvesHoldWindow,
        Self::ReplayOffByOne,
        Self::WrapIgnored,
        Self::DepthIgnored,
        Self::SwapAlways,
    ];
}

#[cfg(feature = "planted-bugs")]
std::thread_local! {
    static PLANTED: core::cell::Cell<Option<Bug>> = const { core::cell::Cell::new(None) };
}

/// Plants a bug into every device that this thread drives, in place of the one before.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether a bug is planted.
#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether a bug is planted: never.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn has(_: Bug) -> bool {
    false
}
