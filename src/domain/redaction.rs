//! Redaction: known secrets and things shaped like secrets are replaced before anything is kept or shown (contracts §3.10).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, packed};
use hmac::{Hmac, Mac as _};
use regex::{Captures, Regex, RegexBuilder};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::Sha256;

use super::{disguise, secret_forms};

/// Secrets shorter than this are not looked for by value: they would hit ordinary words.
pub const SHORTEST_SECRET: usize = 8;
/// Longest text that is redacted in one piece, in bytes; a longer one fails, and what fails is dropped.
pub const LONGEST_TEXT: usize = 64 * 1024 * 1024;
/// What a stream holds back, so that a secret in several chunks is seen whole.
const WINDOW: usize = 16 * 1024;
/// A single match may hold back this much of a stream before it is replaced as it stands.
const LONGEST_MATCH: usize = 1024 * 1024;

/// A secret known by its value.
#[derive(Clone)]
pub struct KnownSecret {
    /// What it is, for the replacement: `github_token`, a variable's name.
    pub kind: String,
    /// The value.
    pub value: String,
}

/// A text could not be redacted; the caller drops it (fail closed).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedactionFailed {
    /// Longer than [`LONGEST_TEXT`].
    #[error("a text of {0} bytes is too long to be redacted in one piece")]
    TooLong(usize),
    /// A redaction program failed (run elsewhere).
    #[error("the redaction program failed: {0}")]
    Program(String),
}

/// A pattern of the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a regular expression.
    #[error("redaction pattern \"{pattern}\" cannot be read: {message}")]
    Malformed {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        message: String,
    },
    /// Matches nothing at all.
    #[error("redaction pattern \"{0}\" matches the empty text; make it match at least one character")]
    Empty(String),
}

/// Replaces secrets by `[redacted:<kind>:<8 hex>]`; equal secrets have equal marks within a run, and the key that makes
/// the marks is the run's own.
pub struct Redactor {
    key: [u8; 32],
    exact: Option<Regex>,
    owners: HashMap<String, usize>,
    secrets: Vec<KnownSecret>,
    patterns: Vec<(String, Regex)>,
    scout: Scout,
    window: usize,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets, {} patterns)", self.secrets.len(), self.patterns.len())
    }
}

