//! Faults as text: `drop=1%,delay=50us`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::{Faults, Flap};
use crate::config::nearest;

/// A fault: its name in the text, the values that it takes, and what it does.
pub const FAULTS: &[(&str, &str, &str)] = &[
    ("drop", SHARE, "a packet vanishes"),
    ("duplicate", SHARE, "a packet arrives twice"),
    (
        "reorder",
        SHARE,
        "a packet is held back for 200 us, so that later ones pass it",
    ),
    (
        "corrupt",
        SHARE,
        "a bit of a packet is flipped, which the ICRC finds",
    ),
    (
        "ce",
        SHARE,
        "a packet that is ECN-capable is marked \"congestion experienced\"",
    ),
    (
        "rnr",
        SHARE,
        "a request that needs a receive finds none: an RNR NAK",
    ),
    (
        "kill",
        SHARE,
        "the queue pair that a packet is for fails: IBV_EVENT_QP_FATAL",
    ),
    ("delay", TIME, "every packet takes so much longer"),
    (
        "flap",
        FLAP,
        "the port is down for the first time in every second one, such as 100ms/5s",
    ),
];

const SHARE: &str = "a share of packets from 0 to 1, such as 0.01 or 1%";
const TIME: &str = "a time of at most 10s, such as 50us, 2ms or 1s";
const FLAP: &str = "two times, down and every, such as 100ms/5s";

/// Longest time that a fault takes.
const LONGEST: Duration = Duration::from_secs(10);

/// Why a text describes no faults.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FaultsError {
    /// An item is not a name and a value.
    #[error("expected faults such as 'drop=1%,delay=50us', got '{0}'")]
    NotAFault(String),
    /// An item is given twice.
    #[error("'{0}' is given twice")]
    Twice(String),
    /// There is no such fault.
    #[error("unknown fault '{name}'{}", nearest.as_ref().map(|it| format!("; did you mean '{it}'?")).unwrap_or_default())]
    Unknown {
        /// The name given.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// The fault does not take this value.
    #[error("expected {name} to be {expected}, got '{value}'")]
    Value {
        /// The fault.
        name: String,
        /// The value given.
        value: String,
        /// Values that it takes.
        expected: &'static str,
    },
}

impl FromStr for Faults {
    type Err = FaultsError;

    /// Reads a list of faults; the seed stays 0.
    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let mut faults = Self::default();
        let mut seen = Vec::new();
        for item in text.split(',').map(str::trim) {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                // Nothing between commas shows only where it stands.
                let shown = if item.is_empty() { text } else { item };
                FaultsError::NotAFault(shown.to_owned())
            })?;
            if seen.contains(&name) {
                return Err(FaultsError::Twice(name.to_owned()));
            }
            seen.push(name);
            let Some((_, expected, _)) = FAULTS.iter().find(|(known, ..)| *known == name) else {
                return Err(FaultsError::Unknown {
                    name: name.to_owned(),
                    nearest: nearest(name, FAULTS.iter().map(|(known, ..)| *known)),
                });
            };
            if faults.set(name, value).is_none() {
                return Err(FaultsError::Value {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    expected,
                });
            }
        }
        Ok(faults)
    }
}

/// As it is read, without the seed.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("drop", self.loss),
            ("duplicate", self.duplication),
            ("reorder", self.reordering),
            ("corrupt", self.corruption),
            ("ce", self.ce_mark),
            ("rnr", self.not_ready),
            ("kill", self.qp_failure),
        ];
        let shares = shares.into_iter().filter(|(_, share)| *share > 0.0);
        let mut items: Vec<_> = shares
            .map(|(name, share)| format!("{name}={share}"))
            .collect();
        if !self.delay.is_zero() {
            items.push(format!("delay={}ns", self.delay.as_nanos()));
        }
        if let Some(Flap { down, every }) = self.flap {
            items.push(format!("flap={}ns/{}ns", down.as_nanos(), every.as_nanos()));
        }
        f.write_str(&items.join(","))
    }
}

impl Faults {
    /// Sets one by its name; `None` where it does not take the value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let share_of = match name {
            "drop" => &mut self.loss,
            "duplicate" => &mut self.duplication,
            "reorder" => &mut self.reordering,
            "corrupt" => &mut self.corruption,
            "ce" => &mut self.ce_mark,
            "rnr" => &mut self.not_ready,
            "kill" => &mut self.qp_failure,
            "delay" => {
                self.delay = time(value)?;
                return Some(());
            }
            _ => {
                let (down, every) = value.split_once('/')?;
                let (down, every) = (time(down)?, time(every)?);
                self.flap = (!down.is_zero() && down < every).then_some(Flap { down, every });
                return self.flap.map(drop);
            }
        };
        *share_of = share(value)?;
        Some(())
    }
}

fn share(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let second = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * second).ok()?;
    (time <= LONGEST).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_faults() {
        let faults: Faults = "drop=1%, duplicate=0.5,delay=50us,flap=100ms/5s"
            .parse()
            .expect("they are good");
        assert_eq!(
            faults,
            Faults {
                loss: 0.01,
                duplication: 0.5,
                delay: Duration::from_micros(50),
                flap: Some(Flap {
                    down: Duration::from_millis(100),
                    every: Duration::from_secs(5)
                }),
                ..Faults::default()
            }
        );
        for (name, expected, _) in FAULTS {
            let value = match *expected {
                SHARE => "3%",
                TIME => "3ms",
                _ => "1ms/2ms",
            };
            let one: Faults = format!("{name}={value}").parse().expect("it is listed");
            assert!(!one.is_perfect(), "{name} does nothing");
            assert_eq!(one.to_string().parse(), Ok(one), "{one}");
        }
        assert_eq!(faults.to_string().parse(), Ok(faults));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("", "expected faults such as 'drop=1%,delay=50us', got ''"),
            (
                "drop",
                "expected faults such as 'drop=1%,delay=50us', got 'drop'",
            ),
            (
                "drop=1%,",
                "expected faults such as 'drop=1%,delay=50us', got 'drop=1%,'",
            ),
            ("drop=1%,delay=1ms,drop=2%", "'drop' is given twice"),
            ("dorp=1%", "unknown fault 'dorp'; did you mean 'drop'?"),
            (
                "drop=101%",
                "expected drop to be a share of packets from 0 to 1, such as 0.01 or 1%, got '101%'",
            ),
            (
                "delay=5",
                "expected delay to be a time of at most 10s, such as 50us, 2ms or 1s, got '5'",
            ),
            (
                "flap=5s/1s",
                "expected flap to be two times, down and every, such as 100ms/5s, got '5s/1s'",
            ),
            (
                "drop=nan",
                "expected drop to be a share of packets from 0 to 1, such as 0.01 or 1%, got 'nan'",
            ),
        ] {
            let error = text.parse::<Faults>().expect_err("it is wrong");
            assert_eq!(error.to_string(), message);
        }
    }
}
