//! The states of a queue pair: what each may do, which transitions exist, and which attributes each
//! transition needs and allows, as data (IBTA Vol 1, chapter 10; the masks are those of
//! Linux's `ib_modify_qp_is_ok`).
//!
//! Nothing here changes a queue pair: [`check_modify`] says whether a change may be made.

use hirail_vocab::{QpState, QpType};

use super::attr::AttrMask;

/// What a queue pair may do in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Receive requests may be posted (in ERR they are flushed at once).
    pub may_post_recv: bool,
    /// Send requests may be posted (in SQD they wait, in SQE and ERR they are flushed at once).
    pub may_post_send: bool,
    /// Requests of the peer are executed and answered. Without it they are dropped.
    pub accepts_requests: bool,
    /// Responses of the peer are taken. Without it they are dropped.
    pub accepts_responses: bool,
    /// The next send request may be started.
    pub starts_sends: bool,
    /// Send requests that have started go on: sent, retried, completed.
    pub continues_sends: bool,
    /// Send requests are completed with `IBV_WC_WR_FLUSH_ERR`.
    pub flushes_sends: bool,
    /// Receive requests are completed with `IBV_WC_WR_FLUSH_ERR`.
    pub flushes_receives: bool,
}

/// By [`QpState::code`].
const CAPABILITIES: [Capabilities; 7] = {
    const NOTHING: Capabilities = Capabilities {
        may_post_recv: false,
        may_post_send: false,
        accepts_requests: false,
        accepts_responses: false,
        starts_sends: false,
        continues_sends: false,
        flushes_sends: false,
        flushes_receives: false,
    };
    const INIT: Capabilities = Capabilities {
        may_post_recv: true,
        ..NOTHING
    };
    const RTR: Capabilities = Capabilities {
        accepts_requests: true,
        ..INIT
    };
    const SQD: Capabilities = Capabilities {
        may_post_send: true,
        accepts_responses: true,
        continues_sends: true,
        ..RTR
    };
    const RTS: Capabilities = Capabilities {
        starts_sends: true,
        ..SQD
    };
    const SQE: Capabilities = Capabilities {
        may_post_send: true,
        flushes_sends: true,
        ..RTR
    };
    const ERR: Capabilities = Capabilities {
        may_post_send: true,
        flushes_sends: true,
        flushes_receives: true,
        ..INIT
    };
    [NOTHING, INIT, RTR, RTS, SQD, SQE, ERR]
};

impl Capabilities {
    /// What a queue pair may do in `state`.
    pub const fn of(state: QpState) -> &'static Self {
        &CAPABILITIES[state as usize]
    }
}

/// Attributes that a transition takes, by who has them. A queue pair of type RC has the first four
/// sets, an XRC initiator lacks the responder's, an XRC target the requester's, UC has the first
/// only.
#[derive(Clone, Copy)]
struct Attrs {
    /// RC, UC and both halves of XRC.
    connected: AttrMask,
    /// RC and both halves of XRC.
    reliable: AttrMask,
    /// RC and the XRC initiator.
    requester: AttrMask,
    /// RC and the XRC target.
    responder: AttrMask,
    /// UD and QP1.
    datagram: AttrMask,
    /// UD only: QP1 is bound to its port when it is created.
    ud: AttrMask,
}

impl Attrs {
    const NONE: Self = Self {
        connected: AttrMask::empty(),
        reliable: AttrMask::empty(),
        requester: AttrMask::empty(),
        responder: AttrMask::empty(),
        datagram: AttrMask::empty(),
        ud: AttrMask::empty(),
    };

    /// The attributes that apply to `qp_type`.
    const fn of(self, qp_type: QpType) -> AttrMask {
        match qp_type {
            QpType::Rc => self
                .connected
                .union(self.reliable)
                .union(self.requester)
                .union(self.responder),
            QpType::XrcSend => self.connected.union(self.reliable).union(self.requester),
            QpType::XrcRecv => self.connected.union(self.reliable).union(self.responder),
            QpType::Uc => self.connected,
            QpType::Ud => self.datagram.union(self.ud),
            QpType::Gsi => self.datagram,
        }
    }
}

/// Transitions from any state of `from` to `to`.
struct Transition {
    from: &'static [QpState],
    to: QpState,
    required: Attrs,
    optional: Attrs,
}

