//! `docs/counters.md` is generated from the table. `UPDATE_EXPECT=1 cargo test -p hirail-vocab`
//! writes it anew.

use std::fmt::Write as _;

use expect_test::expect_file;
use hirail_vocab::{CcParam, CcSide, Counter, DropReason, LinkKind};

#[test]
fn counters_doc_is_fresh() {
    let mut text = String::from(
        "# Counters\n\n\
         <!-- Generated from crates/vocab: UPDATE_EXPECT=1 cargo test -p hirail-vocab -->\n\n\
         What `hirail stat` prints and what the simulated hosts count. Names are those of cards where\n\
         cards have them (`hw_counters` and `counters` in sysfs, `rdma statistic`, `ethtool -S`).\n\
         Counters start at 0 with their device and never go back; differences are what says\n\
         something. `hirail explain NAME` prints a line of this page.\n\n\
         Some need what only some links of hirail have, such as flow control; where the first column\n\
         names links, others do not count it.\n",
    );
    let mut group = "";
    for &counter in Counter::ALL {
        let reason = DropReason::ALL
            .iter()
            .find(|reason| reason.counter() == counter);
        if counter.group() != group {
            group = counter.group();
            write!(text, "\n## {group}\n\n").unwrap();
            if reason.is_some() {
                text.push_str(
                    "Each discarded packet is counted under exactly one of these, and under the \
                     card's counter of the\nsame thing where there is one. The unit is packets.\n\n\
                     | counter | also in | why |\n| --- | --- | --- |\n",
                );
            } else {
                text.push_str("| counter | unit | what |\n| --- | --- | --- |\n");
            }
        }
        let second = match reason {
            Some(reason) => reason
                .also()
                .map_or(String::new(), |also| format!("`{also}`")),
            None => counter.unit().to_string(),
        };
        let links = match counter.counted_on() {
            links if links == LinkKind::ALL => String::new(),
            [] => " (other devices)".to_owned(),
            links => {
                let names: Vec<_> = links.iter().map(|link| link.name()).collect();
                format!(" ({})", names.join(", "))
            }
        };
        let meaning = counter.meaning();
        writeln!(text, "| `{counter}`{links} | {second} | {meaning} |").unwrap();
    }
    text.push_str(
        "\n# Congestion-control parameters\n\n\
         DCQCN, under the names of the vendor's sysfs. `RP` is the sender, `NP` the receiver.\n\n\
         | parameter | side | default | range | unit | what |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for &param in CcParam::ALL {
        let side = match param.side() {
            CcSide::Rp => "RP",
            CcSide::Np => "NP",
        };
        let highest = param
            .highest()
            .map_or("line".to_owned(), |highest| highest.to_string());
        writeln!(
            text,
            "| `{param}` | {side} | {} | {} to {highest} | {} | {} |",
            param.default_value(),
            param.lowest(),
            param.unit(),
            param.meaning()
        )
        .unwrap();
    }
    expect_file!["../../../docs/counters.md"].assert_eq(&text);
}
