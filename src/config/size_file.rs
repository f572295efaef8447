//! Sizes as people write them: a number of bytes, or `64KiB`, `256MiB`, `1GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A size in bytes; written as a text with the largest unit that divides it, else as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a size; write a number of bytes, or a number and a unit, for example 64KiB, 256MiB or 1GiB"
)]
pub struct NotASize(String);

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = if unit.is_empty() { "B" } else { unit };
        let bytes = UNITS.iter().find(|(name, _)| *name == unit).and_then(|(_, bytes)| {
            let number: u64 = number.parse().ok()?;
            number.checked_mul(*bytes)
        });
        bytes.map(Self).ok_or_else(|| NotASize(text.to_owned()))
    }
}

impl Size {
    /// The largest unit that divides it, and how many of them it is.
    fn in_units(self) -> (u64, &'static str) {
        let fits = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        (self.0 / bytes, unit)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_units() {
            (bytes, "B") => write!(f, "{bytes} bytes"),
            (count, unit) => write!(f, "{count}{unit}"),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.in_units() {
            (bytes, "B") => serializer.serialize_u64(bytes),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number of bytes, or a text such as \"256MiB\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl schemars::JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": "^\\s*[0-9]+(B|KiB|MiB|GiB)?\\s*$" }
        ] })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_number_or_a_text_with_a_unit_is_read_and_the_largest_unit_is_written() {
        for (written, bytes, again) in [
            (json!(1_000_000), 1_000_000, json!(1_000_000)),
            (json!("0"), 0, json!(0)),
            (json!("7B"), 7, json!(7)),
            (json!(" 64KiB"), 64 << 10, json!("64KiB")),
            (json!("256MiB"), 256 << 20, json!("256MiB")),
            (json!(1_u64 << 30), 1 << 30, json!("1GiB")),
        ] {
            let size: Size = serde_json::from_value(written.clone()).unwrap();
            assert_eq!((size.0, serde_json::to_value(size).unwrap()), (bytes, again), "{written}");
        }
        let bad = ["", "x", "MiB", "-1", "1.5MiB", "256 MiB", "256mb", "99999999999GiB"].map(Value::from);
        for bad in bad.into_iter().chain([json!(-1), json!(1.5), json!(true)]) {
            let error = serde_json::from_value::<Size>(bad.clone()).unwrap_err().to_string();
            assert!(error.contains("MiB"), "{bad}: {error}");
        }
    }
}
