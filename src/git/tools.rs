//! `git_status` and `git_diff`, with which a session looks at its own changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::GitError;
use super::inside_git::InsideGit;
use super::worktree::{ChangedFile, PatchText, Worktree};
use crate::domain::denied_files::{DENIED_COUNT, DeniedFiles};
use crate::domain::judged_paths::JudgedPaths;
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
    tools((worktree, None), origin, page_lines)
}

/// The same for a program at work, which could mislead a git that looks from outside of its sandbox.
pub fn tools_inside(
    (worktree, inside): (&Worktree, InsideGit),
    origin: &CommitId,
    page_lines: u32,
) -> Vec<Arc<dyn Tool>> {
    tools((worktree, Some(inside)), origin, page_lines)
}

fn tools(
    (worktree, inside): (&Worktree, Option<InsideGit>),
    origin: &CommitId,
    page_lines: u32,
) -> Vec<Arc<dyn Tool>> {
    let tool = |kind, name: &str, description: String, parameters| {
        let spec = ToolSpec { name: name.to_owned(), description, parameters };
        let (worktree, inside, origin) = (worktree.clone(), inside.clone(), origin.clone());
        Arc::new(GitTool { kind, spec, worktree, inside, origin, page_lines }) as Arc<dyn Tool>
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
    /// Where git looks; `None` = from outside of every sandbox.
    inside: Option<InsideGit>,
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
        let (denied, judged) = permit.into_files();
        Box::pin(async move {
            match self.kind {
                Kind::Status => status(self.changes(arguments, limits).await?, &denied),
                Kind::Diff => {
                    let path = match arguments.get("path").and_then(Value::as_str) {
                        Some(named) => {
                            Some(inside(&self.worktree, named, &judged)?).filter(|path| path != ".")
                        }
                        None => None,
                    };
                    let patch = self.patch(arguments, path.as_deref(), denied, limits).await?;
                    diff(patch, arguments, path, (self.page_lines as usize, limits))
                }
            }
        })
    }
}

impl GitTool {
    /// What is compared with.
    async fn base(&self, arguments: &Value) -> Result<String, ToolError> {
        let last = arguments.get("since").and_then(Value::as_str) == Some("last_commit");
        match (last, &self.inside) {
            (false, _) => Ok(self.origin.to_string()),
            (true, Some(_)) => Ok("HEAD".to_owned()),
            (true, None) => match self.worktree.head().await.map_err(for_model)? {
                Some(head) => Ok(head.to_string()),
                None => Err(ToolError::for_model("there is no commit yet")),
            },
        }
    }

    async fn changes(&self, arguments: &Value, limits: CallLimits) -> Result<Vec<ChangedFile>, ToolError> {
        let base = self.base(arguments).await?;
        let changes = match &self.inside {
            Some(inside) => inside.look(&base, limits.timeout).await.map_err(for_model)?.into_changes().await,
            None => self.worktree.changes(&commit(&base)?).await,
        };
        changes.map_err(for_model)
    }

    /// The patch, and how many files are left out of it.
    async fn patch(
        &self,
        arguments: &Value,
        path: Option<&str>,
        denied: DeniedFiles,
        limits: CallLimits,
    ) -> Result<(PatchText, u64), ToolError> {
        let base = self.base(arguments).await?;
        let Some(inside) = &self.inside else {
            let patch = self.worktree.diff_without(&commit(&base)?, path, DIFF_CAP, denied).await;
            return patch.map_err(for_model);
        };
        let look = inside.look(&base, limits.timeout).await.map_err(for_model)?;
        let is_below = |file: &ChangedFile| {
            path.is_none_or(|path| file.path == path || file.path.starts_with(&format!("{path}/")))
        };
        let of_denied = look.changes.iter().filter(|file| is_below(file) && !denied.is_empty());
        let left_out: Vec<String> =
            of_denied.filter(|file| denied.contains(&file.path)).map(|file| file.path.clone()).collect();
        // The name that a denied file had before is not shown either.
        let before = look
            .changes
            .iter()
            .filter_map(|file| file.from.clone().filter(|_| left_out.contains(&file.path)));
        let names: Vec<String> = left_out.iter().cloned().chain(before).collect();
        let patch = look.into_patch(path, &names, DIFF_CAP).await.map_err(for_model)?;
        Ok((patch, left_out.len() as u64))
    }
}

fn commit(text: &str) -> Result<CommitId, ToolError> {
    CommitId::parse(text).map_err(|error| ToolError::Fatal(error.to_string()))
}

fn status(mut changes: Vec<ChangedFile>, denied: &DeniedFiles) -> Result<ToolOutput, ToolError> {
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

fn diff(
    (patch, left_out): (PatchText, u64),
    arguments: &Value,
    path: Option<String>,
    (page_lines, limits): (usize, CallLimits),
) -> Result<ToolOutput, ToolError> {
    let count = |name: &str| {
        arguments.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
    };
    let from = count("from_line").unwrap_or(1).max(1);
    let most = count("max_lines").unwrap_or(page_lines).clamp(1, page_lines);
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
fn inside(worktree: &Worktree, named: &str, judged: &JudgedPaths) -> Result<String, ToolError> {
    let root = WorktreeRoot::open(worktree.path())
        .map_err(|error| ToolError::Fatal(format!("the worktree: {error}")))?;
    let resolved = root.resolve(named).and_then(|path| match judged.has(&path.relative()) {
        true => Ok(path),
        false => Err(path.changed()),
    });
    match resolved {
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
