//! Percent-encoding of one segment of a path or one value of a query.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The text as it stays one segment or one value.
pub fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreserved_characters_stay_and_all_else_is_encoded_byte_by_byte() {
        assert_eq!(percent_encoded("a-Z.0_9~"), "a-Z.0_9~");
        assert_eq!(percent_encoded("a b/ü+%"), "a%20b%2F%C3%BC%2B%25");
    }
}
