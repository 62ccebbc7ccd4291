//! `explain`: from a word that hirail prints to what it means, and from a word that nobody prints to
//! the nearest one.

use core::fmt;

use crate::terms::TERMS;
use crate::{
    AsyncEventKind, CcParam, CcSide, Counter, DropReason, FindingCode, LinkKind, QpState, QpType,
    WcOpcode, WcStatus,
};

/// What sort of word something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// How a work request ended.
    Status,
    /// Operation of a completion.
    CompletionOpcode,
    /// Asynchronous event.
    Event,
    /// State of a queue pair.
    QpState,
    /// Transport of a queue pair.
    QpType,
    /// Counter.
    Counter,
    /// Parameter of congestion control.
    CcParam,
    /// Opcode of a packet.
    Opcode,
    /// Why a responder refuses a request.
    NakCode,
    /// Header, or field of one.
    Header,
    /// Message of connection management.
    CmMessage,
    /// Attribute of a queue pair.
    QpAttribute,
    /// Why a frame is refused.
    ParseReason,
    /// Setting of the configuration.
    Setting,
    /// Mistake that `hirail run --check` finds.
    Finding,
    /// Any other word.
    Term,
}

impl Kind {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status code",
            Self::CompletionOpcode => "opcode of a completion",
            Self::Event => "asynchronous event",
            Self::QpState => "queue pair state",
            Self::QpType => "queue pair type",
            Self::Counter => "counter",
            Self::CcParam => "congestion-control parameter",
            Self::Opcode => "opcode",
            Self::NakCode => "NAK",
            Self::Header => "header",
            Self::CmMessage => "connection management",
            Self::QpAttribute => "queue pair attribute",
            Self::ParseReason => "reason to refuse a frame",
            Self::Setting => "setting",
            Self::Finding => "finding of hirail run --check",
            Self::Term => "term",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a word means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The word, spelt as hirail prints it.
    pub word: &'static str,
    /// What sort of word it is.
    pub kind: Kind,
    /// What it means, in a few sentences.
    pub meaning: &'static str,
    /// What else there is to say: unit, number, default, range, other names.
    pub facts: Vec<(&'static str, String)>,
}

/// The word and its kind, the meaning, then one line per fact.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})\n{}", self.word, self.kind, self.meaning)?;
        let width = self
            .facts
            .iter()
            .map(|(label, _)| label.len())
            .max()
            .unwrap_or(0);
        for (label, value) in &self.facts {
            write!(f, "\n  {label:width$}  {value}")?;
        }
        Ok(())
    }
}

