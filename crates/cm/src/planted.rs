//! Bugs planted on purpose, to prove that the checkers of the simulation find bugs.
//!
//! Without the feature `planted-bugs` every question is answered by a constant no, and the compiler
//! removes the question.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A repeated REQ makes another connection.
    RequestHeardAgain,
    /// A repeated REP is not answered by an RTU.
    RtuNotRepeated,
    /// A repeated RTU is told again.
    EstablishedAgain,
    /// A REQ is sent once.
    ReqNotRepeated,
    /// A REP is sent once.
    RepNotRepeated,
    /// A DREQ is sent once.
    DreqNotRepeated,
    /// A REQ is repeated for ever.
    RetriesEndless,
    /// An MRA does not make the peer wait.
    MraIgnored,
    /// A REJ is not heard.
    RejIgnored,
    /// A REJ for a connection that stands is not heard.
    LateRejIgnored,
    /// A DREQ is told again.
    DisconnectedAgain,
    /// A DREQ after the end is not answered, nor one for what was never known.
    LateDreqIgnored,
    /// A connection is remembered for ever.
    TimewaitEndless,
    /// A connection is not remembered at all.
    NoTimewait,
    /// Requests of connections that are gone stay in the index.
    RequestIndexLeak,
    /// Answered requests go on filling the backlog.
    BacklogLeak,
    /// Who listens at all addresses hears before who listens at one.
    WildcardFirst,
    /// Private data loses its last byte.
    PrivateDataCut,
    /// Depths are taken as the peer said them.
    DepthNotNegotiated,
    /// Own and peer's depth are not crossed.
    DepthNotCrossed,
    /// Both sequence numbers are the other's.
    PsnSwapped,
    /// A queue pair may be in two connections.
    StaleNotNoticed,
    /// Both of two sides that connect to each other go on.
    BothActive,
    /// Data is not taken for an RTU.
    DataIsNoRtu,
    /// Questions are not repeated.
    QuestionNotRepeated,
    /// A repeated question is told again.
    QuestionHeardAgain,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::RequestHeardAgain,
        Self::RtuNotRepeated,
        Self::EstablishedAgain,
        Self::ReqNotRepeated,
        Self::RepNotRepeated,
        Self::DreqNotRepeated,
        Self::RetriesEndless,
        Self::MraIgnored,
        Self::RejIgnored,
        Self::LateRejIgnored,
        Self::DisconnectedAgain,
        Self::LateDreqIgnored,
        Self::TimewaitEndless,
        Self::NoTimewait,
        Self::RequestIndexLeak,
        Self::BacklogLeak,
        Self::WildcardFirst,
        Self::PrivateDataCut,
        Self::DepthNotNegotiated,
        Self::DepthNotCrossed,
        Self::PsnSwapped,
        Self::StaleNotNoticed,
        Self::BothActive,
        Self::DataIsNoRtu,
        Self::QuestionNotRepeated,
        Self::QuestionHeardAgain,
    ];
}

#[cfg(feature = "planted-bugs")]
std::thread_local! {
    static PLANTED: core::cell::Cell<Option<Bug>> = const { core::cell::Cell::new(None) };
}

/// Plants a bug into every connection manager that this thread drives, in place of the one before.
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
