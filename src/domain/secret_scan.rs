//! Finds secrets in lines that are about to be published: known ones, tokens by their shape, private keys, and values
//! of names such as `secret`.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexSet};

use super::redaction::Redactor;
use super::untrusted::is_hidden;

/// Shapes of the redactor that are not used here. The redactor hides too much rather than too little; the rules here
/// judge such lines instead. Most repositories have an address with a password in their documents or tests.
const SHAPES: [&str; 13] = [
    "github_token",
    "api_key",
    "aws_key_id",
    "aws_secret_key",
    "private_key",
    "jwt",
    "url_password",
    "url_token",
    "authorization",
    "gitlab_token",
    "slack_token",
    "npm_token",
    "webhook_url",
];

/// Shapes of tokens, as their issuers document them. A group `s` marks the part that may be a placeholder.
const RULES: &[(&str, &str)] = &[
    ("github_token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})"),
    ("gitlab_token", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas)-[A-Za-z0-9_\-]{20,}"),
    ("aws_key_id", r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z2-7]{16}\b"),
    ("anthropic_key", r"\bsk-ant-(?:api|admin)\d\d-[A-Za-z0-9_\-]{80,}"),
    ("openai_key", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_\-]{20,}T3BlbkFJ[A-Za-z0-9_\-]{20,}"),
    ("google_key", r"\bAIza[0-9A-Za-z_\-]{35}"),
    ("google_oauth_secret", r"\bGOCSPX-[A-Za-z0-9_\-]{28}"),
    ("google_refresh_token", r"\b1//0[A-Za-z0-9_\-]{40,}"),
    ("stripe_key", r"\b[rs]k_(?:live|prod)_[A-Za-z0-9]{20,}"),
    ("stripe_webhook_secret", r"\bwhsec_[A-Za-z0-9+/=]{32,}"),
    ("slack_token", r"\bxox[abeoprs]-(?:\d+-)?[A-Za-z0-9\-]{20,}"),
    ("slack_app_token", r"\bxapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}"),
    ("slack_webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9+/]{40,})"),
    ("discord_webhook", r"discord(?:app)?\.com/api/webhooks/\d{17,20}/(?P<s>[A-Za-z0-9_\-]{60,})"),
    ("telegram_token", r"\b\d{8,10}:AA[A-Za-z0-9_\-]{33}\b"),
    ("twilio_key", r"\bSK[0-9a-f]{32}\b"),
    ("sendgrid_key", r"\bSG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}"),
    ("mailgun_key", r"\bkey-[0-9a-f]{32}\b"),
    ("npm_token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi_token", r"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_\-]{50,}"),
    ("rubygems_key", r"\brubygems_[a-f0-9]{48}\b"),
    ("crates_token", r"\bcio[A-Za-z0-9]{32}\b"),
    ("docker_token", r"\bdckr_pat_[A-Za-z0-9_\-]{27}"),
    ("huggingface_token", r"\bhf_[A-Za-z]{34}\b"),
    ("digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    ("databricks_token", r"\bdapi[a-f0-9]{32}\b"),
    ("vault_token", r"\bhv[sbr]\.[A-Za-z0-9_\-]{24,}"),
    ("doppler_token", r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._\-]{40,}"),
    ("linear_key", r"\blin_api_[A-Za-z0-9]{40}"),
    ("notion_token", r"\b(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})\b"),
    ("shopify_token", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("square_token", r"\b(?:sq0atp-[A-Za-z0-9_\-]{22}|EAAA[A-Za-z0-9_\-]{60})"),
    ("grafana_token", r"\bgl(?:sa|c)_[A-Za-z0-9+/=_]{32,}"),
    ("new_relic_key", r"\bNRAK-[A-Z0-9]{27}\b"),
    ("planetscale_token", r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.\-]{32,}"),
    ("supabase_key", r"\bsb[ps]_[a-f0-9]{40}\b"),
    ("age_key", r"\bAGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    ("azure_storage_key", r"(?i)AccountKey\s*=\s*(?P<s>[A-Za-z0-9+/]{86}==)"),
    ("jwt", r"\beyJ[A-Za-z0-9_\-]{16,}\.eyJ[A-Za-z0-9_\-]{16,}\.(?P<s>[A-Za-z0-9_\-]{32,})"),
    (
        "aws_secret_key",
        r#"(?i)aws_?(?:secret_?)(?:access_?)?key["'\s]*[:=]+>?["'\s]*(?P<s>[A-Za-z0-9/+]{40})\b"#,
    ),
    (
        "authorization",
        r#"(?i)\bauthorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+(?P<s>[A-Za-z0-9._~+/=\-]{24,})"#,
    ),
];

/// A name that says secret, and what is assigned to it.
const ASSIGNED: &str = concat!(
    r"(?i)(?P<n>[A-Za-z0-9_.\-]*(?:secret|token|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|",
    r#"client[_-]?key|credential)[A-Za-z0-9_.\-]*)["'`\]]*\s*(?::=|=>|:|=)\s*["'`]?(?P<s>[A-Za-z0-9+/=_\-.~!@#%^&*]{16,})"#,
);
/// Words in a name that say that its value is meant to be seen.
const HARMLESS_NAMES: [&str; 12] = [
    "public", "hash", "digest", "sha", "checksum", "length", "count", "limit", "name", "path", "url",
    "pattern",
];
/// Least bits a character of what is assigned.
const ASSIGNED_ENTROPY: f64 = 3.7;
/// The least entropy, in bits for each character, of a token with a known shape. Words and counted digits have less.
const TOKEN_ENTROPY: f64 = 3.0;
/// Words that say that something only stands for a secret.
const PLACEHOLDERS: [&str; 13] = [
    "example",
    "xxxx",
    "****",
    "....",
    "placeholder",
    "changeme",
    "change-me",
    "dummy",
    "redacted",
    "sample",
    "fake",
    "1234567890",
    "abcdefghij",
];
/// The first line of a private key, and how many of the next lines show whether a key follows.
const KEY_BEGINS: &str = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----";
const KEY_BODY: &str = r"[A-Za-z0-9+/]{40,}";
const LINES_TO_KEY: usize = 6;

/// What a line is found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// A secret that agentd knows by its value, or what the operator's patterns describe.
    Known,
    /// It looks like one.
    Shape,
}

struct Compiled {
    any: RegexSet,
    rules: Vec<Regex>,
    assigned: Regex,
    key_begins: Regex,
    key_body: Regex,
}

/// Every expression of this file, compiled once. They are fixed and a test compiles them, so `None` does not occur.
fn compiled() -> Option<&'static Compiled> {
    static COMPILED: OnceLock<Option<Compiled>> = OnceLock::new();
    let compile = || {
        let rules = RULES.iter().map(|(_, rule)| Regex::new(rule)).collect::<Result<Vec<_>, _>>().ok()?;
        Some(Compiled {
            any: RegexSet::new(RULES.iter().map(|(_, rule)| rule)).ok()?,
            rules,
            assigned: Regex::new(ASSIGNED).ok()?,
            key_begins: Regex::new(KEY_BEGINS).ok()?,
            key_body: Regex::new(KEY_BODY).ok()?,
        })
    };
    COMPILED.get_or_init(compile).as_ref()
}

/// Looks for secrets in text that is to be published.
#[derive(Debug, Clone)]
pub struct SecretScan {
    redactor: Arc<Redactor>,
}

impl SecretScan {
    /// With the secrets that a run knows.
    pub fn new(redactor: &Arc<Redactor>) -> Self {
        Self { redactor: Arc::clone(redactor) }
    }

    /// The numbers of the lines that hold a secret, with the rule that found it. The secret is not in it.
    pub fn lines(&self, lines: &[(u32, &str)]) -> Vec<(u32, String, Certainty)> {
        let mut found = Vec::new();
        for (at, (number, line)) in lines.iter().enumerate() {
            let further: Vec<&str> =
                lines[at + 1..].iter().take(LINES_TO_KEY).map(|(_, line)| *line).collect();
            if let Some((rule, certainty)) = self.line(line, &further) {
                found.push((*number, rule, certainty));
            }
        }
        // A secret of several lines is known by all of them together.
        if found.is_empty() && lines.len() > 1 {
            let whole = lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
            if let Some(rule) = self.known(&whole) {
                found.push((lines[0].0, rule, Certainty::Known));
            }
        }
        found
    }

    /// The rule that a line breaks. `further` has the lines after it.
    fn line(&self, line: &str, further: &[&str]) -> Option<(String, Certainty)> {
        if let Some(rule) = self.known(line) {
            return Some((rule, Certainty::Known));
        }
        let Some(compiled) = compiled() else {
            return Some(("unreadable_rules".to_owned(), Certainty::Known));
        };
        let shape = |rule: &str| Some((rule.to_owned(), Certainty::Shape));
        for at in compiled.any.matches(line) {
            let (Some(rule), Some((name, _))) = (compiled.rules.get(at), RULES.get(at)) else { continue };
            let real = rule.captures_iter(line).any(|found| {
                let secret = found.name("s").or(found.get(0)).map_or("", |found| found.as_str());
                !is_placeholder(secret) && entropy(secret) >= TOKEN_ENTROPY
            });
            if real {
                return shape(name);
            }
        }
        if let Some(begins) = compiled.key_begins.find(line) {
            let same = &line[begins.end()..];
            if std::iter::once(&same).chain(further).any(|text| compiled.key_body.is_match(text)) {
                return shape("private_key");
            }
        }
        compiled
            .assigned
            .captures_iter(line)
            .any(|found| is_assigned_secret(&found["n"], &found["s"]))
            .then_some(())?;
        shape("assigned_secret")
    }

    /// The kind of a secret in a text that the run knows or that the operator's patterns describe.
    fn known(&self, text: &str) -> Option<String> {
        let plain: String = text.chars().filter(|c| !is_hidden(*c)).collect();
        for text in [text, plain.as_str()] {
            if let Some(kind) = self.redactor.known_kind(text) {
                return Some(kind.to_owned());
            }
            let Ok(clean) = self.redactor.redact(text) else { return Some("too_long_to_look_at".to_owned()) };
            if clean != text
                && let Some(kind) = kinds(&clean).find(|kind| !kinds(text).any(|there| there == *kind))
                && !SHAPES.contains(&kind)
            {
                return Some(kind.to_owned());
            }
        }
        None
    }
}

/// The kinds of the marks in a redacted text.
fn kinds(clean: &str) -> impl Iterator<Item = &str> {
    clean.split("[redacted:").skip(1).filter_map(|mark| Some(mark.split_once(']')?.0.rsplit_once(':')?.0))
}

fn is_placeholder(secret: &str) -> bool {
    let lower = secret.to_lowercase();
    PLACEHOLDERS.iter().any(|word| lower.contains(word))
}

fn is_assigned_secret(name: &str, value: &str) -> bool {
    let name = name.to_lowercase();
    let value = value.trim_end_matches(['.', '=', '!', '#', '*', '&']);
    let both = value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic());
    // Names in code consist of separate words: `crate.session_token_for_2_hosts`.
    let words = value.split(['.', '_', '-', '/']).filter(|word| word.len() > 1).count();
    let wordy = words > 2 && value.split(['.', '_', '-', '/']).all(|word| word.len() < 12);
    both && !wordy
        && !HARMLESS_NAMES.iter().any(|word| name.contains(word))
        && !is_placeholder(value)
        && entropy(value) >= ASSIGNED_ENTROPY
}

