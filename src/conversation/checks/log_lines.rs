//! A job's log as lines that a person would see: without timestamps, escape sequences, overwritten lines, and with its groups
//! folded. It comes in pieces and is never held whole.

use std::borrow::Cow;
use std::collections::VecDeque;

use chrono::{DateTime, Utc};

use crate::domain::untrusted::visible;

/// The longest line that is kept, in bytes.
const LONGEST_LINE: usize = 64 << 10;
/// Lines of an open group that are kept until it shows an error, or ends.
const GROUP_LINES: usize = 500;
/// Bytes of them.
const GROUP_BYTES: usize = 256 << 10;

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was written; `None` = it does not say.
    pub at: Option<DateTime<Utc>>,
    /// The line.
    pub text: String,
}

/// Makes lines of pieces.
#[derive(Debug, Default)]
pub struct LogLines {
    half: Vec<u8>,
    /// Bytes of the present line beyond the longest.
    over: usize,
    /// Whether the present line began before the first piece.
    headless: bool,
    group: Option<Group>,
}

#[derive(Debug)]
struct Group {
    opened: Line,
    lines: VecDeque<Line>,
    bytes: usize,
    count: usize,
    has_error: bool,
}

impl LogLines {
    /// None yet; `headless` = the first piece may begin within a line, which is dropped.
    pub fn new(headless: bool) -> Self {
        Self { headless, ..Self::default() }
    }

    /// Takes a piece and gives the lines that are whole now.
    pub fn push(&mut self, piece: &[u8], give: &mut impl FnMut(Line)) {
        let mut rest = piece;
        while let Some(end) = memchr(rest) {
            self.grow(&rest[..end]);
            self.end_line(give);
            rest = &rest[end + 1..];
        }
        self.grow(rest);
    }

    /// Gives what is left.
    pub fn finish(mut self, give: &mut impl FnMut(Line)) {
        if !self.half.is_empty() {
            self.end_line(give);
        }
        if let Some(group) = self.group.take() {
            group.close(give);
        }
    }

    fn grow(&mut self, bytes: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.half.len());
        let kept = bytes.len().min(room);
        self.half.extend_from_slice(&bytes[..kept]);
        self.over += bytes.len() - kept;
    }

    fn end_line(&mut self, give: &mut impl FnMut(Line)) {
        let half = std::mem::take(&mut self.half);
        let over = std::mem::take(&mut self.over);
        if std::mem::take(&mut self.headless) {
            return;
        }
        let mut line = Line::of(&half);
        if over > 0 {
            // What was cut through may be half of a secret, which nobody would know again.
            let end = line.text.rfind(char::is_whitespace).unwrap_or(0);
            line.text.truncate(end);
            line.text.push_str(&format!(" [… {over} bytes left out …]"));
        }
        self.group(line, give);
    }

    fn group(&mut self, line: Line, give: &mut impl FnMut(Line)) {
        if line.text.starts_with("##[group]") {
            if let Some(open) = self.group.take() {
                open.close(give);
            }
            self.group =
                Some(Group { opened: line, lines: VecDeque::new(), bytes: 0, count: 0, has_error: false });
            return;
        }
        match self.group.take() {
            Some(open) if line.text.starts_with("##[endgroup]") => open.close(give),
            Some(mut open) => {
                open.take(line);
                self.group = Some(open);
            }
            None => give(line),
        }
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

impl Group {
    fn take(&mut self, line: Line) {
        self.count += 1;
        self.has_error |= is_error(&line.text);
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > GROUP_LINES || self.bytes > GROUP_BYTES {
            let Some(dropped) = self.lines.pop_front() else { return };
            self.bytes -= dropped.text.len();
        }
    }

    /// A group with an error in it is not folded.
    fn close(self, give: &mut impl FnMut(Line)) {
        let name = self.opened.text.trim_start_matches("##[group]").trim().to_owned();
        let at = self.opened.at;
        if !self.has_error {
            let text = format!("▸ {name} [… {} lines folded …]", self.count);
            return give(Line { at, text });
        }
        give(Line { at, text: format!("▾ {name}") });
        let left_out = self.count - self.lines.len();
        if left_out > 0 {
            give(Line { at, text: format!("[… {left_out} lines left out …]") });
        }
        self.lines.into_iter().for_each(give);
    }
}

impl Line {
    fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}').trim_end_matches('\r');
        let (at, text) = timed(text);
        // Of a line that was written over and over, a person sees the last.
        let text = text.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default();
        // A second timestamp stands where a program's own progress began anew.
        let text = timed(text).1;
        let plain = text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
        let text = if plain { Cow::Borrowed(text) } else { Cow::Owned(visible(text)) };
        Self { at, text: text.trim_end().to_owned() }
    }
}