/// Every transition there is.
const TRANSITIONS: &[Transition] = {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const ADDRESSING: Attrs = Attrs {
        connected: AttrMask::PKEY_INDEX
            .union(AttrMask::PORT)
            .union(AttrMask::ACCESS_FLAGS),
        datagram: AttrMask::PKEY_INDEX.union(AttrMask::QKEY),
        ud: AttrMask::PORT,
        ..Attrs::NONE
    };
    const RUNNING: Attrs = Attrs {
        connected: AttrMask::CUR_STATE
            .union(AttrMask::ALT_PATH)
            .union(AttrMask::ACCESS_FLAGS)
            .union(AttrMask::PATH_MIG_STATE),
        responder: AttrMask::MIN_RNR_TIMER,
        datagram: AttrMask::CUR_STATE.union(AttrMask::QKEY),
        ..Attrs::NONE
    };
    const NOTIFY: Attrs = Attrs {
        connected: AttrMask::EN_SQD_ASYNC_NOTIFY,
        datagram: AttrMask::EN_SQD_ASYNC_NOTIFY,
        ..Attrs::NONE
    };

    &[
        Transition {
            from: &[Reset, Init, Rtr, Rts, Sqd, Sqe, Err],
            to: Reset,
            required: Attrs::NONE,
            optional: Attrs::NONE,
        },
        // Not from RESET: there is nothing to flush, and Linux refuses it.
        Transition {
            from: &[Init, Rtr, Rts, Sqd, Sqe, Err],
            to: Err,
            required: Attrs::NONE,
            optional: Attrs::NONE,
        },
        Transition {
            from: &[Reset],
            to: Init,
            required: ADDRESSING,
            optional: Attrs::NONE,
        },
        Transition {
            from: &[Init],
            to: Init,
            required: Attrs::NONE,
            optional: ADDRESSING,
        },
        Transition {
            from: &[Init],
            to: Rtr,
            required: Attrs {
                connected: AttrMask::AV
                    .union(AttrMask::PATH_MTU)
                    .union(AttrMask::DEST_QPN)
                    .union(AttrMask::RQ_PSN),
                responder: AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER),
                ..Attrs::NONE
            },
            optional: Attrs {
                connected: AttrMask::ALT_PATH
                    .union(AttrMask::ACCESS_FLAGS)
                    .union(AttrMask::PKEY_INDEX),
                datagram: AttrMask::PKEY_INDEX.union(AttrMask::QKEY),
                ..Attrs::NONE
            },
        },
        Transition {
            from: &[Rtr],
            to: Rts,
            required: Attrs {
                connected: AttrMask::SQ_PSN,
                reliable: AttrMask::TIMEOUT,
                requester: AttrMask::RETRY_CNT
                    .union(AttrMask::RNR_RETRY)
                    .union(AttrMask::MAX_QP_RD_ATOMIC),
                datagram: AttrMask::SQ_PSN,
                ..Attrs::NONE
            },
            optional: RUNNING,
        },
        Transition {
            from: &[Rts, Sqd],
            to: Rts,
            required: Attrs::NONE,
            optional: RUNNING,
        },
        Transition {
            from: &[Rts],
            to: Sqd,
            required: Attrs::NONE,
            optional: NOTIFY,
        },
        Transition {
            from: &[Sqd],
            to: Sqd,
            required: Attrs::NONE,
            optional: Attrs {
                connected: AttrMask::AV
                    .union(AttrMask::ALT_PATH)
                    .union(AttrMask::ACCESS_FLAGS)
                    .union(AttrMask::PKEY_INDEX)
                    .union(AttrMask::PATH_MIG_STATE),
                reliable: AttrMask::PORT.union(AttrMask::TIMEOUT),
                requester: AttrMask::RETRY_CNT
                    .union(AttrMask::RNR_RETRY)
                    .union(AttrMask::MAX_QP_RD_ATOMIC),
                responder: AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER),
                datagram: AttrMask::PKEY_INDEX.union(AttrMask::QKEY),
                ..Attrs::NONE
            },
        },
        Transition {
            from: &[Sqe],
            to: Rts,
            required: Attrs::NONE,
            optional: Attrs {
                connected: AttrMask::CUR_STATE.union(AttrMask::ACCESS_FLAGS),
                datagram: AttrMask::CUR_STATE.union(AttrMask::QKEY),
                ..Attrs::NONE
            },
        },
    ]
};

