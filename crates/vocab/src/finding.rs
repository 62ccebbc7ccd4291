//! What `hirail run --check` finds: mistakes in how a program uses the verbs, each with a name that
//! stays, why it matters, and what to do. The rules are those of IBTA Vol 1, chapters 10 and 11 (the
//! verbs), and of the manual pages of rdma-core.

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// For information; no finding as far as the exit status is concerned.
    Note,
    /// It works here and now, and not everywhere or always.
    Warning,
    /// The program is wrong.
    Error,
}

impl Severity {
    /// All of them, the mildest first.
    pub const ALL: &[Self] = &[Self::Note, Self::Warning, Self::Error];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The severity of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }
}

impl core::fmt::Display for Severity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! findings {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident = $name:literal, $severity:ident,
        why $why:literal,
        remedy $remedy:literal;
    )+) => {
        /// A mistake in how a program uses the verbs.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FindingCode {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl FindingCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name, which stays.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// The code of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name() == name)
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $( Self::$variant => Severity::$severity, )+ }
            }

            /// What was found, in a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$variant => concat!($($doc),+).trim_ascii_start(), )+ }
            }

            /// Why it matters.
            pub const fn why(self) -> &'static str {
                match self { $( Self::$variant => $why, )+ }
            }

            /// What to do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $( Self::$variant => $remedy, )+ }
            }
        }
    };
}

