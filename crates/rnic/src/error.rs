//! What a verb answers to a caller who is wrong. One enum for the crate; the C crates map each
//! variant to an errno in one exhaustive match, so every variant says which one it means.
//!
//! Bytes that are wrong end in a drop counter, peers that are wrong in a completion status; neither
//! is a [`VerbError`].

use core::fmt;

use hirail_vocab::{QpState, QpType};
use hirail_wire::{Gid, Qpn};

use crate::mr::Access;
use crate::qp::state::ModifyError;

/// Why a verb was refused. Nothing has changed when one is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VerbError {
    /// The object does not exist, or no longer (`ENOENT`).
    #[error("there is no {object} {id:#x}")]
    NotFound {
        /// What was looked for.
        object: Object,
        /// Its number: handle, key, QPN.
        id: u32,
    },
    /// The object is in use by others (`EBUSY`).
    #[error("{object} {id:#x} is in use by {users} other object(s)")]
    Busy {
        /// What was to be destroyed or changed.
        object: Object,
        /// Its number.
        id: u32,
        /// How many objects depend on it.
        users: u32,
    },
    /// The device holds as many objects of this kind as it can (`ENOMEM`).
    #[error("the device holds {limit} of {object} and no more")]
    Exhausted {
        /// The kind of object.
        object: Object,
        /// The device's limit.
        limit: u32,
    },
    /// A work queue has no free entry (`ENOMEM`).
    #[error("the {queue} holds {depth} work requests and is full")]
    QueueFull {
        /// Which queue.
        queue: Queue,
        /// Entries it was created with.
        depth: u32,
    },
    /// A number exceeds what the device or the object allows (`EINVAL`).
    #[error("{what} is at most {max}, got {got}")]
    TooLarge {
        /// The attribute, spelt as in the verbs.
        what: &'static str,
        /// The largest value allowed.
        max: u64,
        /// The value given.
        got: u64,
    },
    /// A number is below what is possible (`EINVAL`).
    #[error("{what} is at least {min}, got {got}")]
    TooSmall {
        /// The attribute, spelt as in the verbs.
        what: &'static str,
        /// The smallest value possible.
        min: u64,
        /// The value given.
        got: u64,
    },
    /// A memory range wraps around the end of the address space (`EINVAL`).
    #[error("{length} bytes from {iova:#x} on pass the end of the address space")]
    AddressWraps {
        /// First address.
        iova: u64,
        /// Bytes from there on.
        length: u64,
    },
    /// Remote write and remote atomic access need local write (`EINVAL`).
    #[error("{got:?} also needs LOCAL_WRITE")]
    NeedsLocalWrite {
        /// The access asked for.
        got: Access,
    },
    /// Whether addresses count from 0 can change only together with the memory (`EINVAL`).
    #[error("ZERO_BASED cannot change unless the translation does")]
    RebaseNeedsTranslation,
    /// Access bits that do not exist (`EINVAL`).
    #[error("access bits {got:#x} are unknown")]
    UnknownAccess {
        /// The unknown bits.
        got: u32,
    },
    /// The queue pair's state does not allow the verb (`EINVAL`).
    #[error("{verb} is not possible in state {got:?}")]
    WrongState {
        /// The verb.
        verb: &'static str,
        /// The state that the queue pair is in.
        got: QpState,
    },
    /// `modify_qp` asks for a transition or a value that is not possible (`EINVAL`).
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Queue pairs of this type do not have the operation (`EINVAL`).
    #[error("{qp_type} has no such operation")]
    OperationNotAllowed {
        /// The queue pair's type.
        qp_type: QpType,
    },
    /// Something that the operation needs was not given (`EINVAL`).
    #[error("{what} is missing")]
    Missing {
        /// What is needed.
        what: &'static str,
    },
    /// The queue pair receives from a shared queue and has none of its own (`EINVAL`).
    #[error("QP {qpn} receives from an SRQ: post there")]
    HasSrq {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The object failed and takes no more work; only destroying it remains (`EINVAL`).
    #[error("{object} is in error")]
    Failed {
        /// What failed.
        object: Object,
    },
    /// A GID does not name a multicast group (`EINVAL`).
    #[error("{got} is not a multicast GID")]
    NotMulticast {
        /// The GID given.
        got: Gid,
    },
    /// A queue pair is not attached to the group (`EINVAL`).
    #[error("QP {qpn} is not attached to {group}")]
    NotAttached {
        /// The group.
        group: Gid,
        /// The queue pair.
        qpn: Qpn,
    },
}

/// Kinds of objects that verbs create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// Protection domain.
    Pd,
    /// Memory region.
    Mr,
    /// Memory window.
    Mw,
    /// Completion queue.
    Cq,
    /// Shared receive queue.
    Srq,
    /// Queue pair.
    Qp,
    /// Address handle.
    Ah,
    /// XRC domain.
    Xrcd,
    /// Entry of the port's GID table.
    Gid,
    /// Multicast group.
    Group,
    /// Attachment of a queue pair to a multicast group.
    Attachment,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pd => "PD",
            Self::Mr => "MR",
            Self::Mw => "MW",
            Self::Cq => "CQ",
            Self::Srq => "SRQ",
            Self::Qp => "QP",
            Self::Ah => "AH",
            Self::Xrcd => "XRC domain",
            Self::Gid => "GID",
            Self::Group => "multicast group",
            Self::Attachment => "multicast attachment",
        })
    }
}

/// Work queues that callers post to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Send queue.
    Send,
    /// Receive queue of one queue pair.
    Receive,
    /// Shared receive queue.
    Shared,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send queue",
            Self::Receive => "receive queue",
            Self::Shared => "shared receive queue",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages say what was expected and what came.
    #[test]
    fn messages_carry_the_values() {
        let check = |error: VerbError, message: &str| assert_eq!(error.to_string(), message);
        check(
            VerbError::Busy {
                object: Object::Mr,
                id: 0xabcd01,
                users: 2,
            },
            "MR 0xabcd01 is in use by 2 other object(s)",
        );
        check(
            VerbError::TooLarge {
                what: "num_sge",
                max: 4,
                got: 5,
            },
            "num_sge is at most 4, got 5",
        );
        check(
            VerbError::NeedsLocalWrite {
                got: Access::REMOTE_WRITE | Access::REMOTE_READ,
            },
            "Access(REMOTE_WRITE | REMOTE_READ) also needs LOCAL_WRITE",
        );
        check(
            VerbError::QueueFull {
                queue: Queue::Shared,
                depth: 16,
            },
            "the shared receive queue holds 16 work requests and is full",
        );
    }
}