/// The links of hirail that count it, in words.
fn counted_on(counter: Counter) -> String {
    match counter.counted_on() {
        [] => "no link of hirail; by other devices".to_owned(),
        links if links == LinkKind::ALL => "every link".to_owned(),
        links => links
            .iter()
            .map(|link| link.name())
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Anything that has an explanation.
#[derive(Clone, Copy)]
enum Entry {
    Status(WcStatus),
    CompletionOpcode(WcOpcode),
    Event(AsyncEventKind),
    QpState(QpState),
    QpType(QpType),
    Counter(Counter, Option<DropReason>),
    CcParam(CcParam),
    Finding(FindingCode),
    Term(usize),
}

/// All entries. Earlier ones win where several have the same short spelling.
fn entries() -> impl Iterator<Item = Entry> {
    let counters = Counter::ALL.iter().map(|&counter| {
        let reason = DropReason::ALL
            .iter()
            .copied()
            .find(|reason| reason.counter() == counter);
        Entry::Counter(counter, reason)
    });
    (0..TERMS.len())
        .map(Entry::Term)
        .chain(QpType::ALL.iter().copied().map(Entry::QpType))
        .chain(QpState::ALL.iter().copied().map(Entry::QpState))
        .chain(WcStatus::ALL.iter().copied().map(Entry::Status))
        .chain(AsyncEventKind::ALL.iter().copied().map(Entry::Event))
        .chain(WcOpcode::ALL.iter().copied().map(Entry::CompletionOpcode))
        .chain(CcParam::ALL.iter().copied().map(Entry::CcParam))
        .chain(counters)
        .chain(FindingCode::ALL.iter().copied().map(Entry::Finding))
}

impl Entry {
    /// As hirail prints it.
    fn word(self) -> &'static str {
        match self {
            Self::Status(status) => status.name(),
            Self::CompletionOpcode(opcode) => opcode.name(),
            Self::Event(event) => event.name(),
            Self::QpState(state) => state.name(),
            Self::QpType(qp_type) => qp_type.name(),
            Self::Counter(counter, _) => counter.name(),
            Self::CcParam(param) => param.name(),
            Self::Finding(code) => code.name(),
            Self::Term(index) => TERMS[index].word,
        }
    }

    /// Other spellings that are words of their own.
    fn aliases(self) -> Vec<&'static str> {
        // `IBV_WC_` and the like are left off in speech.
        let short = |name: &'static str| name.splitn(3, '_').nth(2).unwrap_or(name);
        match self {
            Self::Status(status) => vec![short(status.name()), status.description()],
            Self::CompletionOpcode(opcode) => vec![short(opcode.name())],
            Self::Event(event) => vec![short(event.name())],
            Self::QpState(state) => vec![short(state.name())],
            Self::QpType(qp_type) => vec![short(qp_type.name())],
            Self::Counter(_, reason) => reason.map(DropReason::name).into_iter().collect(),
            Self::CcParam(param) => param.debugfs_name().into_iter().collect(),
            Self::Finding(_) => Vec::new(),
            Self::Term(index) => TERMS[index].aliases.to_vec(),
        }
    }

    /// The spelling by number, `status 12`.
    fn numbered(self) -> Option<String> {
        match self {
            Self::Status(status) => Some(format!("status {}", status.code())),
            Self::Event(event) => Some(format!("event {}", event.code())),
            Self::QpState(state) => Some(format!("state {}", state.code())),
            _ => None,
        }
    }

    fn explanation(self) -> Explanation {
        let (kind, meaning) = match self {
            Self::Status(status) => (Kind::Status, status.meaning()),
            Self::CompletionOpcode(opcode) => (Kind::CompletionOpcode, opcode.meaning()),
            Self::Event(event) => (Kind::Event, event.meaning()),
            Self::QpState(state) => (Kind::QpState, state.meaning()),
            Self::QpType(qp_type) => (Kind::QpType, qp_type.meaning()),
            Self::Counter(counter, _) => (Kind::Counter, counter.meaning()),
            Self::CcParam(param) => (Kind::CcParam, param.meaning()),
            Self::Finding(code) => (Kind::Finding, code.meaning()),
            Self::Term(index) => (TERMS[index].kind, TERMS[index].meaning),
        };
        Explanation {
            word: self.word(),
            kind,
            meaning,
            facts: self.facts(),
        }
    }

    fn facts(self) -> Vec<(&'static str, String)> {
        let number = |code: u8| vec![("number", code.to_string())];
        match self {
            Self::Status(status) => {
                vec![
                    ("number", status.code().to_string()),
                    ("in words", status.description().to_owned()),
                ]
            }
            Self::CompletionOpcode(opcode) => number(opcode.code()),
            Self::Event(event) => number(event.code()),
            Self::QpState(state) => number(state.code()),
            Self::QpType(qp_type) => number(qp_type.code()),
            Self::Counter(counter, reason) => {
                let mut facts = vec![
                    ("unit", counter.unit().to_string()),
                    ("group", counter.group().to_owned()),
                    ("counted on", counted_on(counter)),
                ];
                if let Some(also) = reason.and_then(DropReason::also) {
                    facts.push(("counted also in", also.name().to_owned()));
                }
                facts
            }
            Self::CcParam(param) => {
                let highest = match param.highest() {
                    Some(highest) => highest.to_string(),
                    None => "line rate".to_owned(),
                };
                let side = match param.side() {
                    CcSide::Rp => "reaction point",
                    CcSide::Np => "notification point",
                };
                let mut facts = vec![
                    ("unit", param.unit().to_owned()),
                    ("default", param.default_value().to_string()),
                    ("range", format!("{} to {highest}", param.lowest())),
                    ("side", side.to_owned()),
                ];
                if let Some(name) = param.debugfs_name() {
                    facts.push(("in debugfs", name.to_owned()));
                }
                facts
            }
            Self::Finding(code) => vec![
                ("severity", code.severity().name().to_owned()),
                ("matters", code.why().to_owned()),
                ("remedy", code.remedy().to_owned()),
            ],
            Self::Term(index) => match TERMS[index].aliases {
                [] => Vec::new(),
                aliases => vec![("also", aliases.join(", "))],
            },
        }
    }
}