/// Shapes of keys: kind, words and expression. Every match of the expression holds one of the words, in any case: a text
/// without them is not searched. Where the expression ignores case, its words have no `s` (it has a third case), a word with
/// a `k` stands beside the one with that letter's third case, and no word has a character that JSON escapes. Where a group
/// is named `s`, only it is replaced.
const SHAPES: [(&str, &[&str], &str); 15] = [
    (
        "github_token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(?:gh[pousr]_[A-Za-z0-9][A-Za-z0-9_.\-]{18,}[A-Za-z0-9_\-]|github_pat_[A-Za-z0-9_]{20,})",
    ),
    (
        "api_key",
        &["sk-"],
        r"(?:\b|%[0-9A-Fa-f]{2}|_)(?P<s>sk-(?:ant-|proj-|svcacct-|admin-|or-)?[A-Za-z0-9_\-]{20,})",
    ),
    ("api_key", &["AIza"], r"AIza[0-9A-Za-z_\-]{35}"),
    ("aws_key_id", &["AKIA", "ASIA", "ABIA", "ACCA"], r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    (
        "aws_secret_key",
        // More of it than "secret": that word alone is in what every session records.
        &["ecret_a", "ecreta", "ecret_k", "ecretk", "ecret_\u{212a}", "ecret\u{212a}"],
        r#"(?i)aws_?(?:secret_?)(?:access_?)?key(?:_?id)?["'\s]*[:=]["'\s]*(?P<s>[A-Za-z0-9/+]{40})"#,
    ),
    (
        "private_key",
        &["-----BEGIN "],
        concat!(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----",
            r"(?:(?:\s|\\[nrt])*(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]*)*",
            r"(?:(?:\s|\\[nrt]|[>|#*])*[A-Za-z0-9+/]{16,}={0,2})+(?:(?:\s|\\[nrt]|[>|#*])*[A-Za-z0-9+/]{1,15}={0,2})?",
            r"(?:(?:\s|\\[nrt]|[>|#*])*=[A-Za-z0-9+/]{4})?",
            r"(?:(?:\s|\\[nrt]|[>|#*])*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?",
        ),
    ),
    ("jwt", &["eyJ"], r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"),
    ("url_password", &["://"], r#"[A-Za-z][A-Za-z0-9+.\-]*://[^\s/?#@:'"\[\]]*:(?P<s>[^\s/?#@'"\[\]]+)@"#),
    ("url_token", &["://"], r#"[A-Za-z][A-Za-z0-9+.\-]*://(?P<s>[A-Za-z0-9_\-.%]{20,})@"#),
    (
        "authorization",
        &["authorization"],
        r#"(?i)\b(?:authorization|proxy-authorization)["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+(?P<s>[A-Za-z0-9._~+/=\-]{8,})"#,
    ),
    ("authorization", &["x-api-"], r#"(?i)\bx-api-key["']?\s*[:=]\s*["']?(?P<s>[A-Za-z0-9._~+/=\-]{8,})"#),
    ("gitlab_token", &["glpat-"], r"glpat-[A-Za-z0-9_\-]{20,}"),
    ("slack_token", &["xox"], r"xox[abeoprs]-[A-Za-z0-9\-]{10,}"),
    ("npm_token", &["npm_"], r"npm_[A-Za-z0-9]{36}"),
    ("webhook_url", &["hooks.slack.com"], r"https://hooks\.slack\.com/(?P<s>services/[A-Za-z0-9/]{20,})"),
];

/// Finds in one pass over a text which of a redactor's expressions can match in it at all.
struct Scout {
    /// A text without any of these has none of the words; many bytes of it are looked at in a step. `None`: there are too
    /// many, or the processor has no such steps.
    hints: Option<packed::Searcher>,
    words: AhoCorasick,
    /// By word: the places of the expressions that need it.
    owners: Vec<u32>,
    /// Expressions without words: they can match anywhere.
    anywhere: u32,
}

/// Bit of the known secrets; that of shape `n` is `1 << n`, and that of all patterns of the configuration is next to it.
const KNOWN: u32 = 1 << 31;
const CONFIGURED: u32 = 1 << SHAPES.len();

impl Scout {
    /// `needles`: every form of the known secrets. `configured`: whether the configuration has patterns of its own.
    fn new(needles: &[&String], configured: bool) -> Result<Self, PatternError> {
        let mut words = Vec::new();
        let mut owners = Vec::new();
        let mut hints = BTreeSet::new();
        for (index, (_, needed, expression)) in SHAPES.iter().enumerate() {
            for word in *needed {
                words.push((*word).to_owned());
                owners.push(1 << index);
                match expression.starts_with("(?i)") {
                    true => hints.extend(any_case(rarest(word.as_bytes()))),
                    false => hints.extend([word.as_bytes().to_vec()]),
                }
            }
        }
        for needle in needles {
            // As a JSON text writes it, too: see `Redactor::is_clean_json`.
            let escaped = Value::from(needle.as_str()).to_string();
            words.push(escaped[1..escaped.len() - 1].to_owned());
            owners.push(KNOWN);
            if words.last() != Some(*needle) {
                words.push((*needle).clone());
                owners.push(KNOWN);
            }
        }
        // Known secrets are as they are, in every form.
        hints.extend(
            words
                .iter()
                .zip(&owners)
                .filter(|(_, owner)| **owner == KNOWN)
                .map(|(word, _)| word.as_bytes().to_vec()),
        );
        let hints = packed::Config::new().builder().extend(hints).build();
        let words = AhoCorasickBuilder::new().ascii_case_insensitive(true).build(words).map_err(|error| {
            PatternError::Malformed { pattern: "known secrets".to_owned(), message: error.to_string() }
        })?;
        Ok(Self { hints, words, owners, anywhere: if configured { CONFIGURED } else { 0 } })
    }

    /// The expressions worth trying on a text.
    fn look(&self, text: impl AsRef<[u8]>) -> u32 {
        let text = text.as_ref();
        if self.hints.as_ref().is_some_and(|hints| hints.find(text).is_none()) {
            return self.anywhere;
        }
        self.words
            .find_overlapping_iter(text)
            .fold(self.anywhere, |seen, word| seen | self.owners[word.pattern().as_usize()])
    }
}

/// The three bytes of a word that stand least often in ordinary text, or in names of members.
fn rarest(word: &[u8]) -> &[u8] {
    let rank =
        |byte: &u8| b"etaoinsh_rdlcumwfgypbvkjxqz".iter().position(|common| common == byte).unwrap_or(27);
    word.windows(3).rev().max_by_key(|window| window.iter().map(rank).sum::<usize>()).unwrap_or(word)
}

/// Bytes with each letter in both cases.
fn any_case(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.iter().fold(vec![Vec::new()], |begun, byte| {
        let both = BTreeSet::from([byte.to_ascii_lowercase(), byte.to_ascii_uppercase()]);
        begun
            .iter()
            .flat_map(|start| both.iter().map(move |byte| [start.as_slice(), &[*byte]].concat()))
            .collect()
    })
}

impl Redactor {
    /// Takes the secrets of a run, user patterns (regular expressions; a group named `s` narrows what is replaced), and
    /// the run's random key.
    pub fn new(key: [u8; 32], secrets: Vec<KnownSecret>, patterns: &[String]) -> Result<Self, PatternError> {
        let secrets: Vec<KnownSecret> = secrets
            .into_iter()
            .filter(|secret| secret.value.trim().chars().count() >= SHORTEST_SECRET)
            .collect();
        let mut owners = HashMap::new();
        for (index, secret) in secrets.iter().enumerate() {
            let value = secret.value.trim();
            // One with hidden characters of its own is looked for without them, too: so it stands in a view.
            for value in [Some(value.to_owned()), disguise::shown(value)].into_iter().flatten() {
                for form in secret_forms::of(&value, SHORTEST_SECRET) {
                    owners.entry(form).or_insert(index);
                }
            }
        }
        let mut needles: Vec<&String> = owners.keys().collect();
        // Longest first: the alternation takes the first that fits.
        needles.sort_by_key(|needle| (std::cmp::Reverse(needle.len()), *needle));
        let longest = needles.first().map_or(0, |needle| needle.len());
        let exact = match needles.iter().map(|needle| regex::escape(needle)).collect::<Vec<_>>() {
            none if none.is_empty() => None,
            escaped => Some(compile("known secrets", &escaped.join("|"))?),
        };
        let scout = Scout::new(&needles, !patterns.is_empty())?;
        let shapes = SHAPES.iter().map(|(kind, _, shape)| Ok(((*kind).to_owned(), compile(shape, shape)?)));
        let own = patterns.iter().map(|pattern| {
            let regex = compile(pattern, pattern)?;
            if regex.is_match("") {
                return Err(PatternError::Empty(pattern.clone()));
            }
            Ok(("pattern".to_owned(), regex))
        });
        Ok(Self {
            key,
            exact,
            owners,
            secrets,
            patterns: shapes.chain(own).collect::<Result<_, _>>()?,
            scout,
            window: WINDOW.max(2 * longest),
        })
    }

    /// Replaces every secret in a text. Redacting twice changes nothing more.
    pub fn redact<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, RedactionFailed> {
        if text.len() > LONGEST_TEXT {
            return Err(RedactionFailed::TooLong(text.len()));
        }
        Ok(self.replace(text))
    }

    /// Whether a JSON text holds nothing to replace, neither in a text, nor in a name, nor in a number of it, as
    /// [`Redactor::redact_json`] sees them. `false` may be said of a clean one, too. `json`: as `serde_json` writes it.
    pub fn is_clean_json(&self, json: &[u8]) -> bool {
        if json.len() > LONGEST_TEXT || self.scout.look(json) != 0 {
            return false;
        }
        if !disguise::may_hide(json) {
            return true;
        }
        // A text's escapes are one level deeper here, and a sequence for a terminal may reach into the next text.
        std::str::from_utf8(json).is_ok_and(|json| {
            let views = disguise::views(json, disguise::DEEPEST + 1);
            !views.sequences && views.all.iter().all(|view| self.scout.look(&view.text) == 0)
        })
    }

    fn replace<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let plain = self.replace_plain(text);
        match self.replace_disguised(&plain) {
            Some(replaced) => Cow::Owned(replaced),
            None => plain,
        }
    }

    /// The text without the secrets that only a view of it shows; `None` = there are none.
    fn replace_disguised(&self, text: &str) -> Option<String> {
        let mut found = self.disguised(text);
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|found| (found.place.start, found.rank));
        let mut out = String::with_capacity(text.len());
        let mut found = found.into_iter().peekable();
        let mut kept = 0;
        while let Some(mut one) = found.next() {
            // Several views show the same secret, and one secret may hold another.
            while let Some(next) = found.next_if(|next| next.place.start < one.place.end) {
                one.place.end = one.place.end.max(next.place.end);
                if next.rank < one.rank {
                    (one.rank, one.mark) = (next.rank, next.mark);
                }
            }
            out.push_str(&text[kept..one.place.start]);
            out.push_str(&one.mark);
            kept = one.place.end;
        }
        out.push_str(&text[kept..]);
        Some(out)
    }

    /// Where secrets stand that only a view of the text shows, unsorted.
    fn disguised(&self, text: &str) -> Vec<Disguised> {
        let mut all = Vec::new();
        for view in disguise::views(text, disguise::DEEPEST).all {
            let seen = self.scout.look(&view.text);
            if seen == 0 {
                continue;
            }
            for found in self.exact.iter().filter(|_| seen & KNOWN != 0).flat_map(|e| e.find_iter(&view.text))
            {
                let place = view.original(&found.range());
                let whole = place.clone();
                all.push(Disguised { place, whole, rank: 0, mark: self.mark_of(found.as_str()) });
            }
            for (index, (kind, pattern)) in self.patterns.iter().enumerate() {
                if seen & bit(index) == 0 {
                    continue;
                }
                for found in pattern.captures_iter(&view.text) {
                    let Some(whole) = found.get(0) else { continue };
                    let secret = found.name("s").unwrap_or(whole);
                    let (place, whole) = (view.original(&secret.range()), view.original(&whole.range()));
                    let mark = self.mark(kind, secret.as_str());
                    all.push(Disguised { place, whole, rank: index + 1, mark });
                }
            }
        }
        all
    }

    fn replace_plain<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        let seen = self.scout.look(text);
        if let Some(exact) = self.exact.as_ref().filter(|_| seen & KNOWN != 0) {
            let mark = |found: &Captures<'_>| self.mark_of(&found[0]);
            if let Cow::Owned(replaced) = exact.replace_all(&out, mark) {
                out = Cow::Owned(replaced);
            }
        }
        for (place, (kind, pattern)) in self.patterns.iter().enumerate() {
            // A mark may read like the beginning of something.
            if matches!(out, Cow::Borrowed(_)) && seen & bit(place) == 0 {
                continue;
            }
            let mark = |found: &Captures<'_>| {
                let whole = &found[0];
                let start = found.get(0).map_or(0, |m| m.start());
                match found.name("s") {
                    Some(secret) => format!(
                        "{}{}{}",
                        &whole[..secret.start() - start],
                        self.mark(kind, secret.as_str()),
                        &whole[secret.end() - start..]
                    ),
                    None => self.mark(kind, whole),
                }
            };
            if let Cow::Owned(replaced) = pattern.replace_all(&out, mark) {
                out = Cow::Owned(replaced);
            }
        }
        out
    }

    /// The kind of a secret that is known by its value and stands in a text, in any form; shapes are not asked.
    pub fn known_kind(&self, text: &str) -> Option<&str> {
        let found = self.exact.as_ref()?.find(text)?;
        Some(
            self.owners
                .get(found.as_str())
                .and_then(|at| self.secrets.get(*at))
                .map_or("secret", |s| s.kind.as_str()),
        )
    }

    fn mark_of(&self, needle: &str) -> String {
        match self.owners.get(needle).and_then(|index| self.secrets.get(*index)) {
            Some(secret) => self.mark(&secret.kind, secret.value.trim()),
            None => self.mark("secret", needle),
        }
    }

    fn mark(&self, kind: &str, secret: &str) -> String {
        let plain: String = kind
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' })
            .collect();
        let digest = match Hmac::<Sha256>::new_from_slice(&self.key) {
            Ok(mut mac) => {
                mac.update(secret.as_bytes());
                hex::encode(mac.finalize().into_bytes())
            }
            // HMAC takes keys of any length.
            Err(_) => "00000000".into(),
        };
        format!("[redacted:{plain}:{}]", &digest[..8])
    }

    /// [`Redactor::is_clean_json`] of a value's text.
    pub fn is_clean(&self, value: &impl Serialize) -> bool {
        serde_json::to_vec(value).is_ok_and(|json| self.is_clean_json(&json))
    }

    /// Redacts every text of a JSON value, names of members and numbers that are secrets included.
    pub fn redact_json(&self, value: &Value) -> Result<Value, RedactionFailed> {
        if self.is_clean(value) { Ok(value.clone()) } else { self.redact_parts(value) }
    }

    fn redact_parts(&self, value: &Value) -> Result<Value, RedactionFailed> {
        Ok(match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                match self.redact(&text)? {
                    Cow::Borrowed(_) => value.clone(),
                    Cow::Owned(mark) => Value::String(mark),
                }
            }
            Value::String(text) => Value::String(self.redact(text)?.into_owned()),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.redact_parts(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let mut redacted = Map::new();
                for (name, value) in members {
                    redacted.insert(self.redact(name)?.into_owned(), self.redact_parts(value)?);
                }
                Value::Object(redacted)
            }
        })
    }

    /// A redactor for bytes that arrive in chunks.
    pub fn stream(&self) -> RedactingStream<'_> {
        RedactingStream { redactor: self, bytes: Vec::new(), text: String::new(), enough: 2 * self.window }
    }

    /// Where secrets stand in a text, plain or disguised, unsorted.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        let seen = self.scout.look(text);
        let known = self.exact.iter().filter(|_| seen & KNOWN != 0);
        let patterns = self.patterns.iter().enumerate().filter(|(place, _)| seen & bit(*place) != 0);
        known
            .chain(patterns.map(|(_, (_, pattern))| pattern))
            .flat_map(|pattern| pattern.find_iter(text))
            .map(|found| found.range())
            .chain(self.disguised(text).into_iter().map(|found| found.whole))
            .collect()
    }
}

