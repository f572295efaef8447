//! What a text says without its hidden characters and escapes, and where each part stands in the text. A secret with an
//! invisible character in it, or written as `\u0073`, `%73` or `&#115;`, is as readable as a plain one.

use std::ops::Range;

use super::untrusted::is_hidden;

/// How many levels of escapes are undone: enough for JSON in JSON in a URL, and one more.
pub(super) const DEEPEST: usize = 4;

/// A text with something undone.
#[derive(Debug)]
pub(super) struct View {
    /// What is left.
    pub text: String,
    /// The pieces in order, each with its place in the original.
    pieces: Vec<Piece>,
}

/// A piece of a view: it begins at `at` in the view and is `from..to` in the original. Pieces of equal length have the
/// same text.
#[derive(Debug, Clone)]
struct Piece {
    at: usize,
    from: usize,
    to: usize,
}

impl View {
    fn new(capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), pieces: Vec::new() }
    }

    /// Adds characters that stand unchanged at `from` in the original.
    fn same(&mut self, text: &str, from: usize) {
        match self.pieces.last_mut() {
            Some(last) if last.to == from && last.to - last.from == self.text.len() - last.at => {
                last.to += text.len();
            }
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece { at: self.text.len(), from, to: from + text.len() }),
        }
        self.text.push_str(text);
    }

    /// Adds a character that is written as `from..to` in the original.
    fn undone(&mut self, character: char, from: usize, to: usize) {
        self.pieces.push(Piece { at: self.text.len(), from, to });
        self.text.push(character);
    }

    /// The place in the original of a span of the view, with everything that was undone inside of it.
    pub fn original(&self, span: &Range<usize>) -> Range<usize> {
        let piece_of = |at: usize| {
            let next = self.pieces.partition_point(|piece| piece.at <= at);
            let piece = &self.pieces[next.saturating_sub(1)];
            let end = self.pieces.get(next).map_or(self.text.len(), |piece| piece.at);
            (piece, piece.to - piece.from == end - piece.at)
        };
        if self.pieces.is_empty() || span.is_empty() {
            return 0..0;
        }
        let (first, plain) = piece_of(span.start);
        let start = if plain { first.from + (span.start - first.at) } else { first.from };
        let (last, plain) = piece_of(span.end - 1);
        let end = if plain { last.from + (span.end - last.at) } else { last.to };
        start..end
    }

    /// The same view, told from what the original was a view of.
    fn after(mut self, before: &Self) -> Self {
        let mut pieces = Vec::with_capacity(self.pieces.len());
        for (index, piece) in self.pieces.iter().enumerate() {
            let end = self.pieces.get(index + 1).map_or(self.text.len(), |next| next.at);
            if piece.to - piece.from != end - piece.at {
                let place = before.original(&(piece.from..piece.to));
                pieces.push(Piece { at: piece.at, from: place.start, to: place.end });
                continue;
            }
            // An unchanged piece may cover several pieces of the view before.
            let mut from = piece.from;
            while from < piece.to {
                let next = before.pieces.partition_point(|piece| piece.at <= from);
                let until = before.pieces.get(next).map_or(before.text.len(), |piece| piece.at).min(piece.to);
                let place = before.original(&(from..until));
                pieces.push(Piece { at: piece.at + (from - piece.from), from: place.start, to: place.end });
                from = until;
            }
        }
        self.pieces = pieces;
        self
    }
}

/// What [`views`] found.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// The views.
    pub all: Vec<View>,
    /// Whether there are sequences for a terminal in the text or in a view.
    pub sequences: bool,
}

/// All views of a text that differ from the text: first without hidden characters, then with its escapes undone, again
/// and again, up to `deepest` times. Nearly every text has none, and its bytes show that at once.
pub(super) fn views(text: &str, deepest: usize) -> Views {
    let mut found = Views::default();
    if !may_hide(text.as_bytes()) {
        return found;
    }
    let Views { all, sequences } = &mut found;
    chain(text, deepest, &mut |text| without_hidden(text, sequences, false), all);
    // A terminal hides a whole sequence; other programs show its text. So the text is viewed both ways.
    if *sequences {
        chain(text, deepest, &mut |text| without_hidden(text, sequences, true), all);
    }
    found
}

/// The text without hidden characters, where it has some.
pub(super) fn shown(text: &str) -> Option<String> {
    Some(without_hidden(text, &mut false, false)?.text)
}

type Strip<'s> = dyn FnMut(&str) -> Option<View> + 's;

fn chain(text: &str, deepest: usize, strip: &mut Strip<'_>, all: &mut Vec<View>) {
    let begin = all.len();
    all.extend(strip(text));
    for _ in 0..deepest {
        let former = all[begin..].last();
        let Some(undone) = without_escapes(former.map_or(text, |view| view.text.as_str())) else { break };
        let shown = match strip(&undone.text) {
            Some(shown) => shown.after(&undone),
            None => undone,
        };
        let shown = match former {
            Some(former) => shown.after(former),
            None => shown,
        };
        all.push(shown);
    }
}

