//! Blocks by which the oldest flows act on their issue: `{"action": "close", "issue": 7}`, fenced as `issue-action`.

use serde_json::Value;

/// The word after the fence.
const FENCE: &str = "issue-action";

/// What a text asks to be done with the issue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actions {
    /// Whether the issue is to be closed.
    pub closes: bool,
    /// Other actions; nothing does them.
    pub others: Vec<String>,
}

/// Reads the blocks of a text. It passes over blocks for another issue and blocks that are not JSON.
pub fn actions(text: &str, issue: Option<u64>) -> Actions {
    let mut found = Actions::default();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let fence = line.trim().strip_prefix("```");
        match (&mut block, fence) {
            (None, Some(word)) if word.trim() == FENCE => block = Some(String::new()),
            (Some(inside), None) => inside.extend([line, "\n"]),
            (Some(_), Some(_)) => {
                let action: Value =
                    serde_json::from_str(&block.take().unwrap_or_default()).unwrap_or_default();
                let own = action.get("issue").is_none_or(|named| named.as_u64() == issue);
                match action["action"].as_str() {
                    Some("close") if own => found.closes = true,
                    Some(other) if own && !found.others.iter().any(|known| known == other) => {
                        found.others.push(other.to_owned());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_block_about_this_issue_closes_it() {
        let block = |inside: &str| format!("Done.\n\n```issue-action\n{inside}\n```\n");
        assert!(actions(&block(r#"{"action": "close", "issue": 7, "body": "x"}"#), Some(7)).closes);
        assert!(actions(&block(r#"{"action": "close"}"#), Some(7)).closes);
        for no in [
            block(r#"{"action": "close", "issue": 8}"#),
            block("close"),
            r#"```json
{"action": "close", "issue": 7}
```"#
                .to_owned(),
            "```issue-action\n{\"action\": \"close\"}\n".to_owned(),
        ] {
            assert!(!actions(&no, Some(7)).closes, "{no}");
        }
        let asks = block(r#"{"action": "question", "issue": 7}"#);
        assert_eq!(actions(&asks, Some(7)).others, ["question"]);
    }
}
