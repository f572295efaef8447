//! JSON as providers send it. Half of a surrogate pair, which is not text, becomes U+FFFD.

use std::borrow::Cow;

use serde::de::{Deserialize as _, DeserializeOwned, Deserializer};
use serde_json::Value;

use super::failure::invalid;
use crate::engine::model::ModelError;

/// Length of `\uXXXX`.
const ESCAPE: usize = 6;
const REPLACEMENT: &[u8; ESCAPE] = b"\\ufffd";

/// Reads JSON. A text that is cut between two chunks may have half a character at its end or start. Then the character
/// is lost but not the reply.
fn read<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(text).or_else(|error| match whole_characters(text) {
        Cow::Owned(mended) => serde_json::from_slice(&mended),
        Cow::Borrowed(_) => Err(error),
    })
}

/// The same; what is no such JSON is an invalid reply, with `complaint` before the parser's words.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8], complaint: &str) -> Result<T, ModelError> {
    read(text).map_err(|error| invalid(format!("{complaint}: {error}")))
}

/// A value as a shape of the wire; what does not fit is an invalid reply.
pub(super) fn shape<T: DeserializeOwned>(value: Value, complaint: &str) -> Result<T, ModelError> {
    serde_json::from_value(value).map_err(|error| invalid(format!("{complaint}: {error}")))
}

/// A number of tokens, also one that is written with a fraction. Whatever is no such number was not said.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(from)?;
    let whole = |number: f64| (number >= 0.0 && number.is_finite()).then_some(number as u64);
    Ok(value.as_u64().or_else(|| value.as_f64().and_then(whole)))
}

/// What a reply can do without: `None` where it is something else.
pub(super) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

/// The arguments of a call, with whole characters; else to the byte what the model wrote.
pub(super) fn arguments(raw: String) -> String {
    match whole_characters(raw.as_bytes()) {
        Cow::Owned(mended) => String::from_utf8(mended).unwrap_or(raw),
        Cow::Borrowed(_) => raw,
    }
}

/// The same JSON with each escape that is half a pair of surrogates replaced.
fn whole_characters(json: &[u8]) -> Cow<'_, [u8]> {
    let mut mended = Cow::Borrowed(json);
    let mut at = 0;
    while at < json.len() {
        let step = match (json[at], unit(json, at)) {
            (_, Some(0xD800..=0xDBFF)) if matches!(unit(json, at + ESCAPE), Some(0xDC00..=0xDFFF)) => {
                2 * ESCAPE
            }
            (_, Some(0xD800..=0xDFFF)) => {
                mended.to_mut()[at..at + ESCAPE].copy_from_slice(REPLACEMENT);
                ESCAPE
            }
            // Whatever it escapes is no beginning of an escape.
            (b'\\', _) => 2,
            _ => 1,
        };
        at += step;
    }
    mended
}

/// The number in an escape that begins there.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_becomes_the_replacement_and_all_else_stays() {
        for (sent, read_as) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ude00a""#, "\u{fffd}a"),
            (r#""\ud83d\ud83d\ude00\n""#, "\u{fffd}\u{1f600}\n"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\\ude00""#, "\u{fffd}\\ude00"),
            (r#""\\ud83d \uD83D\uDE00 \u00e9""#, "\\ud83d \u{1f600} \u{e9}"),
        ] {
            assert_eq!(read::<String>(sent.as_bytes()).unwrap(), read_as, "{sent}");
        }
        for broken in [r#""\ud83"#, r#""\ud83d"#, "\"\\", r#"{"a":"\ud83d","b"}"#] {
            assert!(read::<Value>(broken.as_bytes()).is_err(), "{broken}");
        }
        assert_eq!(arguments(r#"{"a": "\ud83d"} x"#.to_owned()), r#"{"a": "\ufffd"} x"#);
        assert_eq!(arguments(r#"{"a": "\\ud83d\u"#.to_owned()), r#"{"a": "\\ud83d\u"#);
    }
}
