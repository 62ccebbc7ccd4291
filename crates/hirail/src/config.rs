//! Configuration: environment variables and a file, both optional.
//!
//! Every setting has a name in the file and a variable; [`SETTINGS`] lists them with what they mean.
//! The file is TOML, named by `HIRAIL_CONFIG`; variables win over it. A name that does not exist is
//! refused, with the nearest one that does: a setting that silently does nothing costs somebody a
//! day. (`HIRAIL_TEST_…` is left alone.)
//!
//! ```toml
//! pcap = "trace.pcapng"
//!
//! [port]
//! receive_buffer = "16MiB"
//! segmentation = "off"
//!
//! [congestion]
//! dcqcn = "on"
//! line_rate = "25Gbps"
//! rpg_ai_rate = 5
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use hirail_rnic::RecoveryKind;
use hirail_rnic::pacing::DcqcnParams;
use hirail_vocab::CcParam;

use crate::port::PortOptions;
use crate::runtime::faults::{Faults, FaultsError};

/// What can be configured. [`Default`] is what applies without any configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// The UDP port: buffers and fast paths.
    pub port: PortOptions,
    /// Where batches of IPv4 packets may be split by the kernel.
    pub segmentation: Auto,
    /// File that records every packet.
    pub pcap: Option<PathBuf>,
    /// Folder in which each device leaves its counters.
    pub stat: Option<PathBuf>,
    /// Folder into which the C libraries write mistakes that programs make.
    pub check: Option<PathBuf>,
    /// Faults on purpose.
    pub faults: Faults,
    /// Loss recovery of new queue pairs.
    pub recovery: RecoveryKind,
    /// Most bytes in flight to one destination, where the default is not right.
    pub window: Option<u64>,
    /// Whether long WRITEs are cut into WRITEs of one packet. By default they are on the loopback, where
    /// batches of equal packets count most, unless packets are recorded.
    pub equal_writes: Auto,
    /// Whether queue pairs slow down when told to. By default they do outside of the loopback.
    pub dcqcn: Auto,
    /// Rate of the link in bits per second, where the interface does not tell or tells wrong.
    pub line_rate_bps: Option<u64>,
    /// Parameters of congestion control.
    pub dcqcn_params: DcqcnParams,
}