/// A secret that only a view of a text shows.
struct Disguised {
    /// Where it stands in the text.
    place: Range<usize>,
    /// The same with what tells that it is one.
    whole: Range<usize>,
    /// A known one comes before a shape.
    rank: usize,
    mark: String,
}

/// The bit of an expression, by its place in [`Redactor::patterns`]: shapes first, then those of the configuration.
fn bit(place: usize) -> u32 {
    if place < SHAPES.len() { 1 << place } else { CONFIGURED }
}

fn compile(name: &str, expression: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(expression)
        .size_limit(64 * 1024 * 1024)
        .build()
        .map_err(|error| PatternError::Malformed { pattern: name.to_owned(), message: error.to_string() })
}

/// A stream of bytes on its way through a [`Redactor`]; what comes out lags behind by a window, so that no border of
/// chunks hides a secret. Bytes that are not UTF-8 come out as replacement characters.
#[derive(Debug)]
pub struct RedactingStream<'r> {
    redactor: &'r Redactor,
    bytes: Vec<u8>,
    text: String,
    /// How long the text is before it is looked at again: not with every small chunk.
    enough: usize,
}

impl RedactingStream<'_> {
    /// Takes a chunk, gives what is safe to pass on by now (often nothing).
    pub fn push(&mut self, chunk: &[u8]) -> String {
        self.bytes.extend_from_slice(chunk);
        self.decode(false);
        if self.text.len() < self.enough {
            return String::new();
        }
        if self.text.len() > LONGEST_MATCH
            && let Some(shown) = disguise::shown(&self.text)
        {
            // Nobody sees them, and no row of them may hide how a secret goes on.
            self.text = shown;
        }
        let mut cut = self.cut();
        let mut spans = self.redactor.spans(&self.text);
        // From the last span to the first: moving the cut to a span's start may put it into an earlier one.
        spans.sort_by_key(|span| std::cmp::Reverse(span.start));
        for span in spans {
            let held_back = self.text.len() - span.start <= LONGEST_MATCH;
            if span.start < cut && cut < span.end && held_back {
                cut = span.start;
            }
        }
        while !self.text.is_char_boundary(cut) {
            cut -= 1;
        }
        let rest = self.text.split_off(cut);
        let ready = std::mem::replace(&mut self.text, rest);
        self.enough = self.text.len().max(self.redactor.window) + self.redactor.window;
        self.redactor.replace(&ready).into_owned()
    }

    /// Up to where the text can be passed on: behind it is as much as a secret needs, however it is disguised.
    fn cut(&self) -> usize {
        let window = self.redactor.window;
        let plain = self.text.len().saturating_sub(window);
        if plain > LONGEST_MATCH {
            return plain;
        }
        disguise::views(&self.text, disguise::DEEPEST).all.iter().fold(plain, |cut, view| {
            match view.text.len().checked_sub(window) {
                Some(at) => cut.min(view.original(&(at..at + 1)).start),
                None => 0,
            }
        })
    }

    /// The rest.
    pub fn finish(mut self) -> String {
        self.decode(true);
        self.redactor.replace(&self.text).into_owned()
    }

    fn decode(&mut self, last: bool) {
        let mut taken = 0;
        for part in self.bytes.utf8_chunks() {
            self.text.push_str(part.valid());
            taken += part.valid().len();
            let broken = part.invalid();
            // The end of a chunk may be the beginning of a character.
            let at_end = taken + broken.len() == self.bytes.len();
            if broken.is_empty() || (at_end && !last && may_continue(broken)) {
                break;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            taken += broken.len();
        }
        self.bytes.drain(..taken);
    }
}

