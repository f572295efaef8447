//! `write_file` and `edit_file`: whole files, and exact replacements. Line endings and modes stay.

use std::io::Read as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::arguments::{Arguments, invalid};
use super::{Allowed, BuiltIn, ToolWorld, blocking, path_error};
use crate::domain::canonical::sha256_hex;
use crate::domain::policy::Risk;
use crate::engine::tool::{ToolError, ToolOutput};
use crate::sys::worktree_path::WorktreePath;

/// Files larger than this are not edited by replacing text.
const MAX_EDITED_BYTES: u64 = 16 * 1024 * 1024;
/// Most pairs of lines that are compared to count what an edit changed; with more, all of its lines count.
const MOST_COMPARED: usize = 1_000_000;

pub(super) fn write_tool(world: &Arc<ToolWorld>) -> BuiltIn {
    BuiltIn::new(
        world,
        Risk::Write,
        |world, arguments, allowed| Box::pin(write(world, arguments, allowed)),
        "write_file",
        "Writes a whole file of the worktree, new or over an old one; missing directories are made. To change part of \
         a file, use edit_file.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Relative to the worktree, with /"},
                "content": {"type": "string", "description": "The file's whole content"}
            },
            "required": ["path", "content"],
            "additionalProperties": false
        }),
    )
}

pub(super) fn edit_tool(world: &Arc<ToolWorld>) -> BuiltIn {
    BuiltIn::new(
        world,
        Risk::Write,
        |world, arguments, allowed| Box::pin(edit(world, arguments, allowed)),
        "edit_file",
        "Replaces one piece of text in a file of the worktree. \"old\" must stand in the file exactly once, character \
         by character (without the line numbers that read_file shows); give enough lines around it to make it unique.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Relative to the worktree, with /"},
                "old": {"type": "string", "minLength": 1, "description": "Text that is there, exactly once"},
                "new": {"type": "string", "description": "Text to put in its place; empty removes it"}
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false
        }),
    )
}

async fn write(world: Arc<ToolWorld>, arguments: Value, allowed: Allowed) -> Result<ToolOutput, ToolError> {
    let given = Arguments(&arguments);
    let path = world.resolve(given.text("path")?, &allowed.judged)?;
    let content = given.text("content")?.to_owned();
    blocking(move || {
        let before = if path.absolute().as_path().is_file() { content_of(&path)? } else { Vec::new() };
        let content = if uses_crlf(&before) && !content.contains('\r') { to_crlf(&content) } else { content };
        let new = path.replace(content.as_bytes()).map_err(path_error)?;
        let (name, bytes, lines) = (path.relative(), content.len(), content.lines().count());
        let done = if new { "created" } else { "wrote" };
        let sha256 = sha256_hex(content.as_bytes());
        let facts = json!({"path": name, "created": new, "bytes": bytes, "lines": lines, "sha256": sha256});
        Ok(ToolOutput {
            text: format!("{done} {name} ({lines} lines, {bytes} bytes)"),
            exit_code: None,
            facts: Some(facts),
        })
    })
    .await
}

async fn edit(world: Arc<ToolWorld>, arguments: Value, allowed: Allowed) -> Result<ToolOutput, ToolError> {
    let given = Arguments(&arguments);
    let path = world.resolve(given.text("path")?, &allowed.judged)?;
    let (old, new) = (given.text("old")?.to_owned(), given.text("new")?.to_owned());
    if old.is_empty() {
        return Err(invalid("\"old\" is empty; to write a whole file, use write_file"));
    }
    if old == new {
        return Err(invalid("\"old\" and \"new\" are the same; nothing would change"));
    }
    blocking(move || {
        let content = content_of(&path)?;
        let (at, old, new) = find_once(&content, &path.relative(), old, new)?;
        let mut changed = content[..at].to_vec();
        changed.extend_from_slice(new.as_bytes());
        changed.extend_from_slice(&content[at + old.len()..]);
        path.replace(&changed).map_err(path_error)?;
        let line = line_at(&content, at);
        let (removed, added) = (old.lines().count(), new.lines().count());
        let name = path.relative();
        let text = format!("edited {name} at line {line} ({removed} lines replaced by {added})");
        // The model names lines around what it changes, to be understood; they stay.
        let (removed, added) = changed_lines(&content, &changed, at, old.len());
        // What is approved of an edit is the change of what stood there then, and not the rest of the file.
        let facts = json!({
            "path": name, "line": line, "lines_removed": removed, "lines_added": added, "sha256_before": sha256_hex(&content),
            "sha256": sha256_hex(&changed),
        });
        Ok(ToolOutput { text, exit_code: None, facts: Some(facts) })
    })
    .await
}

