//! The body of an answer, with every JSON string in it cut to a bound while it is read.

use bytes::Buf;
use http_body_util::BodyExt as _;

/// The longest JSON string that is kept, in bytes as it is written.
const LONGEST_STRING: usize = 256 * 1024;

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum BodyError<E> {
    /// The connection broke.
    Broken(E),
    /// The bytes are no text.
    NotUtf8,
}

/// Reads a body. GitHub bounds its texts; another server could send any length, and it would stand in memory many times.
pub(super) async fn read<B>(mut body: B) -> Result<String, BodyError<B::Error>>
where
    B: hyper::body::Body + Unpin,
{
    let mut clipped = Clipped::default();
    while let Some(frame) = body.frame().await {
        if let Ok(mut data) = frame.map_err(BodyError::Broken)?.into_data() {
            while data.has_remaining() {
                let length = data.chunk().len();
                clipped.take(data.chunk());
                data.advance(length);
            }
        }
    }
    String::from_utf8(clipped.kept).map_err(|_| BodyError::NotUtf8)
}

/// Bytes of JSON with long strings cut.
#[derive(Debug, Default)]
struct Clipped {
    kept: Vec<u8>,
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Outside,
    /// Within a string of which this much is kept.
    Inside(usize),
    /// After a backslash.
    Escape(usize),
    /// Within `\uXXXX`: digits to come, and the number so far.
    Unicode(usize, u8, u32),
    /// After the first half of a pair of `\uXXXX`: it is not cut from the second.
    Half(usize),
    /// The rest of the string goes.
    Cutting,
    /// The same, after a backslash.
    CuttingEscape,
}

impl Clipped {
    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let keep = self.next(byte);
            if keep {
                self.kept.push(byte);
            }
        }
    }

    /// Whether the byte is kept.
    fn next(&mut self, byte: u8) -> bool {
        let (state, keep) = match (self.state, byte) {
            (State::Outside, b'"') => (State::Inside(0), true),
            (State::Outside, _) => (State::Outside, true),
            (State::Inside(_) | State::Cutting, b'"') => (State::Outside, true),
            // It is cut where a character begins.
            (State::Inside(length), byte) if length >= LONGEST_STRING && (byte & 0xc0) != 0x80 => {
                (if byte == b'\\' { State::CuttingEscape } else { State::Cutting }, false)
            }
            (State::Half(_), b'"') => (State::Outside, true),
            (State::Inside(length) | State::Half(length), b'\\') => (State::Escape(length + 1), true),
            (State::Inside(length) | State::Half(length), _) => (State::Inside(length + 1), true),
            (State::Escape(length), b'u') => (State::Unicode(length + 1, 4, 0), true),
            (State::Escape(length), _) => (State::Inside(length + 1), true),
            (State::Unicode(length, left, number), digit) => {
                let number = number * 16 + char::from(digit).to_digit(16).unwrap_or_default();
                let length = length + 1;
                let next = match left {
                    1 if (0xd800..0xdc00).contains(&number) => State::Half(length),
                    1 => State::Inside(length),
                    _ => State::Unicode(length, left - 1, number),
                };
                (next, true)
            }
            (State::Cutting, b'\\') => (State::CuttingEscape, false),
            (State::Cutting | State::CuttingEscape, _) => (State::Cutting, false),
        };
        self.state = state;
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clipped(text: &str) -> String {
        let mut clipped = Clipped::default();
        // In pieces, as a connection brings them.
        text.as_bytes().chunks(7).for_each(|piece| clipped.take(piece));
        String::from_utf8(clipped.kept).unwrap()
    }

    #[test]
    fn a_long_string_is_cut_and_the_rest_is_as_it_was() {
        let whole = r#"{"a":"x\"\u00e9\\","b":[1,"é"],"c":"\ud83d\ude00"}"#;
        assert_eq!(clipped(whole), whole);
        for unit in ["x", "é", "\\\"", "\\u00e9", "\\ud83d\\ude00", "\\\\", "😀"] {
            let long = format!(r#"{{"long":"{}","next":"y\"z"}}"#, unit.repeat(200_000));
            let found: serde_json::Value = serde_json::from_str(&clipped(&long)).unwrap();
            assert_eq!(found["next"], "y\"z", "{unit}");
            let kept = found["long"].as_str().unwrap().len();
            assert!(kept <= LONGEST_STRING + 16, "{unit}: {kept}");
            assert!(unit == "x" || kept > 10_000, "{unit}: {kept}");
        }
    }
}