/// Bits a character, by how often each is there.
fn entropy(text: &str) -> f64 {
    let mut counts = [0u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length = text.len().max(1) as f64;
    let share = |count: &u32| f64::from(*count) / length;
    counts.iter().filter(|count| **count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::redaction::KnownSecret;

    fn scan() -> SecretScan {
        let known = KnownSecret { kind: "github_token".into(), value: "the-known-example-token".into() };
        let redactor = Redactor::new([7; 32], vec![known], &[r"ticket-\d{4}".to_owned()]).unwrap();
        SecretScan::new(&Arc::new(redactor))
    }

    fn rule(line: &str) -> Option<String> {
        scan().line(line, &[]).map(|(rule, _)| rule)
    }

    #[test]
    fn every_rule_is_readable() {
        assert_eq!(compiled().unwrap().rules.len(), RULES.len());
    }

    #[test]
    fn lines_of_the_table_are_found_or_left() {
        let table = include_str!("../../tests/data/attacks/published_secrets.txt");
        let mut seen = 0;
        for line in table.lines().filter(|line| !line.starts_with("## ") && !line.is_empty()) {
            let (wanted, text) = line.split_once('\t').unwrap();
            // It is split in the table, so that no scanner takes it for a real one.
            let text = text.replace('\u{2e22}', "");
            let found = rule(&text).unwrap_or_else(|| "none".to_owned());
            assert_eq!(found, wanted, "{text}");
            seen += 1;
        }
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn a_known_secret_is_found_whatever_words_it_has_and_behind_hidden_characters() {
        for text in ["x the-known-example-token y", "the-\u{200b}known-example-\u{2060}token", "ticket-1234"]
        {
            assert!(matches!(scan().line(text, &[]), Some((_, Certainty::Known))), "{text}");
        }
    }

    #[test]
    fn a_private_key_is_one_where_a_key_follows() {
        let body = "MIIEowIBAAKCAQEAzQ0r7o8m1k2l3j4h5g6f7d8s9a0qwertyuiopZXCVBNM";
        let key = [
            (4, "-----BEGIN RSA PRIVATE KEY-----"),
            (5, ""),
            (6, body),
            (7, "-----END RSA PRIVATE KEY-----"),
        ];
        assert_eq!(scan().lines(&key), [(4, "private_key".to_owned(), Certainty::Shape)]);
        assert_eq!(scan().lines(&[(1, "if text.contains(\"-----BEGIN PRIVATE KEY-----\") {"), (2, "}")]), []);
    }
}
