//! Keys whose feature this version does not have: set to anything but their default they are errors, never ignored.

use super::error::ConfigError;
use super::load::defaults;
use super::source_format::Source;
use super::tree::{Tree, leaves_of};

/// Key (`[]` for any index, `*` for any name; a table stands for all below it) and what is missing.
const NOT_YET: &[(&str, &str)] = &[
    ("session.inline_payload_max_bytes", "the limit is fixed"),
    ("session.loop_guard", "the loop guard's numbers are fixed"),
    ("session.read_page_lines", "pages are fixed at 500 lines"),
    ("session.schema_repair_attempts", "attempts are those of session.max_retries"),
];

/// Every set key that is in the table.
pub(super) fn check(tree: &Tree) -> Result<(), ConfigError> {
    let defaults = defaults()?;
    let defaults = leaves_of(&defaults);
    let mut found = Vec::new();
    for (key, value) in tree.leaves() {
        let Some((_, what)) = NOT_YET.iter().find(|(pattern, _)| is_covered(&key, pattern)) else { continue };
        let source = tree.source(&key);
        let is_default = defaults.iter().any(|(known, default)| *known == key && value == *default);
        if source != Source::Default && !is_default {
            found.push(ConfigError::NotYet { at: source, key, what });
        }
    }
    ConfigError::all(found)
}

/// Whether a key's path lies at or under a pattern.
fn is_covered(key: &str, pattern: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.replace('[', ".[").split('.').map(str::to_owned).collect::<Vec<_>>()
    };
    let (key, pattern) = (parts(key), parts(pattern));
    key.len() >= pattern.len()
        && key.iter().zip(&pattern).all(|(name, pattern)| {
            name == pattern || pattern == "*" || (pattern == "[]" && name.starts_with('['))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_what_is_below_them() {
        assert!(is_covered("session.queues.slow.size", "session.queues.*"));
        assert!(is_covered("session.targets[3].temperature", "session.targets[].temperature"));
        assert!(!is_covered("record.sink", "record.sinks"));
        assert!(!is_covered("session", "session.queues.*"));
    }
}