findings! {
    /// Bytes of a SEND or WRITE were changed between ibv_post_send and its completion.
    PayloadChanged = "payload_changed", Error,
    why "until the completion is polled the device owns the buffer: it may read it late, and again \
         for a retransmission, so the peer gets old bytes, new ones or a mix",
    remedy "touch the buffer only after polling a completion that covers the request (a signalled \
            one, its own or a later one), use another buffer, or send short messages inline";

    /// A memory region was deregistered while posted work requests still name it.
    DeregisteredInUse = "deregistered_in_use", Error,
    why "the requests fail with a protection error as soon as the device needs the memory, and what \
         was received before may be half there",
    remedy "poll the completions of all requests that use the region, or take the queue pair to \
            ERR or destroy it, before ibv_dereg_mr";

    /// A posted work request, or a request of a peer, names a key whose region was deregistered.
    UseAfterDeregister = "use_after_deregister", Error,
    why "the key is dead: the request ends with a protection or remote access error, and on a card \
         that gives keys out again it may reach somebody else's memory",
    remedy "keep the region registered until nobody uses its keys, peers that were told of them \
            included; tell them before it goes";

    /// A work request, or a request of a peer, names a key that does not exist.
    UnknownKey = "unknown_key", Error,
    why "nothing is registered under it, so the request ends with IBV_WC_LOC_PROT_ERR or the \
         peer's with IBV_WC_REM_ACCESS_ERR, and the queue pair is in error",
    remedy "use mr->lkey of the region for local buffers and give peers mr->rkey, in the byte order \
            that both sides expect";

    /// The bytes that a request names do not lie in the region of its key.
    OutOfRange = "out_of_range", Error,
    why "no byte outside the region may be touched, so the request fails and the queue pair is in \
         error",
    remedy "check address and length against the region; peers count from the address that the \
            region was registered at (or from its iova, or 0 when zero based)";

    /// The region of the key, or the queue pair, does not grant the right that the request needs.
    MissingAccess = "missing_access", Error,
    why "the request fails and the queue pair is in error",
    remedy "register the region with IBV_ACCESS_LOCAL_WRITE for receives, READs and atomics, and \
            with IBV_ACCESS_REMOTE_… for what peers do; the queue pair's qp_access_flags must \
            allow it too";

    /// Key and queue pair belong to different protection domains.
    PdMismatch = "pd_mismatch", Error,
    why "keys open memory only to queue pairs of their own protection domain (receives of a shared \
         queue: to that queue's domain), so the request fails",
    remedy "register the memory in the domain of the queue pair, or make both in one";

    /// The peer refused a request because of its key, its range or a missing right.
    RemoteAccessRefused = "remote_access_refused", Error,
    why "the request ended with IBV_WC_REM_ACCESS_ERR and both queue pairs are in error",
    remedy "compare address, length and key with what the peer has registered; where the peer runs \
            with --check too, its report says what is wrong";

    /// A message was longer than the buffer that was posted to receive it.
    ReceiveTooSmall = "receive_too_small", Error,
    why "a reliable connection breaks (IBV_WC_LOC_LEN_ERR here, IBV_WC_REM_INV_REQ_ERR there); a \
         datagram is lost",
    remedy "post buffers for the longest message that the peer may send; datagrams need 40 bytes \
            more, for the GRH";

    /// A datagram is longer than the MTU of the port.
    UdTooLong = "ud_too_long", Error,
    why "a datagram is one packet: a longer one is refused or never arrives",
    remedy "keep datagrams within active_mtu of ibv_query_port, or split the message";

    /// ibv_post_send or ibv_post_recv refused a work request that could not be right.
    PostRefused = "post_refused", Error,
    why "neither that request nor those behind it in the list were posted, so their completions \
         never come",
    remedy "read what the finding says is wrong with the request; check the result of every post, \
            and what bad_wr points to";

    /// The send queue is full, and none of the requests in it will make a completion.
    SendQueueStuck = "send_queue_stuck", Error,
    why "room in a send queue comes back only by polling the completion of a signalled request; \
         with none outstanding every later post fails with ENOMEM, for ever",
    remedy "signal at least one request in max_send_wr (every half queue is usual), and poll its \
            completion";

    /// Messages arrived while no receive was posted.
    ReceiveQueueStarved = "receive_queue_starved", Warning,
    why "a reliable peer is answered with RNR NAK, waits and sends again: slow, and the end of the \
         connection when its rnr_retry runs out; on UC and UD the message is lost",
    remedy "post receives before the peer can send, more of them, and post anew as they complete; \
            or let the peer wait for credits";

    /// More work requests are outstanding than the completion queue can hold completions.
    CqOverrunRisk = "cq_overrun_risk", Warning,
    why "if they complete before the program polls, the queue overruns: it is dead, and all queue \
         pairs on it with it (IBV_EVENT_CQ_ERR)",
    remedy "make the completion queue for the sum of what is signalled or received on all its \
            queue pairs, or ibv_resize_cq";

    /// A completion queue overran.
    CqOverrun = "cq_overrun", Error,
    why "a completion found no room: the queue is dead, and its queue pairs are in error",
    remedy "make the completion queue larger, poll more often, or post less at a time";

    /// An object is being destroyed although events that were taken of it are not acknowledged.
    UnackedEvents = "unacked_events", Error,
    why "ibv_destroy_cq, ibv_destroy_qp and ibv_destroy_srq wait until every event that was taken \
         is acknowledged: the call hangs",
    remedy "call ibv_ack_cq_events for all events taken by ibv_get_cq_event (many at once is \
            cheaper), and ibv_ack_async_event for asynchronous ones";

    /// The program exited with events that were taken and not acknowledged.
    UnackedAtExit = "unacked_events_at_exit", Warning,
    why "it does no harm now; to destroy the object would hang",
    remedy "acknowledge events soon after they were taken";

    /// Objects were still there when the program exited, or when it closed their device.
    LeakedObjects = "leaked_objects", Warning,
    why "a program that runs longer, or a library that is loaded again and again, runs out of \
         device resources and pinned memory",
    remedy "destroy what was made, in the opposite order, before the device is closed";

    /// The program exited without taking anything down; the kernel frees it all.
    LeftOpen = "left_open", Note,
    why "harmless in a program that ends; leaks in one that goes on cannot be told from it",
    remedy "destroy objects and close the device, to have leaks found";
}

impl core::fmt::Display for FindingCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for &code in FindingCode::ALL {
            assert_eq!(FindingCode::from_name(code.name()), Some(code));
        }
        for &severity in Severity::ALL {
            assert_eq!(Severity::from_name(severity.name()), Some(severity));
        }
    }
}