/// The spelling under which words are compared: case, separators and the abbreviations of
/// `hirail decode` make no difference.
fn canonical(word: &str) -> String {
    let word = word.trim().to_lowercase();
    let tokens = word
        .split([' ', '_', '-'])
        .filter(|token| !token.is_empty());
    let tokens: Vec<_> = tokens
        .map(|token| match token {
            "resp" => "response",
            "imm" => "immediate",
            "inv" => "invalidate",
            token => token,
        })
        .filter(|&token| token != "with")
        .collect();
    tokens.join("_")
}

/// Looks for an entry spelt `canonical`: its own word first, then a number, then another spelling.
fn find(canonical_word: &str) -> Option<Entry> {
    let is_word = |word: &str| canonical(word) == canonical_word;
    entries()
        .find(|entry| is_word(entry.word()))
        .or_else(|| entries().find(|entry| entry.numbered().is_some_and(|number| is_word(&number))))
        .or_else(|| entries().find(|entry| entry.aliases().into_iter().any(is_word)))
}

/// What `word` means: a counter, a status code or event (by name, number, or in the words of
/// `ibv_wc_status_str`), an opcode as `hirail decode` prints it, a parameter, a term. Upper and lower
/// case are the same, and so are spaces, hyphens and underscores.
pub fn explain(word: &str) -> Option<Explanation> {
    let word = canonical(word);
    let opcode = || {
        // As in `RC RDMA WRITE Only`, also without the RDMA.
        let (service, rest) = word.split_once('_')?;
        if !matches!(service, "rc" | "uc" | "ud" | "xrc") {
            return None;
        }
        find(rest).or_else(|| find(&format!("rdma_{rest}")))
    };
    let entry = find(&word)
        .or_else(opcode)
        .or_else(|| find(&format!("rdma_{word}")))?;
    Some(entry.explanation())
}

/// The word that was probably meant by `word`, which nothing is called; `None` if nothing is near.
pub fn nearest_word(word: &str) -> Option<&'static str> {
    let word = canonical(word);
    let spellings =
        || entries().flat_map(|entry| entry.aliases().into_iter().chain([entry.word()]));
    let (distance, nearest) = spellings()
        .map(|spelling| {
            (
                strsim::damerau_levenshtein(&canonical(spelling), &word),
                spelling,
            )
        })
        .min_by_key(|&(distance, _)| distance)?;
    (distance <= word.chars().count() / 3).then_some(nearest)
}