/// On, off, or decided by circumstances.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Auto {
    /// As it fits.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Auto {
    /// What it comes to where `by_itself` is right for the circumstances.
    pub const fn or(self, by_itself: bool) -> bool {
        match self {
            Self::Auto => by_itself,
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// A setting: its names and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in the file, with its table.
    pub key: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// What it does, and what applies without it.
    pub meaning: &'static str,
    /// Values that it takes.
    pub values: &'static str,
    set: fn(&mut Config, &str) -> Option<()>,
}

impl Setting {
    /// Why it does not take a value.
    fn refuses(&self, place: String, name: String, value: &str) -> ConfigError {
        match value.parse::<Faults>() {
            Err(error) if self.key == "faults" => ConfigError::Faults { place, name, error },
            _ => ConfigError::Value {
                place,
                name,
                expected: self.values.to_owned(),
                value: value.to_owned(),
            },
        }
    }
}

const SWITCH: &str = "on or off";
const AUTO: &str = "auto, on or off";
const SIZE: &str = "a number of bytes, such as 65536, 512KiB or 8MiB";
const WINDOW: &str = "a number of bytes of at least 8192, such as 65536, 512KiB or 8MiB";
const RATE: &str = "a rate of at least 1Mbps, such as 25Gbps or 400Mbps";

/// All settings. Parameters of congestion control are taken by their own names besides
/// ([`CcParam`]), in the file's table `congestion`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "pcap",
        variable: "HIRAIL_PCAP",
        meaning: "pcapng file that records every packet of the port; none",
        values: "a path",
        set: |config, text| (!text.is_empty()).then(|| config.pcap = Some(PathBuf::from(text))),
    },
    Setting {
        key: "stat",
        variable: "HIRAIL_STAT",
        meaning: "folder in which each device leaves its counters in a file that outlives the \
                  process; none",
        values: "a path",
        set: |config, text| (!text.is_empty()).then(|| config.stat = Some(PathBuf::from(text))),
    },
    Setting {
        key: "check",
        variable: "HIRAIL_CHECK",
        meaning: "folder into which programs of the C verbs write what they do wrong with them, as \
                  'hirail run --check' sets it (docs/check.md); none",
        values: "a path",
        set: |config, text| (!text.is_empty()).then(|| config.check = Some(PathBuf::from(text))),
    },
    Setting {
        key: "faults",
        variable: "HIRAIL_FAULTS",
        meaning: "faults on purpose that strike what arrives, such as drop=1%,delay=50us \
                  (docs/faults.md); none",
        values: "faults such as drop=1%,delay=50us",
        set: |config, text| {
            let seed = config.faults.seed;
            config.faults = text.parse().ok()?;
            config.faults.seed = seed;
            Some(())
        },
    },
    Setting {
        key: "seed",
        variable: "HIRAIL_SEED",
        meaning: "seed of the faults; 0",
        values: "a whole number",
        set: |config, text| text.parse().map(|seed| config.faults.seed = seed).ok(),
    },
    Setting {
        key: "port.segmentation",
        variable: "HIRAIL_SEGMENTATION",
        meaning: "let the kernel split batches of packets that are sent; auto: over IPv4 only where \
                  it does so in software, since hardware may number the packets differently",
        values: AUTO,
        set: |config, text| {
            config.segmentation = auto(text)?;
            config.port.segmentation = config.segmentation != Auto::Off;
            Some(())
        },
    },
    Setting {
        key: "port.coalescing",
        variable: "HIRAIL_COALESCING",
        meaning: "let the kernel join packets that arrive together; on",
        values: SWITCH,
        set: |config, text| switch(text).map(|on| config.port.coalescing = on),
    },
    Setting {
        key: "port.steering",
        variable: "HIRAIL_STEERING",
        meaning: "let the kernel pick the owner of a packet among the processes of this host; on",
        values: SWITCH,
        set: |config, text| switch(text).map(|on| config.port.steering = on),
    },
    Setting {
        key: "port.receive_buffer",
        variable: "HIRAIL_RECEIVE_BUFFER",
        meaning: "receive buffer of a socket, within what the system allows; 8MiB",
        values: SIZE,
        set: |config, text| {
            let bytes = usize::try_from(size(text)?).ok()?;
            config.port.receive_buffer = bytes;
            Some(())
        },
    },
    Setting {
        key: "port.send_buffer",
        variable: "HIRAIL_SEND_BUFFER",
        meaning: "send buffer of a socket, within what the system allows; 8MiB",
        values: SIZE,
        set: |config, text| {
            let bytes = usize::try_from(size(text)?).ok()?;
            config.port.send_buffer = bytes;
            Some(())
        },
    },
    Setting {
        key: "transport.recovery",
        variable: "HIRAIL_RECOVERY",
        meaning: "what new queue pairs do about lost packets; go-back-n, which every peer understands",
        values: "go-back-n, go-back-0 or selective-repeat",
        set: |config, text| {
            config.recovery = match text {
                "go-back-n" => RecoveryKind::GoBackN,
                "go-back-0" => RecoveryKind::GoBackZero,
                "selective-repeat" => RecoveryKind::SelectiveRepeat,
                _ => return None,
            };
            Some(())
        },
    },
    Setting {
        key: "transport.window",
        variable: "HIRAIL_WINDOW",
        meaning: "most bytes in flight to one destination; 1MiB, shrinking with losses",
        values: WINDOW,
        set: |config, text| {
            config.window = Some(size(text).filter(|bytes| *bytes >= 8192)?);
            Some(())
        },
    },
    Setting {
        key: "transport.equal_writes",
        variable: "HIRAIL_EQUAL_WRITES",
        meaning: "send a long WRITE as WRITEs of one packet each, so that larger batches of equal \
                  packets form (of one that ends outside of its region, the first packets are placed); \
                  auto: on the loopback, unless packets are recorded",
        values: AUTO,
        set: |config, text| auto(text).map(|auto| config.equal_writes = auto),
    },
    Setting {
        key: "congestion.dcqcn",
        variable: "HIRAIL_DCQCN",
        meaning: "slow down when congestion is notified, and send packets that switches may mark; \
                  auto: outside of the loopback",
        values: AUTO,
        set: |config, text| auto(text).map(|choice| config.dcqcn = choice),
    },
    Setting {
        key: "congestion.line_rate",
        variable: "HIRAIL_LINE_RATE",
        meaning: "rate of the link; what the interface tells",
        values: RATE,
        set: |config, text| {
            config.line_rate_bps = Some(rate(text).filter(|bps| *bps >= 1_000_000)?);
            Some(())
        },
    },
];

