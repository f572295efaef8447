//! Redaction: known secrets and things shaped like secrets are replaced before anything is kept or shown (P-031).

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use hmac::{Hmac, Mac as _};
use regex::{Captures, Regex};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::Sha256;

use super::secret_shapes::{self, KNOWN, PatternError, SHAPES, Scout, bit, compile};
use super::{disguise, secret_forms};

/// Secrets shorter than this are not looked for by value, because they would match ordinary words.
pub const SHORTEST_SECRET: usize = 8;
/// The longest text that is redacted in one piece, in bytes. A longer one fails, and what fails is dropped.
pub const LONGEST_TEXT: usize = 64 * 1024 * 1024;

/// A secret known by its value.
#[derive(Clone)]
pub struct KnownSecret {
    /// Its kind, for the replacement: `github_token`, or the name of a variable.
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
}

/// Replaces secrets by `[redacted:<kind>:<8 hex>]`. Equal secrets have equal marks within a run. The key for the marks
/// belongs to the run.
pub struct Redactor {
    key: [u8; 32],
    exact: Option<Regex>,
    owners: HashMap<String, usize>,
    secrets: Vec<KnownSecret>,
    /// Those of the configuration.
    patterns: Vec<Regex>,
    scout: Scout,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets, {} patterns)", self.secrets.len(), self.patterns.len())
    }
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
            // A secret may have hidden characters itself. It is then looked for without them too, because views have
            // none.
            for value in [Some(value.to_owned()), disguise::shown(value)].into_iter().flatten() {
                for form in secret_forms::of(&value, SHORTEST_SECRET) {
                    owners.entry(form).or_insert(index);
                }
            }
        }
        let mut needles: Vec<&String> = owners.keys().collect();
        // Longest first: the alternation takes the first that fits.
        needles.sort_by_key(|needle| (std::cmp::Reverse(needle.len()), *needle));
        let exact = match needles.iter().map(|needle| regex::escape(needle)).collect::<Vec<_>>() {
            none if none.is_empty() => None,
            escaped => Some(compile("known secrets", &escaped.join("|"))?),
        };
        let scout = Scout::new(&needles, !patterns.is_empty())?;
        let own = patterns.iter().map(|pattern| {
            let regex = compile(pattern, pattern)?;
            if regex.is_match("") {
                return Err(PatternError::Empty(pattern.clone()));
            }
            Ok(regex)
        });
        Ok(Self { key, exact, owners, secrets, patterns: own.collect::<Result<_, _>>()?, scout })
    }

    /// Replaces every secret in a text. Redacting twice changes nothing more.
    pub fn redact<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, RedactionFailed> {
        if text.len() > LONGEST_TEXT {
            return Err(RedactionFailed::TooLong(text.len()));
        }
        Ok(self.replace(text, self.patterns_len()))
    }

    /// Whether a JSON text has nothing to replace in its texts, names and numbers, as [`Redactor::redact_json`] sees
    /// them. It may say `false` about a clean text. `json` is written by `serde_json`.
    pub fn is_clean_json(&self, json: &[u8]) -> bool {
        if json.len() > LONGEST_TEXT || self.scout.look(json) != 0 {
            return false;
        }
        if !disguise::may_hide(json) {
            return true;
        }
        // Here the escapes of a text are one level deeper, and a sequence for a terminal may go on in the next text.
        std::str::from_utf8(json).is_ok_and(|json| {
            let views = disguise::views(json, disguise::DEEPEST + 1);
            !views.sequences && views.all.iter().all(|view| self.scout.look(&view.text) == 0)
        })
    }

    /// With this many of the patterns.
    fn replace<'t>(&self, text: &'t str, patterns: usize) -> Cow<'t, str> {
        let plain = self.replace_plain(text, patterns);
        match self.replace_disguised(&plain, patterns) {
            Some(replaced) => Cow::Owned(replaced),
            None => plain,
        }
    }

    /// The text without the secrets that only a view of it shows. `None` = it has none.
    fn replace_disguised(&self, text: &str, patterns: usize) -> Option<String> {
        let mut found = self.disguised(text, patterns);
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

    /// Kind and expression by place: shapes first, then those of the configuration.
    fn pattern(&self, place: usize) -> (&str, &Regex) {
        match place.checked_sub(SHAPES.len()) {
            None => secret_shapes::shape(place),
            Some(own) => ("pattern", &self.patterns[own]),
        }
    }

    fn patterns_len(&self) -> usize {
        SHAPES.len() + self.patterns.len()
    }

    /// The places of secrets that only a view of the text shows, unsorted.
    fn disguised(&self, text: &str, patterns: usize) -> Vec<Disguised> {
        let mut all = Vec::new();
        for view in disguise::views(text, disguise::DEEPEST).all {
            let seen = self.scout.look(&view.text);
            if seen == 0 {
                continue;
            }
            for found in self.exact.iter().filter(|_| seen & KNOWN != 0).flat_map(|e| e.find_iter(&view.text))
            {
                let place = view.original(&found.range());
                all.push(Disguised { place, rank: 0, mark: self.mark_of(found.as_str()) });
            }
            for index in (0..patterns).filter(|index| seen & bit(*index) != 0) {
                let (kind, pattern) = self.pattern(index);
                for found in pattern.captures_iter(&view.text) {
                    let Some(secret) = found.name("s").or_else(|| found.get(0)) else { continue };
                    let place = view.original(&secret.range());
                    all.push(Disguised { place, rank: index + 1, mark: self.mark(kind, secret.as_str()) });
                }
            }
        }
        all
    }

    fn replace_plain<'t>(&self, text: &'t str, patterns: usize) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        let seen = self.scout.look(text);
        if let Some(exact) = self.exact.as_ref().filter(|_| seen & KNOWN != 0) {
            let mark = |found: &Captures<'_>| self.mark_of(&found[0]);
            if let Cow::Owned(replaced) = exact.replace_all(&out, mark) {
                out = Cow::Owned(replaced);
            }
        }
        for place in 0..patterns {
            // A mark may read like the beginning of something.
            if matches!(out, Cow::Borrowed(_)) && seen & bit(place) == 0 {
                continue;
            }
            let (kind, pattern) = self.pattern(place);
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

    /// The kind of a secret that is known by its value and stands in a text in any form. Shapes are not looked for.
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
        if self.is_clean(value) {
            Ok(value.clone())
        } else {
            self.redact_parts(value, &|_| self.patterns_len())
        }
    }

    /// The same of a line of agentd's own record, in which sessions' texts are redacted already: its numbers, and texts that are a hash, an
    /// id, a time or the name of a file, stay what agentd reads again, whatever the patterns of the configuration fit. Secrets do not.
    pub fn redact_record(&self, value: &Value) -> Result<Value, RedactionFailed> {
        let patterns = |text: &str| if is_of_record(text) { SHAPES.len() } else { self.patterns_len() };
        if self.is_clean(value) { Ok(value.clone()) } else { self.redact_parts(value, &patterns) }
    }

    /// The same without the patterns of the configuration.
    pub fn redact_secrets(&self, value: &Value) -> Result<Value, RedactionFailed> {
        self.redact_parts(value, &|_| SHAPES.len())
    }

    /// `patterns`: how many of them apply to a text.
    fn redact_parts(
        &self,
        value: &Value,
        patterns: &dyn Fn(&str) -> usize,
    ) -> Result<Value, RedactionFailed> {
        let redact = |text: &str| match text.len() > LONGEST_TEXT {
            true => Err(RedactionFailed::TooLong(text.len())),
            false => Ok(self.replace(text, patterns(text)).into_owned()),
        };
        Ok(match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                let redacted = redact(&text)?;
                if redacted == text { value.clone() } else { Value::String(redacted) }
            }
            Value::String(text) => Value::String(redact(text)?),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.redact_parts(item, patterns));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let mut redacted = Map::new();
                for (name, value) in members {
                    redacted.insert(redact(name)?, self.redact_parts(value, patterns)?);
                }
                Value::Object(redacted)
            }
        })
    }
}

