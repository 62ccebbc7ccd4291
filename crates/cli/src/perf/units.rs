//! Quantities as people write and read them.

use std::time::Duration;

/// Parses a size: a number of bytes, or with K, M or G in powers of 1024 (`64K`, `1MiB`).
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("write bytes, or K, M or G for powers of 1024, such as 64K".into()),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "write a whole number of bytes, or such as 64K or 1M".into())
}

/// Parses a positive number of seconds, fractions allowed (`2`, `0.5`, `2s`).
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.strip_suffix('s')
        .unwrap_or(text)
        .parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero() && *duration <= Duration::from_secs(86_400))
        .ok_or_else(|| "write seconds, above 0 and at most 86400, such as 2 or 0.5".into())
}

/// Bytes in the largest unit that divides them: `64 KiB`, `8 B`, `1000 B`.
pub(crate) fn bytes(bytes: usize) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A figure with three or four significant digits, never in exponent form.
pub(crate) fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        _ => 5,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", 0),
            ("8", 8),
            ("64K", 65536),
            ("64kib", 65536),
            ("1M", 1 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "-1", "1.5K", "8Q", "99999999999G", "1 K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "0", "-1", "NaN", "inf", "1e9", "2 s", "2m"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn readable() {
        assert_eq!(bytes(1 << 16), "64 KiB");
        assert_eq!(bytes(1000), "1000 B");
        assert_eq!(
            [35.123, 2.3456, 0.01234, 123.45, 12345.6, 0.0].map(figure),
            ["35.12", "2.346", "0.0123", "123.5", "12346", "0.00"]
        );
    }
}
