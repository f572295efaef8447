//! `search`: lines that match a regular expression.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regex::RegexBuilder;
use serde_json::{Value, json};

use super::arguments::{Arguments, invalid};
use super::files_below::visit;
use super::list_files::{existing, glob};
use super::page::Page;
use super::{Allowed, BuiltIn, ToolWorld, blocking};
use crate::domain::policy::Risk;
use crate::engine::tool::{ToolError, ToolOutput};

/// Files larger than this are no source that anyone greps.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Matches counted before the search ends.
const MAX_MATCHES: u64 = 10_000;
/// What to try when nothing was found (X-033).
const GUIDANCE: &str = "Nothing matches. Try: list_files to see what is there; another spelling or \"ignore_case\": \
true; a shorter, broader pattern; no \"path\" or \"glob\". The pattern is a regular expression: escape . ( ) [ ] { } \
* + ? | ^ $ \\ to mean the character itself. Ignored and binary files are not searched.";

pub(super) fn tool(world: &Arc<ToolWorld>) -> BuiltIn {
    let most = world.page_lines;
    BuiltIn::new(
        world,
        Risk::Read,
        |world, arguments, allowed| Box::pin(search(world, arguments, allowed)),
        "search",
        format!(
            "Searches the worktree's text files for a regular expression, ignored files left out. Each match is a line \
             path:number:text, at most {most} at a time. The first line of the result is JSON with lines_shown, \
             lines_remaining and has_more."
        ),
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "description": "Regular expression (no look-around)"},
                "path": {"type": "string", "description": "Directory or file, relative to the worktree; default ."},
                "glob": {"type": "string", "description": "Only paths that match, such as **/*.rs"},
                "ignore_case": {"type": "boolean"},
                "from_line": {"type": "integer", "minimum": 1, "description": "First match, default 1"},
                "max_lines": {"type": "integer", "minimum": 1, "maximum": most, "description": format!("Default {most}")}
            },
            "required": ["pattern"],
            "additionalProperties": false
        }),
    )
}

/// Tells the blocking part that nobody waits any more.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn search(world: Arc<ToolWorld>, arguments: Value, allowed: Allowed) -> Result<ToolOutput, ToolError> {
    let given = Arguments(&arguments);
    let pattern = RegexBuilder::new(given.text("pattern")?)
        .case_insensitive(given.flag("ignore_case")?)
        .build()
        .map_err(|error| invalid(format!("\"pattern\" is not a regular expression: {error}")))?;
    let start = existing(&world, given, &allowed.judged)?;
    let glob = glob(given)?;
    let mut page = Page::new(given, world.page_lines, allowed.limits)?;
    let abandoned = Arc::new(AtomicBool::new(false));
    let _abandon = Abandon(Arc::clone(&abandoned));
    blocking(move || {
        let left_out = visit(&world, &start, &allowed.denied, |found| {
            if !found.link && glob.as_ref().is_none_or(|glob| glob.is_match(&found.path)) {
                search_file(&world, &found.path, &pattern, &mut page);
            }
            !abandoned.load(Ordering::Relaxed) && page.seen() < MAX_MATCHES
        });
        let counted = page.seen() < MAX_MATCHES;
        let empty = page.seen() == 0;
        let mut output = page.finish(&[("matches_in", json!(start.relative()))], left_out, counted);
        if empty {
            output.text.push_str(GUIDANCE);
            output.text.push('\n');
        }
        Ok(output)
    })
    .await
}

fn search_file(world: &ToolWorld, path: &str, pattern: &regex::Regex, page: &mut Page) {
    // A file that cannot be read, or vanished, is passed over: the search is of what is there. So is one that a link leads to meanwhile.
    let Ok(place) = world.root.resolve(path) else { return };
    let Some(file) = Some(place).filter(|place| place.relative() == path).and_then(|place| place.open().ok())
    else {
        return;
    };
    if file.metadata().is_ok_and(|meta| meta.len() > MAX_FILE_BYTES) {
        return;
    }
    let mut reader = BufReader::new(file);
    if reader.fill_buf().is_ok_and(|probe| probe[..probe.len().min(8192)].contains(&0)) {
        return;
    }
    let mut number = 0;
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        number += 1;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if pattern.is_match(text) {
            page.push(|_| format!("{path}:{number}:"), text);
            if page.seen() >= MAX_MATCHES {
                return;
            }
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::world_for_tests::world;
    use super::*;

    #[tokio::test]
    async fn matches_come_with_path_and_line() {
        let place = world();
        place.write("src/a.rs", "fn one() {}\nfn two() {}\n");
        place.write("src/b.txt", "FN three\r\n");
        place.write("bin", b"fn\0");
        place.write(".gitignore", "ignored\n");
        place.write("ignored", "fn four");
        let found = place.call("search", json!({"pattern": r"^fn \w+"})).await.unwrap().text;
        assert!(found.ends_with("\nsrc/a.rs:1:fn one() {}\nsrc/a.rs:2:fn two() {}\n"), "{found}");
        let found = place
            .call("search", json!({"pattern": "fn", "ignore_case": true, "glob": "*.txt"}))
            .await
            .unwrap();
        assert!(found.text.ends_with("\nsrc/b.txt:1:FN three\n"), "{}", found.text);
        let found =
            place.call("search", json!({"pattern": "fn", "path": "src", "max_lines": 1})).await.unwrap();
        assert!(
            found.text.contains("\"lines_shown\":1,\"lines_remaining\":1,\"has_more\":true"),
            "{}",
            found.text
        );
    }

    #[tokio::test]
    async fn x_033_an_empty_search_says_what_to_try() {
        let place = world();
        place.write("a", "x");
        let found = place.call("search", json!({"pattern": "nothing"})).await.unwrap();
        assert!(
            found.text.contains("\"lines_shown\":0") && found.text.contains("broader pattern"),
            "{}",
            found.text
        );
        let error = place.call("search", json!({"pattern": "a("})).await.unwrap_err();
        assert!(
            matches!(&error, ToolError::ForModel { error_type, .. } if error_type == "Validation"),
            "{error:?}"
        );
    }
}