/// Every word that has an explanation, as hirail prints it.
pub fn words() -> impl Iterator<Item = &'static str> {
    entries().map(Entry::word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_word_explains_itself() {
        for entry in entries() {
            let explanation = explain(entry.word()).unwrap_or_else(|| panic!("{}", entry.word()));
            assert_eq!(explanation.word, entry.word());
            let meaning = explanation.meaning;
            assert!(
                meaning.ends_with('.') && !meaning.contains("  "),
                "{}: {meaning}",
                entry.word()
            );
            for alias in entry.aliases() {
                assert!(explain(alias).is_some(), "{alias}");
            }
        }
    }

    /// Words have one entry each, and a term's other spellings are nobody's word.
    #[test]
    fn spellings_are_unambiguous() {
        let words = entries().map(|entry| (entry.word(), entry.word()));
        let aliases = TERMS
            .iter()
            .flat_map(|term| term.aliases.iter().map(|&alias| (alias, term.word)));
        let mut seen = BTreeMap::new();
        let mut twice = Vec::new();
        for (spelling, word) in words.chain(aliases) {
            if let Some(other) = seen.insert(canonical(spelling), word) {
                twice.push(format!("{spelling} of {word} and {other}"));
            }
        }
        assert_eq!(twice, Vec::<String>::new());
    }

    #[test]
    fn words_are_found_as_they_are_printed() {
        for (word, expected) in [
            ("packet_seq_err", "packet_seq_err"),
            ("drop_bad_icrc", "drop_bad_icrc"),
            ("bad_icrc", "drop_bad_icrc"),
            ("rx_prio3_pause", "rx_prio3_pause"),
            ("IBV_WC_RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR"),
            ("retry_exc_err", "IBV_WC_RETRY_EXC_ERR"),
            ("transport retry counter exceeded", "IBV_WC_RETRY_EXC_ERR"),
            ("status 12", "IBV_WC_RETRY_EXC_ERR"),
            ("event 16", "IBV_EVENT_QP_LAST_WQE_REACHED"),
            ("comm_est", "IBV_EVENT_COMM_EST"),
            ("RTS", "IBV_QPS_RTS"),
            ("XRC_RECV", "IBV_QPT_XRC_RECV"),
            (
                "RC RDMA WRITE Last with Immediate",
                "RDMA WRITE Last with Immediate",
            ),
            ("RC WRITE Last Imm", "RDMA WRITE Last with Immediate"),
            ("XRC READ resp First", "RDMA READ response First"),
            ("RC SEND Only Inv", "SEND Only with Invalidate"),
            ("UD SEND Only", "SEND Only"),
            ("RC ATOMIC ACK", "ATOMIC Acknowledge"),
            ("RC RNR NAK", "RNR NAK"),
            ("RC ACK", "Acknowledge"),
            ("write", "RDMA WRITE Only"),
            ("0x62", "NAK remote access error"),
            ("NAK 2", "NAK remote access error"),
            ("PSN sequence error", "NAK PSN sequence error"),
            ("remote access error", "IBV_WC_REM_ACCESS_ERR"),
            ("rp_ai_rate", "rpg_ai_rate"),
            ("psn", "PSN"),
            ("go back n", "go-back-N"),
            ("p99.9", "percentile"),
        ] {
            let explanation = explain(word).unwrap_or_else(|| panic!("{word} has no entry"));
            assert_eq!(explanation.word, expected, "{word}");
        }
        assert_eq!(explain("no such thing"), None);
        assert_eq!(explain(""), None);
    }

    #[test]
    fn typing_errors_find_their_word() {
        for (word, expected) in [
            ("packet_seq_error", Some("packet_seq_err")),
            ("out_of_sequnce", Some("out_of_sequence")),
            ("local_ack_timeout", Some("local ACK timeout")),
            ("IBV_WC_RETRY_EXC_ER", Some("IBV_WC_RETRY_EXC_ERR")),
            ("rpg_ai_rat", Some("rpg_ai_rate")),
            ("entirely different", None),
            ("", None),
        ] {
            assert_eq!(nearest_word(word), expected, "{word}");
        }
    }

    #[test]
    fn explanations_read_well() {
        let text = |word| explain(word).unwrap().to_string();
        expect_test::expect![[r#"
            rpg_ai_rate (congestion-control parameter)
            Step of the target rate in additive increase.
              unit        Mb/s
              default     5
              range       1 to line rate
              side        reaction point
              in debugfs  rp_ai_rate"#]]
        .assert_eq(&text("rpg_ai_rate"));
        expect_test::expect![[r#"
            drop_bad_icrc (counter)
            The ICRC is wrong: the packet was damaged, or rewritten on the way.
              unit             packets
              group            Discarded packets, one counter per reason
              counted on       every link
              counted also in  rx_icrc_encapsulated"#]]
        .assert_eq(&text("bad_icrc"));
        expect_test::expect![[r#"
            IBV_WC_RNR_RETRY_EXC_ERR (status code)
            The peer had no receive request posted, for longer than rnr_retry allows.
              number    13
              in words  RNR retry counter exceeded"#]]
        .assert_eq(&text("status 13"));
    }
}
