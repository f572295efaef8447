//! Canonical JSON (RFC 8785) and the hashes made over it (P-028).

use serde::Serialize;
use serde_json::Value;
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
    Ok(serde_json_canonicalizer::to_string(value)?)
}

/// The text that a value is read back from, and its [`canonical_json`] where that is another one: in the first, numbers keep
/// what a double or its shortest digits lose, large integers and the point of `1.0`.
pub fn both_texts<T: Serialize>(value: &T) -> Result<(String, Option<String>), NotCanonical> {
    let mut sorted = serde_json::to_value(value)?;
    let same = sort(&mut sorted);
    let canonical = if same { None } else { Some(canonical_json(value)?) };
    Ok((sorted.to_string(), canonical))
}

/// Puts the members of every object in the order of RFC 8785: by the UTF-16 code units of their names. Gives whether the text
/// is the canonical one then: that has every number as a double is written, as which most integers are written as they are.
fn sort(value: &mut Value) -> bool {
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Object(members) => {
            let same = all_sorted(members.values_mut());
            let before = |one: &String, other: &String| one.encode_utf16().cmp(other.encode_utf16());
            if !members.keys().is_sorted_by(|one, other| before(one, other).is_le()) {
                let mut sorted: Vec<_> = std::mem::take(members).into_iter().collect();
                sorted.sort_by(|(one, _), (other, _)| before(one, other));
                members.extend(sorted);
            }
            same
        }
        Value::Array(items) => all_sorted(items.iter_mut()),
        Value::Number(number) => number.as_i128().is_some_and(|number| number.unsigned_abs() <= EXACT.into()),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn all_sorted<'a>(values: impl Iterator<Item = &'a mut Value>) -> bool {
    // Each is sorted, whatever was found before it.
    values.map(sort).filter(|same| !same).count() == 0
}

/// Lower-case hexadecimal SHA-256 over the RFC 8785 text of a value.
pub fn canonical_sha256<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    Ok(sha256_hex(canonical_json(value)?.as_bytes()))
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

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