/// Whether there may be something to undo: a hidden character, or an escape for a character that needs none.
pub(super) fn may_hide(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(skipped) = bytes[at..].iter().position(|byte| UNUSUAL[usize::from(*byte)]) {
        at += skipped;
        let rest = &bytes[at..];
        let found = match rest[0] {
            // The escapes of ordinary JSON do not count, since known secrets are looked for in JSON's form too.
            b'\\' => rest.get(1).is_some_and(|next| match next {
                b'u' | b'x' => true,
                b'"' | b'\\' => false,
                next => next.is_ascii_punctuation(),
            }),
            b'%' => rest.get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
            b'&' => rest.get(1) == Some(&b'#'),
            lead if lead >= 0x80 => first(rest).is_some_and(vanishes),
            _ => true,
        };
        if found {
            return true;
        }
        at += 1;
    }
    false
}

/// Bytes that something to undo begins with.
static UNUSUAL: [bool; 256] = {
    let mut unusual = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        unusual[byte] = !matches!(byte, 0x09 | 0x0a | 0x0d);
        byte += 1;
    }
    // The first bytes of hidden characters and of the controls above ASCII.
    let leads = [0x7f, b'\\', b'%', b'&', 0xc2, 0xcd, 0xd8, 0xe1, 0xe2, 0xe3, 0xef, 0xf0, 0xf3];
    let mut index = 0;
    while index < leads.len() {
        unusual[leads[index] as usize] = true;
        index += 1;
    }
    unusual
};

/// The character that bytes begin with.
fn first(bytes: &[u8]) -> Option<char> {
    bytes[..bytes.len().min(4)].utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next())
}

/// Whether nobody sees the character, wherever it stands.
fn vanishes(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t' | '\r')) || is_hidden(c)
}

/// The text without hidden and control characters; `None` if it has none. With `whole`, sequences for a terminal are
/// removed to their end. `sequence` is set where there is one.
fn without_hidden(text: &str, sequence: &mut bool, whole: bool) -> Option<View> {
    if !text.contains(vanishes) {
        return None;
    }
    let mut view = View::new(text.len());
    let mut rest = 0;
    while let Some(found) = text[rest..].find(vanishes) {
        let at = rest + found;
        view.same(&text[rest..at], rest);
        let hidden = text[at..].chars().next().map_or(1, char::len_utf8);
        let length = match is_introducer(&text[at..]) {
            true => {
                *sequence = true;
                if whole { sequence_length(&text[at..]) } else { hidden }
            }
            false => hidden,
        };
        rest = at + length;
    }
    view.same(&text[rest..], rest);
    Some(view)
}

/// Whether a sequence for a terminal begins here.
fn is_introducer(text: &str) -> bool {
    text.starts_with(['\u{1b}', '\u{90}', '\u{98}', '\u{9b}', '\u{9d}', '\u{9e}', '\u{9f}'])
}

/// Bytes of the sequence that a text begins with (ECMA-48).
fn sequence_length(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    let kind = match (text.chars().next(), characters.peek()) {
        (Some('\u{1b}'), Some((_, kind))) => {
            let kind = *kind;
            if matches!(kind, '[' | ']' | 'P' | 'X' | '^' | '_') {
                characters.next();
            }
            kind
        }
        (Some('\u{9b}'), _) => '[',
        (Some('\u{1b}'), None) | (None, _) => return text.len(),
        (Some(_), _) => ']',
    };
    let until = |test: &dyn Fn(char) -> Option<bool>| {
        // `Some(true)`: this character is the last of the sequence. `Some(false)`: it is the first that is not part of
        // it.
        for (at, c) in characters {
            match test(c) {
                Some(true) => return at + c.len_utf8(),
                Some(false) => return at,
                None => {}
            }
        }
        text.len()
    };
    match kind {
        '[' => until(&|c| match c {
            ' '..='?' => None,
            '@'..='~' => Some(true),
            _ => Some(false),
        }),
        ']' | 'P' | 'X' | '^' | '_' => until(&|c| match c {
            '\u{7}' | '\u{9c}' => Some(true),
            '\u{1b}' => Some(false),
            _ => None,
        }),
        _ => until(&|c| match c {
            ' '..='/' => None,
            '0'..='~' => Some(true),
            _ => Some(false),
        }),
    }
}

/// The text with each escape undone once: of JSON and of programs (`\u0073`, `\u{73}`, `\x73`, `\/`), of URLs (`%73`), of
/// HTML (`&#115;`), of Markdown (`\_`). `None` = there is none.
fn without_escapes(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let mut view = None;
    let (mut kept, mut at) = (0, 0);
    while let Some(skipped) = bytes[at..].iter().position(|byte| matches!(byte, b'\\' | b'%' | b'&')) {
        at += skipped;
        let Some((character, length)) = escape(&text[at..]) else {
            at += 1;
            continue;
        };
        let view = view.get_or_insert_with(|| View::new(text.len()));
        view.same(&text[kept..at], kept);
        view.undone(character, at, at + length);
        at += length;
        kept = at;
    }
    let mut view = view?;
    view.same(&text[kept..], kept);
    Some(view)
}