/// Whether a text is a number, a hash, an id, a time, or the name of a file that agentd keeps by one.
fn is_of_record(text: &str) -> bool {
    static OWN: LazyLock<Regex> = LazyLock::new(|| {
        let id = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        let name = format!("(?:{id}|[0-9a-f]{{7,64}}|[0-9a-z_.-]{{1,40}})");
        let forms = [
            r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?".to_owned(),
            r"(?:ev_|sha256:)?[0-9a-f]{7,64}".to_owned(),
            id.to_owned(),
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(?:Z|[+-][0-9]{2}:[0-9]{2})".to_owned(),
            r"agent-issue-[0-9A-Za-z_.-]{1,80}-[0-9]{8}T[0-9]{6}Z(?:-[0-9]+)?".to_owned(),
            format!("(?:[a-z_-]{{2,20}}/){{1,3}}{name}(?:\\.[a-z]{{1,5}}){{0,2}}"),
        ];
        #[expect(clippy::expect_used, reason = "a constant expression, which a test compiles")]
        Regex::new(&format!("^(?:{})$", forms.join("|"))).expect("the forms are an expression")
    });
    text.len() <= 200 && OWN.is_match(text)
}

/// A secret that only a view of a text shows.
struct Disguised {
    /// Where it stands in the text.
    place: Range<usize>,
    /// A known one comes before a shape.
    rank: usize,
    mark: String,
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
    fn p_031_a_key_in_letters_of_a_third_case_is_found_and_a_frequent_word_is_none() {
        let redactor = redactor();
        let kelvin = format!("AWS_SECRET_{}EY={}", '\u{212a}', "a1B2".repeat(10));
        assert_ne!(redactor.redact(&kelvin).unwrap(), kelvin);
        let shapes = Redactor::new([7; 32], Vec::new(), &[]).unwrap();
        assert!(shapes.is_clean_json(b"{\"guardrailName\":\"secret_leak\"}"), "it is in every session");
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

    /// Ways to write a character from which a reader or a program gets it back.
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

    static REDACTOR: LazyLock<Redactor> = LazyLock::new(redactor);

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
    fn p_031_looking_for_disguises_takes_no_longer_than_the_text_is_long() {
        let redactor = redactor();
        for part in ["\u{200b}a", "\u{1b}]", "\\\\u00", "%25", "&#", "\u{1b}[0m\\_", "ghp_\u{ad}"] {
            let text = part.repeat(100_000);
            let begun = std::time::Instant::now();
            redactor.redact(&text).unwrap();
            // This takes some tenths of a second. It would take minutes if each part were compared with all others.
            assert!(begun.elapsed().as_secs() < 20, "{part:?}: {:?}", begun.elapsed());
        }
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
