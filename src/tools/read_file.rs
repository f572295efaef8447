//! `read_file`: a page of a text file, with line numbers.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::page::Page;
use super::{Allowed, BuiltIn, ToolWorld, blocking, path_error};
use crate::domain::policy::Risk;
use crate::engine::tool::{ToolError, ToolOutput};

/// How far lines are counted beyond the page.
const COUNTED_BYTES: u64 = 64 * 1024 * 1024;
/// Part of a line that is held; the page shows less.
const LINE_BYTES: u64 = 16 * 1024;
const PROBE_BYTES: usize = 8 * 1024;

pub(super) fn tool(world: &Arc<ToolWorld>) -> BuiltIn {
    let most = world.page_lines;
    BuiltIn::new(
        world,
        Risk::Read,
        |world, arguments, allowed| Box::pin(read(world, arguments, allowed)),
        "read_file",
        format!(
            "Reads a text file of the worktree, at most {most} lines at a time. The first line of the result is JSON with \
             lines_shown, lines_remaining and has_more; then each line follows as its number, a tab, and the text. \
             Numbers and tabs are not part of the file."
        ),
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Relative to the worktree, with /"},
                "from_line": {"type": "integer", "minimum": 1, "description": "First line, default 1"},
                "max_lines": {"type": "integer", "minimum": 1, "maximum": most, "description": format!("Default {most}")}
            },
            "required": ["path"],
            "additionalProperties": false
        }),
    )
}

async fn read(world: Arc<ToolWorld>, arguments: Value, allowed: Allowed) -> Result<ToolOutput, ToolError> {
    let arguments_of = Arguments(&arguments);
    let path = world.resolve(arguments_of.text("path")?, &allowed.judged)?;
    let mut page = Page::new(arguments_of, world.page_lines, allowed.limits)?;
    blocking(move || {
        let name = path.relative();
        let file = path.open().map_err(path_error)?;
        let size = file.metadata().map(|meta| meta.len()).unwrap_or_default();
        let failed = |error: std::io::Error| ToolError::for_model(format!("{name}: {error}"));
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let probe = reader.fill_buf().map_err(failed)?;
        if probe[..probe.len().min(PROBE_BYTES)].contains(&0) {
            return Err(ToolError::for_model(format!(
                "{name} is a binary file of {size} bytes; it has no lines to read"
            )));
        }
        if probe.starts_with(b"\xef\xbb\xbf") {
            reader.consume(3);
        }
        let (mut lossy, mut crlf, mut counted) = (false, false, true);
        let mut beyond = 0;
        while let Some(line) = next_line(&mut reader).map_err(failed)? {
            let text = String::from_utf8_lossy(line.text.strip_suffix(b"\r").unwrap_or(&line.text));
            lossy |= matches!(text, std::borrow::Cow::Owned(_)) && !line.cut;
            crlf |= line.text.ends_with(b"\r");
            page.push(|number| format!("{number}\t"), &text);
            if page.is_full() {
                beyond += line.bytes;
                if beyond > COUNTED_BYTES {
                    counted = false;
                    break;
                }
            }
        }
        let mut about = vec![("path", json!(name))];
        if lossy {
            about.push(("encoding", json!("not UTF-8; invalid bytes are shown as \u{fffd}")));
        }
        if crlf {
            about.push(("line_endings", json!("CRLF")));
        }
        Ok(page.finish(&about, 0, counted))
    })
    .await
}

struct Line {
    text: Vec<u8>,
    bytes: u64,
    cut: bool,
}

/// The next line without its line feed, of which no more than a part is held.
fn next_line(reader: &mut impl BufRead) -> std::io::Result<Option<Line>> {
    let mut text = Vec::new();
    let mut bytes = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut text)? as u64;
    if bytes == 0 {
        return Ok(None);
    }
    let mut cut = false;
    if text.last() == Some(&b'\n') {
        text.pop();
    } else if bytes == LINE_BYTES {
        let rest = skip_line(reader)?;
        bytes += rest;
        cut = rest > 1;
    }
    Ok(Some(Line { text, bytes, cut }))
}

fn skip_line(reader: &mut impl BufRead) -> std::io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let (length, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        reader.consume(length);
        skipped += length as u64;
        if ended {
            return Ok(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world_for_tests::world;
    use super::*;

    #[tokio::test]
    async fn x_032_a_long_file_is_read_in_pages() {
        let place = world();
        place.write("long.txt", (1..=1200).map(|n| format!("l{n}\n")).collect::<String>());
        let first = place.call("read_file", json!({"path": "long.txt"})).await.unwrap();
        let facts = first.facts.unwrap();
        assert_eq!(
            (&facts["lines_shown"], &facts["lines_remaining"], &facts["has_more"]),
            (&json!(500), &json!(700), &json!(true))
        );
        assert!(
            first.text.starts_with("{\"path\":\"long.txt\",\"from_line\":1,\"lines_shown\":500,"),
            "{}",
            &first.text[..80]
        );
        assert!(first.text.contains("\n500\tl500\n") && !first.text.contains("l501"));
        let last = place.call("read_file", json!({"path": "./long.txt", "from_line": 1001})).await.unwrap();
        assert!(
            last.text.contains("\"lines_shown\":200,\"lines_remaining\":0,\"has_more\":false"),
            "{}",
            last.text
        );
    }

    #[tokio::test]
    async fn files_that_are_no_plain_text_are_said_to_be_so() {
        let place = world();
        place.write("bin", b"a\0b");
        place.write("latin", b"caf\xe9\r\nx\r\n");
        place.write("bom", b"\xef\xbb\xbffirst\nlast without end");
        place.write("empty", b"");
        place.write("wide", vec![b'x'; 40_000]);
        let error = place.call("read_file", json!({"path": "bin"})).await.unwrap_err();
        assert_eq!(error.to_string(), "bin is a binary file of 3 bytes; it has no lines to read");
        let text = place.call("read_file", json!({"path": "latin"})).await.unwrap().text;
        assert!(
            text.contains("not UTF-8") && text.contains("CRLF") && text.ends_with("\n1\tcaf\u{fffd}\n2\tx\n"),
            "{text}"
        );
        let text = place.call("read_file", json!({"path": "bom"})).await.unwrap().text;
        assert!(text.ends_with("\n1\tfirst\n2\tlast without end\n"), "{text}");
        let text = place.call("read_file", json!({"path": "empty"})).await.unwrap().text;
        assert!(text.contains("\"lines_shown\":0,\"lines_remaining\":0,\"has_more\":false"), "{text}");
        let text = place.call("read_file", json!({"path": "wide"})).await.unwrap().text;
        assert!(text.len() < 3000 && text.contains("bytes more on this line"));
    }

    #[tokio::test]
    async fn what_is_not_there_is_said_with_a_next_step() {
        let place = world();
        place.write("d/f", "");
        let error = place.call("read_file", json!({"path": "no.txt"})).await.unwrap_err();
        assert!(matches!(&error, ToolError::ForModel { error_type, .. } if error_type == "ResourceNotFound"));
        assert!(error.to_string().contains("list_files"), "{error}");
        let error = place.call("read_file", json!({"path": "d"})).await.unwrap_err();
        assert_eq!(error.to_string(), "\"d\" is not a regular file");
    }
}
