//! Canonical JSON (RFC 8785) and the hashes made over it (P-028).

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// A value that has no canonical JSON form (a map whose keys are no texts).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("value has no canonical JSON form: {0}")]
pub struct NotCanonical(String);

impl From<serde_json::Error> for NotCanonical {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// RFC 8785 text of a value. Numbers that are not finite are `null`, as everywhere in JSON.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    let mut sorted = serde_json::to_value(value)?;
    sort(&mut sorted);
    canonical_text(&sorted)
}

/// The text that a value is read back from, and its [`canonical_json`] where that is another one: in the first, numbers keep
/// what a double or its shortest digits lose, large integers and the point of `1.0`.
pub fn both_texts<T: Serialize>(value: &T) -> Result<(String, Option<String>), NotCanonical> {
    let mut sorted = serde_json::to_value(value)?;
    sort(&mut sorted);
    let canonical = if is_canonical(&sorted) { None } else { Some(canonical_text(&sorted)?) };
    Ok((sorted.to_string(), canonical))
}

/// [`canonical_json`] of a value whose members are most likely in order.
pub fn canonical_text(value: &Value) -> Result<String, NotCanonical> {
    // The library can do all of it, and holds every member back until its object ends, which takes several times as long.
    Ok(if is_canonical(value) { value.to_string() } else { serde_json_canonicalizer::to_string(value)? })
}

/// Puts the members of every object in the order of RFC 8785.
fn sort(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(sort);
            if !is_in_order(members) {
                let mut sorted: Vec<_> = std::mem::take(members).into_iter().collect();
                sorted.sort_by(|(one, _), (other, _)| order(one, other));
                members.extend(sorted);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => {}
    }
}

/// Whether the text of a value is the canonical one.
fn is_canonical(value: &Value) -> bool {
    match value {
        Value::Object(members) => is_in_order(members) && members.values().all(is_canonical),
        Value::Array(items) => items.iter().all(is_canonical),
        Value::Number(number) => is_written_alike(number),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn is_in_order(members: &Map<String, Value>) -> bool {
    members.keys().is_sorted_by(|one, other| order(one, other).is_le())
}

/// By the UTF-16 code units of the names.
fn order(one: &str, other: &str) -> Ordering {
    if one.is_ascii() && other.is_ascii() {
        one.cmp(other)
    } else {
        one.encode_utf16().cmp(other.encode_utf16())
    }
}

/// Whether a number's text is that of ECMAScript too: integers that a double holds, and fractions that neither writes with an
/// exponent.
fn is_written_alike(number: &Number) -> bool {
    const EXACT: u64 = 1 << 53;
    match (number.as_i128(), number.as_f64()) {
        (Some(integer), _) => integer.unsigned_abs() <= EXACT.into(),
        (None, Some(fraction)) => fraction.fract() != 0.0 && fraction.abs() >= 1e-4,
        (None, None) => false,
    }
}

/// Lower-case hexadecimal SHA-256 over the RFC 8785 text of a value.
pub fn canonical_sha256<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    Ok(sha256_hex(canonical_json(value)?.as_bytes()))
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    sha256_hex_of(&[bytes])
}

/// Lower-case hexadecimal SHA-256 of bytes that stand in several places, one part after the other.
pub fn sha256_hex_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_units_and_numbers_are_shortest() {
        let value = json!({ "\u{fb33}": 1.0, "b": [1e21, 0.1], "\u{1f600}": null, "a": "\u{7}" });
        let text = canonical_json(&value).unwrap();
        assert_eq!(text, "{\"a\":\"\\u0007\",\"b\":[1e+21,0.1],\"😀\":null,\"\u{fb33}\":1}");
        let (exact, canonical) = both_texts(&value).unwrap();
        assert_eq!(canonical, Some(text));
        assert_eq!(exact, "{\"a\":\"\\u0007\",\"b\":[1e+21,0.1],\"😀\":null,\"\u{fb33}\":1.0}");
    }

    #[test]
    fn a_name_that_begins_like_another_stands_after_it_and_big_integers_are_doubles() {
        let value =
            json!({ "ab": u64::MAX, "a!": i64::MIN, "a": {}, "a\"": [], "\u{fb33}": 1, "\u{1f600}": 2 });
        assert_eq!(
            canonical_json(&value).unwrap(),
            "{\"a\":{},\"a!\":-9223372036854776000,\"a\\\"\":[],\"ab\":18446744073709552000,\"😀\":2,\"\u{fb33}\":1}"
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            (any::<i32>(), 0..12_i32)
                .prop_map(|(digits, exponent)| Value::from(f64::from(digits) / 10_f64.powi(exponent))),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_exact_text_is_read_back_as_its_value_and_is_canonical_where_its_numbers_are(value in any_json()) {
            let (exact, canonical) = both_texts(&value).unwrap();
            prop_assert_eq!(&canonical_json(&value).unwrap(), &serde_json_canonicalizer::to_string(&value).unwrap());
            prop_assert_eq!(canonical.as_ref().unwrap_or(&exact), &canonical_json(&value).unwrap());
            let read: Value = serde_json::from_str(&exact).unwrap();
            prop_assert_eq!(canonical_json(&read).unwrap(), canonical_json(&value).unwrap());
            prop_assert_eq!(&read, &value);
            if !exact.contains(|c: char| c.is_ascii_digit()) {
                prop_assert_eq!(exact, canonical_json(&value).unwrap());
            }
        }
    }
}