/// Lines that an edit of `length` bytes at a place removed, and lines that it added: those of a shortest difference.
fn changed_lines(before: &[u8], after: &[u8], at: usize, length: usize) -> (usize, usize) {
    let start = before[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let rest = before.len() - (at + length);
    let tail = before[at + length..].iter().position(|byte| *byte == b'\n').map_or(0, |end| rest - end - 1);
    let (old, new) = (lines(&before[start..before.len() - tail]), lines(&after[start..after.len() - tail]));
    let kept = if old.len().saturating_mul(new.len()) <= MOST_COMPARED { common(&old, &new) } else { 0 };
    (old.len() - kept, new.len() - kept)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// How many lines two texts have in common, in the same order.
fn common(old: &[&[u8]], new: &[&[u8]]) -> usize {
    let mut row = vec![0; new.len() + 1];
    for line in old {
        let mut diagonal = 0;
        for (at, other) in new.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if line == other { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Where `old` stands in the file, alone; with the file's line endings, should the model not have written them.
fn find_once(
    content: &[u8],
    name: &str,
    old: String,
    new: String,
) -> Result<(usize, String, String), ToolError> {
    let (mut old, mut new) = (old, new);
    let mut places = occurrences(content, old.as_bytes());
    if places.is_empty() && uses_crlf(content) && !old.contains('\r') {
        (old, new) = (to_crlf(&old), to_crlf(&new));
        places = occurrences(content, old.as_bytes());
    } else if uses_crlf(content) && !new.contains('\r') {
        new = to_crlf(&new);
    }
    match places.as_slice() {
        [at] => Ok((*at, old, new)),
        [] => Err(ToolError::for_model(not_found(content, name, &old))),
        many => {
            let lines: Vec<String> =
                many.iter().take(10).map(|at| line_at(content, *at).to_string()).collect();
            let count = many.len();
            Err(ToolError::for_model(format!(
                "\"old\" stands {count} times in {name} (lines {}); add lines around it until it is unique",
                lines.join(", ")
            )))
        }
    }
}

/// Every place of `needle`, overlapping ones apart.
fn occurrences(content: &[u8], needle: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    let finder = needle.first().copied();
    while let Some(first) = finder
        && let Some(step) = content[from..].iter().position(|byte| *byte == first)
    {
        let at = from + step;
        if content[at..].starts_with(needle) {
            places.push(at);
            from = at + needle.len();
        } else {
            from = at + 1;
        }
    }
    places
}

fn not_found(content: &[u8], name: &str, old: &str) -> String {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = String::from_utf8_lossy(content);
    let wanted = old.lines().find(|line| !line.trim().is_empty()).map(squeezed).unwrap_or_default();
    let near = text.lines().position(|line| !wanted.is_empty() && squeezed(line) == wanted);
    match near {
        Some(at) => format!(
            "\"old\" does not stand in {name}; line {} differs from its first line in spaces only, or what follows \
             differs. Read the file again and copy the text exactly, without line numbers",
            at + 1
        ),
        None => format!(
            "\"old\" does not stand in {name} (0 times); read the file again and copy the text exactly"
        ),
    }
}

fn content_of(path: &WorktreePath) -> Result<Vec<u8>, ToolError> {
    let file = path.open().map_err(path_error)?;
    let mut content = Vec::new();
    let read = file.take(MAX_EDITED_BYTES + 1).read_to_end(&mut content);
    read.map_err(|error| ToolError::for_model(format!("{}: {error}", path.relative())))?;
    if content.len() as u64 > MAX_EDITED_BYTES {
        let limit = MAX_EDITED_BYTES >> 20;
        return Err(ToolError::for_model(format!(
            "{} is larger than {limit} MiB; use a command",
            path.relative()
        )));
    }
    Ok(content)
}

/// Whether every line ends with CRLF.
fn uses_crlf(content: &[u8]) -> bool {
    let feeds = content.iter().filter(|byte| **byte == b'\n').count();
    feeds > 0 && content.windows(2).filter(|pair| pair == b"\r\n").count() == feeds
}

fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn line_at(content: &[u8], at: usize) -> usize {
    content[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::super::world_for_tests::world;
    use super::*;

    #[tokio::test]
    async fn an_edit_replaces_exactly_one_place_and_says_where() {
        let place = world();
        place.write("a.rs", "fn a() {\n    1\n}\nfn b() {\n    1\n}\n");
        let edit = |old: &str, new: &str| json!({"path": "a.rs", "old": old, "new": new});
        let error = place.call("edit_file", edit("    1\n", "    2\n")).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "\"old\" stands 2 times in a.rs (lines 2, 5); add lines around it until it is unique"
        );
        let error = place.call("edit_file", edit("  fn  a() {", "x")).await.unwrap_err().to_string();
        assert!(error.contains("line 1 differs from its first line in spaces only"), "{error}");
        let error = place.call("edit_file", edit("nowhere", "x")).await.unwrap_err().to_string();
        assert!(error.contains("0 times"), "{error}");
        assert!(place.call("edit_file", edit("fn a", "fn a")).await.is_err());
        let done = place.call("edit_file", edit("fn b() {\n    1", "fn b() {\n    2")).await.unwrap();
        assert_eq!(done.text, "edited a.rs at line 4 (2 lines replaced by 2)");
        assert_eq!(place.read("a.rs"), b"fn a() {\n    1\n}\nfn b() {\n    2\n}\n");
    }

    #[tokio::test]
    async fn an_edit_counts_the_lines_that_it_changes_and_not_those_that_it_names() {
        let place = world();
        for (old, new, removed, added) in [
            ("b\nc", "b\nx\nc", 0, 1),
            ("b\nc\n", "b\n", 1, 0),
            ("a\nb\nc\nd", "A\nb\nc\nD", 2, 2),
            ("c", "C", 1, 1),
            ("c\nd", "cd", 2, 1),
            ("d", "d\n", 1, 1),
        ] {
            place.write("a.txt", "a\nb\nc\nd");
            let edit = json!({"path": "a.txt", "old": old, "new": new});
            let facts = place.call("edit_file", edit).await.unwrap().facts.unwrap();
            assert_eq!(
                (&facts["lines_removed"], &facts["lines_added"]),
                (&json!(removed), &json!(added)),
                "{old:?} {new:?}"
            );
        }
    }

    #[tokio::test]
    async fn nothing_is_written_into_another_repository() {
        let place = world();
        place.write("sub/.git", "gitdir: ../elsewhere\n");
        place.write("sub/deep/a.txt", "a\n");
        for (tool, arguments) in [
            ("write_file", json!({"path": "sub/new/b.txt", "content": "b\n"})),
            ("edit_file", json!({"path": "sub/deep/a.txt", "old": "a", "new": "b"})),
        ] {
            let error = place.call(tool, arguments).await.unwrap_err().to_string();
            assert!(error.contains("\"sub\", a git repository of its own"), "{error}");
        }
        assert_eq!(place.read("sub/deep/a.txt"), b"a\n");
        place.call("write_file", json!({"path": "subtle/b.txt", "content": "b\n"})).await.unwrap();
    }

    #[tokio::test]
    async fn line_endings_bytes_and_modes_stay() {
        let place = world();
        place.write("dos.txt", b"\xef\xbb\xbfone\r\ntwo\r\ncaf\xe9\r\n");
        let done =
            place.call("edit_file", json!({"path": "dos.txt", "old": "one\ntwo", "new": "1\n2\n3"})).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(place.read("dos.txt"), b"\xef\xbb\xbf1\r\n2\r\n3\r\ncaf\xe9\r\n");
        place.call("edit_file", json!({"path": "dos.txt", "old": "3", "new": "3\n4"})).await.unwrap();
        assert_eq!(place.read("dos.txt"), b"\xef\xbb\xbf1\r\n2\r\n3\r\n4\r\ncaf\xe9\r\n");
        place.call("write_file", json!({"path": "dos.txt", "content": "a\nb\n"})).await.unwrap();
        assert_eq!(place.read("dos.txt"), b"a\r\nb\r\n");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            place.write("run.sh", "echo one\n");
            let script = place.world.root.path().join("run.sh");
            std::fs::set_permissions(script.as_path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            place.call("edit_file", json!({"path": "run.sh", "old": "one", "new": "two"})).await.unwrap();
            assert_eq!(script.as_path().metadata().unwrap().permissions().mode() & 0o777, 0o755);
        }
    }

    #[tokio::test]
    async fn a_file_is_written_with_its_directories() {
        let place = world();
        let written =
            place.call("write_file", json!({"path": "new/deep/f.txt", "content": "a\nb\n"})).await.unwrap();
        assert_eq!(written.text, "created new/deep/f.txt (2 lines, 4 bytes)");
        let written =
            place.call("write_file", json!({"path": "new/deep/f.txt", "content": ""})).await.unwrap();
        assert_eq!(written.text, "wrote new/deep/f.txt (0 lines, 0 bytes)");
        assert!(place.call("write_file", json!({"path": "new", "content": ""})).await.is_err());
        assert!(place.call("write_file", json!({"path": "new/deep/f.txt/x", "content": ""})).await.is_err());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn links_are_not_written_through() {
        let place = world();
        place.write("real", "text");
        std::os::unix::fs::symlink("real", place.world.root.path().join("link").as_path()).unwrap();
        std::fs::hard_link(place.dir.path().join("secret"), place.world.root.path().join("hard").as_path())
            .unwrap();
        let error =
            place.call("edit_file", json!({"path": "link", "old": "text", "new": "x"})).await.unwrap_err();
        assert!(error.to_string().contains("symbolic link to \"real\""), "{error}");
        place.call("write_file", json!({"path": "hard", "content": "x"})).await.unwrap();
        assert_eq!(std::fs::read(place.dir.path().join("secret")).unwrap(), b"the secret\n");
        assert_eq!(place.read("real"), b"text");
    }
}
