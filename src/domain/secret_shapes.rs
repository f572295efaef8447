//! Shapes of secrets that agentd does not know by value, and a fast search for the shapes that a text can hold.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, packed};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

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

/// Shapes of keys: kind, words and expression. Every match of the expression contains one of the words, in any case, so
/// a text without them is not searched. If the expression ignores case, its words have no `s`, because that letter has
/// a third case; a word with a `k` is listed again with the third case of `k`. No word has a character that JSON
/// escapes. If a group is named `s`, only that group is replaced.
pub(super) const SHAPES: [(&str, &[&str], &str); 15] = [
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
        // Longer than "secret", because every session records that word.
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

/// The kind and expression of a shape. An expression is compiled when it is first needed, because most processes never
/// see a text with one of the words.
pub(super) fn shape(place: usize) -> (&'static str, &'static Regex) {
    static MADE: [OnceLock<Regex>; SHAPES.len()] = [const { OnceLock::new() }; SHAPES.len()];
    let (kind, _, expression) = SHAPES[place];
    #[expect(clippy::expect_used, reason = "they are constants, and a test makes each of them")]
    let make = || compile(expression, expression).expect("a shape is an expression");
    (kind, MADE[place].get_or_init(make))
}

/// Finds in one pass over a text which expressions of a redactor can match in it.
pub(super) struct Scout {
    /// A text without any of these has none of the words. The search looks at many bytes in one step. `None`: there are
    /// too many, or the processor cannot do this.
    pub hints: Option<packed::Searcher>,
    words: AhoCorasick,
    /// By word: the places of the expressions that need it.
    owners: Vec<u32>,
    /// Expressions without words: they can match anywhere.
    anywhere: u32,
}

/// The bit of the known secrets. Shape `n` has the bit `1 << n`, and all patterns of the configuration share the next
/// bit.
pub(super) const KNOWN: u32 = 1 << 31;
pub(super) const CONFIGURED: u32 = 1 << SHAPES.len();

impl Scout {
    /// `needles`: every form of the known secrets. `configured`: whether the configuration has patterns of its own.
    pub fn new(needles: &[&String], configured: bool) -> Result<Self, PatternError> {
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
    pub fn look(&self, text: impl AsRef<[u8]>) -> u32 {
        let text = text.as_ref();
        if self.hints.as_ref().is_some_and(|hints| hints.find(text).is_none()) {
            return self.anywhere;
        }
        self.words
            .find_overlapping_iter(text)
            .fold(self.anywhere, |seen, word| seen | self.owners[word.pattern().as_usize()])
    }
}

/// The three bytes of a word that are rarest in ordinary text and in names of members.
pub(super) fn rarest(word: &[u8]) -> &[u8] {
    let rank =
        |byte: &u8| b"etaoinsh_rdlcumwfgypbvkjxqz".iter().position(|common| common == byte).unwrap_or(27);
    word.windows(3).rev().max_by_key(|window| window.iter().map(rank).sum::<usize>()).unwrap_or(word)
}

/// Bytes with each letter in both cases.
pub(super) fn any_case(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.iter().fold(vec![Vec::new()], |begun, byte| {
        let both = BTreeSet::from([byte.to_ascii_lowercase(), byte.to_ascii_uppercase()]);
        begun
            .iter()
            .flat_map(|start| both.iter().map(move |byte| [start.as_slice(), &[*byte]].concat()))
            .collect()
    })
}

/// The bit of an expression, by its place: shapes first, then those of the configuration.
pub(super) fn bit(place: usize) -> u32 {
    if place < SHAPES.len() { 1 << place } else { CONFIGURED }
}

/// A regular expression by its name in errors.
pub(super) fn compile(name: &str, expression: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(expression)
        .size_limit(64 * 1024 * 1024)
        .build()
        .map_err(|error| PatternError::Malformed { pattern: name.to_owned(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_031_every_shape_is_found_by_its_words_alone() {
        let scout = Scout::new(&[], false).unwrap();
        let attacks = include_str!("../../tests/data/attacks/key_shapes.txt");
        for line in attacks.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let text = line.split_once('\t').unwrap().1.replace('⏎', "\n");
            for place in (0..SHAPES.len()).filter(|place| shape(*place).1.is_match(&text)) {
                assert_ne!(scout.look(&text) & bit(place), 0, "{}: {text}", SHAPES[place].0);
                let json = serde_json::json!({ "text": &text }).to_string();
                assert_ne!(scout.look(&json) & bit(place), 0, "{}: {json}", SHAPES[place].0);
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
    fn p_031_a_hint_of_every_word_is_found_in_any_case_that_counts() {
        assert_eq!(any_case(b"x-a"), [b"X-A", b"X-a", b"x-A", b"x-a"]);
        assert_eq!((rarest(b"authorization"), rarest(b"ecret")), (&b"riz"[..], &b"ecr"[..]));
        let secret = "s3cr3t/Token+with=odd chars".to_owned();
        let scout = Scout::new(&[&secret], false).unwrap();
        let hints = scout.hints.as_ref();
        let found = |text: &str| hints.is_none_or(|hints| hints.find(text).is_some());
        for (_, words, expression) in SHAPES {
            for word in words {
                assert!(found(word), "{word}");
                let shouted = word.to_ascii_uppercase();
                assert!(!expression.starts_with("(?i)") || found(&shouted), "{shouted}");
            }
        }
        assert!(hints.is_none() || !found("a text of no interest"), "or every text would be looked at twice");
    }
}
