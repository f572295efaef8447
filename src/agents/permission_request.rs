//! What programs ask to be allowed, in the words of agentd's own tools, so that the same rules answer it.

use serde_json::{Value, json};

use crate::engine::agent_tools::PermissionRequest;

/// Name of agentd's tools in programs' configurations.
pub(super) const SERVER: &str = "agentd";
/// The tool that Claude Code asks before it uses one of its own.
pub(super) const PERMISSION: &str = "permission";

/// An edit of a file.
pub fn edit(path: &str) -> PermissionRequest {
    PermissionRequest::new("write_file", json!({"path": path, "content": ""}))
}

/// A look at a file.
pub(super) fn read(path: &str) -> PermissionRequest {
    PermissionRequest::new("read_file", json!({"path": path}))
}

/// A command.
pub(super) fn command(command: &Value) -> PermissionRequest {
    let argv = match command {
        Value::String(line) => argv_of(line),
        words => words.clone(),
    };
    PermissionRequest::new("run_command", json!({"argv": argv}))
}

/// A shell line as an argument list. Plain words stay as they are; everything else is left to the shell.
fn argv_of(line: &str) -> Value {
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_./:,@%+-".contains(c));
    let words: Vec<&str> = line.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    // Words that a shell knows itself stand alone only there.
    let own = [
        "cd", "exec", "eval", "export", "source", ".", "alias", "command", "builtin", "env", "if", "while",
        "for",
    ];
    let first = words.first().copied().unwrap_or_default();
    if words.iter().all(|word| plain(word)) && !words.is_empty() && !own.contains(&first) {
        json!(words)
    } else {
        json!(["sh", "-c", line])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_is_its_words_and_anything_else_is_a_shells() {
        assert_eq!(argv_of("cargo test --lib a::b"), json!(["cargo", "test", "--lib", "a::b"]));
        for line in [
            "cargo test; rm -rf x",
            "cat $HOME/x",
            "A=b make",
            "echo `id`",
            "ls *",
            "make\nid",
            "~/x",
            "cd x",
        ] {
            assert_eq!(argv_of(line), json!(["sh", "-c", line]), "{line}");
        }
        assert_eq!(argv_of(""), json!(["sh", "-c", ""]));
    }
}
