//! Messages of JSON-RPC, one on each line, from whoever it may be: limited in length. A message that is too long costs
//! itself; it is known by its ends, so that whoever waits for its answer hears of it.

use std::sync::LazyLock;

use regex::bytes::Regex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Longest message, in bytes; as over HTTP.
pub const LONGEST: usize = 16 * 1024 * 1024;
/// What is kept of the beginning and the end of a message that is longer.
const ENDS: usize = 256;

/// The id at the start or end of a message. Elsewhere it may be the text of a tool.
static FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,18})\s*,"#).ok()
});
static LAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#""id"\s*:\s*([0-9]{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$"#).ok()
});

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum JsonLine {
    /// All of it, without the blanks around it.
    Whole(Vec<u8>),
    /// It was too long; its id is what its ends say.
    TooLong(Option<i64>),
}

/// Lines of limited length. A wait for a line may be cancelled and begun again, because what was read is kept.
#[derive(Debug)]
pub struct JsonLines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The beginning of a line that is too long; the line then holds its last bytes.
    first: Option<Vec<u8>>,
}

impl<R: AsyncRead + Unpin> JsonLines<R> {
    /// The lines of a stream.
    pub fn new(read: R) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), first: None }
    }

    /// The next one; `None` = there are no more. The last one may lack its end.
    pub async fn next(&mut self) -> Option<JsonLine> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return (!self.line.is_empty()).then(|| self.take());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            self.line.extend_from_slice(&available[..end.unwrap_or(available.len())]);
            let read = end.map_or(available.len(), |end| end + 1);
            self.read.consume(read);
            if self.first.is_none() && self.line.len() > LONGEST {
                self.first = Some(self.line[..ENDS].to_vec());
            }
            if self.first.is_some() && self.line.len() > 2 * ENDS {
                let last = self.line.split_off(self.line.len() - ENDS);
                self.line = last;
            }
            if end.is_some() {
                return Some(self.take());
            }
        }
    }

    fn take(&mut self) -> JsonLine {
        let line = std::mem::take(&mut self.line);
        match self.first.take() {
            Some(first) => JsonLine::TooLong(id(&first, &line)),
            None => {
                let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
                JsonLine::Whole(line.trim_ascii().to_vec())
            }
        }
    }
}

/// The id of a message that cannot be read whole, as its ends say it.
pub fn id_at_the_ends(message: &[u8]) -> Option<i64> {
    id(&message[..message.len().min(ENDS)], &message[message.len().saturating_sub(ENDS)..])
}

fn id(first: &[u8], last: &[u8]) -> Option<i64> {
    let found = |pattern: &Option<Regex>, text| {
        let digits = pattern.as_ref()?.captures(text)?.get(1)?.as_bytes();
        std::str::from_utf8(digits).ok()?.parse::<i64>().ok()
    };
    found(&FIRST, first).or_else(|| found(&LAST, last))
}

/// A message with U+FFFD where a text was cut within a character: half of a surrogate pair, or bytes that are no UTF-8.
/// No value has such a text.
pub fn mended(message: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(message);
    let (mut mended, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        mended.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let length = match (escaped(rest), rest.get(6..).and_then(escaped)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.extend_from_slice(br"\ufffd");
                rest = &rest[6..];
                continue;
            }
            // A backslash, and what it escapes.
            _ => rest.len().min(2),
        };
        mended.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    mended.extend_from_slice(rest);
    mended
}

/// The unit that an escape at the start of a text stands for.
fn escaped(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_within_a_character_is_mended_and_nothing_else_is_touched() {
        let rows: [(&[u8], &[u8]); 8] = [
            (br#""a \ud83d\ude00 b""#, br#""a \ud83d\ude00 b""#),
            (br#""a \ud83d b""#, br#""a \ufffd b""#),
            (br#""\ud83d\ud83d\ude00""#, br#""\ufffd\ud83d\ude00""#),
            (br#""\ude00""#, br#""\ufffd""#),
            (br#""\\ud83d \u0041\n\"""#, br#""\\ud83d \u0041\n\"""#),
            (br"\ud8", br"\ud8"),
            (br"x\", br"x\"),
            (b"\"\xf0\x9f\"", "\"\u{fffd}\"".as_bytes()),
        ];
        for (text, expected) in rows {
            assert_eq!(mended(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_itself_and_what_follows_is_read() {
        let long = format!(r#"{{"result":"{}","jsonrpc":"2.0","id":7}}"#, "x".repeat(LONGEST));
        let text = format!("{long}\n\u{feff}short\r\n{}", r#"{"jsonrpc":"2.0","id":8,"result":"#);
        let text = format!("{text}\"{}\"}}\nlast", "y".repeat(LONGEST));
        let mut lines = JsonLines::new(text.as_bytes());
        assert_eq!(lines.next().await, Some(JsonLine::TooLong(Some(7))));
        assert_eq!(lines.next().await, Some(JsonLine::Whole(b"short".to_vec())));
        assert_eq!(lines.next().await, Some(JsonLine::TooLong(Some(8))));
        assert_eq!(lines.next().await, Some(JsonLine::Whole(b"last".to_vec())));
        assert_eq!(lines.next().await, None);
    }
}
