//! Whole numbers on the command line, refused in words that say what would be right.

use std::num::IntErrorKind;
use std::ops::RangeInclusive;

/// Most of what is only limited by patience.
pub(crate) const MANY: u64 = 1_000_000_000_000;

/// Makes a parser of whole numbers in `range`.
pub(crate) fn within<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    let (least, most) = range.into_inner();
    let too_small = move || format!("it must be at least {least}");
    let too_large = move || format!("it must be at most {most}");
    move |text| match text.parse::<i128>() {
        Ok(value) if value < i128::from(least) => Err(too_small()),
        Ok(value) => u64::try_from(value)
            .ok()
            .filter(|value| *value <= most)
            .and_then(|value| T::try_from(value).ok())
            .ok_or_else(too_large),
        Err(error) => Err(match error.kind() {
            IntErrorKind::PosOverflow => too_large(),
            IntErrorKind::NegOverflow => too_small(),
            _ => "it must be a whole number".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_range() {
        let parse = within::<u16>(1..=1024);
        assert_eq!(parse("1"), Ok(1));
        assert_eq!(parse("1024"), Ok(1024));
        for (text, why) in [
            ("0", "at least 1"),
            ("-3", "at least 1"),
            ("1025", "at most 1024"),
            ("70000", "at most 1024"),
            ("18446744073709551616", "at most 1024"),
            ("", "a whole number"),
            ("1.5", "a whole number"),
            ("0x10", "a whole number"),
            ("many", "a whole number"),
        ] {
            assert_eq!(parse(text), Err(format!("it must be {why}")), "{text}");
        }
        let (huge, tiny) = ("9".repeat(60), format!("-{}", "9".repeat(60)));
        assert_eq!(parse(&huge), Err("it must be at most 1024".into()));
        assert_eq!(parse(&tiny), Err("it must be at least 1".into()));
        assert_eq!(
            within::<u64>(0..=u64::MAX)("18446744073709551615"),
            Ok(u64::MAX)
        );
    }
}