/// The character that an escape at the text's begin stands for, and the escape's length.
fn escape(text: &str) -> Option<(char, usize)> {
    let bytes = text.as_bytes();
    match (bytes[0], *bytes.get(1)?) {
        (b'\\', b'u') if bytes.get(2) == Some(&b'{') => {
            let end = bytes.iter().take(12).position(|byte| *byte == b'}')?;
            Some((char::from_u32(u32::from_str_radix(text.get(3..end)?, 16).ok()?)?, end + 1))
        }
        (b'\\', b'u') => utf16(text),
        (b'\\', b'x') => encoded(text, "\\x"),
        (b'\\', b'n') => Some(('\n', 2)),
        (b'\\', b'r') => Some(('\r', 2)),
        (b'\\', b't') => Some(('\t', 2)),
        (b'\\', next) if next.is_ascii_punctuation() => Some((char::from(next), 2)),
        (b'%', _) => encoded(text, "%"),
        (b'&', b'#') => {
            let end = bytes.iter().take(12).position(|byte| *byte == b';')?;
            let digits = text.get(2..end)?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => digits.parse(),
            };
            Some((char::from_u32(code.ok()?)?, end + 1))
        }
        _ => None,
    }
}

/// `\uXXXX`, or two of them that stand for one character.
fn utf16(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let units = [unit(0)?, unit(6).unwrap_or_default()];
    let character = char::decode_utf16(units).next()?.ok()?;
    Some((character, character.len_utf16() * 6))
}

/// The bytes of one character, each as two hexadecimal digits behind `mark`.
fn encoded(text: &str, mark: &str) -> Option<(char, usize)> {
    let step = mark.len() + 2;
    let byte = |index: usize| {
        let digits = text.get(index * step..(index + 1) * step)?.strip_prefix(mark)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u8::from_str_radix(digits, 16).ok()
    };
    let lead = byte(0)?;
    let length = match lead {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => return None,
    };
    let bytes = (0..length).map(byte).collect::<Option<Vec<_>>>()?;
    let character = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    Some((character, length * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> String {
        views(text, DEEPEST).all.pop().map_or_else(|| text.to_owned(), |view| view.text)
    }

    #[test]
    fn p_031_hidden_characters_and_escapes_are_undone() {
        let cases = [
            ("a\u{200b}b\u{ad}c\u{fe0f}d\u{e0041}e\u{202e}f", "abcdef"),
            ("a\u{0}b\u{85}c\u{1b}[31md", "abcd"),
            ("a\u{1b}]0;title\u{7}b\u{9b}2Jc\u{1b}(Bd", "abcd"),
            (r"a\u0062c\u{64}e\x66\/\_", "abcdef/_"),
            (r"\ud83d\ude00 \u00e9", "😀 é"),
            ("%61%C3%A9%zz%4", "aé%zz%4"),
            ("&#97;&#x62;&amp;", "ab&amp;"),
            (r"\\u0061", "a"),
            (r"%255Cu0061", "a"),
            ("a\\u200bb", "ab"),
            ("\\u00\u{200b}61", "a"),
        ];
        for (text, said) in cases {
            assert_eq!(last(text), said, "{text:?}");
        }
        for plain in ["plain — text\n\t✓", "say \\\"hello\\\" 100 % \\n", "日本語", "a & b"] {
            assert!(views(plain, DEEPEST).all.is_empty(), "{plain}");
        }
    }

    #[test]
    fn p_031_a_span_of_a_view_is_the_whole_of_what_it_stands_for() {
        let text = "x a\u{200b}b\\u0063\u{ad}%64e y";
        for view in views(text, DEEPEST).all {
            let Some(at) = view.text.find("abcde") else { continue };
            let place = view.original(&(at..at + 5));
            assert_eq!(&text[place], "a\u{200b}b\\u0063\u{ad}%64e");
            let one = view.original(&(at + 2..at + 3));
            assert_eq!(&text[one], "\\u0063");
        }
        assert!(views(text, DEEPEST).all.iter().any(|view| view.text == "x abcde y"));
    }

    #[test]
    fn p_031_every_default_ignorable_character_is_hidden() {
        // Unicode 16, DerivedCoreProperties.txt, Default_Ignorable_Code_Point.
        let ranges = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfff8,
            0x1bca0..=0x1bca3,
            0x1d173..=0x1d17a,
            0xe0000..=0xe0fff,
        ];
        let mut seen = 0;
        for c in ranges.into_iter().flatten().filter_map(char::from_u32) {
            assert_eq!(last(&format!("a{c}b")), "ab", "{:x}", u32::from(c));
            seen += 1;
        }
        assert!(seen > 4000);
    }
}