/// Names the configuration file.
const FILE_VARIABLE: &str = "HIRAIL_CONFIG";
/// What all variables begin with.
const PREFIX: &str = "HIRAIL_";
/// Variables of tests, which are none of ours.
const TEST_PREFIX: &str = "HIRAIL_TEST_";
/// The file's table in which parameters of congestion control stand.
const CONGESTION: &str = "congestion";

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// File and line.
        place: String,
        /// What the parser expected.
        message: String,
    },
    /// There is no such setting.
    #[error("{place}: unknown setting '{name}'{}", suggestion(nearest.as_deref()))]
    Unknown {
        /// File and line, or "environment".
        place: String,
        /// The name given.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// The faults are none.
    #[error("{place}: {name}: {error}")]
    Faults {
        /// File and line, or "environment".
        place: String,
        /// The setting.
        name: String,
        /// What is wrong with them.
        #[source]
        error: FaultsError,
    },
    /// The setting does not take this value.
    #[error("{place}: expected {name} to be {expected}, got '{value}'")]
    Value {
        /// File and line, or "environment".
        place: String,
        /// The setting.
        name: String,
        /// Values that it takes.
        expected: String,
        /// The value given.
        value: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest
        .map(|name| format!("; did you mean '{name}'?"))
        .unwrap_or_default()
}

impl Config {
    /// What this process's environment says, and the file that it names.
    pub fn load() -> Result<Self, ConfigError> {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with(PREFIX).then_some((name, value))
        });
        let ours: Result<Vec<_>, _> = ours.map(|(name, value)| text(name, value)).collect();
        Self::from_variables(ours?)
    }

    /// What the given variables say, and the file that they name.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut ours: Vec<_> = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX))
            .collect();
        // A fixed order, so that the same mistake is always reported first.
        ours.sort();
        let mut config = Self::default();
        if let Some((name, path)) = ours.iter().find(|(name, _)| name == FILE_VARIABLE) {
            if path.is_empty() {
                return Err(ConfigError::Value {
                    place: "environment".to_owned(),
                    name: name.clone(),
                    expected: "a path".to_owned(),
                    value: path.clone(),
                });
            }
            let path = PathBuf::from(path);
            let text = fs::read_to_string(&path).map_err(|error| ConfigError::Unreadable {
                path: path.clone(),
                error,
            })?;
            config.read_file(&path, &text)?;
        }
        for (name, value) in ours.iter().filter(|(name, _)| name != FILE_VARIABLE) {
            let place = || "environment".to_owned();
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable == name) else {
                let known = SETTINGS.iter().map(|setting| setting.variable);
                let nearest = nearest(name, known.chain([FILE_VARIABLE]));
                return Err(ConfigError::Unknown {
                    place: place(),
                    name: name.clone(),
                    nearest,
                });
            };
            if (setting.set)(&mut config, value).is_none() {
                return Err(setting.refuses(place(), name.clone(), value));
            }
        }
        Ok(config)
    }

    /// Adds what a file says.
    fn read_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let file = File { path, text };
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            place: file.place(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        self.read_table(&file, "", table.get_ref())
    }

    fn read_table(
        &mut self,
        file: &File<'_>,
        prefix: &str,
        table: &DeTable<'_>,
    ) -> Result<(), ConfigError> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let key = match prefix {
                "" => name.get_ref().to_string(),
                _ => format!("{prefix}.{}", name.get_ref()),
            };
            match value.get_ref() {
                DeValue::Table(inner) => {
                    let inner_prefix = format!("{key}.");
                    if !SETTINGS
                        .iter()
                        .any(|setting| setting.key.starts_with(&inner_prefix))
                    {
                        return Err(file.unknown(name, key));
                    }
                    self.read_table(file, &key, inner)?;
                }
                _ => self.read_entry(file, name, key, value)?,
            }
        }
        Ok(())
    }

    fn read_entry(
        &mut self,
        file: &File<'_>,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        key: String,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text,
            // Numbers and switches as they stand there.
            _ => &file.text[value.span()],
        };
        let parameter = key
            .strip_prefix(CONGESTION)
            .and_then(|rest| rest.strip_prefix('.'))
            .and_then(CcParam::from_name);
        let place = || file.place(name.span().start);
        let expected = if let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) {
            return match (setting.set)(self, text) {
                Some(()) => Ok(()),
                None => Err(setting.refuses(place(), key, text)),
            };
        } else if let Some(parameter) = parameter {
            match text.parse() {
                Ok(value) => self.dcqcn_params.set(parameter, value).err().map(|error| {
                    format!(
                        "{} to {} {}",
                        parameter.lowest(),
                        error.max,
                        parameter.unit()
                    )
                }),
                Err(_) => Some(format!("a number of {}", parameter.unit())),
            }
        } else {
            return Err(file.unknown(name, key));
        };
        match expected {
            None => Ok(()),
            Some(expected) => Err(ConfigError::Value {
                place: place(),
                name: key,
                expected,
                value: text.to_string(),
            }),
        }
    }
}