fn may_continue(broken: &[u8]) -> bool {
    std::str::from_utf8(broken).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "s3cr3t/Token+with=odd chars";

    fn redactor() -> Redactor {
        let known = |kind: &str, value: &str| KnownSecret { kind: kind.into(), value: value.into() };
        let secrets = vec![known("MY_TOKEN", TOKEN), known("short", "abc"), known("number", "90817263")];
        Redactor::new([7; 32], secrets, &[r"ticket-(?P<s>\d{4})".to_owned()]).unwrap()
    }

    fn redacted(text: &str) -> String {
        redactor().redact(text).unwrap().into_owned()
    }

    #[test]
    fn p_031_a_known_secret_is_found_in_every_form() {
        let mark = redacted(TOKEN);
        assert!(mark.starts_with("[redacted:my_token:") && mark.ends_with(']'), "{mark}");
        let forms = [
            format!("x{TOKEN}y"),
            "a=s3cr3t%2FToken%2Bwith%3Dodd%20chars&b".to_owned(),
            "a=s3cr3t%2fToken%2bwith%3dodd+chars&b".to_owned(),
            hex::encode(TOKEN),
            STANDARD.encode(TOKEN),
            STANDARD.encode(format!("u:{TOKEN}")),
            STANDARD.encode(format!("user:{TOKEN}\n")),
            URL_SAFE.encode(format!("x{TOKEN}{TOKEN}")),
        ];
        for form in forms {
            let out = redacted(&form);
            assert!(out.contains(&mark), "{form} -> {out}");
            assert!(!out.contains(TOKEN));
        }
        assert_eq!(
            redacted("abc and abc"),
            "abc and abc",
            "values under eight characters are not looked for"
        );
    }

    #[test]
    fn p_031_a_secret_with_line_breaks_is_found_escaped_and_line_by_line() {
        let value = "first line of a secret\nsecond \"line\" of a secret";
        let redactor =
            Redactor::new([1; 32], vec![KnownSecret { kind: "k".into(), value: value.into() }], &[]).unwrap();
        for text in
            [value.to_owned(), json!({ "v": value }).to_string(), value.lines().nth(1).unwrap().to_owned()]
        {
            let out = redactor.redact(&text).unwrap();
            assert!(!out.contains("of a secret"), "{out}");
        }
    }

    #[test]
    fn p_031_shapes_of_keys_are_found() {
        let attacks = include_str!("../../tests/data/attacks/key_shapes.txt");
        let mut seen = 0;
        for line in attacks.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (kind, text) = line.split_once('\t').unwrap();
            let text = text.replace('⏎', "\n");
            let out = redacted(&text);
            if kind == "none" {
                assert_eq!(out, text, "must stay");
            } else {
                assert!(out.contains(&format!("[redacted:{kind}:")), "{kind}: {text} -> {out}");
                assert!(!out.contains("SENTINEL"), "{kind}: {text} -> {out}");
            }
            assert_eq!(redacted(&out), out, "redacting twice changes nothing");
            seen += 1;
        }
        assert!(seen > 25);
    }

    #[test]
    fn p_031_every_shape_is_found_by_its_words_alone() {
        let all = redactor();
        let attacks = include_str!("../../tests/data/attacks/key_shapes.txt");
        for line in attacks.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let text = line.split_once('\t').unwrap().1.replace('⏎', "\n");
            for (place, (kind, _)) in all.patterns.iter().enumerate().filter(|(_, (_, p))| p.is_match(&text))
            {
                assert_ne!(all.scout.look(&text) & bit(place), 0, "{kind}: {text}");
                let json = json!({ "text": &text }).to_string();
                assert_ne!(all.scout.look(&json) & bit(place), 0, "{kind}: {json}");
            }
        }
        for (_, words, expression) in SHAPES {
            let third_case =
                |word: &&str| word.contains('s') || !words.contains(&word.replace('k', "\u{212a}").as_str());
            assert!(!expression.starts_with("(?i)") || !words.iter().any(third_case), "{words:?}");
            assert!(!words.concat().contains(['"', '\\']), "{words:?}");
        }
    }

    #[test]
    fn p_031_a_json_text_is_clean_only_where_none_of_its_texts_names_and_numbers_is_a_secret() {
        let known = |value: &str| KnownSecret { kind: "k".into(), value: value.into() };
        let secrets = vec![known("a \"quoted\" secret\nin two lines"), known("90817263")];
        let redactor = Redactor::new([7; 32], secrets, &[]).unwrap();
        let secret = "a \"quoted\" secret\nin two lines";
        let dirty = [
            json!({ "a": ["x", { "b": secret }] }),
            json!({ "a": json!({ "b": secret }).to_string() }),
            json!({ secret: 1 }),
            json!({ "n": 90_817_263 }),
            json!(["https://u:password1@h/"]),
        ];
        for value in dirty {
            assert_ne!(redactor.redact_json(&value).unwrap(), value);
            assert!(!redactor.is_clean_json(value.to_string().as_bytes()), "{value}");
        }
        let clean = json!({ "a": "nothing\nof \"interest\"", "n": 9_081_726 }).to_string();
        assert!(redactor.is_clean_json(clean.as_bytes()));
        let own = Redactor::new([7; 32], Vec::new(), &["x+y".to_owned()]).unwrap();
        assert!(!own.is_clean_json(b"{}"), "a pattern of the configuration may match anywhere");
    }

    #[test]
    fn p_031_a_hint_of_every_word_is_found_in_any_case_that_counts() {
        assert_eq!(any_case(b"x-a"), [b"X-A", b"X-a", b"x-A", b"x-a"]);
        assert_eq!((rarest(b"authorization"), rarest(b"ecret")), (&b"riz"[..], &b"ecr"[..]));
        let redactor = redactor();
        let hints = redactor.scout.hints.as_ref();
        let found = |text: &str| hints.is_none_or(|hints| hints.find(text).is_some());
        for (_, words, expression) in SHAPES {
            for word in words {
                assert!(found(word), "{word}");
                let shouted = word.to_ascii_uppercase();
                assert!(!expression.starts_with("(?i)") || found(&shouted), "{shouted}");
            }
        }
        let kelvin = format!("AWS_SECRET_{}EY={}", '\u{212a}', "a1B2".repeat(10));
        assert_ne!(redactor.redact(&kelvin).unwrap(), kelvin);
        let shapes = Redactor::new([7; 32], Vec::new(), &[]).unwrap();
        assert!(shapes.is_clean_json(b"{\"guardrailName\":\"secret_leak\"}"), "it is in every session");
        assert!(hints.is_none() || !found("a text of no interest"), "or every text would be looked at twice");
    }

    #[test]
    fn equal_secrets_have_equal_marks_in_a_run_and_other_marks_in_another() {
        let (one, two) = (redacted(TOKEN), redacted(&format!("{TOKEN} {TOKEN}")));
        assert_eq!(two, format!("{one} {one}"));
        let secrets = vec![KnownSecret { kind: "MY_TOKEN".into(), value: TOKEN.into() }];
        let other = Redactor::new([8; 32], secrets, &[]).unwrap();
        assert_ne!(other.redact(TOKEN).unwrap(), one.as_str());
    }

    #[test]
    fn p_031_json_is_redacted_in_values_names_and_numbers() {
        let value =
            json!({ "a": [format!("x {TOKEN}")], TOKEN: 1, "n": 90_817_263, "t": "ticket-1234", "k": true });
        let out = redactor().redact_json(&value).unwrap();
        let text = out.to_string();
        assert!(!text.contains("s3cr3t") && !text.contains("90817263") && !text.contains("1234"), "{text}");
        assert_eq!(out["k"], true);
        assert!(out["t"].as_str().unwrap().starts_with("ticket-[redacted:pattern:"));
    }

    #[test]
    fn p_031_a_secret_across_every_chunk_border_is_found() {
        let redactor = redactor();
        let pad = "lorem ipsum ".repeat(1500);
        let text = format!("{pad}{TOKEN}{pad}ghs_12345_eyJhbGciOi.eyJzdWIiOi.SENTINELSENTINEL {pad}");
        let whole = redactor.redact(&text).unwrap().into_owned();
        let secret_at = pad.len();
        for border in (secret_at - 2..secret_at + TOKEN.len() + 2).chain([1, 100, text.len() - 1]) {
            let mut stream = redactor.stream();
            let mut out = stream.push(&text.as_bytes()[..border]);
            out.push_str(&stream.push(&text.as_bytes()[border..]));
            out.push_str(&stream.finish());
            assert_eq!(out, whole, "border {border}");
        }
        for size in [1, 7, 1000, 16 * 1024, 40_000] {
            let mut stream = redactor.stream();
            let mut out = String::new();
            for chunk in text.as_bytes().chunks(size) {
                out.push_str(&stream.push(chunk));
            }
            out.push_str(&stream.finish());
            assert_eq!(out, whole, "chunks of {size}");
        }
    }

    /// Ways to write a character so that a reader or a program has it back.
    fn disguised(c: char, way: u32) -> String {
        let code = u32::from(c);
        let mut bytes = [0; 4];
        let bytes = c.encode_utf8(&mut bytes).bytes();
        match way % 12 {
            0 => format!("{c}\u{200b}"),
            1 => format!("\u{ad}{c}"),
            2 => format!("{c}\u{fe0f}\u{e0041}"),
            3 => format!("\u{1b}[1m{c}\u{1b}[0m"),
            4 => format!("\u{0}{c}\u{85}"),
            5 => format!("\\u{code:04x}"),
            6 => format!("\\\\u{code:04X}"),
            7 => bytes.map(|byte| format!("%{byte:02x}")).collect(),
            8 => bytes.map(|byte| format!("%25{byte:02X}")).collect(),
            9 => format!("&#{code};\u{2060}"),
            10 => format!("\\u200b{c}\\ufeff"),
            _ => c.to_string(),
        }
    }

    static REDACTOR: std::sync::LazyLock<Redactor> = std::sync::LazyLock::new(redactor);

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 60, ..Default::default() })]

        #[test]
        fn p_031_no_disguise_hides_a_secret(
            ways in proptest::collection::vec(0_u32..14, 1..40),
            shaped in proptest::bool::ANY,
            before in "[a-z\u{200b}\\\\% ]{0,8}",
            after in "[ \u{ad}&#;\\n][a-z\u{200b}\\\\% ]{0,8}",
        ) {
            let secret = if shaped { "ghp_SENTINELsentinel0123456789" } else { TOKEN };
            let hidden: String =
                secret.chars().enumerate().map(|(at, c)| disguised(c, ways[at % ways.len()])).collect();
            let text = format!("{before} {hidden}{after}");
            let redactor = &*REDACTOR;
            let out = redactor.redact(&text).unwrap().into_owned();
            for view in [out.clone()].into_iter().chain(disguise::views(&out, 6).all.into_iter().map(|v| v.text)) {
                proptest::prop_assert!(!view.contains(secret), "{text:?} -> {out:?}");
            }
            proptest::prop_assert!(out.contains("[redacted:"), "{text:?} -> {out:?}");
            proptest::prop_assert_eq!(redactor.redact(&out).unwrap(), out.as_str());
            let json = json!({ "a": ["\u{1b}]", &text] });
            proptest::prop_assert!(!redactor.is_clean_json(json.to_string().as_bytes()), "{json}");
            let mut stream = redactor.stream();
            let whole = format!("{}{text}{}", "pad ".repeat(9000), "end ".repeat(9000));
            let mut streamed = String::new();
            for chunk in whole.as_bytes().chunks(ways.len() * 97) {
                streamed.push_str(&stream.push(chunk));
            }
            streamed.push_str(&stream.finish());
            proptest::prop_assert_eq!(streamed, redactor.redact(&whole).unwrap());
        }

        #[test]
        fn p_031_a_text_without_secrets_stays_as_it_is(text in "(?s)[a-z\u{200b}\u{1b}\\\\%&#;0-9\\[\\]u ]{0,80}") {
            proptest::prop_assert_eq!(REDACTOR.redact(&text).unwrap(), text.as_str());
        }
    }

    #[test]
    fn p_031_a_secret_that_has_hidden_characters_itself_is_found_with_and_without_them() {
        let value = "pass\u{ad}word\u{200b}-of-mine";
        let secrets = vec![KnownSecret { kind: "k".into(), value: value.into() }];
        let redactor = Redactor::new([1; 32], secrets, &[]).unwrap();
        for text in [value, "password-of-mine", "pass\u{2060}word-of-mine", "password%2Dof-mine"] {
            assert!(redactor.redact(text).unwrap().starts_with("[redacted:k:"), "{text}");
        }
    }

    #[test]
    fn p_031_a_million_hidden_characters_do_not_part_a_secret_in_a_stream() {
        let redactor = redactor();
        let mut stream = redactor.stream();
        let mut out = stream.push(b"s3cr3t");
        for _ in 0..50 {
            out.push_str(&stream.push("\u{200b}".repeat(20_000).as_bytes()));
        }
        out.push_str(&stream.push(b"/Token+with=odd chars"));
        out.push_str(&stream.finish());
        assert!(out.contains("[redacted:my_token:") && !out.contains("s3cr3t"), "{} bytes", out.len());
    }

    #[test]
    fn p_031_looking_for_disguises_takes_no_longer_than_the_text_is_long() {
        let redactor = redactor();
        for part in ["\u{200b}a", "\u{1b}]", "\\\\u00", "%25", "&#", "\u{1b}[0m\\_", "ghp_\u{ad}"] {
            let text = part.repeat(100_000);
            let begun = std::time::Instant::now();
            redactor.redact(&text).unwrap();
            // Some tenths of a second; minutes, where each part were compared with all others.
            assert!(begun.elapsed().as_secs() < 20, "{part:?}: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn a_stream_keeps_characters_that_chunks_cut_and_replaces_bytes_that_are_none() {
        let redactor = redactor();
        let mut stream = redactor.stream();
        let mut out = String::new();
        for byte in "a€😀".bytes().chain([0xff, b'z', 0xe2, 0x82]) {
            out.push_str(&stream.push(&[byte]));
        }
        out.push_str(&stream.finish());
        assert_eq!(out, "a€😀\u{fffd}z\u{fffd}");
    }

    #[test]
    fn patterns_that_match_nothing_or_cannot_be_read_are_refused() {
        assert!(matches!(Redactor::new([0; 32], vec![], &["a*".into()]), Err(PatternError::Empty(_))));
        assert!(matches!(Redactor::new([0; 32], vec![], &["(".into()]), Err(PatternError::Malformed { .. })));
    }

    #[test]
    fn what_is_too_long_fails_instead_of_passing() {
        let text = " ".repeat(LONGEST_TEXT + 1);
        assert_eq!(redactor().redact(&text), Err(RedactionFailed::TooLong(text.len())));
    }
}
