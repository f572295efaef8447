//! Spans of time as people write them: `300ms`, `90s`, `15m`, `1h`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time; reads and writes the short text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The longest span that is read, in days: ten years. Sums with longer spans could overflow.
const LONGEST_DAYS: u64 = 3650;

/// A text that is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASpan {
    /// Neither number nor unit as they should be.
    #[error(
        "\"{0}\" is not a span of time; write a number and a unit, for example 300ms, 90s, 15m, 1h or 7d"
    )]
    Text(String),
    /// Longer than anything can be meant to last.
    #[error("\"{0}\" is too long; the longest span of time is {LONGEST_DAYS}d")]
    TooLong(String),
}

impl FromStr for Span {
    type Err = NotASpan;

    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let invalid = || NotASpan::Text(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, unit) = trimmed.split_at(digits);
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        if number.is_empty() {
            return Err(invalid());
        }
        let span = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
        let span = span.filter(|span| *span <= LONGEST_DAYS * 86_400_000);
        span.map(|span| Self(Duration::from_millis(span))).ok_or_else(|| NotASpan::TooLong(text.to_owned()))
    }
}

impl fmt::Display for Span {
    /// The largest unit that divides it; whole milliseconds only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        let (unit, size) =
            UNITS.iter().rev().find(|(_, size)| millis.is_multiple_of(*size)).unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", millis / size)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

/// Reads the text form. Of a bare number it says what that form is: the unit is missing.
struct Written;

impl Visitor<'_> for Written {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a span of time: a number and a unit, for example \"90s\" or \"15m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Span, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Span, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Span, E> {
        self.visit_str(&number.to_string())
    }
}

impl schemars::JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^\\s*[0-9]+(ms|s|m|h|d)\\s*$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_the_largest_that_fits_is_written() {
        for (text, millis, again) in [
            ("300ms", 300, "300ms"),
            (" 90s", 90_000, "90s"),
            ("15m", 900_000, "15m"),
            ("120s", 120_000, "2m"),
            ("1h", 3_600_000, "1h"),
            ("7d", 604_800_000, "7d"),
            ("0m", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string(), again);
        }
        for bad in ["", "15", "m", "-1s", "1.5h", "1 h", "15min", "99999999999999999999s", "300000000000d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?} passed");
        }
    }
}