/// The attributes of one transition of one type of queue pair, beyond `STATE` itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Must all be given.
    pub required: AttrMask,
    /// May be given.
    pub optional: AttrMask,
}

/// The rule for a queue pair of `qp_type` to go from `from` to `to`; `None` if it never may.
///
/// A reliable queue pair has no SQE state: it goes to ERR where others go to SQE.
pub fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    if qp_type.is_reliable() && (from == QpState::Sqe || to == QpState::Sqe) {
        return None;
    }
    let transition = TRANSITIONS
        .iter()
        .find(|t| t.to == to && t.from.contains(&from))?;
    Some(Rule {
        required: transition.required.of(qp_type),
        optional: transition.optional.of(qp_type),
    })
}

/// Why `modify_qp` was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// There is no such transition.
    #[error("{qp_type} does not go from {from} to {to}")]
    NoTransition {
        /// The queue pair's type.
        qp_type: QpType,
        /// The state that it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// Attributes that the transition needs were not given.
    #[error("{qp_type} from {from} to {to} also needs {missing}")]
    Missing {
        /// The queue pair's type.
        qp_type: QpType,
        /// The state that it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// What was not given.
        missing: AttrMask,
    },
    /// Attributes that the transition does not take were given.
    #[error("{qp_type} from {from} to {to} does not take {refused}")]
    NotAllowed {
        /// The queue pair's type.
        qp_type: QpType,
        /// The state that it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// What was given.
        refused: AttrMask,
    },
    /// `cur_qp_state` names another state than the queue pair is in.
    #[error("the queue pair is in {actual}, cur_qp_state says {claimed}")]
    NotInState {
        /// What the caller claims.
        claimed: QpState,
        /// The state that it is in.
        actual: QpState,
    },
    /// A value that the device or the standard does not allow.
    #[error("{field} is {min} to {max}, got {got}")]
    OutOfRange {
        /// The attribute as the verbs spell it.
        field: &'static str,
        /// The value given.
        got: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// The send queue is still draining; until `IBV_EVENT_SQ_DRAINED` only ERR and RESET are
    /// possible.
    #[error("the send queue is draining: only IBV_QPS_ERR and IBV_QPS_RESET are possible")]
    Draining,
}

/// Whether a queue pair of `qp_type` in state `from` may go to `to` with the attributes in `mask`.
///
/// # Errors
///
/// [`ModifyError::NoTransition`], [`ModifyError::Missing`] or [`ModifyError::NotAllowed`], in this
/// order; the latter two name all attributes concerned.
pub fn check_modify(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    mask: AttrMask,
) -> Result<(), ModifyError> {
    let Some(rule) = rule(qp_type, from, to) else {
        return Err(ModifyError::NoTransition { qp_type, from, to });
    };
    let missing = rule.required - mask;
    if !missing.is_empty() {
        return Err(ModifyError::Missing {
            qp_type,
            from,
            to,
            missing,
        });
    }
    // Not `mask - allowed`: that forgets bits that have no name.
    let allowed = rule.required | rule.optional | AttrMask::STATE;
    let refused = AttrMask::from_bits_retain(mask.bits() & !allowed.bits());
    if !refused.is_empty() {
        return Err(ModifyError::NotAllowed {
            qp_type,
            from,
            to,
            refused,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect_file;

    use super::*;

    fn every_cell() -> impl Iterator<Item = (QpType, QpState, QpState)> {
        QpType::ALL.iter().flat_map(|&qp_type| {
            QpState::ALL
                .iter()
                .flat_map(move |&from| QpState::ALL.iter().map(move |&to| (qp_type, from, to)))
        })
    }

    /// Every type, transition and attribute: a required one missing is an error that names it, an
    /// optional one is accepted, any other is refused by name.
    #[test]
    fn cell_by_cell() {
        let mut accepted = 0;
        for (qp_type, from, to) in every_cell() {
            let check = |mask| check_modify(qp_type, from, to, mask);
            let Some(Rule { required, optional }) = rule(qp_type, from, to) else {
                let none = ModifyError::NoTransition { qp_type, from, to };
                assert_eq!(check(AttrMask::STATE), Err(none));
                assert_eq!(check(AttrMask::all()), Err(none));
                continue;
            };
            assert!((required & optional).is_empty(), "{qp_type} {from} {to}");
            assert_eq!(check(required), Ok(()));
            assert_eq!(check(required | optional | AttrMask::STATE), Ok(()));
            accepted += 1;
            for attribute in AttrMask::all().iter() {
                if required.contains(attribute) {
                    let missing = attribute;
                    assert_eq!(
                        check(required - attribute),
                        Err(ModifyError::Missing {
                            qp_type,
                            from,
                            to,
                            missing
                        })
                    );
                } else if optional.contains(attribute) || attribute == AttrMask::STATE {
                    assert_eq!(check(required | attribute), Ok(()));
                } else {
                    let refused = attribute;
                    assert_eq!(
                        check(required | attribute),
                        Err(ModifyError::NotAllowed {
                            qp_type,
                            from,
                            to,
                            refused
                        })
                    );
                }
            }
        }
        // 22 transitions for UC, UD and QP1; three fewer, those from SQE, for the reliable types.
        assert_eq!(accepted, 3 * 22 + 3 * 19);
    }

    /// A bit that has no name is refused like one that has.
    #[test]
    fn unknown_bits_are_refused() {
        let mask = AttrMask::from_bits_retain(1 << 31);
        let error = check_modify(QpType::Ud, QpState::Init, QpState::Rtr, mask).unwrap_err();
        assert_eq!(
            error.to_string(),
            "IBV_QPT_UD from IBV_QPS_INIT to IBV_QPS_RTR does not take 0x80000000"
        );
    }

    #[test]
    fn errors_name_what_is_missing() {
        let mask = AttrMask::STATE | AttrMask::AV | AttrMask::RQ_PSN;
        let error = check_modify(QpType::Uc, QpState::Init, QpState::Rtr, mask).unwrap_err();
        assert_eq!(
            error.to_string(),
            "IBV_QPT_UC from IBV_QPS_INIT to IBV_QPS_RTR also needs \
             IBV_QP_PATH_MTU, IBV_QP_DEST_QPN"
        );
    }

    /// Every state leads to RESET, every state but RESET to ERR, with no attributes at all.
    #[test]
    fn reset_and_error_need_nothing() {
        let nothing = Rule {
            required: AttrMask::empty(),
            optional: AttrMask::empty(),
        };
        for (qp_type, from, to) in every_cell() {
            let exists = !(qp_type.is_reliable() && from == QpState::Sqe);
            match to {
                QpState::Reset => {
                    assert_eq!(rule(qp_type, from, to), exists.then_some(nothing));
                }
                QpState::Err => {
                    let exists = exists && from != QpState::Reset;
                    assert_eq!(rule(qp_type, from, to), exists.then_some(nothing));
                }
                // SQE is entered by the queue pair itself.
                QpState::Sqe => assert_eq!(rule(qp_type, from, to), None),
                _ => {}
            }
        }
    }

    /// `cur_qp_state` is legal only where the state can change under the caller's feet.
    #[test]
    fn cur_state_only_from_rtr_on() {
        for (qp_type, from, to) in every_cell() {
            let takes = rule(qp_type, from, to)
                .is_some_and(|rule| rule.optional.contains(AttrMask::CUR_STATE));
            let may = matches!(
                from,
                QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
            );
            assert!(!takes || may, "{qp_type} {from} {to}");
        }
    }

    /// The masks that perftest and the pingpong programs of rdma-core pass.
    #[test]
    fn masks_of_well_known_programs_pass() {
        use QpState::{Init, Reset, Rtr, Rts};
        for (qp_type, from, to, mask) in [
            (QpType::Rc, Reset, Init, 0x39),
            (QpType::Rc, Init, Rtr, 0x12_9181),
            (QpType::Rc, Rtr, Rts, 0x1_2e01),
            (QpType::Uc, Reset, Init, 0x39),
            (QpType::Uc, Init, Rtr, 0x10_1181),
            (QpType::Uc, Rtr, Rts, 0x1_0001),
            (QpType::Ud, Reset, Init, 0x71),
            (QpType::Ud, Init, Rtr, 0x1),
            (QpType::Ud, Rtr, Rts, 0x1_0001),
            (QpType::XrcSend, Init, Rtr, 0x10_1181),
            (QpType::XrcSend, Rtr, Rts, 0x1_2e01),
            (QpType::XrcRecv, Init, Rtr, 0x12_9181),
            (QpType::XrcRecv, Rtr, Rts, 0x1_0201),
        ] {
            let mask = AttrMask::from_bits(mask).unwrap();
            assert_eq!(check_modify(qp_type, from, to, mask), Ok(()));
        }
    }

    /// The table of what each state takes, read as implications between its columns.
    #[test]
    fn capabilities_are_consistent() {
        for &state in QpState::ALL {
            let can = Capabilities::of(state);
            assert!(!can.starts_sends || can.continues_sends, "{state}");
            assert!(!can.continues_sends || can.accepts_responses, "{state}");
            assert!(!can.accepts_responses || can.accepts_requests, "{state}");
            assert!(!can.accepts_requests || can.may_post_recv, "{state}");
            assert!(!(can.flushes_sends && can.continues_sends), "{state}");
            assert!(!(can.flushes_receives && can.accepts_requests), "{state}");
            assert_eq!(can.starts_sends, state == QpState::Rts);
            assert_eq!(can.flushes_receives, state == QpState::Err);
            assert_eq!(can.may_post_recv, state != QpState::Reset);
            assert_eq!(can.may_post_send, state >= QpState::Rts);
        }
    }

    /// Everything the table says, for the eye. `UPDATE_EXPECT=1` writes it anew.
    #[test]
    fn matrix_is_as_reviewed() {
        let mut text = String::from(
            "# Attributes of modify_qp per transition and type, beyond IBV_QP_STATE.\n\
             # R required, o optional. Transitions that are not listed do not exist.\n",
        );
        let names = |mask: AttrMask| {
            mask.iter_names()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for &from in QpState::ALL {
            for &to in QpState::ALL {
                for &qp_type in QpType::ALL {
                    let Some(rule) = rule(qp_type, from, to) else {
                        continue;
                    };
                    let line = format!(
                        "{:<5} -> {:<5} {:<9} R {}  o {}",
                        short(from.name()),
                        short(to.name()),
                        short(qp_type.name()),
                        names(rule.required),
                        names(rule.optional)
                    );
                    writeln!(text, "{}", line.trim_end()).unwrap();
                }
            }
        }
        text.push_str("\n# What each state may do.\n");
        for &state in QpState::ALL {
            let can = format!("{:?}", Capabilities::of(state));
            let can = can
                .trim_start_matches("Capabilities { ")
                .trim_end_matches(" }");
            let can: Vec<_> = can
                .split(", ")
                .filter_map(|column| column.strip_suffix(": true"))
                .collect();
            let line = format!("{:<5} {}", short(state.name()), can.join(" "));
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
        expect_file!["../../tests/snapshots/qp_attributes.txt"].assert_eq(&text);
    }

    /// The same as a graph: `dot -Tsvg`.
    #[test]
    fn graph_is_as_reviewed() {
        let mut text = String::from("digraph qp_states {\n    rankdir=LR;\n");
        for &from in QpState::ALL {
            for &to in QpState::ALL {
                let types: Vec<_> = QpType::ALL
                    .iter()
                    .filter(|&&qp_type| rule(qp_type, from, to).is_some())
                    .map(|qp_type| short(qp_type.name()))
                    .collect();
                if types.is_empty() {
                    continue;
                }
                let label = match types.len() == QpType::ALL.len() {
                    true => String::new(),
                    false => format!(" [label=\"{}\"]", types.join(" ")),
                };
                let (from, to) = (short(from.name()), short(to.name()));
                writeln!(text, "    {from} -> {to}{label};").unwrap();
            }
        }
        text.push_str(
            "    // Dashed: what the queue pair does by itself.\n\
             \x20   RTS -> SQE [style=dashed, label=\"a send fails: GSI UC UD\"];\n\
             \x20   SQD -> SQE [style=dashed, label=\"a send fails: GSI UC UD\"];\n\
             \x20   RTR -> ERR [style=dashed, label=\"a request is refused\"];\n\
             \x20   RTS -> ERR [style=dashed, label=\"a request is refused or a send fails\"];\n\
             \x20   SQD -> ERR [style=dashed, label=\"a request is refused or a send fails\"];\n}\n",
        );
        expect_file!["../../tests/snapshots/qp_states.dot"].assert_eq(&text);
    }

    fn short(name: &str) -> &str {
        let (_, rest) = name.split_once("_QP").expect("IBV_QPS_ or IBV_QPT_");
        &rest[2..]
    }
}
