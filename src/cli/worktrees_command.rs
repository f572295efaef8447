//! `agentd worktrees list` and `prune`: which worktrees exist, and which may be removed.

use std::time::Duration;

use serde_json::json;

use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use super::repositories::{self, OpenOptions};
use crate::git::prune::{ListedWorktree, PruneOutcome, Pruned};
use crate::lifecycle::taken;
use crate::record::summary_text::counted;
use crate::repository::clean_up::{self, KnownWorktree};
use crate::repository::context::RepositoryContext;

/// `agentd worktrees list`.
pub fn list(context: &Context) -> Result<(), CommandError> {
    context.block_on(async {
        let site = site(context).await?;
        let known = clean_up::list(&site).await?;
        if context.output.json() {
            let rows: Vec<_> = known.iter().map(document).collect();
            return context.output.document(&rows);
        }
        if known.is_empty() {
            return context.output.line(format!("No worktrees in {}.", site.worktree_root()));
        }
        let rows: Vec<Vec<String>> = known
            .iter()
            .map(|one| {
                let listed = &one.listed;
                vec![
                    listed.name.clone(),
                    listed.branch.clone().unwrap_or_else(|| "(no branch)".to_owned()),
                    listed.head.as_ref().map(|head| head.short().to_owned()).unwrap_or_default(),
                    state(one),
                ]
            })
            .collect();
        context.output.table(&["WORKTREE", "BRANCH", "COMMIT", "STATE"], &rows)
    })?
}

fn document(one: &KnownWorktree) -> serde_json::Value {
    let listed = &one.listed;
    json!({
        "name": listed.name,
        "issue": listed.name.strip_prefix("issue-").map(|key| key.parse::<u64>().map_or(json!(key), |number| json!(number))),
        "path": listed.path.to_string(),
        "branch": listed.branch,
        "head": listed.head,
        "origin": one.mapping.as_ref().map(|mapping| &mapping.origin.branch),
        "run_id": one.mapping.as_ref().map(|mapping| mapping.run_id),
        "changed_files": listed.changed,
        "present": listed.present,
        "not_ours": one.is_not_ours(),
        "locked": listed.locked,
        "nested_repository": listed.nested,
        "holder": one.holder.as_ref().map(ToString::to_string),
    })
}

fn state(one: &KnownWorktree) -> String {
    let listed = &one.listed;
    if let Some(holder) = &one.holder {
        return format!("in use by {holder}");
    }
    if !listed.present {
        return "its directory is gone".to_owned();
    }
    if let Some(reason) = &listed.locked {
        return format!("locked ({reason})");
    }
    if let Some(nested) = &listed.nested {
        return format!("holds a repository of its own, {nested}");
    }
    let state = files_state(listed);
    match one.is_not_ours() {
        Some(why) => format!("{state}; {why}"),
        None => state,
    }
}

fn files_state(listed: &ListedWorktree) -> String {
    match listed.changed {
        Some(0) => "clean".to_owned(),
        Some(count) => counted(count, "uncommitted file"),
        None if listed.branch.is_none() => "it stands on no branch".to_owned(),
        None => "cannot be read".to_owned(),
    }
}

/// `agentd worktrees prune [--dry-run]`.
pub fn prune(context: &Context, dry_run: bool) -> Result<(), CommandError> {
    context.block_on(async {
        let site = site(context).await?;
        let pruned =
            clean_up::clean_up(&site, Duration::ZERO, dry_run, &taken::worktrees(&site).await).await?;
        if context.output.json() {
            let of = |removed: bool| -> Vec<serde_json::Value> {
                pruned.iter().filter_map(|one| told(one, removed)).collect()
            };
            return context
                .output
                .document(&json!({ "dry_run": dry_run, "removed": of(true), "kept": of(false) }));
        }
        if pruned.is_empty() {
            return context.output.line(format!("No worktrees in {}.", site.worktree_root()));
        }
        for one in &pruned {
            let out = context.output;
            let line = match &one.outcome {
                PruneOutcome::Removed { files, bytes, kept_as } => format!(
                    "{} {}: {files} files, {} KiB; its commit stays on {kept_as}",
                    out.toned("removed", Tone::Good),
                    one.name,
                    bytes.div_ceil(1024)
                ),
                PruneOutcome::WouldRemove => format!("would remove {}", one.name),
                PruneOutcome::Kept { reason } => {
                    format!("{} {}: {reason}", out.toned("kept", Tone::Warn), one.name)
                }
            };
            out.line(line)?;
        }
        Ok(())
    })?
}

fn told(one: &Pruned, removed: bool) -> Option<serde_json::Value> {
    match (&one.outcome, removed) {
        (PruneOutcome::Removed { files, bytes, kept_as }, true) => Some(json!({
            "name": one.name, "branch": one.branch, "files": files, "bytes": bytes, "kept_as": kept_as,
        })),
        (PruneOutcome::WouldRemove, true) => Some(json!({ "name": one.name, "branch": one.branch })),
        (PruneOutcome::Kept { reason }, false) => {
            Some(json!({ "name": one.name, "branch": one.branch, "reason": reason }))
        }
        _ => None,
    }
}

async fn site(context: &Context) -> Result<RepositoryContext, CommandError> {
    repositories::one(context, &OpenOptions::default()).await
}
