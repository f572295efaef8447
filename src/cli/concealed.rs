//! What no line of this process may show: the secrets of the configurations that it read. Both what it prints and what it
//! logs go through here (S-047, S-048).

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::config::Config;
use crate::domain::redaction::{KnownSecret, Redactor};

/// Told in place of what cannot be redacted.
const UNTOLD: &str = "[a text that cannot be redacted]\n";

static HIDDEN: Mutex<Hidden> =
    Mutex::new(Hidden { secrets: Vec::new(), patterns: Vec::new(), redactor: None });

struct Hidden {
    secrets: Vec<KnownSecret>,
    patterns: Vec<String>,
    /// Made at the first text after something was added.
    redactor: Option<Arc<Redactor>>,
}

/// From here on nothing shows a secret of this configuration or a match of its patterns.
pub fn conceal(config: &Config) {
    learn(config.concealed_values(), &config.redaction.patterns);
}

fn learn(secrets: Vec<KnownSecret>, patterns: &[String]) {
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    for secret in secrets {
        if hidden.secrets.iter().all(|known| known.value != secret.value) {
            hidden.secrets.push(secret);
        }
    }
    for pattern in patterns {
        if !hidden.patterns.contains(pattern) {
            hidden.patterns.push(pattern.clone());
        }
    }
    hidden.redactor = None;
}

/// A text without what is concealed, and without what has the shape of a secret.
pub fn text(text: &str) -> Cow<'_, str> {
    let Some(redactor) = redactor() else { return Cow::Borrowed(UNTOLD) };
    match redactor.redact(text) {
        Ok(Cow::Borrowed(_)) => Cow::Borrowed(text),
        Ok(Cow::Owned(clean)) => Cow::Owned(clean),
        Err(_) => Cow::Borrowed(UNTOLD),
    }
}

/// The same for the values of a JSON document, of which `json` is the text. `None`: it is clean as it is.
pub fn json(json: &str) -> Option<Value> {
    let redactor = redactor();
    if redactor.as_ref().is_some_and(|redactor| redactor.is_clean_json(json.as_bytes())) {
        return None;
    }
    let value: Option<Value> = serde_json::from_str(json).ok();
    let clean = redactor.zip(value).and_then(|(redactor, value)| redactor.redact_record(&value).ok());
    Some(clean.unwrap_or_else(|| Value::from(UNTOLD.trim_end())))
}

fn redactor() -> Option<Arc<Redactor>> {
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    if hidden.redactor.is_none() {
        let mut key = [0; 32];
        key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        // A pattern that is none is told, and refused, where the configuration is checked.
        let made = Redactor::new(key, hidden.secrets.clone(), &hidden.patterns)
            .or_else(|_| Redactor::new(key, hidden.secrets.clone(), &[]));
        hidden.redactor = made.ok().map(Arc::new);
    }
    hidden.redactor.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_047_s_048_what_is_printed_has_no_secret_of_the_configuration() {
        let secret = |value: &str| KnownSecret { kind: "KEY".to_owned(), value: value.to_owned() };
        learn(vec![secret("c0ncealed/Secret with blanks")], &["[".to_owned()]);
        let told = text("at http://h/c0ncealed%2FSecret%20with%20blanks/mcp: refused");
        assert!(told.starts_with("at http://h/[redacted:key:") && told.ends_with("]/mcp: refused"), "{told}");
        assert!(matches!(text("nothing of it"), Cow::Borrowed("nothing of it")));
        assert_eq!(json("{\"b\": 1, \"a\": \"plain\"}"), None);
        let clean = json("{\"b\": 1, \"a\": \"c0ncealed/Secret with blanks\"}").unwrap().to_string();
        assert!(clean.starts_with("{\"b\":1,\"a\":\"[redacted:key:"), "{clean}");
    }
}
