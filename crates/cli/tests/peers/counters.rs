//! What both ends have counted.

use std::collections::BTreeMap;
use std::fmt;

use hirail::stat::left_in;

use crate::lab;
use crate::peers::Peers;

#[derive(Clone)]
pub(crate) struct Counters {
    hirail: BTreeMap<String, u64>,
    kernel: BTreeMap<String, u64>,
}

impl Counters {
    pub(crate) fn of(peers: &Peers) -> Self {
        let mut hirail = BTreeMap::new();
        for device in left_in(&peers.counters()).expect("the folder is there") {
            for (counter, value) in device.counters.non_zero() {
                *hirail.entry(counter.name().to_owned()).or_default() += value;
            }
        }
        let script = "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *";
        let text = lab::run(peers.lab.guest(30).args(["sh", "-c", script]));
        let values = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self {
            hirail,
            kernel: values.collect(),
        }
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
            let added = now.iter().map(|(name, value)| {
                let earlier = before.get(name).copied().unwrap_or_default();
                (name.clone(), value.saturating_sub(earlier))
            });
            added.collect()
        };
        Self {
            hirail: less(&self.hirail, &before.hirail),
            kernel: less(&self.kernel, &before.kernel),
        }
    }

    pub(crate) fn hirail(&self, name: &str) -> u64 {
        self.hirail.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn kernel(&self, name: &str) -> u64 {
        self.kernel.get(name).copied().unwrap_or_default()
    }
}

/// Those that tell of trouble.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WORDS: [&str; 8] = [
            "err", "seq", "retrans", "dup", "retry", "rnr", "drop", "timeout",
        ];
        for (side, counters) in [("hirail", &self.hirail), ("kernel", &self.kernel)] {
            write!(f, "  {side}:")?;
            let troubles = counters.iter().filter(|(name, value)| {
                **value > 0 && WORDS.iter().any(|word| name.contains(word))
            });
            for (name, value) in troubles {
                write!(f, " {name} {value}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
