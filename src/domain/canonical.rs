//! Canonical JSON (RFC 8785) and the hashes made over it (contracts §3.9).

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A value that has no canonical JSON form (a number that is not finite).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("value has no canonical JSON form: {0}")]
pub struct NotCanonical(String);

/// RFC 8785 text of a value.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    serde_json_canonicalizer::to_string(value).map_err(|error| NotCanonical(error.to_string()))
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
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_units_and_numbers_are_shortest() {
        let text =
            canonical_json(&json!({ "\u{20ac}": 1.0, "b": [1e21, 0.1], "\u{1f600}": null, "a": "\u{7}" }))
                .unwrap();
        assert_eq!(text, "{\"a\":\"\\u0007\",\"b\":[1e+21,0.1],\"€\":1,\"😀\":null}");
    }
}