/// The timestamp that GitHub puts before each line, and the rest.
fn timed(line: &str) -> (Option<DateTime<Utc>>, &str) {
    let end = line.find(' ').unwrap_or(line.len());
    let stamp = &line[..end];
    let looks = (20..=35).contains(&stamp.len()) && stamp.ends_with('Z') && stamp.as_bytes()[10] == b'T';
    match looks.then(|| DateTime::parse_from_rfc3339(stamp).ok()).flatten() {
        Some(at) => (Some(at.with_timezone(&Utc)), line[end..].strip_prefix(' ').unwrap_or_default()),
        None => (None, line),
    }
}

/// Words of lines that say what went wrong.
const WORDS: [&str; 11] = [
    "error",
    "errors",
    "failed",
    "failure",
    "failures",
    "fatal",
    "panicked",
    "exception",
    "traceback",
    "assertionerror",
    "segfault",
];

/// Whether a line says that something went wrong.
pub fn is_error(line: &str) -> bool {
    if line.starts_with("##[error]") {
        return true;
    }
    let lower = line.to_lowercase();
    let mut before = "";
    for word in lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()) {
        // "0 failed" is good news.
        if before != "0"
            && before != "no"
            && (WORDS.contains(&word) || word.ends_with("error") || word == "fail")
        {
            return true;
        }
        before = word;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &str, sizes: usize, headless: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut lines = LogLines::new(headless);
        for piece in log.as_bytes().chunks(sizes) {
            lines.push(piece, &mut |line| found.push(line.text));
        }
        lines.finish(&mut |line| found.push(line.text));
        found
    }

    #[test]
    fn a_line_is_what_a_person_sees_wherever_the_pieces_end() {
        let log = "\u{feff}2026-01-01T00:00:00.1234567Z \u{1b}[31mred\u{1b}[0m\r\n\
            2026-01-01T00:00:01.0000000Z 10%\r50%\r2026-01-01T00:00:01.0000000Z 100%\n\
            plain\u{0}\u{200b}\n2026-01-01T00:00:02Z\nlast";
        for size in [1, 3, 7, 1000] {
            assert_eq!(lines(log, size, false), ["red", "100%", "plain", "", "last"], "{size}");
        }
        assert_eq!(lines("half a line\nwhole\n", 4, true), ["whole"]);
    }

    #[test]
    fn groups_fold_unless_an_error_is_in_them() {
        let log = "##[group]Set up\na\nb\n##[endgroup]\n##[group]Tests\nok\nerror: no\n##[endgroup]\nend\n";
        let seen = ["▸ Set up [… 2 lines folded …]", "▾ Tests", "ok", "error: no", "end"];
        assert_eq!(lines(log, 9, false), seen);
        let long = format!("##[group]Long\n{}error: x\n", "line\n".repeat(2000));
        let seen = lines(&long, 100, false);
        assert_eq!((seen[1].as_str(), seen.len()), ("[… 1501 lines left out …]", 502));
    }

    #[test]
    fn an_endless_line_is_cut_at_a_word() {
        let seen =
            lines(&format!("{} secret-that-is-cut\nnext\n", "word ".repeat(LONGEST_LINE / 5)), 1000, false);
        assert!(seen[0].ends_with("bytes left out …]") && !seen[0].contains("secret"), "{}", seen[0].len());
        assert_eq!(seen[1], "next");
    }

    #[test]
    fn good_news_is_no_error() {
        for line in
            ["##[error]x", "error[E0308]: mismatched", "1 failed", "TypeError: x", "thread panicked at"]
        {
            assert!(is_error(line), "{line}");
        }
        for line in ["12 passed; 0 failed", "no errors found", "all good", "terrorise"] {
            assert!(!is_error(line), "{line}");
        }
    }
}
