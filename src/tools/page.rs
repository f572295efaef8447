//! Pages of lines: at most so many (500 unless configured), at most what fits inline, and always how much is left (X-032, D77).

use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use crate::domain::denied_files::DENIED_COUNT;
use crate::engine::tool::{CallLimits, ToolError, ToolOutput};

/// Longest part of a line that is shown.
const MAX_LINE_BYTES: usize = 2000;
/// Room for the first line, which says what the page is.
const HEADER_BYTES: u64 = 600;

/// Builds one page out of lines that pass by.
#[derive(Debug)]
pub(super) struct Page {
    from_line: u64,
    max_lines: u64,
    room: u64,
    seen: u64,
    shown: u64,
    full: bool,
    text: String,
}

impl Page {
    /// The page that `from_line` and `max_lines` of a call ask for, of at most `most` lines.
    pub(super) fn new(arguments: Arguments<'_>, most: u32, limits: CallLimits) -> Result<Self, ToolError> {
        let most = u64::from(most);
        Ok(Self {
            from_line: arguments.count("from_line")?.unwrap_or(1),
            max_lines: arguments.count("max_lines")?.unwrap_or(most).min(most),
            room: limits.max_inline_bytes.saturating_sub(HEADER_BYTES).max(1024),
            seen: 0,
            shown: 0,
            full: false,
            text: String::new(),
        })
    }

    /// Takes the next line, without its end; `prefix` stands before it when it is shown.
    pub(super) fn push(&mut self, prefix: impl FnOnce(u64) -> String, line: &str) {
        self.seen += 1;
        if self.seen < self.from_line || self.full {
            return;
        }
        let shown = format!("{}{}\n", prefix(self.seen), shortened(line));
        let fits = self.text.len() as u64 + shown.len() as u64 <= self.room || self.shown == 0;
        if self.shown >= self.max_lines || !fits {
            self.full = true;
            return;
        }
        self.text.push_str(&shown);
        self.shown += 1;
    }

    /// Whether no further line will be shown; they are still counted.
    pub(super) fn is_full(&self) -> bool {
        self.full || self.shown >= self.max_lines
    }

    /// Lines seen so far.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// The page: one line of JSON about it, then its lines. `about` comes first in that line; `left_out` files were
    /// denied by the policy; `counted` is false when the end was not reached, so that more may remain than is said.
    pub(super) fn finish(self, about: &[(&str, Value)], left_out: u64, counted: bool) -> ToolOutput {
        let before = self.seen.min(self.from_line - 1);
        let remaining = self.seen - before - self.shown;
        let mut head = Map::new();
        for (name, value) in about {
            head.insert((*name).to_owned(), value.clone());
        }
        head.insert("from_line".into(), json!(self.from_line));
        head.insert("lines_shown".into(), json!(self.shown));
        head.insert("lines_remaining".into(), json!(remaining));
        head.insert("has_more".into(), json!(remaining > 0 || !counted));
        if !counted {
            head.insert("remaining_is_at_least".into(), json!(true));
        }
        if left_out > 0 {
            head.insert(DENIED_COUNT.into(), json!(left_out));
        }
        let facts = Value::Object(head);
        ToolOutput { text: format!("{facts}\n{}", self.text), exit_code: None, facts: Some(facts) }
    }
}

/// A line short enough to be shown.
pub(super) fn shortened(line: &str) -> std::borrow::Cow<'_, str> {
    if line.len() <= MAX_LINE_BYTES {
        return line.into();
    }
    let mut end = MAX_LINE_BYTES;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [… {} bytes more on this line]", &line[..end], line.len() - end).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn page(arguments: &Value, bytes: u64, lines: u64) -> (Value, usize) {
        let limits = CallLimits { timeout: Duration::from_secs(1), max_inline_bytes: bytes };
        let mut page = Page::new(Arguments(arguments), 500, limits).unwrap();
        for line in 1..=lines {
            page.push(|number| format!("{number}\t"), &format!("line {line}"));
        }
        let output = page.finish(&[], 0, true);
        (output.facts.unwrap(), output.text.len())
    }

    #[test]
    fn x_032_pages_add_up_to_the_whole() {
        let (first, _) = page(&json!({}), 1 << 20, 1200);
        assert_eq!(
            first,
            json!({"from_line": 1, "lines_shown": 500, "lines_remaining": 700, "has_more": true})
        );
        let (third, _) = page(&json!({"from_line": 1001, "max_lines": 9000}), 1 << 20, 1200);
        assert_eq!(
            third,
            json!({"from_line": 1001, "lines_shown": 200, "lines_remaining": 0, "has_more": false})
        );
        let (beyond, _) = page(&json!({"from_line": 2000}), 1 << 20, 1200);
        assert_eq!(beyond["lines_shown"], 0);
        assert_eq!(beyond["lines_remaining"], 0);
    }

    #[test]
    fn d77_a_page_ends_at_the_byte_cap_too() {
        let (facts, length) = page(&json!({}), 4096, 1200);
        assert!(length <= 4096, "{length}");
        let shown = facts["lines_shown"].as_u64().unwrap();
        assert!(shown > 100 && facts["lines_remaining"] == 1200 - shown);
    }

    #[test]
    fn a_line_without_end_is_shortened_at_a_character() {
        let line = "ü".repeat(3000);
        assert!(shortened(&line).ends_with("bytes more on this line]"));
        assert!(shortened(&line).len() < 2100);
    }
}
