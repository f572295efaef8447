//! `git_status` and `git_diff`, with which a session looks at its own changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::GitError;
use super::worktree::{ChangedFile, Worktree};
use crate::domain::denied_files::{DENIED_COUNT, DeniedFiles};
use crate::domain::message::ToolSpec;
use crate::domain::name::CommitId;
use crate::domain::policy::Risk;
use crate::engine::tool::{CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::sys::worktree_path::WorktreeRoot;

/// Diffs are made up to this size and then paged.
const DIFF_CAP: usize = 4 * 1024 * 1024;
/// Room for the first line, which says what the page is.
const HEADER_BYTES: usize = 600;

/// The two tools for a worktree. `origin` is the commit that the work started from. `page_lines` is the most lines of a
/// page of a diff (D77).
pub fn worktree_tools(worktree: &Worktree, origin: &CommitId, page_lines: u32) -> Vec<Arc<dyn Tool>> {
    let tool = |kind, name: &str, description: String, parameters| {
        let spec = ToolSpec { name: name.to_owned(), description, parameters };
        let (worktree, origin) = (worktree.clone(), origin.clone());
        Arc::new(GitTool { kind, spec, worktree, origin, page_lines }) as Arc<dyn Tool>
    };
    let since = json!({
        "type": "string",
        "enum": ["origin", "last_commit"],
        "description": "origin (default): all work of this issue; last_commit: what is not committed yet"
    });
    vec![
        tool(
            Kind::Status,
            "git_status",
            "Lists the files that were changed, one a line: a letter (A added, M modified, D deleted, R renamed, T \
             mode or kind), lines added and removed, and the path. Untracked files count as added, ignored ones not."
                .to_owned(),
            json!({"type": "object", "properties": {"since": since.clone()}, "additionalProperties": false}),
        ),
        tool(
            Kind::Diff,
            "git_diff",
            format!(
                "Shows the changes as a unified diff, at most {page_lines} lines at a time, untracked files included. The \
                 first line of the result is JSON with lines_shown, lines_remaining and has_more."
            ),
            json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Only this file or directory, relative to the worktree"},
                    "since": since,
                    "from_line": {"type": "integer", "minimum": 1, "description": "First line, default 1"},
                    "max_lines": {"type": "integer", "minimum": 1, "maximum": page_lines, "description": format!("Default {page_lines}")}
                },
                "additionalProperties": false
            }),
        ),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Status,
    Diff,
}

struct GitTool {
    kind: Kind,
    spec: ToolSpec,
    worktree: Worktree,
    origin: CommitId,
    page_lines: u32,
}

impl Tool for GitTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Read
    }

    fn call<'a>(&'a self, permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        let denied = permit.denied_files();
        Box::pin(async move {
            let base = base(&self.worktree, &self.origin, arguments).await?;
            match self.kind {
                Kind::Status => status(&self.worktree, &base, &denied).await,
                Kind::Diff => {
                    diff(&self.worktree, &base, arguments, (self.page_lines as usize, denied), limits).await
                }
            }
        })
    }
}

async fn base(worktree: &Worktree, origin: &CommitId, arguments: &Value) -> Result<CommitId, ToolError> {
    match arguments.get("since").and_then(Value::as_str) {
        Some("last_commit") => {
            let head = worktree.head().await.map_err(for_model)?;
            head.ok_or_else(|| ToolError::for_model("there is no commit yet"))
        }
        _ => Ok(origin.clone()),
    }
}

async fn status(worktree: &Worktree, base: &CommitId, denied: &DeniedFiles) -> Result<ToolOutput, ToolError> {
    let mut changes = worktree.changes(base).await.map_err(for_model)?;
    let all = changes.len();
    let is_denied = |path: &String| !denied.is_empty() && denied.contains(path);
    changes.retain(|change| !is_denied(&change.path));
    for change in &mut changes {
        change.from.take_if(|from| is_denied(from));
    }
    let left_out = all - changes.len();
    if changes.is_empty() && left_out == 0 {
        return Ok(ToolOutput::text("no changes\n"));
    }
    let line = |change: &ChangedFile| {
        let counts = if change.binary {
            "binary".to_owned()
        } else {
            format!("+{} -{}", change.added, change.removed)
        };
        let from = change.from.as_ref().map(|from| format!(" (from {from})")).unwrap_or_default();
        format!("{} {counts} {}{from}\n", change.kind.letter(), change.path)
    };
    let mut text: String = changes.iter().map(line).collect();
    if left_out > 0 {
        text.push_str(&format!("{}\n", json!({ DENIED_COUNT: left_out })));
    }
    Ok(ToolOutput::text(text))
}

async fn diff(
    worktree: &Worktree,
    base: &CommitId,
    arguments: &Value,
    (page_lines, denied): (usize, DeniedFiles),
    limits: CallLimits,
) -> Result<ToolOutput, ToolError> {
    let path = match arguments.get("path").and_then(Value::as_str) {
        Some(named) => Some(inside(worktree, named)?).filter(|path| path != "."),
        None => None,
    };
    let count = |name: &str| {
        arguments.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
    };
    let from = count("from_line").unwrap_or(1).max(1);
    let most = count("max_lines").unwrap_or(page_lines).clamp(1, page_lines);
    let (patch, left_out) =
        worktree.diff_without(base, path.as_deref(), DIFF_CAP, denied).await.map_err(for_model)?;
    let room =
        usize::try_from(limits.max_inline_bytes).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES).max(1024);
    let total = patch.text.lines().count();
    let mut text = String::new();
    let mut shown = 0;
    for line in patch.text.lines().skip(from - 1).take(most) {
        let line: String = line.chars().take(2000).collect();
        if shown > 0 && text.len() + line.len() + 1 > room {
            break;
        }
        text.push_str(&line);
        text.push('\n');
        shown += 1;
    }
    let remaining = total.saturating_sub(from - 1) - shown;
    let mut head = json!({
        "path": path.unwrap_or_else(|| ".".to_owned()),
        "from_line": from,
        "lines_shown": shown,
        "lines_remaining": remaining,
        "has_more": remaining > 0 || patch.truncated,
    });
    if left_out > 0 {
        head[DENIED_COUNT] = json!(left_out);
    }
    let text = if total == 0 && left_out == 0 { "no changes\n".to_owned() } else { text };
    Ok(ToolOutput { text: format!("{head}\n{text}"), exit_code: None, facts: Some(head) })
}

/// The path as git knows it; `.` for the whole worktree.
fn inside(worktree: &Worktree, named: &str) -> Result<String, ToolError> {
    let root = WorktreeRoot::open(worktree.path())
        .map_err(|error| ToolError::Fatal(format!("the worktree: {error}")))?;
    match root.resolve(named) {
        Ok(path) => Ok(path.relative()),
        Err(error) => Err(ToolError::Refused {
            code: error.code().unwrap_or("path_outside_worktree").to_owned(),
            message: error.to_string(),
        }),
    }
}

/// Errors of git have absolute paths. The model reads only the kind of the error; people read the journal.
fn for_model(error: GitError) -> ToolError {
    tracing::warn!(%error, "git failed for a tool");
    ToolError::for_model("git could not look at the worktree")
}