/// The value of a variable, which must be text: a path that were only nearly the right one would
/// name another file.
fn text(name: String, value: OsString) -> Result<(String, String), ConfigError> {
    match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(value) => Err(ConfigError::Value {
            place: "environment".to_owned(),
            name,
            expected: "text in UTF-8".to_owned(),
            value: value.to_string_lossy().into_owned(),
        }),
    }
}

/// The file that is being read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// Names the line of a byte.
    fn place(&self, at: usize) -> String {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.path.display())
    }

    fn unknown(&self, at: &Spanned<std::borrow::Cow<'_, str>>, name: String) -> ConfigError {
        let parameters = CcParam::ALL
            .iter()
            .map(|param| format!("{CONGESTION}.{}", param.name()));
        let known: Vec<String> = SETTINGS
            .iter()
            .map(|setting| setting.key.to_owned())
            .chain(parameters)
            .collect();
        let nearest = nearest(&name, known.iter().map(String::as_str));
        ConfigError::Unknown {
            place: self.place(at.span().start),
            name,
            nearest,
        }
    }
}

/// The known name that is most like `name`, if one is like it at all.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    known
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "1" => Some(true),
        "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn auto(text: &str) -> Option<Auto> {
    match switch(text) {
        Some(true) => Some(Auto::On),
        Some(false) => Some(Auto::Off),
        None => (text == "auto").then_some(Auto::Auto),
    }
}

/// Reads a number of bytes.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text[digits.len()..].trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a rate in bits per second.
fn rate(text: &str) -> Option<u64> {
    let (digits, unit) = [("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1000)]
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?.trim_end(), unit)))?;
    // Decimal places as far as the unit has them.
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut bps = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        bps = bps.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(bps).filter(|bps| *bps > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config
            .read_file(Path::new("hirail.toml"), text)
            .map(|()| config)
    }

    fn from_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Config::from_variables(variables.iter().map(owned))
    }

    #[track_caller]
    fn refused(result: Result<Config, ConfigError>, expected: &str) {
        assert_eq!(result.expect_err("refused").to_string(), expected);
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(from_variables(&[]).expect("valid"), Config::default());
        assert_eq!(from_file("").expect("valid"), Config::default());
        // Other programs' variables, and those of tests.
        let others = [
            ("PATH", "/bin"),
            ("XHIRAIL_A", "1"),
            ("HIRAIL_TEST_CASE", "x"),
        ];
        assert_eq!(from_variables(&others).expect("valid"), Config::default());
    }

    /// Every setting by both of its names, with a value that is not the default.
    #[test]
    fn every_setting_is_taken_from_both() {
        let values = [
            ("pcap", "a.pcapng"),
            ("stat", "folder"),
            ("check", "findings"),
            ("faults", "drop=1%"),
            ("seed", "7"),
            ("port.segmentation", "off"),
            ("port.coalescing", "off"),
            ("port.steering", "off"),
            ("port.receive_buffer", "512KiB"),
            ("port.send_buffer", "65536"),
            ("transport.recovery", "selective-repeat"),
            ("transport.window", "2MiB"),
            ("transport.equal_writes", "off"),
            ("congestion.dcqcn", "on"),
            ("congestion.line_rate", "2.5Gbps"),
        ];
        assert_eq!(
            values.map(|(key, _)| key),
            *SETTINGS.iter().map(|s| s.key).collect::<Vec<_>>()
        );
        let variables: Vec<_> = SETTINGS
            .iter()
            .zip(values)
            .map(|(setting, (_, value))| (setting.variable, value))
            .collect();
        let text: String = values
            .iter()
            .map(|(key, value)| format!("{key} = '{value}'\n"))
            .collect();
        let config = from_variables(&variables).expect("valid");
        assert_eq!(config, from_file(&text).expect("valid"));
        assert_eq!(
            config,
            Config {
                port: PortOptions {
                    segmentation: false,
                    coalescing: false,
                    steering: false,
                    receive_buffer: 512 << 10,
                    send_buffer: 65536,
                    ..PortOptions::default()
                },
                segmentation: Auto::Off,
                pcap: Some("a.pcapng".into()),
                stat: Some("folder".into()),
                check: Some("findings".into()),
                faults: Faults {
                    seed: 7,
                    loss: 0.01,
                    ..Faults::default()
                },
                recovery: RecoveryKind::SelectiveRepeat,
                window: Some(2 << 20),
                equal_writes: Auto::Off,
                dcqcn: Auto::On,
                line_rate_bps: Some(2_500_000_000),
                ..Config::default()
            }
        );
    }

    #[test]
    fn tables_numbers_and_parameters() {
        let config = from_file(
            "[port]\nsteering = false\nreceive_buffer = 100000\n[congestion]\nrpg_ai_rate = 40\n",
        )
        .expect("valid");
        assert!(!config.port.steering);
        assert_eq!(config.port.receive_buffer, 100_000);
        assert_eq!(config.dcqcn_params.rpg_ai_rate, 40);
    }

    #[test]
    fn mistakes_are_named() {
        refused(
            from_variables(&[("HIRAIL_STEERNG", "on")]),
            "environment: unknown setting 'HIRAIL_STEERNG'; did you mean 'HIRAIL_STEERING'?",
        );
        refused(
            from_variables(&[("HIRAIL_XYZZY", "on")]),
            "environment: unknown setting 'HIRAIL_XYZZY'",
        );
        refused(
            from_variables(&[("HIRAIL_STEERING", "maybe")]),
            "environment: expected HIRAIL_STEERING to be on or off, got 'maybe'",
        );
        refused(
            from_variables(&[("HIRAIL_WINDOW", "1")]),
            "environment: expected HIRAIL_WINDOW to be a number of bytes of at least 8192, such as \
             65536, 512KiB or 8MiB, got '1'",
        );
        refused(
            from_variables(&[("HIRAIL_LINE_RATE", "999kbps")]),
            "environment: expected HIRAIL_LINE_RATE to be a rate of at least 1Mbps, such as 25Gbps \
             or 400Mbps, got '999kbps'",
        );
        refused(
            from_file("\n[port]\nsegmentaton = 'on'\n"),
            "hirail.toml:3: unknown setting 'port.segmentaton'; did you mean 'port.segmentation'?",
        );
        refused(
            from_file("[congestion]\nrpg_ia_rate = 4\n"),
            "hirail.toml:2: unknown setting 'congestion.rpg_ia_rate'; did you mean \
             'congestion.rpg_ai_rate'?",
        );
        refused(
            from_file("[congestion]\ncnp_dscp = 64\n"),
            "hirail.toml:2: expected congestion.cnp_dscp to be 0 to 63 code point, got '64'",
        );
        refused(
            from_file("[ports]\nsteering = true\n"),
            "hirail.toml:1: unknown setting 'ports'",
        );
        refused(
            from_file("[port]\nreceive_buffer = '8 parsecs'\n"),
            "hirail.toml:2: expected port.receive_buffer to be a number of bytes, such as 65536, \
             512KiB or 8MiB, got '8 parsecs'",
        );
        let ConfigError::Syntax { place, .. } = from_file("a = 1\nb = \n").expect_err("refused")
        else {
            panic!("not noticed")
        };
        assert_eq!(place, "hirail.toml:2");
        refused(
            from_variables(&[("HIRAIL_CONFIG", "")]),
            "environment: expected HIRAIL_CONFIG to be a path, got ''",
        );
        let missing = from_variables(&[("HIRAIL_CONFIG", "/nowhere/hirail.toml")]);
        let message = missing.expect_err("refused").to_string();
        assert!(message.starts_with("cannot read the configuration file /nowhere/hirail.toml: "));
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_is_text() {
        use std::os::unix::ffi::OsStringExt;
        let value = |bytes: &[u8]| text("HIRAIL_PCAP".into(), OsString::from_vec(bytes.to_vec()));
        assert_eq!(
            value(b"a.pcapng").expect("text"),
            ("HIRAIL_PCAP".into(), "a.pcapng".into())
        );
        assert_eq!(
            value(b"\xff.pcapng").expect_err("refused").to_string(),
            "environment: expected HIRAIL_PCAP to be text in UTF-8, got '\u{fffd}.pcapng'"
        );
    }

    /// The file comes first, the environment wins.
    #[test]
    fn variables_win_over_the_file() {
        let path = std::env::temp_dir().join(format!("hirail-config-{}.toml", std::process::id()));
        fs::write(&path, "port.steering = false\nport.coalescing = false\n").expect("written");
        let config = from_variables(&[
            ("HIRAIL_STEERING", "on"),
            ("HIRAIL_CONFIG", path.to_str().expect("text")),
        ]);
        fs::remove_file(&path).expect("removed");
        let config = config.expect("valid");
        assert!(config.port.steering && !config.port.coalescing);
    }

    #[test]
    fn sizes_and_rates() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("17B", Some(17)),
            ("2 KiB", Some(2048)),
            ("3GiB", Some(3 << 30)),
            ("99999999999GiB", None),
            ("KiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("1MB", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
        for (text, bps) in [
            ("25Gbps", Some(25_000_000_000)),
            ("2.5 Gbps", Some(2_500_000_000)),
            ("0.0000000001Gbps", None),
            ("100Mbps", Some(100_000_000)),
            ("9kbps", Some(9000)),
            ("0Gbps", None),
            ("25", None),
            ("fast", None),
        ] {
            assert_eq!(rate(text), bps, "{text}");
        }
    }
}
